//! Which process to sample.

use std::fs;

use anyhow::{Result, bail};
use sonar_sys::Host;
use sonar_view::stacks::StackProcess;

use super::args::StacksArgs;
use crate::exit::usage;
use crate::servers;

/// The process to sample: the named one, the one that listens on the named port, or the only server of this machine.
///
/// # Errors
/// There is none, or several, or it has ended.
pub fn choose(args: &StacksArgs) -> Result<StackProcess> {
    let host = Host::live();
    match (args.pid, args.port) {
        (Some(pid), _) => named(pid),
        (None, Some(port)) => named(servers::at_port::process_at_port(&servers::listeners(&host)?, port)?),
        (None, None) => match servers::mongodb(&host).as_slice() {
            [one] => named(one.pid),
            [] => bail!("no mongod or mongos runs here: name another process with --pid"),
            several => {
                let list: Vec<String> =
                    several.iter().map(|server| format!("{} {}", server.name, server.pid)).collect();
                Err(usage!("several servers run here, so --port or --pid is needed: {}", list.join(", ")))
            }
        },
    }
}

fn named(pid: u32) -> Result<StackProcess> {
    // The name of the file, which distinguishes its mappings from those of libraries.
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let program = program.as_deref().map(|path| path.strip_suffix(" (deleted)").unwrap_or(path));
    let name = program.and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let name =
        name.or_else(|| Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned()));
    match name {
        Some(name) => Ok(StackProcess { pid, name }),
        None => bail!("there is no process {pid}"),
    }
}
