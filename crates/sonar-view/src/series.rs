//! Series of the history as a table: one row for each device or file, one column for each metric.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::history::{SeriesMetric, SeriesSubject, SeriesValue, Span};
use sonar_core::{Endpoint, HistoryWindow};

use crate::ftdc::units;
use crate::kit::{About, Fitting, Heading, Nanos, TextTable, UNKNOWN, Zone, plural, server_address};

/// Version of the schema.
const SCHEMA: u32 = 1;

/// A column: its title in text, and the metric.
pub type SeriesColumn = (&'static str, SeriesMetric);

/// What `disk stat` shows, with the titles of `iostat -x`.
pub const DISKS: [SeriesColumn; 10] = {
    use sonar_core::history::metrics as m;
    [
        ("r/s", m::DISK_READS),
        ("rB/s", m::DISK_READ_BYTES),
        ("r_await", m::DISK_READ_WAIT),
        ("w/s", m::DISK_WRITES),
        ("wB/s", m::DISK_WRITTEN_BYTES),
        ("w_await", m::DISK_WRITE_WAIT),
        ("f/s", m::DISK_FLUSHES),
        ("f_await", m::DISK_FLUSH_WAIT),
        ("aqu-sz", m::DISK_QUEUE),
        ("%util", m::DISK_BUSY),
    ]
};

/// What `io live` shows.
pub const FILES: [SeriesColumn; 7] = {
    use sonar_core::history::metrics as m;
    [
        ("reads/s", m::FILE_READS),
        ("read", m::FILE_READ_BYTES),
        ("device", m::FILE_DEVICE_READ_BYTES),
        ("time", m::FILE_READ_TIME),
        ("writes/s", m::FILE_WRITES),
        ("written", m::FILE_WRITTEN_BYTES),
        ("time w", m::FILE_WRITE_TIME),
    ]
};

/// Which series a table shows.
pub struct SeriesChoice<'a> {
    /// The columns: metrics about the same subject, of which there is a row for each.
    pub columns: &'static [SeriesColumn],
    /// Whether a device or file of this name is shown.
    pub wants: &'a dyn Fn(&str) -> bool,
}

impl SeriesChoice<'_> {
    /// What the rows are about.
    pub fn subject(&self) -> SeriesSubject {
        self.columns.first().map_or(SeriesSubject::Machine, |(_, metric)| metric.subject)
    }
}

/// The means of series over a span, a row for each device or file.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesTable {
    schema: u32,
    kind: &'static str,
    about: About,
    rows: Vec<SeriesTableRow>,
    #[serde(skip)]
    columns: &'static [SeriesColumn],
    #[serde(skip)]
    span: Span,
}

#[derive(Clone, Debug, Serialize)]
struct SeriesTableRow {
    name: String,
    server: Option<u16>,
    /// Its address with the port, if the port alone is not its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// By metric: mean, smallest and largest value.
    values: BTreeMap<&'static str, [f64; 3]>,
}

