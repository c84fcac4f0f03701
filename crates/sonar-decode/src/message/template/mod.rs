//! Recognises messages with a known layout, without walking them.
//!
//! Theory of operation. Applications send few kinds of request, each many times: the same keys in the same order with
//! other values; and their replies are alike too. Once a message has been walked, a [`Template`] may be made of it
//! ([`draft`]): its bytes, with blanks where only the type of a value matters or where the value is a number to read,
//! as the [`Visitor`](crate::bson::Visitor) answers by [`ElementStep`](crate::bson::ElementStep). A later message
//! that fits has the same result by construction: every byte that matters is compared, all others are skipped by type
//! and length as the skimmer would, and the ends of all documents must meet. Nothing is guessed; a message that does
//! not fit is walked.
//!
//! Templates are in a table of sets; an [`outline`] of the message selects the set: its command, its collection and
//! the first keys. Memory: at most [`SETS`] × [`WAYS`] templates of some 2 KiB each. Traffic that never repeats is
//! noticed ([`TemplateSet::misses`]) and costs little.

mod draft;
mod layout;

use self::layout::{MAX_OPEN, TemplateAction, TemplatePart, Word, document_at};
use crate::bson::{ElementKind, NumberSlot, key_at, value_size};
use crate::shape::hash::mix;
use crate::shape::{self, count};

pub use draft::DraftedRead;
pub use layout::SlotValues;

/// Sets of the table.
const SETS: usize = 512;
/// Templates of one set.
const WAYS: usize = 8;
/// Hints to the place of a template.
const HINTS: usize = 1_024;
/// After this many misses without a hit, a set is searched and extended only now and then.
const PATIENCE: u8 = 64;
/// Once in this many times.
const NOW_AND_THEN: u64 = 64;

/// A layout, and what a request with that layout says.
#[derive(Debug)]
pub struct Template<F> {
    /// Flags and kind of the first section, which come before all parts.
    head: [u8; 5],
    /// The bytes of all parts, one part after another. No bit is compared of values whose type alone matters.
    words: Box<[Word]>,
    parts: Box<[TemplatePart]>,
    facts: F,
}

/// Templates with the same part of the outline, the most frequent ones in front.
#[derive(Debug)]
struct TemplateSet<F> {
    ways: Vec<(u32, Box<Template<F>>)>,
    /// Requests since the last one that fitted a template of this set.
    misses: u8,
}

/// Templates by outline; `F` is what is known of a request with that layout.
#[derive(Debug)]
pub struct Templates<F> {
    sets: Box<[TemplateSet<F>]>,
    /// The place of the template that fitted the last message with such a companion.
    hints: Box<[TemplatePlace]>,
    turn: u64,
}

/// Answer to [`Templates::find`].
#[derive(Debug)]
pub enum TemplateMatch<'t, F> {
    /// The message has a known layout; with the numbers read from it.
    Known(&'t F, SlotValues),
    /// It has an unknown one, whose template is wanted once it has been walked.
    Wanted(TemplatePlace),
    /// It has an unknown one, whose template is not wanted.
    Unknown,
}

/// The place for a template.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplatePlace {
    set: usize,
    tag: u32,
}

impl<F> Default for Templates<F> {
    fn default() -> Self {
        Self {
            sets: (0..SETS).map(|_| TemplateSet { ways: Vec::new(), misses: 0 }).collect(),
            hints: vec![TemplatePlace::default(); HINTS].into(),
            turn: 0,
        }
    }
}

