//! An [`Entry`] is a [`Visitor`]: it takes its own fields, and passes the elements of a command on to its
//! [`Request`].

use super::*;

impl<T: Text> Visitor for Entry<T> {
    #[inline]
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        match self.inside {
            EntryPlace::Top if self.in_cursor && key.bytes != b"originatingCommand" => ElementStep::Next,
            EntryPlace::Top => {
                // Before 3.6 a command that was too long is a plain string.
                let text_of_command = kind == ElementKind::String
                    && matches!(key.bytes.first(), Some(b'c' | b'q' | b'o' | b'u'))
                    && matches!(key.bytes, b"command" | b"query" | b"originatingCommand" | b"updateobj");
                if text_of_command && self.fields.op != Op::None {
                    self.completeness = Completeness::Cut;
                } else {
                    self.fields.scalar(key.bytes, kind, value);
                }
                ElementStep::Next
            }
            EntryPlace::Command { depth, begun } => {
                if depth == 0 {
                    if !begun {
                        let text = match (kind, value) {
                            (ElementKind::String, BsonValue::Bytes(bytes)) => Some(bytes),
                            _ => None,
                        };
                        if self.is_cut(&key, kind) || !self.begin(&key, text) {
                            return ElementStep::Leave;
                        }
                    }
                    match key.bytes {
                        b"$truncated" if self.is_cut(&key, kind) => return ElementStep::Leave,
                        b"ntoreturn" | b"ntoskip" => {
                            self.fields.scalar(key.bytes, kind, value);
                        }
                        b"comment" => self.fields.set_comment(kind, value),
                        b"singleBatch" => {
                            let BsonValue::Bytes(bytes) = value else { return ElementStep::Next };
                            self.single_batch = crate::shape::number(kind, bytes) == Some(1.0);
                        }
                        _ => {}
                    }
                }
                let step = self.delegate(|request| request.element(key, kind, value), depth);
                if std::mem::take(&mut self.collection_unproven) {
                    self.request.set_collection(self.fields.split_namespace().1);
                }
                step
            }
            EntryPlace::Filter { depth } | EntryPlace::Update { depth } => {
                if depth == 0 && self.is_cut(&key, kind) {
                    return ElementStep::Leave;
                }
                if depth == 0 && key.bytes == b"$msg" && kind == ElementKind::String {
                    self.withheld = true;
                    (self.completeness, self.inside) = (Completeness::Cut, EntryPlace::Top);
                    return ElementStep::Leave;
                }
                self.note_filter();
                self.delegate(|request| request.element(key, kind, value), depth)
            }
            EntryPlace::EntrySection { section, .. } => {
                self.fields.in_section(section, key.bytes, kind, value);
                ElementStep::Next
            }
            EntryPlace::Oplog { object } => self.oplog_element(&key, value, object),
        }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        match self.inside {
            EntryPlace::Top => self.top_open(&key, array),
            EntryPlace::Command { depth, begun } => {
                if depth == 0 && !begun && !self.begin(&key, None) {
                    return Opened::Leave;
                }
                let opened = self.request.open(key, array);
                self.opened(opened)
            }
            EntryPlace::Oplog { object: false } if key.bytes == b"o" && !array && self.applied == b'c' => {
                self.inside = EntryPlace::Oplog { object: true };
                Opened::Enter
            }
            EntryPlace::Oplog { .. } => Opened::Skip,
            EntryPlace::Filter { .. } | EntryPlace::Update { .. } => {
                self.note_filter();
                let opened = self.request.open(key, array);
                self.opened(opened)
            }
            EntryPlace::EntrySection { section, depth } => {
                let is_chain = section == EntrySection::Views && key.bytes == b"dependencyChain";
                if array && !is_chain {
                    return Opened::Skip;
                }
                let section = match (section, key.bytes) {
                    (EntrySection::Views, b"dependencyChain") => EntrySection::ViewChain,
                    (EntrySection::Locks, b"timeAcquiringMicros") => EntrySection::LockWait,
                    (EntrySection::Storage, b"timeWaitingMicros") => EntrySection::StorageWait,
                    (section, _) => section,
                };
                self.inside = EntryPlace::EntrySection { section, depth: depth + 1 };
                Opened::Enter
            }
        }
    }

    fn close(&mut self) {
        match &mut self.inside {
            EntryPlace::Top => self.in_cursor = false,
            EntryPlace::Oplog { object: false } => self.inside = EntryPlace::Top,
            EntryPlace::Oplog { object } => *object = false,
            EntryPlace::Command { depth: 0, begun: false } => {
                self.inside = EntryPlace::Top;
                self.close_empty();
            }
            EntryPlace::Command { depth: 0, .. } => {
                if self.fields.op == Op::Query || self.follows.is_some() {
                    // The query of the old protocol is a part of its own.
                    self.request.end_part();
                }
                self.note_cursor();
                self.inside = EntryPlace::Top;
            }
            EntryPlace::Filter { depth: 0 } | EntryPlace::Update { depth: 0 } => {
                if matches!(self.inside, EntryPlace::Filter { .. }) && self.filter == OldFilter::Absent {
                    self.filter = OldFilter::Empty;
                }
                self.request.end_part();
                self.inside = EntryPlace::Top;
            }
            EntryPlace::Command { depth, .. }
            | EntryPlace::Filter { depth }
            | EntryPlace::Update { depth } => {
                *depth -= 1;
                self.request.close();
            }
            EntryPlace::EntrySection { depth: 0, .. } => self.inside = EntryPlace::Top,
            EntryPlace::EntrySection { section, depth } => {
                *depth -= 1;
                *section = match *section {
                    EntrySection::LockWait => EntrySection::Locks,
                    EntrySection::StorageWait => EntrySection::Storage,
                    EntrySection::ViewChain => EntrySection::Views,
                    other => other,
                };
            }
        }
    }
}

