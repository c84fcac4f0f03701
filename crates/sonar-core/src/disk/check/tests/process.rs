//! The process of a server: what it may use, and how it was started.

use super::*;
use crate::machine::ControlGroup;

const GIB: u64 = 1 << 30;

/// A mongod with these bounds on a machine with 64 GiB and 16 processors.
fn bounded(bounds: ProcessBounds) -> MachineFacts {
    MachineFacts {
        has_mongod: true,
        memory: Some(64 * GIB),
        processors: Some(16),
        bounds: Some(bounds),
        ..MachineFacts::default()
    }
}

fn in_group(group: ControlGroup) -> ProcessBounds {
    ProcessBounds { group: Some(group), ..ProcessBounds::default() }
}

fn found(facts: &MachineFacts, name: &str) -> Option<(Grade, String)> {
    findings(facts).into_iter().find(|one| one.name == name).map(|one| (one.grade, one.found))
}

#[test]
fn memory_is_judged_by_the_limit_and_not_by_the_machine() {
    let group = ControlGroup {
        memory_limit: Some(4 * GIB),
        memory: Some(4 * GIB),
        memory_files: Some(GIB / 20),
        ..ControlGroup::default()
    };
    // 3.59 GiB are 5.6 % of the machine, and the group is nearly full.
    let bounds = ProcessBounds {
        resident: Some(GIB * 359 / 100),
        folders: [None, Some("/sys/fs/cgroup/docker/ab".into()), None],
        ..in_group(group)
    };
    let (grade, words) = found(&bounded(bounds.clone()), "memory").unwrap();
    assert_eq!(grade, Grade::Problem);
    assert_eq!(
        words,
        "99 % of the limit of 4.0 GiB is in use (by /sys/fs/cgroup/docker/ab); the machine has 64.0 GiB"
    );
    // Page cache of files is no trouble: the kernel takes it back.
    let cached = ControlGroup { memory_files: Some(3 * GIB), ..group };
    let (grade, words) = found(&bounded(in_group(cached)), "memory").unwrap();
    assert_eq!((grade, words.split(" %").next()), (Grade::Ok, Some("25")));
    // Without a limit, or with one that is none, the machine counts.
    for limit in [None, Some(64 * GIB), Some(1 << 60)] {
        let group = ControlGroup { memory_limit: limit, ..group };
        let bounds = ProcessBounds { group: Some(group), ..bounds.clone() };
        let (grade, words) = found(&bounded(bounds), "memory").unwrap();
        assert_eq!(
            (grade, words.as_str()),
            (Grade::Ok, "mongod has 3.6 GiB of the machine's 64.0 GiB (5.6 %)")
        );
    }
    assert_eq!(found(&bounded(ProcessBounds::default()), "memory"), None, "nothing is known");
    let killed = ControlGroup { out_of_memory_kills: Some(1), ..ControlGroup::default() };
    assert_eq!(
        found(&bounded(in_group(killed)), "memory-kills"),
        Some((Grade::Warning, "1 process killed for lack of memory since the group was made".to_owned()))
    );
    // The limit is to blame only if there is one, and it was reached.
    let limited = ControlGroup { memory_limit: Some(4 * GIB), memory_limit_hits: Some(0), ..killed };
    let reached = ControlGroup { memory_limit_hits: Some(1), ..limited };
    let unlimited = ControlGroup { memory_limit: None, ..reached };
    for (group, is_by_limit) in [(killed, false), (limited, false), (reached, true), (unlimited, false)] {
        let all = findings(&bounded(in_group(group)));
        let finding = all.iter().find(|one| one.name == "memory-kills").unwrap();
        assert_eq!(finding.why.contains("had reached its limit"), is_by_limit, "{group:?}");
        assert_eq!(finding.remedy.as_deref().unwrap().contains("higher limit"), is_by_limit, "{group:?}");
    }
}

