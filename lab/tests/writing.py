"""A writer of log lines and of commands on the wire that keeps its own record of both."""

import collections
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import threading
import time
from bisect import bisect_left

import labkit

WINDOW_S = 10
# A turn has one command and one line.
TURNS_PER_SECOND = 150
# So many lines in a row are about one collection, and there are so many of these.
LINES_PER_COLLECTION, COLLECTIONS = 100, 40
# An operation that took so long, in milliseconds, plus the number of its line: the sum tells which lines were counted.
LEAST_MS = 100
DAY_S = 86_400
# A line of another day comes once in so many.
OTHER_DAY = 1_500

# {find: "wire", filter: {x: 1}, $db: "kills"} and {ok: 1.0} in BSON, without their lengths.
COMMAND = b"\x02find\0\x05\0\0\0wire\0\x03filter\0\x0c\0\0\0\x10x\0\x01\0\0\0\0\x02$db\0\x06\0\0\0kills\0\0"
ANSWER = b"\x01ok\0\0\0\0\0\0\0\xf0\x3f\0"


def message(number, answered, document):
    body = struct.pack("<IBI", 0, 0, 4 + len(document)) + document
    return struct.pack("<iiii", 16 + len(body), number, answered, 2013) + body


# Answers each message with {ok: 1}. It is run by a Python that is called mongod, so that the agent finds it.
SERVER = f"""
import signal, socket, struct, sys, threading
signal.signal(signal.SIGINT, signal.SIG_DFL)
def serve(one):
    with one, one.makefile("rb") as read:
        while len(head := read.read(16)) == 16:
            length, number, _, _ = struct.unpack("<iiii", head)
            read.read(length - 16)
            body = struct.pack("<IBI", 0, 0, {4 + len(ANSWER)}) + {ANSWER!r}
            one.sendall(struct.pack("<iiii", 16 + len(body), number + 1, number, 2013) + body)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    print("ready here:0", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@contextlib.contextmanager
def answering_mongod(folder, port, *options, **how):
    """A process called mongod, with these options, that answers every command on this port; it costs next to nothing. `how` is
    for subprocess.Popen."""
    program = folder / "mongod"
    if not program.exists():
        real = subprocess.run(
            ["python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))"], capture_output=True, text=True
        )
        shutil.copy(real.stdout.strip(), program)
    command = [program, "-S", "-c", SERVER, str(port), *options]
    with labkit.process(command, stdout=subprocess.PIPE, **how) as child:
        labkit.first_line(child)
        yield child


def line_of(number, second):
    """A line of a log about a slow query, with its number in its duration."""
    at = datetime.datetime.fromtimestamp(second, datetime.UTC).isoformat(timespec="milliseconds")
    name = f"lines{number // LINES_PER_COLLECTION % COLLECTIONS}"
    attributes = {
        "type": "command",
        "ns": f"kills.{name}",
        "command": {"find": name, "filter": {"user": 1}, "$db": "kills"},
        "planSummary": "COLLSCAN",
        "durationMillis": LEAST_MS + number,
    }
    head = {"t": {"$date": at}, "s": "I", "c": "COMMAND", "id": 51803, "ctx": "conn7", "msg": "Slow query"}
    return json.dumps(head | {"attr": attributes}, separators=(",", ":")) + "\n"


def window_of(second):
    return int(second) // WINDOW_S * WINDOW_S


class Tally(collections.Counter):
    """Lines, and the sum of their durations in milliseconds: equal only if they are the same lines."""

    def add(self, number):
        self["lines"] += 1
        self["ms"] += LEAST_MS + number


class Writer:
    """Writes lines into a log, which it rotates when it is asked to, and sends commands to a port."""

    def __init__(self, log, port, other_days=False, turns=TURNS_PER_SECOND):
        self.log, self.port, self.other_days, self.turn_s = pathlib.Path(log), port, other_days, 1 / turns
        self.lock, self.running, self.rotate = threading.Lock(), contextlib.ExitStack(), None
        # The time of each line, and of each command when it was sent and answered.
        self.lines, self.commands, self.rotations = [], [], []
        # When the writer stood still: then the machine did.
        self.stalls = []

    def __enter__(self):
        self.running.enter_context(labkit.in_background(self.run))
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Writes nothing more."""
        self.running.close()

    def run(self, stop):
        with socket.create_connection(("127.0.0.1", self.port)) as wire, wire.makefile("rb") as answers:
            file, last = open(self.log, "ab", buffering=0), time.monotonic()
            while not stop.wait(max(0, last + self.turn_s - time.monotonic())):
                now = time.monotonic()
                if now - last > 0.1:
                    self.stalls.append((time.time(), now - last))
                # Late turns are made up for, but not all at once.
                last = max(last + self.turn_s, now - 0.1)
                if self.rotate:
                    file, self.rotate = self.rotated(file, self.rotate), None
                number, second = len(self.lines), time.time()
                if self.other_days and number % OTHER_DAY in (OTHER_DAY - 1, OTHER_DAY - 2):
                    # Around the midnight before the last one: its windows are in the files of two other days.
                    second = second // DAY_S * DAY_S - DAY_S - 3 + 5 * (number % 2)
                file.write(line_of(number, second).encode())
                with self.lock:
                    self.lines.append(second)
                begun = time.time_ns()
                wire.sendall(message(number + 1, 0, COMMAND))
                answers.read(struct.unpack("<i", answers.read(4))[0] - 4)
                with self.lock:
                    self.commands.append((begun, time.time_ns()))
            file.close()

    def rotated(self, file, how):
        """Rotates the log; gives the file to write to."""
        old = self.log.with_name(f"{self.log.name}.{len(self.rotations)}")
        if how == "rename":
            self.log.rename(old)
            file.close()
            file = open(self.log, "ab", buffering=0)
        else:
            shutil.copy(self.log, old)
            os.truncate(self.log, 0)
        with self.lock:
            self.rotations.append((time.time_ns(), how))
        # Nobody needs so old ones.
        self.log.with_name(f"{self.log.name}.{len(self.rotations) - 5}").unlink(missing_ok=True)
        return file

    def tallies(self, until=None):
        """What each window has of the lines so far."""
        with self.lock:
            lines = list(self.lines)
        found = collections.defaultdict(Tally)
        for number, second in enumerate(lines[:until]):
            found[window_of(second)].add(number)
        return found

    def commands_of(self, window):
        """At least and at most so many commands are of this window."""
        begin, end = window * 10**9, (window + WINDOW_S) * 10**9
        with self.lock:
            # One after the other, so both are in order.
            sent, answered = ([one[at] for one in self.commands] for at in (0, 1))
        inside = bisect_left(answered, end) - bisect_left(sent, begin)
        touching = bisect_left(sent, end) - bisect_left(answered, begin)
        return max(inside, 0), touching


def stored(store, begin, end, port=None):
    """By window: a tally of its lines, and the number of its commands on the wire; of one server, or of all."""
    lines, commands = collections.defaultdict(Tally), collections.Counter()
    for one in queries(store, begin, end, "--interval", f"{WINDOW_S}s"):
        start = one["start_ns"] // 10**9
        for row in one["rows"] if one["kind"] == "interval" else []:
            if port and not row["server"].endswith(f":{port}"):
                continue
            if row["collection"] == "wire":
                commands[start] += row["calls"]
            elif str(row["collection"]).startswith("lines"):
                lines[start]["lines"] += row["calls"]
                lines[start]["ms"] += row["latency_ns"]["sum"] // 10**6
    return lines, commands


def queries(store, begin, end, *arguments):
    """What `queries` prints of a span of the history."""
    words = ["--json", *labkit.EVERYTHING, "--limit", "100000", "--from", iso(begin), "--to", iso(end), *arguments]
    done = labkit.run("queries", "--store", store, *words, code=None, timeout=300)
    if done.returncode == 1 and "nothing is stored" in done.stderr:
        return []
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def iso(second):
    return datetime.datetime.fromtimestamp(second, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
