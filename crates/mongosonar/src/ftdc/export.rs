//! `ftdc export`: any metric of every sample.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use sonar_core::internals::{Metric, SampleKey};
use sonar_decode::ftdc::{ChunkError, MetricChunk, MetricKind, Schema, describe, number_rule, without_role};
use sonar_view::ftdc::export::{self, ExportCsv, ExportSample, ExportSeries, MetricValues};
use sonar_view::kit::json::line;

use super::args::{ExportFormat, FtdcExportArgs};
use super::input::{self, ChunkSink, Repetitions, SampleRange};
use crate::stop::{self, StopBehavior};

/// The most values that OpenMetrics keeps in memory: it lists metric after metric, a file sample after sample.
const MAX_VALUES: usize = 20_000_000;
/// The most different metrics.
const MAX_NAMES: usize = 1 << 20;

/// Which metrics.
struct Patterns(Vec<String>);

impl Patterns {
    /// Whether a pattern selects the path: the path itself, a parent of it, or a text in which `*` stands for anything.
    fn contain(&self, path: &str) -> bool {
        let matches = |pattern: &String| {
            [path, without_role(path)].into_iter().any(|path| match pattern.contains('*') {
                true => is_match(pattern, path),
                false => path
                    .strip_prefix(pattern.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
            })
        };
        self.0.is_empty() || self.0.iter().any(matches)
    }
}

/// Whether a text is a pattern in which `*` stands for any text.
fn is_match(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// Names of the metrics of all files, each with its column.
#[derive(Default)]
struct MetricNames {
    columns: HashMap<String, usize>,
    names: Vec<String>,
}

impl MetricNames {
    fn column(&mut self, name: &str) -> Result<usize> {
        if let Some(column) = self.columns.get(name) {
            return Ok(*column);
        }
        if self.names.len() == MAX_NAMES {
            bail!("more than {MAX_NAMES} different metrics: choose some with --metric");
        }
        self.columns.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }
}

/// The metrics of a schema that are wanted.
#[derive(Default)]
struct Selected {
    schema: Arc<Schema>,
    wanted: Vec<bool>,
    /// The column of each metric that is wanted; `None` for those that are only needed to tell samples apart.
    columns: Vec<Option<usize>>,
    kinds: Vec<MetricKind>,
    /// Places of time and process among the wanted.
    time: Option<usize>,
    pid: Option<usize>,
    /// Which of the wanted are among those of the figures, which tell samples apart.
    telling: Vec<bool>,
}

impl Selected {
    fn new(schema: &Arc<Schema>, patterns: &Patterns, names: &mut MetricNames) -> Result<Self> {
        let mut selected = Self { schema: schema.clone(), ..Self::default() };
        let mut times: HashMap<String, u32> = HashMap::new();
        let figures: HashSet<&str> = Metric::ALL.iter().flat_map(|metric| metric.paths()).copied().collect();
        let time = schema.time_place();
        for (at, metric) in schema.metrics.iter().enumerate() {
            let path = without_role(&metric.path);
            let is_time = time == Some(at);
            let is_pid = path == "serverStatus.pid" && selected.pid.is_none();
            let is_telling = is_time || figures.contains(path);
            let is_wanted = patterns.contain(&metric.path);
            selected.wanted.push(is_wanted || is_telling);
            if !(is_wanted || is_telling) {
                continue;
            }
            let place = selected.columns.len();
            selected.time = selected.time.or(is_time.then_some(place));
            selected.pid = selected.pid.or(is_pid.then_some(place));
            selected.telling.push(is_telling);
            selected.kinds.push(metric.kind);
            selected.columns.push(match is_wanted {
                true => Some(names.column(&unique(metric.kind, &metric.path, &mut times))?),
                false => None,
            });
        }
        Ok(selected)
    }
}

/// The name of a metric, different from all others of its sample.
fn unique(kind: MetricKind, path: &str, times: &mut HashMap<String, u32>) -> String {
    let name = match kind {
        MetricKind::TimestampIncrement => format!("{path}.increment"),
        _ => path.to_owned(),
    };
    let count = times.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
    if *count == 1 { name } else { format!("{name}#{count}") }
}

/// Goes through the samples of all files.
struct Walk<'a, F> {
    chunk: MetricChunk,
    patterns: &'a Patterns,
    names: &'a mut MetricNames,
    selected: Selected,
    range: SampleRange,
    repetitions: Repetitions,
    /// Which server it is, for OpenMetrics.
    instance: &'a mut String,
    rows: u64,
    outside: u64,
    /// Chunks that were read, and samples that were saved by themselves.
    chunks: u64,
    /// Values are of no interest, only names.
    names_only: bool,
    each: F,
}

impl<F: FnMut(&ExportSample<'_>) -> Result<()>> ChunkSink for Walk<'_, F> {
    fn metadata(&mut self, _: &Path, metadata: &[u8]) -> Result<()> {
        let server = describe(metadata);
        self.chunk.set_rule(number_rule(metadata));
        let host = server.host.unwrap_or_default();
        *self.instance = match server.port {
            Some(port) if !host.contains(':') => format!("{host}:{port}"),
            _ => host,
        };
        Ok(())
    }

    fn chunk(&mut self, data: &[u8]) -> Result<Result<(), ChunkError>> {
        match self.chunk.read(data) {
            Ok(()) => self.rows_of_chunk(),
            Err(error) => Ok(Err(error)),
        }
    }

    fn sample(&mut self, document: &[u8]) -> Result<Result<(), ChunkError>> {
        match self.chunk.read_sample(document) {
            Ok(()) => self.rows_of_chunk(),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl<F: FnMut(&ExportSample<'_>) -> Result<()>> Walk<'_, F> {
    /// Hands out the samples of the chunk that was read.
    fn rows_of_chunk(&mut self) -> Result<Result<(), ChunkError>> {
        self.chunks += 1;
        if !Arc::ptr_eq(self.chunk.schema(), &self.selected.schema) {
            self.selected = Selected::new(self.chunk.schema(), self.patterns, self.names)?;
        }
        if self.names_only || self.selected.columns.iter().all(Option::is_none) {
            return Ok(Ok(()));
        }
        let (samples, selected) = (self.chunk.samples(), &self.selected);
        let columns: Vec<&[i64]> = match self.chunk.columns(&selected.wanted) {
            Ok(columns) => columns.iter().collect(),
            Err(error) => return Ok(Err(error)),
        };
        let value =
            |place: Option<usize>, row: usize| place.and_then(|place| columns.get(place)?.get(row)).copied();
        let mut cells = Vec::new();
        for row in 0..samples {
            let time_ms = value(selected.time, row);
            if !time_ms.map_or(self.range.is_all(), |time_ms| self.range.contains(time_ms)) {
                self.outside += 1;
                continue;
            }
            let telling = columns.iter().zip(&selected.telling).filter(|(_, is_telling)| **is_telling);
            let telling = telling.filter_map(|(values, _)| values.get(row).copied());
            let pid = value(selected.pid, row).unwrap_or(0);
            // Samples without a time cannot be recognised.
            if let Some(time_ms) = time_ms
                && !self.repetitions.is_new(SampleKey::new(pid, time_ms, telling))
            {
                continue;
            }
            self.rows += 1;
            cells.clear();
            for ((column, values), kind) in selected.columns.iter().zip(&columns).zip(&selected.kinds) {
                let value = values.get(row).copied().filter(|value| kind.is_known(*value));
                cells.extend(column.map(|column| (column, value)));
            }
            let metrics = MetricValues { names: &self.names.names, values: &cells };
            (self.each)(&ExportSample { time_ms, metrics })?;
        }
        Ok(Ok(()))
    }
}

/// Runs the command; returns the exit code.
pub fn run(args: &FtdcExportArgs) -> Result<u8> {
    let stop = stop::listen(StopBehavior::Prompt)?;
    let files = input::files(&args.paths)?;
    let range = SampleRange::of(&args.range, &sonar_view::kit::Zone::utc())?;
    let patterns = Patterns(args.metric.clone());
    let (mut names, mut instance) = (MetricNames::default(), String::new());
    let format = args.form.format();
    if matches!(format, ExportFormat::Csv | ExportFormat::List) {
        // The line of names comes first, so the files are read twice.
        files.iter().try_for_each(|file| crate::input::make_rereadable(file, stop.flag()))?;
    }
    let mut pass = |names_only: bool, each: &mut dyn FnMut(&ExportSample<'_>) -> Result<()>| {
        let mut walk = Walk {
            chunk: MetricChunk::default(),
            patterns: &patterns,
            names: &mut names,
            selected: Selected::default(),
            range,
            repetitions: Repetitions::default(),
            instance: &mut instance,
            rows: 0,
            outside: 0,
            chunks: 0,
            names_only,
            each,
        };
        let mut reading = input::read(&files, stop.flag(), &mut walk)?;
        reading.samples_outside = walk.outside;
        if walk.names.names.is_empty() && walk.chunks > 0 {
            bail!(
                "no metric matches --metric; * stands for any text, as in '*opcounters*', and --list shows all paths"
            );
        }
        if walk.rows == 0 && !names_only {
            return Err(input::no_sample(&args.paths, &reading));
        }
        Ok(reading)
    };
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout());
    let reading = match format {
        ExportFormat::Json => pass(false, &mut |sample| Ok(line(sample, &mut out)?))?,
        ExportFormat::List => {
            let reading = pass(true, &mut |_| Ok(()))?;
            export::names(&names.names, &mut out)?;
            reading
        }
        ExportFormat::Csv => {
            let mut csv = ExportCsv::default();
            pass(true, &mut |_| Ok(()))?;
            pass(false, &mut |sample| Ok(csv.sample(sample, &mut out)?))?
        }
        ExportFormat::OpenMetrics => {
            let mut series = ExportSeries::default();
            let mut left = MAX_VALUES;
            let reading = pass(false, &mut |sample| {
                left = match left.checked_sub(sample.metrics.values.len()) {
                    Some(left) => left,
                    None => bail!(
                        "more than {MAX_VALUES} values: choose metrics with --metric, or a time with --from and --to"
                    ),
                };
                let Some(time_ms) = sample.time_ms else {
                    bail!("its samples have no time, which OpenMetrics needs: use --json or --csv");
                };
                series.add(time_ms, &sample.metrics);
                Ok(())
            })?;
            series.open_metrics(&names.names, &instance, &mut out)?;
            reading
        }
    };
    out.flush()?;
    Ok(input::exit_code(&reading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_path_its_beginning_or_has_stars() {
        let of = |pattern: &str, path: &str| Patterns(vec![pattern.to_owned()]).contain(path);
        assert!(of("serverStatus.mem", "serverStatus.mem.resident"));
        assert!(of("serverStatus.mem.resident", "serverStatus.mem.resident"));
        assert!(!of("serverStatus.me", "serverStatus.mem.resident"));
        assert!(of("*.opcounters.*", "serverStatus.opcounters.insert"));
        assert!(of("serverStatus.*.insert", "serverStatus.opcounters.insert"));
        assert!(!of("*.insert", "serverStatus.opcounters.inserted"));
        assert!(!of("ab*ba", "aba"), "one text cannot stand for both ends");
        assert!(of("serverStatus.mem", "common.serverStatus.mem.resident"), "without the role");
        assert!(of("common.*", "common.serverStatus.mem.resident"));
        assert!(Patterns(Vec::new()).contain("anything"));
    }
}
