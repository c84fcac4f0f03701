//! The namespaces of the statements of a bulkWrite.

use super::Name;

/// The namespaces of the statements of a bulkWrite, which name them by their index.
#[derive(Clone, Debug, Default)]
pub struct StatementNamespaces {
    names: Vec<Name>,
    /// The first one is that of every statement, whatever its index.
    is_only: bool,
}

impl StatementNamespaces {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.names.clear();
        self.is_only = false;
    }

    /// Adds the next one, without its name.
    pub fn push(&mut self) {
        self.names.push(Name::default());
    }

    /// Sets the namespace of a statement that stands alone: a profile and a log have it there, and not the list that its
    /// index is for.
    pub fn set_only(&mut self, namespace: &[u8]) {
        self.clear();
        self.push();
        self.names[0].set(namespace);
        self.is_only = true;
    }

    /// Keeps at most so many, the first ones. Returns whether there were more.
    pub fn truncate(&mut self, most: usize) -> bool {
        let is_over = self.names.len() > most;
        self.names.truncate(most);
        is_over
    }

    /// The one that was added last.
    pub fn last_mut(&mut self) -> Option<&mut Name> {
        self.names.last_mut()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Name> {
        self.names.iter()
    }

    /// That of a statement with this index; `None` if there is none.
    pub fn get(&self, index: i64) -> Option<&Name> {
        let index = if self.is_only { 0 } else { usize::try_from(index).ok()? };
        self.names.get(index)
    }
}
