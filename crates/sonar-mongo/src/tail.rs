//! Following `system.profile` of one or all databases with tailable cursors.
//!
//! The position of a cursor is a record id (`showRecordId`), which a capped collection increments by one for each
//! document. After a cursor was lost, reading continues behind the last record that was read: nothing comes twice,
//! and the distance to the oldest remaining record is the number of documents that were overwritten unread. Where
//! record ids are not consecutive (servers that only speak MongoDB's protocol), times show how long the gap was, and
//! the number of missed documents is an estimate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawDocument;
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::{StreamExt, TryStreamExt};
use mongodb::options::{CollectionOptions, CursorType};
use sonar_core::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::control::{COLLECTION, OWN_DATABASES, ROLE};
use crate::error::{Error, Result};
use crate::server::{Link, Server, time};
use crate::stop::Stop;

/// How long the server waits for new documents before it answers with none.
const AWAIT: Duration = Duration::from_secs(1);
/// An answer that takes this long will not come.
const SILENCE: Duration = Duration::from_secs(30);
/// Batches that may wait to be taken; until then no cursor is read further.
const QUEUE: usize = 64;
/// How often to check for new databases.
const NEW_DATABASES: Duration = Duration::from_secs(5);
/// Most databases that are followed at once.
const MOST_DATABASES: usize = 512;
/// Documents are written almost in the order in which operations end: a new one may be this much older than the
/// newest.
const DISORDER_MS: i64 = 10_000;

/// What to follow.
#[derive(Clone, Debug, Default)]
pub struct Tailing {
    /// The databases; empty: all but the server's own.
    pub databases: Vec<String>,
    /// How many of the documents that already exist come first, for each database.
    pub last: u32,
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// New documents, in the order in which they were written.
    Documents {
        /// Their database.
        database: Arc<str>,
        /// The documents, with `$recordId`.
        batch: Batch,
    },
    /// The collection wrapped faster than it was read.
    Missed(Missed),
    /// The connection was lost; it tries again until it is back.
    Lost {
        /// The database that was followed.
        database: Arc<str>,
        /// What happened.
        said: String,
    },
    /// Following goes on after a loss.
    Back {
        /// The database that is followed.
        database: Arc<str>,
        /// The server it is followed on now.
        address: String,
        /// It is another server than before: a fail-over.
        moved: bool,
    },
    /// The profiling level has changed: a server that restarts takes the level of its configuration.
    Level {
        /// The database.
        database: Arc<str>,
        /// Its level before.
        was: i32,
        /// Its level now.
        now: i32,
    },
    /// There is no `system.profile` (any more), or its profiler is off; it waits for one.
    Nothing {
        /// The database.
        database: Arc<str>,
        /// Its level.
        level: Option<i32>,
    },
    /// The collection was recreated: what was last written to the old one is unknown.
    Replaced {
        /// The database.
        database: Arc<str>,
    },
    /// A database can no longer be followed.
    Failed {
        /// The database; empty: all of them.
        database: Arc<str>,
        /// Why.
        error: Error,
    },
}

/// Documents that were overwritten before they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The database.
    pub database: Arc<str>,
    /// End of the last operation before the gap.
    pub from: Option<Timestamp>,
    /// End of the first operation after the gap.
    pub to: Option<Timestamp>,
    /// How many, by record ids; `None` where those are not consecutive. Includes this program's own reads of
    /// `system.profile`, a few a second at most.
    pub documents: Option<u64>,
    /// How many, estimated from the rate before the gap.
    pub about: Option<u64>,
}

/// Documents as they came, not copied.
#[derive(Debug)]
pub struct Batch {
    reply: mongodb::raw_batch_cursor::RawBatch,
    /// Documents at the beginning that were read before.
    skip: usize,
}

impl Batch {
    /// The documents.
    pub fn documents(&self) -> impl Iterator<Item = &RawDocument> {
        documents(&self.reply).skip(self.skip)
    }
}

