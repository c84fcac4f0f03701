#!/usr/bin/env python3
"""What the agent costs: 10,000 frames a second and 60 Mbit/s of 200 query shapes on loopback, in a network namespace of
its own, while a log grows and the machine is read; processor time of the whole agent and the share of each source, and
its memory without the ring."""

import json
import subprocess
import time

from lib.kit import (
    EXAMPLES,
    MIB,
    MONGOSONAR,
    Memory,
    build,
    figure,
    folder,
    links,
    main,
    median,
    note,
    output,
    pinned,
    process,
    processor_time,
    processors,
    rings,
    rounds,
    say,
    stop,
    wait_until,
)
from lib.slow_log import slow_line
from lib.traffic import PORT, Traffic
from lib.wire import Sender

TRAFFIC = Traffic(connections=200, shapes=200, applications=16, hosts=32, operations_each=200, reply_padding=1_000)
RATE = 10_000
SETTLE = 12  # seconds before measuring: by then a window was stored
SECONDS = rounds(30, 120)


def configuration(work):
    text = f"""
[store]
path = "{work / "store"}"
[queries]
interface = ["lo"]
port = [{PORT}]
[[server]]
port = {PORT}
log = "{work / "mongod.log"}"
"""
    path = work / "agent.toml"
    path.write_text(text)
    return path


def log_lines(log, seconds):
    """Appends ten slow operations a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        log.write(slow_line(time.time()))
        log.flush()
        time.sleep(0.1)


def status(path):
    return json.loads(output([MONGOSONAR, "agent", "--status", "--json", "--config", path]))


def shares(before, after, seconds):
    """Processor use of each source in per cent of a processor: user, system and eBPF."""
    keys = ("user_ns", "system_ns", "ebpf_ns")
    cost = lambda document: {one["name"]: sum(one[key] or 0 for key in keys) for one in document["collectors"]}
    first, last = cost(before), cost(after)
    return {name: 100 * (last[name] - first[name]) / 1e9 / seconds for name in last}


def one(work, sender, cpu):
    path = configuration(work)
    with open(work / "mongod.log", "w", encoding="utf-8") as log, open(work / "errors", "wb") as errors:
        command = [MONGOSONAR, "agent", "--config", path]
        with process(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, **pinned(cpu)) as child:
            wait_until(lambda: child.poll() is not None or rings(child.pid), "the ring of the agent")
            sender.begin(RATE, SETTLE + SECONDS + 5)
            log_lines(log, SETTLE)
            first, used, began = status(path), processor_time(child.pid), time.monotonic()
            log_lines(log, SECONDS)
            # The status shows what was measured up to the last time that it was written.
            used, seconds = processor_time(child.pid) - used, time.monotonic() - began
            last, memory = status(path), Memory.of(child.pid)
            sent = sender.end()
            if stop(child) != 0:
                raise SystemExit(f"the agent ended badly: {(work / 'errors').read_text()}")
    ebpf = lambda document: sum(one["ebpf_ns"] or 0 for one in document["collectors"]) / 1e9
    # The kernel charges its programs to the threads that they trace.
    used += ebpf(last) - ebpf(first)
    return 100 * used / seconds, shares(first, last, seconds), memory, (sent, last)


def bench():
    links("link set lo up")
    sending, measuring = processors()
    with folder() as work, Sender("lo", TRAFFIC.schedule(), cpu=sending) as sender:
        runs = []
        for number in range(3):
            here = work / str(number)
            here.mkdir()
            runs.append(one(here, sender, measuring))
    sent, last = runs[0][3]
    rate, bits = sent["frames"] / sent["seconds"], 8 * sent["bytes"] / sent["seconds"]
    note(f"{rate:,.0f} frames a second, {bits / 1e6:.1f} Mbit/s; medians of {len(runs)} runs of {SECONDS} s.")
    figure("processor time, whole agent", median([run[0] for run in runs]), "% of a processor", limit=1)
    say("  each run " + ", ".join(f"{run[0]:.3f}" for run in runs))
    for name in runs[0][1]:
        share = median([run[1][name] for run in runs])
        if share > 0:
            figure(f"processor time, {name}", share, "% of a processor")
    lost = sum(one["lost"] for one in last["collectors"])
    figure("lost", lost, limit=0)
    memory = max(run[2].resident - run[2].ring for run in runs)
    figure("memory without the ring", memory / MIB, "MiB", limit=96)
    reading = float(output([EXAMPLES / "machine_cost"])) / 1e3
    figure("one reading of the machine, beside a server of 500 threads", reading, "ms")


build("-p", "mongosonar")
build("-p", "sonar-sys", "--example", "machine_cost")
main(bench, alone=True)
