"""A process that is called like a server withholds what others want to read of it: its program and its log are on a file
system that stops answering, or a thread of it waits for such a file system with the lock of its memory. Commands and the
agent start all the same, say so, and observe other servers."""

import contextlib
import json
import pathlib
import subprocess
import sys

import pytest
from agents import Agent
from hanging import hanging_files
from test_agent import free_port
from writing import SERVER, answering_mongod

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

WITHHELD = "left out, because they do not answer"


@contextlib.contextmanager
def withholding(tmp_path):
    """A server that answers, and one that withholds its files; yields their processes and ports."""
    ports = [free_port() for _ in range(2)]
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(tmp_path / "hung", tmp_path / "below"))
        (files.folder / "opened").touch()
        servers = []
        for folder, port in zip((tmp_path, files.point), ports, strict=True):
            (folder / "mongod.log").touch()
            options = ["--logpath", str(folder / "mongod.log")]
            opened = stack.enter_context((files.point / "opened").open())
            servers.append(stack.enter_context(answering_mongod(folder, port, *options, stdin=opened)))
        files.stop()
        yield servers, ports


def test_what_a_process_withholds_holds_up_no_command_that_starts(tmp_path):
    with withholding(tmp_path) as ((healthy, hung), ports):
        named = [word for port in ports for word in ("--port", str(port))]
        queries = ["queries", "--interface", "lo", *named, "--json", "--duration", "1s"]
        for words in [queries, [*queries, "--split"], ["why", *named, "--json", "--duration", "1s"]]:
            done = labkit.run(*words, timeout=300)
            silent = [line for line in done.stderr.splitlines() if WITHHELD in line]
            assert silent and all(line.endswith(f"processes {hung.pid}") for line in silent), done.stderr
            # Both have a file open there, and nobody asks its file system for it.
            assert "names of files" not in done.stderr, done.stderr
            if words[0] == "why":
                assert f"tracing process {min(healthy.pid, hung.pid)}" in done.stderr, done.stderr


def test_what_a_process_withholds_does_not_hold_up_the_doctor(tmp_path):
    with withholding(tmp_path) as ((healthy, hung), _):
        doctor = labkit.document("doctor", "--json", code=None, timeout=300)
        (log,) = [one for one in doctor["checks"] if one["name"] == "log"]
        assert f"({hung.pid}): its log does not answer" in log["found"], log
        assert str(tmp_path / "mongod.log") in log["found"], log


def test_what_a_process_withholds_holds_up_no_agent_that_starts(tmp_path):
    with withholding(tmp_path) as ((_, hung), ports):
        (tmp_path / "agent.toml").write_text(
            f'[collectors]\nsplit = true\n[queries]\ninterface = ["lo"]\nport = {ports}\n'
        )
        with Agent.start(tmp_path, tmp_path / "store") as life:
            seen = lambda: {one["port"] for one in (life.status() or {"servers": []})["servers"]}
            life.wait(lambda: set(ports) <= seen(), "both servers")
            assert any(WITHHELD in line and str(hung.pid) in line for line in life.errors().splitlines())
            assert life.stop() == 0


# Withholds its memory once it gets a line: MAP_FIXED has what was mapped there written first, and the file system does not
# answer. The thread that waits has the lock of the memory, for writing.
WITHHOLDS = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = libc.mmap(None, 4096, 3, 1, os.open(sys.argv[2], os.O_RDWR), 0)
ctypes.string_at(at, 1)
def withhold():
    sys.stdin.readline()
    # Not before: the kernel may write it at any time.
    ctypes.memset(at, 1, 4096)
    libc.mmap(at, 4096, 0, 0x32, -1, 0)
threading.Thread(target=withhold, daemon=True).start()
"""
# What mongosonar reads of processes without waiting in a thread of its own.
READ_AT_ONCE = "stat status limits comm cgroup mountinfo net/tcp net/tcp6 net/unix"
# Reads all of it, and says so.
READS = """
import os, sys
folder = sys.argv[1]
for name in sys.argv[2:]:
    open(f"{folder}/{name}", "rb").read()
