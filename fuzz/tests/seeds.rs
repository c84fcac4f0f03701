//! Each target with its seeds, and with changed ones, which are the same each time. `fuzz/run.sh` lets libFuzzer look for
//! inputs that run code not run before; this finds what breaks at once, and needs no instrumented build.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use sonar_fuzz::mutate::{Random, mutate};
use sonar_fuzz::targets::TARGETS;

/// So many changed inputs for each target. With `LONG=1`, libFuzzer has minutes for each.
const CHANGED: usize = 1_000;

/// Runs a target with an input. One that fails is left where libFuzzer leaves those that it finds.
fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(of, _)| *of == name).expect("a target of this name");
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(name);
        std::fs::create_dir_all(&folder).expect("a folder for inputs that fail");
        let file = folder.join("crash-of-the-tests");
        std::fs::write(&file, input).expect("the input is kept");
        eprintln!("{name} fails with {}", file.display());
        resume_unwind(panic);
    }
}

fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> =
        folder.read_dir().expect("seeds").map(|entry| entry.expect("a seed").path()).collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| std::fs::read(file).expect("a seed")).collect();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for seed in &seeds {
        run(name, seed);
    }
    let number = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|number| number.parse().ok());
    let mut random = Random(number.unwrap_or(1));
    for round in 0..CHANGED {
        let mut input = seeds[round % seeds.len()].clone();
        mutate(&mut input, &seeds[random.below(seeds.len())], &mut random);
        run(name, &input);
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_target_has_its_test() {
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

tests! {
    bson capture_file decoder decryption frame ftdc inflate io_file log message plaintext profile shape stacks store stream
    template
}
