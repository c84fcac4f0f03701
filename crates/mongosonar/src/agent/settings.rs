//! The configuration file of the agent: `/etc/mongosonar/agent.toml`.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use sonar_core::history::{CollectorKind, Resolution};
use sonar_core::time_split::ConnectionSample;
use sonar_mongo::{Target, is_connection_string, is_host_and_port};
use sonar_serve::{PagePath, PageUrl};
use sonar_store::StoreSettings;
use sonar_sys::trust;

use crate::args::config;
use crate::args::values::{PortRange, parse_connections, parse_scaled};
use crate::exit::usage;
use crate::serve::args::{DEFAULT_ADDRESS, parse_address};
use crate::serve::place::PagePlace;
use crate::serve::tls_files::TlsPaths;

/// Where the configuration is, unless `--config` names another file.
pub const PLACE: &str = "/etc/mongosonar/agent.toml";
/// Where the history is, unless the configuration or `--store` names another folder.
pub const STORE: &str = "/var/lib/mongosonar";
/// The smallest store: with less, a busy day would leave nothing.
const MIN_STORE_BYTES: u64 = 16_000_000;
/// The longest time that windows are kept, in days.
const MAX_DAYS: u32 = 3_650;

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AgentSettings {
    /// The store.
    pub store: StoreTable,
    /// Which collectors run.
    pub collectors: CollectorTable,
    /// Packets.
    pub queries: QueriesTable,
    /// Where the time of operations goes.
    pub split: SplitSettings,
    /// The page that shows the history.
    pub page: PageTable,
    /// Servers that are described here, because not all of them can be found out.
    pub server: Vec<ServerTable>,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct StoreTable {
    /// The folder.
    pub path: PathBuf,
    /// The size of all files that is not exceeded.
    pub max_size: StoreSize,
    /// How long windows of ten seconds are kept.
    pub keep_10s: KeptDays,
    /// How long windows of a minute are kept.
    pub keep_1min: KeptDays,
    /// How long windows of an hour are kept.
    pub keep_1h: KeptDays,
}

impl Default for StoreTable {
    fn default() -> Self {
        let keep = |resolution: Resolution| KeptDays(resolution.default_days());
        Self {
            path: PathBuf::from(STORE),
            max_size: StoreSize(StoreSettings::default().max_bytes),
            keep_10s: keep(Resolution::TenSeconds),
            keep_1min: keep(Resolution::Minute),
            keep_1h: keep(Resolution::Hour),
        }
    }
}

impl StoreTable {
    /// Days for which windows are kept, in the order of [`Resolution::ALL`].
    pub const fn days(&self) -> [u32; Resolution::ALL.len()] {
        [self.keep_10s.0, self.keep_1min.0, self.keep_1h.0]
    }
}

/// `[collectors]`: `false` switches one off, `true` on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CollectorTable {
    /// Packets on the wire.
    pub queries: bool,
    /// The logs of servers.
    pub log: bool,
    /// `diagnostic.data` of servers.
    pub internals: bool,
    /// `serverStatus` and sizes of collections of servers with a URI.
    pub status: bool,
    /// The machine and its processes.
    pub machine: bool,
    /// Accesses to files, counted in the kernel.
    pub files: bool,
    /// Where the time of operations goes: off unless it is switched on, because it costs a busy server some percent.
    pub split: bool,
}

impl Default for CollectorTable {
    fn default() -> Self {
        Self {
            queries: true,
            log: true,
            internals: true,
            status: true,
            machine: true,
            files: true,
            split: false,
        }
    }
}

impl CollectorTable {
    /// Whether a collector runs with this configuration.
    pub const fn runs(&self, collector: CollectorKind) -> bool {
        match collector {
            CollectorKind::Queries => self.queries,
            CollectorKind::Log => self.log,
            CollectorKind::Internals => self.internals,
            CollectorKind::Machine => self.machine,
            CollectorKind::Files => self.files,
            CollectorKind::Status => self.status,
            CollectorKind::Split => self.split,
        }
    }
}

