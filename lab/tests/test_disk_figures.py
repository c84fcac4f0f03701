"""The figures of `mongosonar disk` beside those of fio and sysstat's iostat, and with a known truth."""

import json
import mmap
import os
import pathlib
import statistics
import subprocess

import pytest
from disks import MIB, bench, loop_file_system, needs, throttled

import labkit

measures = pytest.mark.skipif(not os.environ.get("LONG"), reason="a busy machine decides; LONG=1 lets it run")


@pytest.mark.alone
@pytest.mark.root
@measures
@pytest.mark.parametrize(
    "engine,fios",
    [("uring", ["--ioengine=io_uring", "--iodepth=4"]), ("threads", ["--ioengine=psync", "--numjobs=4", "--thread"])],
)
def test_latencies_agree_with_fio(engine, fios):
    """On a device that is limited to 200 reads per second in bursts: a few reads wait long for the next burst, the
    others not at all, and both histograms show that. Medians of five runs by turns."""
    needs("fio")
    with loop_file_system("ext4", in_memory=True) as (point, device):
        file = ["fio", f"--filename={point}/fio", "--size=64m", "--direct=1"]
        subprocess.run([*file, "--name=lay", "--bs=1m", "--rw=write"], check=True, capture_output=True)
        fio = [*file, "--name=t", "--rw=randread", "--bs=4k", "--time_based", "--runtime=3", "--group_reporting"]
        ours = ["--json", "-q", "--r", "--fileSizeMB", "64", "--nThreads", "4", "--no-ramp", "--engine", engine]
        ours = [
            labkit.MONGOSONAR,
            "disk",
            "bench",
            *ours,
            "--step-seconds",
            "3",
            "--probe-seconds",
            "0",
            "--dir",
            point,
        ]

        def report(joined, command):
            command = [str(word) for word in [*joined, *command]]
            done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
            return json.loads(done.stdout)

        pairs = []
        for _ in range(5):
            with throttled(device, 200) as joined:
                theirs = report(joined, [*fio, "--output-format=json", *fios])["jobs"][0]["read"]
            with throttled(device, 200) as joined:
                mine = report(joined, ours)
            if mine["engine"] != engine:
                pytest.skip(mine["notes"][0])
            [step] = mine["steps"]
            percentile = theirs["clat_ns"]["percentile"]
            fio_figures = theirs["iops"], theirs["clat_ns"]["mean"], percentile["99.000000"], percentile["50.000000"]
            latency = step["reads"]["latency_ns"]
            our_figures = step["operations_per_second"], latency["mean"], latency["p99"], latency["p50"]
            pairs.append((our_figures, fio_figures))
    our_medians, fio_medians = (
        list(map(statistics.median, zip(*side, strict=True))) for side in zip(*pairs, strict=True)
    )
    rate, mean, p99, p50 = fio_medians
    assert our_medians[0] == pytest.approx(rate, rel=0.1)
    assert our_medians[1] == pytest.approx(mean, rel=0.1)
    assert our_medians[2] == pytest.approx(p99, rel=0.2)
    assert our_medians[3] < our_medians[1] / 5 and p50 < mean / 5


def test_a_known_delay_of_each_read_is_in_its_latency(folder):
    """strace delays each read by 20 ms. No read can be shorter, and four threads cannot wait longer than they run."""
    needs("strace")
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-e", "inject=pread64:delay_exit=20000"]
    words = ["disk", "bench", "--json", "-q", "--r", "--fileSizeMB", "4", "--nThreads", "4", "--no-ramp"]
    words += ["--engine", "threads", "--step-seconds", "1", "--probe-seconds", "0", "--dir", folder]
    [step] = labkit.document(*words, prefix=inject, timeout=120, stdin=subprocess.DEVNULL)["steps"]
    reads, latency = step["reads"], step["reads"]["latency_ns"]
    assert reads["count"] > 4
    # The lower end of a bucket of the histogram is 2.2 % below its upper end.
    assert latency["p50"] >= 20e6 * 0.978 and latency["max"] >= latency["mean"] >= 20e6
    assert reads["count"] * latency["mean"] <= 4 * step["seconds"] * 1e9 * 1.001


@pytest.mark.alone
@measures
def test_latencies_of_a_known_service_time(folder):
    """Little's law: in flight = rate × mean latency, for every step and all kinds together."""
    for step in bench("--dir", folder, "--r", "--w", "--fileSizeMB", "32", "--nThreads", "16")["steps"]:
        waited = sum(
            kind["count"] * kind["latency_ns"]["mean"] for kind in (step["reads"], step["writes"], step["flushes"])
        )
        assert waited / 1e9 / step["seconds"] == pytest.approx(step["in_flight"], rel=0.1)


# Counters of a disk as /proc/diskstats has them (Documentation/admin-guide/iostats.rst), and how much they grow.
COUNTERS = [5_000, 70, 90_000, 4_000, 8_000, 60, 120_000, 9_000, 0, 3_000, 13_500, 30, 2, 4_000, 20, 300, 800]
GROWTH = [1_200, 48, 38_400, 3_000, 600, 150, 24_000, 4_200, 0, 700, 8_060, 40, 3, 6_400, 60, 200, 800]


