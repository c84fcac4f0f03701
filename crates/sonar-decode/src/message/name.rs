//! A name in a buffer that is reused.

/// The most bytes of a name that are kept: the server allows no longer namespaces.
pub const MAX_NAME: usize = 255;

/// The name of a database, collection, command or application.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Name(Vec<u8>);

impl Name {
    /// Replaces the name.
    pub fn set(&mut self, bytes: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(&bytes[..bytes.len().min(MAX_NAME)]);
    }

    /// Makes the name empty.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text; invalid UTF-8 is replaced.
    pub fn text(&self) -> Box<str> {
        String::from_utf8_lossy(&self.0).into()
    }
}
