//! The plot of a file's reads, offset over time: a grid of counts instead of dots, so that ten million accesses
//! need no more memory than a thousand.

use super::IoAccess;
use crate::history::Span;
use crate::{Histogram, Timestamp};

/// A grid of counts over time and offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Density {
    columns: usize,
    rows: usize,
    start: Timestamp,
    span_ns: u64,
    length: u64,
    cells: Vec<(u64, u64)>,
    latencies: Vec<Histogram>,
}

impl Density {
    /// An empty grid of `columns` by `rows` cells (each 1 to 4,096) for a span of time and the first `length`
    /// bytes of a file.
    pub fn new(columns: usize, rows: usize, span: Span, length: u64) -> Self {
        let (columns, rows) = (columns.clamp(1, 4_096), rows.clamp(1, 4_096));
        let cells = vec![(0, 0); columns * rows];
        let latencies = vec![Histogram::new(); columns];
        Self {
            columns,
            rows,
            start: span.from,
            span_ns: span.length_ns().max(1),
            length: length.max(1),
            cells,
            latencies,
        }
    }

    /// Adds one access at its start; accesses outside of the grid count in the cell at the edge.
    pub fn record(&mut self, access: &IoAccess) {
        let place = |at: u64, of: u64, cells: usize| {
            let cell = u128::from(at) * cells as u128 / u128::from(of);
            usize::try_from(cell).unwrap_or(cells).min(cells - 1)
        };
        let column = place(access.start.since(self.start), self.span_ns, self.columns);
        let row = place(access.offset, self.length, self.rows);
        let (count, latency_ns) = &mut self.cells[row * self.columns + column];
        *count += 1;
        *latency_ns = latency_ns.saturating_add(access.latency_ns);
        self.latencies[column].record(access.latency_ns);
    }

    /// Latencies by column, in order of time.
    pub fn latencies(&self) -> &[Histogram] {
        &self.latencies
    }

    /// Columns and rows.
    pub const fn size(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }

    /// Length of the file part that the grid covers, in bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Length of the time span that the grid covers, in nanoseconds.
    pub const fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// The cells that are not empty: column, row (0 is the start of the file), number of accesses, and their mean
    /// latency in nanoseconds.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, u64, u64)> + '_ {
        let used = self.cells.iter().enumerate().filter(|(_, cell)| cell.0 > 0);
        used.map(|(at, &(count, sum))| (at % self.columns, at / self.columns, count, sum / count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::AccessKind;

    #[test]
    fn each_access_is_in_one_cell() {
        let time = Span { from: Timestamp::from_unix_ns(1_000), to: Timestamp::from_unix_ns(2_000) };
        let mut density = Density::new(10, 4, time, 400);
        for (ns, offset, latency_ns) in
            [(1_000, 0, 10), (1_050, 99, 20), (1_999, 399, 5), (9_999, u64::MAX, 7)]
        {
            density.record(&IoAccess {
                start: Timestamp::from_unix_ns(ns),
                latency_ns,
                thread: 1,
                file: 1,
                kind: AccessKind::Read,
                offset,
                asked: 1,
                given: 1,
                error: 0,
                device_bytes: None,
            });
        }
        assert_eq!(density.cells().collect::<Vec<_>>(), [(0, 0, 2, 15), (9, 3, 2, 6)]);
        let counts: Vec<_> = density.latencies().iter().map(Histogram::count).collect();
        assert_eq!(counts, [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    }
}
