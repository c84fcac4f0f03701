//! Joins operations of threads with what the server's log and profiler say of slow ones: by connection and time, and by
//! shape as far as both sides know it. An operation is joined if nothing else fits, or if it does not matter which of
//! those that fit it is; all others are counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::{JoinedOperation, ServerEvidence, ThreadOperation};
use crate::{Application, Class, Endpoint, ShapeInfo, Source, Timestamp};

/// The most operations of each side. Beyond that the shorter half of them is given up.
pub const MAX_JOINABLE: usize = 65_536;
/// Servers give times and durations in whole milliseconds, and cut the rest.
const MS: u64 = 1_000_000;
/// The server's clock and the kernel's are read one after the other, in nanoseconds.
const READ_APART_NS: u64 = MS;
/// Partners of one operation that are looked at; with more it is ambiguous.
const MAX_PARTNERS: usize = 64;
/// Operations of a source that may move to another partner so that one more has one; beyond that it is ambiguous.
const MAX_MOVED: usize = 1_024;
/// Operations of a place that are passed over at once if all of them began too late.
const BLOCK: usize = 64;

/// An operation of a thread, as far as it is needed here.
#[derive(Clone, Debug)]
pub struct TracedOperation {
    process: u32,
    /// The number in the thread's name.
    connection: Option<u64>,
    client: Option<Endpoint>,
    start: Timestamp,
    end: Timestamp,
    duration_ns: u64,
    /// `None` if the wire did not show it.
    shape: Option<Arc<ShapeInfo>>,
}

impl From<&ThreadOperation> for TracedOperation {
    fn from(thread: &ThreadOperation) -> Self {
        Self {
            process: thread.process,
            connection: thread.thread_name.strip_prefix("conn").and_then(|number| number.parse().ok()),
            client: thread.connection.map(|(_, client)| client),
            start: thread.start,
            end: thread.end,
            duration_ns: thread.duration_ns,
            shape: None,
        }
    }
}

impl From<&JoinedOperation> for TracedOperation {
    fn from(operation: &JoinedOperation) -> Self {
        Self { shape: Some(Arc::clone(&operation.wire.shape)), ..Self::from(&operation.thread) }
    }
}

/// A slow operation in a log or a profile.
#[derive(Clone, Debug)]
pub struct ServerOperation {
    /// [`Source::Log`] or [`Source::Profile`].
    pub source: Source,
    /// The server's process; `None` if unknown.
    pub process: Option<u32>,
    /// The number of the connection; `None` if unknown.
    pub connection: Option<u64>,
    /// The client; its port is 0 if only the address is known.
    pub client: Option<Endpoint>,
    /// When the server wrote it, or the operation ended; in whole milliseconds.
    pub end: Timestamp,
    /// How long the operation took, in whole milliseconds.
    pub duration_ns: u64,
    /// The shape.
    pub shape: Arc<ShapeInfo>,
    /// The source has the whole command, so that its shape is the same as on the wire.
    pub is_exact: bool,
    /// The purpose.
    pub class: Class,
    /// The application.
    pub app: Arc<Application>,
    /// What the server says of it.
    pub evidence: ServerEvidence,
}

impl ServerOperation {
    fn start(&self) -> Timestamp {
        self.end.minus_ns(self.duration_ns)
    }

    /// Where the operations of its connection are found.
    fn place(&self) -> Option<Place> {
        match (self.connection, self.client) {
            (Some(connection), _) => Some(Place::Connection(connection)),
            (None, Some(client)) if client.port != 0 => Some(Place::Client(client)),
            (None, Some(client)) => Some(Place::Address(client.ip())),
            (None, None) => None,
        }
    }

    /// Whether it may be this one. It begins after the thread has the request, and the server describes it before the
    /// thread sends the reply.
    fn fits(&self, traced: &TracedOperation) -> bool {
        self.process.is_none_or(|process| process == traced.process)
            && self.may_begin_after(traced.start.unix_ns())
            && self.end.unix_ns() <= traced.end.unix_ns().saturating_add(READ_APART_NS)
            && self.duration_ns <= traced.duration_ns.saturating_add(READ_APART_NS)
            && traced.shape.as_deref().is_none_or(|shape| self.has_shape(shape))
    }

    /// Whether it may have begun at this time or later.
    fn may_begin_after(&self, start_ns: u64) -> bool {
        start_ns.saturating_add(self.duration_ns) < self.end.unix_ns().saturating_add(MS + READ_APART_NS)
    }