fn documents(reply: &mongodb::raw_batch_cursor::RawBatch) -> impl Iterator<Item = &RawDocument> {
    let array = reply.doc_slices().ok();
    array.into_iter().flat_map(|array| array.into_iter()).filter_map(|value| value.ok()?.as_document())
}

/// Databases that are being followed.
pub struct Tail<'a> {
    server: &'a Server,
    events: mpsc::Receiver<Event>,
}

impl Tail<'_> {
    /// The next event; `None` after `wait` without one.
    ///
    /// # Errors
    /// No database is followed any more.
    pub fn next(&mut self, wait: Duration) -> std::result::Result<Option<Event>, Ended> {
        self.server.runtime().block_on(async {
            match tokio::time::timeout(wait, self.events.recv()).await {
                Ok(Some(event)) => Ok(Some(event)),
                Ok(None) => Err(Ended),
                Err(_) => Ok(None),
            }
        })
    }
}

/// No database is followed any more.
#[derive(Debug)]
pub struct Ended;

impl Server {
    /// Follows `system.profile` until `stop` is set.
    ///
    /// # Errors
    /// The databases cannot be listed.
    pub fn tail(&self, tailing: &Tailing, stop: &Stop) -> Result<Tail<'_>> {
        if self.info().mongos {
            return Err(Error::Mongos(self.info().address.clone()));
        }
        let (sender, events) = mpsc::channel(QUEUE);
        let feed = Feed {
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

    /// Passes every document that `system.profile` of a database holds now to `each`, in order, until that returns
    /// `false`. Returns how many it passed.
    ///
    /// # Errors
    /// The server did not answer, or the user may not read.
    pub fn profile_documents(
        &self,
        database: &str,
        mut each: impl FnMut(&RawDocument) -> bool,
    ) -> Result<u64> {
        let wrong = |error: &mongodb::error::Error| {
            self.link().error(format!("read {database}.{COLLECTION}"), ROLE, error)
        };
        self.runtime().block_on(async {
            let collection = collection(self.link(), database);
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

fn collection(link: &Link, database: &str) -> mongodb::Collection<RawDocumentBuf> {
    let options = CollectionOptions::builder().selection_criteria(link.criteria.clone()).build();
    link.client.database(database).collection_with_options(COLLECTION, options)
}

/// At level 2 this program's own reads are profiled too: without this every answer would cause the next one.
fn not_self(database: &str) -> Document {
    doc! { "ns": { "$ne": format!("{database}.{COLLECTION}") } }
}

/// What the followers of all databases share.
#[derive(Clone)]
struct Feed {
    link: Link,
    /// Address of the server.
    address: String,
    replica_set: bool,
    sender: mpsc::Sender<Event>,
    stop: Stop,
}

impl Feed {
    /// Whether somebody still wants events.
    fn is_wanted(&self) -> bool {
        !self.stop.is_set() && !self.sender.is_closed()
    }

    /// Sends an event; returns whether anybody receives it.
    async fn send(&self, event: Event) -> bool {
        tokio::select! {
            sent = self.sender.send(event) => sent.is_ok(),
            () = self.stop.wait() => false,
        }
    }
}

/// Follows the databases in `found`, and those that come later.
async fn follow_all(feed: Feed, last: u32, found: Vec<String>) {
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
                    let said = format!("more than {MOST_DATABASES} databases: the others are not followed");
                    let error = Error::Command { what: "follow all databases".to_owned(), said, code: 0 };
                    feed.send(Event::Failed { database: Arc::from(""), error }).await;
                }
                break;
            }
            // Nothing of a new database has been shown: all of it is.
            let follower = Follower { quiet: true, ..Follower::new(&feed, &name) };
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

/// How far a collection was read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Position {
    /// `host:port`, or empty.
    address: String,
    /// UUID of the collection.
    uuid: Option<Bson>,
    /// Record id of the last document that was read.
    record: i64,
    /// The latest end of an operation that was read.
    newest: Option<i64>,
    /// End of the first operation that was read.
    first: Option<i64>,
    /// Documents read.
    seen: u64,
    /// Record id of the first document that was read.
    first_record: i64,
    /// Operations that ended at this time or before were read on another server.
    after: Option<i64>,
}

impl Position {
    /// Notes a document.
    fn advance(&mut self, record: i64, ts: Option<i64>) {
        if self.seen == 0 {
            self.first_record = record;
            self.first = ts;
        }
        self.seen += 1;
        self.record = record;
        self.newest = self.newest.max(ts);
    }

    /// Whether record ids seem to be consecutive.
    fn counts(&self) -> bool {
        let ids = self.record.saturating_sub(self.first_record).unsigned_abs();
        self.seen > 1 && ids <= self.seen.saturating_mul(4).saturating_add(100)
    }

    /// How many documents come in `ms` milliseconds at the rate so far.
    fn about(&self, ms: i64) -> Option<u64> {
        let span = self.newest?.saturating_sub(self.first?);
        (span > 0 && ms >= 0).then(|| (self.seen as f64 / span as f64 * ms as f64).round() as u64)
    }

    /// What was missed, if `record` at `ts` is the first document after a gap.
    fn missed(&self, database: &Arc<str>, record: i64, ts: Option<i64>) -> Missed {
        let point = |ms: i64| time(&bson::DateTime::from_millis(ms));
        let between = self.newest.zip(ts).map(|(from, to)| to.saturating_sub(from).max(0));
        let gap = record.saturating_sub(self.record).saturating_sub(1).max(0).unsigned_abs();
        Missed {
            database: database.clone(),
            from: self.newest.map(point),
            to: ts.map(point),
            documents: self.counts().then_some(gap),
            about: between.and_then(|ms| self.about(ms)),
        }
    }
}

/// Follows one database.
struct Follower {
    feed: Feed,
    database: Arc<str>,
    level: Option<i32>,
    said_nothing: bool,
    /// The connection was lost, which was reported.
    lost: bool,
    /// Another server is read, which was not reported yet.
    moved: bool,
    /// Does not report a database that has no profile.
    quiet: bool,
}

/// Why a cursor was left.
enum Left {
    /// It is dead, or was overrun: open another.
    Dead,
    /// Stopped, or nobody receives events any more.
    Over,
    /// The server's error.
    Error(Error),
}

impl Follower {
    fn new(feed: &Feed, database: &str) -> Self {
        Self {
            feed: feed.clone(),
            database: Arc::from(database),
            level: None,
            said_nothing: false,
            lost: false,
            moved: false,
            quiet: false,
        }
    }

    async fn run(mut self, last: u32) {
        let mut position: Option<Position> = None;
        let mut last = Some(last);
        let mut wait = Duration::from_millis(100);
        while self.feed.is_wanted() {
            let left = self.once(&mut position, &mut last).await;
            match left {
                Ok(Left::Over) => return,
                Ok(Left::Dead) => wait = Duration::from_millis(100),
                Err(error) | Ok(Left::Error(error)) if error.is_passing() => {
                    if !std::mem::replace(&mut self.lost, true) {
                        let event = Event::Lost { database: self.database.clone(), said: error.to_string() };
                        if !self.feed.send(event).await {
                            return;
                        }
                        wait = Duration::from_millis(100);
                    }
                }
                Err(error) | Ok(Left::Error(error)) => {
                    self.feed.send(Event::Failed { database: self.database.clone(), error }).await;
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
    async fn once(&mut self, position: &mut Option<Position>, last: &mut Option<u32>) -> Result<Left> {
        self.choose().await?;
        self.check_level().await?;
        let Some(uuid) = self.uuid().await? else {
            if !self.report_back().await {
                return Ok(Left::Over);
            }
            if !std::mem::replace(&mut self.said_nothing, true) && !self.quiet {
                let event = Event::Nothing { database: self.database.clone(), level: self.level };
                if !self.feed.send(event).await {
                    return Ok(Left::Over);
                }
            }
            // All that is written from now on is new.
            *last = Some(u32::MAX);
            *position = None;
            self.feed.stop.sleep(Duration::from_millis(400)).await;
            return Ok(Left::Dead);
        };
        let place = Position { address: self.feed.address.clone(), uuid, ..Position::default() };
        let mut resumed = false;
        match position.as_mut() {
            Some(at) if at.address == place.address && at.uuid == place.uuid => resumed = true,
            Some(at) => {
                if at.address == place.address
                    && !self.feed.send(Event::Replaced { database: self.database.clone() }).await
                {
                    return Ok(Left::Over);
                }
                // All documents of a new collection are new; those of another server only if they are later.
                let after = at.newest.filter(|_| at.address != place.address);
                *at = Position { newest: at.newest, after, ..place };
            }
            None => *position = Some(place),
        }
        let Some(position) = position.as_mut() else { return Ok(Left::Dead) };
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

    /// Reports that reading goes on after a loss, or on another server. `false` when nobody receives events.
    async fn report_back(&mut self) -> bool {
        let (lost, moved) = (self.lost, self.moved);
        (self.lost, self.moved) = (false, false);
        if !lost && !moved {
            return true;
        }
        self.feed
            .send(Event::Back { database: self.database.clone(), address: self.feed.address.clone(), moved })
            .await
    }

    async fn check_level(&mut self) -> Result<()> {
        let what = format!("read the profiler of {}", self.database);
        let level = match self.feed.link.command(&self.database, doc! { "profile": -1 }, &what).await {
            Ok(reply) => crate::server::number(&reply, "was").map(|level| level as i32),
            Err(error) if error.is_passing() => return Err(error),
            // Reading the collection needs only the role `read`, and a server without a profiler may hold what another
            // server wrote.
            Err(_) => None,
        };
        if let (Some(was), Some(now)) = (self.level, level)
            && was != now
        {
            self.feed.send(Event::Level { database: self.database.clone(), was, now }).await;
        }
        self.level = level.or(self.level);
        Ok(())
    }

    /// The UUID of `system.profile`; `None` where there is none, `Some(None)` where it has none.
    async fn uuid(&self) -> Result<Option<Option<Bson>>> {
        let what = format!("look at {}.{COLLECTION}", self.database);
        let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION } };
        let reply = self.feed.link.command_as(&self.database, list, &what, ROLE).await?;
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let batch = batch.map_err(|_| Error::Reply("listCollections"))?;
        let Some(entry) = batch.first().and_then(Bson::as_document) else { return Ok(None) };
        Ok(Some(entry.get_document("info").ok().and_then(|info| info.get("uuid")).cloned()))
    }

    fn wrong(&self, error: &mongodb::error::Error) -> Error {
        self.feed.link.error(format!("follow {}.{COLLECTION}", self.database), ROLE, error)
    }

    /// Moves to before the last documents of the collection, at most to its beginning.
    async fn stand_before(&mut self, position: &mut Position, last: u32) -> Result<()> {
        let collection = collection(&self.feed.link, &self.database);
        let find = collection
            .find(not_self(&self.database))
            .sort(doc! { "$natural": -1 })
            .skip(u64::from(last.saturating_sub(1)))
            .limit(1)
            .show_record_id(true);
        let found: Vec<_> = find
            .await
            .map_err(|error| self.wrong(&error))?
            .try_collect()
            .await
            .map_err(|error| self.wrong(&error))?;
        let Some(first) = found.first() else { return Ok(()) };
        let (record, ts) = place_of(first);
        position.newest = ts;
        // It is shown itself, unless none is wanted.
        position.record = record.unwrap_or(0).saturating_sub(i64::from(last > 0));
        Ok(())
    }

    /// Reads behind `position` until the cursor ends.
    async fn read(&mut self, position: &mut Position, mut resumed: bool) -> Result<Left> {
        let collection = collection(&self.feed.link, &self.database);
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
            return Ok(Left::Over);
        }
        let mut checked = Instant::now();
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE, cursor.next()) => next,
                () = self.feed.stop.wait() => return Ok(Left::Over),
            };
            let reply = match next {
                Err(_) => {
                    let said = format!("no answer for {} s", SILENCE.as_secs());
                    return Ok(Left::Error(Error::Lost { what: format!("follow {}", self.database), said }));
                }
                Ok(None) => return Ok(Left::Dead),
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
            // A gap: checked always after a cursor was lost, and now and then otherwise, for servers that let a cursor
            // jump silently.
            let jumped = before.record > 0 && record > before.record.saturating_add(1);
            let due = resumed || checked.elapsed() > Duration::from_secs(1);
            if jumped && due {
                checked = Instant::now();
                if self.overwritten(before.record, record).await? {
                    let missed = before.missed(&self.database, record, ts);
                    if missed.documents != Some(0) && !self.feed.send(Event::Missed(missed)).await {
                        return Ok(Left::Over);
                    }
                }
            }
            resumed = false;
            let batch = Batch { reply, skip };
            if !self.feed.send(Event::Documents { database: self.database.clone(), batch }).await {
                return Ok(Left::Over);
            }
        }
    }

    /// Whether all records between two were overwritten: the oldest remaining one is not before the later one.
    async fn overwritten(&self, before: i64, record: i64) -> Result<bool> {
        let collection = collection(&self.feed.link, &self.database);
        let find = collection.find(doc! {}).sort(doc! { "$natural": 1 }).limit(1).show_record_id(true);
        let found: Vec<_> = find
            .await
            .map_err(|error| self.wrong(&error))?
            .try_collect()
            .await
            .map_err(|error| self.wrong(&error))?;
        let oldest = found.first().and_then(|document| place_of(document).0);
        // What is the oldest now may have been overwritten after the batch was read.
        Ok(oldest.is_some_and(|oldest| oldest > before.saturating_add(1) && oldest >= record))
    }

    fn left(&self, error: &mongodb::error::Error) -> Left {
        // CursorNotFound, CappedPositionLost, QueryPlanKilled, CursorKilled: the collection wrapped over
        // the cursor, or is gone.
        match self.wrong(error) {
            Error::Command { code: 43 | 136 | 175 | 237, .. } => Left::Dead,
            error => Left::Error(error),
        }
    }
}

/// Record id and time in milliseconds of a profile document.
fn place_of(document: &RawDocument) -> (Option<i64>, Option<i64>) {
    let record = document.get_i64("$recordId").ok();
    let ts = document.get_datetime("ts").ok().map(bson::DateTime::timestamp_millis);
    (record, ts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: impl Iterator<Item = i64>) -> Position {
        let mut position = Position::default();
        for record in records {
            position.advance(record, Some(1_000 + record * 10));
        }
        position
    }

    #[test]
    fn running_numbers_say_exactly_how_many_were_missed() {
        let position = read(1..=100);
        let missed = position.missed(&Arc::from("shop"), 151, Some(2_510));
        assert_eq!(missed.documents, Some(50));
        // A hundred in 990 ms, and 510 ms without.
        assert_eq!(missed.about, Some(52));
        assert_eq!(missed.from, Some(Timestamp::from_unix(2, 0)));
        assert_eq!(missed.to, Some(Timestamp::from_unix(2, 510_000_000)));
    }

    #[test]
    fn record_ids_that_do_not_count_give_an_estimate_only() {
        let position = read((1..=100).map(|n| n * 4_294_967_296));
        let missed = position.missed(&Arc::from("shop"), i64::MAX, None);
        assert_eq!((missed.documents, missed.about), (None, None));
        assert!(!Position::default().counts());
    }

    #[test]
    fn a_document_without_a_place_is_no_reason_to_stop() {
        let bare = bson::rawdoc! { "op": "query" };
        assert_eq!(place_of(&bare), (None, None));
        let odd = bson::rawdoc! { "ts": "yesterday", "$recordId": 5 };
        assert_eq!(place_of(&odd), (None, None));
    }
}
