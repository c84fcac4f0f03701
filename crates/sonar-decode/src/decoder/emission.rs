//! Hands on the operations that have ended, in their order.
//!
//! A getMore or killCursors counts for the command that opened its cursor, which may have been sent on another
//! connection. This is the only place where one connection depends on another.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use sonar_core::operation::ErrorCodes;
use sonar_core::operation::WaitingOperation;
use sonar_core::{
    Application, Class, Coverage, Endpoint, InFlightOperations, Operation, Outcome, Plaintext, Role,
    RunningOperation, RunningOperations, ShapeInfo, Timestamp, TlsSuite,
};

use super::connection::Connection;
use super::exchange::{EndedOperation, Pending};
use super::settings::Sink;
use crate::identity::{CursorOrigin, Shared};
use crate::shape::CommandKind;

/// Who sent an operation, and to whom.
#[derive(Copy, Clone)]
pub struct OperationParties<'a> {
    /// The number of their flow.
    pub flow: u32,
    pub client: Endpoint,
    pub server: Endpoint,
    pub role: Role,
    pub app: &'a Arc<Application>,
    /// What their connection is encrypted with, where a key log has decrypted it.
    pub suite: Option<TlsSuite>,
}

/// Receives the operations of one connection that have ended, and takes them out of `ended`.
pub trait EndedSink {
    fn take(&mut self, parties: OperationParties<'_>, ended: &mut Vec<EndedOperation>);
}

/// A request that waits for its reply, as counts and lists of operations in flight need it.
pub struct WaitingRequest {
    server: Endpoint,
    client: Endpoint,
    request_id: u32,
    role: Role,
    class: Class,
    kind: CommandKind,
    cursor: Option<i64>,
    shape: Arc<ShapeInfo>,
    app: Arc<Application>,
    start: Timestamp,
}

impl WaitingRequest {
    /// The requests that wait on a connection.
    pub fn all_of(conn: &Connection) -> impl Iterator<Item = Self> {
        let waits = |pending: &&Pending| {
            conn.exchange.awaits_reply_to(pending) && !pending.follows && pending.passed.is_none()
        };
        let waiting = conn.exchange.pending.iter().filter(waits).filter(|_| conn.server.is_some());
        waiting.map(|waiting| {
            let request = waiting.answers.as_deref().unwrap_or(waiting);
            Self {
                server: conn.server_end(),
                client: conn.client_end(),
                request_id: request.request_id,
                role: conn.role(),
                class: request.class,
                kind: request.kind,
                cursor: request.cursor,
                shape: request.shape.clone(),
                app: conn.client.app.clone(),
                start: request.start,
            }
        })
    }
}

/// Makes operations of what has ended, and remembers which of them opened a cursor.
pub struct Emitter {
    /// Counters of cursors.
    pub coverage: Coverage,
    shared: Arc<Shared>,
    /// All connections are encrypted.
    tls: bool,
    suites: TlsSuites,
}

/// The most connections whose version and cipher suite are remembered. Beyond them it begins anew: servers that are
/// killed end none of their connections, and those in use are noted again with what they pass next.
const MAX_SUITES: usize = 131_072;

/// Versions and cipher suites of connections, by their ends in ascending order.
#[derive(Default)]
struct TlsSuites {
    of: HashMap<[Endpoint; 2], TlsSuite>,
    /// [`MAX_SUITES`] is divided by this; 0: by 1.
    share: usize,
}

impl TlsSuites {
    fn key([one, other]: [Endpoint; 2]) -> [Endpoint; 2] {
        if one <= other { [one, other] } else { [other, one] }
    }

    fn note(&mut self, ends: [Endpoint; 2], suite: TlsSuite) {
        if self.of.len() >= MAX_SUITES / self.share.max(1) {
            self.of.clear();
        }
        self.of.insert(Self::key(ends), suite);
    }

    fn of(&self, ends: [Endpoint; 2]) -> TlsSuite {
        self.of.get(&Self::key(ends)).copied().unwrap_or_default()
    }
}

/// An [`Emitter`] with the receiver of its operations.
pub struct Emission<'a, S> {
    pub emitter: &'a mut Emitter,
    pub sink: &'a mut S,
}

