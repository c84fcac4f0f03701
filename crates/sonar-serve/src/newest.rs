//! The end of the newest window, for everybody who waits for the next one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// The end of the newest window, as it was last read.
#[derive(Debug, Default)]
pub(crate) struct NewestWindow(Arc<Mutex<Option<ReadEnd>>>);

#[derive(Copy, Clone, Debug)]
struct ReadEnd {
    at: Instant,
    /// In nanoseconds since 1970; `None`: nothing is stored, or it cannot be read now.
    end_ns: Option<u64>,
}

impl NewestWindow {
    /// The end that was read within this time, or what `read` finds now, in a thread that may block. However many ask, one
    /// reads.
    pub async fn end_ns(
        &self,
        within: Duration,
        read: impl FnOnce() -> Option<u64> + Send + 'static,
    ) -> Option<u64> {
        let mut known = self.0.clone().lock_owned().await;
        if let Some(read) = known.filter(|read| read.at.elapsed() < within) {
            return read.end_ns;
        }
        // Whoever asks next waits for this also if the one that asked has gone.
        let reading = spawn_blocking(move || {
            let end_ns = read();
            *known = Some(ReadEnd { at: Instant::now(), end_ns });
            end_ns
        });
        reading.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_a_moment_ago_is_not_read_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let newest = NewestWindow::default();
        let (hour, never) = (Duration::from_secs(3_600), Duration::ZERO);
        let ends = runtime.block_on(async {
            let first = newest.end_ns(hour, || Some(1)).await;
            let again = newest.end_ns(hour, || Some(2)).await;
            let later = newest.end_ns(never, || Some(3)).await;
            [first, again, later, newest.end_ns(never, || None).await]
        });
        assert_eq!(ends, [Some(1), Some(1), Some(3), None]);
    }
}
