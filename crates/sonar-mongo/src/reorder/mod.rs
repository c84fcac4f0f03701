//! Rewrites a collection so that its order on the disk is that of an index.
//!
//! It writes a copy in order, with the same options and indexes, and reads it completely. Then it renames the
//! original, and the copy takes its name. It drops the original only when it is certain that nobody wrote to it
//! before it was renamed: by a change stream that was opened before the first document was read, or, on a server
//! without change streams, by reading the original again. Until then the original is the valid one: if anything fails
//! before, [`Server::reorder_clean`] gives it its name back.

mod collection;
mod content;
mod plan;
mod refusals;
mod watch;

use std::time::Instant;

use bson::{Bson, doc};
use sonar_core::words::plural;

use crate::error::{Result, ServerError};
use crate::server::Server;
use crate::stop::StopFlag;
use collection::{BEFORE, COPY, MAJORITY, Raw, WRITTEN, is_named, is_written, split};
use content::{ContentSum, Copying, read_all};
pub use plan::{DeviceBytes, ReorderPlan};
use watch::{ChangeWatch, StopCheck, until_aside, written};

/// How often to try to give the original its name back if somebody creates a collection of that name meanwhile.
const ATTEMPTS: usize = 5;
/// NamespaceExists.
const EXISTS: i32 = 48;
/// The present stage.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReorderStage {
    /// Documents are copied in order.
    Copying,
    /// Indexes are created.
    Indexes,
    /// The copy is read.
    Verifying,
    /// The change stream is checked; without one the original is read again.
    Comparing,
    /// The original is renamed, and the copy takes its name.
    Renaming,
    /// The change stream is read up to the renaming; without one the original is read under its new name.
    Deciding,
    /// The original is dropped.
    Dropping,
    /// A collection that had the name when the original took it back is read, to see whether it has any other
    /// content.
    Fixing,
}

impl ReorderStage {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Indexes => "making indexes",
            Self::Verifying => "verifying the copy",
            Self::Comparing => "looking for writes in between",
            Self::Renaming => "renaming",
            Self::Deciding => "ruling out writes until then",
            Self::Dropping => "dropping the original",
            Self::Fixing => "reading what had its name",
        }
    }
}

/// What [`Server::reorder_clean`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// What was done, in words.
    pub done: Vec<String>,
    /// What was kept for a person to check, in words.
    pub kept: Vec<String>,
}

impl Server {
    /// Opens the change stream of a collection; or returns why there is none.
    fn watch(
        &self,
        database: &str,
        collection: &str,
        aside: String,
    ) -> Result<std::result::Result<ChangeWatch, String>> {
        let database = self.link().client.database(database);
        self.runtime().block_on(ChangeWatch::open(&database, collection, aside))
    }

    /// Removes what an interrupted run has left, and gives the original its name back if it lost it. A collection
    /// that has the name then is renamed, and dropped if it has the same documents as the original (both are read for
    /// that); else it is kept.
    ///
    /// # Errors
    /// The server's; or it was stopped.
    pub fn reorder_clean(
        &self,
        namespace: &str,
        stop: &StopFlag,
        progress: &mut dyn FnMut(ReorderStage, u64, u64),
    ) -> Result<Cleaned> {
        self.restore(namespace, None, stop, progress)
    }

    /// Restores the collection after a run that failed. `copied` is the content of the copy, if known.
    fn restore(
        &self,
        namespace: &str,
        copied: Option<ContentSum>,
        stop: &StopFlag,
        progress: &mut dyn FnMut(ReorderStage, u64, u64),
    ) -> Result<Cleaned> {
        let (database, collection) = split(namespace)?;
        let (copy, before) = (format!("{collection}{COPY}"), format!("{collection}{BEFORE}"));
        let mut cleaned = Cleaned::default();
        let mut names = self.reorder_names(database)?;
        let mut attempts = 0;
        while names.contains(&before) {
            attempts += 1;
            if names.iter().any(|name| name == collection) {
                let aside = (1..)
                    .map(|n| {
                        if n == 1 {
                            format!("{collection}{WRITTEN}")
                        } else {
                            format!("{collection}{WRITTEN}{n}")
                        }
                    })
                    .find(|name| !names.contains(name))
                    .unwrap_or_default();
                self.rename(database, collection, &aside)?;
            }
            match self.rename(database, &before, collection) {
                Err(error) if error.code() == Some(EXISTS) && attempts < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(()) => cleaned.done.push(format!("gave the original its name {namespace} back")),
            }
            names = self.reorder_names(database)?;
        }
        if names.contains(&copy) {
            self.ask(database, doc! { "drop": &copy }, "drop the copy")?;
            cleaned.done.push(format!("dropped the copy {database}.{copy}"));
        }
        let mut original = None;
        for name in names.iter().filter(|name| is_written(name, collection)) {
            let mut read = |name: &str| {
                let mut check = StopCheck { stop, watch: None, next: Instant::now() };
                let raw = self.raw(database, name);
                progress(ReorderStage::Fixing, 0, 0);
                let mut report = |done| progress(ReorderStage::Fixing, done, done);
                self.runtime().block_on(read_all(&raw, &mut check, &mut report))
            };
            let held = read(name)?;
            let same = held.documents == 0 || copied == Some(held);
            let same = same || {
                let original = match original {
                    Some(content) => content,
                    None => *original.insert(read(collection)?),
                };
                original == held
            };
            if same {
                self.ask(database, doc! { "drop": name }, "drop the copy")?;
                cleaned.done.push(format!("dropped {database}.{name}, which held nothing of its own"));
            } else {
                cleaned.kept.push(format!(
                    "{database}.{name} had the name {namespace} for a while, and what it holds now ({}) is not \
                     the original: what was written then is in it. Look at it, take over what is wanted, and drop it",
                    plural(held.documents, "document")
                ));
            }
        }
        Ok(cleaned)
    }

