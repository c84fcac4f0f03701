//! A load like sysbench's, to measure what profiling costs.
//!
//! It changes a server: it creates a database, sets the profiling level of that database and, on request, Percona
//! Server's rate limit. At the end it undoes all of it, however it ends.

mod clients;
mod measurement;
mod meter;

use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::IndexModel;
use mongodb::options::IndexOptions;
use sonar_core::impact::{BUCKET_NS, ImpactRun, LoadSlice, LongRun, SplitMix64, Variant, alternation};

use self::clients::{IDLE, LoadClients, document, since, table};
use self::meter::Meter;
use crate::error::{NAMESPACE_NOT_FOUND, Result, ServerError};
use crate::profiler::{self, COLLECTION, ProfilerSettings, ProfilerState};
use crate::server::{Link, Server};
use crate::stop::StopFlag;

pub use self::measurement::{DOCUMENTS, Measurement};
pub use self::meter::{MachineProbe, ServerFacts};

/// Time after each change of a setting, which is not measured.
const SETTLE: Duration = Duration::from_millis(300);
/// The most lost slices before the measurement is abandoned.
const LOST_SLICES: u32 = 10;
/// How often a long run checks whether the collection wraps.
const LOOK: Duration = Duration::from_millis(500);
/// Buckets of a second.
const SECOND: usize = (1_000_000_000 / BUCKET_NS) as usize;

