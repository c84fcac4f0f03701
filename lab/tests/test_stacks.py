"""`mongosonar stacks` over a program whose threads wait in known places, with frame pointers, without, and stripped, and
over real WiredTiger. gdb (and pt-pmp, where it is installed) is the oracle: parked threads look the same to both."""

import collections
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from labkit import LAB, MONGOSONAR, of_each_thread, run, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs eBPF")

# The class of each thread of lab/waits/waits.c, from its system call: none of its functions is MongoDB's.
CLASSES = {
    "condition": "mutex, ticket or condition, kind unknown",
    "semaphore": "mutex, ticket or condition, kind unknown",
    "mutex": "mutex in the server",
    "read": "file read",
    "recvmsg": "waiting for a request",
    "poll": "lock or another node, kind unknown",
    "select": "page busy in WiredTiger, probably",
    "nanosleep": "write conflict backoff or sleep",
}
# The function in which each thread waits.
FUNCTIONS = {name: f"in_{name}" for name in CLASSES}
BUILDS = {
    "frame pointers": ["-fno-omit-frame-pointer"],
    "no frame pointers": ["-fomit-frame-pointer"],
    "stripped": ["-fomit-frame-pointer", "-s", "-rdynamic"],
}


def stacks(pid, *options):
    done = run("stacks", "--pid", pid, *options, code=None)
    if done.returncode == 1 and re.search("permission|BTF|cannot load", done.stderr):
        pytest.skip(f"no eBPF here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled(source, program, *options):
    subprocess.run(["cc", "-O2", "-o", str(program), str(LAB / "waits" / source), *options], check=True)
    return program


def all_sleep(pid):
    """Whether all threads of a process do."""
    return {stat.rpartition(")")[2].split()[0] for (stat,) in of_each_thread(pid, "stat")} == {"S"}


@pytest.fixture(params=BUILDS)
def parked(request, tmp_path):
    """The program with all threads parked; the ids of its threads by name."""
    program = compiled("waits.c", tmp_path / "waits", *BUILDS[request.param], "-lpthread")
    child = subprocess.Popen([program, "parked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        threads = dict(reversed(child.stdout.readline().split()) for _ in CLASSES)
        wait_until(lambda: all_sleep(child.pid), "threads that sleep")
        yield child.pid, threads
    finally:
        child.kill()
        child.wait()


def functions(row):
    return [frame["function"] for frame in row["frames"]]


def test_every_thread_has_its_whole_stack_and_its_class(parked):
    pid, _ = parked
    report = json.loads(stacks(pid, "--all", "--format", "json"))
    assert report["kind"] == "stacks" and report["samples"] == len(CLASSES) + 1
    assert report["shown"] == report["samples"] and report["idle"] == report["not_asked"] == report["cut"] == 0
    assert 0 < report["walk_ns_per_thread"] < 1_000_000
    found = {}
    for row in report["stacks"]:
        name = next((name for name, function in FUNCTIONS.items() if function in functions(row)), None)
        if name:
            found[name] = row
    assert found.keys() == CLASSES.keys()
    for name, row in found.items():
        assert row["class"] == CLASSES[name], name
        assert row["state"] == "sleeping" and row["cut"] is None and row["threads"] == row["samples"] == 1
        # The functions of the program, whole and in order.
        own = [frame["function"] for frame in row["frames"] if frame["library"] is None]
        # A static function is not exported, so a stripped program has no name for it.
        assert own[:3] == [FUNCTIONS[name], "below", "outermost"] and own[3:] in (["thread"], ["?"]), name


def test_idle_threads_are_not_waiting(parked):
    pid, _ = parked
    report = json.loads(stacks(pid, "--format", "json"))
    # The one in recvmsg.
    assert report["idle"] == 1 and report["shown"] == report["samples"] - 1
    assert "Not shown: 1 sample of idle threads" in stacks(pid)
    assert json.loads(stacks(pid, "--on-cpu", "--format", "json"))["shown"] == 0
    assert json.loads(stacks(pid, "--threads", "checkpoint", "--format", "json"))["not_asked"] == report["samples"]


def gdb_stacks(pid):
    """The functions of each thread by gdb, with its own exported and debug symbols only."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    command = ["gdb", "-nx", "-ex", "set pagination 0", "-ex", "thread apply all bt", "-batch", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "DEBUGINFOD_URLS": ""})
    return done.stdout


def test_gdb_sees_the_same_functions_of_the_program(parked):
    pid, _ = parked
    text = gdb_stacks(pid)
    names = re.compile(r"^#\d+ +(?:0x[0-9a-f]+ in )?([\w?]+)", re.M)
    expected = collections.Counter()
    for thread in re.split(r"^Thread ", text, flags=re.M)[1:]:
        own = [
            name for name in names.findall(thread) if name.startswith("in_") or name in ("below", "outermost", "main")
        ]
        expected[tuple(own)] += 1
    report = json.loads(stacks(pid, "--all", "--format", "json"))
    found = collections.Counter()
    for row in report["stacks"]:
        own = [name for name in functions(row) if name.startswith("in_") or name in ("below", "outermost", "main")]
        found[tuple(own)] += row["samples"]
    assert sum(found.values()) == sum(expected.values()) == len(CLASSES) + 1
    assert found[("in_poll", "below", "outermost")] == 1
    # Where gdb cannot unwind a thread, it finds no function of the program in it.
    del expected[()]
    assert expected, text
    assert not expected - found, (expected, found)


def test_the_format_of_pt_pmp(parked, tmp_path):
    pid, _ = parked
    lines = stacks(pid, "--all", "--format", "pmp").splitlines()
    assert len(lines) == len(CLASSES) + 1
    assert all(re.fullmatch(r" {6}1 [^ ]+", line) for line in lines), lines
    assert lines == sorted(lines, reverse=True)
    poll = next(line for line in lines if "in_poll" in line)
    assert re.match(r" {6}1 poll\(libc\.so\.6\),in_poll,below,outermost,", poll), poll
    if not shutil.which("pt-pmp"):
        pytest.skip("pt-pmp is not installed")
    saved = tmp_path / "gdb.txt"
    saved.write_text(gdb_stacks(pid))
    theirs = subprocess.run(["pt-pmp", saved], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    own = re.compile(r"(in_\w+,below,outermost)")
    assert sorted(own.findall("\n".join(lines))) == sorted(own.findall(theirs))


def document(page):
    """The document that a page draws."""
    return json.loads(page.split('<script id="data" type="application/json">')[1].split("</script>")[0])


def test_the_page_draws_the_document(parked, tmp_path):
    pid, _ = parked
    page = tmp_path / "stacks.html"
    report = json.loads(stacks(pid, "--all", "--format", "json", "--html", page))
    assert document(page.read_text()) == report
    printed = document(stacks(pid, "--all", "--format", "html"))
    assert printed["kind"] == "stacks" and printed["samples"] == report["samples"]
    # A file of another kind stays as it is.
    other = tmp_path / "mongod.log"
    other.write_text("a log\n")
    done = run("stacks", "--pid", pid, "--html", other, code=2)
    assert "name another file" in done.stderr and other.read_text() == "a log\n"


def test_full_names_leave_nothing_out(parked):
    pid, _ = parked
    short, full = (stacks(pid, "--all", "--format", "folded", *more) for more in [(), ("--full-names",)])
    machinery = re.compile(r";(start_thread|clone3?);")
    assert not machinery.search(short) and machinery.search(full)
    assert json.loads(stacks(pid, "--full-names", "--format", "json"))["full_names"] is True


def test_folded_stacks_begin_at_the_root(parked):
    pid, _ = parked
    lines = stacks(pid, "--all", "--format", "folded").splitlines()
    poll = next(line for line in lines if "in_poll" in line)
    assert re.search(r"^other threads;.*;outermost;below;in_poll;poll;\[lock or another node, kind unknown\] 1$", poll)


def test_a_running_thread_is_sampled_where_it_runs(tmp_path):
    program = compiled("waits.c", tmp_path / "waits", "-lpthread")
    child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(len(CLASSES) + 1):
            child.stdout.readline()
        report = json.loads(stacks(child.pid, "--duration", "3s", "--format", "json"))
        assert report["snapshots"] >= 10
        spinning = [row for row in report["stacks"] if "on_processor" in functions(row)]
        assert {row["class"] for row in spinning} <= {"on CPU", "waiting for a CPU"}
        # It runs, or waits for a processor on a busy machine, at every look.
        assert sum(row["samples"] for row in spinning) >= 0.9 * report["snapshots"]
        own = [frame["function"] for frame in spinning[0]["frames"] if frame["library"] is None]
        assert own[:3] == ["on_processor", "below", "outermost"]
    finally:
        child.kill()
        child.wait()


def test_a_deleted_program_keeps_its_names(tmp_path):
    program = compiled("waits.c", tmp_path / "waits", "-lpthread")
    child = subprocess.Popen([program, "parked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for _ in CLASSES:
            child.stdout.readline()
        wait_until(lambda: all_sleep(child.pid), "threads that sleep")
        program.unlink()
        assert ",in_poll,below,outermost," in stacks(child.pid, "--all", "--format", "pmp")
    finally:
        child.kill()
        child.wait()


def test_threads_of_real_wiredtiger(tmp_path):
    """Its own threads, which wait for something to do."""
    program = compiled("engine.c", tmp_path / "engine", "-lwiredtiger")
    folder = tmp_path / "db"
    folder.mkdir()
    child = subprocess.Popen([program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        wait_until(lambda: all_sleep(child.pid), "threads that sleep")
        rows = json.loads(stacks(child.pid, "--all", "--format", "json"))["stacks"]
        eviction = [row for row in rows if "__wt_evict_thread_run" in functions(row)]
        assert eviction and all("__wt_cond_wait_signal" in functions(row) for row in eviction), rows
        # One may just have woken up, and waits for a processor.
        asleep = [row for row in eviction if row["state"] == "sleeping"]
        assert {row["class"] for row in asleep} == {"eviction worker idle"}, rows
        assert all(row["idle"] for row in asleep)
        # pthread_cond_timedwait of glibc has no frame pointers, and hides nothing.
        assert all(row["cut"] is None for row in rows)
    finally:
        child.kill()
        child.wait()


def test_errors_say_what_to_do(parked, tmp_path):
    pid, _ = parked
    assert "there is no process 4194303" in run("stacks", "--pid", "4194303", code=1).stderr
    rules = tmp_path / "rules"
    rules.write_text("[mine]\nno pattern\n")
    assert "line 2" in run("stacks", "--pid", pid, "--classes", rules, code=2).stderr
    rules.write_text("[parked on purpose]\nlab  in_poll\n")
    assert "parked on purpose" in stacks(pid, "--classes", str(rules))


def test_without_rights_it_says_which_are_missing(parked):
    pid, _ = parked
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        command = [shutil.copy(MONGOSONAR, folder), "stacks", "--pid", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, user="nobody", group="nogroup", extra_groups=[])
    assert done.returncode == 1, done
    assert all(f"cap_{name}" in done.stderr.lower() for name in ("bpf", "perfmon", "sys_ptrace")), done.stderr
