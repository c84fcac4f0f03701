"""What code could do that has taken over a thread of mongosonar, or one of its helper processes: it is tried.

docs/security.md has what was found. `SNAPSHOTS=overwrite` writes it there.
"""

import contextlib
import ctypes
import difflib
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import pytest
import takeover
from agents import Agent
from test_agent import agent, described, free_port
from test_privileges import FIXTURES, children, open_to_all, tasks

import labkit

pytestmark = [
    pytest.mark.root,
    pytest.mark.servers,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are made in the registers of x86_64"),
]
PORT = 28025
PAGE = labkit.LAB.parent / "docs/security.md"
BEGIN, END = "<!-- Measured by lab/tests/test_takeover.py. -->\n", "<!-- End. -->\n"
CAPABILITIES = {
    1: "DAC_OVERRIDE",
    2: "DAC_READ_SEARCH",
    13: "NET_RAW",
    19: "SYS_PTRACE",
    21: "SYS_ADMIN",
    38: "PERFMON",
    39: "BPF",
    40: "CHECKPOINT_RESTORE",
}


def landlock():
    """The kernel's version of Landlock; 0 without it."""
    version = ctypes.CDLL(None).syscall(444, None, 0, 1)
    return max(version, 0)


class Victim:
    """A process of some user that waits, with the address of bytes in it."""

    # Ctrl-C ends these programs at once: the handler of Python only sets a flag, and a thread that is released just before
    # its read begins again would wait there with the flag set.
    PROGRAM = "import ctypes, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nb = ctypes.create_string_buffer(b'plain')\nprint(ctypes.addressof(b), flush=True)\nsys.stdin.read()"

    def __init__(self, stack, *prefix):
        command = [*prefix, sys.executable, "-c", self.PROGRAM]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        child = stack.enter_context(labkit.process(command, text=True, **pipes))
        self.address = int(child.stdout.readline())
        self.pid = child.pid


@pytest.fixture
def around():
    """What may be reached. The helpers of TLS and stacks may look at each process, so the victims are strangers to them."""
    with contextlib.ExitStack() as stack:
        # Not below pytest's folder: each run of pytest that begins closes that to other users.
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        open_to_all(folder)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = folder / "socket"
        local.bind(str(path))
        path.chmod(0o777)
        local.listen(64)
        nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        victims = [Victim(stack), Victim(stack, *nobody)]
        yield takeover.Surroundings(folder, victims, listener, path)


def plain(name):
    """The name of a thread without its number."""
    return re.sub(r"-\d+$", "", name)


def able(process, thread, around):
    with takeover.taken(process, thread) as it:
        found = []
        for what, attempt in takeover.ATTEMPTS.items():
            it.used = 0
            if attempt(it, around):
                found.append(what)
        return found


class Finding:
    """What one thread, or the threads of one name, could do."""

    def __init__(self, fields, can):
        user = {"0": "root", "65534": "nobody"}[fields["Uid"].split()[0]]
        held = int(fields["CapEff"], 16)
        self.about = user, *(CAPABILITIES[bit] for bit in range(64) if held >> bit & 1)
        # Who is root can become root.
        self.can = tuple(what for what in can if (user, what) != ("root", "become root"))

    def __eq__(self, other):
        return (self.about, self.can) == (other.about, other.can)


def names_of(process):
    """The names of the threads of a process, with their states; the first one is called after its process."""
    named = {}
    for name, fields in tasks(process).items():
        own = plain(name.rsplit(" ", 1)[0])
        named.setdefault("main thread" if own == "mongosonar" else own, []).append(fields)
    return named


def findings(process, command, around, wanted, only=None):
    """What each helper and each of these kinds of threads of a command could do; and what each process has open, and each
    thread with descriptors of its own. With `only`, that of these."""
    found, opened = {}, {}
    for owner in [process, *children(process)]:
        for name, threads in names_of(owner).items():
            assert name in wanted, f"{name} has come since"
            if only and name not in only:
                continue
            place = f"`{name}`" if owner != process else f"`{command}`: {name}"
            for fields in threads:
                try:
                    can = able(owner, int(fields["Pid"]), around)
                except ProcessLookupError:
                    # One of the threads that open, read or close a single thing, and end.
                    task = pathlib.Path(f"/proc/{owner}/task/{fields['Pid']}")
                    labkit.wait_until(lambda task=task: not task.exists(), f"a thread {name}, which ends")
                    continue
                one = Finding(fields, can)
                assert found.setdefault(place, one) == one, (place, vars(one), vars(found[place]))
                thread = int(fields["Pid"])
                if takeover.has_own_descriptors(owner, thread):
                    opened[place] = opened.get(place, set()) | takeover.descriptors(owner, thread)
                if owner == process:
                    # The other side of a passed ring has no filter, and could send.
                    passes = "pass descriptors on" in can
                    assert not (passes and takeover.rings(owner, thread)), f"{place} can pass rings on"
        own = pathlib.Path(f"/proc/{owner}/comm").read_text().strip()
        place = f"`{own}`" if owner != process else f"`{command}`"
        opened[place] = opened.get(place, set()) | takeover.descriptors(owner, owner)
    return found, opened


