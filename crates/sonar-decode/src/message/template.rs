//! Requests whose layout was seen before, recognised without being walked.
//!
//! Theory of operation. Applications send few kinds of request, each many times: the same keys in the
//! same order, and other values. Once a request has been walked, a [`Template`] may be made of it: its
//! bytes, with holes where only the type of a value had a say in what the request comes to, as
//! [`Visitor`] tells by [`Step`]. A later request that fits comes to the same by construction: each byte
//! that had a say is compared, each that had none is passed over by type and length as the skimmer would,
//! and the ends of all documents must meet. Nothing is guessed; what does not fit is walked.
//!
//! Templates stand in a table of sets; the set is found by an [`outline`] of the message: its command,
//! its collection and the first keys. Memory: at most [`SETS`] × [`WAYS`] templates of some 2 KiB each.
//! Traffic that never repeats is found out ([`Set::misses`]) and pays little.

use super::Request;
use crate::bson::{Fed, Key, Kind, Opened, Skimmer, Step, Use, Value, Visitor, key_at, value_size};
use crate::shape::{self, hash::mix};

/// Sets of the table.
const SETS: usize = 512;
/// Templates of one set.
const WAYS: usize = 8;
/// The most parts of a template.
const MAX_PARTS: usize = 96;
/// The most bytes that a template compares.
const MAX_LITERALS: usize = 1_024;
/// The most documents open at once in a request of which a template is made.
const MAX_OPEN: usize = 16;
/// The most elements of an array that are drawn one by one.
const FEW: u32 = 8;
/// After so many misses without a hit a set is asked, and added to, only now and then.
const PATIENCE: u8 = 64;
/// That is, once in so many times.
const NOW_AND_THEN: u64 = 64;

/// What stands behind bytes that are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Action {
    /// A value that begins with a number, at least this, that tells its length; and so many bytes more.
    Counted { least: u8, more: u8 },
    /// A regular expression.
    Regex,
    /// A number or boolean that is zero, or is not.
    Truth { kind: Kind, nonzero: bool },
    /// A string that does not begin with `$`.
    Plain,
    /// The id of a cursor.
    Cursor,
    /// A document or array that is gone into.
    Open,
    /// The end of one.
    Close,
    /// What is left of one is passed over.
    Leave,
    /// A document or array that is passed over.
    Pass,
    /// An array of one or more values that all have the placeholder of this number.
    List(u8),
    /// The size of a section of kind 1, which is gone into.
    Section,
    /// The end of one.
    EndSection,
    /// Documents up to the end of the section, which ends with them.
    Documents,
    /// The end of the message, so many bytes of checksum left out.
    End(u8),
}

/// Bytes that are compared, and what comes behind them.
#[derive(Copy, Clone, Debug)]
struct Part {
    /// How many bytes.
    length: u16,
    /// In how many words they are compared.
    words: u16,
    action: Action,
}

/// Eight bytes as they must be, and which bits of them.
#[derive(Copy, Clone, Debug)]
struct Word {
    literal: u64,
    mask: u64,
}

/// A layout, and what a request of that layout comes to.
#[derive(Debug)]
struct Template<F> {
    /// Flags and kind of the first section, which stand before all parts.
    head: [u8; 5],
    /// What the bytes of all parts must be, part after part; of values whose type alone has a say, no bit
    /// is compared.
    words: Box<[Word]>,
    parts: Box<[Part]>,
    facts: F,
}

/// Templates whose outlines fall together, the ones that fit most often in front.
#[derive(Debug)]
struct Set<F> {
    ways: Vec<(u32, Box<Template<F>>)>,
    /// Requests since the last one that fitted a template of this set.
    misses: u8,
}

/// Templates by outline; `F` is what one knows of a request of that layout.
#[derive(Debug)]
pub struct Templates<F> {
    sets: Box<[Set<F>]>,
    turn: u64,
}

