//! The state of the profiler of each database: a table, or JSON.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::Timestamp;
use sonar_core::profiler::{Fill, Wrap};

use crate::kit::escape;
use crate::kit::{Count, Nanos, Size, UNKNOWN, or_unknown};

/// The profiler of one database.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The database.
    pub database: String,
    /// Profiling level; `None` when it could not be read.
    pub level: Option<i32>,
    /// `slowms`, of the whole server.
    pub slow_ms: Option<i64>,
    /// `sampleRate`, of the whole server; `None` where the server has none.
    pub sample_rate: Option<f64>,
    /// The filter as JSON.
    pub filter: Option<String>,
    /// Percona Server's `rateLimit`; `None` where the server has none.
    pub rate_limit: Option<i64>,
    /// Its `system.profile`; `None` where there is none.
    pub fill: Option<Fill>,
    /// Why it could not be read.
    pub error: Option<String>,
}

impl Row {
    /// When its `system.profile` wraps. At level 0 nothing is written to it, so it never does.
    fn wrap(&self, now: Timestamp) -> Wrap {
        match &self.fill {
            Some(fill) if self.level != Some(0) => fill.wrap(now),
            _ => Wrap::Unknown,
        }
    }
}

/// Writes the server, the table, and what a filter overrides. `now` is the server's clock.
///
/// # Errors
/// Those of `out`.
pub fn table(server: &str, rows: &[Row], now: Timestamp, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}", escape(server))?;
    let limited = rows.iter().any(|row| row.rate_limit.is_some());
    let mut heading = vec!["database", "level", "slowms", "sample", "filter"];
    if limited {
        heading.push("ratelimit");
    }
    heading.extend(["size", "used", "docs", "docs/s", "spans", "wraps"]);
    let mut lines = vec![heading.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let mut cells = vec![
            escape(&row.database).into_owned(),
            or_unknown(row.level),
            row.slow_ms.map_or_else(|| UNKNOWN.to_owned(), |ms| format!("{ms}ms")),
            or_unknown(row.sample_rate),
            (if row.filter.is_some() { "yes" } else { UNKNOWN }).to_owned(),
        ];
        if limited {
            cells.push(or_unknown(row.rate_limit));
        }
        cells.extend(fill(row, now));
        lines.push(cells);
    }
    align(&lines, &mut out)?;
    for row in rows {
        if let Some(error) = &row.error {
            writeln!(out, "{}: {}", escape(&row.database), escape(error))?;
        }
        if let Some(filter) = &row.filter {
            let overridden = if row.level == Some(2) { "" } else { ", which overrides slowms and sample" };
            writeln!(out, "{}: filter {}{overridden}", escape(&row.database), escape(filter))?;
        }
    }
    Ok(())
}

fn fill(row: &Row, now: Timestamp) -> [String; 6] {
    let Some(fill) = &row.fill else { return [(); 6].map(|()| UNKNOWN.to_owned()) };
    [
        or_unknown(fill.max_bytes.map(Size)),
        format!("{}B", Count(fill.size_bytes as f64)),
        fill.documents.to_string(),
        or_unknown(fill.rate(now).map(Count)),
        or_unknown(fill.span_ns().map(Nanos)),
        match row.wrap(now) {
            Wrap::Unknown => UNKNOWN.to_owned(),
            Wrap::Full { turn_ns } => format!("full, turns in {}", Nanos(turn_ns)),
            Wrap::In { ns } => format!("in {}", Nanos(ns)),
        },
    ]
}

