//! Where the metrics that figures need stand in the samples of a chunk.

use std::sync::Arc;

use hashbrown::HashMap;
use sonar_core::internals::{
    DiskSample, Member, Metric, MountSample, ServerBounds, ServerDescription, ServerSample,
};

use super::chunk::{ChunkLimits, MetricChunk};
use super::description::{describe, number_rule};
use super::error::ChunkError;
use super::schema::{MetricKind, Schema};

/// Roles that a sharded server of 8.0 and later puts in front of its collectors' names.
const ROLES: [&str; 3] = ["common.", "shard.", "router."];
/// The most disks, mounts and members that are read.
const MAX_ITEMS: usize = 1_024;

/// The path without the role of a sharded server.
pub fn without_role(path: &str) -> &str {
    ROLES.iter().find_map(|role| path.strip_prefix(role)).unwrap_or(path)
}

/// Counters of a disk, in the order of its columns.
const DISK: [&str; 7] =
    ["reads", "writes", "read_time_ms", "write_time_ms", "io_time_ms", "io_queued_ms", "io_in_progress"];
const MOUNT: [&str; 2] = ["capacity", "free"];
const MEMBER: [&str; 4] = ["state", "health", "self", "optimeDate"];

/// The columns of one disk, mount or member; `None` for what the server does not report.
#[derive(Clone, Debug)]
struct LayoutItem<const N: usize> {
    name: Arc<str>,
    columns: [Option<usize>; N],
}

/// Where the metrics stand in the columns that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleLayout {
    /// For each number of the schema whether it has a column.
    pub wanted: Vec<bool>,
    /// Metric and its column.
    metrics: Vec<(Metric, usize, MetricKind)>,
    disks: Vec<LayoutItem<7>>,
    mounts: Vec<LayoutItem<2>>,
    members: Vec<LayoutItem<4>>,
}

impl SampleLayout {
    pub fn new(schema: &Schema) -> Self {
        let known: HashMap<&str, Metric, foldhash::fast::FixedState> = Metric::ALL
            .iter()
            .flat_map(|metric| metric.paths().iter().map(|path| (*path, *metric)))
            .collect();
        let mut layout = Self { wanted: vec![false; schema.metrics.len()], ..Self::default() };
        let (mut column, time) = (0, schema.time_place());
        for (place, metric) in schema.metrics.iter().enumerate() {
            let path = without_role(&metric.path);
            let found = match known.get(path) {
                _ if time == Some(place) => Some(&Metric::Start),
                Some(Metric::Start) => None,
                found => found,
            };
            let is_used = if let Some(found) = found {
                // Of a timestamp the seconds; of names that come twice the first.
                let is_first = layout.metrics.iter().all(|(other, ..)| other != found);
                // Below a role stand the times of its collectors, not those of the sample.
                let is_own = path == metric.path || *found != Metric::End;
                let is_used = metric.kind != MetricKind::TimestampIncrement && is_first && is_own;
                if is_used {
                    layout.metrics.push((*found, column, metric.kind));
                }
                is_used
            } else if let Some((name, field)) = item(path, "systemMetrics.disks.", &DISK) {
                note(&mut layout.disks, name, field, column)
            } else if let Some((name, field)) = item(path, "systemMetrics.mounts.", &MOUNT) {
                note(&mut layout.mounts, name, field, column)
            } else if let Some((name, field)) = item(path, "replSetGetStatus.members.", &MEMBER) {
                note(&mut layout.members, name, field, column)
            } else {
                false
            };
            if is_used {
                layout.wanted[place] = true;
                column += 1;
            }
        }
        layout
    }

    /// The bytes that it takes, names included.
    fn bytes(&self) -> usize {
        fn of<const N: usize>(items: &[LayoutItem<N>]) -> usize {
            items
                .iter()
                .map(|item| size_of::<LayoutItem<N>>() + item.name.len() + 2 * size_of::<usize>())
                .sum()
        }
        let metrics = self.metrics.len() * size_of::<(Metric, usize, MetricKind)>();
        self.wanted.len() + metrics + of(&self.disks) + of(&self.mounts) + of(&self.members)
    }

    /// Sets a sample to a row of the wanted columns.
    pub fn fill(&self, columns: &[&[i64]], row: usize, sample: &mut ServerSample) {
        let value = |column: usize| columns.get(column).and_then(|values| values.get(row)).copied();
        for (metric, column, kind) in &self.metrics {
            sample.set(*metric, value(*column).filter(|value| kind.is_known(*value)));
        }
        let cell = |column: Option<usize>| column.and_then(value).unwrap_or(0);
        sample.disks.clear();
        sample.disks.extend(self.disks.iter().map(|disk| {
            let [reads, writes, read_ms, write_ms, busy_ms, queued_ms, in_flight] = disk.columns.map(cell);
            DiskSample {
                name: disk.name.clone(),
                operations: reads.saturating_add(writes),
                time_ms: read_ms.saturating_add(write_ms),
                busy_ms,
                queued_ms,
                in_flight,
            }
        }));
        sample.mounts.clear();
        sample.mounts.extend(self.mounts.iter().map(|mount| {
            let [capacity, free] = mount.columns.map(cell);
            MountSample { path: mount.name.clone(), capacity, free }
        }));
        sample.members.clear();
        sample.members.extend(self.members.iter().map(|member| {
            let [state, health, own, optime_ms] = member.columns.map(cell);
            Member { state, healthy: health != 0, is_self: own != 0, optime_ms }
        }));
    }
}

