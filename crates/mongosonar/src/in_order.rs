//! Works on the pieces of an input on several threads, and hands the results on in the order of the input.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

/// The most threads: more would wait for the part of the work that is done in order.
const MAX_THREADS: usize = 8;
/// Pieces that each thread has in hand.
const AHEAD: usize = 2;

/// The threads to use on this machine.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS)
}

/// Lets `fill` fill pieces until it returns `false`, and passes them to `take` in order. In between, `threads` threads
/// work on them, each with its own result of `worker`. Pieces are reused.
pub fn in_order<T, W>(
    threads: usize,
    mut fill: impl FnMut(&mut T) -> bool,
    worker: impl Fn() -> W,
    mut take: impl FnMut(&T),
) where
    T: Default + Send,
    W: FnMut(&mut T) + Send,
{
    if threads <= 1 {
        let (mut piece, mut work) = (T::default(), worker());
        while fill(&mut piece) {
            work(&mut piece);
            take(&piece);
        }
        return;
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| start(scope, worker())).collect();
        let (mut sent, mut taken, mut spare) = (0, 0, Vec::new());
        let mut is_over = false;
        while !is_over || taken < sent {
            if is_over || sent - taken == threads * AHEAD {
                // A worker that is gone has panicked, which the scope reports.
                let Ok(piece) = workers[taken % threads].1.recv() else { return };
                take(&piece);
                spare.push(piece);
                taken += 1;
                continue;
            }
            let mut piece = spare.pop().unwrap_or_default();
            is_over = !fill(&mut piece);
            if !is_over {
                if workers[sent % threads].0.send(piece).is_err() {
                    return;
                }
                sent += 1;
            }
        }
    });
}

/// Starts a thread; gives where its pieces go, and where they come back.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut work: impl FnMut(&mut T) + Send + 'scope,
) -> (SyncSender<T>, Receiver<T>) {
    let (to, pieces) = sync_channel::<T>(AHEAD);
    let (results, from) = sync_channel(AHEAD);
    scope.spawn(move || {
        for mut piece in pieces {
            work(&mut piece);
            if results.send(piece).is_err() {
                return;
            }
        }
    });
    (to, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_input() {
        for (threads, many) in [(1, 100), (2, 1), (3, 1_000), (4, 0), (8, 9)] {
            let (mut next, mut seen) = (0u64, Vec::new());
            in_order(
                threads,
                |piece: &mut (u64, u64)| {
                    piece.0 = next;
                    next += 1;
                    next <= many
                },
                || {
                    |piece: &mut (u64, u64)| {
                        // span: the first ones take longest
                        thread::sleep(std::time::Duration::from_micros(500 / (1 + piece.0)));
                        piece.1 = piece.0 * piece.0;
                    }
                },
                |piece| seen.push(piece.1),
            );
            assert_eq!(seen, (0..many).map(|n| n * n).collect::<Vec<_>>());
        }
    }
}
