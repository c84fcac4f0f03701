//! Operations that are in progress at one moment: the ones that hang are among them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_core::files::ThreadRole;
use sonar_core::running::RequestKey;
use sonar_core::time_split::{
    EarlierBlocker, InFlightOperation, ThreadActivity, ThreadOperation, TimePart, WireOperation,
};
use sonar_sys::split::SplitTracer;
use sonar_view::now::SeenThread;
use sonar_view::why::UnfinishedOperation;

use super::open_files::FileId;
use super::waits::{SampledWait, WaitClassifier};
use crate::args::when::now;

/// Shorter ones are not worth a line, in nanoseconds.
const LONG_NS: u64 = 100_000_000;

/// The most operations whose threads are looked at for a window.
const MAX_ACTIVITIES: usize = 1_024;
const UNREADABLE: &str = "cannot read what threads execute";

/// What identifies the request of an operation.
fn key_of(operation: &ThreadOperation) -> Option<RequestKey> {
    let (server, client) = operation.connection?;
    Some((server, client, operation.request_id))
}

/// What continues a reply without a request waits for news on purpose.
fn is_long(one: &InFlightOperation) -> bool {
    one.operation.duration_ns >= LONG_NS && !one.operation.is_exhaust
}

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
        let threads = tracer.threads().context(UNREADABLE)?;
        Ok(Self {
            waiting: waiting.map(|wait| (wait.thread, wait)).collect(),
            followed: threads.iter().filter(|one| one.is_followed).map(|one| one.thread).collect(),
            looked,
            in_flight: tracer.in_flight().context(UNREADABLE)?,
        })
    }

    /// The same, or nothing if no operation is long: then no stacks are taken.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn look_if_long(tracer: &SplitTracer, classifier: &mut WaitClassifier) -> Result<Option<Self>> {
        let in_flight = tracer.in_flight().context(UNREADABLE)?;
        in_flight.iter().any(is_long).then(|| Self::look(tracer, classifier)).transpose()
    }

    /// What the threads of the long operations do, by connection and request id. `file_name` finds the name of a file.
    pub fn activities(
        &self,
        file_name: impl Fn(FileId) -> Option<Arc<str>>,
    ) -> HashMap<RequestKey, ThreadActivity> {
        let name_of = |thread: u32| self.in_flight.iter().find(|one| one.operation.thread == thread);
        let long = self.in_flight.iter().filter(|one| is_long(one)).take(MAX_ACTIVITIES);
        let each = long.filter_map(|one| {
            let operation = &one.operation;
            let (server, client) = operation.connection?;
            let wait = self.waiting.get(&operation.thread);
            let file = operation.files.iter().filter(|_| one.doing == TimePart::Read);
            let blocker = operation.wakers.iter().max_by_key(|waker| waker.wait_ns);
            let activity = ThreadActivity {
                thread_name: operation.thread_name.clone(),
                doing: one.doing,
                since: one.since,
                doing_ns: operation.end.since(one.since),
                // It may have gone on since its stack was taken.
                class: wait.filter(|_| one.since <= self.looked).map(|wait| wait.class.clone()),
                file: file
                    .max_by_key(|file| file.wait_ns)
                    .and_then(|file| file_name((file.device, file.inode))),
                blocker: blocker.map(|waker| EarlierBlocker {
                    thread: waker.thread,
                    thread_name: name_of(waker.thread).map(|one| one.operation.thread_name.clone()),
                    wait_ns: waker.wait_ns,
                }),
            };
            Some(((server, client, operation.request_id), activity))
        });
        each.collect()
    }

    /// The same, and which operation ended the longest earlier wait of each, if its thread still executes that.
    pub fn seen(&self, file_name: impl Fn(FileId) -> Option<Arc<str>>) -> HashMap<RequestKey, SeenThread> {
        let by_thread: HashMap<u32, &ThreadOperation> =
            self.in_flight.iter().map(|one| (one.operation.thread, &one.operation)).collect();
        let blocker_of = |operation: &ThreadOperation| {
            let waker = operation.wakers.iter().max_by_key(|waker| waker.wait_ns)?;
            let executes = by_thread.get(&waker.thread)?;
            (waker.operation_start == Some(executes.start)).then(|| key_of(executes)).flatten()
        };
        let long = self.in_flight.iter().filter(|one| is_long(one)).map(|one| &one.operation);
        let blockers: HashMap<RequestKey, RequestKey> =
            long.filter_map(|one| Some((key_of(one)?, blocker_of(one)?))).collect();
        let activities = self.activities(file_name).into_iter();
        activities
            .map(|(key, activity)| (key, SeenThread { blocker: blockers.get(&key).copied(), activity }))
            .collect()
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
            if !is_long(&one) {
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

#[cfg(test)]
mod tests {
    use sonar_core::time_split::Waker;

    use super::super::tests::thread_operation;
    use super::*;

    fn in_flight(number: u64, wakers: Vec<Waker>) -> InFlightOperation {
        let operation = ThreadOperation { duration_ns: 2 * LONG_NS, wakers, ..thread_operation(number) };
        InFlightOperation { since: operation.start, doing: TimePart::Futex, operation }
    }

    #[test]
    fn who_ended_a_wait_is_named_as_long_as_the_same_operation_runs() {
        let holder = in_flight(1, Vec::new());
        let by = |operation_start| {
            vec![Waker { thread: holder.operation.thread, operation_start, count: 1, wait_ns: 9 }]
        };
        let waits = in_flight(2, by(Some(holder.operation.start)));
        let earlier = in_flight(3, by(Some(Timestamp::from_unix(1, 0))));
        let idle = in_flight(4, by(None));
        let keys = [&holder, &waits, &earlier, &idle].map(|one| key_of(&one.operation).unwrap());
        let now = ThreadsNow {
            in_flight: vec![holder.clone(), waits, earlier, idle],
            waiting: HashMap::new(),
            followed: HashSet::new(),
            looked: Timestamp::from_unix(2_000_000_000, 0),
        };
        let seen = now.seen(|_| None);
        assert_eq!(keys.map(|key| seen[&key].blocker), [None, Some(keys[0]), None, None]);
        let blocker = seen[&keys[2]].activity.blocker.as_ref().unwrap();
        assert_eq!((blocker.thread, blocker.wait_ns), (1, 9), "its thread is known all the same");
    }
}
