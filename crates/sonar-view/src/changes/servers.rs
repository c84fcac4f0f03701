//! Changes of a server as a whole, in words.

use sonar_core::changes::{ServerChange, ServerLevel, ServerMeasure};

use crate::kit::{Count, Percent, plural};

/// `queries rose from 8.60/s to 265/s`.
pub(super) fn sentence(change: &ServerChange) -> String {
    let levels: Vec<String> = change.levels.iter().map(level).collect();
    let new = plural(change.new_shapes, "new shape");
    match (levels.is_empty(), change.has_unusually_many_new_shapes) {
        (true, _) => format!("{new} of queries within a short time"),
        (false, true) => format!("the server as a whole: {}, with {new} of queries", levels.join(", ")),
        (false, false) => format!("the server as a whole: {}", levels.join(", ")),
    }
}

/// How many connections there are, if that changed.
pub(super) fn connections(change: &ServerChange) -> Option<String> {
    change.levels.iter().find(|one| one.measure == ServerMeasure::Connections).map(level)
}

fn level(level: &ServerLevel) -> String {
    let word = if level.after > level.before { "rose" } else { "fell" };
    let (before, after) = (show(level.measure, level.before), show(level.measure, level.after));
    format!("{} {word} from {before} to {after}", title(level.measure))
}

const fn title(measure: ServerMeasure) -> &'static str {
    match measure {
        ServerMeasure::Queries => "queries",
        ServerMeasure::InProgress => "operations in progress",
        ServerMeasure::Failed => "failed operations",
        ServerMeasure::Connections => "open connections",
    }
}

fn show(measure: ServerMeasure, value: f64) -> String {
    match measure {
        ServerMeasure::Queries | ServerMeasure::Failed => format!("{}/s", Count(value)),
        ServerMeasure::InProgress | ServerMeasure::Connections => Count(value).to_string(),
    }
}

pub(super) fn evidence(change: &ServerChange) -> Vec<String> {
    let mut lines: Vec<String> = change
        .levels
        .iter()
        .map(|level| {
            let (low, high) = level.range;
            let (low, high) = (show(level.measure, low), show(level.measure, high));
            format!("{} between {low} and {high} before", title(level.measure))
        })
        .collect();
    if change.new_shapes > 0 {
        let more = change.new_shapes.saturating_sub(change.new_names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!(
            "{} with {} of the operations: {}{more}",
            plural(change.new_shapes, "new shape"),
            Percent(change.new_share),
            change.new_names.join(", ")
        ));
    }
    if !change.applications.is_empty() {
        lines.push(format!("by {}", change.applications.join(", ")));
    }
    lines
}
