//! `mongosonar profiler set`: shows the settings, changes them, and with `--duration` restores them.

use std::io::{self, Write};

use anyhow::{Result, bail};
use sonar_core::{ServerVersion, profiler};
use sonar_mongo::profiler::{
    self as server_profiler, DEFAULT_BYTES, ProfilerSettings, ProfilerState, SettingsChange, SettingsStep,
};
use sonar_mongo::{Server, StopFlag};
use sonar_view::kit::{ByteSize, Nanos, escape, plural};

use super::args::SetArgs;
use super::start;
use crate::exit::{OK, usage};
use crate::stop::{self, StopBehavior};

pub fn run(args: &SetArgs) -> Result<u8> {
    let wanted = wanted(args)?;
    if args.databases.db.is_empty() && !args.databases.all_dbs {
        return Err(usage!("which databases? Name them with --db NAME, or take all with --all-dbs"));
    }
    let target = args.connection.target()?;
    start::begin(&target, None)?;
    let signals = stop::listen(StopBehavior::Immediate)?;
    let stop = signals.requests().clone();
    let server = Server::connect(target, 1)?;
    let databases = args.databases.names(&server, false)?;
    if databases.is_empty() {
        bail!("{} has no databases except its own", server.info().label());
    }
    // Everything is read before the first command that changes something.
    let mut was = Vec::with_capacity(databases.len());
    for database in &databases {
        let state = server.profiler(database)?;
        server.can(&state, &wanted)?;
        was.push(state);
    }
    println!("{}", escape(&server.info().label()));
    for state in &was {
        println!("{}: was {}", escape(&state.database), describe(&state.settings, state));
    }
    warn(&server, &was, &wanted, args);
    if args.duration.is_some() {
        eprintln!("if this program is killed, these shell commands restore the profiler:");
        for state in &was {
            eprintln!("  {}", escape(&server_profiler::by_hand(state)));
        }
    }
    signals.set_behavior(StopBehavior::Careful);
    let set = set(&server, &was, &wanted, &stop);
    // Settings that an error or a signal left half done are not compared with the requested ones.
    let is_done = set.is_ok() && !stop.is_set();
    let shown = say_state(&server, &was, "now", |state| is_done.then(|| state.settings.with(&wanted)));
    let Some(duration) = args.duration else { return set.and(shown).map(|()| OK) };
    if let (Ok(()), Err(error)) = (&set, shown) {
        // Not a reason to leave it set.
        eprintln!("cannot read the new state of the server: {error}");
    }
    if set.is_ok() {
        eprintln!("for {}; Ctrl-C ends earlier", Nanos(duration.as_nanos() as u64));
        io::stdout().flush()?;
        server.wait(duration, &stop);
    }
    let mut is_waiting = false;
    let (done, failed) =
        server.put_back(&was, wanted.size_bytes.is_some() && !args.keep_size, &stop.later(), |error| {
            if !std::mem::replace(&mut is_waiting, true) {
                eprintln!("cannot restore the profiler yet ({error}); trying again, Ctrl-C gives up");
            }
        });
    let back: Vec<ProfilerState> =
        was.iter().filter(|state| done.contains(&state.database)).cloned().collect();
    if let Some(error) = failed {
        // What was restored counts, even if its state can no longer be read.
        say_state(&server, &back, "again", |state| Some(state.settings.clone())).ok();
        eprintln!("NOT restored; shell commands that do it:");
        for state in was.iter().filter(|state| !done.contains(&state.database)) {
            eprintln!("  {}", escape(&server_profiler::by_hand(state)));
        }
        return Err(error.into());
    }
    say_state(&server, &back, "again", |state| Some(state.settings.clone()))?;
    set.map(|()| OK)
}

/// Prints the present profiler of each database, and its differences from `expected`.
///
/// # Errors
/// The server did not answer.
fn say_state(
    server: &Server,
    was: &[ProfilerState],
    word: &str,
    expected: impl Fn(&ProfilerState) -> Option<ProfilerSettings>,
) -> Result<()> {
    for state in was {
        let now = server.profiler(&state.database)?;
        println!("{}: {word} {}", escape(&now.database), describe(&now.settings, &now));
        if let Some(other) = expected(state).and_then(|wanted| differences(&wanted, &now.settings)) {
            eprintln!("{}: the server did not accept everything: {other}", escape(&now.database));
        }
    }
    Ok(())
}

