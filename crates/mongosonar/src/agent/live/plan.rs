//! What the agent is asked to do.

use std::path::Path;
use std::time::Duration;

use sonar_core::history::CollectorKind;
use sonar_mongo::Target;

use crate::agent::settings::AgentSettings;

/// How the agent runs.
pub struct LivePlan<'a> {
    /// The configuration.
    pub settings: AgentSettings,
    /// Servers to ask for `serverStatus` and the sizes of their collections.
    pub targets: Vec<Target>,
    /// The configuration file that was named.
    pub config: Option<&'a Path>,
    /// Whether packets inside tunnels are read whatever the configuration says.
    pub tunnels: bool,
    /// The folder of the store.
    pub folder: &'a Path,
    /// How long it collects; without a limit if `None`.
    pub once: Option<Duration>,
    /// Whether it drops its privileges.
    pub confined: bool,
}

impl LivePlan<'_> {
    /// Whether a collector runs with this configuration.
    pub(super) fn runs(&self, collector: CollectorKind) -> bool {
        let has_work = collector != CollectorKind::Status || !self.targets.is_empty();
        has_work && self.settings.collectors.runs(collector)
    }
}