#[test]
fn the_cache_must_fit_into_the_limit() {
    let group = ControlGroup { memory_limit: Some(4 * GIB), ..ControlGroup::default() };
    let with = |cache: Option<u64>, version, is_version_2| {
        let bounds = ProcessBounds { cache, is_version_2, ..in_group(group) };
        grade(&MachineFacts { version, ..bounded(bounds) }, "memory-cache")
    };
    assert_eq!(with(Some(2 * GIB), Some((8, 0)), true), Some(Grade::Ok));
    assert_eq!(with(Some(4 * GIB), None, true), Some(Grade::Problem));
    // Half of 63 GiB is taken by versions that do not see the limit.
    assert_eq!(with(None, Some((4, 2)), true), Some(Grade::Problem));
    assert_eq!(with(None, Some((4, 4)), true), Some(Grade::Warning));
    assert_eq!(with(None, Some((5, 0)), true), Some(Grade::Warning));
    for version in [Some((6, 0)), Some((8, 0)), None] {
        assert_eq!(with(None, version, true), None, "{version:?}");
    }
    assert_eq!(with(None, Some((4, 2)), false), None, "it sees version 1");
}

#[test]
fn processors_are_those_that_mongod_may_use() {
    let quota = |stopped| ControlGroup {
        cpu_limit: Some(1.5),
        periods: Some((1_000, stopped)),
        ..ControlGroup::default()
    };
    for (stopped, expected) in [(0, Grade::Ok), (15, Grade::Warning), (400, Grade::Problem)] {
        assert_eq!(grade(&bounded(in_group(quota(stopped))), "processors"), Some(expected), "{stopped}");
    }
    let bounds = ProcessBounds { folders: [Some("/g".into()), None, None], ..in_group(quota(400)) };
    let words = found(&bounded(bounds), "processors").unwrap().1;
    assert_eq!(
        words,
        "1.5 of the machine's 16 processors (by /g); since the group was made its threads were stopped in 40.0 % of the periods"
    );
    let affinity = ProcessBounds { allowed_processors: Some(4), ..ProcessBounds::default() };
    assert_eq!(
        found(&bounded(affinity), "processors"),
        Some((Grade::Ok, "4 of the machine's 16 processors, by affinity".to_owned()))
    );
    let all = ProcessBounds { allowed_processors: Some(16), ..ProcessBounds::default() };
    assert_eq!(found(&bounded(all), "processors"), None);
}

#[test]
fn tasks_must_allow_a_thread_for_each_connection() {
    let with = |tasks, limit, max_connections| {
        let group = ControlGroup { tasks: Some(tasks), task_limit: Some(limit), ..ControlGroup::default() };
        grade(&MachineFacts { max_connections, ..bounded(in_group(group)) }, "tasks")
    };
    assert_eq!(with(90, 100_000, None), Some(Grade::Ok));
    assert_eq!(with(90, 4_915, None), Some(Grade::Warning), "51,200 connections");
    assert_eq!(with(90, 4_915, Some(2_000)), Some(Grade::Ok));
    assert_eq!(with(4_900, 4_915, Some(2_000)), Some(Grade::Problem));
}

#[test]
fn the_maximum_of_connections_counts_for_the_mappings() {
    let with = |open: u64, max_connections, count| {
        let facts = MachineFacts {
            has_mongod: true,
            limits: vec![("Max open files".into(), Some(open))],
            max_connections,
            max_map_count: Some(count),
            ..MachineFacts::default()
        };
        found(&facts, "max-map-count").unwrap()
    };
    // As mongod 8.0 says with 1,048,576 descriptors: recommendedMinimum 1677720, maxConns 838860.
    assert_eq!(
        with(1_048_576, None, 1_048_576),
        (Grade::Warning, "vm.max_map_count is 1048576; 1677720 for 838860 connections".to_owned())
    );
    assert_eq!(with(1_048_576, Some(10_000), 65_530).0, Grade::Ok);
    assert_eq!(
        with(1_048_576, Some(1_000_000), 1_048_576).0,
        Grade::Warning,
        "not more than the descriptors allow"
    );
}

