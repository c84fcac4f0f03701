//! The report as text.

use std::io::{self, Write};

use sonar_core::Timestamp;
use sonar_core::history::Span;

use super::report::{ChangeJson, ChangesReport, MomentJson, SpanJson};
use super::sentence::{clock, cost};
use crate::kit::{Fitting, Nanos, Zone, escape, plural, width};

/// The most changes of a moment, effects of a change, and series beside them that text shows.
const MAX_SHOWN: usize = 10;
const MAX_EFFECTS: usize = 5;
const MAX_CONTEXT: usize = 8;

fn span(json: &SpanJson) -> Span {
    Span { from: Timestamp::from_unix_ns(json.start_ns), to: Timestamp::from_unix_ns(json.end_ns) }
}

impl ChangesReport {
    /// As text. `more` is what to write before the arguments of a command that shows more, and after them.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone, more: (&str, &str)) -> io::Result<()> {
        let (from, to) = (self.about.start_ns.unwrap_or(0), self.about.end_ns.unwrap_or(0));
        let whole = span(&SpanJson { start_ns: from, end_ns: to });
        let shown = |at| zone.show_seconds(at);
        let against = match &self.compared_with {
            None => "each moment compared with the time before it".to_owned(),
            Some(against) => {
                let against = span(against);
                format!("compared with {} to {}", shown(against.from), shown(against.to))
            }
        };
        writeln!(
            out,
            "{} to {} ({}), {against}",
            shown(whole.from),
            shown(whole.to),
            Nanos(whole.length_ns())
        )?;
        for gap in &self.gaps {
            let at = span(&gap.span);
            let (from, to) = (clock(zone, at.from, whole), clock(zone, at.to, whole));
            writeln!(out, "Not observed by the {}: {from} to {to} ({})", gap.what, Nanos(at.length_ns()))?;
        }
        if self.moments.is_empty() {
            return writeln!(out, "Nothing changed beyond chance.");
        }
        let page = Page { zone, whole, more };
        self.moments.iter().try_for_each(|moment| page.moment(moment, out))
    }
}

/// How all moments are written.
struct Page<'a> {
    zone: &'a Zone,
    whole: Span,
    more: (&'a str, &'a str),
}

impl Page<'_> {
    fn moment<W: Write>(&self, moment: &MomentJson, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(out)?;
        if span(&moment.span) != self.whole {
            let (from, to) = (span(&moment.span).from, span(&moment.span).to);
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
                let port = one.server.as_ref().map_or_else(String::new, |server| format!("{server} "));
                writeln!(out, "   {}{}{}", escape(&port), escape(&one.sentence), escape(&evidence))?;
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
            ns => format!("  [{}]", cost(ns as f64)),
        };
        let server = change.server.as_ref().map_or_else(String::new, |server| format!("{server} "));
        writeln!(out, "{mark}{at}  {}{}{cost}", escape(&server), escape(&change.sentence))?;
        for line in &change.evidence {
            writeln!(out, "{indent}  {}", escape(line))?;
        }
        for effect in change.effects.iter().take(MAX_EFFECTS) {
            self.change(&format!("{indent}→ "), effect, out)?;
        }
        let hidden = change.effects.len().saturating_sub(MAX_EFFECTS);
        if hidden > 0 {
            writeln!(out, "{indent}→ and {hidden} more (see --json)")?;
        }
        if !change.command.is_empty() && change.effects.is_empty() {
            let (program, store) = self.more;
            writeln!(out, "{indent}  more: {program} {}{store}", escape(&change.command.join(" ")))?;
        }
        Ok(())
    }
}
