//! Reads, sets and restores the settings of the profiler.
//!
//! `level` and `filter` belong to a database; `slowms`, `sampleRate` and Percona's `rateLimit` to the whole server:
//! <https://www.mongodb.com/docs/manual/reference/command/profile/>.

use std::fmt::Write as _;
use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sonar_core::ServerVersion;
use sonar_core::profiler::Fill;

use crate::error::{COMMAND_NOT_FOUND, NAMESPACE_NOT_FOUND, Result, ServerError};
use crate::server::{Link, Server, number, time, whole};
use crate::server_info::ServerInfo;
use crate::stop::StopFlag;

/// The collection that a profiler writes to.
pub const COLLECTION: &str = "system.profile";
/// The built-in role that may read and set the profiler of a database, list its collections, and read and size
/// `system.profile`; `read` and `clusterMonitor` may not.
pub(crate) const ROLE: &str = "dbAdmin";
/// How many of the last documents the present rate is computed from.
const RECENT: i64 = 1_000;
/// Size of the collection when the server creates it.
pub const DEFAULT_BYTES: u64 = 1 << 20;
/// The server's own databases, which "all databases" excludes.
pub const OWN_DATABASES: [&str; 3] = ["admin", "config", "local"];

/// The settings of the profiler of one database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfilerSettings {
    /// 0 off, 1 slow operations (or those that match the filter), 2 all.
    pub level: i32,
    /// Operations that take longer are slow, in milliseconds. It applies to the whole server.
    pub slow_ms: Option<i64>,
    /// Share of slow operations to keep, 0 to 1; servers from 3.6. It applies to the whole server.
    pub sample_rate: Option<f64>,
    /// Find expression over profile documents; servers from 4.4.2.
    pub filter: Option<Document>,
    /// Percona Server's `rateLimit` N: at level 2 it keeps one in N operations below `slowms`. It applies to the
    /// whole server.
    pub rate_limit: Option<i64>,
}

/// The profiler of one database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfilerState {
    /// The database.
    pub database: String,
    /// Its settings.
    pub settings: ProfilerSettings,
    /// Its `system.profile`; `None` if there is none.
    pub collection: Option<Fill>,
}

/// The settings to change; `None` leaves a setting unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsChange {
    /// See [`ProfilerSettings::level`].
    pub level: Option<i32>,
    /// See [`ProfilerSettings::slow_ms`].
    pub slow_ms: Option<i64>,
    /// See [`ProfilerSettings::sample_rate`].
    pub sample_rate: Option<f64>,
    /// A filter; `Some(None)` removes it.
    pub filter: Option<Option<Document>>,
    /// See [`ProfilerSettings::rate_limit`].
    pub rate_limit: Option<i64>,
    /// Size of `system.profile` in bytes.
    pub size_bytes: Option<u64>,
}

/// One command of a change of settings.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsStep {
    /// Sets the profiler.
    Set(ProfilerSettings),
    /// Drops `system.profile` with its content; only at level 0.
    Drop,
    /// Creates `system.profile` with this size in bytes.
    Create(u64),
}

/// Reads a find expression in (relaxed) extended JSON.
///
/// # Errors
/// It is not a JSON object, or BSON cannot express it.
pub fn parse_filter(text: &str) -> Result<Document> {
    let json: serde_json::Value =
        serde_json::from_str(text).map_err(|error| ServerError::Filter(error.to_string()))?;
    match Bson::try_from(json).map_err(|error| ServerError::Filter(error.to_string()))? {
        Bson::Document(document) => Ok(document),
        _ => Err(ServerError::Filter("an object is wanted, like {\"millis\": {\"$gt\": 50}}".to_owned())),
    }
}

/// A document as relaxed extended JSON.
pub fn json(document: &Document) -> String {
    Bson::Document(document.clone()).into_relaxed_extjson().to_string()
}

impl ProfilerSettings {
    /// These settings with the requested changes.
    pub fn with(&self, wanted: &SettingsChange) -> Self {
        Self {
            level: wanted.level.unwrap_or(self.level),
            slow_ms: wanted.slow_ms.or(self.slow_ms),
            sample_rate: wanted.sample_rate.or(self.sample_rate),
            filter: wanted.filter.clone().unwrap_or_else(|| self.filter.clone()),
            rate_limit: wanted.rate_limit.or(self.rate_limit),
        }
    }

