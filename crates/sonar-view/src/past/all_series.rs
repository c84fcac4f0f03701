//! Every stored series of a span over time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use serde::Serialize;
use sonar_core::history::{HistoryWindow, SeriesKey, SeriesMetric, SeriesSubject, Span, metrics};
use ts_rs::TS;

use super::series_sum::SeriesSum;
use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::kit::{About, Zone, ZoneObject, server_address};
use crate::timeline::TimeAxis;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// The most parts of the axis.
const PARTS: usize = 120;
/// The most series that are remembered though they are not shown: whether they fit, and that they were left out.
const MAX_REMEMBERED: usize = 20_000;

/// Which series are shown.
#[derive(Clone, Debug, Default)]
pub struct SeriesFilter {
    /// Only those about this.
    pub subject: Option<SeriesSubject>,
    /// Only those whose name, metric or meaning has each of these words, whatever their case; empty for all.
    pub text: String,
    /// The most series; further ones are counted.
    pub limit: usize,
}

/// Series over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct AllSeriesReport {
    /// Version of the schema.
    pub schema: u32,
    /// `all_series`.
    #[ts(type = "\"all_series\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is the axis.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// What the stored series of this time are about, without the filter.
    pub subjects: BTreeSet<&'static str>,
    /// The series, by subject, metric, server and name.
    pub series: Vec<StoredSeriesJson>,
    /// Series that were left out because there are too many; counted up to 20,000.
    pub left_out: usize,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// A series over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StoredSeriesJson {
    /// What it is about: `machine`, `disk`, `server` …
    pub subject: &'static str,
    /// The stable name of the metric.
    pub metric: String,
    /// What it means; empty if this version does not know it.
    pub meaning: &'static str,
    /// The unit of the values.
    pub unit: &'static str,
    /// The device, interface, file …; empty if there is only one.
    pub name: String,
    /// The port of the server; null if it is not about one.
    pub server: Option<u16>,
    /// Its address with the port, if the port alone is not its name; else missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub address: Option<String>,
    /// Mean of all of the span.
    pub mean: Option<f64>,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// Means of the parts of the axis; null where nothing was observed.
    pub values: Vec<Option<f64>>,
}

impl SeriesFilter {
    /// The filter with its words in lower case.
    fn words(&self) -> Vec<String> {
        self.text.split_whitespace().map(str::to_lowercase).collect()
    }

    fn wants(&self, key: &SeriesKey, words: &[String]) -> bool {
        if self.subject.is_some_and(|subject| subject != key.subject) {
            return false;
        }
        let meaning = metrics::find(&key.metric).map_or("", |metric| metric.meaning);
        let text = format!("{} {} {} {meaning}", key.subject.name(), key.metric, key.name).to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    }
}

/// The series of a span, in at most 120 parts; times in text are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read.
pub fn report(
    history: &HistoryView<'_>,
    span: Span,
    filter: &SeriesFilter,
    zone: &Zone,
) -> Result<AllSeriesReport, PastError> {
    let (span, resolution) = history.in_whole_windows(span);
    let mut sums = SeriesSums::new(TimeAxis::new(span, PARTS, resolution.width_ns()), filter);
    history.visit(span, resolution, &mut |window| sums.add(&window))?;
    let mut about = About::new(None, vec![history.name().to_owned()], Some(span));
    about.host = history.host()?;
    let SeriesSums { subjects, series, left_out, .. } = sums;
    Ok(AllSeriesReport {
        schema: SCHEMA,
        kind: "all_series",
        about,
        zone: ZoneObject::new(zone, [span.from, span.to]),
        subjects,
        left_out: left_out.len(),
        series: series.iter().map(|(key, sum)| StoredSeriesJson::new(key, sum)).collect(),
        gaps: history.gaps(span)?.iter().map(GapJson::from).collect(),
    })
}

/// What the windows of a span have of each series.
struct SeriesSums<'a> {
    axis: TimeAxis,
    filter: &'a SeriesFilter,
    words: Vec<String>,
    hasher: RandomState,
    subjects: BTreeSet<&'static str>,
    series: BTreeMap<SeriesKey, SeriesSum>,
    /// Series beyond the limit, by their hashes.
    left_out: HashSet<u64>,
    /// Whether a series is wanted, by its hash, as far as it was looked at.
    is_wanted: HashMap<u64, bool>,
}

impl<'a> SeriesSums<'a> {
    fn new(axis: TimeAxis, filter: &'a SeriesFilter) -> Self {
        Self {
            axis,
            filter,
            words: filter.words(),
            hasher: RandomState::new(),
            subjects: BTreeSet::new(),
            series: BTreeMap::new(),
            left_out: HashSet::new(),
            is_wanted: HashMap::new(),
        }
    }

    /// Whether a series is wanted: its words are looked through once, as long as there is room to remember the outcome.
    fn wants(&mut self, key: &SeriesKey, hash: u64) -> bool {
        if let Some(is_wanted) = self.is_wanted.get(&hash) {
            return *is_wanted;
        }
        let is_wanted = self.filter.wants(key, &self.words);
        if self.is_wanted.len() < MAX_REMEMBERED {
            self.is_wanted.insert(hash, is_wanted);
        }
        is_wanted
    }

    fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        for (key, value) in &window.series {
            self.subjects.insert(key.subject.name());
            if let Some(sum) = self.series.get_mut(key) {
                sum.add(value, places.clone());
                continue;
            }
            let hash = self.hasher.hash_one(key);
            if !self.wants(key, hash) {
                continue;
            }
            if self.series.len() >= self.filter.limit {
                // A window has a limited number of series, but their names may change from window to window.
                if self.left_out.len() < MAX_REMEMBERED {
                    self.left_out.insert(hash);
                }
                continue;
            }
            let mut sum = SeriesSum::new(self.axis.parts);
            sum.add(value, places.clone());
            self.series.insert(key.clone(), sum);
        }
    }
}

impl StoredSeriesJson {
    fn new(key: &SeriesKey, sum: &SeriesSum) -> Self {
        let metric: Option<SeriesMetric> = metrics::find(&key.metric);
        Self {
            subject: key.subject.name(),
            metric: key.metric.to_string(),
            meaning: metric.map_or("", |metric| metric.meaning),
            unit: metric.map_or("", |metric| metric.unit.name()),
            name: key.name.to_string(),
            server: (key.server.port != 0).then_some(key.server.port),
            address: server_address(key.server),
            mean: sum.whole.mean(),
            min: sum.whole.min,
            max: sum.whole.max,
            values: sum.means(),
        }
    }
}
