//! What is wrong with a plan, in words.

use sonar_core::explain::{BoundWidth, ExplainFinding, ExplainStage, LocatedFinding, MaskedText};

use crate::kit::{Bytes, Count, Grouped, plural};

/// A filter, with its values if they were asked for.
pub(super) fn shown(text: &MaskedText, shows_values: bool) -> &str {
    if shows_values { &text.values } else { &text.masked }
}

fn documents(count: u64) -> String {
    format!("{} {}", Grouped(count), if count == 1 { "document" } else { "documents" })
}

fn bytes(count: u64) -> Bytes {
    Bytes(count as f64)
}

/// The stable name of a finding in JSON.
pub(super) const fn kind(finding: &ExplainFinding) -> &'static str {
    match finding {
        ExplainFinding::Failed(_) => "failed",
        ExplainFinding::CollectionScan { .. } => "collection_scan",
        ExplainFinding::WholeIndex { .. } => "whole_index",
        ExplainFinding::FetchFilter { .. } => "fetch_filter",
        ExplainFinding::Wasteful { .. } => "wasteful",
        ExplainFinding::Sort { .. } => "sort",
        ExplainFinding::Spilled { .. } => "spilled",
        ExplainFinding::DeepSkip(_) => "deep_skip",
        ExplainFinding::ForeignScan { .. } => "foreign_scan",
        ExplainFinding::CloseRival { .. } => "close_rival",
        ExplainFinding::FailedTrial(_) => "failed_trial",
        ExplainFinding::Replanned(_) => "replanned",
        ExplainFinding::Misestimated { .. } => "misestimated",
        ExplainFinding::Orphans(_) => "orphans",
        ExplainFinding::AllShards(_) => "all_shards",
        ExplainFinding::IndexFilter => "index_filter",
        ExplainFinding::PlannerLimit(_) => "planner_limit",
    }
}

/// A finding as a sentence.
pub(super) fn sentence(located: &LocatedFinding, shows_values: bool) -> String {
    let text = of(&located.finding, shows_values);
    located.shard.as_ref().map_or_else(|| text.clone(), |shard| format!("shard {shard}: {text}"))
}

fn of(finding: &ExplainFinding, shows_values: bool) -> String {
    match finding {
        ExplainFinding::Failed(why) => format!("the execution failed: {why}"),
        ExplainFinding::CollectionScan { is_whole, documents: read, kept } => {
            let reads = match is_whole {
                true => "COLLSCAN reads the whole collection",
                false => "COLLSCAN reads the collection until a limit is reached",
            };
            match (read, kept) {
                (Some(read), Some(kept)) => {
                    format!("{reads}: {}, of which it keeps {}", documents(*read), Grouped(*kept))
                }
                _ => format!("{reads}; it was not executed, so the number of documents is not known"),
            }
        }
        ExplainFinding::WholeIndex { is_whole, index, keys, kept } => {
            let (whole, end) = if *is_whole { ("whole ", "") } else { ("", " until a limit is reached") };
            let keys = Grouped(*keys);
            format!("IXSCAN goes through the {whole}index {index}{end}: {keys} keys for {}", documents(*kept))
        }
        ExplainFinding::FetchFilter { index, documents: fetched, kept, filter } => {
            let filter = filter.as_ref().map_or("", |filter| shown(filter, shows_values));
            let by = if index.is_empty() { String::new() } else { format!(" that {index} finds") };
            format!(
                "FETCH reads {}{by}, and {} of them match {filter}, which that index does not decide",
                documents(*fetched),
                Grouped(*kept)
            )
        }
        ExplainFinding::Wasteful { examined, returned } => {
            format!(
                "{} keys or documents are examined for {} returned",
                Grouped(*examined),
                Grouped(*returned)
            )
        }
        ExplainFinding::Sort { by_index, pattern, documents: sorted, memory_bytes } => {
            let sorted = sorted.map_or_else(String::new, |sorted| format!(" {}", documents(sorted)));
            let memory = memory_bytes.map_or_else(String::new, |memory| format!(" ({})", bytes(memory)));
            let why = if *by_index { ": no index that it uses delivers this order" } else { "" };
            let sorted = if sorted.is_empty() { " documents" } else { &sorted };
            format!("it sorts{sorted} by {pattern} in memory{memory}{why}")
        }
        ExplainFinding::Spilled { stage, bytes: spilled } => {
            let spilled = spilled.filter(|spilled| *spilled > 0);
            let what = spilled.map_or_else(String::new, |spilled| format!(" {}", bytes(spilled)));
            format!("{stage} did not fit into its memory and wrote{what} to the disk")
        }
        ExplainFinding::DeepSkip(skipped) => format!(
            "it reads {} only to skip them; ask for the range behind the last one of the page before instead",
            documents(*skipped)
        ),
        ExplainFinding::ForeignScan { namespace, field, scans, documents: read } => {
            let field = if field.is_empty() { String::new() } else { format!(" by {field}") };
            let scans = scans.map_or_else(String::new, |scans| format!(" {}", times(scans)));
            let read = read.map_or_else(String::new, |read| format!(", {}", documents(read)));
            ["$lookup", &field, " reads the whole collection ", namespace, &scans, &read].concat()
        }
        ExplainFinding::CloseRival { plan, ratio } => format!(
            "another plan ({plan}) was {} as productive in the trial, so the choice may change with the data",
            percent(*ratio)
        ),
        ExplainFinding::FailedTrial(plan) => format!("the plan {plan} failed in the trial"),
        ExplainFinding::Replanned(_) => {
            "the cached plan was given up, and the query planned again".to_owned()
        }
        ExplainFinding::Misestimated { stage, estimated, returned } => format!(
            "the planner expected {} of {stage}, which returned {}: its statistics do not fit the data",
            plural(Count(*estimated), "document"),
            Grouped(*returned)
        ),
        ExplainFinding::Orphans(count) => {
            format!("it read {} that belong to another shard (orphaned documents)", documents(*count))
        }
        ExplainFinding::AllShards(count) => {
            format!("the router asks {} shards: the query does not name one value of the shard key", count)
        }
        ExplainFinding::IndexFilter => "an index filter decides which indexes the planner may use".to_owned(),
        ExplainFinding::PlannerLimit(limit) => {
            format!("the planner stopped at a limit ({limit}), so a better plan may exist")
        }
    }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", Grouped(count)) }
}

