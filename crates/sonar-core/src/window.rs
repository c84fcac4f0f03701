//! Windows of time: the figures between two wall-clock boundaries.

use std::sync::Arc;

use crate::figures::{Figures, Record};
use crate::known_drivers::KnownDrivers;
use crate::table::{GroupBy, Table};
use crate::{
    Class, CommandTypes, Coverage, Endpoint, InFlightOperations, Operation, Outcome, ShapeInfo, Source,
    Subject, Timestamp,
};

/// All figures of one span of time.
#[derive(Clone, Debug)]
pub struct Window {
    /// Start of the span.
    pub start: Timestamp,
    /// End of the span; equal to `start` until something is recorded.
    pub end: Timestamp,
    /// One connection in this many was captured, so figures must be scaled by it. 1: all connections.
    pub sample: u32,
    /// By shape.
    pub shapes: Table,
    /// By application.
    pub apps: Table,
    /// By client address.
    pub clients: Table,
    /// By type of command, as `mongostat` counts.
    pub types: CommandTypes,
    /// Counters of this span: captured, lost, skipped.
    pub coverage: Coverage,
    /// Operations in flight when the window was closed.
    pub in_flight: Vec<InFlightOperations>,
    /// How long each source was observed, in nanoseconds, in the order of [`Source::ALL`]; `None` if all of them were
    /// observed all the time. See [`Window::observed_ns`].
    pub observed: Option<[u64; Source::ALL.len()]>,
    /// The most bytes that it keeps to: see [`WindowSettings::max_bytes`].
    pub max_bytes: usize,
    /// So many operations may be recorded until its bytes are counted.
    pub uncounted: u32,
}

/// Operations that are recorded between two counts of the bytes of a window, at least.
const MIN_UNCOUNTED: usize = 256;
/// Between two counts, one operation in so many rows is recorded, at least: counting looks at each row.
const ROWS_OF_ONE: usize = 8;
/// The bytes that an operation is expected to add at most; those that add more are few.
const ONE_BYTES: usize = 8 << 10;
/// A share of the bytes of a window is for the rows by application, and one for those by client, and one for operations in
/// flight.
const SHARE: usize = 8;

impl Window {
    /// An empty window that begins at `start`.
    pub fn new(start: Timestamp, settings: WindowSettings) -> Self {
        Self {
            start,
            end: start,
            sample: settings.sample.max(1),
            shapes: Table::of_window(settings.grouping()),
            apps: Table::of_window(GroupBy::App),
            clients: Table::of_window(GroupBy::Client),
            types: CommandTypes::default(),
            coverage: Coverage::default(),
            in_flight: Vec::new(),
            observed: None,
            max_bytes: settings.max_bytes,
            uncounted: 0,
        }
    }

    /// The bytes of its tables and of operations in flight, without those of shapes and applications, which are shared.
    pub fn memory(&self) -> usize {
        self.shapes.memory() + self.apps.memory() + self.clients.memory() + self.in_flight_bytes()
    }

    fn in_flight_bytes(&self) -> usize {
        let lists: usize = self.in_flight.iter().map(InFlightOperations::heap_bytes).sum();
        self.in_flight.capacity() * size_of::<InFlightOperations>() + lists
    }

    /// If it takes more than `bytes`, counts rows and operations in flight under `other` until it takes no more, but for
    /// what the rows `other` take: those with the fewest operations, and then all new ones.
    pub fn limit(&mut self, bytes: usize) {
        if self.memory() <= bytes {
            return;
        }
        self.coverage.apps_folded += self.apps.limit(bytes / SHARE);
        self.coverage.clients_folded += self.clients.limit(bytes / SHARE);
        if self.in_flight_bytes() > bytes / SHARE {
            self.fold_in_flight(bytes / SHARE);
        }
        let others = self.memory() - self.shapes.memory();
        self.coverage.shapes_folded += self.shapes.limit(bytes.saturating_sub(others));
    }

    /// Joins what sources say of the same application where one of them knows its driver too and the other only its name,
    /// unless applications with different drivers have that name.
    pub fn join_applications(&mut self) {
        let mut known = KnownDrivers::default();
        for row in self.apps.iter() {
            if let Subject::App(app) = &row.subject {
                known.add(app);
            }
        }
        if !known.is_empty() {
            self.apps.name_applications(&known);
            self.shapes.name_applications(&known);
        }
    }

