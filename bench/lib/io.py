"""What tracing costs, what it loses, and how quick a report is. See bench/io.sh."""

import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import empty

import kit

STUDY = kit.ROOT / "lab/bin/study"
COUNT, CACHE_MB = 300_000, 30
ROUNDS = int(os.environ.get("ROUNDS", "5"))
LITTLE_MB = 128
T = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
}  # Student's, 95 %, by degrees of freedom
STATISTICS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")

READER = """
import os, sys, time, random
file = os.open(sys.argv[1], os.O_RDONLY)
rate, count = int(sys.argv[2]), int(sys.argv[3])
at = [random.randrange(4096) * 4096 for _ in range(1000)]
sys.stdin.readline()
begun = time.monotonic()
for batch in range(count // 1000):
    for offset in at:
        os.pread(file, 4096, offset)
    ahead = (batch + 1) * 1000 / rate - (time.monotonic() - begun)
    if ahead > 0:
        time.sleep(ahead)
print(count / (time.monotonic() - begun), flush=True)
sys.stdin.readline()
"""


def run_time_ns(pid):
    """Nanoseconds that the eBPF programs of a process have run, and how often: bpf_stats, by its open files."""
    took = runs = 0
    for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except FileNotFoundError:  # closed meanwhile
            continue
        took += int(fields.get("run_time_ns", 0))
        runs += int(fields.get("run_cnt", 0))
    return took, runs


def attach(what, pid, recording):
    recording.unlink(missing_ok=True)
    command = [kit.MONGOSONAR, "io", what, "--pid", str(pid)] + ([str(recording)] if what == "record" else ["--json"])
    tracer = subprocess.Popen(
        command, stdout=subprocess.PIPE if what == "live" else None, stderr=subprocess.PIPE, text=True
    )
    said = tracer.stderr.readline()
    if "Ctrl-C ends it" not in said:
        sys.exit(f"nothing can be traced here: {said}")
    return tracer


@contextlib.contextmanager
def little_memory():
    """A control group with so little memory that the page cache cannot hold what is read; `None` where none can be
    made. Of either version."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(root) / f"mongosonar-bench-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(LITTLE_MB << 20))
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


def fetch(folder, what, recording, group):
    """One fetch; gives its seconds, the share of it that programs ran, and nanoseconds for each run. `bystander`: another
    process is traced; `empty`, `clock`: programs that do nothing, and that only read the clock."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    program = subprocess.Popen(
        [STUDY, "fetch", folder, str(CACHE_MB)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "WAIT": "1"},
        preexec_fn=enter,
    )
    program.stdout.readline()
    idle = subprocess.Popen(["sleep", "1000"])
    tracer, nothing = None, contextlib.ExitStack()
    if what in ("empty", "clock"):
        programs = nothing.enter_context(empty.Empty(what == "clock"))
    elif what == "bystander":
        tracer = attach("live", idle.pid, recording)
    elif what:
        tracer = attach(what, program.pid, recording)
    program.stdin.write("go\n")
    program.stdin.flush()
    seconds = float(program.stdout.readline().split()[3])
    took = runs = 0
    if what in ("empty", "clock"):
        took, runs = programs.statistics()
        nothing.close()
    if tracer:
        took, runs = run_time_ns(tracer.pid)
        tracer.send_signal(2)
        tracer.communicate()
    program.communicate()
    idle.kill()
    idle.wait()
    return seconds, took / 1e9 / seconds, took / max(runs, 1)


def interval(values):
    """Mean and half of its 95 % interval (Student's t)."""
    if len(values) < 2:
        return statistics.mean(values), float("nan")
    return statistics.mean(values), T.get(len(values) - 1, 2.0) * statistics.stdev(values) / len(values) ** 0.5


