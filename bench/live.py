#!/usr/bin/env python3
"""What capturing costs: 10,000 frames a second and 60 Mbit/s of recorded traffic on loopback, in a network namespace
of its own; processor time of mongosonar, with whole replies and with `--snap-replies`, without what the host spends in
software interrupts."""

import sys
import time

from lib.kit import (
    RECORDING,
    RECORDING_PORT,
    build,
    capturing,
    figure,
    folder,
    links,
    main,
    median,
    note,
    processor_time,
    processors,
    rounds,
    say,
    softirq,
)
from lib.wire import Sender, of_recording

RATE = 10_000
SECONDS = 6
SETTLE = 2  # seconds of sending before measuring: by then tables are filled and shapes are known
ROUNDS = rounds(5, 11)
# 16 rounds of small operations for one with batches of megabytes: some 750 bytes a frame.
SMALL_ROUNDS = 16
VARIANTS = {"whole replies": (), "--snap-replies 256": ("--snap-replies", "256")}


def one(work, sender, arguments, cpu, silent=False):
    """One run: mongosonar and software interrupts in per cent of a processor, what was sent and what was seen."""
    with capturing(work, "--interface", "lo", "--port", str(RECORDING_PORT), *arguments, cpu=cpu) as capture:
        if not silent:
            sender.begin(RATE, SECONDS + 2 * SETTLE)
        time.sleep(SETTLE)
        before, interrupts, began = processor_time(capture.pid), softirq(), time.monotonic()
        time.sleep(SECONDS)
        used, interrupts = processor_time(capture.pid) - before, softirq() - interrupts
        seconds = time.monotonic() - began
        sent = {} if silent else sender.end()
        time.sleep(1)
        found, _ = capture.stop()
    return {
        "percent": 100 * used / seconds,
        "softirq": 100 * interrupts / seconds,
        "sent": sent,
        "coverage": found["coverage"],
        "calls": found["totals"]["calls"],
    }


def check(name, run):
    """Ends the bench if a run did not decode what was sent."""
    coverage, sent = run["coverage"], run["sent"]["frames"]
    missing = sent - coverage["frames"] - coverage["kernel_drops"]
    if abs(missing) > 0.001 * sent or not run["calls"] or coverage["streams_not_mongodb"]:
        sys.exit(f"{name}: {missing} of {sent} frames did not reach the ring: {coverage}")


def bench():
    links("link set lo up")
    schedule = of_recording(RECORDING, 3_000, SMALL_ROUNDS, with_large=True)
    sending, measuring = processors()
    with folder() as work, Sender("lo", schedule, cpu=sending) as sender:
        silence = one(work, sender, (), measuring, silent=True)
        measured = {name: [] for name in VARIANTS}
        for _ in range(ROUNDS):
            for name, arguments in VARIANTS.items():
                measured[name].append(one(work, sender, arguments, measuring))
    sent = measured["whole replies"][0]["sent"]
    rate, bits = sent["frames"] / sent["seconds"], 8 * sent["bytes"] / sent["seconds"]
    note(f"{rate:,.0f} frames a second, {bits / 1e6:.1f} Mbit/s; medians of {ROUNDS} runs of {SECONDS} s by turns.")
    figure("processor time, no traffic", silence["percent"], "% of a processor")
    for name, runs in measured.items():
        for run in runs:
            check(name, run)
        figure(f"processor time, {name}", median([run["percent"] for run in runs]), "% of a processor", limit=0.5)
        say("  each run " + ", ".join(f"{run['percent']:.3f}" for run in runs))
        drops = max(run["coverage"]["kernel_drops"] for run in runs)
        figure(f"frames dropped, {name}, worst of {ROUNDS} runs", drops, limit=0)
        host = median([run["softirq"] for run in runs])
        figure(
            f"software interrupts of the host, {name}",
            host,
            "% of a processor",
            peer="no traffic",
            peer_value=silence["softirq"],
        )


build("-p", "mongosonar")
main(bench, alone=True)
