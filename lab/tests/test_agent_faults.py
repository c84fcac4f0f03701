"""What a running agent withstands: clients that make up shapes, a store that is slow under hostile traffic, and hours of
work."""

import contextlib
import itertools
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time

import pymongo
import pytest
from test_agent import agent, append, described, free_port, slow_query
from test_agent_memory import held_and_used
from test_privileges import tasks
from writing import Writer, answering_mongod

import labkit

pytestmark = pytest.mark.root

MIB = 1 << 20
# More than a window, a minute or an hour keeps apart (10,000 rows).
SHAPES = 12_000
MAX_ROWS = 10_000
# Bits of a set of capabilities (linux/capability.h).
PERFMON, BPF = 1 << 38, 1 << 39
# How often the store waits for the disk that the test keeps slow.
SLOW_SYNCS = 6
# Besides the ring, in a debug build: 96 MiB with a usual number of shapes, and the texts of new ones.
MOST_MEMORY = 256 * MIB
# Each fdatasync() and fsync() of the agent takes three seconds as long as a file exists; another one counts them.
SLOW_SYNC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static int waits = -1;
__attribute__((constructor)) static void begin(void) {
    waits = open(getenv("SLOW_SYNC_WAITS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}
static void wait_a_while(void) {
    for (int tenths = 0; tenths < 30 && access(getenv("SLOW_SYNC"), F_OK) == 0; tenths++) {
        if (tenths == 0 && write(waits, ".", 1) != 1) abort();
        usleep(100000);
    }
}
int fdatasync(int fd) {
    wait_a_while();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
int fsync(int fd) {
    wait_a_while();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""


# bpf() fails for lack of memory as long as a file exists.
NO_BPF = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
long syscall(long number, ...) {
    static long (*real)(long, ...);
    __builtin_va_list list;
    long word[6];
    __builtin_va_start(list, number);
    for (int at = 0; at < 6; at++) word[at] = __builtin_va_arg(list, long);
    __builtin_va_end(list);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_bpf && getenv("NO_BPF") && access(getenv("NO_BPF"), F_OK) == 0) return errno = ENOMEM, -1;
    return real(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}
"""


def resident(child):
    """Memory without the ring of the capture, in bytes."""
    text = pathlib.Path(f"/proc/{child.pid}/smaps").read_text()
    total = 0
    for area in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M):
        if area and "socket:" not in area.split("\n", 1)[0]:
            total += 1024 * int((re.search(r"^Rss: +(\d+)", area, re.M) or [0, 0])[1])
    return total


def descriptors(child):
    return len(os.listdir(f"/proc/{child.pid}/fd"))


def stored(store, *arguments):
    """The summary of `queries` over everything that is stored."""
    words = ["--store", store, "--from", "6 hours ago", "--json", *arguments]
    return labkit.documents("queries", *words, timeout=300)[-1]


def slope(times, values):
    """Growth per second, as the least squares have it, and its standard error."""
    count, middle, mean = len(times), sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - middle) ** 2 for time in times)
    rate = sum((time - middle) * (value - mean) for time, value in zip(times, values, strict=True)) / spread
    off = sum((value - mean - rate * (time - middle)) ** 2 for time, value in zip(times, values, strict=True))
    return rate, (off / max(count - 2, 1) / spread) ** 0.5


def captured(port):
    """The configuration that captures this port on loopback."""
    return f'[queries]\ninterface = ["lo"]\nport = [{port}]\n'


def client_of(address, name):
    return pymongo.MongoClient(f"mongodb://{address}", appname=name, maxPoolSize=1, directConnection=True)


def ask(client, first, count):
    """Sends `count` finds, each with a shape of its own."""
    for number in range(first, first + count):
        client.shop.orders.find_one({f"field{number}": 1, "status": "new"})


def finds(document):
    """Calls of all rows that ask for documents of the test, and of those that were folded."""
    rows = [row for row in document["rows"] if row["collection"] == "orders" or row["shape"] == "other"]
    return sum(row["calls"] for row in rows)


def test_more_new_shapes_than_rows_are_bounded_and_counted(tmp_path):
    with labkit.server("127.0.0.1:0") as address:
        with agent(tmp_path, captured(labkit.port_of(address))) as running:
            running.wait_for("queries", "working")
            with client_of(address, "inventor") as client:
                client.admin.command("ping")
                ask(client, 0, SHAPES // 2)
                half = resident(running.child)
                ask(client, SHAPES // 2, SHAPES // 2)
            memory = resident(running.child)
            lost = running.collector("queries")["lost"]
            assert running.stop() == 0
    print(f"{SHAPES} shapes, {half / MIB:.0f} and {memory / MIB:.0f} MiB, {lost} lost")
    assert memory < MOST_MEMORY, memory
    document = stored(tmp_path / "store", "--class", "user", "--limit", "20000")
    # What has no row of its own any more is all that was lost.
    assert finds(document) == SHAPES and lost <= document["coverage"]["shapes_folded"]
    # Beyond the rows of an hour they are one row, and their number is known.
    folded = next(row["calls"] for row in document["rows"] if row["shape"] == "other")
    assert folded >= SHAPES - MAX_ROWS and document["coverage"]["shapes_folded"] >= folded


def preloaded(folder, source):
    """A library whose functions take the place of those of libc."""
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    (folder / "calls.c").write_text(source)
    done = subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "calls.so", folder / "calls.c", "-ldl"])
    assert done.returncode == 0
    linked = subprocess.run(["ldd", labkit.MONGOSONAR], capture_output=True, text=True)
    if linked.returncode != 0 or "libc.so" not in linked.stdout:
        pytest.skip("the program is static: nothing can take the place of its calls")
    return folder / "calls.so"


@pytest.fixture(scope="module")
def slow_sync(tmp_path_factory):
    """A library that lets a program wait for the disk as long as a file exists."""
    return preloaded(tmp_path_factory.mktemp("slow"), SLOW_SYNC)


def test_programs_that_cannot_be_loaded_at_the_start_are_loaded_later(tmp_path):
    library, flag = preloaded(tmp_path, NO_BPF), tmp_path / "no-bpf"
    flag.touch()
    config = "[collectors]\nqueries = false\nlog = false\ninternals = false\nmachine = false\n"
    with agent(tmp_path, config, {"LD_PRELOAD": str(library), "NO_BPF": str(flag)}) as running:
        running.wait_for("files", "waiting")
        (problem,) = running.collector("files")["problems"]
        assert "annot allocate memory" in problem and problem.endswith("it is tried again"), problem
        threads = {name.rsplit(" ", 1)[0]: fields for name, fields in tasks(running.child.pid).items()}
        assert int(threads["files"]["CapEff"], 16) & ~(BPF | PERFMON) == 0, "what it needs for that, and no more"
        assert threads["files"]["Seccomp"].strip() == "2"
        # span: in which it tries again and again
        time.sleep(3)
        flag.unlink()
        running.wait_for("files", "working")
        threads = {name.rsplit(" ", 1)[0]: fields for name, fields in tasks(running.child.pid).items()}
        assert int(threads["files"]["CapEff"], 16) & PERFMON == 0 and threads["files"]["Seccomp"].strip() == "2"
        assert running.stop() == 0
    text = running.errors()
    assert text.count("it is tried again") == 1 and text.count("files: it works again") == 1, text


def garbage(port, until):
    """Connections that send what is no message, or the beginning of a huge one."""
    while not until.is_set():
        for sent in (
            os.urandom(4_000),
            (40 << 20).to_bytes(4, "little") + bytes(8) + b"\xdd\x07\0\0" + os.urandom(3_000),
        ):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(sent)
        # span: between two of them
        time.sleep(0.02)


def test_hostile_traffic_while_the_store_is_slow_is_counted(tmp_path, slow_sync):
    flag, done, asked = tmp_path / "slow-now", threading.Event(), 0
    with labkit.server("127.0.0.1:0") as address:
        port = labkit.port_of(address)
        waits = tmp_path / "waits"
        environment = {"LD_PRELOAD": str(slow_sync), "SLOW_SYNC": str(flag), "SLOW_SYNC_WAITS": str(waits)}
        with agent(tmp_path, captured(port), environment) as running:
            running.wait_for("queries", "working")
            with client_of(address, "attacker") as client:
                client.admin.command("ping")
                flag.touch()
                attack = threading.Thread(target=garbage, args=(port, done))
                attack.start()

                def has_waited():
                    nonlocal asked
                    # New shapes all the time.
                    ask(client, asked, 20)
                    asked += 20
                    # span: between two of them
                    time.sleep(0.1)
                    return waits.stat().st_size >= SLOW_SYNCS

                labkit.wait_until(has_waited, "a store that waits for its disk", 300)
                slow = resident(running.child)
                flag.unlink()
                done.set()
                attack.join()
                ask(client, asked, 20)
                asked += 20
            # By then what was lost is counted.
            running.observe(1)
            status = running.status()
            assert running.stop() == 0
    lost = sum(one["lost"] for one in status["collectors"])
    document = stored(tmp_path / "store", "--class", "user", "--limit", "20000")
    found, coverage = finds(document), document["coverage"]
    print(
        f"{found} of {asked} finds, {lost} lost, {waits.stat().st_size} waits, {slow / MIB:.0f} MiB, {coverage['messages']} messages"
    )
    assert slow < MOST_MEMORY, slow
    # Windows came late, and none is missing; what could not be captured is counted.
    assert asked - lost <= found <= asked
    undecoded = sum(
        value for name, value in coverage.items() if name.startswith(("streams_not", "messages_not", "bytes_not"))
    )
    assert undecoded > 0 or coverage["messages"] > coverage["messages_decoded"], coverage


def visitors(folder, ports, logs):
    """Servers that come and go, one each minute, with a line each second in the log of the one that is there."""

    def run(done):
        for visit in itertools.count():
            at = visit % len(ports)
            with answering_mongod(folder, ports[at]):
                for _ in range(55):
                    append(logs[at], slow_query(time.time(), "shop.visits"))
                    if done.wait(1):
                        return
            done.wait(5)

    return labkit.in_background(run)


@pytest.mark.alone
@pytest.mark.servers
def test_hours_of_work_leave_memory_and_descriptors_flat(tmp_path):
    """`AGENT_SOAK` is its length in seconds; an hour with LONG=1. There are a thousand lines and commands a second, a log
    that is rotated each minute, and servers that come and go. Memory is flat if the line through the samples grows by less
    than 2 MiB, or by less than chance explains. Descriptors are flat if the second half has no more at a time than the
    first, or one. The first quarter of the samples, at least a minute, is left out. At the end, what each part says that it
    holds adds up to what the processes have."""
    seconds = float(os.environ.get("AGENT_SOAK") or (3_600 if os.environ.get("LONG") else 0))
    if not seconds:
        pytest.skip("AGENT_SOAK=SECONDS or LONG=1 lets it run")
    busy, *visited = sorted(free_port() for _ in range(3))
    log, logs, samples, asked, lost = tmp_path / "mongod.log", [tmp_path / f"{at}.log" for at in range(2)], [], 0, 0
    for one in [log, *logs]:
        one.touch()
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(labkit.server("127.0.0.1:0"))
        stack.enter_context(answering_mongod(tmp_path, busy))
        config = f'[queries]\ninterface = ["lo"]\nport = {[labkit.port_of(address), busy, *visited]}\n'
        config += "".join(described(port, one) for port, one in zip((busy, *visited), [log, *logs], strict=True))
        running = stack.enter_context(agent(tmp_path, config))
        running.wait_for("queries", "working")
        running.wait_for("log", "working")
        writer = stack.enter_context(Writer(log, busy, turns=500))
        stack.enter_context(visitors(tmp_path, visited, logs))
        began, rotated = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            # A connection comes and goes each second; the shapes are always the same.
            with client_of(address, f"service-{asked % 7}") as client:
                ask(client, 0, 50)
            asked += 50
            if now // 60 > rotated:
                rotated, writer.rotate = rotated + 1, ("rename", "truncate")[rotated % 2]
            samples.append((now, resident(running.child), descriptors(running.child)))
            # span: between two samples
            time.sleep(1)
        writer.close()
        ended = time.time()
        status = labkit.wait_until(
            lambda: (status := running.status()) and (status["last_window_ns"] or 0) > ended * 1e9 and status,
            "the end",
            60,
        )
        lost = next(one["lost"] for one in status["collectors"] if one["name"] == "queries")
        held_and_used(running)
        assert running.stop() == 0
    late = [sample for sample in samples if sample[0] > max(seconds / 4, 60)]
    times, memory, files = zip(*late, strict=True)
    span = times[-1] - times[0]
    rate, error = slope(times, memory)
    print(
        f"memory: {min(memory)} to {max(memory)}, grows by {rate * span:.1f} ± {2 * error * span:.1f} in {span:.0f} s"
    )
    # Each server that is there adds some.
    half = len(files) // 2
    print(f"descriptors: at most {max(files[:half])}, then {max(files[half:])}")
    # What each part of the agent says that it holds.
    for one in status.get("held") or []:
        print(f"{one['place']}, {one['name']}: {one['bytes']} of {one['max_bytes']} bytes")
    print(f"{len(writer.lines)} lines and as many commands, {len(writer.rotations)} rotations, {lost} lost on the wire")
    assert rate * span < 2 * MIB + 2 * error * span
    assert max(files[half:]) <= max(files[:half]) + 1
    assert lost == 0
    document = stored(tmp_path / "store", "--class", "user", "--limit", "20000")
    assert finds(document) == asked
    rows = document["rows"]
    assert sum(row["calls"] for row in rows if row["collection"] == "wire") == len(writer.commands)
    assert sum(row["calls"] for row in rows if str(row["collection"]).startswith("lines")) == len(writer.lines)
