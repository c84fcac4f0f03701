#!/usr/bin/env python3
"""Frames that are lost while other programs keep all processors busy: `queries` with its start, also with `--split`, and
the agent, at 240 and 10,000 frames a second on loopback, in a network namespace of its own, beside four busy programs for
each processor."""

import contextlib
import json
import os
import subprocess
import sys
import time

from lib.kit import (
    MONGOSONAR,
    RECORDING,
    RECORDING_PORT,
    ROOT,
    build,
    figure,
    folder,
    links,
    main,
    make_lab,
    note,
    output,
    process,
    processors,
    rings,
    rounds,
    say,
    stop,
    summary,
    wait_until,
)
from lib.wire import Sender, of_recording

SERVER = ROOT / "lab/bin/threaded"
SERVER_PORT = 27917
RATES = (240, 10_000)
SECONDS = 15
ROUNDS = rounds(3, 6)
BUSY_EACH = 4  # busy programs for each processor
# This process asks to run first, and so would what it starts.
ORDINARY = ("nice", "-n", "15")


@contextlib.contextmanager
def busy():
    """Programs that compute until the end of the block."""
    with contextlib.ExitStack() as stack:
        for _ in range(BUSY_EACH * len(os.sched_getaffinity(0))):
            stack.enter_context(process([*ORDINARY, "sh", "-c", "while :; do :; done"]))
        yield


def loss_of_queries(work, sender, rate, *options):
    """Frames sent after its ring was there, and those of them that were lost."""
    out = work / "queries.json"
    command = [*ORDINARY, MONGOSONAR, "queries", "--json", "--interface", "lo", "--port", RECORDING_PORT, *options]
    with open(out, "wb") as stdout, process(command, stdout=stdout, stdin=subprocess.DEVNULL) as child:
        wait_until(lambda: child.poll() is not None or rings(child.pid), "the ring of mongosonar", 60)
        sender.begin(rate, SECONDS)
        sent = sender.end()["frames"]
        time.sleep(2)
        if stop(child, 60) != 0:
            sys.exit("mongosonar ended badly")
    coverage = summary(out)[0]["coverage"]
    return sent, sent - coverage["frames"]


def loss_of_split(work, sender, rate):
    """The same with `--split`, which loads its programs while frames come. It needs a server to trace; nobody calls it."""
    with process([SERVER, SERVER_PORT, work, "unmeasured"], stdout=subprocess.PIPE) as server:
        if not server.stdout.readline().startswith(b"ready "):
            sys.exit("the lab's server ended")
        return loss_of_queries(work, sender, rate, "--port", SERVER_PORT, "--split")


def loss_of_agent(work, sender, rate):
    """The same of the agent, with its losses of each source."""
    path = work / "agent.toml"
    path.write_text(
        f'[store]\npath = "{work / "store"}"\n[queries]\ninterface = ["lo"]\nport = [{RECORDING_PORT}]\n',
        encoding="utf-8",
    )
    command = [*ORDINARY, MONGOSONAR, "agent", "--config", path]
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with process(command, **nothing) as child:
        wait_until(lambda: child.poll() is not None or rings(child.pid), "the ring of the agent", 60)
        sender.begin(rate, SECONDS)
        sent = sender.end()["frames"]
        time.sleep(12)
        status = json.loads(output([MONGOSONAR, "agent", "--status", "--json", "--config", path]))
        if stop(child, 60) != 0:
            sys.exit("the agent ended badly")
    return sent, next(one["lost"] for one in status["collectors"] if one["name"] == "queries")


SUBJECTS = (("queries", loss_of_queries), ("queries --split", loss_of_split), ("agent", loss_of_agent))


def bench():
    links("link set lo up")
    sending, _ = processors()
    schedule = of_recording(RECORDING, 3_000, 16)
    count = len(os.sched_getaffinity(0))
    note(f"{BUSY_EACH * count} busy programs on {count} processors; {ROUNDS} runs of {SECONDS} s each.")
    with folder() as work, Sender("lo", schedule, cpu=sending) as sender, busy():
        for name, loss_of in SUBJECTS:
            for rate in RATES:
                runs = []
                for number in range(ROUNDS):
                    here = work / f"{name}-{rate}-{number}"
                    here.mkdir()
                    runs.append(loss_of(here, sender, rate))
                say(f"  {name}: " + ", ".join(f"{lost} of {sent:,}" for sent, lost in runs))
                worst = max(lost for _, lost in runs)
                figure(f"frames lost, {name}, {rate:,} a second, worst of {ROUNDS} runs", worst, limit=0)


build("-p", "mongosonar")
make_lab("bin/threaded", "WiredTiger (libwiredtiger-dev)")
main(bench, alone=True)
