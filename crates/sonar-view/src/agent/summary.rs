//! What an agent has stored when it ends.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::history::{CollectorKind, HistoryWindow, Span};
use sonar_core::words::plural;
use sonar_core::{Source, Timestamp};

use crate::kit::{Grouped, Nanos, Zone, escape, json};

/// What a collector has contributed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CollectorSummary {
    /// Its stable name.
    pub name: &'static str,
    /// How long it observed, in nanoseconds. Sources that observed the same time count once.
    pub observed_ns: u64,
    /// Operations of the wire, or slow operations of logs; `None` for a collector without operations.
    pub operations: Option<u64>,
}

/// What an agent has stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AgentSummary {
    /// The folder of the store.
    pub store: String,
    /// Start of the first window, in nanoseconds since 1970; `None` if nothing was stored.
    pub start_ns: Option<u64>,
    /// End of the last window.
    pub end_ns: Option<u64>,
    /// Windows that were stored.
    pub windows: u64,
    /// Windows that could not be stored.
    pub windows_lost: u64,
    /// What each collector that observed anything has contributed.
    pub collectors: Vec<CollectorSummary>,
    /// Values of series, one for each series and window.
    pub values: u64,
    /// Values of series that were left out because there were too many series.
    pub values_left_out: u64,
    /// Events that were stored; equal ones within a window count once.
    pub events: u64,
    /// Events that were left out because a window had too many.
    pub events_left_out: u64,
    /// What was lost, cut or not read to its end, in words.
    pub notes: Vec<String>,
}

impl AgentSummary {
    /// For a store in this folder.
    pub fn new(store: String) -> Self {
        Self { store, ..Self::default() }
    }

    /// Adds a window, before it is stored.
    pub fn add(&mut self, window: &HistoryWindow) {
        for collector in CollectorKind::ALL {
            let source = match collector {
                CollectorKind::Queries => Some(Source::Wire),
                CollectorKind::Log => Some(Source::Log),
                _ => None,
            };
            let calls = |source| {
                let observed = window.window.shapes.iter().filter_map(|row| row.observed_by(source));
                observed.map(|observed| observed.figures.calls).sum::<u64>()
            };
            let operations = source.map(calls);
            let observed_ns = window.observed_ns(collector);
            if observed_ns == 0 && operations.unwrap_or(0) == 0 {
                continue;
            }
            let known = self.collectors.iter().position(|known| known.name == collector.name());
            let at = known.unwrap_or_else(|| {
                self.collectors.push(CollectorSummary { name: collector.name(), ..Default::default() });
                self.collectors.len() - 1
            });
            let summary = &mut self.collectors[at];
            summary.observed_ns = summary.observed_ns.saturating_add(observed_ns);
            summary.operations =
                operations.map(|operations| operations.saturating_add(summary.operations.unwrap_or(0)));
        }
        self.collectors.sort_by_key(|summary| CollectorKind::from_name(summary.name));
        self.values += window.series.len() as u64;
        self.values_left_out += window.series_left_out;
    }

    /// From the first to the last window stored.
    pub fn set_span(&mut self, span: Option<Span>) {
        self.start_ns = span.map(|span| span.from.unix_ns());
        self.end_ns = span.map(|span| span.to.unix_ns());
    }

    /// One line of JSON.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn json(&self, out: impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Document<'a> {
            kind: &'static str,
            #[serde(flatten)]
            summary: &'a AgentSummary,
        }
        json::line(&Document { kind: "agent_summary", summary: self }, out)
    }

    /// Some lines of text.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let zone = Zone::utc();
        let time = |ns: u64| zone.show_seconds(Timestamp::from_unix_ns(ns)).to_string();
        match (self.start_ns, self.end_ns) {
            (Some(start), Some(end)) => {
                let windows = plural(self.windows, "window");
                let span = format!("from {} to {}", time(start), time(end));
                writeln!(out, "stored {windows} of 10 s {span} in {}", escape(&self.store))?;
            }
            _ => writeln!(out, "stored nothing in {}", escape(&self.store))?,
        }
        for CollectorSummary { name, observed_ns, operations } in &self.collectors {
            let operations = match operations {
                Some(count) if *name == CollectorKind::Log.name() => {
                    format!(", {}", plural(*count, "slow operation"))
                }
                Some(count) => format!(", {}", plural(*count, "operation")),
                None => String::new(),
            };
            writeln!(out, "  {name:<10} observed {}{operations}", Nanos(*observed_ns))?;
        }
        writeln!(out, "  {:<10} {}", "series", plural(self.values, "value"))?;
        writeln!(out, "  {:<10} {}", "events", Grouped(self.events))?;
        for (count, what) in [
            (self.windows_lost, "windows could not be stored"),
            (self.values_left_out, "values of series were left out: too many series"),
            (self.events_left_out, "events were left out: too many in one window"),
        ] {
            if count > 0 {
                writeln!(out, "LOST: {} {what}", Grouped(count))?;
            }
        }
        for note in &self.notes {
            writeln!(out, "NOT IN FULL: {}", escape(note))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::history::Resolution;
    use sonar_core::time::NS_PER_S;

    use super::*;

    #[test]
    fn the_summary_names_what_was_stored_and_what_was_lost() {
        let start = Timestamp::from_unix(1_795_296_190, 0);
        let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
        window.observe(CollectorKind::Machine, 4 * NS_PER_S);
        window.observe(CollectorKind::Log, 8 * NS_PER_S);
        let mut summary = AgentSummary::new("/tmp/history".to_owned());
        summary.add(&window);
        summary.add(&window);
        summary.set_span(Some(Span { from: start, to: start.plus_ns(20 * NS_PER_S) }));
        summary.windows = 2;
        summary.values_left_out = 1_234;
        summary.notes.push("a.pcap: it is cut".to_owned());
        let mut text = Vec::new();
        summary.text(&mut text).unwrap();
        let expected = "\
stored 2 windows of 10 s from 2026-11-21T21:23:10Z to 2026-11-21T21:23:30Z in /tmp/history
  log        observed 16.0s, 0 slow operations
  machine    observed 8.00s
  series     0 values
  events     0
LOST: 1,234 values of series were left out: too many series
NOT IN FULL: a.pcap: it is cut
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let mut json = Vec::new();
        summary.json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["kind"], "agent_summary");
        assert_eq!(json["collectors"][0]["name"], "log");
        assert_eq!(json["start_ns"], 1_795_296_190_000_000_000_u64);
    }
}