@pytest.mark.root
def test_stat_agrees_with_iostat(tmp_path):
    """Both read counters that this test writes, so their reports must hold just what these grew by."""
    needs("iostat", "unshare")
    name = next(line.split()[2] for line in open("/proc/diskstats") if os.path.exists(f"/sys/block/{line.split()[2]}"))
    number = next(line.split()[:2] for line in open("/proc/diskstats") if line.split()[2] == name)
    # mongosonar reads the first file, iostat the second one.
    files = {tmp_path / "diskstats": "/proc/diskstats", tmp_path / "stat": f"/sys/block/{name}/stat"}

    def write(counters):
        counters = " ".join(map(str, counters)) + "\n"
        for file, text in zip(files, (f"{' '.join([*number, name])} {counters}", counters), strict=True):
            # In one piece, into the same file, as that one is mounted.
            with open(file, "r+b" if file.exists() else "wb", buffering=0) as kernel:
                kernel.write(text.encode())

    write(COUNTERS)
    mounts = " && ".join(f"mount --bind {file} {path}" for file, path in files.items())
    inside = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    sonar = [*inside, labkit.MONGOSONAR, "disk", "stat", name, "--json", "--interval", "1s", "--count", "6"]
    iostat = [*inside, "iostat", "-x", "-y", "-o", "JSON", "1", "6"]
    with (
        labkit.process(iostat, stdout=subprocess.PIPE, text=True) as their,
        labkit.process(sonar, stdout=subprocess.PIPE, text=True) as our,
    ):
        # Each has read the counters: iostat then pauses (system call 34) until its alarm.
        lines = [our.stdout.readline()]
        paused = lambda: pathlib.Path(f"/proc/{their.pid}/syscall").read_text().startswith("34 ")
        labkit.wait_until(
            lambda: paused() and "iostat" in pathlib.Path(f"/proc/{their.pid}/comm").read_text(), "iostat"
        )
        write([value + grown for value, grown in zip(COUNTERS, GROWTH, strict=True)])
        lines += our.stdout.readlines()
        reports = json.loads(their.stdout.read())["sysstat"]["hosts"][0]["statistics"]
    [mine] = [{**disk, "s": one["seconds"]} for one in map(json.loads, lines) for disk in one["devices"] if disk["r/s"]]
    [theirs] = [disk for report in reports for disk in report["disk"] if disk["disk_device"] == name and disk["r/s"]]
    counts = {"r/s": 0, "w/s": 4, "d/s": 11, "f/s": 15, "rrqm/s": 1, "wrqm/s": 5, "drqm/s": 12}
    for column, counter in counts.items():
        assert mine[column] * mine["s"] == pytest.approx(GROWTH[counter]), column
    for column, counter in {"rkB/s": 2, "wkB/s": 6, "dkB/s": 13}.items():
        assert mine[column] * mine["s"] == pytest.approx(GROWTH[counter] / 2), column
    assert mine["%util"] * mine["s"] == pytest.approx(100 * GROWTH[9] / 1000)
    assert mine["aqu-sz"] * mine["s"] == pytest.approx(GROWTH[10] / 1000, rel=0.01)
    # What does not depend on how long an interval was is the same, to iostat's two digits.
    for column in ("r_await", "w_await", "d_await", "f_await", "rareq-sz", "wareq-sz", "dareq-sz"):
        assert mine[column] == pytest.approx(theirs[column], abs=0.006), column
    for column in ("w/s", "d/s", "f/s", "rkB/s", "wkB/s", "rrqm/s", "wrqm/s", "aqu-sz"):
        ratio, other = mine[column] / mine["r/s"], theirs[column] / theirs["r/s"]
        assert ratio == pytest.approx(other, rel=0.01, abs=0.0005), column
    assert set(theirs) - {"disk_device", "util", "rrqm", "wrqm", "drqm"} <= set(mine), set(theirs) ^ set(mine)


@pytest.mark.root
def test_stat_counts_the_reads_of_a_real_device():
    """Not more than the kernel counted from before it began until after it ended, and not less than in between."""
    with loop_file_system("ext4", in_memory=True) as (point, device):
        name = os.path.basename(device)
        reads = lambda: int(pathlib.Path(f"/sys/block/{name}/stat").read_text().split()[0])
        file = point / "file"
        file.write_bytes(os.urandom(8 * MIB))
        os.sync()

        def read_all():
            before = reads()
            descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
            buffer = mmap.mmap(-1, 4096)
            for offset in range(0, 8 * MIB, 4096):
                os.preadv(descriptor, [buffer], offset)
            os.close(descriptor)
            return reads() - before

        command = [labkit.MONGOSONAR, "disk", "stat", name, "--json", "--interval", "1s", "--count", "60"]
        before = reads()
        with labkit.process(command, stdout=subprocess.PIPE, text=True) as sonar:
            lines = [sonar.stdout.readline()]
            read = read_all()
            lines += [sonar.stdout.readline(), sonar.stdout.readline()]
        most = reads() - before
    counted = sum(disk["r/s"] * one["seconds"] for one in map(json.loads, lines) for disk in one["devices"])
    # The file system reads a few blocks of its own.
    assert read >= 8 * MIB // 4096 and read - 0.5 < counted < most + 0.5, (read, counted, most)


@pytest.mark.alone
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


@pytest.mark.alone
@pytest.mark.root
@measures
def test_a_capped_volume_differs_from_a_slow_one():
    with loop_file_system("ext4", in_memory=True) as (point, device), throttled(device, 400) as joined:
        words = ["disk", "bench", "--r", "--fileSizeMB", "64", "--nThreads", "4", "--json", "-q"]
        words += ["--step-seconds", "2", "--probe-seconds", "2", "--dir", point]
        verdict = labkit.document(*words, prefix=joined, timeout=120, stdin=subprocess.DEVNULL)["verdict"]
        assert (verdict["volume"], verdict["limit"]) == ("capped", "cap"), verdict
        assert verdict["best_per_second"] == pytest.approx(400, rel=0.15)
