//! Puts the windows of several capture threads together.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use sonar_core::time::NS_PER_S;
use sonar_core::{Timestamp, Window};

/// The most intervals that wait for a thread that stays behind, unless more lie in [`MAX_LAG_NS`].
const MIN_WAITING: usize = 16;
/// Longer than a packet can lie in the ring before a thread sees it.
const MAX_LAG_NS: u64 = 5 * NS_PER_S;
/// Later than every window.
const NEVER: Timestamp = Timestamp::from_unix_ns(u64::MAX);

/// A window of one capture thread.
pub struct ThreadWindow {
    /// Which thread, from 0.
    pub thread: usize,
    pub window: Window,
    /// Begin of the interval that it is of. The window itself begins later where the capture did, or where the clock was set:
    /// each thread notices that at another moment.
    pub interval: Timestamp,
    /// Begin of the next interval that the thread collects: it hands over no earlier one. `None` after its last.
    pub next: Option<Timestamp>,
    /// The bytes of its decoder.
    pub held: usize,
}

/// Joins the windows of the same interval. An interval is complete when every thread has gone past it, whether or not
/// each of them handed over a window for it: a thread may skip intervals.
pub struct Joiner {
    from: Receiver<ThreadWindow>,
    /// The interval that each thread collects.
    reached: Vec<Timestamp>,
    /// Intervals that some thread has not gone past.
    waiting: BTreeMap<Timestamp, Window>,
    complete: VecDeque<Window>,
    /// What each thread held.
    held: Vec<usize>,
    /// The bytes of the last window of each thread: the one that it records takes about as much.
    recorded: Vec<usize>,
    /// No thread is left.
    pub ended: bool,
}

impl Joiner {
    /// Of threads numbered from 0.
    pub fn new(from: Receiver<ThreadWindow>, threads: usize) -> Self {
        let (reached, held) = (vec![Timestamp::default(); threads], vec![0; threads]);
        let (waiting, complete, recorded) = (BTreeMap::new(), VecDeque::new(), held.clone());
        Self { from, reached, waiting, complete, held, recorded, ended: false }
    }

