//! Two times of a server, or two servers, side by side.

use std::io::{self, Write};

use serde::Serialize;

use super::report::{FigureJson, FtdcReport, SCHEMA};
use super::units::show;
use crate::kit::{About, Fitting, Heading, TextTable, Zone, escape};

/// A figure changed if its median did by this factor.
const FACTOR: f64 = 1.25;

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
    /// `worse` or `better` if the verdict is, `higher` or `lower` if the median clearly is, else `unchanged`.
    change: &'static str,
}

impl FigurePair {
    fn new(a: &FigureJson, b: &FigureJson) -> Self {
        let rank = |verdict| ["ok", "amber", "red"].iter().position(|name| Some(*name) == verdict);
        let change = match (rank(a.verdict), rank(b.verdict)) {
            (Some(a), Some(b)) if b > a => "worse",
            (Some(a), Some(b)) if b < a => "better",
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

    /// As one line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: impl io::Write) -> io::Result<()> {
        crate::kit::json::line(self, out)
    }

    /// As text: what changed, what got worse first.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone) -> io::Result<()> {
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
        let order = ["worse", "better", "higher", "lower"];
        for change in order {
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
        let unchanged = self.figures.iter().filter(|pair| pair.change == "unchanged").count();
        if unchanged < self.figures.len() {
            table.write(out)?;
        }
        writeln!(out, "{unchanged} of {} figures unchanged.", self.figures.len())?;
        if !self.only_one.is_empty() {
            writeln!(out, "Only one side has: {}.", self.only_one.join(", "))?;
        }
        Ok(())
    }
}
