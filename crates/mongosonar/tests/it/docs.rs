//! Every example of README.md and docs/ is run, and shown with its real output.
//!
//! A fenced block is one of:
//! - `console`: run here, in a folder of its own for each page with `fixtures/` in it. Output that varies is
//!   written as `…`: within a line for any characters, on a line of its own for any lines.
//! - `console lab=…` or `sh lab=…`: run by `lab/tests/test_docs.py`, as it needs root, a server or a disk.
//! - `toml`: a configuration file; it is checked here. `toml agent` is one of the agent.
//! - anything else: followed by a comment that says why it is not run, `<!-- Not run by the tests: … -->`.
//!
//! `SNAPSHOTS=overwrite cargo test -p mongosonar --test it docs` writes the output into the pages.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Folder, text};
use snapbox::filter::{Filter as _, FilterNewlines, NormalizeToExpected};
use snapbox::{Data, IntoData};

const REASON: &str = "<!-- Not run by the tests: ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// A fenced block: what stands behind its fence, and its lines from (first) to (after the last), from 0.
#[derive(Debug)]
struct Block {
    info: String,
    first: usize,
    end: usize,
}

fn blocks(lines: &[&str]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in lines.iter().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        match open.take() {
            Some(block) => blocks.push(Block { end: at, ..block }),
            None => open = Some(Block { info: info.trim().to_owned(), first: at + 1, end: 0 }),
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

#[test]
fn every_block_is_run_or_says_why_not() {
    let mut wrong = String::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for block in blocks(&lines) {
            let after = lines[block.end + 1..].iter().find(|line| !line.trim().is_empty());
            let has_reason = after.is_some_and(|line| line.starts_with(REASON));
            let is_run =
                matches!(block.info.as_str(), "console" | "toml" | "toml agent") || is_lab(&block.info);
            if is_run == has_reason {
                let what =
                    if is_run { "is run and says that it is not" } else { "is not run and does not say why" };
                writeln!(wrong, "{}:{}: `{}` {what}", page.display(), block.first, block.info).unwrap();
            }
            if block.info == "console"
                && !lines[block.first..block.end].iter().any(|line| line.starts_with("$ "))
            {
                writeln!(wrong, "{}:{}: no command in it", page.display(), block.first).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn is_lab(info: &str) -> bool {
    info.split_whitespace().nth(1).is_some_and(|word| word.starts_with("lab="))
}

/// The commands of a block, each with what it prints.
fn steps(lines: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((command, said))) if said.is_empty() && command.ends_with('\\') => {
                *command = format!("{command}\n{line}");
            }
            (None, Some((_, said))) => said.push((*line).to_owned()),
            (None, None) => {}
        }
    }
    steps
}

/// What a command of the shell prints, on both its outputs.
fn output(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_mongosonar")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let done = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("MONGOSONAR_URI")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// `…` in the pages is `[..]` and `...` of snapbox.
fn pattern(lines: &[String]) -> String {
    let line = |line: &String| {
        if line == "…" { "...\n".to_owned() } else { format!("{}\n", line.replace('…', "[..]")) }
    };
    lines.iter().map(line).collect()
}

fn shown(text: &str) -> String {
    let line = |line: &str| {
        if line == "..." { "…\n".to_owned() } else { format!("{}\n", line.replace("[..]", "…")) }
    };
    text.lines().map(line).collect()
}

/// What a command prints, with `…` where the page has it and the rest agrees.
fn normalized(actual: &str, expected: &[String]) -> String {
    let expected: Data = FilterNewlines.filter(pattern(expected).into_data());
    let actual = FilterNewlines.filter(actual.to_owned().into_data());
    let actual = NormalizeToExpected::new().redact().normalize(actual, &expected);
    shown(&actual.render().unwrap())
}

#[test]
fn the_examples_print_what_the_pages_show() {
    let overwrite = std::env::var("SNAPSHOTS").is_ok_and(|what| what == "overwrite");
    let mut wrong = String::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let name = page.file_stem().unwrap().to_str().unwrap();
        let folder = Folder::new(&format!("docs-{name}"));
        std::os::unix::fs::symlink(root().join("fixtures"), folder.path("fixtures")).unwrap();
        let (mut page_now, mut copied) = (String::new(), 0);
        for block in blocks(&lines) {
            let within = &lines[block.first..block.end];
            if let "toml" | "toml agent" = block.info.as_str() {
                let config = folder.file("config.toml", within.join("\n").as_bytes());
                // It may contain a password.
                fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
                let check = if block.info == "toml" { "completions bash" } else { "agent --check-config" };
                let done = crate::support::run(&format!("{check} --config {}", config.display()));
                assert!(done.status.success(), "{}: {}: {done:?}", page.display(), block.first);
            }
            if block.info != "console" {
                continue;
            }
            lines[copied..block.first].iter().for_each(|line| writeln!(page_now, "{line}").unwrap());
            copied = block.end;
            for (command, said) in steps(within) {
                let printed = output(&command, folder.path("").as_path());
                let printed = normalized(&printed, &said);
                let expected: String = said.iter().map(|line| format!("{line}\n")).collect();
                if printed != expected {
                    let place = format!("{}:{}", page.display(), block.first);
                    writeln!(wrong, "{place}: $ {command}\n--- the page\n{expected}--- printed\n{printed}")
                        .unwrap();
                }
                write!(page_now, "$ {command}\n{printed}").unwrap();
            }
        }
        lines[copied..].iter().for_each(|line| writeln!(page_now, "{line}").unwrap());
        if overwrite && page_now != text {
            fs::write(&page, page_now).unwrap();
        }
    }
    assert!(
        overwrite || wrong.is_empty(),
        "{wrong}\nSNAPSHOTS=overwrite writes what is printed into the pages"
    );
}

/// The commands as clap lists them in the help of each.
fn commands() -> Vec<String> {
    let mut found = vec![String::new()];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at].clone();
        let help = crate::support::run(&format!("{parent} --help"));
        let help = crate::support::text(&help.stdout).to_owned();
        let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        for line in list.lines().take_while(|line| !line.is_empty()) {
            let name = line.split_whitespace().next().unwrap_or_default();
            // Continued descriptions stand further to the right.
            if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
                found.push(format!("{parent} {name}").trim().to_owned());
            }
        }
        at += 1;
    }
    found
}