/// The name and the number of the field of a path `PREFIX NAME.FIELD`. Names hold dots.
fn item<'a, const N: usize>(path: &'a str, prefix: &str, fields: &[&str; N]) -> Option<(&'a str, usize)> {
    let (name, field) = path.strip_prefix(prefix)?.rsplit_once('.')?;
    Some((name, fields.iter().position(|known| *known == field)?))
}

/// Notes the column of a field of an item; false if it is known already, or there are too many items.
fn note<const N: usize>(items: &mut Vec<LayoutItem<N>>, name: &str, field: usize, column: usize) -> bool {
    // The fields of an item follow each other.
    let is_new = items.last().is_none_or(|last| &*last.name != name);
    if is_new && items.len() < MAX_ITEMS {
        items.push(LayoutItem { name: name.into(), columns: [None; N] });
    }
    match items.last_mut() {
        Some(last) if &*last.name == name && last.columns[field].is_none() => {
            last.columns[field] = Some(column);
            true
        }
        _ => false,
    }
}

/// Keeps the mount that a folder is on: others fill up without harm, and an image that can only be read is always full.
fn keep_mount_of(folder: &str, mounts: &mut Vec<MountSample>) {
    let holds = |mount: &MountSample| {
        let rest = folder.strip_prefix(mount.path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let longest = mounts.iter().filter(|mount| holds(mount)).max_by_key(|mount| mount.path.len()).cloned();
    mounts.clear();
    mounts.extend(longest);
}

/// Reads the samples of chunks.
#[derive(Debug, Default)]
pub struct SampleReader {
    chunk: MetricChunk,
    /// The layouts of the last schemas, the newest at the end.
    layouts: Vec<(Arc<Schema>, SampleLayout)>,
    sample: ServerSample,
    data_folder: Option<String>,
    bounds: ServerBounds,
}

impl SampleReader {
    /// Refuses chunks that pass these limits.
    pub fn new(limits: ChunkLimits) -> Self {
        Self { chunk: MetricChunk::new(limits), ..Self::default() }
    }

    /// Gives back the buffers of the last chunk. What was learned of the schemas stays.
    pub fn release(&mut self) {
        self.chunk.release();
        self.sample = ServerSample::default();
    }

    /// Forgets the schemas; the next chunks bring theirs again.
    pub fn forget_schemas(&mut self) {
        self.chunk.forget_schemas();
        self.layouts.clear();
    }

    #[cfg(test)]
    pub(super) fn chunk_schema_bytes(&self) -> usize {
        self.chunk.schema_bytes()
    }

    /// The bytes of the schemas that are kept, and of where their metrics stand.
    pub fn schema_bytes(&self) -> usize {
        let layouts: usize = self.layouts.iter().map(|(_, layout)| layout.bytes()).sum();
        self.chunk.schema_bytes() + layouts
    }

    /// Takes the metadata of the server that wrote the next chunks, and returns what they say.
    pub fn metadata(&mut self, metadata: &[u8]) -> ServerDescription {
        let server = describe(metadata);
        self.chunk.set_rule(number_rule(metadata));
        self.set_data_folder(server.dbpath.clone());
        self.bounds = ServerBounds {
            memory_kib: server.memory_limit_mib.filter(|mib| *mib > 0).and_then(|mib| mib.checked_mul(1_024)),
            processors: server.processors_available.filter(|count| *count > 0),
        };
        server
    }

    /// Where the server has its data: of the mounts, samples keep the one that this folder is on.
    pub(super) fn set_data_folder(&mut self, folder: Option<String>) {
        self.data_folder = folder;
    }

    /// Reads the data of a chunk and hands out its samples, oldest first.
    ///
    /// # Errors
    /// If the chunk is damaged: then none of its samples was handed out.
    pub fn read(&mut self, data: &[u8], each: impl FnMut(&ServerSample)) -> Result<(), ChunkError> {
        self.read_from(data, 0, each).map(drop)
    }

    /// As [`read`](Self::read), without the first `known` samples. Returns how many the chunk has.
    ///
    /// # Errors
    /// If the chunk is damaged: then none of its samples was handed out.
    pub fn read_from(
        &mut self,
        data: &[u8],
        known: usize,
        mut each: impl FnMut(&ServerSample),
    ) -> Result<usize, ChunkError> {
        self.chunk.read(data)?;
        self.choose_layout();
        let samples = self.chunk.samples();
        let Some((_, layout)) = self.layouts.last() else { return Ok(samples) };
        let columns = self.chunk.columns(&layout.wanted)?;
        let columns: Vec<&[i64]> = columns.iter().collect();
        self.sample.bounds = self.bounds;
        for row in known..samples {
            layout.fill(&columns, row, &mut self.sample);
            if let Some(folder) = &self.data_folder {
                keep_mount_of(folder, &mut self.sample.mounts);
            }
            each(&self.sample);
        }
        Ok(samples)
    }

    /// Puts the layout of the chunk at the end.
    fn choose_layout(&mut self) {
        let schema = self.chunk.schema();
        if self.layouts.last().is_some_and(|(last, _)| Arc::ptr_eq(last, schema)) {
            return;
        }
        let layout = match self.layouts.iter().position(|(known, _)| Arc::ptr_eq(known, schema)) {
            Some(at) => self.layouts.remove(at).1,
            None => SampleLayout::new(schema),
        };
        self.layouts.push((schema.clone(), layout));
        // A layout would keep a schema that the chunks have forgotten.
        self.layouts.retain(|(kept, _)| Arc::ptr_eq(kept, schema) || self.chunk.keeps(kept));
        self.sample = ServerSample::default();
    }
}
