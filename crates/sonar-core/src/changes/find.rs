//! Compares two spans of the history.

use super::change::{HistoryChanges, MAX_CHANGES};
use super::sides::{ChangeInput, Sides};
use super::{applications, causes, context, errors, growth, machine, series, servers, shapes};
use crate::history::Span;

/// Compares two spans of the history. `focus` is the moment asked for: what began there comes first.
pub fn find(input: &ChangeInput<'_>, focus: Option<Span>) -> HistoryChanges {
    let sides = Sides::new(input);
    let mut changes = shapes::changes(&sides);
    changes.extend(errors::changes(&sides));
    let of_servers = servers::changes(&sides, &changes);
    changes.extend(of_servers);
    let mut causes = applications::changes(&sides);
    causes.extend(growth::changes(&sides, focus.is_some()));
    causes.extend(machine::changes(&sides));
    let mut changes = causes::explain(&sides, causes, changes);
    let context = context::with_changes(&mut changes, series::changes(&sides));
    if focus.is_some() {
        changes.retain_mut(|change| causes::began_within(change, &sides));
    }
    causes::rank(&mut changes, focus, &sides);
    let left_out = changes.len().saturating_sub(MAX_CHANGES);
    changes.truncate(MAX_CHANGES);
    HistoryChanges { changes, context, left_out }
}
