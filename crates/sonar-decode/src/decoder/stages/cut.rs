//! Messages that a snap length cut when they were captured: what their beginning says.

use sonar_core::operation::Opcode;

use super::{Arrived, Stages};
use crate::decoder::connection::Connection;
use crate::decoder::framing::CutMessage;
use crate::decoder::long::LongMessage;
use crate::decoder::unpacking::Packed;
use crate::message::HEADER;
use crate::tcp::Side;

impl Stages {
    /// Reads the beginning of a message that a snap length cut.
    pub(super) fn read_beginning(&mut self, conn: &mut Connection, side: Side, beginning: &CutMessage) {
        let CutMessage { header, opcode, ref bytes } = *beginning;
        let left = u64::from(header.length) - (HEADER + bytes.len()) as u64;
        let from_server = conn.is_server(side);
        let piece = Packed { header, opcode, bytes, left, from_server, provisional: false };
        // Not its end, so it gives no message.
        let _ = self.unpacker.piece(&mut conn.long[side.index()], piece);
    }

    /// A message that a snap length cut has ended. If it is a request, its beginning says what was asked, if not how.
    pub(super) fn cut_by_snap(&mut self, conn: &mut Connection, at: Arrived) {
        self.coverage.messages_partial += 1;
        let long = self.unpacker.take_long(&mut conn.long[at.side.index()]);
        conn.facts.is_mongodb = true;
        // Only its end could prove it.
        let client = if at.header.response_to == 0 { at.side } else { at.side.other() };
        let server = *conn.server.get_or_insert(client.other());
        if server == at.side {
            return self.unread(conn, at);
        }
        // Perhaps nothing but its header was captured.
        let opcode = at.header.known().unwrap_or(Opcode::Msg);
        let mut long = long.unwrap_or_else(|| LongMessage::new(opcode, 0, Some(false)));
        let read = self.reader.partial_request(&mut long);
        self.ask(conn, at, long.compressor, read);
    }
}
