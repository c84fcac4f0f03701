#!/usr/bin/env python3
"""disk bench beside fio, by turns: who does more, and what an operation costs. See disk.sh."""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import tempfile

# Quantiles of Student's t, two-sided 95 %, by degrees of freedom.
T = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 14: 2.145}
MODES = {"read": ["--r"], "write": ["--w"], "both": ["--r", "--w"]}
FIO_MODES = {"read": "randread", "write": "randwrite", "both": "randrw"}


def output(command):
    return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def instructions(command):
    """Instructions of a command in user mode and kernel, where this machine counts them."""
    if not shutil.which("perf"):
        return None
    done = subprocess.run(["perf", "stat", "-x,", "-e", "instructions", "--", *command], capture_output=True, text=True)
    for line in done.stderr.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith("instructions") and fields[0].isdigit():
            return int(fields[0])
    return None


def ours(args, engine, mode, depth):
    """One step of exactly this depth: of the ramp, the last one counts."""
    command = [args.mongosonar, "disk", "bench", "--dir", args.dir, "--fileSizeMB", str(args.size), "--nThreads", str(depth),
               "--step-seconds", str(args.seconds), "--probe-seconds", "0", "--no-ramp", "--no-fdatasync", "--engine", engine,
               "--quiet", "--json", *MODES[mode]]
    run = json.loads(output(command))
    assert run["engine"] == engine and len(run["steps"]) == 1, run["notes"]
    step = run["steps"][0]
    return step["operations_per_second"], step["cpu"]["ns_per_operation"]


def lay(args, path):
    """Makes fio's file anew, as ours is made for each run: a disk may serve fresh blocks at another speed than old ones."""
    if os.path.exists(path):
        os.unlink(path)
    output(["fio", "--name=lay", f"--filename={path}", f"--size={args.size}m", "--bs=4m", "--rw=write", "--direct=1", "--refill_buffers",
            "--fallocate=native", "--end_fsync=1"])


def fio(args, engine, mode, depth, path):
    lay(args, path)
    command = ["fio", "--name=disk", f"--filename={path}", f"--size={args.size}m", "--bs=4k", "--direct=1", f"--rw={FIO_MODES[mode]}",
               "--time_based", f"--runtime={args.seconds}", "--output-format=json", "--group_reporting", "--thread", "--randrepeat=1",
               "--norandommap"]
    if engine == "threads":
        command += ["--ioengine=psync", f"--numjobs={depth}"]
    else:
        command += ["--ioengine=io_uring", f"--iodepth={depth}", "--fixedbufs=1", "--registerfiles=1"]
    job = json.loads(output(command))["jobs"][0]
    operations = job["read"]["total_ios"] + job["write"]["total_ios"]
    rate = job["read"]["iops"] + job["write"]["iops"]
    # Shares in per cent of the run time, which is that of all threads together.
    seconds = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return rate, seconds / operations * 1e9


def interval(ratios):
    """Geometric mean of the ratios with its interval of 95 %."""
    logs = [math.log(r) for r in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 3:
        return math.exp(mean), float("nan"), float("nan")
    half = T.get(len(logs) - 1, 2.0) * statistics.stdev(logs) / math.sqrt(len(logs))
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
    handle, path = tempfile.mkstemp(prefix="fio-", dir=args.dir)
    os.close(handle)
    try:
        print("engine   mode   in flight   ours ops/s    fio ops/s   ratio   95 % interval     ours CPU/op   fio CPU/op")
        for engine in args.engines.split(","):
            for mode in args.modes.split(","):
                for depth in map(int, args.depths.split(",")):
                    if engine == "threads" and depth > 64:
                        continue
                    pairs = []
                    for number in range(args.pairs):
                        # Whoever goes second finds another disk: by turns.
                        if number % 2:
                            theirs = fio(args, engine, mode, depth, path)
                            mine = ours(args, engine, mode, depth)
                        else:
                            mine = ours(args, engine, mode, depth)
                            theirs = fio(args, engine, mode, depth, path)
                        pairs.append((mine, theirs))
                    ratio, low, high = interval([m[0] / t[0] for m, t in pairs])
                    mine, theirs, my_cpu, their_cpu = (
                        statistics.median(p[i][j] for p in pairs) for j in (0, 1) for i in (0, 1))
                    print(f"{engine:8} {mode:6} {depth:9} {mine:12.0f} {theirs:12.0f} {ratio:7.3f}   {low:.3f} to {high:.3f} "
                          f"{my_cpu / 1000:13.2f}µs {their_cpu / 1000:11.2f}µs", flush=True)
    finally:
        os.unlink(path)
    count = instructions([args.mongosonar, "--version"])
    if count is None:
        print("skipped: instructions (perf, or its counters, are not to be had here)")


main()
