//! Lines whose layout was seen before, read without being walked.
//!
//! Theory of operation. A server logs few kinds of operation, each many times: the same keys in the same
//! order, and other values. Once the attributes of a line have been walked, a [`Layout`] may be drawn of
//! them: their bytes, with holes where only the type of a value had a say in what the line comes to, as the
//! reader of commands says by [`Step`], or where the value is a figure, which is read from each line. A
//! later line that fits comes to the same by construction: each byte that had a say is compared. Nothing is
//! guessed; what does not fit is walked. It is what templates are for messages of the wire.
//!
//! Layouts stand in a table of sets; the set is found by an [`outline`] of the line: its type, namespace and
//! application, and the keys that come first. Memory: at most [`BUDGET`] bytes.

use std::cell::RefCell;

use crate::bson::{Key, Kind, Opened, Step, Use, Value, Visitor};
use crate::entry::{Entry, Fields, Known, Place as Inside, Section};
use crate::shape;
use crate::shape::hash::mix;
use crate::syntax::json::{self, Scratch};
use crate::syntax::time;

/// Sets of the table.
const SETS: usize = 2_048;
/// Layouts of a set.
const WAYS: usize = 6;
/// Bytes that all layouts may have together.
const BUDGET: usize = 48 << 20;
/// Bytes of a layout that are compared.
const MAX_LITERALS: usize = 8_192;
/// Holes of a layout.
const MAX_HOLES: usize = 400;
/// Members of a list that are drawn one by one, before it is known whether all are alike.
const FEW: usize = 32;
/// Misses of a set in a row, after which a new layout takes an old one's place only now and then.
const PATIENCE: u32 = 64;
/// Every so many misses then.
const NOW_AND_THEN: u32 = 256;

/// What stands between the bytes that are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Hole {
    /// The end of the line.
    End,
    /// A number whose value does not matter.
    Number,
    /// A number that is zero, or is not.
    Truth { nonzero: bool },
    /// The content of a string without escapes.
    Text,
    /// The same, which does not begin with `$`.
    Plain,
    /// The same, which is a date.
    Date,
    /// Members of an array, one or more.
    List(Member),
    /// A number that is read.
    Texts,
    /// A number inside a section that is read.
    ToldIn(Section),
    /// A text that is read.
    ToldText,
}

/// What an array's members are, all of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Member {
    Number,
    Text,
    ObjectId,
}

/// Bytes that are compared, and the hole behind them.
#[derive(Copy, Clone, Debug)]
struct Part {
    length: u16,
    hole: Hole,
    /// Begin and length of the name of what is read, in the bytes that are compared.
    name: (u16, u8),
}

/// A layout, and what its lines come to.
struct Layout {
    /// All bytes that are compared, behind [`PAD`] others, so that eight can be read at once everywhere.
    literals: Box<[u8]>,
    parts: Box<[Part]>,
    known: Known,
}

const PAD: usize = 8;
const OBJECT_ID: &[u8] = b"{\"$oid\":\"";

#[derive(Default)]
struct Set {
    ways: Vec<(u32, Box<Layout>)>,
    misses: u32,
}

/// The layouts that are known.
pub(super) struct Layouts {
    sets: Vec<Set>,
    bytes: usize,
    entry: Box<Entry<()>>,
    /// Every line is walked, for tests that compare.
    #[cfg(test)]
    walks: bool,
    /// Lines that were recognised.
    #[cfg(test)]
    recognised: u64,
}

impl Default for Layouts {
    fn default() -> Self {
        let mut sets = Vec::new();
        sets.resize_with(SETS, Set::default);
        Self {
            sets,
            bytes: 0,
            entry: Box::default(),
            #[cfg(test)]
            walks: false,
            #[cfg(test)]
            recognised: 0,
        }
    }
}

/// Where a layout stands, or is put.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    set: usize,
    tag: u32,
}

/// Answer to [`Layouts::find`].
pub(super) enum Found<'a> {
    /// The line has a layout that is known.
    Known(&'a mut Known),
    /// It has not; once it has been walked, its layout is wanted.
    Wanted,
    /// It has not, and its layout is not wanted.
    Unknown,
}

