"""Tools that can be attached to a process while it reads: `io record` and `io live`, bpftrace, bcc's fileslower, and
eBPF programs that do nothing."""

import contextlib
import ctypes
import os
import pathlib
import platform
import re
import shutil
import signal
import struct
import subprocess

from lib.kit import MONGOSONAR, process, wait_until

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_BPF = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, RAW_TRACEPOINT_OPEN, RAW_TRACEPOINT = 5, 17, 17
KTIME_GET_NS = 5
# call bpf_ktime_get_ns; r0 = 0; exit
CLOCK, NOTHING = struct.pack("<BBhi", 0x85, 0, 0, KTIME_GET_NS), struct.pack("<BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
STATISTICS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
TRACEFS = pathlib.Path("/sys/kernel/tracing")
FILESLOWER = shutil.which("fileslower-bpfcc") or shutil.which("fileslower")

# The bpftrace script that a person would write instead of `io live`: reads, bytes and latency by file. At the system
# calls it cannot give the paths of files, only their descriptors.
TOTALS = """
BEGIN { printf("ready\\n"); }
tracepoint:syscalls:sys_enter_pread64 /pid == $1/ { @start[tid] = nsecs; @fd[tid] = args->fd; }
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ {
    $fd = @fd[tid];
    @reads[$fd] = count(); @bytes[$fd] = sum(args->ret); @ns[$fd] = hist(nsecs - @start[tid]);
    delete(@start[tid]); delete(@fd[tid]);
}
"""
# And instead of `io record`, as `fileslower 0` does: each read on a line.
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
# Peers that are attached to a process: command, and the program it needs.
PEERS = {
    "bpftrace, totals by file": lambda pid: ["bpftrace", "-B", "line", "-e", TOTALS, str(pid)],
    "bpftrace, each read": lambda pid: ["bpftrace", "-B", "line", "-e", EACH, str(pid)],
    "fileslower 0": lambda pid: [FILESLOWER or "fileslower", "-p", str(pid), "0"],
}


class Unable(Exception):
    """Why a tool cannot run here."""


def run_time(pid):
    """Nanoseconds that the eBPF programs of a process have run, and how often, by its open files (bpf_stats)."""
    took = runs = 0
    for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
            took += int(fields.get("run_time_ns", 0))
            runs += int(fields.get("run_cnt", 0))
    return took, runs


@contextlib.contextmanager
def mongosonar(what, pid, recording, stdout=subprocess.DEVNULL):
    """`io record` or `io live` of a process; the block begins when it has attached."""
    recording.unlink(missing_ok=True)
    command = [MONGOSONAR, "io", what, "--pid", pid, *([recording] if what == "record" else ["--json"])]
    with process(command, stdout=stdout, stderr=subprocess.PIPE, text=True) as child:
        first = child.stderr.readline()
        if "Ctrl-C ends it" not in first:
            raise Unable(first.strip())
        yield child


@contextlib.contextmanager
def peer(name, pid, folder):
    """One of the PEERS on a process; the block begins when it has attached. Its output goes into a file of its name."""
    printed = folder / name
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with printed.open("w") as out, process(PEERS[name](pid), stdout=out, stderr=out, env=environment) as child:
        ready = lambda: re.search(r"^(ready|Tracing .*)$", printed.read_text(errors="replace"), re.M)
        wait_until(lambda: ready() or child.poll() is not None, name, 60)
        if child.poll() is not None:
            # The line that names the reason, or else the last one that does not belong to a traceback.
            lines = [line for line in printed.read_text(errors="replace").splitlines() if line and line[0] != " "]
            reasons = [line for line in lines if re.search("Unable|ERROR: Error|annot attach", line)]
            raise Unable((reasons or lines[-1:] or ["no message"])[0])
        yield child
        # A tool that is about to wait for events may miss the first signal.
        for _ in range(100):
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1)
                break


@contextlib.contextmanager
def empty(with_clock):
    """Two eBPF programs at both ends of every system call that do nothing, or only read the clock: the lowest cost of
    any program there, and of one that measures time."""
    code = ctypes.create_string_buffer((CLOCK if with_clock else b"") + NOTHING)
    licence = ctypes.create_string_buffer(b"GPL")
    addresses = ctypes.addressof(code), ctypes.addressof(licence)
    with contextlib.ExitStack() as opened:
        for name in (b"sys_enter", b"sys_exit"):
            program = _bpf(PROG_LOAD, struct.pack("<IIQQ", RAW_TRACEPOINT, (len(code) - 1) // 8, *addresses))
            opened.callback(os.close, program)
            point = ctypes.create_string_buffer(name)
            link = _bpf(RAW_TRACEPOINT_OPEN, struct.pack("<QI", ctypes.addressof(point), program))
            opened.callback(os.close, link)
        yield


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    fd = LIBC.syscall(SYS_BPF[platform.machine()], command, buffer, len(buffer))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "bpf: " + os.strerror(ctypes.get_errno()))
    return fd


@contextlib.contextmanager
def traced(what, pid, bystander, folder):
    """Traces process `pid` in this way (`bystander`: that process instead); the value is a function that returns the
    `run_time` of the programs."""
    with contextlib.ExitStack() as stack:
        if what in ("empty", "clock"):
            stack.enter_context(empty(what == "clock"))
            yield lambda: run_time("self")
        elif what in PEERS:
            child = stack.enter_context(peer(what, pid, folder))
            yield lambda: run_time(child.pid)
        elif what:
            how, whom = ("live", bystander) if what == "bystander" else (what, pid)
            child = stack.enter_context(mongosonar(how, str(whom), folder / "recording"))
            yield lambda: run_time(child.pid)
        else:
            yield lambda: (0, 0)


@contextlib.contextmanager
def statistics_on():
    """The kernel counts the run time of eBPF programs, and bpftrace finds the tracepoints, during the block."""
    mounted = (
        not (TRACEFS / "events").exists()
        and not subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], capture_output=True).returncode
    )
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text("0")
        if mounted:
            subprocess.run(["umount", TRACEFS], check=False)
