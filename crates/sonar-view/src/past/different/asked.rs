//! Which operations are compared with the rest.

use sonar_core::history::{Resolution, Span};
use sonar_core::{Class, Role, Row, ShapeId, Timestamp};

use crate::past::{PastError, whole_windows};
use crate::queries::NamespaceFilter;

/// Which operations of a span are compared with the rest. Without a time and a latency: the slowest twentieth.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AskedDifference {
    /// They ended at this time or later; from the start of the span on without it.
    pub start: Option<Timestamp>,
    /// They ended before this time; until the end of the span without it.
    pub end: Option<Timestamp>,
    /// They took longer than so many nanoseconds.
    pub low_ns: Option<u64>,
    /// They took so many nanoseconds at most.
    pub high_ns: Option<u64>,
    /// Only operations of this shape are compared with each other.
    pub shape: Option<ShapeId>,
    /// Only operations of this namespace.
    pub namespace: Option<String>,
}

impl AskedDifference {
    /// The time of the operations, of a span that is read in windows of this resolution: whole windows.
    pub(super) fn time(&self, span: Span, resolution: Resolution) -> Result<Span, PastError> {
        let from = self.start.unwrap_or(span.from).max(span.from);
        let to = self.end.unwrap_or(span.to).min(span.to);
        if to <= from {
            return Err(PastError::WrongQuestion(
                "the operations to compare have no time within the span: choose start and end between from and to"
                    .to_owned(),
            ));
        }
        let whole = whole_windows(Span { from, to }, resolution);
        Ok(Span { from: whole.from.max(span.from), to: whole.to.min(span.to) })
    }

    /// Whether neither a time nor a latency was asked for.
    pub(super) const fn is_open(&self) -> bool {
        self.start.is_none() && self.end.is_none() && self.low_ns.is_none() && self.high_ns.is_none()
    }

    pub(super) fn filter(&self) -> OperationFilter {
        let namespace = self.namespace.clone().filter(|text| !text.is_empty());
        OperationFilter {
            shape: self.shape,
            namespace: namespace.map_or(NamespaceFilter::Any, NamespaceFilter::Exactly),
        }
    }
}

/// Which operations are compared with each other: those of users alone, unless a shape says otherwise.
pub(super) struct OperationFilter {
    shape: Option<ShapeId>,
    namespace: NamespaceFilter,
}

impl OperationFilter {
    /// Whether a row by shape is of these operations.
    pub fn wants(&self, row: &Row) -> bool {
        let shape = row.shape();
        let is_its_shape = match self.shape {
            Some(id) => row.role == Role::Served && shape.id == id,
            None => Self::wants_group(row),
        };
        is_its_shape && self.namespace.accepts(&shape.database, &shape.collection)
    }

    /// Whether rows by application and by client are of the same operations.
    pub fn is_of_all(&self) -> bool {
        self.shape.is_none() && self.namespace == NamespaceFilter::Any
    }

    /// Whether a row by application or by client is of these operations, if [`is_of_all`](Self::is_of_all).
    pub fn wants_group(row: &Row) -> bool {
        row.role == Role::Served && row.class == Class::User
    }
}
