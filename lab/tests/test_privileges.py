"""The remaining privileges of a running mongosonar, and what works without more; a full disk, and series of files."""

import contextlib
import json
import os
import pathlib
import platform
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

import pytest
from test_ending import on_terminal

import labkit

pytestmark = pytest.mark.root

FIXTURES = labkit.LAB.parent / "fixtures"


def tasks(pid):
    """The kernel's status of each thread of a process, by thread name."""
    found = {}
    for (text,) in labkit.of_each_thread(pid, "status"):
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        found[fields["Name"] + " " + fields["Pid"]] = fields
    return found


def children(pid):
    return [int(child) for (text,) in labkit.of_each_thread(pid, "children") for child in text.split()]


def open_to_all(path):
    """Lets every user enter a test's temporary folder."""
    for folder in [path, *path.parents]:
        if folder == pathlib.Path(tempfile.gettempdir()):
            break
        os.chmod(folder, 0o755)


SYS_PTRACE, DAC_READ_SEARCH, DAC_OVERRIDE, NET_RAW = 1 << 19, 1 << 2, 1 << 1, 1 << 13
SYS_ADMIN, PERFMON, BPF, CHECKPOINT_RESTORE = 1 << 21, 1 << 38, 1 << 39, 1 << 40
# What the helper process that attaches to TLS libraries keeps. Since Linux 6.6 attaching takes no more.
ATTACHING = SYS_PTRACE | DAC_READ_SEARCH | PERFMON | BPF | CHECKPOINT_RESTORE
if tuple(map(int, platform.release().split(".")[:2])) < (6, 6):
    ATTACHING |= SYS_ADMIN


def assert_confined(pid, helpers_keep=0):
    """Waits until the main thread has dropped its privileges (after opening the packet sockets), and checks all threads."""
    labkit.wait_until(
        # Those that started before are confined one after the other.
        lambda: all(fields["Seccomp"].strip() == "2" for fields in tasks(pid).values()),
        "a filter of system calls in each thread",
    )
    for name, fields in tasks(pid).items():
        facts = {
            key: fields[key].strip()
            for key in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd", "NoNewPrivs", "Seccomp")
        }
        none = "0" * 16
        assert facts == dict.fromkeys(["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"], none) | {
            "NoNewPrivs": "1",
            "Seccomp": "2",
        }, name
    for child in children(pid):
        for name, fields in tasks(child).items():
            assert (
                int(fields["CapEff"], 16) & ~helpers_keep == 0
                and fields["NoNewPrivs"].strip() == "1"
                and fields["Seccomp"].strip() == "2"
            ), name


