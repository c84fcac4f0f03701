//! The state of the servers of this host: a line for each of the first ones, below the head.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use sonar_core::Timestamp;
use sonar_core::internals::{GlanceFigure, ServerGlance};
use sonar_core::time::NS_PER_S;

use super::palette::Palette;
use crate::kit::{Bytes, Count, Nanos, Percent, escape, plural, width};
use crate::queries::ServerState;

/// The most servers that have a line.
pub(super) const MAX_LINES: usize = 3;
/// A younger sample is as good as one of now; the age of an older one is shown, in seconds.
const RECENT_S: u64 = 3;
/// Servers write their samples every ten seconds: from this age on something is wrong, in seconds.
const STALE_S: u64 = 30;

/// A figure with what stands before and after it.
struct StatePart {
    /// On a wide screen, around the value.
    wide: [String; 3],
    /// On a narrow one, in the words of `mongostat`.
    narrow: [String; 3],
    style: Style,
    /// Parts with less go first where there is no room.
    importance: u8,
}

impl StatePart {
    fn spans<'a>(&self, is_wide: bool, palette: Palette) -> [Span<'a>; 3] {
        let [before, value, after] = if is_wide { &self.wide } else { &self.narrow };
        palette.figure(before, Span::styled(value.clone(), self.style), after)
    }

    fn width(&self, is_wide: bool, palette: Palette) -> usize {
        self.spans(is_wide, palette).iter().map(Span::width).sum()
    }
}

fn part(importance: u8, style: Style, [wide, narrow]: [[&str; 2]; 2], value: String) -> StatePart {
    let around = |[before, after]: [&str; 2]| [before.to_owned(), value.clone(), after.to_owned()];
    StatePart { wide: around(wide), narrow: around(narrow), style, importance }
}

/// The figures of a server that are known, and how old they are at the time `now`; `None` if that is not known.
fn parts(glance: &ServerGlance, now: Option<Timestamp>, palette: Palette) -> Vec<StatePart> {
    let judged = |figure: GlanceFigure, value: f64| match figure.is_notable(value) {
        true => palette.warning,
        false => palette.strong,
    };
    let mut parts = Vec::new();
    if let Some(connections) = glance.connections {
        let value = Count(connections as f64).to_string();
        parts.push(part(2, palette.strong, [["connections ", ""], ["conn ", ""]], value));
    }
    if let (Some(reads), Some(writes)) = (glance.queued_reads, glance.queued_writes) {
        let style = if reads + writes > 0 { palette.warning } else { palette.strong };
        let [reads, writes] = [reads, writes].map(|count| Count(count as f64).to_string());
        parts.push(StatePart {
            wide: ["queued ".to_owned(), format!("{reads} read {writes} write"), String::new()],
            narrow: ["qrw ".to_owned(), format!("{reads}|{writes}"), String::new()],
            style,
            importance: 5,
        });
    }
    if let Some(used) = glance.cache_used_percent {
        let style = judged(GlanceFigure::CacheUsed, used);
        parts.push(part(3, style, [["cache ", " used"], ["used ", ""]], Percent(used / 100.0).to_string()));
    }
    if let Some(dirty) = glance.cache_dirty_percent {
        let (style, value) =
            (judged(GlanceFigure::CacheDirty, dirty), format!("{:.1}", Percent(dirty / 100.0)));
        parts.push(part(4, style, [["", " dirty"], ["dirty ", ""]], value));
    }
    if let Some(bytes) = glance.resident_bytes {
        let value = Bytes(bytes as f64).to_string();
        parts.push(part(0, palette.strong, [["resident ", ""], ["res ", ""]], value));
    }
    if let Some(lag) = glance.lag_ms {
        let value = Nanos(lag.saturating_mul(1_000_000)).to_string();
        let value = if lag == 0 { "0s".to_owned() } else { value };
        parts.push(part(1, judged(GlanceFigure::Lag, lag as f64), [["lag ", ""], ["lag ", ""]], value));
    }
    let age_s = now.map_or(0, |now| now.since(glance.at) / NS_PER_S);
    if age_s > RECENT_S {
        let style = if age_s >= STALE_S { palette.warning } else { palette.dim };
        let value = if age_s < 60 { format!("{age_s}s") } else { Nanos(age_s * NS_PER_S).to_string() };
        // A figure that is not of now must not look as if it were.
        parts.push(part(6, style, [["", " ago"], ["", " ago"]], value));
    }
    parts
}

/// A line for each server, at most three, and how many more there are. `now` is the time up to which operations are shown.
pub(super) fn lines<'a>(
    servers: &[ServerState],
    now: Option<Timestamp>,
    columns: usize,
    palette: Palette,
) -> Vec<Line<'a>> {
    let more = servers.len().saturating_sub(MAX_LINES);
    let line = |(at, server): (usize, &ServerState)| StateLine {
        names: [format!(" {} {} ", escape(&server.program), server.port), format!(" {} ", server.port)],
        parts: parts(&server.glance, now, palette),
        more: match at + 1 == MAX_LINES && more > 0 {
            true => format!(" and {} ", plural(more, "more server")),
            false => String::new(),
        },
    };
    let lines: Vec<StateLine> = servers.iter().take(MAX_LINES).enumerate().map(line).collect();
    // All of them look alike.
    let is_wide = lines.iter().all(|line| line.width(true, palette) <= columns);
    lines.into_iter().map(|line| line.fitted(is_wide, columns, palette)).collect()
}

/// The line of a server.
struct StateLine {
    /// Its name on a wide screen and on a narrow one.
    names: [String; 2],
    parts: Vec<StatePart>,
    /// How many servers have no line.
    more: String,
}

impl StateLine {
    fn name(&self, is_wide: bool) -> &str {
        &self.names[usize::from(!is_wide)]
    }

    /// Its width; the space at the end may be cut.
    fn width(&self, is_wide: bool, palette: Palette) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.width(is_wide, palette)).sum();
        (width(self.name(is_wide)) + parts + self.more.len()).saturating_sub(1)
    }

    /// Without what has no room, the least important part first.
    fn fitted<'a>(mut self, is_wide: bool, columns: usize, palette: Palette) -> Line<'a> {
        while self.width(is_wide, palette) > columns && self.parts.len() > 1 {
            let Some(least) = self.parts.iter().map(|part| part.importance).min() else { break };
            self.parts.retain(|part| part.importance != least);
        }
        let mut spans = vec![Span::styled(self.name(is_wide).to_owned(), palette.accent)];
        spans.extend(self.parts.iter().flat_map(|part| part.spans(is_wide, palette)));
        spans.push(Span::styled(self.more, palette.dim));
        Line::from(spans)
    }
}
