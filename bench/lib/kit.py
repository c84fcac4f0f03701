"""What the benches have in common: processes and what they cost, and how a figure stands beside its target.

A bench is meant to leave nothing behind: processes are ended and files removed at the end of a `with`, also
after Ctrl-C and SIGTERM.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MONGOSONAR = os.environ["MONGOSONAR"]
RECORDING = ROOT / "fixtures/mongod-4.0-mixed/wire.pcap.gz"
RECORDING_PORT = 27117
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


def main(bench):
    """Runs a bench, so that any end of it is an orderly one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with first_in_line():
            bench()
    except KeyboardInterrupt:
        sys.exit(130)


@contextlib.contextmanager
def first_in_line():
    """Other work on the machine gives way, as far as we may ask for that: by nice, and where the scheduler
    shares processors among sessions (sched(7), autogroup) by the nice of this session, until the end."""
    group = pathlib.Path("/proc/self/autogroup")
    before = None
    with contextlib.suppress(OSError):
        os.nice(-15)
    with contextlib.suppress(OSError, ValueError):
        before = int(group.read_text().rpartition(" ")[2])
        group.write_text("-15")
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(OSError):
                group.write_text(str(before))


@contextlib.contextmanager
def folder(on_disk=False):
    """A folder for large files, in memory where there is room for them, so that no disk is measured; `on_disk` for
    files that are read from the page cache of a file system, which is quicker than that of tmpfs."""
    memory = "/dev/shm"
    room = not on_disk and os.path.isdir(memory) and shutil.disk_usage(memory).free > 4 << 30
    path = pathlib.Path(tempfile.mkdtemp(prefix="mongosonar-bench-", dir=memory if room else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclasses.dataclass
class Run:
    """What a command took, in seconds and bytes."""

    wall: float
    user: float
    system: float
    rss: int

    @property
    def cpu(self):
        return self.user + self.system


def run(command, cpu=None, output=None):
    """Runs a command to its end, on one processor if `cpu` says which."""
    pin = (lambda: os.sched_setaffinity(0, {cpu})) if cpu is not None else None
    with open(output or os.devnull, "wb") as out, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command],
            stdout=out,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            preexec_fn=pin,
        )
        try:
            _, status, used = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            child.wait()
            raise
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            raise SystemExit(
                f"{command[0]} ended with {child.returncode}: {errors.read().decode(errors='replace')[-2000:]}"
            )
    # A process begins as a copy of this one, which counts; a peak below our own is not known exactly.
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Run(wall, used.ru_utime, used.ru_stime, max(used.ru_maxrss, floor) * 1024)


def runs(times, command, **options):
    """Several runs."""
    return [run(command, **options) for _ in range(times)]


def median(values):
    return statistics.median(values)


def last_processor():
    """A processor to measure on: the last one that may be used, as interrupts tend to go to the first."""
    return max(os.sched_getaffinity(0))


def processors():
    """One processor for who sends and another for who listens; the same one when there is no other."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def multiply(target, copies, *options):
    """Makes a large capture of the recording; gives what it holds."""
    script = ROOT / "bench/multiply.py"
    command = [sys.executable, "-B", script, RECORDING, target, copies, *options]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def summary(path):
    """The summary among the objects that `mongosonar queries --json` wrote, and how many intervals."""
    with open(path, encoding="utf-8") as file:
        objects = [json.loads(line) for line in file if line.endswith("\n")]
    found = [one for one in objects if one.get("kind") == "summary"]
    if not found:
        raise SystemExit(f"no summary in {path}")
    return found[-1], len(objects) - len(found)


def say(text=""):
    print(text, flush=True)


def verdict(what, value, limit, unit="", least=False):
    """Prints a figure beside its target; says whether it is met."""
    met = value >= limit if least else value <= limit
    bound = "at least" if least else "at most"
    mark = "met" if met else "MISSED"
    number = lambda x: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"
    say(f"  {what}: {number(value)}{unit} (target: {bound} {number(limit)}{unit}) {mark}")
    return met


# Processes that are measured while they run.


@contextlib.contextmanager
def process(command, **options):
    """Runs a program beside, and ends it at the end of the block, by SIGINT first."""
    child = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield child
    finally:
        stop(child)


def stop(child, seconds=10):
    """Asks a program to end; gives its exit code."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return child.returncode


def wait_until(condition, what, seconds=20.0):
    """Returns the first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: did not come within {seconds:.0f} s")
        time.sleep(0.02)
    return value


def processor_time(pid):
    """Seconds that the threads of a process ran, user and system together, to the nanosecond (schedstat)."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclasses.dataclass
class Memory:
    """Resident memory of a process in bytes: all, the part that is a packet ring, and the rest at its peak."""

    resident: int
    ring: int
    peak: int

    @classmethod
    def of(cls, pid):
        ring, within = 0, False
        with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if "-" in line.split(" ", 1)[0]:
                    within = "socket:[" in line
                elif within and line.startswith("Rss:"):
                    ring += int(line.split()[1]) * 1024
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(line.split(":", 1) for line in file)
        kib = lambda name: int(status[name].split()[0]) * 1024
        return cls(kib("VmRSS"), ring, kib("VmHWM"))


def softirq():
    """Seconds that all processors spent in software interrupts since the machine began."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[7]) / TICKS


@dataclasses.dataclass
class Listening:
    """mongosonar as it listens."""

    child: subprocess.Popen
    out: pathlib.Path
    errors: pathlib.Path

    @property
    def pid(self):
        return self.child.pid

    def stop(self):
        """Ends it; gives its summary and the number of intervals."""
        code = stop(self.child)
        if code != 0:
            raise SystemExit(f"mongosonar ended with {code}: {self.errors.read_text()}")
        return summary(self.out)


def rings(pid):
    """How many packet sockets run in the network namespace of a process."""
    with open(f"/proc/{pid}/net/packet", encoding="ascii") as table:
        next(table)
        return sum(row.split()[5] == "1" for row in table)


@contextlib.contextmanager
def listening(work, *arguments, cpu=None):
    """`mongosonar queries --json ARGUMENTS`, from when its ring runs; on one processor if `cpu` says which."""
    out, errors = work / "live.json", work / "live.errors"
    with open(out, "wb") as stdout, open(errors, "wb") as stderr:
        command = [MONGOSONAR, "queries", "--json", *arguments]
        pin = (lambda: os.sched_setaffinity(0, {cpu})) if cpu is not None else None
        with process(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, preexec_fn=pin) as child:

            def running():
                if child.poll() is not None:
                    raise SystemExit(f"mongosonar ended: {errors.read_text()}")
                return rings(child.pid)

            wait_until(running, "the ring of mongosonar")
            yield Listening(child, out, errors)


def links(*commands):
    """Runs `ip` for each command."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