for task in os.listdir(f"{folder}/task"):
    for name in ("stat", "status", "comm", "schedstat"):
        open(f"{folder}/task/{task}/{name}", "rb").read()
for name in ("exe", "cwd", "root", "ns/net", "ns/pid", *(f"fd/{number}" for number in os.listdir(f"{folder}/fd"))):
    os.readlink(f"{folder}/{name}")
for name in ("exe", "root"):
    os.fstat(os.open(f"{folder}/{name}", os.O_PATH))
os.stat(f"{folder}/fd")
print("all", flush=True)
"""


@contextlib.contextmanager
def withholding_memory(tmp_path):
    """A server that answers, and one that withholds its memory; yields their processes and ports."""
    ports = [free_port() for _ in range(2)]
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(tmp_path / "hung", tmp_path / "below"))
        (files.folder / "mapped").write_bytes(bytes(4096))
        healthy = stack.enter_context(answering_mongod(tmp_path, ports[0]))
        command = [tmp_path / "mongod", "-S", "-c", WITHHOLDS + SERVER, str(ports[1]), files.point / "mapped"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        hung = stack.enter_context(labkit.process(command, **pipes))
        # Else it would not end: the kernel lets nobody go who waits for this.
        stack.callback(files.child.kill)
        labkit.first_line(hung)
        files.stop()
        hung.stdin.write(b"\n")
        hung.stdin.flush()
        tasks = pathlib.Path(f"/proc/{hung.pid}/task")
        waits = lambda: any(labkit.waits_in(task.name, "mmap") for task in tasks.iterdir())
        labkit.wait_until(waits, "a process that withholds its memory")
        # Whoever needs the memory waits.
        with open(f"/proc/{hung.pid}/environ", "rb") as environment:
            reader = stack.enter_context(labkit.process(["cat"], stdin=environment, stdout=subprocess.DEVNULL))
        stack.callback(files.child.kill)
        labkit.wait_until(lambda: labkit.waits_in(reader.pid, "read"), "a reader that waits")
        yield (healthy, hung), ports


def test_what_is_read_of_a_process_at_once_never_waits_for_its_memory(tmp_path):
    with withholding_memory(tmp_path) as ((_, hung), _):
        command = [sys.executable, "-c", READS, f"/proc/{hung.pid}", *READ_AT_ONCE.split()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.stdout == "all\n", done.stderr


def test_memory_that_is_withheld_holds_up_no_command(tmp_path):
    with withholding_memory(tmp_path) as ((healthy, hung), ports):
        named = [word for port in ports for word in ("--port", str(port))]
        # It attaches to libraries and reads functions, logs and names of files: other commands do a part of that.
        for words in [
            ["why", *named, "--json", "--duration", "1s"],
            ["doctor", "--json"],
            ["disk", "check", "--dbpath", tmp_path / "below", "--json"],
        ]:
            done = labkit.run(*words, code=None, timeout=300)
            assert json.loads(done.stdout) and str(hung.pid) in done.stdout + done.stderr, (words, done.stderr)
        assert healthy.poll() is None


def test_memory_that_is_withheld_holds_up_no_agent(tmp_path):
    with withholding_memory(tmp_path) as ((_, hung), ports):
        (tmp_path / "agent.toml").write_text(
            f'[collectors]\nsplit = true\n[queries]\ninterface = ["lo"]\nport = {ports}\n'
        )
        with Agent.start(tmp_path, tmp_path / "store") as life:
            seen = lambda: {one["port"] for one in (life.status() or {"servers": []})["servers"]}
            life.wait(lambda: set(ports) <= seen(), "both servers")
            begun = life.status()["written_ns"]
            life.wait(lambda: (life.collector("machine").get("last_data_ns") or 0) > begun, "figures of the machine")
            assert life.stop() == 0