/// `[queries]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct QueriesTable {
    /// Interfaces to capture; none means all.
    pub interface: Vec<String>,
    /// Ports to capture; none means those of the servers that are found.
    pub port: Vec<ServerPort>,
    /// Memory of the ring, in MiB.
    pub ring_mib: RingMib,
    /// Whether encrypted connections are read inside the servers.
    pub tls: bool,
    /// Whether packets inside tunnels are read, too.
    pub tunnels: bool,
}

impl Default for QueriesTable {
    fn default() -> Self {
        Self { interface: Vec::new(), port: Vec::new(), ring_mib: RingMib(32), tls: true, tunnels: false }
    }
}

impl QueriesTable {
    /// The ports to capture, as the command line has them.
    pub fn ports(&self) -> Vec<PortRange> {
        self.port.iter().map(|port| PortRange(port.0, port.0)).collect()
    }
}

/// `[split]`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SplitSettings {
    /// Which connections are followed.
    pub sample: FollowedConnections,
}

/// `[page]`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PageTable {
    /// Where it is served.
    pub listen: PageAddress,
    /// Names of this host by which a reverse proxy passes requests on.
    pub allow_host: Vec<String>,
    /// The path below which it is served.
    #[serde(deserialize_with = "page_path")]
    pub path: PagePath,
    /// What links to it begin with; `None`: its address.
    #[serde(deserialize_with = "page_url")]
    pub url: Option<PageUrl>,
    /// The file with its certificate; `None`: it is served in plain text.
    pub tls_certificate: Option<PathBuf>,
    /// The file with the key of the certificate.
    pub tls_key: Option<PathBuf>,
}

impl PageTable {
    /// Where it is served; `None` if it is not.
    pub fn place(&self) -> Option<PagePlace> {
        Some(PagePlace {
            address: self.listen.0?,
            path: self.path.clone(),
            url: self.url.clone(),
            allow_host: self.allow_host.clone(),
            tls: TlsPaths::both(self.tls_certificate.as_deref(), self.tls_key.as_deref()),
        })
    }

    /// The setting that does not go with the others; `None` if all do.
    fn problem(&self) -> Option<WrongPageSetting> {
        let wrong = |name, why: Option<String>| why.map(|why| WrongPageSetting { name, why });
        let lacks = |other: &str| Some(format!("it needs page.{other}"));
        match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => return wrong("tls-certificate", lacks("tls-key")),
            (None, Some(_)) => return wrong("tls-key", lacks("tls-certificate")),
            _ => {}
        }
        let place = self.place()?;
        wrong("listen", place.address_problem()).or_else(|| wrong("url", place.url_problem()))
    }
}

/// A setting of `[page]` that does not go with the others.
struct WrongPageSetting {
    name: &'static str,
    why: String,
}

fn page_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PagePath, D::Error> {
    PagePath::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn page_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PageUrl>, D::Error> {
    PageUrl::parse(&String::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// `[[server]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ServerTable {
    /// The port that it listens on.
    pub port: ServerPort,
    /// Its log.
    pub log: Option<PathBuf>,
    /// The folder of its data, which has `diagnostic.data`.
    pub dbpath: Option<PathBuf>,
    /// How to ask it for `serverStatus` and the sizes of its collections.
    pub uri: Option<ServerUri>,
}

/// A connection string, or `host:port`. It may contain a password, which neither debug output nor messages show.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUri(String);

impl fmt::Debug for ServerUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl ServerUri {
    /// The server that it names.
    pub fn target(&self) -> Target {
        Target::from(&self.0)
    }
}

impl<'de> Deserialize<'de> for ServerUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)
            .ok()
            .filter(|text| is_connection_string(text) || is_host_and_port(text));
        text.map(Self).ok_or_else(|| {
            D::Error::custom(
                "this is no connection string: write mongodb://NAME:PASSWORD@HOST:PORT, or HOST:PORT",
            )
        })
    }
}

