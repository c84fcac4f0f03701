//! Follows `system.profile` of one database.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, RawDocumentBuf, doc};
use futures_util::{StreamExt, TryStreamExt};
use mongodb::Collection;
use mongodb::action::Find;
use mongodb::options::CursorType;
use tokio::time::Instant;

use super::feed::{Batch, TailEvent, TailFeed, documents, not_self};
use super::position::{Position, place_of};
use crate::error::{Result, ServerError};
use crate::profiler::{COLLECTION, ROLE};

/// How long the server waits for new documents before it sends an empty answer.
const AWAIT: Duration = Duration::from_secs(1);
/// An answer that takes this long will not come.
const SILENCE: Duration = Duration::from_secs(30);
/// Documents are written almost in the order in which operations end: a new one may be older than the newest by this
/// much.
pub(super) const DISORDER_MS: i64 = 10_000;

/// Follows one database.
pub(super) struct Follower {
    feed: TailFeed,
    database: Arc<str>,
    level: Option<i32>,
    reported_nothing: bool,
    /// The connection was lost, which was reported.
    lost: bool,
    /// Another server is read, which was not reported yet.
    moved: bool,
    /// Does not report a database that has no profile.
    quiet: bool,
}

/// Why a cursor ended.
enum CursorEnd {
    /// It is dead, or was overrun: open another one.
    Dead,
    /// The program stops, or nobody receives events any more.
    Over,
    /// The server's error.
    Error(ServerError),
}

impl Follower {
    pub(super) fn new(feed: &TailFeed, database: &str) -> Self {
        Self {
            feed: feed.clone(),
            database: Arc::from(database),
            level: None,
            reported_nothing: false,
            lost: false,
            moved: false,
            quiet: false,
        }
    }

    /// Does not report a database that has no profile.
    pub(super) fn quietly(self) -> Self {
        Self { quiet: true, ..self }
    }

    pub(super) async fn run(mut self, last: u32) {
        let mut position: Option<Position> = None;
        let mut last = Some(last);
        let mut wait = Duration::from_millis(100);
        while self.feed.is_wanted() {
            let left = self.once(&mut position, &mut last).await;
            match left {
                Ok(CursorEnd::Over) => return,
                Ok(CursorEnd::Dead) => wait = Duration::from_millis(100),
                Err(error) | Ok(CursorEnd::Error(error)) if error.is_passing() => {
                    if !std::mem::replace(&mut self.lost, true) {
                        let event =
                            TailEvent::Lost { database: self.database.clone(), reason: error.to_string() };
                        if !self.feed.send(event).await {
                            return;
                        }
                        wait = Duration::from_millis(100);
                    }
                }
                Err(error) | Ok(CursorEnd::Error(error)) => {
                    self.feed.send(TailEvent::Failed { database: self.database.clone(), error }).await;
                    return;
                }
            }
            if self.feed.stop.sleep(wait).await {
                return;
            }
            wait = (wait * 2).min(Duration::from_secs(2));
        }
    }

    /// Opens a cursor and reads it until it ends.
    async fn once(&mut self, position: &mut Option<Position>, last: &mut Option<u32>) -> Result<CursorEnd> {
        self.choose().await?;
        self.check_level().await?;
        let Some(uuid) = self.uuid().await? else {
            if !self.report_back().await {
                return Ok(CursorEnd::Over);
            }
            if !std::mem::replace(&mut self.reported_nothing, true) && !self.quiet {
                let event = TailEvent::Nothing { database: self.database.clone(), level: self.level };
                if !self.feed.send(event).await {
                    return Ok(CursorEnd::Over);
                }
            }
            // All that is written from now on is new.
            *last = Some(u32::MAX);
            *position = None;
            self.feed.stop.sleep(Duration::from_millis(400)).await;
            return Ok(CursorEnd::Dead);
        };
        let place = Position::beginning(self.feed.address.clone(), uuid);
        let mut resumed = false;
        match position.as_mut() {
            Some(at) if at.address == place.address && at.uuid == place.uuid => resumed = true,
            Some(at) => {
                if at.address == place.address
                    && !self.feed.send(TailEvent::Replaced { database: self.database.clone() }).await
                {
                    return Ok(CursorEnd::Over);
                }
                // All documents of a new collection are new; those of another server only if they are later.
                let after = at.newest.filter(|_| at.address != place.address);
                let newest = at.newest;
                *at = place;
                (at.newest, at.after) = (newest, after);
            }
            None => *position = Some(place),
        }
        let Some(position) = position.as_mut() else { return Ok(CursorEnd::Dead) };
        if let Some(last) = last.take().filter(|last| *last != u32::MAX) {
            self.stand_before(position, last).await?;
        }
        self.read(position, resumed).await
    }