impl<T: Text> Entry<T> {
    #[inline]
    fn delegate(&mut self, element: impl FnOnce(&mut Request<T>) -> ElementStep, depth: u32) -> ElementStep {
        let step = element(&mut self.request);
        if step == ElementStep::Leave {
            self.left(depth);
        }
        step
    }

    fn opened(&mut self, opened: Opened) -> Opened {
        match &mut self.inside {
            EntryPlace::Command { depth, .. }
            | EntryPlace::Filter { depth }
            | EntryPlace::Update { depth } => match opened {
                Opened::Enter => *depth += 1,
                Opened::Leave => {
                    let depth = *depth;
                    self.left(depth);
                }
                Opened::Skip | Opened::Count => {}
            },
            _ => {}
        }
        opened
    }

    fn note_filter(&mut self) {
        if matches!(self.inside, EntryPlace::Filter { .. }) {
            self.filter = OldFilter::Given;
        }
    }

    /// `op` and `ns` of an entry of the oplog, which come before the change.
    fn oplog_element(&mut self, key: &Key<'_>, value: BsonValue<'_>, object: bool) -> ElementStep {
        let BsonValue::Bytes(bytes) = value else { return ElementStep::Next };
        if object {
            // The first key of a command names it, if it is one.
            if self.applied == b'c' {
                self.applied = names::applied_command(key.bytes);
            }
            return ElementStep::Next;
        }
        match (key.bytes, bytes) {
            (b"op", [letter]) if self.applied == 0 => self.applied = *letter,
            (b"ns", namespace) if self.fields.namespace.is_empty() => self.fields.set_namespace(namespace),
            _ => {}
        }
        ElementStep::Next
    }

    /// The document at `depth` is left without being closed.
    fn left(&mut self, at: u32) {
        if at == 0 {
            self.inside = EntryPlace::Top;
            return;
        }
        if let EntryPlace::Command { depth, .. }
        | EntryPlace::Filter { depth }
        | EntryPlace::Update { depth } = &mut self.inside
        {
            *depth -= 1;
        }
    }
}
