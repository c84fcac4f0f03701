//! What is read of a reply: outcome, documents, cursor.

use std::sync::Arc;

use super::SlotValues;
use crate::bson::{BsonValue, ElementKind, ElementStep, Key, NumberSlot, Opened, Use, Visitor};

/// Only the type of the value was used.
const TYPE: ElementStep = ElementStep::Using(Use::Type);
/// The longest namespace that is kept; the server allows 255 bytes.
const MAX_NAMESPACE: usize = 255;
/// The most distinct error codes of one reply that are kept; others count as code 0.
const MAX_CODES: usize = 16;

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum ReplyPart {
    #[default]
    Top,
    Cursor,
    Batch,
    Values,
    Upserted,
    WriteErrors,
    WriteError,
    WriteConcernError,
    LastErrorObject,
    Result,
}

/// What a reply says, read element by element; its buffers are reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// `ok`, where it was seen.
    pub ok: Option<bool>,
    /// `code` of the command itself.
    pub code: Option<i32>,
    /// `$err`, or `err` of getLastError, was a string.
    pub has_err: bool,
    /// Codes of write errors and of the write concern error, with how often each came.
    pub codes: Vec<(i32, u32)>,
    /// `n`.
    pub n: Option<u64>,
    /// `nModified`.
    pub modified: Option<u64>,
    /// Length of `upserted`.
    pub upserted: u64,
    /// Sum of bulkWrite's `nInserted`, `nModified`, `nUpserted`, `nDeleted`.
    pub bulk: Option<u64>,
    /// `cursor.id`; of OP_REPLY `cursorID`.
    pub cursor: Option<i64>,
    /// Documents in the batch, or of `values` or `results`.
    pub documents: Option<u64>,
    /// `numberReturned` of OP_REPLY.
    pub returned: Option<u64>,
    /// `value` of findAndModify: whether it was a document.
    pub value: Option<bool>,
    /// `lastErrorObject.n`.
    pub last_error_n: Option<u64>,
    /// OP_REPLY: the cursor was not found.
    pub cursor_not_found: bool,
    /// OP_REPLY: the query failed.
    pub query_failure: bool,
    /// Its batch holds the results of a bulkWrite's statements; set by the caller, before it is read.
    pub holds_results: bool,
    /// `nErrors` of a bulkWrite: how many of its statements failed.
    pub errors: u64,
    /// `ok` and `code` of the result that is being read.
    result: (bool, i32),
    /// More replies follow without a request.
    pub more_to_come: bool,
    /// `cursor.ns`, if more replies follow: it shows the request, if that was not seen.
    pub namespace: Option<Arc<str>>,
    /// It answers a hello; read if more replies follow.
    pub hello: bool,
    /// It answers a server; read if more replies follow.
    pub to_server: bool,
    inside: ReplyPart,
}

impl Reply {
    /// Forgets all.
    pub fn reset(&mut self) {
        let mut codes = std::mem::take(&mut self.codes);
        codes.clear();
        *self = Self { codes, ..Self::default() };
    }

    /// Begins a document of a legacy reply.
    pub fn begin(&mut self) {
        self.inside = ReplyPart::Top;
    }

    /// Becomes a reply with the layout of `known` and the numbers read from it.
    pub fn become_known(&mut self, known: &Self, numbers: &SlotValues) {
        let count = |slot| numbers.get(slot).map(|number| number as u64);
        self.clone_from(known);
        self.n = count(NumberSlot::N).or(self.n);
        self.modified = count(NumberSlot::Modified).or(self.modified);
        self.documents = count(NumberSlot::Documents).or(self.documents);
        self.cursor = numbers.get(NumberSlot::Cursor).or(self.cursor);
    }

    /// Whether it is an OP_REPLY.
    pub fn is_legacy(&self) -> bool {
        self.returned.is_some()
    }

    /// The rest of its documents is missing: their number is unknown. Returns whether it was among them.
    pub fn leave_documents(&mut self) -> bool {
        let inside = matches!(self.inside, ReplyPart::Batch | ReplyPart::Values);
        if inside {
            self.documents = None;
        }
        inside
    }

    fn add_code(&mut self, code: i32) {
        if let Some((_, count)) = self.codes.iter_mut().find(|(known, _)| *known == code) {
            *count = count.saturating_add(1);
        } else if self.codes.len() < MAX_CODES {
            self.codes.push((code, 1));
        } else if code != 0 {
            self.add_code(0);
        }
    }
}

