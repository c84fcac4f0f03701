//! Which columns fit, and what is in their cells.

use std::cmp::Reverse;

use sonar_core::TlsSuite;
use sonar_core::baseline::{BaselineResult, BaselineStatus};
use sonar_core::figures::Figures;

use super::column::Column;
use super::grouping::Grouping;
use super::report::{Differing, WindowReport};
use super::row::ReportRow;
use super::selection::Selection;
use super::split::{SPLIT_COLUMNS, letters};
use crate::kit::{self, Count, Nanos, UNKNOWN, or_unknown, scaled};

impl Column {
    /// The cell of a row, not escaped and not cut.
    pub fn cell(self, row: &ReportRow<'_>, report: &WindowReport<'_>) -> String {
        let stats = &row.stats;
        match self {
            Self::Count => Count(scaled(stats.figures.calls, report.sample) as f64).to_string(),
            Self::Calls => or_unknown(stats.rates.calls.map(Count)),
            Self::Load => or_unknown(stats.rates.load.map(Count)),
            Self::P50 => or_unknown(stats.quantiles.p50.map(Nanos)),
            Self::P95 => or_unknown(stats.quantiles.p95.map(Nanos)),
            Self::P99 => or_unknown(stats.quantiles.p99.map(Nanos)),
            Self::P999 => or_unknown(stats.quantiles.p999.map(Nanos)),
            Self::Max => or_unknown(stats.quantiles.max.map(Nanos)),
            Self::In => or_unknown(stats.rates.request_bytes.map(Count)),
            Self::Out => or_unknown(stats.rates.response_bytes.map(Count)),
            Self::Docs => or_unknown(stats.rates.docs_per_call().map(Count)),
            Self::Errors => {
                let errors = stats.figures.known_errors();
                or_unknown(errors.map(|count| Count(count as f64 * f64::from(report.sample))))
            }
            Self::InFlight => {
                or_unknown(stats.in_flight.map(|w| Count(w.count as f64 * f64::from(report.sample))))
            }
            Self::Oldest => or_unknown(stats.in_flight.and_then(|waiting| waiting.oldest_ns).map(Nanos)),
            Self::Tls => tls_share(&stats.figures),
            Self::Split => {
                row.split.as_ref().map_or_else(|| UNKNOWN.to_string(), |split| letters(split, SPLIT_COLUMNS))
            }
            Self::Wait => or_unknown(row.waited().map(Count)),
            Self::Since => since(row.against.as_ref()),
            _ => self.label(row, report.selection.form),
        }
    }

    /// Columns that a name has at least and at most; between them it is as wide as its widest cell.
    /// `None` for figures, and for names of any length.
    const fn bounds(self) -> Option<(usize, usize)> {
        match self {
            Self::Server => Some((14, 28)),
            Self::Command => Some((7, 16)),
            Self::Namespace => Some((9, 40)),
            _ => None,
        }
    }
}

/// The share of operations that were encrypted with TLS, from 1 to 100 percent, and 100 only for all of them;
/// [`UNKNOWN`] for none.
pub(super) fn tls_share(figures: &Figures) -> String {
    match figures.tls.mean() {
        Some(share) if share > 0.0 => {
            let most = if share < 1.0 { 99.0 } else { 100.0 };
            format!("{} %", (share * 100.0).round().clamp(1.0, most))
        }
        _ => UNKNOWN.to_string(),
    }
}

/// Versions and cipher suites of encrypted operations with their counts, those with the most first; the smallest ones
/// beyond the limit as `other`.
pub(super) fn suites_of(figures: &Figures) -> Vec<(String, u64)> {
    let mut suites: Vec<(TlsSuite, u64)> = figures.suites.iter().copied().collect();
    suites.sort_unstable_by_key(|(suite, count)| (Reverse(*count), *suite));
    let other = (figures.suites.other > 0).then(|| ("other".to_owned(), figures.suites.other));
    let mut named: Vec<(String, u64)> = Vec::new();
    // Versions without a name have one name together.
    for (name, count) in suites.into_iter().map(|(suite, count)| (suite.to_string(), count)).chain(other) {
        match named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => named.push((name, count)),
        }
    }
    named
}