impl<F> Templates<F> {
    /// Like [`find`](Self::find), for a message that mostly has the layout of the last one with the same `companion`,
    /// a hash: as replies to the same request do. If it has, no outline is made.
    #[inline]
    pub fn find_beside(&mut self, companion: u64, body: &[u8]) -> TemplateMatch<'_, F> {
        let slot = companion as usize % HINTS;
        let TemplatePlace { set, tag } = self.hints[slot];
        let is = |way: &(u32, Box<Template<F>>)| way.0 == tag;
        if let Some(at) = self.sets[set].ways.iter().position(is)
            && let Some(numbers) = self.sets[set].ways[at].1.fits(body)
        {
            return TemplateMatch::Known(&self.sets[set].ways[at].1.facts, numbers);
        }
        self.look_up(body, slot)
    }

    /// What is known of the layout of `body`, a complete OP_MSG.
    #[inline]
    pub fn find(&mut self, body: &[u8]) -> TemplateMatch<'_, F> {
        // The command, mostly with the beginning of its collection's name; and messages of one layout have few
        // lengths.
        let [command, collection, more] = [9, 17, 25].map(|at| {
            body.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
        });
        self.find_beside(mix(command ^ body.len() as u64, mix(collection, more)), body)
    }

    /// `hint`: where to note the place of the layout.
    fn look_up(&mut self, body: &[u8], hint: usize) -> TemplateMatch<'_, F> {
        let Some(outline) = outline(body) else { return TemplateMatch::Unknown };
        let place = TemplatePlace { set: outline as usize % SETS, tag: (outline >> 32) as u32 };
        let set = &mut self.sets[place.set];
        self.turn = self.turn.wrapping_add(1);
        let now_and_then = mix(self.turn, 0).is_multiple_of(NOW_AND_THEN);
        if set.misses >= PATIENCE && !now_and_then {
            return TemplateMatch::Unknown;
        }
        let found = set.ways.iter().enumerate().find_map(|(at, (tag, template))| {
            (*tag == place.tag).then(|| template.fits(body)).flatten().map(|numbers| (at, numbers))
        });
        let Some((at, numbers)) = found else {
            set.misses = set.misses.saturating_add(1);
            let wanted = set.ways.len() < WAYS || now_and_then;
            return if wanted { TemplateMatch::Wanted(place) } else { TemplateMatch::Unknown };
        };
        set.misses = 0;
        self.hints[hint] = place;
        let front = at.saturating_sub(1);
        set.ways.swap(at, front);
        TemplateMatch::Known(&set.ways[front].1.facts, numbers)
    }

    /// Adds a template.
    pub fn add(&mut self, place: TemplatePlace, template: Template<F>) {
        let ways = &mut self.sets[place.set].ways;
        if ways.len() >= WAYS {
            ways.pop();
        }
        ways.push((place.tag, Box::new(template)));
    }
}

impl<F> Template<F> {
    /// Makes a template of `body`, a message that was walked without an error and whose `facts` are known; `None` if
    /// none can be made. `reader` is used to walk it once more.
    ///
    /// The numbers that the template reads from `body` must be those that the walk found. If they are not, the
    /// message has something twice, no template can know which one counts, and this one must not be added.
    pub fn new(body: &[u8], reader: &mut impl DraftedRead, facts: F) -> Option<(Self, SlotValues)> {
        let (words, parts) = draft::draw(body, reader)?.finish();
        let template = Self { head: *body.first_chunk()?, words, parts, facts };
        let numbers = template.fits(body)?;
        Some((template, numbers))
    }

    /// Whether `body` has this layout; with the numbers read from it.
    #[inline]
    fn fits(&self, body: &[u8]) -> Option<SlotValues> {
        let mut ends = [0usize; MAX_OPEN];
        let (mut open, mut at, mut numbers) = (0, self.head.len(), SlotValues::default());
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
                TemplateAction::Counted { least, more } => {
                    at += usize::from(more) + counted(body, at, usize::from(least))?;
                }
                TemplateAction::Regex => at += value_size(ElementKind::Regex, body.get(at..)?)?,
                TemplateAction::Truth { kind, nonzero } => {
                    let size = value_size(kind, body.get(at..)?)?;
                    let number = shape::number(kind, body.get(at..at + size)?)?;
                    if (number != 0.0) != nonzero {
                        return None;
                    }
                    at += size;
                }
                TemplateAction::Plain => {
                    if body.get(at + 4) == Some(&b'$') {
                        return None;
                    }
                    at += 4 + counted(body, at, 1)?;
                }
                TemplateAction::Number { kind, slot } => {
                    let size = value_size(kind, body.get(at..)?)?;
                    numbers.0[slot as usize] = integer(kind, slot, body.get(at..at + size)?);
                    at += size;
                }
                TemplateAction::Batch => {
                    let (end, documents) = batch_end(body, at)?;
                    numbers.0[NumberSlot::Documents as usize] = Some(documents);
                    at = end;
                }
                TemplateAction::Open => {
                    *ends.get_mut(open)? = at + document_at(body, at)?;
                    open += 1;
                    at += 4;
                }
                TemplateAction::Close => {
                    open -= 1;
                    if body.get(at) != Some(&0) || at + 1 != ends[open] {
                        return None;
                    }
                    at += 1;
                }
                TemplateAction::Leave => {
                    open -= 1;
                    if at >= ends[open] {
                        return None;
                    }
                    at = ends[open];
                }
                TemplateAction::Pass => at += document_at(body, at)?,
                TemplateAction::List(number) => at = list_end(body, at, number)?,
                TemplateAction::Section => {
                    *ends.get_mut(open)? = at + document_at(body, at)?;
                    open += 1;
                    at += 4;
                }
                TemplateAction::EndSection => {
                    open -= 1;
                    if at != ends[open] {
                        return None;
                    }
                }
                TemplateAction::Documents => {
                    open -= 1;
                    while at < ends[open] {
                        at += document_at(body, at)?;
                    }
                    if at != ends[open] {
                        return None;
                    }
                }
                TemplateAction::End(checksum) => {
                    return (at + usize::from(checksum) == body.len()).then_some(numbers);
                }
            }
        }
        None
    }
}