/// Answer to [`Templates::find`].
#[derive(Debug)]
pub enum Found<'t, F> {
    /// The request has a layout that is known. The cursor id is that of a getMore or killCursors.
    Known(&'t F, Option<i64>),
    /// It has not; once it has been walked, its template is wanted.
    Wanted(Place),
    /// It has not, and its template is not wanted.
    Unknown,
}

/// Where a template is put.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    set: usize,
    tag: u32,
}

impl<F> Default for Templates<F> {
    fn default() -> Self {
        Self { sets: (0..SETS).map(|_| Set { ways: Vec::new(), misses: 0 }).collect(), turn: 0 }
    }
}

impl<F> Templates<F> {
    /// What is known of the layout of `body`, an OP_MSG that is all there.
    #[inline]
    pub fn find(&mut self, body: &[u8]) -> Found<'_, F> {
        let Some(outline) = outline(body) else { return Found::Unknown };
        let place = Place { set: outline as usize % SETS, tag: (outline >> 32) as u32 };
        let set = &mut self.sets[place.set];
        self.turn = self.turn.wrapping_add(1);
        let now_and_then = mix(self.turn, 0).is_multiple_of(NOW_AND_THEN);
        if set.misses >= PATIENCE && !now_and_then {
            return Found::Unknown;
        }
        let found = set.ways.iter().enumerate().find_map(|(at, (tag, template))| {
            (*tag == place.tag).then(|| template.fits(body)).flatten().map(|cursor| (at, cursor))
        });
        let Some((at, cursor)) = found else {
            set.misses = set.misses.saturating_add(1);
            let wanted = set.ways.len() < WAYS || now_and_then;
            return if wanted { Found::Wanted(place) } else { Found::Unknown };
        };
        set.misses = 0;
        let front = at.saturating_sub(1);
        set.ways.swap(at, front);
        Found::Known(&set.ways[front].1.facts, cursor)
    }

    /// Makes a template of `body`, a request that has been walked without an error, and that comes to
    /// `facts`. `request` is used to walk it once more.
    pub fn add(&mut self, place: Place, body: &[u8], request: &mut Request<()>, facts: F) {
        let Some(draft) = draft(body, request) else { return };
        let Some(head) = body.first_chunk().copied() else { return };
        let (words, parts) = draft.finish();
        let template = Box::new(Template { head, words, parts, facts });
        let ways = &mut self.sets[place.set].ways;
        if ways.len() >= WAYS {
            ways.pop();
        }
        ways.push((place.tag, template));
    }
}

impl<F> Template<F> {
    /// Whether `body` has this layout; and the cursor id in it, if there is one.
    #[inline]
    fn fits(&self, body: &[u8]) -> Option<Option<i64>> {
        let mut ends = [0usize; MAX_OPEN];
        let (mut open, mut at, mut cursor) = (0, self.head.len(), None);
        if body.first_chunk() != Some(&self.head) {
            return None;
        }
        let mut words = &*self.words;
        for part in &self.parts {
            let wanted;
            (wanted, words) = words.split_at_checked(usize::from(part.words))?;
            let end = at + usize::from(part.length);
            if !same(body, at, end, wanted)? {
                return None;
            }
            at = end;
            match part.action {
                Action::Counted { least, more } => {
                    at += usize::from(more) + counted(body, at, usize::from(least))?;
                }
                Action::Regex => at += value_size(Kind::Regex, body.get(at..)?)?,
                Action::Truth { kind, nonzero } => {
                    let size = value_size(kind, body.get(at..)?)?;
                    let number = shape::number(kind, body.get(at..at + size)?)?;
                    if (number != 0.0) != nonzero {
                        return None;
                    }
                    at += size;
                }
                Action::Plain => {
                    if body.get(at + 4) == Some(&b'$') {
                        return None;
                    }
                    at += 4 + counted(body, at, 1)?;
                }
                Action::Cursor => {
                    let id = body.get(at..)?.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))?;
                    cursor.get_or_insert(id);
                    at += 8;
                }
                Action::Open => {
                    *ends.get_mut(open)? = at + document_at(body, at)?;
                    open += 1;
                    at += 4;
                }
                Action::Close => {
                    open -= 1;
                    if body.get(at) != Some(&0) || at + 1 != ends[open] {
                        return None;
                    }
                    at += 1;
                }
                Action::Leave => {
                    open -= 1;
                    if at >= ends[open] {
                        return None;
                    }
                    at = ends[open];
                }
                Action::Pass => at += document_at(body, at)?,
                Action::List(number) => at = list_end(body, at, number)?,
                Action::Section => {
                    *ends.get_mut(open)? = at + document_at(body, at)?;
                    open += 1;
                    at += 4;
                }
                Action::EndSection => {
                    open -= 1;
                    if at != ends[open] {
                        return None;
                    }
                }
                Action::Documents => {
                    open -= 1;
                    while at < ends[open] {
                        at += document_at(body, at)?;
                    }
                    if at != ends[open] {
                        return None;
                    }
                }
                Action::End(checksum) => {
                    return (at + usize::from(checksum) == body.len()).then_some(cursor);
                }
            }
        }
        None
    }
}

