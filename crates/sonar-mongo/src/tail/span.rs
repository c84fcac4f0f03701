//! Reads what the profiler of a database wrote in a span of time.

use bson::raw::RawDocument;
use bson::{RawDocumentBuf, doc};
use futures_util::StreamExt;
use sonar_core::history::Span;
use tokio::time::Instant;

use super::feed::{documents, not_self};
use super::follower::DISORDER_MS;
use super::position::place_of;
use crate::error::Result;
use crate::profiler::{COLLECTION, ROLE};
use crate::server::{Link, Server};

/// Documents in one batch.
const BATCH: u32 = 1_000;

/// How much may still be read, of several databases together.
#[derive(Copy, Clone, Debug)]
pub struct ProfileBudget {
    /// Documents.
    pub documents: u64,
    /// Bytes.
    pub bytes: u64,
    /// No document that comes later is read.
    pub until: std::time::Instant,
}

/// What was read of a span of time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SpanReading {
    /// All of it.
    Whole,
    /// The oldest documents of the span are missing: the collection may have wrapped.
    Wrapped,
    /// The budget was used up; the oldest documents of the span are missing.
    Cut,
}

impl Server {
    /// Passes each document of `system.profile` of a database about an operation that ended in the span, or at its end,
    /// the newest first, and takes what it reads from the budget.
    ///
    /// # Errors
    /// The server did not answer, or the user may not read it.
    pub fn profile_between(
        &self,
        database: &str,
        span: Span,
        budget: &mut ProfileBudget,
        each: impl FnMut(&RawDocument),
    ) -> Result<SpanReading> {
        let until = Instant::from_std(budget.until);
        let read = self.link().read_backwards(database, span, budget, each);
        self.runtime()
            .block_on(async { tokio::time::timeout_at(until, read).await })
            .unwrap_or(Ok(SpanReading::Cut))
    }
}

impl Link {
    async fn read_backwards(
        &self,
        database: &str,
        span: Span,
        budget: &mut ProfileBudget,
        mut each: impl FnMut(&RawDocument),
    ) -> Result<SpanReading> {
        let (from, to) = (span.from.unix_ms(), span.to.unix_ms());
        let wrong =
            |error: &mongodb::error::Error| self.error(format!("read {database}.{COLLECTION}"), ROLE, error);
        let collection = self.collection::<RawDocumentBuf>(database, COLLECTION);
        // Not by `ts`: the collection has no index, so the server would go on to its beginning.
        let find = collection.find(not_self(database)).sort(doc! { "$natural": -1 });
        let mut cursor =
            find.show_record_id(true).batch_size(BATCH).batch().await.map_err(|error| wrong(&error))?;
        let mut oldest = None;
        while let Some(batch) = cursor.next().await {
            for document in documents(&batch.map_err(|error| wrong(&error))?) {
                let (record, ts) = place_of(document);
                let Some(ts) = ts else { continue };
                if ts < from.saturating_sub(DISORDER_MS) {
                    return Ok(SpanReading::Whole);
                }
                let bytes = document.as_bytes().len() as u64;
                if budget.documents == 0 || budget.bytes < bytes {
                    return Ok(SpanReading::Cut);
                }
                budget.documents -= 1;
                budget.bytes -= bytes;
                oldest = record.map(|record| (record, ts));
                if (from..=to).contains(&ts) {
                    each(document);
                }
            }
        }
        // The first record of a collection is 1.
        let has_wrapped = oldest.is_some_and(|(record, ts)| record > 1 && ts > from);
        Ok(if has_wrapped { SpanReading::Wrapped } else { SpanReading::Whole })
    }
}
