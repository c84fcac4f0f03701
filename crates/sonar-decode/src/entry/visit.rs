//! An [`Entry`] is a [`Visitor`]: it takes its own fields, and passes the elements of a command on to its
//! [`Request`].

use super::*;

impl<T: Text> Visitor for Entry<T> {
    #[inline]
    fn element(&mut self, key: Key<'_>, kind: Kind, value: Value<'_>) -> Step {
        match self.inside {
            Inside::Top => {
                // Before 3.6 a command that was too long is a plain string.
                let text_of_command = kind == Kind::String
                    && matches!(key.bytes.first(), Some(b'c' | b'q' | b'o' | b'u'))
                    && matches!(key.bytes, b"command" | b"query" | b"originatingCommand" | b"updateobj");
                if text_of_command && self.fields.op != Op::None {
                    self.completeness = Completeness::Cut;
                } else {
                    self.fields.scalar(key.bytes, kind, value);
                }
                Step::Next
            }
            Inside::Command { depth, begun } => {
                if depth == 0 {
                    if !begun {
                        let text = match (kind, value) {
                            (Kind::String, Value::Bytes(bytes)) => Some(bytes),
                            _ => None,
                        };
                        if self.is_cut(&key, kind) || !self.begin(&key, text) {
                            return Step::Leave;
                        }
                    }
                    match key.bytes {
                        b"$truncated" if self.is_cut(&key, kind) => return Step::Leave,
                        b"ntoreturn" | b"ntoskip" => {
                            self.fields.scalar(key.bytes, kind, value);
                        }
                        b"singleBatch" => {
                            let Value::Bytes(bytes) = value else { return Step::Next };
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
            Inside::Filter { depth } | Inside::Update { depth } => {
                if depth == 0 && self.is_cut(&key, kind) {
                    return Step::Leave;
                }
                if depth == 0 && key.bytes == b"$msg" && kind == Kind::String {
                    self.withheld = true;
                    (self.completeness, self.inside) = (Completeness::Cut, Inside::Top);
                    return Step::Leave;
                }
                self.note_filter();
                self.delegate(|request| request.element(key, kind, value), depth)
            }
            Inside::Section { section, .. } => {
                self.fields.in_section(section, key.bytes, kind, value);
                Step::Next
            }
            Inside::Oplog { object } => self.oplog_element(&key, value, object),
        }
    }

    fn open(&mut self, key: Key<'_>, array: bool) -> Opened {
        match self.inside {
            Inside::Top => self.top_open(&key, array),
            Inside::Command { depth, begun } => {
                if depth == 0 && !begun && !self.begin(&key, None) {
                    return Opened::Leave;
                }
                let opened = self.request.open(key, array);
                self.opened(opened)
            }
            Inside::Oplog { object: false } if key.bytes == b"o" && !array && self.applied == b'c' => {
                self.inside = Inside::Oplog { object: true };
                Opened::Enter
            }
            Inside::Oplog { .. } => Opened::Skip,
            Inside::Filter { .. } | Inside::Update { .. } => {
                self.note_filter();
                let opened = self.request.open(key, array);
                self.opened(opened)
            }
            Inside::Section { section, depth } => {
                if array {
                    return Opened::Skip;
                }
                let section = match (section, key.bytes) {
                    (Section::Locks, b"timeAcquiringMicros") => Section::LockWait,
                    (Section::Storage, b"timeWaitingMicros") => Section::StorageWait,
                    (section, _) => section,
                };
                self.inside = Inside::Section { section, depth: depth + 1 };
                Opened::Enter
            }
        }
    }

    fn close(&mut self) {
        match &mut self.inside {
            Inside::Top | Inside::Oplog { object: false } => self.inside = Inside::Top,
            Inside::Oplog { object } => *object = false,
            Inside::Command { depth: 0, begun: false } => {
                self.inside = Inside::Top;
                self.close_empty();
            }
            Inside::Command { depth: 0, .. } => {
                if self.fields.op == Op::Query || self.follows.is_some() {
                    // The query of the old protocol is a part of its own.
                    self.request.end_part();
                }
                self.note_cursor();
                self.inside = Inside::Top;
            }
            Inside::Filter { depth: 0 } | Inside::Update { depth: 0 } => {
                if matches!(self.inside, Inside::Filter { .. }) && self.filter == Filter::Absent {
                    self.filter = Filter::Empty;
                }
                self.request.end_part();
                self.inside = Inside::Top;
            }
            Inside::Command { depth, .. } | Inside::Filter { depth } | Inside::Update { depth } => {
                *depth -= 1;
                self.request.close();
            }
            Inside::Section { depth: 0, .. } => self.inside = Inside::Top,
            Inside::Section { section, depth } => {
                *depth -= 1;
                *section = match *section {
                    Section::LockWait => Section::Locks,
                    Section::StorageWait => Section::Storage,
                    other => other,
                };
            }
        }
    }
}

impl<T: Text> Entry<T> {
    #[inline]
    fn delegate(&mut self, element: impl FnOnce(&mut Request<T>) -> Step, depth: u32) -> Step {
        let step = element(&mut self.request);
        if step == Step::Leave {
            self.left(depth);
        }
        step
    }

    fn opened(&mut self, opened: Opened) -> Opened {
        match &mut self.inside {
            Inside::Command { depth, .. } | Inside::Filter { depth } | Inside::Update { depth } => {
                match opened {
                    Opened::Enter => *depth += 1,
                    Opened::Leave => {
                        let depth = *depth;
                        self.left(depth);
                    }
                    Opened::Skip | Opened::Count => {}
                }
            }
            _ => {}
        }
        opened
    }

    fn note_filter(&mut self) {
        if matches!(self.inside, Inside::Filter { .. }) {
            self.filter = Filter::Given;
        }
    }

    /// `op` and `ns` of an entry of the oplog, which stand before what it did.
    fn oplog_element(&mut self, key: &Key<'_>, value: Value<'_>, object: bool) -> Step {
        let Value::Bytes(bytes) = value else { return Step::Next };
        if object {
            // The first key of a command names it, if it is one.
            if self.applied == b'c' {
                self.applied = names::applied_command(key.bytes);
            }
            return Step::Next;
        }
        match (key.bytes, bytes) {
            (b"op", [letter]) if self.applied == 0 => self.applied = *letter,
            (b"ns", namespace) if self.fields.namespace.is_empty() => self.fields.set_namespace(namespace),
            _ => {}
        }
        Step::Next
    }

    /// The document at `depth` is passed over without being closed.
    fn left(&mut self, at: u32) {
        if at == 0 {
            self.inside = Inside::Top;
            return;
        }
        if let Inside::Command { depth, .. } | Inside::Filter { depth } | Inside::Update { depth } =
            &mut self.inside
        {
            *depth -= 1;
        }
    }
}