    /// The command that sets them, from the settings `before`. It leaves out settings that the server does not know,
    /// and the filter if there is none to remove.
    pub fn command(&self, before: &Self) -> Document {
        let mut command = doc! { "profile": self.level };
        if let Some(ms) = self.slow_ms {
            command.insert("slowms", ms);
        }
        if let Some(rate) = self.sample_rate {
            command.insert("sampleRate", rate);
        }
        match (&self.filter, &before.filter) {
            (Some(filter), _) => drop(command.insert("filter", filter.clone())),
            (None, Some(_)) => drop(command.insert("filter", "unset")),
            (None, None) => {}
        }
        if let Some(limit) = self.rate_limit {
            command.insert("ratelimit", limit);
        }
        command
    }

    fn read(reply: &Document) -> Result<Self> {
        Ok(Self {
            level: whole(reply, "was")
                .and_then(|level| i32::try_from(level).ok())
                .ok_or(ServerError::Reply("profile"))?,
            slow_ms: number(reply, "slowms").map(|ms| ms as i64),
            sample_rate: number(reply, "sampleRate"),
            filter: reply.get_document("filter").ok().cloned(),
            rate_limit: whole(reply, "ratelimit").and_then(|n| i64::try_from(n).ok()),
        })
    }
}

/// The steps from a state to the requested settings, in the only order that works: a capped `system.profile` cannot
/// be resized in place, and can be dropped only while the profiler of its database is off.
pub fn plan(state: &ProfilerState, wanted: &SettingsChange) -> Vec<SettingsStep> {
    let goal = state.settings.with(wanted);
    let has = state.collection.map(|fill| fill.max_bytes);
    let resize = wanted.size_bytes.filter(|bytes| has != Some(Some(*bytes)));
    let mut steps = Vec::new();
    if let Some(bytes) = resize {
        if state.settings.level != 0 {
            steps.push(SettingsStep::Set(ProfilerSettings { level: 0, ..state.settings.clone() }));
        }
        if has.is_some() {
            steps.push(SettingsStep::Drop);
        }
        steps.push(SettingsStep::Create(bytes));
    }
    if resize.is_some() || goal != state.settings {
        steps.push(SettingsStep::Set(goal));
    }
    steps
}

/// The steps that restore a state from `now`. `size`: whether to restore the size too, which drops the collected
/// documents.
pub fn plan_back(was: &ProfilerState, now: &ProfilerState, size: bool) -> Vec<SettingsStep> {
    let mut steps = Vec::new();
    let bytes = |state: &ProfilerState| state.collection.map(|fill| fill.max_bytes);
    if size && bytes(was) != bytes(now) {
        if now.settings.level != 0 {
            steps.push(SettingsStep::Set(ProfilerSettings { level: 0, ..now.settings.clone() }));
        }
        if now.collection.is_some() {
            steps.push(SettingsStep::Drop);
        }
        if let Some(Some(bytes)) = bytes(was) {
            steps.push(SettingsStep::Create(bytes));
        }
    }
    if !steps.is_empty() || was.settings != now.settings {
        steps.push(SettingsStep::Set(was.settings.clone()));
    }
    steps
}

/// The shell commands that restore settings by hand.
pub fn by_hand(was: &ProfilerState) -> String {
    // As if there were a filter now, so that the command removes it if there was none.
    let command = was
        .settings
        .command(&ProfilerSettings { filter: Some(Document::new()), ..ProfilerSettings::default() });
    let mut text = String::new();
    let _ = write!(
        text,
        "db.getSiblingDB({}).runCommand({})",
        serde_json::Value::from(was.database.as_str()),
        json(&command)
    );
    text
}

impl Server {
    /// The present state of the profiler of a database.
    ///
    /// # Errors
    /// The server has no profiler, the user is not authorized, or the connection is lost.
    pub fn profiler(&self, database: &str) -> Result<ProfilerState> {
        self.runtime().block_on(state(self.link(), self.info(), database))
    }

