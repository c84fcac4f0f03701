"""Shared code of the tests: the lab's processes, captures, and the comparison of two records of the same commands."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import json
import mmap
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

import pymongo

LAB = pathlib.Path(__file__).resolve().parents[1]
MONGOSONAR = os.environ.get("MONGOSONAR") or str(LAB.parent / "target/release/mongosonar")
LOOPBACK = {"ipv4": "127.0.0.1", "ipv6": "[::1]"}
DRIVERS = {
    "python": [str(LAB / ".venv/bin/python"), str(LAB / "drivers/python/workload.py")],
    "node": ["node", str(LAB / "drivers/node/workload.mjs")],
    "go": [str(LAB / "bin/driver-go")],
    "rust": [str(LAB / "bin/driver-rust")],
}

# Drivers exclude these from command monitoring: handshakes, heartbeats, authentication, and commands that they
# send when a client is closed.
HIDDEN = {"hello", "isMaster", "ismaster", "saslStart", "saslContinue", "getnonce", "authenticate", "endSessions"}


def wait_until(condition, what, seconds=120.0):
    """Returns the first true value of `condition()`; fails after `seconds` with `what` in the message."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: did not come within {seconds} s"
        # span: between two looks, which are rarer the longer it takes, as each costs the other tests processor time
        time.sleep(pause)
        pause = min(pause * 1.1, 0.2)
    return value


# Options of a connection string with which a driver waits for a server for ten minutes.
PATIENT = "serverSelectionTimeoutMS=600000&connectTimeoutMS=600000"

# Options of `queries` for operations of all kinds, and for a line about each of them.
EVERYTHING = ["--class", "all", "--role", "all"]
EACH = ["--each", "--json", *EVERYTHING]

# System calls in which threads wait, by number.
CALLS = {
    "x86_64": dict(
        read=0,
        write=1,
        poll=7,
        mmap=9,
        nanosleep=35,
        sendto=44,
        sendmsg=46,
        futex=202,
        clock_nanosleep=230,
        epoll_wait=232,
        ppoll=271,
    ),
    "aarch64": dict(
        read=63,
        write=64,
        ppoll=73,
        futex=98,
        nanosleep=101,
        clock_nanosleep=115,
        sendto=206,
        sendmsg=211,
        mmap=222,
    ),
}[os.uname().machine]


def waits_in(thread, *calls):
    """Whether a thread is blocked in one of these system calls (proc(5): syscall)."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        number = pathlib.Path(f"/proc/{thread}/syscall").read_text().split()[0]
        return number in [str(CALLS.get(call)) for call in calls]
    return False


def sleeps(thread):
    return waits_in(thread, "clock_nanosleep", "nanosleep")


@contextlib.contextmanager
def in_background(work):
    """Runs `work(stop)` in a thread until the end of the block, where the event `stop` is set. What it raises is raised
    there."""
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(work, stop)
        try:
            yield
        finally:
            stop.set()
        running.result()


@contextlib.contextmanager
def held_at_its_output(*arguments, prefix=()):
    """A program that waits for its output to be read, after everything else that it does."""
    reading, writing = os.pipe()
    try:
        room = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
        os.write(writing, bytes(room))
        pipes = {"stdin": subprocess.DEVNULL, "stdout": writing, "stderr": subprocess.DEVNULL}
        with process([*prefix, MONGOSONAR, *arguments], **pipes) as child:
            wait_until(lambda: child.poll() is not None or waits_in(child.pid, "write"), "its output")
            assert child.poll() is None, child.returncode
            yield child
    finally:
        os.close(reading)
        os.close(writing)


def put_as_mongod(program, path):
    """A program of the lab under the name of the real one: the program file itself has it, not only a link to it."""
    if not path.exists():
        shutil.copy(LAB / "bin" / program, path)
    return path


def run(*words, code=0, prefix=(), **options):
    """Runs `mongosonar WORDS` to its end, which must be with this exit code (None: with any); returns what it printed.
    `options` are for subprocess.run."""
    command = [str(word) for word in (*prefix, MONGOSONAR, *words)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert code in (None, done.returncode), f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def document(*words, **options):
    """The JSON document that `mongosonar WORDS` prints."""
    return json.loads(run(*words, **options).stdout)


def documents(*words, **options):
    """The JSON documents that `mongosonar WORDS` prints, one on each line."""
    return [json.loads(line) for line in run(*words, **options).stdout.splitlines()]


@contextlib.contextmanager
def process(arguments, **options):
    """Runs a program and ends it at the end of the block, by SIGINT first."""
    child = subprocess.Popen([str(argument) for argument in arguments], **options)
    try:
        yield child
    finally:
        stop(child)


def stop(child):
    """Ends a program by SIGINT; returns its exit code. One that does not end is killed, and that is an error."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(60)
        except subprocess.TimeoutExpired as expired:
            child.kill()
            child.wait()
            raise AssertionError(f"{child.args} did not end at SIGINT") from expired
    return child.returncode


