//! Which logs of a report are of routers (mongos), and which of the servers to which these send operations.
//!
//! What a client asks of a router is an operation of the router, and again one of each shard that has a part in it. In one
//! report it is there twice or more often.

use sonar_core::Execution;
use sonar_view::kit::{Grouped, plural};

/// The most files that a note names.
const MAX_NAMED: usize = 8;

/// The operations of a file.
#[derive(Clone, Debug, Default)]
struct RoutedFile {
    name: String,
    /// Those that a router sent on.
    of_router: u64,
    /// Those that came from a router.
    from_router: u64,
}

/// The operations of each file that were counted so far.
#[derive(Clone, Debug, Default)]
pub struct RoutedFiles(Vec<RoutedFile>);

impl RoutedFiles {
    /// The next operations are of this file.
    pub fn file(&mut self, name: &str) {
        self.0.push(RoutedFile { name: name.to_owned(), ..RoutedFile::default() });
    }

    /// Counts an operation of a user; returns whether a server sent it.
    pub fn count(&mut self, execution: &Execution<'_>) -> bool {
        let Some(file) = self.0.last_mut() else { return false };
        let (is_from_server, weight) = (execution.is_from_server, execution.weight());
        match (is_from_server, execution.shards) {
            (true, _) => file.from_router += weight,
            (false, Some(_)) => file.of_router += weight,
            (false, None) => {}
        }
        is_from_server
    }

    /// Says which files are of routers, and how many operations of the others are there twice; `None` if there are not both.
    pub fn note(&self) -> Option<String> {
        let (routers, others): (Vec<_>, Vec<_>) = self
            .0
            .iter()
            .filter(|file| file.of_router > 0 || file.from_router > 0)
            .partition(|file| file.of_router > file.from_router);
        let of_routers: u64 = routers.iter().map(|file| file.of_router).sum();
        let from_routers: u64 = others.iter().map(|file| file.from_router).sum();
        if of_routers == 0 || from_routers == 0 {
            return None;
        }
        let names = |files: &[&RoutedFile]| {
            let mut names: Vec<String> = files.iter().take(MAX_NAMED).map(|file| file.name.clone()).collect();
            if files.len() > MAX_NAMED {
                names.push(plural(files.len() - MAX_NAMED, "other"));
            }
            match &*names {
                [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
                only => only.concat(),
            }
        };
        let (is_router, server) = (
            if routers.len() == 1 { "is the log of a router" } else { "are logs of routers" },
            if others.len() == 1 { "a server" } else { "servers" },
        );
        Some(format!(
            "{} {is_router} ({}), {} of {server} to which routers sent {}. What a client asked of a router is there \
             again for each shard that had a part in it, so calls and times count it twice or more: rows by shape say \
             which were \"sent by a router\". A report of the routers alone has what clients asked for, one of the \
             others how it was executed.",
            names(&routers),
            plural(Grouped(of_routers), "operation"),
            names(&others),
            plural(Grouped(from_routers), "operation"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_routers_from_servers_with_data_if_there_are_both() {
        let of_router = Execution { shards: Some(2), ..Execution::default() };
        let from_router = Execution { is_from_server: true, ..Execution::default() };
        let direct = Execution::default();
        let files = |each: &[(&str, &Execution<'_>, u64)]| {
            let mut files = RoutedFiles::default();
            for (name, execution, count) in each {
                files.file(name);
                for _ in 0..*count {
                    assert_eq!(files.count(execution), execution.is_from_server);
                }
            }
            files.note()
        };
        let router = ("mongos.log", &of_router, 3);
        for alone in [&[router][..], &[("a.log", &from_router, 5)], &[router, ("a.log", &direct, 2)]] {
            assert_eq!(files(alone), None);
        }
        let note = files(&[("a.log", &from_router, 1_200), router, ("b.log", &from_router, 5)]).unwrap();
        let begin = "mongos.log is the log of a router (3 operations), a.log and b.log of servers to which routers \
                     sent 1,205 operations. ";
        assert!(note.starts_with(begin), "{note}");
    }
}