    /// Keeps the shapes with the most operations in flight that take at most `bytes`; all others are `other`.
    fn fold_in_flight(&mut self, bytes: usize) {
        let mut all = std::mem::take(&mut self.in_flight);
        all.sort_by_key(|one| std::cmp::Reverse(one.count));
        let mut left = bytes;
        let kept = all.iter().take_while(|one| {
            let taken = left.checked_sub(size_of::<InFlightOperations>() + one.heap_bytes());
            left = taken.unwrap_or(0);
            taken.is_some()
        });
        let rest = all.split_off(kept.count());
        all.shrink_to_fit();
        self.in_flight = all;
        let other = Arc::new(ShapeInfo::other());
        for one in rest {
            self.add_in_flight(InFlightOperations { shape: Arc::clone(&other), ..one });
        }
    }

    /// Keeps to its bytes, and decides when they are counted again.
    #[cold]
    fn count_bytes(&mut self) {
        self.limit(self.max_bytes);
        let rows = self.shapes.len() + self.apps.len() + self.clients.len();
        let room = self.max_bytes.saturating_sub(self.memory());
        let next = (room / ONE_BYTES).max(MIN_UNCOUNTED).max(rows / ROWS_OF_ONE);
        self.uncounted = u32::try_from(next).unwrap_or(u32::MAX);
    }

    /// Takes note that an operation is about to be recorded.
    #[inline]
    fn count_operation(&mut self) {
        if self.uncounted == 0 {
            self.count_bytes();
        }
        self.uncounted -= 1;
    }

    /// Adds one operation. Ignores one that was in flight when the capture ended, because
    /// [`Window::in_flight`] counts it.
    pub fn record(&mut self, op: &Operation<'_>) {
        if op.outcome == Outcome::InFlight {
            return;
        }
        self.count_operation();
        self.end = self.end.max(op.end);
        self.coverage.operations_late += u64::from(op.end < self.start);
        self.types.record(op);
        let bucket = Record::bucket_of(op);
        self.coverage.shapes_folded += u64::from(self.shapes.record_wire(op, bucket).1);
        self.coverage.apps_folded += u64::from(self.apps.record_wire(op, bucket).1);
        self.coverage.clients_folded += u64::from(self.clients.record_wire(op, bucket).1);
    }

    /// Adds one operation as a log or a profile describes it, to the rows by shape and by application. Types of
    /// commands and clients are those of the wire alone.
    pub fn record_server(&mut self, record: &Record<'_>) {
        self.count_operation();
        self.end = self.end.max(record.op.end);
        self.coverage.shapes_folded += u64::from(self.shapes.record(record).1);
        self.coverage.apps_folded += u64::from(self.apps.record(record).1);
    }

    /// Adds everything in `other` and extends the span to include both. Operations in flight are those of the
    /// later window. Windows of the same span from several threads are added with [`Window::join`].
    pub fn merge(&mut self, other: &Self) {
        if other.end > self.end {
            self.in_flight.clone_from(&other.in_flight);
        }
        self.observed = self.observed_with(other, u64::saturating_add);
        self.add(other);
    }

    /// How long each source was observed in both; `None` if all of them were all the time.
    fn observed_with(&self, other: &Self, join: fn(u64, u64) -> u64) -> Option<[u64; Source::ALL.len()]> {
        (self.observed.is_some() || other.observed.is_some()).then(|| {
            // A window to which nothing was added yet has no length.
            let length = |one: &Self| one.observed.unwrap_or([one.end.since(one.start); Source::ALL.len()]);
            let (mine, theirs) = (length(self), length(other));
            std::array::from_fn(|at| join(mine[at], theirs[at]))
        })
    }

    /// Gives servers other names; rows and operations in flight that then have the same key are added up.
    pub fn rename_servers(&mut self, name: &mut dyn FnMut(Endpoint) -> Endpoint) {
        self.shapes.rename_servers(name);
        for mut waiting in std::mem::take(&mut self.in_flight) {
            waiting.server = name(waiting.server);
            self.add_in_flight(waiting);
        }
    }