/// The length of the document (or section) at `at`; `None` where it cannot be one, or is not all there.
#[inline]
fn document_at(body: &[u8], at: usize) -> Option<usize> {
    let rest = body.get(at..)?;
    let length = i32::from_le_bytes(*rest.first_chunk()?);
    let length = usize::try_from(length).ok()?;
    (length >= 5 && length <= rest.len()).then_some(length)
}

/// The end of the array at `at`, if it holds values with the placeholder of this number and nothing else.
fn list_end(body: &[u8], at: usize, number: u8) -> Option<usize> {
    let end = at + document_at(body, at)?;
    let first = at + 4;
    let mut at = first;
    while *body.get(at)? != 0 {
        let kind = Kind::from_number(body[at])?;
        if matches!(kind, Kind::Document | Kind::Array) || shape::placeholder(kind).0 != number {
            return None;
        }
        let key = key_at(&body[at + 1..]).ok()??;
        at += 1 + key.bytes.len() + 1;
        at += value_size(kind, body.get(at..)?)?;
    }
    (at > first && at + 1 == end).then_some(end)
}

/// Whether the bytes from `at` to `end` are those of `words`: one for each eight bytes, and the last one
/// for the eight bytes before `end`. No branch a word, as there are few and they mostly fit.
#[inline(always)]
fn same(body: &[u8], at: usize, end: usize, words: &[Word]) -> Option<bool> {
    let Some((last, before)) = words.split_last() else { return Some(true) };
    let differ = |word: &Word, bytes: &[u8; 8]| (u64::from_le_bytes(*bytes) & word.mask) ^ word.literal;
    let mut wrong = differ(last, body.get(..end)?.last_chunk()?);
    for (word, bytes) in before.iter().zip(body.get(at..end)?.as_chunks().0) {
        wrong |= differ(word, bytes);
    }
    Some(wrong == 0)
}

/// The number at `at`, which is the length of what comes behind it.
#[inline(always)]
fn counted(body: &[u8], at: usize, least: usize) -> Option<usize> {
    let length = i32::from_le_bytes(*body.get(at..)?.first_chunk()?);
    usize::try_from(length).ok().filter(|length| *length >= least)
}