/// How a row compares with the baseline, in a word.
fn since(against: Option<&BaselineResult>) -> String {
    let Some(against) = against else { return UNKNOWN.to_string() };
    match (against.status, against.shift) {
        (BaselineStatus::New, _) => "new".to_string(),
        (BaselineStatus::Slower, Some(shift)) => format!("slower ×{}", Count(shift.factor())),
        (BaselineStatus::Slower, None) => "slower".to_string(),
        (BaselineStatus::Same, _) => "same".to_string(),
        (BaselineStatus::Known, _) => UNKNOWN.to_string(),
    }
}

/// A column and how many terminal columns it has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which.
    pub column: Column,
    /// How wide; `usize::MAX` for the last one when the width is not bounded.
    pub width: usize,
    /// The shape stands behind its command and namespace, which have no columns of their own.
    pub is_whole: bool,
}

impl Placed {
    /// The cell of a row, not escaped and not cut.
    pub fn cell(&self, row: &ReportRow<'_>, report: &WindowReport<'_>) -> String {
        let cell = |column: Column| column.cell(row, report);
        match self.is_whole {
            true => format!("{} {} {}", cell(Column::Command), cell(Column::Namespace), cell(self.column)),
            false => cell(self.column),
        }
    }

    /// The heading.
    pub fn title(&self, report: &WindowReport<'_>) -> String {
        if self.is_whole { "query".to_owned() } else { title(self.column, report) }
    }
}

/// On a terminal that is narrower than this, columns for commands and namespaces would leave too little for shapes.
const NARROW: usize = 100;

/// Rows that are measured to find how wide names are.
const ROWS_MEASURED: usize = 500;

/// The columns of a grouping, whether they fit or not: those by which rows can be sorted.
pub fn sortable(selection: &Selection) -> Vec<Column> {
    let differing = Differing { servers: true, roles: true, classes: true, tls: true };
    let wanted = wanted(selection, selection.has_splits, differing, Column::Calls).columns;
    Column::ALL.into_iter().filter(|column| wanted.contains(column)).collect()
}

/// The columns of a grouping.
struct WantedColumns {
    /// The most important first.
    columns: Vec<Column>,
    /// How many of them, from the first on, may take the room of a text.
    needed: usize,
}

/// The columns of a grouping.
fn wanted(selection: &Selection, has_splits: bool, differing: Differing, sorted: Column) -> WantedColumns {
    use Column::*;
    let by = selection.by;
    let (by_shape, knows_in_flight) = (
        matches!(by, Grouping::Shape | Grouping::Order),
        matches!(by, Grouping::Shape | Grouping::Order | Grouping::Namespace),
    );
    let mut wanted = match by {
        Grouping::Shape | Grouping::Order => vec![Shape, sorted, Command, Namespace],
        Grouping::Namespace => vec![Namespace, sorted],
        Grouping::App => vec![App, sorted],
        Grouping::Client => vec![Client, sorted],
    };
    wanted.extend((knows_in_flight && selection.baseline.is_some()).then_some(Since));
    wanted.extend((knows_in_flight && has_splits).then_some(Split));
    wanted.extend([Calls, Load, P99, Errors]);
    wanted.extend(knows_in_flight.then_some(Oldest));
    let needed = wanted.len();
    wanted.extend((by_shape && differing.classes).then_some(Class));
    wanted.extend((by_shape && differing.roles).then_some(Role));
    wanted.extend((knows_in_flight && has_splits).then_some(Wait));
    wanted.extend(differing.tls.then_some(Tls));
    wanted.push(P50);
    // Without it, rows of several servers look alike.
    wanted.extend((by_shape && differing.servers).then_some(Server));
    wanted.extend([Out, Max, P95, Docs, In, P999]);
    wanted.extend(knows_in_flight.then_some(InFlight));
    WantedColumns { columns: wanted, needed }
}

