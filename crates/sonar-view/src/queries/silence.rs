//! Why there is nothing to show, and what to do about it.

use serde::Serialize;
use sonar_core::Coverage;
use ts_rs::TS;

use super::advice::snap_length;
use crate::kit::plural;

/// Where packets come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PacketOrigin {
    /// A capture file.
    #[default]
    File,
    /// The history that an agent keeps.
    History,
    /// Interfaces of this machine.
    Network(CapturedNetwork),
}

/// What is captured on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CapturedNetwork {
    /// `all interfaces`, or their names.
    pub interfaces: String,
    /// `port 27017`, or several.
    pub ports: String,
    /// No process of this machine listens on any of these ports.
    pub nobody_listens: bool,
    /// Ports of this machine on which a mongod or mongos listens.
    pub servers: Vec<u16>,
}

/// Why no operation was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, TS)]
pub struct Silence {
    /// The stable name in JSON.
    pub reason: &'static str,
    /// What was found.
    pub what: String,
    /// What to do next; may be empty.
    pub next: String,
}

impl Silence {
    /// Finds out from the counters since the start why no operation was seen.
    pub fn explain(coverage: &Coverage, origin: &PacketOrigin) -> Self {
        let frames = coverage.frames;
        if frames == 0 {
            return Self::without_packets(origin);
        }
        if coverage.frames_decoded == 0 {
            return Self::without_segments(coverage);
        }
        if let Some(bytes) = snap_length(coverage).filter(|_| coverage.requests == 0) {
            return Self::new(
                "snapped",
                format!(
                    "Packets are cut at {bytes} bytes ({} of {}), so no request can be read.",
                    coverage.frames_snapped, coverage.frames_decoded
                ),
                "Capture with -s 0.",
            );
        }
        if coverage.messages > 0 {
            if coverage.requests == 0 && coverage.replies > 0 {
                return Self::new(
                    "no-requests",
                    format!("Only replies were captured ({}), no requests.", coverage.replies),
                    "Does the capture hold both directions of each connection? Both are needed.",
                );
            }
            return Self::none_ended();
        }
        if let Some(undecrypted) = Self::undecrypted(coverage) {
            return undecrypted;
        }
        if coverage.streams_tls > 0 {
            let what = match coverage.streams - coverage.streams_tls.min(coverage.streams) {
                0 if coverage.streams_tls == 1 => "The only connection is encrypted with TLS.".into(),
                0 => format!("All {} are encrypted with TLS.", plural(coverage.streams_tls, "connection")),
                _ => format!(
                    "{} of {} are encrypted with TLS, and the others carry nothing that can be read.",
                    coverage.streams_tls,
                    plural(coverage.streams, "connection")
                ),
            };
            let next = match origin {
                PacketOrigin::File => {
                    "A key log that a client writes decrypts a capture file (--tls-keylog). Without one, use the server's \
                     log (mongosonar logs report) or its profiler (mongosonar profiler tail), or capture where TLS ends, \
                     for example behind a proxy."
                }
                PacketOrigin::History => {
                    "Use the server's log (mongosonar logs report) or its profiler (mongosonar profiler tail), or capture \
                     where TLS ends, for example behind a proxy."
                }
                PacketOrigin::Network(_) => {
                    "They can be read inside a server on this machine, as root and without --no-tls (standard error says \
                     why a server is not read), or with a key log that a client writes (--tls-keylog). Otherwise use the \
                     server's log (mongosonar logs report) or its profiler (mongosonar profiler tail)."
                }
            };
            return Self::new("tls", what, next);
        }
        if coverage.streams_not_mongodb > 0 {
            let what = match coverage.streams_not_mongodb {
                1 => "The connection that was seen does not speak MongoDB's protocol.".into(),
                n => format!("{} were seen; none speaks MongoDB's protocol.", plural(n, "connection")),
            };
            return Self::new("not-mongodb", what, "Is it the right port? --port chooses another.");
        }
        if coverage.segments_data == 0 && coverage.streams > 0 {
            let what = match coverage.streams {
                1 => "One connection is open, but nothing is sent on it.".to_owned(),
                n => format!("{} are open, but nothing is sent on them.", plural(n, "connection")),
            };
            return Self::new("idle", what, "");
        }
        if coverage.streams == 0 {
            return Self::none_ended();
        }
        Self::new("nothing-decoded", "No whole message of MongoDB's protocol was seen.".into(), "")
    }

    /// Why a key log has decrypted nothing, if one was of no use.
    fn undecrypted(coverage: &Coverage) -> Option<Self> {
        let causes = undecrypted_causes(coverage);
        let all: u64 = causes.iter().map(|(count, _)| count).sum();
        if all == 0 {
            return None;
        }
        let causes = causes.iter().filter(|(count, _)| *count > 0);
        let causes: Vec<_> = causes.map(|(count, why)| format!("{count} {why}")).collect();
        let (encrypted, causes) = (plural(all, "encrypted connection"), causes.join(", "));
        let next = match coverage {
            Coverage { streams_tls_no_key: 1.., .. } => {
                "A key log has only the connections that its own process has opened while it wrote it."
            }
            Coverage { streams_tls_joined_late: 1.., .. } => {
                "Begin the capture before the clients connect: without its first packets no connection can be decrypted."
            }
            _ => "",
        };
        Some(Self::new("tls-undecrypted", format!("{encrypted} could not be decrypted: {causes}."), next))
    }

