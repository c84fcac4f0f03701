//! The helper processes of collectors: what they do takes privileges also later.

use anyhow::Result;
use sonar_sys::split::SplitRoom;
use sonar_sys::tls::TlsRoom;

use super::files::FileSetup;
use super::opener::RingOpener;
use super::plan::LivePlan;
use super::split::SplitSetup;
use crate::agent::memory;
use crate::capture::splitting::{OpenFilesRoom, SplitPlan};
use crate::capture::tls::{AttachedCapture, AttacherTask, EncryptedAccess, TlsCapture};
use crate::large::LARGE;

/// Those of the collectors that run.
pub struct CollectorHelpers {
    /// Opens rings.
    pub opener: Option<RingOpener>,
    /// Reads encrypted connections.
    pub tls: Option<AttachedCapture>,
    /// Finds processes and the paths of files.
    pub files: Option<FileSetup>,
    /// Find the files and functions of servers; or why they cannot be started.
    pub split: Option<Result<SplitSetup>>,
}

impl CollectorHelpers {
    /// Starts them. Call it before any thread is started.
    pub fn start(plan: &LivePlan<'_>) -> Self {
        let (settings, confined) = (&plan.settings, plan.confined);
        let opener = settings.collectors.queries.then(|| RingOpener::start(confined));
        let tls = match settings.collectors.queries && settings.queries.tls {
            true => TlsCapture::open(AttacherTask {
                ports: settings.queries.ports(),
                processes: Vec::new(),
                any_cost: false,
                confined,
                follows_later: true,
                room: TlsRoom::AGENT,
            }),
            false => None,
        };
        let files = settings.collectors.files.then(|| FileSetup::new(confined));
        let split_plan = SplitPlan {
            confined,
            follows: true,
            ports: Vec::new(),
            encrypted: EncryptedAccess::of(!settings.queries.tls, false),
            samples: false,
            samples_processors: false,
            table_bytes: memory::SYMBOL_BYTES,
            large: Some(&LARGE),
            room: SplitRoom::AGENT,
            files: OpenFilesRoom::AGENT,
        };
        let connections = settings.split.sample.0;
        let split = settings.collectors.split.then(|| SplitSetup::new(connections, split_plan));
        Self { opener, tls, files, split }
    }
}
