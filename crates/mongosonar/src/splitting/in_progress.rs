//! Operations that are in progress at one moment: the ones that hang are among them.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_core::files::ThreadRole;
use sonar_core::time_split::{InFlightOperation, ThreadOperation, WireOperation};
use sonar_sys::split::SplitTracer;
use sonar_view::why::UnfinishedOperation;

use super::waits::{SampledWait, WaitClassifier};
use crate::when::now;

/// Shorter ones are not worth a line, in nanoseconds.
const LONG_NS: u64 = 100_000_000;

/// What the threads of the servers do at one moment.
pub struct ThreadsNow {
    in_flight: Vec<InFlightOperation>,
    /// Threads of clients that wait, but not for a request, by their ids.
    waiting: HashMap<u32, SampledWait>,
    /// Threads that waited for a request since they were first seen.
    followed: HashSet<u32>,
    /// When their stacks were taken.
    looked: Timestamp,
}

impl ThreadsNow {
    /// Looks at all threads.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn look(tracer: &SplitTracer, classifier: &mut WaitClassifier) -> Result<Self> {
        let looked = now();
        let waiting = classifier.look().into_iter();
        let waiting = waiting.filter(|wait| ThreadRole::of(&wait.thread_name) == ThreadRole::Client);
        let unreadable = "cannot read what threads execute";
        let threads = tracer.threads().context(unreadable)?;
        Ok(Self {
            waiting: waiting.map(|wait| (wait.thread, wait)).collect(),
            followed: threads.iter().filter(|one| one.is_followed).map(|one| one.thread).collect(),
            looked,
            in_flight: tracer.in_flight().context(unreadable)?,
        })
    }

    /// The long operations, with their requests; with `all_connections`, also those that began before the trace.
    pub fn unfinished(
        self,
        request_of: impl Fn(&ThreadOperation) -> Option<WireOperation>,
        all_connections: bool,
    ) -> Vec<UnfinishedOperation> {
        let Self { in_flight, mut waiting, followed, looked } = self;
        let mut found = Vec::new();
        for one in in_flight {
            let wait = waiting.remove(&one.operation.thread);
            // What continues a reply without a request waits for news on purpose.
            if one.operation.duration_ns < LONG_NS || one.operation.is_exhaust {
                continue;
            }
            found.push(UnfinishedOperation {
                thread: one.operation.thread,
                thread_name: one.operation.thread_name.clone(),
                wire: request_of(&one.operation),
                // It may have gone on since its stack was taken.
                class: wait.filter(|_| one.since <= looked).map(|wait| wait.class),
                in_flight: Some(one),
            });
        }
        let before = waiting.into_values().filter(|wait| all_connections && !followed.contains(&wait.thread));
        found.extend(before.map(|wait| UnfinishedOperation {
            thread: wait.thread,
            thread_name: wait.thread_name,
            in_flight: None,
            wire: None,
            class: Some(wait.class),
        }));
        found
    }
}