impl Visitor for Reply {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let bytes = match value {
            BsonValue::Bytes(bytes) => bytes,
            BsonValue::Long => &[],
        };
        let number = || crate::shape::number(kind, bytes);
        let count = || crate::shape::count(kind, bytes);
        let slot_of = |slot| match number() {
            Some(_) => ElementStep::Using(Use::Number(slot)),
            None => TYPE,
        };
        match self.inside {
            ReplyPart::Top => match key.bytes {
                b"ok" => {
                    self.ok = number().map(|ok| ok != 0.0);
                    if self.ok.is_some() { ElementStep::Using(Use::Truth) } else { TYPE }
                }
                b"code" => {
                    self.code = number().map(|code| code as i32);
                    ElementStep::Next
                }
                b"n" => {
                    self.n = count();
                    slot_of(NumberSlot::N)
                }
                b"nModified" => {
                    self.modified = count();
                    if self.bulk.is_none() {
                        return slot_of(NumberSlot::Modified);
                    }
                    self.bulk = self.bulk.zip(count()).map(|(a, b)| a.saturating_add(b));
                    ElementStep::Next
                }
                b"nInserted" => {
                    self.bulk = count().map(|n| n.saturating_add(self.modified.unwrap_or(0)));
                    ElementStep::Next
                }
                b"nUpserted" | b"nDeleted" => {
                    self.bulk = self.bulk.zip(count()).map(|(a, b)| a.saturating_add(b));
                    ElementStep::Next
                }
                // All of it decides whether the command failed.
                b"nErrors" => {
                    self.errors = count().unwrap_or(0);
                    ElementStep::Next
                }
                b"value" => {
                    self.value = Some(false);
                    TYPE
                }
                b"$err" | b"err" => {
                    self.has_err = kind == ElementKind::String;
                    TYPE
                }
                b"isWritablePrimary" | b"ismaster" => {
                    self.hello = self.more_to_come;
                    TYPE
                }
                _ => TYPE,
            },
            ReplyPart::Cursor if key.bytes == b"ns" && self.more_to_come && kind == ElementKind::String => {
                self.namespace =
                    Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAMESPACE)]).into());
                ElementStep::Next
            }
            ReplyPart::Cursor if key.bytes == b"id" => match (kind, bytes.first_chunk()) {
                (ElementKind::Int64, Some(id)) => {
                    self.cursor = Some(i64::from_le_bytes(*id));
                    ElementStep::Using(Use::Number(NumberSlot::Cursor))
                }
                _ => {
                    self.cursor = number().map(|number| number as i64);
                    ElementStep::Next
                }
            },
            ReplyPart::WriteError | ReplyPart::WriteConcernError if key.bytes == b"code" => {
                // One without a code is an error nevertheless.
                self.result.1 = number().map_or(0, |code| code as i32);
                ElementStep::Next
            }
            ReplyPart::Result if matches!(key.bytes, b"ok" | b"code") => {
                match number() {
                    Some(ok) if key.bytes == b"ok" => self.result.0 = ok != 0.0,
                    Some(code) => self.result.1 = code as i32,
                    None => {}
                }
                ElementStep::Next
            }
            ReplyPart::LastErrorObject if key.bytes == b"n" => {
                self.last_error_n = count();
                ElementStep::Next
            }
            ReplyPart::Values => {
                self.documents = self.documents.map(|n| n + 1);
                TYPE
            }
            _ => TYPE,
        }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        self.to_server |=
            self.more_to_come && self.inside == ReplyPart::Top && key.bytes == b"$oplogQueryData";
        self.inside = match (self.inside, key.bytes, array) {
            (ReplyPart::Top, b"cursor", false) => ReplyPart::Cursor,
            (ReplyPart::Top, b"writeErrors", true) => ReplyPart::WriteErrors,
            (ReplyPart::Top, b"writeConcernError", false) => {
                self.result = (false, 0);
                ReplyPart::WriteConcernError
            }
            (ReplyPart::Top, b"upserted", true) => ReplyPart::Upserted,
            (ReplyPart::Top, b"lastErrorObject", false) => ReplyPart::LastErrorObject,
            (ReplyPart::Top, b"values" | b"results", true) => {
                self.documents = Some(0);
                ReplyPart::Values
            }
            (ReplyPart::Top, b"value", false) => {
                self.value = Some(true);
                return Opened::Skip;
            }
            (ReplyPart::Cursor, b"firstBatch" | b"nextBatch", true) => {
                self.documents = Some(0);
                ReplyPart::Batch
            }
            (ReplyPart::WriteErrors, _, false) => {
                self.result = (false, 0);
                ReplyPart::WriteError
            }
            (ReplyPart::Batch, _, false) if self.holds_results => {
                self.result = (true, 0);
                ReplyPart::Result
            }
            (ReplyPart::Batch | ReplyPart::Values, ..) => {
                self.documents = self.documents.map(|n| n + 1);
                return if array { Opened::Skip } else { Opened::Count };
            }
            (ReplyPart::Upserted, _, false) => {
                self.upserted += 1;
                return Opened::Skip;
            }
            _ => return Opened::Skip,
        };
        Opened::Enter
    }

    fn close(&mut self) {
        self.inside = match self.inside {
            ReplyPart::Batch => ReplyPart::Cursor,
            ReplyPart::Result => {
                if let (false, code) = self.result {
                    self.add_code(code);
                }
                ReplyPart::Batch
            }
            ReplyPart::WriteError => {
                self.add_code(self.result.1);
                ReplyPart::WriteErrors
            }
            ReplyPart::WriteConcernError => {
                self.add_code(self.result.1);
                ReplyPart::Top
            }
            _ => ReplyPart::Top,
        };
    }
}
