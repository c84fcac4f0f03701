//! The answer of a report in one sentence: what takes the time, why, and what may help.

use sonar_core::{GroupBy, Row, Subject};

use super::{DigestView, index_hint, main_plan, names};
use crate::kit::{Grouped, Nanos, Percent, fit, plural};

/// The rows that matter take together at least this share of the time.
const MOST: f64 = 0.8;
/// More rows than this are no answer: then the largest of them are named with what they take.
const FEW: usize = 5;
/// A wait of at least this share of a row's time explains it.
const EXPLAINS: f64 = 0.5;
/// The most columns of a shape in the sentence; the rows have the whole text.
const SHAPE: usize = 100;

/// What takes the time, the row with the most of it, why, and the index that may help. `None` if no row took any
/// time. Rows behind the limit count too; `time` is that of all operations.
pub fn sentence(view: &DigestView<'_>) -> Option<String> {
    let mut rows: Vec<&Row> =
        view.matching.iter().map(|(_, row)| *row).filter(|row| !view.is_beside(row)).collect();
    rows.sort_by(|a, b| view.share(b).total_cmp(&view.share(a)));
    rows.retain(|row| view.share(row) > 0.0);
    let (largest, all) = (*rows.first()?, rows.len());
    if let Some(unknown) = mostly_unknown(view) {
        return Some(unknown);
    }
    let time = u64::try_from(view.totals.figures.latency.sum_ns()).unwrap_or(u64::MAX);
    let of = |rows: &[&Row]| rows.iter().map(|row| view.share(row)).sum::<f64>().min(1.0);
    let most = (1..=all).find(|few| of(&rows[..*few]) >= MOST).unwrap_or(all).min(FEW);
    let taken = format!("{:.1} of the time of all operations ({})", Percent(of(&rows[..most])), Nanos(time));
    let what = what(view, largest);
    let reason = reason(largest).map_or_else(String::new, |reason| format!(", {reason}"));
    let help = help(view, largest).map_or_else(String::new, |help| format!("; {help}"));
    let noun = noun(view.digest.settings.by);
    let nouns = |count: usize| plural(Grouped(count as u64), noun);
    let share = Percent(view.share(largest));
    let of_all = if most == all { nouns(all) } else { format!("The {most} largest of {}", nouns(all)) };
    Some(match (most, all) {
        (1, 1) => format!("One {noun} takes {taken}: {what}{reason}{help}."),
        (1, _) => format!("The largest of {} takes {taken}: {what}{reason}{help}.", nouns(all)),
        _ => format!("{of_all} take {taken}; the largest, {share:.1}: {what}{reason}{help}."),
    })
}

/// That the latencies of most operations are not known, as in a capture of requests alone, and which source knows more of
/// them; `None` if most are known.
fn mostly_unknown(view: &DigestView<'_>) -> Option<String> {
    let figures = &view.totals.figures;
    let (known, calls) = (figures.latency.count(), figures.calls);
    if known.saturating_mul(2) >= calls {
        return None;
    }
    let known_by =
        |source| view.digest.total.observed_by(source).map_or(0, |one| one.figures.latency.count());
    let better = view.summaries.iter().map(|one| (known_by(one.source), one.source));
    let better = better.filter(|(count, _)| *count > known).max_by_key(|(count, _)| *count);
    let better = better.map_or_else(String::new, |(count, source)| {
        format!("; the {} alone knows those of {}", source.name(), Grouped(count))
    });
    Some(format!(
        "Latencies are known of only {} of {}, so that it is not known what takes the time{better}.",
        Grouped(known),
        plural(Grouped(calls), "operation")
    ))
}

const fn noun(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Shape | GroupBy::Order => "shape",
        GroupBy::App => "application",
        other => other.name(),
    }
}

/// `find shop.orders {filter: {user: ?string}}`.
fn what(view: &DigestView<'_>, row: &Row) -> String {
    let (command, namespace, text) = names(row, view.form);
    let parts = [command, namespace, fit(&text, SHAPE)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What most of its operations did or waited for; `None` if nothing stands out, or if the row is a plan.
fn reason(row: &Row) -> Option<String> {
    if matches!(row.subject, Subject::Plan(_)) {
        return None;
    }
    let (server, calls) = (row.server(), row.executed().map_or(0, |(_, figures)| figures.calls));
    let is_most = |count: u64| count > 0 && count.saturating_mul(2) > calls;
    let is_only = server.plans.len() == 1 && main_plan(row) == "COLLSCAN";
    let scan = is_most(server.totals.collection_scans) || is_only;
    let doing = match (scan, is_most(server.totals.memory_sorts)) {
        (true, true) => Some("by a collection scan and a sort in memory"),
        (true, false) => Some("by a collection scan"),
        (false, true) => Some("with a sort in memory"),
        (false, false) => None,
    };
    let time_ns = row.executed().map_or(0, |(_, figures)| figures.latency.sum_ns()) as f64;
    let sums = &server.totals.sums;
    let wait = sums.waits().into_iter().next().filter(|wait| wait.total_ns as f64 >= EXPLAINS * time_ns);
    let waiting = wait.filter(|_| time_ns > 0.0).map(|wait| {
        format!("waiting for {} ({:.1})", wait.words, Percent((wait.total_ns as f64 / time_ns).min(1.0)))
    });
    match (doing, waiting) {
        (Some(doing), Some(waiting)) => Some(format!("{doing}, {waiting}")),
        (doing, waiting) => waiting.or_else(|| doing.map(str::to_owned)),
    }
}

/// The index that may help a row.
fn help(view: &DigestView<'_>, row: &Row) -> Option<String> {
    let wants = |one: &index_hint::Suggestion<'_>| one.rows.iter().any(|other| std::ptr::eq(*other, row));
    let one = index_hint::all(view).into_iter().find(wants)?;
    let (_, own, _) = names(row, view.form);
    let place = if one.hint.namespace == own { String::new() } else { format!(" on {}", one.hint.namespace) };
    Some(format!("an index {}{place} may help", one.hint.index))
}
