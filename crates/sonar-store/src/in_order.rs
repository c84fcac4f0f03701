//! Works on jobs with several threads, and hands over their results in the order of the jobs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Builder;

/// Results that a thread hands over at once: each time costs it and the other side a wait.
const BATCH: usize = 16;
/// Batches of a thread that wait to be taken.
const AHEAD: usize = 4;
/// More threads would wait for the disk, and for who takes the results.
const MAX_THREADS: usize = 4;

/// An outcome of a job.
pub(crate) enum JobOutcome<T, E> {
    /// A result; there may be any number.
    Item(T),
    /// There are no more results.
    Done(Result<(), E>),
}

/// What a thread does: it has a state of its own, and passes each result of a job to the function.
pub(crate) trait Worker<J, T, E> {
    /// Does a job.
    fn work(&mut self, job: &J, yielded: &mut dyn FnMut(T)) -> Result<(), E>;
}

/// Takes the outcomes of a job; an error ends the work.
type OutcomeSink<'a, J, T, E> = dyn FnMut(&J, JobOutcome<T, E>) -> Result<(), E> + 'a;

/// The number of threads that this machine has processors for.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Does all jobs with this many threads; `worker` makes the worker of each. Passes the outcomes to `take` in the order of
/// the jobs, until it returns an error.
pub(crate) fn in_order<J: Sync, T: Send, E: Send, W: Worker<J, T, E>>(
    jobs: &[J],
    threads: usize,
    worker: impl Fn() -> W + Sync,
    take: &mut OutcomeSink<'_, J, T, E>,
) -> Result<(), E> {
    let threads = threads.min(jobs.len());
    // Also does what no thread could be started for.
    let mut own = worker();
    let mut alone = |job: &J, take: &mut OutcomeSink<'_, J, T, E>| {
        let mut taken = Ok(());
        let done = own.work(job, &mut |item| {
            if taken.is_ok() {
                taken = take(job, JobOutcome::Item(item));
            }
        });
        taken.and_then(|()| take(job, JobOutcome::Done(done)))
    };
    if threads <= 1 {
        return jobs.iter().try_for_each(|job| alone(job, take));
    }
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let start = |first: usize| -> Option<Receiver<Vec<JobOutcome<T, E>>>> {
            let (to, from) = sync_channel(AHEAD);
            let (worker, stopped) = (&worker, &stopped);
            let run = move || {
                let mut worker = worker();
                let mut batch = Vec::with_capacity(BATCH);
                for job in jobs.iter().skip(first).step_by(threads) {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut add = |outcome, is_last: bool| {
                        batch.push(outcome);
                        if is_last || batch.len() >= BATCH {
                            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
                            if to.send(full).is_err() {
                                stopped.store(true, Ordering::Relaxed);
                            }
                        }
                    };
                    let done = worker.work(job, &mut |item| add(JobOutcome::Item(item), false));
                    // A batch ends with its job.
                    add(JobOutcome::Done(done), true);
                }
            };
            Builder::new().name("history".to_owned()).spawn_scoped(scope, run).ok().map(|_| from)
        };
        let sources: Vec<_> = (0..threads).map(start).collect();
        for (at, job) in jobs.iter().enumerate() {
            let Some(source) = &sources[at % threads] else {
                alone(job, take)?;
                continue;
            };
            // A thread ends early only if it panics, which ends the scope too.
            for batch in source {
                let is_done = matches!(batch.last(), Some(JobOutcome::Done(_)));
                batch.into_iter().try_for_each(|outcome| take(job, outcome))?;
                if is_done {
                    break;
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields a number as often as it says; 13 fails.
    struct Repeater;

    impl Worker<u32, u32, String> for Repeater {
        fn work(&mut self, job: &u32, yielded: &mut dyn FnMut(u32)) -> Result<(), String> {
            (0..*job).for_each(|_| yielded(*job));
            if *job == 13 { Err("unlucky".to_owned()) } else { Ok(()) }
        }
    }

    /// What comes of the jobs: the items, and the jobs that failed.
    fn outcomes(jobs: &[u32], threads: usize) -> (Vec<u32>, Vec<u32>) {
        let (mut items, mut failed) = (Vec::new(), Vec::new());
        in_order(jobs, threads, || Repeater, &mut |job, outcome| {
            match outcome {
                JobOutcome::Item(item) => items.push(item),
                JobOutcome::Done(Ok(())) => {}
                JobOutcome::Done(Err(_)) => failed.push(*job),
            }
            Ok(())
        })
        .unwrap();
        (items, failed)
    }

    #[test]
    fn the_order_is_that_of_the_jobs() {
        // Some have none, and some more than may wait.
        let jobs: Vec<u32> = (0..40).map(|job| job * 7 % 200).chain([13, 500, 0]).collect();
        let expected: Vec<u32> =
            jobs.iter().flat_map(|job| std::iter::repeat_n(*job, *job as usize)).collect();
        for threads in [1, 2, 3, 100] {
            assert_eq!(outcomes(&jobs, threads), (expected.clone(), vec![13]), "{threads} threads");
        }
        assert_eq!(outcomes(&[], 2), (vec![], vec![]));
    }

    #[test]
    fn an_error_ends_all_threads() {
        let jobs = vec![1_000; 1_000];
        for threads in [1, 3] {
            let mut taken = 0;
            let result = in_order(&jobs, threads, || Repeater, &mut |_, _| {
                taken += 1;
                if taken == 5 { Err("enough".to_owned()) } else { Ok(()) }
            });
            assert_eq!((result, taken), (Err("enough".to_owned()), 5), "{threads} threads");
        }
    }
}
