//! The report of one server over some time.

use std::borrow::Cow;
use std::io;

use serde::Serialize;
use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_core::internals::{
    Assessment, Exceedance, FigureLimits, Incident, IncidentKind, Judged, LimitRule, ServerDescription,
};
use ts_rs::TS;

use super::units::show;
use crate::kit::{About, CsvLine, Nanos, Zone, ZoneObject, plural};

/// Version of the schema of the documents of `ftdc`.
pub(super) const SCHEMA: u32 = 1;

/// How the reading went.
#[derive(Clone, Debug, Default, Serialize, TS)]
pub struct FtdcReading {
    /// The names of what was read.
    #[serde(skip)]
    pub sources: Vec<String>,
    /// Files.
    pub files: u64,
    /// Chunks that were decoded.
    pub chunks: u64,
    /// Chunks that are damaged; their samples are lost.
    pub chunks_damaged: u64,
    /// Documents that are none of `diagnostic.data`, or of a kind that is not known.
    pub documents_unknown: u64,
    /// Samples that stand in two files, and were counted once.
    pub samples_repeated: u64,
    /// Samples outside of the time that was asked for.
    pub samples_outside: u64,
    /// What is wrong with files, a sentence each.
    pub damage: Vec<String>,
}

/// The JSON document of `ftdc report`.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FtdcReport {
    /// Version of the schema of this document.
    pub schema: u32,
    /// What this document is.
    #[ts(type = "\"ftdc_report\"")]
    pub kind: &'static str,
    /// Where it comes from.
    pub about: About,
    /// The zone of its times in text and on the page.
    pub zone: ZoneObject,
    /// The server.
    pub server: ServerJson,
    /// Number of samples.
    pub samples: u64,
    /// How the reading went.
    pub reading: FtdcReading,
    /// Starts, gaps and the like, by time.
    pub incidents: Vec<FtdcIncidentJson>,
    /// Incidents beyond those.
    pub incidents_other: u64,
    /// Figures, by group.
    pub figures: Vec<FtdcFigureJson>,
}

/// What the server is.
#[derive(Clone, Debug, Serialize, TS)]
#[allow(missing_docs)]
pub struct ServerJson {
    pub version: Option<String>,
    pub host: Option<String>,
    pub port: Option<i64>,
    pub is_router: bool,
    pub dbpath: Option<String>,
    pub replica_set: Option<String>,
    pub processors: Option<i64>,
    /// Processors that the server may run on; null if that is not less than all.
    pub processors_available: Option<i64>,
    pub memory_mib: Option<i64>,
    /// Memory that the control group of the server allows; null if there is no limit below the memory of the machine.
    pub memory_limit_mib: Option<i64>,
    pub system: Option<String>,
}

/// What happened at one moment.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FtdcIncidentJson {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// `restart`, `gap`, `lost`, `state` or `clock_back`.
    pub kind: &'static str,
    /// In words.
    pub words: String,
}

/// A figure.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FtdcFigureJson {
    /// Stable name.
    pub id: &'static str,
    /// What it belongs to.
    pub group: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest value.
    pub max: f64,
    /// Null for a figure without limits.
    #[ts(type = "\"ok\" | \"amber\" | \"red\" | null")]
    pub verdict: Option<&'static str>,
    /// When it is worth a look; null if never.
    pub limits: Option<LimitsJson>,
    /// Values over time.
    pub trend: TrendJson,
}

/// When a figure is worth a look, and for how long it was.
#[derive(Clone, Debug, Serialize, TS)]
pub struct LimitsJson {
    /// From here on it deserves attention.
    pub amber: f64,
    /// From here on it is a problem; null if it is none at any value.
    pub red: Option<f64>,
    /// Smaller values are worse.
    pub below: bool,
    /// `lasting` or `any`: it counts if it was passed for 5 % of the time (red also for 10 s on end), or at any moment.
    pub rule: &'static str,
    /// What it means; of processor time also whose it was.
    pub meaning: Cow<'static, str>,
    /// Who says so.
    pub source: &'static str,
    /// How long it was over the amber limit.
    pub over_amber: ExceedanceJson,
    /// How long it was over the red limit.
    pub over_red: ExceedanceJson,
}

