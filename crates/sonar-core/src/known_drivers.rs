//! Which application is meant where a source gives its name alone.
//!
//! A server's log names the driver of an application only once, when the connection begins. Of connections that began
//! before the log was followed, and in profiles, only the name is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Application;

/// Applications whose driver is known, by name.
#[derive(Debug, Default)]
pub(crate) struct KnownDrivers {
    /// `None`: applications with different drivers have this name.
    known: BTreeMap<Box<str>, Option<Arc<Application>>>,
}

impl KnownDrivers {
    /// Adds an application, if its driver is known.
    pub(crate) fn add(&mut self, app: &Arc<Application>) {
        if app.name.is_empty() || app.driver.is_empty() {
            return;
        }
        match self.known.get_mut(&app.name) {
            None => drop(self.known.insert(app.name.clone(), Some(app.clone()))),
            Some(known) if known.as_ref().is_some_and(|known| known == app) => {}
            Some(known) => *known = None,
        }
    }

    /// Whether no driver is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The application that is meant by one that is only a name; `None` if it is more than that, or if no application or
    /// several have the name.
    pub(crate) fn meant_by(&self, app: &Application) -> Option<&Arc<Application>> {
        if app.name.is_empty() || !app.driver.is_empty() {
            return None;
        }
        self.known.get(&app.name)?.as_ref()
    }
}
