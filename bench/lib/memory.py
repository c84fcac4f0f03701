"""See bench/memory.sh."""

import contextlib
import fcntl
import os
import pty
import random
import struct
import subprocess
import termios
import threading
import time

from kit import (
    MIB,
    MONGOSONAR,
    Memory,
    folder,
    links,
    listening,
    main,
    process,
    processors,
    say,
    stop,
    verdict,
    wait_until,
)
from wire import Conversation, Schedule, Sender, bson, client_address, message

PORT = 27_117
CONNECTIONS, SHAPES, APPLICATIONS, HOSTS = 10_000, 2_000, 16, 32
OPERATIONS_EACH = 20
RATE = 40_000
RING_MIB = 32
LIMIT_MIB = 64
REPLY = bson({"cursor": {"id": 0, "ns": "shop.orders", "firstBatch": [{"_id": 1, "total": 5.0}]}, "ok": 1.0})


def command(shape):
    """A find of a shape of its own, about as long as finds are."""
    names = [f"field{(shape * step) % 97}" for step in (1, 3, 7)]
    condition = {"tenant": 7, f"only{shape}": "x", names[0]: {"$gt": 5, "$lt": 9}, names[1]: {"$in": [1, 2, 3]}}
    return bson(
        {
            "find": f"orders{shape % 50}",
            "filter": condition,
            "sort": {names[2]: -1},
            "limit": 10,
            "lsid": {"id": "0123456789abcdef"},
            "$db": "shop",
        }
    )


def hello(application):
    client = {
        "application": {"name": f"application-{application:02}"},
        "driver": {"name": "PyMongo", "version": "4.7.3"},
    }
    return bson({"hello": 1, "client": client, "$db": "admin"})


def schedule():
    """Every connection opens and says who it is; then all ask in turn, each time for a shape drawn by lot, and are
    answered after a while, also drawn by lot. None is closed."""
    random.seed(20)
    made, commands = Schedule(), [command(shape) for shape in range(SHAPES)]
    hellos = [hello(application) for application in range(APPLICATIONS)]
    greeting = bson({"isWritablePrimary": 1, "maxWireVersion": 21, "ok": 1.0})
    talks = []

    def add(number, frame):
        made.add(frame, 34, number)

    for number in range(CONNECTIONS):
        # Ports are given anew by who sends: what counts is on which side the client's is.
        talk = Conversation(client_address(number % HOSTS), 40_000, PORT)
        talks.append(talk)
        for _, frame in talk.handshake():
            add(number, frame)
        add(number, talk.frame(0, message(hellos[number // HOSTS % APPLICATIONS], 1)))
        add(number, talk.frame(1, message(greeting, 1, 1)))
    plan = []
    for turn in range(OPERATIONS_EACH):
        for number in range(CONNECTIONS):
            asked = turn * CONNECTIONS + number
            answered = asked + min(random.lognormvariate(5, 1.2), CONNECTIONS - 1)
            plan += [(asked, 0, number, turn), (answered, 1, number, turn)]
    for _, side, number, turn in sorted(plan):
        document = REPLY if side else commands[random.randrange(SHAPES)]
        add(number, talks[number].frame(side, message(document, 2 + turn, (2 + turn) * side)))
    return made


class Watch:
    """Looks at the memory of a process four times a second."""

    def __init__(self, pid):
        self.pid, self.seen, self.over = pid, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(0.25):
            with contextlib.suppress(OSError, KeyError):
                self.seen.append(Memory.of(self.pid))

    def report(self):
        self.over.set()
        self.thread.join()
        most = max(self.seen, key=lambda memory: memory.resident - memory.ring)
        peak = max(memory.peak for memory in self.seen)
        say(
            f"  resident {most.resident / MIB:.1f} MiB, of it the ring {most.ring / MIB:.1f} MiB; high-water mark {peak / MIB:.1f} MiB"
        )
        if most.ring < RING_MIB * MIB // 2:
            say("  the ring does not count as resident memory of the process here")
        own = max(peak - most.ring, most.resident - most.ring)
        verdict("memory beside the ring, at its peak", own / MIB, LIMIT_MIB, " MiB")


ARGUMENTS = ("--interface", "lo", "--port", str(PORT), "--ring-mib", str(RING_MIB))


def as_json(work, sender, cpu, *more):
    with listening(work, *ARGUMENTS, *more, cpu=cpu) as ear:
        watch = Watch(ear.pid)
        sender.begin(RATE, 600, 1)
        sent = sender.end()
        time.sleep(1.5)
        watch.report()
        found, intervals = ear.stop()
    coverage = found["coverage"]
    say(
        f"  {sent['frames']:,} frames in {intervals} intervals: {coverage['streams']:,} connections, {found['rows_total']:,} shapes, "
        f"{found['totals']['calls']:,} operations, {coverage['kernel_drops']:,} frames dropped"
    )
    if not more:
        check(found)


def check(found):
    coverage, rows = found["coverage"], found["rows"]
    applications = sum(len(row["apps"]) for row in rows) / max(len(rows), 1)
    hosts = sum(len(row["clients"]) for row in rows) / max(len(rows), 1)
    say(f"  a shape has the figures of {applications:.1f} applications and {hosts:.1f} client hosts")
    if coverage["streams"] != CONNECTIONS or len(rows) != SHAPES or applications < APPLICATIONS * 0.9:
        raise SystemExit(f"the listener did not hear what was made: {coverage}")


def in_live_view(sender, cpu):
    """The live view on a terminal of 160 columns and 50 lines that nobody looks at."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    drawn = []

    def terminal():
        """Takes what is drawn, and says where the cursor is when asked, as any terminal does."""
        with contextlib.suppress(OSError):
            while drawing := os.read(ours, 65_536):
                drawn.append(len(drawing))
                if b"\x1b[6n" in drawing:
                    os.write(ours, b"\x1b[1;1R")

    threading.Thread(target=terminal, daemon=True).start()
    words = [MONGOSONAR, "queries", *ARGUMENTS]
    environment = {**os.environ, "TERM": "xterm-256color"}
    pin = lambda: os.sched_setaffinity(0, {cpu})
    with process(
        words, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, preexec_fn=pin
    ) as child:
        wait_until(lambda: sum(drawn) > 1_000, "the live view")
        watch = Watch(child.pid)
        sender.begin(RATE, 600, 1)
        sender.end()
        time.sleep(1.5)
        watch.report()
        os.write(ours, b"q")
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        code = stop(child)
    if code != 0 or sum(drawn) < 10_000:
        raise SystemExit(f"the live view ended with {code} after drawing {sum(drawn)} bytes")


def bench():
    links("link set lo up")
    sending, hearing = processors()
    with folder() as work, Sender("lo", schedule(), cpu=sending) as sender:
        say("== as JSON, all rows each second")
        as_json(work, sender, hearing)
        say("== as JSON, the first ten rows each second")
        as_json(work, sender, hearing, "--limit", "10")
        say("== in the live view")
        in_live_view(sender, hearing)


main(bench)
