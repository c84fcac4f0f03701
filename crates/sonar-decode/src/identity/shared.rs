//! What do the threads of a capture share? The open cursors, the texts of shapes, and the clients that a log or a
//! server named.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use sonar_core::{Application, Endpoint, ShapeId, ShapeInfo, TlsSuite};

use super::applications::Applications;
use super::cursors::{CursorOrigin, Cursors};
use super::server::is_server;
use super::shapes::ShapeTable;
use crate::tcp::Twins;

/// The most clients of earlier connections that are remembered.
const MAX_CLIENTS: usize = 100_000;
/// The most servers that one client address and port is remembered with; then the oldest is dropped.
const MAX_SERVERS_OF_CLIENT: usize = 8;

/// The most cipher suites that are remembered because they are not decrypted.
const MAX_SUITES: usize = 64;

/// State shared between decoders. Locked once for a cursor that is opened, used or closed and once for
/// a shape that a thread sees for the first time: never for an ordinary operation.
#[derive(Debug, Default)]
pub struct Shared {
    /// [`MAX_CLIENTS`] is divided by this; 0: by 1.
    share: usize,
    twins: Twins,
    cursors: Mutex<Cursors<(Endpoint, i64)>>,
    shapes: Mutex<ShapeTable>,
    clients: RwLock<KnownClients>,
    /// Grows with each change of `clients`.
    clients_generation: AtomicU64,
    /// Whether a connection of the capture was one of `clients`.
    has_named: AtomicBool,
    /// Versions and cipher suites that are not decrypted, and how many connections have them.
    undecrypted: Mutex<BTreeMap<TlsSuite, u64>>,
    by_flow: Option<Box<ByFlow>>,
}

/// What is kept for decoders each of which decodes some of the flows of one file.
#[derive(Debug, Default)]
struct ByFlow {
    /// The applications of all of them.
    apps: Mutex<Applications>,
    /// See [`Shared::depends_on_order`].
    depends_on_order: AtomicBool,
}

/// Who is on a connection that was open before the capture began.
#[derive(Clone, Debug)]
pub(crate) struct KnownClient {
    pub app: Arc<Application>,
    /// It is a server itself.
    pub is_server: bool,
}

#[derive(Debug, Default)]
struct KnownClients {
    /// The connections from each client address and port: the server's port, where it is known, and who is on
    /// it; the latest last. Several servers on one host take connections from the same port.
    by_endpoint: HashMap<Endpoint, Vec<(Option<u16>, KnownClient)>, foldhash::quality::RandomState>,
    apps: Applications,
}

impl Shared {
    /// State with room for a share of the cursors and of the clients of earlier connections.
    pub fn share(share: usize) -> Self {
        Self { share, cursors: Mutex::new(Cursors::share(share)), ..Self::default() }
    }

    /// State shared between decoders each of which decodes some of the flows of one file. It notices when the
    /// outcome depends on which of them comes first.
    pub(crate) fn by_flow() -> Self {
        Self { by_flow: Some(Box::default()), ..Self::default() }
    }

    /// Whether the outcome may depend on which of the decoders comes first: a table is full, or a shape has
    /// several texts.
    pub(crate) fn depends_on_order(&self) -> bool {
        self.by_flow.as_ref().is_some_and(|by_flow| by_flow.depends_on_order.load(Ordering::Relaxed))
    }

    /// Takes note of an application, of which all decoders together distinguish a limited number.
    pub(crate) fn note_application(&self, app: &Application) {
        if let Some(by_flow) = &self.by_flow
            && lock(&by_flow.apps).shared(app.clone()).is_none()
        {
            self.note_order();
        }
    }

    /// Takes note that the outcome may depend on which decoder comes first.
    pub(crate) fn note_order(&self) {
        if let Some(by_flow) = &self.by_flow {
            by_flow.depends_on_order.store(true, Ordering::Relaxed);
        }
    }