impl Layouts {
    /// What is known of the layout of `line`, whose attributes begin at `at`.
    #[inline]
    pub(super) fn find(&mut self, place: Place, line: &[u8], at: usize) -> Found<'_> {
        #[cfg(test)]
        if self.walks {
            return Found::Unknown;
        }
        let full = self.bytes > BUDGET;
        let set = &mut self.sets[place.set];
        let found = set.ways.iter_mut().position(|(tag, layout)| *tag == place.tag && layout.fits(line, at));
        let Some(found) = found else {
            set.misses = set.misses.saturating_add(1);
            let room = set.ways.len() < WAYS && !full && set.misses < PATIENCE;
            let wanted = room || (set.misses.is_multiple_of(NOW_AND_THEN) && !(full && set.ways.is_empty()));
            return if wanted { Found::Wanted } else { Found::Unknown };
        };
        #[cfg(test)]
        {
            self.recognised += 1;
        }
        set.misses = 0;
        let front = found.saturating_sub(1);
        set.ways.swap(found, front);
        Found::Known(&mut set.ways[front].1.known)
    }

    /// Draws the layout of a line that has been walked without an error and that comes to `known`.
    pub(super) fn add(
        &mut self,
        place: Place,
        line: &[u8],
        at: usize,
        scratch: &RefCell<Scratch>,
        known: Known,
    ) {
        self.entry.reset();
        let mut drawing = Drawing {
            entry: &mut self.entry,
            line,
            holes: Vec::new(),
            pending: Pending::Literal,
            arrays: Vec::new(),
            unfit: false,
        };
        let walked = json::walk(line, at, &mut scratch.borrow_mut(), &mut drawing);
        let Drawing { holes, unfit: false, .. } = drawing else { return };
        let (Ok(_), Some((literals, parts))) = (walked, parts(line, at, &holes)) else { return };
        let expected = known.fields.clone();
        let mut layout = Box::new(Layout { literals, parts, known });
        // A layout cannot describe a line that says something twice.
        if !layout.fits(line, at) || layout.known.fields != expected {
            return;
        }
        let set = &mut self.sets[place.set];
        if set.ways.len() >= WAYS || self.bytes > BUDGET {
            self.bytes -= set.ways.pop().map_or(0, |(_, gone)| gone.bytes());
        }
        self.bytes += layout.bytes();
        set.ways.push((place.tag, layout));
    }
}

impl Layout {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.literals.len() + size_of_val(&*self.parts) + self.known.fields.heap_bytes()
    }

    /// Whether the attributes at `at`, and all that is behind them, have this layout. What they say is in
    /// `known` then.
    fn fits(&mut self, line: &[u8], mut at: usize) -> bool {
        let fields = &mut self.known.fields;
        fields.forget_sums();
        let mut from = PAD;
        for part in &self.parts {
            let length = usize::from(part.length);
            if !same(line, at, &self.literals, from, length) {
                return false;
            }
            at += length;
            from += length;
            let end = match part.hole {
                Hole::End => return at == line.len(),
                Hole::Number => number_end(line, at),
                Hole::Text => text_end(line, at),
                Hole::Texts | Hole::ToldIn(_) | Hole::Truth { .. } => {
                    let Some((kind, bytes, end)) = json::number_at(line, at) else { return false };
                    let value = Value::Bytes(&bytes);
                    let name = || {
                        let from = usize::from(part.name.0);
                        self.literals.get(from..from + usize::from(part.name.1)).unwrap_or_default()
                    };
                    match part.hole {
                        Hole::Truth { nonzero } => {
                            if shape::number(kind, &bytes).is_none_or(|number| (number != 0.0) != nonzero) {
                                return false;
                            }
                        }
                        Hole::ToldIn(section) => fields.in_section(section, name(), kind, value),
                        _ => {
                            fields.scalar(name(), kind, value);
                        }
                    }
                    Some(end)
                }
                Hole::ToldText => {
                    let Some(end) = text_end(line, at) else { return false };
                    let from = usize::from(part.name.0);
                    let name = self.literals.get(from..from + usize::from(part.name.1)).unwrap_or_default();
                    fields.scalar(name, Kind::String, Value::Bytes(&line[at..end]));
                    Some(end)
                }
                Hole::Plain => text_end(line, at).filter(|_| line.get(at) != Some(&b'$')),
                Hole::Date => text_end(line, at).filter(|&end| time::iso(&line[at..end]).is_some()),
                Hole::List(member) => list_end(line, at, member),
            };
            match end {
                Some(end) => at = end,
                None => return false,
            }
        }
        false
    }
}

/// Whether `length` bytes at `at` are those of the literals at `from`; eight at a time, the last eight
/// whatever stands before them.
#[inline(always)]
fn same(line: &[u8], at: usize, literals: &[u8], from: usize, length: usize) -> bool {
    let tail = |bytes: &[u8], end: usize| bytes.get(..end)?.last_chunk().copied().map(u64::from_le_bytes);
    let (Some(a), Some(b)) = (tail(line, at + length), tail(literals, from + length)) else { return false };
    let differ = a ^ b;
    match length {
        0 => true,
        1..8 => differ >> (8 * (8 - length)) == 0,
        _ => {
            let (Some(left), Some(right)) = (line.get(at..at + length), literals.get(from..from + length))
            else {
                return false;
            };
            let mut wrong = differ;
            for (a, b) in left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0) {
                wrong |= u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
            }
            wrong == 0
        }
    }
}

