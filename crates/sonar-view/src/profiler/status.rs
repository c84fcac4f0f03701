//! `profiler status`: the state of the profiler of each database.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::Timestamp;
use sonar_core::profiler::{Fill, Wrap};

use crate::kit::{
    self, ByteSize, Bytes, Count, Fitting, Heading, Nanos, TextTable, UNKNOWN, escape, or_unknown,
};

/// The profiler of one database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseProfile {
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

impl DatabaseProfile {
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
pub fn text<W: Write>(
    server: &str,
    rows: &[DatabaseProfile],
    now: Timestamp,
    out: &mut Fitting<W>,
) -> io::Result<()> {
    writeln!(out, "{}", escape(server))?;
    let mut table = TextTable::new(&[
        Heading::text("database", 0, 12),
        Heading::figure("level", 0),
        Heading::figure("slowms", 0),
        Heading::figure("sample", 0),
        Heading::figure("filter", 0),
        Heading::figure("ratelimit", 0),
        Heading::figure("size", 4),
        Heading::figure("used", 2),
        Heading::figure("docs", 3),
        Heading::figure("docs/s", 1),
        Heading::figure("spans", 5),
        Heading::text("wraps", 0, 10),
    ])
    .spaced();
    for row in rows {
        let fill = row.fill.as_ref();
        table.row([
            row.database.clone(),
            or_unknown(row.level),
            or_unknown(row.slow_ms.map(|ms| format!("{ms}ms"))),
            or_unknown(row.sample_rate),
            or_unknown(row.filter.as_ref().map(|_| "yes")),
            or_unknown(row.rate_limit),
            or_unknown(fill.and_then(|fill| fill.max_bytes).map(ByteSize)),
            or_unknown(fill.map(|fill| Bytes(fill.size_bytes as f64))),
            or_unknown(fill.map(|fill| fill.documents)),
            or_unknown(fill.and_then(|fill| fill.rate(now)).map(Count)),
            or_unknown(fill.and_then(Fill::span_ns).map(Nanos)),
            match row.wrap(now) {
                Wrap::Unknown => UNKNOWN.to_owned(),
                Wrap::Full { turn_ns } => format!("full, turns in {}", Nanos(turn_ns)),
                Wrap::In { ns } => format!("in {}", Nanos(ns)),
            },
        ]);
    }
    let is_limited = rows.iter().any(|row| row.rate_limit.is_some());
    table.keep(|title| title != "ratelimit" || is_limited);
    table.write(out)?;
    for row in rows {
        if let Some(error) = &row.error {
            writeln!(out, "{}: {}", escape(&row.database), escape(error))?;
        }
        if let Some(filter) = &row.filter {
            let overridden = if row.level == Some(2) { "" } else { ", which overrides slowms and sample" };
            writeln!(out, "{}: filter {}{overridden}", escape(&row.database), escape(filter))?;
        }
    }
    out.flush()
}

/// Writes the same as one JSON object; names and meanings are in `docs/profiler.md`.
///
/// # Errors
/// Those of `out`.
pub fn json(server: &str, rows: &[DatabaseProfile], now: Timestamp, out: impl Write) -> io::Result<()> {
    let databases = rows.iter().map(|row| DatabaseProfileJson::new(row, now)).collect();
    kit::json::line(&ProfilerStatusDocument { server, now_ns: now.unix_ns(), databases }, out)
}

#[derive(Serialize)]
struct ProfilerStatusDocument<'a> {
    server: &'a str,
    now_ns: u64,
    databases: Vec<DatabaseProfileJson<'a>>,
}

#[derive(Serialize)]
struct DatabaseProfileJson<'a> {
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

impl<'a> DatabaseProfileJson<'a> {
    fn new(row: &'a DatabaseProfile, now: Timestamp) -> Self {
        let fill = row.fill.as_ref();
        let (wraps_in_ns, turn_ns) = match row.wrap(now) {
            Wrap::Unknown => (None, None),
            Wrap::In { ns } => (Some(ns), None),
            Wrap::Full { turn_ns } => (None, Some(turn_ns)),
        };
        Self {
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
            wraps_in_ns,
            turn_ns,
            error: row.error.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<DatabaseProfile> {
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
            DatabaseProfile {
                database: "shop".to_owned(),
                level: Some(1),
                slow_ms: Some(100),
                sample_rate: Some(1.0),
                filter: Some("{\"op\":\"query\"}".to_owned()),
                fill: Some(fill),
                ..DatabaseProfile::default()
            },
            DatabaseProfile {
                database: "e\u{1b}[2Jvil".to_owned(),
                error: Some("no".to_owned()),
                ..DatabaseProfile::default()
            },
        ]
    }

    #[test]
    fn a_person_sees_when_it_wraps_and_what_is_not_known() {
        let mut out = Vec::new();
        text(
            "MongoDB 7.0.5 at a:27017",
            &rows(),
            Timestamp::from_unix(2_000, 0),
            &mut Fitting::new(&mut out, None),
        )
        .unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn what_nothing_is_written_to_never_wraps() {
        let mut rows = rows();
        rows.truncate(1);
        for (level, wraps) in [(Some(0), false), (Some(1), true), (Some(2), true), (None, true)] {
            rows[0].level = level;
            let (mut shown, mut out) = (Vec::new(), Vec::new());
            let now = Timestamp::from_unix(2_000, 0);
            text("MongoDB", &rows, now, &mut Fitting::new(&mut shown, None)).unwrap();
            let shown = String::from_utf8(shown).unwrap();
            let line = shown.lines().nth(2).unwrap();
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