impl WantedColumns {
    /// For a narrow terminal: shapes stand behind their command and namespace, and quantiles come first.
    fn in_one(self) -> Self {
        let Self { mut columns, needed } = self;
        columns.retain(|column| !matches!(column, Column::Command | Column::Namespace));
        if let (Some(calls), Some(p99)) = (
            columns.iter().position(|one| *one == Column::Calls),
            columns.iter().position(|one| *one == Column::P99),
        ) && calls < p99
        {
            columns[calls..=p99].rotate_right(1);
        }
        Self { columns, needed: needed - 2 }
    }
}

/// Chooses the columns that fit into `width` terminal columns (`None`: all fit), the most important
/// ones and the one that rows are sorted by first. One space stands between columns.
pub fn place(report: &WindowReport<'_>, width: Option<usize>) -> Vec<Placed> {
    let (by, sorted) = (report.selection.by, report.selection.sort.column);
    let has_splits = report.selection.has_splits || report.rows.iter().any(|row| row.split.is_some());
    let by_shape = matches!(by, Grouping::Shape | Grouping::Order);
    let is_whole = by_shape && width.is_some_and(|width| width < NARROW);
    let all = wanted(report.selection, has_splits, report.differing(), sorted);
    let WantedColumns { columns, needed } = if is_whole { all.in_one() } else { all };
    let wide = |column: Column| {
        let Some((least, most)) = column.bounds() else { return column.spec().width };
        let cells = report.rows.iter().take(ROWS_MEASURED).map(|row| column.cell(row, report));
        cells.map(|cell| kit::width(&kit::escape(&cell))).max().unwrap_or(0).clamp(least, most)
    };
    let budget = width.unwrap_or(usize::MAX);
    // Optional columns must leave room for a text that can be read.
    let spare = if by_shape { (budget / 5).min(40) } else { 0 };
    // All others leave half of a narrow line.
    let of_whole = if is_whole { (budget / 2).saturating_sub(Column::Shape.spec().width) } else { 0 };
    let (mut chosen, mut used) = (Vec::<Placed>::new(), 0usize);
    for (at, column) in columns.into_iter().enumerate() {
        let budget = if at < needed { budget - of_whole } else { budget - spare.max(of_whole) };
        let wide = wide(column);
        // A name starts narrow and gets what is left at the end.
        let width = wide.min(column.spec().width);
        let needs = width + usize::from(!chosen.is_empty());
        let is_new = chosen.iter().all(|placed| placed.column != column);
        if is_new && (used.saturating_add(needs) <= budget || chosen.is_empty()) {
            let is_whole = is_whole && column == Column::Shape;
            chosen.push(Placed { column, width: width.min(budget), is_whole });
            used += needs;
        }
    }
    let mut placed: Vec<_> = Column::ALL
        .into_iter()
        .filter_map(|column| chosen.iter().find(|placed| placed.column == column).copied())
        .collect();
    if width.is_some() {
        let mut room = budget.saturating_sub(used);
        // Names that were cut get up to half of what is left, the last column gets the rest.
        for placed in &mut placed {
            let more = wide(placed.column).saturating_sub(placed.width).min(room / 2);
            placed.width += more;
            room -= more;
        }
        if let Some(last) = placed.last_mut() {
            last.width += room;
        }
    }
    placed
}

/// The heading of a column; scaled figures are marked.
pub fn title(column: Column, report: &WindowReport<'_>) -> String {
    let mark = if column.is_scaled() { report.mark() } else { "" };
    format!("{mark}{}", column.title())
}

/// Appends one cell to a line, escaped, cut and filled.
pub fn push_cell(line: &mut String, placed: Placed, cell: &str) {
    if placed.width == usize::MAX {
        line.push_str(&kit::escape(cell));
    } else {
        kit::push_padded(line, cell, placed.width, placed.column.is_figure());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_of_versions_without_a_name_are_counted_together() {
        let mut figures = Figures::default();
        for (version, count) in [(0x7f12, 1), (0x0303, 2), (0x7f13, 3)] {
            let suite = TlsSuite::of_server_hello(version, 0xc02f);
            figures.suites.add(&suite, count, || suite);
        }
        let named = ("TLSv1.2 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(), 2);
        assert_eq!(suites_of(&figures), [("unknown".to_owned(), 4), named]);
    }
}
