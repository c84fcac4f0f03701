//! Announces each window that is stored, by server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::limits::PageRefusal;
use crate::page::{LOOK, ServedPage};
use crate::problem::PageProblem;

/// How often a viewer gets something, so that one who has gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a connection lasts at most. The viewer then opens another one.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Tells a reverse proxy to pass each event on at once. nginx reads it, and some others do.
const UNBUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

/// Somebody who follows the history.
struct Viewer {
    page: Arc<ServedPage>,
    /// Those of its request: they say whether it may still read.
    headers: HeaderMap,
    /// The end of the last window that was announced.
    announced_ns: Option<u64>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

/// Announces the newest window, and each one that is stored from then on.
///
/// # Errors
/// There are too many viewers.
pub(crate) async fn follow(
    State(page): State<Arc<ServedPage>>,
    headers: HeaderMap,
) -> Result<Response, PageProblem> {
    let place = page.viewers.clone().try_acquire_owned().map_err(|_| {
        PageProblem::new(
            PageRefusal::Busy,
            "too many pages follow this history: close one, or try again later",
        )
    })?;
    let until = Instant::now() + LONGEST;
    let viewer = Viewer { page, headers, announced_ns: None, until, _place: place };
    let events = unfold(viewer, Viewer::next);
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(([UNBUFFERED], events).into_response())
}

impl Viewer {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        let mut is_first = self.announced_ns.is_none();
        loop {
            if !std::mem::take(&mut is_first) {
                sleep(LOOK).await;
            }
            let may_read = self.page.access.admits(&self.headers, self.page.history.now()).is_ok();
            if !may_read || Instant::now() > self.until {
                return None;
            }
            let end_ns = self.page.newest_end_ns().await;
            if let Some(new) = end_ns.filter(|_| end_ns != self.announced_ns) {
                self.announced_ns = end_ns;
                let event = Event::default().event("window").data(format!("{{\"end_ns\":{new}}}"));
                return Some((Ok(event), self));
            }
        }
    }
}
