//! The content of a collection, while it is copied and read.

use std::hash::Hasher;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::options::Hint;

use super::collection::{ROLE, Raw};
use super::watch::StopCheck;
use crate::error::{Result, ServerError};

/// The most bytes that are written at once.
const BATCH_BYTES: usize = 8 << 20;

/// Number, size and content of documents, in any order: the sum of their hashes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ContentSum {
    pub(super) documents: u64,
    bytes: u64,
    sum: u128,
}

impl ContentSum {
    fn add(&mut self, document: &[u8]) {
        let half = |seed: u8| {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write_u8(seed);
            hasher.write(document);
            u128::from(hasher.finish())
        };
        self.documents += 1;
        self.bytes += document.len() as u64;
        self.sum = self.sum.wrapping_add(half(0) << 64 | half(1));
    }
}

/// How a collection is copied.
pub(super) struct Copying<'a> {
    pub(super) from: &'a Raw,
    pub(super) to: &'a Raw,
    /// Name and key of the index that gives the copy its order.
    pub(super) order: (&'a str, Document),
    /// The collection has a validator.
    pub(super) validated: bool,
    /// The most documents that are written at once, at least 1.
    pub(super) batch: usize,
}

impl Copying<'_> {
    /// Copies; returns the content that was read.
    ///
    /// # Errors
    /// The server's; it was stopped, or the original was written to.
    pub(super) async fn run(
        self,
        check: &mut StopCheck<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ContentSum> {
        let failed = |error: mongodb::error::Error| ServerError::of("copy the collection", ROLE, &error);
        let (order, key) = self.order;
        let mut content = ContentSum::default();
        let mut cursor =
            self.from.find(doc! {}).hint(Hint::Name(order.to_owned())).sort(key).await.map_err(failed)?;
        loop {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < self.batch.max(1) && bytes < BATCH_BYTES {
                let Some(document) = cursor.try_next().await.map_err(failed)? else { break };
                content.add(document.as_bytes());
                bytes += document.as_bytes().len();
                batch.push(document);
                check.go_on().await?;
            }
            if batch.is_empty() {
                return Ok(content);
            }
            let insert = self.to.insert_many(batch).ordered(true);
            // Not every user who may write may bypass validation.
            let insert = if self.validated { insert.bypass_document_validation(true) } else { insert };
            insert.await.map_err(failed)?;
            progress(content.documents);
        }
    }
}

/// Reads a whole collection.
///
/// # Errors
/// The server's; it was stopped, or the original was written to.
pub(super) async fn read_all(
    which: &Raw,
    check: &mut StopCheck<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<ContentSum> {
    let failed = |error: mongodb::error::Error| ServerError::of("read the collection", ROLE, &error);
    let mut content = ContentSum::default();
    let mut cursor = which.find(doc! {}).await.map_err(failed)?;
    while let Some(document) = cursor.try_next().await.map_err(failed)? {
        content.add(document.as_bytes());
        check.go_on().await?;
        if content.documents % 10_000 == 0 {
            progress(content.documents);
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_the_order_of_documents() {
        let of = |documents: &[&[u8]]| {
            let mut content = ContentSum::default();
            documents.iter().for_each(|document| content.add(document));
            content
        };
        assert_eq!(of(&[b"one", b"two"]), of(&[b"two", b"one"]));
        assert_ne!(of(&[b"one", b"two"]), of(&[b"one", b"twi"]), "count and size are the same");
        assert_ne!(of(&[b"one", b"one"]), of(&[b"two", b"two"]));
    }
}