def settled(process, threads, helpers):
    """Waits until these threads and these helpers are there, all of them confined; returns their names."""
    own_wanted, others_wanted = {"main thread", *threads}, set(helpers)

    def is_there():
        own, others = names_of(process), [names_of(child) for child in children(process)]
        each = [fields for names in [own, *others] for threads in names.values() for fields in threads]
        confined = all(fields["Seccomp"].strip() == "2" for fields in each)
        # Exactly these: what else is there would not be tried.
        return confined and own_wanted == set(own) and others_wanted == {name for names in others for name in names}

    try:
        labkit.wait_until(is_there, f"the threads {threads} and the helpers {helpers}")
    except AssertionError as error:
        there = [sorted(names_of(one)) for one in [process, *children(process)]]
        raise AssertionError(f"{error}; there are {there}") from error
    return own_wanted | others_wanted


@contextlib.contextmanager
def started(words, tmp_path):
    name = words[0]
    with open(tmp_path / f"{name}.out", "wb") as out, open(tmp_path / f"{name}.err", "wb") as err:
        command = [labkit.MONGOSONAR, *map(str, words)]
        with labkit.process(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL) as child:
            yield child


# Helpers have a thread more for each server that another test starts.
def served(store, port):
    """Whether the page of a history answers who has its token."""
    try:
        token = (store / "page-token").read_text().strip()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/status", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["kind"] == "page_status"
    except (FileNotFoundError, ConnectionRefusedError, urllib.error.URLError):
        return False