    fn add_in_flight(&mut self, waiting: InFlightOperations) {
        let same = |mine: &&mut InFlightOperations| {
            (mine.server, mine.role, mine.class, mine.shape.id)
                == (waiting.server, waiting.role, waiting.class, waiting.shape.id)
        };
        match self.in_flight.iter_mut().find(same) {
            Some(mine) => mine.add(waiting),
            None => self.in_flight.push(waiting),
        }
    }

    /// Adds a window of the same span from another thread.
    pub fn join(&mut self, other: &Self) {
        other.in_flight.iter().for_each(|theirs| self.add_in_flight(theirs.clone()));
        self.observed = self.observed_with(other, u64::max);
        self.add(other);
    }

    fn add(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.coverage.add(&other.coverage);
        self.types.merge(&other.types);
        self.coverage.shapes_folded += self.shapes.merge(&other.shapes);
        self.coverage.apps_folded += self.apps.merge(&other.apps);
        self.coverage.clients_folded += self.clients.merge(&other.clients);
    }

    /// Length of the span in nanoseconds, at least 1.
    pub fn length_ns(&self) -> u64 {
        self.end.since(self.start).max(1)
    }

    /// How long a source was observed, in nanoseconds: what its rates are divided by. 0 if it was not observed.
    pub fn observed_ns(&self, source: Source) -> u64 {
        self.observed.map_or_else(|| self.end.since(self.start), |observed| observed[source as usize])
    }

    /// Whether a source was observed at all, if only for an instant.
    pub fn is_observed(&self, source: Source) -> bool {
        self.observed.is_none_or(|observed| observed[source as usize] > 0)
    }

    /// The figures of all rows of the given classes together.
    pub fn totals(&self, classes: &[Class]) -> Figures {
        let mut totals = Figures::default();
        for row in self.shapes.iter().filter(|row| classes.contains(&row.class)) {
            totals.merge(row.figures());
        }
        totals
    }
}

/// Settings of all windows of one run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// One connection in this many is captured.
    pub sample: u32,
    /// Whether rows are split by the ordered id.
    pub split_by_order: bool,
    /// The most bytes of a window while operations are recorded, and some operations more. What exceeds it is counted under
    /// `other`; see [`Window::limit`]. `usize::MAX`: no bound but those of the tables.
    pub max_bytes: usize,
}

impl WindowSettings {
    /// What the rows by shape are grouped by.
    pub const fn grouping(&self) -> GroupBy {
        if self.split_by_order { GroupBy::Order } else { GroupBy::Shape }
    }
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self { sample: 1, split_by_order: false, max_bytes: usize::MAX }
    }
}

/// Divides time into windows of equal width on wall-clock boundaries (a window of 10 s begins at a multiple of
/// 10 s since the epoch).
#[derive(Copy, Clone, Debug)]
pub struct WindowClock {
    width_ns: u64,
    start: Option<Timestamp>,
}

impl WindowClock {
    /// Windows of `width_ns` nanoseconds; 0 counts as 1.
    pub fn new(width_ns: u64) -> Self {
        Self { width_ns: width_ns.max(1), start: None }
    }

    /// Start of the open window; `None` before the first call of [`Self::advance`].
    pub fn start(&self) -> Option<Timestamp> {
        self.start
    }

