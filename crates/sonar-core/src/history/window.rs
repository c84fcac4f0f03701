//! What all collectors observed in one span of time.

use std::collections::BTreeMap;

use super::{CollectorKind, Resolution, SeriesKey, SeriesSubject, SeriesValue, metrics};
use crate::held::tree_bytes;
use crate::window::WindowSettings;
use crate::{Endpoint, GroupBy, Reading, Source, Table, Timestamp, Window};

/// A share of the bytes of a window is for its series.
const SERIES_SHARE: usize = 4;

/// One window of the history. Without any collector it is an unobserved span, not a quiet one.
#[derive(Clone, Debug)]
pub struct HistoryWindow {
    /// The operations: of the wire, and slow operations of logs, which have their own figures in the same rows.
    pub window: Window,
    /// How long each collector observed, in nanoseconds, in the order of [`CollectorKind::ALL`].
    pub observed_ns: [u64; CollectorKind::ALL.len()],
    /// What was read of logs.
    pub reading: Reading,
    /// The series.
    pub series: BTreeMap<SeriesKey, SeriesValue>,
    /// Series that were left out because there were more than [`HistoryWindow::MAX_SERIES`]; never those that say what was
    /// not observed.
    pub series_left_out: u64,
}

impl HistoryWindow {
    /// The maximum number of series in a window. Those that say what was not observed take the place of others.
    pub const MAX_SERIES: usize = 4_096;

    /// An empty window from `start`, which is rounded down, of this width.
    pub fn new(start: Timestamp, resolution: Resolution) -> Self {
        let start = start.floor_to(resolution.width_ns());
        Self::spanning(start, start.plus_ns(resolution.width_ns()))
    }

    /// An empty window from `start` to `end`.
    pub fn spanning(start: Timestamp, end: Timestamp) -> Self {
        let window = Window { end, ..Window::new(start, WindowSettings::default()) };
        Self {
            window,
            observed_ns: [0; CollectorKind::ALL.len()],
            reading: Reading::default(),
            series: BTreeMap::new(),
            series_left_out: 0,
        }
    }

    /// The bytes of its tables and series, without those of shapes and applications, which are shared.
    pub fn memory(&self) -> usize {
        self.window.memory() + self.series_bytes()
    }

    fn series_bytes(&self) -> usize {
        let names: usize = self.series.keys().map(|key| key.name.len() + key.metric.len()).sum();
        names + tree_bytes(self.series.len(), size_of::<(SeriesKey, SeriesValue)>())
    }

    /// If it takes more than `bytes`, counts rows under `other` and leaves series out until it takes no more, but for what
    /// the rows `other` take. See [`Window::limit`].
    pub fn limit(&mut self, bytes: usize) {
        if self.memory() <= bytes {
            return;
        }
        self.leave_series_out(bytes / SERIES_SHARE);
        self.window.limit(bytes.saturating_sub(self.series_bytes()));
    }

    /// Leaves series out until they take at most `bytes`, those of single files, indexes and collections first, but never
    /// those of a server or of the machine as a whole.
    fn leave_series_out(&mut self, bytes: usize) {
        loop {
            let taken = self.series_bytes();
            let excess = taken.saturating_sub(bytes) * self.series.len();
            let mut count = excess.div_ceil(taken.max(1));
            while count > 0
                && let Some(last) = self.series.last_entry()
                && last.key().subject > SeriesSubject::Server
            {
                last.remove();
                self.series_left_out += 1;
                count -= 1;
            }
            if excess == 0 || count > 0 {
                return;
            }
        }
    }

    /// Adds time that a collector observed, at most the length of the window in total.
    pub fn observe(&mut self, collector: CollectorKind, ns: u64) {
        let most = self.window.length_ns();
        let observed = &mut self.observed_ns[collector as usize];
        *observed = observed.saturating_add(ns).min(most);
    }

