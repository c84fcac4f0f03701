"""`mongosonar disk` on real file systems, compared with fio, sysstat's iostat and the kernel's counters."""

import contextlib
import functools
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import labkit

pytestmark = pytest.mark.alone

MIB = 1 << 20


def run(*arguments, stdin="", **options):
    command = [labkit.MONGOSONAR, "disk", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, input=stdin, **options)


def bench(*arguments, **options):
    """A short run, as its JSON document."""
    done = run("bench", "--json", "--quiet", "--step-seconds", "1", "--probe-seconds", "0", *arguments, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder():
    """A folder on a file system with direct I/O; a test's own temporary folder may be in memory."""
    base = labkit.LAB.parent / "target"
    base.mkdir(exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="disk-test-", dir=base))
    yield path
    left = list(path.iterdir())
    shutil.rmtree(path)
    assert not left, f"left behind: {left}"


def needs(*programs):
    for program in programs:
        if not (shutil.which(program) or os.path.exists(f"/usr/sbin/{program}")):
            pytest.skip(f"{program} is not installed")


@contextlib.contextmanager
def loop_file_system(kind, options="", mebibytes=400, in_memory=False):
    """A real file system on a loop device; yields mount point and device. With `in_memory` its image is in memory,
    so that a busy disk does not delay it."""
    needs(f"mkfs.{kind}", "losetup")
    base = pathlib.Path("/dev/shm") if in_memory and os.path.ismount("/dev/shm") else labkit.LAB.parent / "target"
    work = pathlib.Path(tempfile.mkdtemp(prefix="disk-loop-", dir=base))
    image, point = work / "image", work / "mounted"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes * MIB)
    device = None
    try:
        found = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
        if found.returncode:
            pytest.skip(f"no loop device: {found.stderr.strip()}")
        device = found.stdout.strip()
        subprocess.run([f"mkfs.{kind}", "-q", device], check=True, capture_output=True)
        mounted = subprocess.run(
            ["mount", *(["-o", options] if options else []), device, str(point)], capture_output=True, text=True
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount {kind}: {mounted.stderr.strip()}")
        yield point, device
    finally:
        subprocess.run(["umount", "-l", str(point)], capture_output=True)
        if device:
            subprocess.run(["losetup", "--detach", device], capture_output=True)
        shutil.rmtree(work)


def with_patience(test):
    """Tries three times: the two runs that are compared happen one after the other or over different spans, and a machine
    that stalls for a second in one of them makes the comparison worthless."""

    @functools.wraps(test)
    def patient(*arguments, **options):
        for attempt in range(3):
            try:
                return test(*arguments, **options)
            except AssertionError:
                if attempt == 2:
                    raise

    return patient


@contextlib.contextmanager
def throttled(device, per_second):
    """Limits reads and writes per second of a device for the processes that join. Yields the
    shell words that join the limit and run what follows."""
    throttle = pathlib.Path("/sys/fs/cgroup/blkio")
    if not (throttle / "blkio.throttle.read_iops_device").exists():
        pytest.skip("no cgroup here that throttles a device (blkio of version 1)")
    group = throttle / f"disk-test-{os.getpid()}"
    group.mkdir()
    try:
        number = os.stat(device).st_rdev
        for kind in ("read", "write"):
            (group / f"blkio.throttle.{kind}_iops_device").write_text(
                f"{os.major(number)}:{os.minor(number)} {per_second}"
            )
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        labkit.wait_until(lambda: not (group / "cgroup.procs").read_text(), "the end of what was throttled")
        group.rmdir()


def test_mongoperfs_configuration_and_lines(folder):
    config = "{ nThreads:4, fileSizeMB:16, mmf:false, r:true, w:false, syncDelay:60 }"
    done = run("bench", "--dir", folder, "--step-seconds", "2", "--probe-seconds", "0", stdin=config)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "creating test file size:16MB ..." in lines and "testing..." in lines
    begun = [line for line in lines if line.startswith("new thread")]
    assert begun == [f"new thread, total running : {n}" for n in (1, 2, 4)]
    assert lines.count("read:1 write:0") == 3
    rates = [line.split() for line in lines if " ops/sec " in line]
    assert len(rates) >= 3 and all(len(words) == 4 and words[3] == "MB/sec" for words in rates)
    assert all(int(words[2]) == int(words[0]) * 4096 >> 20 for words in rates)


def test_a_configuration_from_a_file_and_flags_before_it(folder, tmp_path):
    config = tmp_path / "perf.json"
    config.write_text('{"nThreads": 8, "fileSizeMB": 8, "r": true, "recSizeKB": 16}')
    settings = bench("--mongoperf-config", config, "--nThreads", "1", "--dir", folder)["settings"]
    assert (settings["nThreads"], settings["recSizeKB"], settings["r"], settings["w"]) == (1, 16, True, False)


@pytest.mark.parametrize(
    "text,named",
    [
        ("{nThread:1, r:true}", "nThread"),
        ("{nThreads:'x', r:true}", "nThreads"),
        ("{r:1, recSizeKB:64001}", "recSizeKB"),
        ("{fileSizeMB:-1, r:true}", "fileSizeMB"),
        ("{r:[true]}", "nested"),
        ("{", "JSON"),
        ("{}", "--r, --w"),
        ("", "--r, --w"),
        pytest.param("{" + " " * MIB + "}", "longer than", id="a megabyte"),
    ],
)
def test_a_bad_configuration_is_an_error_that_names_it(folder, text, named):
    done = run("bench", "--dir", folder, stdin=text)
    assert done.returncode == 2 and named in done.stderr, done.stderr


@pytest.mark.parametrize("engine", ["uring", "threads"])
@pytest.mark.parametrize("mode", [["--r"], ["--w"], ["--r", "--w", "--no-fdatasync"]])
def test_printed_bytes_equal_the_kernel_s_counters(folder, engine, mode):
    result = bench("--dir", folder, "--engine", engine, "--fileSizeMB", "32", "--nThreads", "8", *mode)
    if result["engine"] != engine:
        pytest.skip(result["notes"][0])
    for step in result["steps"]:
        read, written = ((step[kind] or {"bytes": 0})["bytes"] for kind in ("reads", "writes"))
        assert read == step["kernel_read_bytes"]
        # The kernel also counts the file system's own writes (an inode's times) for the process.
        assert written <= step["kernel_written_bytes"] <= written + 64 * 1024
        assert (step["reads"] or {"count": 0})["count"] * 4096 == read
        assert (step["flushes"] is not None) == (mode == ["--w"])
        if step["flushes"]:
            assert step["flushes"]["count"] == step["writes"]["count"]


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_printed_requests_equal_the_device_s_counters(kind):
    """Nobody else uses our own device, so its counters are those of the test."""
    with loop_file_system(kind, "noatime") as (point, device):
        result = bench("--dir", point, "--r", "--fileSizeMB", "64", "--nThreads", "4")
        assert result["place"]["file_system"] == kind and result["place"]["device"] == os.path.basename(device)
        for step in result["steps"]:
            counted = step["device"]
            # The time between the two readings of the counters is a little longer than the step.
            assert counted["r/s"] == pytest.approx(step["operations_per_second"], rel=0.05)
            assert counted["rkB/s"] == pytest.approx(step["bytes_per_second"] / 1024, rel=0.05)
            assert counted["rareq-sz"] == pytest.approx(4, rel=0.05)
        assert not [path for path in point.iterdir() if path.name != "lost+found"]


@pytest.mark.root
@pytest.mark.parametrize(
    "engine,fios",
    [("uring", ["--ioengine=io_uring", "--iodepth=4"]), ("threads", ["--ioengine=psync", "--numjobs=4", "--thread"])],
)
@with_patience
def test_latencies_agree_with_fio(engine, fios):
    """On a device that is limited to 200 reads per second in bursts: a few reads wait long
    for the next burst, the others not at all, and both histograms show that."""
    needs("fio")
    with loop_file_system("ext4", in_memory=True) as (point, device):
        lay = ["fio", "--name=lay", f"--filename={point}/fio", "--size=64m", "--bs=1m", "--rw=write", "--direct=1"]
        subprocess.run(lay, check=True, capture_output=True)
        with throttled(device, 200) as joined:
            command = [
                *joined,
                "fio",
                "--name=t",
                f"--filename={point}/fio",
                "--size=64m",
                "--rw=randread",
                "--bs=4k",
                "--direct=1",
                "--time_based",
                "--runtime=3",
                "--group_reporting",
                "--output-format=json",
                *fios,
            ]
            job = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["jobs"][0]
        (point / "fio").unlink()
        ours_command = [
            "disk",
            "bench",
            "--json",
            "-q",
            "--r",
            "--fileSizeMB",
            "64",
            "--nThreads",
            "4",
            "--no-ramp",
            "--engine",
            engine,
            "--step-seconds",
            "3",
            "--probe-seconds",
            "0",
            "--dir",
            str(point),
        ]
        with throttled(device, 200) as joined:
            done = subprocess.run(
                [*joined, labkit.MONGOSONAR, *ours_command],
                capture_output=True,
                text=True,
                timeout=120,
                stdin=subprocess.DEVNULL,
            )
        result = json.loads(done.stdout)
        if result["engine"] != engine:
            pytest.skip(result["notes"][0])
        step, theirs = result["steps"][0], job["read"]["clat_ns"]
        assert step["operations_per_second"] == pytest.approx(job["read"]["iops"], rel=0.1)
        mine = step["reads"]["latency_ns"]
        assert mine["mean"] == pytest.approx(theirs["mean"], rel=0.1)
        assert mine["p99"] == pytest.approx(theirs["percentile"]["99.000000"], rel=0.2)
        assert mine["max"] == pytest.approx(theirs["max"], rel=0.5)
        assert mine["p50"] < mine["mean"] / 5 and theirs["percentile"]["50.000000"] < theirs["mean"] / 5


def test_latencies_of_a_known_service_time(folder):
    """Little's law: in flight = rate × mean latency, for every step and all kinds together."""
    for step in bench("--dir", folder, "--r", "--w", "--fileSizeMB", "32", "--nThreads", "16")["steps"]:
        waited = sum(
            kind["count"] * kind["latency_ns"]["mean"] for kind in (step["reads"], step["writes"], step["flushes"])
        )
        assert waited / 1e9 / step["seconds"] == pytest.approx(step["in_flight"], rel=0.1)


@pytest.mark.root
@with_patience
def test_stat_agrees_with_iostat():
    """Both observe the same three seconds of a load with a constant rate."""
    needs("iostat")
    with loop_file_system("ext4", in_memory=True) as (point, device), throttled(device, 500) as joined:
        load = [
            *joined,
            labkit.MONGOSONAR,
            "disk",
            "bench",
            "--dir",
            str(point),
            "--r",
            "--w",
            "--no-fdatasync",
            "--fileSizeMB",
            "64",
            "--nThreads",
            "4",
            "--no-ramp",
            "--step-seconds",
            "8",
            "--probe-seconds",
            "0",
        ]
        with labkit.process(load, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as running:
            for line in running.stdout:
                if line.endswith("MB/sec\n"):
                    break
            iostat = subprocess.Popen(["iostat", "-x", "-y", "-o", "JSON", "3", "1"], stdout=subprocess.PIPE, text=True)
            stat = subprocess.Popen(
                [labkit.MONGOSONAR, "disk", "stat", "--json", "--interval", "3s", "--count", "1"],
                stdout=subprocess.PIPE,
                text=True,
            )
            theirs = json.loads(iostat.communicate(timeout=30)[0])["sysstat"]["hosts"][0]["statistics"][0]["disk"]
            ours = json.loads(stat.communicate(timeout=30)[0])["devices"]
    name = os.path.basename(device)
    mine = next(disk for disk in ours if disk["device"] == name)
    other = next(disk for disk in theirs if disk["disk_device"] == name)
    assert mine["r/s"] == pytest.approx(500, rel=0.1)
    for column in ("r/s", "w/s", "rkB/s", "wkB/s"):
        assert mine[column] == pytest.approx(other[column], rel=0.05), column
    for column in ("rareq-sz", "wareq-sz", "rrqm/s", "wrqm/s"):
        assert mine[column] == pytest.approx(other[column], rel=0.02, abs=0.5), column
    for column in ("r_await", "w_await", "aqu-sz"):
        assert mine[column] == pytest.approx(other[column], rel=0.25, abs=0.1), column
    assert mine["%util"] == pytest.approx(other["util"], abs=10)
    known = {
        "r/s",
        "w/s",
        "d/s",
        "f/s",
        "rkB/s",
        "wkB/s",
        "dkB/s",
        "rrqm/s",
        "wrqm/s",
        "drqm/s",
        "r_await",
        "w_await",
        "d_await",
        "f_await",
        "rareq-sz",
        "wareq-sz",
        "dareq-sz",
        "aqu-sz",
    }
    assert known <= set(other) and known <= set(mine), set(other) ^ set(mine)


def test_stat_names_missing_disks():
    done = run("stat", "nosuch0", "--count", "1")
    assert done.returncode == 1 and "nosuch0" in done.stderr
    done = run("stat", "--dbpath", "/proc", "--count", "1")
    assert done.returncode == 1 and "no block device" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    "kind,options,grades",
    [
        ("xfs", "noatime", {"file-system": "ok", "atime": "ok"}),
        ("xfs", "relatime", {"file-system": "ok", "atime": "warning"}),
        ("ext4", "noatime", {"file-system": "warning", "atime": "ok"}),
        ("ext4", "strictatime", {"file-system": "warning", "atime": "warning"}),
    ],
)
def test_check_of_a_real_file_system(kind, options, grades):
    with loop_file_system(kind, options) as (point, _):
        done = run("check", "--json", "--dbpath", point)
        result = json.loads(done.stdout)
        found = {finding["name"]: finding for finding in result["findings"]}
        assert {name: found[name]["verdict"] for name in grades} == grades
        assert str(point) in found["file-system"]["found"]
        for finding in result["findings"]:
            assert finding["why"] and finding["document"]
            if finding["verdict"] != "ok" and finding["name"] != "raid":
                assert finding["remedy"] or finding["name"] in ("file-system", "rotational", "scheduler")
        assert done.returncode == {"ok": 0, "warning": 4, "problem": 5}[result["worst"]]


@pytest.mark.root
def test_the_remedy_of_a_finding_fixes_it():
    with loop_file_system("ext4", "strictatime") as (point, _):

        def atime():
            findings = json.loads(run("check", "--json", "--dbpath", point).stdout)["findings"]
            return next(finding for finding in findings if finding["name"] == "atime")

        before = atime()
        command = before["remedy"].split("   ")[0].removeprefix("sudo ").split()
        subprocess.run(command, check=True)
        assert (before["verdict"], atime()["verdict"]) == ("warning", "ok")


def test_check_of_a_folder_in_memory():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no /dev/shm")
    found = {f["name"]: f for f in json.loads(run("check", "--json", "--dbpath", "/dev/shm").stdout)["findings"]}
    assert found["file-system"]["verdict"] == "problem" and "memory" in found["file-system"]["why"]


def test_without_direct_io_it_names_the_figures_that_still_hold():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no /dev/shm")
    done = run("bench", "--r", "--fileSizeMB", "4", "--dir", "/dev/shm")
    assert (
        done.returncode == 1 and "direct I/O" in done.stderr and "--buffered" in done.stderr and "--mmf" in done.stderr
    )
    result = bench("--r", "--fileSizeMB", "4", "--dir", "/dev/shm", "--buffered")
    assert result["verdict"]["limit"] == "memory" and result["place"]["device"] is None
    assert not [path for path in os.listdir("/dev/shm") if path.startswith("mongosonar-disk-")]


def test_a_mapped_file_is_synced_and_has_no_rate_in_bytes(folder):
    config = "{ nThreads:2, fileSizeMB:16, mmf:true, r:true, w:true, syncDelay:1 }"
    done = run("bench", "--dir", folder, "--step-seconds", "3", stdin=config)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(" ops/sec ")] and not [line for line in lines if "MB/sec" in line]
    syncs = [line for line in lines if line.strip().startswith("mmf sync took")]
    assert syncs and all(line.startswith(" " * 53 + "mmf sync took ") and line.endswith("ms") for line in syncs)


