"""`mongosonar disk` on real file systems: what it does, what it counts, how it ends."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest
from disks import MIB, bench, loop_file_system, needs, run

import labkit


def test_mongoperfs_configuration_and_lines(folder):
    config = "{ nThreads:4, fileSizeMB:16, mmf:false, r:true, w:false, syncDelay:60 }"
    done = run("bench", "--dir", folder, "--step-seconds", "2", "--probe-seconds", "0", stdin=config)
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
    assert named in run("bench", "--dir", folder, stdin=text, code=2).stderr


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
        name = os.path.basename(device)
        reads = lambda: int(pathlib.Path(f"/sys/block/{name}/stat").read_text().split()[0])
        before = reads()
        result = bench("--dir", point, "--r", "--fileSizeMB", "64", "--nThreads", "4")
        assert result["place"]["file_system"] == kind and result["place"]["device"] == name
        operations = sum(step["operations"] for step in result["steps"])
        # Beside them are the probe's reads and those of the file system itself.
        assert operations <= reads() - before <= 1.05 * operations + 200, (before, reads(), operations)
        for step in result["steps"]:
            counted = step["device"]
            # The time between the two readings of the counters contains the step. A busy machine reads them late.
            assert 0 < counted["r/s"] <= 1.05 * step["operations_per_second"]
            assert counted["rkB/s"] == pytest.approx(4 * counted["r/s"], rel=0.05)
            assert counted["rareq-sz"] == pytest.approx(4, rel=0.05)
        assert not [path for path in point.iterdir() if path.name != "lost+found"]


def test_stat_names_missing_disks():
    assert "nosuch0" in run("stat", "nosuch0", "--count", "1", code=1).stderr
    assert "no block device" in run("stat", "--dbpath", "/proc", "--count", "1", code=1).stderr


def test_without_direct_io_it_names_the_figures_that_still_hold():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no /dev/shm")
    done = run("bench", "--r", "--fileSizeMB", "4", "--dir", "/dev/shm", code=1)
    assert "direct I/O" in done.stderr and "--buffered" in done.stderr and "--mmf" in done.stderr
    result = bench("--r", "--fileSizeMB", "4", "--dir", "/dev/shm", "--buffered")
    assert result["verdict"]["limit"] == "memory" and result["place"]["device"] is None
    assert not [path for path in os.listdir("/dev/shm") if path.startswith("mongosonar-disk-")]


def test_a_mapped_file_is_synced_and_has_no_rate_in_bytes(folder):
    config = "{ nThreads:2, fileSizeMB:16, mmf:true, r:true, w:true, syncDelay:1 }"
    done = run("bench", "--dir", folder, "--step-seconds", "3", stdin=config)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(" ops/sec ")] and not [line for line in lines if "MB/sec" in line]
    syncs = [line for line in lines if line.strip().startswith("mmf sync took")]
    assert syncs and all(line.startswith(" " * 53 + "mmf sync took ") and line.endswith("ms") for line in syncs)


@pytest.mark.root
def test_missing_space_is_detected_before_writing():
    with loop_file_system("ext4", mebibytes=64) as (point, _):
        done = run("bench", "--r", "--fileSizeMB", "200", "--dir", point, code=1)
        assert "not enough space" in done.stderr
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
        done = run("bench", "--r", "--fileSizeMB", "4", "--dir", point, code=1)
        assert "read-only" in done.stderr.lower() and "--dir" in done.stderr


def test_a_missing_folder():
    assert "/nonexistent/folder" in run("bench", "--r", "--dir", "/nonexistent/folder", code=1).stderr


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
        output, _ = running.communicate(timeout=60)
    assert running.returncode == code
    assert "before the first step was measured; the test file is removed" in output
    # No table without a step, and no probe that was not finished.
    # Not the line of each second: "ops/sec".
    assert not re.search(r"ops/s\b|device", output), output
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
    # A terminal of no kind, or of the kind `dumb`, cannot show a bar.
    env = {**os.environ, "TERM": "xterm"}
    with labkit.process(command, stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL, env=env):
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
    assert done.stderr == ""


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
    assert "a.html" in run("bench", "--compare", tmp_path / "a.json", tmp_path / "a.html", code=1).stderr


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
            # span: between two looks
            time.sleep(0.1)
        step = json.loads(running.stdout.read())["steps"][0]
    assert step["in_flight"] == 1024 and step["operations"] > 1024
    assert peak < 300 * 1024, f"{peak} KiB"


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
            done = run(*command, code=1)
            assert words in done.stderr and str(path) in done.stderr and not done.stdout, (command, done.stderr)
    assert sorted(tmp_path.iterdir()) == [file]
