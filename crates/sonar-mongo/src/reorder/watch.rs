//! Whether the original was written to before it was renamed, from its change stream.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::error::ErrorKind;
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria};

use super::collection::{MAJORITY, ROLE, Raw};
use crate::error::{Result, ServerError, UNAUTHORIZED};
use crate::stop::StopFlag;

/// How often to check it while documents are read, and how long each check waits.
const LOOK: Duration = Duration::from_secs(1);
const AWAIT: Duration = Duration::from_millis(20);

/// What the change stream of the original shows.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SeenWrites {
    /// Nothing until now.
    Nothing,
    /// It was renamed, and nothing was written before.
    Aside,
    /// It was written to; how.
    Write(String),
}

/// The change stream of the original.
pub(super) struct ChangeWatch {
    stream: ChangeStream<Document>,
    aside: String,
}

impl ChangeWatch {
    /// Opens it; or returns why there is none.
    pub(super) async fn open(
        database: &mongodb::Database,
        collection: &str,
        aside: String,
    ) -> Result<std::result::Result<Self, String>> {
        // The only read concern that servers accept for a change stream, whatever the connection string says.
        let options = CollectionOptions::builder()
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .read_concern(ReadConcern::majority())
            .build();
        let original: Raw = database.collection_with_options(collection, options);
        let wanted = [doc! { "$project": { "operationType": 1, "ns": 1, "to": 1 } }];
        match original.watch().pipeline(wanted).max_await_time(AWAIT).await {
            Ok(stream) => Ok(Ok(Self { stream: stream.with_type(), aside })),
            Err(error) => match &*error.kind {
                ErrorKind::Command(command) if command.code == UNAUTHORIZED => {
                    Ok(Err(format!("the user may not open a change stream: {}", command.message)))
                }
                ErrorKind::Command(command) => {
                    Ok(Err(format!("the server has no change streams: {}", command.message)))
                }
                _ => Err(ServerError::of("open a change stream", ROLE, &error)),
            },
        }
    }

    /// The events since the last look, or within [`AWAIT`].
    async fn look(&mut self) -> Result<SeenWrites> {
        let unknown = |why: &dyn std::fmt::Display| {
            ServerError::Refused(format!(
                "whether the collection was written to meanwhile cannot be known: {why}"
            ))
        };
        match self.stream.next_if_any().await {
            Ok(Some(event)) => Ok(seen(&event, &self.aside)),
            Ok(None) if self.stream.is_alive() => Ok(SeenWrites::Nothing),
            Ok(None) => Err(unknown(&"the change stream has ended")),
            Err(error) => Err(unknown(&ServerError::of("follow the change stream", ROLE, &error))),
        }
    }
}

/// The meaning of an event of the change stream, if the original is renamed to `aside`.
fn seen(event: &Document, aside: &str) -> SeenWrites {
    let operation = event.get_str("operationType").unwrap_or("an event without a type");
    let to = event.get_document("to").and_then(|to| to.get_str("coll"));
    if operation == "rename" && to.is_ok_and(|to| to == aside) {
        return SeenWrites::Aside;
    }
    SeenWrites::Write(operation.into())
}

pub(super) fn written(how: &str) -> ServerError {
    ServerError::Refused(format!(
        "the collection was written to meanwhile ({how}): the original keeps its name, with all that was written. Run it \
         again when nothing writes to it"
    ))
}

/// Checks now and then whether to go on.
pub(super) struct StopCheck<'a> {
    pub(super) stop: &'a StopFlag,
    pub(super) watch: Option<ChangeWatch>,
    pub(super) next: Instant,
}

impl StopCheck<'_> {
    /// # Errors
    /// It was stopped, or the original was written to.
    pub(super) async fn go_on(&mut self) -> Result<()> {
        if self.stop.is_set() {
            return Err(ServerError::Stopped);
        }
        if self.watch.is_some() && Instant::now() >= self.next {
            self.look().await?;
        }
        Ok(())
    }

    /// Checks all new events.
    pub(super) async fn look(&mut self) -> Result<()> {
        if let Some(watch) = &mut self.watch {
            match watch.look().await? {
                SeenWrites::Nothing => {}
                SeenWrites::Aside => return Err(written("rename")),
                SeenWrites::Write(how) => return Err(written(&how)),
            }
        }
        self.next = Instant::now() + LOOK;
        Ok(())
    }
}

/// Reads the change stream up to the renaming of the original.
pub(super) async fn until_aside(watch: &mut ChangeWatch, stop: &StopFlag) -> Result<()> {
    let deadline = Instant::now() + MAJORITY;
    loop {
        match watch.look().await? {
            SeenWrites::Aside => return Ok(()),
            SeenWrites::Write(how) => return Err(written(&how)),
            SeenWrites::Nothing if stop.is_set() => return Err(ServerError::Stopped),
            SeenWrites::Nothing if Instant::now() >= deadline => {
                return Err(ServerError::Refused(
                    "whether the collection was written to meanwhile cannot be known: the change stream does not get to where \
                     the original stepped aside, as no majority of the members has it"
                        .into(),
                ));
            }
            SeenWrites::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as in the manual ("Change Events").
    #[test]
    fn only_the_expected_rename_is_no_write() {
        let aside = "orders_mongosonar_before";
        let ns = doc! { "db": "shop", "coll": "orders" };
        let event =
            |operation: &str| doc! { "_id": { "_data": "8262" }, "operationType": operation, "ns": &ns };
        for operation in ["insert", "update", "replace", "delete", "drop", "dropDatabase", "invalidate"] {
            assert_eq!(seen(&event(operation), aside), SeenWrites::Write(operation.into()));
        }
        let mut renamed = event("rename");
        renamed.insert("to", doc! { "db": "shop", "coll": "elsewhere" });
        assert_eq!(seen(&renamed, aside), SeenWrites::Write("rename".into()), "somebody else's");
        renamed.insert("to", doc! { "db": "shop", "coll": aside });
        assert_eq!(seen(&renamed, aside), SeenWrites::Aside);
        assert_eq!(seen(&doc! {}, aside), SeenWrites::Write("an event without a type".into()));
    }
}
