"""What the benches share: builds, processes and their costs, statistics, and the report of a figure.

A bench leaves nothing behind: processes end and files are removed at the end of a `with`, also after Ctrl-C and
SIGTERM.
"""

import contextlib
import ctypes
import dataclasses
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
MONGOSONAR = TARGET / "release/mongosonar"
EXAMPLES = TARGET / "release/examples"
RECORDING = ROOT / "fixtures/mongod-4.0-mixed/wire.pcap.gz"
RECORDING_PORT = 27117
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
CLONE_NEWNET = 0x4000_0000
LONG = bool(os.environ.get("LONG"))
CARGO_BENCH = ["cargo", "bench", "--quiet", "--locked", "--manifest-path", ROOT / "Cargo.toml", "-p", "sonar-decode"]
CARGO_BENCH += ["--features", "bench"]
# Where cargo, Go, mtools and the system's tools are, if they are not in PATH.
PLACES = (pathlib.Path.home() / ".cargo/bin", "/usr/local/go/bin", ROOT / "bench/.venv/bin", "/usr/sbin", "/sbin")
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), *map(str, PLACES)])


# Figures: printed for people, and written to the file that MONGOSONAR_FIGURES names, a JSON object on each line.


def record(**entry):
    if path := os.environ.get("MONGOSONAR_FIGURES"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def say(text=""):
    """Prints a line that docs/performance.md does not show."""
    print(text, flush=True)


def note(text):
    """Prints a line that docs/performance.md shows below the table."""
    say(f"  {text}")
    record(note=text)


def skipped(why):
    """Reports a part that was not measured."""
    say(f"skipped: {why}")
    record(skipped=why)


def skip(why):
    """Ends a bench that cannot run here. This is no failure."""
    skipped(why)
    sys.exit(0)


def quantity(value, unit=""):
    """A number with its unit, with three digits or down to the unit."""
    number = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()


def figure(
    what,
    value,
    unit="",
    *,
    peer=None,
    peer_value=None,
    limit=None,
    least=None,
    share=None,
    judged=None,
    note="",
):
    """Reports a figure beside its peer and its limit; returns whether the limit is met, None without one.

    The limit is one of: `limit`, the largest value; `least`, the smallest one; `share` of the peer's value, at most;
    `judged`, a rule in words and whether the figure meets it. `note` follows the value.
    """
    bound, met = "", None
    if limit is not None:
        bound, met = f"at most {quantity(limit, unit)}", value <= limit
    elif least is not None:
        bound, met = f"at least {quantity(least, unit)}", value >= least
    elif share is not None:
        bound, met = f"at most {quantity(100 * share)} % of {peer}", value <= share * peer_value
    elif judged is not None:
        bound, met = judged
    ours = quantity(value, unit) + (f" {note}" if note else "")
    beside = ""
    if peer is not None:
        ratio = f", {quantity(peer_value / value)} × ours" if value else ""
        beside = f"{peer}: {quantity(peer_value, unit)}{ratio}"
    mark = "" if met is None else "met" if met else "missed"
    say(
        f"  {what}: "
        + "; ".join(filter(None, (ours, beside, f"{bound}: {mark.replace('missed', 'MISSED')}" * bool(bound))))
    )
    record(figure=what, ours=ours, peer=beside, limit=bound, mark=mark)
    return met


# Statistics.


def rounds(usual, long):
    """How many rounds to measure: $ROUNDS if it is set, `long` with LONG=1, else `usual`."""
    return int(os.environ.get("ROUNDS") or (long if LONG else usual))


def median(values):
    return statistics.median(values)


# Quantiles of Student's t, two-sided 95 %, from 1 degree of freedom; Cornish and Fisher's expansion has three digits
# beyond them.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def interval(values):
    """Mean of some values, and half the width of its 95 % interval (NaN for a single value)."""
    values = list(values)
    freedom = len(values) - 1
    if freedom < 1:
        return values[0], math.nan
    t = T[freedom - 1] if freedom <= len(T) else 1.96 + 2.372 / freedom + 2.823 / freedom**2
    return statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values))


def ratio_interval(ratios):
    """Geometric mean of some ratios, and the ends of its 95 % interval."""
    mean, half = interval(map(math.log, ratios))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


# Preparations.


def build(*arguments):
    """Builds a package or an example with the release profile."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", *arguments]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit(f"{' '.join(command)} failed")


def build_go(folder, program, package):
    """Builds a Go program of the lab into lab/bin; returns its path, None without Go."""
    if not shutil.which("go"):
        return None
    path = ROOT / "lab/bin" / program
    if subprocess.run(["go", "build", "-trimpath", "-o", path, package], cwd=ROOT / folder).returncode != 0:
        sys.exit(f"{package} of {folder} does not build")
    return path


def make_lab(target, needs):
    """Builds a program of the lab; skips the bench if that fails."""
    if subprocess.run(["make", "--no-print-directory", "-s", "-C", ROOT / "lab", target]).returncode != 0:
        skip(f"lab/{target} cannot be built; it needs {needs}")


def enter_network_namespace():
    """Moves this process into a network namespace of its own, which vanishes with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")


