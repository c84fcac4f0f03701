//! A span of the history as a digest, as if it were read from a file.

use sonar_core::history::Span;
use sonar_core::{Digest, DigestSettings, GroupBy, HistoryDigester, Source};

use super::{HistoryView, PastError, resolution};
use crate::changes::SeenSpan;
use crate::queries::ClassSet;

/// A span as a digest.
pub struct HistoryDigest {
    /// The digest.
    pub digest: Digest,
    /// The source of its latencies.
    pub source: Source,
    /// Whether it has all rows.
    pub is_whole: bool,
    /// From the start of the first window to the end of the last one: the history has nothing finer.
    pub windows: Span,
    /// What was seen of it.
    pub seen: SeenSpan,
}

/// Which rows a digest has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DigestRows {
    /// What each row is about.
    pub by: GroupBy,
    /// The classes of its operations.
    pub classes: ClassSet,
}

impl HistoryDigest {
    /// The operations that servers served within a span; times in messages are those of the zone of `history`.
    ///
    /// # Errors
    /// The history cannot be read, has nothing of that span, or cannot have these rows.
    pub fn of(history: &HistoryView<'_>, span: Span, rows: DigestRows) -> Result<Self, PastError> {
        let DigestRows { by, classes } = rows;
        if matches!(by, GroupBy::Order | GroupBy::Plan) {
            return Err(PastError::WrongQuestion(format!(
                "a span of the history has no rows by {}; there are: shape namespace app",
                by.name()
            )));
        }
        let resolution = resolution(span);
        let mut digester = HistoryDigester::new(DigestSettings { by, points: false }, resolution.width_ns());
        let (mut folded, mut windows, mut seen) = (0, None::<Span>, SeenSpan::default());
        history.visit(span, resolution, &mut |window| {
            let Span { from, to } = Span { from: window.window.start, to: window.window.end };
            let all = windows.get_or_insert(Span { from, to });
            *all = Span { from: all.from.min(from), to: all.to.max(to) };
            folded += window.window.coverage.shapes_folded;
            seen.add(&window);
            digester.add(&window, |class| classes.contains(class));
        })?;
        let windows = windows.ok_or_else(|| history.nothing_stored(span, history.zone()))?;
        let (digest, source) = digester.finish();
        Ok(Self { digest, source, is_whole: folded == 0, windows, seen })
    }
}
