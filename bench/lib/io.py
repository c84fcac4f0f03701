"""What tracing costs, what it loses, and how quick a report is. See bench/io.sh."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

import kit

STUDY = kit.ROOT / "lab/bin/study"
COUNT, CACHE_MB = 300_000, 30
ROUNDS = int(os.environ.get("ROUNDS", "5"))
STATISTICS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
LOST = re.compile(r"[Ll]ost (\d+)")
TRACEFS = pathlib.Path("/sys/kernel/tracing")

# What a person would write in bpftrace for the like of `io live`: reads, bytes and latency by file. It cannot give the
# paths of files at the system calls, so it is by their numbers.
LIKE_LIVE = """
BEGIN { printf("ready\\n"); }
tracepoint:syscalls:sys_enter_pread64 /pid == $1/ { @start[tid] = nsecs; @fd[tid] = args->fd; }
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ {
    $fd = @fd[tid];
    @reads[$fd] = count(); @bytes[$fd] = sum(args->ret); @ns[$fd] = hist(nsecs - @start[tid]);
    delete(@start[tid]); delete(@fd[tid]);
}
"""
# And for the like of `io record` and of `fileslower 0`: each read on a line.
LIKE_RECORD = """
BEGIN { printf("ready\\n"); }
tracepoint:syscalls:sys_enter_pread64 /pid == $1/ {
    @start[tid] = nsecs; @fd[tid] = args->fd; @at[tid] = args->pos; @asked[tid] = args->count;
}
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ {
    printf("%llu %s %d %d %llu %llu %lld %llu\\n", nsecs, comm, tid, @fd[tid], @at[tid], @asked[tid], args->ret, nsecs - @start[tid]);
    delete(@start[tid]); delete(@fd[tid]); delete(@at[tid]); delete(@asked[tid]);
}
"""

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
        fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        took += int(fields.get("run_time_ns", 0))
        runs += int(fields.get("run_cnt", 0))
    return took, runs


def attach(what, pid, recording):
    recording.unlink(missing_ok=True)
    command = [kit.MONGOSONAR, "io", what, "--pid", str(pid)] + ([str(recording)] if what == "record" else ["--json"])
    tracer = subprocess.Popen(command, stdout=subprocess.PIPE if what == "live" else None, stderr=subprocess.PIPE, text=True)
    said = tracer.stderr.readline()
    if "Ctrl-C ends it" not in said:
        sys.exit(f"nothing can be traced here: {said}")
    return tracer


@contextlib.contextmanager
def traced(what, pid, folder):
    """Attaches one of the tools to a process; gives the process of the tool, or none."""
    if what is None:
        yield None
        return
    if what in ("record", "live"):
        tracer = attach(what, pid, folder / "cost.msio")
        yield tracer
        tracer.send_signal(2)
        tracer.communicate()
        return
    with open(folder / f"{what}.out", "w") as out:
        if what == "fileslower":
            command = [shutil.which("fileslower-bpfcc") or "fileslower", "-p", str(pid), "0"]
        else:
            command = ["bpftrace", "-B", "line", "-e", LIKE_LIVE if what == "bpftrace-live" else LIKE_RECORD, str(pid)]
        tracer = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1", "BPFTRACE_MAP_KEYS_MAX": "65536"})
    said = folder / f"{what}.out"
    until = time.monotonic() + 60
    while not re.search(r"^(ready|Tracing .*)$", said.read_text(errors="replace"), re.M):
        if tracer.poll() is not None or time.monotonic() > until:
            tracer.kill()
            tracer.wait()
            # The last line that is no frame of a traceback is its reason.
            lines = [line for line in said.read_text(errors="replace").splitlines() if line.strip() and not line.startswith(" ")]
            raise Unable(lines[-1] if lines else "it says nothing")
        time.sleep(0.05)
    yield tracer
    tracer.send_signal(2)
    tracer.wait()


class Unable(Exception):
    """Why a tool cannot run here."""


def fetch(folder, what, recording):
    """One fetch; gives its seconds, the share of it that programs ran, and their runs."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    program = subprocess.Popen([STUDY, "fetch", folder, str(CACHE_MB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "WAIT": "1"})
    program.stdout.readline()
    took = runs = 0
    try:
        with traced(what, program.pid, recording.parent) as tracer:
            program.stdin.write("go\n")
            program.stdin.flush()
            seconds = float(program.stdout.readline().split()[3])
            if tracer:
                took, runs = run_time_ns(tracer.pid)
    except Unable:
        program.kill()
        raise
    finally:
        program.communicate()
    return seconds, took / 1e9 / seconds, runs


