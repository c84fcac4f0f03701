//! What the decoders of several threads have in common: open cursors and the texts of shapes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sonar_core::{Application, Endpoint, ShapeId, ShapeInfo};

use crate::tcp::Twins;

/// The most cursors that are remembered; past half of it the older half is forgotten.
pub const MAX_CURSORS: usize = 65_536;
/// The most shapes that are remembered.
pub const MAX_SHAPES: usize = 20_000;
/// The most clients of earlier connections that are remembered.
pub const MAX_CLIENTS: usize = 100_000;
/// The most servers that one client address and port is remembered with; then the oldest gives way.
const MAX_SERVERS_OF_CLIENT: usize = 8;
/// All texts of shapes together, in bytes; what comes after is cut.
pub const TEXT_BUDGET: usize = 8 << 20;

/// State shared between decoders. Locked once for a cursor that is opened, used or closed and once for
/// a shape that a thread sees for the first time: never for an ordinary operation.
#[derive(Debug, Default)]
pub struct Shared {
    twins: Twins,
    cursors: Mutex<Cursors>,
    shapes: Mutex<Shapes>,
    clients: RwLock<ClientMap>,
    /// Grows with each change of `clients`.
    clients_generation: AtomicU64,
}

/// Who is on a connection that was open before the capture began.
#[derive(Clone, Debug)]
pub(crate) struct KnownClient {
    pub app: Arc<Application>,
    /// It is a server itself.
    pub is_server: bool,
}

/// The connections from each client address and port: the server's port, where it is known, and who is on it; the
/// latest last. Several servers on one host take connections from the same port.
type ClientMap = HashMap<Endpoint, Vec<(Option<u16>, KnownClient)>, foldhash::quality::RandomState>;

/// The shape that opened a cursor.
#[derive(Clone, Debug)]
pub struct CursorOrigin {
    /// The opener's shape.
    pub shape: Arc<ShapeInfo>,
    /// The opener's ordered id.
    pub ordered_id: ShapeId,
    /// Its getMores wait on purpose.
    pub waits: bool,
}

type CursorMap = HashMap<(Endpoint, i64), CursorOrigin, foldhash::quality::RandomState>;

#[derive(Debug, Default)]
struct Cursors {
    young: CursorMap,
    old: CursorMap,
}

#[derive(Debug, Default)]
struct Shapes {
    known: HashMap<u64, Arc<ShapeInfo>, foldhash::quality::RandomState>,
    text_bytes: usize,
}

impl Shared {
    /// First segments of flows, by which twins behind address translation are found.
    pub fn twins(&self) -> Twins {
        self.twins.clone()
    }

    /// Takes in who is on connections whose handshake was not captured, by the address and port of each
    /// client: from a server's log, or from a server that was asked. Connections that are followed already
    /// take it over at the next [`tick`](crate::Decoder::tick). Returns how many there was no room for
    /// (`MAX_CLIENTS`, and [`MAX_APPLICATIONS`](crate::decoder::MAX_APPLICATIONS) applications).
    ///
    /// `server_port` is that of the server whose clients they are; `None` where it is not known: then they count for
    /// connections to any port.
    pub fn add_clients(
        &self,
        server_port: Option<u16>,
        clients: impl IntoIterator<Item = (Endpoint, Application)>,
    ) -> usize {
        let mut known = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        let mut apps: HashMap<Application, Arc<Application>, foldhash::quality::RandomState> = known
            .values()
            .flatten()
            .map(|(_, client)| (Application::clone(&client.app), client.app.clone()))
            .collect();
        let mut refused = 0;
        for (endpoint, app) in clients {
            let is_new_app = !apps.contains_key(&app);
            if (known.len() >= MAX_CLIENTS && !known.contains_key(&endpoint))
                || (is_new_app && apps.len() >= crate::decoder::MAX_APPLICATIONS)
            {
                refused += 1;
                continue;
            }
            let is_server = crate::peer::is_server(&app, None);
            let app = apps.entry(app).or_insert_with_key(|app| Arc::new(app.clone())).clone();
            let servers = known.entry(endpoint).or_default();
            servers.retain(|(port, _)| *port != server_port);
            if servers.len() >= MAX_SERVERS_OF_CLIENT {
                servers.remove(0);
            }
            servers.push((server_port, KnownClient { app, is_server }));
        }
        self.clients_generation.fetch_add(1, Ordering::Release);
        refused
    }

