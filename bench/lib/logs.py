"""See bench/logs.sh."""

import contextlib
import os
import pathlib
import pty
import shutil
import subprocess
import sys

from kit import MIB, MONGOSONAR, folder, last_processor, main, median, run, runs, say, verdict

MAKE = pathlib.Path(__file__).with_name("make_log.py")
EXAMPLES = pathlib.Path(MONGOSONAR).parent / "examples"
MEGABYTES = 200
SHAPES = 200
MANY_SHAPES = 5_000
LARGE_GB = float(os.environ.get("LOG_GB", "2"))


def make(path, kind, megabytes, shapes):
    subprocess.run([sys.executable, MAKE, kind, str(megabytes), str(shapes), path], check=True)
    # Into the page cache, and not into this process, whose size a child begins with.
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass


def rate(kind, least, peer, work):
    path = work / f"{kind}.log"
    cpu = last_processor()
    for shapes in SHAPES, MANY_SHAPES:
        make(path, kind, MEGABYTES, shapes)
        size = path.stat().st_size
        say(f"== {kind} log of {size / 1e6:.0f} MB, {shapes} shapes, on one processor")
        each = runs(5, [MONGOSONAR, "logs", "report", path, "--limit", "1"], cpu=cpu)
        verdict(
            "MB/s of processor time to the final digest, median of 5",
            size / median([r.cpu for r in each]) / 1e6,
            least,
            least=True,
        )
        say(
            f"  by the clock {size / median([r.wall for r in each]) / 1e6:,.0f} MB/s; peak memory {max(r.rss for r in each) / MIB:.0f} MiB"
        )
        if shapes == SHAPES:
            peer(path, size, cpu)
    path.unlink()


def serde(path, size, cpu):
    done = run([EXAMPLES / "log_rate", path, "1", "serde"], cpu=cpu)
    say(f"  plain serde_json into values: {size / done.cpu / 1e6:,.0f} MB/s")


def mloginfo(path, size, cpu):
    if not shutil.which("mloginfo"):
        say("  skipped: mloginfo (pip install mtools pymongo python-dateutil)")
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
    piece = work / "piece.log"
    make(piece, "json", 200, 5_000)
    say(f"== peak memory over {LARGE_GB:g} GB with 5,000 shapes")
    # The same piece again and again, through a pipe: nothing of that size is kept on disk.
    reader = subprocess.Popen(
        [MONGOSONAR, "logs", "report", "-", "--limit", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    left = round(LARGE_GB * 1e9)
    while left > 0:
        with open(piece, "rb", buffering=0) as file:
            while data := file.read(MIB):
                reader.stdin.write(data)
                left -= len(data)
    reader.stdin.close()
    _, status, used = os.wait4(reader.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"mongosonar ended with {os.waitstatus_to_exitcode(status)}")
    # A process begins as a copy of this one, which counts; a peak below our own is not known exactly.
    verdict("MiB at most", used.ru_maxrss / 1024, 200)


def bench():
    with folder() as work:
        rate("json", 400, serde, work)
        rate("text", 250, mloginfo, work)
        memory(work)


main(bench)
