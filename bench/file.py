#!/usr/bin/env python3
"""A capture file in the page cache to final figures, on one processor: frames a second, instructions a frame, peak
memory; what several threads gain; the same mixed file (all opcodes, snappy and zlib, large batches, IPv4 and IPv6)
beside tshark and beside a pipeline in Go; and what each stage adds."""

import json
import os
import re
import shutil
import sys

from lib.kit import (
    CARGO_BENCH,
    MIB,
    MONGOSONAR,
    RECORDING_PORT,
    build,
    build_go,
    callgrind,
    figure,
    folder,
    last_processor,
    main,
    median,
    multiply,
    note,
    output,
    rounds,
    run,
    runs,
    say,
    skipped,
    summary,
)

SMALL_COPIES = 120
MIXED_COPIES = 20
ROUNDS = rounds(3, 7)
# Modes of tshark: the least output that distinguishes messages, its cheapest mode, and the least output that
# distinguishes queries. With values (-T ek) it takes minutes.
TSHARK = {
    "tshark, opcodes": ["mongo.opcode"],
    "tshark, ids and names of elements": [
        "mongo.opcode",
        "mongo.request_id",
        "mongo.response_to",
        "mongo.element.name",
    ],
}


def ours(path, *arguments):
    return [MONGOSONAR, "queries", "--read", path, *arguments]


def small_operations(work):
    path = work / "small.pcap"
    held = multiply(path, SMALL_COPIES, "--largest", "3000")
    frames = held["frames"]
    cpu = last_processor()
    os.sync()
    run(ours(path, "--limit", "1"), cpu=cpu)
    each = runs(3 * ROUNDS, ours(path, "--limit", "1"), cpu=cpu)
    note(f"Small operations: {frames:,} frames, {held['bytes'] / MIB:.0f} MiB; medians of {len(each)} runs.")
    speed = lambda values: frames / median(values)
    figure("small operations: speed", speed([one.cpu for one in each]), "frames/s", least=2e6)
    figure("small operations: speed by the clock", speed([one.wall for one in each]), "frames/s")
    for what in "user", "system":
        took = median([getattr(one, what) for one in each]) / frames * 1e9
        figure(f"small operations: {what} time of a frame", took, "ns")
    figure("small operations: peak memory", max(one.rss for one in each) / MIB, "MiB")
    path.unlink()


def instructions(work):
    if not shutil.which("valgrind"):
        return skipped("instructions: valgrind is not installed")
    counts = []
    for copies in (2, 6):
        path = work / f"{copies}.pcap"
        frames = multiply(path, copies, "--largest", "3000")["frames"]
        counts.append((frames, callgrind(ours(path, "--limit", "1", "--threads", "1"))[0]))
    (few, less), (many, more) = counts
    figure("small operations: instructions of a frame", (more - less) / (many - few))


def several_threads(work):
    """Large files on one thread and on several, by turns: the time by the clock."""
    counts = sorted({1, 2, os.cpu_count()})
    small = ["--largest", "3000"]
    for name, copies, options in (("small operations", 3 * SMALL_COPIES, small), ("mixed file", MIXED_COPIES, [])):
        path = work / "large.pcap"
        held = multiply(path, copies, *options)
        os.sync()
        command = ours(path, "--limit", "1", "--threads")
        run([*command, "1"])
        each = {count: [] for count in counts}
        for _ in range(3 * ROUNDS):
            for count in counts:
                each[count] += runs(1, [*command, str(count)])
        took = {count: median([one.wall for one in taken]) for count, taken in each.items()}
        note(f"{name}, several threads: {held['bytes'] / 1e6:.0f} MB; medians of {3 * ROUNDS} runs by turns.")
        for count in counts[1:]:
            figure(f"{name}, {count} threads: speed by the clock", took[1] / took[count], "× one thread")
        path.unlink()


def mixed(work):
    path = work / "mixed.pcap"
    held = multiply(path, MIXED_COPIES, "--ipv6")
    frames = held["frames"]
    if not held["ipv6"]:
        sys.exit("no IPv6 frame in the mixed file")
    commands = {"mongosonar": ours(path, "--limit", "1", "--json", "--class", "all", "--role", "all")}
    if pipeline := build_go("lab/peers", "pipeline", "./pipeline"):
        commands["Go pipeline"] = [pipeline, path]
    else:
        skipped("the pipeline in Go: Go is not installed")
    if shutil.which("tshark"):
        base = ["tshark", "-n", "-r", path, "-d", f"tcp.port=={RECORDING_PORT},mongo", "-T", "fields"]
        for name, fields in TSHARK.items():
            commands[name] = [*base, *(word for field in fields for word in ("-e", field))]
    else:
        skipped("tshark is not installed")
    os.sync()
    same_messages(work, frames, commands)
    note(
        f"Mixed file: {frames:,} frames, {held['bytes'] / MIB:.0f} MiB, {held['ipv6']:,} frames are IPv6; medians of "
        f"{ROUNDS} rounds by turns."
    )
    each = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            # Short runs are timed more often.
            each[name] += runs(5 if name == "mongosonar" else 1, command, cpu=last_processor())
    took = {name: median([one.cpu for one in taken]) for name, taken in each.items()}
    mine = took["mongosonar"]
    peaks = {name: max(one.rss for one in taken) / MIB for name, taken in each.items()}
    for name in commands:
        if name != "mongosonar":
            share = 0.1 if name == "Go pipeline" else 0.01
            what = "mixed file: processor time"
            figure(what, mine, "s", peer=name, peer_value=took[name], share=share)
            figure("mixed file: peak memory", peaks["mongosonar"], "MiB", peer=name, peer_value=peaks[name])


def same_messages(work, frames, commands):
    """Ends the bench if a peer did not read the same messages from the file."""
    out = work / "out"
    run(commands["mongosonar"], into=out)
    found, _ = summary(out)
    messages, calls = found["coverage"]["messages"], found["totals"]["calls"]
    say(f"  mongosonar: {messages:,} messages, {calls:,} operations")
    if "Go pipeline" in commands:
        theirs = json.loads(output(commands["Go pipeline"]))
        paired = sum(one["calls"] for one in theirs["calls"].values())
        note(
            f"The pipeline in Go pairs {paired:,} of {calls:,} operations: it leaves out {theirs['other_messages']:,} "
            "messages, those with snappy and with opcodes before OP_MSG."
        )
        if theirs["messages"] != messages or theirs["frames"] != frames:
            sys.exit("the pipeline in Go did not read the same messages")
    name = next(iter(TSHARK))
    if name in commands:
        codes = output(commands[name]).splitlines()
        # A compressed message shows its opcode and the one within; OP_COMPRESSED comes first.
        seen = sum(len(line.split(",")) - line.count("2012,") for line in codes if line)
        compressed = sum("2012" in line for line in codes)
        say(f"  tshark: {seen:,} messages, {compressed:,} frames with OP_COMPRESSED")
        if abs(seen - messages) > 0.02 * messages or not compressed:
            sys.exit("tshark did not read the same messages")


def stages():
    """Times of the stages as criterion estimates them."""
    times = r"^(\S.*?)\s*\n? +time: +\[\S+ \S+ (\S+) (\S+) "
    for name, value, unit in re.findall(times, output([*CARGO_BENCH, "--bench", "stages", "--", "--noplot"]), re.M):
        figure(f"stage: {name}", float(value), unit)


def bench():
    with folder(on_disk=True) as work:
        small_operations(work)
        instructions(work)
        several_threads(work)
        mixed(work)
    stages()


build("-p", "mongosonar")
main(bench)
