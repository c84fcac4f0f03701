"""`mongosonar disk` on real md and LVM volumes, with failing disks and exceeded quotas, on a stock Debian kernel."""

import concurrent.futures
import json
import os
import re

import pytest

import labkit
import vm

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(
        not os.environ.get("LONG"), reason="two emulated machines take a minute of processor time; LONG=1 lets them run"
    ),
]
BINARY = (labkit.MONGOSONAR, "/bin/mongosonar")

# Name, file system and mount options of each array.
ARRAYS = {
    "raid0": ("xfs", "noatime"),
    "raid1": ("ext4", "relatime"),
    "raid5": ("ext4", "noatime"),
    "raid10": ("xfs", "relatime"),
    "stripe": ("xfs", "noatime"),
}
MEMBERS = {
    "raid0": ["vda", "vdb"],
    "raid1": ["vdc", "vdd"],
    "raid5": ["vde", "vdf", "vdg"],
    "raid10": ["vdh", "vdi", "vdj", "vdk"],
    "stripe": ["vdl", "vdm"],
}
DEVICES = {"raid0": "md0", "raid1": "md1", "raid5": "md5", "raid10": "md10", "stripe": "dm-0"}
# How many members get each write. Each read goes to one member.
COPIES = {"raid0": 1, "raid1": 2, "raid10": 2, "stripe": 1}

# The files that come back from there.
SEEN = [
    "table",
    "stat",
    "info-raid0",
    "info-raid5",
    "degraded",
    *(f"detail-raid{level}" for level in (0, 1, 5, 10)),
    *(f"{what}-{name}" for what in ("check", "code", "bench", "left", "stat") for name in ARRAYS),
]

ARRAYS_SCRIPT = """
    members() { sed -n "s/^$1 .*:/ /p" /arrays; }
    make() { # LEVEL CHUNK DISK…
        level=$1 chunk=$2; shift 2
        mdadm --create /dev/md$level --quiet --level $level --raid-devices $# $chunk --run "$@" $CLEAN
    }
    CLEAN= make 0 '--chunk 64' $(members raid0)
    CLEAN=--assume-clean
    make 1 '' $(members raid1)
    make 5 '--chunk 64' $(members raid5)
    make 10 '--chunk 128' $(members raid10)
    export LVM_SUPPRESS_FD_WARNINGS=1
    pvcreate -q -y $(members stripe)
    vgcreate -q lab $(members stripe)
    lvcreate -q -y --config 'activation { udev_sync=0 udev_rules=0 }' -i 2 -I 64 -l 100%FREE -n data lab
    ln -s /dev/lab/data /dev/stripe
    for level in 0 1 5 10; do ln -s md$level /dev/raid$level; mdadm --detail --export /dev/md$level > /tmp/detail-raid$level; done
    dmsetup table lab-data > /tmp/table
    set +e
    while read name kind options _; do
        mkdir /mnt/$name
        # Do now what ext4 would do later in the background.
        now=; [ $kind = xfs ] || now='-E lazy_itable_init=0,lazy_journal_init=0'
        mkfs.$kind -q $now /dev/$name
        mount -o $options /dev/$name /mnt/$name
        mongosonar disk check --json --dbpath /mnt/$name > /tmp/check-$name
        echo $? > /tmp/code-$name
        mongosonar disk bench --json -q --r --w --nThreads 2 --no-ramp --step-seconds 1 --probe-seconds 0 --fileSizeMB 16 --dir /mnt/$name > /tmp/bench-$name
        ls -A /mnt/$name > /tmp/left-$name
        mongosonar disk stat --json --dbpath /mnt/$name --interval 100ms --count 1 > /tmp/stat-$name
    done < /arrays
    sync
    # A hundred reads of 4 KiB from each array, while nothing else runs, between two lines of disk stat: it may take
    # seconds to start. The line that was being written when the reads ended may lack the last of them.
    mongosonar disk stat --json --interval 1s > /tmp/stat &
    stat=$!
    lines() { wc -l < /tmp/stat; }
    wait_for() { until [ $(lines) -ge $1 ] || ! kill -0 $stat; do sleep 0.1; done; }
    wait_for 1
    while read name _; do dd if=/dev/$name of=/dev/null bs=4096 count=100 skip=1000 iflag=direct; done < /arrays
    wait_for $(($(lines) + 2))
    kill $stat
    wait $stat
    xfs_spaceman -c info /mnt/raid0 > /tmp/info-raid0
    dumpe2fs -h /dev/raid5 > /tmp/info-raid5 2> /dev/null
    mdadm --quiet /dev/md5 --fail /dev/vdg
    mongosonar disk check --json --dbpath /mnt/raid5 > /tmp/degraded
    true
"""