    /// Takes note of a connection whose version or cipher suite is not decrypted.
    pub(crate) fn note_undecrypted(&self, suite: TlsSuite) {
        let mut suites = lock(&self.undecrypted);
        if suites.len() < MAX_SUITES || suites.contains_key(&suite) {
            *suites.entry(suite).or_default() += 1;
        }
    }

    /// The bytes of shapes, cursors and clients: an estimate.
    pub fn memory(&self) -> usize {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        let by_endpoint = &clients.by_endpoint;
        let lists: usize = by_endpoint.values().map(Vec::capacity).sum();
        lock(&self.shapes).memory()
            + lock(&self.cursors).memory()
            + by_endpoint.capacity() * size_of::<(Endpoint, Vec<(Option<u16>, KnownClient)>)>()
            + lists * size_of::<(Option<u16>, KnownClient)>()
    }

    /// The versions and cipher suites that a key log was of no use for, and how many connections have each.
    pub fn undecrypted(&self) -> Vec<(TlsSuite, u64)> {
        lock(&self.undecrypted).iter().map(|(suite, count)| (*suite, *count)).collect()
    }

    /// First segments of flows, by which twins behind address translation are found.
    pub fn twins(&self) -> Twins {
        self.twins.clone()
    }

    /// Adds the clients of connections whose handshake was not captured, by the address and port of each: from a
    /// server's log, or from a server that was asked. Connections that are followed already take them over at the
    /// next [`tick`](crate::Decoder::tick). Returns how many did not fit (`MAX_CLIENTS`, and
    /// [`MAX_APPLICATIONS`](super::MAX_APPLICATIONS) applications).
    ///
    /// `server_port` is that of the clients' server; `None` if it is unknown: then they count for connections to any
    /// port.
    pub fn add_clients(
        &self,
        server_port: Option<u16>,
        clients: impl IntoIterator<Item = (Endpoint, Application)>,
    ) -> usize {
        let mut known = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        let KnownClients { by_endpoint, apps } = &mut *known;
        let mut refused = 0;
        for (endpoint, app) in clients {
            let is_server = is_server(&app, None);
            let most = MAX_CLIENTS / self.share.max(1);
            let has_room = by_endpoint.len() < most || by_endpoint.contains_key(&endpoint);
            let Some(app) = has_room.then(|| apps.shared(app)).flatten() else {
                refused += 1;
                continue;
            };
            let servers = by_endpoint.entry(endpoint).or_default();
            servers.retain(|(port, _)| *port != server_port);
            if servers.len() >= MAX_SERVERS_OF_CLIENT {
                servers.remove(0);
            }
            servers.push((server_port, KnownClient { app, is_server }));
        }
        self.clients_generation.fetch_add(1, Ordering::Release);
        refused
    }

    /// Who is on the connection from this address and port to that port of a server, if known.
    pub(crate) fn client(&self, client: Endpoint, server_port: u16) -> Option<KnownClient> {
        let known = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |port: Option<u16>| port.is_none_or(|port| port == server_port);
        let servers = known.by_endpoint.get(&client)?;
        let known = servers.iter().rev().find(|(port, _)| is_meant(*port)).map(|(_, client)| client.clone());
        self.has_named.fetch_or(known.is_some(), Ordering::Relaxed);
        known
    }

    /// Whether [`Shared::add_clients`] has named a connection of the capture.
    pub fn has_named_clients(&self) -> bool {
        self.has_named.load(Ordering::Relaxed)
    }

    /// A number that changes with the known clients; 0 as long as none is known.
    pub(crate) fn clients_generation(&self) -> u64 {
        self.clients_generation.load(Ordering::Acquire)
    }

    /// Remembers the origin of a cursor. Returns how many other cursors were forgotten to make room.
    pub(crate) fn open_cursor(&self, server: Endpoint, id: i64, origin: CursorOrigin) -> u64 {
        lock(&self.cursors).open((server, id), origin)
    }

    /// The origin of a cursor; `None` when it was opened before the capture began, or was forgotten.
    pub(crate) fn cursor(&self, server: Endpoint, id: i64) -> Option<CursorOrigin> {
        lock(&self.cursors).origin(&(server, id)).cloned()
    }