@pytest.mark.root
def test_missing_space_is_detected_before_writing():
    with loop_file_system("ext4", mebibytes=64) as (point, _):
        done = run("bench", "--r", "--fileSizeMB", "200", "--dir", point)
        assert done.returncode == 1 and "not enough space" in done.stderr
        assert not [path for path in point.iterdir() if path.name != "lost+found"]


@pytest.mark.root
def test_a_quota_is_an_error_and_nothing_is_left():
    needs("xfs_quota", "setpriv")
    with loop_file_system("xfs", "usrquota") as (point, _):
        point.chmod(0o777)
        limit = subprocess.run(
            ["xfs_quota", "-x", "-c", "limit bhard=20m 65533", str(point)], capture_output=True, text=True
        )
        if limit.returncode or limit.stderr:
            pytest.skip(f"no quota here: {limit.stderr.strip()}")
        binary = shutil.copy(labkit.MONGOSONAR, point / "mongosonar")
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=65533",
                "--regid=65533",
                "--clear-groups",
                binary,
                "disk",
                "bench",
                "--r",
                "--fileSizeMB",
                "64",
                "--dir",
                str(point),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 1 and ("quota" in done.stderr.lower() or "space" in done.stderr.lower()), done.stderr
        assert not list(point.glob("mongosonar-disk-*"))


