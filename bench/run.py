#!/usr/bin/env python3
"""Runs the benches one after another and writes what they measured into docs/performance.md.

    bench/run.py               all benches; writes the page anew
    bench/run.py logs file     these; replaces their tables in the page

A bench that fails or cannot run does not stop the others: the page names it with its reason. The page is written once,
at the end. The exit code is 1 if a bench failed.
"""

import argparse
import ast
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

from lib.kit import CARGO_BENCH, LONG, ROOT, build, output

# Those that need a quiet machine most come before those that leave dirty pages.
BENCHES = "frame window file readers logs ftdc store page replay tail live agent drops stressed memory server_cost why tls io io_vm disk".split()
MINUTES = 120 if LONG else 20  # a bench that takes longer is ended
COLUMNS = ("figure", "mongosonar", "peer", "limit", "")
INTRODUCTION = """`make bench` writes this page; [CONTRIBUTING.md](../CONTRIBUTING.md#benches) says how it measures. A \
figure and its peer's come from the same run, by turns where times are compared. A limit that is missed stays here \
until it is met."""


def build_all():
    """Builds what the benches measure, so that their times do not include it. They also build it themselves, so what
    fails here fails there, and is named there."""
    with contextlib.suppress(SystemExit):
        build("-p", "mongosonar")
        build("-p", "sonar-core", "--example", "window_instructions")
        build("-p", "sonar-decode", "--example", "frame_instructions", "--example", "log_rate")
        output([*CARGO_BENCH, "--no-run", "--bench", "frame", "--bench", "stages"])


def machine(with_disk):
    """Processor, memory and kernel, and the disk where it is measured; no names of hosts or folders."""
    model = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    memory = int(re.search(r"MemTotal: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / (1 << 20)
    parts = [
        " ".join(model[1].split()) if model else platform.machine(),
        f"{len(os.sched_getaffinity(0))} processors",
        f"{memory:.1f} GiB of memory",
        f"Linux {platform.release()}",
    ]
    if with_disk:
        parts.append(disk())
    return ", ".join(parts)


def disk():
    """File system and device that the folder of the build is on."""
    done = subprocess.run(["findmnt", "-no", "FSTYPE,MAJ:MIN", "-T", ROOT], capture_output=True, text=True)
    if done.returncode != 0:
        return "unknown disk"
    system, number = done.stdout.split()[:2]
    device = pathlib.Path("/sys/dev/block") / number
    if not device.exists():
        return f"disk: {system}"
    device = device.resolve()
    device = device.parent if (device / "partition").exists() else device
    model = device / "device/model"
    size = int((device / "size").read_text()) * 512 / 1e9
    name = " ".join(model.read_text().split()) if model.exists() else device.name
    return f"disk: {system} on {name}, {size:.0f} GB"


def commit():
    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/performance.md")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" with changes" if changed else "")


def busy(seconds=2):
    """Per cent of the time of all processors that was not idle, over this many seconds."""

    def times():
        fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    whole, idle = times()
    time.sleep(seconds)
    more, still = times()
    return 100 * (1 - (still - idle) / max(more - whole, 1))


def run(script, figures):
    """Runs a bench, which prints to our standard output; returns why it failed, or None."""
    environment = {**os.environ, "MONGOSONAR_FIGURES": str(figures), "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [sys.executable, "-B", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    late = []

    def alarm(*_):
        """Lets it clean up, and after a minute ends everything that it started."""
        if late:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.terminate()
            signal.alarm(60)
        late.append(True)

    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(MINUTES * 60)
    last = "no message"
    try:
        for line in child.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
        code = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    finally:
        signal.alarm(0)
    if late:
        return f"it did not end within {MINUTES} minutes"
    return None if code == 0 else last


def without_paths(text):
    """Paths of this machine mean nothing to others."""
    return re.sub(r"(?<![\w/])(/[\w.+-]+)+/(?=[\w.+-])", "", text.replace(f"{ROOT}/", ""))


def table(entries):
    rows = [[entry[key] for key in ("figure", "ours", "peer", "limit", "mark")] for entry in entries]
    rows = [[*row[:4], f"**{row[4]}**" if row[4] == "missed" else row[4]] for row in rows]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def section(script, stamp):
    """Runs a bench; returns its part of the page, and whether it failed. `stamp` comes below the table."""
    before, began = busy(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = pathlib.Path(folder) / "figures"
        failure = run(script, figures)
        entries = [json.loads(line) for line in figures.read_text().splitlines()] if figures.exists() else []
    about = (ast.get_docstring(ast.parse(script.read_text())) or "").split("\n\n")[0]
    lines = [f"## {script.stem}", "", " ".join(about.split()), ""]
    measured = [entry for entry in entries if "figure" in entry]
    if measured:
        lines += [*table(measured), ""]
    items = [entry["note"] for entry in entries if "note" in entry]
    items += [f"Skipped: {entry['skipped']}." for entry in entries if "skipped" in entry]
    items += [f"Failed: {failure}" for _ in [failure] if failure]
    minutes = (time.monotonic() - began) / 60
    items.append(f"{stamp}Load before: {before:.0f} % of the processors. Took {minutes:.1f} minutes.")
    return "\n".join([*lines, *(f"- {without_paths(item)}" for item in items), ""]), failure


def split(page):
    """The head of a page, and its sections by name."""
    head, *rest = re.split(r"^(?=## )", page, flags=re.M)
    return head, {one.split("\n", 1)[0][3:]: one.rstrip("\n") + "\n" for one in rest}


def write(path, text):
    """Writes a file completely, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/performance.md")
    parser.add_argument("--benches", type=pathlib.Path, default=ROOT / "bench", help="the folder of the benches")
    args = parser.parse_args()
    names = args.names or BENCHES
    if unknown := [name for name in names if not (args.benches / f"{name}.py").is_file()]:
        parser.error(f"no bench {', '.join(unknown)}")
    run_as = f"{datetime.date.today()}, commit {commit()}"
    where = machine(with_disk=bool({"disk", "io"} & {*names}))
    if args.benches == ROOT / "bench":
        build_all()
    head, sections = split(args.page.read_text(encoding="utf-8")) if args.names and args.page.exists() else ("", {})
    # A table from another run than the page's names that run.
    stamp = "".join(f"{what}. " for what in (run_as, where) if head and what not in head)
    head = head or f"# Performance\n\n{INTRODUCTION}\n\nMeasured on {run_as}. {where}.\n\n"
    failed = {}
    for name in names:
        print(f"== {name}", flush=True)
        sections[name], failure = section(args.benches / f"{name}.py", stamp)
        if failure:
            failed[name] = failure
    order = {name: place for place, name in enumerate(BENCHES)}
    ordered = sorted(sections, key=lambda name: (order.get(name, len(order)), name))
    write(args.page, head + "\n".join(sections[name] for name in ordered))
    print(f"{args.page} is written")
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
