//! What makes a row, and which text it shows.

use sonar_core::ShapeInfo;

/// How operations are grouped into rows.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Grouping {
    /// Server, role, class and query shape.
    #[default]
    Shape,
    /// As [`Grouping::Shape`], and the order of keys as sent. Needs windows that were split by it.
    Order,
    /// `db.collection`.
    Namespace,
    /// The client's application.
    App,
    /// The client's address.
    Client,
}

impl Grouping {
    /// All of them, in the order in which the live view offers them.
    pub const ALL: [Self; 5] = [Self::Shape, Self::Order, Self::Namespace, Self::App, Self::Client];

    /// The stable name in arguments and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Order => "order",
            Self::Namespace => "namespace",
            Self::App => "app",
            Self::Client => "client",
        }
    }
}

/// Which text of a shape is shown.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// Typed placeholders: `{filter: {city: ?string}, sort: {age: -1}}`.
    #[default]
    Typed,
    /// Every value and direction masked; shapes of equal text are one row.
    Plain,
}

impl Form {
    /// The stable name in arguments and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Typed => "typed",
            Self::Plain => "plain",
        }
    }

    /// The text of `shape` in this form, as it came: not escaped.
    pub fn of(self, shape: &ShapeInfo) -> &str {
        match self {
            Self::Typed => &shape.typed,
            Self::Plain => &shape.plain,
        }
    }
}
