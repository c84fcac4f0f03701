#!/usr/bin/env python3
"""disk bench beside fio, by turns: who does more, and what an operation costs. See disk.sh."""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

# Quantiles of Student's t, two-sided 95 %, by degrees of freedom.
T = dict(
    enumerate(
        (
            4.303,
            3.182,
            2.776,
            2.571,
            2.447,
            2.365,
            2.306,
            2.262,
            2.228,
            2.201,
            2.179,
            2.160,
            2.145,
            2.131,
            2.120,
            2.110,
            2.101,
            2.093,
            2.086,
            2.080,
        ),
        start=2,
    )
)
# A row whose interval is wider than this, either way, is measured on, for at most so many times the pairs: the
# width decides, not what the row says.
WIDE, MOST = 0.035, 8
MODES = {"read": ["--r"], "write": ["--w"], "both": ["--r", "--w"]}
FIO_MODES = {"read": "randread", "write": "randwrite", "both": "randrw"}


def output(command):
    return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def own_command(args, engine, mode, depth, seconds, size):
    return [
        args.mongosonar,
        "disk",
        "bench",
        "--dir",
        args.dir,
        "--fileSizeMB",
        str(size),
        "--nThreads",
        str(depth),
        "--step-seconds",
        str(seconds),
        "--probe-seconds",
        "0",
        "--no-ramp",
        "--no-fdatasync",
        "--engine",
        engine,
        "--quiet",
        "--json",
        *MODES[mode],
    ]


def ours(args, engine, mode, depth, path, seconds=None):
    """One step of exactly this depth. Its file, which it removes at its end, keeps the name `path`: fio gets the same one."""
    command = own_command(args, engine, mode, depth, seconds or args.seconds, args.size)
    if os.path.exists(path):
        os.unlink(path)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    while child.poll() is None and not os.path.exists(path):
        for name in os.listdir(args.dir):
            if name.startswith(f"mongosonar-disk-{child.pid}-"):
                os.link(os.path.join(args.dir, name), path)
        time.sleep(0.005)
    text = child.communicate()[0]
    assert child.returncode == 0 and os.path.exists(path), f"exit code {child.returncode}"
    run = json.loads(text)
    assert run["engine"] == engine and len(run["steps"]) == 1, run["notes"]
    step = run["steps"][0]
    return step["operations_per_second"], step["cpu"]["ns_per_operation"]


def fio_command(engine, mode, depth, seconds, size, path):
    command = [
        "fio",
        "--name=disk",
        f"--filename={path}",
        f"--size={size}m",
        "--bs=4k",
        "--direct=1",
        f"--rw={FIO_MODES[mode]}",
        "--time_based",
        f"--runtime={seconds}",
        "--output-format=json",
        "--group_reporting",
        "--thread",
        "--randrepeat=1",
        "--norandommap",
    ]
    if engine == "threads":
        return [*command, "--ioengine=psync", f"--numjobs={depth}"]
    return [*command, "--ioengine=io_uring", f"--iodepth={depth}", "--fixedbufs=1", "--registerfiles=1"]


def fio(args, engine, mode, depth, path):
    job = json.loads(output(fio_command(engine, mode, depth, args.seconds, args.size, path)))["jobs"][0]
    operations = job["read"]["total_ios"] + job["write"]["total_ios"]
    rate = job["read"]["iops"] + job["write"]["iops"]
    # Shares in per cent of the run time, which is that of all threads together.
    seconds = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return rate, seconds / operations * 1e9


def pair(args, engine, mode, depth, path, number):
    """Both once, by turns: whoever goes second finds another disk. Both on a file that mongosonar has just made; where it goes
    first, on the very same one."""
    if number % 2:
        ours(args, engine, mode, depth, path, seconds=0.1)
        theirs = fio(args, engine, mode, depth, path)
        return ours(args, engine, mode, depth, path), theirs
    return ours(args, engine, mode, depth, path), fio(args, engine, mode, depth, path)


