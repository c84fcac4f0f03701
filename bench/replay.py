#!/usr/bin/env python3
"""One hour of a server replayed into a history: `diagnostic.data` with a sample each second, a log with five slow
operations a second, and a capture with a recording each minute; all made of recordings of a real server."""

import datetime

from lib import diagnostic
from lib.kit import MIB, MONGOSONAR, RECORDING_PORT, build, figure, folder, main, median, multiply, note, rounds, run
from lib.slow_log import slow_line

SECONDS = 3_600
EVERY = 60  # seconds from one copy of the recording to the next
BEGAN = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
ROUNDS = rounds(3, 9)


def make(work):
    """Writes the inputs; returns them, and the frames of the capture."""
    internals, log, capture = work / "diagnostic.data", work / "mongod.log", work / "wire.pcap"
    internals.mkdir()
    files = diagnostic.copies(internals, BEGAN.replace(tzinfo=None))
    for _ in range(SECONDS // diagnostic.STEP):
        next(files)
    began = int(BEGAN.timestamp())
    log.write_text("".join(slow_line(began + fifth / 5) for fifth in range(SECONDS * 5)))
    made = multiply(capture, SECONDS // EVERY, "--largest", "3000", "--begin", began, "--every", EVERY)
    return [internals, log, capture], made["frames"]


def bench():
    with folder() as work:
        inputs, frames = make(work)
        (work / "agent.toml").write_text("")
        options = ["--config", work / "agent.toml", "--port", RECORDING_PORT]
        replay = [MONGOSONAR, "agent", *options, "--store"]
        done = [run([*replay, work / f"store-{number}", "--replay", *inputs]) for number in range(ROUNDS)]
    note(f"{frames:,} frames, {SECONDS * 5:,} slow operations; medians of {ROUNDS} runs into a new store.")
    figure("one hour replayed", median([one.wall for one in done]), "s", limit=10)
    figure("processor time", median([one.cpu for one in done]), "s")
    figure("peak memory", max(one.rss for one in done) / MIB, "MiB")


build("-p", "mongosonar")
main(bench)