    /// Whether the other source describes the same operation in the same words.
    fn is_also_in(&self, other: &Self) -> bool {
        self.source != other.source
            && self.duration_ns == other.duration_ns
            && self.end.unix_ns().abs_diff(other.end.unix_ns()) <= MS
    }

    fn has_shape(&self, shape: &ShapeInfo) -> bool {
        // Whether a getMore has the shape of its cursor's command depends on what each side has seen of that.
        let is_get_more = |one: &ShapeInfo| *one.command == *"getMore";
        let same_collection = self.shape.namespace() == shape.namespace();
        match (self.shape.id == shape.id, is_get_more(shape) || is_get_more(&self.shape)) {
            (true, _) => true,
            (false, true) => same_collection,
            (false, false) => !self.is_exact && same_collection && self.shape.command == shape.command,
        }
    }
}

/// What was and what was not joined, of one source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerJoinCounts {
    /// Operations of the source that were joined.
    pub joined: u64,
    /// Those that no operation of a thread fits.
    pub without_partner: u64,
    /// Those that several fit, or that are not the only ones to fit theirs, so that it is not certain which operation they describe.
    pub ambiguous: u64,
    /// Those that were given up because there were too many: the shortest.
    pub too_many: u64,
}

impl ServerJoinCounts {
    /// All operations of the source.
    pub fn total(&self) -> u64 {
        self.joined + self.without_partner + self.ambiguous + self.too_many
    }
}

/// What was joined.
#[derive(Debug)]
pub struct ServerJoined<T> {
    /// Operations of threads, each with what the log says of it, or the profiler if the log says nothing.
    pub joined: Vec<(T, ServerOperation)>,
    /// Operations of threads that neither describes, or not for certain.
    pub alone: Vec<T>,
    /// Of the log.
    pub log: ServerJoinCounts,
    /// Of the profiler.
    pub profile: ServerJoinCounts,
}

/// Collects both sides until they are joined. `T` stands for an operation of a thread.
#[derive(Debug)]
pub struct ServerJoiner<T> {
    traced: Vec<(TracedOperation, T)>,
    /// Shorter operations of threads were given up.
    least_ns: u64,
    log: ServerSide,
    profile: ServerSide,
    max_operations: usize,
}

impl<T> Default for ServerJoiner<T> {
    fn default() -> Self {
        Self::with_cap(MAX_JOINABLE)
    }
}

/// Operations of one source.
#[derive(Debug, Default)]
struct ServerSide {
    operations: Vec<ServerOperation>,
    least_ns: u64,
    too_many: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Place {
    Connection(u64),
    Client(Endpoint),
    Address(IpAddr),
}

/// Operations of threads by their place.
type TracedPlaces = HashMap<Place, TracedPlace, RandomState>;

/// The operations of threads at a place.
#[derive(Default)]
struct TracedPlace {
    /// In the order of their ends.
    numbers: Vec<usize>,
    /// The earliest start in each [`BLOCK`] of them.
    starts: Vec<Timestamp>,
}

impl TracedPlace {
    fn add(&mut self, number: usize, start: Timestamp) {
        match self.starts.last_mut() {
            Some(earliest) if !self.numbers.len().is_multiple_of(BLOCK) => *earliest = start.min(*earliest),
            _ => self.starts.push(start),
        }
        self.numbers.push(number);
    }
}

impl<T> ServerJoiner<T> {
    fn with_cap(max_operations: usize) -> Self {
        Self {
            traced: Vec::new(),
            least_ns: 0,
            log: ServerSide::default(),
            profile: ServerSide::default(),
            max_operations,
        }
    }

    /// Adds an operation of a thread; returns those that are given up for lack of room.
    pub fn traced(&mut self, operation: TracedOperation, what: T) -> Vec<T> {
        if operation.duration_ns < self.least_ns {
            return vec![what];
        }
        self.traced.push((operation, what));
        if self.traced.len() <= self.max_operations {
            return Vec::new();
        }
        self.least_ns = above_median(self.traced.iter().map(|(one, _)| one.duration_ns));
        let least_ns = self.least_ns;
        self.traced.extract_if(.., |(one, _)| one.duration_ns < least_ns).map(|(_, what)| what).collect()
    }

