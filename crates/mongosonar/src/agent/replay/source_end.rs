//! How the reading of a source ended.

/// How the reading of a source ended.
#[derive(Debug, Default)]
pub struct SourceEnd {
    /// Files that are cut or damaged, in words.
    pub damaged: Vec<String>,
    /// A file is cut or damaged, and a message has said so.
    pub is_cut: bool,
    /// Files that were not read to their end because the command was stopped.
    pub stopped: Vec<String>,
    /// What else a reader must know.
    pub notes: Vec<String>,
}

impl SourceEnd {
    /// Adds how another source ended.
    pub fn add(&mut self, other: Self) {
        self.damaged.extend(other.damaged);
        self.is_cut |= other.is_cut;
        self.stopped.extend(other.stopped);
        self.notes.extend(other.notes);
    }
}