#[inline]
fn number_end(line: &[u8], at: usize) -> Option<usize> {
    json::number_at(line, at).map(|(_, _, end)| end)
}

/// Where the string ends whose content begins at `at`, at its quote; `None` where it has an escape.
#[inline]
fn text_end(line: &[u8], at: usize) -> Option<usize> {
    let rest = line.get(at..)?;
    let found = json::quote_or_escape(rest)?;
    (rest[found] == b'"').then_some(at + found)
}

fn list_end(line: &[u8], mut at: usize, member: Member) -> Option<usize> {
    loop {
        at = match member {
            Member::Number => number_end(line, at)?,
            Member::Text => {
                let from = line.get(at..)?.strip_prefix(b"\"").map(|_| at + 1)?;
                text_end(line, from)? + 1
            }
            Member::ObjectId => {
                line.get(at..)?.strip_prefix(OBJECT_ID)?;
                let end = text_end(line, at + OBJECT_ID.len())?;
                line.get(end..)?.strip_prefix(b"\"}")?;
                end + 2
            }
        };
        match line.get(at)? {
            b',' => at += 1,
            _ => return Some(at),
        }
    }
}

/// The bytes that are compared, and the parts that they are in.
type Parts = (Box<[u8]>, Box<[Part]>);

/// The bytes that are compared and the holes between them; `None` where there are too many.
fn parts(line: &[u8], at: usize, holes: &[Drawn]) -> Option<Parts> {
    let mut literals = vec![0; PAD];
    let mut parts = Vec::with_capacity(holes.len() + 1);
    let mut from = at;
    let end = Drawn { from: line.len(), to: line.len(), hole: Hole::End };
    for drawn in holes.iter().chain([&end]) {
        let literal = line.get(from..drawn.from)?;
        literals.extend_from_slice(literal);
        // `"name":`, and the quote of a text.
        let quoted = usize::from(drawn.hole == Hole::ToldText);
        let name = match drawn.hole {
            Hole::Texts | Hole::ToldIn(_) | Hole::ToldText => {
                let before = literal.get(..literal.len().checked_sub(2 + quoted)?)?;
                let length = before.len() - memchr::memrchr(b'"', before)? - 1;
                let begin = literals.len() - 2 - quoted - length;
                (u16::try_from(begin).ok()?, u8::try_from(length).ok()?)
            }
            _ => (0, 0),
        };
        parts.push(Part { length: u16::try_from(literal.len()).ok()?, hole: drawn.hole, name });
        from = drawn.to;
    }
    (literals.len() <= MAX_LITERALS && parts.len() <= MAX_HOLES)
        .then(|| (literals.into_boxed_slice(), parts.into_boxed_slice()))
}

/// A hole and where it was found.
#[derive(Copy, Clone, Debug)]
struct Drawn {
    from: usize,
    to: usize,
    hole: Hole,
}

/// What the next span is for.
#[derive(Copy, Clone, Debug)]
enum Pending {
    /// It is compared.
    Literal,
    /// Its type had a say.
    Pass,
    Member,
    Truth,
    Plain,
    Texts,
    ToldIn(Section),
    ToldText,
    /// It is passed over: its keys are compared.
    Skipped,
}

/// An array that is open; `None` for a document.
struct Array {
    /// Holes before it.
    before: usize,
    member: Option<Member>,
    members: usize,
    others: bool,
}

/// Passes elements on to an entry, and derives the layout from its answers.
struct Drawing<'a> {
    entry: &'a mut Entry<()>,
    line: &'a [u8],
    holes: Vec<Drawn>,
    pending: Pending,
    arrays: Vec<Option<Array>>,
    unfit: bool,
}

