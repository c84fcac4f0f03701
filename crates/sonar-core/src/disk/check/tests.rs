//! Every finding, on all kinds of machines.

mod process;

use super::limits::LIMITS;
use super::*;

fn fs(kind: &str, options: &[&str]) -> MachineFacts {
    let options = options.iter().map(|o| (*o).to_owned()).collect();
    let (point, source) = ("/data".into(), "/dev/md0".into());
    let kind = kind.into();
    MachineFacts {
        file_system: Some(FileSystem { kind, point, source, options, space: None }),
        ..MachineFacts::default()
    }
}

fn grade(facts: &MachineFacts, name: &str) -> Option<Grade> {
    findings(facts).into_iter().filter(|f| f.name == name).map(|f| f.grade).max()
}

fn remedy(facts: &MachineFacts, name: &str) -> String {
    findings(facts).into_iter().find_map(|f| f.remedy.filter(|_| f.name == name)).unwrap_or_default()
}

/// Commands that can destroy data, or an array or a volume that holds it.
const DESTRUCTIVE: [&str; 26] = [
    "mkfs",
    "mke2fs",
    "dd",
    "wipefs",
    "rm",
    "rmdir",
    "shred",
    "parted",
    "fdisk",
    "sfdisk",
    "gdisk",
    "sgdisk",
    "lvremove",
    "lvreduce",
    "vgremove",
    "pvremove",
    "pvcreate",
    "vgcreate",
    "lvcreate",
    "mkswap",
    "blkdiscard",
    "fstrim",
    "cryptsetup",
    "dropdb",
    "resize2fs",
    "hdparm",
];

/// The first destructive command in a text: as a word, with or without a path before it or a type after it.
fn destructive(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "._/-".contains(c)));
    words
        .map(|word| word.rsplit('/').next().unwrap_or(word))
        .find(|word| {
            let command = word.split('.').next().unwrap_or(word).to_ascii_lowercase();
            DESTRUCTIVE.contains(&command.as_str())
        })
        .or_else(|| {
            [
                "--create",
                "--zero-superblock",
                "--stop",
                "--remove",
                "--fail",
                "of=/dev",
                "> /dev/",
                ">/dev/",
                "zfs destroy",
                "zpool destroy",
            ]
            .into_iter()
            .find(|part| text.contains(part))
        })
}

#[test]
fn a_destructive_command_is_recognised() {
    for text in [
        "sudo mkfs.xfs /dev/sda",
        "/sbin/wipefs -a x",
        "(rm -r /data)",
        "mdadm --create /dev/md0",
        "dd if=/dev/zero",
        "x > /dev/sda",
        "zpool destroy tank",
    ] {
        assert!(destructive(text).is_some(), "{text}");
    }
    for text in
        ["sudo mdadm --detail /dev/md0", "cat /proc/mdstat", "add noatime", "echo never | sudo tee /sys/x"]
    {
        assert_eq!(destructive(text), None, "{text}");
    }
}