LOSSES_SCRIPT = r"""
    set +e
    lose() { # KIND DISK
        case $1 in
        unplug) echo 1 > $(realpath /sys/block/$2/device/..)/remove ;;
        error) table error ;;
        esac
    }
    table() { # TARGET: what stands behind /dev/mapper/lossy
        sectors=$(blockdev --getsz /dev/vdc)
        echo "0 $sectors $1" | dmsetup load --noudevsync lossy
        dmsetup suspend --noflush --nolockfs --noudevsync lossy; dmsetup resume --noudevsync lossy
    }
    one() { # NAME DEVICE FILE-SYSTEM LOSS DISK OPTION…
        name=$1 device=$2 kind=$3 loss=$4 disk=$5; shift 5
        mkdir /mnt/$name; mkfs.$kind -q /dev/$device; mount /dev/$device /mnt/$name
        mongosonar disk bench --dir /mnt/$name --nThreads 4 --no-ramp --step-seconds 60 --fileSizeMB 16 "$@" > /tmp/$name.out 2> /tmp/$name.err < /dev/null &
        pid=$!
        until grep -q '^testing\|^probing' /tmp/$name.out 2> /dev/null || ! kill -0 $pid; do sleep 0.1; done
        sleep 0.5
        lose $loss $disk
        wait $pid
        echo "$name code $?"
        sed "s/^/$name error /" /tmp/$name.err
        ls -A /mnt/$name | sed "s/^/$name left /"
        umount -l /mnt/$name
    }
    one uring vda ext4 unplug vda --r --probe-seconds 0
    one flush vdb xfs unplug vdb --w --probe-seconds 0
    dmsetup create lossy --noudevsync --table "0 $(blockdev --getsz /dev/vdc) linear /dev/vdc 0"
    dmsetup mknodes
    one threads mapper/lossy ext4 error - --r --w --engine threads --probe-seconds 0
    table "linear /dev/vdc 0"
    mount /dev/mapper/lossy /mnt/threads
    ls -A /mnt/threads | sed 's/^/threads back /'
    mongosonar disk bench --dir /mnt/threads --r --step-seconds 1 --probe-seconds 0 --fileSizeMB 1 | grep 'left .* behind' | sed 's/^/threads next /'
    one mapped vdd ext4 unplug vdd --r --mmf --sleepMicros 4000
    one probing vde ext4 unplug vde --r --probe-seconds 60

    quota() { # NAME OPTION…: a run that hits a limit of 20 MiB
        name=$1; shift
        "$@" > /tmp/$name.out 2> /tmp/$name.err < /dev/null
        echo "$name code $?"
        sed "s/^/$name error /" /tmp/$name.err
        ls -A /mnt/$name/data | sed "s/^/$name left /"
    }
    as_user="/bin/setpriv --reuid 65533 --regid 65533 --clear-groups"
    bench="mongosonar disk bench --r --fileSizeMB 64 --dir"
    mkdir -p /mnt/user /mnt/project /mnt/fill
    mkfs.ext4 -q -O quota /dev/vdf; mount -o usrquota /dev/vdf /mnt/user
    mkfs.xfs -q /dev/vdg; mount -o pquota /dev/vdg /mnt/project
    # No extents, so that no space can be reserved: the limit is reached while the file is filled.
    mkfs.ext4 -q -O quota,^extent,^64bit,^has_journal /dev/vdh; mount -o usrquota /dev/vdh /mnt/fill
    for name in user project fill; do mkdir /mnt/$name/data; chmod 777 /mnt/$name/data; done
    setquota -u 65533 0 20480 0 0 /mnt/user; setquota -u 65533 0 20480 0 0 /mnt/fill
    xfs_quota -x -c 'project -s -p /mnt/project/data 7' -c 'limit -p bhard=20m 7' /mnt/project > /dev/null
    quota user $as_user $bench /mnt/user/data
    quota fill $as_user $bench /mnt/fill/data
    quota project $bench /mnt/project/data
    true
"""


