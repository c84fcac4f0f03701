//! What the agent has when it begins.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use sonar_core::HistoryWriter;
use sonar_sys::kernel_log::KernelLog;

use super::clock_reading::{AgentClock, ClockReading, HostClock};
use super::followers::{self, Followers};
use super::inspector::Inspector;
use super::page::AgentPage;
use super::plan::LivePlan;
use super::positions::LogPositions;
use super::pulse::{StorePulse, WatchTask};
use crate::agent::applications::KnownApplications;
use crate::agent::notify::ServiceManager;
use crate::agent::store::{self, AgentStore};
use crate::args::when::now;
use crate::confinement::thread_starter::ThreadStarter;

/// What takes privileges, and what finds and follows servers.
pub struct OpenedAgent {
    /// Starts threads once this one has dropped its privileges.
    pub starter: ThreadStarter,
    /// The store.
    pub store: Box<dyn AgentStore>,
    /// Notices that its folder does not answer.
    pub pulse: Arc<StorePulse>,
    /// What the kernel says of processes that it kills; `None` if it may not be read.
    pub kernel_log: Option<KernelLog>,
    /// Makes the collectors that follow files of servers.
    pub followers: Followers,
    /// Who wants to know how the agent is.
    pub manager: Arc<ServiceManager>,
    /// Finds servers and opens their files.
    pub inspector: Arc<Inspector>,
    /// The page.
    pub page: AgentPage,
    /// What time it is.
    pub clock: Arc<dyn AgentClock>,
    /// When the agent began.
    pub begun: ClockReading,
}

impl OpenedAgent {
    /// Opens the store and what else takes privileges. `asked_to_stop` is set once the agent is to end.
    ///
    /// # Errors
    /// The store cannot be used, or a thread cannot be started.
    pub fn open(
        plan: &LivePlan<'_>,
        inspector: Arc<Inspector>,
        page: AgentPage,
        asked_to_stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let manager = Arc::new(ServiceManager::from_environment());
        let starter = match plan.confined {
            true => ThreadStarter::confined().context("cannot start a thread")?,
            false => ThreadStarter::Here,
        };
        let folder = plan.folder.to_path_buf();
        let task = WatchTask { stop: asked_to_stop, folder, manager: manager.clone() };
        let pulse = StorePulse::watched(&starter, task)?;
        let opening = pulse.begin();
        let store = store::open(plan.folder, &plan.settings.store, true)?;
        // Without them known applications would be new.
        let applications = Arc::new(KnownApplications::read(&store, now()).unwrap_or_else(|error| {
            eprintln!("mongosonar: the applications of the history cannot be read: {error}");
            KnownApplications::default()
        }));
        let page = page.begin(plan.folder);
        drop(opening);
        // Opening it may take a privilege that is dropped.
        let kernel_log = KernelLog::open().ok();
        let (clock, begun) = (Arc::new(HostClock), ClockReading::now());
        let positions = Arc::new(LogPositions::stored(&store.positions()));
        let followers = followers::of_servers(inspector.clone(), positions, begun, applications);
        let store = Box::new(store);
        Ok(Self { starter, store, pulse, kernel_log, followers, manager, inspector, page, clock, begun })
    }
}
