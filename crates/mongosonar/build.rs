//! Links the unwinder of libgcc into the binary, so that it needs no shared library but those of libc, and puts the
//! web page of the reports where `page.rs` embeds it from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The folder of the web app.
const WEB: &str = "../../web";
/// What the page is made of.
const SOURCES: [&str; 7] =
    ["src", "index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", ".npmrc"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if let Err(why) = page(&out) {
        eprintln!("{why}");
        std::process::exit(1);
    }
    unwinder(&out);
}

fn unwinder(out: &Path) {
    let of = |name| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_ENV") != "gnu" || of("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    // The standard library asks for libgcc_s by name, whatever -static-libgcc says. The linker finds this
    // script first, which stands for the static library.
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
}

/// Copies the page to `report.html` of the output folder. Builds it with npm where it is missing or older than its
/// sources.
fn page(out: &Path) -> Result<(), String> {
    let web = Path::new(WEB);
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", web.join(source).display());
    }
    let built = web.join("dist/report.html");
    let newest = SOURCES.iter().filter_map(|source| newest(&web.join(source))).max();
    let is_current = changed(&built).is_some_and(|built| Some(built) >= newest);
    if !is_current {
        npm(web)?;
    }
    fs::copy(&built, out.join("report.html"))
        .map_err(|error| format!("cannot read {}: {error}", built.display()))?;
    Ok(())
}

fn npm(web: &Path) -> Result<(), String> {
    for arguments in [&["ci"][..], &["run", "build"]] {
        // What is installed stays as long as the lock file does.
        if arguments == ["ci"]
            && changed(&web.join("node_modules/.package-lock.json"))
                >= changed(&web.join("package-lock.json"))
        {
            continue;
        }
        let command = format!("npm {}", arguments.join(" "));
        let output = Command::new("npm").args(arguments).current_dir(web).output().map_err(|error| {
            format!(
                "the web page of the reports is not built, and npm cannot run ({error}): install Node.js 20.19 or later \
                 with npm (scripts/install-prerequisites.sh run), or build it elsewhere with `make web` and copy web/dist"
            )
        })?;
        if !output.status.success() {
            let printed =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            return Err(format!(
                "the web page of the reports cannot be built: `{command}` in web/ failed (it needs Node.js 20.19 or later, \
                 and the npm registry once; scripts/install-prerequisites.sh run installs Node.js):\n{}",
                printed.concat()
            ));
        }
    }
    Ok(())
}

/// When a file was changed last.
fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// When a file, or one below a folder, was changed last.
fn newest(path: &Path) -> Option<SystemTime> {
    let own = changed(path);
    let entries = fs::read_dir(path).into_iter().flatten();
    let below = entries.filter_map(|entry| newest(&entry.ok()?.path())).max();
    own.max(below)
}
