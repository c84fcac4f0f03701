"""The figures of `mongosonar disk` beside those of fio and sysstat's iostat, and with a known truth."""

import json
import os
import pathlib
import subprocess

import pytest
from disks import bench, loop_file_system, needs, throttled, with_patience

import labkit

pytestmark = pytest.mark.alone


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