    /// Advances the clock to `now`. Returns start and end of the window that has ended, if any. It skips windows
    /// without a call; if time steps back, the open window stays open.
    pub fn advance(&mut self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let start = *self.start.get_or_insert_with(|| now.floor_to(self.width_ns));
        if now.since(start) < self.width_ns {
            return None;
        }
        self.start = Some(now.floor_to(self.width_ns));
        Some((start, start.plus_ns(self.width_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Share;
    use crate::operation::WaitingOperation;
    use crate::time::NS_PER_S;
    use crate::{Application, Endpoint, Identity, Row, ShapeId};

    #[test]
    fn windows_lie_on_wall_clock_boundaries() {
        let mut clock = WindowClock::new(10 * NS_PER_S);
        let at = |s| Timestamp::from_unix(s, 0);
        assert_eq!(clock.advance(at(1_003)), None);
        assert_eq!(clock.start(), Some(at(1_000)));
        assert_eq!(clock.advance(at(1_009)), None);
        assert_eq!(clock.advance(at(1_010)), Some((at(1_000), at(1_010))));
        assert_eq!(clock.advance(at(1_005)), None);
        assert_eq!(clock.advance(at(1_055)), Some((at(1_010), at(1_020))));
        assert_eq!(clock.start(), Some(at(1_050)));
    }

    /// A window in which a wire and a log saw operations of these applications, each with its driver.
    fn seen(apps: &[(Source, &str, &str)]) -> Window {
        let mut window = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
        for (source, name, driver) in apps {
            let app =
                Application { name: (*name).into(), driver: (*driver).into(), ..Application::default() };
            let app = Arc::new(app);
            let mut by_app = Row::new(Subject::App(app.clone()), Class::User);
            by_app.observed_by_mut(*source).figures.calls = 1;
            window.apps.add_owned(by_app);
            let (identity, order) = (Identity::Exact, ShapeId(0));
            let subject = Subject::Shape { identity, shape: Arc::default(), order };
            let mut by_shape = Row::new(subject, Class::User);
            let share = Share { calls: 1, ..Share::default() };
            by_shape.observed_by_mut(*source).apps.add_shared(&app, share);
            window.shapes.add_owned(by_shape);
        }
        window
    }

    #[test]
    fn an_application_is_one_row_though_the_log_does_not_know_its_driver() {
        let (wire, log) = (Source::Wire, Source::Log);
        let mut window = seen(&[
            (log, "shop", ""),
            (wire, "shop", "PyMongo"),
            (log, "shop", "PyMongo"),
            // Which of them the log means is not known.
            (wire, "etl", "Java"),
            (wire, "etl", "Go"),
            (log, "etl", ""),
            (log, "unknown", ""),
            (log, "", ""),
            (wire, "", "Node"),
        ]);
        window.join_applications();
        let calls = |row: &Row, source| row.observed_by(source).map_or(0, |one| one.figures.calls);
        let rows: Vec<_> = window
            .apps
            .iter()
            .filter_map(|row| match &row.subject {
                Subject::App(app) => Some((&*app.name, &*app.driver, calls(row, wire), calls(row, log))),
                _ => None,
            })
            .collect();
        let expected = [
            ("shop", "PyMongo", 1, 2),
            ("etl", "Java", 1, 0),
            ("etl", "Go", 1, 0),
            ("etl", "", 0, 1),
            ("unknown", "", 0, 1),
            ("", "", 0, 1),
            ("", "Node", 1, 0),
        ];
        assert_eq!(rows, expected);
        let [row] = window.shapes.rows() else { panic!() };
        let of_log = &row.observed_by(log).unwrap().apps;
        let of_log: Vec<_> = of_log.iter().map(|(app, share)| (app.label(), share.calls)).collect();
        let expected = [("shop", 2), ("etl", 1), ("unknown", 1), ("(no name)", 1)];
        assert_eq!(of_log, expected.map(|(name, calls)| (name.to_owned(), calls)));
    }

    #[test]
    fn join_adds_up_operations_in_flight() {
        let in_flight = |count, oldest_ns| InFlightOperations {
            server: Default::default(),
            role: Default::default(),
            class: Class::User,
            shape: Default::default(),
            count,
            oldest_ns,
            oldest: (0..count)
                .map(|number| WaitingOperation {
                    client: Endpoint::default(),
                    request_id: number as u32,
                    age_ns: oldest_ns - number,
                    now: None,
                })
                .collect(),
        };
        let mut one = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
        let mut two = one.clone();
        one.in_flight.push(in_flight(2, 10));
        two.in_flight.push(in_flight(3, 90));
        one.join(&two);
        assert_eq!((one.in_flight.len(), one.in_flight[0].count, one.in_flight[0].oldest_ns), (1, 5, 90));
        let ages: Vec<_> = one.in_flight[0].oldest.iter().map(|one| one.age_ns).collect();
        assert_eq!(ages, [90, 89, 88, 10], "the oldest of both");
    }
}
