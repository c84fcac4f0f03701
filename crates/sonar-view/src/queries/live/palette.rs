//! The styles of the live view.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// The few styles that are used; without colours they differ by weight alone.
#[derive(Copy, Clone, Debug)]
pub(super) struct Palette {
    pub(super) plain: Style,
    pub(super) dim: Style,
    pub(super) strong: Style,
    pub(super) accent: Style,
    pub(super) good: Style,
    pub(super) warning: Style,
    pub(super) bad: Style,
    pub(super) heading: Style,
    pub(super) sorted: Style,
    pub(super) cursor: Style,
}

impl Palette {
    pub(super) fn new(color: bool) -> Self {
        let plain = Style::new();
        let strong = plain.add_modifier(Modifier::BOLD);
        let heading = plain.add_modifier(Modifier::REVERSED);
        let without = Self {
            plain,
            dim: plain,
            strong,
            accent: strong,
            good: plain,
            warning: strong,
            bad: strong.add_modifier(Modifier::REVERSED),
            heading,
            sorted: heading.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            cursor: heading,
        };
        if !color {
            return without;
        }
        Self {
            dim: plain.fg(Color::Gray).add_modifier(Modifier::DIM),
            accent: plain.fg(Color::Cyan),
            good: plain.fg(Color::Green),
            warning: plain.fg(Color::Yellow),
            bad: plain.fg(Color::LightRed).add_modifier(Modifier::BOLD),
            heading: plain.fg(Color::Gray).bg(Color::DarkGray),
            sorted: plain.fg(Color::White).bg(Color::DarkGray).add_modifier(Modifier::BOLD),
            cursor: plain.fg(Color::White).bg(Color::Blue),
            ..without
        }
    }

    /// A figure between what it is and its unit.
    pub(super) fn figure<'a>(self, before: &str, value: Span<'a>, after: &str) -> [Span<'a>; 3] {
        [Span::styled(format!(" {before}"), self.dim), value, Span::styled(format!("{after} "), self.dim)]
    }
}
