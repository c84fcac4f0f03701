//! The rules about what the process of a server may use: its resource limits.

use super::facts::{CheckFinding, Grade, MachineFacts, Rule, ULIMIT};
use crate::words::plural;

/// Names in `/proc/PID/limits`, recommended minimum (`None`: unlimited), and the setting in a systemd unit.
pub(super) const LIMITS: [(&str, Option<u64>, &str); 7] = [
    ("Max open files", Some(64_000), "LimitNOFILE=64000"),
    ("Max processes", Some(64_000), "LimitNPROC=64000"),
    ("Max file size", None, "LimitFSIZE=infinity"),
    ("Max cpu time", None, "LimitCPU=infinity"),
    ("Max address space", None, "LimitAS=infinity"),
    ("Max resident set", None, "LimitRSS=infinity"),
    // mongod locks passwords and keys in memory: 16 pages.
    ("Max locked memory", Some(65_536), "LimitMEMLOCK=infinity"),
];

pub(super) fn limits(facts: &MachineFacts) -> Vec<CheckFinding> {
    if !facts.has_mongod {
        return Vec::new();
    }
    const WHY: &str =
        "each connection needs descriptors and a thread; at a limit, mongod refuses clients or terminates";
    let mut all = Vec::new();
    let mut good = Vec::new();
    for (name, least, unit) in LIMITS {
        let Some((_, set)) = facts.limits.iter().find(|(known, _)| known == name) else { continue };
        let enough = match (set, least) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(set), Some(least)) => *set >= least,
        };
        if enough {
            good.push(name);
            continue;
        }
        let wanted = least.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        let found = format!("{name} of mongod: {}; at least {wanted} is recommended", set.unwrap_or(0));
        let grade = if name == "Max open files" { Grade::Problem } else { Grade::Warning };
        all.push(
            Rule("limits", WHY, ULIMIT)
                .finds(grade, found)
                .remedy(format!("sudo systemctl edit mongod   ([Service] {unit}), then restart it")),
        );
    }
    if all.is_empty() && !good.is_empty() {
        all.push(
            Rule("limits", WHY, ULIMIT)
                .finds(Grade::Ok, format!("of mongod: {} are high enough", good.join(", "))),
        );
    }
    all
}

/// How many connections mongod takes: the setting, at most four fifths of its descriptors
/// (`SessionManagerCommon` in src/mongo/transport). 64,000 descriptors if neither is known.
pub(super) fn connections(facts: &MachineFacts) -> u64 {
    let open = facts.limits.iter().find(|(name, _)| name == "Max open files").and_then(|(_, set)| *set);
    let of_descriptors = open.unwrap_or(64_000).saturating_mul(4) / 5;
    facts.max_connections.map_or(of_descriptors, |most| most.min(of_descriptors))
}

pub(super) fn map_count(facts: &MachineFacts) -> Option<CheckFinding> {
    const WHY: &str = "each connection has its own stack, which needs two mappings; mongod warns below twice its maximum of connections";
    let count = facts.max_map_count.filter(|_| facts.has_mongod)?;
    let connections = connections(facts);
    let least = connections.saturating_mul(2);
    let found = format!("vm.max_map_count is {count}; {least} for {}", plural(connections, "connection"));
    Some(if count >= least {
        Rule("max-map-count", WHY, ULIMIT).finds(Grade::Ok, found)
    } else {
        Rule("max-map-count", WHY, ULIMIT)
            .finds(Grade::Warning, found)
            .remedy(format!("sudo sysctl vm.max_map_count={least}   (and in /etc/sysctl.d)"))
    })
}