    fn rename(&self, database: &str, from: &str, to: &str) -> Result<()> {
        let command =
            doc! { "renameCollection": format!("{database}.{from}"), "to": format!("{database}.{to}") };
        self.ask("admin", command, "rename the collection").map(drop)
    }

    /// The election that made this server the primary, if it reports one.
    fn election(&self) -> Result<Option<Bson>> {
        let hello = self.ask("admin", doc! { "hello": 1 }, "ask who is the primary")?;
        Ok(hello.get("electionId").cloned())
    }

    /// Rewrites the collection. `progress` gets each stage with the number of documents done and in all.
    /// `writers_stopped` must confirm that there are no writers if writes during the run cannot be followed.
    ///
    /// # Errors
    /// Anything unexpected, including a write during the run; then the copy is dropped, and the original has its
    /// name. If even that failed, the error states what is left.
    pub fn reorder(
        &self,
        plan: &ReorderPlan,
        writers_stopped: bool,
        stop: &StopFlag,
        progress: &mut dyn FnMut(ReorderStage, u64, u64),
    ) -> Result<u64> {
        let estimate = &plan.estimate;
        if let Some(left) = &estimate.leftover {
            return Err(ServerError::Refused(format!("{left}: look at it, then remove it with --clean")));
        }
        if estimate.fits() == Some(false) {
            return Err(ServerError::Refused(
                "there is not enough space for a second one of its size where the server keeps its files"
                    .into(),
            ));
        }
        let (database, namespace) = (&plan.database, &estimate.namespace);
        let election = self.election()?;
        let watch = match &estimate.unwatched {
            Some(why) => Err(why.clone()),
            None => self.watch(database, &plan.collection, plan.named(BEFORE))?,
        };
        let watch = match watch {
            Ok(watch) => Some(watch),
            Err(_) if writers_stopped => None,
            Err(why) => {
                return Err(ServerError::Refused(format!(
                    "nothing may write to {namespace} meanwhile, and here that cannot be followed ({why}): stop what writes, \
                     and say so with --writers-stopped (a write that comes all the same changes the content, and stops it)"
                )));
            }
        };
        self.make_copy(plan, watch.is_some())?;
        let mut check = StopCheck { stop, watch, next: Instant::now() };
        let mut copied = None;
        let done = self
            .reorder_steps(plan, &mut copied, &mut check, progress)
            .and_then(|()| self.same_election(election.as_ref()));
        match done {
            Ok(()) => {}
            Err(error) => {
                // Also after Ctrl-C: the collection must be usable.
                return Err(match self.restore(namespace, copied, &StopFlag::default(), progress) {
                    Ok(Cleaned { kept, .. }) if kept.is_empty() => error,
                    Ok(Cleaned { kept, .. }) => ServerError::Refused(format!("{error}; {}", kept.join("; "))),
                    Err(other) => ServerError::Refused(format!(
                        "{error}; and the collection could not be restored ({other}): the original is {namespace}, or {namespace}\
                         {BEFORE} if there is such a collection. Run it again with --clean"
                    )),
                });
            }
        }
        progress(ReorderStage::Dropping, 0, 1);
        let before = plan.named(BEFORE);
        if let Err(error) = self.ask(database, doc! { "drop": &before }, "drop the original") {
            return Err(ServerError::Refused(format!(
                "{namespace} lies in order now, but the original could not be dropped ({error}): drop {database}.{before} by \
                 hand (--clean would give it its name back)"
            )));
        }
        progress(ReorderStage::Dropping, 1, 1);
        Ok(copied.map_or(0, |copied| copied.documents))
    }

