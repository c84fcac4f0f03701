//! What the followers of all databases share: the events, and how the documents of a profile are read.

use std::sync::Arc;

use bson::raw::RawDocument;
use bson::{Document, doc};
use tokio::sync::mpsc;

use super::position::Missed;
use crate::error::ServerError;
use crate::profiler::COLLECTION;
use crate::server::Link;
use crate::stop::StopFlag;

/// What happened.
#[derive(Debug)]
pub enum TailEvent {
    /// New documents, in the order in which they were written.
    Documents {
        /// Their database.
        database: Arc<str>,
        /// The documents, with `$recordId`.
        batch: Batch,
    },
    /// The collection wrapped faster than it was read.
    Missed(Missed),
    /// The connection was lost; it is tried again until it is back.
    Lost {
        /// The database that was followed.
        database: Arc<str>,
        /// What happened.
        reason: String,
    },
    /// Following continues after a loss.
    Back {
        /// The database that is followed.
        database: Arc<str>,
        /// The server on which it is followed now.
        address: String,
        /// It is another server than before: a fail-over.
        moved: bool,
    },
    /// The profiling level has changed: after a restart a server takes the level of its configuration.
    Level {
        /// The database.
        database: Arc<str>,
        /// Its level before.
        was: i32,
        /// Its level now.
        now: i32,
    },
    /// There is no `system.profile`, or its profiler is off; the follower waits for one.
    Nothing {
        /// The database.
        database: Arc<str>,
        /// Its level.
        level: Option<i32>,
    },
    /// The collection was recreated: the last documents of the old one are unknown.
    Replaced {
        /// The database.
        database: Arc<str>,
    },
    /// A database can no longer be followed.
    Failed {
        /// The database; empty for all of them.
        database: Arc<str>,
        /// The reason.
        error: ServerError,
    },
}

/// Documents as they came, not copied.
#[derive(Debug)]
pub struct Batch {
    pub(super) reply: mongodb::raw_batch_cursor::RawBatch,
    /// Documents at the beginning that were read before.
    pub(super) skip: usize,
}

impl Batch {
    /// The documents.
    pub fn documents(&self) -> impl Iterator<Item = &RawDocument> {
        documents(&self.reply).skip(self.skip)
    }
}

pub(super) fn documents(reply: &mongodb::raw_batch_cursor::RawBatch) -> impl Iterator<Item = &RawDocument> {
    let array = reply.doc_slices().ok();
    array.into_iter().flat_map(|array| array.into_iter()).filter_map(|value| value.ok()?.as_document())
}

/// At level 2 this program's own reads are profiled too: without this, every answer would cause the next one.
pub(super) fn not_self(database: &str) -> Document {
    doc! { "ns": { "$ne": format!("{database}.{COLLECTION}") } }
}

/// What the followers of all databases share.
#[derive(Clone)]
pub(super) struct TailFeed {
    pub(super) link: Link,
    /// Address of the server.
    pub(super) address: String,
    pub(super) replica_set: bool,
    pub(super) sender: mpsc::Sender<TailEvent>,
    pub(super) stop: StopFlag,
}

impl TailFeed {
    /// Whether anybody still wants events.
    pub(super) fn is_wanted(&self) -> bool {
        !self.stop.is_set() && !self.sender.is_closed()
    }

    /// Sends an event; returns whether anybody receives it.
    pub(super) async fn send(&self, event: TailEvent) -> bool {
        tokio::select! {
            sent = self.sender.send(event) => sent.is_ok(),
            () = self.stop.wait() => false,
        }
    }
}
