//! SIGHUP: the configuration is read again and takes effect while the agent runs, or is refused as a whole.

use anyhow::{Result, anyhow, bail};
use sonar_core::history::CollectorKind;

use super::LiveAgent;
use super::inspector::ServerFiles;
use crate::agent::settings::AgentSettings;
use crate::agent::store;

impl LiveAgent<'_> {
    /// Reads the configuration again. One that is wrong or cannot take effect now is refused, and the old one stays.
    pub(super) fn reload(&mut self) {
        let loaded = AgentSettings::load(self.plan.config);
        let applied = loaded.and_then(|(mut settings, _)| {
            settings.queries.tunnels |= self.plan.tunnels;
            self.apply(settings)
        });
        match applied {
            Ok(changes) => {
                self.refused = None;
                match changes.as_slice() {
                    [] => eprintln!("mongosonar: the configuration has not changed"),
                    changes => eprintln!("mongosonar: the configuration has changed: {}", changes.join(", ")),
                }
            }
            Err(error) => {
                let text = format!("the configuration was not loaded, the old one stays: {error:#}");
                eprintln!("mongosonar: {text}");
                self.refused = Some(text);
            }
        }
    }

    /// Changes what is different in `settings`; names it.
    ///
    /// # Errors
    /// Something cannot be changed while the agent runs. Nothing was changed then.
    fn apply(&mut self, settings: AgentSettings) -> Result<Vec<String>> {
        let fixed = fixed(&self.plan.settings, &settings);
        if !fixed.is_empty() {
            bail!("only a restart can change: {}", fixed.join(", "));
        }
        let old = &self.plan.settings;
        let (has_other_store, has_other_servers) =
            (old.store != settings.store, old.server != settings.server);
        let mut changes = Vec::new();
        // What can fail comes first.
        let mut change = None;
        if old.queries != settings.queries
            && settings.collectors.queries
            && let Some(queries) = &self.queries
        {
            let prepared = queries.prepare(&settings.queries, self.context.servers.ports());
            change = Some(prepared.map_err(|problem| anyhow!("queries: {}", problem.text()))?);
        }
        if has_other_servers {
            if self.inspector.reload()? != ServerFiles::all(&settings) {
                bail!("the file has changed again; reload once more");
            }
            self.inspector.accept();
        }
        // From here on nothing fails as a whole.
        if let Some(change) = change
            && let Some(queries) = &mut self.queries
        {
            self.context.board.keep_interfaces(CollectorKind::Queries, &settings.queries.interface);
            queries.change(change);
            changes.push("interfaces, ports and ring of queries".to_owned());
        }
        if has_other_servers {
            changes.push("servers".to_owned());
        }
        if has_other_store {
            self.assembler.store_mut().history.configure(store::settings(&settings.store, true));
            changes.push("size and age of what is kept".to_owned());
        }
        for collector in CollectorKind::ALL {
            match (self.plan.settings.collectors.runs(collector), settings.collectors.runs(collector)) {
                (true, false) => {
                    self.end(collector);
                    changes.push(format!("{} is off", collector.name()));
                }
                (false, true) => {
                    self.context.board.want(collector, true);
                    if let Err(error) = self.follow(collector) {
                        self.try_again(collector, format!("{error:#}"));
                    }
                    changes.push(format!("{} is on", collector.name()));
                }
                _ => {}
            }
        }
        self.plan.settings = settings;
        if !changes.is_empty() {
            self.look_for_servers();
        }
        Ok(changes)
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
    use crate::agent::settings::ServerPort;

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
