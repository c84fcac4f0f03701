//! The configuration of a mongod or mongos: which file it is, and what it says.

use std::io::Read;
use std::path::{Path, PathBuf};

use sonar_sys::Host;
use sonar_sys::host::process::Process;

use super::own_files::{OwnFiles, working_folder};

/// The most bytes to read of a configuration.
const MOST_CONFIG_BYTES: u64 = 1 << 20;
/// The most bytes of the name of a setting, and of the name with its sections.
const MAX_NAME: usize = 120;
const MAX_FULL_NAME: usize = 240;
/// The most settings.
const MAX_SETTINGS: usize = 1_000;

/// The settings of a configuration, in YAML or, as before 2.6, as `name = value`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ServerConfiguration {
    /// Names with their sections (`storage.dbPath`), and values, in the order of the file.
    settings: Vec<(String, String)>,
}

impl ServerConfiguration {
    /// That of a process, as far as its user may read it: the path as the process sees it, else as we do. Anybody may
    /// call a process mongod and name any file. `None` if it names none, or it cannot be read.
    pub fn of_process(machine: &Host, process: &Process) -> Option<Self> {
        let file = configuration_file(process)?;
        // A copy rarely says where the process works.
        let working = if machine.is_live() { working_folder(process) } else { PathBuf::from("/") };
        let path = working.join(file);
        let opened = OwnFiles::of(machine, process).find(|files| files.open(&path));
        let mut text = Vec::new();
        opened.ok()?.take(MOST_CONFIG_BYTES).read_to_end(&mut text).ok()?;
        Some(Self::parse(&String::from_utf8(text).ok()?))
    }

    /// Reads its text. What is no plain value is left out: lists, and objects in braces only as their whole text.
    pub fn parse(text: &str) -> Self {
        let mut settings = Vec::new();
        let mut sections: Vec<(usize, &str)> = Vec::new();
        // How deep the setting is whose value may go on in the next lines, which are deeper.
        let mut value_of = None;
        for line in text.lines() {
            if settings.len() >= MAX_SETTINGS {
                break;
            }
            let line = line.split(" #").next().unwrap_or(line).trim_end();
            let content = line.trim_start();
            if content.is_empty() || content.starts_with(['#', '-', '%']) {
                continue;
            }
            let depth = line.len() - content.len();
            if value_of.is_some_and(|of_setting| of_setting < depth) {
                continue;
            }
            sections.retain(|(of_section, _)| *of_section < depth);
            let Some((name, value)) = content.split_once([':', '=']) else { continue };
            let (name, value) =
                (name.trim().trim_matches(['"', '\'']), value.trim().trim_matches(['"', '\'']));
            value_of = (!value.is_empty()).then_some(depth);
            if !is_name(name) {
                continue;
            }
            if value.is_empty() {
                sections.push((depth, name));
                continue;
            }
            let path = sections.iter().map(|(_, section)| *section).chain([name]);
            if path.clone().map(|part| part.len() + 1).sum::<usize>() <= MAX_FULL_NAME {
                settings.push((path.collect::<Vec<_>>().join("."), value.to_owned()));
            }
        }
        Self { settings }
    }

    /// All settings with their values, in the order of the file.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// The value of the first setting that has one of these names.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        let (_, value) = self.settings.iter().find(|(name, _)| names.contains(&name.as_str()))?;
        Some(value)
    }
}

/// The configuration that a process names in its arguments.
pub fn configuration_file(process: &Process) -> Option<&Path> {
    process.option(&["--config", "-f"]).map(Path::new)
}

/// A setting of a server: its options, and its names in a configuration.
#[derive(Copy, Clone, Debug)]
pub struct ServerSetting {
    options: &'static [&'static str],
    names: &'static [&'static str],
}

impl ServerSetting {
    /// The folder of its data.
    pub const DATA_FOLDER: Self = Self { options: &["--dbpath"], names: &["storage.dbPath", "dbpath"] };
    /// Its log.
    pub const LOG: Self = Self { options: &["--logpath"], names: &["systemLog.path", "logpath"] };
    /// Whether it encrypts connections: `requireTLS`, `preferSSL` and so on.
    pub const TLS_MODE: Self = Self {
        options: &["--tlsMode", "--sslMode"],
        names: &["net.tls.mode", "net.ssl.mode", "tlsMode", "sslMode"],
    };
    /// The most connections.
    pub const MAX_CONNECTIONS: Self =
        Self { options: &["--maxConns"], names: &["net.maxIncomingConnections", "maxConns"] };
    /// The size of the cache of WiredTiger, in GiB.
    pub const CACHE_SIZE: Self = Self {
        options: &["--wiredTigerCacheSizeGB"],
        names: &["storage.wiredTiger.engineConfig.cacheSizeGB", "wiredTigerCacheSizeGB"],
    };