impl SeriesTable {
    /// The chosen series of a window, busiest first by the first column. `source` is the history, and `span` what was asked
    /// for of it.
    pub fn new(window: &HistoryWindow, choice: &SeriesChoice<'_>, source: &str, span: Span) -> Self {
        let SeriesChoice { columns, wants } = *choice;
        let subject = choice.subject();
        let mut rows: BTreeMap<(Endpoint, &str), BTreeMap<&'static str, [f64; 3]>> = BTreeMap::new();
        for (key, value) in window.series.iter().filter(|(key, _)| key.subject == subject && wants(&key.name))
        {
            let column = columns.iter().find(|(_, metric)| *metric.name == *key.metric);
            if let (Some((_, metric)), Some(mean)) = (column, value.mean()) {
                let SeriesValue { min, max, .. } = *value;
                rows.entry((key.server, &key.name)).or_default().insert(metric.name, [mean, min, max]);
            }
        }
        let busy = |row: &SeriesTableRow| {
            let value = columns.first().and_then(|(_, metric)| row.values.get(metric.name));
            value.map_or(0.0, |[mean, ..]| *mean)
        };
        let mut rows: Vec<SeriesTableRow> = rows
            .into_iter()
            .map(|((server, name), values)| SeriesTableRow {
                name: name.to_owned(),
                server: (server.port != 0).then_some(server.port),
                address: server_address(server),
                values,
            })
            .collect();
        rows.sort_by(|a, b| busy(b).total_cmp(&busy(a)).then_with(|| a.name.cmp(&b.name)));
        let about = About::new(None, vec![source.to_owned()], Some(span));
        Self { schema: SCHEMA, kind: "series", about, rows, columns, span }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As a table of means, at most `limit` rows.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone, limit: usize) -> io::Result<()> {
        let (columns, span) = (self.columns, self.span);
        let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
        writeln!(out, "{from} to {to} ({}), means", Nanos(span.length_ns()))?;
        let mut headings = vec![Heading::path("name", 0, 12)];
        headings.extend(columns.iter().enumerate().map(|(at, (title, _))| Heading::figure(title, at as u8)));
        let mut table = TextTable::new(&headings);
        for row in self.rows.iter().take(limit) {
            let value = |metric: &SeriesMetric| match row.values.get(metric.name) {
                Some([mean, ..]) => units::show(*mean, metric.unit.name()),
                None => UNKNOWN.to_owned(),
            };
            let name = std::iter::once(row.name.clone());
            table.row(name.chain(columns.iter().map(|(_, metric)| value(metric))));
        }
        table.write(out)?;
        if self.rows.len() > limit {
            writeln!(out, "… and {}", plural(self.rows.len() - limit, "more row"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::Timestamp;
    use sonar_core::history::{Resolution, metrics};

    use super::*;

    #[test]
    fn the_busiest_device_comes_first_and_what_is_missing_is_unknown() {
        let at = Timestamp::from_unix(1_700_000_000, 0);
        let mut window = HistoryWindow::new(at, Resolution::TenSeconds);
        for (name, reads) in [("sda", 10.0), ("nvme0n1", 500.0)] {
            window.sample(&metrics::DISK_READS.key(Endpoint::default(), name), at, reads, 10.0);
        }
        window.sample(&metrics::DISK_BUSY.key(Endpoint::default(), "sda"), at, 50.0, 10.0);
        let span = Span { from: window.window.start, to: window.window.end };
        let choice = |wants| SeriesChoice { columns: &DISKS, wants };
        let table = SeriesTable::new(&window, &choice(&|_: &str| true), "store", span);
        let mut text = Vec::new();
        table.text(&mut Fitting::new(&mut text, None), &Zone::utc(), 20).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((lines[0][0], lines[0][1]), ("nvme0n1", "500/s"));
        assert_eq!((lines[1][0], lines[1][2], lines[1][10]), ("sda", "-", "50.0"));
        let only = SeriesTable::new(&window, &choice(&|name: &str| name == "sda"), "store", span);
        assert_eq!(only.rows.len(), 1);
    }

    #[test]
    fn two_servers_with_one_port_have_a_row_each_for_files_of_one_name() {
        let at = Timestamp::from_unix(1_700_000_000, 0);
        let mut window = HistoryWindow::new(at, Resolution::TenSeconds);
        for (address, reads) in [([0; 4], 10.0), ([172, 17, 0, 3], 500.0)] {
            let key = metrics::FILE_READS.key(Endpoint::v4(address, 5), "collection-1.wt");
            window.sample(&key, at, reads, 10.0);
        }
        let span = Span { from: window.window.start, to: window.window.end };
        let choice = SeriesChoice { columns: &FILES, wants: &|_| true };
        let table = SeriesTable::new(&window, &choice, "store", span);
        let rows: Vec<_> = table.rows.iter().map(|row| (row.server, row.address.as_deref())).collect();
        assert_eq!(rows, [(Some(5), Some("172.17.0.3:5")), (Some(5), None)]);
    }
}
