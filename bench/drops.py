#!/usr/bin/env python3
"""Following a busy network: 500,000 small frames a second on a veth pair between two network namespaces, all of them
decoded; and how many frames get through as fast as one processor can send."""

import contextlib
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
    note,
    processor_time,
    processors,
    rounds,
    say,
    softirq,
)
from lib.wire import Sender, of_recording

RATE = 500_000
SECONDS = 10
ROUNDS = rounds(3, 6)
REPEATS = 20  # of the recording in the schedule
# One processor cannot send as many frames, so there are two senders, the second one on the processor of mongosonar:
# their shares of the frames.
SHARES = (0.65, 0.35)
# A run that sends slower than this share of RATE does not test it.
LEAST = 0.98


def one(work, senders, rates, cpu):
    with capturing(work, "--interface", "v1", "--port", str(RECORDING_PORT), cpu=cpu) as capture:
        before, interrupts = processor_time(capture.pid), softirq()
        for sender, rate in zip(senders, rates):
            sender.begin(rate, SECONDS)
        sent = [sender.end() for sender in senders]
        time.sleep(1)
        used, interrupts = processor_time(capture.pid) - before, softirq() - interrupts
        found, _ = capture.stop()
    frames, volume = (sum(each[what] for each in sent) for what in ("frames", "bytes"))
    seconds = max(each["seconds"] for each in sent)
    coverage, rate = found["coverage"], frames / seconds
    say(
        f"  sent {rate:,.0f} frames a second, {8 * volume / seconds / 1e6:,.0f} Mbit/s; captured {coverage['frames']:,} of "
        f"{frames:,}, dropped {coverage['kernel_drops']:,}; {found['totals']['calls']:,} operations; processor "
        f"{100 * used / seconds:.0f} %, software interrupts of the host {100 * interrupts / seconds:.0f} %"
    )
    if abs(frames - coverage["frames"] - coverage["kernel_drops"]) > 0.001 * frames:
        sys.exit("the frames sent are not as many as those captured or dropped")
    whole = all(coverage[f"{what}_decoded"] > 0.999 * coverage[what] for what in ("messages", "frames"))
    if not coverage["messages"] or not coverage["kernel_drops"] and not whole:
        sys.exit(f"not everything was decoded: {coverage}")
    return rate, coverage["kernel_drops"], used / seconds


def bench():
    links("link set lo up")
    sending, measuring = processors()
    with folder() as work, contextlib.ExitStack() as stack:
        senders = []
        for number, cpu in enumerate((sending, measuring)):
            schedule = of_recording(RECORDING, 3_000, REPEATS, host=1 + number)
            namespace = senders[0].pid if senders else "new"
            senders.append(stack.enter_context(Sender("v0", schedule, cpu, namespace_of=namespace)))
        # The largest frame of the recording's small operations is longer than the usual 1,500.
        links(
            "link add v0 mtu 9000 type veth peer name v1 mtu 9000",
            f"link set v0 netns {senders[0].pid}",
            "link set v1 up",
        )
        runs = [one(work, senders, [RATE * share for share in SHARES], measuring) for _ in range(ROUNDS)]
        slowest = min(rate for rate, *_ in runs)
        if slowest < RATE * LEAST:
            note(f"Only {slowest:,.0f} frames a second could be sent in one run: the machine was too busy.")
        drops, used = max(drops for _, drops, _ in runs), max(used for *_, used in runs)
        figure(f"frames dropped, {SECONDS} s at {RATE:,} a second, worst of {ROUNDS} runs", drops, limit=0)
        figure("processor time of that, most of the runs", 100 * used, "% of a processor")
        say("== as fast as one processor can send")
        rate, drops, _ = one(work, senders[:1], [None], measuring)
        figure("frames sent as fast as one processor can", rate, "a second", note=f"({drops:,} dropped)")


build("-p", "mongosonar")
main(bench, alone=True)
