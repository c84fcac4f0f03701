//! The verdicts on a measurement, in sentences.

use std::fmt::Write as _;

use sonar_core::impact::{Cell, ImpactRun, ImpactVerdict, LongRun, Loss, Variant};

use super::{Used, name};
use crate::kit::{ByteSize, Count, Nanos, Percent, or_unknown, plural};

/// A loss that nobody needs to think about, as a share.
const SMALL: f64 = 0.05;
/// A resource is full from this share of its time on.
const FULL: f64 = 0.9;

/// What to think of each setting, a line each.
pub fn verdicts(run: &ImpactRun) -> Vec<String> {
    (1..run.variants.len()).map(|variant| verdict(run, variant)).collect()
}

fn verdict(run: &ImpactRun, variant: usize) -> String {
    let (this, first) = (name(run, variant), name(run, 0));
    let sure = Percent(run.confidence);
    match run.verdict(variant) {
        ImpactVerdict::Unknown => {
            format!("Level {this} against {first}: too few rounds to tell; at least 3 are wanted.")
        }
        ImpactVerdict::NoDifference { unseen } => format!(
            "Level {this} against {first}: no difference. A loss above {} would have been seen ({sure} sure).{}",
            one_decimal(unseen),
            if run.variants.get(variant) == run.variants.first() {
                " It is the same setting twice: this is what the measurement itself is worth here."
            } else if unseen > SMALL {
                " More rounds, or a quieter machine, would tell more."
            } else {
                " It may stay on."
            }
        ),
        ImpactVerdict::Gain(_) => format!(
            "Level {this} against {first}: faster, which profiling does not do: something else on the machine changed. Measure again."
        ),
        ImpactVerdict::Loss(loss) => {
            let where_ = run
                .cells()
                .iter()
                .find(|cell| cell.variant == variant && cell.loss == Some(loss))
                .map_or_else(String::new, |cell| format!(" with {}", plural(cell.clients, "client")));
            format!(
                "Level {this} against {first}: up to {} less throughput{where_} (between {} and {}, {sure} sure). {}",
                one_decimal(loss.share),
                one_decimal(loss.low),
                one_decimal(loss.high),
                advice(run.variants.get(variant).copied(), &loss),
            )
        }
    }
}

fn advice(variant: Option<Variant>, loss: &Loss) -> &'static str {
    match variant {
        Some(Variant { level: 1, .. }) if loss.share < SMALL => "It may stay on; a higher slowms costs less.",
        Some(Variant { level: 1, .. }) => {
            "Set slowms so that fewer operations are slow, keep a share of them with --sample-rate, or choose with --filter."
        }
        Some(Variant { rate_limit: Some(_), .. }) if loss.share < SMALL => "It may stay on.",
        _ if loss.share < SMALL => "Affordable for minutes: `profiler set --level 2 --duration 60s`.",
        _ => {
            "Not while the server is near its limit: use level 1 with --slowms or --filter, Percona's --rate-limit, or seconds of it with `profiler set --level 2 --duration 10s`."
        }
    }
}

/// What was full, and what was not, without profiling.
pub(super) fn bottleneck(run: &ImpactRun, cells: &[Cell]) -> String {
    let base =
        cells.iter().filter(|cell| cell.variant == 0).max_by(|a, b| a.throughput.total_cmp(&b.throughput));
    let Some(cell) = base else { return String::new() };
    let used = Used::of(run, &cell.used, cell.length_ns);
    let percent =
        |share: Option<f64>| share.map_or("not known".to_owned(), |share| Percent(share).to_string());
    let found = match (used.host, used.disk) {
        (Some(host), _) if host >= FULL => {
            let mut text = format!("the processors were full ({})", percent(used.host));
            if let (Some(load), Some(processors)) = (used.load, run.processors) {
                let _ = write!(
                    text,
                    ", of which this program's load took {}: from another machine the server would do more",
                    Percent(load / f64::from(processors.max(1)))
                );
            }
            text
        }
        (_, Some(disk)) if disk >= FULL => format!("the disk was full ({})", percent(used.disk)),
        (None, None) => "what the machine of the server did is not known from here".to_owned(),
        _ => format!(
            "neither processors ({}) nor disk ({}) were full: waiting for each other, for locks or for the network",
            percent(used.host),
            percent(used.disk)
        ),
    };
    format!(
        "Most throughput at level {}: {} ops/s with {}; {found}.",
        name(run, 0),
        Count(cell.throughput),
        plural(cell.clients, "client")
    )
}

/// What a long run showed.
pub(super) fn long_verdict(long: &LongRun) -> String {
    let size = or_unknown(long.profile_bytes.map(ByteSize));
    let Some(ns) = long.wrapped_ns else {
        return format!("system.profile ({size}) did not wrap in this time; a smaller --size wraps sooner.");
    };
    let at = format!("system.profile ({size}) was full and began to wrap after {}", Nanos(ns));
    match long.loss() {
        None => format!("{at}; too little was measured before or after it to compare."),
        Some(loss) if !loss.differs() => format!(
            "{at}. Before and after: no difference; a loss above {} would have been seen ({} sure).",
            one_decimal(loss.high.max(0.0)),
            Percent(long.confidence)
        ),
        Some(loss) => format!(
            "{at}. After it throughput was {} {} (between {} and {}, {} sure).",
            one_decimal(loss.share.abs()),
            if loss.share > 0.0 { "lower" } else { "higher" },
            one_decimal(loss.low.abs().min(loss.high.abs())),
            one_decimal(loss.low.abs().max(loss.high.abs())),
            Percent(long.confidence)
        ),
    }
}

fn one_decimal(share: f64) -> String {
    format!("{:.1}", Percent(share))
}
