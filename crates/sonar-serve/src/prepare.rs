//! Looks for changes before anybody asks: a day takes seconds to search, and what was found in a part of it is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sonar_view::past::HistoryView;
use sonar_view::past::what_changed::prepare;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::page::ServedPage;
use crate::reading::BoundedReader;

/// How long it rests after each part, in times of what the part took: at most a fifth of a processor is used.
const REST: u32 = 4;
/// When it looks again once all is known: then the next part of the last hours is complete.
const PAUSE: Duration = Duration::from_secs(600);

/// Prepares parts of the history for as long as the page is served.
pub(crate) async fn keep_prepared(page: Arc<ServedPage>) {
    // It gives way to answers.
    while let Ok(turn) = Arc::clone(&page.turns).acquire_owned().await {
        let (page, begun) = (Arc::clone(&page), Instant::now());
        let prepared = spawn_blocking(move || {
            let _turn = turn;
            prepare_next(&page).unwrap_or(false)
        });
        let has_prepared = prepared.await.unwrap_or(false);
        sleep(if has_prepared { begun.elapsed() * REST } else { PAUSE }).await;
    }
}

/// Prepares the next part; `None` if the history cannot be read, which the next answer says.
fn prepare_next(page: &ServedPage) -> Option<bool> {
    let reader = page.history.open().ok()?;
    let until = Instant::now() + page.limits.answer_time;
    let reader = BoundedReader::new(&*reader, page.limits.windows, until).ok()?;
    let history = HistoryView::new(&reader, page.history.name(), page.history.now()).ok()?;
    prepare(&history.with_scanned_parts(&page.scanned)).ok()
}
