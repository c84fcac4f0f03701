//! The columns: their names, titles and cells, the order of rows by each, and which of them fit.

use std::cmp::Ordering;

use sonar_core::baseline::{BaselineResult, BaselineStatus};
use sonar_core::row::RowKey;

use crate::kit;
use crate::kit::{Count, Nanos, UNKNOWN, or_unknown};
use crate::queries::{
    Differing, Form, Grouping, InFlightRow, ReportKey, ReportRow, Selection, WindowReport, scaled,
};

/// A column of the table and of the live view; rows can be sorted by each.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Column {
    Count,
    Calls,
    Load,
    P50,
    P95,
    P99,
    P999,
    Max,
    In,
    Out,
    Docs,
    Errors,
    InFlight,
    Oldest,
    Since,
    Server,
    Role,
    Class,
    Command,
    Namespace,
    Shape,
    App,
    Client,
}

/// The fixed properties of a column.
struct Spec {
    column: Column,
    name: &'static str,
    title: &'static str,
    /// The fewest terminal columns that it takes.
    width: usize,
    meaning: &'static str,
}

const fn spec(
    column: Column,
    (name, title): (&'static str, &'static str),
    width: usize,
    meaning: &'static str,
) -> Spec {
    Spec { column, name, title, width, meaning }
}

/// All columns, in the order of display and of [`Column`].
const SPECS: [Spec; 23] = [
    spec(Column::Count, ("count", "calls"), 7, "operations that ended, where the whole run is summed up"),
    spec(Column::Calls, ("calls", "calls/s"), 8, "operations that ended, per second: queries per second"),
    spec(
        Column::Load,
        ("load", "load"),
        6,
        "seconds of latency per second: how many clients were waiting on average",
    ),
    spec(
        Column::P50,
        ("p50", "p50"),
        6,
        "median latency: last byte of the request to first byte of the reply",
    ),
    spec(Column::P95, ("p95", "p95"), 6, "95th percentile of latency"),
    spec(Column::P99, ("p99", "p99"), 6, "99th percentile of latency"),
    spec(Column::P999, ("p99.9", "p99.9"), 6, "99.9th percentile of latency"),
    spec(Column::Max, ("max", "max"), 6, "longest latency"),
    spec(Column::In, ("in", "in/s"), 6, "bytes of requests on the wire, per second"),
    spec(Column::Out, ("out", "out/s"), 6, "bytes of replies on the wire, per second"),
    spec(Column::Docs, ("docs", "docs"), 5, "documents returned per call; of writes, documents affected"),
    spec(Column::Errors, ("errors", "errors"), 7, "errors in the span shown, write errors one by one"),
    spec(Column::InFlight, ("in-flight", "fly"), 5, "operations in flight: started and not ended"),
    spec(Column::Oldest, ("oldest", "oldest"), 6, "age of the oldest operation in flight"),
    spec(Column::Since, ("since", "since"), 12, "against the baseline: new, or slower and by how much"),
    spec(Column::Server, ("server", "server"), 21, "server that received the operation"),
    spec(Column::Role, ("role", "role"), 7, "served: a client asked; issued: another server did"),
    spec(Column::Class, ("class", "class"), 11, "user, internal, monitoring, replication or waiting"),
    spec(Column::Command, ("command", "command"), 11, "command"),
    spec(Column::Namespace, ("namespace", "namespace"), 14, "database and collection"),
    spec(Column::Shape, ("shape", "shape"), 16, "query shape: the query without its values"),
    spec(Column::App, ("app", "application"), 20, "application, as the client's hello names it"),
    spec(Column::Client, ("client", "client"), 20, "client address: where the connection comes from"),
];

impl Column {
    /// All columns, in the order of display.
    pub const ALL: [Self; SPECS.len()] = {
        let mut all = [Self::Count; SPECS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = SPECS[at].column;
            at += 1;
        }
        all
    };

