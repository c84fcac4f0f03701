//! Exit codes, the same in every command, and how an error is printed.

use std::fmt::{self, Write};

use signal_hook::consts::{SIGINT, SIGTERM};
use sonar_view::kit::wrap;
use sonar_view::past::PastError;

use crate::stop;

/// The command did its job.
pub const OK: u8 = 0;
/// It could not, and there is no result: a file cannot be opened or is of another kind, a permission is missing, a server
/// cannot be reached.
pub const FAILED: u8 = 1;
/// The arguments are wrong, or the configuration file is, or cannot be read. clap uses the same code.
pub const USAGE: u8 = 2;
/// Part of the input could not be read: it is damaged or cut, or one of several files is none of those that the command
/// reads; the result covers the rest.
pub const TRUNCATED: u8 = 3;
/// A command that judges found a difference or something to look at.
pub const WORSE: u8 = 4;
/// A check found a problem.
pub const PROBLEM: u8 = 5;

/// What each code means, as help and the manual pages list it.
pub const TABLE: [(&str, &str); 7] = [
    ("0", "success"),
    ("1", "failure, no result: nothing could be read, no permission, server unreachable"),
    ("2", "wrong arguments; configuration wrong or unreadable"),
    ("3", "part of the input is damaged, cut or unreadable; the result covers the rest"),
    (
        "4",
        "compare: something is new, slower or heavier; what-changed: something changed; disk check: warnings",
    ),
    ("5", "disk check, doctor: problems"),
    ("130, 143", "stopped by Ctrl-C or SIGTERM before it was done"),
];

/// The table as lines of help.
pub fn help() -> String {
    /// Columns of a meaning, so that no terminal of 80 columns breaks a line.
    const MEANING: usize = 67;
    let mut text = String::from("Exit codes:");
    for (code, meaning) in TABLE {
        for (at, part) in wrap(meaning, MEANING).iter().enumerate() {
            let code = if at == 0 { code } else { "" };
            // Strings take every write.
            let _ = write!(text, "\n  {code:<8}  {part}");
        }
    }
    text
}

/// An argument that is wrong in a way that shows only after all of them have been read.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// An input was not read to its end because the command was stopped, and there is no result without the rest of it.
#[derive(Debug)]
pub struct Interrupted(pub String);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Makes an [`anyhow::Error`] of wrong arguments, with the syntax of `format!`.
macro_rules! usage {
    ($($part:tt)*) => {
        ::anyhow::Error::new($crate::exit::UsageError(format!($($part)*)))
    };
}
pub(crate) use usage;

/// What stopped the program, and the exit code of a command that could not finish its job because of it; `None` if
/// nothing did. It is no failure if the reader of the output has gone.
pub fn stopped() -> Option<(&'static str, u8)> {
    Some(match stop::signal()? {
        SIGINT => ("Ctrl-C", 130),
        SIGTERM => ("SIGTERM", 143),
        _ => ("SIGHUP", OK),
    })
}

/// The exit code of a file that was read as far as it goes. If that is not to its end, says why, and what became of the
/// `rest`.
pub fn of_damage(file: &str, damage: Option<&str>, rest: &str) -> u8 {
    let Some(damage) = damage else { return OK };
    eprintln!("mongosonar: {file}: {damage}; {rest}");
    TRUNCATED
}

/// The exit code of an error.
pub fn code(error: &anyhow::Error) -> u8 {
    use sonar_mongo::ServerError::{ConnectionString, Filter};
    let is_interrupted = |cause: &(dyn std::error::Error + 'static)| {
        // An I/O error does not name what it is made of among its causes.
        let io = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause.is::<Interrupted>() || io.is_some_and(|inner| inner.is::<Interrupted>())
    };
    if error.chain().any(is_interrupted)
        && let Some((_, code)) = stopped()
    {
        return code;
    }
    let of_driver = |error: &sonar_mongo::ServerError| matches!(error, ConnectionString(_) | Filter(_));
    let is_wrong = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<UsageError>() || cause.downcast_ref().is_some_and(PastError::is_wrong_question)
    };
    let is_usage = error.downcast_ref::<UsageError>().is_some()
        || error.downcast_ref::<sonar_mongo::ServerError>().is_some_and(of_driver)
        || error.chain().any(is_wrong);
    if is_usage { USAGE } else { FAILED }
}

/// An error with its causes on one line, each said once and without the number of the system's error.
pub fn message(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = sonar_mongo::without_number(&cause.to_string());
        match parts.last_mut() {
            // The library above has said it already.
            Some(last) if *last == text || last.ends_with(&format!(": {text}")) => {}
            // It says the same and more.
            Some(last) if text.starts_with(&format!("{last}: ")) => *last = text,
            _ => parts.push(text),
        }
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let io = || io::Error::from_raw_os_error(2);
        let opened = Err::<(), _>(io()).context("cannot open mongod.log").unwrap_err();
        assert_eq!(message(&opened), "cannot open mongod.log: No such file or directory");
        let twice = Err::<(), _>(io()).context(format!("cannot open mongod.log: {}", io())).unwrap_err();
        assert_eq!(message(&twice), "cannot open mongod.log: No such file or directory");
        let more = Err::<(), _>(anyhow!("wire.pcap: it is cut")).context("wire.pcap").unwrap_err();
        assert_eq!(message(&more), "wire.pcap: it is cut");
        // A file may be called as an error puts it.
        let named = Err::<(), _>(anyhow!("the file is empty")).context("empty").unwrap_err();
        assert_eq!(message(&named), "empty: the file is empty");
    }

    #[test]
    fn the_reference_has_the_table() {
        let reference = include_str!("../../../docs/reference.md");
        for (code, meaning) in TABLE {
            assert!(
                reference.contains(&format!("| {code} | {meaning} |\n")),
                "docs/reference.md lacks {code}"
            );
        }
    }

    #[test]
    fn wrong_arguments_are_known_under_any_context() {
        assert_eq!(code(&usage!("--sort {}", "taste")), USAGE);
        assert_eq!(code(&usage!("key").context("configuration")), USAGE);
        let unknown = PastError::WrongQuestion("no server at port 5".to_owned());
        assert_eq!(code(&anyhow::Error::new(unknown).context("--baseline")), USAGE);
        assert_eq!(code(&PastError::NothingStored("nothing is stored".to_owned()).into()), FAILED);
        assert_eq!(code(&anyhow!("no such file")), FAILED);
    }
}