def main(bench, alone=False):
    """Runs a bench so that it always cleans up; `alone` in a network namespace of its own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if alone:
        if os.geteuid() != 0:
            skip("it needs root: it captures in a network namespace of its own")
        if not shutil.which("ip"):
            skip("ip (iproute2) is not installed")
        try:
            enter_network_namespace()
        except OSError as why:
            skip(str(why))
    try:
        with first_in_line():
            bench()
    except KeyboardInterrupt:
        sys.exit(130)


@contextlib.contextmanager
def first_in_line():
    """Asks the scheduler to run this process first: by nice, and where processors are shared among sessions
    (sched(7), autogroup) by the nice of this session, until the end."""
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
    """A temporary folder: in memory if there is room, so that no disk is measured; `on_disk` for files that are read
    from the page cache of a file system, which is faster than that of tmpfs."""
    memory = "/dev/shm"
    has_room = not on_disk and os.path.isdir(memory) and shutil.disk_usage(memory).free > 4 << 30
    path = pathlib.Path(tempfile.mkdtemp(prefix="mongosonar-bench-", dir=memory if has_room else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclasses.dataclass
class Run:
    """Time (seconds) and peak memory (bytes) of a command."""

    wall: float
    user: float
    system: float
    rss: int

    @property
    def cpu(self):
        return self.user + self.system


def pinned(cpu):
    """Options of Popen for a child that runs on this processor only; none for None."""
    return {} if cpu is None else {"preexec_fn": lambda: os.sched_setaffinity(0, {cpu})}


def run(command, cpu=None, into=None):
    """Runs a command to its end, on processor `cpu`, with its standard output in the file `into`."""
    with open(into or os.devnull, "wb") as out, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command],
            stdout=out,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            **pinned(cpu),
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
            sys.exit(f"{command[0]} ended with {child.returncode}: {errors.read().decode(errors='replace')[-2000:]}")
    # A process begins as a copy of this one, so its peak is at least ours; a smaller peak cannot be measured.
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Run(wall, used.ru_utime, used.ru_stime, max(used.ru_maxrss, floor) * 1024)


def runs(times, command, **options):
    """Several runs."""
    return [run(command, **options) for _ in range(times)]


def output(command):
    """Standard output of a command, which must succeed."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def callgrind(command):
    """Instructions of all threads of a command in user mode, and its standard output."""
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run([str(word) for word in [*tool, *command]], capture_output=True, text=True)
    counted = re.findall(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not counted:
        sys.exit(f"valgrind could not count {command[0]}: {done.stderr[-2000:]}")
    return max(map(int, counted)), done.stdout


def instructions_each(command, few, many):
    """Instructions of one of the rounds that `command(rounds)` runs: the difference of a run of `many` and one of
    `few`, so without the start-up."""
    return (callgrind(command(many))[0] - callgrind(command(few))[0]) / (many - few)


def processors():
    """A processor to send on and another to measure on; the same one if there is only one. Interrupts tend to go to
    the first."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def last_processor():
    """The processor to measure on."""
    return processors()[1]


def multiply(target, copies, *options):
    """Makes a large capture from the recording; returns its numbers of frames and bytes."""
    script = ROOT / "bench/lib/multiply.py"
    return json.loads(output([sys.executable, "-B", script, RECORDING, target, copies, *options]))


def summary(path):
    """The summary that `mongosonar queries --json` wrote to a file, and the number of intervals before it."""
    with open(path, encoding="utf-8") as file:
        objects = [json.loads(line) for line in file if line.endswith("\n")]
    found = [one for one in objects if one.get("kind") == "summary"]
    if not found:
        sys.exit(f"no summary in {path}")
    return found[-1], len(objects) - len(found)


# Processes that are measured while they run.


@contextlib.contextmanager
def process(command, **options):
    """Runs a program in the background until the end of the block; ends it with SIGINT, or else SIGKILL."""
    child = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield child
    finally:
        stop(child)


def stop(child, seconds=10):
    """Ends a program; returns its exit code."""
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
            sys.exit(f"{what} did not appear within {seconds:.0f} s")
        time.sleep(0.02)
    return value


def processor_time(pid):
    """Processor time of a process in seconds, user and system together, to the nanosecond (schedstat)."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclasses.dataclass
class Memory:
    """Resident memory of a process in bytes: all of it, the part that is a packet ring, and its high-water mark."""

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
    """Seconds that all processors have spent in software interrupts since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[7]) / TICKS


@dataclasses.dataclass
class Capture:
    """A running `mongosonar queries --json`."""

    child: subprocess.Popen
    out: pathlib.Path
    errors: pathlib.Path

    @property
    def pid(self):
        return self.child.pid

    def stop(self):
        """Ends it; returns its summary and the number of intervals."""
        code = stop(self.child)
        if code != 0:
            sys.exit(f"mongosonar ended with {code}: {self.errors.read_text()}")
        return summary(self.out)


def rings(pid):
    """The number of running packet sockets in the network namespace of a process."""
    with open(f"/proc/{pid}/net/packet", encoding="ascii") as table:
        next(table)
        return sum(row.split()[5] == "1" for row in table)


@contextlib.contextmanager
def capturing(work, *arguments, cpu=None):
    """Runs `mongosonar queries --json ARGUMENTS`, on processor `cpu`; the block begins when it captures."""
    out, errors = work / "live.json", work / "live.errors"
    with open(out, "wb") as stdout, open(errors, "wb") as stderr:
        command = [MONGOSONAR, "queries", "--json", *arguments]
        with process(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, **pinned(cpu)) as child:

            def running():
                if child.poll() is not None:
                    sys.exit(f"mongosonar ended: {errors.read_text()}")
                return rings(child.pid)

            wait_until(running, "the ring of mongosonar")
            yield Capture(child, out, errors)


def links(*commands):
    """Runs `ip` for each command."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