impl Drawing<'_> {
    fn hole(&mut self, from: usize, to: usize, hole: Hole) {
        self.unfit |= self.holes.len() >= MAX_HOLES;
        if !self.unfit {
            self.holes.push(Drawn { from, to, hole });
        }
    }

    /// A string is a hole but for its quotes.
    fn text(&mut self, from: usize, to: usize, hole: Hole) {
        let content = self.line.get(from + 1..to.saturating_sub(1)).unwrap_or_default();
        self.unfit |= memchr::memchr(b'\\', content).is_some();
        self.hole(from + 1, to - 1, hole);
    }

    /// A value of which the type had a say.
    fn pass(&mut self, from: usize, to: usize) {
        match self.line.get(from) {
            Some(b'"') => self.text(from, to, Hole::Text),
            Some(b'-' | b'0'..=b'9') => self.hole(from, to, Hole::Number),
            Some(b'{') => self.skeleton(from, to, true),
            _ => {}
        }
    }

    /// Draws what is not looked into: its keys are compared, its values are holes. `typed`: it is a value of
    /// a type that JSON does not have, and its content may have a say in which.
    fn skeleton(&mut self, mut at: usize, to: usize, typed: bool) {
        let mut key: &[u8] = b"";
        while at < to && !self.unfit {
            match self.line[at] {
                b'"' => {
                    let Ok(end) = json::skip(self.line, at) else {
                        self.unfit = true;
                        return;
                    };
                    if self.line.get(end) == Some(&b':') {
                        key = &self.line[at + 1..end - 1];
                        self.unfit |= typed && (key.starts_with(b"$number") || key == b"$symbol");
                    } else {
                        self.text(at, end, if typed && key == b"$date" { Hole::Date } else { Hole::Text });
                    }
                    at = end;
                }
                b'-' | b'0'..=b'9' => {
                    let Some(end) = number_end(self.line, at) else {
                        self.unfit = true;
                        return;
                    };
                    self.unfit |= typed && key == b"$date";
                    self.hole(at, end, Hole::Number);
                    at = end;
                }
                _ => at += 1,
            }
        }
    }

    fn member(&mut self, from: usize, to: usize) {
        let bytes = self.line.get(from..to).unwrap_or_default();
        let member = match bytes.first() {
            Some(b'"') => Some(Member::Text),
            Some(b'-' | b'0'..=b'9') => Some(Member::Number),
            _ if bytes.starts_with(OBJECT_ID) => Some(Member::ObjectId),
            _ => None,
        };
        let mut collapse = None;
        if let Some(Some(array)) = self.arrays.last_mut() {
            let alike = !array.others && member.is_some() && (array.members == 0 || array.member == member);
            array.others |= !alike;
            array.member = member;
            array.members += 1;
            if alike && array.members > FEW {
                collapse = Some(array.before);
            }
            self.unfit |= !alike && array.members > FEW;
        }
        match (collapse, member) {
            // The list is one hole from its first member on.
            (Some(before), Some(member)) => {
                let first = self.holes.get(before).map_or(from, |drawn| drawn.from);
                let first =
                    if member == Member::Number { first } else { self.begin_of_member(first, member) };
                self.holes.truncate(before);
                self.hole(first, to, Hole::List(member));
            }
            _ => self.pass(from, to),
        }
        if bytes.contains(&b'\\') {
            self.unfit = true;
        }
    }

    /// Where a member begins, by where its hole does.
    fn begin_of_member(&self, hole: usize, member: Member) -> usize {
        match (self.holes.iter().find(|drawn| drawn.from == hole).map(|drawn| drawn.hole), member) {
            (Some(Hole::List(_)), _) | (None, _) => hole,
            (_, Member::Text) => hole - 1,
            (_, Member::ObjectId) => hole - OBJECT_ID.len(),
            (_, Member::Number) => hole,
        }
    }
}

/// Numbers at the top of an entry that are read from each line and decide nothing else.
const TOLD: [&[u8]; 24] = [
    b"durationMillis",
    b"durationMicros",
    b"workingMillis",
    b"keysExamined",
    b"docsExamined",
    b"totalKeysExamined",
    b"totalDocsExamined",
    b"nreturned",
    b"ninserted",
    b"ndeleted",
    b"nMatched",
    b"nModified",
    b"nUpserted",
    b"reslen",
    b"numYields",
    b"writeConflicts",
    b"cursorid",
    b"errCode",
    b"cpuNanos",
    b"planningTimeMicros",
    b"prepareReadConflicts",
    b"remoteOpWaitMillis",
    b"waitForWriteConcernDuration",
    b"waitForWriteConcernDurationMillis",
];

/// Names of types that JSON does not have: where one of them stands as a plain key, the value was no such.
fn is_type_name(key: &[u8]) -> bool {
    key.first() == Some(&b'$') && json::is_type_name(&key[1..])
}