/// The progress of a measurement.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The table is being filled: this many of this many documents.
    Filling(u32, u32),
    /// A slice was measured, this many of this many.
    Measured(&'a LoadSlice, usize, usize),
    /// A second of a long run passed with this many operations.
    Second(u64),
    /// `system.profile` began to wrap.
    Wrapped,
    /// A slice was lost and will be measured again.
    Again(&'a ServerError),
    /// Everything is being undone.
    Cleaning,
    /// It cannot be undone yet; it will be tried again.
    CannotClean(&'a ServerError),
}

impl Server {
    /// Measures what settings of the profiler cost, in alternation. When it returns, with a result or an error, it
    /// has undone everything that it created or changed.
    ///
    /// # Errors
    /// The database exists, the server has no profiler (unless all levels are 0), it was stopped, or the server
    /// failed. If it could not undo everything, that is the error.
    pub fn measure(
        &self,
        what: &Measurement,
        stop: &StopFlag,
        probe: MachineProbe<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<ImpactRun> {
        let job = LoadJob::new(self, what, stop, progress)?;
        job.run(|job| {
            self.runtime().block_on(async {
                let mut meter = Meter::new(self.link(), probe).await;
                job.alternate(&mut meter).await
            })
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
        stop: &StopFlag,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<LongRun> {
        let job = LoadJob::new(self, what, stop, progress)?;
        job.run(|job| self.runtime().block_on(job.measure_long(time)))
    }
}

/// A measurement in progress.
struct LoadJob<'a> {
    server: &'a Server,
    what: &'a Measurement,
    /// The former profiler of the database; `None` if the server has no profiler.
    was: Option<ProfilerState>,
    stop: &'a StopFlag,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl<'a> LoadJob<'a> {
    /// Checks the server, and changes nothing.
    fn new(
        server: &'a Server,
        what: &'a Measurement,
        stop: &'a StopFlag,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> Result<Self> {
        if server.databases()?.iter().any(|name| name.eq_ignore_ascii_case(&what.database)) {
            return Err(ServerError::DatabaseExists(what.database.clone()));
        }
        // Without a profiler only level 0 can be compared with level 0.
        let profiled = what.variants.iter().any(|variant| variant.level != 0);
        let was = match server.profiler(&what.database) {
            Ok(state) => Some(state),
            Err(ServerError::NoProfiler(_)) if !profiled => None,
            Err(error) => return Err(error),
        };
        if what.variants.iter().any(|variant| variant.rate_limit.is_some())
            && was.as_ref().is_none_or(|was| was.settings.rate_limit.is_none())
        {
            return Err(ServerError::NotSupported {
                server: server.info().address.clone(),
                version: server.info().version.clone(),
                what: "profiler rateLimit",
                since: "Percona Server for MongoDB",
            });
        }
        Ok(Self { server, what, was, stop, progress })
    }

    /// Creates the database, does `work`, and undoes everything.
    fn run<T>(mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let filled = self.server.runtime().block_on(self.fill());
        let result = filled.and_then(|()| work(&mut self));
        let stopped = self.stop.is_set();
        (self.progress)(Progress::Cleaning);
        self.undo()?;
        if stopped && result.is_ok() { Err(ServerError::Stopped) } else { result }
    }

    fn link(&self) -> &'a Link {
        self.server.link()
    }

    /// Restores the profiler and drops the database. While the connection is lost it tries again, until the next
    /// request to stop.
    fn undo(&mut self) -> Result<()> {
        let (server, stop) = (self.server, self.stop.later());
        let mut wait = Duration::from_millis(250);
        loop {
            let undone = server.runtime().block_on(async {
                if let Some(was) = &self.was {
                    self.set(&was.settings).await?;
                }
                self.command(doc! { "dropDatabase": 1 }, &format!("drop {}", self.what.database)).await
            });
            match undone {
                Err(error) if error.is_passing() && !stop.is_set() => {
                    (self.progress)(Progress::CannotClean(&error));
                    server.wait(wait, &stop);
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                done => return done,
            }
        }
    }

    /// Runs a command on the database.
    async fn command(&self, command: Document, what: &str) -> Result<()> {
        self.link().command_as(&self.what.database, command, what, "dbAdmin").await.map(drop)
    }

    /// Sets the profiler.
    async fn set(&self, settings: &ProfilerSettings) -> Result<()> {
        let now = profiler::settings(self.link(), self.server.info(), &self.what.database).await?;
        let what = format!("set the profiler of {}", self.what.database);
        self.command(settings.command(&now), &what).await
    }

    /// Sets a variant, and lets it settle.
    async fn apply(&self, variant: Option<Variant>, clients: &LoadClients) -> Result<()> {
        if let Some((was, variant)) = self.was.as_ref().zip(variant) {
            self.set(&settings_of(was, variant)).await?;
        }
        if self.stop.sleep(SETTLE).await {
            return Err(ServerError::Stopped);
        }
        // Errors during the change of a setting are not part of the slice.
        clients.failure();
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        let (link, what) = (self.link(), self.what);
        let wrong =
            |error: mongodb::error::Error| link.error("fill the table", "readWriteAnyDatabase", &error);
        let table = table(link, &what.database);
        let mut random = SplitMix64(what.seed);
        let mut id = 0;
        while id < what.documents {
            if self.stop.is_set() {
                return Err(ServerError::Stopped);
            }
            let end = (id + 1_000).min(what.documents);
            let batch: Vec<_> = (id..end).map(|id| document(id, &mut random, what.documents)).collect();
            table.insert_many(batch).await.map_err(wrong)?;
            id = end;
            (self.progress)(Progress::Filling(id, what.documents));
        }
        let index = IndexModel::builder()
            .keys(doc! { "k": 1 })
            .options(IndexOptions::builder().name("k_1".to_owned()).build())
            .build();
        table.create_index(index).await.map_err(wrong)?;
        if let (Some(_), Some(bytes)) = (&self.was, what.profile_bytes) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            let create = doc! { "create": COLLECTION, "capped": true, "size": bytes };
            self.command(create, "make system.profile").await?;
        }
        Ok(())
    }

    /// Measures each variant with each number of clients.
    async fn alternate(&mut self, meter: &mut Meter<'_>) -> Result<ImpactRun> {
        let (what, begin) = (self.what, Instant::now());
        let mut run = ImpactRun {
            variants: what.variants.clone(),
            slices: Vec::new(),
            confidence: what.confidence,
            processors: None,
        };
        let all = what.clients.len() * what.rounds * what.variants.len();
        let (mut slot, mut lost) = (IDLE, 0);
        for (at, count) in what.clients.iter().enumerate() {
            let clients = LoadClients::start(self.link(), what, *count, begin);
            let seed = what.seed.wrapping_add(at as u64);
            let rounds = alternation(what.variants.len(), what.rounds, seed).into_iter().enumerate();
            let mut turns = rounds.flat_map(|(round, order)| order.into_iter().map(move |of| (round, of)));
            let mut turn = turns.next();
            let mut failed = None;
            while let Some((round, variant)) = turn {
                slot = slot.wrapping_add(1).max(1);
                match self.slice(&clients, slot, variant, meter).await {
                    Ok(slice) => {
                        let slice = LoadSlice { clients: *count, round, ..slice };
                        (self.progress)(Progress::Measured(&slice, run.slices.len() + 1, all));
                        run.slices.push(slice);
                        turn = turns.next();
                    }
                    Err(error) if error.is_passing() && lost < LOST_SLICES && !self.stop.is_set() => {
                        lost += 1;
                        (self.progress)(Progress::Again(&error));
                        self.stop.sleep(Duration::from_millis(500)).await;
                    }
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            clients.end().await;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(run)
    }

    async fn slice(
        &self,
        clients: &LoadClients,
        slot: u32,
        variant: usize,
        meter: &mut Meter<'_>,
    ) -> Result<LoadSlice> {
        self.apply(self.what.variants.get(variant).copied(), clients).await?;
        let before = meter.read().await;
        clients.open(slot);
        let start = Instant::now();
        let stopped = self.stop.sleep(self.what.slice).await;
        clients.close();
        let length_ns = since(start);
        let used = meter.read().await.since(&before);
        if stopped {
            return Err(ServerError::Stopped);
        }
        if let Some(error) = clients.failure() {
            return Err(error);
        }
        let counted = clients.take();
        Ok(LoadSlice {
            clients: 0,
            variant,
            round: 0,
            start_ns: clients.slice_start_ns(),
            length_ns,
            operations: counted.operations,
            buckets: counted.buckets,
            latency: counted.latency,
            used,
        })
    }

    async fn measure_long(&mut self, time: Duration) -> Result<LongRun> {
        let count = self.what.clients.last().copied().unwrap_or(1);
        let clients = LoadClients::start(self.link(), self.what, count, Instant::now());
        let variant = self.what.variants.last().copied();
        let mut long =
            LongRun { clients: count, variant, confidence: self.what.confidence, ..LongRun::default() };
        let result = self.long_slice(&clients, time, &mut long).await;
        clients.end().await;
        result.map(|()| long)
    }

    async fn long_slice(&mut self, clients: &LoadClients, time: Duration, long: &mut LongRun) -> Result<()> {
        self.apply(long.variant, clients).await?;
        clients.open(1);
        let start = Instant::now();
        let mut first = None;
        let mut buckets: Vec<u64> = Vec::new();
        while start.elapsed() < time && !self.stop.is_set() {
            self.stop.sleep(LOOK.min(time.saturating_sub(start.elapsed()))).await;
            if let Some(error) = clients.failure() {
                return Err(error);
            }
            if long.wrapped_ns.is_none() && self.was.is_some() {
                let oldest = oldest_record(self.link(), &self.what.database).await?;
                // An empty collection has no document yet: the first one to come is the oldest.
                match (first, oldest) {
                    (None, Some(oldest)) => first = Some(oldest),
                    (Some(first), Some(oldest)) if oldest != first => {
                        long.wrapped_ns = Some(since(start));
                        (self.progress)(Progress::Wrapped);
                    }
                    _ => {}
                }
            }
            let counted = clients.take();
            if buckets.len() < counted.buckets.len() {
                buckets.resize(counted.buckets.len(), 0);
            }
            buckets.iter_mut().zip(&counted.buckets).for_each(|(all, new)| *all += new);
            while (long.seconds.len() as u64) < start.elapsed().as_secs() {
                let operations = buckets.iter().skip(long.seconds.len() * SECOND).take(SECOND).sum();
                (self.progress)(Progress::Second(operations));
                long.seconds.push(operations);
            }
        }
        clients.close();
        let fill = profiler::fill(self.link(), &self.what.database).await?;
        long.profile_bytes = fill.and_then(|fill| fill.max_bytes);
        if self.stop.is_set() { Err(ServerError::Stopped) } else { Ok(()) }
    }
}

/// The settings of a variant on this server.
fn settings_of(was: &ProfilerState, variant: Variant) -> ProfilerSettings {
    ProfilerSettings {
        level: variant.level,
        rate_limit: variant.rate_limit.or(was.settings.rate_limit),
        ..was.settings.clone()
    }
}

/// Identifies the oldest document of `system.profile`: its record id, or its time if there are no record ids.
async fn oldest_record(link: &Link, database: &str) -> Result<Option<i64>> {
    let collection = link.collection::<Document>(database, COLLECTION);
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
    fn a_variant_changes_only_its_own_settings() {
        let was = ProfilerState {
            settings: ProfilerSettings {
                slow_ms: Some(50),
                rate_limit: Some(3),
                ..ProfilerSettings::default()
            },
            ..ProfilerState::default()
        };
        let two = settings_of(&was, Variant { level: 2, rate_limit: None });
        assert_eq!((two.level, two.slow_ms, two.rate_limit), (2, Some(50), Some(3)));
        let limited = settings_of(&was, Variant { level: 2, rate_limit: Some(100) });
        assert_eq!(limited.rate_limit, Some(100));
    }
}