def instructions(args, engine, mode, depth, path):
    """Instructions of an operation in user mode, of ours and of fio: what valgrind counts over four seconds less what it counts
    over one, through the operations in between. It runs one thread at a time, and counts nothing of the kernel."""

    def counted(command, operations):
        with tempfile.NamedTemporaryFile() as report:
            text = output(["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={report.name}", *command])
            totals = re.search(r"^(?:totals|summary): (\d+)", pathlib.Path(report.name).read_text(), re.M)
        return int(totals[1]), operations(json.loads(text))

    def of_fio(run):
        return sum(run["jobs"][0][kind]["total_ios"] for kind in ("read", "write"))

    def each(command, operations):
        (few, begun), (many, ended) = (counted(command(seconds), operations) for seconds in (1, 4))
        return (many - few) / (ended - begun)

    mine = each(
        lambda seconds: own_command(args, engine, mode, depth, seconds, 16), lambda run: run["steps"][0]["operations"]
    )
    output(["fio", "--name=lay", f"--filename={path}", "--size=16m", "--bs=1m", "--rw=write", "--direct=1"])
    return mine, each(lambda seconds: fio_command(engine, mode, depth, seconds, 16, path), of_fio)


def judged(low, high):
    """What the interval of the ratio says: it shall include 1 and exclude 0.95."""
    if low > 1:
        return "met (faster)"
    if high < 1:
        return "MISSED (slower)"
    return "met" if low > 0.95 else "MISSED (too wide)"


def interval(ratios):
    """Geometric mean of the ratios with its interval of 95 %."""
    logs = [math.log(r) for r in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 3:
        return math.exp(mean), float("nan"), float("nan")
    half = T.get(len(logs) - 1, 2.08) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mongosonar")
    parser.add_argument("dir")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--depths", default="1,4,16,64,256,1024")
    parser.add_argument("--modes", default="read,write,both")
    parser.add_argument("--engines", default="uring,threads")
    args = parser.parse_args()
    args.seconds = max(1, int(args.seconds))
    path = os.path.join(args.dir, f"fio-{os.getpid()}")
    missed = rows = 0
    try:
        print(
            "engine   mode   in flight   ours ops/s    fio ops/s   ratio   95 % interval    pairs   operations/s        ours CPU/op   fio CPU/op   CPU"
        )
        for engine in args.engines.split(","):
            for mode in args.modes.split(","):
                for depth in map(int, args.depths.split(",")):
                    if engine == "threads" and depth > 64:
                        continue
                    pairs = [pair(args, engine, mode, depth, path, number) for number in range(args.pairs)]
                    ratio, low, high = interval([m[0] / t[0] for m, t in pairs])
                    while high - low > 2 * WIDE and len(pairs) < MOST * args.pairs:
                        pairs.append(pair(args, engine, mode, depth, path, len(pairs)))
                        ratio, low, high = interval([m[0] / t[0] for m, t in pairs])
                    mine, theirs, my_cpu, their_cpu = (
                        statistics.median(p[i][j] for p in pairs) for j in (0, 1) for i in (0, 1)
                    )
                    verdict, cpu = judged(low, high), "met" if my_cpu <= their_cpu else "MISSED"
                    rows, missed = rows + 1, missed + ("MISSED" in verdict + cpu)
                    print(
                        f"{engine:8} {mode:6} {depth:9} {mine:12.0f} {theirs:12.0f} {ratio:7.3f}   {low:.3f} to {high:.3f}   {len(pairs):5}   {verdict:17} "
                        f"{my_cpu / 1000:11.2f}µs {their_cpu / 1000:10.2f}µs   {cpu}",
                        flush=True,
                    )
        print(f"{rows - missed} of {rows} rows met")
        if not shutil.which("valgrind"):
            print("skipped: instructions (valgrind is not installed)")
            return
        print("\nengine   mode   in flight   instructions/op in user mode: ours          fio")
        for engine in args.engines.split(","):
            for mode in args.modes.split(","):
                depth = 16 if engine == "uring" else 1
                mine, theirs = instructions(args, engine, mode, depth, path)
                print(
                    f"{engine:8} {mode:6} {depth:9} {mine:35.0f} {theirs:12.0f}   {'met' if mine <= theirs else 'MISSED'}",
                    flush=True,
                )
    finally:
        if os.path.exists(path):
            os.unlink(path)


main()