def cost(folder):
    STATISTICS.write_text("1")
    try:
        seconds, shares, runs = {None: [], "record": [], "live": []}, {"record": [], "live": []}, 0
        for _ in range(ROUNDS):
            for what in random.sample(list(seconds), 3):
                took, share, runs_now = fetch(folder / "hashed", what, folder / "cost.msio")
                seconds[what].append(took)
                if what:
                    shares[what].append(share)
                    runs = runs_now
    finally:
        STATISTICS.write_text("0")
    print(f"fetch through an index, {COUNT:,} documents in hashed order: {statistics.median(seconds[None]):.2f} s, {runs:,} runs of the programs")
    for what in ("record", "live"):
        share = statistics.median(shares[what]) * 100
        differences = [(b - a) / a * 100 for a, b in zip(seconds[None], seconds[what])]
        spread = 1.96 * statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
        print(
            f"  io {what}: programs ran {share:.2f} % of it (target 0.80 %: {'met' if share <= 0.8 else 'MISSED'}); "
            f"run time {statistics.mean(differences):+.1f} % ± {spread:.1f} % ({len(differences)} pairs)"
        )


def losses(folder):
    data = folder / "data"
    for what, rate in (("record", 100_000), ("live", 200_000)):
        count = rate * 10
        reader = subprocess.Popen([sys.executable, "-c", READER, data, str(rate), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
        print(f"  io {what}: {reached:,.0f} accesses/s for {count / reached:.0f} s, {lost} lost (target 0 at {rate:,}/s: {'met' if lost == 0 and reached > 0.9 * rate else 'MISSED'})")


def report(folder):
    data, recording = folder / "data", folder / "many.msio"
    count = 10_000_000
    reader = subprocess.Popen([sys.executable, "-c", READER, data, "250000", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    tracer = attach("record", reader.pid, recording)
    reader.stdin.write("go\n")
    reader.stdin.flush()
    reader.stdout.readline()
    tracer.send_signal(2)
    tracer.communicate()
    reader.communicate()
    took = []
    for _ in range(3):
        begun = time.monotonic()
        child = subprocess.Popen([kit.MONGOSONAR, "io", "report", "--json", str(recording)], stdout=subprocess.PIPE)
        out = child.stdout.read()
        _, _, usage = os.wait4(child.pid, 0)
        child.returncode = 0
        took.append((time.monotonic() - begun, usage.ru_maxrss / 1024))
    seconds, memory = min(took)[0], max(size for _, size in took)
    accesses = json.loads(out)["accesses"]
    print(
        f"report of {accesses:,} accesses ({recording.stat().st_size / accesses:.1f} bytes each): {seconds:.2f} s (target 3 s: {'met' if seconds <= 3 else 'MISSED'}), "
        f"{memory:.0f} MiB (target 300 MiB: {'met' if memory <= 300 else 'MISSED'})"
    )


@contextlib.contextmanager
def tracefs():
    """Tracepoints are attached to by bpftrace through it."""
    mounted = (TRACEFS / "events").exists() or subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], capture_output=True).returncode
    try:
        yield
    finally:
        if not mounted:
            subprocess.run(["umount", TRACEFS], check=False)


def beside(folder):
    """The same fetch under other tools, by turns with ours."""
    rows = {None: "nothing", "record": "io record", "live": "io live"}
    if shutil.which("bpftrace"):
        rows |= {"bpftrace-live": "bpftrace, by file", "bpftrace-record": "bpftrace, each read"}
    else:
        print("  beside bpftrace: skipped, it is not installed")
    if shutil.which("fileslower-bpfcc") or shutil.which("fileslower"):
        rows |= {"fileslower": "fileslower 0"}
    else:
        print("  beside fileslower: skipped, bpfcc-tools is not installed")
    found = {what: [] for what in rows}
    STATISTICS.write_text("1")
    try:
        with tracefs():
            for _ in range(ROUNDS):
                for what in random.sample(list(rows), len(rows)):
                    if what not in found:
                        continue
                    try:
                        found[what].append(fetch(folder / "hashed", what, folder / "cost.msio"))
                    except Unable as why:
                        print(f"  beside {rows[what]}: it cannot run here: {why}")
                        del found[what]
    finally:
        STATISTICS.write_text("0")
    print(f"beside bpftrace and fileslower, the same fetch by turns, {ROUNDS} rounds:")
    for what, all in found.items():
        pairs = [(with_it[0] - without[0]) / without[0] * 100 for without, with_it in zip(found[None], all)]
        spread = 1.96 * statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
        lost = ""
        if what in ("bpftrace-record", "fileslower"):
            said = (folder / f"{what}.out").read_text(errors="replace")
            lost = f", {sum(int(count) for count in LOST.findall(said)):,} events lost in the last run"
        programs = f"; programs ran {statistics.median(share for _, share, _ in all) * 100:.2f} %, {statistics.median(1e9 * s * share / max(runs, 1) for s, share, runs in all):.0f} ns each" if what else ""
        difference = f", {statistics.mean(pairs):+.1f} % ± {spread:.1f} %" if what else ""
        print(f"  {rows[what]}: {statistics.median(s for s, *_ in all):.2f} s{difference}{programs}{lost}")


def bench():
    parts = os.environ.get("PARTS", "cost losses report beside").split()
    with kit.folder(on_disk=True) as folder:
        if {"cost", "beside"} & set(parts):
            subprocess.run([STUDY, "make", folder / "hashed", "hashed", str(COUNT)], check=True)
        if not (folder / "data").exists():
            (folder / "data").write_bytes(os.urandom(16 << 20))
        for part in (cost, losses, report, beside):
            if part.__name__ in parts:
                part(folder)


kit.main(bench)
