"""See bench/live.sh."""

import time

from kit import (
    RECORDING,
    RECORDING_PORT,
    folder,
    links,
    listening,
    main,
    median,
    processor_time,
    processors,
    say,
    softirq,
    verdict,
)
from wire import Sender, of_recording

RATE = 10_000
SECONDS = 8
SETTLE = 2  # of the sending, before the clock starts: tables are filled and shapes are known by then
TURNS = 7
# 16 rounds of small operations to one of what has batches of megabytes: 750 bytes a frame, about.
SMALL_ROUNDS = 16
VARIANTS = {"whole replies": (), "--snap-replies 256": ("--snap-replies", "256")}


def one(work, sender, arguments, cpu, silent=False):
    """One run: per cent of a processor of mongosonar and of software interrupts, and what was heard."""
    with listening(work, "--interface", "lo", "--port", str(RECORDING_PORT), *arguments, cpu=cpu) as ear:
        if not silent:
            sender.begin(RATE, SECONDS + 2 * SETTLE)
        time.sleep(SETTLE)
        before, interrupts, began = processor_time(ear.pid), softirq(), time.monotonic()
        time.sleep(SECONDS)
        used, interrupts = processor_time(ear.pid) - before, softirq() - interrupts
        seconds = time.monotonic() - began
        sent = {} if silent else sender.end()
        time.sleep(1)
        found, _ = ear.stop()
    return {
        "percent": 100 * used / seconds,
        "softirq": 100 * interrupts / seconds,
        "sent": sent,
        "coverage": found["coverage"],
        "calls": found["totals"]["calls"],
    }


def bench():
    links("link set lo up")
    schedule = of_recording(RECORDING, 3_000, SMALL_ROUNDS, with_large=True)
    sending, hearing = processors()
    with folder() as work, Sender("lo", schedule, cpu=sending) as sender:
        silence = one(work, sender, (), hearing, silent=True)
        measured = {name: [] for name in VARIANTS}
        for _ in range(TURNS):
            for name, arguments in VARIANTS.items():
                measured[name].append(one(work, sender, arguments, hearing))
    sent = measured["whole replies"][0]["sent"]
    rate, bits = sent["frames"] / sent["seconds"], 8 * sent["bytes"] / sent["seconds"]
    say(f"  {rate:,.0f} frames a second, {bits / 1e6:.1f} Mbit/s; medians of {TURNS} runs of {SECONDS} s, in turns")
    say(f"  without traffic: {silence['percent']:.3f} % of a processor")
    for name, runs in measured.items():
        say(f"== {name}")
        verdict("user and system", median([run["percent"] for run in runs]), 0.5, " % of a processor")
        say("  each run " + ", ".join(f"{run['percent']:.3f}" for run in runs))
        say(
            f"  apart from it, software interrupts of the host: {median([run['softirq'] for run in runs]):.2f} % "
            f"(without traffic {silence['softirq']:.2f} %)"
        )
        verdict("frames dropped by the kernel", max(run["coverage"]["kernel_drops"] for run in runs), 0)
        for run in runs:
            check(name, run)
        coverage = runs[-1]["coverage"]
        say(
            f"  heard {coverage['frames']:,} of {runs[-1]['sent']['frames']:,} frames, {runs[-1]['calls']:,} operations"
        )


def check(name, run):
    """A figure of a run that did not decode what was sent is no figure."""
    coverage, sent = run["coverage"], run["sent"]["frames"]
    missing = sent - coverage["frames"] - coverage["kernel_drops"]
    if abs(missing) > 0.001 * sent or not run["calls"] or coverage["streams_not_mongodb"]:
        raise SystemExit(f"{name}: not what was sent: {missing} frames of {sent} did not reach the ring; {coverage}")


main(bench)