impl Visitor for Drawing<'_> {
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let inside = self.entry.place();
        let is_number = matches!(kind, Kind::Int64 | Kind::Double);
        let step = self.entry.element(key, kind, value);
        self.pending = match inside {
            Inside::Top => match key.bytes {
                b"client" | b"command" | b"query" | b"originatingCommand" | b"updateobj" => {
                    self.unfit = true;
                    Pending::Literal
                }
                b"remote" | b"errMsg" if kind == Kind::String => Pending::ToldText,
                name if is_number && TOLD.contains(&name) => Pending::Texts,
                name if Fields::knows(name) => Pending::Literal,
                _ => Pending::Pass,
            },
            Inside::Section(section) => {
                if is_number {
                    Pending::ToldIn(section)
                } else {
                    Pending::Literal
                }
            }
            Inside::Command => {
                self.unfit |= is_type_name(key.bytes) || matches!(key.bytes, b"ntoreturn" | b"ntoskip");
                match step {
                    Step::Next => Pending::Literal,
                    Step::Using(Use::Type) => Pending::Pass,
                    Step::Using(Use::Member) => Pending::Member,
                    Step::Using(Use::Truth) if is_number => Pending::Truth,
                    Step::Using(Use::Truth) => Pending::Literal,
                    Step::Using(Use::Plain) => Pending::Plain,
                    Step::Using(Use::Number(_)) | Step::Leave => {
                        self.unfit = true;
                        Pending::Literal
                    }
                }
            }
            Inside::Write => {
                self.unfit = true;
                Pending::Literal
            }
        };
        if self.unfit { Step::Leave } else { step }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let opened = self.entry.open(key, array);
        self.unfit |= self.entry.place() == Inside::Command && is_type_name(key.bytes);
        if let Some(Some(array)) = self.arrays.last_mut() {
            array.others = true;
        }
        match opened {
            Opened::Enter => {
                let before = self.holes.len();
                let new = Array { before, member: None, members: 0, others: false };
                self.arrays.push(array.then_some(new));
            }
            Opened::Skip | Opened::Count => self.pending = Pending::Skipped,
            Opened::Leave => self.unfit = true,
        }
        if self.unfit { Opened::Leave } else { opened }
    }

    fn close(&mut self) {
        self.entry.close();
        if let Some(Some(Array { before, member: Some(member), others: false, members })) = self.arrays.pop()
            && members <= FEW
            && let (Some(first), Some(last)) = (self.holes.get(before).copied(), self.holes.last().copied())
        {
            let (front, back) = match member {
                Member::Number => (0, 0),
                Member::Text => (1, 1),
                Member::ObjectId => (OBJECT_ID.len(), 2),
            };
            self.holes.truncate(before);
            self.hole(first.from - front, last.to + back, Hole::List(member));
        }
    }

    fn stood(&mut self, from: usize, to: usize) {
        if self.unfit {
            return;
        }
        match std::mem::replace(&mut self.pending, Pending::Literal) {
            Pending::Literal => {
                if let Some(Some(array)) = self.arrays.last_mut() {
                    array.others = true;
                }
            }
            Pending::Member => self.member(from, to),
            other => {
                if let Some(Some(array)) = self.arrays.last_mut() {
                    array.others = true;
                }
                match other {
                    Pending::Pass => self.pass(from, to),
                    Pending::Skipped => self.skeleton(from, to, false),
                    Pending::Plain => self.text(from, to, Hole::Plain),
                    Pending::Texts => self.hole(from, to, Hole::Texts),
                    Pending::ToldIn(section) => self.hole(from, to, Hole::ToldIn(section)),
                    Pending::ToldText => self.text(from, to, Hole::ToldText),
                    Pending::Truth => {
                        let number = json::number_at(self.line, from)
                            .and_then(|(kind, bytes, _)| shape::number(kind, &bytes));
                        match number {
                            Some(number) => self.hole(from, to, Hole::Truth { nonzero: number != 0.0 }),
                            None => self.unfit = true,
                        }
                    }
                    Pending::Literal | Pending::Member => {}
                }
            }
        }
    }
}

