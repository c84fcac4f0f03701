//! Times that were not observed, in words.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::Timestamp;
use sonar_core::history::{CollectorKind, HistoryGap, Span};
use ts_rs::TS;

use super::sentence;
use crate::kit::{Fitting, Nanos, Zone};

/// The most gaps that text lists.
const MAX_LISTED: usize = 10;

/// A span of time in nanoseconds since 1970.
#[derive(Copy, Clone, Debug, Serialize, TS)]
pub struct SpanJson {
    /// Its start.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

impl From<Span> for SpanJson {
    fn from(span: Span) -> Self {
        Self { start_ns: span.from.unix_ns(), end_ns: span.to.unix_ns() }
    }
}

/// A time that was not observed.
#[derive(Clone, Debug, Serialize, TS)]
pub struct GapJson {
    /// When.
    #[serde(flatten)]
    pub span: SpanJson,
    /// What did not observe: `agent`, or the name of a collector.
    pub what: &'static str,
    /// What was not observed, with its verb: `logs were`; null for everything.
    pub subject: Option<&'static str>,
    /// The share of it that was observed nevertheless, 0 to 1.
    pub observed: f64,
}

impl GapJson {
    /// In words, with clock times as in the rest of a report of `whole`.
    pub fn words(&self, zone: &Zone, whole: Span) -> String {
        let at = Timestamp::from_unix_ns;
        let (from, to) = (at(self.span.start_ns), at(self.span.end_ns));
        let clock = |at| sentence::clock(zone, at, whole);
        let when = format!("{} to {}", clock(from), clock(to));
        let length = Nanos(to.since(from));
        let observed = Nanos((to.since(from) as f64 * self.observed) as u64);
        match (self.subject, self.observed > 0.0) {
            (None, false) => format!("{when}: nothing was observed."),
            (None, true) => format!("{when}: only {observed} of these {length} were observed."),
            (Some(what), false) => format!("{when}: {what} not observed."),
            (Some(what), true) => format!("{when}: {what} observed for only {observed} of these {length}."),
        }
    }
}

impl From<&HistoryGap> for GapJson {
    fn from(gap: &HistoryGap) -> Self {
        Self {
            span: gap.span.into(),
            what: gap.collector.map_or("agent", CollectorKind::name),
            subject: gap.collector.map(CollectorKind::subject),
            observed: gap.observed,
        }
    }
}

/// What gaps were of, in one sentence: a single one in full, several by how long each source did not observe, the longest
/// first. `None` without any.
pub fn gaps_summary(gaps: &[GapJson], zone: &Zone, whole: Span) -> Option<String> {
    if let [only] = gaps {
        return Some(only.words(zone, whole));
    }
    // By what was not observed: how long.
    let mut missing: Vec<(Option<&'static str>, u64)> = Vec::new();
    for gap in gaps {
        let length = gap.span.end_ns.saturating_sub(gap.span.start_ns);
        let ns = (length as f64 * (1.0 - gap.observed)) as u64;
        match missing.iter_mut().find(|(subject, _)| *subject == gap.subject) {
            Some((_, known)) => *known = known.saturating_add(ns),
            None => missing.push((gap.subject, ns)),
        }
    }
    missing.sort_by_key(|(subject, ns)| (subject.is_some(), std::cmp::Reverse(*ns)));
    let part = |(subject, ns): &(Option<&'static str>, u64)| {
        let what = subject
            .map_or("everything", |subject| subject.rsplit_once(' ').map_or(subject, |(what, _)| what));
        format!("{what} for {}", Nanos(*ns))
    };
    let parts: Vec<String> = missing.iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("Not observed, in {} gaps: {}.", gaps.len(), parts.join(", ")))
}

/// Lists several gaps, which a sentence above sums up.
///
/// # Errors
/// Those of `out`.
pub(crate) fn gaps_text<W: Write>(
    gaps: &[GapJson],
    out: &mut Fitting<W>,
    zone: &Zone,
    whole: Span,
) -> io::Result<()> {
    if gaps.len() < 2 {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "Not observed:")?;
    for gap in gaps.iter().take(MAX_LISTED) {
        writeln!(out, "   {}", gap.words(zone, whole))?;
    }
    match gaps.len().saturating_sub(MAX_LISTED) {
        0 => Ok(()),
        more => writeln!(out, "   … and {more} more (see --json)"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn several_gaps_are_one_sentence() {
        let whole = Span { from: Timestamp::default(), to: Timestamp::from_unix(900, 0) };
        let gap = |second, collector, observed| {
            let span =
                Span { from: Timestamp::from_unix(second, 0), to: Timestamp::from_unix(second + 10, 0) };
            GapJson::from(&HistoryGap { span, collector, observed })
        };
        let sum = |gaps: &[GapJson]| gaps_summary(gaps, &Zone::utc(), whole);
        assert_eq!(sum(&[]), None);
        let one = gap(60, Some(CollectorKind::Log), 0.0);
        assert_eq!(
            sum(std::slice::from_ref(&one)).as_deref(),
            Some("00:01:00 to 00:01:10: logs were not observed.")
        );
        let mut gaps: Vec<GapJson> =
            (1..=11).map(|at| gap(at * 20, Some(CollectorKind::Internals), 0.5)).collect();
        gaps.push(gap(600, None, 0.5));
        gaps.push(one);
        let text = "Not observed, in 13 gaps: everything for 5.00s, the internals of servers for 55.0s, logs for 10.0s.";
        assert_eq!(sum(&gaps).as_deref(), Some(text));
        let mut out = Vec::new();
        gaps_text(&gaps, &mut Fitting::new(&mut out, None), &Zone::utc(), whole).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 2 + MAX_LISTED + 1, "{out}");
        assert!(out.ends_with("… and 3 more (see --json)\n"), "{out}");
    }

    #[test]
    fn a_gap_says_what_was_observed_and_of_what() {
        const S: u64 = 1_000_000_000;
        let gap = |collector, observed| {
            let span = Span { from: Timestamp::from_unix(60, 0), to: Timestamp::from_unix(70, 0) };
            GapJson::from(&HistoryGap { span, collector, observed })
        };
        let words = |collector, observed| {
            let whole = Span { from: Timestamp::default(), to: Timestamp::from_unix(90, 0) };
            gap(collector, observed).words(&Zone::utc(), whole)
        };
        assert_eq!(words(None, 0.0), "00:01:00 to 00:01:10: nothing was observed.");
        assert_eq!(words(None, 0.13), "00:01:00 to 00:01:10: only 1.30s of these 10.0s were observed.");
        assert_eq!(words(Some(CollectorKind::Log), 0.0), "00:01:00 to 00:01:10: logs were not observed.");
        assert_eq!(
            words(Some(CollectorKind::Queries), 0.81),
            "00:01:00 to 00:01:10: queries were observed for only 8.10s of these 10.0s."
        );
        for collector in CollectorKind::ALL {
            assert!(words(Some(collector), 0.5).contains("for only 5.00s of these"), "{collector:?}");
        }
        let json = |collector| serde_json::to_value(gap(collector, 0.5)).unwrap();
        let (start_ns, end_ns) = (60 * S, 70 * S);
        assert_eq!(
            json(Some(CollectorKind::Machine)),
            json!({ "start_ns": start_ns, "end_ns": end_ns, "what": "machine", "subject": "the machine was",
                "observed": 0.5 })
        );
        assert_eq!(json(None)["subject"], Value::Null);
    }
}
