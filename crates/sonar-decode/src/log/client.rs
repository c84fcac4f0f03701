//! Who a client is: the `client` document of its first `hello`, as the log repeats it.

use sonar_core::Application;

use crate::bson::{Key, Kind, Opened, Step, Value, Visitor};

/// Reads a metadata document.
#[derive(Default)]
pub struct ClientReader {
    path: Vec<Part>,
    name: String,
    driver: String,
    version: String,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Part {
    Application,
    Driver,
    Document,
}

impl ClientReader {
    /// What was read.
    pub fn into_application(self) -> Application {
        Application {
            name: self.name.into(),
            driver: self.driver.into(),
            driver_version: self.version.into(),
            joined_late: false,
        }
    }
}

impl Visitor for ClientReader {
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let (Kind::String, Value::Bytes(bytes)) = (kind, value) else { return Step::Next };
        let text = || String::from_utf8_lossy(&bytes[..bytes.len().min(255)]).into_owned();
        match (self.path.last(), key.bytes) {
            (Some(Part::Application), b"name") => self.name = text(),
            (Some(Part::Driver), b"name") => self.driver = text(),
            (Some(Part::Driver), b"version") => self.version = text(),
            _ => {}
        }
        Step::Next
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let part = match key.bytes {
            _ if array => return Opened::Skip,
            b"application" => Part::Application,
            b"driver" => Part::Driver,
            b"doc" => Part::Document,
            _ => return Opened::Skip,
        };
        self.path.push(part);
        Opened::Enter
    }

    fn close(&mut self) {
        self.path.pop();
    }
}