/// A value that is written as a text or a number, with its own rules.
macro_rules! parsed_values {
    ($($(#[$doc:meta])* $name:ident($inner:ty): $parse:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = deserializer.deserialize_any(TextOrNumber)?;
                let parse: fn(&str) -> Result<$inner, String> = $parse;
                parse(&text).map(Self).map_err(D::Error::custom)
            }
        }
    )+};
}

parsed_values! {
    /// Bytes.
    StoreSize(u64): |text| {
        let size = parse_scaled(text, if text.contains('i') { 1_024 } else { 1_000 }, "size")?;
        if size < MIN_STORE_BYTES {
            return Err(format!("{text} is too small: write at least 16M, like 2G"));
        }
        Ok(size)
    };
    /// How many days windows are kept.
    KeptDays(u32): |text| {
        let days = text.strip_suffix('d').unwrap_or(text).trim().parse().ok();
        days.filter(|days| (1..=MAX_DAYS).contains(days))
            .ok_or_else(|| format!("{text:?} is no time: write 1 to {MAX_DAYS} days, like 2d"))
    };
    /// A port.
    ServerPort(u16): |text| {
        text.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            format!("{text:?} is no port: write a whole number from 1 to 65535, like 27017")
        })
    };
    /// Which connections are followed.
    FollowedConnections(ConnectionSample): parse_connections;
    /// An address of loopback with a port; `None`: no page is served.
    PageAddress(Option<SocketAddr>): |text| match text {
        "" => Ok(None),
        text => parse_address(text).map(Some),
    };
    /// Mebibytes of a ring.
    RingMib(u32): |text| {
        text.parse().ok().filter(|size| (4..=1_024).contains(size)).ok_or_else(|| {
            format!("{text:?} is no size of a ring: write a whole number of MiB from 4 to 1024, like 32")
        })
    };
}

impl Default for FollowedConnections {
    fn default() -> Self {
        const TENTH: NonZeroU16 = NonZeroU16::new(10).unwrap();
        Self(ConnectionSample { every: TENTH })
    }
}

impl Default for PageAddress {
    fn default() -> Self {
        Self(Some(DEFAULT_ADDRESS))
    }
}

/// Takes a text in quotes, or a number.
struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes or a number")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

impl AgentSettings {
    /// Reads the configuration from this file, or from [`PLACE`]; the defaults where that file does not exist. Gives the
    /// file that was read too.
    ///
    /// # Errors
    /// The file cannot be read, or it is missing or a setting is wrong ([`crate::exit::UsageError`]).
    pub fn load(named: Option<&Path>) -> Result<(Self, Option<PathBuf>)> {
        let path = named.unwrap_or(Path::new(PLACE));
        if named.is_none() && !path.exists() {
            return Ok((Self::default(), None));
        }
        let text = config::read(path)?;
        let settings =
            Self::parse(&text).map_err(|why| usage!("configuration file {}, {why}", path.display()))?;
        let is_for_others = std::fs::metadata(path).is_ok_and(|found| trust::is_for_others(&found));
        if settings.targets().iter().any(Target::has_password) && is_for_others {
            return Err(usage!(
                "configuration file {} has a password and can be read by every user; fix: chmod o= {}",
                path.display(),
                path.display()
            ));
        }
        Ok((settings, Some(path.to_path_buf())))
    }

    /// The servers to ask for `serverStatus` and the sizes of their collections.
    pub fn targets(&self) -> Vec<Target> {
        self.server.iter().filter_map(|server| server.uri.as_ref()).map(ServerUri::target).collect()
    }

