//! The report as text.

use std::io::{self, Write};

use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_core::words::shell_quoted;

use super::gaps::{SpanJson, gaps_summary, gaps_text};
use super::report::{ChangeJson, ChangesReport, MomentJson};
use super::sentence::{clock, cost_within};
use crate::kit::{Fitting, Nanos, Zone, escape, plural, width};

/// The most changes of a moment, effects of a change, and series beside them that text shows.
const MAX_SHOWN: usize = 10;
const MAX_EFFECTS: usize = 5;
const MAX_CONTEXT: usize = 8;
/// The most figures that moved with a change which text shows.
const MAX_FIGURES: usize = 3;

fn span(json: &SpanJson) -> Span {
    Span { from: Timestamp::from_unix_ns(json.start_ns), to: Timestamp::from_unix_ns(json.end_ns) }
}

impl ChangesReport {
    /// As text. `suffix` is what to write after the arguments of a command that shows more.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone, suffix: &str) -> io::Result<()> {
        let (from, to) = (self.about.start_ns.unwrap_or(0), self.about.end_ns.unwrap_or(0));
        let whole = span(&SpanJson { start_ns: from, end_ns: to });
        let shown = |at| zone.show_seconds(at);
        let against = match &self.compared_with {
            // A note below says why.
            None if self.doubt().is_some() => "compared with nothing".to_owned(),
            None => "each moment compared with the time before it".to_owned(),
            Some(against) => {
                let against = span(against);
                let usual = self.usual.map_or_else(String::new, |usual| {
                    format!("; the time from {} on shows what is usual", shown(span(&usual).from))
                });
                format!("compared with {} to {}{usual}", shown(against.from), shown(against.to))
            }
        };
        writeln!(out, "{}", escape(&self.summary))?;
        writeln!(
            out,
            "{} to {} ({}), {against}",
            shown(whole.from),
            shown(whole.to),
            Nanos(whole.length_ns())
        )?;
        if let Some(line) = gaps_summary(&self.gaps, zone, whole) {
            writeln!(out, "{line}")?;
        }
        out.sentences(&self.notes)?;
        let has_servers = self.has_several_servers();
        self.moments.iter().try_for_each(|moment| {
            let page = MomentsText { zone, whole, suffix, has_servers, measured_ns: moment.measured_ns };
            page.moment(moment, out)
        })?;
        gaps_text(&self.gaps, out, zone, whole)
    }
}

impl ChangesReport {
    fn has_several_servers(&self) -> bool {
        // What happened to the machine has effects on each of its servers.
        fn with_effects(change: &ChangeJson) -> impl Iterator<Item = &ChangeJson> {
            std::iter::once(change).chain(&change.effects)
        }
        let changes = self.moments.iter().flat_map(|moment| moment.changes.iter().flat_map(with_effects));
        let context = self.moments.iter().flat_map(|moment| &moment.context);
        let mut servers = changes.chain(context).filter_map(|change| change.server.as_ref());
        let first = servers.next();
        servers.any(|server| Some(server) != first)
    }
}

/// How all moments are written.
struct MomentsText<'a> {
    zone: &'a Zone,
    whole: Span,
    /// What ends a command that shows more.
    suffix: &'a str,
    /// Whether changes name their servers.
    has_servers: bool,
    /// Over how long costs were measured, in nanoseconds.
    measured_ns: u64,
}

