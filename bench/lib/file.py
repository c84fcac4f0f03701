"""See bench/file.sh."""

import json
import re
import shutil
import subprocess

from kit import (
    MIB, MONGOSONAR, RECORDING_PORT, ROOT, folder, last_processor, main, median, multiply, run, runs, say,
    summary, verdict,
)

PIPELINE = ROOT / "lab/bin/pipeline"
SMALL_COPIES = 120
MIXED_COPIES = 20
TSHARK_COPIES = (1, 5)


def ours(path, *arguments):
    return [MONGOSONAR, "queries", "--read", path, *arguments]


def small_operations(work):
    say("== ordinary small operations, on one processor")
    path = work / "small.pcap"
    held = multiply(path, SMALL_COPIES, "--largest", "3000")
    frames = held["frames"]
    say(f"  {frames:,} frames, {held['bytes'] / MIB:.0f} MiB, in the page cache")
    cpu = last_processor()
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
    say("== mixed file: all opcodes, snappy and zlib, large batches, IPv4 and IPv6, on one processor")
    path = work / "mixed.pcap"
    held = multiply(path, MIXED_COPIES, "--ipv6")
    frames = held["frames"]
    say(f"  {frames:,} frames, {held['bytes'] / MIB:.0f} MiB; {held['ipv6']:,} frames are IPv6")
    if not held["ipv6"]:
        raise SystemExit("no IPv6 frame in the mixed file")
    everything = ours(path, "--limit", "1", "--json", "--class", "all", "--role", "all")
    cpu = last_processor()
    run(everything, cpu=cpu)
    each = runs(7, everything, cpu=cpu, output=work / "ours")
    took = median([r.cpu for r in each])
    found, _ = summary(work / "ours")
    coverage = found["coverage"]
    say(f"  ours: {took:.2f} s of processor time, {took / frames * 1e9:.0f} ns a frame, peak {max(r.rss for r in each) / MIB:.0f} MiB")
    against_pipeline(work, path, took, coverage["messages"], found["totals"]["calls"], frames)
    path.unlink()
    against_tshark(work, took / frames, coverage["messages"] / MIXED_COPIES)


def against_pipeline(work, path, took, messages, calls, frames):
    if not (shutil.which("go") and PIPELINE.exists()):
        say("skipped: the Go pipeline needs go")
        return
    say("== beside gopacket's reassembly and the official bson package (lab/peers/pipeline), same file")
    out = work / "pipeline"
    single = {"GOMAXPROCS": "1"}
    theirs = runs(3, [PIPELINE, path], cpu=last_processor(), environment=single, output=out)
    free = runs(3, [PIPELINE, path])
    says = json.loads(out.read_text())
    say(f"  messages: ours {messages:,}, pipeline {says['messages']:,}; frames: ours {frames:,}, pipeline {says['frames']:,}")
    paired = sum(one["calls"] for one in says["calls"].values())
    say(f"  operations: ours {calls:,}, pipeline {paired:,} (it leaves snappy and the opcodes before OP_MSG: {says['other_messages']:,} messages)")
    if says["messages"] != messages:
        raise SystemExit("the two did not hear the same messages: no comparison")
    time = median([r.cpu for r in theirs])
    say(f"  pipeline: {time:.2f} s with one processor, peak {max(r.rss for r in theirs) / MIB:.0f} MiB")
    verdict("pipeline takes, of our processor time", time / took, 10, "x", least=True)
    wall, cpu = median([r.wall for r in free]), median([r.cpu for r in free])
    say(f"  with GOMAXPROCS as Go sets it: {wall:.2f} s by the clock, {cpu:.2f} s of processor time ({cpu / took:.1f}x)")


def against_tshark(work, ours_a_frame, messages_a_copy):
    if not shutil.which("tshark"):
        say("skipped: tshark is not installed")
        return
    few, many = TSHARK_COPIES
    say(f"== beside tshark, a frame: its time is the difference of {many} copies and {few} of the recording, free of start-up")
    opcode = ["mongo.opcode"]
    names = [*opcode, "mongo.request_id", "mongo.response_to", "mongo.element.name"]
    for what, fields in (("opcodes", opcode), ("opcodes, ids, names of elements", names)):
        took, frames = {}, {}
        for copies in TSHARK_COPIES:
            path = work / "tshark.pcap"
            frames[copies] = multiply(path, copies, "--ipv6")["frames"]
            command = ["tshark", "-n", "-r", path, "-d", f"tcp.port=={RECORDING_PORT},mongo", "-T", "fields"]
            command += [word for field in fields for word in ("-e", field)]
            each = runs(3, command, cpu=last_processor(), output=work / "fields")
            took[copies] = median([r.cpu for r in each])
        codes = [line.split("\t")[0] for line in (work / "fields").read_text().splitlines()]
        # A compressed message shows its opcode and the one within; OP_COMPRESSED comes first.
        seen = sum(len(line.split(",")) - line.count("2012,") for line in codes if line)
        say(f"  {what}: {seen:,} messages dissected in {many} copies; ours: {messages_a_copy * many:,.0f}")
        if not any("2012" in line for line in codes):
            raise SystemExit("tshark saw no OP_COMPRESSED in the mixed file")
        if abs(seen - messages_a_copy * many) > 0.05 * seen:
            raise SystemExit("tshark did not dissect the same messages: no comparison")
        theirs = (took[many] - took[few]) / (frames[many] - frames[few])
        say(f"  tshark {theirs * 1e6:.1f} us a frame, ours {ours_a_frame * 1e6:.2f} us")
        verdict("tshark takes, of our processor time", theirs / ours_a_frame, 100, "x", least=True)


def bench():
    with folder() as work:
        small_operations(work)
        instructions(work)
        mixed(work)


main(bench)