/// All values that a rule distinguishes, and some that it does not.
fn any_facts() -> impl proptest::strategy::Strategy<Value = MachineFacts> {
    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;
    let words = |all: &'static [&'static str]| proptest::sample::select(all).prop_map(str::to_owned);
    let kind = words(&[
        "xfs", "ext4", "ext3", "btrfs", "zfs", "tmpfs", "ramfs", "overlay", "aufs", "9p", "vfat", "cifs",
        "nfs", "nfs4", "new",
    ]);
    let options = vec(
        words(&["rw", "noatime", "relatime", "hard", "nolock", "sunit=1024", "swidth=4096", "stripe=512"]),
        0..5,
    );
    let fs = (kind, options, of((1_u64..1 << 50, 0_u64..1 << 50)), any::<bool>()).prop_map(
        |(kind, options, space, is_root)| FileSystem {
            kind,
            point: if is_root { "/" } else { "/data" }.to_owned(),
            source: "/dev/sda1".to_owned(),
            options,
            space,
        },
    );
    let level =
        words(&["raid0", "raid1", "raid4", "raid5", "raid6", "raid10", "linear", "striped", "mapped", "new"]);
    let action = of(words(&["idle", "resync", "recover", "check"]));
    let array = (level, 0_usize..5, 0_u64..1 << 21, 0_u32..3, action).prop_map(
        |(level, members, chunk_bytes, degraded, action)| DiskArray {
            name: "md0".to_owned(),
            level,
            members: (0..members).map(|n| format!("sd{n}")).collect(),
            chunk_bytes,
            degraded,
            action,
        },
    );
    let schedulers = vec(words(&["none", "noop", "mq-deadline", "deadline", "kyber", "bfq", "cfq"]), 1..4);
    let disk = (of(any::<bool>()), of(schedulers), any::<bool>()).prop_map(
        |(rotational, schedulers, is_virtual)| Disk {
            name: "sda".to_owned(),
            rotational,
            scheduler: schedulers.map(|all| (all[0].clone(), all)),
            is_virtual,
            ..Disk::default()
        },
    );
    let limit = (proptest::sample::select(&LIMITS[..]), of(0_u64..1 << 20))
        .prop_map(|((name, ..), limit)| (name.to_owned(), limit));
    let memory = (
        of(words(&["always", "madvise", "never"])),
        of(words(&["always", "defer", "defer+madvise", "never"])),
        of(0_u64..600),
        of(0_u64..100),
        of(0_u64..2),
    );
    let rest = (
        of(0_usize..4),
        of(0_u64..4),
        of(any::<bool>()),
        of(0_u64..1 << 20),
        vec(limit, 0..6),
        any::<bool>(),
    );
    let version = of((3_u32..9, 0_u32..5));
    (of(fs), vec(array, 0..3), vec(disk, 0..3), of(0_u64..300), memory, rest, version).prop_map(
        |(file_system, arrays, disks, readahead, memory, rest, version)| MachineFacts {
            has_mongod: rest.5,
            kernel: Some("6.1.0".to_owned()),
            version,
            file_system,
            readahead: readahead.map(|kib| ("sda".to_owned(), kib)),
            arrays,
            disks,
            huge_pages: memory.0,
            huge_pages_defrag: memory.1,
            max_ptes_none: memory.2,
            swappiness: memory.3,
            swap_kib: memory.4,
            numa_nodes: rest.0,
            zone_reclaim: rest.1,
            interleaved: rest.2.filter(|_| rest.5),
            max_map_count: rest.3,
            limits: rest.4,
            ..MachineFacts::default()
        },
    )
}

proptest::proptest! {
    #[test]
    fn no_finding_destroys_data_or_lacks_a_reason(facts in any_facts()) {
        for finding in findings(&facts) {
            for text in [finding.found.as_str(), finding.why, finding.remedy.as_deref().unwrap_or_default()] {
                proptest::prop_assert_eq!(destructive(text), None, "{:?}", finding);
            }
            // Only findings that are not ok have a remedy.
            proptest::prop_assert!(finding.grade != Grade::Ok || finding.remedy.is_none(), "{:?}", finding);
            if !facts.has_mongod {
                proptest::prop_assert!(!["limits", "max-map-count"].contains(&finding.name), "{:?}", finding);
            }
            if facts.numa_nodes.is_none_or(|nodes| nodes < 2) {
                proptest::prop_assert!(!finding.remedy.as_deref().unwrap_or_default().contains("numactl"));
            }
            if finding.name == "raid" && finding.grade != Grade::Ok {
                proptest::prop_assert!(facts.arrays.iter().any(|array| array.members.len() > 1), "{:?}", finding);
            }
            if finding.name == "scheduler" && finding.grade != Grade::Ok {
                let wanted = finding.remedy.as_deref().and_then(|text| text.split(' ').nth(1)).unwrap_or_default().to_owned();
                let offered = |disk: &Disk| disk.scheduler.as_ref().is_some_and(|(_, all)| all.contains(&wanted));
                proptest::prop_assert!(facts.disks.iter().any(offered), "not to be had: {:?}", finding);
            }
            if finding.name == "huge-pages" && facts.version.is_none() {
                proptest::prop_assert!(finding.found.contains("version of mongod is unknown"));
            }
        }
    }
}

#[test]
fn changing_the_file_system_is_a_migration() {
    for kind in ["ext4", "btrfs", "tmpfs", "cifs", "nfs4"] {
        let advice = remedy(&fs(kind, &["hard", "nolock", "noatime"]), "file-system");
        assert!(advice.contains("secondary") && advice.contains("backup"), "{kind}: {advice}");
    }
    assert_eq!(remedy(&fs("xfs", &[]), "file-system"), "");
}

