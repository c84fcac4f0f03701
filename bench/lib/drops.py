"""See bench/drops.sh."""

import time

from kit import (
    RECORDING, RECORDING_PORT, folder, links, listening, main, processor_time, processors, say, softirq, verdict,
)
from wire import Sender, of_recording

RATE = 500_000
SECONDS = 10
TURNS = 3
ROUNDS = 20
# What one run may be short of RATE before it says nothing about it.
TOLERANCE = 0.02


def one(work, sender, rate, cpu):
    with listening(work, "--interface", "v1", "--port", str(RECORDING_PORT), cpu=cpu) as ear:
        before, interrupts, began = processor_time(ear.pid), softirq(), time.monotonic()
        sender.begin(rate, SECONDS)
        sent = sender.end()
        time.sleep(1)
        used, interrupts = processor_time(ear.pid) - before, softirq() - interrupts
        found, _ = ear.stop()
    return sent, used, interrupts, found


def report(sent, used, interrupts, found):
    coverage = found["coverage"]
    rate, bits = sent["frames"] / sent["seconds"], 8 * sent["bytes"] / sent["seconds"]
    say(f"  sent {rate:,.0f} frames a second, {bits / 1e6:,.0f} Mbit/s; heard {coverage['frames']:,} of {sent['frames']:,}, "
        f"dropped {coverage['kernel_drops']:,}; {found['totals']['calls']:,} operations; processor {100 * used / sent['seconds']:.0f} %, "
        f"software interrupts of the host {100 * interrupts / sent['seconds']:.0f} %")
    if abs(sent["frames"] - coverage["frames"] - coverage["kernel_drops"]) > 0.001 * sent["frames"]:
        raise SystemExit("the frames sent and those heard or dropped are not the same number")
    return rate, coverage


def bench():
    links("link set lo up")
    schedule = of_recording(RECORDING, 3_000, ROUNDS)
    sending, hearing = processors()
    if sending == hearing:
        say("  only one processor: who sends and who listens share it")
    with folder() as work, Sender("v0", schedule, cpu=sending, own_namespace=True) as sender:
        # The largest frame of the recording's small operations is above the usual 1,500.
        links("link add v0 mtu 9000 type veth peer name v1 mtu 9000", f"link set v0 netns {sender.pid}", "link set v1 up")
        runs = []
        for _ in range(TURNS):
            rate, coverage = report(*one(work, sender, RATE, hearing))
            runs.append((rate, coverage["kernel_drops"]))
            if coverage["messages_decoded"] < 0.99 * coverage["messages"] or not coverage["messages"]:
                raise SystemExit(f"the messages were not decoded: {coverage}")
        slow = [rate for rate, _ in runs if rate < RATE * (1 - TOLERANCE)]
        if slow:
            say(f"  the sender came to {min(slow):,.0f} frames a second only: of {RATE:,} this says nothing")
        verdict(f"frames dropped by the kernel at {RATE:,} a second, the worst of {TURNS} runs", max(drops for _, drops in runs), 0)
        say("== as fast as they can be sent")
        report(*one(work, sender, None, hearing))


main(bench)
