//! `disk bench --compare`: the ratio at each number in flight, with its interval.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::disk::compare::{RateRatio, ratio};
use sonar_core::significance::holm;
use ts_rs::TS;

use super::run::{BenchReport, SCHEMA, StepJson};
use super::text::place;
use crate::kit::{self, About, Count, Fitting, Heading, Nanos, TextTable, escape, or_unknown, plural};

/// Two runs.
#[derive(Clone, Debug, Serialize, TS)]
pub struct RunComparison {
    /// Version of the schema of this document.
    pub schema: u32,
    /// What this document is.
    #[ts(type = "\"disk_compare\"")]
    pub kind: &'static str,
    /// What the runs are called: A and B.
    pub names: [String; 2],
    /// The steps that both have.
    pub steps: Vec<StepPair>,
    /// Settings that differ.
    pub differences: Vec<String>,
}

/// One step of each.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StepPair {
    /// Requests in flight.
    pub in_flight: u32,
    /// Reads and writes per second of A and B.
    pub operations_per_second: [f64; 2],
    /// The 99th percentile of latency in nanoseconds, of reads where there were any.
    pub p99_ns: [Option<u64>; 2],
    /// B for one of A; null with fewer than two full seconds or without operations.
    pub ratio: Option<f64>,
    /// Its 95% interval.
    pub interval: Option<[f64; 2]>,
    /// Probability of a ratio at least this far from 1 if both were as fast; null without one.
    pub p: Option<f64>,
    /// `B`, `A`, or `neither` where the interval holds 1; null without one.
    pub faster: Option<&'static str>,
}

/// Two runs of `disk bench`, compared.
#[derive(Serialize, TS)]
pub(crate) struct DiskComparisonDocument<'a> {
    #[serde(flatten)]
    comparison: &'a RunComparison,
    about: About,
    /// Which one is faster, in one sentence.
    answer: String,
    /// What the table means, a sentence each.
    words: Vec<String>,
    /// A and B.
    runs: [&'a BenchReport; 2],
}

fn p99(step: &StepJson) -> Option<u64> {
    step.kinds().next().and_then(|(_, kind)| kind.latency_ns.p99)
}

fn verdict(ratio: &RateRatio) -> &'static str {
    match (ratio.differs(), ratio.ratio > 1.0) {
        (false, _) => "neither",
        (true, true) => "B",
        (true, false) => "A",
    }
}

impl RunComparison {
    /// Compares two runs; `names` are what they are called.
    pub fn new(a: &BenchReport, b: &BenchReport, names: [String; 2]) -> Self {
        let floats = |step: &StepJson| step.per_second.iter().map(|n| *n as f64).collect::<Vec<_>>();
        let steps = a
            .steps
            .iter()
            .filter_map(|left| Some((left, b.steps.iter().find(|right| right.in_flight == left.in_flight)?)))
            .map(|(left, right)| {
                let found = ratio(&floats(left), &floats(right));
                StepPair {
                    in_flight: left.in_flight,
                    operations_per_second: [left.operations_per_second, right.operations_per_second],
                    p99_ns: [p99(left), p99(right)],
                    ratio: found.map(|r| r.ratio),
                    interval: found.map(|r| [r.low, r.high]),
                    p: found.map(|r| r.p),
                    faster: found.as_ref().map(verdict),
                }
            })
            .collect();
        Self { schema: SCHEMA, kind: "disk_compare", names, steps, differences: differences(a, b) }
    }

    fn table(&self) -> TextTable {
        let mut table = TextTable::new(&[
            Heading::figure("in flight", 0),
            Heading::figure("A ops/s", 0),
            Heading::figure("B ops/s", 0),
            Heading::figure("B/A", 0),
            Heading::figure("95% interval", 0),
            Heading::figure("", 0),
            Heading::figure("A p99", 3),
            Heading::figure("B p99", 2),
            Heading::figure("B/A p99", 1),
        ])
        .spaced();
        for pair in &self.steps {
            let p99_ratio = match pair.p99_ns {
                [Some(a), Some(b)] if a > 0 => Some(kit::Ratio(b as f64 / a as f64)),
                _ => None,
            };
            let verdict = match pair.faster {
                Some("A") => "A is faster",
                Some("B") => "B is faster",
                Some(_) => "no visible difference",
                None => "cannot be judged",
            };
            table.row([
                pair.in_flight.to_string(),
                Count(pair.operations_per_second[0]).to_string(),
                Count(pair.operations_per_second[1]).to_string(),
                or_unknown(pair.ratio.map(|r| format!("{r:.3}"))),
                or_unknown(pair.interval.map(|[low, high]| format!("{low:.3} to {high:.3}"))),
                verdict.to_owned(),
                or_unknown(pair.p99_ns[0].map(Nanos)),
                or_unknown(pair.p99_ns[1].map(Nanos)),
                or_unknown(p99_ratio),
            ]);
        }
        table
    }

