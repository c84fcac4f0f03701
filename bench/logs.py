#!/usr/bin/env python3
"""Logs from the page cache to the final report, on all processors and on one: JSON beside plain serde_json, text beside
mtools' `mloginfo`, with 200 and with 5,000 query shapes; peak memory over a large file with 5,000 shapes."""

import contextlib
import os
import pty
import resource
import shutil
import subprocess
import sys

from lib.kit import (
    EXAMPLES,
    MIB,
    MONGOSONAR,
    ROOT,
    build,
    figure,
    folder,
    last_processor,
    main,
    median,
    output,
    rounds,
    run,
    runs,
    skipped,
)

MEGABYTES = 200
SHAPES = 200
MANY_SHAPES = 5_000
ROUNDS = rounds(5, 11)
LARGE_GB = rounds(2, 10)


def make(path, kind, shapes):
    output([sys.executable, ROOT / "bench/lib/make_log.py", kind, MEGABYTES, shapes, path])
    # Into the page cache, but not into this process: a child starts with our size.
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass


def speed(kind, least, peer, work):
    path = work / f"{kind}.log"
    cpu = last_processor()
    for shapes in SHAPES, MANY_SHAPES:
        make(path, kind, shapes)
        size = path.stat().st_size / 1e6
        what = f"{kind}, {shapes:,} shapes"
        command = [MONGOSONAR, "logs", "report", path, "--limit", "1"]
        every = runs(ROUNDS, command)
        clock = median([one.wall for one in every])
        figure(f"{what}: speed by the clock, all processors", size / clock, "MB/s", least=least)
        figure(f"{what}: peak memory, all processors", max(one.rss for one in every) / MIB, "MiB", limit=200)
        each = runs(ROUNDS, command, cpu=cpu)
        beside = peer(path, cpu) if shapes == SHAPES else {}
        figure(f"{what}: speed, one processor", size / median([one.cpu for one in each]), "MB/s", **beside)
    path.unlink()


def serde(path, cpu):
    seconds = run([EXAMPLES / "log_rate", path, "1", "serde"], cpu=cpu).cpu
    return {"peer": "serde_json into values", "peer_value": path.stat().st_size / seconds / 1e6}


def mloginfo(path, cpu):
    if not shutil.which("mloginfo"):
        skipped("mloginfo is not installed (python3 -m venv bench/.venv, pip install -r bench/requirements.txt)")
        return {}
    # It needs minutes where mongosonar needs a second, so it gets a part of the file.
    part = path.with_suffix(".part")
    with open(path, "rb") as file:
        text = file.read(path.stat().st_size // 20)
    part.write_bytes(text[: text.rindex(b"\n") + 1])
    seconds = on_terminal(["mloginfo", "--queries", str(part)])
    return {"peer": "mloginfo --queries", "peer_value": part.stat().st_size / seconds / 1e6}


def on_terminal(command):
    """Processor seconds of a program that reads files only if its standard input is a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def memory(work):
    piece = work / "piece.log"
    make(piece, "json", MANY_SHAPES)
    # The same piece again and again, through a pipe, so that nothing of that size is on disk.
    reader = subprocess.Popen(
        [MONGOSONAR, "logs", "report", "-", "--limit", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    left = LARGE_GB * 1_000_000_000
    while left > 0:
        with open(piece, "rb", buffering=0) as file:
            while data := file.read(MIB):
                reader.stdin.write(data)
                left -= len(data)
    reader.stdin.close()
    _, status, used = os.wait4(reader.pid, 0)
    reader.returncode = os.waitstatus_to_exitcode(status)
    if reader.returncode != 0:
        sys.exit(f"mongosonar ended with {reader.returncode}")
    # A process begins as a copy of this one, so its peak is at least ours.
    peak = max(used.ru_maxrss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024
    figure(f"json, {MANY_SHAPES:,} shapes, {LARGE_GB} GB through a pipe: peak memory", peak, "MiB", limit=200)


def bench():
    with folder() as work:
        speed("json", 400, serde, work)
        speed("text", 250, mloginfo, work)
        memory(work)


build("-p", "mongosonar")
build("-p", "sonar-decode", "--example", "log_rate")
main(bench)
