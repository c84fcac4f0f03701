//! How wide a report may be.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

/// What `--width` asked for.
static ASKED: OnceLock<usize> = OnceLock::new();

/// Keeps what `--width` asked for; 0 is no limit.
pub fn ask(width: Option<usize>) {
    if let Some(width) = width {
        let _ = ASKED.set(width);
    }
}

/// Columns that a line on standard output may have; `None`: as many as it takes. That of `--width`; else of the
/// terminal; else of COLUMNS in the environment; a pipe or file has no limit.
pub fn width() -> Option<usize> {
    let number = |text: String| text.trim().parse().ok();
    let columns = || std::env::var("COLUMNS").ok().and_then(number);
    let terminal = || {
        let size = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        size.map(|(columns, _)| usize::from(columns))
    };
    ASKED.get().copied().or_else(terminal).or_else(columns).filter(|width| *width > 0)
}
