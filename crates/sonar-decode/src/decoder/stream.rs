//! Where does a message begin and end? Cuts one direction of a connection into messages, and after a
//! loss looks for the next one.
//!
//! What a message says is left to [`content`](super::content); bytes come in order, or as a hole, from
//! [`tcp`](crate::tcp).

use sonar_core::Timestamp;
use sonar_core::operation::Opcode;

use super::connection::Connection;
use super::walk::{Checksum, Streaming, new_streaming};
use super::{Core, Handler, Sink};
use crate::message::{HEADER, Header, looks_like_message};
use crate::tcp::{Flow, Lost, Side, Verdict};

/// All bytes of messages that are being put together, over all connections.
pub const COLLECT_BUDGET: usize = 16 << 20;

/// Messages that may be walked at once, over all connections, before the oldest are passed over; each holds
/// some 16 KiB, and an inflater.
pub const MAX_STREAMING: usize = 512;

/// Messages up to this many bytes are put together when segments split them; longer ones are walked.
pub const COLLECT: usize = 16 * 1024;

/// How many bytes of a stream are searched for a first message before it counts as no MongoDB.
pub const SEARCH: u64 = 256 * 1024;

/// Where in a stream we are.
pub enum Stage {
    /// Before or inside a header.
    Header { have: usize, bytes: [u8; HEADER] },
    /// Putting a short message together.
    Collect { header: Header, body: Vec<u8> },
    /// Walking a long one.
    Stream { header: Header, left: u64, streaming: Box<Streaming> },
    /// Passing over a message that has a gap, cannot be read, or was evicted.
    Pass { header: Header, left: u64, evicted: bool },
    /// Looking for the next message; the last bytes are kept, as a header may span segments. On a stream
    /// that was joined late it is the first one. The time is that of the last gap.
    Lost { tail: Vec<u8>, searched: u64, joined_late: bool, gap: Timestamp },
}

/// One of the two streams.
pub struct Half {
    pub stage: Stage,
    /// First byte of the message that is being read.
    pub first: Timestamp,
    /// A message has been read.
    pub read: bool,
    /// A message has been found by its looks and nothing has confirmed it.
    pub provisional: bool,
}

impl Half {
    pub fn new() -> Self {
        Self { stage: Stage::start(), first: Timestamp::default(), read: false, provisional: false }
    }
}

impl Stage {
    /// At a boundary between messages.
    pub const fn start() -> Self {
        Self::Header { have: 0, bytes: [0; HEADER] }
    }

    /// Looking for a message.
    pub const fn lost(joined_late: bool, gap: Timestamp) -> Self {
        Self::Lost { tail: Vec::new(), searched: 0, joined_late, gap }
    }

    /// Whether a message has begun and not ended.
    pub const fn in_message(&self) -> bool {
        matches!(self, Self::Collect { .. } | Self::Stream { .. } | Self::Pass { .. })
    }
}