    /// Adds an operation of a log or a profile.
    pub fn server(&mut self, operation: ServerOperation) {
        let side = if operation.source == Source::Profile { &mut self.profile } else { &mut self.log };
        if operation.duration_ns < side.least_ns {
            side.too_many += 1;
            return;
        }
        side.operations.push(operation);
        if side.operations.len() > self.max_operations {
            side.least_ns = above_median(side.operations.iter().map(|one| one.duration_ns));
            let before = side.operations.len();
            side.operations.retain(|one| one.duration_ns >= side.least_ns);
            side.too_many += (before - side.operations.len()) as u64;
        }
    }

    /// Joins what was added. Operations of the log and the profile count only if they lie between `from` and `to`.
    /// `is_same`: it does not matter which of two operations of threads something is said of, because both are added up
    /// in one row.
    pub fn finish(
        mut self,
        from: Timestamp,
        to: Timestamp,
        is_same: impl Fn(&T, &T) -> bool,
    ) -> ServerJoined<T> {
        let places = self.places();
        let log = std::mem::take(&mut self.log);
        let profile = std::mem::take(&mut self.profile);
        let mut partners: Vec<Option<ServerOperation>> = Vec::new();
        partners.resize_with(self.traced.len(), || None);
        let mut counts = [log, profile].map(|side| {
            let mut joining = SideJoining::new(self.traced.len(), side.too_many);
            for operation in side.operations {
                if operation.start() >= from && operation.end <= to {
                    self.look_up(operation, &places, &mut joining);
                }
            }
            joining.join_certain(&mut partners);
            joining
                .join_same(&mut partners, |one, other| is_same(&self.traced[one].1, &self.traced[other].1));
            joining.counts
        });
        let [log, profile] = &mut counts;
        let mut result = ServerJoined { joined: Vec::new(), alone: Vec::new(), log: *log, profile: *profile };
        for ((_, what), partner) in self.traced.into_iter().zip(partners) {
            match partner {
                Some(partner) => result.joined.push((what, partner)),
                None => result.alone.push(what),
            }
        }
        result
    }

    fn places(&mut self) -> TracedPlaces {
        self.traced.sort_by_key(|(one, _)| one.end);
        let mut places = TracedPlaces::default();
        for (number, (one, _)) in self.traced.iter().enumerate() {
            let connection = one.connection.map(Place::Connection);
            let client = one.client.map(Place::Client);
            let address = one.client.map(|client| Place::Address(client.ip()));
            for place in [connection, client, address].into_iter().flatten() {
                places.entry(place).or_default().add(number, one.start);
            }
        }
        places
    }

    /// Finds what an operation of a source may be.
    fn look_up(&self, operation: ServerOperation, places: &TracedPlaces, joining: &mut SideJoining) {
        // The shortest that can be told from those that were given up.
        if self.least_ns > 0 && operation.duration_ns < self.least_ns + READ_APART_NS {
            joining.counts.too_many += 1;
            return;
        }
        let fitting = self.fitting(&operation, places);
        fitting.iter().for_each(|number| joining.wanted[*number] += 1);
        match fitting.as_slice() {
            [] => joining.counts.without_partner += 1,
            _ if fitting.len() == MAX_PARTNERS => {
                joining.counts.ambiguous += 1;
                // It may be any of these, so nothing is certain of them.
                fitting.iter().for_each(|number| joining.unlike[*number] = true);
            }
            _ => joining.found.push((fitting, operation)),
        }
    }

    /// The operations of threads that an operation of the log or the profile may be.
    fn fitting(&self, operation: &ServerOperation, places: &TracedPlaces) -> Vec<usize> {
        let place = operation.place();
        let Some(TracedPlace { numbers, starts }) = place.and_then(|place| places.get(&place)) else {
            return Vec::new();
        };
        let end_of = |number: &usize| self.traced[*number].0.end.unix_ns();
        let from = operation.end.unix_ns().saturating_sub(READ_APART_NS);
        let first = numbers.partition_point(|number| end_of(number) < from);
        let may_have_begun = |block: &usize| operation.may_begin_after(starts[*block].unix_ns());
        (first / BLOCK..starts.len())
            .filter(may_have_begun)
            .flat_map(|block| (block * BLOCK).max(first)..((block + 1) * BLOCK).min(numbers.len()))
            .map(|at| numbers[at])
            .filter(|number| operation.fits(&self.traced[*number].0))
            .take(MAX_PARTNERS)
            .collect()
    }
}

/// The join of one source.
struct SideJoining {
    counts: ServerJoinCounts,
    /// How many operations of the source fit each operation of a thread.
    wanted: Vec<u32>,
    /// Whether something fits it as well as an operation of another row, or as more than are looked at.
    unlike: Vec<bool>,
    /// Operations of the source, with those of threads that they may be.
    found: Vec<(Vec<usize>, ServerOperation)>,
}

impl SideJoining {
    fn new(traced: usize, too_many: u64) -> Self {
        let counts = ServerJoinCounts { too_many, ..ServerJoinCounts::default() };
        Self { counts, wanted: vec![0; traced], unlike: vec![false; traced], found: Vec::new() }
    }

