"""The agent is killed at any moment, and its history has each line of a log once, and each window that was complete.

A writer keeps its own record of 300 lines and commands a second. In the short form there are a few kills, with LONG=1 two
hundred. Each waits for
something that the agent does, and then for a part of a second or some seconds that a seed has chosen: what is killed
depends on the machine, what must be true does not.
"""

import collections
import contextlib
import ctypes
import os
import pathlib
import random
import select
import shutil
import signal
import tempfile
import time

import pytest
from agents import Agent
from test_agent import described, free_port, slow_query
from writing import WINDOW_S, Writer, answering_mongod, iso, stored, window_of

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

KILLS = int(os.environ.get("AGENT_KILLS") or (200 if os.environ.get("LONG") else 8))
SEED = int(os.environ.get("AGENT_KILLS_SEED") or 20_261_126)
# Where the agent is when it is killed.
PHASES = ["start", "window", "commit", "reload", "start", "end", "commit", "first"]
# A window that ended so long before the kill is stored.
STORED_AFTER_S = 5
# For so long a standstill of the machine before a kill excuses a window that is not.
STANDSTILL_S = 0.2


class Changes:
    """Waits for writes into a folder (inotify(7))."""

    MODIFY = 2

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.descriptor >= 0 and libc.inotify_add_watch(self.descriptor, os.fsencode(folder), self.MODIFY) >= 0

    def wait(self, name, number):
        """Waits for the `number`-th write into a file whose name ends so."""
        deadline = time.monotonic() + 120
        while number > 0 and time.monotonic() < deadline:
            if not select.select([self.descriptor], [], [], 1)[0]:
                continue
            events, at = os.read(self.descriptor, 65_536), 0
            while at < len(events):
                length = int.from_bytes(events[at + 12 : at + 16], "little")
                number -= events[at + 16 : at + 16 + length].rstrip(b"\0").endswith(name)
                at += 16 + length
        assert number <= 0, "no writes"

    def close(self):
        os.close(self.descriptor)


class Standstills:
    """How long the thread of an agent that waited longest for a processor did so, in each second."""

    def __init__(self, life):
        self.life, self.seen = life, collections.deque(maxlen=120)

    def watch(self, stop):
        before = {}
        while not stop.wait(1):
            with contextlib.suppress(OSError):
                waited = self.life.waited_for_processor()
                longest = max((waited[thread] - before[thread] for thread in waited if thread in before), default=0)
                self.seen.append((time.time(), longest))
                before = waited

    def longest_since(self, second):
        """In seconds."""
        return max((longest for at, longest in self.seen if at >= second), default=0)


class Rotation:
    """Rotates the log, once until all lines before that are stored: of two rotations whose lines are not, the file between
    would be lost."""

    def __init__(self, writer, chance):
        self.writer, self.chance, self.may, self.done = writer, chance, True, collections.Counter()

    def rotate(self, life):
        """Perhaps. Something of the present file has been read then."""
        life.wait_until_read()
        if self.may and self.chance.random() < 0.7:
            how = self.chance.choice(["rename", "truncate"])
            self.writer.rotate = how
            labkit.wait_until(lambda: self.writer.rotate is None, "a rotation")
            self.done[how] += 1
            self.may = False


def reach(name, life, rotation, started_in):
    """Waits for the moment of a kill."""
    chance = rotation.chance
    if name == "start":
        # span: of the start, until the moment of the kill
        time.sleep(chance.uniform(0, 2 * started_in))
        return
    life.wait(life.status, "the status")
    life.watches_since = time.time()
    if name == "commit":
        changes = Changes(life.store)
        changes.wait(b".db-wal", chance.randint(1, 12))
        changes.close()
        return
    if name == "first":
        # span: of what it sees of its first window, which is stored soon after its end
        time.sleep(window_of(life.watches_since) + WINDOW_S + STORED_AFTER_S - time.time())
        return
    rotation.rotate(life)
    if name == "window":
        whole = (window_of(time.time()) + 2 * WINDOW_S) * 10**9
        life.wait(lambda: (life.status()["last_window_ns"] or 0) >= whole, "a window that it has seen all of")
        rotation.may = True
        # span: of the next window, until the moment of the kill
        time.sleep(chance.uniform(0, WINDOW_S))
    else:
        life.child.send_signal(signal.SIGHUP if name == "reload" else signal.SIGTERM)
        # span: of the reload or the end, until the moment of the kill
        time.sleep(chance.uniform(0, 0.3))


