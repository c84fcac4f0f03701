//! A load in the manner of sysbench, to measure what profiling costs.
//!
//! It changes a server: it creates one database that did not exist, sets the profiling level of that database and, on
//! request, Percona Server's rate limit. At the end it undoes all of it, however it ends.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::options::{CollectionOptions, IndexOptions};
use mongodb::{IndexModel, error::ErrorKind};
use sonar_core::Histogram;
use sonar_core::impact::{BUCKET_NS, Counters, LongRun, Run, Slice, SplitMix64, Variant, alternation};

use crate::control::{self, COLLECTION, Settings, State};
use crate::error::{Error, NAMESPACE_NOT_FOUND, Result};
use crate::server::{Link, Server, whole};
use crate::stop::Stop;

/// Documents of the table; sysbench's `--table-size`.
pub const DOCUMENTS: u32 = 10_000;
/// Documents of a range; sysbench's `--range-size`.
const RANGE: u32 = 100;
/// Time after each change of a setting that is not measured.
const SETTLE: Duration = Duration::from_millis(300);
/// Name of the collection, as sysbench's first table.
const TABLE: &str = "sbtest1";
/// The most lost slices before the measurement is abandoned.
const LOST_SLICES: u32 = 10;
/// No slice: operations that end now are not counted.
const IDLE: u32 = 0;
/// How often a long run checks whether the collection wraps.
const LOOK: Duration = Duration::from_millis(500);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Name of the database to create; it must not exist.
    pub database: String,
    /// Documents in the table.
    pub documents: u32,
    /// Numbers of clients, one after the other.
    pub clients: Vec<u32>,
    /// The settings; the others are compared with the first.
    pub variants: Vec<Variant>,
    /// How often each setting is measured with each number of clients.
    pub rounds: usize,
    /// Length of each slice.
    pub slice: Duration,
    /// Size of `system.profile` in bytes; `None` leaves it to the server.
    pub profile_bytes: Option<u64>,
    /// Confidence of the verdicts, like 0.95.
    pub confidence: f64,
    /// Seed of the pseudo-random numbers.
    pub seed: u64,
}

