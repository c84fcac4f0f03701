//! The configuration, which SIGHUP lets the agent read again: it takes effect while the agent runs, or is refused as a whole.

use anyhow::{Result, bail};
use sonar_core::history::CollectorKind;

use super::plan::LivePlan;
use crate::agent::settings::AgentSettings;

/// What the agent does, and why it does not do what its configuration says now.
pub struct LiveConfiguration<'a> {
    /// What it does.
    pub plan: LivePlan<'a>,
    /// Why the last change was refused, if it was.
    refused: Option<String>,
}

/// What is different in a configuration, all of which can change while the agent runs.
pub struct ConfigurationChange {
    /// The new settings.
    pub settings: AgentSettings,
    /// Whether `[queries]` of a capture that runs is.
    pub queries: bool,
    /// Whether `[[server]]` is.
    pub servers: bool,
    /// Whether `[store]` is.
    pub store: bool,
    /// The collectors that are switched on (`true`) or off.
    pub switched: Vec<(CollectorKind, bool)>,
}

impl<'a> LiveConfiguration<'a> {
    /// The one of the start.
    pub fn of(plan: LivePlan<'a>) -> Self {
        Self { plan, refused: None }
    }

    /// Reads it again.
    ///
    /// # Errors
    /// It is wrong, or only a restart can change what is different.
    pub fn read(&self) -> Result<ConfigurationChange> {
        let (mut settings, _) = AgentSettings::load(self.plan.config)?;
        settings.queries.tunnels |= self.plan.tunnels;
        ConfigurationChange::between(&self.plan.settings, settings)
    }

    /// Says what has changed, or why the old one stays.
    pub fn conclude(&mut self, applied: Result<Vec<String>>) {
        self.refused = match applied {
            Ok(changes) => {
                match changes.as_slice() {
                    [] => eprintln!("mongosonar: the configuration has not changed"),
                    changes => eprintln!("mongosonar: the configuration has changed: {}", changes.join(", ")),
                }
                None
            }
            Err(error) => {
                let text = format!("the configuration was not loaded, the old one stays: {error:#}");
                eprintln!("mongosonar: {text}");
                Some(text)
            }
        };
    }

    /// Why the last change was refused; `None` if it was not.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl ConfigurationChange {
    /// What is different in `new`.
    ///
    /// # Errors
    /// Something cannot be changed while the agent runs.
    fn between(old: &AgentSettings, new: AgentSettings) -> Result<Self> {
        let fixed = fixed(old, &new);
        if !fixed.is_empty() {
            bail!("only a restart can change: {}", fixed.join(", "));
        }
        let runs = |kind| (old.collectors.runs(kind), new.collectors.runs(kind));
        let switched = CollectorKind::ALL.into_iter().map(|kind| (kind, runs(kind)));
        let switched = switched.filter(|(_, (before, after))| before != after);
        Ok(Self {
            queries: old.queries != new.queries && new.collectors.queries,
            servers: old.server != new.server,
            store: old.store != new.store,
            switched: switched.map(|(kind, (_, after))| (kind, after)).collect(),
            settings: new,
        })
    }

    /// What changes, in words.
    pub fn names(&self) -> Vec<String> {
        let tables = [
            (self.queries, "interfaces, ports and ring of queries"),
            (self.servers, "servers"),
            (self.store, "size and age of what is kept"),
        ];
        let tables = tables.into_iter().filter(|(is_other, _)| *is_other).map(|(_, name)| name.to_owned());
        let state = |is_on: bool| if is_on { "on" } else { "off" };
        let collectors =
            self.switched.iter().map(|(kind, is_on)| format!("{} is {}", kind.name(), state(*is_on)));
        tables.chain(collectors).collect()
    }
}

/// The settings that cannot change while the agent runs: they need privileges that it has dropped.
fn fixed(old: &AgentSettings, new: &AgentSettings) -> Vec<&'static str> {
    let is_new = |collector: CollectorKind| new.collectors.runs(collector) && !old.collectors.runs(collector);
    [
        (old.store.path != new.store.path, "store.path"),
        (is_new(CollectorKind::Queries), "collectors.queries = true"),
        (is_new(CollectorKind::Files), "collectors.files = true"),
        (is_new(CollectorKind::Machine), "collectors.machine = true"),
        (is_new(CollectorKind::Status), "collectors.status = true"),
        (is_new(CollectorKind::Split), "collectors.split = true"),
        (old.queries.tls != new.queries.tls, "queries.tls"),
        (old.split != new.split, "split.sample"),
        (old.page != new.page, "page"),
        (old.targets() != new.targets(), "server.uri"),
    ]
    .into_iter()
    .filter_map(|(is_changed, name)| is_changed.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::settings::{ServerPort, StoreSize};

    #[test]
    fn what_changes_is_named() {
        let old = AgentSettings::default();
        let names = |new: &AgentSettings| ConfigurationChange::between(&old, new.clone()).unwrap().names();
        assert_eq!(names(&old), Vec::<String>::new());
        let mut new = old.clone();
        new.queries.port = vec![ServerPort(5)];
        new.store.max_size = StoreSize(20_000_000);
        new.collectors.log = false;
        let queries = "interfaces, ports and ring of queries";
        assert_eq!(names(&new), [queries, "size and age of what is kept", "log is off"]);
        new.collectors.queries = false;
        assert_eq!(names(&new)[1..], ["queries is off", "log is off"], "ports of no capture");
    }

    #[test]
    fn what_only_a_restart_can_change_is_named() {
        let old = AgentSettings::default();
        let mut new = old.clone();
        new.queries.port = vec![ServerPort(5)];
        new.collectors.log = false;
        assert_eq!(fixed(&old, &new), Vec::<&str>::new());
        new.collectors.files = false;
        assert_eq!(fixed(&new, &old), ["collectors.files = true"]);
        new.store.path = "/elsewhere".into();
        assert_eq!(fixed(&old, &new), ["store.path"]);
        new.queries.tls = false;
        assert_eq!(fixed(&old, &new), ["store.path", "queries.tls"]);
    }
}