def missing(life, writer):
    """How many windows had ended long enough before the kill, and those that lack a line or a command."""
    if life.watches_since is None:
        return 0, []
    since, until = window_of(life.watches_since) + WINDOW_S, window_of(life.ended - STORED_AFTER_S)
    if until <= since:
        return 0, []
    lines, commands = stored(life.store, since, until)
    expected, lacking = writer.tallies(), []
    for window in range(since, until, WINDOW_S):
        least, most = writer.commands_of(window)
        if lines[window] != expected[window] or not least <= commands[window] <= most:
            lacking.append((iso(window), dict(lines[window]), dict(expected[window]), commands[window], (least, most)))
    return (until - since) // WINDOW_S, lacking


def missing_of_first(life, writer):
    """The window in which it began, if that lacks a line."""
    window = window_of(life.watches_since)
    lines, _ = stored(life.store, window, window + WINDOW_S)
    expected = writer.tallies()[window]
    return [] if lines[window] == expected else [(iso(window), dict(lines[window]), dict(expected))]


def check_all(store, writer, begins):
    """Each line is in its window, once, and no command is there twice."""
    expected = writer.tallies()
    recent = [window for window in expected if window >= window_of(begins)]
    spans = [(min(recent), max(recent) + WINDOW_S)]
    spans += [(window, window + WINDOW_S) for window in expected if window < window_of(begins)]
    assert len(spans) > 2, "lines of other days"
    for begin, end in spans:
        lines, commands = stored(store, begin, end)
        wrong = {
            iso(window): (dict(lines[window]), dict(expected[window]))
            for window in range(begin, end, WINDOW_S)
            if lines[window] != expected[window]
        }
        assert not wrong, wrong
        twice = {iso(window): count for window, count in commands.items() if count > writer.commands_of(window)[1]}
        assert not twice, twice


def test_whenever_it_is_killed_each_line_is_stored_once_and_no_complete_window_is_missing(tmp_path):
    port, log, chance = free_port(), tmp_path / "mongod.log", random.Random(SEED)
    # A disk that is busy with something else would delay windows.
    memory = tempfile.mkdtemp(prefix="mongosonar-kills-", dir="/dev/shm")
    store, judged, excused = pathlib.Path(memory) / "store", 0, []
    sources = "[collectors]\nfiles = false\ninternals = false\n[queries]\ntls = false\n"
    (tmp_path / "agent.toml").write_text(sources + f'interface = ["lo"]\nport = [{port}]\n' + described(port, log))
    log.touch()
    phases = [PHASES[kill % len(PHASES)] for kill in range(KILLS)]
    # The first one has to store where the log began.
    phases = ["window", *chance.sample(phases, KILLS)]
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(answering_mongod(tmp_path, port))
            life = stack.enter_context(Agent.start(tmp_path, store))
            life.wait(lambda: life.collector("log")["state"] == "working", "the log")
            begins, started_in = time.time(), time.time() - life.began
            writer = stack.enter_context(Writer(log, port, other_days=True))
            rotation = Rotation(writer, chance)
            for kill, name in enumerate(phases):
                standstills = Standstills(life)
                with labkit.in_background(standstills.watch):
                    reach(name, life, rotation, started_in)
                    life.stop(signal.SIGKILL)
                windows, lacking = missing(life, writer)
                lacking += missing_of_first(life, writer) if name == "first" else []
                judged += windows
                if lacking:
                    stood = [length for at, length in writer.stalls if at > life.ended - 30]
                    waited = standstills.longest_since(life.ended - 30)
                    print(f"kill {kill} ({name}): {lacking}; it waited {waited:.2f} s for a processor, stalls {stood}")
                    assert waited > STANDSTILL_S or stood, lacking
                    excused += lacking
                life = stack.enter_context(Agent.start(tmp_path, store))
            writer.close()
            last = time.time()
            with open(log, "ab") as file:
                # What comes after the last line is no line of the test.
                file.write(slow_query(last, "other.last").encode() + b"\n")
            life.wait(lambda: (life.collector("log").get("last_data_ns") or 0) > last * 1e9, "the last line")
            assert life.stop() == 0
        print(
            f"{len(writer.lines)} lines, {len(writer.commands)} commands, {dict(rotation.done)}, {judged} windows at kills, "
            f"{len(excused)} excused"
        )
        # The first kill waits for a window.
        assert judged > 0
        check_all(store, writer, begins)
    finally:
        shutil.rmtree(memory, ignore_errors=True)
