//! Which processes get a place where there are too few. Any user may start processes, call them what he likes, and run a
//! program of his own that has the name of a server's.

use std::collections::{BTreeMap, HashMap};

use super::process::Process;

/// At most so many of the processes, the lowest number first. Those whose program file has their name come before all
/// others, and each user gets as many places as any other.
pub fn placed(processes: impl IntoIterator<Item = Process>, places: usize) -> Vec<Process> {
    let mut of_owner: HashMap<_, usize> = HashMap::new();
    let mut placed = BTreeMap::new();
    for process in processes {
        let owner = (!process.is_proven(), process.user());
        let rank = of_owner.entry(owner).or_default();
        *rank += 1;
        placed.insert((owner.0, *rank, process.pid), process);
        if placed.len() > places {
            placed.pop_last();
        }
    }
    let mut placed: Vec<Process> = placed.into_values().collect();
    placed.sort_unstable_by_key(|process| process.pid);
    placed
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::Host;
    use super::super::process::MAX_PROCESSES;
    use super::*;
    use crate::tree::TempTree;

    #[test]
    fn a_server_has_its_place_among_any_number_of_processes_that_another_user_calls_so() {
        let tree = TempTree::new("places", &[("proc/uptime", "1 1\n")]);
        let process = |pid: usize, program: &str, user: u32| {
            let folder = tree.0.join("proc").join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), "mongod\n").unwrap();
            fs::write(folder.join("status"), format!("Name:\tmongod\nUid:\t{user}\t0\t0\t0\n")).unwrap();
            symlink(program, folder.join("exe")).unwrap();
        };
        let (copies, last) = (20, MAX_PROCESSES + 1);
        (1..=copies).for_each(|pid| process(pid, "/home/mongod", 1_000));
        (copies + 1..last).for_each(|pid| process(pid, "/usr/bin/python3", 1_000));
        process(last, "/usr/bin/mongod", 999);
        let host = Host::at(&tree.0);
        let numbers = |found: &[Process]| found.iter().map(|one| one.pid as usize).collect::<Vec<_>>();
        let found = host.processes(&["mongod"]);
        assert_eq!((found.len(), numbers(&found).last()), (MAX_PROCESSES, Some(&last)));
        assert_eq!(numbers(&placed(found.clone(), 3)), [1, 2, last]);
        assert_eq!(numbers(&placed(found, copies + 2)), (1..=copies + 1).chain([last]).collect::<Vec<_>>());
        assert_eq!(numbers(&host.processes_running(&["mongod"])).len(), copies + 1);
        assert!(placed(host.processes_running(&["mongod"]), 0).is_empty());
    }
}
