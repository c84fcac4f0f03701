"""At the functions of the VFS, in the lab's virtual machine (a stock Debian kernel, emulated, so that only what stands side
by side says something): the same fetch under `io`, and under bcc's `filetop` (counts by file) and `ext4slower` (each access
on a line, as `fileslower 0` does). See bench/io.sh."""

import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import kit

sys.path.insert(0, str(kit.ROOT / "lab/vm"))
import vm

STUDY = kit.ROOT / "lab/bin/study"
ROUNDS = int(os.environ.get("ROUNDS", "2"))
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
        # Beside the study, so that the tracer goes on until its programs' figures have been read.
        sleep 1000 &
        idle=$! tracer=
        case $what in
        live) mongosonar io live --json --way vfs --pid $pid --pid $idle > /dev/null 2> /tmp/said & tracer=$! ;;
        record) mongosonar io record --way vfs --pid $pid --pid $idle /tmp/recording 2> /tmp/said & tracer=$! ;;
        filetop) filetop -C -p $pid 1 > /dev/null & tracer=$! ;;
        ext4slower) ext4slower -m 0 -p $pid > /tmp/lines & tracer=$! ;;
        esac
        # The others do not say when they have begun.
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
    if words := vm.missing():
        return kit.say(f"skipped: in the virtual machine: {words}")
    peers = [name for name in PEERS if shutil.which(name)]
    if not peers:
        kit.say("skipped: beside filetop and ext4slower, which are not installed (libbpf-tools)")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "mongosonar"
        subprocess.run(["strip", "-g", "-o", program, kit.MONGOSONAR], check=True)
        files = [(program, "/bin/mongosonar"), (STUDY, "/bin/study")]
        # By what they are and not what they are called: one of them is a link.
        files += [(os.path.realpath(shutil.which(name)), f"/bin/{name}") for name in peers]
        script = SCRIPT.replace("PEERS", " ".join(peers)).replace("ROUNDS", str(ROUNDS))
        done = vm.run(script, files=files, disks=[400], memory=900, seconds=300 * ROUNDS)
    rows = re.findall(r"^(\w+) ([\d.]+)(?: (\d+) (\d+))?", done.out, re.M)
    if done.code or not rows:
        sys.exit(f"the virtual machine measured nothing:\n{done}")
    kit.say("fetch of 30,000 documents in the virtual machine, at the functions of the VFS (emulated):")
    for what in ("nothing", "live", "record", *peers):
        mine = [row for row in rows if row[0] == what]
        seconds = statistics.median(float(row[1]) for row in mine)
        line = f"  {what:<10} {seconds:5.1f} s"
        if what != "nothing":
            share = statistics.median(int(row[2]) / 1e7 / float(row[1]) for row in mine)
            runs = statistics.median(int(row[3]) for row in mine)
            line += f", programs ran {share:.1f} % of it in {runs:,.0f} runs"
        kit.say(line)


if __name__ == "__main__":
    kit.main(bench)