fn percent(ratio: f64) -> String {
    format!("{:.0}%", ratio * 100.0)
}

/// What a stage does, beside its figures.
pub(super) fn details(stage: &ExplainStage, shows_values: bool) -> String {
    let mut parts = Vec::new();
    match (&stage.index, &stage.key_pattern) {
        (Some(index), Some(pattern)) => parts.push(format!("{index} {pattern}")),
        (Some(one), None) | (None, Some(one)) => parts.push(one.clone()),
        (None, None) => {}
    }
    if !stage.bounds.is_empty() {
        let bounds = stage.bounds.iter().map(|bound| {
            let width = match bound.width {
                _ if shows_values => bound.values.clone(),
                BoundWidth::All => "all".to_owned(),
                BoundWidth::Points(1) => "one value".to_owned(),
                BoundWidth::Points(count) => format!("{count} values"),
                BoundWidth::Ranges(1) => "a range".to_owned(),
                BoundWidth::Ranges(count) => format!("{count} ranges"),
            };
            format!("{}: {width}", bound.field)
        });
        parts.push(format!("bounds {}", bounds.collect::<Vec<_>>().join(", ")));
    }
    if let Some(foreign) = &stage.foreign {
        let on = match (foreign.local_field.as_str(), foreign.foreign_field.as_str()) {
            ("", "") => String::new(),
            ("", field) => format!(" by {field}"),
            (local, field) => format!(" where {field} = {local}"),
        };
        parts.push(format!("{}{on}", foreign.namespace));
        let by = foreign.indexes.as_ref().filter(|names| !names.is_empty()).map(|names| names.join(", "));
        parts.extend(by.map(|by| format!("by {by}")));
        parts.extend(Some(foreign.strategy.clone()).filter(|strategy| !strategy.is_empty()));
    } else if let Some(filter) = &stage.filter {
        parts.push(shown(filter, shows_values).to_owned());
    }
    parts.extend(stage.sort.as_ref().map(|sort| format!("by {sort}")));
    parts.extend(stage.limit.map(|limit| format!("limit {}", Grouped(limit))));
    parts.extend(stage.skip.map(|skip| format!("skip {}", Grouped(skip))));
    if stage.is_backward {
        parts.push("backward".to_owned());
    }
    parts.extend(stage.affected.map(|affected| format!("matched {}", Grouped(affected))));
    parts.extend(stage.memory_bytes.map(|memory| format!("memory {}", bytes(memory))));
    if stage.used_disk {
        parts.push(match stage.spilled_bytes.filter(|spilled| *spilled > 0) {
            Some(spilled) => format!("spilled {}", bytes(spilled)),
            None => "spilled".to_owned(),
        });
    }
    if stage.has_failed {
        parts.push("failed".to_owned());
    }
    parts.join(", ")
}