/// Which settings differ from the requested ones, in words.
fn differences(wanted: &ProfilerSettings, is: &ProfilerSettings) -> Option<String> {
    fn of<T: PartialEq>(name: &str, wanted: &T, is: &T) -> Option<String> {
        (wanted != is).then(|| name.to_owned())
    }
    let names: Vec<String> = [
        of("level", &wanted.level, &is.level),
        of("slowms", &wanted.slow_ms, &is.slow_ms),
        of("sample rate", &wanted.sample_rate, &is.sample_rate),
        of("filter", &wanted.filter, &is.filter),
        of("rate limit", &wanted.rate_limit, &is.rate_limit),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Sets it database by database.
fn set(server: &Server, was: &[ProfilerState], wanted: &SettingsChange, stop: &StopFlag) -> Result<()> {
    for state in was {
        if stop.is_set() {
            return Ok(());
        }
        // A change for a database before this one may have changed settings of the whole server.
        let now = server.profiler(&state.database)?;
        let steps = server_profiler::plan(&now, wanted);
        let resized = steps.iter().any(|step| matches!(step, SettingsStep::Create(_)));
        let taken = server.take(&state.database, &now.settings, &steps, |_| {});
        if let Err(error) = taken {
            if resized {
                // It must not stay off half-way.
                let off = ProfilerSettings { level: 0, ..now.settings.clone() };
                server.take(&state.database, &off, &[SettingsStep::Set(now.settings.clone())], |_| {}).ok();
            }
            return Err(error.into());
        }
    }
    Ok(())
}

fn wanted(args: &SetArgs) -> Result<SettingsChange> {
    let filter = match args.filter.as_deref() {
        None => None,
        Some("unset") => Some(None),
        Some(text) => Some(Some(server_profiler::parse_filter(text)?)),
    };
    let wanted = SettingsChange {
        level: args.level,
        slow_ms: args.slowms,
        sample_rate: args.sample_rate,
        filter,
        rate_limit: args.rate_limit,
        size_bytes: args.size,
    };
    if wanted == SettingsChange::default() {
        return Err(usage!(
            "nothing to set: give --level, --slowms, --sample-rate, --filter, --rate-limit or --size"
        ));
    }
    Ok(wanted)
}

/// What level 2 writes, in words: to `system.profile`, and with some versions and settings to the log.
fn what_level_2_writes(version: ServerVersion, settings: &ProfilerSettings) -> String {
    let log = if profiler::level_2_logs_all(version) {
        "and to the log too, as servers before 4.4 do"
    } else if settings.filter.is_some() {
        "to the log only what the filter takes"
    } else if settings.slow_ms.is_some_and(|ms| ms <= 0) {
        "and to the log too, because slowms is 0"
    } else {
        "to the log only what is slower than slowms"
    };
    format!("level 2: every operation is written to system.profile, {log}")
}

/// Warns what level 2 costs.
fn warn(server: &Server, was: &[ProfilerState], wanted: &SettingsChange, args: &SetArgs) {
    if wanted.level == Some(2) && was.iter().any(|state| state.settings.level != 2) {
        let settings = was.first().map(|state| state.settings.with(wanted)).unwrap_or_default();
        eprintln!(
            "{}. That can cost a busy server a third of its throughput and more; `mongosonar profiler impact` measures \
             it. Level 1 with --slowms or --filter costs next to nothing.",
            what_level_2_writes(server.info().numbers, &settings)
        );
        let lasting = args.duration.is_none();
        if lasting {
            eprintln!("level 2 stays until you set another; --duration 60s restores everything by itself");
        }
        let rate_limited = was.iter().any(|state| state.settings.rate_limit.is_some());
        if rate_limited && wanted.rate_limit.is_none() {
            eprintln!("this server keeps one operation in N with --rate-limit N");
        }
    }
    let Some(bytes) = wanted.size_bytes else { return };
    for state in was {
        if let Some(fill) =
            state.collection.filter(|fill| fill.max_bytes != Some(bytes) && fill.documents > 0)
        {
            eprintln!(
                "{}: another size drops what system.profile holds: {}",
                escape(&state.database),
                plural(fill.documents, "document")
            );
        }
    }
    if args.duration.is_some() && !args.keep_size {
        eprintln!(
            "putting the size back drops what was collected: read it before, or keep it with --keep-size"
        );
    }
}

/// A state in one line.
fn describe(settings: &ProfilerSettings, state: &ProfilerState) -> String {
    let mut text = format!("level {}", settings.level);
    if let Some(ms) = settings.slow_ms {
        text.push_str(&format!(", slowms {ms}"));
    }
    if let Some(rate) = settings.sample_rate {
        text.push_str(&format!(", sample rate {rate}"));
    }
    match &settings.filter {
        Some(filter) => text.push_str(&format!(", filter {}", escape(&server_profiler::json(filter)))),
        None => text.push_str(", no filter"),
    }
    if let Some(limit) = settings.rate_limit {
        text.push_str(&format!(", rate limit {limit}"));
    }
    match state.collection {
        None if settings.level == 0 => text.push_str(", no system.profile"),
        // The server creates it when it first writes to it.
        None => text.push_str(&format!(", no system.profile yet (made with {})", ByteSize(DEFAULT_BYTES))),
        Some(fill) => {
            text.push_str(", system.profile");
            if let Some(bytes) = fill.max_bytes {
                text.push_str(&format!(" of {}", ByteSize(bytes)));
            }
            text.push_str(&format!(" with {}", plural(fill.documents, "document")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use sonar_core::profiler::Fill;

    use super::*;

    #[test]
    fn what_level_2_writes_depends_on_version_and_settings() {
        let slow = ProfilerSettings { slow_ms: Some(100), ..ProfilerSettings::default() };
        let all = ProfilerSettings { slow_ms: Some(0), ..ProfilerSettings::default() };
        let filtered =
            ProfilerSettings { filter: Some(server_profiler::parse_filter("{}").unwrap()), ..slow.clone() };
        // Measured: a real 4.0 logs each operation, a real 4.4.6 0 to 40 bytes a second.
        assert!(what_level_2_writes(ServerVersion::new(4, 0, 28), &slow).contains("and to the log too"));
        for version in ["4.4.6", "5.0.0", "8.0.4"].map(ServerVersion::parse) {
            assert!(
                what_level_2_writes(version, &slow).ends_with("to the log only what is slower than slowms")
            );
            assert!(what_level_2_writes(version, &filtered).ends_with("only what the filter takes"));
            assert!(what_level_2_writes(version, &all).ends_with("because slowms is 0"));
        }
    }

    #[test]
    fn a_state_is_described_as_it_is() {
        let none = ProfilerState::default();
        assert_eq!(describe(&none.settings, &none), "level 0, no filter, no system.profile");
        let two = ProfilerSettings { level: 2, ..ProfilerSettings::default() };
        assert!(describe(&two, &none).ends_with("no system.profile yet (made with 1MiB)"));
        let fill = Fill { max_bytes: Some(4 << 20), documents: 7, ..Fill::default() };
        let held = ProfilerState { collection: Some(fill), ..ProfilerState::default() };
        assert!(
            describe(&held.settings, &held)
                .ends_with("level 0, no filter, system.profile of 4MiB with 7 documents")
        );
    }

    #[test]
    fn settings_that_a_server_did_not_accept_are_named() {
        let wanted = ProfilerSettings { level: 2, slow_ms: Some(20), ..ProfilerSettings::default() };
        assert_eq!(differences(&wanted, &wanted), None);
        let is = ProfilerSettings {
            level: 1,
            slow_ms: Some(20),
            rate_limit: Some(5),
            ..ProfilerSettings::default()
        };
        assert_eq!(differences(&wanted, &is).as_deref(), Some("level, rate limit"));
    }
}