#[test]
fn the_reference_has_the_help_of_every_command() {
    let reference = fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let line = format!("$ mongosonar {command} --help").replace("  ", " ");
        assert!(reference.lines().any(|one| one == line), "docs/reference.md has no `{line}`");
    }
}

#[test]
fn the_changelog_has_the_version_of_the_shape_rules() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let line = format!("- Shape ids follow version {} of the rules", sonar_core::shape::RULES_VERSION);
    assert!(changelog.lines().any(|one| one.starts_with(&line)), "CHANGELOG.md has no line `{line}`");
}

/// Words that new users did not understand.
const CONFUSING: [&str; 11] = [
    "mend",
    "mends",
    "mended",
    "hear",
    "hears",
    "heard",
    "rubbish",
    "rnd",
    "told",
    "is looked for",
    "are looked for",
];

/// The confusing words of a line.
fn confusing(line: &str) -> Vec<&'static str> {
    let words = line.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
    let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
    CONFUSING.into_iter().filter(|word| words.contains(&format!(" {word} "))).collect()
}

/// The reference holds the help of every command.
#[test]
fn no_page_uses_a_word_that_confused() {
    let mut wrong = String::new();
    for page in pages() {
        let page_text = fs::read_to_string(&page).unwrap();
        for (number, line) in page_text.lines().enumerate() {
            for word in confusing(line) {
                writeln!(wrong, "{}:{}: {word:?} in: {line}", page.display(), number + 1).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The texts in quotes of a line of Rust, without the names of variables in them.
fn quoted(line: &str) -> String {
    let code = line.split("//").next().unwrap_or_default();
    let parts = code.split('"').skip(1).step_by(2).flat_map(|text| text.split('{'));
    parts.map(|part| part.rsplit('}').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

/// The lines of all sources without their tests, with where they stand.
fn messages() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for package in fs::read_dir(root().join("crates")).unwrap() {
        sources(&package.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 100);
    let mut found = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        // Texts of tests are for nobody but us.
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in source.lines().enumerate() {
            // An attribute names a file or a feature.
            if !line.trim_start().starts_with('#') {
                found.push((format!("{}:{}", file.display(), number + 1), line.to_owned()));
            }
        }
    }
    found
}

#[test]
fn no_message_uses_a_word_that_confused() {
    let mut wrong = String::new();
    for (place, line) in messages() {
        for word in confusing(&quoted(&line)) {
            writeln!(wrong, "{place}: {word:?} in: {line}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Words for the largest of several values. In columns and the names of figures it is `max`.
const OTHER_WORDS_FOR_MAX: [&str; 4] = ["highest", "peak", "most", "maximum"];

/// Another word for the largest value in a short text, as headings are: not in `at most`, which is a cap, nor in a part
/// of a sentence.
fn other_words_for_max(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase().replace("at most", "");
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let is_heading = text.len() < 30 && !text.starts_with("the ") && !text.contains(['{', '}', '<']);
    OTHER_WORDS_FOR_MAX.into_iter().find(|word| is_heading && words.contains(word))
}

#[test]
fn the_largest_value_has_one_name_in_all_columns() {
    assert_eq!(
        ["max", "peak load", "Max.", "most"].map(|text| other_words_for_max(text).is_some()),
        [false, true, false, true]
    );
    let mut wrong = String::new();
    let folders = ["pages", "pages/digest", "pages/disk", "pages/why", "parts", "live"];
    let pages = folders.map(|folder| root().join("web/src").join(folder));
    let pages = pages.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let pages = pages.filter(|page| page.as_ref().unwrap().file_type().unwrap().is_file());
    let mut lines = messages();
    for page in pages.map(|page| page.unwrap().path()) {
        let page_text = fs::read_to_string(&page).unwrap();
        lines.extend(page_text.lines().map(|line| (page.display().to_string(), line.to_owned())));
    }
    for (place, line) in lines {
        let code = line.split("//").next().unwrap_or_default();
        for text in code.split('"').skip(1).step_by(2) {
            if let Some(word) = other_words_for_max(text) {
                writeln!(wrong, "{place}: {word:?} in {text:?}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "say `max`: {wrong}");
}

/// Nouns that messages count.
const COUNTED: [&str; 26] = [
    "operations",
    "rows",
    "files",
    "documents",
    "connections",
    "packets",
    "clients",
    "reads",
    "accesses",
    "lines",
    "shapes",
    "steps",
    "rounds",
    "slices",
    "warnings",
    "problems",
    "indexes",
    "entries",
    "starts",
    "kinds",
    "blocks",
    "buffers",
    "threads",
    "databases",
    "statements",
    "messages",
];

/// The first noun that is plural whatever its number is: `{} rows`, but not `{} reads/s`.
fn fixed_plural(message: &str) -> Option<&str> {
    // A constant is never 1.
    let is_constant = |before: &str| before.ends_with(|c: char| c.is_ascii_uppercase());
    let places = message.match_indices("} ").filter(|(at, _)| !is_constant(&message[..*at]));
    let after = places.map(|(at, _)| message[at + 2..].trim_start_matches("more "));
    let noun = |rest: &'_ str| {
        COUNTED
            .into_iter()
            .find(|noun| rest.strip_prefix(noun).is_some_and(|end| !end.starts_with(['/', '_'])))
    };
    after.filter(|rest| !rest.is_empty()).find_map(noun)
}

#[test]
fn no_message_says_1_rows() {
    assert_eq!(fixed_plural("… and {} more rows"), Some("rows"));
    assert_eq!(fixed_plural("{} reads/s of {}"), None);
    let wrong: Vec<_> = messages().into_iter().filter(|(_, line)| fixed_plural(line).is_some()).collect();
    assert!(wrong.is_empty(), "use sonar_core::words::plural: {wrong:#?}");
}

#[test]
fn the_words_that_users_look_for_are_found() {
    let pages: Vec<_> =
        pages().into_iter().map(|page| fs::read_to_string(page).unwrap().to_lowercase()).collect();
    let help = text(&crate::support::run("--help").stdout).to_lowercase();
    let manual = text(&crate::support::run("man").stdout).to_lowercase();
    for word in ["fix", "connection", "slow ms", "queries per second", "exit codes", "slow operations"] {
        assert!(pages.iter().any(|page| page.contains(word)), "no page has {word:?}");
        assert!(help.contains(word), "mongosonar --help lacks {word:?}");
        assert!(manual.contains(word) || word == "exit codes", "mongosonar man lacks {word:?}");
    }
}

#[test]
fn blocks_and_wildcards_are_read_as_they_are_meant() {
    let lines: Vec<_> =
        "a\n```console lab=wire\n$ one \\\n  two\nsaid\n```\nb\n```\nx\n```".lines().collect();
    let found = blocks(&lines);
    assert_eq!(found.len(), 2);
    assert!(is_lab(&found[0].info) && !is_lab(&found[1].info) && !is_lab("console"));
    let steps = steps(&lines[found[0].first..found[0].end]);
    assert_eq!(steps, [("one \\\n  two".to_owned(), vec!["said".to_owned()])]);
    let expected = ["took …ms".to_owned(), "…".to_owned(), "end".to_owned()];
    assert_eq!(normalized("took 17ms\na\nb\nend\n", &expected), "took …ms\n…\nend\n");
    assert_ne!(normalized("takes 17ms\na\nb\nend\n", &expected), "took …ms\n…\nend\n");
}
