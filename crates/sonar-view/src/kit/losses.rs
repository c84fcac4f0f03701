//! Losses of a capture in words.

use sonar_core::Coverage;

use super::{Grouped, plural};

/// Counters that say again what others count: freezes are those of the ring that dropped packets, and bytes those of
/// gaps.
const COUNTED_OTHERWISE: [(&str, &str); 3] =
    [("kernel_freezes", "kernel_drops"), ("gap_bytes", "gaps"), ("resync_bytes", "resyncs")];

/// Each loss with what was lost, how many, and of how many if that is known; the largest number first.
pub fn losses(coverage: &Coverage) -> Vec<String> {
    let mut all: Vec<_> = coverage.losses().collect();
    let is_counted = |name: &str| all.iter().any(|(other, ..)| *other == name);
    let again: Vec<_> = COUNTED_OTHERWISE.iter().filter(|(_, other)| is_counted(other)).collect();
    all.retain(|(name, ..)| !again.iter().any(|(other, _)| other == name));
    all.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
    in_words(coverage, all.into_iter())
}

/// Counters of `coverage` (name, meaning, value) with what was counted, how many, and of how many if that is known.
pub fn in_words<'a>(
    coverage: &Coverage,
    counters: impl Iterator<Item = (&'static str, &'a str, u64)>,
) -> Vec<String> {
    let words = |(name, meaning, count): (&'static str, &str, u64)| {
        let meaning = gist(meaning);
        match total(name, coverage).filter(|(all, _)| *all >= count) {
            Some((all, noun)) => format!("{meaning}: {} of {}", Grouped(count), plural(Grouped(all), noun)),
            None => format!("{meaning}: {}", Grouped(count)),
        }
    };
    counters.map(words).collect()
}

/// Counters (name, meaning, value) with what was counted, and how many.
pub fn counted_in_words<'a>(counters: impl Iterator<Item = (&'static str, &'a str, u64)>) -> Vec<String> {
    counters.map(|(_, meaning, count)| format!("{}: {}", gist(meaning), Grouped(count))).collect()
}

/// What a counter counts, without explanations.
fn gist(meaning: &str) -> String {
    let ends = [": ", "; ", ". "].into_iter().filter_map(|end| meaning.find(end));
    let meaning = meaning[..ends.min().unwrap_or(meaning.len())].trim_end_matches('.').replace('`', "");
    let mut letters = meaning.chars();
    match (letters.next(), letters.next()) {
        // An abbreviation keeps its letters.
        (Some(first), second) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(meaning.chars().skip(1)).collect()
        }
        _ => meaning,
    }
}

/// How many there were of what a counter counts, and what they are.
fn total(name: &str, coverage: &Coverage) -> Option<(u64, &'static str)> {
    let packets = coverage.frames.saturating_add(coverage.kernel_drops);
    Some(match name.split('_').next()? {
        "kernel" if name == "kernel_drops" => (packets, "packet"),
        "frames" => (packets, "packet"),
        "segments" => (coverage.frames_decoded, "TCP segment"),
        "streams" => (coverage.streams, "connection"),
        "messages" => (coverage.messages, "message"),
        "requests" => (coverage.requests, "request"),
        "replies" => (coverage.replies, "reply"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_says_what_was_lost_and_of_how_many() {
        let coverage = Coverage {
            frames: 1_500_000,
            kernel_drops: 471_351,
            kernel_freezes: 3,
            requests: 1_000,
            requests_reply_lost: 3,
            gaps: 7,
            gap_bytes: 1_460,
            ..Coverage::default()
        };
        assert_eq!(
            losses(&coverage),
            [
                "packets that the kernel dropped because the ring was full: 471,351 of 1,971,351 packets",
                "gaps: 7",
                "requests whose reply was lost: 3 of 1,000 requests",
            ]
        );
        assert_eq!(
            losses(&Coverage { gap_bytes: 1_460, ..Coverage::default() }),
            ["bytes in those gaps: 1,460"]
        );
    }

    #[test]
    fn words_are_those_of_the_counter_without_explanations() {
        let coverage = Coverage {
            frames_ip_fragment: 2,
            tls_early_records: 3,
            messages_partial: 4,
            shapes_folded: 5,
            ..Coverage::default()
        };
        assert_eq!(
            losses(&coverage),
            [
                "operations counted under other because a table of shapes was full: 5",
                "messages that a snap length cut: 4",
                "records of early data (0-RTT) of TLS 1.3, which are not decrypted: 3",
                "IP fragments, which are not reassembled: 2",
            ]
        );
        for (_, meaning, _) in coverage.iter() {
            let gist = gist(meaning);
            assert!(!gist.is_empty() && !gist.ends_with(['.', ',', ':']), "{meaning}: {gist}");
        }
    }
}
