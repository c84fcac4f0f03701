//! The clients that make the load, and their counts.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::error::ErrorKind;
use sonar_core::Histogram;
use sonar_core::impact::{BUCKET_NS, SplitMix64};
use tokio_util::sync::CancellationToken;

use super::measurement::Measurement;
use crate::error::ServerError;
use crate::server::Link;

/// Documents of a range; sysbench's `--range-size`.
const RANGE: u32 = 100;
/// Name of the collection, as sysbench's first table.
const TABLE: &str = "sbtest1";
/// No slice: operations that end now are not counted.
pub(super) const IDLE: u32 = 0;

/// The state that the clients and their controller share.
struct LoadShared {
    /// The number of the slice; [`IDLE`] for none.
    slot: AtomicU32,
    /// Its beginning, in nanoseconds since the beginning of the measurement.
    slot_start_ns: AtomicU64,
    begin: Instant,
    stop: CancellationToken,
    documents: u32,
    /// The first unexpected error.
    failed: Mutex<Option<ServerError>>,
}

/// Operations of a slice.
#[derive(Default)]
pub(super) struct LoadCounts {
    pub(super) operations: u64,
    /// Operations that ended in each [`BUCKET_NS`].
    pub(super) buckets: Vec<u64>,
    pub(super) latency: Histogram,
}

pub(super) fn table(link: &Link, database: &str) -> Collection<Document> {
    link.collection(database, TABLE)
}

/// A document like sysbench's: 119 characters in ten groups of digits, 59 in five.
pub(super) fn document(id: u32, random: &mut SplitMix64, documents: u32) -> Document {
    doc! { "_id": id as i32, "k": random.below(u64::from(documents)) as i32, "c": digits(random, 10), "pad": digits(random, 5) }
}

fn digits(random: &mut SplitMix64, groups: usize) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        text.push_str(&format!("{:011}", random.below(100_000_000_000)));
    }
    text
}