    fn new(reason: &'static str, what: String, next: &str) -> Self {
        Self { reason, what, next: next.to_owned() }
    }

    fn none_ended() -> Self {
        Self::new("none-ended", "No operations ended in this span.".into(), "")
    }

    fn without_packets(origin: &PacketOrigin) -> Self {
        let PacketOrigin::Network(network) = origin else {
            return Self::new(
                "no-packets",
                "The file holds no packets.".into(),
                "Was the capture stopped too early, or was its filter too narrow?",
            );
        };
        let CapturedNetwork { interfaces, ports, nobody_listens, servers } = network;
        if !nobody_listens {
            return Self::new(
                "silent",
                format!("No packets of {ports} on {interfaces}: the interface is silent."),
                "Do clients use this server now, and by TCP? Connections through a Unix socket cannot be seen. \
                 mongosonar doctor checks that capturing works.",
            );
        }
        let next = if servers.is_empty() {
            "No mongod or mongos runs here. Run mongosonar on the server's machine, or name the server's port with \
             --port."
                .to_owned()
        } else {
            let list = servers.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ");
            format!("A mongod or mongos listens on {list}: leave out --port, or name that one.")
        };
        Self::new("nobody-listens", format!("Nobody listens on {ports} on this machine."), &next)
    }

    /// No packet belonged to a connection that is followed.
    fn without_segments(coverage: &Coverage) -> Self {
        let frames = match coverage.frames {
            1 => "1 packet was".to_owned(),
            frames => format!("{} were", plural(frames, "packet")),
        };
        if coverage.frames_other_port > 0 {
            return Self::new(
                "other-ports",
                format!("{frames} seen, none of the ports asked for."),
                "Leave out --port to look at all ports.",
            );
        }
        if coverage.frames_sampled_out > 0 {
            return Self::new(
                "sampled-out",
                format!("{frames} seen, all of connections that --sample leaves out."),
                "Use a smaller N in --sample 1/N, or none.",
            );
        }
        if let Some(bytes) = snap_length(coverage) {
            let what = format!("{frames} seen, cut at {bytes} bytes, inside their headers.");
            return Self::new("snapped", what, "Capture with -s 0.");
        }
        let found = coverage.iter().filter(|(name, _, count)| *name != "frames" && *count > 0);
        let kinds: Vec<_> = found.map(|(name, meaning, count)| kind(name, meaning, count)).collect();
        Self::new(
            "no-tcp",
            format!("{frames} seen, none of them TCP that can be read: {}.", kinds.join(", ")),
            "",
        )
    }

    /// What was found and what to do, in one paragraph.
    pub fn text(&self) -> String {
        if self.next.is_empty() { self.what.clone() } else { format!("{} {}", self.what, self.next) }
    }
}

