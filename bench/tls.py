#!/usr/bin/env python3
"""What it costs a server that its encrypted connections are read. The lab's own server, which uses OpenSSL as mongod does
and is not MongoDB, keeps both processors busy, by turns alone, with a capture of packets, with a capture that also reads
encrypted connections, and with ordinary entry and return probes, as other agents use them. Also: what the programs in
the kernel take at 10,000 encrypted operations a second, and what is lost at 20,000."""

import contextlib
import json
import re
import shutil
import signal
import statistics
import subprocess
import time

from lib.kit import (
    MONGOSONAR,
    ROOT,
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
)
from lib.load import Load, at_ordinary_priority
from lib.tracers import run_time, statistics_on

SERVER = ROOT / "lab/bin/threaded"
PORT = 27918
PAIRS = rounds(9, 25)
SLOT = 2.0  # seconds of each turn
RATE, HIGH_RATE = 10_000, 20_000
PEER = "ordinary probes (bpftrace)"
# The least that an agent with entry and return probes does: it keeps the buffer, and counts what was read.
PROBES = """
BEGIN { printf("ready\\n"); }
uprobe:LIBRARY:SSL_read, uprobe:LIBRARY:SSL_write { @buffer[tid] = arg1; }
uretprobe:LIBRARY:SSL_read, uretprobe:LIBRARY:SSL_write { @calls = count(); delete(@buffer[tid]); }
"""


def certificate(work):
    """A file with a certificate for localhost and its key."""
    key, signed, both = work / "key.pem", work / "certificate.pem", work / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", signed], check=True, capture_output=True)
    both.write_text(key.read_text() + signed.read_text())
    return both


def tls_library():
    """The library that the server has mapped."""
    linked = subprocess.run(["ldd", SERVER], capture_output=True, text=True, check=True).stdout
    return re.search(r"libssl\.so\S* => (\S+)", linked)[1]


class Queries:
    """`queries` while it captures."""

    def __init__(self, *arguments):
        command = [MONGOSONAR, "queries", "--interface", "lo", "--port", PORT, "--json", "--interval", "1h", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.child = subprocess.Popen(list(map(str, command)), **pipes)
        while "listening on" not in (line := self.child.stderr.readline()):
            if not line:
                raise SystemExit("queries has ended")

    def end(self):
        self.child.send_signal(signal.SIGINT)
        output, errors = self.child.communicate(timeout=60)
        if self.child.returncode != 0:
            raise SystemExit(errors)
        return json.loads(output.splitlines()[-1])


class OrdinaryProbes:
    """bpftrace with its probes."""

    def __init__(self):
        script = PROBES.replace("LIBRARY", tls_library())
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.child = subprocess.Popen(["bpftrace", "-B", "line", "-e", script], **pipes)
        while "ready" not in (line := self.child.stdout.readline()):
            if not line:
                raise SystemExit("bpftrace has ended")

    def end(self):
        self.child.send_signal(signal.SIGINT)
        self.child.communicate(timeout=30)


def ways():
    """What runs beside the server, by name."""
    found = {
        "packets only": lambda: Queries("--no-tls"),
        "packets and encrypted connections": Queries,
    }
    if shutil.which("bpftrace"):
        found[PEER] = OrdinaryProbes
    return found


def throughput():
    """Measures throughput while both processors are busy: for each turn, the ratio to that of the server alone."""
    every = {"alone": None, **ways()}
    ratios, rates = {name: [] for name in every}, []
    with Load(PORT, 0, 0, tls=True) as load:
        for number in range(PAIRS):
            names = list(every)
            # Whatever drifts hits each of them in each place.
            names = names[number % len(names) :] + names[: number % len(names)]
            found = {}
            for name in names:
                beside = every[name]() if every[name] else None
                time.sleep(0.5)
                begun = time.monotonic()
                time.sleep(SLOT)
                found[name] = load.rate(begun, time.monotonic())
                if beside:
                    beside.end()
            for name, rate in found.items():
                ratios[name].append(rate / found["alone"])
            if "packets only" in found:
                ratios.setdefault("added", []).append(
                    found["packets and encrypted connections"] / found["packets only"]
                )
            rates.append(found["alone"])
    note(
        f"{statistics.median(rates):,.0f} encrypted operations a second alone; {PAIRS} rounds of turns of {SLOT:.0f} s."
    )
    percent = lambda ratio: 100 * (1 - ratio)

    def shown(name):
        mean, low, high = ratio_interval(ratios[name])
        return percent(mean), f"(95 % interval {percent(high):.1f} to {percent(low):.1f})"

    peer = {"peer": PEER, "peer_value": shown(PEER)[0]} if PEER in every else {}
    for name, title, more in [
        ("packets only", "throughput lost to a capture of packets", {}),
        ("packets and encrypted connections", "throughput lost if encrypted connections are read too", peer),
        ("added", "of which reading encrypted connections", {}),
    ]:
        value, interval = shown(name)
        figure(title, value, "%", note=interval, **more)


def cost():
    seconds = 10
    with Load(PORT, 0, RATE, connections=64, tls=True) as load, statistics_on():
        queries = Queries()
        time.sleep(1)
        used, (ran, _) = processor_time(queries.child.pid), run_time(queries.child.pid)
        begun = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - begun
        used, (after, _) = processor_time(queries.child.pid) - used, run_time(queries.child.pid)
        rate = load.rate(begun, time.monotonic())
        queries.end()
    ran = (after - ran) / 1e9
    note(f"{rate:,.0f} encrypted operations a second for processor time.")
    figure("processor time, eBPF programs", 100 * ran / took, "% of a processor", limit=3)
    figure("for each operation", ran / took / rate * 1e6, "microseconds")
    figure("processor time, queries", 100 * used / took, "% of a processor")


def losses():
    with Load(PORT, 0, HIGH_RATE, connections=64, tls=True) as load:
        queries = Queries("--class", "all")
        begun = time.monotonic()
        time.sleep(5)
        rate = load.rate(begun, time.monotonic())
        coverage = queries.end()["coverage"]
    note(f"{rate:,.0f} encrypted operations a second for what is lost.")
    names = ("tls_lost", "tls_unmapped", "kernel_drops", "gaps")
    figure("parts of connections lost at this rate", sum(coverage[name] for name in names), limit=0)


def bench():
    links("link set lo up")
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(folder())
        command = [SERVER, PORT, work, "tls", certificate(work)]
        server = stack.enter_context(process(command, stdout=subprocess.PIPE, preexec_fn=at_ordinary_priority))
        server.stdout.readline()
        throughput()
        cost()
        losses()


build("-p", "mongosonar")
make_lab("bin/threaded", "WiredTiger (libwiredtiger-dev)")
make_lab("bin/threaded-load", "a C compiler")
main(bench, alone=True)