    /// Finds the server to read from: in a replica set the one that the connection string asks for now.
    async fn choose(&mut self) -> Result<()> {
        if self.feed.replica_set {
            let (criteria, address) = self.feed.link.chosen().await?;
            self.feed.link.criteria = criteria;
            self.moved |= address != self.feed.address;
            self.feed.address = address;
        }
        Ok(())
    }

    /// Reports that reading continues after a loss, or on another server. Returns false if nobody receives events.
    async fn report_back(&mut self) -> bool {
        let (lost, moved) = (self.lost, self.moved);
        (self.lost, self.moved) = (false, false);
        if !lost && !moved {
            return true;
        }
        self.feed
            .send(TailEvent::Back {
                database: self.database.clone(),
                address: self.feed.address.clone(),
                moved,
            })
            .await
    }

    async fn check_level(&mut self) -> Result<()> {
        let what = format!("read the profiler of {}", self.database);
        let level = match self.feed.link.command(&self.database, doc! { "profile": -1 }, &what).await {
            Ok(reply) => crate::server::number(&reply, "was").map(|level| level as i32),
            Err(error) if error.is_passing() => return Err(error),
            // Reading the collection needs only the role `read`, and a server without a profiler may have what
            // another server wrote.
            Err(_) => None,
        };
        if let (Some(was), Some(now)) = (self.level, level)
            && was != now
        {
            self.feed.send(TailEvent::Level { database: self.database.clone(), was, now }).await;
        }
        self.level = level.or(self.level);
        Ok(())
    }

