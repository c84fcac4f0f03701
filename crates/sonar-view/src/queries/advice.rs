//! How to capture so that less is lost.

use sonar_core::shape::PARTIAL;
use sonar_core::{Class, Coverage, Row, Source, Subject};

use crate::kit::{Grouped, plural};

/// Says how many getMores among these rows were cut: without their end it is not known whether they wait for news on
/// purpose. `None` without any.
pub fn cut_get_mores<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<String> {
    let is_cut = |row: &&Row| {
        matches!(&row.subject, Subject::Shape { shape, .. }
            if &*shape.command == "getMore" && &*shape.typed == PARTIAL && row.class == Class::User)
    };
    let of_wire = |row: &Row| row.observed_by(Source::Wire).map_or(0, |observed| observed.figures.calls);
    let count: u64 = rows.into_iter().filter(is_cut).map(of_wire).sum();
    (count > 0).then(|| {
        format!(
            "{} {} cut by a snap length: some of them may wait for news on purpose, so their latencies may not be time \
             that the server needed.",
            plural(Grouped(count), "getMore"),
            if count == 1 { "was" } else { "were" },
        )
    })
}

/// How to capture so that less is lost, if the counters show it.
pub(crate) fn advice(coverage: &Coverage) -> Option<String> {
    if let Some(bytes) = snap_length(coverage) {
        return Some(format!("packets are cut at {bytes} bytes: capture with -s 0"));
    }
    (coverage.streams_one_way > 0).then(|| one_way(coverage))
}

/// Says which direction of connections was not captured.
fn one_way(coverage: &Coverage) -> String {
    let all = coverage.streams.max(coverage.streams_one_way);
    let of = format!(
        "only one direction of {} of {} was captured",
        coverage.streams_one_way,
        plural(all, "connection")
    );
    match (coverage.requests, coverage.replies) {
        (1.., 0) => format!("{of}, and no reply: capture both directions"),
        (0, 1..) => format!("{of}, and no request: capture both directions"),
        _ => format!("{of}: capture both"),
    }
}

/// Where a snap length cut the packets, in bytes; `None` where it cut none.
pub(crate) fn snap_length(coverage: &Coverage) -> Option<String> {
    let bytes = coverage.frames_snapped_bytes.checked_div(coverage.frames_snapped)?;
    let is_exact = coverage.frames_snapped_bytes.is_multiple_of(coverage.frames_snapped);
    Some(if is_exact { bytes.to_string() } else { format!("about {bytes}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coverage_says_how_to_capture_more() {
        let cut = Coverage { frames_snapped: 22, frames_snapped_bytes: 22 * 128, ..Coverage::default() };
        assert_eq!(advice(&cut).as_deref(), Some("packets are cut at 128 bytes: capture with -s 0"));
        let mixed = Coverage { frames_snapped_bytes: 22 * 128 + 7, ..cut };
        assert!(advice(&mixed).unwrap().contains("cut at about 128 bytes"));
        let one = Coverage { streams: 30, streams_one_way: 24, requests: 90, ..Coverage::default() };
        let expected =
            "only one direction of 24 of 30 connections was captured, and no reply: capture both directions";
        assert_eq!(advice(&one).as_deref(), Some(expected));
    }
}