#[test]
fn the_allocator_of_8_0_has_its_own_settings() {
    let base = |version| MachineFacts {
        version: Some(version),
        kernel: Some("6.8.0-45-generic".into()),
        ..MachineFacts::default()
    };
    let overcommit =
        |version, mode| grade(&MachineFacts { overcommit: Some(mode), ..base(version) }, "overcommit");
    assert_eq!(
        [0, 1, 2].map(|mode| overcommit((8, 0), mode).unwrap()),
        [Grade::Warning, Grade::Ok, Grade::Warning]
    );
    assert_eq!(
        [0, 1, 2].map(|mode| overcommit((7, 0), mode).unwrap()),
        [Grade::Ok, Grade::Ok, Grade::Warning]
    );
    let rseq = |tunables: Option<&str>, kernel: &str| {
        let facts = MachineFacts {
            glibc_tunables: Some(tunables.map(str::to_owned)),
            kernel: Some(kernel.to_owned()),
            ..base((8, 0))
        };
        grade(&facts, "rseq")
    };
    assert_eq!(rseq(Some("glibc.malloc.check=1:glibc.pthread.rseq=0"), "6.8.0"), Some(Grade::Ok));
    for tunables in [None, Some(""), Some("glibc.pthread.rseq=1"), Some("glibc.pthread.rseqx=0")] {
        assert_eq!(rseq(tunables, "6.8.0"), Some(Grade::Warning), "{tunables:?}");
    }
    assert_eq!(rseq(Some("glibc.pthread.rseq=0"), "4.4.0-31"), Some(Grade::Warning), "too old");
    // SERVER-121912: from 6.19 to 7.0.13 mongod 8 does not start with it.
    for (kernel, with, without) in [
        ("6.18.9", Grade::Ok, Grade::Warning),
        ("6.19.0-arch1", Grade::Problem, Grade::Ok),
        ("7.0.13", Grade::Problem, Grade::Ok),
        ("7.0.14", Grade::Ok, Grade::Warning),
        ("7.1.0", Grade::Ok, Grade::Warning),
    ] {
        assert_eq!(rseq(Some("glibc.pthread.rseq=0"), kernel), Some(with), "{kernel}");
        assert_eq!(rseq(None, kernel), Some(without), "{kernel}");
    }
    let old_glibc = MachineFacts { glibc: Some((2, 31)), glibc_tunables: Some(None), ..base((8, 0)) };
    assert_eq!(grade(&old_glibc, "rseq"), Some(Grade::Ok));
    assert_eq!(grade(&base((8, 0)), "rseq"), None, "the environment cannot be seen");
    assert_eq!(grade(&MachineFacts { glibc_tunables: Some(None), ..base((7, 0)) }, "rseq"), None);
}

#[test]
fn huge_pages_are_judged_by_the_allocator_and_the_process() {
    let with = |version, kernel: &str, opted_out: bool, set: &str| {
        let facts = MachineFacts {
            version: Some(version),
            kernel: Some(kernel.into()),
            process_huge_pages: Some(!opted_out),
            huge_pages: Some(set.into()),
            ..MachineFacts::default()
        };
        grade(&facts, "huge-pages").unwrap()
    };
    assert_eq!(with((8, 0), "6.8.0", false, "always"), Grade::Ok);
    assert_eq!(with((8, 0), "6.8.0", true, "always"), Grade::Warning);
    assert_eq!(with((7, 0), "6.8.0", false, "always"), Grade::Problem);
    assert_eq!(with((7, 0), "6.8.0", true, "always"), Grade::Ok);
    // These processors keep the old allocator.
    assert_eq!(with((8, 0), "5.14.0-503.el9.ppc64le", false, "always"), Grade::Problem);
    assert_eq!(with((8, 0), "4.18.0-553.el8.s390x", false, "never"), Grade::Ok);
}
