"""How commands end: closed terminals, signals, closed pipes, Ctrl-Z, and what is left afterwards."""

import contextlib
import errno
import fcntl
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

import labkit

pytestmark = pytest.mark.root

QUERIES = ["queries", "--interface", "lo", "--port", "1"]
FIXTURES = labkit.LAB.parent / "fixtures"
# Seconds within which a program ends, without those in which it waited for a processor.
SOON = 3.0


class Soon:
    """A span of time on the clock of some processes, which stops while they wait for a processor: other tests and
    builds run at the same time."""

    def __init__(self, pids, seconds=SOON):
        self.pids = pids
        self.delays = {}
        self.end = time.monotonic() + seconds - self.delayed()

    def delayed(self):
        """Seconds that their threads have waited for a processor (proc(5): schedstat), also those that have ended."""
        for pid in self.pids():
            # The process may end before its threads are listed.
            with contextlib.suppress(OSError):
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        self.delays[task] = int((task / "schedstat").read_text().split()[1])
        return sum(self.delays.values()) / 1e9

    def over(self):
        return time.monotonic() > self.end + self.delayed()


def wait_soon(child):
    """The exit code of a process that must end soon."""
    soon = Soon(lambda: [child.pid])
    while child.poll() is None:
        assert not soon.over(), f"{child.args} is still running"
        # span: between two looks
        time.sleep(0.02)
    return child.returncode