    /// Joins those that fit one operation of a thread, which nothing else fits.
    fn join_certain(&mut self, partners: &mut [Option<ServerOperation>]) {
        let wanted = &self.wanted;
        let is_certain = |(fitting, _): &mut (Vec<usize>, ServerOperation)| matches!(fitting.as_slice(), [one] if wanted[*one] == 1);
        for (fitting, operation) in self.found.extract_if(.., is_certain) {
            self.counts.joined += 1;
            partners[fitting[0]].get_or_insert(operation);
        }
    }

    /// Joins each with one of the operations of threads that it fits, if it does not matter with which: with the only
    /// one, if nothing else fits only that and whatever else fits it could be another one of the same row.
    fn join_same(
        &mut self,
        partners: &mut [Option<ServerOperation>],
        is_same: impl Fn(usize, usize) -> bool,
    ) {
        let are_same = |fitting: &[usize]| fitting.iter().all(|other| is_same(fitting[0], *other));
        // Operations of threads that are all that something fits.
        let mut only = vec![0_u32; partners.len()];
        let mut unlike = std::mem::take(&mut self.unlike);
        for (fitting, _) in &self.found {
            only[fitting[0]] += u32::from(fitting.len() == 1);
            if fitting.len() > 1 && !are_same(fitting) {
                fitting.iter().for_each(|number| unlike[*number] = true);
            }
        }
        let found = std::mem::take(&mut self.found);
        let mut matching = Matching::new(&found, partners.len());
        // What fits one only cannot give way.
        for (line, (fitting, _)) in found.iter().enumerate() {
            if let [one] = fitting.as_slice()
                && only[*one] == 1
                && !unlike[*one]
            {
                matching.fix(line, *one);
            }
        }
        let mut several = Vec::new();
        for (line, (fitting, operation)) in found.iter().enumerate() {
            if fitting.len() == 1 || !are_same(fitting) {
                continue;
            }
            let is_described = |number: &usize| {
                matching.line_of[*number].is_none()
                    && partners[*number].as_ref().is_some_and(|partner| partner.is_also_in(operation))
            };
            // What the log already says, it says of the same one.
            match fitting.iter().copied().find(is_described) {
                Some(number) => matching.fix(line, number),
                None => several.push(line),
            }
        }
        several.into_iter().for_each(|line| matching.place(line));
        let mut number_of = vec![None; found.len()];
        for (number, line) in matching.line_of.iter().enumerate() {
            if let Some(line) = line {
                number_of[*line] = Some(number);
            }
        }
        for ((_, operation), number) in found.into_iter().zip(number_of) {
            match number {
                Some(number) => {
                    self.counts.joined += 1;
                    partners[number].get_or_insert(operation);
                }
                None => self.counts.ambiguous += 1,
            }
        }
    }
}

/// Which operation of a source stands for which of a thread, each for one, so that as many as possible have one.
struct Matching<'a> {
    /// Operations of the source, with those of threads that they fit.
    found: &'a [(Vec<usize>, ServerOperation)],
    /// Of each operation of a thread.
    line_of: Vec<Option<usize>>,
    /// It may not be given to another one.
    is_fixed: Vec<bool>,
}

impl<'a> Matching<'a> {
    fn new(found: &'a [(Vec<usize>, ServerOperation)], traced: usize) -> Self {
        Self { found, line_of: vec![None; traced], is_fixed: vec![false; traced] }
    }

    fn fix(&mut self, line: usize, number: usize) {
        self.line_of[number] = Some(line);
        self.is_fixed[number] = true;
    }

