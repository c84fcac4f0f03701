//! The configuration file: defaults for the flags of `queries`.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use sonar_sys::host::regular;
use toml::{Table, Value};

use crate::exit::{self, usage};
use crate::queries::args::QueriesArgs;

/// The settings of `[queries]`: each has the name, syntax and checks of its flag.
pub const SETTINGS: [&str; 14] = [
    "interface",
    "port",
    "sample",
    "snap-replies",
    "interval",
    "by",
    "class",
    "role",
    "sort",
    "limit",
    "shape",
    "color",
    "threads",
    "ring-mib",
];

/// The content of a configuration file.
#[derive(Debug, Default)]
pub struct File {
    /// Defaults for `mongosonar queries`.
    pub queries: QueriesArgs,
}

/// Where a configuration file may be; the first one found is read.
pub fn places() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let user = user.map(|folder| folder.join("mongosonar/config.toml"));
    user.into_iter().chain([PathBuf::from("/etc/mongosonar/config.toml")]).collect()
}

/// The file that is read, if there is one.
pub fn find(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_path_buf).or_else(|| places().into_iter().find(|path| path.is_file()))
}

/// Reads the configuration; an empty one when there is no file.
///
/// # Errors
/// The file cannot be read, or a setting is wrong ([`crate::exit::UsageError`]).
pub fn load(named: Option<&Path>) -> Result<File> {
    let Some(path) = find(named) else { return Ok(File::default()) };
    let text = read(&path)?;
    parse(&text).map_err(|why| usage!("configuration file {}: {why}", path.display()))
}

/// The text of a configuration file.
///
/// # Errors
/// There is none, it is no text, or it cannot be read ([`crate::exit::UsageError`]).
pub fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    regular::open_no_device(path).and_then(io::read_to_string).map_err(|error| match error.kind() {
        ErrorKind::NotFound => usage!("configuration file {shown}: there is no such file"),
        ErrorKind::InvalidData => usage!("configuration file {shown}: it is not a text in UTF-8"),
        _ => usage!("cannot read the configuration file {shown}: {}", exit::message(&error.into())),
    })
}

/// Reads the text of a configuration file.
fn parse(text: &str) -> Result<File, String> {
    let is_json = text.trim_start().starts_with('{');
    let hint = if is_json { "; for mongoperf's options there is disk bench --mongoperf-config" } else { "" };
    let tables: Table =
        text.parse().map_err(|error: toml::de::Error| format!("not TOML: {}{hint}", error.message()))?;
    let mut file = File::default();
    for (name, table) in &tables {
        match (name.as_str(), table) {
            ("queries", Value::Table(settings)) => file.queries = queries(settings)?,
            _ => return Err(format!("unknown table {name:?}, expected [queries]")),
        }
    }
    Ok(file)
}

/// Reads the settings of `queries` by the rules of its flags.
fn queries(settings: &Table) -> Result<QueriesArgs, String> {
    let command = QueriesArgs::augment_args(Command::new("queries"));
    let mut words = vec!["queries".to_owned()];
    for (key, value) in settings {
        if !SETTINGS.contains(&key.as_str()) {
            return Err(format!("unknown setting queries.{key}, expected one of: {}", SETTINGS.join(" ")));
        }
        let flags = flags(key, value).ok_or_else(|| {
            format!("queries.{key}: write a number, a text in quotes, or a list of them in brackets")
        })?;
        // One by one, so that an error names its setting.
        let alone = command.clone().try_get_matches_from(["queries".to_owned()].iter().chain(&flags));
        alone.map_err(|error| format!("queries.{key}: {}", reason(&error)))?;
        words.extend(flags);
    }
    let matches = command.try_get_matches_from(words).map_err(|error| reason(&error))?;
    QueriesArgs::from_arg_matches(&matches).map_err(|error| reason(&error))
}

/// A setting as its flags: `--port=27017`, once for each value.
fn flags(key: &str, value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    };
    let values = match value {
        Value::Array(values) => values.iter().map(text).collect::<Option<Vec<_>>>()?,
        one => vec![text(one)?],
    };
    Some(values.iter().map(|value| format!("--{key}={value}")).collect())
}

