//! What fills the screen below the head.

use crossterm::event::KeyCode;

/// What fills the screen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Page {
    Rows,
    Detail { identity: u64, scroll: usize },
    Help { scroll: usize, above: Option<OpenRow> },
}

/// A row that was open when the help was called.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct OpenRow {
    pub identity: u64,
    pub scroll: usize,
}

impl Page {
    /// What was there before.
    pub(super) const fn before(self) -> Self {
        match self {
            Self::Help { above: Some(OpenRow { identity, scroll }), .. } => Self::Detail { identity, scroll },
            _ => Self::Rows,
        }
    }
}

/// What fills the screen, and how much of it fits.
#[derive(Debug)]
pub(super) struct OpenPage {
    pub(super) page: Page,
    /// How many rows, or lines of a page, fit.
    pub(super) height: usize,
    /// Lines of the page as it was last drawn.
    lines: usize,
}

impl OpenPage {
    /// The rows, on a screen that has not been drawn yet.
    pub(super) fn rows() -> Self {
        Self { page: Page::Rows, height: 1, lines: 0 }
    }

    /// Opens a row.
    pub(super) fn open(&mut self, identity: u64) {
        self.page = Page::Detail { identity, scroll: 0 };
    }

    /// Calls the help, or goes back to what was there before.
    pub(super) fn toggle_help(&mut self) {
        self.page = match self.page {
            Page::Help { .. } => self.page.before(),
            Page::Detail { identity, scroll } => {
                Page::Help { scroll: 0, above: Some(OpenRow { identity, scroll }) }
            }
            Page::Rows => Page::Help { scroll: 0, above: None },
        };
    }

    /// It has so many lines; gives the first one on the screen.
    pub(super) fn place(&mut self, lines: usize, scroll: usize) -> usize {
        self.lines = lines;
        scroll.min(self.last())
    }

    /// The last line that may be the first one on the screen.
    fn last(&self) -> usize {
        self.lines.saturating_sub(self.height)
    }

    /// Handles a key on a page of lines.
    pub(super) fn key(&mut self, code: KeyCode) {
        let (height, last, before) = (self.height.max(1), self.last(), self.page.before());
        let (Page::Detail { scroll, .. } | Page::Help { scroll, .. }) = &mut self.page else { return };
        *scroll = (*scroll).min(last);
        match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => self.page = before,
            KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *scroll = (*scroll + 1).min(last),
            KeyCode::PageUp => *scroll = scroll.saturating_sub(height),
            KeyCode::PageDown => *scroll = (*scroll + height).min(last),
            KeyCode::Home | KeyCode::Char('g') => *scroll = 0,
            KeyCode::End | KeyCode::Char('G') => *scroll = last,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_read_to_its_end_and_left_to_where_it_was_called() {
        let mut open = OpenPage { height: 4, ..OpenPage::rows() };
        open.open(7);
        open.place(10, 0);
        open.key(KeyCode::Down);
        open.key(KeyCode::PageDown);
        assert_eq!(open.page, Page::Detail { identity: 7, scroll: 5 });
        open.toggle_help();
        open.place(9, 0);
        for (code, expected) in [(KeyCode::End, 5), (KeyCode::Down, 5), (KeyCode::Up, 4), (KeyCode::Home, 0)]
        {
            open.key(code);
            assert!(matches!(open.page, Page::Help { scroll, .. } if scroll == expected), "{open:?}");
        }
        open.toggle_help();
        assert_eq!(open.page, Page::Detail { identity: 7, scroll: 5 });
        // What is shorter now has its last lines on the screen.
        assert_eq!(open.place(6, 5), 2);
        open.key(KeyCode::Esc);
        assert_eq!(open.page, Page::Rows);
    }
}