/// Why encrypted connections could not be decrypted with a key log: how many, and for what reason.
const fn undecrypted_causes(coverage: &Coverage) -> [(u64, &'static str); 7] {
    [
        (coverage.streams_tls_no_key, "not in the key log"),
        (coverage.streams_tls_joined_late, "opened before the capture began"),
        (coverage.streams_tls_unsupported, "with a version or cipher suite that is not decrypted"),
        (coverage.streams_tls_gap, "with packets missing"),
        (coverage.streams_tls_unopened, "with a key that is wrong, or damaged"),
        (coverage.streams_tls_renegotiated, "renegotiated"),
        (coverage.streams_tls_evicted, "dropped because there were too many"),
    ]
}

/// Whether messages passed, by the counters since the start, but no request could be read: the packets are cut, only
/// replies were captured, or the connections are encrypted. Where any request was read, what is not is a loss like others.
///
/// A connection counts once. Counters that begin later show of it that no reply has a request, or that segments were
/// ignored although no connection was recognised as something else.
pub(super) fn has_unread(coverage: &Coverage) -> bool {
    let is_encrypted =
        coverage.streams_tls > 0 || undecrypted_causes(coverage).iter().any(|(count, _)| *count > 0);
    let has_replies_alone =
        coverage.replies > 0 && coverage.replies_paired == 0 && coverage.replies_exhaust == 0;
    let is_ignored = coverage.segments_ignored > 0
        && coverage.messages == 0
        && coverage.streams_not_mongodb == 0
        && coverage.streams_tls_read == 0;
    let is_cut_or_one_way = coverage.frames_snapped > 0 || coverage.streams_one_way > 0;
    coverage.requests == 0 && (is_encrypted || has_replies_alone || is_cut_or_one_way || is_ignored)
}

/// How many packets of a kind there were, in words.
fn kind(name: &str, meaning: &str, count: u64) -> String {
    match name {
        "frames_link_unsupported" => format!("{count} of an unknown link type"),
        "frames_not_ip" => format!("{count} not IP"),
        "frames_not_tcp" => format!("{count} IP without TCP"),
        "frames_ip_fragment" => plural(count, "IP fragment"),
        "frames_header_truncated" => format!("{count} cut inside their headers"),
        "frames_header_malformed" => format!("{count} with inconsistent headers"),
        _ => format!("{count} {name} ({})", meaning.trim_end_matches('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(nobody_listens: bool, servers: &[u16]) -> PacketOrigin {
        PacketOrigin::Network(CapturedNetwork {
            interfaces: "eth0".into(),
            ports: "port 27099".into(),
            nobody_listens,
            servers: servers.into(),
        })
    }

    fn reason(coverage: Coverage) -> &'static str {
        Silence::explain(&coverage, &PacketOrigin::File).reason
    }

    #[test]
    fn without_packets_the_port_and_the_interface_are_looked_at() {
        let nothing = Coverage::default();
        let nobody = Silence::explain(&nothing, &network(true, &[27_017, 27_018]));
        assert_eq!(
            nobody.text(),
            "Nobody listens on port 27099 on this machine. A mongod or mongos listens on 27017 and 27018: leave out \
             --port, or name that one."
        );
        assert!(Silence::explain(&nothing, &network(true, &[])).next.contains("--port"));
        let silent = Silence::explain(&nothing, &network(false, &[27_099]));
        assert_eq!(silent.reason, "silent");
        assert!(silent.text().contains("eth0") && silent.text().contains("mongosonar doctor"));
        assert_eq!(reason(nothing), "no-packets");
    }

    #[test]
    fn packets_without_operations_are_explained_by_what_they_were() {
        let seen = Coverage { frames: 90, frames_decoded: 90, streams: 4, ..Coverage::default() };
        let tls = Coverage { streams_tls: 4, segments_ignored: 80, ..seen };
        let all = Silence::explain(&tls, &PacketOrigin::File);
        assert_eq!(all.what, "All 4 connections are encrypted with TLS.");
        assert!(all.next.contains("--tls-keylog"), "{}", all.next);
        let live = PacketOrigin::Network(CapturedNetwork::default());
        assert!(Silence::explain(&tls, &live).next.contains("--no-tls"));
        assert!(!Silence::explain(&tls, &PacketOrigin::History).next.contains("--tls-keylog"));
        let keys = Coverage { streams_tls_no_key: 3, streams_tls_unsupported: 1, ..seen };
        let keys = Silence::explain(&keys, &PacketOrigin::File);
        assert_eq!(
            keys.what,
            "4 encrypted connections could not be decrypted: 3 not in the key log, 1 with a version or cipher suite that \
             is not decrypted."
        );
        assert!(keys.reason == "tls-undecrypted" && keys.next.contains("its own process"));
        let late = Coverage { streams_tls_joined_late: 2, ..seen };
        assert!(Silence::explain(&late, &PacketOrigin::File).next.contains("before the clients connect"));
        assert!(all.next.contains("logs report") && all.next.contains("profiler tail"));
        assert!(
            Silence::explain(&Coverage { streams: 9, ..tls }, &PacketOrigin::File).what.starts_with("4 of 9")
        );
        assert_eq!(reason(Coverage { streams_not_mongodb: 4, segments_data: 5, ..seen }), "not-mongodb");
        assert_eq!(reason(seen), "idle");
        assert_eq!(reason(Coverage { segments_data: 5, messages: 2, replies: 2, ..seen }), "no-requests");
        assert_eq!(
            reason(Coverage { segments_data: 5, messages: 2, requests: 1, replies: 1, ..seen }),
            "none-ended"
        );
        let other = Coverage { frames: 7, frames_other_port: 7, ..Coverage::default() };
        assert_eq!(reason(other), "other-ports");
        assert_eq!(
            reason(Coverage { frames: 7, frames_sampled_out: 7, ..Coverage::default() }),
            "sampled-out"
        );
        let none =
            Coverage { frames: 10, frames_not_tcp: 7, frames_link_unsupported: 3, ..Coverage::default() };
        let none = Silence::explain(&none, &PacketOrigin::File);
        assert_eq!(none.reason, "no-tcp");
        assert!(none.what.ends_with("3 of an unknown link type, 7 IP without TCP."), "{}", none.what);
    }

    #[test]
    fn cut_packets_are_named_with_their_length() {
        let cut = Coverage { frames: 30, frames_decoded: 30, frames_snapped: 22, ..Coverage::default() };
        let cut = Coverage { frames_snapped_bytes: 22 * 68, streams: 1, segments_data: 22, ..cut };
        let text = Silence::explain(&cut, &PacketOrigin::File).text();
        assert_eq!(
            text,
            "Packets are cut at 68 bytes (22 of 30), so no request can be read. Capture with -s 0."
        );
        // Replies were cut, too, and are no sign of a missing direction.
        assert_eq!(reason(Coverage { messages: 5, replies: 5, ..cut }), "snapped");
        let headers = Coverage { frames_decoded: 0, frames_header_truncated: 22, ..cut };
        assert_eq!(reason(headers), "snapped");
    }
}
