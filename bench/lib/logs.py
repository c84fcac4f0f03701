"""See bench/logs.sh."""

import contextlib
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

from kit import EXAMPLES, MIB, MONGOSONAR, folder, last_processor, main, median, run, runs, say, verdict

MAKE = pathlib.Path(__file__).with_name("make_log.py")
MEGABYTES = 200
SHAPES = 200
LARGE_GB = float(os.environ.get("LOG_GB", "2"))


def make(path, kind, megabytes, shapes):
    subprocess.run([sys.executable, MAKE, kind, str(megabytes), str(shapes), path], check=True)
    path.read_bytes()


def rate(kind, least, peer, work):
    path = work / f"{kind}.log"
    make(path, kind, MEGABYTES, SHAPES)
    size, cpu = path.stat().st_size, last_processor()
    say(f"== {kind} log of {size / 1e6:.0f} MB, {SHAPES} shapes, on one processor")
    each = runs(5, [MONGOSONAR, "logs", "report", path, "--limit", "1"], cpu=cpu)
    verdict("MB/s of processor time to the final digest, median of 5", size / median([r.cpu for r in each]) / 1e6, least, least=True)
    say(f"  by the clock {size / median([r.wall for r in each]) / 1e6:,.0f} MB/s; peak memory {max(r.rss for r in each) / MIB:.0f} MiB")
    peer(path, size, cpu)
    path.unlink()


def serde(path, size, cpu):
    done = run([EXAMPLES / "log_rate", path, "1", "serde"], cpu=cpu)
    say(f"  plain serde_json into values: {size / done.cpu / 1e6:,.0f} MB/s")


def mloginfo(path, size, cpu):
    if not shutil.which("mloginfo"):
        say("  skipped: mloginfo (pip install mtools pymongo)")
        return
    # It takes minutes for what we take a second for: a part of the file is enough.
    part = path.with_suffix(".part")
    with open(path, "rb") as file:
        text = file.read(size // 20)
    part.write_bytes(text[: text.rindex(b"\n") + 1])
    seconds = on_terminal(["mloginfo", "--queries", str(part)])
    say(f"  mloginfo --queries: {part.stat().st_size / seconds / 1e6:,.1f} MB/s")


def on_terminal(command):
    """Processor seconds of a program that reads files only where its standard input is a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def memory(work):
    path = work / "large.log"
    piece = work / "piece.log"
    make(piece, "json", 200, 5_000)
    say(f"== peak memory over {LARGE_GB:g} GB with 5,000 shapes")
    # The same piece again and again, through a pipe: nothing of that size is kept on disk.
    copies = max(1, round(LARGE_GB * 5))
    cat = f"for i in $(seq {copies}); do cat {piece}; done"
    done = subprocess.run(
        ["sh", "-c", f"{cat} | /usr/bin/time -f %M {MONGOSONAR} logs report - --limit 1 >/dev/null"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    peak = int(re.findall(r"^(\d+)$", done.stderr, re.M)[-1]) * 1024
    verdict("MiB at most", peak / MIB, 200)
    assert not path.exists()


def bench():
    with folder() as work:
        rate("json", 400, serde, work)
        rate("text", 250, mloginfo, work)
        memory(work)


main(bench)
