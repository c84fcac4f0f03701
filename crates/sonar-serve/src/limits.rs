//! How much a page does at most, and what it counts of what it refused.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sonar_core::time::NS_PER_S;

/// How much a page does at most.
#[derive(Clone, Debug)]
pub struct PageLimits {
    /// Connections at once.
    pub connections: usize,
    /// Connections on which new windows are announced.
    pub viewers: usize,
    /// Answers that are made at once.
    pub answers: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Requests in a second, and how many more at once after a pause; the same of handshakes of TLS.
    pub rate: RequestRate,
    /// Length of the span of one answer, in nanoseconds.
    pub span_ns: u64,
    /// Windows of the history that one answer reads.
    pub windows: u64,
    /// Intervals, or rows, in one answer.
    pub rows: usize,
    /// Bytes of one answer.
    pub answer_bytes: usize,
    /// How long one answer may take.
    pub answer_time: Duration,
    /// Bytes of the head of a request. hyper accepts no less than 8,192.
    pub head_bytes: usize,
    /// How long a client may take for the head of a request, also for the first byte of it; before that as long for the
    /// handshake of TLS.
    pub head_time: Duration,
    /// How long a client may take nothing of an answer.
    pub write_time: Duration,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            viewers: 64,
            answers: 2,
            waiting: 64,
            rate: RequestRate { per_second: 100, burst: 200 },
            span_ns: 31 * 86_400 * NS_PER_S,
            windows: 50_000,
            rows: 5_000,
            answer_bytes: 32 << 20,
            answer_time: Duration::from_secs(30),
            head_bytes: 8 << 10,
            head_time: Duration::from_secs(20),
            write_time: Duration::from_secs(20),
        }
    }
}

/// How often somebody may ask.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RequestRate {
    /// Requests in a second.
    pub per_second: u32,
    /// Requests at once, after a pause.
    pub burst: u32,
}

/// Lets so many requests through.
#[derive(Debug)]
pub(crate) struct RequestBudget {
    rate: RequestRate,
    state: Mutex<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    left: f64,
    at: Instant,
}

impl RequestBudget {
    pub fn new(rate: RequestRate, now: Instant) -> Self {
        Self { rate, state: Mutex::new(BudgetState { left: f64::from(rate.burst), at: now }) }
    }

    /// Whether one more request may be answered.
    pub fn take(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let new = now.saturating_duration_since(state.at).as_secs_f64() * f64::from(self.rate.per_second);
        state.left = (state.left + new).min(f64::from(self.rate.burst));
        state.at = now.max(state.at);
        let is_left = state.left >= 1.0;
        if is_left {
            state.left -= 1.0;
        }
        is_left
    }
}

/// Why something was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PageRefusal {
    /// The request names another host.
    Host,
    /// It comes from another page.
    Origin,
    /// It has no token and no session.
    Access,
    /// There is nothing at this address, or not by this method.
    Address,
    /// It has a body.
    Body,
    /// A parameter is wrong, or the history cannot answer it.
    Question,
    /// Nothing is stored of that time.
    NothingStored,
    /// The answer would read, or be, too much.
    TooMuch,
    /// Too many requests in a second.
    Rate,
    /// Too many answers are being made.
    Busy,
    /// The answer took too long.
    Late,
    /// The history cannot be read, or the answer cannot be made.
    Failed,
    /// There were too many connections.
    Connections,
    /// A client was too slow.
    Slow,
    /// A client and this page did not agree on TLS, or there were too many handshakes in a second.
    Handshake,
}

impl PageRefusal {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Host,
        Self::Origin,
        Self::Access,
        Self::Address,
        Self::Body,
        Self::Question,
        Self::NothingStored,
        Self::TooMuch,
        Self::Rate,
        Self::Busy,
        Self::Late,
        Self::Failed,
        Self::Connections,
        Self::Slow,
        Self::Handshake,
    ];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Origin => "origin",
            Self::Access => "access",
            Self::Address => "address",
            Self::Body => "body",
            Self::Question => "question",
            Self::NothingStored => "nothing_stored",
            Self::TooMuch => "too_much",
            Self::Rate => "rate",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Connections => "connections",
            Self::Slow => "slow",
            Self::Handshake => "handshake",
        }
    }
}

/// How often each kind was refused.
#[derive(Debug, Default)]
pub struct RefusalCounts([AtomicU64; PageRefusal::ALL.len()]);

impl RefusalCounts {
    pub(crate) fn add(&self, kind: PageRefusal) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Since the start.
    pub fn get(&self, kind: PageRefusal) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_as_many_requests_are_let_through_as_time_allows() {
        let start = Instant::now();
        let budget = RequestBudget::new(RequestRate { per_second: 10, burst: 3 }, start);
        let taken = |ms| {
            let now = start + Duration::from_millis(ms);
            (0..100).take_while(|_| budget.take(now)).count()
        };
        assert_eq!([taken(0), taken(50), taken(120), taken(450)], [3, 0, 1, 3]);
        assert_eq!(taken(60_000), 3);
        // A clock that steps back gives nothing.
        assert_eq!(taken(0), 0);
    }

    #[test]
    fn each_kind_is_counted_by_itself() {
        let counts = RefusalCounts::default();
        for (at, kind) in PageRefusal::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            (0..=at).for_each(|_| counts.add(kind));
        }
        let all = PageRefusal::ALL.map(|kind| counts.get(kind));
        assert!(all.iter().zip(1..).all(|(count, expected)| *count == expected), "{all:?}");
    }
}