impl<S: Sink> EndedSink for Emission<'_, S> {
    #[inline]
    fn take(&mut self, parties: OperationParties<'_>, ended: &mut Vec<EndedOperation>) {
        ended.iter().for_each(|ended| self.emitter.emit(parties, ended, self.sink));
        ended.clear();
    }
}

impl Emitter {
    pub fn new(shared: Arc<Shared>, tls: bool) -> Self {
        Self { coverage: Coverage::default(), shared, tls, suites: TlsSuites::default() }
    }

    /// The same with a share of the room for suites.
    pub fn with_share(self, share: usize) -> Self {
        Self { suites: TlsSuites { share, ..self.suites }, ..self }
    }

    /// The bytes that it has allocated: an estimate.
    pub fn memory(&self) -> usize {
        self.suites.of.capacity() * size_of::<([Endpoint; 2], TlsSuite)>()
    }

    /// Remembers version and cipher suite of a connection, until it ends.
    pub fn note_suite(&mut self, plaintext: &Plaintext<'_>) {
        let Some(ends) = plaintext.ends else { return };
        if plaintext.suite.is_known() {
            self.suites.note(ends, plaintext.suite);
        }
    }

    /// Forgets it.
    pub fn forget_suite(&mut self, plaintext: &Plaintext<'_>) {
        if let Some(ends) = plaintext.ends {
            self.suites.of.remove(&TlsSuites::key(ends));
        }
    }

    /// Emits an operation.
    #[inline]
    pub fn emit(&mut self, parties: OperationParties<'_>, ended: &EndedOperation, sink: &mut impl Sink) {
        let EndedOperation { request, end, facts } = ended;
        let OperationParties { client, server, role, app, suite, .. } = parties;
        let mut op = Operation {
            start: request.start,
            end: (*end).max(request.start),
            latency_ns: facts.latency_ns,
            transfer_ns: facts.transfer_ns,
            client,
            server,
            role,
            class: request.class,
            command: &request.shape.command,
            shape: &request.shape,
            ordered_id: request.ordered_id,
            statements: &request.statements,
            statement_count: request.statement_count,
            app,
            opcode: request.opcode,
            compressor: request.compressor.or(facts.compressor),
            tls: suite.or_else(|| self.tls.then(|| self.suites.of([server, client]))),
            request_id: request.own_id,
            cursor_id: request.cursor.or(facts.cursor.filter(|id| *id != 0)),
            request_bytes: u64::from(request.bytes),
            response_bytes: facts.bytes,
            docs_returned: facts.returned,
            docs_matched: facts.matched,
            docs_affected: facts.affected,
            outcome: if facts.codes.is_empty() {
                facts.outcome
            } else {
                Outcome::Failed(ErrorCodes { codes: &facts.codes })
            },
            values: request.values.as_deref(),
        };
        let Some((command, id)) = cursor_used(request.kind, request.cursor) else {
            self.note_opened(server, ended);
            return sink.operation(&op);
        };
        let origin = self.shared.cursor(server, id);
        if request.kind == CommandKind::GetMore && facts.cursor == Some(0) {
            self.shared.close_cursor(server, id);
        }
        match &origin {
            Some(CursorOrigin { shape, ordered_id, waits, .. }) => {
                (op.shape, op.ordered_id, op.command) = (shape, *ordered_id, command);
                (op.statements, op.statement_count) = (&[], 1);
                op.class = class_of_use(request.kind, request.class, *waits);
            }
            // Of a chain of replies only the first counts.
            None => self.coverage.cursors_joined_late += u64::from(!request.follows || request.joined_late),
        }
        sink.operation(&op);
    }

    /// Remembers the cursor that an operation opened.
    #[inline]
    fn note_opened(&mut self, server: Endpoint, ended: &EndedOperation) {
        let request = &ended.request;
        let Some(id) = ended.facts.cursor.filter(|id| *id != 0 && request.kind != CommandKind::GetMore)
        else {
            return;
        };
        let origin = CursorOrigin {
            shape: request.shape.clone(),
            ordered_id: request.ordered_id,
            identity: request.shape.identity(),
            waits: request.opens_waiting,
        };
        self.coverage.cursors_evicted += self.shared.open_cursor(server, id, origin);
    }