/// The running clients; they end when this is dropped.
pub(super) struct LoadClients {
    shared: Arc<LoadShared>,
    counted: Vec<Arc<Mutex<LoadCounts>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl LoadClients {
    pub(super) fn start(link: &Link, what: &Measurement, count: u32, begin: Instant) -> Self {
        let shared = Arc::new(LoadShared {
            slot: AtomicU32::new(IDLE),
            slot_start_ns: AtomicU64::new(0),
            begin,
            stop: CancellationToken::new(),
            documents: what.documents,
            failed: Mutex::new(None),
        });
        let counted: Vec<_> = (0..count).map(|_| Arc::new(Mutex::new(LoadCounts::default()))).collect();
        let start = |(at, counted): (usize, &Arc<Mutex<LoadCounts>>)| {
            let seed = what.seed ^ (at as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f);
            tokio::spawn(client(
                table(link, &what.database),
                shared.clone(),
                counted.clone(),
                SplitMix64(seed),
            ))
        };
        let tasks = counted.iter().enumerate().map(start).collect();
        Self { shared, counted, tasks }
    }

    /// Begins a slice; operations that began before it are not counted.
    pub(super) fn open(&self, slot: u32) {
        self.take();
        self.shared.slot_start_ns.store(since(self.shared.begin), Ordering::Relaxed);
        self.shared.slot.store(slot, Ordering::Release);
    }

    /// Ends the slice.
    pub(super) fn close(&self) {
        self.shared.slot.store(IDLE, Ordering::Release);
    }

    /// When the slice began, in nanoseconds since the beginning of the measurement.
    pub(super) fn slice_start_ns(&self) -> u64 {
        self.shared.slot_start_ns.load(Ordering::Relaxed)
    }

    /// The counts of all clients since the last call.
    pub(super) fn take(&self) -> LoadCounts {
        let mut all = LoadCounts::default();
        for counted in &self.counted {
            let one = std::mem::take(&mut *counted.lock().unwrap_or_else(PoisonError::into_inner));
            all.operations += one.operations;
            all.latency.merge(&one.latency);
            if all.buckets.len() < one.buckets.len() {
                all.buckets.resize(one.buckets.len(), 0);
            }
            all.buckets.iter_mut().zip(one.buckets).for_each(|(all, one)| *all += one);
        }
        all
    }

    /// The first unexpected error since the last call.
    pub(super) fn failure(&self) -> Option<ServerError> {
        self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) async fn end(self) {
        self.shared.stop.cancel();
        for mut task in self.tasks {
            // A client that hangs in a lost connection does not delay the end.
            if tokio::time::timeout(Duration::from_secs(2), &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

pub(super) fn since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// One client: sends a request, waits for the reply, sends the next.
async fn client(
    table: Collection<Document>,
    shared: Arc<LoadShared>,
    counted: Arc<Mutex<LoadCounts>>,
    mut random: SplitMix64,
) {
    let mut step = random.below(OPERATIONS) as usize;
    while !shared.stop.is_cancelled() {
        let slot = shared.slot.load(Ordering::Acquire);
        let begin = Instant::now();
        let done = ask(&table, step, &mut random, shared.documents).await;
        let took = begin.elapsed();
        step = (step + 1) % OPERATIONS as usize;
        if let Err(error) = done {
            let error = ServerError::of("run the load", "readWriteAnyDatabase", &error);
            shared.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        }
        if slot == IDLE || shared.slot.load(Ordering::Acquire) != slot {
            continue;
        }
        let into = since(shared.begin).saturating_sub(shared.slot_start_ns.load(Ordering::Relaxed));
        let bucket = (into / BUCKET_NS) as usize;
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.operations += 1;
        counted.latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if counted.buckets.len() <= bucket {
            counted.buckets.resize(bucket + 1, 0);
        }
        counted.buckets[bucket] += 1;
    }
}

/// Operations of one round of the mix: sysbench's `oltp_read_write` without its transaction.
const OPERATIONS: u64 = 18;

/// One operation of the mix: ten point reads, four ranges (plain, sum, ordered, distinct), updates of an indexed and
/// of an unindexed field, a delete, and an insert of the deleted document.
async fn ask(
    table: &Collection<Document>,
    step: usize,
    random: &mut SplitMix64,
    documents: u32,
) -> mongodb::error::Result<()> {
    let id = random.below(u64::from(documents)) as i32;
    let range = || doc! { "_id": { "$gte": id, "$lt": id.saturating_add(RANGE as i32) } };
    let only_c = doc! { "c": 1, "_id": 0 };
    match step {
        0..10 => drop(table.find_one(doc! { "_id": id }).projection(only_c).await?),
        10 => drop(
            table.find(range()).projection(only_c).batch_size(RANGE).await?.try_collect::<Vec<_>>().await?,
        ),
        11 => {
            let sum = doc! { "$group": { "_id": Bson::Null, "total": { "$sum": "$k" } } };
            drop(table.aggregate([doc! { "$match": range() }, sum]).await?.try_collect::<Vec<_>>().await?);
        }
        12 => {
            let find = table.find(range()).projection(only_c).sort(doc! { "c": 1 }).batch_size(RANGE);
            drop(find.await?.try_collect::<Vec<_>>().await?);
        }
        13 => drop(table.distinct("c", range()).await?),
        14 => drop(table.update_one(doc! { "_id": id }, doc! { "$inc": { "k": 1 } }).await?),
        15 => drop(table.update_one(doc! { "_id": id }, doc! { "$set": { "c": digits(random, 10) } }).await?),
        16 => {
            table.delete_one(doc! { "_id": id }).await?;
        }
        _ => {
            // Another client may have inserted it again meanwhile.
            if let Err(error) = table.insert_one(document(id.unsigned_abs(), random, documents)).await
                && !is_duplicate(&error)
            {
                return Err(error);
            }
        }
    }
    Ok(())
}

fn is_duplicate(error: &mongodb::error::Error) -> bool {
    matches!(&*error.kind,
        ErrorKind::Write(mongodb::error::WriteFailure::WriteError(error)) if error.code == 11_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_like_those_of_sysbench() {
        let document = document(7, &mut SplitMix64(1), 100);
        assert_eq!(document.get_i32("_id").unwrap(), 7);
        assert!((0..100).contains(&document.get_i32("k").unwrap()));
        // sysbench's c_value_template has ten groups of eleven digits, pad_value_template five.
        let c = document.get_str("c").unwrap();
        assert_eq!((c.len(), c.split('-').count()), (119, 10));
        assert!(c.split('-').all(|group| group.len() == 11 && group.bytes().all(|b| b.is_ascii_digit())));
        assert_eq!(document.get_str("pad").unwrap().len(), 59);
    }
}