#[test]
fn advice_needs_a_choice() {
    // One disk is not an array, whatever its level is called.
    for level in ["raid0", "linear", "raid5", "mapped", "striped"] {
        let facts = MachineFacts { arrays: vec![md(level, 1)], ..fs("xfs", &[]) };
        assert_eq!((grade(&facts, "raid"), grade(&facts, "stripe")), (Some(Grade::Ok), None), "{level}");
    }
    let disk = |rotational, schedulers: &[&str]| MachineFacts {
        disks: vec![Disk {
            name: "sda".into(),
            rotational,
            scheduler: Some((schedulers[0].into(), schedulers.iter().map(|name| (*name).into()).collect())),
            ..Disk::default()
        }],
        ..MachineFacts::default()
    };
    assert_eq!(grade(&disk(Some(true), &["none"]), "scheduler"), Some(Grade::Ok), "the kernel has no other");
    assert_eq!(grade(&disk(None, &["bfq", "none"]), "scheduler"), None, "the kind of disk is not known");
    assert_eq!(grade(&fs("nfs4", &["hard"]), "atime"), None, "nfs-options has it");
    let bare = MachineFacts { max_map_count: Some(1), numa_nodes: Some(2), ..MachineFacts::default() };
    let limits = vec![("Max open files".into(), Some(1))];
    for name in ["limits", "max-map-count", "numa"] {
        assert_eq!(
            grade(&MachineFacts { limits: limits.clone(), ..bare.clone() }, name),
            None,
            "no mongod: {name}"
        );
        let with = MachineFacts { limits: limits.clone(), has_mongod: true, ..bare.clone() };
        assert_ne!(grade(&with, name), None, "{name}");
    }
}

#[test]
fn unknown_facts_give_no_findings() {
    assert_eq!(findings(&MachineFacts::default()), []);
}

#[test]
fn file_systems_and_their_options() {
    for (kind, options, expected) in [
        ("xfs", &["rw", "noatime"][..], [Some(Grade::Ok), Some(Grade::Ok)]),
        ("ext4", &["rw", "relatime"], [Some(Grade::Warning), Some(Grade::Warning)]),
        ("xfs", &["rw"], [Some(Grade::Ok), Some(Grade::Warning)]),
        ("tmpfs", &["rw"], [Some(Grade::Problem), None]),
        ("overlay", &["rw"], [Some(Grade::Problem), None]),
        ("btrfs", &["noatime"], [Some(Grade::Warning), Some(Grade::Ok)]),
    ] {
        let facts = fs(kind, options);
        assert_eq!([grade(&facts, "file-system"), grade(&facts, "atime")], expected, "{kind}");
    }
    assert_eq!(
        remedy(&fs("xfs", &[]), "atime").split("   ").next(),
        Some("sudo mount -o remount,noatime /data")
    );
    assert_eq!(grade(&fs("nfs4", &["hard", "local_lock=all", "noatime"]), "nfs-options"), Some(Grade::Ok));
    assert_eq!(grade(&fs("nfs4", &["soft"]), "nfs-options"), Some(Grade::Problem));
}

#[test]
fn space_is_graded_by_its_share() {
    for (free, expected) in [(4, Grade::Problem), (10, Grade::Warning), (50, Grade::Ok)] {
        let mut facts = fs("xfs", &[]);
        facts.file_system.as_mut().unwrap().space = Some((100, free));
        assert_eq!(grade(&facts, "free-space"), Some(expected), "{free}");
    }
}

fn md(level: &str, members: usize) -> DiskArray {
    let members = (0..members).map(|n| format!("sd{n}")).collect();
    DiskArray {
        name: "md0".into(),
        level: level.into(),
        members,
        chunk_bytes: 524_288,
        ..DiskArray::default()
    }
}