    /// The present profiling level of a database.
    ///
    /// # Errors
    /// As [`Self::profiler`].
    pub fn profiling_level(&self, database: &str) -> Result<i32> {
        let settings = settings(self.link(), self.info(), database);
        self.runtime().block_on(settings).map(|settings| settings.level)
    }

    /// Checks that this server supports the requested settings, before anything is changed.
    ///
    /// # Errors
    /// The server does not support one of them.
    pub fn can(&self, state: &ProfilerState, wanted: &SettingsChange) -> Result<()> {
        let info = self.info();
        let lacks = |what, since| {
            Err(ServerError::NotSupported {
                server: info.address.clone(),
                version: info.version.clone(),
                what,
                since,
            })
        };
        if wanted.sample_rate.is_some()
            && state.settings.sample_rate.is_none()
            && !info.at_least(ServerVersion::new(3, 6, 0))
        {
            return lacks("sampleRate", "MongoDB 3.6");
        }
        if wanted.filter.is_some() && !info.at_least(ServerVersion::new(4, 4, 2)) {
            return lacks("profiler filter", "MongoDB 4.4.2");
        }
        if wanted.rate_limit.is_some() && state.settings.rate_limit.is_none() {
            return lacks("profiler rateLimit", "Percona Server for MongoDB");
        }
        Ok(())
    }

    /// Applies the steps to a database, from settings `before`, and calls `done` after each.
    ///
    /// # Errors
    /// The server's; the steps before the failed one are done.
    pub fn take(
        &self,
        database: &str,
        before: &ProfilerSettings,
        steps: &[SettingsStep],
        mut done: impl FnMut(&SettingsStep),
    ) -> Result<()> {
        let mut settings = before.clone();
        for step in steps {
            self.runtime().block_on(take(self.link(), database, &settings, step))?;
            if let SettingsStep::Set(now) = step {
                settings = now.clone();
            }
            done(step);
        }
        Ok(())
    }

    /// Restores each of these states. While the connection is lost it tries again until `stop` is set, and calls
    /// `lost` each time. Returns the restored databases in order; the error gives the reason for the others.
    pub fn put_back(
        &self,
        was: &[ProfilerState],
        size: bool,
        stop: &StopFlag,
        mut lost: impl FnMut(&ServerError),
    ) -> (Vec<String>, Option<ServerError>) {
        let mut done = Vec::new();
        let mut failed = None;
        for was in was {
            let mut wait = Duration::from_millis(250);
            loop {
                let tried = self.profiler(&was.database).and_then(|now| {
                    let steps = plan_back(was, &now, size);
                    self.take(&was.database, &now.settings, &steps, |_| {})
                });
                match tried {
                    Ok(()) => {
                        done.push(was.database.clone());
                        break;
                    }
                    Err(error) if error.is_passing() && !stop.is_set() => {
                        lost(&error);
                        self.runtime().block_on(stop.sleep(wait));
                        wait = (wait * 2).min(Duration::from_secs(5));
                    }
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
        }
        (done, failed)
    }

    /// Waits for `time`, or until `stop` is set; returns whether it is.
    pub fn wait(&self, time: Duration, stop: &StopFlag) -> bool {
        self.runtime().block_on(stop.sleep(time))
    }
}

pub(crate) async fn settings(link: &Link, info: &ServerInfo, database: &str) -> Result<ProfilerSettings> {
    if info.mongos {
        return Err(ServerError::Mongos(info.address.clone()));
    }
    let what = format!("read the profiler of {database}");
    match link.command_as(database, doc! { "profile": -1 }, &what, ROLE).await {
        Err(ServerError::Command { code: COMMAND_NOT_FOUND, .. }) => {
            Err(ServerError::NoProfiler(info.label()))
        }
        Err(error) => Err(error),
        Ok(reply) => ProfilerSettings::read(&reply),
    }
}

async fn state(link: &Link, info: &ServerInfo, database: &str) -> Result<ProfilerState> {
    let settings = settings(link, info, database).await?;
    Ok(ProfilerState { database: database.to_owned(), settings, collection: fill(link, database).await? })
}

/// The state of the `system.profile` of a database.
pub(crate) async fn fill(link: &Link, database: &str) -> Result<Option<Fill>> {
    let what = format!("look at {database}.{COLLECTION}");
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION } };
    let reply = link.command_as(database, list, &what, ROLE).await?;
    let entry = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let Some(Bson::Document(entry)) = entry.ok().and_then(|batch| batch.first()) else { return Ok(None) };
    let mut fill = Fill {
        max_bytes: entry.get_document("options").ok().and_then(|options| whole(options, "size")),
        ..Fill::default()
    };
    match link.command_as(database, doc! { "collStats": COLLECTION }, &what, ROLE).await {
        Ok(stats) => {
            fill.max_bytes = whole(&stats, "maxSize").filter(|bytes| *bytes > 0).or(fill.max_bytes);
            fill.size_bytes = whole(&stats, "size").unwrap_or(0);
            fill.documents = whole(&stats, "count").unwrap_or(0);
        }
        Err(error) if error.code() == Some(NAMESPACE_NOT_FOUND) => return Ok(None),
        Err(error) => return Err(error),
    }
    let ends = ends(link, database).await.map_err(|error| link.error(what, ROLE, &error))?;
    (fill.oldest, fill.newest, fill.recent_since, fill.recent_documents) = ends;
    Ok(Some(fill))
}