/// A hash of what mostly distinguishes layouts: strings up to the command, then the keys that come first.
/// `salt`: what else the line comes to depends on.
#[inline]
pub(super) fn outline(line: &[u8], mut at: usize, salt: u64) -> Place {
    /// Strings that count.
    const COUNTED: u32 = 24;
    /// Strings that are looked at.
    const SEEN: u32 = 64;
    /// Which strings count: all up to the command, of the command its name and collection, then keys.
    #[derive(PartialEq)]
    enum Counts {
        All,
        Name,
        Collection,
        Keys,
    }
    let (mut hash, mut counts, mut counted) = (salt, Counts::All, 0);
    for _ in 0..SEEN {
        let Some(open) = json::quote_or_escape(line.get(at..).unwrap_or_default()) else { break };
        let from = at + open + 1;
        let Some(end) = text_end(line, from) else { break };
        at = end + 1;
        let text = &line[from..end];
        let is_key = line.get(at) == Some(&b':');
        if is_key || counts != Counts::Keys {
            hash = mix(hash, shape::hash::bytes(text));
            counted += 1;
            if counted == COUNTED {
                break;
            }
        }
        // How many values a list has says nothing of the layout.
        if is_key && line.get(at + 1) == Some(&b'[') && line.get(at + 2) != Some(&b'{') {
            at += memchr::memchr(b']', &line[at..]).unwrap_or(0);
        }
        counts = match counts {
            Counts::All if is_key && matches!(text, b"command" | b"originatingCommand") => Counts::Name,
            Counts::All => Counts::All,
            Counts::Name => Counts::Collection,
            Counts::Collection | Counts::Keys => Counts::Keys,
        };
    }
    Place { set: hash as usize % SETS, tag: (hash >> 32) as u32 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sonar_core::{Execution, Identity, Operation};

    use crate::entry::Sink;
    use crate::log::{Log, Settings};

    /// All operations, as text.
    #[derive(Default)]
    struct Texts(Vec<String>);

    impl Sink for Texts {
        fn operation(
            &mut self,
            op: &Operation<'_>,
            identity: Identity,
            execution: &Execution<'_>,
            entries: u64,
        ) {
            self.0.push(format!("{op:?} {identity:?} {execution:?} {entries}"));
        }
    }

    fn both() -> [(Log, Texts); 2] {
        let mut both = [false, true].map(|walks| {
            let mut log = Log::new(Settings::default());
            log.layouts.walks = walks;
            (log, Texts::default())
        });
        // Of one connection it is known who is on it.
        for (log, told) in &mut both {
            log.line(br#"{"t":{"$date":"2026-05-01T10:00:00.000+00:00"},"s":"I","c":"NETWORK","id":51800,"ctx":"conn3","msg":"client metadata","attr":{"remote":"10.0.0.9:51234","client":"conn3","doc":{"application":{"name":"api"},"driver":{"name":"NetworkInterfaceTL","version":"6.0"}}}}"#, told);
        }
        both
    }

    /// Lines of 4.4 to 8.0 with holes: `#` a number, `@` a word, `%` a date, `&` a list of numbers, `~` one of words.
    const LINES: [&str; 18] = [
        r#"{"type":"command","ns":"shop.orders","appName":"api","command":{"find":"orders","filter":{"st":#,"city":"@","at":{"$gte":{"$date":"%"}},"tag":{"$in":[~]},"n":{"$nin":[&]}},"sort":{"at":-1},"limit":20,"lsid":{"id":{"$uuid":"@"}},"$clusterTime":{"clusterTime":{"$timestamp":{"t":#,"i":#}},"signature":{"hash":{"$binary":{"base64":"@","subType":"0"}},"keyId":#}},"$db":"shop"},"planSummary":"IXSCAN { st: 1 }","keysExamined":#,"docsExamined":#,"cursorid":#,"hasSortStage":true,"numYields":#,"nreturned":#,"queryHash":"AB12CD34","planCacheKey":"@","reslen":#,"locks":{"Global":{"acquireCount":{"r":#},"acquireWaitCount":{"r":1},"timeAcquiringMicros":{"r":#,"w":#}}},"storage":{"data":{"bytesRead":#,"timeReadingMicros":#},"timeWaitingMicros":{"cache":#}},"remote":"10.0.0.9:51234","protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"update","ns":"shop.orders","command":{"q":{"_id":#},"u":{"$set":{"a":#,"b":"@"}},"multi":false,"upsert":false},"planSummary":"IDHACK","keysExamined":1,"docsExamined":1,"nMatched":1,"nModified":#,"nUpserted":0,"numYields":0,"locks":{},"storage":{},"remote":"10.0.0.9:51234","durationMillis":#}"#,
        r#"{"type":"remove","ns":"shop.orders","command":{"q":{"day":{"$lt":{"$date":"%"}}},"limit":0},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":#,"ndeleted":#,"numYields":#,"locks":{},"remote":"10.0.0.9:51234","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.$cmd","appName":"api","command":{"update":"orders","ordered":true,"lsid":{"id":{"$uuid":"@"}},"$db":"shop"},"numYields":0,"reslen":#,"locks":{},"remote":"10.0.0.9:51234","protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","appName":"api","command":{"aggregate":"orders","pipeline":[{"$match":{"a":"@","b":{"$in":[{"$oid":"507f1f77bcf86cd799439011"},{"$oid":"507f1f77bcf86cd799439012"}]}}},{"$group":{"_id":"$c","n":{"$sum":#}}},{"$project":{"x":{"$concat":["$a","@"]}}},{"$limit":#}],"cursor":{"batchSize":#},"$db":"shop"},"planSummary":"COLLSCAN","keysExamined":0,"docsExamined":#,"hasSortStage":true,"usedDisk":true,"sortSpills":2,"sortSpilledBytes":4096,"groupSpills":1,"cursorExhausted":true,"numYields":#,"nreturned":#,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"insert":"orders","ordered":true,"$db":"shop"},"ninserted":#,"keysInserted":#,"numYields":0,"reslen":45,"locks":{},"flowControl":{"acquireCount":#,"timeAcquiringMicros":#},"prepareReadConflicts":#,"waitForWriteConcernDurationMillis":#,"writeConcern":{"w":1,"wtimeout":0,"provenance":"clientSupplied"},"storage":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"find":"orders","filter":{"a":#},"maxTimeMS":#,"$db":"shop"},"planSummary":"COLLSCAN","numYields":#,"ok":0,"errMsg":"operation exceeded @","errName":"MaxTimeMSExpired","errCode":#,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"getMore":#,"collection":"orders","$db":"shop"},"originatingCommand":{"find":"orders","filter":{"a":#},"$db":"shop"},"planSummary":"COLLSCAN","cursorid":#,"keysExamined":0,"docsExamined":#,"numYields":#,"nreturned":#,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"getMore":#,"collection":"orders","$db":"shop"},"cursorid":#,"numYields":#,"nreturned":#,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.$cmd","command":{"isMaster":#,"$db":"admin"},"numYields":0,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","isFromUserConnection":true,"ns":"shop.people","collectionType":"normal","appName":"a","queryShapeHash":"F42E","command":{"count":"people","query":{"x":{"$exists":true},"y.3.z":#,"r":{"$regex":"@"},"e":{"$elemMatch":{"k":#}}},"limit":#,"skip":#,"$db":"shop"},"planSummary":"COUNT_SCAN { x: 1 }","planningTimeMicros":#,"keysExamined":#,"docsExamined":0,"nBatches":1,"numYields":#,"queryHash":"AB","planCacheShapeHash":"AB","queryFramework":"sbe","reslen":#,"locks":{"Global":{"acquireCount":{"r":#}}},"cpuNanos":#,"remote":"[::1]:5123","protocol":"op_msg","queues":{"execution":{"admissions":#,"totalTimeQueuedMicros":#},"ingress":{"admissions":1,"totalTimeQueuedMicros":#}},"workingMillis":#,"durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"findAndModify":"orders","query":{"_id":"@"},"update":{"$inc":{"n":#}},"new":true,"$db":"shop"},"planSummary":"IXSCAN { _id: 1 }","keysExamined":#,"docsExamined":#,"nMatched":#,"nModified":#,"writeConflicts":#,"numYields":0,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"find":"orders","filter":{"$or":[{"a":#},{"b":#}],"c":{"$date":"@"},"d":{"$numberLong":"@"},"e":[&],"f":[#,"@"],"g":[[&]]},"$db":"shop"},"planSummary":"COLLSCAN","numYields":#,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"find":"orders","filter":{"a":#},"$db":"shop"},"planSummary":"COLLSCAN","numYields":#,"reslen":#,"locks":{},"protocol":"op_msg","durationMillis":#},"truncated":{"command":{"filter":{}}}"#,
        r#"{"type":"none","ns":"shop.orders","command":{"createIndexes":"orders","indexes":[{"v":2,"key":{"a":1,"b":"text"},"name":"@","default_language":"english"}],"$db":"shop"},"numYields":#,"locks":{},"durationMillis":#}"#,
        r#"{"type":"none","ns":"shop.orders","numYields":#,"locks":{},"durationMillis":#}"#,
        r#"{"type":"command","ns":"shop.orders","command":{"aggregate":"orders","pipeline":[{"$search":{"text":{"query":"@","path":"$a"}}},{"$project":{"x":{"$literal":"@"},"y":{"$concat":["$a","@"]}}},{"$lookup":{"from":"x","as":"y","other":"z"}}],"$db":"shop"},"planSummary":"SOMETHING { a: \"b\" }","numYields":#,"cursorid":#,"durationMillis":#}"#,
        r#"{"type":"command","ns":"admin.$cmd","command":{"moveChunk":"@","find":{"a":#},"$db":"admin"},"numYields":#,"durationMillis":#}"#,
    ];

    /// Fills the holes by the numbers of `dice`.
    fn filled(line: usize, dice: &mut impl FnMut() -> u64) -> String {
        let attributes = LINES[line % LINES.len()];
        // As they stand in JSON.
        const WORDS: [&str; 10] = [
            "paid",
            "",
            r#"x\"y"#,
            "$c",
            "a b { c: 1 }",
            "2026-05-01T10:00:00Z",
            "ü",
            "12",
            r"\u0041",
            r"\\",
        ];
        let word = |dice: u64| WORDS[dice as usize % WORDS.len()];
        let number = |dice: u64| match dice % 40 {
            0 => "0".to_string(),
            1 => format!("-{}", dice >> 40),
            2 => format!("{}.5", dice >> 40),
            3 => "12345678901234567890".to_string(),
            4 => "1e3".to_string(),
            _ => (dice >> 44).to_string(),
        };
        let mut out = format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.{:03}+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn{}","msg":"Slow query","attr":"#,
            dice() % 1_000,
            dice() % 4
        );
        for c in attributes.chars() {
            match c {
                '#' => out.push_str(&number(dice())),
                '@' => out.push_str(word(dice())),
                '%' => out.push_str(if dice().is_multiple_of(8) {
                    "no date"
                } else {
                    "2026-04-01T00:00:00.000Z"
                }),
                '&' | '~' => {
                    let many = [0, 1, 2, 3, 5, 40, 90][dice() as usize % 7];
                    for at in 0..many {
                        out.push_str(if at > 0 { "," } else { "" });
                        match c {
                            '&' => out.push_str(&number(dice())),
                            _ if dice().is_multiple_of(50) => out.push('7'),
                            _ => out.push_str(&format!("\"{}\"", word(dice()))),
                        }
                    }
                }
                c => out.push(c),
            }
        }
        out.push('}');
        out
    }

    fn rolled(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
        }
    }

    fn compare(lines: impl IntoIterator<Item = Vec<u8>>) -> u64 {
        let mut both = both();
        for line in lines {
            for (log, told) in &mut both {
                log.line(&line, told);
            }
            let [(_, left), (_, right)] = &both;
            assert_eq!(left.0, right.0, "{}", String::from_utf8_lossy(&line));
            both.iter_mut().for_each(|(_, told)| told.0.clear());
        }
        for (log, told) in &mut both {
            log.finish(told);
        }
        let [(left, left_told), (right, right_told)] = &both;
        assert_eq!(left_told.0, right_told.0);
        assert_eq!(left.reading(), right.reading());
        assert_eq!(right.layouts.recognised, 0);
        left.layouts.recognised
    }

    #[test]
    fn a_line_that_is_recognised_says_what_a_walk_of_it_says() {
        let mut dice = rolled(1);
        let lines = (0..6_000).map(|_| filled(dice() as usize, &mut dice).into_bytes());
        let recognised = compare(lines);
        assert!(recognised > 1_000, "{recognised} of 6000");
    }

    #[test]
    fn all_but_cursors_and_what_is_cut_are_recognised_the_second_time() {
        for line in 0..LINES.len() {
            let mut dice = || 9u64 << 44 | 6;
            let text = filled(line, &mut dice).into_bytes();
            // A getMore, or what says `$date` and means none, is walked.
            // So is what has no command, and a plan with an escape in it.
            let expected = if matches!(line, 7 | 8 | 12 | 13 | 15) { 0 } else { 1 };
            // A statement waits for its command, and what comes next on its thread is walked.
            assert_eq!(compare([text.clone(), text]), expected, "{line}");
        }
    }

    #[test]
    fn long_lists_of_any_length_have_one_layout() {
        let line = |many: u64| {
            let list: Vec<String> = (0..many).map(|n| n.to_string()).collect();
            format!(
                r#"{{"t":{{"$date":"2026-05-01T10:00:00.000+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1","msg":"Slow query","attr":{{"type":"command","ns":"a.b","command":{{"find":"b","filter":{{"a":{{"$in":[{}]}}}},"$db":"a"}},"durationMillis":1}}}}"#,
                list.join(",")
            )
        };
        assert_eq!(compare([1, 2, 20, 31, 32, 33, 34, 2_000].map(|many| line(many).into_bytes())), 7);
        assert_eq!(compare([2_000, 1].map(|many| line(many).into_bytes())), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_500))]
        /// Any byte of a line whose layout is known may be another, or missing.
        #[test]
        fn a_changed_byte_is_noticed(
            line in 0usize..LINES.len(),
            seed in any::<u64>(),
            at in any::<prop::sample::Index>(),
            byte in prop_oneof![any::<u8>(), Just(b'"'), Just(b'}'), Just(b'\\'), Just(b'$'), Just(b'0'), Just(b',')],
            insert in any::<bool>(),
        ) {
            let mut dice = rolled(seed);
            let plain = filled(line, &mut dice).into_bytes();
            let mut changed = plain.clone();
            let at = at.index(changed.len());
            if insert { changed.insert(at, byte) } else { changed[at] = byte }
            compare([plain.clone(), plain.clone(), changed.clone(), changed, plain]);
        }
    }
}
