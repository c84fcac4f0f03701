//! A span of the history as a digest, as if it were read from a file.

use anyhow::{Result, bail};
use sonar_core::history::Span;
use sonar_core::{Digest, DigestSettings, GroupBy, HistoryDigester, Source};
use sonar_view::changes::SeenSpan;
use sonar_view::kit::Zone;
use sonar_view::queries::ClassSet;

use super::{StoredHistory, resolution};
use crate::exit::usage;

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

impl StoredHistory {
    /// The operations of these classes that servers served within a span.
    ///
    /// # Errors
    /// The history cannot be read, has nothing of that span, or cannot have these rows.
    pub fn digest(&self, span: Span, by: GroupBy, classes: ClassSet) -> Result<HistoryDigest> {
        if matches!(by, GroupBy::Order | GroupBy::Plan) {
            return Err(usage!(
                "a span of the history has no rows by {}; there are: shape namespace app",
                by.name()
            ));
        }
        let resolution = resolution(span);
        let mut digester = HistoryDigester::new(DigestSettings { by, points: false }, resolution.width_ns());
        let (mut folded, mut windows, mut seen) = (0, None::<Span>, SeenSpan::default());
        self.visit(span, resolution, &mut |window| {
            let Span { from, to } = Span { from: window.window.start, to: window.window.end };
            let all = windows.get_or_insert(Span { from, to });
            *all = Span { from: all.from.min(from), to: all.to.max(to) };
            folded += window.window.coverage.shapes_folded;
            seen.add(&window);
            digester.add(&window, |class| classes.contains(class));
        })?;
        let Some(windows) = windows else {
            let (utc, extent) = (Zone::utc(), self.extent);
            let show = |at| utc.show_seconds(at);
            bail!(
                "nothing is stored between {} and {}; the history in {} covers {} to {}",
                show(span.from),
                show(span.to),
                self.name,
                show(extent.from),
                show(extent.to)
            );
        };
        let (digest, source) = digester.finish();
        Ok(HistoryDigest { digest, source, is_whole: folded == 0, windows, seen })
    }
}