    const fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// The stable name, as `--sort` takes it.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The column of that name, or with that heading. Case does not matter, nor `_` for `-`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase().replace('_', "-");
        let named = Self::ALL.into_iter().find(|column| column.name() == name);
        named.or_else(|| Self::ALL.into_iter().find(|column| column.title() == name))
    }

    /// The heading.
    pub const fn title(self) -> &'static str {
        self.spec().title
    }

    /// What it means, for help and documentation.
    pub const fn meaning(self) -> &'static str {
        self.spec().meaning
    }

    /// Whether it holds figures, which stand at the right and are sorted with the largest first.
    pub const fn is_figure(self) -> bool {
        self as usize <= Self::Since as usize
    }

    /// Whether the figure is scaled up from a sample.
    pub const fn is_scaled(self) -> bool {
        matches!(
            self,
            Self::Count | Self::Calls | Self::Load | Self::In | Self::Out | Self::Errors | Self::InFlight
        )
    }

    /// The cell of a row, not escaped and not cut.
    pub fn cell(self, row: &ReportRow<'_>, report: &WindowReport<'_>) -> String {
        let stats = &row.stats;
        match self {
            Self::Count => Count(scaled(stats.figures.calls, report.sample) as f64).to_string(),
            Self::Calls => Count(stats.rates.calls).to_string(),
            Self::Load => Count(stats.rates.load).to_string(),
            Self::P50 => or_unknown(stats.quantiles.p50.map(Nanos)),
            Self::P95 => or_unknown(stats.quantiles.p95.map(Nanos)),
            Self::P99 => or_unknown(stats.quantiles.p99.map(Nanos)),
            Self::P999 => or_unknown(stats.quantiles.p999.map(Nanos)),
            Self::Max => or_unknown(stats.quantiles.max.map(Nanos)),
            Self::In => Count(stats.rates.request_bytes).to_string(),
            Self::Out => Count(stats.rates.response_bytes).to_string(),
            Self::Docs => or_unknown(stats.rates.docs_per_call().map(Count)),
            Self::Errors => Count(stats.figures.error_count() as f64 * f64::from(report.sample)).to_string(),
            Self::InFlight => {
                or_unknown(stats.in_flight.map(|w| Count(w.count as f64 * f64::from(report.sample))))
            }
            Self::Oldest => or_unknown(stats.in_flight.and_then(|waiting| waiting.oldest_ns).map(Nanos)),
            Self::Since => since(row.against.as_ref()),
            _ => self.label(row, report.selection.form),
        }
    }

    /// The cell of a column that holds a name.
    fn label(self, row: &ReportRow<'_>, form: Form) -> String {
        let key = |of: fn(&RowKey) -> String| match &row.key {
            ReportKey::Shape { key, .. } => of(key),
            _ => UNKNOWN.to_string(),
        };
        match self {
            Self::Server => key(|key| key.server.to_string()),
            Self::Role => key(|key| key.role.name().to_string()),
            Self::Class => key(|key| key.class.name().to_string()),
            Self::Command => row.command().unwrap_or(UNKNOWN).to_string(),
            Self::Namespace => row.namespace().unwrap_or_else(|| UNKNOWN.to_string()),
            Self::Shape => row.shape().map_or_else(
                || UNKNOWN.to_string(),
                |shape| {
                    let (text, cut) = (form.of(shape), if shape.cut { "…" } else { "" });
                    match &row.key {
                        ReportKey::Shape { key, .. } if key.order.0 != 0 => {
                            format!("{text}{cut} [{}]", key.order)
                        }
                        _ => format!("{text}{cut}"),
                    }
                },
            ),
            Self::App => match &row.key {
                ReportKey::App(app) if app.driver.is_empty() => app.label(),
                ReportKey::App(app) => format!("{}  {} {}", app.label(), app.driver, app.driver_version),
                _ => "other".to_string(),
            },
            Self::Client => match &row.key {
                ReportKey::Client(ip) => ip.to_string(),
                _ => "other".to_string(),
            },
            _ => String::new(),
        }
    }

    /// The figure by which rows are sorted; `None` when it is not known.
    fn figure(self, row: &ReportRow<'_>, elapsed_ns: u64) -> Option<f64> {
        let stats = &row.stats;
        let ns = |ns: Option<u64>| ns.map(|ns| ns as f64);
        match self {
            Self::Count => Some(stats.figures.calls as f64),
            Self::Calls => Some(stats.rates.calls),
            Self::Load => Some(row.load_with_waiting(elapsed_ns)),
            Self::P50 => ns(stats.quantiles.p50),
            Self::P95 => ns(stats.quantiles.p95),
            Self::P99 => ns(stats.quantiles.p99),
            Self::P999 => ns(stats.quantiles.p999),
            Self::Max => ns(stats.quantiles.max),
            Self::In => Some(stats.rates.request_bytes),
            Self::Out => Some(stats.rates.response_bytes),
            Self::Docs => stats.rates.docs_per_call(),
            Self::Errors => Some(stats.figures.error_count() as f64),
            Self::InFlight => stats.in_flight.map(|InFlightRow { count, .. }| count as f64),
            Self::Oldest => ns(stats.in_flight.and_then(|waiting| waiting.oldest_ns)),
            Self::Since => row.against.and_then(|against| match against.status {
                BaselineStatus::New => Some(f64::MAX),
                BaselineStatus::Slower => against.shift.map(|shift| shift.factor()),
                BaselineStatus::Same => Some(0.0),
                BaselineStatus::Known => None,
            }),
            _ => None,
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

/// The order of rows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sort {
    /// The column: figures with the largest first, names by alphabet. Unknown values come last.
    pub column: Column,
    /// In reverse order; unknown values stay last.
    pub reverse: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self { column: Column::Load, reverse: false }
    }
}