/// How long a limit was passed.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ExceedanceJson {
    /// In total, in nanoseconds.
    pub total_ns: u64,
    /// The longest time without a break, in nanoseconds.
    pub longest_ns: u64,
    /// When that began, in nanoseconds since 1970; null if the limit was never passed.
    pub longest_start_ns: Option<u64>,
}

/// Values over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct TrendJson {
    /// Width of a bucket in nanoseconds.
    pub width_ns: u64,
    /// Begin in nanoseconds since 1970, smallest value, mean and largest value of each bucket that has any.
    pub buckets: Vec<(u64, f64, f64, f64)>,
}

fn ns(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

impl FtdcReport {
    /// Of what was collected; times are those of `zone`.
    pub fn new(
        assessment: &Assessment,
        server: &ServerDescription,
        reading: FtdcReading,
        zone: &Zone,
    ) -> Self {
        let time = Timestamp::from_unix_ms;
        let span = assessment.span_ms().map(|(from, to)| Span { from: time(from), to: time(to) });
        let (processors_available, memory_limit_mib) =
            (server.fewer_processors(), server.tighter_memory_mib());
        let server = server.clone();
        let ends = span.map_or_else(Default::default, |span| [span.from, span.to]);
        Self {
            schema: SCHEMA,
            kind: "ftdc_report",
            about: About::new(server.host.clone(), reading.sources.clone(), span),
            zone: ZoneObject::new(zone, ends),
            server: ServerJson {
                version: server.version,
                host: server.host,
                port: server.port,
                is_router: server.is_router,
                dbpath: server.dbpath,
                replica_set: server.replica_set,
                processors: server.processors,
                processors_available,
                memory_mib: server.memory_mib,
                memory_limit_mib,
                system: server.system,
            },
            samples: assessment.samples(),
            reading,
            incidents: assessment.incidents().iter().map(incident).collect(),
            incidents_other: assessment.incidents_other(),
            figures: assessment.judged().map(|judged| figure(&judged)).collect(),
        }
    }

    /// When the samples were taken.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        let at = Timestamp::from_unix_ns;
        Some((at(self.about.start_ns?), at(self.about.end_ns?)))
    }

    /// Figures that are worth a look, worst first, and within a verdict the longest over its limit first.
    pub fn findings(&self) -> Vec<&FtdcFigureJson> {
        let mut found: Vec<_> =
            self.figures.iter().filter(|figure| matches!(figure.verdict, Some("red" | "amber"))).collect();
        let over = |figure: &FtdcFigureJson| {
            figure
                .limits
                .as_ref()
                .map_or((0, 0), |limits| (limits.over_red.total_ns, limits.over_amber.total_ns))
        };
        found.sort_by_key(|figure| std::cmp::Reverse((figure.verdict == Some("red"), over(figure))));
        found
    }

    /// What is wrong, in one sentence.
    pub fn answer(&self) -> String {
        let findings = self.findings();
        let judged = self.figures.iter().filter(|figure| figure.limits.is_some()).count();
        let Some(worst) = findings.first() else {
            return match judged {
                0 => "No figure was measured that has a limit.".to_owned(),
                _ => format!("Nothing is over its limit, of {}.", plural(judged, "figure")),
            };
        };
        let red = findings.iter().filter(|figure| figure.verdict == Some("red")).count();
        let over_ns = worst.limits.as_ref().map_or(0, |limits| match worst.verdict {
            Some("red") => limits.over_red.total_ns,
            _ => limits.over_amber.total_ns,
        });
        let are = if findings.len() == 1 { "figure is" } else { "figures are" };
        let max = show(worst.max, worst.unit);
        format!(
            "{} of {judged} {are} over a limit, {red} of them red; the worst: {}, for {}, max {max}.",
            findings.len(),
            worst.title,
            Nanos(over_ns),
        )
    }

    /// As CSV: a line for each figure.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn csv(&self, out: &mut impl io::Write) -> io::Result<()> {
        const FIELDS: &str = "id,group,unit,count,p50,p95,max,verdict,seconds_over_amber,seconds_over_red";
        let mut line = CsvLine::default();
        FIELDS.split(',').for_each(|name| line.text(name));
        line.write_lf(out)?;
        for figure in &self.figures {
            let seconds = |of: fn(&LimitsJson) -> &ExceedanceJson| {
                let limits = figure.limits.as_ref();
                limits.map(|limits| format!("{:.3}", of(limits).total_ns as f64 / 1e9))
            };
            [figure.id, figure.group, figure.unit].into_iter().for_each(|name| line.text(name));
            line.figure(Some(figure.count));
            [figure.p50, figure.p95, figure.max].into_iter().for_each(|value| line.figure(Some(value)));
            line.figure(figure.verdict);
            line.figure(seconds(|limits| &limits.over_amber));
            line.figure(seconds(|limits| &limits.over_red));
            line.write_lf(out)?;
        }
        Ok(())
    }
}