/// A hash of what mostly tells layouts apart: the command, its collection, the first keys of its first
/// part, and those of the first statement of a section. `None`: no template is wanted.
#[inline]
fn outline(body: &[u8]) -> Option<u64> {
    let flags = u64::from(u32::from_le_bytes(*body.first_chunk()?));
    let body = if flags & 1 == 1 { body.get(..body.len().checked_sub(4)?)? } else { body };
    if *body.get(4)? != 0 {
        return None;
    }
    let (kind, key, at) = element_at(body, 9)?;
    let mut outline = mix(flags ^ u64::from(kind), key);
    let mut next = at;
    match Kind::from_number(kind)? {
        Kind::String => {
            let size = counted(body, at, 1)?;
            outline = mix(outline, shape::hash::bytes(body.get(at + 4..at + 4 + size)?));
            next += 4 + size;
        }
        Kind::Document | Kind::Array => next += document_at(body, at)?,
        kind => next += value_size(kind, body.get(at..)?)?,
    }
    outline = first_keys(body, next, outline);
    let end = 5 + document_at(body, 5)?;
    if body.get(end) == Some(&1) {
        // The name is that of documents or statements, which their command tells; then the first one.
        let name = body.get(end + 5..)?;
        let document = end + 5 + key_at(name).ok()??.bytes.len() + 1;
        outline = first_keys(body, document + 4, outline);
        if let Some((Kind::Document | Kind::Array, _, at)) = element_at(body, document + 4)
            .and_then(|(kind, key, at)| Some((Kind::from_number(kind)?, key, at)))
        {
            outline = first_keys(body, at + document_at(body, at)?, outline);
        }
    }
    Some(outline)
}

/// Adds the keys that come first from `at` on, from the outermost document to the innermost.
#[inline]
fn first_keys(body: &[u8], mut at: usize, mut outline: u64) -> u64 {
    for _ in 0..4 {
        let Some((kind, key, value)) = element_at(body, at) else { break };
        outline = mix(outline ^ u64::from(kind), key);
        if kind != Kind::Document.number() && kind != Kind::Array.number() {
            break;
        }
        at = value + 4;
    }
    outline
}

/// Type, first eight bytes of the key, and where the value of the element at `at` begins.
#[inline]
fn element_at(body: &[u8], at: usize) -> Option<(u8, u64, usize)> {
    let (&kind, rest) = body.get(at..)?.split_first()?;
    if kind == 0 {
        return None;
    }
    let key = key_at(rest).ok()??;
    Some((kind, key.word, at + 1 + key.bytes.len() + 1))
}

/// A template in the making.
#[derive(Default)]
struct Draft {
    literals: Vec<u8>,
    masks: Vec<u8>,
    parts: Vec<Part>,
    /// Where the bytes begin that stand before the next action.
    from: usize,
    open: Vec<Container>,
    /// No template can be made of this.
    unfit: bool,
}

/// An open document of a draft.
struct Container {
    /// Its part, by index.
    part: usize,
    /// Bytes compared when it began.
    literals: usize,
    /// Elements in it.
    elements: u32,
    /// Those of them that [`Use::Member`] was said of, all with this placeholder.
    members: u32,
    placeholder: u8,
}

impl Draft {
    fn act(&mut self, action: Action) {
        if self.literals.len() > MAX_LITERALS || self.parts.len() >= MAX_PARTS {
            self.unfit = true;
            return;
        }
        let length = (self.literals.len() - self.from) as u16;
        self.parts.push(Part { length, words: length.div_ceil(8), action });
        self.from = self.literals.len();
    }

    /// The words and the parts of the template.
    fn finish(self) -> (Box<[Word]>, Box<[Part]>) {
        let (mut words, mut at) = (Vec::new(), 0);
        for part in &self.parts {
            let end = at + usize::from(part.length);
            for word in 1..=usize::from(part.words) {
                // The last one ends with the part, wherever it begins: what is before the part is not
                // compared, what is compared already is compared again.
                let from = (at + 8 * word).min(end) as isize - 8;
                let bytes = |of: &[u8]| {
                    std::array::from_fn(|i| match from + i as isize {
                        byte if byte < at as isize => 0,
                        byte => of.get(byte as usize).copied().unwrap_or(0),
                    })
                };
                let mask = u64::from_le_bytes(bytes(&self.masks));
                words.push(Word { literal: u64::from_le_bytes(bytes(&self.literals)) & mask, mask });
            }
            at = end;
        }
        (words.into(), self.parts.into())
    }

