//! The configuration of a running mongod.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use sonar_sys::Host;
use sonar_sys::host::process::Process;
use sonar_sys::host::process_files::ProcessFiles;
use sonar_sys::host::regular;

/// The most bytes to read of a configuration of mongod.
const MOST_CONFIG_BYTES: u64 = 1 << 20;

/// The configuration of a running mongod: the path as mongod sees it, else as we do; as far as its user may read it.
/// Anybody may call a process mongod and name any file.
pub fn configuration(machine: &Host, mongod: &Process) -> Option<String> {
    let file = mongod.option(&["--config", "-f"])?;
    let opened = if machine.is_live() {
        let at = fs::read_link(mongod.folder().join("cwd")).unwrap_or_else(|_| PathBuf::from("/"));
        let files = ProcessFiles::of(mongod).or_else(|_| ProcessFiles::in_our_root(mongod)).ok()?;
        files.open(&at.join(file))
    } else {
        let inside = own_root(mongod).join(file.trim_start_matches('/'));
        regular::open(&inside).or_else(|_| regular::open(&machine.path(file)))
    };
    let mut text = Vec::new();
    opened.ok()?.take(MOST_CONFIG_BYTES).read_to_end(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// The root folder of a mongod, as this process reaches it.
pub fn own_root(mongod: &Process) -> PathBuf {
    mongod.folder().join("root")
}

/// One of these keys of a configuration in YAML (`dbPath: x`), or of one before 2.6 (`dbpath = x`).
pub fn setting(text: &str, keys: &[&str]) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.split(" #").next().unwrap_or(line).trim();
        let rest = keys.iter().find_map(|key| line.strip_prefix(key))?.trim_start();
        let value = rest.strip_prefix([':', '='])?.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// `path:` below `systemLog:` in YAML, or `logpath =`.
pub fn log_of(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("systemLog:")).skip(1);
    let section: Vec<&str> = lines
        .by_ref()
        .take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t', '#']))
        .collect();
    setting(&section.join("\n"), &["path"]).or_else(|| setting(text, &["logpath"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_and_log_are_read_from_either_kind_of_configuration() {
        let yaml = "systemLog:\n  path: /var/log/x\nstorage:\n  # dbPath: /old\n  dbPath: \"/var/lib/mongo db\" # here\n";
        let dbpath_of = |text| setting(text, &["dbPath", "dbpath"]);
        assert_eq!(dbpath_of(yaml).as_deref(), Some("/var/lib/mongo db"));
        assert_eq!(dbpath_of("port = 1\ndbpath=/data\n").as_deref(), Some("/data"));
        assert_eq!(dbpath_of("dbPathology: x\ndbPath:\n"), None);
        assert_eq!(log_of(yaml).as_deref(), Some("/var/log/x"));
        assert_eq!(
            log_of("net:\n  path: /no\nsystemLog:\n  destination: file\n\n  path: /log\n").as_deref(),
            Some("/log")
        );
        assert_eq!(log_of("logpath=/var/log/mongo.log\n").as_deref(), Some("/var/log/mongo.log"));
        assert_eq!(log_of("systemLog:\n  destination: syslog\nnet:\n  path: /no\n"), None);
    }
}
