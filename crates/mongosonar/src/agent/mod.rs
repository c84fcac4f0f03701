//! `mongosonar agent`: collects all the time, and keeps what it collects.

mod applications;
mod args;
mod figures;
mod file_work;
mod live;
mod log_operations;
mod memory;
mod notify;
mod part_channel;
mod process_memory;
mod replay;
mod servers;
mod settings;
pub mod status_file;
mod store;
mod summed_store;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use sonar_core::Timestamp;
use sonar_core::time::NS_PER_S;
use sonar_view::agent::{AgentStatus, AgentSummary, CheckedConfiguration};
use sonar_view::kit::json::line;
use sonar_view::kit::{Nanos, Zone, plural};

pub use self::args::{AgentArgs, EXAMPLES};
use self::live::LivePlan;
use self::replay::ReplayPlan;
use self::settings::AgentSettings;
use crate::args::when::now;
use crate::confinement::{privileges, start_order};
use crate::exit::{self, OK};
use crate::report_output::print;
use crate::{input, stop};

/// A status that is older than this is that of an agent that stands still, in nanoseconds.
const SILENT_NS: u64 = 30 * NS_PER_S;

/// Runs the command; returns the exit code. `config` is the configuration file that was named.
pub fn run(args: &AgentArgs, config: Option<&Path>) -> Result<u8> {
    let loaded = AgentSettings::load(config);
    if args.check_config {
        return check(config, loaded.map(|(_, file)| file), args.json);
    }
    let (mut settings, _) = loaded?;
    let folder = &args.store.clone().unwrap_or_else(|| settings.store.path.clone());
    if !args.replay.is_empty() {
        let plan = ReplayPlan { paths: &args.replay, port: args.port, folder };
        let store = store::open(folder, &settings.store, false)?;
        if args.privileges.are_dropped() {
            stop::prepare()?;
            input::prepare_copies(args.replay.iter().map(PathBuf::as_path));
            start_order::drop_privileges(true, || privileges::drop_privileges_but_replaying(folder));
        }
        let replayed = replay::run(&plan, store).map_err(|error| match args.privileges.are_dropped() {
            true => denied_to_confined(error, &args.replay),
            false => error,
        });
        let (summary, code) = replayed?;
        show(&summary, args.json)?;
        return Ok(code);
    }
    if args.status {
        return status(folder, args.json);
    }
    let (once, confined) = (args.once, args.privileges.are_dropped());
    let mut targets = settings.targets();
    targets.extend(args.server.named_or_in_environment()?);
    settings.queries.tunnels |= args.tunnels;
    let begun = Instant::now();
    let tunnels = args.tunnels;
    let absolute = absolute(config)?;
    let config = absolute.as_deref();
    let mut summary = live::run(LivePlan { folder, settings, targets, config, tunnels, once, confined })?;
    let Some(once) = once else {
        let why = exit::stopped().map_or_else(String::new, |(what, _)| format!(" by {what}"));
        eprintln!(
            "mongosonar: stopped{why} after {}: {} stored in {}",
            Nanos(begun.elapsed().as_secs() * NS_PER_S),
            plural(summary.windows, "window"),
            folder.display()
        );
        return Ok(OK);
    };
    let stopped = exit::stopped();
    if let Some((what, _)) = stopped {
        let (after, whole) = (Nanos(begun.elapsed().as_secs() * NS_PER_S), Nanos(once.as_nanos() as u64));
        summary
            .notes
            .push(format!("stopped by {what} after {after} of {whole}; what was collected is stored"));
    }
    show(&summary, args.json)?;
    Ok(stopped.map_or(OK, |(_, code)| code))
}

/// The configuration file as it is read again when it has changed. The agent may then read below its folder only, and the
/// parent of a bare name would be no folder at all.
fn absolute(config: Option<&Path>) -> Result<Option<PathBuf>> {
    config.map(std::path::absolute).transpose().context("cannot find the folder of the configuration file")
}

/// An error of a replay that has dropped its privileges, with what to do where that denies it a file of another process.
fn denied_to_confined(error: anyhow::Error, paths: &[PathBuf]) -> anyhow::Error {
    let is_denial = |cause: &io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
    let is_denied = error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_denial));
    match is_denied && paths.iter().any(|path| privileges::is_of_another_process(path)) {
        true => anyhow!(
            "{}; a replay may not look into other processes: add --keep-privileges, or copy the file",
            exit::message(&error)
        ),
        false => error,
    }
}

