#!/usr/bin/env python3
"""diagnostic.data from the page cache to the report, on one processor: 100 MB of files, more than a server writes in a
day; beside pymongoftdc, a decoder in Python, which gets one metric of every sample of a part of them. And what following
a running server costs, whose samples are written as it wrote them."""

import re
import subprocess
import sys

from lib import diagnostic
from lib.kit import (
    MONGOSONAR,
    ROOT,
    build,
    figure,
    folder,
    last_processor,
    main,
    median,
    note,
    rounds,
    run,
    runs,
    skipped,
)

MEGABYTES = 100
ROUNDS = rounds(3, 9)
PEER_FILES = 8
PEER = """
import pathlib, sys
from pyftdc import _codec
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    with path.open("rb") as stream:
        for document in _codec.iter_bson_documents(stream, path):
            if document.get("type") == 1:
                _codec.decode_metric_document(document, {"serverStatus.connections.current"})
"""


def make(work):
    """Files of one server; returns their size in MB."""
    size = 0
    for written in diagnostic.copies(work):
        size += written
        if size >= MEGABYTES * 1_000_000:
            return size / 1e6


def following():
    """Processor time of following a server that writes a sample each second, in per cent of a processor."""
    command = ["cargo", "test", "--quiet", "--release", "--locked", "-p", "mongosonar", "--bin", "mongosonar"]
    command += ["cost_of_following", "--", "--ignored", "--nocapture"]
    tested = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    share = re.search(r"([0-9.]+) % of a processor", tested.stdout)
    if tested.returncode != 0 or share is None:
        sys.exit(f"{' '.join(command)} failed: {tested.stderr[-400:]}")
    return float(share[1])


def bench():
    cpu = last_processor()
    figure("following a running server, polled each second", following(), "% of a processor", limit=0.1)
    with folder() as work:
        size = make(work)
        files = sorted(work.glob("metrics.*"))
        hours = len(files) * diagnostic.STEP / 3600
        note(f"{size:.0f} MB, {hours:.0f} hours of a 4.4 of some 1,700 metrics; medians of {ROUNDS} runs.")
        report = runs(ROUNDS, [MONGOSONAR, "ftdc", "report", work, "--csv"], cpu=cpu)
        figure("decoded, judged and reported", median([one.cpu for one in report]), "s", limit=5)
        figure("peak memory", max(one.rss for one in report) / (1 << 20), "MiB", limit=200)
        one_metric = [MONGOSONAR, "ftdc", "export", work, "--metric", "serverStatus.connections.current"]
        seconds = median([each.cpu for each in runs(ROUNDS, one_metric, cpu=cpu)])
        peer = {}
        python = ROOT / "lab" / ".venv/bin/python"
        if python.exists():
            part = run([python, "-c", PEER, *files[:PEER_FILES]], cpu=cpu).cpu
            peer = {"peer": "pymongoftdc", "peer_value": part * len(files) / PEER_FILES}
        else:
            skipped("lab/.venv is missing (make -C lab .venv/ready): pymongoftdc is not measured")
        figure("one metric of every sample", seconds, "s", **peer)


build("-p", "mongosonar")
main(bench)