    /// Which run is faster, in one sentence. Of many intervals some exclude 1 by chance, so a step counts only if it differs
    /// at 95% for all of them together.
    pub fn answer(&self) -> String {
        if self.steps.is_empty() {
            return "The two runs have no number in flight in common: nothing can be compared.".to_owned();
        }
        let (judged, ps): (Vec<&StepPair>, Vec<f64>) =
            self.steps.iter().filter_map(|pair| Some((pair, pair.p?))).unzip();
        let unjudged = self.steps.len() - judged.len();
        if judged.is_empty() {
            return "The steps do not show which run is faster.".to_owned();
        }
        let (of, of_one) = (plural(judged.len(), "number"), judged.len() == 1);
        let differing = judged.into_iter().zip(holm(&ps)).filter(|(_, stands)| *stands);
        let differing: Vec<&StepPair> = differing.map(|(pair, _)| pair).collect();
        let count = |letter: &str| differing.iter().filter(|pair| pair.faster == Some(letter)).count();
        let faster = match (count("A"), count("B")) {
            (0, 0) if of_one => "Nothing differs beyond noise at".to_owned(),
            (0, 0) => "Nothing differs beyond noise at any of".to_owned(),
            (a, 0) => format!("A is faster at {a} of"),
            (0, b) => format!("B is faster at {b} of"),
            (a, b) => format!("A is faster at {a} and B at {b} of"),
        };
        let mut answer = format!("{faster} {of} in flight");
        let factor = |pair: &StepPair| pair.ratio.map_or(1.0, |ratio| ratio.max(1.0 / ratio));
        if let Some(largest) = differing.iter().max_by(|one, other| factor(one).total_cmp(&factor(other))) {
            let [a, b] = largest.operations_per_second.map(Count);
            let in_flight = largest.in_flight;
            answer +=
                &format!("; the largest difference: {a}/s in A and {b}/s in B with {in_flight} in flight");
        }
        if unjudged > 0 {
            answer += &format!("; {} cannot be judged", plural(unjudged, "step"));
        }
        answer + "."
    }

    /// What the table means, as sentences.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if !self.steps.is_empty() {
            words.push(
                "The interval is that of the mean of the full seconds of a step (Welch, 95%), with seconds taken as \
                 independent. It describes these two runs, not another day: repeat both in alternation."
                    .to_owned(),
            );
        }
        if !self.differences.is_empty() {
            words.push(format!("Their settings differ: {}.", self.differences.join("; ")));
        }
        words
    }

    /// As one line of JSON, with both runs in it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, a: &BenchReport, b: &BenchReport, out: impl io::Write) -> io::Result<()> {
        let hosts = [a, b].map(|run| run.place.host.as_deref());
        let about = About::of_sides(hosts, self.names.to_vec());
        kit::json::line(
            &DiskComparisonDocument {
                comparison: self,
                about,
                answer: self.answer(),
                words: self.words(),
                runs: [a, b],
            },
            out,
        )
    }

    /// As text: the answer, what the runs are, and the steps.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, a: &BenchReport, b: &BenchReport, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(out, "{}", self.answer())?;
        for (letter, name, run) in [("A", &self.names[0], a), ("B", &self.names[1], b)] {
            writeln!(out, "{letter}  {}", escape(name))?;
            for line in place(run) {
                writeln!(out, "   {line}")?;
            }
        }
        writeln!(out)?;
        self.table().write(out)?;
        writeln!(out)?;
        out.sentences(self.words())?;
        out.flush()
    }
}

