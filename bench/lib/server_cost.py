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
    """The load, which is asked for its count."""

    def __init__(self, child):
        self.child = child
        ready(child)

    def count(self):
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        words = self.child.stdout.readline().split()
        if len(words) != 2:
            raise SystemExit("the load ended early")
        return int(words[0]), int(words[1]) / 1e9

    def rate(self):
        """Answered commands a second, over the length of a turn."""
        time.sleep(SETTLE)
        calls, began = self.count()
        time.sleep(SECONDS)
        more, ended = self.count()
        return (more - calls) / (ended - began)


@contextlib.contextmanager
def under_load(work):
    data = tempfile.mkdtemp(dir=work)
    server = [ROOT / "lab/bin/server", "--listen", f"127.0.0.1:{PORT}", "--dir", data]
    with process(server, stdout=subprocess.PIPE) as child:
        ready(child)
        words = [ROOT / "lab/bin/load", f"mongodb://127.0.0.1:{PORT}", WORKERS]
        with process(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
            yield Load(load)


def with_capture(work, load):
    with listening(work, "--interface", "lo", "--port", str(PORT)) as ear:
        before, began = processor_time(ear.pid), time.monotonic()
        rate = load.rate()
        percent = 100 * (processor_time(ear.pid) - before) / (time.monotonic() - began)
        found, _ = ear.stop()
    coverage = found["coverage"]
    if not found["totals"]["calls"] > 0.9 * rate * SECONDS:
        raise SystemExit(f"the load was not heard: {coverage}")
    return rate, percent, coverage


def student(freedom):
    """The 97.5 % point of Student's t, by Cornish and Fisher's expansion (to three digits from 10 on)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def bench():
    if ALTERNATIONS < 15:
        raise SystemExit("ALTERNATIONS: at least 15, or the interval says nothing")
    links("link set lo up")
    losses, quiet, heard, percents, drops = [], [], [], [], 0
    with folder() as work, under_load(work) as load:
        for turn in range(ALTERNATIONS):
            # Who comes first changes, so that a drift of the machine does not add up.
            if turn % 2 == 0:
                without = load.rate()
            rate, percent, coverage = with_capture(work, load)
            if turn % 2 == 1:
                without = load.rate()
            losses.append(math.log(without / rate))
            quiet.append(without)
            heard.append(rate)
            percents.append(percent)
            drops += coverage["kernel_drops"]
    middle = statistics.fmean(losses)
    half = student(len(losses) - 1) * statistics.stdev(losses) / math.sqrt(len(losses))
    loss, low, high = (100 * (1 - math.exp(-value)) for value in (middle, middle - half, middle + half))
    say(f"  {median(quiet):,.0f} commands a second without mongosonar, {median(heard):,.0f} with it; {WORKERS} clients, "
        f"{len(losses)} alternations of {SECONDS:g} s")
    say(f"  mongosonar takes {median(percents):.2f} % of a processor; {drops} frames dropped")
    verdict("loss of throughput", loss, LIMIT, " %")
    say(f"  95 % interval from {low:.2f} to {high:.2f} %; each pair between {percent_of(min(losses)):.1f} and {percent_of(max(losses)):.1f} %")
    if low <= LIMIT < high:
        say("  the interval holds the target: more ALTERNATIONS would tell more surely")


def percent_of(value):
    return 100 * (1 - math.exp(-value))


main(bench)
