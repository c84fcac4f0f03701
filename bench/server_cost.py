#!/usr/bin/env python3
"""What a capture takes from a busy server: the lab's server under a load that uses the whole machine, by turns with
and without mongosonar; the loss of throughput with its 95 % interval."""

import contextlib
import subprocess
import sys
import tempfile
import time

from lib.kit import (
    ROOT,
    build,
    build_go,
    capturing,
    figure,
    folder,
    links,
    main,
    make_lab,
    median,
    note,
    process,
    processor_time,
    ratio_interval,
    rounds,
    skip,
)

PORT = 27_117
WORKERS = 8
ROUNDS = rounds(20, 60)
SECONDS = 2.0
SETTLE = 0.4
LIMIT = 1.0


def ready(child):
    line = child.stdout.readline().decode()
    if not line.startswith("ready"):
        sys.exit(f"{child.args[0]} printed {line!r} and not ready; exit code {child.poll()}")


class Load:
    """A server and the program that keeps it busy, which counts the replies."""

    def __init__(self, server, child):
        self.server, self.child = server, child
        ready(child)

    def count(self, also):
        """Commands answered so far, the time (seconds), and the processor time of server, load and `also`."""
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        words = self.child.stdout.readline().split()
        if len(words) != 2:
            sys.exit("the load ended early")
        used = sum(processor_time(pid) for pid in (self.server.pid, self.child.pid, *also))
        return int(words[0]), int(words[1]) / 1e9, used

    def turn(self, *also):
        """Commands answered a second during one turn, and processor seconds of each, with the processes `also`."""
        time.sleep(SETTLE)
        calls, began, used = self.count(also)
        time.sleep(SECONDS)
        more, ended, used_more = self.count(also)
        return (more - calls) / (ended - began), (used_more - used) / (more - calls)


@contextlib.contextmanager
def under_load(work):
    data = tempfile.mkdtemp(dir=work)
    server = [ROOT / "lab/bin/server", "--listen", f"127.0.0.1:{PORT}", "--dir", data]
    with process(server, stdout=subprocess.PIPE) as child:
        ready(child)
        words = [ROOT / "lab/bin/load", f"mongodb://127.0.0.1:{PORT}", WORKERS]
        with process(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
            yield Load(child, load)


def with_capture(work, load):
    with capturing(work, "--interface", "lo", "--port", str(PORT)) as capture:
        before, began = processor_time(capture.pid), time.monotonic()
        rate, cost = load.turn(capture.pid)
        percent = 100 * (processor_time(capture.pid) - before) / (time.monotonic() - began)
        found, _ = capture.stop()
    coverage = found["coverage"]
    if not found["totals"]["calls"] > 0.9 * rate * SECONDS:
        sys.exit(f"mongosonar did not see the load: {coverage}")
    return rate, cost, percent, coverage["kernel_drops"]


def loss(what, ratios):
    """Reports the mean loss in per cent for these ratios of without to with, and its 95 % interval."""
    mean, low, high = (100 * (1 - 1 / ratio) for ratio in ratio_interval(ratios))
    figure(what, mean, "%", limit=LIMIT, note=f"({low:.2f} to {high:.2f})")
    if low <= LIMIT < high:
        note(f"The interval of the {what} includes the limit: LONG=1 or a quieter machine narrows it.")


def bench():
    links("link set lo up")
    without, with_it = [], []
    with folder() as work, under_load(work) as load:
        for turn in range(ROUNDS):
            # The order changes, so that a drift of the machine does not add up.
            if turn % 2 == 0:
                without.append(load.turn())
            with_it.append(with_capture(work, load))
            if turn % 2 == 1:
                without.append(load.turn())
    rate = median([one[0] for one in with_it])
    quiet = median([rate for rate, _ in without])
    note(f"{WORKERS} clients, {ROUNDS} turns each of {SECONDS:g} s; the intervals are 95 %.")
    figure("throughput", rate, "commands/s", peer="without mongosonar", peer_value=quiet)
    figure("processor time of mongosonar", median([one[2] for one in with_it]), "% of a processor")
    figure("frames dropped", sum(one[3] for one in with_it))
    loss("loss of throughput by the clock", [alone[0] / both[0] for alone, both in zip(without, with_it)])
    # On a fully used machine this is the same loss, without other work of the machine.
    costs = [both[1] / alone[1] for alone, both in zip(without, with_it)]
    loss("loss by processor time of a command (server, clients and mongosonar)", costs)


if not build_go("lab/drivers/go", "load", "./load"):
    skip("Go is not installed")
build("-p", "mongosonar")
make_lab("bin/server", "Go")
main(bench, alone=True)
