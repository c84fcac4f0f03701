#!/usr/bin/env python3
"""What `why` costs a server. The lab's own server, with one thread for each connection, keeps both processors busy, by
turns with `why` and without. Also: what `why` and its eBPF programs use at 10,000 operations a second, what is lost at
the highest rate, and the memory. As it is run on a busy server, where it follows some of the connections, and with all of
them."""

import json
import signal
import statistics
import subprocess
import time

from lib.kit import (
    MIB,
    MONGOSONAR,
    ROOT,
    Memory,
    build,
    figure,
    folder,
    links,
    main,
    make_lab,
    note,
    process,
    processor_time,
    ratio_interval,
    rounds,
    say,
)
from lib.load import Load, at_ordinary_priority
from lib.tracers import empty, run_time, statistics_on

SERVER = ROOT / "lab/bin/threaded"
PORT = 27917
PAIRS = rounds(15, 31)
SLOT = 10.0  # seconds with `why`, and without; the default duration of a trace
ALL = ("--sample", "1/1")
RATE = 10_000


class Why:
    """`why` while it traces."""

    def __init__(self, server, *arguments):
        command = [MONGOSONAR, "why", "--pid", server.pid, "--port", PORT, "--duration", "1h", "--json", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.child = subprocess.Popen(list(map(str, command)), **pipes)
        # Before it, which TLS library is read.
        while "tracing" not in (line := self.child.stderr.readline()):
            if not line:
                raise SystemExit("why has ended")

    def end(self):
        self.child.send_signal(signal.SIGINT)
        output, errors = self.child.communicate(timeout=60)
        if self.child.returncode != 0:
            raise SystemExit(errors)
        return json.loads(output)


def throughput(server, words, options, limit):
    """Measures throughput while both processors are busy: for each pair of slots, the ratio with `why` to without."""
    ratios, rates = [], []
    with Load(PORT, 0.13, 0, connections=64) as load:
        for number in range(PAIRS):
            found = {}
            for traced in (number % 2 == 0, number % 2 == 1):
                why = Why(server, *options) if traced else None
                time.sleep(0.3)
                begun = time.monotonic()
                time.sleep(SLOT)
                found[traced] = load.rate(begun, time.monotonic())
                if why:
                    why.end()
            ratios.append(found[True] / found[False])
            rates.append(found[False])
    mean, low, high = ratio_interval(ratios)
    note(f"{statistics.median(rates):,.0f} operations a second without why; {PAIRS} pairs of {SLOT:.0f} s by turns.")
    percent = lambda ratio: 100 * (1 - ratio)
    interval = f"95 % interval {percent(high):.2f} to {percent(low):.2f}"
    figure(f"throughput lost to why{words}", percent(mean), f"% ({interval})", limit=limit)


def cost(server, words, options, limit):
    seconds = 10
    with Load(PORT, 0.02, RATE, connections=64) as load, statistics_on():
        why = Why(server, *options)
        time.sleep(1)
        used, (ran, runs), switches = processor_time(why.child.pid), run_time(why.child.pid), context_switches()
        begun = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - begun
        used = processor_time(why.child.pid) - used
        after, runs_after = run_time(why.child.pid)
        switches = (context_switches() - switches) / took
        rate = load.rate(begun, time.monotonic())
        memory = Memory.of(why.child.pid)
        report = why.end()
        measuring = (runs_after - runs) * time_of_measuring() / 1e9
    ran = (after - ran) / 1e9 - measuring
    note(f"{rate:,.0f} operations and {switches:,.0f} context switches a second for processor time and memory.")
    say(f"  one connection in {report['sample_every']} followed")
    share = 100 * measuring / took
    note(f"The kernel's statistics of eBPF programs take {share:.2f} % of a processor themselves, which is subtracted.")
    figure(f"processor time, why and its programs{words}", 100 * (used + ran) / took, "% of a processor", limit=limit)
    figure(f"processor time, why{words}", 100 * used / took, "% of a processor")
    figure(f"processor time, eBPF programs{words}", 100 * ran / took, "% of a processor")
    figure(f"memory{words}", memory.resident / MIB, "MiB")
    lost(report, f"operations lost at this rate{words}")


def time_of_measuring():
    """Nanoseconds that the statistics count for a run of a program that does nothing."""
    with empty(with_clock=False):
        time.sleep(0.5)
        took, runs = run_time("self")
        time.sleep(2)
        took_after, runs_after = run_time("self")
    return (took_after - took) / (runs_after - runs)


def context_switches():
    with open("/proc/stat") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("ctxt"))


def lost(report, what):
    coverage = report["coverage"]
    say("  coverage " + ", ".join(f"{name} {count}" for name, count in coverage.items() if count))
    names = ("ring_full", "threads_full", "unreadable", "foreign_replies", "without_thread", "packets_dropped")
    figure(what, sum(coverage[name] for name in names), limit=0)


def fastest(server):
    seconds = 5
    with Load(PORT, 0, 0) as load:
        why = Why(server, *ALL)
        begun = time.monotonic()
        time.sleep(seconds)
        rate = load.rate(begun, time.monotonic())
        report = why.end()
    figure("highest rate with both processors busy", rate, "operations a second")
    lost(report, "operations lost at the highest rate")


def bench():
    links("link set lo up")
    with (
        folder() as work,
        process([SERVER, PORT, work, "unmeasured"], stdout=subprocess.PIPE, preexec_fn=at_ordinary_priority) as server,
    ):
        server.stdout.readline()
        for words, options, limits in [("", (), (1, 3)), (", all connections", ALL, (None, None))]:
            throughput(server, words, options, limits[0])
            cost(server, words, options, limits[1])
        fastest(server)


build("-p", "mongosonar")
make_lab("bin/threaded", "WiredTiger (libwiredtiger-dev)")
make_lab("bin/threaded-load", "a C compiler")
main(bench, alone=True)