    /// The next complete interval; `None` when there is none in time, or nothing is left.
    pub fn next(&mut self, wait: Duration) -> Option<Window> {
        let until = Instant::now() + wait;
        loop {
            if let Some(window) = self.complete.pop_front() {
                return Some(window);
            }
            match self.from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(part) => self.take(part),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return self.incomplete();
                }
            }
        }
    }

    /// The bytes of the windows that wait, and of those that the threads record, as far as the last ones tell.
    pub fn memory(&self) -> usize {
        let waiting = self.waiting.values().chain(&self.complete).map(Window::memory);
        waiting.chain(self.recorded.iter().copied()).sum()
    }

    /// The bytes of the decoders of all threads when each last handed a window over.
    pub fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// The oldest interval that still waits for a thread.
    pub fn incomplete(&mut self) -> Option<Window> {
        self.waiting.pop_first().map(|(_, window)| window)
    }

    fn take(&mut self, ThreadWindow { thread, window, interval, next, held }: ThreadWindow) {
        if let Some(of_thread) = self.held.get_mut(thread) {
            *of_thread = held;
        }
        if let Some(of_thread) = self.recorded.get_mut(thread) {
            *of_thread = window.memory();
        }
        let next = next.unwrap_or(NEVER);
        let mut clock_was_set_back = next < interval;
        match self.waiting.get_mut(&interval) {
            Some(joined) => {
                joined.join(&window);
                joined.limit(joined.max_bytes);
            }
            None => drop(self.waiting.insert(interval, window)),
        }
        if let Some(reached) = self.reached.get_mut(thread) {
            clock_was_set_back |= next < *reached;
            *reached = next;
        }
        let past = match clock_was_set_back {
            // Whatever waits could wait for long.
            true => NEVER,
            false => self.reached.iter().copied().min().unwrap_or(NEVER),
        };
        while let Some(oldest) = self.waiting.first_entry()
            && *oldest.key() < past
        {
            self.complete.push_back(oldest.remove());
        }
        // Windows that are to keep to some bytes do so together, but for the one that a thread collects.
        while self.waiting.len() > 1
            && let Some((_, newest)) = self.waiting.last_key_value()
            && self.waiting.values().map(Window::memory).sum::<usize>() / 2 > newest.max_bytes
        {
            self.complete.extend(self.waiting.pop_first().map(|(_, window)| window));
        }
        // A thread that has failed goes past nothing.
        while self.waiting.len() > MIN_WAITING
            && let (Some((oldest, _)), Some((newest, _))) =
                (self.waiting.first_key_value(), self.waiting.last_key_value())
            && newest.since(*oldest) > MAX_LAG_NS
        {
            self.complete.extend(self.waiting.pop_first().map(|(_, window)| window));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use proptest::prelude::*;
    use sonar_core::{Class, Identity, Row, ShapeId, ShapeInfo, Source, Subject};

    use super::*;

    const WIDTH_NS: u64 = NS_PER_S / 10;

    fn at(interval: u64) -> Timestamp {
        Timestamp::from_unix(1_000, 0).plus_ns(interval * WIDTH_NS)
    }

    /// A window of an interval in which `count` operations came late, which stands for any figure.
    fn window(interval: u64, count: u64) -> Window {
        let mut window = Window::new(at(interval), Default::default());
        window.end = at(interval + 1);
        window.coverage.operations_late = count;
        window
    }

    #[test]
    fn windows_that_wait_for_a_thread_keep_to_their_bytes() {
        const MOST: usize = 1 << 20;
        let (to, mut joiner) = joiner(2);
        let settings = sonar_core::window::WindowSettings { max_bytes: MOST, ..Default::default() };
        for interval in 0..40 {
            let mut window = Window::new(at(interval), settings);
            window.end = at(interval + 1);
            for id in 1..1_000 {
                let shape = Arc::new(ShapeInfo { id: ShapeId(id), ..ShapeInfo::default() });
                let subject = Subject::Shape { identity: Identity::Exact, shape, order: ShapeId(0) };
                let mut row = Row::new(subject, Class::User);
                row.observed_by_mut(Source::Wire).figures.calls = 1;
                window.shapes.add(&row);
            }
            window.limit(MOST);
            let (interval, next) = (at(interval), Some(at(interval + 1)));
            to.send(ThreadWindow { thread: 0, window, interval, next, held: 5 }).unwrap();
            let _ = joiner.next(Duration::ZERO);
            assert!(joiner.memory() <= 3 * MOST, "{}", joiner.memory());
        }
        assert_eq!(joiner.held(), 5);
    }

    fn joiner(threads: usize) -> (Sender<ThreadWindow>, Joiner) {
        let (to, from) = channel();
        (to, Joiner::new(from, threads))
    }

    fn send(to: &Sender<ThreadWindow>, thread: usize, (interval, count, next): (u64, u64, Option<u64>)) {
        let (window, interval, next) = (window(interval, count), at(interval), next.map(at));
        to.send(ThreadWindow { thread, window, interval, next, held: 0 }).unwrap();
    }

    /// Intervals and their counts that are complete by now.
    fn complete(joiner: &mut Joiner) -> Vec<(u64, u64)> {
        let found = std::iter::from_fn(|| joiner.next(Duration::ZERO));
        found.map(|w| (w.start.since(at(0)) / WIDTH_NS, w.coverage.operations_late)).collect()
    }

    #[test]
    fn an_interval_is_complete_when_all_threads_are_past_it() {
        let (to, mut joiner) = joiner(2);
        for n in 0..6 {
            send(&to, 0, (n, 10, Some(n + 1)));
        }
        assert_eq!(complete(&mut joiner), [], "the other thread may add to each");
        // It slept through some.
        send(&to, 1, (0, 1, Some(4)));
        assert_eq!(complete(&mut joiner), [(0, 11), (1, 10), (2, 10), (3, 10)]);
        send(&to, 1, (4, 1, Some(9)));
        assert_eq!(complete(&mut joiner), [(4, 11), (5, 10)]);
        assert!(joiner.waiting.is_empty());
    }

    #[test]
    fn threads_that_notice_a_step_of_the_clock_at_different_moments_share_the_interval() {
        let (to, mut joiner) = joiner(2);
        for (thread, later_ns) in [(0, 30_000_000), (1, 20_000_000)] {
            let mut window = window(7, 1);
            window.start = window.start.plus_ns(later_ns);
            to.send(ThreadWindow { thread, window, interval: at(7), next: Some(at(8)), held: 0 }).unwrap();
        }
        let joined = joiner.next(Duration::ZERO).unwrap();
        assert_eq!((joined.start, joined.end), (at(7).plus_ns(20_000_000), at(8)));
        assert_eq!(joined.coverage.operations_late, 2, "of both");
        assert!(joiner.next(Duration::ZERO).is_none());
    }

    #[test]
    fn a_thread_that_has_ended_holds_up_nothing() {
        let (to, mut joiner) = joiner(2);
        send(&to, 1, (0, 1, None));
        send(&to, 0, (0, 10, Some(1)));
        send(&to, 0, (1, 10, Some(2)));
        assert_eq!(complete(&mut joiner), [(0, 11), (1, 10)]);
        drop(to);
        assert_eq!(complete(&mut joiner), []);
        assert!(joiner.ended);
    }

    #[test]
    fn a_thread_that_has_failed_silently_costs_bounded_memory_and_no_window() {
        let (to, mut joiner) = joiner(2);
        send(&to, 1, (0, 1, Some(1)));
        let mut shown = Vec::new();
        for n in 0..2_000 {
            send(&to, 0, (n, 10, Some(n + 1)));
            shown.extend(complete(&mut joiner));
            assert!(joiner.waiting.len() <= 52, "{}", joiner.waiting.len());
        }
        drop(to);
        shown.extend(complete(&mut joiner));
        assert_eq!(shown.iter().map(|(_, count)| count).sum::<u64>(), 20_001);
        assert!(shown.iter().map(|(interval, _)| *interval).eq(0..2_000));
    }

    #[test]
    fn nothing_waits_for_the_time_before_the_clock_was_set_back() {
        let (to, mut joiner) = joiner(2);
        send(&to, 0, (50_000, 10, Some(50_001)));
        send(&to, 1, (50_000, 1, Some(7)));
        assert_eq!(complete(&mut joiner), [(50_000, 11)]);
        send(&to, 0, (50_001, 10, Some(7)));
        send(&to, 0, (7, 10, Some(8)));
        send(&to, 1, (7, 1, Some(8)));
        assert_eq!(complete(&mut joiner), [(50_001, 10), (7, 11)]);
        assert!(joiner.waiting.is_empty());
    }

    proptest! {
        /// Each thread hands over some intervals and skips others, in any interleaving.
        #[test]
        fn nothing_is_missing_and_nothing_comes_twice(steps in proptest::collection::vec((0usize..3, 1u64..8), 1..300)) {
            let (to, mut joiner) = joiner(3);
            let (mut open, mut sent, mut shown, mut most_lag) = ([0u64; 3], 0, Vec::new(), 0);
            for (thread, step) in steps {
                let next = open[thread] + step;
                send(&to, thread, (open[thread], step, Some(next)));
                open[thread] = next;
                sent += step;
                shown.extend(complete(&mut joiner));
                let lag = open.iter().max().unwrap() - open.iter().min().unwrap();
                prop_assert!(joiner.waiting.len() as u64 <= lag.min(51));
                most_lag = most_lag.max(lag);
            }
            drop(to);
            shown.extend(complete(&mut joiner));
            prop_assert_eq!(shown.iter().map(|(_, count)| count).sum::<u64>(), sent);
            if most_lag < MIN_WAITING as u64 {
                prop_assert!(shown.is_sorted_by(|one, next| one.0 < next.0), "{:?}", shown);
            }
        }
    }
}