@pytest.mark.root
def test_a_folder_that_cannot_be_written_to():
    with loop_file_system("ext4") as (point, _):
        subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
        done = run("bench", "--r", "--fileSizeMB", "4", "--dir", point)
        assert done.returncode == 1 and "read-only" in done.stderr.lower() and "--dir" in done.stderr


def test_a_missing_folder():
    done = run("bench", "--r", "--dir", "/nonexistent/folder")
    assert done.returncode == 1 and "/nonexistent/folder" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("engine", ["uring", "threads", "mmap"])
def test_a_device_that_disappears_during_a_run_is_an_error(engine):
    """Truncates the image of the loop device: reads beyond its end fail like those of a lost disk."""
    with loop_file_system("ext4") as (point, device):
        image = point.parent / "image"
        # A page that was read stays mapped; read slowly, so that some are left.
        options = ["--sleepMicros", "4000"] if engine == "mmap" else ["--probe-seconds", "0"]
        command = [
            labkit.MONGOSONAR,
            "disk",
            "bench",
            "--r",
            "--fileSizeMB",
            "128",
            "--nThreads",
            "4",
            "--no-ramp",
            "--engine",
            engine,
            "--step-seconds",
            "20",
            "--dir",
            str(point),
            *options,
        ]
        with labkit.process(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        ) as running:
            for line in running.stdout:
                if "testing" in line:
                    break
            time.sleep(0.5)
            os.truncate(image, 0)
            subprocess.run(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], check=False)
            _, errors = running.communicate(timeout=60)
        assert running.returncode == 1, errors
        assert "failed" in errors or "could not be read" in errors, errors


