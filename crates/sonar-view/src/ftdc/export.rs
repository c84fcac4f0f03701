//! `ftdc export`: metrics of every sample, as JSON lines, CSV or OpenMetrics.
//!
//! There can be more values than memory holds, so a sample is written as it comes. OpenMetrics lists metric after metric
//! instead, and needs all of them first.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Serialize, Serializer};

use crate::kit::{CsvLine, escape};

/// A sample: a line of JSON.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct ExportSample<'a> {
    /// In milliseconds since 1970; `None` if the sample has no time.
    pub time_ms: Option<i64>,
    /// Its metrics.
    pub metrics: MetricValues<'a>,
}

/// The metrics of a sample. In JSON each has its name.
#[derive(Copy, Clone, Debug)]
pub struct MetricValues<'a> {
    /// The names of the metrics of all samples, by column.
    pub names: &'a [String],
    /// The column of each metric that the sample has, and its value; `None` if that is not known.
    pub values: &'a [(usize, Option<i64>)],
}

impl Serialize for MetricValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.values.iter().filter_map(|(column, value)| Some((self.names.get(*column)?, value)));
        serializer.collect_map(named)
    }
}

/// Writes the names of metrics, a line each.
///
/// # Errors
/// Those of `out`.
pub fn names(names: &[String], out: &mut impl Write) -> io::Result<()> {
    names.iter().try_for_each(|name| writeln!(out, "{}", escape(name)))
}

/// Samples as CSV: a line for each, a column for each metric of any sample.
#[derive(Default)]
pub struct ExportCsv {
    line: CsvLine,
    /// By column; empty before the first sample.
    values: Vec<Option<i64>>,
}

impl ExportCsv {
    /// Writes a sample; before the first one the names that it has.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn sample(&mut self, sample: &ExportSample<'_>, out: &mut impl Write) -> io::Result<()> {
        let (Self { line, values }, metrics) = (self, sample.metrics);
        if values.is_empty() {
            values.resize(metrics.names.len(), None);
            line.text("time_ms");
            metrics.names.iter().for_each(|name| line.text(name));
            line.write_lf(out)?;
        }
        values.fill(None);
        for (column, value) in metrics.values {
            if let Some(of_column) = values.get_mut(*column) {
                *of_column = *value;
            }
        }
        line.figure(sample.time_ms);
        values.iter().for_each(|value| line.figure(*value));
        line.write_lf(out)
    }
}

/// Times in milliseconds since 1970 and values of metrics, by column.
#[derive(Debug, Default)]
pub struct ExportSeries(BTreeMap<usize, Vec<(i64, i64)>>);

impl ExportSeries {
    /// Adds the metrics of a sample of this time.
    pub fn add(&mut self, time_ms: i64, metrics: &MetricValues<'_>) {
        for (column, value) in metrics.values {
            self.0.entry(*column).or_default().extend(value.map(|value| (time_ms, value)));
        }
    }

    /// Writes one metric after another, as OpenMetrics. `names` are by column, and `instance` is the server. Two names can
    /// have the same OpenMetrics name; the label `path` distinguishes them.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn open_metrics(&self, names: &[String], instance: &str, out: &mut impl Write) -> io::Result<()> {
        // Characters that a terminal would obey are spelled out.
        let quoted = |text: &str| escape(text).replace('\\', "\\\\").replace('"', "\\\"");
        let instance = quoted(instance);
        let mut families: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (column, series) in &self.0 {
            if let Some(path) = names.get(*column) {
                families.entry(metric_name(path)).or_default().push((quoted(path), series));
            }
        }
        for (name, metrics) in families {
            writeln!(out, "# TYPE {name} unknown")?;
            for (path, series) in metrics {
                for (time_ms, value) in series {
                    let (seconds, ms) = (time_ms.div_euclid(1_000), time_ms.rem_euclid(1_000));
                    writeln!(
                        out,
                        "{name}{{instance=\"{instance}\",path=\"{path}\"}} {value} {seconds}.{ms:03}"
                    )?;
                }
            }
        }
        out.write_all(b"# EOF\n")
    }
}

/// The path with `_` for what a name of OpenMetrics cannot hold.
fn metric_name(path: &str) -> String {
    let mut name = String::from("mongodb_");
    for part in path.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }) {
        if part != '_' || !name.ends_with('_') {
            name.push(part);
        }
    }
    name.trim_end_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::json::line;

    #[test]
    fn what_a_sample_lacks_is_null_or_empty_and_all_lines_have_the_same_columns() {
        let names = ["a", "b, c", "d"].map(str::to_owned);
        let (mut lines, mut table, mut csv) = (Vec::new(), Vec::new(), ExportCsv::default());
        for (time_ms, values) in [(Some(1_500), &[(0, Some(-7)), (1, None)][..]), (None, &[(2, Some(3))][..])]
        {
            let sample = ExportSample { time_ms, metrics: MetricValues { names: &names, values } };
            line(&sample, &mut lines).unwrap();
            csv.sample(&sample, &mut table).unwrap();
        }
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "{\"time_ms\":1500,\"metrics\":{\"a\":-7,\"b, c\":null}}\n{\"time_ms\":null,\"metrics\":{\"d\":3}}\n"
        );
        assert_eq!(String::from_utf8(table).unwrap(), "time_ms,a,\"b, c\",d\n1500,-7,,\n,,,3\n");
    }

    #[test]
    fn a_name_that_a_terminal_would_obey_is_shown() {
        let names = ["a\u{1b}[2J\n,\"\u{9b}".to_owned()];
        let metrics = MetricValues { names: &names, values: &[(0, Some(7))] };
        let sample = ExportSample { time_ms: Some(1_500), metrics };
        let mut series = ExportSeries::default();
        series.add(1_500, &metrics);
        let (mut json, mut csv, mut open, mut list) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        line(&sample, &mut json).unwrap();
        ExportCsv::default().sample(&sample, &mut csv).unwrap();
        series.open_metrics(&names, "host\u{9b}", &mut open).unwrap();
        super::names(&names, &mut list).unwrap();
        for (out, lines) in [(json, 1), (csv, 2), (open, 3), (list, 1)] {
            let out = String::from_utf8(out).unwrap();
            assert_eq!(out.lines().count(), lines, "{out:?}");
            assert!(!out.contains(['\u{1b}', '\u{9b}']), "{out:?}");
        }
    }

    #[test]
    fn names_for_openmetrics() {
        assert_eq!(
            metric_name("serverStatus.wiredTiger.cache.bytes currently in the cache"),
            "mongodb_serverStatus_wiredTiger_cache_bytes_currently_in_the_cache"
        );
        assert_eq!(
            metric_name("systemMetrics.netstat.Tcp:RetransSegs%"),
            "mongodb_systemMetrics_netstat_Tcp_RetransSegs"
        );
    }
}