@pytest.mark.servers
def test_what_a_takeover_would_still_allow(tmp_path, around, silent):
    if landlock() < 6:
        pytest.skip("the tables are those of a kernel with Landlock 6 or later")
    found, opened = {}, {}
    with contextlib.ExitStack() as stack:
        program = labkit.put_as_mongod("threaded", tmp_path / "mongod")
        (tmp_path / "data").mkdir()
        server = stack.enter_context(labkit.threaded(tmp_path / "data", PORT, program))

        def add(process, command, wanted, only=None):
            new_ones = findings(process, command, around, wanted, only)
            for all_of_them, new in zip((found, opened), new_ones, strict=True):
                for place, what in new.items():
                    if isinstance(what, set):
                        all_of_them.setdefault(place, set()).update(what)
                    else:
                        # A helper can do the same wherever it is.
                        assert all_of_them.setdefault(place, what) == what, place

        def look(words, threads, helpers, name=None, only=None):
            with started(words, tmp_path) as child:
                wanted = settled(child.pid, threads, helpers)
                add(child.pid, name or " ".join(words[: 1 + (words[0] == "io")]), wanted, only)
                # It goes on as if nothing had happened.
                assert labkit.stop(child) == 0

        uri = silent
        queries = ["queries", "--interface", "lo", "--port", PORT, "--json", "--uri", uri]
        # In a folder of its own: the helper may use what is in it.
        (tmp_path / "series").mkdir()
        series = ["--write", tmp_path / "series" / "kept.pcapng", "--rotate", "1M", "--keep", "2"]
        threads = ["applications", "mongosonar-net", "capture", "tls", "files", "servers", "states", "stop"]
        look([*queries, *series], threads, ["sonar-tls", "sonar-servers", "sonar-samples", "sonar-rotate"])
        # In a folder of its own: the thread may read what is below it.
        keys = tmp_path / "keys" / "keys.log"
        keys.parent.mkdir()
        keys.touch()
        key_log = ["queries", "--interface", "lo", "--port", PORT, "--json", "--tls-keylog", keys]
        look(key_log, ["capture", "key-log", "servers", "states", "stop"], ["sonar-servers", "sonar-samples"])
        threads = ["capture", "tls", "servers", "stop"]
        look(["why", "--pid", server.pid, "--port", PORT], threads, ["sonar-stacks", "sonar-files", "sonar-tls"])
        look(["stacks", "--pid", server.pid, "--duration", "10m"], ["stop"], ["sonar-stacks"])
        look(["io", "record", tmp_path / "kept.msio", "--pid", server.pid], ["stop"], ["sonar-paths"])
        threads = ["stop", "splits", "capture", "tls", "servers", "states"]
        helpers = ["servers", "samples", "files", "stacks", "functions", "tls"]
        split = ["queries", "--interface", "lo", "--port", PORT, "--json", "--split"]
        look(split, threads, [f"sonar-{name}" for name in helpers], "queries --split")
        look(["io", "live", "--json", "--pid", server.pid], ["stop"], ["sonar-paths"])
        sockets = ["queries", "--source", "process", "--port", PORT, "--json"]
        threads, helpers = ["stop", "sockets", "tls", "servers", "states"], ["servers", "samples", "tls"]
        look(sockets, threads, [f"sonar-{name}" for name in helpers], "queries --source process")
        threads = ["applications", "mongosonar-net", "stop", "capture", "states", "servers"]
        local = "mongodb://" + f"{around.local}.sock".replace("/", "%2F") + f"/?{labkit.PATIENT}"
        for what, other in [("certificates", f"{uri}&tls=true&tlsCAFile={keys}"), ("a local socket", local)]:
            asking = [*queries[:-1], other, "--no-tls"]
            helpers = ["sonar-servers", "sonar-samples"]
            look(asking, threads, helpers, f"queries with {what}", ["applications", "mongosonar-net"])
        # A server that is asked before the trace, and does not answer.
        asking = ["--pid", server.pid, "--uri", uri]
        threads = ["names", "profile", "applications", "mongosonar-net"]
        helpers = ["sonar-stacks", "sonar-files", "sonar-tls"]
        look(["why", "--port", PORT, *asking], [*threads, "stop"], helpers, "why with a server", threads)
        threads = ["names", "mongosonar-net"]
        record = ["io", "record", tmp_path / "named.msio", *asking]
        look(record, [*threads, "stop"], ["sonar-paths"], "io record with a server", threads)
        with started(["io", "reorder", "lab.orders", "--uri", uri], tmp_path) as child:
            add(child.pid, "io reorder", settled(child.pid, ["mongosonar-net", "stop"], ["sonar-reads"]))
            # It ends carefully, and waits for its server.
            child.kill()
        # Of several mongods, one would have to be named.
        for name, *options in [["doctor"], ["disk check", "--dbpath", str(tmp_path / "data")]]:
            with labkit.held_at_its_output(*name.split(), *options) as child:
                add(child.pid, name, settled(child.pid, [], []))
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        replay = ["agent", "--replay", fifo, "--store", tmp_path / "store"]
        for words in [["queries", "--read", fifo], replay]:
            # It waits for who writes into the file.
            with started(words, tmp_path) as child:
                add(child.pid, " ".join(words[:2]), settled(child.pid, ["stop"], []))
                child.kill()
        store, port = tmp_path / "served", free_port()
        shutil.copytree(FIXTURES / "history", store)
        store.chmod(0o700)
        with started(["serve", "--store", store, "--listen", f"127.0.0.1:{port}"], tmp_path) as child:
            # A thread reads the history once somebody has asked.
            labkit.wait_until(lambda: served(store, port), "an answer of the page")
            add(child.pid, "serve", settled(child.pid, ["page", "page-answer", "stop"], []))
            assert labkit.stop(child) == 0
        log = FIXTURES / "mongod-4.0-mixed/mongod.log.gz"
        with started(["serve", log, "--listen", "127.0.0.1:0"], tmp_path) as child:
            add(child.pid, "serve with files", settled(child.pid, ["page", "page-answer", "stop"], ["sonar-remover"]))
            assert labkit.stop(child) == 0
        port = free_port()
        page = f'[page]\nlisten = "127.0.0.1:{port}"\n'
        config = f'[collectors]\nsplit = true\n{page}[[server]]\nport = {PORT}\nuri = "{uri}"\n'
        (tmp_path / "agent").mkdir()
        with agent(tmp_path / "agent", config) as running:
            threads = "capture tls log internals machine files split status servers starter stop watch".split()
            labkit.wait_until(lambda: served(running.store, port), "an answer of the page")
            helpers = ["logs", "rings", "tls", "files", "functions", "folders", "paths", "page"]
            of_page = ["page", "page-answer", "page-end", "page-now"]
            wanted = settled(running.child.pid, threads, [*(f"sonar-{name}" for name in helpers), *of_page])
            add(running.child.pid, "agent", wanted)
    compare(found, opened)


