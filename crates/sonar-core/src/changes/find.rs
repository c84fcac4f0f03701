//! Compares two spans of the history.

use super::change::{HistoryChanges, MAX_CHANGES};
use super::holds::holds;
use super::sides::{ChangeInput, ComparisonKind, Sides};
use super::{applications, causes, context, errors, events, growth, machine, series, servers, shapes};

/// Compares two spans of the history.
pub fn find(input: &ChangeInput<'_>, kind: ComparisonKind) -> HistoryChanges {
    let sides = Sides::new(input);
    let mut changes = shapes::changes(&sides, &holds(&sides));
    changes.extend(errors::changes(&sides));
    let of_servers = servers::changes(&sides, &changes);
    changes.extend(of_servers);
    let mut causes = applications::changes(&sides);
    causes.extend(growth::changes(&sides, kind == ComparisonKind::Moment));
    causes.extend(machine::changes(&sides));
    let mut changes = causes::explain(&sides, causes, changes);
    let context = context::with_changes(&mut changes, series::changes(&sides));
    changes.retain_mut(|change| causes::began_within(change, kind, &sides));
    changes.iter_mut().for_each(|change| change.measured_in(sides.span()));
    events::sort(&mut changes);
    let left_out = changes.len().saturating_sub(MAX_CHANGES);
    changes.truncate(MAX_CHANGES);
    HistoryChanges { changes, context, left_out }
}
