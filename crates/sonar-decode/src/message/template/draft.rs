//! Draws the layout of a message that has been walked: the bytes that matter, and what is between them.

use sonar_core::operation::Opcode;

use super::layout::{
    FEW, MAX_LITERALS, MAX_OPEN, MAX_PARTS, TemplateAction, TemplatePart, Word, document_at,
};
use crate::bson::{
    BsonValue, ElementKind, ElementStep, Fed, Key, NumberSlot, Opened, Skimmer, Use, Visitor, key_at,
};
use crate::message::{Reply, Request};
use crate::shape;

/// A template in the making.
#[derive(Default)]
pub(super) struct Draft {
    literals: Vec<u8>,
    masks: Vec<u8>,
    parts: Vec<TemplatePart>,
    /// Where the bytes before the next action begin.
    from: usize,
    open: Vec<Container>,
    /// The numbers that are read.
    numbers: [bool; 4],
    /// No template can be made of this message.
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
    /// Elements that are documents and are only counted.
    documents: u32,
    /// How many of them had [`Use::Member`], all with this placeholder.
    members: u32,
    placeholder: u8,
}

impl Draft {
    fn act(&mut self, action: TemplateAction) {
        if self.literals.len() > MAX_LITERALS || self.parts.len() >= MAX_PARTS {
            self.unfit = true;
            return;
        }
        let length = (self.literals.len() - self.from) as u16;
        self.parts.push(TemplatePart { length, words: length.div_ceil(8), action });
        self.from = self.literals.len();
    }

    /// The words and the parts of the template.
    pub(super) fn finish(self) -> (Box<[Word]>, Box<[TemplatePart]>) {
        let (mut words, mut at) = (Vec::new(), 0);
        for part in &self.parts {
            let end = at + usize::from(part.length);
            for word in 1..=usize::from(part.words) {
                // The last word ends with the part, wherever it begins: bytes before the part are not compared,
                // others may be compared twice.
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

    /// Adds bytes to compare.
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
        self.act(TemplateAction::Open);
        self.open.push(Container { part, literals, elements: 0, documents: 0, members: 0, placeholder: 0 });
    }

    fn close(&mut self) {
        let Some(container) = self.open.pop() else { return };
        if container.elements > 0 && container.members == container.elements {
            self.replace_content(&container, TemplateAction::List(container.placeholder));
        } else if container.elements > 0 && container.documents == container.elements {
            self.replace_content(&container, TemplateAction::Batch);
            self.read_number(NumberSlot::Documents);
        } else {
            self.unfit |= container.members > FEW || container.documents > 0;
            self.act(TemplateAction::Close);
        }
    }

    /// Draws a container with all its content as one action.
    fn replace_content(&mut self, container: &Container, action: TemplateAction) {
        self.forget_content(container);
        if let Some(part) = self.parts.last_mut() {
            part.action = action;
        }
    }

    /// Removes what was drawn of the content of a container.
    fn forget_content(&mut self, container: &Container) {
        self.parts.truncate(container.part + 1);
        self.literals.truncate(container.literals);
        self.masks.truncate(container.literals);
        self.from = container.literals;
    }

    fn leave(&mut self) {
        self.open.pop();
        self.act(TemplateAction::Leave);
    }

    /// Type and key of an element.
    fn head(&mut self, kind: ElementKind, key: &Key<'_>) {
        if let Some(container) = self.open.last_mut() {
            container.elements += 1;
        }
        self.compare(&[kind.number()]);
        self.compare(key.bytes);
        self.compare(&[0]);
    }

    /// A value whose type alone matters.
    fn pass(&mut self, kind: ElementKind) {
        match kind.fixed_size() {
            Some(size) => {
                self.literals.resize(self.literals.len() + usize::from(size), 0);
                self.masks.resize(self.literals.len(), 0);
            }
            None => self.act(match kind {
                ElementKind::Regex => TemplateAction::Regex,
                ElementKind::Binary => TemplateAction::Counted { least: 0, more: 5 },
                ElementKind::DbPointer => TemplateAction::Counted { least: 1, more: 16 },
                // Its length counts itself.
                ElementKind::JavaScriptWithScope => TemplateAction::Counted { least: 14, more: 0 },
                _ => TemplateAction::Counted { least: 1, more: 4 },
            }),
        }
    }

    /// A value that matters.
    fn keep(&mut self, kind: ElementKind, value: BsonValue<'_>) {
        let BsonValue::Bytes(bytes) = value else {
            self.unfit = true;
            return;
        };
        if kind.fixed_size().is_some() {
            self.compare(bytes);
        } else if matches!(kind, ElementKind::String | ElementKind::Symbol) {
            self.compare(&(bytes.len() as u32 + 1).to_le_bytes());
            self.compare(bytes);
            self.compare(&[0]);
        } else {
            self.unfit = true;
        }
    }

    /// A number that is read.
    fn number(&mut self, kind: ElementKind, slot: NumberSlot) {
        self.read_number(slot);
        self.act(TemplateAction::Number { kind, slot });
    }

    /// A template cannot read a number that occurs twice.
    fn read_number(&mut self, slot: NumberSlot) {
        self.unfit |= std::mem::replace(&mut self.numbers[slot as usize], true);
    }

    /// A document that is only counted.
    fn document(&mut self) {
        self.act(TemplateAction::Pass);
        if let Some(container) = self.open.pop() {
            let container = Container { documents: container.documents + 1, ..container };
            if container.documents == container.elements {
                self.forget_content(&container);
            }
            self.open.push(container);
        }
    }

    fn member(&mut self, kind: ElementKind) {
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

/// Passes elements on to a reader, and derives the layout from its answers.
struct TemplateRecorder<'a, R> {
    reader: &'a mut R,
    draft: Draft,
}

impl<R: Visitor> Visitor for TemplateRecorder<'_, R> {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        let step = self.reader.element(key, kind, value);
        self.draft.head(kind, &key);
        match step {
            ElementStep::Next => self.draft.keep(kind, value),
            ElementStep::Using(Use::Type) => self.draft.pass(kind),
            ElementStep::Using(Use::Member) => self.draft.member(kind),
            ElementStep::Using(Use::Truth) => {
                let number = match value {
                    BsonValue::Bytes(bytes) => shape::number(kind, bytes),
                    BsonValue::Long => None,
                };
                match number {
                    Some(number) => self.draft.act(TemplateAction::Truth { kind, nonzero: number != 0.0 }),
                    None => self.draft.unfit = true,
                }
            }
            ElementStep::Using(Use::Plain) => self.draft.act(TemplateAction::Plain),
            ElementStep::Using(Use::Number(slot)) => self.draft.number(kind, slot),
            ElementStep::Leave => {
                self.draft.pass(kind);
                self.draft.leave();
            }
        }
        if self.draft.unfit { ElementStep::Leave } else { step }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        let opened = self.reader.open(key, array);
        self.draft.head(if array { ElementKind::Array } else { ElementKind::Document }, &key);
        match opened {
            Opened::Enter => self.draft.open(),
            Opened::Skip => self.draft.act(TemplateAction::Pass),
            Opened::Count => self.draft.document(),
            Opened::Leave => {
                self.draft.act(TemplateAction::Pass);
                self.draft.leave();
            }
        }
        if self.draft.unfit { Opened::Leave } else { opened }
    }

    fn close(&mut self) {
        self.reader.close();
        self.draft.close();
    }
}

/// Reads a message while a template of it is drawn.
pub trait DraftedRead: Visitor {
    /// Forgets everything; ready for an OP_MSG.
    fn begin(&mut self);
    /// Begins a section of kind 1. Returns how its documents are read; `None`: no template is made.
    fn begin_section(&mut self, name: &[u8]) -> Option<SectionLayout>;
    /// Begins a document of that section.
    fn begin_document(&mut self, section: SectionLayout);
    /// Ends it.
    fn end_document(&mut self);
}

/// How the documents of a section are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SectionLayout {
    /// Skipped.
    Documents,
    /// As statements.
    Statements,
    /// As namespaces.
    Namespaces,
}

