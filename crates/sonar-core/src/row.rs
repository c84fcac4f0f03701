//! A row: the figures of all operations of one shape, namespace, application, client or plan.
//!
//! It keeps the figures of each source separately, because two sources may have seen the same operation. The wire
//! knows latency, bytes and applications; a profile or log knows what the server examined, waited for and read.
//! A merged row has all of these side by side.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use foldhash::quality::RandomState;

use crate::figures::{Apps, Clients, Figures, Record, ServerFigures};
use crate::known_drivers::KnownDrivers;
use crate::sum::Sum;
use crate::time_split::RowSplit;
use crate::{Application, Class, Endpoint, Identity, Role, ShapeId, ShapeInfo, Source};

/// The maximum number of ordered ids per row.
pub const MAX_ORDERED_IDS: usize = 8;

/// What the operations of a row have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A shape, or the known part of it.
    Shape {
        /// How exactly the shape is known.
        identity: Identity,
        /// The shape.
        shape: Arc<ShapeInfo>,
        /// The ordered id if rows are split by it; otherwise 0.
        order: ShapeId,
    },
    /// A namespace: database and collection; the collection may be empty.
    Namespace(Box<str>, Box<str>),
    /// An application.
    App(Arc<Application>),
    /// A client address.
    Client(IpAddr),
    /// A plan summary; empty if there is none.
    Plan(Box<str>),
    /// A user; empty if there is none.
    User(Box<str>),
    /// A comment; empty if there is none.
    Comment(Box<str>),
    /// All operations that did not fit into the table.
    Other,
}

