//! What decides an application's name?
//!
//! On the wire and in logs it is the `client` document of a connection's first `hello`, which [`ClientDocument`]
//! reads; in profiles it is the field `appName`. Each application is one shared value, so that operations can be
//! compared by pointer, and there are at most [`MAX_APPLICATIONS`] of them: later ones are called `other`.

use std::collections::HashMap;
use std::sync::Arc;

use sonar_core::Application;

use crate::message::ClientDocument;

/// The most applications that one decoder or reader distinguishes.
pub const MAX_APPLICATIONS: usize = 1_024;

type RandomState = foldhash::quality::RandomState;

/// The applications that are known, each as one shared value.
#[derive(Debug)]
pub(crate) struct Applications {
    known: HashMap<Application, Arc<Application>, RandomState>,
    /// Those that are only a name, by name.
    named: HashMap<Box<str>, Arc<Application>, RandomState>,
    /// Stands for clients whose connection was joined late.
    pub joined_late: Arc<Application>,
    /// Stands for clients that gave no name.
    pub unnamed: Arc<Application>,
    /// Stands for all applications beyond the cap.
    pub other: Arc<Application>,
}

impl Default for Applications {
    fn default() -> Self {
        Self {
            known: HashMap::default(),
            named: HashMap::default(),
            joined_late: Arc::new(Application::joined_late()),
            unnamed: Arc::default(),
            other: Arc::new(Application { name: "other".into(), ..Application::default() }),
        }
    }
}

impl Applications {
    /// The number of known ones.
    pub(crate) fn len(&self) -> usize {
        self.known.len() + self.named.len()
    }

    /// The shared value of `app`; `None` when there are too many.
    pub(crate) fn shared(&mut self, app: Application) -> Option<Arc<Application>> {
        if let Some(known) = self.known.get(&app) {
            return Some(known.clone());
        }
        (self.known.len() < MAX_APPLICATIONS).then(|| {
            let shared = Arc::new(app.clone());
            self.known.insert(app, shared.clone());
            shared
        })
    }

    /// The application that is only this name; `None` when there are too many.
    #[inline]
    pub(crate) fn named(&mut self, name: &str) -> Option<Arc<Application>> {
        if let Some(known) = self.named.get(name) {
            return Some(known.clone());
        }
        if name.is_empty() {
            return Some(self.unnamed.clone());
        }
        (self.named.len() < MAX_APPLICATIONS).then(|| {
            let app = Arc::new(Application { name: name.into(), ..Application::default() });
            self.named.insert(name.into(), app.clone());
            app
        })
    }
}

impl From<&ClientDocument> for Application {
    fn from(client: &ClientDocument) -> Self {
        Self {
            name: client.application.text(),
            driver: client.driver.text(),
            driver_version: client.driver_version.text(),
            joined_late: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_one_value_and_too_many_are_refused() {
        let mut apps = Applications::default();
        let app = |n: usize| Application { name: n.to_string().into(), ..Application::default() };
        let first = apps.shared(app(0)).unwrap();
        assert!((1..MAX_APPLICATIONS).all(|n| apps.shared(app(n)).is_some()));
        assert!(Arc::ptr_eq(&first, &apps.shared(app(0)).unwrap()));
        assert_eq!(apps.shared(app(MAX_APPLICATIONS)), None);
        let named = apps.named("web").unwrap();
        assert!(Arc::ptr_eq(&named, &apps.named("web").unwrap()));
        assert!((1..MAX_APPLICATIONS).all(|n| apps.named(&n.to_string()).is_some()));
        assert_eq!(apps.named("one more"), None);
        assert!(Arc::ptr_eq(&apps.named("").unwrap(), &apps.unnamed));
    }
}