    /// How long a collector observed, in nanoseconds. Each of several servers may have been observed for a shorter time: see
    /// [`observed_of`](Self::observed_of).
    pub fn observed_ns(&self, collector: CollectorKind) -> u64 {
        self.observed_ns[collector as usize]
    }

    /// How long a collector observed this server, in nanoseconds, as far as the window says so: only logs are read server by
    /// server, and a window without its series says it for all servers alone.
    pub fn observed_of(&self, collector: CollectorKind, server: Endpoint) -> u64 {
        let all = self.observed_ns(collector);
        if collector != CollectorKind::Log || all == 0 {
            return all;
        }
        let unread = self.series.get(&metrics::LOG_UNREAD.key(server, ""));
        all.saturating_sub(unread.map_or(0, |unread| (unread.weighted / 100.0 * 1e9).round() as u64))
    }

    /// For so many nanoseconds the log of this server could not be read, while the collector of logs observed others.
    pub fn miss_log(&mut self, server: Endpoint, ns: u64) {
        self.sample(&metrics::LOG_UNREAD.key(server, ""), self.window.start, 100.0, ns as f64 / 1e9);
    }

    /// Makes the operations say how long their sources were observed, for views that have only them.
    pub fn state_observed(&mut self) {
        self.window.observed = Some(Source::ALL.map(|source| {
            CollectorKind::of(source).map_or(0, |collector| self.observed_ns[collector as usize])
        }));
    }

    /// Whether any collector observed anything.
    pub fn is_observed(&self) -> bool {
        self.observed_ns.iter().any(|ns| *ns > 0)
    }

    /// Adds a value of a series, measured at `at`, which speaks for `seconds`.
    pub fn sample(&mut self, key: &SeriesKey, at: Timestamp, value: f64, seconds: f64) {
        if let Some(known) = self.series_mut(key) {
            known.add(at, value, seconds);
        }
    }

    fn series_mut(&mut self, key: &SeriesKey) -> Option<&mut SeriesValue> {
        if !self.series.contains_key(key) {
            let is_full = self.series.len() >= Self::MAX_SERIES;
            if is_full && !(metrics::is_loss(key) && self.leave_one_out()) {
                self.series_left_out += 1;
                return None;
            }
            self.series.insert(key.clone(), SeriesValue::default());
        }
        self.series.get_mut(key)
    }

    /// Makes room for a series that says what was not observed: the last one that does not is left out. Returns whether
    /// there was one.
    fn leave_one_out(&mut self) -> bool {
        let last = self.series.keys().rev().find(|key| !metrics::is_loss(key)).cloned();
        let is_left_out = last.is_some_and(|key| self.series.remove(&key).is_some());
        self.series_left_out += u64::from(is_left_out);
        is_left_out
    }

    /// Leaves only what is about the server at this port, and what is about no server. Rows by application and by client are
    /// of all servers together: none is left.
    pub fn keep_server(&mut self, port: u16) {
        self.window.apps = Table::of_window(GroupBy::App);
        self.window.clients = Table::of_window(GroupBy::Client);
        let all = std::mem::replace(&mut self.window.shapes, Table::of_window(GroupBy::Shape));
        for row in all.iter().filter(|row| row.server.port == port) {
            self.window.shapes.add(row);
        }
        self.window.in_flight.retain(|one| one.server.port == port);
        // What was observed is from now on what was observed of this server.
        let key = self.series.keys().find(|key| key.server.port == port && metrics::is_loss(key));
        if let Some(key) = key.cloned() {
            self.observed_ns[CollectorKind::Log as usize] = self.observed_of(CollectorKind::Log, key.server);
            self.series.remove(&key);
        }
        self.series.retain(|key, _| key.server.port == 0 || key.server.port == port);
    }

    /// Adds a window of the same span from another source. A collector observed for as long as it did in the window
    /// where it did longer: two logs of the same ten seconds are ten seconds.
    pub fn join(&mut self, other: &Self) {
        self.window.join(&other.window);
        for (mine, theirs) in self.observed_ns.iter_mut().zip(&other.observed_ns) {
            *mine = (*mine).max(*theirs);
        }
        self.add(other);
    }