    /// Creates the copy; in a replica set it waits for a majority. Then all earlier writes are on this server, in the
    /// order of the oplog: the copy reads every write that began before the change stream was opened and is not in
    /// it.
    fn make_copy(&self, plan: &ReorderPlan, majority: bool) -> Result<()> {
        let mut create = doc! { "create": plan.named(COPY) };
        // The server adds its own; an `_id` index is created automatically.
        create.extend(
            plan.options
                .iter()
                .filter(|(key, _)| !["uuid", "autoIndexId"].contains(&key.as_str()))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        if majority {
            let wait = i64::try_from(MAJORITY.as_millis()).unwrap_or(i64::MAX);
            create.insert("writeConcern", doc! { "w": "majority", "wtimeout": wait });
        }
        let reply = self.ask(&plan.database, create, "make the copy")?;
        if let Ok(failed) = reply.get_document("writeConcernError") {
            let drop = doc! { "drop": plan.named(COPY) };
            let dropped = self.ask(&plan.database, drop, "drop the copy");
            return Err(ServerError::Refused(format!(
                "no majority of the replica set's members has what is written ({}), so what is written meanwhile could not be \
                 followed{}",
                failed.get_str("errmsg").unwrap_or("no reason given"),
                if dropped.is_ok() { "" } else { "; an empty copy is left: run it again with --clean" },
            )));
        }
        Ok(())
    }

    fn same_election(&self, election: Option<&Bson>) -> Result<()> {
        if self.election()?.as_ref() == election {
            return Ok(());
        }
        Err(ServerError::Refused(
            "the replica set has elected a primary meanwhile: whether all that was read is still so cannot be known"
                .into(),
        ))
    }

    /// All steps until it is certain that the original can be dropped.
    fn reorder_steps(
        &self,
        plan: &ReorderPlan,
        content: &mut Option<ContentSum>,
        check: &mut StopCheck<'_>,
        progress: &mut dyn FnMut(ReorderStage, u64, u64),
    ) -> Result<()> {
        let (database, copy_name, before_name) = (&plan.database, plan.named(COPY), plan.named(BEFORE));
        let (original, copy) = (self.raw(database, &plan.collection), self.raw(database, &copy_name));
        let runtime = self.runtime();

        let (total, order) = (plan.estimate.documents, &plan.estimate.index);
        let index = plan.indexes.iter().find(|index| is_named(index, order));
        let key = index.and_then(|index| index.get_document("key").ok()).cloned().unwrap_or_default();
        progress(ReorderStage::Copying, 0, total);
        let mut report = |done| progress(ReorderStage::Copying, done, total);
        let (order, validated) = ((order.as_str(), key), plan.options.contains_key("validator"));
        let copying = Copying { from: &original, to: &copy, order, validated, batch: plan.batch };
        let copied = runtime.block_on(copying.run(check, &mut report))?;
        *content = Some(copied);

        progress(ReorderStage::Indexes, 0, plan.estimate.indexes as u64);
        let specs: Vec<_> = plan
            .indexes
            .iter()
            .filter(|index| !is_named(index, "_id_"))
            .map(|index| {
                let mut spec = index.clone();
                // The default version of indexes; not every server accepts it as an option.
                if matches!(spec.get("v"), Some(Bson::Int32(2))) {
                    spec.remove("v");
                }
                Bson::Document(spec)
            })
            .collect();
        if !specs.is_empty() {
            let command = doc! { "createIndexes": &copy_name, "indexes": specs };
            self.ask(database, command, "make the indexes")?;
        }

        let mut read = |stage: ReorderStage, which: &Raw, check: &mut StopCheck<'_>| {
            progress(stage, 0, copied.documents);
            runtime.block_on(read_all(which, check, &mut |done| progress(stage, done, copied.documents)))
        };
        let made = read(ReorderStage::Verifying, &copy, check)?;
        if made != copied {
            return Err(ServerError::Refused(format!(
                "the copy does not hold what was read ({} of {}): nothing was changed",
                made.documents,
                plural(copied.documents, "document")
            )));
        }
        if check.watch.is_some() {
            progress(ReorderStage::Comparing, 0, 1);
            runtime.block_on(check.look())?;
        } else if read(ReorderStage::Comparing, &original, check)? != copied {
            return Err(written("its content has changed"));
        }
        if check.stop.is_set() {
            return Err(ServerError::Stopped);
        }

        progress(ReorderStage::Renaming, 0, 1);
        self.rename(database, &plan.collection, &before_name)?;
        match self.rename(database, &copy_name, &plan.collection) {
            Err(error) if error.code() == Some(EXISTS) => {
                return Err(written("its name was taken while it was free"));
            }
            other => other?,
        }
        progress(ReorderStage::Renaming, 1, 1);

        progress(ReorderStage::Deciding, 0, copied.documents);
        if let Some(watch) = &mut check.watch {
            runtime.block_on(until_aside(watch, check.stop))?;
        } else {
            let mut report = |done| progress(ReorderStage::Deciding, done, copied.documents);
            let before = self.raw(database, &before_name);
            if runtime.block_on(read_all(&before, check, &mut report))? != copied {
                return Err(written("its content has changed"));
            }
        }
        // Neither of those shows an index or a validator that was created meanwhile.
        let same = self
            .collection_spec(database, &before_name)?
            .is_some_and(|made| made.options == plan.options && made.indexes == plan.indexes);
        if !same {
            return Err(written("its options or indexes have changed"));
        }
        Ok(())
    }
}