@pytest.mark.parametrize(
    "number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
@pytest.mark.parametrize("when", ["creating", "testing", "probing"])
def test_a_signal_leaves_nothing_behind(folder, number, code, when):
    size = "4000" if when == "creating" else "64"
    if when == "creating" and shutil.disk_usage(folder).free < 6 << 30:
        pytest.skip("too little space")
    command = [
        labkit.MONGOSONAR,
        "disk",
        "bench",
        "--r",
        "--fileSizeMB",
        size,
        "--dir",
        str(folder),
        "--step-seconds",
        "30",
        "--probe-seconds",
        "30" if when == "probing" else "0",
    ]
    with labkit.process(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as running:
        for line in running.stdout:
            if line.startswith(when):
                break
        labkit.wait_until(lambda: list(folder.iterdir()), "the test file")
        running.send_signal(number)
        running.send_signal(number)
        output, _ = running.communicate(timeout=20)
    assert running.returncode == code
    assert "before the first step was measured; the test file is removed" in output
    # No table without a step, and no probe that was not finished.
    assert "ops/s" not in output and "device" not in output, output
    assert not list(folder.iterdir())


def test_a_terminal_shows_the_progress_of_the_file(folder):
    """A pipe does not."""
    command = [
        labkit.MONGOSONAR,
        "disk",
        "bench",
        "--r",
        "--fileSizeMB",
        "600",
        "--no-ramp",
        "--step-seconds",
        "1",
        "--probe-seconds",
        "0",
        "--dir",
        str(folder),
    ]
    if shutil.disk_usage(folder).free < 2 << 30:
        pytest.skip("too little space")
    ours, theirs = pty.openpty()
    shown = b""
    with labkit.process(command, stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL):
        os.close(theirs)
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    # The bar, and its two sizes.
    assert b"of 600.00 MiB" in shown and b"left" in shown, shown[:2000]
    done = run(
        "bench", "--r", "--fileSizeMB", "8", "--no-ramp", "--step-seconds", "1", "--probe-seconds", "0", "--dir", folder
    )
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("engine", ["uring", "threads"])
def test_the_largest_record(folder, engine):
    """As large as mongoperf allowed, sequential and random."""
    for access in ("sequential", "random"):
        result = bench(
            "--dir",
            folder,
            "--r",
            "--w",
            "--no-fdatasync",
            "--fileSizeMB",
            "128",
            "--recSizeKB",
            "64000",
            "--nThreads",
            "2",
            "--no-ramp",
            "--engine",
            engine,
            "--access",
            access,
        )
        step = result["steps"][0]
        assert (
            step["reads"]["count"]
            and step["reads"]["bytes"] == step["reads"]["count"] * 64000 * 1024 == step["kernel_read_bytes"]
        )
        assert step["writes"]["bytes"] == step["writes"]["count"] * 64000 * 1024


def test_the_end_of_a_pipe_leaves_nothing_behind(folder):
    command = f"{labkit.MONGOSONAR} disk bench --r --fileSizeMB 8 --dir {folder} --step-seconds 2 --nThreads 4 --probe-seconds 0 | head -4"
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    labkit.wait_until(lambda: not list(folder.iterdir()), "the removal of the test file")


def test_existing_files_are_not_touched(folder):
    for name in ("mongosonar-disk-1-00000000.tmp", "mongoperf__testfile__tmp"):
        (folder / name).write_text("mine")
    bench("--r", "--fileSizeMB", "4", "--dir", folder)
    for path in folder.iterdir():
        assert path.read_text() == "mine"
        path.unlink()


def test_a_run_is_repeatable_and_pairs_with_another(folder, tmp_path):
    for name in ("a", "b"):
        done = run(
            "bench",
            "--json",
            "-q",
            "--r",
            "--fileSizeMB",
            "16",
            "--nThreads",
            "2",
            "--step-seconds",
            "3",
            "--probe-seconds",
            "0.2",
            "--dir",
            folder,
            "--html",
            tmp_path / f"{name}.html",
        )
        assert done.returncode == 0, done.stderr
        (tmp_path / f"{name}.json").write_text(done.stdout)
        page = (tmp_path / f"{name}.html").read_text()
        # The page draws the document that --json wrote.
        document = page.split('<script id="data" type="application/json">')[1].split("</script>")[0]
        assert (
            page.startswith("<!doctype html>")
            and "default-src 'none'" in page
            and json.loads(document) == json.loads(done.stdout)
        )
    done = run("bench", "--compare", tmp_path / "a.json", tmp_path / "b.json", "--json")
    steps = json.loads(done.stdout)["steps"]
    assert [step["in_flight"] for step in steps] == [1, 2]
    for step in steps:
        low, high = step["interval"]
        assert low <= step["ratio"] <= high
    done = run("estimate", tmp_path / "a.json", "--documents", "1M", "--size", "1G", "--json")
    ways = json.loads(done.stdout)["ways"]
    assert len(ways) >= 3 and all(way["duration_ns"] > 0 for way in ways)
    done = run("bench", "--compare", tmp_path / "a.json", tmp_path / "a.html")
    assert done.returncode == 1 and "a.html" in done.stderr


def test_a_hundred_reads_a_second_and_a_hundred_million_documents_are_more_than_a_day():
    done = run("estimate", "--rate", "100", "--documents", "100M", "--json")
    assert json.loads(done.stdout)["ways"][0]["duration_ns"] == 1_000_000 * 10**9 > 86_400 * 10**9


@pytest.mark.parametrize("engine", ["uring", "threads"])
def test_a_thousand_in_flight_in_bounded_memory(folder, engine):
    command = [
        labkit.MONGOSONAR,
        "disk",
        "bench",
        "--r",
        "--w",
        "--fileSizeMB",
        "128",
        "--nThreads",
        "1024",
        "--no-ramp",
        "--recSizeKB",
        "64",
        "--engine",
        engine,
        "--step-seconds",
        "3",
        "--probe-seconds",
        "0",
        "-q",
        "--json",
        "--no-fdatasync",
        "--dir",
        str(folder),
    ]
    peak = 0
    with labkit.process(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as running:
        while running.poll() is None:
            with contextlib.suppress(OSError, StopIteration):
                status = pathlib.Path(f"/proc/{running.pid}/status").read_text()
                peak = max(peak, int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]))
            time.sleep(0.1)
        step = json.loads(running.stdout.read())["steps"][0]
    assert step["in_flight"] == 1024 and step["operations"] > 1024
    assert peak < 300 * 1024, f"{peak} KiB"


@pytest.mark.root
def test_forbidden_io_uring_falls_back_to_threads_with_the_reason(folder):
    switch = pathlib.Path("/proc/sys/kernel/io_uring_disabled")
    if not switch.exists():
        pytest.skip("this kernel cannot forbid io_uring")
    before = switch.read_text()
    try:
        switch.write_text("2")
        result = bench("--r", "--fileSizeMB", "4", "--dir", folder)
    finally:
        switch.write_text(before)
    assert result["engine"] == "threads"
    assert any("io_uring_disabled" in note and "threads" in note for note in result["notes"])


@pytest.mark.root
@with_patience
def test_a_capped_volume_differs_from_a_slow_one():
    with loop_file_system("ext4", in_memory=True) as (point, device), throttled(device, 400) as joined:
        command = [
            *joined,
            labkit.MONGOSONAR,
            "disk",
            "bench",
            "--r",
            "--fileSizeMB",
            "64",
            "--nThreads",
            "4",
            "--step-seconds",
            "2",
            "--probe-seconds",
            "2",
            "--json",
            "-q",
            "--dir",
            str(point),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        verdict = json.loads(done.stdout)["verdict"]
        assert (verdict["volume"], verdict["limit"]) == ("capped", "cap"), verdict
        assert verdict["best_per_second"] == pytest.approx(400, rel=0.15)


MACHINES = labkit.LAB.parent / "fixtures/machines"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Creates the directory tree of a recording."""
    sys.path.insert(0, str(MACHINES))
    import tree

    def make(name):
        folder = tmp_path_factory.mktemp(name)
        tree.make(MACHINES / f"{name}.txt", folder)
        return folder

    return make


@pytest.mark.parametrize(
    "name,dbpath,expected,words",
    [
        (
            "vm",
            "/mnt/a",
            {"file-system": "ok", "atime": "ok", "raid": "warning", "stripe": "warning"},
            "raid0 of vda, vdb",
        ),
        (
            "vm",
            "/mnt/b",
            {"file-system": "warning", "atime": "warning", "raid": "warning", "stripe": "ok"},
            "raid5 of vdc, vdd, vde",
        ),
        ("vm", "/mnt/c", {"raid": "ok", "stripe": "ok"}, "raid10 of vdf, vdg, vdh, vdi"),
        ("vm", "/mnt/d", {"raid": "warning", "stripe": "ok"}, "striped of vdj, vdk, chunks of 64 KiB"),
        ("vm", "/mnt/e", {"file-system": "warning", "atime": "warning", "rotational": "ok"}, "sda"),
        ("vm", "/mnt/f", {"file-system": "ok", "readahead": "warning", "rotational": "ok"}, "nvme0n1"),
        ("vm-degraded", "/mnt/c", {"raid-degraded": "problem"}, "1 missing"),
        ("vm-degraded", "/mnt/f", {"readahead": "ok"}, "16 KiB"),
        (
            "cloud",
            None,
            {
                "file-system": "ok",
                "atime": "ok",
                "readahead": "ok",
                "scheduler": "ok",
                "huge-pages": "ok",
                "huge-pages-defrag": "ok",
                "swappiness": "ok",
                "numa": "ok",
                "limits": "ok",
                "max-map-count": "ok",
            },
            "8.0",
        ),
        (
            "container",
            None,
            {"file-system": "problem", "limits": "problem", "numa": "warning", "swappiness": "warning"},
            "overlay",
        ),
        (
            "container",
            "/volume",
            {"file-system": "ok", "rotational": "warning", "scheduler": "ok", "readahead": "warning"},
            "ST4000NM0035",
        ),
    ],
)
def test_check_of_another_machine(machine, name, dbpath, expected, words):
    options = ["--dbpath", dbpath] if dbpath else []
    done = run("check", "--json", "--root", machine(name), *options)
    assert done.returncode in (0, 4, 5), done.stderr
    result = json.loads(done.stdout)
    grades = {}
    for finding in result["findings"]:
        order = ["ok", "warning", "problem"]
        grades[finding["name"]] = max(grades.get(finding["name"], "ok"), finding["verdict"], key=order.index)
    assert {check: grades.get(check) for check in expected} == expected, done.stdout
    assert any(words in finding["found"] for finding in result["findings"]), done.stdout


# Commands that can destroy data, or an array or volume that holds it.
DESTRUCTIVE = re.compile(
    r"(?<![\w-])(mkfs|mke2fs|dd|wipefs|rm|rmdir|shred|s?g?fdisk|sgdisk|gdisk|parted|[lvp]vremove|vgremove|lvreduce|[lp]vcreate|vgcreate|mkswap|blkdiscard)"
    r"(\.\w+)?(?![\w-])|--create|--zero-superblock|--stop|--remove|of=/dev|>\s*/dev/"
)


@pytest.mark.parametrize("name", sorted(path.stem for path in MACHINES.glob("*.txt")))
def test_check_never_prints_a_command_that_destroys_data(machine, name):
    root = machine(name)
    points = {line.split()[4] for line in (root / "proc/self/mountinfo").read_text().splitlines() if line.strip()}
    assert "/" in points
    remedies = 0
    for point in sorted(points):
        options = ["--root", root, "--dbpath", point]
        findings = json.loads(run("check", "--json", *options).stdout)["findings"]
        for finding in findings:
            text = " ".join(str(finding[part]) for part in ("found", "why", "remedy"))
            assert not DESTRUCTIVE.search(text), finding
            remedies += bool(finding["remedy"])
        shown = run("check", *options).stdout
        assert not DESTRUCTIVE.search(shown) and "mend it" not in shown, shown
    assert remedies


def test_every_command_rejects_a_path_that_is_not_a_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    for path, words in (
        (tmp_path / "absent", "No such file"),
        (file, "is not a folder"),
        (file / "below", "Not a directory"),
    ):
        for command in (
            ["check", "--dbpath", path],
            ["check", "--root", path],
            ["stat", "--count", "1", "--dbpath", path],
            ["bench", "--r", "--fileSizeMB", "1", "--dir", path],
        ):
            done = run(*command)
            assert done.returncode == 1, (command, done.stdout)
            assert words in done.stderr and str(path) in done.stderr and not done.stdout, (command, done.stderr)
    assert sorted(tmp_path.iterdir()) == [file]


def test_check_without_a_mongod_has_no_findings_about_one(machine):
    root = machine("cloud")
    shutil.rmtree(root / "proc/1207")
    result = json.loads(run("check", "--json", "--root", root, "--dbpath", "/").stdout)
    assert not {"limits", "max-map-count"} & {finding["name"] for finding in result["findings"]}
    assert any(line.startswith("mongod: none runs here") for line in result["unseen"]), result["unseen"]


def test_check_of_a_well_configured_machine_is_all_ok(machine):
    done = run("check", "--root", machine("cloud"))
    assert done.returncode == 0, done.stdout


BUILD_INFO = (
    '{"t":{"$date":"2024-01-05T10:11:12.131+00:00"},"s":"I","c":"CONTROL","id":23403,"ctx":"initandlisten","msg":"Build Info",'
    '"attr":{"buildInfo":{"version":"%s","gitVersion":"7809d71e84e314b497f282ea8aa06d7ded3eb205"}}}\n'
)


@pytest.mark.parametrize(
    "program,files,version,source",
    [
        ("/opt/mongodb-linux-x86_64-rhel80-6.0.12/bin/mongod", {}, "6.0", "the path of its program"),
        ("/usr/bin/mongod", {"var/log/mongo.log": BUILD_INFO % "5.0.1" + BUILD_INFO % "7.0.5"}, "7.0", "its log"),
        # An older package is installed too; the running version counts.
        (
            "/opt/mongodb/bin/mongod",
            {
                "var/log/mongo.log": BUILD_INFO % "8.0.1",
                "var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: install ok installed\nVersion: 4.4.1\n",
            },
            "8.0",
            "its log",
        ),
        (
            "/usr/bin/mongod",
            {"var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: install ok installed\nVersion: 1:4.4.1-2\n"},
            "4.4",
            "package",
        ),
        (
            "/usr/bin/mongod",
            {"var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: deinstall ok config-files\nVersion: 4.4.1\n"},
            None,
            "no package",
        ),
        (
            "/opt/mongodb/bin/mongod",
            {"var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: install ok installed\nVersion: 4.4.1\n"},
            None,
            "did not come out of a package",
        ),
        ("/usr/bin/mongod", {"var/log/mongo.log": "nothing of a start\n"}, None, "/var/log/mongo.log has no start"),
        ("/usr/bin/mongod", {}, None, "/data/diagnostic.data"),
    ],
)
def test_check_finds_the_version_of_mongod_or_names_what_it_could_not_see(machine, program, files, version, source):
    root = machine("cloud")
    (root / "var/lib/dpkg/status").unlink()
    (root / "proc/1207/cmdline").write_text(f"{program}\0--config\0/etc/mongod.conf\0")
    (root / "etc/mongod.conf").write_text(
        "storage:\n  dbPath: /data\nsystemLog:\n  destination: file\n  path: /var/log/mongo.log\n"
    )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    result = json.loads(run("check", "--json", "--root", root).stdout)
    found = next(finding["found"] for finding in result["findings"] if finding["name"] == "huge-pages")
    unseen = [words for words in result["unseen"] if words.startswith("version of mongod")]
    if version:
        assert f"for mongod {version} (from {source}" in found or f"for mongod {version} (from the {source}" in found, (
            found
        )
        assert not unseen
    else:
        assert "is unknown" in found and "--mongod-version" in unseen[0] and source in unseen[0], unseen


# A mongod of root in its own PID namespace, so that no other one is visible; each command looks at it.
OTHER_USER = """
"$0" 60 & mongod=$!
until [ "$(cat /proc/$mongod/comm)" = mongod ]; do sleep 0.01; done
echo $mongod > "$1/pid"
shift
setpriv --reuid=65533 --regid=65533 --clear-groups "$@" > "$OUT/nobody"; echo $? >> "$OUT/codes"
"$@" > "$OUT/root"; echo $? >> "$OUT/codes"
kill $mongod
"""


@pytest.mark.root
def test_check_without_root_names_what_it_could_not_see(tmp_path):
    """The user nobody checks a process of root that is named mongod."""
    needs("setpriv", "unshare")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(shutil.which("sleep"), f"{folder}/mongod")
        binary = shutil.copy(labkit.MONGOSONAR, f"{folder}/mongosonar")
        inside = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-c", OTHER_USER, program, tmp_path]
        check = [binary, "disk", "check", "--json", "--dbpath", folder]
        command = [str(word) for word in [*inside, *check]]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={**os.environ, "OUT": str(tmp_path)}
        )
    read = lambda name: (tmp_path / name).read_text()
    assert done.returncode == 0 and set(map(int, read("codes").split())) <= {0, 4, 5}, done.stderr
    seen, less = (json.loads(read(name)) for name in ("root", "nobody"))
    assert f"mongod runs as {int(read('pid'))}" in less["about"]
    # Facts that everybody may read give the same findings.
    alike = {"kernel", "file-system", "atime", "readahead", "swappiness", "max-map-count", "limits", "free-space"}
    judged = lambda result: {f["name"]: f["verdict"] for f in result["findings"] if f["name"] in alike}
    assert judged(less) == judged(seen)
    assert any(words.startswith("version of mongod") for words in less["unseen"])


def test_check_of_a_folder_uses_the_mongod_that_owns_it(tmp_path):
    for pid, folder in [(10, "/data/one"), (20, "/data/two"), (30, "/data/three")]:
        own = tmp_path / "proc" / str(pid)
        own.mkdir(parents=True)
        (own / "comm").write_text("mongod\n")
        (own / "cmdline").write_bytes(b"/usr/bin/mongod\0--dbpath=" + folder.encode() + b"\0")
    for folder, pid in [("/data/two", 20), ("/data/three", 30), ("/data/none", 10)]:
        done = run("check", "--json", "--root", tmp_path, "--dbpath", folder)
        assert f"mongod runs as {pid}" in json.loads(done.stdout)["about"], done


def test_check_of_an_invalid_root(tmp_path):
    done = run("check", "--root", tmp_path)
    assert done.returncode == 2 and "proc" in done.stderr