def test_queries_drops_its_privileges_in_every_thread(served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    kept = tmp_path / "kept.pcapng"
    arguments = [
        "--interface",
        "lo",
        "--port",
        str(port),
        "--threads",
        "3",
        "--json",
        "--interval",
        "500ms",
        "--write",
        str(kept),
    ]
    with labkit.live_capture(tmp_path, arguments) as running:
        labkit.wait_until(running.lines, "an interval")
        assert_confined(running.child.pid, ATTACHING)
        assert children(running.child.pid)
        for owner in [running.child.pid, *children(running.child.pid)]:
            for name, fields in tasks(owner).items():
                assert set(fields["Uid"].split() + fields["Gid"].split()) == {"65534"}, (name, fields["Uid"])
                assert not fields["Groups"].strip(), name
        names = [name.rsplit(" ", 1)[0] for name in tasks(running.child.pid)]
        assert {"capture-0", "capture-1", "capture-2"} < set(names)
        # A capture thread has one more filter than the others.
        filters = {
            name: int(fields["Seccomp_filters"])
            for name, fields in tasks(running.child.pid).items()
            if "Seccomp_filters" in fields
        }
        assert all(count == (2 if name.startswith(("capture", "tls")) else 1) for name, count in filters.items()), (
            filters
        )
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        labkit.wait_until(lambda: any(row["calls"] for line in running.lines() for row in line["rows"]), "rows")
        running.stop()
    assert "privileges are dropped in part" not in running.err.read_text()
    assert len(labkit.read_capture(kept)) > 100


def test_a_baseline_is_read_by_a_process_of_its_own_before_anything_is_captured(tmp_path):
    """It waits for a file that is written later, as `nobody`; what it has read costs no helper and no confinement."""
    pipe = tmp_path / "monday.pcap.gz"
    os.mkfifo(pipe)
    open_to_all(tmp_path)
    arguments = ["--interface", "lo", "--port", "1", "--json", "--interval", "500ms", "--baseline", str(pipe)]
    out, err = tmp_path / "out", tmp_path / "err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        command = [labkit.MONGOSONAR, "queries", *arguments]
        with labkit.process(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL) as child:
            labkit.wait_until(lambda: children(child.pid), "the process that reads it")
            (reader,) = children(child.pid)
            with open(pipe, "wb") as file:
                confined = lambda: all(fields["Seccomp"].strip() == "2" for fields in tasks(reader).values())
                labkit.wait_until(confined, "a filter of system calls in each thread")
                for fields in tasks(reader).values():
                    assert fields["Uid"].split()[0] == "65534", fields
                    assert int(fields["CapPrm"], 16) & ~DAC_READ_SEARCH == 0, fields
                file.write((FIXTURES / "mongod-4.0-mixed/wire.pcap.gz").read_bytes())
            labkit.wait_until(lambda: b"\n" in out.read_bytes(), "an interval")
            assert_confined(child.pid, ATTACHING)
            assert {fields["Uid"].split()[0] for fields in tasks(child.pid).values()} == {"65534"}
            names = {fields["Name"] for helper in children(child.pid) for fields in tasks(helper).values()}
            assert "sonar-servers" in names and "sonar-baseline" not in names, names
    assert child.returncode == 0 and "not possible" not in err.read_text(), err.read_text()


def test_root_that_cannot_leave_its_user_is_confined_otherwise(tmp_path):
    """As in a container without these capabilities."""
    prefix = ["setpriv", "--bounding-set", "-setuid,-setgid"]
    with labkit.live_capture(tmp_path, ["--interface", "lo", "--port", "1", "--json"], prefix) as running:
        assert_confined(running.child.pid, ATTACHING)
        assert {fields["Uid"].split()[0] for fields in tasks(running.child.pid).values()} == {"0"}
        running.stop()
    output = running.err.read_text()
    assert output.count("privileges are dropped in part only: user id 0: CAP_SETUID is missing") == 1, output
    doctor = labkit.document("doctor", "--json", prefix=prefix, code=None)
    checks = {check["name"]: check for check in doctor["checks"]}
    assert "it cannot become nobody, because CAP_SETUID is missing" in checks["confinement"]["found"], checks
    assert checks["confinement"]["verdict"] == "warning" and "--cap-add SETUID" in checks["confinement"]["remedy"]


@pytest.mark.servers
def test_servers_that_start_later_are_found_without_privileges(tmp_path):
    """The server runs as another user, so finding its port needs a capability, which only the helper has."""
    server = tmp_path / "mongod"
    shutil.copy(labkit.LAB / "bin/server", server)
    data = tmp_path / "data"
    data.mkdir()
    shutil.chown(data, "nobody")
    open_to_all(tmp_path)
    with labkit.live_capture(tmp_path, ["--json", "--interval", "1s", "--no-tls"]) as running:
        assert_confined(running.child.pid, SYS_PTRACE | DAC_READ_SEARCH)
        assert children(running.child.pid)
        command = [
            "setpriv",
            "--reuid",
            "nobody",
            "--clear-groups",
            server,
            "--demo",
            "--listen",
            "127.0.0.1:0",
            "--dir",
            data,
        ]
        with labkit.ready(command) as address:
            port = labkit.port_of(address)
            labkit.wait_until(lambda: f"port {port} too" in running.err.read_text(), "the new port")
            labkit.wait_until(
                lambda: [row for line in running.lines() for row in line["rows"] if row["server"].endswith(f":{port}")],
                "its queries",
            )


@pytest.fixture
def reader(tmp_path):
    """A process of another user that reads a file in its own folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "collection.wt").write_bytes(bytes(1 << 16))
    open_to_all(folder)
    shutil.chown(folder, "nobody")
    program = "import os, sys, time\nf = os.open(sys.argv[1], os.O_RDONLY)\nwhile True: os.pread(f, 4096, 0); time.sleep(0.005)"
    command = [
        "setpriv",
        "--reuid",
        "nobody",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        program,
        folder / "collection.wt",
    ]
    with labkit.process(command) as child:
        labkit.wait_until(lambda: "collection.wt" in " ".join(links(child.pid)), "the open file")
        yield child.pid, folder / "collection.wt"


def links(pid):
    with contextlib.suppress(OSError):
        return [os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    return []


def reads_of(pid):
    """The number of reads of a process so far."""
    text = pathlib.Path(f"/proc/{pid}/io").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("syscr")).split()[1])


@pytest.mark.parametrize("command", ["live", "record"])
def test_io_drops_its_privileges_and_still_finds_paths(command, reader, tmp_path):
    pid, path = reader
    recording = tmp_path / "kept.msio"
    words = ["live", "--json", "--interval", "500ms"] if command == "live" else ["record", recording]
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        arguments = [labkit.MONGOSONAR, "io", *words, "--pid", str(pid), "--dbpath", str(path.parent)]
        with labkit.process(arguments, stdout=out, stderr=err, stdin=subprocess.DEVNULL) as child:
            labkit.wait_until(
                lambda: b"process" in (tmp_path / "err").read_bytes() or child.poll() is not None, "its start"
            )
            assert child.poll() is None, (tmp_path / "err").read_text()
            assert_confined(child.pid, SYS_PTRACE | DAC_READ_SEARCH)
            if command == "live":
                labkit.wait_until(lambda: any(line["files"] for line in labkit.read_lines(tmp_path / "out")), "a file")
            else:
                first = reads_of(pid)
                labkit.wait_until(lambda: reads_of(pid) > first + 200, "some hundred reads")
            assert labkit.stop(child) == 0, (tmp_path / "err").read_text()
    if command == "live":
        names = {file["name"] for line in labkit.read_lines(tmp_path / "out") for file in line["files"]}
    else:
        done = labkit.run("io", "report", recording, "--json")
        names = {str(path)} if str(path) in done.stdout else set()
    assert names == {str(path)}


@pytest.mark.servers
def test_io_follows_a_mongod_that_starts_later_without_privileges(tmp_path):
    """mongods of another user whose folder is known only from their open files, which need a capability."""
    server = tmp_path / "mongod"
    shutil.copy(shutil.which("tail"), server)
    folders = [tmp_path / "db", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    for folder in folders:
        open_to_all(folder)
    files = [folders[0] / "first.wt", folders[0] / "second.wt", folders[1] / "third.wt"]
    for file in files:
        file.write_bytes(b"x" * 4096)
    command = ["setpriv", "--reuid", "nobody", "--clear-groups", server, "-f"]
    recording, err = tmp_path / "kept.msio", tmp_path / "err"
    with contextlib.ExitStack() as stack:

        def follow(file):
            child = stack.enter_context(labkit.process([*command, file], stdout=subprocess.DEVNULL))
            labkit.wait_until(lambda: str(file) in links(child.pid), "the open file")
            return child.pid

        first = follow(files[0])
        arguments = [labkit.MONGOSONAR, "io", "record", "--dbpath", folders[0], recording]
        recorder = stack.enter_context(labkit.process(arguments, stderr=open(err, "wb"), stdin=subprocess.DEVNULL))
        labkit.wait_until(lambda: "Ctrl-C" in err.read_text() or recorder.poll() is not None, "its start")
        labkit.wait_until(
            lambda: tasks(recorder.pid) and all(f["Seccomp"].strip() == "2" for f in tasks(recorder.pid).values()),
            "its confinement",
        )
        assert_confined(recorder.pid, SYS_PTRACE | DAC_READ_SEARCH)
        second, third = follow(files[1]), follow(files[2])
        labkit.wait_until(
            lambda: f"process {second} is a mongod that has started" in err.read_text(), "the second mongod"
        )
        # span: in which it looks at the third one
        time.sleep(1.5)
        assert_confined(recorder.pid, SYS_PTRACE | DAC_READ_SEARCH)
        assert labkit.stop(recorder) == 0, err.read_text()
    output = err.read_text()
    assert f"recording process {first} by" in output and str(third) not in output, output
    done = labkit.run("io", "report", recording, "--json")
    assert str(files[1]) in done.stdout and str(files[2]) not in done.stdout, done.stdout


def test_io_reorder_asks_its_server_without_privileges(silent, tmp_path):
    """What it takes to look at the server's process has a helper, which nobody talks to but the command."""
    command = [labkit.MONGOSONAR, "io", "reorder", "shop.orders", "--uri", silent]
    recording = tmp_path / "kept.msio"
    recording.touch()
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    with labkit.process(command, **options) as child:
        labkit.wait_until(lambda: "mongosonar-net" in str(tasks(child.pid)), "its question")
        assert_confined(child.pid, SYS_PTRACE | DAC_READ_SEARCH)
        assert {fields["Uid"].split()[0] for fields in tasks(child.pid).values()} == {"65534"}
        assert [fields["Name"] for helper in children(child.pid) for fields in tasks(helper).values()] == [
            "sonar-reads"
        ]
        # It ends carefully, and waits for its server.
        child.kill()
    with labkit.process([*command, "--recording", recording], **options) as child:
        labkit.wait_until(lambda: "mongosonar-net" in str(tasks(child.pid)), "its question")
        for fields in tasks(child.pid).values():
            assert fields["Uid"].split()[0] == "65534" and fields["Seccomp"].strip() == "2", fields
            assert int(fields["CapPrm"], 16) & ~DAC_READ_SEARCH == 0, fields
        child.kill()


@contextlib.contextmanager
def mongod_of_another_user(tmp_path):
    """A process that is called mongod and listens, with a log that only its user may read; its number, and the log."""
    user, folder = 65_533, tmp_path / "private"
    folder.mkdir()
    log = folder / "mongod.log"
    log.write_text("2018-11-21T21:26:53.420+0000 I CONTROL  [initandlisten] db version v4.0.3\n")
    open_to_all(tmp_path)
    for path, mode in [(folder, 0o700), (log, 0o600)]:
        os.chown(path, user, user)
        os.chmod(path, mode)
    program = "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\nprint('ready', flush=True)\ninput()"
    mongod = shutil.copy(os.path.realpath("/usr/bin/python3"), tmp_path / "mongod")
    words = [mongod, "-c", program, "--logpath", log, "--dbpath", folder]
    options = {"user": user, "group": user, "extra_groups": [], "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with labkit.process(words, **options) as child:
        assert child.stdout.readline() == b"ready\n"
        yield child.pid, log


@pytest.mark.apart
@pytest.mark.parametrize("command", ["doctor", "disk check"])
def test_nothing_of_a_server_is_read_before_the_privileges_are_dropped(command, tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    words, trace = command.split(), tmp_path / "trace"
    with mongod_of_another_user(tmp_path) as (server, log):
        strace = ["strace", "-f", "-o", trace, "-e", "trace=file,seccomp,setresuid"]
        done = labkit.run(*words, "--json", prefix=strace, code=None)
        with labkit.held_at_its_output(*words) as child:
            for fields in tasks(child.pid).values():
                assert fields["Uid"].split()[0] == "65534" and fields["Seccomp"].strip() == "2", fields
                assert int(fields["CapPrm"], 16) == SYS_PTRACE | DAC_READ_SEARCH | CHECKPOINT_RESTORE, fields
    lines = trace.read_text().splitlines()
    first = lambda words: next(at for at, line in enumerate(lines) if words in line)
    assert first("setresuid(65534, 65534, 65534") < first("seccomp(SECCOMP_SET_MODE_FILTER") < first(f"/proc/{server}/")
    # What it finds is what root would find.
    found = json.loads(done.stdout)
    if command == "doctor":
        checks = {check["name"]: check for check in found["checks"]}
        assert checks["log"]["found"] == f"can be read: {log}", checks
        assert checks["processes"]["verdict"] == "ok" and f"mongod ({server})" in checks["servers"]["found"], checks
    else:
        assert "its log" in done.stdout and not any("may not be read" in one for one in found["unseen"]), found


def steps(words):
    """Runs a command; returns the steps of its start that a debug build states, each once, and its exit code."""
    environment = dict(os.environ) | {"MONGOSONAR_START_STEPS": "1"}
    done = labkit.run(*words, code=None, env=environment, stdin=subprocess.DEVNULL)
    assert "panicked" not in done.stderr, done.stderr
    return re.findall(r"^mongosonar: start: (\w+)$", done.stderr, re.M), done.returncode


def first_steps(words):
    """The same of a command that runs until it is stopped, up to its first thread."""
    environment, found = dict(os.environ) | {"MONGOSONAR_START_STEPS": "1"}, []
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with labkit.process([labkit.MONGOSONAR, *words], env=environment, text=True, **pipes) as child:
        for line in child.stderr:
            found += re.findall(r"^mongosonar: start: (\w+)$", line)
            if found[-1:] == ["Thread"]:
                break
    return found


@pytest.mark.servers
def test_every_command_drops_its_privileges_after_what_takes_them_and_before_its_threads(tmp_path):
    """`StartStep` has the order: a debug build ends where a step comes too late."""
    wire = FIXTURES / "mongod-4.0-mixed/wire.pcap.gz"
    if steps(["queries", "--read", wire])[0] == []:
        pytest.skip("a release does not state its steps")
    program = labkit.put_as_mongod("threaded", tmp_path / "mongod")
    (tmp_path / "data").mkdir()
    (tmp_path / "keys.log").touch()
    port, config = 28026, tmp_path / "agent.toml"
    config.write_text("[collectors]\nsplit = true\n")
    nobody = ["--uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1"]
    queries = ["queries", "--port", port, "--json", "--duration", "1s"]
    series = ["--write", tmp_path / "kept.pcapng", "--rotate", "1M"]
    tracing = ["Helper", "Opened", "Dropped", "Thread"]
    with labkit.threaded(tmp_path / "data", port, program) as server:
        for words in [
            [*queries, *series, *nobody],
            [*queries, "--tls-keylog", tmp_path / "keys.log"],
            [*queries, "--source", "process"],
            [*queries, "--split", "--no-tls"],
            [*queries, "--keep-privileges"],
            ["why", "--pid", server.pid, "--duration", "1s"],
            ["io", "live", "--pid", server.pid, "--json", "--duration", "1s"],
            ["io", "record", tmp_path / "kept.msio", "--pid", server.pid, "--duration", "1s", *nobody],
            ["agent", "--store", tmp_path / "store", "--config", config, "--once", "1s"],
        ]:
            assert steps(words) == (tracing, 0), words
        stacks = ["stacks", "--pid", server.pid, "--duration", "1s"]
        assert steps(stacks) == (["Helper", "Dropped", "Thread"], 0)
    page = ["--html", tmp_path / "page.html"]
    assert steps(["queries", "--read", wire, *page]) == (["Opened", "Dropped", "Thread"], 0)
    assert steps(["agent", "--store", tmp_path / "replayed", "--replay", wire]) == (["Dropped", "Thread"], 0)
    shutil.copytree(FIXTURES / "history", tmp_path / "served")
    (tmp_path / "served").chmod(0o700)
    serving = ["serve", "--store", tmp_path / "served", "--listen", "127.0.0.1:0"]
    assert first_steps(serving) == ["Opened", "Dropped", "Thread"]
    assert steps(["profiler", "status", *nobody]) == (["Dropped"], 1)
    assert steps(["profiler", "report", *nobody]) == (["Dropped", "Thread"], 1)


@pytest.mark.apart
@pytest.mark.parametrize("command", ["doctor", "disk check"])
def test_who_may_not_look_at_others_keeps_what_it_takes_to_look_at_its_own(command):
    """As in a container: the kernel shows a process only to those who have its user and its capabilities."""
    prefix = ["setpriv", "--bounding-set", "-sys_ptrace"]
    status = subprocess.run([*prefix, "cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    held = re.search(r"^CapPrm:\s+(\w+)$", status, re.M)[1]
    with labkit.held_at_its_output(*command.split(), prefix=prefix) as child:
        for fields in tasks(child.pid).values():
            assert (fields["Uid"].split()[0], fields["CapPrm"].strip()) == ("0", held), fields
            assert fields["Seccomp"].strip() == "2" and fields["NoNewPrivs"].strip() == "1", fields


def test_privileges_are_kept_on_request(tmp_path):
    with labkit.live_capture(tmp_path, ["--interface", "lo", "--port", "1", "--keep-privileges"]) as running:
        assert all(fields["Seccomp"].strip() == "0" for fields in tasks(running.child.pid).values())
        for child in children(running.child.pid):
            assert all(fields["Seccomp"].strip() == "0" for fields in tasks(child).values())


@contextlib.contextmanager
def small_disk(path, size):
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system in memory: {done.stderr}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("view", ["screen", "lines"])
def test_a_full_disk_is_reported_and_ends_only_the_writing(view, served_v4, tmp_path):
    port = labkit.port_of(served_v4)
    with small_disk(tmp_path / "disk", "300k") as disk:
        kept = disk / "kept.pcapng"
        arguments = ["queries", "--interface", "lo", "--port", str(port), "--interval", "500ms", "--write", kept]
        if view == "screen":
            with on_terminal(*arguments, columns=120) as terminal:
                terminal.wait_for(b"cpu")
                labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
                terminal.wait_for(b"find")
                # The kernel drops packets on a busy machine, so more of them are needed to fill the disk.
                for _ in range(10):
                    if b"No space left" in terminal.read(1):
                        break
                    labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
                terminal.wait_for(b"No space left")
                terminal.shown = b""
                terminal.wait_for(b"cpu", seconds=3) if b"cpu" in terminal.read(1) else None
                assert terminal.running(), "it goes on showing"
                terminal.type(b"q")
                assert terminal.end() == 1
                assert b"No space left on device" in terminal.shown
        else:
            out, err = tmp_path / "out", tmp_path / "err"
            with open(out, "wb") as stdout, open(err, "wb") as stderr:
                command = [labkit.MONGOSONAR, *map(str, arguments), "--json"]
                child = subprocess.Popen(command, stdout=stdout, stderr=stderr)
                labkit.wait_until(lambda: labkit.packet_sockets(child.pid), "a packet socket")

                def is_full():
                    labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
                    return "No space left on device" in err.read_text()

                labkit.wait_until(is_full, "a full disk")
                labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
                assert child.poll() is None
                child.terminate()
                assert child.wait(60) == 1
            output = err.read_text()
            assert output.count("No space left on device") == 2, output
            # Operations after the disk was full are still shown.
            calls = labkit.summary(labkit.read_lines(out))["totals"]["calls"]
            assert calls > len(labkit.read_capture(kept))
        assert 64 << 10 < kept.stat().st_size <= 300 << 10
        assert labkit.read_capture(kept)
        if shutil.which("tshark"):
            done = subprocess.run(["tshark", "-n", "-r", kept], capture_output=True, text=True)
            assert done.returncode == 0 and "cut short" not in done.stderr, done.stderr


# Reads a file one byte at a time, as often as each line on its standard input says.
READER = """
import os, sys
f = os.open("/etc/hostname", os.O_RDONLY)
for line in sys.stdin:
    for n in range(int(line)): os.pread(f, 1, 0)
    print("done", flush=True)
"""


def test_on_a_full_disk_a_recording_ends_and_counting_continues(tmp_path):
    # More than one block, so that at least one is written completely.
    with small_disk(tmp_path / "disk", "2m") as disk:
        reader = subprocess.Popen(
            [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        kept = disk / "kept.msio"
        record = [labkit.MONGOSONAR, "io", "record", kept, "--pid", str(reader.pid)]
        recording = subprocess.Popen(record, stderr=subprocess.PIPE, text=True)
        line = recording.stderr.readline()
        if "Ctrl-C ends it" not in line:
            pytest.skip(f"nothing can be traced here: {line}")

        def reads(count):
            reader.stdin.write(f"{count}\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == "done\n"

        count = 0
        # Until the disk is full, which is reported immediately.
        while not select.select([recording.stderr], [], [], 0)[0]:
            reads(20_000)
            count += 20_000
        message = recording.stderr.readline()
        assert "No space left on device" in message and "can be read up to there" in message, message
        # From now on accesses are counted, not written.
        reads(30_000)
        count += 30_000
        reader.stdin.close()
        output = recording.communicate(timeout=60)[1]
        assert reader.wait(60) == 0
        assert recording.returncode == 1 and output.count("No space left on device") == 1, output
        held = int(re.search(r"(\d+) accesses recorded", output)[1])
        missing = int(re.search(r"lost: accesses that were not written because the disk was full: (\d+)", output)[1])
        # What a busy machine reads too late from the ring.
        overrun = sum(map(int, re.findall(r"lost: accesses that found the ring to the program full: (\d+)", output)))
        # The reader's own few reads at the start, and those of its input.
        assert count <= held + missing + overrun <= count + 100 and missing + overrun >= 30_000, (count, output)
        found = labkit.document("io", "report", kept, "--json")
    assert found["accesses"] == held and found["lost"]["not_written"] == missing, found["lost"]


def test_each_file_of_a_series_is_complete_and_the_oldest_are_removed(served_v4, tmp_path):
    """The folder belongs to another user, so creating files in it needs a capability."""
    port = labkit.port_of(served_v4)
    folder = tmp_path / "series"
    folder.mkdir(mode=0o700)
    shutil.chown(folder, "nobody")
    arguments = [
        "--interface",
        "lo",
        "--port",
        str(port),
        "--interval",
        "200ms",
        "--no-tls",
        "--write",
        str(folder / "kept.pcapng"),
    ]
    with labkit.live_capture(tmp_path, [*arguments, "--rotate", "256K", "--keep", "3"]) as running:
        assert_confined(running.child.pid, DAC_OVERRIDE | SYS_PTRACE | DAC_READ_SEARCH)
        names = lambda: sorted(path.name for path in folder.iterdir())

        def has_removed():
            labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
            return len(names()) == 3 and names()[0] > "kept-00001.pcapng"

        labkit.wait_until(has_removed, "a file that was removed", 120)
        assert labkit.stop(running.child) == 0, running.err.read_text()
    files = sorted(path.name for path in folder.iterdir())
    assert len(files) == 3 and all(re.fullmatch(r"kept-\d{5}\.pcapng", name) for name in files), files
    assert files[0] > "kept-00001.pcapng"
    for name in files:
        assert (folder / name).stat().st_mode & 0o777 == 0o600
        assert (folder / name).stat().st_size > 0, "also one that was begun just before the end has its header"
        labkit.read_capture(folder / name)
        if shutil.which("capinfos"):
            done = subprocess.run(["capinfos", "-T", "-c", folder / name], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


@pytest.mark.servers
def test_one_line_grants_all_that_is_needed(tmp_path):
    """With the line that error messages, doctor and README print, both the wire and files can be observed without root."""
    program = tmp_path / "mongosonar"
    shutil.copy(labkit.MONGOSONAR, program)
    open_to_all(tmp_path)
    user = ["setpriv", "--reuid", "nobody", "--clear-groups"]
    lines = set()
    for words in (
        ["queries", "--duration", "1s"],
        ["io", "live", "--pid", str(os.getpid()), "--duration", "1s"],
        ["doctor"],
    ):
        refused = subprocess.run([*user, program, *words], capture_output=True, text=True)
        assert refused.returncode != 0
        lines |= set(re.findall(r"sudo setcap (\S+) ", refused.stderr + refused.stdout))
    readme = (labkit.LAB.parent / "README.md").read_text()
    assert len(lines) == 1 and lines <= set(re.findall(r"sudo setcap (\S+) ", readme)), lines
    granted = subprocess.run(["setcap", lines.pop(), program], capture_output=True, text=True)
    if granted.returncode:
        pytest.skip(f"no file capabilities here: {granted.stderr}")
    with open(tmp_path / "out", "wb") as out:
        for words in (["queries", "--interface", "lo", "--json"], ["io", "live", "--json", "--pid", str(os.getpid())]):
            with labkit.process(
                [*user, program, *words], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            ) as child:
                confined = lambda: child.poll() is not None or all(map(is_confined_user, tasks(child.pid).values()))
                labkit.wait_until(confined, "its confinement")
                assert child.poll() is None, (tmp_path / "out").read_text()


def is_confined_user(fields):
    """Without CAP_SETPCAP the bounding set stays as it is; no privileges can be gained from it any more."""
    without = int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
    return without and fields["NoNewPrivs"].strip() == "1" and fields["Seccomp"].strip() == "2"
