//! `mongosonar profiler set`: says what was, sets it, and with `--duration` puts it back.

use std::io::{self, Write};
use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use sonar_mongo::control::{self, DEFAULT_BYTES, Settings, State, Step, Wanted};
use sonar_mongo::{Server, Stop};
use sonar_view::text::escape;
use sonar_view::units::{Nanos, Size};

use super::args::SetArgs;
use crate::cli::OK;
use crate::exit::usage;

pub fn run(args: &SetArgs) -> Result<u8> {
    let wanted = wanted(args)?;
    if args.databases.db.is_empty() && !args.databases.all_dbs {
        return Err(usage!("which databases? Name them with --db NAME, or take all with --all-dbs"));
    }
    let (stop, flag) = super::stop_flag()?;
    let server = Server::connect(args.connection.target()?, 1)?;
    let databases = super::databases(&server, &args.databases, false)?;
    if databases.is_empty() {
        bail!("{} has no databases but its own", server.info().label());
    }
    // All is read, and nothing changed, before the first command that changes something.
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
    warn(&was, &wanted, args);
    if args.duration.is_some() {
        eprintln!("should this program be killed, these lines of the shell put it back:");
        for state in &was {
            eprintln!("  {}", escape(&control::by_hand(state)));
        }
    }
    let set = set(&server, &was, &wanted, &stop);
    let Some(duration) = args.duration else { return set.map(|()| OK) };
    if set.is_ok() {
        eprintln!("for {}; Ctrl-C ends it earlier", Nanos(duration.as_nanos() as u64));
        io::stdout().flush()?;
        server.wait(duration, &stop);
    }
    // From here on a second signal means: give up.
    flag.store(false, Ordering::Relaxed);
    let mut told = false;
    let (done, failed) =
        server.put_back(&was, wanted.size_bytes.is_some() && !args.keep_size, &stop, |error| {
            if !std::mem::replace(&mut told, true) {
                eprintln!("cannot put it back yet ({error}); trying again until it can be, Ctrl-C gives up");
            }
        });
    for state in was.iter().filter(|state| done.contains(&state.database)) {
        println!("{}: again {}", escape(&state.database), describe(&state.settings, state));
    }
    if let Some(error) = failed {
        eprintln!("NOT put back; in the shell:");
        for state in was.iter().filter(|state| !done.contains(&state.database)) {
            eprintln!("  {}", escape(&control::by_hand(state)));
        }
        return Err(error.into());
    }
    set.map(|()| OK)
}

/// Sets it database by database.
fn set(server: &Server, was: &[State], wanted: &Wanted, stop: &Stop) -> Result<()> {
    for state in was {
        if stop.is_set() {
            return Ok(());
        }
        // Another database before this one may have changed what is the whole server's.
        let now = server.profiler(&state.database)?;
        let steps = control::plan(&now, wanted);
        let resized = steps.iter().any(|step| matches!(step, Step::Create(_)));
        let taken = server.take(&state.database, &now.settings, &steps, |_| {});
        if let Err(error) = taken {
            if resized {
                // Not left switched off half-way.
                let off = Settings { level: 0, ..now.settings.clone() };
                server.take(&state.database, &off, &[Step::Set(now.settings.clone())], |_| {}).ok();
            }
            return Err(error.into());
        }
        let now = server.profiler(&state.database)?;
        println!("{}: now {}", escape(&state.database), describe(&now.settings, &now));
        if now.settings != state.settings.with(wanted) {
            eprintln!("{}: the server did not take all of it", escape(&state.database));
        }
    }
    Ok(())
}

fn wanted(args: &SetArgs) -> Result<Wanted> {
    let filter = match args.filter.as_deref() {
        None => None,
        Some("unset") => Some(None),
        Some(text) => Some(Some(control::parse_filter(text)?)),
    };
    let wanted = Wanted {
        level: args.level,
        slow_ms: args.slowms,
        sample_rate: args.sample_rate,
        filter,
        rate_limit: args.rate_limit,
        size_bytes: args.size,
    };
    if wanted == Wanted::default() {
        return Err(usage!(
            "nothing to set: give --level, --slowms, --sample-rate, --filter, --rate-limit or --size"
        ));
    }
    Ok(wanted)
}

/// What it costs, before it costs it.
fn warn(was: &[State], wanted: &Wanted, args: &SetArgs) {
    if wanted.level == Some(2) && was.iter().any(|state| state.settings.level != 2) {
        eprintln!(
            "level 2: every operation is written to system.profile, and from now on to the log too. A busy server \
             may lose a third of its throughput and more; `mongosonar profiler impact` measures it. Level 1 with \
             --slowms or --filter costs next to nothing."
        );
        let lasting = args.duration.is_none();
        if lasting {
            eprintln!("level 2 stays until it is set back; --duration 60s puts everything back by itself");
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
                "{}: another size drops the {} documents that system.profile holds",
                escape(&state.database),
                fill.documents
            );
        }
    }
    if args.duration.is_some() && !args.keep_size {
        eprintln!(
            "putting the size back drops what was collected: read it before, or keep it with --keep-size"
        );
    }
}

/// In one line.
fn describe(settings: &Settings, state: &State) -> String {
    let mut text = format!("level {}", settings.level);
    if let Some(ms) = settings.slow_ms {
        text.push_str(&format!(", slowms {ms}"));
    }
    if let Some(rate) = settings.sample_rate {
        text.push_str(&format!(", sample rate {rate}"));
    }
    match &settings.filter {
        Some(filter) => text.push_str(&format!(", filter {}", escape(&control::json(filter)))),
        None => text.push_str(", no filter"),
    }
    if let Some(limit) = settings.rate_limit {
        text.push_str(&format!(", rate limit {limit}"));
    }
    match state.collection {
        None => text.push_str(&format!(", no system.profile (it is made with {})", Size(DEFAULT_BYTES))),
        Some(fill) => {
            if let Some(bytes) = fill.max_bytes {
                text.push_str(&format!(", system.profile of {}", Size(bytes)));
            }
        }
    }
    text
}