type ProfileEnds =
    (Option<sonar_core::Timestamp>, Option<sonar_core::Timestamp>, Option<sonar_core::Timestamp>, u64);

/// Times of the first, of the last, and of the first of the last documents, with the number of the latter.
async fn ends(link: &Link, database: &str) -> mongodb::error::Result<ProfileEnds> {
    let collection = link.collection::<Document>(database, COLLECTION);
    let ts = |document: Option<&Document>| document.and_then(|d| d.get_datetime("ts").ok()).map(time);
    let only = doc! { "ts": 1, "_id": 0 };
    let find = || collection.find(doc! {}).projection(only.clone());
    let first: Vec<_> = find().sort(doc! { "$natural": 1 }).limit(1).await?.try_collect().await?;
    let last: Vec<_> = find().sort(doc! { "$natural": -1 }).limit(RECENT).await?.try_collect().await?;
    Ok((ts(first.first()), ts(last.first()), ts(last.last()), last.len() as u64))
}

async fn take(link: &Link, database: &str, before: &ProfilerSettings, step: &SettingsStep) -> Result<()> {
    let (command, what) = match step {
        SettingsStep::Set(settings) => (settings.command(before), format!("set the profiler of {database}")),
        SettingsStep::Drop => (doc! { "drop": COLLECTION }, format!("drop {database}.{COLLECTION}")),
        SettingsStep::Create(bytes) => (
            doc! { "create": COLLECTION, "capped": true, "size": i64::try_from(*bytes).unwrap_or(i64::MAX) },
            format!("make {database}.{COLLECTION}"),
        ),
    };
    match link.command_as(database, command, &what, ROLE).await {
        Ok(_) => Ok(()),
        Err(error) if *step == SettingsStep::Drop && error.code() == Some(NAMESPACE_NOT_FOUND) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(level: i32, max: Option<u64>) -> ProfilerState {
        ProfilerState {
            database: "shop".to_owned(),
            settings: ProfilerSettings {
                level,
                slow_ms: Some(100),
                sample_rate: Some(1.0),
                ..ProfilerSettings::default()
            },
            collection: max.map(|max| Fill { max_bytes: Some(max), ..Fill::default() }),
        }
    }

    fn kinds(steps: &[SettingsStep]) -> Vec<&'static str> {
        let kind = |step: &SettingsStep| match step {
            SettingsStep::Set(ProfilerSettings { level: 0, .. }) => "off",
            SettingsStep::Set(_) => "on",
            SettingsStep::Drop => "drop",
            SettingsStep::Create(_) => "create",
        };
        steps.iter().map(kind).collect()
    }

    #[test]
    fn a_resize_stops_drops_creates_and_only_then_profiles() {
        let wanted =
            SettingsChange { level: Some(2), size_bytes: Some(64 << 20), ..SettingsChange::default() };
        assert_eq!(kinds(&plan(&state(1, Some(1 << 20)), &wanted)), ["off", "drop", "create", "on"]);
        assert_eq!(kinds(&plan(&state(0, Some(1 << 20)), &wanted)), ["drop", "create", "on"]);
        assert_eq!(kinds(&plan(&state(0, None), &wanted)), ["create", "on"]);
        assert_eq!(kinds(&plan(&state(1, Some(64 << 20)), &wanted)), ["on"], "it has that size");
        let size_only = SettingsChange { size_bytes: Some(4096), ..SettingsChange::default() };
        let steps = plan(&state(1, Some(1 << 20)), &size_only);
        assert_eq!(kinds(&steps), ["off", "drop", "create", "on"]);
        assert_eq!(
            steps.last(),
            Some(&SettingsStep::Set(state(1, None).settings)),
            "as it was but for the size"
        );
    }

    #[test]
    fn unchanged_settings_take_no_step() {
        assert!(plan(&state(1, None), &SettingsChange::default()).is_empty());
        let same = SettingsChange { level: Some(1), slow_ms: Some(100), ..SettingsChange::default() };
        assert!(plan(&state(1, None), &same).is_empty());
    }

    #[test]
    fn all_settings_are_restored_and_the_size_too() {
        let was = state(0, None);
        let wanted = SettingsChange {
            level: Some(2),
            slow_ms: Some(0),
            filter: Some(Some(doc! { "op": "query" })),
            size_bytes: Some(64 << 20),
            ..SettingsChange::default()
        };
        let now = ProfilerState {
            settings: was.settings.with(&wanted),
            collection: state(0, Some(64 << 20)).collection,
            ..was.clone()
        };
        assert_eq!(kinds(&plan_back(&was, &now, true)), ["off", "drop", "off"]);
        let kept = plan_back(&was, &now, false);
        assert_eq!(kept, [SettingsStep::Set(was.settings.clone())], "what was collected stays");
        let SettingsStep::Set(back) = &kept[0] else { panic!() };
        assert_eq!(
            back.command(&now.settings),
            doc! { "profile": 0, "slowms": 100_i64, "sampleRate": 1.0, "filter": "unset" }
        );
        assert!(plan_back(&was, &was, true).is_empty());
        let had = state(1, Some(1 << 20));
        assert_eq!(kinds(&plan_back(&had, &now, true)), ["off", "drop", "create", "on"]);
    }

    #[test]
    fn unknown_settings_are_not_sent_to_a_server() {
        let old = ProfilerSettings { level: 1, slow_ms: Some(100), ..ProfilerSettings::default() };
        assert_eq!(old.command(&old), doc! { "profile": 1, "slowms": 100_i64 });
        let percona = ProfilerSettings { rate_limit: Some(50), ..old.clone() };
        assert_eq!(percona.command(&old), doc! { "profile": 1, "slowms": 100_i64, "ratelimit": 50_i64 });
        let reply = doc! { "was": 1, "slowms": 250, "sampleRate": 0.5, "filter": { "a": 1 }, "ratelimit": 7, "ok": 1.0 };
        let read = ProfilerSettings::read(&reply).unwrap();
        assert_eq!(
            (read.level, read.slow_ms, read.sample_rate, read.rate_limit),
            (1, Some(250), Some(0.5), Some(7))
        );
        assert_eq!(read.filter, Some(doc! { "a": 1 }));
        assert!(ProfilerSettings::read(&doc! { "ok": 1.0 }).is_err());
    }

    #[test]
    fn a_filter_is_extended_json() {
        assert_eq!(parse_filter(r#"{"millis": {"$gt": 50}}"#).unwrap(), doc! { "millis": { "$gt": 50 } });
        let dated = parse_filter(r#"{"ts": {"$gt": {"$date": "2026-01-01T00:00:00Z"}}}"#).unwrap();
        assert!(dated.get_document("ts").unwrap().get_datetime("$gt").is_ok());
        for wrong in ["", "[]", "5", "{a: 1}", "{\"a\": "] {
            assert!(parse_filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_to_restore_by_hand_has_the_filter() {
        let mut was = state(1, None);
        assert_eq!(
            by_hand(&was),
            r#"db.getSiblingDB("shop").runCommand({"profile":1,"slowms":100,"sampleRate":1.0,"filter":"unset"})"#
        );
        was.settings.filter = Some(doc! { "op": "query" });
        assert!(by_hand(&was).contains(r#""filter":{"op":"query"}"#));
    }
}