def first_line(child, seconds=30):
    """The first line that a program prints on its standard output, which must be a pipe."""
    ready, _, _ = select.select([child.stdout], [], [], seconds)
    line = child.stdout.readline().decode() if ready else ""
    assert line.startswith("ready "), f"{child.args[0]} said {line!r}, exit code {child.poll()}"
    return line.split()[1]


@contextlib.contextmanager
def ready(arguments):
    """Runs a program of the lab that prints `ready HOST:PORT`; yields that address."""
    with process(arguments, stdout=subprocess.PIPE) as child:
        yield first_line(child)


@contextlib.contextmanager
def threaded(folder, port, program=LAB / "bin/threaded", options=()):
    """The lab's server with one thread for each connection, on the real WiredTiger, which first fills its data."""
    with process([program, port, folder, *options], stdout=subprocess.PIPE) as child:
        first_line(child, 90)
        yield child


def client(port, app, options="", **more):
    """A client of a server on this machine, with these options in its connection string; `more` are for PyMongo."""
    uri = f"mongodb://127.0.0.1:{port}/?" + "&".join(filter(None, ["directConnection=true", options]))
    return pymongo.MongoClient(uri, appname=app, **more)


def ask_threaded(database, steps):
    """Lets that server execute these steps; returns what it measured of itself."""
    return database.command({"find": "orders", "filter": steps})["cursor"]["firstBatch"][0]


def connections(pid):
    """The threads of the threaded server that serve connections."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text().startswith("conn"):
                yield int(task.name)


def wait_until_connections_rest(pid):
    """Waits until no thread of a connection of the threaded server runs. A client may have a reply before the call that
    sent it has ended, and with it the operation."""

    def rest():
        calls = [call for name, call in of_each_thread(pid, "comm", "syscall") if name.startswith("conn")]
        return not any(call.startswith("running") for call in calls)

    wait_until(rest, "threads of connections that wait")


@contextlib.contextmanager
def held_lock(database):
    """Another connection holds the lock of the threaded server, in one sleep, until the end of the block."""
    holder = threading.Thread(target=ask_threaded, args=(database, {"hold": 600_000}))
    holder.start()
    try:
        thread = wait_until(lambda: database.command("lockHolder")["thread"], "the holder of the lock")
        wait_until(lambda: sleeps(thread), "its sleep")
        yield
    finally:
        database.command("releaseLock")
        holder.join()


def wait_for_a_lock(pid, database, least_ms, ask=ask_threaded):
    """Asks the threaded server for a lock that another connection holds, so that it waits for it, for at least this
    long; returns what `ask` does."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool, held_lock(database):
        waiter = pool.submit(ask, database, {"lock": 1})
        wait_until_the_lock_is_awaited(pid)
        # span: how long it waits at least
        time.sleep(least_ms / 1000)
    return waiter.result()


def wait_until_the_lock_is_awaited(pid):
    wait_until(lambda: any(waits_in(thread, "futex") for thread in connections(pid)), "a connection that waits for it")


@contextlib.contextmanager
def server(listen, prefix=()):
    """The lab's server, with its files in memory, so that the disk does not matter."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    directory = tempfile.mkdtemp(prefix="mongosonar-lab-", dir=memory)
    try:
        with ready([*prefix, LAB / "bin/server", "--listen", listen, "--dir", directory]) as address:
            yield address
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def port_of(address):
    return int(address.rpartition(":")[2])


def run_driver(language, address, output, options="", prefix=()):
    """Runs the workload of one driver; returns the driver's own record."""
    command = [*prefix, *DRIVERS[language], f"mongodb://{address}/?{options}", str(output), "_" + language]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, text=True)
    assert done.returncode == 0, f"{language} driver:\n{done.stdout}"
    return read_lines(output)


