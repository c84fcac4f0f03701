//! Completions, help and manual pages, generated from the arguments.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Arg, Command};
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use crate::args::values::NUMBERS;
use crate::exit;

/// Prints completions for a shell.
pub fn completions(command: &mut Command, shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "mongosonar", &mut script);
    // escaped: nothing in it comes from outside
    Ok(io::stdout().write_all(&script)?)
}

/// Ends the help of each command with the exit codes, and lets its numbers be negative, so that a wrong one is answered
/// with what is accepted.
pub fn with_exit_codes(command: Command) -> Command {
    ending_with(command, &exit::help())
}

fn ending_with(command: Command, exit_codes: &str) -> Command {
    let command = command.mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg });
    let before = command.get_after_long_help().or(command.get_after_help());
    // Without escape sequences there is nothing to strip, which took most of the time of a start.
    let before = before.map(|text| format!("{}\n\n", text.ansi())).unwrap_or_default();
    command
        .after_long_help(format!("{before}{exit_codes}"))
        .mut_subcommands(|one| if one.get_name() == "help" { one } else { ending_with(one, exit_codes) })
}

/// Whether the value of an option is a number, a size or a time.
fn is_number(arg: &Arg) -> bool {
    arg.get_value_names().unwrap_or_default().iter().any(|name| NUMBERS.contains(&name.as_str()))
}

/// Prints the main page, or writes the pages of all commands into a folder.
pub fn pages(command: Command, dir: Option<&Path>) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = dir else {
        let mut out = Vec::new();
        page(&command, &mut out)?;
        // escaped: nothing in it comes from outside
        return Ok(io::stdout().write_all(&out)?);
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    all_pages(&command, dir).with_context(|| format!("cannot write manual pages into {}", dir.display()))
}

fn all_pages(command: &Command, dir: &Path) -> io::Result<()> {
    let name = Man::new(command.clone()).get_filename();
    let mut out = Vec::new();
    page(command, &mut out)?;
    fs::write(dir.join(name), out)?;
    command.get_subcommands().filter(|one| !one.is_hide_set()).try_for_each(|one| all_pages(one, dir))
}

/// One page.
fn page(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let after = After::of(command);
    // The order of man-pages(7).
    let mut own = Roff::new();
    own.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::TABLE {
        own.control("TP", []);
        own.text([bold(code)]);
        own.text([roman(meaning)]);
    }
    if !after.notes.is_empty() {
        own.control("SH", ["NOTES"]);
        own.text([roman(after.notes.join(" "))]);
    }
    if !after.examples.is_empty() {
        own.control("SH", ["EXAMPLES"]);
        own.control("nf", []);
        for example in &after.examples {
            own.text([roman(example.as_str())]);
        }
        own.control("fi", []);
    }
    own.to_writer(out)
}

/// What stands after the options in the help of a command.
#[derive(Default)]
struct After {
    examples: Vec<String>,
    notes: Vec<String>,
}