    /// The UUID of `system.profile`; `None` if there is no collection, `Some(None)` if it has no UUID.
    async fn uuid(&self) -> Result<Option<Option<Bson>>> {
        let what = format!("look at {}.{COLLECTION}", self.database);
        let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION } };
        let reply = self.feed.link.command_as(&self.database, list, &what, ROLE).await?;
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let batch = batch.map_err(|_| ServerError::Reply("listCollections"))?;
        let Some(entry) = batch.first().and_then(Bson::as_document) else { return Ok(None) };
        Ok(Some(entry.get_document("info").ok().and_then(|info| info.get("uuid")).cloned()))
    }

    fn wrong(&self, error: &mongodb::error::Error) -> ServerError {
        self.feed.link.error(format!("follow {}.{COLLECTION}", self.database), ROLE, error)
    }

    fn collection(&self) -> Collection<RawDocumentBuf> {
        self.feed.link.collection(&self.database, COLLECTION)
    }

    /// The first document that `find` finds, with its record id.
    async fn first_of(&self, find: Find<'_, RawDocumentBuf>) -> Result<Option<RawDocumentBuf>> {
        let cursor = find.limit(1).show_record_id(true).await;
        let mut cursor = cursor.map_err(|error| self.wrong(&error))?;
        cursor.try_next().await.map_err(|error| self.wrong(&error))
    }

    /// Moves to before the last documents of the collection, at most to its beginning.
    async fn stand_before(&mut self, position: &mut Position, last: u32) -> Result<()> {
        let collection = self.collection();
        let find = collection.find(not_self(&self.database)).sort(doc! { "$natural": -1 });
        let found = self.first_of(find.skip(u64::from(last.saturating_sub(1)))).await?;
        let Some(first) = found else { return Ok(()) };
        let (record, ts) = place_of(&first);
        position.newest = ts;
        // It is shown too, unless no documents are wanted.
        position.record = record.unwrap_or(0).saturating_sub(i64::from(last > 0));
        Ok(())
    }

    /// Reads after `position` until the cursor ends.
    async fn read(&mut self, position: &mut Position, mut resumed: bool) -> Result<CursorEnd> {
        let collection = self.collection();
        let mut filter = not_self(&self.database);
        if let Some(newest) = position.newest {
            let from = bson::DateTime::from_millis(newest.saturating_sub(DISORDER_MS));
            filter.insert("ts", doc! { "$gte": from });
        }
        let find = collection
            .find(filter)
            .cursor_type(CursorType::TailableAwait)
            .max_await_time(AWAIT)
            .show_record_id(true);
        let mut cursor = find.batch().await.map_err(|error| self.wrong(&error))?;
        if !self.report_back().await {
            return Ok(CursorEnd::Over);
        }
        let mut checked = Instant::now();
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE, cursor.next()) => next,
                () = self.feed.stop.wait() => return Ok(CursorEnd::Over),
            };
            let reply = match next {
                Err(_) => {
                    let reason = format!("no answer for {} s", SILENCE.as_secs());
                    return Ok(CursorEnd::Error(ServerError::Lost {
                        what: format!("follow {}", self.database),
                        reason,
                    }));
                }
                Ok(None) => return Ok(CursorEnd::Dead),
                Ok(Some(Err(error))) => return Ok(self.left(&error)),
                Ok(Some(Ok(reply))) => reply,
            };
            let (mut skip, mut count) = (0, 0);
            let before = position.clone();
            let mut first = None;
            for document in documents(&reply) {
                let (record, ts) = place_of(document);
                let record = record.unwrap_or_else(|| position.record.saturating_add(1));
                let old = record <= position.record
                    || position.after.zip(ts).is_some_and(|(after, ts)| ts <= after);
                if old && count == 0 {
                    skip += 1;
                    continue;
                }
                first.get_or_insert((record, ts));
                count += 1;
                position.advance(record, ts);
            }
            let Some((record, ts)) = first else { continue };
            // A gap: always checked after a cursor was lost, and otherwise now and then, for servers whose cursors
            // jump silently.
            let jumped = before.record > 0 && record > before.record.saturating_add(1);
            let due = resumed || checked.elapsed() > Duration::from_secs(1);
            if jumped && due {
                checked = Instant::now();
                if self.overwritten(before.record, record).await? {
                    let missed = before.missed(&self.database, record, ts);
                    if missed.documents != Some(0) && !self.feed.send(TailEvent::Missed(missed)).await {
                        return Ok(CursorEnd::Over);
                    }
                }
            }
            resumed = false;
            let batch = Batch { reply, skip };
            if !self.feed.send(TailEvent::Documents { database: self.database.clone(), batch }).await {
                return Ok(CursorEnd::Over);
            }
        }
    }

    /// Whether all records between two were overwritten: the oldest remaining one is not before the later one.
    async fn overwritten(&self, before: i64, record: i64) -> Result<bool> {
        let collection = self.collection();
        let find = collection.find(doc! {}).sort(doc! { "$natural": 1 });
        let oldest = self.first_of(find).await?.and_then(|document| place_of(&document).0);
        // The oldest now may have been overwritten after the batch was read.
        Ok(oldest.is_some_and(|oldest| oldest > before.saturating_add(1) && oldest >= record))
    }

    fn left(&self, error: &mongodb::error::Error) -> CursorEnd {
        // CursorNotFound, CappedPositionLost, QueryPlanKilled, CursorKilled: the collection wrapped over
        // the cursor, or is gone.
        match self.wrong(error) {
            ServerError::Command { code: 43 | 136 | 175 | 237, .. } => CursorEnd::Dead,
            error => CursorEnd::Error(error),
        }
    }
}