def read_lines(path):
    """The JSON objects of a file, one per line, without an incomplete last line."""
    # Read at once: a file that grows meanwhile would give the end of a line as one of its own.
    complete, _, _ = pathlib.Path(path).read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in complete.split(b"\n") if line]


def of_each_thread(pid, *names):
    """The texts of these files in `/proc/PID/task/*`, without threads that ended since they were listed; nothing of a
    process that has ended."""
    try:
        listed = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return
    for task in listed:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield [(task / name).read_text() for name in names]


def nice_values(pid):
    """The nice value of each thread, by its name (proc(5): stat)."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, _, numbers = (task / "stat").read_text().rpartition(")")
            found[(task / "comm").read_text().strip()] = int(numbers.split()[16])
    return found


def packet_sockets(pid):
    """The number of bound and running packet sockets of a process, in any network namespace."""
    running = set()
    with open(f"/proc/{pid}/net/packet", encoding="ascii") as table:
        next(table)
        for row in table:
            columns = row.split()
            if columns[5] == "1":
                running.add(columns[8])
    count = 0
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor))
            count += bool(inode and inode[1] in running)
    return count


# States of sockets in /proc/net/tcp: TIME_WAIT, CLOSE, LISTEN.
OVER = ("06", "07", "0A")


def wait_until_closed(port, prefix=()):
    """Waits until both sides have closed all connections with this port. A driver does not wait for the reply to its last
    command; by then it has been captured, too. `prefix` enters the network namespace of the clients."""

    def is_open(row):
        number, local, remote, state, *_ = row.split()
        ports = [address.rpartition(":")[2] for address in (local, remote)]
        return number != "sl" and f"{port:04X}" in ports and state not in OVER

    def closed():
        tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        # Without IPv6 there is only one.
        read = subprocess.run([*prefix, "cat", *tables], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return not any(map(is_open, read.stdout.splitlines()))

    wait_until(closed, f"the end of all connections with port {port}")


@dataclasses.dataclass
class LiveCapture:
    """A running mongosonar; its output goes to files, so that it never waits for us."""

    child: subprocess.Popen
    out: pathlib.Path
    err: pathlib.Path

    def lines(self):
        return read_lines(self.out)

    def stop(self):
        code = stop(self.child)
        assert code == 0, f"exit code {code}: {self.err.read_text()}"
        return self.lines()


@contextlib.contextmanager
def live_capture(directory, arguments, prefix=()):
    """`mongosonar queries ARGUMENTS`; the block starts when its packet socket is running, or what takes its place."""
    out, err = directory / "mongosonar.out", directory / "mongosonar.err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        command = [*prefix, MONGOSONAR, "queries", *arguments]
        with process(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL) as child:

            def running():
                assert child.poll() is None, f"mongosonar ended: {err.read_text()}"
                if "--source" in arguments:
                    return "listening on" in err.read_text()
                return packet_sockets(child.pid)

            wait_until(running, "a packet socket of mongosonar")
            yield LiveCapture(child, out, err)


@contextlib.contextmanager
def tcpdump(path, interface, expression, prefix=()):
    """Records packets with tcpdump, from when it is ready; fails if the kernel dropped a packet."""
    command = [
        *prefix,
        "tcpdump",
        "-i",
        interface,
        "-n",
        "-U",
        "--immediate-mode",
        "-s",
        "0",
        "-B",
        "65536",
        "-w",
        path,
        *expression.split(),
    ]
    errors = path.with_suffix(".tcpdump")
    with open(errors, "wb") as stderr, process(command, stderr=stderr) as child:
        wait_until(lambda: "listening on" in errors.read_text(), "tcpdump")
        yield
        # It has the packets of its ring in the file before it waits for more.
        wait_until(lambda: waits_in(child.pid, "poll", "ppoll"), "the last packets")
    assert child.returncode == 0 and re.search(r"^0 packets dropped by kernel", errors.read_text(), re.M), (
        errors.read_text()
    )


def read_capture(path, *arguments, code=0):
    """`mongosonar queries --read PATH --each --json` with all classes and roles."""
    return operations(documents("queries", "--read", path, *EACH, *arguments, code=code, timeout=120))


def operations(lines):
    """The lines with an operation; `--each --json` may end with a summary."""
    return [line for line in lines if "request_id" in line]


def summary(lines):
    """The last object for a span of time."""
    return [line for line in lines if "coverage" in line][-1]


@dataclasses.dataclass
class Difference:
    """The differences between two records of the same commands."""

    missing: list
    extra: list
    differing: list

    def __bool__(self):
        return bool(self.missing or self.extra or self.differing)

    def __str__(self):
        show = lambda title, rows: f"{len(rows)} {title}" + "".join(f"\n  {row}" for row in rows[:8])
        return "\n".join([show("missing", self.missing), show("extra", self.extra), show("differing", self.differing)])


def join(captured, sent):
    """Compares the operations that mongosonar captured with the commands that a driver sent, by request id."""
    waiting = collections.defaultdict(list)
    for operation in captured:
        waiting[operation["request_id"], operation["command"]].append(operation)
    missing, differing = [], []
    for command in sent:
        candidates = waiting[command["request_id"], command["command"]]
        if not candidates:
            missing.append(command)
            continue
        operation = candidates.pop(0)
        for field, expected, got in disagreements(command, operation):
            differing.append(
                f"{command['command']} {command['request_id']}: {field} is {expected} to the driver, {got} here"
            )
    extra = [op for left in waiting.values() for op in left if op["command"] not in HIDDEN]
    return Difference(missing, extra, differing)


def disagreements(command, operation):
    """The differences between a driver's record and an operation: (field, driver's value, ours)."""
    namespace = ".".join(filter(None, [operation["database"], operation["collection"]]))
    codes = collections.Counter(str(code) for code in command.get("write_errors", []))
    if "code" in command:
        codes[str(command["code"])] += 1
    if command.get("unacknowledged"):
        outcome = "unacknowledged"
    else:
        outcome = "failed" if codes or command["outcome"] == "failed" else "ok"
    expected = {"namespace": (command["ns"], namespace), "application": (command["client"], operation["app"])}
    # Drivers send endSessions when they close and do not wait for the reply.
    waited = command["command"] != "endSessions"
    if waited:
        expected["outcome"] = outcome, operation["outcome"]
    if codes:
        expected["error codes"] = dict(codes), operation["errors"]
    if waited and outcome != "unacknowledged":
        if "docs" in command:
            expected["documents"] = command["docs"], operation["docs_returned"]
        if command.get("cursor"):
            expected["cursor"] = command["cursor"], operation["cursor_id"]
        if "n" in command:
            expected["n"] = command["n"], operation["docs_matched"]
        if "n" in command and not command.get("upserts_unknown"):
            affected = command["n"]
            if "n_modified" in command:
                affected = command["n_modified"] + command.get("n_upserted", 0)
            expected["documents affected"] = affected, operation["docs_affected"]
        # Drivers round durations down to whole microseconds, Node.js to whole milliseconds.
        unit = 1_000_000 if command["driver"] == "node" else 1_000
        if operation["latency_ns"] is None or operation["latency_ns"] > command["us"] * 1_000 + unit:
            yield "latency, at most, in ns", command["us"] * 1_000, operation["latency_ns"]
    for field, (theirs, ours) in expected.items():
        if theirs != ours:
            yield field, theirs, ours


def pcap_records(path):
    """The file header and the records of a capture file as tcpdump writes it (little-endian, microseconds)."""
    data = path.read_bytes()
    assert data[:4] == b"\xd4\xc3\xb2\xa1"
    records, at = [], 24
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        records.append(data[at : at + 16 + length])
        at += 16 + length
    return data[:24], records


def payload(record):
    """The TCP payload of a record on Ethernet over IPv4."""
    ip = record[16 + 14 :]
    header = (ip[0] & 15) * 4
    total = struct.unpack_from(">H", ip, 2)[0]
    tcp = ip[header:total]
    return tcp[(tcp[12] >> 4) * 4 :]


def tests_of_sonar_sys():
    """The program with the tests of sonar-sys, built as `cargo test --workspace` does it."""
    if built := os.environ.get("SONAR_SYS_TESTS"):
        return built
    command = ["cargo", "test", "-q", "--workspace", "--lib", "--no-run", "--message-format=json"]
    output = subprocess.run(command, cwd=LAB.parent, capture_output=True, text=True, check=True).stdout
    artifacts = [json.loads(line) for line in output.splitlines()]
    return next(a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "sonar_sys")