/// Says whether the configuration is valid; `loaded` is the file that it was read from, if there is one.
///
/// # Errors
/// It is not valid. With `json`, that is a part of the answer.
fn check(config: Option<&Path>, loaded: Result<Option<PathBuf>>, json: bool) -> Result<u8> {
    let file = checked_file(config, &loaded).map(|file| file.display().to_string());
    let (problem, code) = match loaded {
        Ok(_) => (None, OK),
        Err(error) if json => (Some(exit::message(&error)), exit::code(&error)),
        Err(error) => return Err(error),
    };
    let checked = CheckedConfiguration::new(file, problem);
    print(json, |out| line(&checked, out), |mut out| checked.text(settings::PLACE, &mut out))?;
    Ok(code)
}

/// The file that was checked; `None` if there is none.
fn checked_file<'a>(config: Option<&'a Path>, loaded: &'a Result<Option<PathBuf>>) -> Option<&'a Path> {
    match loaded {
        Ok(file) => file.as_deref(),
        // Without a name it was the one that is read by default.
        Err(_) => Some(config.unwrap_or(Path::new(settings::PLACE))),
    }
}

/// Shows what the running agent does.
fn status(folder: &Path, json: bool) -> Result<u8> {
    let Some(status) = status_file::read(folder)? else {
        if !folder.is_dir() {
            bail!(
                "there is no folder {}: no agent stores there, or it was deleted under a running one, which then ends, so \
                 that its service starts it again and makes the folder: systemctl status mongosonar",
                folder.display()
            );
        }
        bail!(
            "no agent runs that stores into {}; start it: systemctl start mongosonar, or mongosonar agent",
            folder.display()
        );
    };
    if let Some(text) = silence(&status, now()) {
        eprintln!("mongosonar: {text}");
    }
    print(json, |out| status.json(out), |mut out| status.text(&Zone::default(), &mut out))?;
    Ok(OK)
}

/// That a running agent does not write its status any more, if that is so: it does it every two seconds.
fn silence(status: &AgentStatus, now: Timestamp) -> Option<String> {
    let old_ns = now.since(Timestamp::from_unix_ns(status.written_ns));
    (old_ns >= SILENT_NS).then(|| {
        format!(
            "the agent (process {}) last wrote its status {} ago: it was stopped, or waits for a file system",
            status.pid,
            Nanos(old_ns / NS_PER_S * NS_PER_S)
        )
    })
}

fn show(summary: &AgentSummary, json: bool) -> Result<()> {
    print(json, |out| summary.json(out), |mut out| summary.text(&mut out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_named_without_a_folder_has_one_when_it_is_read_again() {
        let here = std::env::current_dir().unwrap();
        let read_again = absolute(Some(Path::new("agent.toml"))).unwrap().unwrap();
        assert_eq!(read_again.parent(), Some(here.as_path()));
        assert_eq!(absolute(None).unwrap(), None);
    }

    #[test]
    fn a_configuration_that_is_not_valid_is_named_also_without_its_name() {
        let (named, read, wrong) =
            (Path::new("/a.toml"), Ok(Some("/b.toml".into())), Err(anyhow::anyhow!("x")));
        assert_eq!(checked_file(Some(named), &wrong), Some(named));
        assert_eq!(checked_file(None, &wrong), Some(Path::new(settings::PLACE)));
        assert_eq!(checked_file(None, &read), Some(Path::new("/b.toml")));
        assert_eq!(checked_file(None, &Ok(None)), None);
    }

    #[test]
    fn a_replay_that_may_not_look_into_other_processes_says_what_to_do() {
        let said = |kind: io::ErrorKind, path: &str| {
            let error = anyhow::Error::new(io::Error::from(kind)).context(format!("cannot open {path}"));
            exit::message(&denied_to_confined(error, &[PathBuf::from(path)]))
        };
        let (denied, of_container) = (io::ErrorKind::PermissionDenied, "/proc/1/root/mongod.log");
        let expected = "cannot open /proc/1/root/mongod.log: permission denied; a replay may not look into other \
                        processes: add --keep-privileges, or copy the file";
        assert_eq!(said(denied, of_container), expected);
        assert_eq!(said(denied, "/root/mongod.log"), "cannot open /root/mongod.log: permission denied");
        assert!(!said(io::ErrorKind::NotFound, of_container).contains("--keep-privileges"));
    }

    #[test]
    fn an_old_status_is_named_as_such() {
        let written = Timestamp::from_unix(1_000, 0);
        let status = AgentStatus { pid: 7, written_ns: written.unix_ns(), ..AgentStatus::default() };
        assert_eq!(silence(&status, written.plus_ns(5 * NS_PER_S)), None);
        let text = silence(&status, written.plus_ns(90 * NS_PER_S)).unwrap();
        assert!(text.starts_with("the agent (process 7) last wrote its status 1m30s ago: "), "{text}");
        assert_eq!(silence(&status, Timestamp::from_unix(1, 0)), None, "the clock was set back");
    }
}
