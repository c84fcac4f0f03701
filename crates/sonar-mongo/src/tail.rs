//! Follows `system.profile` of one or all databases with tailable cursors.
//!
//! The position of a cursor is a record id (`showRecordId`), which a capped collection increments by one for each
//! document. After a cursor was lost, reading continues after the last record that was read: nothing comes twice, and
//! the distance to the oldest remaining record is the number of documents that were overwritten unread. If record ids
//! are not consecutive (servers that only speak MongoDB's protocol), times show the length of the gap, and the number
//! of missed documents is an estimate.

mod feed;
mod follower;
mod position;
mod span;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawDocument;
use bson::{RawDocumentBuf, doc};
use futures_util::StreamExt;
use tokio::sync::mpsc;

pub use self::feed::{Batch, TailEvent};
use self::feed::{TailFeed, documents, not_self};
use self::follower::Follower;
pub use self::position::Missed;
pub use self::span::{ProfileBudget, SpanReading};
use crate::error::{Result, ServerError};
use crate::profiler::{COLLECTION, OWN_DATABASES, ROLE};
use crate::server::Server;
use crate::stop::StopFlag;

/// The most batches that wait to be taken; then the cursors wait too.
const QUEUE: usize = 64;
/// How often to check for new databases.
const NEW_DATABASES: Duration = Duration::from_secs(5);
/// The most databases that are followed at once.
const MOST_DATABASES: usize = 512;
/// What to follow.
#[derive(Clone, Debug, Default)]
pub struct Tailing {
    /// The databases; empty: all but the server's own.
    pub databases: Vec<String>,
    /// How many of the existing documents come first, for each database.
    pub last: u32,
}

/// Databases that are being followed.
pub struct Tail<'a> {
    server: &'a Server,
    events: mpsc::Receiver<TailEvent>,
}

impl Tail<'_> {
    /// The next event; `None` after `wait` without one.
    ///
    /// # Errors
    /// No database is followed any more.
    pub fn next(&mut self, wait: Duration) -> std::result::Result<Option<TailEvent>, NothingFollowed> {
        self.server.runtime().block_on(async {
            match tokio::time::timeout(wait, self.events.recv()).await {
                Ok(Some(event)) => Ok(Some(event)),
                Ok(None) => Err(NothingFollowed),
                Err(_) => Ok(None),
            }
        })
    }
}

/// No database is followed any more.
#[derive(Debug)]
pub struct NothingFollowed;

impl Server {
    /// Follows `system.profile` until `stop` is set.
    ///
    /// # Errors
    /// The databases cannot be listed.
    pub fn tail(&self, tailing: &Tailing, stop: &StopFlag) -> Result<Tail<'_>> {
        if self.info().mongos {
            return Err(ServerError::Mongos(self.info().address.clone()));
        }
        let (sender, events) = mpsc::channel(QUEUE);
        let feed = TailFeed {
            link: self.link().clone(),
            address: self.info().address.clone(),
            replica_set: self.info().replica_set.is_some(),
            sender,
            stop: stop.clone(),
        };
        if tailing.databases.is_empty() {
            let found = self.databases()?;
            self.runtime().spawn(follow_all(feed, tailing.last, found));
        } else {
            for database in &tailing.databases {
                self.runtime().spawn(Follower::new(&feed, database).run(tailing.last));
            }
        }
        Ok(Tail { server: self, events })
    }

    /// Passes every document that `system.profile` of a database contains now to `each`, in order, until that returns
    /// `false`. Returns how many it passed.
    ///
    /// # Errors
    /// The server did not answer, or the user may not read it.
    pub fn profile_documents(
        &self,
        database: &str,
        mut each: impl FnMut(&RawDocument) -> bool,
    ) -> Result<u64> {
        let wrong = |error: &mongodb::error::Error| {
            self.link().error(format!("read {database}.{COLLECTION}"), ROLE, error)
        };
        self.runtime().block_on(async {
            let collection = self.link().collection::<RawDocumentBuf>(database, COLLECTION);
            let find = collection.find(not_self(database)).sort(doc! { "$natural": 1 });
            let mut cursor = find.batch().await.map_err(|error| wrong(&error))?;
            let mut count = 0;
            while let Some(batch) = cursor.next().await {
                for document in documents(&batch.map_err(|error| wrong(&error))?) {
                    count += 1;
                    if !each(document) {
                        return Ok(count);
                    }
                }
            }
            Ok(count)
        })
    }
}

/// Follows the databases in `found`, and later ones.
async fn follow_all(feed: TailFeed, last: u32, found: Vec<String>) {
    let mut known = BTreeSet::new();
    let mut found = Some(found);
    let mut first = true;
    let mut full = false;
    while feed.is_wanted() {
        for name in found.take().unwrap_or_default() {
            if OWN_DATABASES.contains(&name.as_str()) || known.contains(&name) {
                continue;
            }
            if known.len() == MOST_DATABASES {
                if !std::mem::replace(&mut full, true) {
                    let reason = format!("more than {MOST_DATABASES} databases: the others are not followed");
                    let error =
                        ServerError::Command { what: "follow all databases".to_owned(), reason, code: 0 };
                    feed.send(TailEvent::Failed { database: Arc::from(""), error }).await;
                }
                break;
            }
            // Nothing of a new database has been shown yet, so all of it is new.
            let follower = Follower::new(&feed, &name).quietly();
            tokio::spawn(follower.run(if first { last } else { u32::MAX }));
            known.insert(name);
        }
        first = false;
        if feed.stop.sleep(NEW_DATABASES).await {
            break;
        }
        found = feed.link.databases().await.ok();
    }
}
