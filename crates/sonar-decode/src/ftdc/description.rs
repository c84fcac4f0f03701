//! What the metadata of a file says of the server.

use sonar_core::internals::ServerDescription;

use super::elements::{Element, Elements, NumberRule};

/// Reads the document of [`DocumentContent::Metadata`](super::DocumentContent::Metadata).
pub fn describe(metadata: &[u8]) -> ServerDescription {
    let text = |path: &[&str]| {
        let found = find(metadata, path)?;
        Some(String::from_utf8_lossy(found.string()?).into_owned())
    };
    let number = |path: &[&str]| find(metadata, path)?.integer();
    ServerDescription {
        version: text(&["buildInfo", "version"]),
        host: text(&["hostInfo", "system", "hostname"]),
        port: number(&["getCmdLineOpts", "parsed", "net", "port"]),
        is_router: find(metadata, &["getCmdLineOpts", "parsed", "sharding", "configDB"]).is_some(),
        dbpath: text(&["getCmdLineOpts", "parsed", "storage", "dbPath"]),
        replica_set: text(&["getCmdLineOpts", "parsed", "replication", "replSet"])
            .or_else(|| text(&["getCmdLineOpts", "parsed", "replication", "replSetName"])),
        processors: number(&["hostInfo", "system", "numCores"]),
        processors_available: number(&["hostInfo", "system", "numCoresAvailableToProcess"]),
        memory_mib: number(&["hostInfo", "system", "memSizeMB"]),
        memory_limit_mib: number(&["hostInfo", "system", "memLimitMB"]),
        // Some versions report the line of /etc/os-release.
        system: text(&["hostInfo", "os", "name"])
            .map(|name| name.trim_start_matches("PRETTY_NAME=").trim_matches('"').to_owned()),
    }
}

/// How the server that wrote this metadata made integers of floating-point numbers, by its version and architecture.
pub fn number_rule(metadata: &[u8]) -> NumberRule {
    let text = |path: &[&str]| find(metadata, path).and_then(|found| found.string());
    let version = text(&["buildInfo", "version"]).unwrap_or_default();
    let major = version.split(|byte| *byte == b'.').next().unwrap_or_default();
    let architecture = text(&["hostInfo", "system", "cpuArch"])
        .or_else(|| text(&["buildInfo", "buildEnvironment", "target_arch"]));
    let is_x86 = matches!(architecture, Some(b"x86_64" | b"amd64"));
    if is_x86 && matches!(major, b"3" | b"4") { NumberRule::Cast } else { NumberRule::Clamped }
}

/// The value at a path of names, which on a sharded server of 8.0 and later lies one level deeper.
fn find<'a>(document: &'a [u8], path: &[&str]) -> Option<Element<'a>> {
    let at = |elements: Elements<'a>| {
        let (first, rest) = path.split_first()?;
        let first = elements.find(first.as_bytes())?;
        rest.iter().try_fold(first, |element, key| element.elements().find(key.as_bytes()))
    };
    let roots =
        Elements::new(document).filter(|element| matches!(element.key, b"common" | b"shard" | b"router"));
    at(Elements::new(document)).or_else(|| roots.map(|root| root.elements()).find_map(at))
}
