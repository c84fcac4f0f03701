//! What decides the id of a shape? Its command, its namespace and its body. If the source has only a part of these,
//! the id says so too.
//!
//! What counts in a body is decided by [`shape`](crate::shape). A change to any id needs a new
//! `RULES_VERSION` in `sonar_core::shape`.

use std::sync::Arc;

use sonar_core::shape::UNKNOWN;
use sonar_core::{Identity, ShapeId, ShapeInfo, Statement};

use crate::message::Request;
use crate::shape::{Builder, CommandKind, Rendered, StatementBody, Text, hash};

/// The most statements of a mixed bulk whose text is shown.
const MAX_STATEMENT_TEXTS: usize = 16;

/// These mark the ids of shapes that are not known in full; part of the rules.
const PARTIAL: u64 = hash::tag(40);
const AMBIGUOUS: u64 = hash::tag(41);
const UNSAID: u64 = hash::tag(42);

/// The two forms of text that a request may carry: none, or the rendered one.
pub(crate) trait MaybeRendered: Text {
    /// The text; empty where there is none.
    fn into_rendered(self) -> Rendered;
}

impl MaybeRendered for () {
    fn into_rendered(self) -> Rendered {
        Rendered::default()
    }
}

impl MaybeRendered for Rendered {
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
    let command = command_of(request);
    with_namespace(command, request.database.bytes(), request.collection.bytes())
}

fn command_of<T: Text>(request: &Request<T>) -> u64 {
    let command = match request.kind {
        CommandKind::FindAndModify => b"findAndModify",
        CommandKind::MapReduce => b"mapReduce".as_slice(),
        _ => request.command.bytes(),
    };
    hash::mix(hash::bytes(command), if request.explain { request.kind as u64 } else { u64::MAX })
}

fn with_namespace(command: u64, database: &[u8], collection: &[u8]) -> u64 {
    let namespace = hash::mix(hash::bytes(database), hash::bytes(collection));
    hash::mix(hash::mix(hash::SEED, command), namespace)
}

/// The ids of a request, and the text of its body unless that is made of statements. Call it once for a request: it
/// takes the body out of the builder.
pub(crate) fn ids_of<T: Text>(request: &mut Request<T>) -> (Ids, T) {
    request.settle_namespace();
    let base = base_of(request);
    if !request.is_known {
        let body = request.builder.finish();
        let shape = ShapeId(hash::mix(PARTIAL, hash::mix(base, body.unordered)));
        return (Ids { shape, ordered: ShapeId(0), statements: Arc::default() }, body.text);
    }
    if !request.kind.has_statements() || request.builder.statements().is_empty() {
        let body = request.builder.finish();
        let ids = Ids {
            shape: ShapeId(hash::mix(base, body.unordered)),
            ordered: ShapeId(hash::mix(base, body.ordered)),
            statements: Arc::default(),
        };
        return (ids, body.text);
    }
    let command = command_of(request);
    let is_bulk = request.kind == CommandKind::BulkWrite;
    let namespaces = std::mem::take(&mut request.namespaces);
    let statements = request.builder.statements();
    // A statement of a bulkWrite has one id, whatever other namespaces are beside its own.
    let id = |hash_of: u64, namespace: Option<i64>| match namespace {
        None => hash::mix(base, hash_of),
        Some(index) => match namespaces.get(index) {
            Some(name) => {
                let (database, collection) = split(name.bytes());
                hash::mix(with_namespace(command, database, collection), hash_of)
            }
            None => hash::mix(base, hash::mix(0, hash_of)),
        },
    };
    let statement = |one: &StatementBody<T>| Statement {
        shape: ShapeId(id(one.unordered, one.namespace)),
        count: one.count,
        write: one.write,
    };
    let ids = if let [one] = statements.as_slice() {
        Ids {
            shape: ShapeId(id(one.unordered, one.namespace)),
            ordered: ShapeId(id(one.ordered, one.namespace)),
            // The name of the command does not tell what its statements do.
            statements: if is_bulk { [statement(one)].into() } else { Arc::default() },
        }
    } else {
        let shapes = statements.iter().map(statement);
        mixed(base, shapes.collect(), statements.iter().map(|one| id(one.ordered, one.namespace)))
    };
    request.namespaces = namespaces;
    (ids, T::default())
}

/// The ids of a command with statements of several shapes. `ordered` are their ordered ids as sent.
pub(crate) fn mixed(base: u64, mut shapes: Vec<Statement>, ordered: impl Iterator<Item = u64>) -> Ids {
    let ordered = Builder::<()>::mixed(ordered);
    shapes.sort_unstable_by_key(|one| one.shape);
    let unordered = Builder::<()>::mixed(shapes.iter().map(|one| one.shape.0));
    Ids {
        shape: ShapeId(hash::mix(base, unordered)),
        ordered: ShapeId(hash::mix(base, ordered)),
        statements: shapes.into(),
    }
}

/// The id of a shape that is known as exactly as `identity` says. `readable` is the id of what can be read of
/// it; `server_hash` is the server's own hash of the query, empty where there is none. Both distinguish the
/// partial shapes of one command and namespace.
pub(crate) fn id_in_part(identity: Identity, base: u64, readable: ShapeId, server_hash: &[u8]) -> ShapeId {
    ShapeId(match identity {
        Identity::Exact => readable.0,
        Identity::Partial if server_hash.is_empty() => hash::mix(PARTIAL, readable.0),
        Identity::Partial => hash::mix(PARTIAL, hash::mix(base, hash::bytes(server_hash))),
        Identity::Ambiguous => hash::mix(AMBIGUOUS, base),
        Identity::Unknown => hash::mix(UNSAID, base),
    })
}

/// The shape of a request, which must carry text.
pub(crate) fn info_of<T: Text + MaybeRendered>(request: &mut Request<T>) -> ShapeInfo {
    let (ids, text) = ids_of(request);
    info_with(request, &ids, text)
}

/// Like [`info_of`], with ids and text that [`ids_of`] returned.
pub(crate) fn info_with<T: Text + MaybeRendered>(request: &mut Request<T>, ids: &Ids, body: T) -> ShapeInfo {
    let mut parts: Vec<Rendered> = if request.kind.has_statements() {
        let Request { builder, namespaces, collection, .. } = request;
        let taken = |one: &mut StatementBody<T>| {
            let text = std::mem::take(&mut one.text).into_rendered();
            let index = one.namespace.filter(|_| collection.bytes().is_empty());
            match index.and_then(|index| namespaces.get(index)) {
                Some(namespace) => text.of_namespace(&namespace.text()),
                None => text,
            }
        };
        builder.statements().iter_mut().map(taken).collect()
    } else {
        Vec::new()
    };
    let text = match parts.len() {
        _ if !request.is_known => Rendered { typed: UNKNOWN.into(), plain: UNKNOWN.into(), cut: false },
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
        statements: match &*ids.statements {
            [_] => Box::default(),
            all => all.iter().map(|one| one.shape).collect(),
        },
    }
}

/// Database and collection.
fn split(namespace: &[u8]) -> (&[u8], &[u8]) {
    let dot = memchr::memchr(b'.', namespace).unwrap_or(namespace.len());
    (&namespace[..dot], namespace.get(dot + 1..).unwrap_or_default())
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