impl MomentsText<'_> {
    fn server(&self, change: &ChangeJson) -> String {
        let server = change.server.as_ref().filter(|_| self.has_servers);
        server.map_or_else(String::new, |server| format!("{}: ", escape(server)))
    }

    fn moment<W: Write>(&self, moment: &MomentJson, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(out)?;
        if span(&moment.span) != self.whole {
            let Span { from, to } = span(&moment.span);
            let (from, to) = (clock(self.zone, from, self.whole), clock(self.zone, to, self.whole));
            writeln!(out, "Between {from} and {to}:")?;
        }
        for (at, change) in moment.changes.iter().take(MAX_SHOWN).enumerate() {
            self.change(&format!("{}. ", at + 1), change, out)?;
        }
        let hidden = moment.changes.len().saturating_sub(MAX_SHOWN) + moment.left_out;
        if hidden > 0 {
            writeln!(out, "… and {} (see --json)", plural(hidden, "more change"))?;
        }
        if !moment.context.is_empty() {
            writeln!(out, "The machine and the server at the same time:")?;
            for one in moment.context.iter().take(MAX_CONTEXT) {
                let evidence = one.evidence.first().map_or_else(String::new, |line| format!(" ({line})"));
                writeln!(out, "   {}{}{}", self.server(one), escape(&one.sentence), escape(&evidence))?;
                for line in one.evidence.iter().skip(1) {
                    writeln!(out, "     {}", escape(line))?;
                }
            }
            let hidden = moment.context.len().saturating_sub(MAX_CONTEXT);
            if hidden > 0 {
                writeln!(out, "   … and {hidden} more (see --json)")?;
            }
        }
        Ok(())
    }

    fn change<W: Write>(&self, mark: &str, change: &ChangeJson, out: &mut Fitting<W>) -> io::Result<()> {
        let indent = " ".repeat(width(mark));
        let at = clock(self.zone, Timestamp::from_unix_ns(change.since_ns), self.whole);
        let cost = match change.cost_ns {
            0 => String::new(),
            ns => format!("  [{}]", cost_within(ns as f64, self.measured_ns)),
        };
        writeln!(out, "{mark}{at}  {}{}{cost}", self.server(change), escape(&change.sentence))?;
        for line in &change.evidence {
            writeln!(out, "{indent}  {}", escape(line))?;
        }
        let is_figure = |effect: &&ChangeJson| effect.kind == "series";
        let others = || change.effects.iter().filter(|effect| !is_figure(effect));
        for effect in others().take(MAX_EFFECTS) {
            self.change(&format!("{indent}→ "), effect, out)?;
        }
        let hidden = others().count().saturating_sub(MAX_EFFECTS);
        if hidden > 0 {
            writeln!(out, "{indent}→ and {hidden} more (see --json)")?;
        }
        let figures: Vec<&ChangeJson> = change.effects.iter().filter(is_figure).collect();
        if !figures.is_empty() {
            let shown = figures.iter().take(MAX_FIGURES).map(|one| one.sentence.as_str());
            let more = figures.len().saturating_sub(MAX_FIGURES);
            let more =
                if more > 0 { format!("; and {more} more figures (see --json)") } else { String::new() };
            let shown = shown.collect::<Vec<_>>().join("; ");
            writeln!(out, "{indent}→ with it: {}{more}", escape(&shown))?;
        }
        if !change.command.is_empty() && !mark.contains('→') {
            let arguments = command_line(&change.command);
            writeln!(out, "{indent}  more: mongosonar {}{}", escape(&arguments), self.suffix)?;
        }
        Ok(())
    }
}

/// Words as a shell takes them.
fn command_line(words: &[String]) -> String {
    words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use sonar_core::Endpoint;
    use sonar_core::changes::{ChangeKind, HistoryChange, HistoryChanges, ScanMoment};
    use sonar_core::history::{Event, EventKind};

    use super::*;
    use crate::changes::ComparedSpans;

    #[test]
    fn the_command_that_shows_more_survives_a_shell() {
        let words = ["queries", "--filter", "shop.old carts; it's"].map(str::to_owned);
        assert_eq!(command_line(&words), r"queries --filter 'shop.old carts; it'\''s'");
    }

    #[test]
    fn servers_are_named_where_a_change_has_effects_on_another_one() {
        let at = Timestamp::from_unix(1_700_000_000, 0);
        let span = Span { from: at, to: at.plus_ns(30_000_000_000) };
        let event = |port| {
            let server = Endpoint::v4([0; 4], port);
            let events = vec![Event::new(at, EventKind::LogRotation, server, "")];
            HistoryChange::new(server, at, ChangeKind::Event(events))
        };
        let said = |cause, effect| {
            let change = HistoryChange { effects: vec![event(effect)], ..event(cause) };
            let changes = HistoryChanges { changes: vec![change], ..HistoryChanges::default() };
            let moment = ScanMoment { span, measured_ns: span.length_ns(), changes };
            let (source, zone) = ("history".to_owned(), Zone::utc());
            let spans = ComparedSpans { span, against: None, usual: None, source, zone };
            let report = ChangesReport::new(&spans, &[moment], Vec::new());
            let mut out = Vec::new();
            report.text(&mut Fitting::new(&mut out, None), &Zone::utc(), "").unwrap();
            String::from_utf8(out).unwrap()
        };
        let (one, several) = (said(27_017, 27_017), said(27_017, 27_018));
        assert!(!one.contains("27017: ") && one.contains("→"), "{one}");
        assert!(several.contains("27017: ") && several.contains("27018: "), "{several}");
    }
}