/// A borrowed [`Subject`].
#[derive(Copy, Clone, Debug)]
pub(crate) enum SubjectRef<'a> {
    Shape(Identity, &'a Arc<ShapeInfo>, ShapeId),
    Namespace(&'a str, &'a str),
    App(&'a Arc<Application>),
    Client(IpAddr),
    Plan(&'a str),
    User(&'a str),
    Comment(&'a str),
    Other,
}

impl Subject {
    fn borrow(&self) -> SubjectRef<'_> {
        match self {
            Self::Shape { identity, shape, order } => SubjectRef::Shape(*identity, shape, *order),
            Self::Namespace(database, collection) => SubjectRef::Namespace(database, collection),
            Self::App(app) => SubjectRef::App(app),
            Self::Client(ip) => SubjectRef::Client(*ip),
            Self::Plan(plan) => SubjectRef::Plan(plan),
            Self::User(user) => SubjectRef::User(user),
            Self::Comment(comment) => SubjectRef::Comment(comment),
            Self::Other => SubjectRef::Other,
        }
    }
}

impl SubjectRef<'_> {
    /// Whether both are the same subject. Equal shapes usually share one allocation, so pointers are compared first.
    #[inline(always)]
    fn matches(self, subject: &Subject) -> bool {
        match (self, subject) {
            (
                Self::Shape(identity, shape, order),
                Subject::Shape { identity: mine, shape: known, order: own },
            ) => (Arc::ptr_eq(shape, known) || shape.id == known.id) && order == *own && identity == *mine,
            (Self::Namespace(database, collection), Subject::Namespace(known, own)) => {
                *database == **known && *collection == **own
            }
            (Self::App(app), Subject::App(known)) => app == known,
            (Self::Client(ip), Subject::Client(known)) => ip == *known,
            (Self::Plan(plan), Subject::Plan(known)) => *plan == **known,
            (Self::User(user), Subject::User(known)) => *user == **known,
            (Self::Comment(comment), Subject::Comment(known)) => *comment == **known,
            (Self::Other, Subject::Other) => true,
            _ => false,
        }
    }

    /// A cheap hash for [`Table`](crate::Table)'s cache of recent rows. Collisions cost only a lookup.
    #[inline]
    fn quick_hash(self) -> u64 {
        match self {
            // Ids are hashes already.
            Self::Shape(_, shape, order) => shape.id.0 ^ order.0,
            Self::Namespace(database, collection) => (database.len() * 8 + collection.len()) as u64,
            // Different applications have different addresses.
            Self::App(app) => (Arc::as_ptr(app) as u64 >> 4) ^ (Arc::as_ptr(app) as u64 >> 10),
            Self::Client(IpAddr::V4(ip)) => u64::from(ip.to_bits()),
            Self::Client(IpAddr::V6(ip)) => ip.to_bits() as u64,
            Self::Plan(text) | Self::User(text) | Self::Comment(text) => text.len() as u64,
            Self::Other => 0,
        }
    }

    fn to_owned(self) -> Subject {
        match self {
            Self::Shape(identity, shape, order) => Subject::Shape { identity, shape: shape.clone(), order },
            Self::Namespace(database, collection) => Subject::Namespace(database.into(), collection.into()),
            Self::App(app) => Subject::App(app.clone()),
            Self::Client(ip) => Subject::Client(ip),
            Self::Plan(plan) => Subject::Plan(plan.into()),
            Self::User(user) => Subject::User(user.into()),
            Self::Comment(comment) => Subject::Comment(comment.into()),
            Self::Other => Subject::Other,
        }
    }
}

/// Identifies a row: its subject and, if rows are split by them, server, role and class.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RowKeyRef<'a> {
    pub server: Endpoint,
    pub role: Role,
    pub class: Class,
    pub subject: SubjectRef<'a>,
}

impl RowKeyRef<'_> {
    /// See [`SubjectRef::quick_hash`].
    #[inline]
    pub(crate) fn quick_hash(&self) -> u64 {
        self.subject.quick_hash().wrapping_add(self.class as u64).wrapping_add(u64::from(self.server.port))
    }

    /// Whether `row` has this key.
    #[inline(always)]
    pub(crate) fn matches(&self, row: &Row) -> bool {
        self.class == row.class
            && self.role == row.role
            && self.subject.matches(&row.subject)
            && self.server == row.server
    }

    /// Whether this is the row of the rest. A decoder with too many shapes gives further shapes the id 0.
    pub(crate) fn is_other(&self) -> bool {
        match self.subject {
            SubjectRef::Other => true,
            SubjectRef::Shape(_, shape, _) => shape.id == ShapeId(0),
            _ => false,
        }
    }

    pub(crate) fn hash(&self, hasher: &RandomState) -> u64 {
        let place = (self.server, self.role, self.class);
        match self.subject {
            SubjectRef::Shape(identity, shape, order) => hasher.hash_one((place, identity, shape.id, order)),
            SubjectRef::Namespace(database, collection) => hasher.hash_one((place, database, collection)),
            SubjectRef::App(app) => hasher.hash_one((place, app)),
            SubjectRef::Client(ip) => hasher.hash_one((place, ip)),
            SubjectRef::Plan(text) | SubjectRef::User(text) | SubjectRef::Comment(text) => {
                hasher.hash_one((place, text))
            }
            SubjectRef::Other => hasher.hash_one(place),
        }
    }
}

/// The figures of a row from one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Figures of all its operations.
    pub figures: Figures,
    /// By application.
    pub apps: Apps,
    /// By client address.
    pub clients: Clients,
    /// Operations in flight when the source ended (wire only).
    pub in_flight: UnfinishedOperations,
}

/// Operations in flight.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct UnfinishedOperations {
    /// Number of operations.
    pub count: u64,
    /// Age of the oldest, in nanoseconds.
    pub oldest_ns: u64,
}

impl Observed {
    fn merge(&mut self, other: &Self) {
        self.in_flight.count += other.in_flight.count;
        self.in_flight.oldest_ns = self.in_flight.oldest_ns.max(other.in_flight.oldest_ns);
        self.figures.merge(&other.figures);
        self.apps.merge(&other.apps);
        self.clients.merge(&other.clients);
    }
}

/// Identifies a row by shape: server, role, class and shape.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct RowKey {
    /// The server's address.
    pub server: Endpoint,
    /// See [`Operation::role`](crate::Operation::role).
    pub role: Role,
    /// See [`Operation::class`](crate::Operation::class).
    pub class: Class,
    /// The shape; 0 for the row `other`.
    pub shape: ShapeId,
    /// The ordered id if rows are split by it; otherwise 0.
    pub order: ShapeId,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The server's address; port 0 if rows are not split by server.
    pub server: Endpoint,
    /// See [`Operation::role`](crate::Operation::role); `Served` if rows are not split by role.
    pub role: Role,
    /// See [`Operation::class`](crate::Operation::class); `User` if rows are not split by class.
    pub class: Class,
    /// What its operations have in common.
    pub subject: Subject,
    /// The smallest ordered ids, at most [`MAX_ORDERED_IDS`].
    pub ordered_ids: Vec<ShapeId>,
    /// The server's `queryHash` if all operations that have one have the same; empty if they have several.
    query_hash: Option<Box<str>>,
    /// Where the time of its operations went; `None` if no thread of the server was traced.
    pub split: Option<Box<RowSplit>>,
    /// Figures by source, in the order of [`Source::ALL`].
    observed: [Option<Box<Observed>>; Source::ALL.len()],
}