    /// Reads the text of a configuration file. The error names line, setting and what is accepted.
    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error| explain(text, &error))?;
        let StoreTable { keep_10s, keep_1min, keep_1h, .. } = &settings.store;
        if keep_10s.0 > keep_1min.0 || keep_1min.0 > keep_1h.0 {
            let line = line_of(text, "keep-");
            return Err(format!(
                "line {line}: store.keep-10s, keep-1min and keep-1h: coarser windows must be kept as long as finer \
                 ones, like 2d, 30d and 400d"
            ));
        }
        if settings.collectors.split && !settings.collectors.queries {
            let line = line_of(text, "split = ").max(line_of(text, "split="));
            return Err(format!("line {line}: collectors.split: it needs collectors.queries = true"));
        }
        if let Some(WrongPageSetting { name, why }) = settings.page.problem() {
            let line = line_of(text, &format!("{name} = ")).max(line_of(text, &format!("{name}=")));
            return Err(format!("line {line}: page.{name}: {why}"));
        }
        for (number, server) in settings.server.iter().enumerate() {
            if settings.server.iter().take(number).any(|other| other.port == server.port) {
                let line = line_of(text, &server.port.0.to_string());
                return Err(format!("line {line}: server.port: {} is there twice", server.port.0));
            }
        }
        Ok(settings)
    }
}

/// The number of the last line with this text.
fn line_of(text: &str, part: &str) -> usize {
    text.lines().enumerate().filter(|(_, line)| line.contains(part)).last().map_or(1, |(at, _)| at + 1)
}

