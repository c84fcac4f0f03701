//! Two times of a server, or two servers, side by side.

use std::io::{self, Write};

use serde::Serialize;

use super::report::{FtdcFigureJson, FtdcReport, SCHEMA};
use super::units::show;
use crate::kit::{About, Fitting, Heading, TextTable, Zone, escape, plural};

/// A figure changed if its median did by this factor.
const FACTOR: f64 = 1.25;
/// The ways in which a figure changes, in the order of their rows.
const CHANGES: [&str; 4] = ["worse", "better", "higher", "lower"];

/// The JSON document of `ftdc compare`.
#[derive(Clone, Debug, Serialize)]
pub struct FtdcComparison {
    schema: u32,
    kind: &'static str,
    /// Where A and B come from.
    about: [About; 2],
    /// Number of samples of A and B.
    samples: [u64; 2],
    /// All figures that both have.
    figures: Vec<FigurePair>,
    /// Figures that only one of them has, by id.
    not_compared: Vec<&'static str>,
    /// The same by title.
    #[serde(skip)]
    only_one: Vec<&'static str>,
}

/// A figure of both.
#[derive(Clone, Debug, Serialize)]
struct FigurePair {
    id: &'static str,
    group: &'static str,
    title: &'static str,
    unit: &'static str,
    /// Medians of A and B.
    p50: [f64; 2],
    /// 95th percentiles.
    p95: [f64; 2],
    /// Verdicts; null for a figure without limits.
    verdict: [Option<&'static str>; 2],
    /// `worse` or `better` if the verdict is (`better` only if the median is not clearly worse), `higher` or `lower` if the
    /// median clearly is, else `unchanged`.
    change: &'static str,
}

impl FigurePair {
    fn new(a: &FtdcFigureJson, b: &FtdcFigureJson) -> Self {
        let rank = |verdict| ["ok", "amber", "red"].iter().position(|name| Some(*name) == verdict);
        let change = match (rank(a.verdict), rank(b.verdict)) {
            (Some(a), Some(b)) if b > a => "worse",
            // Fewer values may be over the limit although the usual one came nearer to it.
            (Some(rank_a), Some(rank_b)) if rank_b < rank_a => {
                match a.limits.as_ref().is_some_and(|limits| limits.below) {
                    false if b.p50 > a.p50 * FACTOR => "higher",
                    true if a.p50 > b.p50 * FACTOR => "lower",
                    _ => "better",
                }
            }
            // Values that are rare have a median of 0, but a usual value may still be more than rare ones.
            _ if b.p50 > a.p50 * FACTOR && b.p50 > a.p95 => "higher",
            _ if a.p50 > b.p50 * FACTOR && a.p50 > b.p95 => "lower",
            _ => "unchanged",
        };
        Self {
            id: a.id,
            group: a.group,
            title: a.title,
            unit: a.unit,
            p50: [a.p50, b.p50],
            p95: [a.p95, b.p95],
            verdict: [a.verdict, b.verdict],
            change,
        }
    }
}

impl FtdcComparison {
    /// Compares two reports.
    pub fn new(a: &FtdcReport, b: &FtdcReport) -> Self {
        let of = |report: &FtdcReport, id: &str| report.figures.iter().position(|figure| figure.id == id);
        let both = a.figures.iter().filter_map(|figure| Some((figure, &b.figures[of(b, figure.id)?])));
        let only = |a: &FtdcReport, b: &FtdcReport| -> Vec<(&'static str, &'static str)> {
            a.figures
                .iter()
                .map(|figure| (figure.id, figure.title))
                .filter(|(id, _)| of(b, id).is_none())
                .collect()
        };
        let (not_compared, only_one) = [only(a, b), only(b, a)].concat().into_iter().unzip();
        Self {
            schema: SCHEMA,
            kind: "ftdc_comparison",
            about: [a.about.clone(), b.about.clone()],
            samples: [a.samples, b.samples],
            figures: both.map(|(a, b)| FigurePair::new(a, b)).collect(),
            not_compared,
            only_one,
        }
    }

    /// Something is over a limit in B that was not in A.
    pub fn is_worse(&self) -> bool {
        self.figures.iter().any(|pair| pair.change == "worse")
    }

    /// How many figures changed in each way, in one sentence: `1 figure got worse: cache dirty; 2 better, 1 higher, 36 of
    /// 40 unchanged.`
    fn answer(&self) -> String {
        /// The most figures that it names.
        const NAMED: usize = 3;
        let count = |change: &str| self.figures.iter().filter(|pair| pair.change == change).count();
        let mut worse: Vec<_> =
            self.figures.iter().filter(|pair| pair.change == "worse").map(|pair| pair.title).collect();
        let said = match worse.len() {
            0 => "No figure got worse".to_owned(),
            all => {
                worse.truncate(NAMED);
                let more = if all > NAMED { format!(" and {} more", all - NAMED) } else { String::new() };
                format!("{} got worse: {}{more}", plural(all, "figure"), worse.join(", "))
            }
        };
        let others =
            CHANGES[1..].iter().map(|change| (count(change), change)).filter(|(count, _)| *count > 0);
        let others = others.map(|(count, change)| format!("{count} {change}, ")).collect::<String>();
        format!("{said}; {others}{} of {} unchanged.", count("unchanged"), self.figures.len())
    }

    /// As text: the answer, then what changed, what got worse first.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone) -> io::Result<()> {
        writeln!(out, "{}", self.answer())?;
        for (name, about) in ["A", "B"].iter().zip(&self.about) {
            let at = |ns| zone.show_seconds(sonar_core::Timestamp::from_unix_ns(ns)).to_string();
            let span = about.start_ns.zip(about.end_ns);
            let span = span.map_or_else(String::new, |(from, to)| format!(", {} to {}", at(from), at(to)));
            let host = about.host.as_deref().unwrap_or("unknown host");
            writeln!(out, "{name}: {}{span}", escape(&format!("{}, {host}", about.sources.join(", "))))?;
        }
        writeln!(out)?;
        let headings = [
            Heading::whole("change", 0),
            Heading::text("figure", 0, 24),
            Heading::figure("A median", 1),
            Heading::figure("B median", 1),
            Heading::figure("A p95", 3),
            Heading::figure("B p95", 3),
            Heading::whole("A", 2),
            Heading::whole("B", 2),
        ];
        let mut table = TextTable::new(&headings).spaced();
        for change in CHANGES {
            for pair in self.figures.iter().filter(|pair| pair.change == change) {
                let value = |value| show(value, pair.unit);
                table.row([
                    change.to_owned(),
                    pair.title.to_owned(),
                    value(pair.p50[0]),
                    value(pair.p50[1]),
                    value(pair.p95[0]),
                    value(pair.p95[1]),
                    pair.verdict[0].unwrap_or("").to_owned(),
                    pair.verdict[1].unwrap_or("").to_owned(),
                ]);
            }
        }
        if self.figures.iter().any(|pair| pair.change != "unchanged") {
            table.write(out)?;
        }
        if !self.only_one.is_empty() {
            writeln!(out, "Only one side has: {}.", self.only_one.join(", "))?;
        }
        Ok(())
    }
}
