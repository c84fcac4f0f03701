#!/usr/bin/env python3
"""What `io record` and `io live` cost a fetch through an index of real WiredTiger, by turns with bpftrace and fileslower
where they run: the run time of their programs as the kernel counts it, with a page cache that holds what is read and
with one that does not; what they lose at a high rate; time and memory of a report of ten million accesses."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

from lib.kit import (
    MIB,
    MONGOSONAR,
    ROOT,
    build,
    figure,
    interval,
    main,
    make_lab,
    median,
    note,
    output,
    process,
    rounds,
    runs,
    skip,
    skipped,
)
from lib.kit import folder as temporary_folder
from lib.tracers import FILESLOWER, PEERS, Unable, mongosonar, statistics_on, traced

STUDY = ROOT / "lab/bin/study"
DOCUMENTS, CACHE_MB = 300_000, 30
ROUNDS = rounds(3, 7)
SMALL_MEMORY_MIB = 128
# Of the run time of the fetch.
LIMIT_PERCENT = 0.8
OWN = {"record": "io record", "live": "io live"}
FLOOR = {
    "bystander": "io live of another process",
    "empty": "programs that do nothing",
    "clock": "programs that only read the clock",
}

READER = """
import os, sys, time, random
file = os.open(sys.argv[1], os.O_RDONLY)
rate, count = int(sys.argv[2]), int(sys.argv[3])
at = [random.randrange(4096) * 4096 for _ in range(1000)]
sys.stdin.readline()
begun = time.monotonic()
for batch in range(count // 1000):
    for offset in at:
        os.pread(file, 4096, offset)
    ahead = (batch + 1) * 1000 / rate - (time.monotonic() - begun)
    if ahead > 0:
        time.sleep(ahead)
print(count / (time.monotonic() - begun), flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def small_memory():
    """A control group (version 1 or 2) whose page cache is too small for what is read; None if none can be made."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(root) / f"mongosonar-bench-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(SMALL_MEMORY_MIB * MIB))
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


@contextlib.contextmanager
def waiting(command, **options):
    """A program that begins when `ask()` writes a line to it, and answers with a line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with process(command, **pipes, **options) as child:

        def ask():
            child.stdin.write("go\n")
            child.stdin.flush()
            return child.stdout.readline()

        child.ask = ask
        yield child
        child.communicate()


def fetch(folder, way, group):
    """One fetch: its seconds, the per cent of it that programs ran, and how often they ran."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    command = [STUDY, "fetch", folder / "hashed", CACHE_MB]
    with (
        waiting(command, env={**os.environ, "WAIT": "1"}, preexec_fn=enter) as study,
        process(["sleep", "1000"]) as idle,
    ):
        study.stdout.readline()
        with traced(way, study.pid, idle.pid, folder) as run_time:
            seconds = float(study.ask().split()[3])
            took, times = run_time()
    return seconds, took / 1e7 / seconds, times


def cost(folder, where, ways, group=None):
    found = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in random.sample(list(found), len(found)):
            try:
                found[way].append(fetch(folder, way, group))
            except Unable as why:
                if way not in PEERS:
                    sys.exit(f"nothing can be traced here: {why}")
                skipped(f"{way} cannot run here: {why}")
                del found[way]
    alone = [seconds for seconds, *_ in found.pop(None)]
    figure(f"{where}: run time of the fetch, not traced", median(alone), "s")
    for way, fetches in found.items():
        seconds, share, times = zip(*fetches)
        mean, half = interval((with_it - without) / without * 100 for without, with_it in zip(alone, seconds))
        each = median([percent * took * 1e7 / max(count, 1) for took, percent, count in fetches])
        name = (OWN | FLOOR).get(way, way)
        limit = LIMIT_PERCENT if way in OWN else None
        beside = f"({each:,.0f} ns a run; fetch {mean:+.1f} % ± {half:.1f} %)"
        figure(f"{where}: {name}, share of the run time", median(share), "%", limit=limit, note=beside)


def compare_costs(folder):
    output([STUDY, "make", folder / "hashed", "hashed", DOCUMENTS])
    peers = [name for name in PEERS if (FILESLOWER if "fileslower" in name else shutil.which("bpftrace"))]
    for name in PEERS.keys() - peers:
        skipped(f"{name}: it is not installed")
    note(f"Fetch of {DOCUMENTS:,} documents in hashed order, {ROUNDS} rounds by turns; ± are 95 % intervals.")
    with statistics_on(), small_memory() as group:
        cost(folder, "cold page cache", [None, *OWN, *FLOOR, *peers])
        if group:
            cost(folder, f"page cache of {SMALL_MEMORY_MIB} MiB", [None, *OWN], group)
        else:
            skipped("a small page cache: no control group with a limit of memory can be made")
    each = folder / "bpftrace, each read"
    if each.exists():
        text = each.read_text(errors="replace")
        lost = sum(map(int, re.findall(r"[Ll]ost (\d+)", text)))
        note(f"bpftrace printed {len(re.findall('^[0-9]+ study ', text, re.M)):,} reads and lost {lost:,}.")


def read(folder, what, rate, count):
    """Reads `rate` times a second under `io record` or `io live`. Returns the rate reached, and the tracer's standard
    output and standard error."""
    data = folder / "data"
    data.write_bytes(os.urandom(16 * MIB))
    with (
        waiting([sys.executable, "-c", READER, data, rate, count]) as reader,
        mongosonar(what, str(reader.pid), folder / "recording", stdout=subprocess.PIPE) as tracer,
    ):
        reached = float(reader.ask())
        tracer.send_signal(2)
        return reached, *tracer.communicate()


def losses(folder):
    for what, rate in (("record", 100_000), ("live", 200_000)):
        count = rate * 10
        reached, out, errors = read(folder, what, rate, count)
        if what == "record":
            lost = int(errors.split(" lost")[0].split()[-1])
        else:
            lines = [json.loads(line) for line in out.splitlines()]
            seen = sum(f["reads"] for line in lines for f in line["files"] if f["name"] == str(folder / "data"))
            lost = sum(lines[-1]["lost"].values()) + count - seen
        if reached < 0.9 * rate:
            note(f"io {what}: only {reached:,.0f} accesses a second were reached: the machine was too busy.")
        figure(f"io {what}: lost of {count:,} accesses, {rate:,} a second", lost, limit=0)


def report(folder):
    read(folder, "record", 250_000, 10_000_000)
    recording = folder / "recording"
    page = ["--html", folder / "page.html"]
    for what, options in (("report", []), ("report with a page", page)):
        command = [MONGOSONAR, "io", "report", "--json", *options, recording]
        each = runs(3, command, into=folder / "report.json")
        accesses = json.loads((folder / "report.json").read_text())["accesses"]
        beside = f"({accesses:,} accesses, {recording.stat().st_size / accesses:.1f} bytes each)"
        figure(f"{what}: time", median([one.wall for one in each]), "s", limit=3, note=beside)
        figure(f"{what}: peak memory", max(one.rss for one in each) / MIB, "MiB", limit=300)


def bench():
    with temporary_folder(on_disk=True) as folder:
        compare_costs(folder)
        losses(folder)
        report(folder)


if os.geteuid() != 0:
    skip("it needs root: it traces, and drops the page cache")
build("-p", "mongosonar")
make_lab("bin/study", "libwiredtiger-dev")
main(bench)