fn figure(judged: &Judged<'_>) -> FtdcFigureJson {
    let [p50, p95, max] = judged.quantiles;
    let trend = judged.trend;
    FtdcFigureJson {
        id: judged.figure.id,
        group: judged.figure.group.name(),
        title: judged.figure.title,
        unit: judged.figure.unit.name(),
        count: judged.count,
        p50,
        p95,
        max,
        verdict: judged.verdict.map(|verdict| verdict.name()),
        limits: judged.figure.limits.map(|limits| limits_json(&limits, judged)),
        trend: TrendJson {
            width_ns: ns(trend.width_ms()),
            buckets: trend
                .buckets()
                .iter()
                .map(|bucket| (ns(bucket.start_ms), bucket.min, bucket.mean(), bucket.max))
                .collect(),
        },
    }
}

fn limits_json(limits: &FigureLimits, judged: &Judged<'_>) -> LimitsJson {
    let exceedance = |over: &Exceedance| ExceedanceJson {
        total_ns: ns(over.total_ms),
        longest_ns: ns(over.longest_ms),
        longest_start_ns: (over.longest_ms > 0).then(|| ns(over.longest_start_ms)),
    };
    LimitsJson {
        amber: limits.amber,
        red: limits.red.is_finite().then_some(limits.red),
        below: limits.below,
        rule: match limits.rule {
            LimitRule::Lasting => "lasting",
            LimitRule::Any => "any",
        },
        meaning: judged.meaning(),
        source: limits.source,
        over_amber: exceedance(&judged.amber),
        over_red: exceedance(&judged.red),
    }
}

fn incident(incident: &Incident) -> FtdcIncidentJson {
    let kind = match incident.kind {
        IncidentKind::Restart(_) => "restart",
        IncidentKind::Lost(_) => "lost",
        IncidentKind::Gap(_) => "gap",
        IncidentKind::State { .. } => "state",
        IncidentKind::ClockBack(_) => "clock_back",
    };
    FtdcIncidentJson { time_ns: ns(incident.time_ms), kind, words: incident_words(incident.kind) }
}

/// What happened, in words.
pub fn incident_words(kind: IncidentKind) -> String {
    match kind {
        IncidentKind::Restart(ms) => {
            format!("the server was started, {} after the last sample", Nanos(ns(ms)))
        }
        IncidentKind::Lost(ms) => {
            format!("samples of {} are lost: a part of a file is damaged", Nanos(ns(ms)))
        }
        IncidentKind::Gap(ms) => {
            format!("the server wrote no sample for {}: it stalled, or the machine slept", Nanos(ns(ms)))
        }
        IncidentKind::State { from, to } => format!("the server went from {} to {}", state(from), state(to)),
        IncidentKind::ClockBack(ms) => format!("the clock was set back by {}", Nanos(ns(ms))),
    }
}

/// A state as the replica set names it.
fn state(number: i64) -> String {
    let names = [
        "STARTUP",
        "PRIMARY",
        "SECONDARY",
        "RECOVERING",
        "",
        "STARTUP2",
        "UNKNOWN",
        "ARBITER",
        "DOWN",
        "ROLLBACK",
        "REMOVED",
    ];
    match usize::try_from(number).ok().and_then(|number| names.get(number)) {
        Some(name) if !name.is_empty() => (*name).to_owned(),
        _ => format!("state {number}"),
    }
}
