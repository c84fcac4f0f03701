#!/usr/bin/env python3
"""`disk bench` beside fio by turns: same record, direct I/O, number in flight and file; operations a second, CPU time
of an operation, and its instructions in user mode.

`bench/disk.py [DIR]` measures the disk of another folder.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from lib.kit import (
    LONG,
    MONGOSONAR,
    TARGET,
    build,
    callgrind,
    figure,
    main,
    median,
    note,
    output,
    ratio_interval,
    rounds,
    skip,
    skipped,
)

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else TARGET)
FIO_FILE = FOLDER / f"fio-{os.getpid()}"
SIZE_MIB = 512
PAIRS = rounds(5, 7)
SECONDS = 3 if LONG else 1
DEPTHS = {"uring": (1, 16, 256), "threads": (1, 16)}
if LONG:
    DEPTHS = {"uring": (1, 4, 16, 64, 256, 1024), "threads": (1, 4, 16, 64)}
# A row whose 95 % interval is wider than this, either way, gets more pairs, up to MOST: the width decides, not the
# result.
WIDE, MOST = 0.035, (8 if LONG else 2) * PAIRS
MODES = {"read": ["--r"], "write": ["--w"], "both": ["--r", "--w"]}
FIO_MODES = {"read": "randread", "write": "randwrite", "both": "randrw"}


def own_command(engine, mode, depth, seconds, size):
    step = ["--fileSizeMB", size, "--nThreads", depth, "--step-seconds", seconds, "--probe-seconds", 0, "--no-ramp"]
    options = ["--no-fdatasync", "--engine", engine, "--quiet", "--json", *MODES[mode]]
    return [str(word) for word in (MONGOSONAR, "disk", "bench", "--dir", FOLDER, *step, *options)]


def fio_command(engine, mode, depth, seconds, size):
    options = {
        "name": "disk",
        "filename": FIO_FILE,
        "size": f"{size}m",
        "bs": "4k",
        "direct": 1,
        "rw": FIO_MODES[mode],
        "runtime": seconds,
        "output-format": "json",
        "randrepeat": 1,
    }
    if engine == "threads":
        options |= {"ioengine": "psync", "numjobs": depth}
    else:
        options |= {"ioengine": "io_uring", "iodepth": depth, "fixedbufs": 1, "registerfiles": 1}
    flags = ["--time_based", "--group_reporting", "--thread", "--norandommap"]
    return ["fio", *flags, *(f"--{name}={value}" for name, value in options.items())]


def ours(engine, mode, depth, seconds=SECONDS):
    """One step at exactly this depth: operations a second and CPU ns of one. mongosonar only touches a file that it
    made, and removes it at the end; a second name, FIO_FILE, keeps that file for fio."""
    FIO_FILE.unlink(missing_ok=True)
    command = own_command(engine, mode, depth, seconds, SIZE_MIB)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    while child.poll() is None and not FIO_FILE.exists():
        for file in FOLDER.glob(f"mongosonar-disk-{child.pid}-*"):
            os.link(file, FIO_FILE)
        time.sleep(0.005)
    text = child.communicate()[0]
    if child.returncode != 0 or not FIO_FILE.exists():
        sys.exit(f"disk bench ended with {child.returncode}")
    run = json.loads(text)
    if run["engine"] != engine or len(run["steps"]) != 1:
        sys.exit(f"disk bench did not run one step with {engine}: {run['notes']}")
    step = run["steps"][0]
    return step["operations_per_second"], step["cpu"]["ns_per_operation"]


def fio_operations(job):
    return sum(job[kind]["total_ios"] for kind in ("read", "write"))


def fio(engine, mode, depth):
    job = json.loads(output(fio_command(engine, mode, depth, SECONDS, SIZE_MIB)))["jobs"][0]
    # In per cent of the run time of all threads together.
    seconds = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return job["read"]["iops"] + job["write"]["iops"], seconds / fio_operations(job) * 1e9


def pair(row, number):
    """Runs both once, on a file that mongosonar has just made. They take turns in going first, as the second one
    finds the disk in another state."""
    if number % 2:
        ours(*row, seconds=0.1)
        theirs = fio(*row)
        return ours(*row), theirs
    return ours(*row), fio(*row)


def compare(row):
    pairs, low, high = [], 0, 1
    while len(pairs) < PAIRS or (high - low > 2 * WIDE and len(pairs) < MOST):
        pairs.append(pair(row, len(pairs)))
        ratio, low, high = ratio_interval([mine[0] / theirs[0] for mine, theirs in pairs])
    (mine, my_cpu), (theirs, their_cpu) = ([median(values) for values in zip(*side)] for side in zip(*pairs))
    engine, mode, depth = row
    what = f"{engine}, {mode}, {depth} in flight"
    figure(
        f"{what}: speed",
        mine,
        "operations/s",
        peer="fio",
        peer_value=theirs,
        judged=("as fast as fio", high >= 1 and low > 0.95),
        note=f"({ratio:.3f} × fio, {low:.3f} to {high:.3f}, {len(pairs)} pairs)",
    )
    figure(f"{what}: CPU time of an operation", my_cpu / 1000, "µs", peer="fio", peer_value=their_cpu / 1000, share=1)


def instructions(engine, mode):
    """Instructions of an operation in user mode: the difference of four seconds and one second. valgrind runs one
    thread at a time, and does not count the kernel."""
    depth = 16 if engine == "uring" else 1

    def each(command, operations):
        (begun, few), (ended, many) = (callgrind(command(engine, mode, depth, seconds, 16)) for seconds in (1, 4))
        return (ended - begun) / (operations(json.loads(many)) - operations(json.loads(few)))

    mine = each(own_command, lambda run: run["steps"][0]["operations"])
    output(["fio", "--name=lay", f"--filename={FIO_FILE}", "--size=16m", "--bs=1m", "--rw=write", "--direct=1"])
    theirs = each(fio_command, lambda run: fio_operations(run["jobs"][0]))
    what = f"{engine}, {mode}, {depth} in flight: instructions of an operation"
    figure(what, mine, peer="fio", peer_value=theirs, share=1)


def bench():
    note(
        f"Pairs of {SECONDS} s each on a file of {SIZE_MIB} MiB; as fast as fio: the 95 % interval of the ratio does not "
        "lie below 1, and excludes 0.95."
    )
    try:
        for engine, depths in DEPTHS.items():
            for mode in MODES:
                for depth in depths:
                    compare((engine, mode, depth))
        if not shutil.which("valgrind"):
            return skipped("instructions: valgrind is not installed")
        for engine in DEPTHS:
            for mode in MODES:
                instructions(engine, mode)
    finally:
        FIO_FILE.unlink(missing_ok=True)


if not shutil.which("fio"):
    skip("fio is not installed")
build("-p", "mongosonar")
main(bench)
