//! What operations can differ in.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use sonar_core::{Application, Endpoint, ShapeId, ShapeInfo};

use crate::shown_part::ShownPart;

/// What operations can differ in, in the order of display where nothing else decides.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Dimension {
    Shape,
    Namespace,
    Command,
    Application,
    Client,
    Server,
    Plan,
    Outcome,
    SplitPart,
    Time,
}

impl Dimension {
    pub const ALL: [Self; 10] = [
        Self::Shape,
        Self::Namespace,
        Self::Command,
        Self::Application,
        Self::Client,
        Self::Server,
        Self::Plan,
        Self::Outcome,
        Self::SplitPart,
        Self::Time,
    ];

    /// The stable name in machine output, and the name in text.
    pub const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Shape => ["shape", "query shape"],
            Self::Namespace => ["namespace", "namespace"],
            Self::Command => ["command", "command"],
            Self::Application => ["application", "application"],
            Self::Client => ["client", "client"],
            Self::Server => ["server", "server"],
            Self::Plan => ["plan", "plan"],
            Self::Outcome => ["outcome", "outcome"],
            Self::SplitPart => ["part", "where their time went"],
            Self::Time => ["time", "time"],
        }
    }

    /// What its values are counted in.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::SplitPart => "ns",
            _ => "operations",
        }
    }

    /// Of which operations it speaks, and how they were estimated if any were; `None` if all were counted.
    pub fn basis(self, is_estimated: bool) -> Option<&'static str> {
        let estimated = match self {
            Self::Shape | Self::Namespace | Self::Command | Self::Server => return None,
            Self::Time => return Some("Compared with the rest of the same time alone."),
            Self::Plan => {
                return Some(
                    "Of operations whose plan a log has. A window keeps how many had each plan, not how long these took: \
                     they are divided in proportion in each window.",
                );
            }
            Self::SplitPart => {
                return Some(
                    "Shares of the time of operations that were traced inside the server. A window keeps it for all \
                     operations of a shape together: it is divided by how long they took.",
                );
            }
            Self::Application | Self::Client => {
                "A window keeps how many operations of a shape each of them had, and how long they took together: which of \
                 the selected ones they had is estimated from that."
            }
            Self::Outcome => {
                "A window keeps how many operations of a shape failed, not how long these took: they are divided in \
                 proportion in each window."
            }
        };
        is_estimated.then_some(estimated)
    }
}

/// How an operation ended.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum EndedAs {
    Succeeded,
    /// With an error of this code, 0 without one.
    Error(i32),
    Unknown,
}

/// A value of a dimension. Values of one dimension are of one variant; shapes, namespaces and commands are those of the shape.
#[derive(Clone, Debug)]
pub(super) enum DimensionValue {
    Shape(Arc<ShapeInfo>),
    Namespace(Arc<ShapeInfo>),
    Command(Arc<ShapeInfo>),
    Application(Arc<Application>),
    Client(IpAddr),
    Server(Endpoint),
    Plan(Box<str>),
    Outcome(EndedAs),
    Part(ShownPart),
    /// A part of the axis.
    Time(usize),
}

/// What makes two values the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ValueIdentity<'a> {
    Shape(ShapeId),
    Namespace(&'a str, &'a str),
    Command(&'a str),
    /// The name; without one whether it is not known, and the driver.
    Application(&'a str, bool, &'a str),
    Client(IpAddr),
    Server(Endpoint),
    Plan(&'a str),
    Outcome(EndedAs),
    Part(ShownPart),
    Time(usize),
}

impl DimensionValue {
    fn identity(&self) -> ValueIdentity<'_> {
        match self {
            Self::Shape(shape) => ValueIdentity::Shape(shape.id),
            Self::Namespace(shape) => ValueIdentity::Namespace(&shape.database, &shape.collection),
            Self::Command(shape) => ValueIdentity::Command(&shape.command),
            Self::Application(app) if !app.name.is_empty() => {
                ValueIdentity::Application(&app.name, false, "")
            }
            Self::Application(app) if app.joined_late => ValueIdentity::Application("", true, ""),
            Self::Application(app) => ValueIdentity::Application("", false, &app.driver),
            Self::Client(ip) => ValueIdentity::Client(*ip),
            Self::Server(server) => ValueIdentity::Server(*server),
            Self::Plan(plan) => ValueIdentity::Plan(plan),
            Self::Outcome(outcome) => ValueIdentity::Outcome(*outcome),
            Self::Part(part) => ValueIdentity::Part(*part),
            Self::Time(place) => ValueIdentity::Time(*place),
        }
    }
}

impl PartialEq for DimensionValue {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for DimensionValue {}

impl PartialOrd for DimensionValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DimensionValue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_are_the_same_by_their_names_whatever_their_drivers() {
        let app = |name: &str, driver: &str, joined_late| {
            let (name, driver) = (name.into(), driver.into());
            DimensionValue::Application(Arc::new(Application {
                name,
                driver,
                joined_late,
                ..Application::default()
            }))
        };
        assert_eq!(app("shop", "PyMongo", false), app("shop", "Node", false));
        assert_ne!(app("", "PyMongo", false), app("", "Node", false));
        assert_eq!(app("", "", true), app("", "Node", true));
        assert_ne!(app("", "", true), app("", "", false));
    }

    #[test]
    fn the_place_of_a_dimension_is_its_number() {
        for (at, dimension) in Dimension::ALL.into_iter().enumerate() {
            assert_eq!(dimension as usize, at);
        }
    }
}
