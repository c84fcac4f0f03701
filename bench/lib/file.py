"""See bench/file.sh."""

import json
import os
import re
import shutil
import subprocess

from kit import (
    MIB,
    MONGOSONAR,
    RECORDING_PORT,
    ROOT,
    folder,
    last_processor,
    main,
    median,
    multiply,
    run,
    runs,
    say,
    summary,
    verdict,
)

PIPELINE = ROOT / "lab/bin/pipeline"
SMALL_COPIES = 120
MIXED_COPIES = 20
ROUNDS = 3
# What tshark is asked for: the least that tells messages apart, and the least that tells queries apart. With
# values (-T ek) it takes minutes.
TSHARK = {
    "tshark, opcodes": ("-T", "fields", "-e", "mongo.opcode"),
    "tshark, ids and names of elements": (
        "-T",
        "fields",
        "-e",
        "mongo.opcode",
        "-e",
        "mongo.request_id",
        "-e",
        "mongo.response_to",
        "-e",
        "mongo.element.name",
    ),
}


def ours(path, *arguments):
    return [MONGOSONAR, "queries", "--read", path, *arguments]


def small_operations(work):
    say("== ordinary small operations, on one processor")
    path = work / "small.pcap"
    held = multiply(path, SMALL_COPIES, "--largest", "3000")
    frames = held["frames"]
    say(f"  {frames:,} frames, {held['bytes'] / MIB:.0f} MiB, in the page cache")
    cpu = last_processor()
    os.sync()
    run(ours(path, "--limit", "1"), cpu=cpu)
    each = runs(9, ours(path, "--limit", "1"), cpu=cpu)
    by_cpu, by_wall = (frames / median(values) for values in ([r.cpu for r in each], [r.wall for r in each]))
    verdict("frames a second of processor time, median of 9", by_cpu, 2e6, least=True)
    best = frames / min(r.cpu for r in each)
    say(f"  by the clock {by_wall:,.0f}; the best run by processor time {best:,.0f}")
    user = median([r.user for r in each]) / frames * 1e9
    system = median([r.system for r in each]) / frames * 1e9
    say(f"  {user:.0f} ns user and {system:.0f} ns system a frame")
    say(f"  peak memory {max(r.rss for r in each) / MIB:.0f} MiB")
    path.unlink()


def instructions(work):
    if not shutil.which("valgrind"):
        say("skipped: instructions a frame need valgrind")
        return
    counts = []
    for copies in (2, 6):
        path = work / f"{copies}.pcap"
        frames = multiply(path, copies, "--largest", "3000")["frames"]
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *ours(path, "--limit", "1")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        counts.append((frames, int(re.search(r"Collected : (\d+)", done.stderr)[1])))
        path.unlink()
    (few, less), (many, more) = counts
    say(f"  {(more - less) / (many - few):.0f} instructions a frame (difference of {many:,} and {few:,} frames)")


def mixed(work):
    say("== mixed file: all opcodes, snappy and zlib, large batches, IPv4 and IPv6; each on one processor")
    path = work / "mixed.pcap"
    held = multiply(path, MIXED_COPIES, "--ipv6")
    frames = held["frames"]
    if not held["ipv6"]:
        raise SystemExit("no IPv6 frame in the mixed file")
    commands = {"mongosonar": ours(path, "--limit", "1", "--json", "--class", "all", "--role", "all")}
    if shutil.which("go") and PIPELINE.exists():
        commands["Go pipeline"] = [PIPELINE, path]
    else:
        say("skipped: the Go pipeline needs go")
    if shutil.which("tshark"):
        base = ["tshark", "-n", "-r", path, "-d", f"tcp.port=={RECORDING_PORT},mongo"]
        commands.update({name: [*base, *options] for name, options in TSHARK.items()})
    else:
        say("skipped: tshark is not installed")
    os.sync()
    same_messages(work, frames, commands)
    say(
        f"  {frames:,} frames, {held['bytes'] / MIB:.0f} MiB in the page cache; {held['ipv6']:,} frames are IPv6; "
        f"medians of {ROUNDS} rounds, in each one after the other"
    )
    each = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            # What is over in a moment is timed more often.
            for _ in range(5 if name == "mongosonar" else 1):
                each[name].append(run(command, cpu=last_processor()))
    took = {name: median([one.cpu for one in taken]) for name, taken in each.items()}
    for name, taken in each.items():
        wall, most = median([one.wall for one in taken]), max(one.rss for one in taken)
        say(
            f"  {name}: {took[name]:.3f} s of processor time, {wall:.3f} s by the clock, "
            f"{took[name] / frames * 1e6:.2f} us a frame, peak {most / MIB:.0f} MiB"
        )
    for name in commands:
        if name != "mongosonar":
            least = 10 if name == "Go pipeline" else 100
            verdict(f"{name}: processor time, of ours", took[name] / took["mongosonar"], least, "x", least=True)


def same_messages(work, frames, commands):
    """What did not read the same messages out of a file is no comparison."""
    out = work / "out"
    run(commands["mongosonar"], output=out)
    found, _ = summary(out)
    messages, calls = found["coverage"]["messages"], found["totals"]["calls"]
    say(f"  mongosonar: {messages:,} messages, {calls:,} operations")
    if "Go pipeline" in commands:
        run(commands["Go pipeline"], output=out)
        says = json.loads(out.read_text())
        paired = sum(one["calls"] for one in says["calls"].values())
        say(
            f"  Go pipeline: {says['messages']:,} messages, {paired:,} operations "
            f"(it leaves {says['other_messages']:,} messages: snappy, and opcodes before OP_MSG)"
        )
        if says["messages"] != messages or says["frames"] != frames:
            raise SystemExit("the Go pipeline did not hear the same messages: no comparison")
    name = next(iter(TSHARK))
    if name in commands:
        run(commands[name], output=out)
        codes = out.read_text().splitlines()
        # A compressed message shows its opcode and the one within; OP_COMPRESSED comes first.
        seen = sum(len(line.split(",")) - line.count("2012,") for line in codes if line)
        say(f"  tshark: {seen:,} messages, {sum('2012' in line for line in codes):,} frames with OP_COMPRESSED")
        if abs(seen - messages) > 0.02 * messages or not any("2012" in line for line in codes):
            raise SystemExit("tshark did not dissect the same messages: no comparison")


def bench():
    with folder(on_disk=True) as work:
        small_operations(work)
        instructions(work)
        mixed(work)


main(bench)
