//! What each source saw of each shape on both sides of a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::commands;
use super::holds::{Hold, Waited, is_write};
use super::sides::{ComparedSpan, SOURCES, SeenServer, Sides, served};
use super::splits::ShapeSplits;
use super::stalls::{MIN_STALL_NS, Stall, StallTest};
use crate::figures::{Apps, Figures};
use crate::history::HistoryWindow;
use crate::time_split::RowSplit;
use crate::{Endpoint, Histogram, Identity, ShapeId, ShapeInfo, Subject};

/// One shape on one server, as one source saw it: figures by side, with the index of the window.
pub(super) struct ShapeTrack<'a> {
    pub server: Endpoint,
    pub shape: &'a Arc<ShapeInfo>,
    /// By place in [`SOURCES`].
    pub sources: [BySide<'a>; SOURCES.len()],
    pub apps: Vec<(ComparedSpan, &'a Apps)>,
    /// Where the time of its operations went, with the index of the window.
    pub splits: Vec<(ComparedSpan, usize, &'a RowSplit)>,
}

#[derive(Default)]
pub(super) struct BySide<'a> {
    pub before: Vec<(usize, &'a Figures)>,
    pub after: Vec<(usize, &'a Figures)>,
    /// In windows behind the span, as far as what it held may end there.
    pub later: Vec<(&'a HistoryWindow, &'a Figures)>,
}

/// One side of a track, merged.
#[derive(Default)]
pub(super) struct Merged {
    pub figures: Figures,
    pub seconds: f64,
}

impl Merged {
    pub fn load(&self) -> f64 {
        if self.seconds > 0.0 { self.figures.latency.sum_ns() as f64 / self.seconds } else { 0.0 }
    }

    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.figures.calls as f64 / self.seconds } else { 0.0 }
    }

    pub fn mean_ns(&self) -> f64 {
        mean_ns(&self.figures.latency)
    }
}

pub(super) fn mean_ns(latency: &Histogram) -> f64 {
    if latency.count() > 0 { latency.sum_ns() as f64 / latency.count() as f64 } else { 0.0 }
}

/// The windows behind the span in which operations may end that were held in it.
pub(super) fn held_later<'a>(sides: &Sides<'a>, holds: &[Hold]) -> &'a [HistoryWindow] {
    let released = holds.iter().map(Hold::released).max().unwrap_or_default();
    let later = sides.later();
    &later[..later.iter().take_while(|window| window.window.start <= released).count()]
}

/// The shapes of users' operations that servers served; of the windows in `later` only what ended in them.
pub(super) fn tracks<'a>(sides: &Sides<'a>, later: &'a [HistoryWindow]) -> Vec<ShapeTrack<'a>> {
    let mut tracks: BTreeMap<(Endpoint, ShapeId), ShapeTrack<'a>> = BTreeMap::new();
    let of_sides = [ComparedSpan::Before, ComparedSpan::After].map(|side| (Some(side), sides.windows(side)));
    for (side, windows) in of_sides.into_iter().chain([(None, later)]) {
        for (index, window) in windows.iter().enumerate() {
            for row in served(window) {
                let Subject::Shape { shape, identity: Identity::Exact, .. } = &row.subject else { continue };
                if shape.id == ShapeId(0) || commands::kind(&shape.command).is_some() {
                    continue;
                }
                let track = tracks.entry((row.server, shape.id)).or_insert_with(|| ShapeTrack {
                    server: row.server,
                    shape,
                    sources: Default::default(),
                    apps: Vec::new(),
                    splits: Vec::new(),
                });
                for (known, (source, _)) in track.sources.iter_mut().zip(SOURCES) {
                    if let Some(observed) = row.observed_by(source) {
                        match side {
                            Some(ComparedSpan::Before) => known.before.push((index, &observed.figures)),
                            Some(_) => known.after.push((index, &observed.figures)),
                            None => known.later.push((window, &observed.figures)),
                        }
                    }
                }
                let Some(side) = side else { continue };
                track.apps.push((side, &row.observed().apps));
                track.splits.extend(row.split.iter().map(|split| (side, index, &**split)));
            }
        }
    }
    tracks.into_values().collect()
}

/// The index of the first window of [`ComparedSpan::Recent`] among those before.
pub(super) fn first_recent(sides: &Sides<'_>) -> usize {
    sides.windows(ComparedSpan::Before).len() - sides.windows(ComparedSpan::Recent).len()
}

impl<'a> ShapeTrack<'a> {
    /// Place in [`SOURCES`] of the source of the latencies.
    pub fn place(&self) -> usize {
        self.sources.iter().position(|known| !known.is_empty()).unwrap_or(0)
    }

    /// Operations that stalled. `later`: the last window behind the span in which held operations may end.
    pub fn stall(
        &self,
        sides: &Sides<'a>,
        holds: &[Hold],
        later: Option<&HistoryWindow>,
    ) -> Option<ShapeStall> {
        let known = &self.sources[self.place()];
        let windows = sides.windows(ComparedSpan::After);
        let its = |hold: &&Hold| hold.server == self.server && is_write(&self.shape.command);
        let holds: Vec<Hold> = holds.iter().filter(its).copied().collect();
        let longest = known.after.iter().filter_map(|(_, figures)| figures.latency.max_ns()).max();
        if holds.is_empty() && longest < Some(MIN_STALL_NS) {
            return None;
        }
        let mut before = Histogram::new();
        known.before.iter().for_each(|(_, figures)| before.merge(&figures.latency));
        let mut waiting = Waited::default();
        if let Some(last) = later.or(windows.last()) {
            holds.iter().for_each(|hold| waiting.add_all(hold.holds_at_end(last, self.shape.id)));
        }
        let test = StallTest {
            before: &before,
            after: known.after.iter().map(|(at, figures)| (&windows[*at], *figures)).collect(),
            later: known.later.clone(),
            waiting,
        };
        let held = test.held(&holds).map(|stall| ShapeStall { is_held: true, stall });
        held.or_else(|| test.longer_than_any().map(|stall| ShapeStall { is_held: false, stall }))
    }

    pub fn splits(&self, sides: &Sides<'_>) -> ShapeSplits<'a> {
        let of = |side: ComparedSpan, from: usize| {
            let known = self.splits.iter().filter(|(one, at, _)| *one == side && *at >= from);
            known.map(|(_, _, split)| *split).collect()
        };
        ShapeSplits {
            before: of(ComparedSpan::Before, 0),
            recent: of(ComparedSpan::Before, first_recent(sides)),
            after: of(ComparedSpan::After, 0),
        }
    }
}

/// Operations of a shape that stalled.
pub(super) struct ShapeStall {
    pub stall: Stall,
    /// Whether the server held them.
    pub is_held: bool,
}

impl BySide<'_> {
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.later.is_empty()
    }

    pub fn merged(&self, side: ComparedSpan, sides: &Sides<'_>, seen: SeenServer) -> Merged {
        let first = first_recent(sides);
        let (all, from) = match side {
            ComparedSpan::Before => (&self.before, 0),
            ComparedSpan::Recent => (&self.before, first),
            ComparedSpan::After => (&self.after, 0),
        };
        let mut merged = Merged { seconds: sides.seconds(side, seen), ..Merged::default() };
        all.iter().filter(|(at, _)| *at >= from).for_each(|(_, figures)| merged.figures.merge(figures));
        merged
    }
}