/// The error of clap, without its heading and its hint at the help.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let text = text.split("\n\nUsage:").next().unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fills in arguments that were not given.
pub fn merge(mut args: QueriesArgs, file: &File) -> QueriesArgs {
    let from = &file.queries;
    // A capture file and the history have no ports to listen on and no interval.
    if args.read.is_none() && !args.is_past() {
        if args.interface.is_empty() {
            args.interface.clone_from(&from.interface);
        }
        if args.port.is_empty() {
            args.port.clone_from(&from.port);
        }
        args.interval = args.interval.or(from.interval);
        args.snap_replies = args.snap_replies.or(from.snap_replies);
    }
    if args.class.is_empty() {
        args.class.clone_from(&from.class);
    }
    args.sample = args.sample.or(from.sample);
    args.by = args.by.or(from.by);
    args.role = args.role.or(from.role);
    args.sort = args.sort.or_else(|| from.sort.clone());
    args.limit = args.limit.or(from.limit);
    args.shape = args.shape.or(from.shape);
    args.color = args.color.or(from.color);
    args.threads = args.threads.or(from.threads);
    args.ring_mib = args.ring_mib.or(from.ring_mib);
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::program;
    use crate::queries::args::ByArg;

    #[test]
    fn a_flag_goes_before_the_file() {
        let file =
            parse("[queries]\nport = [27018, \"27020-27022\"]\nby = \"app\"\ninterval = \"5s\"\n").unwrap();
        let merged = merge(QueriesArgs { by: Some(ByArg::Client), ..Default::default() }, &file);
        assert_eq!((merged.by, merged.port.len()), (Some(ByArg::Client), 2));
        assert_eq!(merged.interval, Some(std::time::Duration::from_secs(5)));
        // Of the history they would select one server, and windows that it does not have.
        let from = crate::args::when::parse_time("-1h").ok();
        let past = merge(QueriesArgs { from, ..Default::default() }, &file);
        assert_eq!((past.by, past.port.len(), past.interval), (Some(ByArg::App), 0, None));
    }

    /// For each setting a value that is right and one that is wrong, as TOML.
    const VALUES: [(&str, &str, &str); 14] = [
        ("interface", "[\"eth0\", \"lo\"]", "[[\"eth0\"]]"),
        ("port", "27017", "0"),
        ("sample", "\"1/10\"", "0.1"),
        ("snap-replies", "512", "25"),
        ("interval", "\"5s\"", "\"1ms\""),
        ("by", "\"namespace\"", "\"taste\""),
        ("class", "[\"user\", \"waiting\"]", "[\"user\", \"guest\"]"),
        ("role", "\"issued\"", "\"boss\""),
        ("sort", "\"p99\"", "\"taste\""),
        ("limit", "20", "\"few\""),
        ("shape", "\"plain\"", "\"round\""),
        ("color", "\"never\"", "true"),
        ("threads", "2", "0"),
        ("ring-mib", "64", "1"),
    ];

    #[test]
    fn a_bad_value_gives_the_error_of_the_flag() {
        assert_eq!(VALUES.map(|(key, ..)| key), SETTINGS, "a row for every setting");
        for (key, good, bad) in VALUES {
            let read = parse(&format!("[queries]\n{key} = {good}\n"));
            assert!(read.is_ok(), "{key} = {good}: {read:?}");
            let why = parse(&format!("[queries]\n{key} = {bad}\n")).unwrap_err();
            assert!(why.starts_with(&format!("queries.{key}: ")), "{why}");
            if bad.starts_with("[[") {
                continue;
            }
            let value: Value = format!("x = {bad}").parse::<Table>().unwrap()["x"].clone();
            let words = ["mongosonar".to_owned(), "queries".to_owned()];
            let flags = flags(key, &value).unwrap();
            let error = program().try_get_matches_from(words.iter().chain(&flags)).unwrap_err();
            let said = reason(&error);
            assert_eq!(why, format!("queries.{key}: {said}"));
        }
    }

    #[test]
    fn what_does_not_belong_there_is_named() {
        for (text, parts) in [
            ("[queries]\nports = [1]\n", ["queries.ports", "expected one of: interface port"]),
            ("[query]\nport = 1\n", ["\"query\"", "[queries]"]),
            ("port = 1\n", ["\"port\"", "[queries]"]),
            ("[queries\n", ["not TOML", "]"]),
            ("{nThreads: 1, r: true}", ["not TOML", "--mongoperf-config"]),
        ] {
            let why = parse(text).unwrap_err();
            assert!(parts.iter().all(|part| why.contains(part)), "{text}: {why}");
        }
    }
}
