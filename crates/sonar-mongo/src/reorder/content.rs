//! What a collection holds, as it is copied and read.

use std::hash::Hasher;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::options::Hint;

use super::watch::Check;
use super::{ROLE, Raw};
use crate::error::{Error, Result};

/// Documents and bytes that are written at once.
const BATCH: usize = 1_000;
const BATCH_BYTES: usize = 8 << 20;

/// How many documents there are and what they hold, whatever their order: a sum of their hashes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    pub(super) documents: u64,
    bytes: u64,
    sum: u128,
}

impl Content {
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

pub(super) async fn copy_all(
    from: &Raw,
    to: &Raw,
    (order, key): (&str, Document),
    validated: bool,
    check: &mut Check<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Content> {
    let failed = |error: mongodb::error::Error| Error::of("copy the collection", ROLE, &error);
    let mut content = Content::default();
    let mut cursor = from.find(doc! {}).hint(Hint::Name(order.to_owned())).sort(key).await.map_err(failed)?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    loop {
        let next = cursor.try_next().await.map_err(failed)?;
        let last = next.is_none();
        if let Some(document) = next {
            content.add(document.as_bytes());
            bytes += document.as_bytes().len();
            batch.push(document);
        }
        check.go_on().await?;
        if !batch.is_empty() && (last || batch.len() >= BATCH || bytes >= BATCH_BYTES) {
            let documents = std::mem::take(&mut batch);
            bytes = 0;
            let insert = to.insert_many(documents).ordered(true);
            // A right that not everybody has who may write.
            let insert = if validated { insert.bypass_document_validation(true) } else { insert };
            insert.await.map_err(failed)?;
            progress(content.documents);
        }
        if last {
            return Ok(content);
        }
    }
}

pub(super) async fn read_all(
    which: &Raw,
    check: &mut Check<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Content> {
    let failed = |error: mongodb::error::Error| Error::of("read the collection", ROLE, &error);
    let mut content = Content::default();
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
    fn content_is_that_of_the_documents_in_any_order() {
        let of = |documents: &[&[u8]]| {
            let mut content = Content::default();
            documents.iter().for_each(|document| content.add(document));
            content
        };
        assert_eq!(of(&[b"one", b"two"]), of(&[b"two", b"one"]));
        assert_ne!(of(&[b"one", b"two"]), of(&[b"one", b"twi"]), "count and size are the same");
        assert_ne!(of(&[b"one", b"one"]), of(&[b"two", b"two"]));
    }
}
