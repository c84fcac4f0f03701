//! The width of text reports.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

/// The value of `--width`.
static WIDTH: OnceLock<usize> = OnceLock::new();

/// Stores the value of `--width`; 0 is no limit.
pub fn set_width(width: Option<usize>) {
    if let Some(width) = width {
        let _ = WIDTH.set(width);
    }
}

/// Columns of a line on standard output: from `--width`, else the terminal, else COLUMNS in the environment; `None`
/// is no limit, as into a pipe or file.
pub fn width() -> Option<usize> {
    let number = |text: String| text.trim().parse().ok();
    let columns = || std::env::var("COLUMNS").ok().and_then(number);
    let terminal = || {
        let size = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        size.map(|(columns, _)| usize::from(columns))
    };
    WIDTH.get().copied().or_else(terminal).or_else(columns).filter(|width| *width > 0)
}

/// Lines of the terminal that standard output is; `None` if it is none.
pub fn height() -> Option<usize> {
    let size = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
    size.map(|(_, lines)| usize::from(lines)).filter(|lines| *lines > 0)
}

/// Columns of a text that consists of sentences: those of [`width`], but within what reads well.
pub fn reading_width() -> usize {
    width().map_or(100, |columns| columns.clamp(40, 120))
}