/// Where an error is, which setting it is about, and what is accepted.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let of_line = text.lines().nth(line - 1).unwrap_or_default();
    let table = text.lines().take(line).filter(|line| line.trim_start().starts_with('[')).last();
    let table = table.map(|table| table.trim().trim_matches(['[', ']']).to_owned());
    let key = of_line.split_once('=').map(|(key, _)| key.trim().to_owned());
    let place: Vec<String> = table.into_iter().chain(key).collect();
    let message = error.message().replace('`', "");
    match place.join(".") {
        none if none.is_empty() => format!("line {line}: {message}"),
        place => format!("line {line}: {place}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let settings = AgentSettings::parse("").unwrap();
        assert_eq!(settings, AgentSettings::default());
        assert_eq!(settings.store.max_size.0, 2_000_000_000);
        assert_eq!(settings.store.days(), [2, 30, 400]);
        let off = CollectorKind::ALL.into_iter().filter(|one| !settings.collectors.runs(*one));
        assert_eq!(off.collect::<Vec<_>>(), [CollectorKind::Split]);
        assert_eq!(settings.split.sample.0.every.get(), 10);
        assert_eq!(settings.page.listen.0.unwrap().to_string(), "127.0.0.1:8517");
        assert_eq!(AgentSettings::parse("[page]\nlisten = \"\"\n").unwrap().page.listen.0, None);
        let sizes = AgentSettings::parse("[store]\nmax-size = \"1GiB\"\n").unwrap();
        assert_eq!(sizes.store.max_size.0, 1 << 30);
    }

    #[test]
    fn the_example_is_valid_and_says_the_defaults() {
        let example = include_str!("../../../../packaging/agent.toml");
        assert_eq!(AgentSettings::parse(example).unwrap(), AgentSettings::default());
        // Each setting is there, so switched on it must be accepted, too.
        let uncommented: String = example
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(setting) if setting.contains(" = ") || setting.starts_with('[') => setting,
                _ => line,
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let settings = AgentSettings::parse(&uncommented).unwrap();
        assert_eq!(settings.server.len(), 1);
        assert_eq!(settings.queries.port, [ServerPort(27_017)]);
        for setting in [
            "path",
            "max-size",
            "keep-10s",
            "keep-1min",
            "keep-1h",
            "ring-mib",
            "tls",
            "tunnels",
            "interface",
            "sample",
            "listen",
            "allow-host",
            "url",
            "tls-certificate",
            "tls-key",
            "dbpath",
        ] {
            assert!(uncommented.contains(&format!("\n{setting} = ")), "{setting}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_line_and_what_is_accepted() {
        for (text, parts) in [
            ("[store]\nmax-size = \"2 apples\"\n", ["line 2: store.max-size: ", "write it like"]),
            ("[store]\nmax-size = 5\n", ["line 2: store.max-size: ", "at least 16M"]),
            ("[store]\n\nkeep-10s = \"a while\"\n", ["line 3: store.keep-10s: ", "like 2d"]),
            ("[store]\nkeep-10s = \"40d\"\n", ["line 2: ", "coarser windows must be kept as long"]),
            ("[store]\nsize = 1\n", ["line 2: store.size: ", "expected one of path, max-size"]),
            ("[collector]\nlog = true\n", ["line 1: collector: ", "expected one of store, collectors"]),
            ("[collectors]\nlog = \"off\"\n", ["line 2: collectors.log: ", "expected a boolean"]),
            ("[queries]\nport = [0]\n", ["line 2: queries.port: ", "from 1 to 65535"]),
            ("[queries]\nport = [true]\n", ["line 2: queries.port: ", "a text in quotes or a number"]),
            ("[queries]\nring-mib = 1\n", ["line 2: queries.ring-mib: ", "from 4 to 1024"]),
            ("[split]\nsample = \"10 %\"\n", ["line 2: split.sample: ", "write it like 1/10"]),
            (
                "[collectors]\nsplit = true\nqueries = false\n",
                ["line 2: collectors.split: ", "queries = true"],
            ),
            ("[page]\nlisten = \"0.0.0.0:8517\"\n", ["line 2: page.listen: ", "other machines"]),
            ("[page]\nlisten = 8517\n", ["line 2: page.listen: ", "write one like 127.0.0.1:8517"]),
            ("[page]\npath = \"mongosonar\"\n", ["line 2: page.path: ", "write one like /mongosonar"]),
            (
                "[page]\nurl = \"db1.example\"\n",
                ["line 2: page.url: ", "like https://db1.example/mongosonar/"],
            ),
            ("[page]\ntls-key = \"/k\"\n", ["line 2: page.tls-key: ", "it needs page.tls-certificate"]),
            (
                "[page]\ntls-certificate = \"/c\"\n",
                ["line 2: page.tls-certificate: ", "it needs page.tls-key"],
            ),
            (
                "[page]\npath = \"/a\"\nurl = \"https://db1.example/\"\n",
                ["line 3: page.url: ", "like https://db1.example/a/"],
            ),
            ("[[server]]\nlog = \"/x\"\n", ["line 1: server: ", "port"]),
            ("[[server]]\nport = 5\n[[server]]\nport = 5\n", ["line 4: server.port: ", "twice"]),
            ("[store\n", ["line 1: ", "]"]),
        ] {
            let why = AgentSettings::parse(text).unwrap_err();
            assert!(parts.iter().all(|part| why.contains(part)), "{text}: {why}");
        }
    }

    #[test]
    fn a_password_is_for_the_owner_of_the_file_and_in_no_message() {
        let path = std::env::temp_dir().join(format!("mongosonar-settings-{}.toml", std::process::id()));
        let load = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            AgentSettings::load(Some(&path))
                .map(|(settings, _)| settings)
                .map_err(|error| format!("{error:#}"))
        };
        let with = |uri: &str| format!("[[server]]\nport = 27017\nuri = \"{uri}\"\n");
        let secret = with("mongodb://dba:s3cret@db1");
        let refused = load(&secret, 0o644).unwrap_err();
        assert!(refused.contains("chmod o=") && !refused.contains("s3cret"), "{refused}");
        for mode in [0o600, 0o640] {
            let settings = load(&secret, mode).unwrap();
            assert!(!format!("{settings:?}").contains("s3cret"));
            assert_eq!(settings.targets(), [Target::from("mongodb://dba:s3cret@db1")]);
        }
        assert_eq!(load(&with("db1:27017"), 0o644).unwrap().targets().len(), 1);
        for wrong in
            [with("http://s3cret"), with("s3cret"), "[[server]]\nport = 1\nuri = [\"s3cret\"]\n".to_owned()]
        {
            let refused = load(&wrong, 0o600).unwrap_err();
            assert!(refused.contains("line 3: server.uri: this is no connection string"), "{refused}");
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