    /// Bytes that are compared.
    fn compare(&mut self, bytes: &[u8]) {
        if self.literals.len() + bytes.len() > MAX_LITERALS {
            self.unfit = true;
            return;
        }
        self.literals.extend_from_slice(bytes);
        self.masks.resize(self.literals.len(), u8::MAX);
    }

    fn open(&mut self) {
        self.unfit |= self.open.len() + 1 >= MAX_OPEN;
        let (part, literals) = (self.parts.len(), self.literals.len());
        self.act(Action::Open);
        self.open.push(Container { part, literals, elements: 0, members: 0, placeholder: 0 });
    }

    fn close(&mut self) {
        let Some(container) = self.open.pop() else { return };
        if container.elements > 0 && container.members == container.elements {
            self.forget_content(&container);
            if let Some(part) = self.parts.last_mut() {
                part.action = Action::List(container.placeholder);
            }
        } else {
            self.unfit |= container.members > FEW;
            self.act(Action::Close);
        }
    }

    /// Takes back what was drawn of the content of a container.
    fn forget_content(&mut self, container: &Container) {
        self.parts.truncate(container.part + 1);
        self.literals.truncate(container.literals);
        self.masks.truncate(container.literals);
        self.from = container.literals;
    }

    fn leave(&mut self) {
        self.open.pop();
        self.act(Action::Leave);
    }

    /// Type and key of an element.
    fn head(&mut self, kind: Kind, key: &Key<'_>) {
        if let Some(container) = self.open.last_mut() {
            container.elements += 1;
        }
        self.compare(&[kind.number()]);
        self.compare(key.bytes);
        self.compare(&[0]);
    }

    /// A value of which the type alone had a say.
    fn pass(&mut self, kind: Kind) {
        match kind.fixed_size() {
            Some(size) => {
                self.literals.resize(self.literals.len() + usize::from(size), 0);
                self.masks.resize(self.literals.len(), 0);
            }
            None => self.act(match kind {
                Kind::Regex => Action::Regex,
                Kind::Binary => Action::Counted { least: 0, more: 5 },
                Kind::DbPointer => Action::Counted { least: 1, more: 16 },
                // Its length counts itself.
                Kind::JavaScriptWithScope => Action::Counted { least: 14, more: 0 },
                _ => Action::Counted { least: 1, more: 4 },
            }),
        }
    }

    /// A value that had a say.
    fn keep(&mut self, kind: Kind, value: Value<'_>) {
        let Value::Bytes(bytes) = value else {
            self.unfit = true;
            return;
        };
        if kind.fixed_size().is_some() {
            self.compare(bytes);
        } else if matches!(kind, Kind::String | Kind::Symbol) {
            self.compare(&(bytes.len() as u32 + 1).to_le_bytes());
            self.compare(bytes);
            self.compare(&[0]);
        } else {
            self.unfit = true;
        }
    }

    fn member(&mut self, kind: Kind) {
        let number = shape::placeholder(kind).0;
        if let Some(container) = self.open.last_mut()
            && (container.members == 0 || container.placeholder == number)
        {
            container.members += 1;
            container.placeholder = number;
        }
        self.pass(kind);
        // A long list is not drawn element by element.
        if let Some(container) = self.open.pop() {
            if container.elements > FEW && container.members == container.elements {
                self.forget_content(&container);
            }
            self.open.push(container);
        }
    }
}

/// Passes what a request is told on to it, and draws the layout from its answers.
struct Recorder<'a> {
    request: &'a mut Request<()>,
    draft: Draft,
}