    /// Its value in the arguments of a process.
    pub fn argument(self, process: &Process) -> Option<&str> {
        process.option(self.options)
    }

    /// Its value in the arguments of a process, or else in this configuration of it.
    pub fn of<'a>(self, process: &'a Process, configuration: &'a ServerConfiguration) -> Option<&'a str> {
        self.argument(process).or_else(|| configuration.value(self.names))
    }

    /// Its value in the arguments of a process, or else in its configuration, which is read only then.
    pub fn read(self, machine: &Host, process: &Process) -> Option<String> {
        let configuration = || ServerConfiguration::of_process(machine, process);
        let configured = || Some(configuration()?.value(self.names)?.to_owned());
        self.argument(process).map(str::to_owned).or_else(configured)
    }
}

/// Whether this is the name of a setting: other text before a colon may be a part of a value.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, setting: ServerSetting) -> Option<String> {
        ServerConfiguration::parse(text).value(setting.names).map(str::to_owned)
    }

    #[test]
    fn folder_and_log_are_read_from_either_kind_of_configuration() {
        let yaml = "systemLog:\n  path: /var/log/x\nstorage:\n  # dbPath: /old\n  dbPath: \"/var/lib/mongo db\" # here\n";
        let folder = |text| value(text, ServerSetting::DATA_FOLDER);
        let log = |text| value(text, ServerSetting::LOG);
        assert_eq!(folder(yaml).as_deref(), Some("/var/lib/mongo db"));
        assert_eq!(folder("port = 1\ndbpath=/data\n").as_deref(), Some("/data"));
        assert_eq!(folder("storage.dbPath: /data\n").as_deref(), Some("/data"));
        assert_eq!(folder("dbPathology: x\nstorage:\n  dbPath:\n"), None);
        assert_eq!(log(yaml).as_deref(), Some("/var/log/x"));
        assert_eq!(
            log("net:\n  path: /no\nsystemLog:\n  destination: file\n\n  path: /log\n").as_deref(),
            Some("/log")
        );
        assert_eq!(log("logpath=/var/log/mongo.log\n").as_deref(), Some("/var/log/mongo.log"));
        assert_eq!(log("systemLog:\n  destination: syslog\nnet:\n  path: /no\n"), None);
    }

    #[test]
    fn a_configuration_that_is_made_to_be_large_is_read_in_part() {
        let many = "a: 1\n".repeat(100_000);
        assert_eq!(ServerConfiguration::parse(&many).settings().len(), MAX_SETTINGS);
        let section = |depth: usize| format!("{}{}:\n", " ".repeat(depth), "a".repeat(MAX_NAME));
        let nested: String =
            (0..200).map(section).chain([format!("{}b: 1\n", " ".repeat(200)).repeat(100)]).collect();
        let read = ServerConfiguration::parse(&(nested + "storage:\n  dbPath: /data\n"));
        let folder = read.value(ServerSetting::DATA_FOLDER.names);
        assert_eq!((read.settings().len(), folder), (1, Some("/data")));
    }

    #[test]
    fn the_mode_of_tls_is_found_in_a_configuration() {
        let mode = |text| value(text, ServerSetting::TLS_MODE);
        assert_eq!(mode("net:\n  port: 1\n  tls:\n    mode: requireTLS\n").as_deref(), Some("requireTLS"));
        assert_eq!(mode("net:\n  ssl:\n    mode: \"preferSSL\"\n").as_deref(), Some("preferSSL"));
        assert_eq!(mode("sslMode = requireSSL\n").as_deref(), Some("requireSSL"));
        assert_eq!(mode("operationProfiling:\n  mode: all\n"), None);
    }

    #[test]
    fn settings_have_their_sections() {
        let text = "# comment\nstorage:\n  dbPath: /data # here\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 2\n\
                    net:\n  port: 27017\n";
        let expected = [
            ("storage.dbPath", "/data"),
            ("storage.wiredTiger.engineConfig.cacheSizeGB", "2"),
            ("net.port", "27017"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(ServerConfiguration::parse(text).settings(), expected);
    }
}
