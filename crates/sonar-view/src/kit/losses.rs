//! Losses of a capture in words.

use sonar_core::Coverage;

use super::{Grouped, plural};

/// Counters that say again what others count: freezes are those of the ring that dropped packets, and bytes those of gaps.
const COUNTED_OTHERWISE: [&str; 3] = ["kernel_freezes", "gap_bytes", "resync_bytes"];

/// Each loss with what was lost, how many, and of how many if that is known; the largest number first.
pub fn losses(coverage: &Coverage) -> Vec<String> {
    let mut all: Vec<_> = coverage.losses().filter(|(name, ..)| !COUNTED_OTHERWISE.contains(name)).collect();
    all.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
    let words = |(name, meaning, count): (&'static str, &str, u64)| {
        let meaning = meaning.split([':', ';', '.']).next().unwrap_or(name).trim();
        let mut letters = meaning.chars();
        let first = letters.next().map(|letter| letter.to_ascii_lowercase());
        let meaning: String = first.into_iter().chain(letters).collect();
        match total(name, coverage).filter(|(all, _)| *all >= count) {
            Some((all, noun)) => format!("{meaning}: {} of {}", Grouped(count), plural(Grouped(all), noun)),
            None => format!("{meaning}: {}", Grouped(count)),
        }
    };
    all.into_iter().map(words).collect()
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
    }
}
