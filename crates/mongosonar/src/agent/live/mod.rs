//! The running agent: opens all sources, drops its privileges, and stores what they observe.
//!
//! Each collector has a thread of its own and sends windows to the main thread, which joins and stores them. The main
//! thread and all threads that start after it drop their privileges; what still needs some is done by helper processes
//! (`inspector`, and those of `io live`), which start first.

mod announcement;
mod answers;
mod backoff;
mod board;
mod client_ends;
mod clock_reading;
mod collector_helpers;
mod costs;
mod described_server;
mod files;
mod followed_log;
mod followers;
mod helpers;
mod inspector;
mod internals;
mod known_servers;
mod live_agent;
mod lives;
mod log;
mod machine;
mod names;
mod network;
mod notices;
mod now;
mod opened;
mod opener;
mod options;
mod page;
mod plan;
mod positions;
mod pulse;
mod queries;
mod record;
mod reload;
mod runner;
mod search;
mod search_pace;
mod split;
mod stating;
mod status;
mod store_folder;
mod store_problems;
mod threads;
mod watched;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sonar_view::agent::AgentSummary;

use self::collector_helpers::CollectorHelpers;
use self::inspector::Inspector;
use self::live_agent::LiveAgent;
use self::opened::OpenedAgent;
use self::page::AgentPage;
pub use self::plan::LivePlan;
use crate::confinement::{privileges, start_order};
use crate::stop::{Signals, StopBehavior};

/// Collects until it is stopped; gives what was stored.
///
/// # Errors
/// The store cannot be used, or no collector works; or only a new start helps: a helper process has ended, or the folder
/// of the store was deleted.
pub fn run(plan: LivePlan<'_>) -> Result<AgentSummary> {
    let signals = Signals::catch(StopBehavior::Service)?;
    let (reload, asked_to_stop) = (on_signals(&[SIGHUP])?, on_signals(&[SIGTERM, SIGINT])?);
    // Helpers come first: no thread may run yet, and they get nothing that is opened later.
    let page = AgentPage::start(&plan);
    let inspector = Arc::new(Inspector::start(&plan.settings.server, plan.config, plan.confined));
    let helpers = CollectorHelpers::start(&plan);
    let opened = OpenedAgent::open(&plan, inspector, page, asked_to_stop)?;
    let LivePlan { config, folder, confined, .. } = plan;
    let mut agent = LiveAgent::new(plan, opened);
    agent.look_around()?;
    let lookup = agent.open(helpers)?;
    let stop =
        signals.watch(|| start_order::drop_privileges(confined, || drop_privileges(config, folder)))?;
    agent.start(lookup)?;
    agent.collect(stop.flag(), &reload);
    let why = agent.restart_reason().map(str::to_owned);
    let summary = agent.finish();
    match why {
        // Its service starts it again after a failure.
        Some(why) => bail!("{why}: the agent ends, so that its service starts it again"),
        None => Ok(summary),
    }
}

/// Set by each of these signals.
fn on_signals(signals: &[i32]) -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, flag.clone()).context("cannot listen for signals")?;
    }
    Ok(flag)
}

/// Drops all privileges but writing to the store and reading what the status and a changed configuration need.
fn drop_privileges(config: Option<&Path>, folder: &Path) {
    let config =
        config.and_then(Path::parent).map_or_else(|| PathBuf::from("/etc/mongosonar"), Path::to_path_buf);
    privileges::drop_privileges_but_writing(&[Path::new("/proc"), Path::new("/sys"), &config], folder, &[]);
}

#[cfg(test)]
mod fakes;