    /// Operations in flight by shape: how many, and which are the oldest at `now`.
    pub fn in_flight(
        &self,
        waiting: impl Iterator<Item = WaitingRequest>,
        now: Timestamp,
    ) -> Vec<InFlightOperations> {
        let each = waiting.map(|request| {
            let (shape, class) = self.identified(&request);
            let WaitingRequest { server, client, request_id, role, start, .. } = request;
            let oldest_ns = now.since(start);
            let oldest = vec![WaitingOperation { client, request_id, age_ns: oldest_ns, now: None }];
            let one = InFlightOperations { server, role, class, shape, count: 1, oldest_ns, oldest };
            ((server, role, class, one.shape.id), one)
        });
        merged(each, InFlightOperations::add)
    }

    /// The oldest operations in flight, at most `most`, one by one.
    pub fn running(&self, waiting: impl Iterator<Item = WaitingRequest>, most: usize) -> RunningOperations {
        let mut found = RunningOperations::default();
        for request in waiting {
            let (shape, class) = self.identified(&request);
            let used = cursor_used(request.kind, request.cursor);
            let command = used.map_or_else(|| shape.command.clone(), |(command, _)| command.into());
            let WaitingRequest { server, client, request_id, role, app, start, .. } = request;
            let one =
                RunningOperation { server, client, request_id, role, class, command, shape, app, start };
            found.add(one, most);
        }
        found.limit(most);
        found
    }

    /// Shape and class of a request that waits: where it uses a cursor, those of the command that opened it.
    fn identified(&self, request: &WaitingRequest) -> (Arc<ShapeInfo>, Class) {
        let used = cursor_used(request.kind, request.cursor);
        match used.and_then(|(_, id)| self.shared.cursor(request.server, id)) {
            Some(origin) => (origin.shape, class_of_use(request.kind, request.class, origin.waits)),
            None => (request.shape.clone(), request.class),
        }
    }
}

/// The name of a command that uses a cursor, and the cursor.
fn cursor_used(kind: CommandKind, cursor: Option<i64>) -> Option<(&'static str, i64)> {
    match kind {
        CommandKind::GetMore => Some(("getMore", cursor?)),
        CommandKind::KillCursors => Some(("killCursors", cursor?)),
        _ => None,
    }
}

/// The class of a command of this kind on a cursor that `waits` for data on purpose, or does not.
fn class_of_use(kind: CommandKind, class: Class, waits: bool) -> Class {
    if waits && kind == CommandKind::GetMore && class != Class::Replication { Class::Waiting } else { class }
}

/// Merges the values of each key with `add`. Keys stay in the order in which they came first.
fn merged<K: Eq + Hash, V>(values: impl Iterator<Item = (K, V)>, add: impl Fn(&mut V, V)) -> Vec<V> {
    let mut places: HashMap<K, usize, foldhash::quality::RandomState> = HashMap::default();
    let mut found: Vec<V> = Vec::new();
    for (key, value) in values {
        match places.entry(key) {
            Entry::Occupied(place) => add(&mut found[*place.get()], value),
            Entry::Vacant(place) => {
                place.insert(found.len());
                found.push(value);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;

    /// A key that counts how often it was compared.
    struct CountingKey<'a>(u32, &'a Cell<u32>);

    impl PartialEq for CountingKey<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for CountingKey<'_> {}

    impl Hash for CountingKey<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn what_is_in_flight_is_merged_in_one_pass_however_many_shapes_there_are() {
        let compared = Cell::new(0);
        let each = (0..60_000).map(|n| (CountingKey(n % 20_000, &compared), (n % 20_000, 1)));
        let found = merged(each, |all, one| all.1 += one.1);
        let expected: Vec<_> = (0..20_000).map(|n| (n, 3)).collect();
        assert!(found == expected);
        assert!(compared.get() < 5 * 60_000, "{}", compared.get());
    }

    #[test]
    fn suites_of_servers_that_were_killed_give_way_to_new_ones() {
        let (mut suites, suite) = (TlsSuites::default(), TlsSuite { version: 0x0304, cipher: 0x1301 });
        let server = Endpoint::v4([10, 0, 0, 1], 27_017);
        let client = |number: u32| Endpoint::v4(number.to_be_bytes(), 40_000);
        for number in 0..MAX_SUITES as u32 + 5 {
            suites.note([server, client(number)], suite);
            assert!(suites.of.len() <= MAX_SUITES);
        }
        assert_eq!(suites.of([client(MAX_SUITES as u32 + 4), server]), suite);
        assert_eq!(suites.of([client(0), server]), TlsSuite::default());
    }
}