/// The progress of a measurement.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The table is being filled: this many of this many documents.
    Filling(u32, u32),
    /// A slice was measured, this many of this many.
    Measured(&'a Slice, usize, usize),
    /// A second of a long run passed with this many operations.
    Second(u64),
    /// `system.profile` began to wrap.
    Wrapped,
    /// A slice was lost and will be measured again.
    Again(&'a Error),
    /// Everything is being undone.
    Cleaning,
    /// It cannot be undone yet; it will be tried again.
    CannotClean(&'a Error),
}

/// Reads what only the machine knows: this program's processor time, and the server's where it runs
/// here.
pub type Probe<'a> = &'a mut dyn FnMut(&ServerFacts) -> Counters;

/// What a server says about its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Process id on its host.
    pub pid: Option<u32>,
    /// Name of its host, without the port.
    pub host: Option<String>,
    /// Where it writes its log.
    pub log_path: Option<String>,
    /// Its data directory.
    pub data_path: Option<String>,
}

/// Shared by the clients and their controller.
struct Shared {
    /// Which slice it is; [`IDLE`] for none.
    slot: AtomicU32,
    /// Its beginning, in nanoseconds from that of the measurement.
    slot_start_ns: AtomicU64,
    begin: Instant,
    stop: AtomicBool,
    documents: u32,
    /// The first error that was not expected.
    failed: Mutex<Option<Error>>,
}

#[derive(Default)]
struct Counted {
    operations: u64,
    buckets: Vec<u64>,
    latency: Histogram,
}

impl Server {
    /// What this server says about its process; `None` for what it does not say.
    pub fn facts(&self) -> ServerFacts {
        self.runtime().block_on(facts(self.link()))
    }

    /// Measures what settings of the profiler cost, in alternation. Everything it created or changed is undone when it
    /// returns, with a result or an error.
    ///
    /// # Errors
    /// The database exists, the server has no profiler (unless all levels are 0), it was stopped, or the
    /// server failed. Where not all could be undone, that is the error.
    pub fn measure(
        &self,
        what: &Measurement,
        stop: &Stop,
        probe: Probe<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Run> {
        self.with_database(what, stop, progress, |was, progress| {
            self.runtime().block_on(alternate(self, what, was, stop, probe, progress))
        })
    }

    /// Measures one setting for a long time, with the last number of clients.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_long(
        &self,
        what: &Measurement,
        time: Duration,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<LongRun> {
        self.with_database(what, stop, progress, |was, progress| {
            self.runtime().block_on(go_on(self, what, time, was, stop, progress))
        })
    }

    /// Creates the database, does `work`, and undoes everything.
    fn with_database<T>(
        &self,
        what: &Measurement,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress<'_>),
        work: impl FnOnce(Option<&State>, &mut dyn FnMut(Progress<'_>)) -> Result<T>,
    ) -> Result<T> {
        if self.databases()?.iter().any(|name| name.eq_ignore_ascii_case(&what.database)) {
            return Err(Error::DatabaseExists(what.database.clone()));
        }
        // Without a profiler only level 0 can be compared with level 0.
        let profiled = what.variants.iter().any(|variant| variant.level != 0);
        let was = match self.profiler(&what.database) {
            Ok(state) => Some(state),
            Err(Error::NoProfiler(_)) if !profiled => None,
            Err(error) => return Err(error),
        };
        if what.variants.iter().any(|variant| variant.rate_limit.is_some())
            && was.as_ref().is_none_or(|was| was.settings.rate_limit.is_none())
        {
            return Err(Error::NotSupported {
                server: self.info().address.clone(),
                version: self.info().version.clone(),
                what: "profiler rateLimit",
                since: "Percona Server for MongoDB",
            });
        }
        let result = self
            .runtime()
            .block_on(fill(self.link(), what, was.as_ref(), stop, progress))
            .and_then(|()| work(was.as_ref(), progress));
        let stopped = stop.is_set();
        progress(Progress::Cleaning);
        // A second request to stop ends the clean-up, too.
        if stopped {
            stop.clear();
        }
        let undone = self.undo(what, was.as_ref(), stop, progress);
        if stopped {
            stop.set();
        }
        undone?;
        if stopped && result.is_ok() { Err(Error::Stopped) } else { result }
    }

    fn undo(
        &self,
        what: &Measurement,
        was: Option<&State>,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let mut wait = Duration::from_millis(250);
        loop {
            let undone = self.runtime().block_on(async {
                if let Some(was) = was {
                    let now = control::settings(self.link(), self.info(), &what.database).await?;
                    set(self.link(), &what.database, &was.settings, &now).await?;
                }
                let drop = doc! { "dropDatabase": 1 };
                let doing = format!("drop {}", what.database);
                self.link().command_as(&what.database, drop, &doing, "dbAdmin").await.map(|_| ())
            });
            match undone {
                Ok(()) => return Ok(()),
                Err(error) if error.is_passing() && !stop.is_set() => {
                    progress(Progress::CannotClean(&error));
                    self.wait(wait, stop);
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

async fn set(link: &Link, database: &str, settings: &Settings, now: &Settings) -> Result<()> {
    let what = format!("set the profiler of {database}");
    link.command_as(database, settings.command(now), &what, "dbAdmin").await.map(|_| ())
}

fn table(link: &Link, database: &str) -> Collection<Document> {
    let options = CollectionOptions::builder().selection_criteria(link.criteria.clone()).build();
    link.client.database(database).collection_with_options(TABLE, options)
}

/// A document in sysbench's manner: 119 characters in ten groups of digits, 59 in five.
fn document(id: u32, lot: &mut SplitMix64, documents: u32) -> Document {
    doc! { "_id": id as i32, "k": lot.below(u64::from(documents)) as i32, "c": digits(lot, 10), "pad": digits(lot, 5) }
}

fn digits(lot: &mut SplitMix64, groups: usize) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        text.push_str(&format!("{:011}", lot.below(100_000_000_000)));
    }
    text
}

async fn fill(
    link: &Link,
    what: &Measurement,
    was: Option<&State>,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    let wrong = |error: &mongodb::error::Error| link.error("fill the table", "readWriteAnyDatabase", error);
    let table = table(link, &what.database);
    let mut lot = SplitMix64(what.seed);
    let mut id = 0;
    while id < what.documents {
        if stop.is_set() {
            return Err(Error::Stopped);
        }
        let end = (id + 1_000).min(what.documents);
        let batch: Vec<_> = (id..end).map(|id| document(id, &mut lot, what.documents)).collect();
        table.insert_many(batch).await.map_err(|error| wrong(&error))?;
        id = end;
        progress(Progress::Filling(id, what.documents));
    }
    let index = IndexModel::builder()
        .keys(doc! { "k": 1 })
        .options(IndexOptions::builder().name("k_1".to_owned()).build())
        .build();
    table.create_index(index).await.map_err(|error| wrong(&error))?;
    if let (Some(_), Some(bytes)) = (was, what.profile_bytes) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let create = doc! { "create": COLLECTION, "capped": true, "size": bytes };
        link.command_as(&what.database, create, "make system.profile", "dbAdmin").await?;
    }
    Ok(())
}

/// The running clients; they end when this is dropped.
struct Clients {
    shared: Arc<Shared>,
    counted: Vec<Arc<Mutex<Counted>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Clients {
    fn start(link: &Link, what: &Measurement, count: u32, begin: Instant) -> Self {
        let shared = Arc::new(Shared {
            slot: AtomicU32::new(IDLE),
            slot_start_ns: AtomicU64::new(0),
            begin,
            stop: AtomicBool::new(false),
            documents: what.documents,
            failed: Mutex::new(None),
        });
        let counted: Vec<_> = (0..count).map(|_| Arc::new(Mutex::new(Counted::default()))).collect();
        let start = |(at, counted): (usize, &Arc<Mutex<Counted>>)| {
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

    /// Opens a slice.
    fn open(&self, slot: u32) {
        self.take();
        self.shared.slot_start_ns.store(since(self.shared.begin), Ordering::Relaxed);
        self.shared.slot.store(slot, Ordering::Release);
    }

    /// Closes it.
    fn close(&self) {
        self.shared.slot.store(IDLE, Ordering::Release);
    }

    /// Adds what was counted.
    fn take(&self) -> Counted {
        let mut all = Counted::default();
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

    fn failure(&self) -> Option<Error> {
        self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn end(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for mut task in self.tasks {
            // A client that hangs in a lost connection does not delay the end.
            if tokio::time::timeout(Duration::from_secs(2), &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

fn since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// One client: asks, waits for the answer, asks again.
async fn client(
    table: Collection<Document>,
    shared: Arc<Shared>,
    counted: Arc<Mutex<Counted>>,
    mut lot: SplitMix64,
) {
    let mut step = lot.below(OPERATIONS) as usize;
    while !shared.stop.load(Ordering::Relaxed) {
        let slot = shared.slot.load(Ordering::Acquire);
        let begin = Instant::now();
        let done = ask(&table, step, &mut lot, shared.documents).await;
        let took = begin.elapsed();
        step = (step + 1) % OPERATIONS as usize;
        if let Err(error) = done {
            let error = Error::of("run the load", "readWriteAnyDatabase", &error);
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

/// One operation of the mix: ten point reads, four ranges (plain, sum, ordered, distinct), an update of
/// an indexed and of an unindexed field, a delete, and an insert of what was deleted.
async fn ask(
    table: &Collection<Document>,
    step: usize,
    lot: &mut SplitMix64,
    documents: u32,
) -> mongodb::error::Result<()> {
    let id = lot.below(u64::from(documents)) as i32;
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
        15 => drop(table.update_one(doc! { "_id": id }, doc! { "$set": { "c": digits(lot, 10) } }).await?),
        16 => {
            table.delete_one(doc! { "_id": id }).await?;
        }
        _ => {
            // Another client may have put it back meanwhile.
            if let Err(error) = table.insert_one(document(id.unsigned_abs(), lot, documents)).await
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

/// What a setting is on this server.
fn settings_of(was: &State, variant: Variant) -> Settings {
    Settings {
        level: variant.level,
        rate_limit: variant.rate_limit.or(was.settings.rate_limit),
        ..was.settings.clone()
    }
}

async fn alternate(
    server: &Server,
    what: &Measurement,
    was: Option<&State>,
    stop: &Stop,
    probe: Probe<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Run> {
    let (link, facts) = (server.link(), facts(server.link()).await);
    let begin = Instant::now();
    let mut run = Run {
        variants: what.variants.clone(),
        slices: Vec::new(),
        confidence: what.confidence,
        processors: None,
    };
    let all = what.clients.len() * what.rounds * what.variants.len();
    let (mut slot, mut lost) = (IDLE, 0);
    for (at, count) in what.clients.iter().enumerate() {
        let clients = Clients::start(link, what, *count, begin);
        let mut result = Ok(());
        'rounds: for (round, order) in
            alternation(what.variants.len(), what.rounds, what.seed.wrapping_add(at as u64))
                .into_iter()
                .enumerate()
        {
            for variant in order {
                loop {
                    slot = slot.wrapping_add(1).max(1);
                    let measured =
                        slice(server, what, was, &clients, (slot, variant), &facts, stop, probe).await;
                    match measured {
                        Ok(mut slice) => {
                            (slice.clients, slice.round) = (*count, round);
                            progress(Progress::Measured(&slice, run.slices.len() + 1, all));
                            run.slices.push(slice);
                            break;
                        }
                        Err(error) if error.is_passing() && lost < LOST_SLICES && !stop.is_set() => {
                            lost += 1;
                            progress(Progress::Again(&error));
                            stop.sleep(Duration::from_millis(500)).await;
                        }
                        Err(error) => {
                            result = Err(error);
                            break 'rounds;
                        }
                    }
                }
            }
        }
        clients.end().await;
        result?;
    }
    Ok(run)
}

async fn facts(link: &Link) -> ServerFacts {
    let mut facts = ServerFacts::default();
    if let Ok(status) = link.command("admin", doc! { "serverStatus": 1 }, "read the status").await {
        facts.pid = whole(&status, "pid").and_then(|pid| u32::try_from(pid).ok());
        let host = status.get_str("host").ok();
        facts.host = host.and_then(|host| host.split(':').next()).map(str::to_owned);
    }
    if let Ok(reply) = link.command("admin", doc! { "getCmdLineOpts": 1 }, "read the options").await {
        let at = |section: &str, key: &str| {
            let parsed = reply.get_document("parsed").ok()?;
            Some(parsed.get_document(section).ok()?.get_str(key).ok()?.to_owned())
        };
        facts.log_path = at("systemLog", "path");
        facts.data_path = at("storage", "dbPath");
    }
    facts
}

#[allow(clippy::too_many_arguments)]
async fn slice(
    server: &Server,
    what: &Measurement,
    was: Option<&State>,
    clients: &Clients,
    (slot, variant): (u32, usize),
    facts: &ServerFacts,
    stop: &Stop,
    probe: &mut dyn FnMut(&ServerFacts) -> Counters,
) -> Result<Slice> {
    let link = server.link();
    if let (Some(was), Some(variant)) = (was, what.variants.get(variant)) {
        let now = control::settings(link, server.info(), &what.database).await?;
        set(link, &what.database, &settings_of(was, *variant), &now).await?;
    }
    if stop.sleep(SETTLE).await {
        return Err(Error::Stopped);
    }
    // Errors while the setting changed are no part of the slice.
    clients.failure();
    let before = counters(link, facts, probe).await;
    clients.open(slot);
    let start = Instant::now();
    let stopped = stop.sleep(what.slice).await;
    clients.close();
    let length_ns = since(start);
    let used = counters(link, facts, probe).await.since(&before);
    if stopped {
        return Err(Error::Stopped);
    }
    if let Some(error) = clients.failure() {
        return Err(error);
    }
    let counted = clients.take();
    Ok(Slice {
        clients: 0,
        variant,
        round: 0,
        start_ns: clients.shared.slot_start_ns.load(Ordering::Relaxed),
        length_ns,
        operations: counted.operations,
        buckets: counted.buckets,
        latency: counted.latency,
        used,
    })
}

/// Counters of the machine and of the server.
async fn counters(
    link: &Link,
    facts: &ServerFacts,
    probe: &mut dyn FnMut(&ServerFacts) -> Counters,
) -> Counters {
    let mut counters = probe(facts);
    let Ok(status) = link.command("admin", doc! { "serverStatus": 1 }, "read the status").await else {
        return counters;
    };
    let section = |path: &[&str]| -> Option<Document> {
        let mut at = status.clone();
        for key in path {
            at = at.get_document(key).ok()?.clone();
        }
        Some(at)
    };
    if let Some(info) = section(&["extra_info"]) {
        let us = whole(&info, "user_time_us").zip(whole(&info, "system_time_us"));
        counters.server_cpu_ns =
            us.map(|(user, system)| (user + system).saturating_mul(1_000)).or(counters.server_cpu_ns);
    }
    let data = section(&["wiredTiger", "block-manager"]).and_then(|section| whole(&section, "bytes written"));
    let journal = section(&["wiredTiger", "log"]).and_then(|section| whole(&section, "log bytes written"));
    counters.written_bytes = data.map(|data| data + journal.unwrap_or(0));
    if let Some(locks) = section(&["locks"]) {
        let sum = |key: &str| {
            let kinds = locks.values().filter_map(Bson::as_document);
            let of = |kind: &Document| -> u64 {
                let modes = kind.get_document(key).ok();
                modes.map_or(0, |modes| modes.keys().filter_map(|mode| whole(modes, mode)).sum())
            };
            kinds.map(of).sum()
        };
        counters.lock_wait_us = Some(sum("timeAcquiringMicros"));
        counters.lock_waits = Some(sum("acquireWaitCount"));
    }
    counters
}

async fn go_on(
    server: &Server,
    what: &Measurement,
    time: Duration,
    was: Option<&State>,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<LongRun> {
    let (link, variant) = (server.link(), what.variants.last().copied());
    let count = what.clients.last().copied().unwrap_or(1);
    let mut long = LongRun { clients: count, variant, confidence: what.confidence, ..LongRun::default() };
    let clients = Clients::start(link, what, count, Instant::now());
    let result = async {
        if let (Some(was), Some(variant)) = (was, variant) {
            let now = control::settings(link, server.info(), &what.database).await?;
            set(link, &what.database, &settings_of(was, variant), &now).await?;
        }
        if stop.sleep(SETTLE).await {
            return Err(Error::Stopped);
        }
        clients.failure();
        clients.open(1);
        let start = Instant::now();
        let mut first = None;
        let mut said = 0;
        let mut buckets: Vec<u64> = Vec::new();
        while start.elapsed() < time && !stop.is_set() {
            stop.sleep(LOOK.min(time.saturating_sub(start.elapsed()))).await;
            if let Some(error) = clients.failure() {
                return Err(error);
            }
            if long.wrapped_ns.is_none() && was.is_some() {
                let oldest = oldest_record(link, &what.database).await?;
                // Of an empty collection the first document is the first that there will be.
                match (first, oldest) {
                    (None, Some(oldest)) => first = Some(oldest),
                    (Some(first), Some(oldest)) if oldest != first => {
                        long.wrapped_ns = Some(since(start));
                        progress(Progress::Wrapped);
                    }
                    _ => {}
                }
            }
            let counted = clients.take();
            if buckets.len() < counted.buckets.len() {
                buckets.resize(counted.buckets.len(), 0);
            }
            buckets.iter_mut().zip(&counted.buckets).for_each(|(all, new)| *all += new);
            let whole_seconds = (since(start) / 1_000_000_000) as usize;
            while said < whole_seconds {
                let per = (1_000_000_000 / BUCKET_NS) as usize;
                let of = buckets.iter().skip(said * per).take(per).sum();
                progress(Progress::Second(of));
                long.seconds.push(of);
                said += 1;
            }
        }
        clients.close();
        long.profile_bytes = control::fill(link, &what.database).await?.and_then(|fill| fill.max_bytes);
        if stop.is_set() { Err(Error::Stopped) } else { Ok(()) }
    }
    .await;
    clients.end().await;
    result.map(|()| long)
}

/// Identifies the oldest document of `system.profile`: its record id, or its time if there are no record ids.
async fn oldest_record(link: &Link, database: &str) -> Result<Option<i64>> {
    let options = CollectionOptions::builder().selection_criteria(link.criteria.clone()).build();
    let collection = link.client.database(database).collection_with_options::<Document>(COLLECTION, options);
    let find = collection
        .find(doc! {})
        .sort(doc! { "$natural": 1 })
        .limit(1)
        .projection(doc! { "ts": 1 })
        .show_record_id(true);
    let wrong = |error: &mongodb::error::Error| link.error("look at the oldest document", "dbAdmin", error);
    let cursor = match find.await {
        Err(error) => {
            let error = wrong(&error);
            return if error.code() == Some(NAMESPACE_NOT_FOUND) { Ok(None) } else { Err(error) };
        }
        Ok(cursor) => cursor,
    };
    let found: Vec<Document> = cursor.try_collect().await.map_err(|error| wrong(&error))?;
    Ok(found.first().and_then(|document| {
        let record = document.get_i64("$recordId").ok();
        record.or_else(|| Some(document.get_datetime("ts").ok()?.timestamp_millis()))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_those_of_sysbench() {
        let document = document(7, &mut SplitMix64(1), 100);
        assert_eq!(document.get_i32("_id").unwrap(), 7);
        assert!((0..100).contains(&document.get_i32("k").unwrap()));
        // sysbench's c_value_template has ten groups of eleven digits, pad_value_template five.
        let c = document.get_str("c").unwrap();
        assert_eq!((c.len(), c.split('-').count()), (119, 10));
        assert!(c.split('-').all(|group| group.len() == 11 && group.bytes().all(|b| b.is_ascii_digit())));
        assert_eq!(document.get_str("pad").unwrap().len(), 59);
    }

    #[test]
    fn a_setting_changes_only_what_it_is_about() {
        let was = State {
            settings: Settings { slow_ms: Some(50), rate_limit: Some(3), ..Settings::default() },
            ..State::default()
        };
        let two = settings_of(&was, Variant { level: 2, rate_limit: None });
        assert_eq!((two.level, two.slow_ms, two.rate_limit), (2, Some(50), Some(3)));
        let limited = settings_of(&was, Variant { level: 2, rate_limit: Some(100) });
        assert_eq!(limited.rate_limit, Some(100));
    }
}