impl After {
    fn of(command: &Command) -> Self {
        let text = command.get_after_long_help().or(command.get_after_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let text = text.split("Exit codes:").next().unwrap_or_default();
        let mut after = Self::default();
        for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            match line.strip_prefix("  ") {
                Some(example) => after.examples.push(example.to_owned()),
                None if line == "Examples:" || line == "Example:" => {}
                None => after.notes.push(line.to_owned()),
            }
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::cli::{self, program};

    /// Each command with the words that name it.
    fn all() -> Vec<(Vec<String>, Command)> {
        fn gather(command: &Command, path: &[String], into: &mut Vec<(Vec<String>, Command)>) {
            let path = [path, &[command.get_name().to_owned()]].concat();
            for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
                gather(one, &path, into);
            }
            into.push((path, command.clone()));
        }
        let mut into = Vec::new();
        gather(&program(), &[], &mut into);
        into
    }

    #[test]
    fn the_help_of_every_command_ends_with_examples_and_exit_codes() {
        for (path, command) in all() {
            let help = command.clone().render_long_help().to_string();
            let mut from = 0;
            for part in ["Example", "  mongosonar ", "Exit codes:\n  0 "] {
                let found = help[from..].find(part);
                // Some are shown with sudo.
                let found = found.or_else(|| help[from..].find("  sudo mongosonar "));
                assert!(found.is_some(), "{path:?}: no {part:?} in\n{help}");
                from += found.unwrap_or_default();
            }
            assert_eq!(help.matches("Exit codes").count(), 1, "{path:?}");
        }
    }

    #[test]
    fn no_line_after_the_options_is_broken() {
        // clap breaks lines at 100 columns, and does not indent what follows.
        for (path, command) in all() {
            let after = command.get_after_long_help().or(command.get_after_help()).unwrap().to_string();
            for line in after.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 100, "{path:?}: {line}");
            }
            let codes = after.split("Exit codes:").nth(1).unwrap();
            assert!(codes.lines().all(|line| line.chars().count() <= 80), "{path:?}: {codes}");
        }
    }

    #[test]
    fn a_wrong_number_is_answered_with_what_is_accepted_and_an_example() {
        let (mut program, mut count) = (program(), 0);
        for (path, command) in all() {
            for arg in command.get_arguments().filter(|arg| is_number(arg)) {
                let Some(option) = arg.get_long() else { continue };
                // Five seconds ago is a point in time.
                let is_point = ["from", "to", "from-a", "to-a", "from-b", "to-b", "at"].contains(&option);
                let wrong = ["abc", "1x", "-5", "99999999999999999999999999", "-5s"];
                for wrong in &wrong[..wrong.len() - usize::from(is_point)] {
                    let wrong = *wrong;
                    let words = [&path[..], &[format!("--{option}={wrong}")]].concat();
                    let error = program.try_get_matches_from_mut(&words).unwrap_err();
                    let said = error.to_string();
                    assert!(error.kind() == ErrorKind::ValueValidation, "{words:?}: {said}");
                    let (named, accepted) = said.split_once("': ").unwrap();
                    assert!(named.contains(wrong), "{words:?}: {said}");
                    let accepted = accepted.replace(wrong, "");
                    let gives_example = accepted.contains("like ") || accepted.contains("at most ");
                    assert!(
                        gives_example && accepted.contains(|c: char| c.is_ascii_digit()),
                        "{words:?}: {said}"
                    );
                    count += 1;
                }
            }
        }
        assert!(count > 150, "{count}");
    }

    /// The calls of mongosonar in a line of the shell, as words.
    fn calls(line: &str) -> Vec<Vec<String>> {
        let line = line.split("  ").next().unwrap_or_default();
        let parts = line.split(['|', ';']).map(|part| part.split('>').next().unwrap_or_default());
        let words = parts.map(|part| shlex::split(part).unwrap_or_else(|| panic!("quotes of {part}")));
        words
            .filter_map(|words| {
                let begin = words.iter().position(|word| word == "mongosonar")?;
                Some(words[begin..].to_vec())
            })
            .collect()
    }

    #[test]
    fn every_example_of_the_help_is_taken_by_the_arguments() {
        let (mut program, mut count) = (program(), 0);
        for (path, command) in all() {
            for line in After::of(&command).examples {
                for call in calls(&line) {
                    // A comment after two spaces.
                    let parsed = program.try_get_matches_from_mut(&call);
                    assert!(parsed.is_ok(), "{path:?}: {line}: {}", parsed.unwrap_err());
                    count += 1;
                }
            }
        }
        assert!(count > 40, "{count}");
    }

    #[test]
    fn a_page_has_its_sections_once() {
        for (path, command) in all() {
            let mut command = command;
            command.build();
            let mut out = Vec::new();
            page(&command, &mut out).unwrap();
            let page = String::from_utf8(out).unwrap();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "\"EXIT STATUS\""] {
                assert_eq!(
                    page.matches(&format!(".SH {section}\n")).count(),
                    1,
                    "{path:?} {section}\n{page}"
                );
            }
            assert!(page.contains("wrong arguments; configuration wrong or unreadable"));
            assert!(!page.contains("EXTRA"));
        }
    }

    #[test]
    fn old_names_still_work_and_are_not_shown() {
        for words in [
            "profiler set --db shop --level 1 --for 1s",
            "profiler report a.bson --for 1s",
            "queries -d 1s",
            "io live -i 2s -p 7 -d 1m",
            "io record -p 7 -d 1m reads.msio",
        ] {
            let words: Vec<_> = ["mongosonar"].into_iter().chain(words.split(' ')).collect();
            let parsed = program().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        }
        for (path, command) in all() {
            let help = command.clone().render_long_help().to_string();
            assert!(!help.contains("--for "), "{path:?}");
        }
    }

    /// The same thing has the same name everywhere, and a name means the same thing everywhere.
    #[test]
    fn a_flag_means_the_same_in_every_command() {
        use std::collections::BTreeMap;
        // mongoperf's r and w are its own, --filter is MongoDB's word for a query in `profiler set`. `queries --replay`
        // shows at the recorded speed what --read names, `agent --replay` names what it reads. `queries --threads` is
        // how many threads the program uses, `stacks --threads` which of the server's to show. `queries --shape`
        // is the form of its text, `why --shape` an id.
        let own = ["r", "w"];
        let mut shorts: BTreeMap<char, (String, String)> = BTreeMap::new();
        let mut values: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (path, command) in all() {
            let place = path.join(" ");
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long().map(str::to_owned) else { continue };
                if let Some(short) = arg.get_short().filter(|_| !own.contains(&long.as_str())) {
                    let (first, at) = shorts.entry(short).or_insert((long.clone(), place.clone()));
                    assert_eq!(*first, long, "-{short} is --{first} in {at} and --{long} in {place}");
                }
                let takes = match arg.get_action().takes_values() {
                    true => format!("{:?}", arg.get_value_names().unwrap_or_default()),
                    false => "nothing".to_owned(),
                };
                if ["filter", "replay", "shape", "threads"].contains(&long.as_str()) {
                    continue;
                }
                let (first, at) = values.entry(long.clone()).or_insert((takes.clone(), place.clone()));
                assert_eq!(*first, takes, "--{long} takes {first} in {at} and {takes} in {place}");
            }
        }
        for everywhere in ["html", "uri", "duration", "interval", "config", "json", "limit"] {
            assert!(values.contains_key(everywhere), "--{everywhere}");
        }
        assert_eq!(values["html"].0, "[\"FILE\"]");
        assert!(cli::program().get_arguments().any(|arg| arg.get_id() == "config"));
    }
}