impl Sort {
    /// Sorts rows; those that are equal by calls, then by name, so that the order does not depend on
    /// how they were gathered.
    pub(crate) fn apply(self, rows: &mut [ReportRow<'_>], form: Form, elapsed_ns: u64) {
        let Self { column, reverse } = self;
        let turn = |order: Ordering| if reverse { order.reverse() } else { order };
        let name = |row: &ReportRow<'_>| {
            let labels = [Column::Namespace, Column::Command, Column::Shape, Column::App, Column::Client];
            labels.map(|column| column.label(row, form))
        };
        if column.is_figure() {
            rows.sort_by(|a, b| {
                match (column.figure(a, elapsed_ns), column.figure(b, elapsed_ns)) {
                    (Some(a), Some(b)) => turn(b.total_cmp(&a)),
                    (a, b) => b.is_some().cmp(&a.is_some()),
                }
                .then_with(|| b.stats.figures.calls.cmp(&a.stats.figures.calls))
                .then_with(|| name(a).cmp(&name(b)))
                .then(a.identity.cmp(&b.identity))
            });
        } else {
            rows.sort_by_cached_key(|row| (name(row), row.identity));
            rows.sort_by(|a, b| turn(column.label(a, form).cmp(&column.label(b, form))));
        }
    }
}

/// A column and how many terminal columns it has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which.
    pub column: Column,
    /// How wide; `usize::MAX` for the last one when the width is not bounded.
    pub width: usize,
}

/// Rows that are measured to find how wide names are.
const ROWS_MEASURED: usize = 500;

/// The columns of a grouping, whether they fit or not: those by which rows can be sorted.
pub fn sortable(selection: &Selection) -> Vec<Column> {
    let differing = Differing { servers: true, roles: true, classes: true };
    let wanted = wanted(selection, differing, Column::Calls).0;
    Column::ALL.into_iter().filter(|column| wanted.contains(column)).collect()
}

/// The columns of a grouping, the most important first, and how many of them are needed most.
fn wanted(selection: &Selection, differing: Differing, sorted: Column) -> (Vec<Column>, usize) {
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
    wanted.extend([Calls, Load, P99, Errors]);
    wanted.extend(knows_in_flight.then_some(Oldest));
    let needed = wanted.len();
    wanted.extend((by_shape && differing.classes).then_some(Class));
    wanted.extend((by_shape && differing.roles).then_some(Role));
    wanted.push(P50);
    // Without it, rows of several servers look alike.
    wanted.extend((by_shape && differing.servers).then_some(Server));
    wanted.extend([Out, Max, P95, Docs, In, P999]);
    wanted.extend(knows_in_flight.then_some(InFlight));
    (wanted, needed)
}

/// Chooses the columns that fit into `width` terminal columns (`None`: all fit), the most important
/// ones and the one that rows are sorted by first. One space stands between columns.
pub fn place(report: &WindowReport<'_>, width: Option<usize>) -> Vec<Placed> {
    let (by, sorted) = (report.selection.by, report.selection.sort.column);
    let (wanted, needed) = wanted(report.selection, report.differing(), sorted);
    let wide = |column: Column| {
        let Some((least, most)) = column.bounds() else { return column.spec().width };
        let cells = report.rows.iter().take(ROWS_MEASURED).map(|row| column.cell(row, report));
        cells.map(|cell| kit::width(&kit::escape(&cell))).max().unwrap_or(0).clamp(least, most)
    };
    let budget = width.unwrap_or(usize::MAX);
    // Optional columns must leave room for a text that can be read.
    let spare = if matches!(by, Grouping::Shape | Grouping::Order) { (budget / 5).min(40) } else { 0 };
    let (mut chosen, mut used) = (Vec::<Placed>::new(), 0usize);
    for (at, column) in wanted.into_iter().enumerate() {
        let budget = if at < needed { budget } else { budget - spare };
        let wide = wide(column);
        // A name starts narrow and gets what is left at the end.
        let width = wide.min(column.spec().width);
        let needs = width + usize::from(!chosen.is_empty());
        let is_new = chosen.iter().all(|placed| placed.column != column);
        if is_new && (used.saturating_add(needs) <= budget || chosen.is_empty()) {
            chosen.push(Placed { column, width: width.min(budget) });
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
    fn a_column_is_found_by_its_name_and_by_its_heading() {
        for column in Column::ALL {
            assert_eq!(column.spec().column, column);
            assert_eq!(Column::from_name(column.name()), Some(column));
            assert_eq!(Column::from_name(&column.name().to_uppercase()), Some(column));
            // `calls` heads the count of a summary and names the rate.
            let by_title = Column::from_name(column.title());
            assert!(by_title == Some(column) || column == Column::Count, "{}", column.title());
        }
        assert_eq!(Column::from_name("in_flight"), Some(Column::InFlight));
        assert_eq!(Column::from_name("unknown"), None);
    }
}