/// A number as it is reported: a cursor's id as it is, a count as a reply counts.
fn integer(kind: ElementKind, slot: NumberSlot, bytes: &[u8]) -> Option<i64> {
    match slot {
        NumberSlot::Cursor => bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)),
        NumberSlot::N | NumberSlot::Modified | NumberSlot::Documents => {
            count(kind, bytes).map(|count| count as i64)
        }
    }
}

/// The end of the array at `at`, if it contains only values with the placeholder of this number.
fn list_end(body: &[u8], at: usize, number: u8) -> Option<usize> {
    let end = at + document_at(body, at)?;
    let first = at + 4;
    let mut at = first;
    while *body.get(at)? != 0 {
        let kind = ElementKind::from_number(body[at])?;
        if matches!(kind, ElementKind::Document | ElementKind::Array) || shape::placeholder(kind).0 != number
        {
            return None;
        }
        let key = key_at(&body[at + 1..]).ok()??;
        at += 1 + key.bytes.len() + 1;
        at += value_size(kind, body.get(at..)?)?;
    }
    (at > first && at + 1 == end).then_some(end)
}

/// The end of the array at `at`, if it contains only documents, and their number.
fn batch_end(body: &[u8], at: usize) -> Option<(usize, i64)> {
    let end = at + document_at(body, at)?;
    let (mut at, mut documents) = (at + 4, 0);
    while *body.get(at)? != 0 {
        let (kind, _, value) = element_at(body, at)?;
        if kind != ElementKind::Document.number() {
            return None;
        }
        at = value + document_at(body, value)?;
        documents += 1;
    }
    (at + 1 == end).then_some((end, documents))
}

/// Whether the bytes from `at` to `end` are those of `words`: one for each eight bytes, and the last one for the
/// eight bytes before `end`. Without a branch for each word, as there are few and they mostly fit.
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

/// The number at `at`, which is the length of what follows it.
#[inline(always)]
fn counted(body: &[u8], at: usize, least: usize) -> Option<usize> {
    let length = i32::from_le_bytes(*body.get(at..)?.first_chunk()?);
    usize::try_from(length).ok().filter(|length| *length >= least)
}

/// A hash of what mostly distinguishes layouts: the command, its collection, the first keys of its first part, and
/// those of the first statement of a section. `None`: no template is wanted.
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
    match ElementKind::from_number(kind)? {
        ElementKind::String => {
            let size = counted(body, at, 1)?;
            outline = mix(outline, shape::hash::bytes(body.get(at + 4..at + 4 + size)?));
            next += 4 + size;
        }
        ElementKind::Document | ElementKind::Array => next += document_at(body, at)?,
        kind => next += value_size(kind, body.get(at..)?)?,
    }
    outline = first_keys(body, next, outline);
    let end = 5 + document_at(body, 5)?;
    if body.get(end) == Some(&1) {
        // The name of a section of documents or statements follows from the command, so the first one is skipped.
        let name = body.get(end + 5..)?;
        let document = end + 5 + key_at(name).ok()??.bytes.len() + 1;
        outline = first_keys(body, document + 4, outline);
        if let Some((ElementKind::Document | ElementKind::Array, _, at)) = element_at(body, document + 4)
            .and_then(|(kind, key, at)| Some((ElementKind::from_number(kind)?, key, at)))
        {
            outline = first_keys(body, at + document_at(body, at)?, outline);
        }
    }
    Some(outline)
}

/// Adds the first keys from `at` on, from the outermost document to the innermost.
#[inline]
fn first_keys(body: &[u8], mut at: usize, mut outline: u64) -> u64 {
    for _ in 0..4 {
        let Some((kind, key, value)) = element_at(body, at) else { break };
        outline = mix(outline ^ u64::from(kind), key);
        if kind != ElementKind::Document.number() && kind != ElementKind::Array.number() {
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

#[cfg(test)]
mod tests;
