"""See bench/drops.sh."""

import contextlib
import time

from kit import (
    RECORDING,
    RECORDING_PORT,
    folder,
    links,
    listening,
    main,
    processor_time,
    processors,
    say,
    softirq,
    verdict,
)
from wire import Sender, of_recording

RATE = 500_000
SECONDS = 10
TURNS = 3
ROUNDS = 20
# One processor may not send as many, so two senders do, the second one where the listener runs: what they
# send of the frames.
SHARES = (0.65, 0.35)
# What a run may be short of RATE before it says nothing about it.
TOLERANCE = 0.02


def one(work, senders, rates, cpu):
    with listening(work, "--interface", "v1", "--port", str(RECORDING_PORT), cpu=cpu) as ear:
        before, interrupts = processor_time(ear.pid), softirq()
        for sender, rate in zip(senders, rates):
            sender.begin(rate, SECONDS)
        sent = [sender.end() for sender in senders]
        time.sleep(1)
        used, interrupts = processor_time(ear.pid) - before, softirq() - interrupts
        found, _ = ear.stop()
    frames, volume = (sum(each[what] for each in sent) for what in ("frames", "bytes"))
    seconds = max(each["seconds"] for each in sent)
    coverage, rate = found["coverage"], frames / seconds
    say(
        f"  sent {rate:,.0f} frames a second, {8 * volume / seconds / 1e6:,.0f} Mbit/s; heard {coverage['frames']:,} of {frames:,}, "
        f"dropped {coverage['kernel_drops']:,}; {found['totals']['calls']:,} operations; processor {100 * used / seconds:.0f} %, "
        f"software interrupts of the host {100 * interrupts / seconds:.0f} %"
    )
    if abs(frames - coverage["frames"] - coverage["kernel_drops"]) > 0.001 * frames:
        raise SystemExit("the frames sent and those heard or dropped are not the same number")
    whole = (
        coverage["messages_decoded"] > 0.999 * coverage["messages"]
        and coverage["frames_decoded"] > 0.999 * coverage["frames"]
    )
    if not coverage["kernel_drops"] and not whole or not coverage["messages"]:
        raise SystemExit(f"not all was decoded: {coverage}")
    return rate, coverage["kernel_drops"]


def bench():
    links("link set lo up")
    sending, hearing = processors()
    with folder() as work, contextlib.ExitStack() as stack:
        senders = []
        for number, cpu in enumerate((sending, hearing)):
            schedule = of_recording(RECORDING, 3_000, ROUNDS, host=1 + number)
            senders.append(
                stack.enter_context(Sender("v0", schedule, cpu, namespace_of=senders[0].pid if senders else "new"))
            )
        # The largest frame of the recording's small operations is above the usual 1,500.
        links(
            "link add v0 mtu 9000 type veth peer name v1 mtu 9000",
            f"link set v0 netns {senders[0].pid}",
            "link set v1 up",
        )
        runs = [one(work, senders, [RATE * share for share in SHARES], hearing) for _ in range(TURNS)]
        slowest = min(rate for rate, _ in runs)
        if slowest < RATE * (1 - TOLERANCE):
            say(f"  the senders came to {slowest:,.0f} frames a second in one run: the machine was too busy to tell")
        drops = max(drops for _, drops in runs)
        verdict(f"frames dropped by the kernel at {slowest:,.0f} a second or more, the worst of {TURNS} runs", drops, 0)
        say("== as fast as one processor can send")
        one(work, senders[:1], [None], hearing)


main(bench)