impl DraftedRead for Request<()> {
    fn begin(&mut self) {
        self.reset(Opcode::Msg);
    }

    fn begin_section(&mut self, name: &[u8]) -> Option<SectionLayout> {
        match name {
            b"documents" => Some(SectionLayout::Documents),
            b"updates" | b"deletes" => Some(SectionLayout::Statements),
            b"ops" => {
                self.builder.set_command(shape::CommandKind::BulkWrite);
                Some(SectionLayout::Statements)
            }
            b"nsInfo" => Some(SectionLayout::Namespaces),
            _ => None,
        }
    }

    fn begin_document(&mut self, section: SectionLayout) {
        match section {
            SectionLayout::Statements => self.begin_statement(),
            SectionLayout::Namespaces => self.begin_namespace(),
            SectionLayout::Documents => {}
        }
    }

    fn end_document(&mut self) {
        self.end_part();
    }
}

/// A reply has one section.
impl DraftedRead for Reply {
    fn begin(&mut self) {
        self.reset();
    }

    fn begin_section(&mut self, _: &[u8]) -> Option<SectionLayout> {
        None
    }

    fn begin_document(&mut self, _: SectionLayout) {}

    fn end_document(&mut self) {}
}

/// Draws the layout of an OP_MSG; `None` if no template can express it.
pub(super) fn draw<R: DraftedRead>(body: &[u8], reader: &mut R) -> Option<Draft> {
    reader.begin();
    let mut skimmer = Skimmer::new();
    let mut recorder = TemplateRecorder { reader, draft: Draft::default() };
    let flags = body.first_chunk::<4>()?;
    let checksum = if flags[0] & 1 == 1 { 4 } else { 0 };
    let end = body.len().checked_sub(checksum)?;
    let mut at = 4;
    let mut document = |at: &mut usize, recorder: &mut TemplateRecorder<'_, R>| {
        recorder.draft.open();
        skimmer.reset();
        let fed = skimmer.feed(&body[*at..end], (end - *at) as u64, recorder);
        let Ok(Fed::Done(used)) = fed else { return None };
        // The skimmer does not report the end of the outermost document, so it is closed here if it was left.
        if !recorder.draft.open.is_empty() {
            recorder.draft.close();
        }
        *at += used;
        (!recorder.draft.unfit).then_some(())
    };
    while at < end {
        let kind = *body.get(at)?;
        // The kind of the first one is in the head of the template.
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
        recorder.draft.act(TemplateAction::Section);
        recorder.draft.compare(name.bytes);
        recorder.draft.compare(&[0]);
        at += 4 + name.bytes.len() + 1;
        let section = recorder.reader.begin_section(name.bytes).filter(|_| kind == 1)?;
        if section == SectionLayout::Documents {
            recorder.draft.act(TemplateAction::Documents);
            at = section_end;
            continue;
        }
        while at < section_end {
            recorder.reader.begin_document(section);
            document(&mut at, &mut recorder)?;
            recorder.reader.end_document();
        }
        recorder.draft.act(TemplateAction::EndSection);
    }
    recorder.draft.act(TemplateAction::End(checksum as u8));
    let TemplateRecorder { draft, .. } = recorder;
    (!draft.unfit).then_some(draft)
}