def cost(folder, where, rounds, group=None):
    ways = (None, "record", "live", "bystander", "empty", "clock")
    STATISTICS.write_text("1")
    try:
        seconds, shares, each = ({way: [] for way in ways} for _ in range(3))
        for _ in range(rounds):
            for way in random.sample(ways, len(ways)):
                took, share, run = fetch(folder / "hashed", way, folder / "cost.msio", group)
                seconds[way].append(took)
                shares[way].append(share * 100)
                each[way].append(run)
    finally:
        STATISTICS.write_text("0")
    print(
        f"fetch through an index, {COUNT:,} documents in hashed order, {where}: {statistics.median(seconds[None]):.2f} s"
    )
    nothing = statistics.median(shares["bystander"])
    for way in ("record", "live"):
        share = statistics.median(shares[way])
        mean, half = interval([(b - a) / a * 100 for a, b in zip(seconds[None], seconds[way])])
        print(
            f"  io {way}: programs ran {share:.2f} % of it (target 0.80 %: {'met' if share <= 0.8 else 'MISSED'}); {statistics.median(each[way]):.0f} ns a run; run time {mean:+.1f} % ± {half:.1f} % ({rounds} pairs)"
        )
    print(
        f"  the same programs, when another process is traced: {nothing:.2f} %, {statistics.median(each['bystander']):.0f} ns a run"
    )
    for way, what in (("empty", "that do nothing"), ("clock", "that only read the clock")):
        share = statistics.median(shares[way])
        print(
            f"  programs {what}, at the same places: {share:.2f} %, {statistics.median(each[way]):.0f} ns a run; {0.8 - share:.2f} % of the target are left for more"
        )


def losses(folder):
    data = folder / "data"
    data.write_bytes(os.urandom(16 << 20))
    for what, rate in (("record", 100_000), ("live", 200_000)):
        count = rate * 10
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, data, str(rate), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        tracer = attach(what, reader.pid, folder / "rate.msio")
        reader.stdin.write("go\n")
        reader.stdin.flush()
        reached = float(reader.stdout.readline())
        tracer.send_signal(2)
        out, said = tracer.communicate()
        reader.communicate()
        if what == "record":
            lost = int(said.split(" lost")[0].split()[-1])
        else:
            lines = [json.loads(line) for line in out.splitlines()]
            seen = sum(f["reads"] for line in lines for f in line["files"] if f["name"] == str(data))
            lost = sum(lines[-1]["lost"].values()) + count - seen
        print(
            f"  io {what}: {reached:,.0f} accesses/s for {count / reached:.0f} s, {lost} lost (target 0 at {rate:,}/s: {'met' if lost == 0 and reached > 0.9 * rate else 'MISSED'})"
        )


def report(folder):
    data, recording = folder / "data", folder / "many.msio"
    count = 10_000_000
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, data, "250000", str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    tracer = attach("record", reader.pid, recording)
    reader.stdin.write("go\n")
    reader.stdin.flush()
    reader.stdout.readline()
    tracer.send_signal(2)
    tracer.communicate()
    reader.communicate()
    for what, more in (
        ("report", ["--json"]),
        (
            "the same with a page and an SVG",
            ["--json", "--html", str(folder / "many.html"), "--svg", str(folder / "many.svg")],
        ),
    ):
        took = []
        for _ in range(3):
            begun = time.monotonic()
            child = subprocess.Popen([kit.MONGOSONAR, "io", "report", *more, str(recording)], stdout=subprocess.PIPE)
            out = child.stdout.read()
            _, _, usage = os.wait4(child.pid, 0)
            child.returncode = 0
            took.append((time.monotonic() - begun, usage.ru_maxrss / 1024))
        seconds, memory = min(took)[0], max(size for _, size in took)
        accesses = json.loads(out)["accesses"]
        print(
            f"{what} of {accesses:,} accesses ({recording.stat().st_size / accesses:.1f} bytes each): {seconds:.2f} s (target 3 s: {'met' if seconds <= 3 else 'MISSED'}), "
            f"{memory:.0f} MiB (target 300 MiB: {'met' if memory <= 300 else 'MISSED'})"
        )


def bench():
    with kit.folder(on_disk=True) as folder:
        subprocess.run([STUDY, "make", folder / "hashed", "hashed", str(COUNT)], check=True)
        cost(folder, "a cold page cache that holds it", ROUNDS)
        with little_memory() as group:
            if group:
                cost(folder, f"{LITTLE_MB} MiB of memory for a page cache", min(ROUNDS, 3), group)
            else:
                print("skipped: no control group with a limit of memory can be made")
        losses(folder)
        report(folder)


if __name__ == "__main__":
    kit.main(bench)