#[test]
fn raid_levels_and_their_risks() {
    for (level, expected) in [
        ("raid0", Grade::Warning),
        ("raid5", Grade::Warning),
        ("raid10", Grade::Ok),
        ("raid1", Grade::Ok),
        ("striped", Grade::Warning),
    ] {
        let facts = MachineFacts { arrays: vec![md(level, 4)], ..MachineFacts::default() };
        assert_eq!(grade(&facts, "raid"), Some(expected), "{level}");
    }
    let broken = DiskArray { degraded: 1, action: Some("recover".into()), ..md("raid10", 4) };
    let facts = MachineFacts { arrays: vec![broken], ..MachineFacts::default() };
    assert_eq!(grade(&facts, "raid-degraded"), Some(Grade::Problem));
    assert_eq!(grade(&facts, "raid-action"), Some(Grade::Warning));
    let risk = findings(&MachineFacts { arrays: vec![md("raid0", 2)], ..MachineFacts::default() });
    assert!(risk[0].why.contains("all data of this member is lost"));
}

#[test]
fn the_file_system_is_compared_with_the_stripe() {
    let with = |kind: &str, options: &[&str], level: &str| MachineFacts {
        arrays: vec![md(level, 4)],
        ..fs(kind, options)
    };
    // Four members with chunks of 512 KiB: a stripe has four data chunks in RAID 0, two in RAID 10, three in RAID 5.
    assert_eq!(grade(&with("xfs", &["sunit=1024", "swidth=4096"], "raid0"), "stripe"), Some(Grade::Ok));
    assert_eq!(grade(&with("xfs", &["sunit=1024", "swidth=2048"], "raid10"), "stripe"), Some(Grade::Ok));
    assert_eq!(grade(&with("xfs", &["sunit=1024", "swidth=3072"], "raid5"), "stripe"), Some(Grade::Ok));
    let unaware = with("xfs", &[], "raid0");
    assert_eq!(grade(&unaware, "stripe"), Some(Grade::Warning));
    assert!(
        remedy(&unaware, "stripe").starts_with("add sunit=1024,swidth=4096 to the mount options of /data")
    );
    assert_eq!(grade(&with("ext4", &["stripe=512"], "raid0"), "stripe"), Some(Grade::Ok));
    let ext4 = with("ext4", &["stripe=128"], "raid0");
    assert!(remedy(&ext4, "stripe").starts_with("sudo tune2fs -E stride=128,stripe_width=512"));
    assert_eq!(grade(&with("xfs", &[], "raid1"), "stripe"), None);
}

#[test]
fn readahead_scheduler_and_rotating_disks() {
    for (kib, expected) in
        [(4, Grade::Ok), (16, Grade::Ok), (17, Grade::Warning), (128, Grade::Warning), (0, Grade::Warning)]
    {
        let facts = MachineFacts { readahead: Some(("sda".into(), kib)), ..MachineFacts::default() };
        assert_eq!(grade(&facts, "readahead"), Some(expected), "{kib}");
    }
    let disk = |rotational, is_virtual, chosen: &str| MachineFacts {
        disks: vec![Disk {
            name: "sda".into(),
            rotational: Some(rotational),
            is_virtual,
            scheduler: Some((chosen.into(), ["none", "mq-deadline", "kyber"].map(String::from).to_vec())),
            ..Disk::default()
        }],
        ..MachineFacts::default()
    };
    for (rotational, is_virtual, chosen, expected) in [
        (true, false, "mq-deadline", Grade::Ok),
        (true, false, "none", Grade::Warning),
        (false, false, "none", Grade::Ok),
        (false, false, "mq-deadline", Grade::Warning),
        (true, true, "none", Grade::Ok),
        (true, true, "kyber", Grade::Ok),
        (true, true, "mq-deadline", Grade::Warning),
    ] {
        assert_eq!(
            grade(&disk(rotational, is_virtual, chosen), "scheduler"),
            Some(expected),
            "{rotational} {is_virtual} {chosen}"
        );
    }
    assert!(
        remedy(&disk(false, false, "kyber"), "scheduler").starts_with("echo none | sudo tee /sys/block/sda/")
    );
    assert_eq!(grade(&disk(true, false, "none"), "rotational"), Some(Grade::Warning));
    assert_eq!(grade(&disk(true, true, "none"), "rotational"), Some(Grade::Ok));
}

