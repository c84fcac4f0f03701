//! The styles of the live view.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::queries::split::SplitGroup;

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
    /// Of the letters of a bar, in the order of [`SplitGroup::ALL`].
    splits: [Style; SplitGroup::ALL.len()],
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
            splits: [plain; SplitGroup::ALL.len()],
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
            splits: [Color::Green, Color::Yellow, Color::Cyan, Color::Magenta, Color::Gray]
                .map(|color| plain.fg(color)),
            ..without
        }
    }

    /// A bar of letters, each group in its colour.
    pub(super) fn split<'a>(self, bar: &str) -> Vec<Span<'a>> {
        let style = |letter: char| {
            let group = SplitGroup::ALL.iter().position(|group| group.letter() == letter);
            group.map_or(self.plain, |group| self.splits[group])
        };
        bar.chars().map(|letter| Span::styled(letter.to_string(), style(letter))).collect()
    }

    /// A figure between what it is and its unit.
    pub(super) fn figure<'a>(self, before: &str, value: Span<'a>, after: &str) -> [Span<'a>; 3] {
        [Span::styled(format!(" {before}"), self.dim), value, Span::styled(format!("{after} "), self.dim)]
    }
}
