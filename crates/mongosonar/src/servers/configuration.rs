//! The configuration of a mongod or mongos: which file it is, and what it says.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use sonar_sys::Host;
use sonar_sys::host::process::Process;

use super::own_files::OwnFiles;

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
        let file = process.option(&["--config", "-f"])?;
        // A copy rarely says where the process works.
        let working = || fs::read_link(process.folder().join("cwd")).ok().filter(|_| machine.is_live());
        let path = working().unwrap_or_else(|| PathBuf::from("/")).join(file);
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

    /// The folder of its data.
    pub fn data_folder(&self) -> Option<&str> {
        self.value(&["storage.dbPath", "dbpath"])
    }

    /// Its log.
    pub fn log(&self) -> Option<&str> {
        self.value(&["systemLog.path", "logpath"])
    }

    /// Whether it encrypts connections: `requireTLS`, `preferSSL` and so on.
    pub fn tls_mode(&self) -> Option<&str> {
        self.value(&["net.tls.mode", "net.ssl.mode", "tlsMode", "sslMode"])
    }
}

/// The log that a process names in its arguments or its configuration.
pub fn named_log(machine: &Host, process: &Process) -> Option<String> {
    let configured = || Some(ServerConfiguration::of_process(machine, process)?.log()?.to_owned());
    process.option(&["--logpath"]).map(str::to_owned).or_else(configured)
}

/// Whether this is the name of a setting: other text before a colon may be a part of a value.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_and_log_are_read_from_either_kind_of_configuration() {
        let yaml = "systemLog:\n  path: /var/log/x\nstorage:\n  # dbPath: /old\n  dbPath: \"/var/lib/mongo db\" # here\n";
        let folder = |text| ServerConfiguration::parse(text).data_folder().map(str::to_owned);
        let log = |text| ServerConfiguration::parse(text).log().map(str::to_owned);
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
        assert_eq!((read.settings().len(), read.data_folder()), (1, Some("/data")));
    }

    #[test]
    fn the_mode_of_tls_is_found_in_a_configuration() {
        let mode = |text| ServerConfiguration::parse(text).tls_mode().map(str::to_owned);
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