    /// Who is on the connection from this address and port to that port of a server, if somebody knew.
    pub(crate) fn client(&self, client: Endpoint, server_port: u16) -> Option<KnownClient> {
        let known = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |port: Option<u16>| port.is_none_or(|port| port == server_port);
        known.get(&client)?.iter().rev().find(|(port, _)| is_meant(*port)).map(|(_, client)| client.clone())
    }

    /// Another number after each change of the known clients; 0 as long as none is known.
    pub(crate) fn clients_generation(&self) -> u64 {
        self.clients_generation.load(Ordering::Acquire)
    }

    /// Remembers who opened a cursor. Returns how many others were forgotten to make room.
    pub fn open_cursor(&self, server: Endpoint, id: i64, origin: CursorOrigin) -> u64 {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut forgotten = 0;
        if cursors.young.len() >= MAX_CURSORS / 2 {
            forgotten = cursors.old.len() as u64;
            cursors.old = std::mem::take(&mut cursors.young);
        }
        cursors.old.remove(&(server, id));
        cursors.young.insert((server, id), origin);
        forgotten
    }

    /// Who opened a cursor; `None` when it was opened before we listened, or was forgotten.
    pub fn cursor(&self, server: Endpoint, id: i64) -> Option<CursorOrigin> {
        let cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.young.get(&(server, id)).or_else(|| cursors.old.get(&(server, id))).cloned()
    }

    /// Forgets a cursor.
    pub fn close_cursor(&self, server: Endpoint, id: i64) {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.young.remove(&(server, id));
        cursors.old.remove(&(server, id));
    }

    /// The shape with this id, made by `new` when nobody has seen it; `None` when there are too many.
    /// The flag is true if its text was cut.
    pub(crate) fn shape(
        &self,
        id: ShapeId,
        new: impl FnOnce() -> ShapeInfo,
    ) -> Option<(Arc<ShapeInfo>, bool)> {
        {
            let shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(info) = shapes.known.get(&id.0) {
                return Some((info.clone(), false));
            }
            if shapes.known.len() >= MAX_SHAPES {
                return None;
            }
        }
        // Text is made outside the lock; two threads may make the same one, and the first to come in stays.
        let mut info = new();
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if shapes.text_bytes + info.heap_bytes() > TEXT_BUDGET {
            info.typed = "…".into();
            info.plain = "…".into();
            info.cut = true;
        }
        let cut = info.cut;
        shapes.text_bytes += info.heap_bytes();
        let info = shapes.known.entry(id.0).or_insert_with(|| Arc::new(info)).clone();
        Some((info, cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_cursors_go_first() {
        let shared = Shared::default();
        let server = Endpoint::v4([127, 0, 0, 1], 27017);
        let origin = CursorOrigin { shape: Arc::default(), ordered_id: ShapeId(1), waits: false };
        let mut forgotten = 0;
        for id in 0..MAX_CURSORS as i64 + 1 {
            forgotten += shared.open_cursor(server, id, origin.clone());
        }
        assert_eq!(forgotten, MAX_CURSORS as u64 / 2);
        assert!(shared.cursor(server, 0).is_none());
        assert!(shared.cursor(server, MAX_CURSORS as i64).is_some());
        shared.close_cursor(server, MAX_CURSORS as i64);
        assert!(shared.cursor(server, MAX_CURSORS as i64).is_none());
    }

    #[test]
    fn the_number_of_known_clients_and_applications_is_bounded() {
        let shared = Shared::default();
        let app = |n: usize| Application { name: n.to_string().into(), ..Application::default() };
        let client = |n: usize| Endpoint::v4((n as u32).to_be_bytes(), 1);
        let many = crate::decoder::MAX_APPLICATIONS + 5;
        assert_eq!(shared.add_clients(None, (0..many).map(|n| (client(n), app(n)))), 5);
        let known = crate::decoder::MAX_APPLICATIONS;
        assert_eq!(shared.add_clients(None, (0..MAX_CLIENTS + 7).map(|n| (client(n), app(1)))), 7);
        assert!(shared.client(client(known + 9), 27_017).is_some_and(|client| &*client.app.name == "1"));
        assert!(shared.client(client(MAX_CLIENTS + 8), 27_017).is_none());
    }

    #[test]
    fn a_shape_is_made_once() {
        let shared = Shared::default();
        let first = shared.shape(ShapeId(3), || ShapeInfo { typed: "one".into(), ..Default::default() });
        let second = shared.shape(ShapeId(3), || unreachable!());
        assert_eq!(first.unwrap().0.typed, second.unwrap().0.typed);
    }
}
