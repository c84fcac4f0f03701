//! `mongosonar profiler status`.

use anyhow::Result;
use sonar_mongo::profiler::{self, ProfilerState};
use sonar_mongo::{Server, ServerError};
use sonar_view::profiler::status::{self, DatabaseProfile};

use super::args::StatusArgs;
use crate::confinement::{privileges, start_order};
use crate::exit::OK;
use crate::report_output::{fitted, print};

pub fn run(args: &StatusArgs) -> Result<u8> {
    let target = args.connection.target()?;
    start_order::drop_privileges(true, || privileges::drop_privileges_but_asking(&target));
    let server = Server::connect(target, 1)?;
    let databases = args.databases.names(&server, true)?;
    if let Err(error @ (ServerError::NoProfiler(_) | ServerError::Mongos(_))) = server.profiler("admin") {
        return Err(error.into());
    }
    let mut rows = Vec::with_capacity(databases.len());
    for database in databases {
        rows.push(match server.profiler(&database) {
            Ok(state) => row(state),
            // Of one database only; anything else applies to the server.
            Err(error @ (ServerError::Unauthorized { .. } | ServerError::Command { .. })) => {
                DatabaseProfile { database, error: Some(error.to_string()), ..DatabaseProfile::default() }
            }
            Err(error) => return Err(error.into()),
        });
    }
    let (label, now) = (server.info().label(), server.now()?);
    let text = fitted(|out| status::text(&label, &rows, now, out));
    print(args.json, |out| status::json(&label, &rows, now, out), text)?;
    Ok(OK)
}

/// The profiler of a database, as it is shown.
pub fn row(state: ProfilerState) -> DatabaseProfile {
    DatabaseProfile {
        database: state.database,
        level: Some(state.settings.level),
        slow_ms: state.settings.slow_ms,
        sample_rate: state.settings.sample_rate,
        filter: state.settings.filter.as_ref().map(profiler::json),
        rate_limit: state.settings.rate_limit,
        fill: state.collection,
        error: None,
    }
}
