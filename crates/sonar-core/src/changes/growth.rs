//! Collections that grew: one of the reasons for slower queries.

use std::collections::BTreeMap;

use super::change::{ChangeKind, GrowthChange, HistoryChange, SeriesChange};
use super::series_columns::columns;
use super::sides::{ComparedSpan, Sides};
use crate::history::{SeriesKey, SeriesSubject, metrics, namespace_of};

/// A collection or an index grew if it is larger by this share.
const MIN_GROWTH: f64 = 0.1;
/// A collection or an index that is smaller is not worth a look, in bytes.
const MIN_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// The first and the last value on one side.
type FirstAndLast = Option<(f64, f64)>;

/// The collections that grew, each with its indexes. Sizes are measured every few minutes: with `is_moment` growth within
/// the time before counts too, else only what grew since the last measurement.
pub(super) fn changes(sides: &Sides<'_>, is_moment: bool) -> Vec<HistoryChange> {
    let mut grown: BTreeMap<_, Vec<SeriesChange>> = BTreeMap::new();
    for (key, values) in sizes(sides) {
        let [Some((first, last)), Some((_, now))] = values else { continue };
        // Shortly before its own span a collection has hardly grown: there the first size counts.
        let before = if sides.is_adjacent { first } else { last };
        let is_new = !sides.is_adjacent || is_moment || now >= last * (1.0 + MIN_GROWTH / 2.0);
        if is_new && now > 0.0 && now >= before * (1.0 + MIN_GROWTH) {
            let range = (first.min(last), first.max(last));
            let score = now / before.max(1.0);
            let change = SeriesChange { key: key.clone(), before, range, after: now, score, judged: None };
            grown.entry((key.server, namespace_of(key))).or_default().push(change);
        }
    }
    let since = sides.span().from;
    let change =
        |((server, _), parts)| Some(HistoryChange::new(server, since, ChangeKind::Growth(joined(parts)?)));
    grown.into_iter().filter_map(change).collect()
}

/// Sizes by key, before and after.
fn sizes<'a>(sides: &Sides<'a>) -> Vec<(&'a SeriesKey, [FirstAndLast; 2])> {
    let is_size = |key: &SeriesKey| {
        matches!(key.subject, SeriesSubject::Collection | SeriesSubject::Index)
            && *key.metric != *metrics::COLLECTION_REUSABLE.name
    };
    let before = sides.windows(ComparedSpan::Before);
    let after = sides.windows(ComparedSpan::After).iter().chain(sides.later());
    columns(before.iter().chain(after), is_size, |window, sizes: &mut [FirstAndLast; 2], value| {
        let known = &mut sizes[usize::from(window >= before.len())];
        *known = Some((known.map_or(value.last, |(first, _)| first), value.last));
    })
}

/// What grew of one collection; `None` if none of it is large.
fn joined(mut parts: Vec<SeriesChange>) -> Option<GrowthChange> {
    let is_bytes = |one: &SeriesChange| *one.key.metric != *metrics::COLLECTION_DOCUMENTS.name;
    let is_large = |one: &SeriesChange| is_bytes(one) && one.after >= MIN_BYTES;
    let is_size = |one: &SeriesChange| *one.key.metric == *metrics::COLLECTION_SIZE.name;
    let of_documents = parts.iter().position(|one| is_size(one) && is_large(one));
    let most = || {
        let large = parts.iter().enumerate().filter(|(_, one)| is_large(one));
        large.max_by(|(_, a), (_, b)| (a.after - a.before).total_cmp(&(b.after - b.before))).map(|(at, _)| at)
    };
    let grown = parts.remove(of_documents.or_else(most)?);
    Some(GrowthChange { grown, parts })
}