impl Row {
    /// A row without figures. `class` is that of its operations if rows are split by class.
    pub fn new(subject: Subject, class: Class) -> Self {
        Self {
            server: Endpoint::default(),
            role: Role::default(),
            class,
            subject,
            ordered_ids: Vec::new(),
            query_hash: None,
            split: None,
            observed: [const { None }; Source::ALL.len()],
        }
    }

    pub(crate) fn of_key(key: &RowKeyRef<'_>) -> Self {
        Self { server: key.server, role: key.role, ..Self::new(key.subject.to_owned(), key.class) }
    }

    pub(crate) fn key_ref(&self) -> RowKeyRef<'_> {
        RowKeyRef { server: self.server, role: self.role, class: self.class, subject: self.subject.borrow() }
    }

    /// Server, role, class and shape.
    pub fn key(&self) -> RowKey {
        let (shape, order) = match &self.subject {
            Subject::Shape { shape, order, .. } => (shape.id, *order),
            _ => <(ShapeId, ShapeId)>::default(),
        };
        RowKey { server: self.server, role: self.role, class: self.class, shape, order }
    }

    /// The shape; [`ShapeInfo::other`] if the row is not for one shape.
    pub fn shape(&self) -> &Arc<ShapeInfo> {
        static OTHER: LazyLock<Arc<ShapeInfo>> = LazyLock::new(|| Arc::new(ShapeInfo::other()));
        match &self.subject {
            Subject::Shape { shape, .. } => shape,
            _ => &OTHER,
        }
    }

    /// The figures from `source`; `None` if it saw no operation of this row.
    pub fn observed_by(&self, source: Source) -> Option<&Observed> {
        self.observed[source as usize].as_deref()
    }

    /// Mutable access to the figures from `source`.
    #[inline]
    pub fn observed_by_mut(&mut self, source: Source) -> &mut Observed {
        self.observed[source as usize].get_or_insert_default()
    }

    /// Replaces everything from one source.
    pub fn set_observed(&mut self, source: Source, observed: Box<Observed>) {
        self.observed[source as usize] = Some(observed);
    }

    /// The sources with figures, the one with the most precise latencies first.
    pub fn sources(&self) -> impl Iterator<Item = Source> {
        Source::ALL.into_iter().filter(|source| self.observed_by(*source).is_some())
    }

    /// Everything from the source with the most precise latencies.
    pub fn observed(&self) -> &Observed {
        static NOTHING: LazyLock<Observed> = LazyLock::new(Observed::default);
        self.observed.iter().flatten().next().map_or(&NOTHING, |observed| observed)
    }

    /// Counts and latencies from the source with the most precise latencies.
    pub fn figures(&self) -> &Figures {
        &self.observed().figures
    }

    /// The source that knows for most operations how the server executed them, with its figures; `None` if no source knows.
    pub fn executed(&self) -> Option<(Source, &Figures)> {
        let figures =
            Source::ALL.into_iter().filter_map(|source| Some((source, &self.observed_by(source)?.figures)));
        // For equal counts, the first source.
        figures
            .filter(|(_, figures)| figures.knows_execution())
            .rev()
            .max_by_key(|(_, figures)| figures.calls)
    }

    /// How the server executed its operations; everything is unknown if no source knows.
    pub fn server(&self) -> &ServerFigures {
        self.executed().map_or(self.figures(), |(_, figures)| figures).server()
    }

    /// Documents or keys examined per document returned; `None` if no source knows.
    pub fn examined_per_returned(&self) -> Option<f64> {
        self.executed()?.1.examined_per_returned()
    }

    /// Every sum with its stable name, each from the source that knows it best.
    pub fn sums(&self) -> Vec<(&'static str, Sum)> {
        self.figures().sums_with(self.server())
    }

    /// The server's `queryHash`, if all operations have the same.
    pub fn query_hash(&self) -> Option<&str> {
        self.query_hash.as_deref().filter(|hash| !hash.is_empty())
    }

    /// Like [`query_hash`](Self::query_hash), but an empty text if its operations have several.
    pub fn query_hash_or_mixed(&self) -> Option<&str> {
        self.query_hash.as_deref()
    }

    /// Heap memory in bytes, without that of shapes and applications, which are shared.
    pub fn heap_bytes(&self) -> usize {
        let subject = match &self.subject {
            Subject::Namespace(database, collection) => database.len() + collection.len(),
            Subject::Plan(text) | Subject::User(text) | Subject::Comment(text) => text.len(),
            Subject::Shape { .. } | Subject::App(_) | Subject::Client(_) | Subject::Other => 0,
        };
        let of_source = |observed: &Observed| {
            let Observed { figures, apps, clients, .. } = observed;
            size_of::<Observed>() + figures.heap_bytes() + apps.heap_bytes() + clients.heap_bytes()
        };
        let of_split = |split: &RowSplit| size_of::<RowSplit>() + split.heap_bytes();
        subject
            + self.ordered_ids.capacity() * size_of::<ShapeId>()
            + self.query_hash.as_ref().map_or(0, |hash| hash.len())
            + self.split.as_deref().map_or(0, of_split)
            + self.observed.iter().flatten().map(|observed| of_source(observed)).sum::<usize>()
    }

    /// Replaces each application that is only a name by the one that has this name; returns whether it is itself about
    /// such a one.
    pub(crate) fn name_applications(&mut self, known: &KnownDrivers) -> bool {
        for observed in self.observed.iter_mut().flatten() {
            observed.apps.rename(|app| known.meant_by(app).cloned());
        }
        let Subject::App(app) = &mut self.subject else { return false };
        let Some(meant) = known.meant_by(app) else { return false };
        *app = meant.clone();
        true
    }

    /// Adds the figures of one operation.
    #[inline(always)]
    pub(crate) fn record(&mut self, record: &Record<'_>) -> &mut Observed {
        let observed = self.observed_by_mut(record.source);
        observed.figures.record(record);
        observed
    }

    /// Adds the ordered id and the `queryHash` of an operation.
    #[inline]
    pub(crate) fn add_ids(&mut self, record: &Record<'_>) {
        self.add_ordered_id(record.op.ordered_id);
        if let Some(execution) = record.execution
            && !execution.query_hash.is_empty()
        {
            self.add_query_hash(execution.query_hash);
        }
    }

    /// Adds an ordered id. The [`MAX_ORDERED_IDS`] smallest are kept.
    pub fn add_ordered_id(&mut self, id: ShapeId) {
        if self.ordered_ids.contains(&id) {
            return;
        }
        if self.ordered_ids.len() < MAX_ORDERED_IDS {
            self.ordered_ids.push(id);
        } else if let Some(last) = self.ordered_ids.iter_mut().max().filter(|last| id < **last) {
            *last = id;
        }
    }

    /// Adds a `queryHash`; an empty one stands for several.
    pub fn add_query_hash(&mut self, hash: &str) {
        match &mut self.query_hash {
            None => self.query_hash = Some(hash.into()),
            Some(known) if **known == *hash => {}
            Some(known) => *known = Box::default(),
        }
    }

    /// Adds everything in `other`, which has the same key; moves what only `other` has.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        for (mine, theirs) in self.observed.iter_mut().zip(&mut other.observed) {
            if mine.is_none() {
                *mine = theirs.take();
            }
        }
        if self.split.is_none() {
            self.split = other.split.take();
        }
        self.merge(&other);
    }

    /// Adds everything in `other`, source by source.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.observed.iter_mut().zip(&other.observed) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
        if let Some(split) = &other.split {
            self.split.get_or_insert_default().merge(split);
        }
        other.ordered_ids.iter().for_each(|id| self.add_ordered_id(*id));
        if let Some(hash) = &other.query_hash {
            self.add_query_hash(hash);
        }
    }
}

#[cfg(test)]
mod tests;
