//! Why a history does not answer.

use std::io;

use sonar_core::history::HistoryError;

/// Why a history does not answer a question.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    /// It cannot be read.
    #[error("cannot read the history in {name}")]
    Unreadable {
        /// Where it is.
        name: String,
        /// Why.
        source: HistoryError,
    },
    /// It holds nothing that could answer.
    #[error("{0}")]
    NothingStored(String),
    /// No history can answer that, or not this one: it has no such server, rows or time.
    #[error("{0}")]
    WrongQuestion(String),
    /// What it holds cannot be compared with the other side.
    #[error("{0}")]
    Incomparable(String),
    /// The answer cannot be written as a document.
    #[error(transparent)]
    Unwritable(#[from] io::Error),
}

impl PastError {
    /// Whether another question may be answered: whoever asked must change it.
    pub const fn is_wrong_question(&self) -> bool {
        matches!(self, Self::WrongQuestion(_))
    }
}
