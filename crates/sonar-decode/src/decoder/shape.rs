//! Which shape is this request, and is it known already? Joins command, namespace and body to the ids,
//! and makes the texts of a shape that is met for the first time.
//!
//! What counts in a body, and how it reads, is [`shape`](crate::shape)'s; what all threads know is
//! [`Shared`](crate::Shared)'s.

use std::sync::Arc;

use sonar_core::{ShapeId, ShapeInfo, Statement};

use super::Core;
use super::request::Shape;
use crate::message::{Content, Request};
use crate::shape::{Builder, CommandKind, Rendered, Text, hash};

/// Statements of a mixed bulk whose text is shown.
const MAX_STATEMENT_TEXTS: usize = 16;

impl Core {
    /// The shape of a request; `body`, where it is at hand, is what it was read from.
    pub(super) fn shape<T: Text + IntoRendered>(
        &mut self,
        request: &mut Request<T>,
        body: Option<&[u8]>,
    ) -> Shape {
        let (ids, text) = ids_of(request);
        self.coverage.shapes_over_cap += u64::from(request.builder.over_cap);
        let statement_count = request.builder.statement_count.max(1);
        let shape = |info: &Arc<ShapeInfo>, statements| Shape {
            info: info.clone(),
            ordered_id: ids.ordered,
            statements,
            statement_count,
        };
        if let Some(info) = self.known.get(&ids.shape.0) {
            return shape(info, ids.statements);
        }
        if self.known.len() >= crate::shared::MAX_SHAPES {
            self.coverage.shapes_folded += 1;
            return shape(&self.other_shape, ids.statements);
        }
        let shared = self.shared.clone();
        let made = match body {
            // Seen for the first time, and its bytes are here: read again, this time with text.
            Some(body) => shared.shape(ids.shape, || {
                self.renderer.reset(request.opcode);
                self.body.begin(request.opcode, body.len() as u64);
                let _ = self.body.feed(body, &mut Content::Request(&mut self.renderer));
                info_of(&mut self.renderer)
            }),
            None => shared.shape(ids.shape, || info_with(request, &ids, text)),
        };
        let Some((info, cut)) = made else {
            self.coverage.shapes_folded += 1;
            return shape(&self.other_shape, ids.statements);
        };
        self.coverage.shapes_text_cut += u64::from(cut);
        self.known.insert(ids.shape.0, info.clone());
        shape(&info, ids.statements)
    }
}

/// Marks the two forms of text that a request may carry.
pub trait IntoRendered: Text {
    /// Takes the text out, if there is any.
    fn into_rendered(self) -> Rendered;
}

impl IntoRendered for () {
    fn into_rendered(self) -> Rendered {
        Rendered::default()
    }
}

impl IntoRendered for Rendered {
    fn into_rendered(self) -> Rendered {
        self
    }
}

/// The ids of a request.
#[derive(Debug)]
pub(crate) struct Ids {
    pub shape: ShapeId,
    pub ordered: ShapeId,
    pub statements: Arc<[Statement]>,
}

/// What every id of a request begins with: its command and namespace.
pub(crate) fn base_of<T: Text>(request: &Request<T>) -> u64 {
    let command = match request.kind {
        CommandKind::FindAndModify => b"findAndModify",
        CommandKind::MapReduce => b"mapReduce".as_slice(),
        _ => request.command.bytes(),
    };
    let command =
        hash::mix(hash::bytes(command), if request.explain { request.kind as u64 } else { u64::MAX });
    let namespace = hash::mix(hash::bytes(request.database.bytes()), hash::bytes(request.collection.bytes()));
    hash::mix(hash::mix(hash::SEED, command), namespace)
}

/// The ids of a request, and the text of its body where it is not made of statements. To be called once
/// for a request: it takes the body out of the builder.
pub(crate) fn ids_of<T: Text>(request: &mut Request<T>) -> (Ids, T) {
    let base = base_of(request);
    if !request.kind.has_statements() || request.builder.statements().is_empty() {
        let body = request.builder.finish();
        let ids = Ids {
            shape: ShapeId(hash::mix(base, body.unordered)),
            ordered: ShapeId(hash::mix(base, body.ordered)),
            statements: Arc::default(),
        };
        return (ids, body.text);
    }
    let namespaces = std::mem::take(&mut request.namespaces);
    let statements = request.builder.statements();
    let id = |hash_of: u64, namespace: Option<i64>| {
        let namespace = namespace.map(|index| {
            usize::try_from(index)
                .ok()
                .and_then(|index| namespaces.get(index))
                .map_or(0, |name| hash::bytes(name.bytes()))
        });
        hash::mix(base, namespace.map_or(hash_of, |namespace| hash::mix(namespace, hash_of)))
    };
    let ids = if let [one] = statements.as_slice() {
        Ids {
            shape: ShapeId(id(one.unordered, one.namespace)),
            ordered: ShapeId(id(one.ordered, one.namespace)),
            statements: Arc::default(),
        }
    } else {
        let mut shapes: Vec<Statement> = statements
            .iter()
            .map(|one| Statement { shape: ShapeId(id(one.unordered, one.namespace)), count: one.count })
            .collect();
        let ordered = Builder::<T>::mixed(statements.iter().map(|one| id(one.ordered, one.namespace)));
        shapes.sort_unstable_by_key(|one| one.shape);
        let mixed = Builder::<T>::mixed(shapes.iter().map(|one| one.shape.0));
        Ids {
            shape: ShapeId(hash::mix(base, mixed)),
            ordered: ShapeId(hash::mix(base, ordered)),
            statements: shapes.into(),
        }
    };
    request.namespaces = namespaces;
    (ids, T::default())
}

/// What is kept of a request's shape; the request must carry text.
pub(crate) fn info_of<T: Text + IntoRendered>(request: &mut Request<T>) -> ShapeInfo {
    let (ids, text) = ids_of(request);
    info_with(request, &ids, text)
}

/// The same, where the ids have been found already.
fn info_with<T: Text + IntoRendered>(request: &mut Request<T>, ids: &Ids, body: T) -> ShapeInfo {
    let mut parts: Vec<Rendered> = if request.kind.has_statements() {
        let statements = request.builder.statements();
        statements.iter_mut().map(|one| std::mem::take(&mut one.text).into_rendered()).collect()
    } else {
        Vec::new()
    };
    let text = match parts.len() {
        0 => body.into_rendered(),
        1 => parts.remove(0),
        _ => join_texts(parts),
    };
    ShapeInfo {
        id: ids.shape,
        command: request.command.text(),
        database: request.database.text(),
        collection: request.collection.text(),
        typed: text.typed.into(),
        plain: text.plain.into(),
        cut: text.cut,
        statements: ids.statements.iter().map(|one| one.shape).collect(),
    }
}

/// The text of a command of several statements, from theirs.
pub(crate) fn join_texts(mut parts: Vec<Rendered>) -> Rendered {
    let all = parts.len();
    parts.sort_by(|a, b| a.typed.cmp(&b.typed));
    parts.truncate(MAX_STATEMENT_TEXTS);
    let more = if all > parts.len() { "; …" } else { "" };
    let join = |form: fn(&Rendered) -> &str| {
        format!("[{}{more}]", parts.iter().map(form).collect::<Vec<_>>().join("; "))
    };
    Rendered {
        typed: join(|part| &part.typed),
        plain: join(|part| &part.plain),
        cut: parts.iter().any(|part| part.cut) || all > parts.len(),
    }
}