#[test]
fn huge_pages_follow_the_version() {
    let with = |set: &str, version| MachineFacts {
        huge_pages: Some(set.into()),
        version,
        ..MachineFacts::default()
    };
    for (set, version, expected) in [
        ("always", Some((8, 0)), Grade::Ok),
        ("never", Some((8, 2)), Grade::Warning),
        ("never", Some((7, 0)), Grade::Ok),
        ("always", Some((4, 0)), Grade::Problem),
        ("madvise", Some((6, 0)), Grade::Warning),
        ("never", None, Grade::Warning),
    ] {
        assert_eq!(grade(&with(set, version), "huge-pages"), Some(expected), "{set} {version:?}");
    }
    let details = MachineFacts {
        huge_pages_defrag: Some("madvise".into()),
        max_ptes_none: Some(511),
        ..with("always", Some((8, 0)))
    };
    assert_eq!(grade(&details, "huge-pages-defrag"), Some(Grade::Warning));
    assert_eq!(grade(&details, "huge-pages-max-ptes-none"), Some(Grade::Warning));
    assert_eq!(grade(&MachineFacts { version: Some((7, 0)), ..details }, "huge-pages-defrag"), None);
}

#[test]
fn memory_limits_and_kernel() {
    let swap = |swappiness, swap_kib| MachineFacts {
        swappiness: Some(swappiness),
        swap_kib: Some(swap_kib),
        ..MachineFacts::default()
    };
    assert_eq!(grade(&swap(1, 9), "swappiness"), Some(Grade::Ok));
    assert_eq!(grade(&swap(60, 0), "swappiness"), Some(Grade::Ok));
    assert_eq!(grade(&swap(60, 9), "swappiness"), Some(Grade::Warning));
    let numa =
        |nodes, interleaved| MachineFacts { numa_nodes: Some(nodes), interleaved, ..MachineFacts::default() };
    assert_eq!(grade(&numa(1, None), "numa"), Some(Grade::Ok));
    assert_eq!(grade(&numa(2, Some(true)), "numa"), Some(Grade::Ok));
    assert_eq!(grade(&numa(2, Some(false)), "numa"), Some(Grade::Warning));
    let limits = |files: u64| MachineFacts {
        has_mongod: true,
        limits: vec![("Max open files".into(), Some(files)), ("Max processes".into(), None)],
        max_map_count: Some(102_400),
        ..MachineFacts::default()
    };
    assert_eq!(grade(&limits(64_000), "limits"), Some(Grade::Ok));
    assert_eq!(grade(&limits(1_024), "limits"), Some(Grade::Problem));
    assert_eq!(grade(&limits(64_000), "max-map-count"), Some(Grade::Ok));
    // From mongod's own warning with 1,048,576 descriptors: 1,677,720 required.
    assert!(remedy(&limits(1_048_576), "max-map-count").starts_with("sudo sysctl vm.max_map_count=1677720"));
    let kernel = |release: &str| MachineFacts { kernel: Some(release.into()), ..MachineFacts::default() };
    assert_eq!(grade(&kernel("6.1.0-28-amd64"), "kernel"), Some(Grade::Ok));
    assert_eq!(grade(&kernel("2.6.32-754.el6"), "kernel"), Some(Grade::Problem));
}

#[test]
fn file_systems_of_guests_containers_and_networks_are_known() {
    for (kind, expected, word) in [
        ("virtiofs", Grade::Warning, "host"),
        ("9p", Grade::Problem, "fsync"),
        ("fuse.sshfs", Grade::Problem, "elsewhere"),
        ("fuse.whatever", Grade::Warning, "FUSE"),
        ("fuse.ceph-fuse", Grade::Warning, "several machines"),
        ("ceph", Grade::Warning, "several machines"),
        ("zfs", Grade::Warning, "cache of its own"),
        ("btrfs", Grade::Warning, "another place"),
        ("smb3", Grade::Problem, "fsync"),
        ("new", Grade::Warning, "not a file system that MongoDB is tested on"),
    ] {
        let found = findings(&fs(kind, &["hard"])).into_iter().find(|one| one.name == "file-system").unwrap();
        assert_eq!(found.grade, expected, "{kind}");
        assert!(found.why.contains(word), "{kind}: {}", found.why);
    }
    // Where readahead and scheduler cannot be seen, it says where they are; memory has none.
    for kind in ["virtiofs", "9p", "zfs", "nfs4", "ceph", "overlay", "fuse.x", "new"] {
        assert!(without_device(kind).is_some_and(|words| !words.is_empty()), "{kind}");
    }
    assert_eq!(without_device("tmpfs"), None);
}
