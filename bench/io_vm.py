#!/usr/bin/env python3
"""`io` at the functions of the VFS, in the lab's virtual machine: the same fetch by turns under bcc's `filetop` (counts
by file) and `ext4slower` (each access on a line, as `fileslower 0`). The machine is emulated, so only ratios count."""

import os
import pathlib
import re
import shutil
import sys
import tempfile

from lib.kit import MONGOSONAR, ROOT, build, figure, main, make_lab, median, output, rounds, say, skip, skipped

sys.path.insert(0, str(ROOT / "lab/vm"))
import vm  # noqa: E402

STUDY = ROOT / "lab/bin/study"
ROUNDS = rounds(1, 3)
OWN = ("live", "record")
PEERS = ("filetop", "ext4slower")

SCRIPT = r"""
mke2fs -q /dev/vda > /dev/null 2>&1
mount -t ext4 /dev/vda /mnt
study make /mnt/hashed hashed 30000
echo 1 > /proc/sys/kernel/bpf_stats_enabled
for round in $(seq ROUNDS); do
    for what in nothing live record PEERS; do
        sync
        echo 3 > /proc/sys/vm/drop_caches
        rm -f /tmp/fifo /tmp/said /tmp/recording
        mkfifo /tmp/fifo
        ( WAIT=1 study fetch /mnt/hashed 3 < /tmp/fifo > /tmp/out 2>&1 ) &
        exec 9> /tmp/fifo
        until pidof study > /dev/null; do sleep 1; done
        pid=$(pidof study)
        # Beside the study, so that the tracer goes on until the figures of its programs have been read.
        sleep 1000 &
        idle=$! tracer=
        case $what in
        live) mongosonar io live --json --way vfs --pid $pid --pid $idle > /dev/null 2> /tmp/said & tracer=$! ;;
        record) mongosonar io record --way vfs --pid $pid --pid $idle /tmp/recording 2> /tmp/said & tracer=$! ;;
        filetop) filetop -C -p $pid 1 > /dev/null & tracer=$! ;;
        ext4slower) ext4slower -m 0 -p $pid > /tmp/lines & tracer=$! ;;
        esac
        # The peers do not print when they have begun.
        sleep 5
        echo go >&9
        until grep -q fetch /tmp/out; do sleep 1; done
        share=
        [ -z "$tracer" ] || share=$(cat /proc/$tracer/fdinfo/* 2> /dev/null | awk '/run_time_ns/ { t += $2 } /run_cnt/ { n += $2 } END { print t, n }')
        echo "$what $(cut -d ' ' -f 4 /tmp/out | tail -1) $share"
        [ -z "$tracer" ] || kill -INT $tracer
        exec 9>&-
        kill $idle
        wait
    done
done
"""


def bench():
    peers = [name for name in PEERS if shutil.which(name)]
    for name in PEERS:
        if name not in peers:
            skipped(f"{name} (libbpf-tools) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "mongosonar"
        output(["strip", "-g", "-o", program, MONGOSONAR])
        files = [(program, "/bin/mongosonar"), (STUDY, "/bin/study")]
        # By their real paths: one of them is a link to another.
        files += [(os.path.realpath(shutil.which(name)), f"/bin/{name}") for name in peers]
        script = SCRIPT.replace("PEERS", " ".join(peers)).replace("ROUNDS", str(ROUNDS))
        try:
            done = vm.run(script, files=files, disks=[400], memory=900, seconds=600 * ROUNDS)
        except vm.Failed as why:
            say(str(why))
            sys.exit(str(why).splitlines()[0])
    rows = re.findall(r"^(\w+) ([\d.]+)(?: (\d+) (\d+))?", done.out, re.M)
    if done.code or not rows:
        sys.exit(f"the virtual machine measured nothing:\n{done}")
    rows = [
        (what, float(seconds), int(took or 0) / 1e7 / float(seconds), int(runs or 0))
        for what, seconds, took, runs in rows
    ]
    # Of each way: the seconds, the per cent of them that programs ran, and how often they did.
    found = {
        way: [median(values) for values in list(zip(*(row for row in rows if row[0] == way)))[1:]]
        for way in ("nothing", *OWN, *peers)
    }
    for way in OWN:
        for other in ("nothing", *peers):
            name = "not traced" if other == "nothing" else other
            figure(f"io {way}: run time of the fetch", found[way][0], "s", peer=name, peer_value=found[other][0])
            if other in peers:
                figure(
                    f"io {way}: share that programs ran",
                    found[way][1],
                    "%",
                    peer=other,
                    peer_value=found[other][1],
                    note=f"({found[way][2]:,.0f} runs; {other} {found[other][2]:,.0f})",
                )


if why := vm.missing():
    skip(why)
build("-p", "mongosonar")
make_lab("bin/study", "libwiredtiger-dev")
main(bench)
