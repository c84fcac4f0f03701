//! What fills the screen below the head.

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
