//! Counters of what was captured, lost, skipped or joined late, by reason.
//!
//! Every place that can lose something has a counter here, and every view shows them. The equations in
//! [`Coverage::imbalances`] hold at any time, so nothing is lost without being counted.
//!
//! Three words have one meaning each, here and in every view. A *gap* is a place in a stream whose bytes
//! were not captured. Traffic that the user chose to leave out is *skipped*. A connection whose beginning
//! was not captured is *joined late*; what is unknown for that reason alone is not a loss.

macro_rules! counters {
    ($(#[$meta:meta])* $counters:ident {
        $($(#[doc = $doc:literal])+ $name:ident $(: $kind:ident)?,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counters { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl $counters {
            /// The number of counters.
            pub const COUNT: usize = Self::NAMES.len();
            /// The stable names of the counters.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// The value of each counter, in the order of [`NAMES`](Self::NAMES).
            pub fn values(&self) -> [u64; Self::COUNT] { [$(self.$name),+] }

            /// The counters with these values, in the order of [`NAMES`](Self::NAMES).
            pub fn from_values(values: [u64; Self::COUNT]) -> Self {
                let [$($name),+] = values;
                Self { $($name),+ }
            }

            /// Each counter: its stable name, what it means, its value.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+).trim_ascii(), self.$name),)+].into_iter()
            }

            /// The counters above zero that mean a loss: something that should be shown cannot be.
            pub fn losses(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                self.of_kind("loss")
            }

            /// The counters marked as `kind` that are above zero.
            fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                let kinds = [$(stringify!($($kind)?),)+];
                self.iter().zip(kinds).filter(move |(counter, of)| *of == kind && counter.2 > 0).map(|(counter, _)| counter)
            }

            /// Adds every counter of `other`.
            pub fn add(&mut self, other: &Self) { $(self.$name += other.$name;)+ }

            /// The counts since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)+ }
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// The counters, in the order in which a packet passes them. They only grow. Those marked `loss` count
    /// what could not be shown, those marked `in_part` what is shown but not known in full, those marked `unread` what
    /// was recognised as something else, those marked `skipped` what the user chose to leave out, and those marked
    /// `joined_late` what began before the capture. The others say what was read, and how.
    Coverage {
        /// Capture files that are cut or damaged: what comes behind that place is not shown.
        files_damaged: loss,
        /// Capture files not read to their end because the command was stopped.
        files_stopped: loss,
        /// Packets that the kernel dropped because the ring was full.
        kernel_drops: loss,
        /// Number of times that the kernel stopped filling the full ring.
        kernel_freezes: loss,
        /// Blocks of the ring with inconsistent content; the rest of each is lost.
        kernel_blocks_malformed: loss,
        /// Packets handed to the decoder.
        frames,
        /// Packets decoded: TCP segments of connections that are followed.
        frames_decoded,
        /// Packets of a link type that is not decoded.
        frames_link_unsupported: loss,
        /// Packets that are neither IPv4 nor IPv6.
        frames_not_ip: unread,
        /// IP packets that carry no TCP.
        frames_not_tcp: unread,
        /// TCP packets that a snap length cut (also counted elsewhere).
        frames_snapped: in_part,
        /// Bytes captured of those packets.
        frames_snapped_bytes,
        /// IP fragments, which are not reassembled.
        frames_ip_fragment: loss,
        /// Packets that the capture cut inside their headers.
        frames_header_truncated: loss,
        /// Packets with inconsistent headers.
        frames_header_malformed: loss,
        /// Packets inside too many tunnels.
        frames_tunnels_too_deep: loss,
        /// TCP segments that were inside a tunnel, as mirrored and overlay traffic is (also counted elsewhere).
        frames_tunnelled,
        /// TCP segments of ports that are not to be captured.
        frames_other_port: skipped,
        /// Packets of connections left out by --sample.
        frames_sampled_out: skipped,
        /// Second copies of packets on loopback, where each goes out and comes in.
        frames_twin_loopback,
        /// Second copies of packets on another interface or VLAN.
        frames_twin_interface,
        /// Second copies of packets behind address translation.
        frames_twin_nat,
        /// Segments without payload.
        segments_empty,
        /// Segments whose payload was used, immediately or after reordering.
        segments_data,
        /// Segments without new bytes: retransmissions and duplicates.
        segments_duplicate,
        /// Segments far outside the window of their stream.
        segments_out_of_window: loss,
        /// Segments of streams that are not MongoDB's, or are encrypted.
        segments_ignored,
        /// Segments that arrived out of order and were reordered (also counted in segments_data).
        segments_reordered,
        /// Segments cut by a snap length (also counted elsewhere).
        segments_snapped: in_part,
        /// Connections seen.
        streams,
        /// Connections joined late, without their SYN.
        streams_joined_late: joined_late,
        /// Connections with a header of the PROXY protocol before the first message.
        streams_proxied,
        /// Connections of which only one direction was captured.
        streams_one_way: loss,
        /// Connections with another protocol than MongoDB's.
        streams_not_mongodb: unread,
        /// Connections encrypted with TLS.
        streams_tls: loss,
        /// Connections encrypted with TLS whose server is read inside its process.
        streams_tls_read,
        /// Connections encrypted with TLS that a key log decrypts.
        streams_tls_decrypted,
        /// Encrypted connections whose secrets are not in the key log.
        streams_tls_no_key: loss,
        /// Encrypted connections whose handshake was before the capture: a key log cannot decrypt them.
        streams_tls_joined_late: joined_late,
        /// Encrypted connections with a TLS version or cipher suite that is not decrypted.
        streams_tls_unsupported: loss,
        /// Encrypted connections with a gap behind which they cannot be decrypted.
        streams_tls_gap: loss,
        /// Encrypted connections with a record that their key does not open: the key is wrong, or the record damaged.
        streams_tls_unopened: loss,
        /// Encrypted connections that were renegotiated: what follows is not decrypted.
        streams_tls_renegotiated: loss,
        /// Encrypted connections not decrypted further because too much had to be kept of all of them.
        streams_tls_evicted: loss,
        /// Encrypted connections that ended before anything but their handshake was sent.
        streams_tls_silent,
        /// Records of early data (0-RTT) of TLS 1.3, which are not decrypted.
        tls_early_records: loss,
        /// Lines of key logs that cannot be read.
        tls_keys_unread: unread,
        /// Connections whose secrets were dropped because the key log has too many: the oldest first.
        tls_keys_dropped: loss,
        /// Parts of encrypted connections that were lost inside the kernel.
        tls_lost: loss,
        /// Reads and writes of TLS sessions whose connection is unknown.
        tls_unmapped: loss,
        /// Reads and writes of TLS sessions before the first message of sessions that were open already.
        tls_joined_late: joined_late,
        /// Connections dropped after the idle time-out.
        streams_idle,
        /// Connections dropped because the table was full.
        streams_evicted: loss,
        /// Ends of connections, from logs of servers, that were left out because too many waited.
        ends_left_out: loss,
        /// Bytes before the first message of connections joined late.
        joined_late_bytes: joined_late,
        /// Gaps: places in a stream whose bytes were not captured.
        gaps: loss,
        /// Bytes in those gaps.
        gap_bytes: loss,
        /// Number of searches for the next message after lost or unreadable bytes.
        resyncs,
        /// Bytes skipped in these searches.
        resync_bytes: loss,
        /// Messages whose header was accepted.
        messages,
        /// Messages read to the end.
        messages_decoded,
        /// Messages with a gap inside.
        messages_damaged: loss,
        /// Messages that a snap length cut: of requests, command and namespace were read.
        messages_partial: loss,
        /// Messages with inconsistent content.
        messages_malformed: loss,
        /// Compressed messages with an unknown compressor, too large, or with a wrong size.
        messages_undecodable: loss,
        /// Messages with an unknown opcode.
        messages_opcode_unknown: loss,
        /// Long messages dropped because too many were being read at once: the oldest first.
        messages_evicted: loss,
        /// Messages whose CRC-32C checksum does not match their bytes.
        messages_checksum_wrong: loss,
        /// Messages that the end of their connection cut.
        messages_cut: loss,
        /// Messages that the end of the capture cut.
        messages_unfinished: in_part,
        /// Replies that were read only in part (--snap-replies).
        messages_snapped: skipped,
        /// Messages whose checksum was verified (also counted elsewhere).
        checksums_verified,
        /// Requests captured.
        requests,
        /// Requests answered.
        requests_answered,
        /// Requests without a reply before their connection ended or the time-out expired.
        requests_unanswered,
        /// Requests whose reply was lost: it is in a gap, or the server answered later requests first.
        requests_reply_lost: loss,
        /// Requests that were in flight when the capture ended.
        requests_in_flight,
        /// Requests that did not expect a reply.
        requests_unacknowledged,
        /// Requests found in a search for a header and never answered: most likely not requests.
        requests_discarded: unread,
        /// Requests dropped before their reply because too many were waiting: the oldest first.
        requests_evicted: loss,
        /// getLastError commands, counted with the write before them.
        requests_folded,
        /// Replies captured.
        replies,
        /// Replies paired with their request.
        replies_paired,
        /// Further replies of an exhaust chain.
        replies_exhaust,
        /// Replies to requests that were sent before the capture began.
        replies_joined_late: joined_late,
        /// Replies whose request was not captured.
        replies_orphan: loss,
        /// getMore and killCursors on cursors whose opening was not captured: most were opened before the capture began.
        cursors_joined_late: joined_late,
        /// Open cursors dropped because there were too many: the oldest first.
        cursors_evicted: loss,
        /// Operations whose documents could not be counted.
        documents_unknown: in_part,
        /// Operations counted under `other` because a table of shapes was full.
        shapes_folded: loss,
        /// Shapes whose text was cut at the budget.
        shapes_text_cut: in_part,
        /// Shapes with more distinct children, or deeper, than the caps.
        shapes_over_cap: loss,
        /// Operations counted under `other` because there were too many applications.
        apps_folded: loss,
        /// Operations counted under `other` because there were too many clients.
        clients_folded: loss,
        /// Operations that ended before the window they were counted in.
        operations_late,
        /// Events of servers' threads that could not be reported: where the time of some operations went is not known.
        splits_lost: loss,
        /// Operations of traced threads that were not seen on the wire, so no row has where their time went.
        splits_without_wire: in_part,
        /// Operations on the wire that no traced thread executed: where their time went is not known.
        splits_without_thread: in_part,
        /// Operations that cannot be divided: several requests came at once, or another thread sent the reply.
        splits_undivided: in_part,
        /// Parts of replies that no request asked for; no row has where their time went.
        splits_continued: in_part,
    }
}

impl Coverage {
    /// The counters above zero that count what began before the capture. This is not a loss.
    pub fn joined_late(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.of_kind("joined_late")
    }

    /// The losses as one number: packets, segments, gaps, messages, requests, replies, and operations counted under
    /// `other`. Bytes and freezes are left out, because the gaps, searches and packets that they belong to are counted.
    pub fn records_lost(&self) -> u64 {
        const COUNTED_OTHERWISE: [&str; 3] = ["kernel_freezes", "gap_bytes", "resync_bytes"];
        self.losses().filter(|(name, ..)| !COUNTED_OTHERWISE.contains(name)).map(|(.., count)| count).sum()
    }

    /// The counters above zero that count what is shown but not known in full: without its end, its documents, its
    /// whole text, or where its time went. This is not a loss.
    pub fn in_part(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.of_kind("in_part")
    }

    /// The counters above zero that count what was recognised as something else than MongoDB's protocol and left
    /// unread.
    pub fn unread(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.of_kind("unread")
    }

    /// The counters above zero that count what the user chose to leave out.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.of_kind("skipped")
    }

    /// The equations that do not hold, each as (name, left side, right side); empty if everything was counted.
    /// `in_progress` counts what has begun but not ended: incomplete messages, requests in flight.
    pub fn imbalances(&self, in_progress: InProgress) -> Vec<(&'static str, u64, u64)> {
        let equations = [
            (
                "frames",
                self.frames,
                self.frames_decoded
                    + self.frames_link_unsupported
                    + self.frames_not_ip
                    + self.frames_not_tcp
                    + self.frames_ip_fragment
                    + self.frames_header_truncated
                    + self.frames_header_malformed
                    + self.frames_tunnels_too_deep
                    + self.frames_other_port
                    + self.frames_sampled_out
                    + self.frames_twin_loopback
                    + self.frames_twin_interface
                    + self.frames_twin_nat,
            ),
            (
                "segments",
                self.frames_decoded,
                self.segments_empty
                    + self.segments_data
                    + self.segments_duplicate
                    + self.segments_out_of_window
                    + self.segments_ignored
                    + in_progress.segments,
            ),
            (
                "messages",
                self.messages,
                self.messages_decoded
                    + self.messages_damaged
                    + self.messages_partial
                    + self.messages_malformed
                    + self.messages_undecodable
                    + self.messages_opcode_unknown
                    + self.messages_evicted
                    + self.messages_checksum_wrong
                    + self.messages_cut
                    + self.messages_unfinished
                    + self.messages_snapped
                    + in_progress.messages,
            ),
            (
                "requests",
                self.requests,
                self.requests_answered
                    + self.requests_unanswered
                    + self.requests_reply_lost
                    + self.requests_in_flight
                    + self.requests_unacknowledged
                    + self.requests_discarded
                    + self.requests_evicted
                    + self.requests_folded
                    + in_progress.requests,
            ),
            (
                "replies",
                self.replies,
                self.replies_paired
                    + self.replies_exhaust
                    + self.replies_joined_late
                    + self.replies_orphan
                    + in_progress.replies,
            ),
        ];
        equations.into_iter().filter(|(_, left, right)| left != right).collect()
    }
}

/// What has begun but not ended when the counters are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Segments that wait for earlier ones.
    pub segments: u64,
    /// Messages that have arrived in part.
    pub messages: u64,
    /// Requests in flight.
    pub requests: u64,
    /// Replies that wait for their request.
    pub replies: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_goes_missing_is_an_imbalance() {
        let coverage = Coverage {
            frames: 3,
            frames_not_tcp: 1,
            frames_decoded: 1,
            segments_empty: 1,
            ..Default::default()
        };
        assert_eq!(coverage.imbalances(InProgress::default()), vec![("frames", 3, 2)]);
    }

    #[test]
    fn losses_of_every_kind_count_once() {
        let gap =
            Coverage { gaps: 2, gap_bytes: 9_000, kernel_drops: 7, kernel_freezes: 1, ..Default::default() };
        assert_eq!(gap.records_lost(), 2 + 7);
        let folded =
            Coverage { shapes_folded: 5, requests_evicted: 1, frames: 90, streams_joined_late: 3, ..gap };
        assert_eq!(folded.records_lost(), 2 + 7 + 5 + 1);
    }

    #[test]
    fn counters_survive_as_a_list_of_values() {
        let all = Coverage { files_damaged: 3, frames: 90, operations_late: 7, ..Default::default() };
        assert_eq!(Coverage::from_values(all.values()), all);
        let frames = Coverage::NAMES.iter().position(|name| *name == "frames").unwrap();
        assert_eq!(all.values()[frames], 90);
    }

    #[test]
    fn nonzero_counters_are_listed_as_lost_skipped_or_joined_late() {
        let all = Coverage { frames: 90, kernel_drops: 27, ..Default::default() };
        assert_eq!(
            all.losses().map(|(name, _, value)| (name, value)).collect::<Vec<_>>(),
            [("kernel_drops", 27)]
        );
        let late = Coverage { streams: 2, streams_joined_late: 1, replies_joined_late: 1, ..all };
        assert_eq!(late.losses().count(), 1, "joining late is not a loss");
        assert_eq!(
            late.joined_late().map(|(name, _, value)| (name, value)).collect::<Vec<_>>(),
            [("streams_joined_late", 1), ("replies_joined_late", 1)]
        );
        let skipped = Coverage { frames_other_port: 5, ..late };
        assert_eq!(
            skipped.skipped().map(|(name, _, value)| (name, value)).collect::<Vec<_>>(),
            [("frames_other_port", 5)]
        );
        assert_eq!(all.since(&Coverage { kernel_drops: 20, ..Default::default() }).kernel_drops, 7);
    }
}