impl<S: Sink> Handler<'_, S> {
    /// Takes bytes of one side, in order.
    pub(super) fn stream(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        time: Timestamp,
        mut bytes: &[u8],
    ) -> Verdict {
        while !bytes.is_empty() {
            let half = &mut conn.halves[side.index()];
            match &mut half.stage {
                Stage::Header { have: 0, .. } if bytes.len() >= HEADER => {
                    half.first = time;
                    let Some(header) = Header::read(bytes) else {
                        if let Some(verdict) = self.lose(flow, conn, side, bytes) {
                            return verdict;
                        }
                        continue;
                    };
                    if header.known().is_some() && header.length as usize <= bytes.len() {
                        let (message, rest) = bytes.split_at(header.length as usize);
                        self.core.coverage.messages += 1;
                        self.whole(flow, conn, side, header, &message[HEADER..], time);
                        bytes = rest;
                    } else {
                        bytes = &bytes[HEADER..];
                        self.begin(conn, side, header);
                    }
                }
                Stage::Header { have, bytes: head } => {
                    if *have == 0 {
                        half.first = time;
                    }
                    let take = (HEADER - *have).min(bytes.len());
                    head[*have..*have + take].copy_from_slice(&bytes[..take]);
                    *have += take;
                    bytes = &bytes[take..];
                    if *have < HEADER {
                        return Verdict::Continue;
                    }
                    let head = *head;
                    match Header::read(&head) {
                        Some(header) => self.begin(conn, side, header),
                        None => {
                            if let Some(verdict) = self.lose(flow, conn, side, &head) {
                                return verdict;
                            }
                            // The header's bytes are searched with what comes.
                            if let Stage::Lost { tail, .. } = &mut conn.halves[side.index()].stage {
                                tail.extend_from_slice(&head);
                            }
                        }
                    }
                    self.end_if_empty(flow, conn, side, time);
                }
                Stage::Collect { header, body } => {
                    let want = header.length as usize - HEADER - body.len();
                    let take = want.min(bytes.len());
                    body.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if take == want {
                        let (header, body) = (*header, std::mem::take(body));
                        half.stage = Stage::start();
                        self.core.collecting -= body.capacity();
                        self.whole(flow, conn, side, header, &body, time);
                    }
                }
                Stage::Stream { left, .. } => {
                    let take = (*left).min(bytes.len() as u64) as usize;
                    self.walk(flow, conn, side, &bytes[..take], time);
                    bytes = &bytes[take..];
                }
                Stage::Pass { left, .. } => {
                    let take = (*left).min(bytes.len() as u64);
                    *left -= take;
                    if *left == 0 {
                        self.end_passed(flow, conn, side, time);
                    }
                    bytes = &bytes[take as usize..];
                }
                Stage::Lost { .. } => match self.search(conn, side, time, bytes) {
                    Ok(rest) => bytes = rest,
                    Err(verdict) => return verdict,
                },
            }
        }
        Verdict::Continue
    }

    /// A header has been read, and not all of its message is there.
    fn begin(&mut self, conn: &mut Connection, side: Side, header: Header) {
        self.core.coverage.messages += 1;
        let body = u64::from(header.length) - HEADER as u64;
        conn.halves[side.index()].stage = match header.known() {
            Some(_) if body as usize <= COLLECT && self.core.collecting + body as usize <= COLLECT_BUDGET => {
                let buffer = Vec::with_capacity(body as usize);
                self.core.collecting += buffer.capacity();
                Stage::Collect { header, body: buffer }
            }
            Some(opcode) => {
                self.core.streaming += 1;
                let is_reply = conn.server.map(|server| server == side);
                let mut streaming = new_streaming(opcode, body, is_reply);
                streaming.number = self.core.next_arrival();
                let verify = self.core.settings.verify_checksums || conn.halves[side.index()].provisional;
                if opcode == Opcode::Msg && verify {
                    streaming.checksum = Some(Checksum::new(header));
                }
                Stage::Stream { header, left: body, streaming }
            }
            None => Stage::Pass { header, left: body, evicted: false },
        };
    }

    /// A message of a header alone ends with its header.
    fn end_if_empty(&mut self, flow: &Flow, conn: &mut Connection, side: Side, time: Timestamp) {
        match &conn.halves[side.index()].stage {
            Stage::Collect { header, .. } if header.length as usize == HEADER => {
                let header = *header;
                conn.halves[side.index()].stage = Stage::start();
                self.whole(flow, conn, side, header, &[], time);
            }
            Stage::Pass { left: 0, .. } => self.end_passed(flow, conn, side, time),
            _ => {}
        }
    }

    /// The next bytes are no header. `None`: the search has begun; else what to do with the stream.
    fn lose(&mut self, _flow: &Flow, conn: &mut Connection, side: Side, bytes: &[u8]) -> Option<Verdict> {
        if !conn.speaks {
            // TLS records: change_cipher_spec, alert, handshake, application data of versions 3.x.
            if matches!(bytes, [0x14..=0x17, 3, 0..=4, ..]) {
                self.core.coverage.streams_tls += 1;
                return Some(Verdict::Ignore);
            }
            if conn.joined_late {
                // May have begun anywhere: searched below.
            } else {
                self.core.coverage.streams_not_mongodb += 1;
                return Some(Verdict::Ignore);
            }
        }
        let half = &mut conn.halves[side.index()];
        let joined_late = conn.joined_late && !half.read;
        self.core.coverage.resyncs += u64::from(!joined_late);
        half.stage = Stage::lost(joined_late, half.first);
        None
    }

    /// Looks for a message. Returns the bytes from its header on, or nothing when there is none yet.
    fn search<'b>(
        &mut self,
        conn: &mut Connection,
        side: Side,
        time: Timestamp,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], Verdict> {
        /// What must be seen of a message before it is believed: header, flags, kind, begin of a document.
        const WANTED: usize = 64;
        let speaks = conn.speaks;
        let half = &mut conn.halves[side.index()];
        let Stage::Lost { tail, searched, joined_late, .. } = &mut half.stage else { return Ok(bytes) };
        let coverage = &mut self.core.coverage;
        let passed_over =
            if *joined_late { &mut coverage.joined_late_bytes } else { &mut coverage.resync_bytes };
        // A message that begins in the kept tail is found by looking at the seam.
        if !tail.is_empty() {
            let kept = tail.len();
            let seam: Vec<u8> = tail.iter().chain(&bytes[..bytes.len().min(WANTED)]).copied().collect();
            for at in 0..kept {
                if looks_like_message(&seam[at..]) == Some(true) {
                    let head = seam[at..kept].to_vec();
                    *passed_over += at as u64;
                    half.stage = Stage::start();
                    half.provisional = true;
                    if let Stage::Header { have, bytes: held } = &mut half.stage {
                        let take = head.len().min(HEADER);
                        held[..take].copy_from_slice(&head[..take]);
                        *have = take;
                    }
                    return Ok(bytes);
                }
            }
            *passed_over += kept as u64;
            *searched += kept as u64;
            tail.clear();
        }
        let mut at = 0;
        while at < bytes.len() {
            match looks_like_message(&bytes[at..]) {
                Some(true) if follows_well(&bytes[at..]) => {
                    *passed_over += at as u64;
                    half.stage = Stage::start();
                    half.provisional = true;
                    return Ok(&bytes[at..]);
                }
                // Too few bytes to decide: kept for the next segment, no more than a header.
                None if bytes.len() - at < HEADER => break,
                _ => at += 1,
            }
        }
        *searched += at as u64;
        *passed_over += at as u64;
        if !speaks && *searched > SEARCH {
            self.core.coverage.streams_not_mongodb += 1;
            return Err(Verdict::Ignore);
        }
        // If a message begins here, it begins now.
        tail.extend_from_slice(&bytes[at..]);
        half.first = time;
        Ok(&[])
    }

    /// Bytes of one side will never come.
    pub(super) fn hole(
        &mut self,
        flow: &Flow,
        conn: &mut Connection,
        side: Side,
        time: Timestamp,
        lost: Lost,
    ) {
        if conn.server != Some(side) {
            // A getLastError behind the hole may be that of another write, which is in the hole.
            self.end_legacy_write(flow, conn, time);
        }
        let is_reply = conn.server == Some(side);
        if !is_reply {
            conn.request_gap = Some(time);
        }
        let half = &mut conn.halves[side.index()];
        let Lost::Bytes(mut missing) = lost else {
            // Joined in the middle: what comes next may be the middle of a message.
            if half.stage.in_message() {
                self.core.coverage.messages_cut += 1;
                self.core.forget(&half.stage);
            }
            let joined_late = conn.joined_late && !half.read;
            half.stage = Stage::lost(joined_late, time);
            if is_reply && !joined_late {
                self.reply_in_gap(conn, Timestamp::default(), time);
            }
            return;
        };
        let (header, left) = match &half.stage {
            Stage::Collect { header, body } => {
                (*header, u64::from(header.length) - (HEADER + body.len()) as u64)
            }
            Stage::Stream { header, left, .. } => (*header, *left),
            Stage::Pass { header, left, .. } => (*header, *left),
            // Still looking; what was kept of the bytes before is of no use now.
            Stage::Lost { joined_late, gap, .. } => {
                let (joined_late, before) = (*joined_late, *gap);
                half.stage = Stage::lost(joined_late, time);
                if is_reply && !joined_late {
                    // What was asked before may have been answered in the gap before.
                    self.reply_in_gap(conn, before, time);
                }
                return;
            }
            Stage::Header { .. } => return self.lose_place(conn, side, time),
        };
        self.core.forget(&half.stage);
        let within = missing.min(left);
        missing -= within;
        half.stage = Stage::Pass { header, left: left - within, evicted: false };
        if left == within {
            self.end_passed(flow, conn, side, time);
        }
        if missing > 0 {
            self.lose_place(conn, side, time);
        }
    }

    /// A gap lies between messages, or inside a header: where the next message begins is not known.
    fn lose_place(&mut self, conn: &mut Connection, side: Side, time: Timestamp) {
        self.core.coverage.resyncs += 1;
        conn.halves[side.index()].stage = Stage::lost(false, time);
        if conn.server == Some(side) {
            self.reply_in_gap(conn, Timestamp::default(), time);
        }
    }
}