class Terminal:
    """A program on its own terminal; the test holds the other side."""

    def __init__(self, command, rows=24, columns=100):
        self.pid, self.side = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], [str(word) for word in command])
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.shown = b""
        self.code = None
        self.is_at_end = False

    def read(self, seconds=0.05):
        """Reads the program's output from the terminal."""
        if self.side is None:
            # span: between two looks
            time.sleep(seconds)
            return self.shown
        ready, _, _ = select.select([self.side], [], [], seconds)
        if ready:
            try:
                written = os.read(self.side, 1 << 16)
                self.shown += written
                # A terminal answers the query for the cursor's position.
                os.write(self.side, b"\x1b[1;1R" * written.count(b"\x1b[6n"))
            except OSError as error:
                assert error.errno == errno.EIO
                self.is_at_end = True
        return self.shown

    def read_all(self):
        """Reads the program's remaining output after it ended. What it wrote may still be on its way; the end is known
        when no process has the terminal any more."""
        if self.side is not None:
            labkit.wait_until(lambda: self.read() is not None and self.is_at_end, "the end of the output")

    def wait_for(self, text, seconds=120.0):
        deadline = time.monotonic() + seconds
        while text not in self.read():
            assert time.monotonic() < deadline and self.running(), f"{text!r} did not come: {self.shown[-2000:]!r}"

    def type(self, keys):
        os.write(self.side, keys)

    def close(self):
        os.close(self.side)
        self.side = None

    def running(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def end(self, seconds=SOON):
        """Waits for the exit code, which must come soon; no process of the program's session may be left."""
        soon = Soon(lambda: session(self.pid), seconds)
        while self.running():
            assert not soon.over(), f"still running: {self.shown[-2000:]!r}"
            self.read(0.05)
        self.read_all()
        labkit.wait_until(lambda: not session(self.pid), "the end of all its processes")
        return self.code

    def modes(self):
        return termios.tcgetattr(self.side)


def session(leader):
    """The processes of a session that are still running."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def on_terminal(*words, **options):
    terminal = Terminal([labkit.MONGOSONAR, *words], **options)
    try:
        yield terminal
    finally:
        for process in session(terminal.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if terminal.side is not None:
            terminal.close()
        with contextlib.suppress(ChildProcessError):
            if terminal.code is None:
                os.waitpid(terminal.pid, 0)


@pytest.fixture
def traced():
    """A process with files that are read."""
    # An exception for Ctrl-C is ignored while Python closes a file, so it would go on.
    program = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
while True: open("/etc/hostname").read(); time.sleep(0.01)
"""
    with labkit.process([sys.executable, "-c", program]) as child:
        yield child.pid


def commands(tmp_path, traced):
    """Each command that runs until it is stopped, and its output once it is running."""
    return {
        "queries": (QUERIES, b"mongosonar "),
        "queries --each": ([*QUERIES, "--each"], b"listening"),
        "queries --json": ([*QUERIES, "--json"], b'"interval"'),
        "queries --write": ([*QUERIES, "--write", tmp_path / "kept.pcapng"], b"mongosonar "),
        "queries --threads": ([*QUERIES, "--threads", "3"], b"mongosonar "),
        "queries --read -": (["queries", "--read", "-"], b""),
        "io live": (["io", "live", "--pid", traced], b"busy"),
        "io live --json": (["io", "live", "--json", "--pid", traced], b'"files"'),
        "io record": (["io", "record", tmp_path / "kept.msio", "--pid", traced], b"recording"),
        "disk stat": (["disk", "stat"], b"r/s"),
    }


NAMES = list(commands(pathlib.Path(), 0))


@pytest.mark.parametrize("how", ["closed", "SIGHUP", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize("name", NAMES)
def test_it_ends_immediately_and_leaves_nothing_behind(name, how, tmp_path, traced):
    words, shown = commands(tmp_path, traced)[name]
    with on_terminal(*words) as terminal:
        terminal.wait_for(shown)
        labkit.wait_until(lambda: catches(terminal.pid, signal.SIGTERM), "its handlers")
        if how == "closed":
            terminal.close()
        else:
            os.kill(terminal.pid, getattr(signal, how))
        assert terminal.end() == 0
    if name == "io record":
        assert labkit.document("io", "report", tmp_path / "kept.msio", "--json")
    if name == "queries --write":
        labkit.read_capture(tmp_path / "kept.pcapng")


@pytest.mark.parametrize("late", ["signal", "poll"])
@pytest.mark.parametrize("name", ["queries", "io live"])
def test_it_ends_cleanly_in_any_order_of_noticing_the_closed_terminal(name, late, traced):
    """The signal, a failed write to the terminal, and the hang-up that a thread waits for come in any order. strace delays
    the thread; a process that is not the leader of its session gets no signal."""
    arguments = QUERIES if name == "queries" else ["io", "live", "--interval", "100ms", "--pid", str(traced)]
    command = [labkit.MONGOSONAR, *map(str, arguments)]
    if late == "poll":
        if not shutil.which("strace"):
            pytest.skip("strace is not installed")
        command = [
            "strace",
            "-DDD",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=poll",
            "-e",
            "inject=poll:delay_exit=400000",
            *command,
        ]
    with on_terminal_of("bash", "-c", 'trap "" HUP; "$0" "$@"; exit $?', *command) as terminal:
        terminal.wait_for(b"mongosonar " if name == "queries" else b"busy")
        # Give it something to draw.
        terminal.type(b"n")
        terminal.close()
        assert terminal.end(seconds=10) == 0


@pytest.mark.parametrize("name", ["queries", "io live"])
def test_it_ends_cleanly_each_time_its_terminal_closes(name, traced):
    arguments = QUERIES if name == "queries" else ["io", "live", "--interval", "100ms", "--pid", traced]
    for wait in range(8):
        with on_terminal(*arguments) as terminal:
            terminal.wait_for(b"mongosonar " if name == "queries" else b"busy")
            # span: until another moment each time
            time.sleep(wait * 0.015)
            terminal.type(b"n")
            closed = time.monotonic()
            terminal.close()
            code = terminal.end()
            # What has not ended by itself after three seconds is ended: detaching may take longer on a busy machine.
            assert code == 0 or code == 128 + signal.SIGHUP and time.monotonic() - closed >= 3, (wait, code)


def catches(pid, number):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (number - 1) & 1


def test_a_terminal_that_closes_costs_no_processor_time(tmp_path, traced):
    # The program is not the leader of the session, so it gets no SIGHUP, as under sudo and ssh.
    script = 'trap "" HUP; "$0" "$@"; echo "code $?" > code'
    with contextlib.chdir(tmp_path), on_terminal_of("bash", "-c", script, labkit.MONGOSONAR, *QUERIES) as terminal:
        terminal.wait_for(b"mongosonar ")
        terminal.close()
        soon = Soon(lambda: session(terminal.pid))
        while not (tmp_path / "code").exists() or not (tmp_path / "code").read_text():
            assert not soon.over(), "still running"
            # span: between two looks
            time.sleep(0.02)
    assert (tmp_path / "code").read_text() == "code 0\n"


@contextlib.contextmanager
def on_terminal_of(*command):
    terminal = Terminal(command)
    try:
        yield terminal
    finally:
        for process in session(terminal.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if terminal.side is not None:
            terminal.close()


def test_a_closed_pipe_ends_it_before_there_is_more_to_write():
    command = [labkit.MONGOSONAR, *QUERIES, "--each"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    # Other notices may come first, for example about servers of other tests.
    assert any(b"listening" in line for line in child.stderr)
    child.stdout.close()
    assert wait_soon(child) == 0
    child.stderr.close()


def test_a_reader_that_does_not_read_does_not_block_the_end():
    """The pipe is full, so a write would block forever."""
    with open("/dev/zero", "rb") as zero:
        command = [labkit.MONGOSONAR, *QUERIES, "--json", "--interval", "10ms"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=zero)
    labkit.wait_until(lambda: waits_to_write(child.pid), "a full pipe")
    child.send_signal(signal.SIGTERM)
    assert wait_soon(child) == 128 + signal.SIGTERM
    child.stdout.close()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("queries", how) for how in ("SIGTERM", "SIGINT", "SIGHUP")),
        ("queries --write", "SIGTERM"),
        # It fills a terminal slowly.
        ("io live", "SIGTERM"),
    ],
)
def test_a_terminal_that_does_not_read_does_not_block_the_end(name, how, tmp_path, traced):
    """As after Ctrl-S in a terminal's window: the live view waits in a write."""
    words, shown = commands(tmp_path, traced)[name]
    with on_terminal(*words) as terminal:
        terminal.wait_for(shown)
        labkit.wait_until(lambda: catches(terminal.pid, signal.SIGTERM), "its handlers")

        def is_full():
            # The help, and the view again; another order.
            terminal.type(b"n" if name == "io live" else b"?")
            waits = waits_for_terminal(terminal.pid)
            # span: in which it goes on if it does not wait for the terminal
            time.sleep(0.2 if waits else 0)
            return waits and waits_for_terminal(terminal.pid)

        labkit.wait_until(is_full, "a full terminal")
        os.kill(terminal.pid, getattr(signal, how))
        soon = Soon(lambda: [terminal.pid])
        while terminal.running():
            assert not soon.over(), "still running"
            # span: between two looks
            time.sleep(0.02)
        # It ends by itself if it did not wait at that moment.
        assert terminal.code in (0, 128 + getattr(signal, how))
        # What was not shown yet is thrown away, and the terminal is as it was.
        terminal.read_all()
        assert terminal.shown.endswith(b"\x1b[?1049l\x1b[?25h"), terminal.shown[-100:]
        assert terminal.modes()[3] & termios.ICANON
    if name == "queries --write":
        labkit.read_capture(tmp_path / "kept.pcapng")


def waits_for_terminal(pid):
    stacks = pathlib.Path(f"/proc/{pid}/task").glob("*/stack")
    with contextlib.suppress(OSError):
        return any("n_tty_write" in stack.read_text() for stack in stacks)
    return False


def waits_to_write(pid):
    return "pipe_w" in pathlib.Path(f"/proc/{pid}/wchan").read_text() or "pipe_write" in stack(pid)


def stack(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stack").read_text()
    return ""


def test_under_nohup_a_hangup_changes_nothing(tmp_path):
    with open(tmp_path / "out", "wb") as out:
        with labkit.process(
            ["nohup", labkit.MONGOSONAR, *QUERIES, "--json"], stdout=out, stderr=out, stdin=subprocess.DEVNULL
        ) as child:
            labkit.wait_until(lambda: catches(child.pid, signal.SIGTERM), "its handlers")
            child.send_signal(signal.SIGHUP)
            shown = (tmp_path / "out").stat().st_size
            labkit.wait_until(lambda: (tmp_path / "out").stat().st_size > shown, "the next interval")
            assert child.poll() is None
            child.send_signal(signal.SIGTERM)
            assert wait_soon(child) == 0


@pytest.mark.parametrize("words", ["queries", "io"])
@pytest.mark.parametrize("how", ["key", "signal"])
def test_ctrl_z_gives_the_terminal_back_and_fg_draws_it_again(words, how, traced):
    arguments = QUERIES if words == "queries" else ["io", "live", "--pid", str(traced)]
    # A shell with job control, as a person uses it.
    with on_terminal_of("bash", "--norc", "--noediting", "-i") as terminal:
        terminal.type(b"PS1='ready'\"> \"; stty -echo\n")
        terminal.wait_for(b"ready> ")
        before = terminal.modes()
        terminal.type(" ".join([labkit.MONGOSONAR, *map(str, arguments)]).encode() + b"\n")
        terminal.wait_for(b"\x1b[?1049h")
        program = labkit.wait_until(
            lambda: [pid for pid in session(terminal.pid) if pid != terminal.pid and stops(pid) is not None],
            "the program",
        )[0]
        labkit.wait_until(lambda: terminal.read() and not terminal.modes()[3] & termios.ICANON, "raw mode")
        labkit.wait_until(lambda: catches(program, signal.SIGTSTP), "its handlers")
        for _ in range(2):
            terminal.read()
            terminal.shown = b""
            if how == "key":
                terminal.type(b"\x1a")
            else:
                os.kill(program, signal.SIGTSTP)
            terminal.wait_for(b"ready> ")
            assert b"\x1b[?1049l" in terminal.shown and b"Stopped" in terminal.shown
            assert stops(program)
            assert terminal.modes()[3] & termios.ICANON
            terminal.shown = b""
            terminal.type(b"fg\n")
            terminal.wait_for(b"\x1b[?1049h")
            terminal.wait_for(b"mongosonar" if words == "queries" else b"busy")
            assert not stops(program)
            labkit.wait_until(lambda: terminal.read() and not terminal.modes()[3] & termios.ICANON, "raw mode")
        terminal.shown = b""
        terminal.type(b"q")
        terminal.wait_for(b"ready> ")
        assert terminal.modes()[3] == before[3]
        terminal.type(b"exit\n")


def stops(pid):
    """Whether a process of mongosonar is stopped; `None` if it is another program."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text()
        if "mongosonar" in fields:
            return fields.rpartition(")")[2].split()[0] in "Tt"
    return None


@pytest.mark.parametrize("dies", ["make", "script", "terminal"])
def test_make_demo_leaves_no_server_and_no_files(dies, tmp_path):
    if not shutil.which("go"):
        pytest.skip("no Go to build the server with")
    # Its own network and PID namespaces, so that other servers of this machine are not visible.
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"demo:\n\t@{labkit.LAB.parent / 'scripts/run.sh'} --demo\n")
    environment = {**os.environ, "MONGOSONAR": str(labkit.MONGOSONAR), "TMPDIR": str(tmp_path)}
    inside = f"ip link set lo up; exec make -f {makefile} demo"
    command = [
        "env",
        *(f"{key}={environment[key]}" for key in ("MONGOSONAR", "TMPDIR")),
        "unshare",
        "--net",
        "bash",
        "-c",
        inside,
    ]
    with on_terminal_of(*command) as terminal:
        terminal.wait_for(b"port 27017", seconds=120)
        # It says what it does before each step that takes its time.
        steps = [terminal.shown.find(step) for step in [b"Building ", b"Starting FerretDB", b"port 27017"]]
        assert -1 < steps[0] < steps[1] < steps[2], terminal.shown
        started = session(terminal.pid)
        if dies == "terminal":
            terminal.close()
        elif dies == "make":
            os.kill(terminal.pid, signal.SIGKILL)
        else:
            script = [pid for pid in started if "run.sh" in command_line(pid)]
            os.kill(min(script), signal.SIGKILL)
        labkit.wait_until(lambda: not [pid for pid in session(terminal.pid) if pid != terminal.pid], "the end of all")
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]


def command_line(pid):
    """That of a process, or nothing if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_a_replay_draws_nothing_but_the_view():
    """Also when the recording, which takes 4 seconds, begins again."""
    recording = FIXTURES / "mongod-4.0-mixed/wire.pcap.gz"
    with on_terminal("queries", "--read", recording, "--replay") as terminal:
        terminal.wait_for(b"replay of")
        deadline = time.monotonic() + 9
        while time.monotonic() < deadline:
            terminal.read()
        assert terminal.running()
        assert b"reading" not in terminal.shown
        terminal.type(b"q")
        assert terminal.end() == 0


def in_terminal(*command, **size):
    """A program that starts when its terminal has its size."""
    terminal = Terminal(["sh", "-c", 'read -r _; exec "$@"', "sh", *command], **size)
    terminal.type(b"\n")
    return terminal


def test_a_span_of_the_history_is_shown_whole_on_a_terminal():
    # What `what-changed` advises.
    span = ["--from", "2026-11-21T21:24:00Z", "--to", "2026-11-21T21:27:00Z"]
    words = ["queries", "--utc", "--store", FIXTURES / "history", *span]
    whole = labkit.document(*words, "--json")
    clock = lambda ns: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ns / 1e9))
    start, end = clock(whole["start_ns"]), clock(whole["end_ns"])
    assert whole["end_ns"] - whole["start_ns"] > 100e9, whole
    terminal = in_terminal(labkit.MONGOSONAR, *words, rows=24, columns=100)
    terminal.wait_for(f"{start} to {end[11:19]}".encode())
    terminal.type(b"q")
    terminal.end()
    assert terminal.code == 0


def test_a_low_terminal_shows_the_rows_that_fit_and_how_to_see_the_others():
    words = ["queries", "--read", FIXTURES / "mongod-4.0-mixed/wire.pcap.gz"]
    terminal = in_terminal(labkit.MONGOSONAR, *words, rows=24, columns=100)
    terminal.end()
    # Behind the line of progress.
    lines = terminal.shown.decode().partition("Summary of")[2].splitlines()
    assert 10 < len(lines) < 24, lines
    assert any("42 more rows (--limit 52 shows all)" in line for line in lines), lines
    everything = labkit.run(*words, "--width", "100").stdout
    assert len(everything.splitlines()) > 52, everything


def test_a_view_of_the_past_ends_with_its_summary():
    """As the live view of the network does: what was asked for stays on the terminal."""
    store = labkit.LAB.parent / "fixtures/history"
    span = ["--from", "2026-11-21T21:24:00Z", "--to", "2026-11-21T21:25:00Z"]
    terminal = Terminal([labkit.MONGOSONAR, "queries", "--utc", "--store", store, *span])
    terminal.wait_for(b"shop.orders")
    terminal.type(b"q")
    assert terminal.end() == 0
    shown = terminal.shown.decode()
    assert "Summary of 1m00s: 2026-11-21T21:24:00" in shown.rpartition("\x1b[?1049l")[2], shown


@pytest.mark.parametrize("command", ["record", "live"])
def test_a_server_that_does_not_answer_holds_up_no_command_beyond_its_duration(command, silent, tmp_path):
    words = ["record", tmp_path / "kept.msio"] if command == "record" else ["live", "--json"]
    command = [labkit.MONGOSONAR, "io", *words, "--pid", os.getpid(), "--duration", "1s", "--uri", silent]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with labkit.process(command, **pipes) as child:
        first = child.stderr.readline()
        if "no permission to trace" in first:
            pytest.skip(first)
        assert "Ctrl-C ends it" in first, first
        output = child.communicate(timeout=120)[1]
    assert "the server has not answered" in output, output
    # A recording has begun, and is kept.
    assert child.returncode == (0 if words[0] == "record" else 1), output
