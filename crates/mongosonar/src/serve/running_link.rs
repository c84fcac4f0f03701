//! How the page of an agent gets the operations that run now: it asks at most once a second, as long as somebody looks,
//! and the agent answers with one list.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use sonar_view::now::{ListedOperations, NowSnapshot};

use crate::confinement::start_order::{StartStep, start_thread};
use crate::locking::lock;

/// A question.
pub const ASK: u8 = 1;
/// The most bytes of an answer behind its length. A longer list loses its youngest operations.
pub const MAX_BYTES: usize = 1 << 20;
const LENGTH_BYTES: usize = 4;
/// How long it goes on asking after somebody has looked.
const LOOKED_FOR: Duration = Duration::from_secs(5);
/// How often it asks at most.
const EVERY: Duration = Duration::from_secs(1);
/// What is older is not shown any more.
const FRESH_FOR: Duration = Duration::from_secs(4);
/// How long whoever looks first waits for a list.
const FIRST: Duration = Duration::from_secs(2);

/// A list as it is sent: its length, and JSON.
pub fn message(mut snapshot: NowSnapshot) -> Vec<u8> {
    loop {
        let mut out = MessageBytes(vec![0; LENGTH_BYTES]);
        if serde_json::to_writer(&mut out, &snapshot).is_ok() {
            let length = u32::try_from(out.0.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
            out.0[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
            return out.0;
        }
        // Texts and numbers can always be written: it is too long.
        let count = snapshot.operations.len();
        snapshot.operations.truncate(count / 2);
        snapshot.left_out += (count - count / 2) as u64;
        if count == 0 {
            snapshot = NowSnapshot { at_ns: snapshot.at_ns, ..NowSnapshot::default() };
        }
    }
}

/// A message while it is written, up to its most bytes.
struct MessageBytes(Vec<u8>);

impl Write for MessageBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LENGTH_BYTES + MAX_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a list.
///
/// # Errors
/// The agent has ended, or sends something else.
pub fn read_message(socket: &mut impl Read) -> io::Result<NowSnapshot> {
    let mut length = [0; LENGTH_BYTES];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut json = vec![0; length];
    socket.read_exact(&mut json)?;
    serde_json::from_slice(&json).map_err(|_| ErrorKind::InvalidData.into())
}

/// The page's end of the socket.
#[derive(Default)]
pub struct RunningLink {
    state: Mutex<LinkState>,
    /// Somebody looks, or a list has come.
    changed: Condvar,
}

#[derive(Default)]
struct LinkState {
    looked: Option<Instant>,
    newest: Option<ReceivedList>,
    /// The agent answers no more.
    has_ended: bool,
}

struct ReceivedList {
    at: Instant,
    snapshot: Arc<NowSnapshot>,
}

impl LinkState {
    fn is_wanted(&self, now: Instant) -> bool {
        self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOKED_FOR)
    }

    fn fresh(&self, now: Instant) -> Option<&Arc<NowSnapshot>> {
        let newest = self.newest.as_ref()?;
        (now.saturating_duration_since(newest.at) < FRESH_FOR).then_some(&newest.snapshot)
    }
}

impl RunningLink {
    /// Begins to ask over this socket, in a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(socket: UnixStream) -> Result<Arc<Self>> {
        let link = Arc::new(Self::default());
        let asking = link.clone();
        start_thread(StartStep::Thread, "page-now", move || asking.ask_all(socket))?;
        Ok(link)
    }

    /// What runs now. Who looks first waits a moment for the first list; after that the agent lists every second, as long as
    /// somebody looks.
    pub fn look(&self) -> ListedOperations {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let is_first = !state.is_wanted(now);
        state.looked = Some(now);
        self.changed.notify_all();
        if is_first {
            let waits = |state: &mut LinkState| state.fresh(Instant::now()).is_none() && !state.has_ended;
            let waited = self.changed.wait_timeout_while(state, FIRST, waits);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        match state.fresh(Instant::now()) {
            Some(snapshot) => ListedOperations::Listed(snapshot.clone()),
            None if state.has_ended => ListedOperations::NoAgent,
            None => ListedOperations::NotYet,
        }
    }

    /// Asks whenever somebody looks, until the agent has ended.
    fn ask_all(&self, mut socket: UnixStream) {
        while self.ask(&mut socket).is_ok() {}
        lock(&self.state).has_ended = true;
        self.changed.notify_all();
    }

    /// Waits until somebody looks, asks once, and pauses.
    fn ask(&self, socket: &mut UnixStream) -> io::Result<()> {
        let state = lock(&self.state);
        let idle = |state: &mut LinkState| !state.is_wanted(Instant::now());
        drop(self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner));
        let asked = Instant::now();
        socket.write_all(&[ASK])?;
        let snapshot = Arc::new(read_message(socket)?);
        lock(&self.state).newest = Some(ReceivedList { at: Instant::now(), snapshot });
        self.changed.notify_all();
        std::thread::sleep(EVERY.saturating_sub(asked.elapsed()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::{Endpoint, RunningOperation, RunningOperations, Timestamp};
    use sonar_view::now::NowListing;

    use super::*;

    fn snapshot(operations: u16) -> NowSnapshot {
        let mut wire = RunningOperations::default();
        for port in 1..=operations {
            let one = RunningOperation {
                server: Endpoint::v4([10, 0, 0, 1], 27_017),
                client: Endpoint::v4([10, 0, 0, 2], port),
                request_id: 1,
                role: Default::default(),
                class: Default::default(),
                command: "find".into(),
                shape: Arc::default(),
                app: Arc::default(),
                start: Timestamp::from_unix(u64::from(port), 0),
            };
            wire.add(one, 1_000);
        }
        let listing =
            NowListing { at: Timestamp::from_unix(5_000, 0), wire: Some(wire), ..NowListing::default() };
        listing.snapshot(&|server| server)
    }

    #[test]
    fn a_list_comes_as_it_was_sent_and_one_that_is_too_long_loses_its_youngest_operations() {
        let sent = snapshot(3);
        assert_eq!(read_message(&mut &message(sent.clone())[..]).unwrap(), sent);
        let mut long = snapshot(400);
        let oldest = long.operations[0].clone();
        long.operations.iter_mut().for_each(|one| one.typed = "x".repeat(4_000));
        let bytes = message(long);
        assert!(bytes.len() <= MAX_BYTES + LENGTH_BYTES, "{}", bytes.len());
        let read = read_message(&mut &bytes[..]).unwrap();
        assert_eq!((read.operations.len() as u64 + read.left_out, read.operations.len()), (400, 200));
        assert_eq!(read.operations[0].client, oldest.client);
        let too_long = (MAX_BYTES as u32 + 1).to_le_bytes();
        assert_eq!(read_message(&mut &too_long[..]).unwrap_err().kind(), ErrorKind::InvalidData);
        let no_list = [&2_u32.to_le_bytes()[..], b"{}"].concat();
        assert_eq!(read_message(&mut &no_list[..]).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read_message(&mut &b"\0\0"[..]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_agent_is_asked_when_somebody_looks_and_not_before() {
        let (ours, mut agent) = UnixStream::pair().unwrap();
        let link = RunningLink::start(ours).unwrap();
        let looking = link.clone();
        // However long the answer takes on a busy machine.
        let first = std::thread::spawn(move || {
            loop {
                if let ListedOperations::Listed(list) = looking.look() {
                    return list.operations.len();
                }
            }
        });
        let mut question = [0];
        agent.read_exact(&mut question).unwrap();
        assert_eq!(question, [ASK]);
        agent.write_all(&message(snapshot(3))).unwrap();
        assert_eq!(first.join().unwrap(), 3);
        drop(agent);
        while !lock(&link.state).has_ended {
            link.look();
        }
        lock(&link.state).newest = None;
        assert!(matches!(link.look(), ListedOperations::NoAgent));
    }
}
