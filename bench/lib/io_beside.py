"""bpftrace and bcc's fileslower over the fetch that `io record` and `io live` are measured over. See bench/io.sh."""

import contextlib
import importlib.util
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import time

import kit

# Not by its name: that is a module of Python's own.
spec = importlib.util.spec_from_file_location("bench_io", pathlib.Path(__file__).with_name("io.py"))
bench_io = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench_io)

TRACEFS = pathlib.Path("/sys/kernel/tracing")
LOST = re.compile(r"[Ll]ost (\d+)")
READY = re.compile(r"^(ready|Tracing .*)$", re.M)
FILESLOWER = shutil.which("fileslower-bpfcc") or shutil.which("fileslower")

# What a person would write in bpftrace for the like of `io live`: reads, bytes and latency by file. At the system calls
# it cannot give the paths of files, so it is by their numbers.
TOTALS = """
BEGIN { printf("ready\\n"); }
tracepoint:syscalls:sys_enter_pread64 /pid == $1/ { @start[tid] = nsecs; @fd[tid] = args->fd; }
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ {
    $fd = @fd[tid];
    @reads[$fd] = count(); @bytes[$fd] = sum(args->ret); @ns[$fd] = hist(nsecs - @start[tid]);
    delete(@start[tid]); delete(@fd[tid]);
}
"""
# And for the like of `io record` and of `fileslower 0`: each read on a line.
EACH = """
BEGIN { printf("ready\\n"); }
tracepoint:syscalls:sys_enter_pread64 /pid == $1/ {
    @start[tid] = nsecs; @fd[tid] = args->fd; @at[tid] = args->pos; @asked[tid] = args->count;
}
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ {
    printf("%llu %s %d %d %llu %llu %lld %llu\\n", nsecs, comm, tid, @fd[tid], @at[tid], @asked[tid], args->ret, nsecs - @start[tid]);
    delete(@start[tid]); delete(@fd[tid]); delete(@at[tid]); delete(@asked[tid]);
}
"""


class Unable(Exception):
    """Why a tool cannot run here."""


def command(what, pid):
    return {
        "totals": ["bpftrace", "-B", "line", "-e", TOTALS, str(pid)],
        "each": ["bpftrace", "-B", "line", "-e", EACH, str(pid)],
        "fileslower": [FILESLOWER, "-p", str(pid), "0"],
    }[what]


def end(tracer):
    """One that is about to wait for events may miss a signal, and is told again."""
    for _ in range(100):
        tracer.send_signal(2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tracer.wait(timeout=1)
            return
    tracer.kill()
    tracer.wait()


@contextlib.contextmanager
def traced(what, pid, folder):
    """Attaches one of the tools to a process; gives the tool's own process, or none."""
    if what is None:
        yield None
    elif what in ("record", "live"):
        tracer = bench_io.attach(what, pid, folder / "beside.msio")
        yield tracer
        tracer.send_signal(2)
        tracer.communicate()
    else:
        said = folder / what
        with said.open("w") as out:
            tracer = subprocess.Popen(
                command(what, pid), stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        until = time.monotonic() + 60
        while not READY.search(text := said.read_text(errors="replace")):
            if tracer.poll() is not None or time.monotonic() > until:
                tracer.kill()
                tracer.wait()
                # The first line that names what cannot be had, else the last that is no frame of a traceback.
                lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")]
                raise Unable(
                    next(
                        (line for line in lines if re.search("Unable|ERROR: Error|annot attach", line)),
                        lines[-1] if lines else "it says nothing",
                    )
                )
            time.sleep(0.05)
        yield tracer
        end(tracer)


def fetch(folder, what):
    """One fetch; gives its seconds, nanoseconds that the tool's programs ran, and how often they did."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    program = subprocess.Popen(
        [bench_io.STUDY, "fetch", folder / "hashed", str(bench_io.CACHE_MB)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "WAIT": "1"},
    )
    program.stdout.readline()
    took = runs = 0
    try:
        with traced(what, program.pid, folder) as tracer:
            program.stdin.write("go\n")
            program.stdin.flush()
            seconds = float(program.stdout.readline().split()[3])
            if tracer:
                took, runs = bench_io.run_time_ns(tracer.pid)
    except Unable:
        program.kill()
        raise
    finally:
        program.communicate()
    return seconds, took, runs


@contextlib.contextmanager
def tracefs():
    """bpftrace and bcc attach to tracepoints through it."""
    mounted = (
        not (TRACEFS / "events").exists()
        and subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], capture_output=True).returncode == 0
    )
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", TRACEFS], check=False)


def bench():
    names = {None: "nothing", "record": "io record", "live": "io live"}
    if shutil.which("bpftrace"):
        names |= {"totals": "bpftrace, by file", "each": "bpftrace, each read"}
    else:
        print("beside bpftrace: skipped, it is not installed")
    if FILESLOWER:
        names |= {"fileslower": "fileslower 0"}
    else:
        print("beside fileslower: skipped, bpfcc-tools is not installed")
    found = {what: [] for what in names}
    with kit.folder(on_disk=True) as folder, tracefs():
        subprocess.run([bench_io.STUDY, "make", folder / "hashed", "hashed", str(bench_io.COUNT)], check=True)
        bench_io.STATISTICS.write_text("1")
        try:
            for _ in range(bench_io.ROUNDS):
                for what in random.sample(list(found), len(found)):
                    try:
                        found[what].append(fetch(folder, what))
                    except Unable as why:
                        print(f"beside {names[what]}: it cannot run here: {why}")
                        del found[what]
        finally:
            bench_io.STATISTICS.write_text("0")
        notes = {}
        if "each" in found:
            lines = (folder / "each").read_text(errors="replace").splitlines()
            notes["each"] = (
                f"; {sum(line.split(' ')[1:2] == ['study'] for line in lines):,} lines, {sum(map(int, LOST.findall(' '.join(lines)))):,} lost"
            )
    print(f"beside bpftrace and fileslower, the same fetch by turns, {bench_io.ROUNDS} rounds:")
    for what, all in found.items():
        line = f"  {names[what]}: {statistics.median(seconds for seconds, *_ in all):.2f} s"
        if what:
            mean, half = bench_io.interval([(b[0] - a[0]) / a[0] * 100 for a, b in zip(found[None], all)])
            share = statistics.median(took / 1e9 / seconds * 100 for seconds, took, _ in all)
            runs = sum(runs for *_, runs in all)
            line += f", {mean:+.1f} % ± {half:.1f} %; programs ran {share:.2f} %, {sum(took for _, took, _ in all) / max(runs, 1):.0f} ns each{notes.get(what, '')}"
        print(line)


if __name__ == "__main__":
    kit.main(bench)
