//! Collectors that follow files of servers. They open nothing themselves, so that they can be started at any time.

use std::sync::Arc;

use sonar_core::history::CollectorKind;

use super::clock_reading::ClockReading;
use super::inspector::Inspector;
use super::internals::InternalsCollector;
use super::log::LogCollector;
use super::positions::LogPositions;
use super::runner::CollectorPlan;
use crate::agent::applications::KnownApplications;

/// Makes a collector that follows files; `None` if one of this kind needs privileges.
pub type Followers = Box<dyn Fn(CollectorKind) -> Option<Box<dyn CollectorPlan>>>;

/// Those of the servers. The agent began at `begun`.
pub fn of_servers(
    inspector: Arc<Inspector>,
    positions: Arc<LogPositions>,
    begun: ClockReading,
    applications: Arc<KnownApplications>,
) -> Followers {
    Box::new(move |kind| {
        let (inspector, positions) = (inspector.clone(), positions.clone());
        match kind {
            CollectorKind::Log => {
                let applications = applications.clone();
                Some(Box::new(LogCollector { inspector, positions, begun, applications }))
            }
            CollectorKind::Internals => Some(Box::new(InternalsCollector { inspector })),
            _ => None,
        }
    })
}