    /// Adds everything in `other` and extends the span to include both.
    pub fn merge(&mut self, other: &Self) {
        self.window.merge(&other.window);
        for (mine, theirs) in self.observed_ns.iter_mut().zip(&other.observed_ns) {
            *mine = mine.saturating_add(*theirs);
        }
        self.add(other);
    }

    /// Adds what log readers counted, and the series.
    fn add(&mut self, other: &Self) {
        self.reading.add(&other.reading);
        self.series_left_out += other.series_left_out;
        self.merge_series(other.series.iter());
    }

    /// Adds values to series, which are sorted by their keys.
    pub fn merge_series<'a>(&mut self, others: impl Iterator<Item = (&'a SeriesKey, &'a SeriesValue)>) {
        // Comparing keys costs most: usually both have the same ones, and none is searched for.
        let mut known = self.series.iter_mut().peekable();
        let mut unknown = Vec::new();
        for (key, value) in others {
            while known.next_if(|(mine, _)| *mine < key).is_some() {}
            match known.next_if(|(mine, _)| *mine == key) {
                Some((_, mine)) => mine.merge(value),
                None => unknown.push((key.clone(), *value)),
            }
        }
        let room = Self::MAX_SERIES.saturating_sub(self.series.len());
        if unknown.len() > room {
            unknown.sort_by_key(|(key, _)| !metrics::is_loss(key));
            let losses = unknown.iter().filter(|(key, _)| metrics::is_loss(key)).count();
            let more = (room..losses).take_while(|_| self.leave_one_out()).count();
            self.series_left_out += (unknown.len() - room - more) as u64;
            unknown.truncate(room + more);
        }
        if self.series.is_empty() {
            self.series = unknown.into_iter().collect();
        } else {
            self.series.extend(unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Reading};

    #[test]
    fn sources_of_the_same_span_are_joined() {
        let start = Timestamp::from_unix(1_000, 0);
        let key = SeriesKey {
            subject: SeriesSubject::Server,
            server: Endpoint::v4([0; 4], 27_017),
            name: "".into(),
            metric: "cache.used".into(),
        };
        let part = |log_ns, value| {
            let mut part = HistoryWindow::new(start, Resolution::TenSeconds);
            part.observe(CollectorKind::Log, log_ns);
            part.sample(&key, start, value, 2.0);
            part.reading = Reading { lines: 3, ..Reading::default() };
            part
        };
        let mut joined = part(4_000_000_000, 10.0);
        joined.join(&part(10_000_000_000, 30.0));
        assert_eq!(joined.observed_ns(CollectorKind::Log), 10_000_000_000, "not fourteen seconds of ten");
        assert_eq!((joined.reading.lines, joined.series[&key].mean()), (6, Some(20.0)));
        assert_eq!(joined.window.length_ns(), Resolution::TenSeconds.width_ns());
    }

    #[test]
    fn a_window_can_be_that_of_one_server() {
        let key = |port| SeriesKey {
            subject: SeriesSubject::Server,
            server: Endpoint::v4([0; 4], port),
            name: "".into(),
            metric: "cache.used".into(),
        };
        let start = Timestamp::from_unix(1_000, 0);
        let mut window = HistoryWindow::new(start, Resolution::TenSeconds);
        for port in [0, 27_017, 27_018] {
            window.sample(&key(port), start, 1.0, 1.0);
        }
        window.keep_server(27_018);
        let ports: Vec<u16> = window.series.keys().map(|key| key.server.port).collect();
        assert_eq!(ports, [0, 27_018]);
    }

    #[test]
    fn a_log_that_could_not_be_read_was_not_observed() {
        const S: u64 = 1_000_000_000;
        let [read, unread] = [27_017, 27_018].map(|port| Endpoint::v4([0; 4], port));
        let part = |log_s, unread_s| {
            let mut part = HistoryWindow::new(Timestamp::from_unix(1_000, 0), Resolution::TenSeconds);
            part.observe(CollectorKind::Log, log_s * S);
            part.observe(CollectorKind::Queries, 10 * S);
            part.miss_log(unread, unread_s * S);
            part
        };
        let mut window = part(8, 5);
        window.join(&part(8, 1));
        assert_eq!([read, unread].map(|one| window.observed_of(CollectorKind::Log, one)), [8 * S, 2 * S]);
        assert_eq!(window.observed_of(CollectorKind::Queries, unread), 10 * S);
        window.merge(&part(10, 12));
        assert_eq!(window.observed_of(CollectorKind::Log, unread), 0, "never less than nothing");
        // Of one server it is the time of that.
        for (server, expected) in [(read, 8 * S), (unread, 3 * S)] {
            let mut own = part(8, 5);
            own.keep_server(server.port);
            assert_eq!(own.observed_ns(CollectorKind::Log), expected);
            assert_eq!(own.observed_of(CollectorKind::Log, server), expected);
        }
    }

    fn window(values: &[(&str, f64)]) -> HistoryWindow {
        let mut window = HistoryWindow::new(Timestamp::from_unix(20, 0), Resolution::TenSeconds);
        for (metric, value) in values {
            let (subject, server) = (SeriesSubject::Machine, Endpoint::default());
            let key = SeriesKey { subject, server, name: "".into(), metric: (*metric).into() };
            window.sample(&key, Timestamp::from_unix(21, 0), *value, 2.0);
        }
        window
    }

    #[test]
    fn series_merge_by_their_keys() {
        let mut all = window(&[("b", 1.0), ("d", 4.0)]);
        all.merge(&window(&[("a", 7.0), ("b", 3.0), ("c", 8.0), ("d", 4.0), ("e", 9.0)]));
        all.merge(&window(&[("c", 2.0)]));
        let means: Vec<_> =
            all.series.iter().map(|(key, value)| (&*key.metric, value.mean().unwrap())).collect();
        assert_eq!(means, [("a", 7.0), ("b", 2.0), ("c", 5.0), ("d", 4.0), ("e", 9.0)]);
    }

    #[test]
    fn what_was_not_observed_is_kept_in_a_full_window() {
        const S: u64 = 1_000_000_000;
        let server = Endpoint::v4([0; 4], 27_017);
        let full = |names: std::ops::Range<usize>| {
            let mut full = HistoryWindow::new(Timestamp::from_unix(1_000, 0), Resolution::TenSeconds);
            full.observe(CollectorKind::Log, 10 * S);
            for number in names {
                let key = metrics::FILE_READS.key(server, &format!("file {number}"));
                full.sample(&key, full.window.start, 1.0, 10.0);
            }
            full
        };
        let most = HistoryWindow::MAX_SERIES;
        let mut window = full(0..most + 5);
        assert_eq!((window.series.len(), window.series_left_out), (most, 5));
        window.miss_log(server, 4 * S);
        window.miss_log(server, 2 * S);
        assert_eq!(window.observed_of(CollectorKind::Log, server), 4 * S);
        assert_eq!((window.series.len(), window.series_left_out), (most, 6));
        // Also where windows are joined or merged, whichever is full.
        let mut other = full(0..0);
        other.miss_log(server, 3 * S);
        let (mut joined, mut merged) = (full(0..most), full(most..2 * most));
        joined.join(&other);
        merged.merge(&joined);
        for (one, observed) in [(&joined, 7 * S), (&merged, 17 * S)] {
            assert_eq!(one.observed_of(CollectorKind::Log, server), observed);
            assert_eq!(one.series.len(), most);
        }
        assert_eq!((joined.series_left_out, merged.series_left_out), (1, 1 + most as u64));
    }
}
