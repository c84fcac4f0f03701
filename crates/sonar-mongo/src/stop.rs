//! When to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The longest time between two looks at the flag.
const LOOK: Duration = Duration::from_millis(50);

/// A flag that somebody else sets, from a signal as a rule, when a person wants no more.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Follows `flag`.
    pub fn following(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Takes it back, so that it can be set again.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Waits for `time`, or until the flag is set; says whether it is.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.is_set() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
        true
    }

    /// Ends when the flag is set.
    pub(crate) async fn wait(&self) {
        while !self.is_set() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