    /// Finds an operation of a thread for this one. Where all that it fits are taken, others move to what they fit, too
    /// (an augmenting path), if few enough have to be looked at.
    fn place(&mut self, line: usize) {
        // Which line wants each operation of a thread, in the order in which they were reached.
        let mut wanted_by = HashMap::<usize, usize, RandomState>::default();
        let mut lines = vec![line];
        let mut next = 0;
        while let Some(&line) = lines.get(next) {
            next += 1;
            for &number in &self.found[line].0 {
                if self.is_fixed[number] || wanted_by.contains_key(&number) {
                    continue;
                }
                wanted_by.insert(number, line);
                match self.line_of[number] {
                    None => return self.shift(number, &wanted_by),
                    Some(holder) if lines.len() < MAX_MOVED => lines.push(holder),
                    Some(_) => {}
                }
            }
        }
    }

    /// Gives an operation of a thread to the line that wants it, what that line had to the one that wants that, and so on.
    fn shift(&mut self, free: usize, wanted_by: &HashMap<usize, usize, RandomState>) {
        let mut number = free;
        while let Some(&line) = wanted_by.get(&number) {
            let before = self.found[line].0.iter().copied().find(|one| self.line_of[*one] == Some(line));
            self.line_of[number] = Some(line);
            match before {
                Some(before) => number = before,
                None => return,
            }
        }
    }
}