@pytest.fixture(scope="module")
def boots(tmp_path_factory):
    """The machines, which run at the same time."""
    listed = tmp_path_factory.mktemp("arrays") / "arrays"
    rows = (
        f"{name} {kind} {options} : {' '.join(f'/dev/{disk}' for disk in MEMBERS[name])}\n"
        for name, (kind, options) in ARRAYS.items()
    )
    listed.write_text("".join(rows))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        losses = pool.submit(
            vm.run,
            LOSSES_SCRIPT,
            disks=[400] * 8,
            files=[BINARY, "dmsetup", "mkfs.xfs", "mkfs.ext4", "setpriv", "setquota", "xfs_quota"],
            modules=["dm_mod", "xfs", "quota_v2"],
        )
        programs = [
            "mdadm",
            "pvcreate",
            "vgcreate",
            "lvcreate",
            "dmsetup",
            "mkfs.xfs",
            "mkfs.ext4",
            "dumpe2fs",
            "xfs_spaceman",
        ]
        arrays = pool.submit(
            vm.run,
            ARRAYS_SCRIPT,
            disks=[1024] * 13,
            take=[f"/tmp/{name}" for name in SEEN],
            files=[BINARY, (listed, "/arrays"), *programs],
            modules=["raid0", "raid1", "raid10", "raid456", "dm_mod", "xfs"],
        )
        yield {"losses": losses, "arrays": arrays}


@pytest.fixture(scope="module")
def arrays(boots):
    """The results of each array."""
    done = boots["arrays"].result()
    assert done.code == 0, done
    taken = {path.removeprefix("/tmp/"): text.decode() for path, text in done.taken.items()}
    assert set(SEEN) <= set(taken), done
    return taken


def findings(text):
    """The worst grade of each name, and all findings."""
    order = ["ok", "warning", "problem"]
    grades, found = {}, {}
    for finding in json.loads(text)["findings"]:
        name = finding["name"]
        grades[name] = max(grades.get(name, "ok"), finding["verdict"], key=order.index)
        found[name] = found.get(name, "") + finding["found"] + "\n"
    return grades, found


@pytest.mark.parametrize(
    "name,expected",
    [
        ("raid0", {"file-system": "ok", "atime": "ok", "raid": "warning", "stripe": "ok"}),
        ("raid1", {"file-system": "warning", "atime": "warning", "raid": "ok"}),
        ("raid5", {"file-system": "warning", "atime": "ok", "raid": "warning", "stripe": "ok"}),
        ("raid10", {"file-system": "ok", "atime": "warning", "raid": "ok", "stripe": "ok"}),
        ("stripe", {"file-system": "ok", "atime": "ok", "raid": "warning", "stripe": "ok"}),
    ],
)
def test_check_of_an_array(arrays, name, expected):
    grades, found = findings(arrays[f"check-{name}"])
    assert {check: grades.get(check) for check in expected} == expected, found
    assert ", ".join(MEMBERS[name]) in found["raid"]
    assert int(arrays[f"code-{name}"]) == 4
    if name == "stripe":
        # start, length, "striped", how many, chunk in sectors
        _, _, kind, count, chunk, *_ = arrays["table"].split()
        assert (kind, count) == ("striped", "2") and f"chunks of {int(chunk) // 2} KiB" in found["raid"]
    else:
        detail = dict(line.split("=", 1) for line in arrays[f"detail-{name}"].splitlines())
        assert detail["MD_LEVEL"] == name and f"{name} of " in found["raid"]
        assert detail["MD_DEVICES"] == str(len(MEMBERS[name]))


def test_the_stripe_agrees_with_the_file_systems_own_tools(arrays):
    sunit, swidth = (int(n) for n in re.search(r"sunit=(\d+)\s+swidth=(\d+) blks", arrays["info-raid0"]).groups())
    assert f"{sunit * 4} KiB and {swidth * 4} KiB" in findings(arrays["check-raid0"])[1]["stripe"]
    stripe = int(re.search(r"RAID stripe width:\s+(\d+)", arrays["info-raid5"])[1])
    assert f"{stripe * 4} KiB" in findings(arrays["check-raid5"])[1]["stripe"]


def test_a_failed_member_is_a_problem(arrays):
    grades, found = findings(arrays["degraded"])
    assert grades["raid-degraded"] == "problem" and "1 missing" in found["raid-degraded"]