impl Core {
    /// Gives back what a stage holds of the budgets.
    pub(super) fn forget(&mut self, stage: &Stage) {
        match stage {
            Stage::Collect { body, .. } => self.collecting -= body.capacity(),
            Stage::Stream { .. } => self.streaming -= 1,
            _ => {}
        }
    }
}

/// Whether what comes behind a message found by its looks, if it is there, is a message too.
fn follows_well(bytes: &[u8]) -> bool {
    Header::read(bytes).is_some_and(|header| match bytes.get(header.length as usize..) {
        None | Some([]) => true,
        Some(next) if next.len() < HEADER => true,
        Some(next) => looks_like_message(next) != Some(false),
    })
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::COLLECT;
    use crate::decoder::collected::{collect, message};
    use crate::testing::{Conversation, End};

    /// An insert, with a reply, in packets of `mss` bytes. `padding` decides whether the message is put
    /// together or walked.
    fn insert(talk: &mut Conversation, id: u32, padding: usize) {
        let document = doc! {"_id": 1, "padding": "x".repeat(padding)};
        let documents: Vec<Document> = vec![document];
        let command = doc! {"insert": "orders", "documents": documents, "$db": "shop"};
        talk.send(End::Client, &message(id, 0, &command));
        talk.send(End::Server, &message(100 + id, id, &doc! {"n": 1, "ok": 1.0}));
    }

    fn talk(mss: usize) -> Conversation {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017").with_mss(mss);
        talk.handshake();
        talk
    }

    #[test]
    fn messages_are_cut_alike_however_segments_split_them() {
        for mss in [1, 3, 15, 16, 17, 20, 21, 100, 1_460, 9_000] {
            let mut talk = talk(mss);
            let paddings = [0, 1_000, COLLECT - 200, COLLECT, 3 * COLLECT];
            for (id, padding) in (1..).zip(paddings) {
                insert(&mut talk, id, padding);
            }
            let seen = collect(&talk.packets);
            let expected: Vec<_> = (1..=5).map(|id| (id, "insert".to_owned(), "ok")).collect();
            assert_eq!(seen.operations, expected, "{mss}");
            assert_eq!((seen.coverage.messages, seen.coverage.messages_decoded), (10, 10), "{mss}");
            assert_eq!(seen.window.shapes.iter().count(), 1, "{mss}");
        }
    }

    #[test]
    fn a_hole_within_a_message_costs_that_message_alone() {
        for padding in [2 * 1_460, 2 * COLLECT] {
            let mut talk = talk(1_460);
            insert(&mut talk, 1, 10);
            let lost = talk.packets.len() + 1;
            insert(&mut talk, 2, padding);
            insert(&mut talk, 3, 10);
            // What comes after the hole has been acknowledged: it will not be sent again.
            talk.wait(5_000_000_000).ack(End::Server).ack(End::Client);
            talk.packets.remove(lost);
            let seen = collect(&talk.packets);
            let ids: Vec<_> = seen.operations.iter().map(|told| (told.0, told.2)).collect();
            assert_eq!(ids, [(1, "ok"), (3, "ok")], "{:?}", seen.coverage);
            assert_eq!((seen.coverage.messages_damaged, seen.coverage.resyncs), (1, 0));
        }
    }
}