/// A duration that at least half of these are shorter than; they are not empty.
fn above_median(durations: impl Iterator<Item = u64>) -> u64 {
    let mut durations: Vec<_> = durations.collect();
    let middle = durations.len() / 2;
    *durations.select_nth_unstable(middle).1 + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ShapeId;
    use crate::testing::thread_operation;

    fn shape(id: u64, command: &str) -> Arc<ShapeInfo> {
        let (command, database, collection) = (command.into(), "shop".into(), "orders".into());
        Arc::new(ShapeInfo { id: ShapeId(id), command, database, collection, ..ShapeInfo::default() })
    }

    /// The client of [`thread_operation`], at this port.
    const fn client(port: u16) -> Endpoint {
        Endpoint::v4([10, 0, 0, 2], port)
    }

    /// What the thread of a connection did, in microseconds.
    fn traced(connection: u64, start: u64, end: u64) -> TracedOperation {
        TracedOperation {
            connection: Some(connection),
            start: Timestamp::from_unix_ns(start * 1_000),
            end: Timestamp::from_unix_ns(end * 1_000),
            duration_ns: (end - start) * 1_000,
            shape: Some(shape(7, "find")),
            ..TracedOperation::from(&thread_operation(1, 0))
        }
    }

    /// As the log has it, in milliseconds.
    fn logged(connection: u64, end: u64, duration: u64) -> ServerOperation {
        ServerOperation {
            source: Source::Log,
            process: None,
            connection: Some(connection),
            client: None,
            end: Timestamp::from_unix_ns(end * MS),
            duration_ns: duration * MS,
            shape: shape(7, "find"),
            is_exact: true,
            class: Class::User,
            app: Arc::default(),
            evidence: ServerEvidence { operations: 1, ..ServerEvidence::default() },
        }
    }

    fn joined(traced: Vec<TracedOperation>, server: Vec<ServerOperation>) -> ServerJoined<usize> {
        let mut joiner = ServerJoiner::default();
        for (number, one) in traced.into_iter().enumerate() {
            assert!(joiner.traced(one, number).is_empty());
        }
        server.into_iter().for_each(|one| joiner.server(one));
        joiner.finish(Timestamp::default(), Timestamp::from_unix(1_000, 0), |_, _| false)
    }

    fn counts(joined: u64, without_partner: u64, ambiguous: u64) -> ServerJoinCounts {
        ServerJoinCounts { joined, without_partner, ambiguous, too_many: 0 }
    }

    #[test]
    fn an_operation_is_joined_by_connection_and_time() {
        let threads =
            vec![traced(3, 100_000, 150_900), traced(3, 151_000, 190_000), traced(4, 100_000, 150_900)];
        let result = joined(threads, vec![logged(3, 150, 50), logged(3, 189, 38), logged(3, 230, 38)]);
        let mut found: Vec<_> =
            result.joined.iter().map(|(number, one)| (*number, one.duration_ns / MS)).collect();
        found.sort_unstable();
        assert_eq!(found, [(0, 50), (1, 38)]);
        assert_eq!((result.log, result.profile), (counts(2, 1, 0), counts(0, 0, 0)));
        assert_eq!(result.alone, [2]);
    }

    #[test]
    fn what_fits_two_and_two_that_fit_one_are_ambiguous() {
        let short = || vec![traced(3, 100_000, 100_300), traced(3, 100_400, 100_700)];
        let result = joined(short(), vec![logged(3, 100, 0)]);
        assert_eq!((result.log, result.joined.len()), (counts(0, 0, 1), 0));
        // The log of an operation inside the other one, of the same shape.
        let result = joined(vec![traced(3, 100_000, 150_000)], vec![logged(3, 149, 49), logged(3, 140, 20)]);
        assert_eq!((result.log, result.joined.len()), (counts(0, 0, 2), 0));
    }

    #[test]
    fn the_shape_decides_as_far_as_both_sides_know_it() {
        let of = |one: ServerOperation, shape| ServerOperation { shape, ..one };
        let fits = |server| joined(vec![traced(3, 100_000, 150_000)], vec![server]).log.joined == 1;
        let line = || logged(3, 149, 49);
        assert!(fits(line()));
        assert!(!fits(of(line(), shape(8, "find"))), "another one, inside this");
        assert!(fits(of(line(), shape(8, "getMore"))), "the log does not have its cursor's command");
        assert!(fits(ServerOperation { is_exact: false, ..of(line(), shape(8, "find")) }), "cut");
        assert!(!fits(ServerOperation { is_exact: false, ..of(line(), shape(8, "update")) }));
        let unseen = TracedOperation { shape: None, ..traced(3, 100_000, 150_000) };
        assert_eq!(joined(vec![unseen], vec![of(line(), shape(8, "find"))]).log, counts(1, 0, 0));
    }

    #[test]
    fn a_connection_is_known_by_its_number_its_client_or_the_clients_address() {
        let line = |connection, client| ServerOperation { connection, client, ..logged(3, 149, 49) };
        let fits = |server| joined(vec![traced(3, 100_000, 150_000)], vec![server]).log.joined == 1;
        assert!(fits(line(None, Some(client(50_000)))));
        assert!(!fits(line(None, Some(client(1)))));
        assert!(fits(line(None, Some(client(0)))));
        assert!(!fits(line(Some(4), Some(client(50_000)))));
        assert!(!fits(line(None, None)));
        assert!(!fits(ServerOperation { process: Some(9), ..logged(3, 149, 49) }));
        assert!(fits(ServerOperation { process: Some(1), ..logged(3, 149, 49) }));
        // Two connections of one client address at the same time: which of them, the profile does not say.
        let two = vec![traced(3, 100_000, 150_000), traced(4, 100_500, 150_000)];
        let profiled = ServerOperation { source: Source::Profile, ..line(None, Some(client(0))) };
        assert_eq!(joined(two, vec![profiled]).profile, counts(0, 0, 1));
    }

    #[test]
    fn an_operation_in_log_and_profile_is_joined_with_both_and_counted_once() {
        let profiled = ServerOperation { source: Source::Profile, ..logged(3, 149, 49) };
        let result = joined(vec![traced(3, 100_000, 150_000)], vec![profiled, logged(3, 149, 49)]);
        assert_eq!((result.log, result.profile), (counts(1, 0, 0), counts(1, 0, 0)));
        let [(0, partner)] = &result.joined[..] else { panic!("{:?}", result.joined) };
        assert_eq!(partner.source, Source::Log);
    }

    #[test]
    fn what_is_said_of_one_of_several_in_a_row_counts_for_that_row_once() {
        let of_row = |row: u32, connection| (traced(connection, 100_000, 150_000), (row, connection));
        let from_address = |end, took| ServerOperation {
            source: Source::Profile,
            client: Some(client(0)),
            connection: None,
            ..logged(0, end, took)
        };
        let joined = |threads: [(TracedOperation, (u32, u64)); 2], server: Vec<ServerOperation>| {
            let mut joiner = ServerJoiner::default();
            threads.into_iter().for_each(|(one, what)| drop(joiner.traced(one, what)));
            server.into_iter().for_each(|one| joiner.server(one));
            joiner.finish(Timestamp::default(), Timestamp::from_unix(1, 0), |one, other| one.0 == other.0)
        };
        let same = || [of_row(1, 3), of_row(1, 4)];
        let result =
            joined(same(), vec![from_address(149, 49), from_address(148, 48), from_address(147, 47)]);
        assert_eq!((result.profile, result.alone.len()), (counts(2, 0, 1), 0));
        let result = joined([of_row(1, 3), of_row(2, 4)], vec![from_address(149, 49)]);
        assert_eq!((result.profile, result.alone.len()), (counts(0, 0, 1), 2));
        // The second is too long for the first thread, so it is of the other one.
        let other = (traced(4, 90_000, 155_000), (1, 4));
        let both = || vec![from_address(148, 48), from_address(154, 62)];
        let result = joined([of_row(1, 3), other], both());
        assert_eq!((result.profile, result.alone.len()), (counts(2, 0, 0), 0));
        // The first may be of another row; then the second may be of something that was not traced.
        let other = (traced(4, 90_000, 155_000), (2, 4));
        let result = joined([of_row(1, 3), other], both());
        assert_eq!((result.profile, result.alone.len()), (counts(0, 0, 2), 2));
        // What the log says of one of them, the profile repeats: the other one has no description.
        let result = joined(same(), vec![logged(4, 149, 49), from_address(149, 49)]);
        assert_eq!((result.log, result.profile), (counts(1, 0, 0), counts(1, 0, 0)));
        assert_eq!(result.alone, [(1, 3)]);
    }

    #[test]
    fn an_operation_is_found_among_many_of_its_address() {
        // One is as long as all the others together.
        let threads = (0..1_000).map(|number| traced(number, number * 5_000, number * 5_000 + 4_000));
        let threads = threads.chain([traced(1_000, 0, 5_000_000)]).collect();
        let line =
            |end, took| ServerOperation { connection: None, client: Some(client(0)), ..logged(0, end, took) };
        let result = joined(threads, vec![line(4_999, 4_999)]);
        assert_eq!(result.joined.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1_000]);
    }

    #[test]
    fn what_was_not_in_the_trace_does_not_count() {
        let mut joiner = ServerJoiner::<()>::default();
        // One began before, one ended after it.
        [(120, 40), (250, 20)].into_iter().for_each(|(end, took)| joiner.server(logged(3, end, took)));
        let result =
            joiner
                .finish(Timestamp::from_unix_ns(100 * MS), Timestamp::from_unix_ns(240 * MS), |(), ()| false);
        assert_eq!(result.log, counts(0, 0, 0));
    }

    #[test]
    fn without_room_the_longest_operations_stay() {
        let mut joiner = ServerJoiner::with_cap(4);
        let mut given_up = Vec::new();
        for number in 0..40_u64 {
            let took = (number * 7) % 40 + 1;
            given_up.extend(joiner.traced(traced(number, 100_000, 100_000 + took * 1_000), took));
            joiner.server(logged(number, 100 + took, took));
        }
        let result = joiner.finish(Timestamp::default(), Timestamp::from_unix(1, 0), |_, _| false);
        let mut kept: Vec<_> = result.joined.iter().map(|(took, _)| *took).collect();
        kept.sort_unstable();
        assert_eq!(kept.last(), Some(&40));
        assert_eq!(result.log.total(), 40);
        assert_eq!(result.log.joined, kept.len() as u64);
        assert_eq!(given_up.len() + kept.len() + result.alone.len(), 40);
        assert!(given_up.iter().all(|took| *took < kept[0]));
    }

    /// How many lines can have an operation of a thread for themselves, if lines that fit only one have it before all
    /// others, unless several do.
    fn most_joined(threads: &[(u64, u64)], lines: &[(u64, u64)]) -> u64 {
        fn finds(
            line: usize,
            fitting: &[Vec<usize>],
            taken: &mut [Option<usize>],
            seen: &mut [bool],
        ) -> bool {
            for &number in &fitting[line] {
                if std::mem::replace(&mut seen[number], true) {
                    continue;
                }
                if taken[number].is_none_or(|holder| finds(holder, fitting, taken, seen)) {
                    taken[number] = Some(line);
                    return true;
                }
            }
            false
        }
        let fits = |(end, took): &(u64, u64), (start, length): &(u64, u64)| {
            logged(0, *end.max(took), *took).fits(&traced(0, *start, start + length))
        };
        let all = |line| {
            (0..threads.len()).filter(|number| fits(line, &threads[*number])).take(MAX_PARTNERS).collect()
        };
        let mut fitting: Vec<Vec<usize>> = lines.iter().map(all).collect();
        let singles: Vec<usize> = fitting.iter().filter(|one| one.len() == 1).map(|one| one[0]).collect();
        let is_fixed = |number: &usize| {
            let is_unlike = fitting.iter().any(|one| one.len() == MAX_PARTNERS && one.contains(number));
            !is_unlike && singles.iter().filter(|one| *one == number).count() == 1
        };
        let fixed: Vec<usize> = singles.iter().copied().filter(is_fixed).collect();
        fitting.retain(|one| one.len() > 1 && one.len() < MAX_PARTNERS);
        fitting.iter_mut().for_each(|one| one.retain(|number| !fixed.contains(number)));
        let mut taken = vec![None; threads.len()];
        let found = (0..fitting.len())
            .filter(|line| finds(*line, &fitting, &mut taken, &mut vec![false; threads.len()]))
            .count();
        (fixed.len() + found) as u64
    }

    proptest! {
        /// Where it does not matter which operation of a thread it is: none is used twice, and each fits.
        #[test]
        fn what_several_fit_is_joined_with_one_that_fits(
            threads in proptest::collection::vec((0u64..60_000, 0u64..20_000), 0..200),
            lines in proptest::collection::vec((0u64..80, 0u64..20), 0..80),
        ) {
            let mut joiner = ServerJoiner::default();
            for (number, (start, took)) in threads.iter().enumerate() {
                let one = traced(number as u64, *start, start + took);
                prop_assert!(joiner.traced(one.clone(), (number, one)).is_empty());
            }
            for (end, took) in &lines {
                let connection = None;
                joiner.server(ServerOperation { connection, client: Some(client(0)), ..logged(0, *end.max(took), *took) });
            }
            let result = joiner.finish(Timestamp::default(), Timestamp::from_unix(1_000, 0), |_, _| true);
            prop_assert_eq!(result.log.total(), lines.len() as u64);
            prop_assert_eq!(result.joined.len() as u64, result.log.joined);
            for ((_, traced), partner) in &result.joined {
                prop_assert!(partner.fits(traced));
            }
            prop_assert_eq!(result.log.joined, most_joined(&threads, &lines));
            let mut seen: Vec<_> = result.joined.iter().map(|((number, _), _)| number).collect();
            seen.extend(result.alone.iter().map(|(number, _)| number));
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), threads.len());
        }

        /// Whatever the operations are: each counts once, none is used twice, and what is joined fits nothing else.
        #[test]
        fn nothing_is_used_twice_or_guessed(
            threads in proptest::collection::vec((0u64..4, 0u64..60_000, 0u64..20_000, 0u64..3), 0..40),
            lines in proptest::collection::vec((0u64..4, 0u64..80, 0u64..20, 0u64..3, any::<bool>()), 0..40),
        ) {
            let threads: Vec<_> = threads
                .into_iter()
                .map(|(connection, start, took, id)| {
                    let shape = (id > 0).then(|| shape(id, "find"));
                    TracedOperation { shape, ..traced(connection, start, start + took) }
                })
                .collect();
            let lines: Vec<_> = lines
                .into_iter()
                .map(|(connection, end, took, id, in_log)| ServerOperation {
                    source: if in_log { Source::Log } else { Source::Profile },
                    shape: shape(id + 1, "find"),
                    ..logged(connection, end.max(took), took)
                })
                .collect();
            let result = joined(threads.clone(), lines.clone());
            let of = |source| lines.iter().filter(move |line| line.source == source);
            prop_assert_eq!(result.log.total(), of(Source::Log).count() as u64);
            prop_assert_eq!(result.profile.total(), of(Source::Profile).count() as u64);
            let mut seen: Vec<_> = result.alone.iter().chain(result.joined.iter().map(|(one, _)| one)).copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..threads.len()).collect::<Vec<_>>());
            for (number, partner) in &result.joined {
                let traced = &threads[*number];
                let is_on_it = |one: &TracedOperation| one.connection == partner.connection && partner.fits(one);
                prop_assert!(is_on_it(traced));
                prop_assert_eq!(threads.iter().filter(|one| is_on_it(one)).count(), 1);
                let rivals = of(partner.source)
                    .filter(|line| line.connection == traced.connection && line.fits(traced));
                prop_assert_eq!(rivals.count(), 1);
            }
        }
    }
}