@pytest.mark.parametrize("name", ARRAYS)
def test_stat_counts_a_hundred_reads_of_an_array_and_of_its_members(arrays, name):
    below = {disk["device"] for disk in json.loads(arrays[f"stat-{name}"].splitlines()[0])["devices"]}
    assert below == {DEVICES[name], *MEMBERS[name]}
    samples = [json.loads(line) for line in arrays["stat"].splitlines()]
    assert len(samples) >= 3

    def counted(column, names):
        return sum(
            disk[column] * sample["seconds"]
            for sample in samples
            for disk in sample["devices"]
            if disk["device"] in names
        )

    for column, expected in (("r/s", 100), ("rkB/s", 400)):
        assert counted(column, [DEVICES[name]]) == pytest.approx(expected, abs=0.5)
        assert counted(column, MEMBERS[name]) == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize("name", ARRAYS)
def test_bench_on_an_array(arrays, name):
    result = json.loads(arrays[f"bench-{name}"])
    kind, _ = ARRAYS[name]
    assert result["place"]["file_system"] == kind and result["place"]["device"] == DEVICES[name]
    assert sorted(result["place"]["disks"]) == MEMBERS[name]
    assert arrays[f"left-{name}"].split() == (["lost+found"] if kind == "ext4" else [])
    step = result["steps"][0]
    assert step["operations"] > 20
    # The kernel counts as bytes of the process what the requests asked for; of a copy that md makes it knows nothing.
    assert step["reads"]["bytes"] == step["kernel_read_bytes"]
    assert step["writes"]["bytes"] <= step["kernel_written_bytes"] <= step["writes"]["bytes"] + 64 * 1024
    own, members = step["device"], step["disks"]
    assert sorted(disk["device"] for disk in members) == MEMBERS[name]
    # Over a somewhat longer time: starting and ending the step is slow here, between the readings of the counters.
    assert 0.5 <= own["r/s"] / (step["reads"]["count"] / step["seconds"]) <= 1.05
    if name in COPIES:
        assert sum(disk["rkB/s"] for disk in members) == pytest.approx(own["rkB/s"], rel=0.1)
        # md also writes its bitmap and superblock.
        written = sum(disk["wkB/s"] for disk in members)
        assert COPIES[name] * own["wkB/s"] * 0.9 <= written <= COPIES[name] * own["wkB/s"] * 1.5 + 200
    else:
        # Each small write also reads and writes the parity.
        assert sum(disk["wkB/s"] for disk in members) >= 1.8 * own["wkB/s"] * 0.9


@pytest.fixture(scope="module")
def losses(boots):
    """Exit code, messages and remaining files of each run."""
    done = boots["losses"].result()
    assert done.code == 0, done
    seen = {}
    for line in done.out.splitlines():
        name, what, *words = line.split(" ", 2)
        seen.setdefault(name, {}).setdefault(what, []).extend(words)
    return seen


@pytest.mark.parametrize("name", ["uring", "flush", "threads", "mapped", "probing"])
def test_a_device_that_disappears_is_an_error_with_the_reason(losses, name):
    seen = losses[name]
    assert seen["code"] == ["1"], seen
    error = " ".join(seen["error"])
    assert "device failed" in error, seen
    assert " rm /mnt/" in error, "the file's removal cannot be written"
    if name != "mapped":
        assert re.search(
            r"(read|write|fdatasync) of 4096 bytes at offset \d+ failed: (Input/output|I/O) error", error
        ), seen
        # By then the kernel may have made the file system read-only.
        removal = re.findall("Input/output error|I/O error|Read-only file system", error)
        assert len(removal) == 2, "one message for the request, one for the removal"
    assert "panicked" not in error
    assert [left for left in seen.get("left", []) if left != "lost+found"] == [], seen


def test_a_file_that_may_come_back_with_its_device_is_named_immediately_and_by_the_next_run(losses):
    """Its removal was never written: a message says so immediately, and the next run finds the file."""
    error = " ".join(losses["threads"]["error"])
    named = re.search(r"rm (/mnt/threads/(mongosonar-disk-\S+\.tmp))", error)
    assert named, error
    assert named[2] in losses["threads"]["back"]
    assert named[1] in " ".join(losses["threads"]["next"])


@pytest.mark.parametrize("name,words", [("user", "quota"), ("fill", "quota"), ("project", "space")])
def test_a_quota_is_an_error_and_nothing_is_left(losses, name, words):
    seen = losses[name]
    assert seen["code"] == ["1"], seen
    assert words in " ".join(seen["error"]).lower() and "--fileSizeMB" in " ".join(seen["error"]), seen
    assert "left" not in seen, seen
