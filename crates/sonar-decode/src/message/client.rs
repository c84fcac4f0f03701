//! Who a client is: the `client` document of its first `hello`, on the wire or repeated in a log.

use super::name::Name;
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, Opened, Visitor};

/// What a `client` document says; its buffers are reused.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ClientDocument {
    /// `application.name`.
    pub application: Name,
    /// `driver.name`.
    pub driver: Name,
    /// `driver.version`.
    pub driver_version: Name,
    /// The documents that are open inside it.
    open: Vec<ClientPart>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ClientPart {
    Application,
    Driver,
    /// The document itself, if it is an attribute of a log line.
    Document,
}

impl ClientDocument {
    /// Forgets everything; ready for another document.
    pub fn reset(&mut self) {
        self.application.clear();
        self.driver.clear();
        self.driver_version.clear();
        self.open.clear();
    }

    /// Whether the reader is inside one of its parts.
    pub fn is_in_part(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Visitor for ClientDocument {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let (ElementKind::String, BsonValue::Bytes(bytes)) = (kind, value) else { return ElementStep::Next };
        match (self.open.last(), key.bytes) {
            (Some(ClientPart::Application), b"name") => self.application.set(bytes),
            (Some(ClientPart::Driver), b"name") => self.driver.set(bytes),
            (Some(ClientPart::Driver), b"version") => self.driver_version.set(bytes),
            _ => {}
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let part = match key.bytes {
            _ if array => return Opened::Skip,
            b"application" => ClientPart::Application,
            b"driver" => ClientPart::Driver,
            b"doc" => ClientPart::Document,
            _ => return Opened::Skip,
        };
        self.open.push(part);
        Opened::Enter
    }

    fn close(&mut self) {
        self.open.pop();
    }
}
