//! What profiling costs, as `profiler impact` measured it.

pub(crate) mod json;
mod text;
mod verdict;

use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_core::impact::{ImpactCounters, ImpactRun};
use sonar_core::time::NS_PER_S;

pub use json::{json, long_json};
pub use text::{long_text, text};
pub use verdict::verdicts;

use crate::kit::{About, UNKNOWN};

/// Where and when something was measured.
#[derive(Copy, Clone, Debug, Default)]
pub struct Site<'a> {
    /// The server: product, version and address.
    pub server: &'a str,
    /// Its host, where it says so.
    pub host: Option<&'a str>,
    /// When it began, nanoseconds since 1970.
    pub started_ns: u64,
}

impl Site<'_> {
    /// About a measurement that took `length_ns` nanoseconds.
    fn about(&self, length_ns: u64) -> About {
        let from = Timestamp::from_unix_ns(self.started_ns);
        let span = Span { from, to: from.plus_ns(length_ns) };
        About::new(self.host.map(str::to_owned), vec![self.server.to_owned()], Some(span))
    }
}

/// What was measured, where, and how.
#[derive(Copy, Clone, Debug)]
pub struct ImpactReport<'a> {
    /// Where and when.
    pub site: Site<'a>,
    /// Documents in the table.
    pub documents: u32,
    /// The measurement.
    pub run: &'a ImpactRun,
}

/// Counters as shares and rates.
#[derive(Copy, Clone, Debug)]
struct Used {
    /// Of one processor.
    server: Option<f64>,
    /// Of one processor.
    load: Option<f64>,
    /// Of all processors.
    host: Option<f64>,
    /// Of its time.
    disk: Option<f64>,
    written: Option<f64>,
    log: Option<f64>,
    lock_waits: Option<f64>,
    lock_wait_ns: Option<f64>,
}

impl Used {
    fn of(run: &ImpactRun, used: &ImpactCounters, length_ns: u64) -> Self {
        let length = length_ns.max(1) as f64;
        let share = |ns: Option<u64>| ns.map(|ns| ns as f64 / length);
        let rate = |count: Option<u64>| count.map(|count| count as f64 * NS_PER_S as f64 / length);
        Self {
            server: share(used.server_cpu_ns),
            load: share(used.client_cpu_ns),
            host: share(used.host_busy_ns)
                .zip(run.processors)
                .map(|(busy, processors)| (busy / f64::from(processors.max(1))).min(1.0)),
            disk: share(used.disk_busy_ns).map(|busy| busy.min(1.0)),
            written: rate(used.written_bytes),
            log: rate(used.log_bytes),
            lock_waits: rate(used.lock_waits),
            lock_wait_ns: rate(used.lock_wait_us).map(|us| us * 1_000.0),
        }
    }
}

/// The name of a setting; one that is measured against itself is called "again".
fn name(run: &ImpactRun, variant: usize) -> String {
    let Some(this) = run.variants.get(variant) else { return UNKNOWN.to_owned() };
    let before = run.variants.iter().take(variant).filter(|other| *other == this).count();
    if before > 0 { format!("{this} again") } else { this.to_string() }
}

#[cfg(test)]
mod tests {
    use sonar_core::Histogram;
    use sonar_core::impact::{LoadSlice, LongRun, SplitMix64, Variant};

    use super::*;
    use crate::kit::Fitting;

    fn run(loss: f64) -> ImpactRun {
        let variants = vec![Variant { level: 0, rate_limit: None }, Variant { level: 2, rate_limit: None }];
        let mut run = ImpactRun { variants, confidence: 0.95, processors: Some(2), ..ImpactRun::default() };
        let mut random = SplitMix64(5);
        for clients in [1, 4] {
            for round in 0..6 {
                for variant in 0..2 {
                    let share = if variant == 1 { 1.0 - loss } else { 1.0 };
                    let operations = (f64::from(clients) * 1_000.0 * share) as u64 + random.below(20);
                    let mut latency = Histogram::new();
                    latency.record(1_000_000);
                    run.slices.push(LoadSlice {
                        clients,
                        variant,
                        round,
                        start_ns: run.slices.len() as u64 * NS_PER_S,
                        length_ns: NS_PER_S,
                        operations,
                        buckets: vec![operations / 4; 4],
                        latency,
                        used: ImpactCounters {
                            host_busy_ns: Some(NS_PER_S),
                            client_cpu_ns: Some(NS_PER_S / 2),
                            log_bytes: (variant == 1).then_some(300_000),
                            ..ImpactCounters::default()
                        },
                    });
                }
            }
        }
        run
    }

    fn site(server: &str) -> Site<'_> {
        Site { server, ..Site::default() }
    }

    fn shown(run: &ImpactRun) -> String {
        let mut out = Vec::new();
        text(
            &ImpactReport { site: site("MongoDB 7.0.5 at a:27017"), documents: 100, run },
            &mut Fitting::new(&mut out, None),
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_person_reads_the_loss_its_interval_and_what_to_do() {
        insta::assert_snapshot!(shown(&run(0.3)));
    }

    #[test]
    fn nothing_against_nothing_says_no_difference() {
        let mut run = run(0.0);
        run.variants[1].level = 0;
        let text = shown(&run);
        assert!(text.contains("Level 0 again against 0: no difference"), "{text}");
        assert!(!text.contains("different\n") || text.contains("no difference"), "{text}");
    }

    #[test]
    fn a_program_reads_the_settings_and_the_long_run() {
        let run = run(0.3);
        let report = ImpactReport { site: site("MongoDB 7.0.5 at a:27017"), documents: 100, run: &run };
        let mut out = Vec::new();
        json(&report, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["variants"], serde_json::json!(["0", "2"]));
        assert!(document["bottleneck"].as_str().unwrap().starts_with("Most throughput at level 0"));
        let long = LongRun {
            clients: 4,
            variant: Some(run.variants[1]),
            seconds: (0..40).map(|s| if s < 20 { 1_000 + s % 3 } else { 800 + s % 3 }).collect(),
            wrapped_ns: Some(20 * NS_PER_S),
            profile_bytes: Some(1 << 20),
            confidence: 0.95,
        };
        let mut out = Vec::new();
        long_text("MongoDB", &long, &mut Fitting::new(&mut out, None)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("(1MiB) was full and began to wrap after 20.0s. After it throughput was 2"),
            "{text}"
        );
        assert!(text.contains("% lower"), "{text}");
        let mut out = Vec::new();
        long_json(&site("a"), &long, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&document["kind"], &document["wrapped_ns"]),
            (&"profiler_impact_long".into(), &20_000_000_000u64.into())
        );
    }

    #[test]
    fn a_run_without_slices_shows_nothing_and_does_not_fail() {
        let empty = ImpactRun::default();
        let report = ImpactReport { site: Site::default(), documents: 0, run: &empty };
        text(&report, &mut Fitting::new(Vec::new(), None)).unwrap();
        json(&report, Vec::new()).unwrap();
        long_text("", &LongRun::default(), &mut Fitting::new(Vec::new(), None)).unwrap();
    }
}
