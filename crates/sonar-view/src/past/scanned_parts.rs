//! What was found in parts of a history, kept for the next answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sonar_core::Timestamp;
use sonar_core::changes::{CommandEvents, HistoryChange, ScanMoment};
use sonar_core::history::{HistoryWindow, Resolution};

use crate::changes::SeenSpan;

/// The most parts that are kept.
const MAX_PARTS: usize = 512;
/// The most changes, with what stands beside them, and commands in all parts that are kept.
const MAX_CHANGES: usize = 20_000;

/// What was found in a part of a span, or in all of a short one.
#[derive(Debug, Default)]
pub(super) struct ScannedPart {
    /// The moments of change, each change measured from the window on in which it began.
    pub moments: Vec<ScanMoment>,
    /// Its windows, by time.
    pub windows: Vec<ScannedWindow>,
    /// Whether enough was observed to compare anything.
    pub has_compared: bool,
}

/// What is to be known of a window in which nothing changed.
#[derive(Debug)]
pub(super) struct ScannedWindow {
    pub start: Timestamp,
    pub seen: SeenSpan,
    /// Administrators' commands on the wire.
    pub commands: CommandEvents,
}

impl ScannedWindow {
    pub fn of(window: &HistoryWindow) -> Self {
        let (mut seen, mut commands) = (SeenSpan::default(), CommandEvents::default());
        seen.add(window);
        commands.add(window);
        Self { start: window.window.start, seen, commands }
    }
}

/// Parts that were scanned before, in bounded memory. One is used again while the history says the same of its time.
#[derive(Debug, Default)]
pub struct ScannedParts(Mutex<KnownParts>);

#[derive(Debug, Default)]
struct KnownParts {
    parts: HashMap<PartKey, KnownPart>,
    /// How often any was used or added.
    uses: u64,
    /// How many were removed because there was too much.
    evictions: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PartKey {
    /// The port of the server that it is about; all of them without it.
    pub server: Option<u16>,
    pub resolution: Resolution,
    pub from: Timestamp,
}

#[derive(Debug)]
struct KnownPart {
    /// Of what was observed when it was scanned.
    fingerprint: u64,
    last_used: u64,
    changes: usize,
    part: Arc<ScannedPart>,
}

impl ScannedParts {
    pub(super) fn find(&self, key: PartKey, fingerprint: u64) -> Option<Arc<ScannedPart>> {
        let known = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.uses += 1;
        let part = known.parts.get_mut(&key).filter(|part| part.fingerprint == fingerprint)?;
        part.last_used = known.uses;
        Some(Arc::clone(&part.part))
    }

    /// How many parts had to give way to others so far.
    pub(super) fn evictions(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).evictions
    }

    pub(super) fn keep(&self, key: PartKey, fingerprint: u64, part: &Arc<ScannedPart>) {
        fn count(changes: &[HistoryChange]) -> usize {
            changes.iter().map(|change| 1 + count(&change.effects)).sum()
        }
        let all = |moment: &ScanMoment| count(&moment.changes.changes) + moment.changes.context.len();
        let commands: usize = part.windows.iter().map(|window| window.commands.len()).sum();
        let changes = commands + part.moments.iter().map(all).sum::<usize>();
        let known = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.uses += 1;
        let part = KnownPart { fingerprint, last_used: known.uses, changes, part: Arc::clone(part) };
        known.parts.insert(key, part);
        let is_too_much = |parts: &HashMap<PartKey, KnownPart>| {
            parts.len() > MAX_PARTS || parts.values().map(|part| part.changes).sum::<usize>() > MAX_CHANGES
        };
        while is_too_much(&known.parts) {
            let oldest = known.parts.iter().min_by_key(|(_, part)| part.last_used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { break };
            known.parts.remove(&oldest);
            known.evictions += 1;
        }
    }
}
