//! When to stop.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Requests to stop, usually from a person.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    asked: CancellationToken,
    again: CancellationToken,
}

impl StopFlag {
    /// Asks to stop: the first time, or again.
    pub fn ask(&self) {
        if self.asked.is_cancelled() { self.again.cancel() } else { self.asked.cancel() }
    }

    /// Whether anybody has asked.
    pub fn is_set(&self) -> bool {
        self.asked.is_cancelled()
    }

    /// For cleaning up: the requests from now on.
    pub fn later(&self) -> Self {
        if self.is_set() { Self { asked: self.again.clone(), ..Self::default() } } else { self.clone() }
    }

    /// Waits for `time`, or until somebody asks; returns whether somebody did.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.asked.cancelled()).await.is_ok()
    }

    /// Ends when somebody asks.
    pub(crate) async fn wait(&self) {
        self.asked.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_up_is_stopped_by_the_next_request_only() {
        let stop = StopFlag::default();
        let early = stop.later();
        stop.ask();
        assert!(stop.is_set() && early.is_set(), "nobody had asked when it began");
        let cleaning = stop.later();
        assert!(!cleaning.is_set());
        stop.clone().ask();
        assert!(cleaning.is_set());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert!(runtime.block_on(cleaning.sleep(Duration::from_secs(3_600))));
        assert!(!runtime.block_on(StopFlag::default().sleep(Duration::from_millis(1))));
    }
}
