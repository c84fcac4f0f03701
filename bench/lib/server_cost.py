"""See bench/server-cost.sh."""

import contextlib
import math
import os
import statistics
import subprocess
import tempfile
import time

from kit import ROOT, folder, links, listening, main, median, process, processor_time, say, verdict

PORT = 27_117
WORKERS = 8
ALTERNATIONS = int(os.environ.get("ALTERNATIONS", "30"))
SECONDS = float(os.environ.get("SECONDS_EACH", "2"))
SETTLE = 0.4
LIMIT = 1.0


def ready(child):
    line = child.stdout.readline().decode()
    if not line.startswith("ready"):
        raise SystemExit(f"{child.args[0]} said {line!r}, exit code {child.poll()}")


class Load:
    """A busy server, and the load that makes it so and is asked for its count."""

    def __init__(self, server, child):
        self.server, self.child = server, child
        ready(child)

    def count(self, also):
        """Commands answered, when (seconds), and the processor time of all that took part."""
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        words = self.child.stdout.readline().split()
        if len(words) != 2:
            raise SystemExit("the load ended early")
        used = sum(processor_time(pid) for pid in (self.server.pid, self.child.pid, *also))
        return int(words[0]), int(words[1]) / 1e9, used

    def turn(self, *also):
        """Answered commands a second over the length of a turn, and processor seconds a command, those of the
        processes `also` too."""
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
    with listening(work, "--interface", "lo", "--port", str(PORT)) as ear:
        before, began = processor_time(ear.pid), time.monotonic()
        rate, cost = load.turn(ear.pid)
        percent = 100 * (processor_time(ear.pid) - before) / (time.monotonic() - began)
        found, _ = ear.stop()
    coverage = found["coverage"]
    if not found["totals"]["calls"] > 0.9 * rate * SECONDS:
        raise SystemExit(f"the load was not heard: {coverage}")
    return rate, cost, percent, coverage["kernel_drops"]


def student(freedom):
    """The 97.5 % point of Student's t, by Cornish and Fisher's expansion (to three digits from 10 on)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def loss(ratios):
    """The mean loss in per cent that these ratios (without to with) stand for, and its 95 % interval."""
    logarithms = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logarithms)
    half = student(len(ratios) - 1) * statistics.stdev(logarithms) / math.sqrt(len(ratios))
    return [100 * (1 - math.exp(-value)) for value in (middle, middle - half, middle + half)]


def bench():
    if ALTERNATIONS < 15:
        raise SystemExit("ALTERNATIONS: at least 15, or the interval says nothing")
    links("link set lo up")
    silent, heard = [], []
    with folder() as work, under_load(work) as load:
        for turn in range(ALTERNATIONS):
            # Who comes first changes, so that a drift of the machine does not add up.
            if turn % 2 == 0:
                silent.append(load.turn())
            heard.append(with_capture(work, load))
            if turn % 2 == 1:
                silent.append(load.turn())
    say(
        f"  {median([rate for rate, _ in silent]):,.0f} commands a second without mongosonar, "
        f"{median([one[0] for one in heard]):,.0f} with it; {WORKERS} clients, {ALTERNATIONS} alternations of {SECONDS:g} s"
    )
    say(
        f"  mongosonar takes {median([one[2] for one in heard]):.2f} % of a processor; {sum(one[3] for one in heard)} frames dropped"
    )
    by_clock = loss([quiet[0] / loud[0] for quiet, loud in zip(silent, heard)])
    by_time = loss([loud[1] / quiet[1] for quiet, loud in zip(silent, heard)])
    verdict("loss of throughput, by the clock", by_clock[0], LIMIT, " %")
    say(f"  95 % interval from {by_clock[1]:.2f} to {by_clock[2]:.2f} %")
    # On a machine that is used to the full this is the same loss, without what else the machine did meanwhile.
    verdict("loss of throughput, by processor time a command (server, clients and mongosonar)", by_time[0], LIMIT, " %")
    say(f"  95 % interval from {by_time[1]:.2f} to {by_time[2]:.2f} %")
    if any(low <= LIMIT < high for _, low, high in (by_clock, by_time)):
        say("  an interval holds the target: more ALTERNATIONS, or a quieter machine, would tell more surely")


main(bench)