impl Visitor for Recorder<'_> {
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        let step = self.request.element(key, kind, value);
        self.draft.head(kind, &key);
        match step {
            Step::Next => self.draft.keep(kind, value),
            Step::Using(Use::Type) => self.draft.pass(kind),
            Step::Using(Use::Member) => self.draft.member(kind),
            Step::Using(Use::Truth) => {
                let number = match value {
                    Value::Bytes(bytes) => shape::number(kind, bytes),
                    Value::Long => None,
                };
                match number {
                    Some(number) => self.draft.act(Action::Truth { kind, nonzero: number != 0.0 }),
                    None => self.draft.unfit = true,
                }
            }
            Step::Using(Use::Plain) => self.draft.act(Action::Plain),
            Step::Using(Use::Cursor) => self.draft.act(Action::Cursor),
            Step::Leave => {
                self.draft.pass(kind);
                self.draft.leave();
            }
        }
        if self.draft.unfit { Step::Leave } else { step }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let opened = self.request.open(key, array);
        self.draft.head(if array { Kind::Array } else { Kind::Document }, &key);
        match opened {
            Opened::Enter => self.draft.open(),
            Opened::Skip => self.draft.act(Action::Pass),
            Opened::Leave => {
                self.draft.act(Action::Pass);
                self.draft.leave();
            }
        }
        if self.draft.unfit { Opened::Leave } else { opened }
    }

    fn close(&mut self) {
        self.request.close();
        self.draft.close();
    }
}

/// Draws the layout of an OP_MSG; `None` where it has something that no template can express.
fn draft(body: &[u8], request: &mut Request<()>) -> Option<Draft> {
    request.reset(sonar_core::operation::Opcode::Msg);
    let mut skimmer = Skimmer::new();
    let mut recorder = Recorder { request, draft: Draft::default() };
    let flags = body.first_chunk::<4>()?;
    let checksum = if flags[0] & 1 == 1 { 4 } else { 0 };
    let end = body.len().checked_sub(checksum)?;
    let mut at = 4;
    let mut document = |at: &mut usize, recorder: &mut Recorder<'_>| {
        recorder.draft.open();
        skimmer.reset();
        let fed = skimmer.feed(&body[*at..end], (end - *at) as u64, recorder);
        let Ok(Fed::Done(used)) = fed else { return None };
        // The skimmer does not speak of the outermost document's end. Where that was left, it is closed.
        if !recorder.draft.open.is_empty() {
            recorder.draft.close();
        }
        *at += used;
        (!recorder.draft.unfit).then_some(())
    };
    while at < end {
        let kind = *body.get(at)?;
        // The first one stands in the template's head.
        if at > 4 {
            recorder.draft.compare(&[kind]);
        }
        at += 1;
        if kind == 0 {
            document(&mut at, &mut recorder)?;
            continue;
        }
        let section_end = at + document_at(&body[..end], at)?;
        let name = key_at(body.get(at + 4..section_end)?).ok()??;
        recorder.draft.act(Action::Section);
        recorder.draft.compare(name.bytes);
        recorder.draft.compare(&[0]);
        at += 4 + name.bytes.len() + 1;
        let statements = match (kind, name.bytes) {
            (1, b"documents") => {
                recorder.draft.act(Action::Documents);
                at = section_end;
                continue;
            }
            (1, b"updates" | b"deletes") => true,
            (1, b"ops") => {
                recorder.request.builder.set_command(shape::CommandKind::BulkWrite);
                true
            }
            (1, b"nsInfo") => false,
            _ => return None,
        };
        while at < section_end {
            if statements {
                recorder.request.begin_statement();
            } else {
                recorder.request.begin_namespace();
            }
            document(&mut at, &mut recorder)?;
            recorder.request.end_part();
        }
        recorder.draft.act(Action::EndSection);
    }
    recorder.draft.act(Action::End(checksum as u8));
    let Recorder { draft, .. } = recorder;
    (!draft.unfit).then_some(draft)
}

#[cfg(test)]
mod tests;