/// Columns as wide as their widest cell: the first and the last to the left, the others to the right.
pub(crate) fn align(lines: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        lines.iter().filter_map(|line| line.get(at)).map(|cell| crate::kit::width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let mut text = String::new();
        for (at, cell) in line.iter().enumerate() {
            let space = " ".repeat(widths[at].saturating_sub(crate::kit::width(cell)));
            if at > 0 {
                text.push_str("  ");
            }
            if at == 0 || at + 1 == columns {
                text.push_str(cell);
                text.push_str(&space);
            } else {
                text.push_str(&space);
                text.push_str(cell);
            }
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Object<'a> {
    database: &'a str,
    level: Option<i32>,
    slowms: Option<i64>,
    sample_rate: Option<f64>,
    filter: Option<&'a str>,
    rate_limit: Option<i64>,
    size_max_bytes: Option<u64>,
    size_bytes: Option<u64>,
    documents: Option<u64>,
    documents_per_second: Option<f64>,
    oldest_ns: Option<u64>,
    newest_ns: Option<u64>,
    span_ns: Option<u64>,
    full: Option<bool>,
    wraps_in_ns: Option<u64>,
    turn_ns: Option<u64>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Status<'a> {
    server: &'a str,
    now_ns: u64,
    databases: Vec<Object<'a>>,
}

/// Writes the same as one JSON object; names and meanings are in `docs/profiler.md`.
///
/// # Errors
/// Those of `out`.
pub fn json(server: &str, rows: &[Row], now: Timestamp, out: impl Write) -> io::Result<()> {
    let databases = rows.iter().map(|row| object(row, now)).collect();
    crate::kit::json::line(&Status { server, now_ns: now.unix_ns(), databases }, out)
}

fn object(row: &Row, now: Timestamp) -> Object<'_> {
    let fill = row.fill.as_ref();
    let wrap = row.wrap(now);
    Object {
        database: &row.database,
        level: row.level,
        slowms: row.slow_ms,
        sample_rate: row.sample_rate,
        filter: row.filter.as_deref(),
        rate_limit: row.rate_limit,
        size_max_bytes: fill.and_then(|fill| fill.max_bytes),
        size_bytes: fill.map(|fill| fill.size_bytes),
        documents: fill.map(|fill| fill.documents),
        documents_per_second: fill.and_then(|fill| fill.rate(now)),
        oldest_ns: fill.and_then(|fill| fill.oldest).map(Timestamp::unix_ns),
        newest_ns: fill.and_then(|fill| fill.newest).map(Timestamp::unix_ns),
        span_ns: fill.and_then(Fill::span_ns),
        full: fill.map(Fill::is_full),
        wraps_in_ns: if let Wrap::In { ns } = wrap { Some(ns) } else { None },
        turn_ns: if let Wrap::Full { turn_ns } = wrap { Some(turn_ns) } else { None },
        error: row.error.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let at = |seconds| Some(Timestamp::from_unix(seconds, 0));
        let fill = Fill {
            max_bytes: Some(1 << 20),
            size_bytes: 500_000,
            documents: 1_000,
            oldest: at(1_000),
            newest: at(2_000),
            recent_documents: 100,
            recent_since: at(1_990),
        };
        vec![
            Row {
                database: "shop".to_owned(),
                level: Some(1),
                slow_ms: Some(100),
                sample_rate: Some(1.0),
                filter: Some("{\"op\":\"query\"}".to_owned()),
                fill: Some(fill),
                ..Row::default()
            },
            Row { database: "e\u{1b}[2Jvil".to_owned(), error: Some("no".to_owned()), ..Row::default() },
        ]
    }

    #[test]
    fn a_person_sees_when_it_wraps_and_what_is_not_known() {
        let mut out = Vec::new();
        table("MongoDB 7.0.5 at a:27017", &rows(), Timestamp::from_unix(2_000, 0), &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn what_nothing_is_written_to_never_wraps() {
        let mut rows = rows();
        rows.truncate(1);
        for (level, wraps) in [(Some(0), false), (Some(1), true), (Some(2), true), (None, true)] {
            rows[0].level = level;
            let (mut text, mut out) = (Vec::new(), Vec::new());
            let now = Timestamp::from_unix(2_000, 0);
            table("MongoDB", &rows, now, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let line = text.lines().nth(2).unwrap();
            assert_eq!(line.contains("in 1m"), wraps, "{level:?}: {line}");
            json("MongoDB", &rows, now, &mut out).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value["databases"][0]["wraps_in_ns"].is_u64(), wraps, "{level:?}");
        }
    }

    #[test]
    fn a_program_reads_the_same() {
        let mut out = Vec::new();
        json("MongoDB", &rows(), Timestamp::from_unix(2_000, 0), &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let first = &value["databases"][0];
        // 548,576 bytes at ten documents a second of 500 bytes.
        assert_eq!(first["wraps_in_ns"], 109_715_200_000u64);
        assert_eq!(first["span_ns"], 1_000_000_000_000u64);
        assert_eq!(first["full"], false);
        assert!(value["databases"][1]["level"].is_null() && value["databases"][1]["wraps_in_ns"].is_null());
    }
}