def test_the_helper_for_logs_opens_no_other_file_for_a_thread_that_was_taken(tmp_path):
    program = labkit.put_as_mongod("server", tmp_path / "mongod")
    log = tmp_path / "mongod.log"
    log.write_text("")
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(labkit.ready([program, "--listen", "127.0.0.1:0"]))
        collectors = "[collectors]\nqueries = false\nfiles = false\ninternals = false\n"
        config = collectors + described(labkit.port_of(address), log)
        running = stack.enter_context(agent(tmp_path, config))
        running.wait_for("log", "working")
        process = running.child.pid
        comm = lambda pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        (helper,) = [child for child in children(process) if comm(child) == "sonar-logs"]
        number = takeover.socket_to(process, helper)
        # None of the others asks meanwhile.
        threads = [int(fields["Pid"]) for fields in tasks(process).values()]
        taken = {thread: stack.enter_context(takeover.taken(process, thread)) for thread in threads}
        # Those that it has started have its name.
        thread = min(one for one in threads if comm(f"{process}/task/{one}") == "log")
        asks = lambda path: takeover.ask(taken[thread], number, {"Open": str(path)})
        assert asks(log) == ({"Ok": None}, 1)
        for path in ["/etc/shadow", "/proc/1/root/etc/shadow", f"{log}/../../../etc/shadow", tmp_path / "mongod"]:
            said, files = asks(path)
            assert "Err" in said and files == 0, (path, said)


def test_threads_that_trace_decode_nothing_while_the_main_thread_has_privileges(tmp_path):
    (tmp_path / "agent.toml").write_text("[collectors]\nsplit = true\n")
    # While `files` loads its programs, the main thread waits for it. It may be stopped too late.
    was_in_time = any(threads_wait_for_the_main_thread(tmp_path, f"store-{attempt}") for attempt in range(10))
    assert was_in_time, "the main thread had dropped its privileges each time"


def threads_wait_for_the_main_thread(tmp_path, store):
    """False if the main thread had dropped its privileges when it was stopped."""
    with Agent.start(tmp_path, tmp_path / store) as running:
        process = running.child.pid

        def thread(name):
            return next((fields for fields in tasks(process).values() if fields["Name"] == name), None)

        running.wait(lambda: thread("split"), "the thread of split")
        running.wait(lambda: thread("files"), "the thread of files")
        with takeover.stopped(process):
            if thread("mongosonar")["Seccomp"] != "0":
                return False
            assert int(thread("mongosonar")["CapEff"], 16)
            for name in ["split", "files"]:
                waits = lambda name=name: labkit.waits_in(int(thread(name)["Pid"]), "futex")
                running.wait(lambda name=name: thread(name)["Seccomp"] == "2", f"{name} without privileges")
                running.wait(waits, f"{name}, which waits for the others")
        for name in ["split", "files"]:
            waits = lambda name=name: labkit.waits_in(int(thread(name)["Pid"]), "futex")
            running.wait(lambda waits=waits: not waits(), f"{name}, which goes on")
        assert running.stop() == 0
        return True


def table(head, rows):
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def compare(found, opened):
    """Compares with the page, or writes it there."""
    alike = {}
    for place, one in found.items():
        alike.setdefault((one.about, one.can), []).append(place)
    able_to = [
        [in_words(places), ", ".join(about), ", ".join(can) or "nothing"] for (about, can), places in alike.items()
    ]
    measured = table(["thread or helper", "user, capabilities", "what worked"], able_to) + "\n"
    alike = {}
    for place, kinds in opened.items():
        alike.setdefault(tuple(sorted(kinds)), []).append(place)
    measured += table(
        ["process, or thread with descriptors of its own", "what is open in it"],
        [[in_words(places), ", ".join(kinds) or "nothing"] for kinds, places in alike.items()],
    )
    before, rest = PAGE.read_text().split(BEGIN)
    expected, after = rest.split(END)
    if os.environ.get("SNAPSHOTS") == "overwrite":
        PAGE.write_text(before + BEGIN + "\n" + measured + "\n" + END + after)
    else:
        lines = [text.strip().splitlines() for text in (expected, measured)]
        differ = difflib.unified_diff(*lines, PAGE.name, "measured", n=0, lineterm="")
        assert lines[0] == lines[1], "\n".join(differ)


def in_words(places):
    """`io`: main thread, stop; ..."""
    by_command = {}
    for place in places:
        command, _, name = place.partition(": ")
        by_command.setdefault(command, []).append(name)

    def words(command, names):
        of_threads = [name for name in names if name]
        # The process itself, and those of its threads that have their own.
        own = [command] if len(of_threads) < len(names) else []
        return "; ".join(own + ([f"{command}: {', '.join(of_threads)}"] if of_threads else []))

    return "; ".join(words(*one) for one in by_command.items())


def test_an_unconfined_process_can_do_what_is_tried(around):
    """So that a refusal says something: root without any restriction can do all of it."""
    program = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nprint('ready', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    with labkit.process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        assert able(child.pid, child.pid, around) == list(takeover.ATTEMPTS)
