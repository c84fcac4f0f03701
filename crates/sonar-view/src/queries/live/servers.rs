//! The state of the servers of this host: a line for each of the first ones, below the head.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::palette::Palette;
use crate::kit::{plural, width};
use crate::queries::ServerState;
use crate::queries::server_state::{StateFigure, StateTime, StateTone};

/// The most servers that have a line.
pub(super) const MAX_LINES: usize = 3;

/// A figure on the screen.
struct StatePart {
    figure: StateFigure,
    style: Style,
}

impl StatePart {
    fn of(figure: StateFigure, palette: Palette) -> Self {
        let style = match figure.tone {
            StateTone::Plain => palette.strong,
            StateTone::Notable => palette.warning,
            StateTone::Dim => palette.dim,
        };
        Self { figure, style }
    }

    fn spans<'a>(&self, is_wide: bool, palette: Palette) -> [Span<'a>; 3] {
        let [before, value, after] = if is_wide { &self.figure.wide } else { &self.figure.narrow };
        palette.figure(before, Span::styled(value.clone(), self.style), after)
    }

    fn width(&self, is_wide: bool, palette: Palette) -> usize {
        self.spans(is_wide, palette).iter().map(Span::width).sum()
    }
}

/// A line for each server, at most three, and how many more there are.
pub(super) fn lines<'a>(
    servers: &[ServerState],
    time: StateTime,
    columns: usize,
    palette: Palette,
) -> Vec<Line<'a>> {
    let more = servers.len().saturating_sub(MAX_LINES);
    let line = |(at, server): (usize, &ServerState)| StateLine {
        names: [format!(" {} ", server.name()), format!(" {} ", server.port)],
        parts: server.figures(time).into_iter().map(|figure| StatePart::of(figure, palette)).collect(),
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
            let Some(least) = self.parts.iter().map(|part| part.figure.importance).min() else { break };
            self.parts.retain(|part| part.figure.importance != least);
        }
        let mut spans = vec![Span::styled(self.name(is_wide).to_owned(), palette.accent)];
        spans.extend(self.parts.iter().flat_map(|part| part.spans(is_wide, palette)));
        spans.push(Span::styled(self.more, palette.dim));
        Line::from(spans)
    }
}
