//! What to show: which operations, how they are grouped, in which order.

use std::sync::Arc;

use sonar_core::{Baseline, Class, Operation, Role, ShapeInfo};

use crate::kit::Reason;
use crate::kit::Zone;
use crate::queries::column::Sort;
use crate::queries::grouping::{Form, Grouping};

/// A set of classes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ClassSet(u8);

impl ClassSet {
    /// User operations alone: the default of totals.
    pub const USER: Self = Self(1 << Class::User as u8);
    /// All classes.
    pub const ALL: Self = Self((1 << Class::ALL.len()) - 1);

    /// Whether `class` is in the set.
    pub const fn contains(self, class: Class) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    /// The classes in the set, in the order of display.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |&class| self.contains(class))
    }

    /// `all`, or the names with `+` between them.
    pub fn label(self) -> String {
        if self == Self::ALL {
            return "all".to_string();
        }
        self.iter().map(Class::name).collect::<Vec<_>>().join("+")
    }
}

impl Default for ClassSet {
    fn default() -> Self {
        Self::USER
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        Self(classes.into_iter().fold(0, |set, class| set | (1 << class as u8)))
    }
}

/// Which namespaces are shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NamespaceFilter {
    /// All.
    #[default]
    Any,
    /// Those that begin with this: a database, or the beginning of `db.collection`.
    Prefix(String),
    /// This one alone.
    Exactly(String),
}

impl NamespaceFilter {
    /// Whether a namespace is to be shown.
    pub fn accepts(&self, database: &str, collection: &str) -> bool {
        let strip = |text: &'_ str| -> Option<usize> {
            // The rest of `text` after what the namespace `database.collection` holds of it.
            let rest = text.strip_prefix(database)?;
            if collection.is_empty() {
                return Some(rest.len());
            }
            Some(rest.strip_prefix('.')?.strip_prefix(collection)?.len())
        };
        match self {
            Self::Any => true,
            Self::Exactly(text) => strip(text) == Some(0),
            Self::Prefix(text) => match text.strip_prefix(database) {
                None => database.starts_with(text.as_str()),
                Some("") => true,
                Some(rest) => rest.strip_prefix('.').is_some_and(|rest| collection.starts_with(rest)),
            },
        }
    }

    /// The text of the filter; empty for all.
    pub fn text(&self) -> &str {
        match self {
            Self::Any => "",
            Self::Prefix(text) | Self::Exactly(text) => text,
        }
    }
}

/// Which rows are shown, and how.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// What makes a row.
    pub by: Grouping,
    /// Classes that rows and totals include.
    pub classes: ClassSet,
    /// The role that rows and totals include; `None` for all.
    pub role: Option<Role>,
    /// Which text of a shape is shown.
    pub form: Form,
    /// Rows whose command, namespace, shape text, shape id or name does not hold this are left out;
    /// case does not matter. Empty for all. Totals ignore it.
    pub text: String,
    /// Which namespaces are shown. Rows by application and by client have none and ignore it; so do
    /// totals.
    pub namespace: NamespaceFilter,
    /// Order of the rows.
    pub sort: Sort,
    /// The most rows; `None` for all.
    pub limit: Option<usize>,
    /// The baseline that marks rows as new or slower; rows by application and by client have no marks.
    pub baseline: Option<Arc<Baseline>>,
    /// Rows tell where the time of their operations went.
    pub has_splits: bool,
    /// The windows hold the rows of one of several servers, but figures that are not by server are of all of them.
    pub is_one_server: bool,
    /// In which zone times are shown.
    pub zone: Zone,
}

impl Selection {
    /// Whether rows and totals include operations of this role and class.
    pub fn wants(&self, role: Role, class: Class) -> bool {
        self.hides(role, class).is_none()
    }

    /// Why operations of this role and class are left out, if they are.
    pub fn hides(&self, role: Role, class: Class) -> Option<Reason> {
        match (self.role.is_none_or(|wanted| wanted == role), self.classes.contains(class)) {
            (true, true) => None,
            (true, false) => Some(Reason::Class),
            (false, true) => Some(Reason::Role),
            (false, false) => Some(Reason::RoleAndClass),
        }
    }

    /// Whether an operation is shown, by class, role, namespace and text (its command as sent, or any text of its
    /// shape's row).
    pub fn accepts(&self, op: &Operation<'_>) -> bool {
        self.refuses(op).is_none()
    }

    /// Why an operation is left out, if it is.
    pub fn refuses(&self, op: &Operation<'_>) -> Option<Reason> {
        self.hides(op.role, op.class).or_else(|| match self.refuses_shape(op.shape) {
            Some(Reason::Filter) if holds(op.command, &self.text) => None,
            reason => reason,
        })
    }

    fn wants_namespace(&self, shape: &ShapeInfo) -> bool {
        self.namespace.accepts(&shape.database, &shape.collection)
    }

    /// Why the row of a shape is left out, if it is.
    pub(crate) fn refuses_shape(&self, shape: &ShapeInfo) -> Option<Reason> {
        if !self.wants_namespace(shape) {
            return Some(Reason::Namespace);
        }
        let texts = || {
            [&*shape.command, &*shape.namespace(), &*shape.typed, &*shape.plain, &*shape.id.to_string()]
                .into_iter()
                .any(|text| holds(text, &self.text))
        };
        (!self.text.is_empty() && !texts()).then_some(Reason::Filter)
    }
}

/// Whether `text` holds `wanted`, whatever their case.
pub(crate) fn holds(text: &str, wanted: &str) -> bool {
    wanted.is_empty() || text.to_lowercase().contains(&wanted.to_lowercase())
}