    /// Forgets a cursor.
    pub(crate) fn close_cursor(&self, server: Endpoint, id: i64) {
        lock(&self.cursors).close(&(server, id));
    }

    /// The shape with this id, made by `new` if no thread has seen it; `None` when there are too many. The flag says
    /// that the shape is new and its text was cut.
    pub(crate) fn shape(
        &self,
        id: ShapeId,
        new: impl FnOnce() -> ShapeInfo,
    ) -> Option<(Arc<ShapeInfo>, bool)> {
        if self.by_flow.is_some() {
            return self.own_shape(new());
        }
        {
            let shapes = lock(&self.shapes);
            if let Some(info) = shapes.get(id) {
                return Some((info.clone(), false));
            }
            if shapes.is_full() {
                return None;
            }
        }
        // The text is made without the lock. Two threads may make the same one; the first to finish wins.
        let new = new();
        let mut shapes = lock(&self.shapes);
        let is_new = shapes.get(id).is_none();
        let info = shapes.add(new);
        let cut = info.cut && is_new;
        Some((info, cut))
    }

    /// The same for a decoder of some flows. It gets a copy of its own, as counting references to one would slow
    /// down all.
    fn own_shape(&self, new: ShapeInfo) -> Option<(Arc<ShapeInfo>, bool)> {
        let mut shapes = lock(&self.shapes);
        let is_new = match shapes.get(new.id) {
            Some(known) => {
                if **known != new {
                    self.note_order();
                }
                false
            }
            None if shapes.is_full() || !shapes.has_room_for(&new) => return None,
            None => {
                shapes.add(new.clone());
                true
            }
        };
        let cut = new.cut && is_new;
        Some((Arc::new(new), cut))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::MAX_APPLICATIONS;

    #[test]
    fn the_number_of_known_clients_and_applications_is_bounded() {
        let shared = Shared::default();
        let app = |n: usize| Application { name: n.to_string().into(), ..Application::default() };
        let client = |n: usize| Endpoint::v4((n as u32).to_be_bytes(), 1);
        let many = MAX_APPLICATIONS + 5;
        assert_eq!(shared.add_clients(None, (0..many).map(|n| (client(n), app(n)))), 5);
        let known = MAX_APPLICATIONS;
        let share = Shared::share(4);
        let quarter = MAX_CLIENTS / 4;
        assert_eq!(share.add_clients(None, (0..quarter + 7).map(|n| (client(n), app(1)))), 7);
        let bytes = share.memory();
        assert!(bytes > quarter * size_of::<Endpoint>() && bytes < 12 << 20, "{bytes}");
        assert_eq!(shared.add_clients(None, (0..MAX_CLIENTS + 7).map(|n| (client(n), app(1)))), 7);
        assert!(shared.client(client(MAX_CLIENTS + 8), 27_017).is_none() && !shared.has_named_clients());
        assert!(shared.client(client(known + 9), 27_017).is_some_and(|client| &*client.app.name == "1"));
        assert!(shared.has_named_clients());
    }

    #[test]
    fn the_outcome_depends_on_the_order_where_a_shape_has_two_texts() {
        let shared = Shared::by_flow();
        let of =
            |typed: &str| ShapeInfo { id: ShapeId(3), typed: typed.into(), cut: true, ..Default::default() };
        let cut: Vec<_> = (0..2).map(|_| shared.shape(ShapeId(3), || of("one")).unwrap().1).collect();
        assert_eq!((cut, shared.depends_on_order()), (vec![true, false], false), "it is counted once");
        shared.shape(ShapeId(3), || of("other")).unwrap();
        assert!(shared.depends_on_order());
    }

    #[test]
    fn a_shape_is_made_once() {
        let shared = Shared::default();
        let id = ShapeId(3);
        let first = shared.shape(id, || ShapeInfo { id, typed: "one".into(), ..Default::default() });
        let second = shared.shape(id, || unreachable!());
        assert_eq!(first.unwrap().0.typed, second.unwrap().0.typed);
    }
}