fn differences(a: &BenchReport, b: &BenchReport) -> Vec<String> {
    let (x, y) = (&a.settings, &b.settings);
    let mut found = Vec::new();
    let mut note = |name: &str, left: String, right: String| {
        if left != right {
            found.push(format!("{name} {left} and {right}"));
        }
    };
    note("engine", a.engine.clone(), b.engine.clone());
    note("fileSizeMB", x.file_size_mb.to_string(), y.file_size_mb.to_string());
    note("recSizeKB", x.rec_size_kb.to_string(), y.rec_size_kb.to_string());
    note("sleepMicros", x.sleep_micros.to_string(), y.sleep_micros.to_string());
    note("mmf", x.mmf.to_string(), y.mmf.to_string());
    note("r", x.r.to_string(), y.r.to_string());
    note("w", x.w.to_string(), y.w.to_string());
    note("access", x.access.clone(), y.access.clone());
    note("fdatasync", x.fdatasync.to_string(), y.fdatasync.to_string());
    note("direct I/O", x.direct.to_string(), y.direct.to_string());
    note("seed", x.seed.to_string(), y.seed.to_string());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rates: &[(u32, [u64; 4])]) -> BenchReport {
        let steps = rates.iter().map(|(in_flight, per_second)| StepJson {
            in_flight: *in_flight,
            operations_per_second: per_second.iter().sum::<u64>() as f64 / 4.0,
            per_second: per_second.to_vec(),
            ..StepJson::default()
        });
        BenchReport { steps: steps.collect(), ..BenchReport::default() }
    }

    #[test]
    fn steps_of_the_same_number_in_flight_are_paired() {
        let a = run(&[(1, [100, 101, 99, 100]), (2, [100, 300, 50, 200]), (4, [1; 4])]);
        let b = run(&[(1, [150, 151, 149, 150]), (2, [110, 290, 60, 210]), (8, [1; 4])]);
        let found = RunComparison::new(&a, &b, ["ext4".into(), "xfs".into()]);
        let faster: Vec<_> = found.steps.iter().map(|p| (p.in_flight, p.faster)).collect();
        assert_eq!(faster, [(1, Some("B")), (2, Some("neither"))]);
        assert!((found.steps[0].ratio.unwrap() - 1.5).abs() < 1e-9);
        let back = RunComparison::new(&b, &a, ["xfs".into(), "ext4".into()]);
        assert_eq!(back.steps[0].faster, Some("A"));
        assert!(found.differences.is_empty());
    }

    #[test]
    fn settings_that_differ_are_named() {
        let mut b = run(&[(1, [1; 4])]);
        b.settings.rec_size_kb = 16;
        let found = RunComparison::new(&run(&[(2, [1; 4])]), &b, ["a".into(), "b".into()]);
        assert!(found.answer().ends_with("nothing can be compared."));
        assert!(found.words()[0].contains("recSizeKB 0 and 16"), "{:?}", found.words());
    }

    #[test]
    fn the_answer_counts_what_differs_for_all_steps_together() {
        let answer = |a: &[(u32, [u64; 4])], b: &[(u32, [u64; 4])]| {
            RunComparison::new(&run(a), &run(b), ["ext4".into(), "xfs".into()]).answer()
        };
        let (slow, fast) = ([1_000, 1_010, 990, 1_000], [1_500, 1_510, 1_490, 1_500]);
        assert_eq!(
            answer(
                &[(1, slow), (2, slow), (4, slow)],
                &[(1, slow), (2, fast), (4, [4_000, 3_990, 4_010, 4_000])]
            ),
            "B is faster at 2 of 3 numbers in flight; the largest difference: 1.00k/s in A and 4.00k/s in B with 4 in flight."
        );
        assert_eq!(
            answer(&[(1, slow), (2, fast)], &[(1, fast), (2, slow)]),
            "A is faster at 1 and B at 1 of 2 numbers in flight; the largest difference: 1.50k/s in A and 1.00k/s in B with \
             2 in flight."
        );
        assert_eq!(answer(&[(1, slow)], &[(1, slow)]), "Nothing differs beyond noise at 1 number in flight.");
        // Its interval excludes 1, as those of one step in twenty do: among ten steps that says nothing.
        let other = [1_014, 1_028, 1_008, 1_022];
        let steps =
            |rates: [u64; 4]| (1..=10).map(|n| (n, if n == 1 { rates } else { slow })).collect::<Vec<_>>();
        let (a, b) = (run(&steps(slow)), run(&steps(other)));
        let found = RunComparison::new(&a, &b, ["ext4".into(), "xfs".into()]);
        assert_eq!(found.steps[0].faster, Some("B"), "{:?}", found.steps[0]);
        assert_eq!(found.answer(), "Nothing differs beyond noise at any of 10 numbers in flight.");
        // A mean of 0 has no ratio.
        assert_eq!(
            answer(&[(1, slow), (2, [0; 4])], &[(1, fast), (2, slow)]),
            "B is faster at 1 of 1 number in flight; the largest difference: 1.00k/s in A and 1.50k/s in B with 1 in \
             flight; 1 step cannot be judged."
        );
        assert_eq!(answer(&[(2, [0; 4])], &[(2, slow)]), "The steps do not show which run is faster.");
    }
}
