#!/usr/bin/env python3
"""Headers of one frame: our decoder, etherparse and gopacket on the same mixed frames, in time and in instructions."""

import json
import re
import shutil

from lib.kit import CARGO_BENCH, EXAMPLES, build, build_go, figure, folder, instructions_each, main, output, skipped

FRAMES = 1_000  # of a round of the example


def time():
    """Compares the times with etherparse; returns ours in ns, in the cache."""
    for line in output([*CARGO_BENCH, "--bench", "frame"]).splitlines():
        if found := re.match(r"frame, (.*) \(.*ours ([\d.]+) ns, etherparse ([\d.]+) ns", line):
            where, ours, theirs = found[1], float(found[2]), float(found[3])
            share = 0.25 if where == "in cache" else None
            figure(f"time, {where}", ours, "ns", peer="etherparse", peer_value=theirs, share=share)
            if share:
                in_cache = ours
    return in_cache


def beside_gopacket(ours):
    peer = build_go("lab/peers", "peer-frame", "./frame")
    if not peer:
        return skipped("gopacket: Go is not installed")
    with folder() as work:
        output([EXAMPLES / "frame_instructions", "pcap", work / "mixed.pcap"])
        theirs = json.loads(output([peer, work / "mixed.pcap"]))["new_packet_ns"]
    figure("time, in cache", ours, "ns", peer="gopacket's NewPacket", peer_value=theirs, share=0.01)


def instructions():
    if not shutil.which("valgrind"):
        return skipped("instructions: valgrind is not installed")
    counted = {
        what: instructions_each(lambda rounds: [EXAMPLES / "frame_instructions", what, rounds], 10, 30) / FRAMES
        for what in ("nothing", "ours", "etherparse")
    }
    ours, theirs = (counted[what] - counted["nothing"] for what in ("ours", "etherparse"))
    figure("instructions", ours, peer="etherparse", peer_value=theirs)


def bench():
    beside_gopacket(time())
    instructions()


build("-p", "sonar-decode", "--example", "frame_instructions")
main(bench)
