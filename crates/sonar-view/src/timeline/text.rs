//! The timeline as text: a chart of one line for each figure, and the events below it.

use std::io::{self, Write};

use sonar_core::Timestamp;
use sonar_core::history::{EventKind, Span};

use super::choice::{chosen, left_out};
use super::report::{EventJson, LaneJson, TimelineReport};
use crate::changes::gaps_summary;
use crate::changes::words::{clock, gaps_text};
use crate::ftdc::units;
use crate::kit::{Fitting, Nanos, Zone, escape, push_padded, sparkline, width};

/// Columns of the titles and of the figures beside the charts.
const TITLE: usize = 26;
const FIGURE: usize = 10;
/// The fewest and the most columns of a chart.
const FEWEST: usize = 10;
const MOST: usize = 120;
/// The marks of events in the chart.
const MARKS: &[u8] = b"123456789abcdefghijklmnopqrstuvwxyz";
/// Stands where nothing was observed.
const NOTHING: char = '·';

/// Columns for charts within a terminal of this width.
pub fn chart_columns(width: Option<usize>) -> usize {
    width.map_or(MOST, |width| width.saturating_sub(TITLE + 2 * (FIGURE + 1) + 1)).clamp(FEWEST, MOST)
}

impl TimelineReport {
    /// As text, with charts as wide as the axis has parts. Times are those of `zone`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone) -> io::Result<()> {
        let span = Span {
            from: Timestamp::from_unix_ns(self.about.start_ns.unwrap_or(0)),
            to: Timestamp::from_unix_ns(self.about.end_ns.unwrap_or(0)),
        };
        let part = Nanos(span.length_ns() / self.parts.max(1) as u64);
        let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
        writeln!(out, "{from} to {to} ({}), {part} a column", Nanos(span.length_ns()))?;
        if let Some(line) = gaps_summary(&self.gaps, zone, span) {
            writeln!(out, "{line}")?;
        }
        for group in ["queries", "internals", "machine"] {
            writeln!(out)?;
            self.group(group, out)?;
        }
        self.events_text(out, zone, span)?;
        gaps_text(&self.gaps, out, zone, span)
    }

    fn group<W: Write>(&self, group: &str, out: &mut Fitting<W>) -> io::Result<()> {
        let lanes: Vec<&LaneJson> = self.lanes.iter().filter(|lane| lane.group == group).collect();
        if lanes.is_empty() {
            let why = match group {
                "internals" if self.internals_judged > 0 => "no judged figure is over its limit",
                _ => "nothing observed",
            };
            return writeln!(out, "{}: {why}", group.to_uppercase());
        }
        let mut head = String::new();
        push_padded(&mut head, &group.to_uppercase(), TITLE, false);
        head.push_str(&" ".repeat(self.parts + 1));
        push_padded(&mut head, "min", FIGURE, true);
        head.push(' ');
        push_padded(&mut head, "max", FIGURE, true);
        writeln!(out, "{head}")?;
        for lane in &lanes {
            let mut label = label(lane).into_iter();
            let mut line = String::new();
            push_padded(&mut line, &label.next().unwrap_or_default(), TITLE, false);
            line.push_str(&chart(&lane.values));
            let known = || lane.values.iter().copied().flatten();
            for value in [known().reduce(f64::min), known().reduce(f64::max)] {
                line.push(' ');
                let shown = value.map_or_else(|| "-".to_owned(), |value| units::show(value, lane.unit));
                push_padded(&mut line, &shown, FIGURE, true);
            }
            if let (Some(verdict), Some(limit)) = (lane.verdict, lane.limit) {
                line.push_str(&format!(" {verdict} from {}", units::show(limit, lane.unit)));
            }
            writeln!(out, "{line}")?;
            label.try_for_each(|rest| writeln!(out, "{rest}"))?;
        }
        Ok(())
    }

    fn events_text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone, span: Span) -> io::Result<()> {
        writeln!(out)?;
        if self.events.is_empty() {
            return writeln!(out, "EVENTS: none");
        }
        let kinds: Vec<EventKind> = self.events.iter().map(EventJson::event_kind).collect();
        let shown = chosen(&kinds, MARKS.len());
        let mut marks = vec![b' '; self.parts];
        for (at, mark) in shown.iter().zip(MARKS) {
            let offset = u128::from(self.events[*at].time_ns.saturating_sub(span.from.unix_ns()));
            let at = offset * self.parts as u128 / u128::from(span.length_ns().max(1));
            let place = &mut marks[(at as usize).min(self.parts.saturating_sub(1))];
            if *place == b' ' {
                *place = *mark;
            }
        }
        let marks = String::from_utf8_lossy(&marks).into_owned();
        writeln!(out, "{:TITLE$}{}", "EVENTS", marks.trim_end())?;
        for (at, mark) in shown.iter().zip(MARKS) {
            let event = &self.events[*at];
            let time = clock(zone, Timestamp::from_unix_ns(event.time_ns), span);
            let server = before(event.server, event.address.as_deref());
            let line = format!("{}  {time}  {server}{}", char::from(*mark), event.sentence);
            writeln!(out, "{}", escape(&line))?;
        }
        let is_hidden = |at: &usize| shown.binary_search(at).is_err();
        let hidden: Vec<EventKind> = (0..kinds.len()).filter(is_hidden).map(|at| kinds[at]).collect();
        if let Some(line) = left_out(&hidden, self.events_left_out) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// What stands before what is about a server: its address, else its port.
fn before(port: Option<u16>, address: Option<&str>) -> String {
    match (address, port) {
        (Some(address), _) => format!("{address} "),
        (None, Some(port)) => format!("{port} "),
        (None, None) => String::new(),
    }
}

/// What stands before the chart of a lane, in lines that are broken between words. The chart is beside the first one.
fn label(lane: &LaneJson) -> Vec<String> {
    const WIDTH: usize = TITLE - 1;
    const INDENT: &str = "  ";
    let server = before(lane.server, lane.address.as_deref());
    let whole = escape(&format!("{server}{}", lane.title)).into_owned();
    let mut lines: Vec<String> = Vec::new();
    for word in whole.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{INDENT}{word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A bar for each value, and a dot where there is none.
fn chart(values: &[Option<f64>]) -> String {
    let most = values.iter().copied().flatten().fold(0.0, f64::max);
    let bars = sparkline(values.iter().map(|value| value.unwrap_or(0.0)), most);
    bars.chars().zip(values).map(|(bar, value)| if value.is_some() { bar } else { NOTHING }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_broken_between_words_and_say_all_of_a_title() {
        let of = |server, title: &str| {
            label(&LaneJson {
                group: "machine",
                id: "x",
                title: title.to_owned(),
                unit: "percent",
                server,
                address: None,
                verdict: None,
                limit: None,
                values: Vec::new(),
            })
        };
        assert_eq!(of(None, "all processors busy"), ["all processors busy"]);
        assert_eq!(
            of(Some(27_017), "documents examined for each one returned"),
            ["27017 documents examined", "  for each one returned"]
        );
        let long = "time in which some threads waited for a processor, and for memory";
        let lines = of(None, long);
        assert!(lines.iter().all(|line| width(line) < TITLE), "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join(" "), long);
    }
}
