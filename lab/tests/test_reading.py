"""Commands that read files and do nothing else, started by root: what they may do, and that they still read and write."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import termios

import pytest
from test_ending import on_terminal_of
from test_privileges import DAC_READ_SEARCH, open_to_all, tasks

import labkit

pytestmark = pytest.mark.root

PAGE, STORE = "PAGE", "STORE"
READING = [
    ["queries", "--read", "{}", "--html", PAGE],
    ["logs", "report", "{}", "--html", PAGE],
    ["profiler", "report", "{}", "--html", PAGE],
    ["report", "{}", "--html", PAGE],
    ["compare", "{}", "{}", "--html", PAGE],
    ["ftdc", "report", "{}", "--html", PAGE],
    ["ftdc", "export", "{}"],
    ["ftdc", "compare", "{}", "{}"],
    ["io", "report", "{}", "--html", PAGE],
    ["io", "compare", "{}", "{}"],
    ["stacks", "compare", "{}", "{}", "--html", PAGE],
    ["disk", "estimate", "{}", "--documents", "1"],
    ["disk", "bench", "--compare", "{}", "{}", "--html", PAGE],
]
# In the history of the fixtures.
FROM, TO = "2026-11-21T21:23:00Z", "2026-11-21T21:26:00Z"
PAST = [
    ["what-changed", "--at", "2026-11-21T21:25:00Z", "--store", STORE],
    ["timeline", "--from", FROM, "--to", TO, "--store", STORE],
    ["compare", f"{FROM}+30s", f"{TO}+30s", "--store", STORE],
    ["report", "--from", FROM, "--to", TO, "--store", STORE],
    ["queries", "--at", "2026-11-21T21:25:00Z", "--store", STORE],
    ["io", "live", "--from", FROM, "--to", TO, "--store", STORE],
    ["disk", "stat", "--from", FROM, "--to", TO, "--store", STORE],
]
HISTORY = labkit.LAB.parent / "fixtures/history"
ASKING = [
    ["profiler", "status"],
    ["profiler", "set", "--db", "shop", "--level", "0"],
    ["profiler", "tail", "--db", "shop"],
    ["profiler", "report", "--db", "shop", "--html", PAGE],
    ["profiler", "impact", "--html", PAGE],
]


def named(words):
    return " ".join(word for word in words if word not in ("{}", "--html", PAGE, "--store", STORE))


@pytest.mark.parametrize("words", READING, ids=named)
def test_a_command_that_reads_files_is_not_root(words, tmp_path):
    """It waits for the writer of a pipe, and so is where it would decode."""
    pipe, page = tmp_path / "pipe", tmp_path / "page.html"
    os.mkfifo(pipe)
    arguments = [page if word == PAGE else word.format(pipe) for word in words]
    with labkit.process([labkit.MONGOSONAR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert_reads_without_root(child)
        if PAGE in words:
            # It could not be made any more.
            assert (page.stat().st_size, page.stat().st_uid) == (0, 0)
        with open(pipe, "wb") as writer:
            writer.write(b"no such file\n")
        assert_reads_nothing(child)


def assert_reads_nothing(child):
    out, err = child.communicate()
    assert child.returncode in (1, 3), (out, err)
    assert b"ermission" not in err and b"not permitted" not in err, err


@pytest.mark.parametrize("words", PAST, ids=named)
def test_a_command_that_shows_the_past_is_not_root(words, tmp_path):
    """It waits until somebody reads what it writes."""
    store = shutil.copytree(HISTORY, tmp_path / "store")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"\n" * 4096):
            pass
    os.set_blocking(writer, True)
    arguments = [store if word == STORE else word for word in words]
    with labkit.process([labkit.MONGOSONAR, *arguments], stdout=writer, stderr=writer) as child:
        os.close(writer)
        assert_reads_without_root(child)
        with open(reader, "rb") as said:
            text = said.read().strip()
        assert text and b"ermission" not in text and b"not permitted" not in text, text
        assert child.wait() in (0, 1, 4), text


@pytest.mark.parametrize("words", ASKING, ids=named)
def test_a_command_that_asks_a_server_is_not_root(words, tmp_path):
    """The server accepts its connection and never answers."""
    page = tmp_path / "page.html"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"mongodb://127.0.0.1:{listener.getsockname()[1]}/?serverSelectionTimeoutMS=600000"
        arguments = [page if word == PAGE else word for word in words]
        command = [labkit.MONGOSONAR, *arguments, "--uri", uri]
        with labkit.process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            connection, _ = listener.accept()
            with connection:
                assert_reads_without_root(child)
                # One of them measures the length of the server's log, which only that user may be able to read.
                keeps = DAC_READ_SEARCH if "impact" in words else 0
                for name, fields in tasks(child.pid).items():
                    assert int(fields["CapPrm"], 16) & ~keeps == 0, name
                # It has nothing to show and nothing to restore, so it does not wait for the server.
                assert labkit.stop(child) in (-signal.SIGINT, 128 + signal.SIGINT)


def test_a_server_is_asked_for_its_files_by_a_thread_that_is_not_root_once_all_are_confined(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener, labkit.process(["sleep", "600"]) as traced:
        uri = f"mongodb://127.0.0.1:{listener.getsockname()[1]}/?serverSelectionTimeoutMS=600000"
        command = [labkit.MONGOSONAR, "io", "record", tmp_path / "reads.msio", "--pid", traced.pid, "--uri", uri]
        with labkit.process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            connection, _ = listener.accept()
            with connection:
                threads = {fields["Name"]: fields for fields in tasks(child.pid).values()}
                assert all(fields["Seccomp"].strip() == "2" for fields in threads.values()), threads
                for name in ("names", "mongosonar-net"):
                    assert threads[name]["Uid"].split()[0] == "65534", threads
                    assert int(threads[name]["CapPrm"], 16) == 0, threads


@pytest.mark.parametrize("how", ["folder", "standard input", "descriptor"])
def test_it_is_not_root_whatever_names_its_input(how, tmp_path):
    """A folder with a pipe in it, `-`, and a pipe as zsh names it for `<(…)`."""
    reader, writer = os.pipe()
    pipe = tmp_path / "metrics.2026-11-21T21-22-47Z-00000"
    os.mkfifo(pipe)
    # Nobody can read it: whoever owns the folder could otherwise have the command stay root.
    os.symlink("/proc/1/environ", tmp_path / "link")
    words = {
        "folder": ["ftdc", "report", tmp_path],
        "standard input": ["report", "-"],
        "descriptor": ["report", f"/proc/self/fd/{reader}"],
    }[how]
    streams = dict(stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[reader])
    with labkit.process([labkit.MONGOSONAR, *words], **streams) as child:
        os.close(reader)
        assert_reads_without_root(child)
        with open(writer, "wb") as end:
            end.write(b"no such file\n")
        if how == "folder":
            pipe.write_bytes(b"no such file\n")
        assert_reads_nothing(child)


def assert_reads_without_root(child, user="65534"):
    def is_confined():
        assert child.poll() is None, child.stderr and child.stderr.read()
        return all(fields["Seccomp"].strip() == "2" for fields in tasks(child.pid).values())

    labkit.wait_until(is_confined, "a filter of system calls")
    for name, fields in tasks(child.pid).items():
        assert set(fields["Uid"].split()) == {user}, name
        assert int(fields["CapPrm"], 16) & ~DAC_READ_SEARCH == 0, name
        assert fields["NoNewPrivs"].strip() == "1", name


def test_a_command_that_reads_files_still_reads_and_writes_those_of_root(tmp_path):
    """A log that only its owner may read, in a folder that only root may enter, and a page there."""
    text = labkit.LAB.parent / "fixtures/mongod-4.4-minutes/mongod.log.gz"
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    log, page = closed / "mongod.log.gz", closed / "page.html"
    shutil.copy(text, log)
    shutil.chown(log, "nobody")
    log.chmod(0o600)
    # Many containers have only this one.
    for bounds in ["-dac_read_search", "+all"]:
        limits = ["setpriv", "--bounding-set", bounds]
        assert not labkit.run("logs", "report", log, "--json", "--html", page, prefix=limits).stderr
        assert page.read_bytes().startswith(b"<!doctype html>") and page.stat().st_uid == 0
        page.unlink()
    # Pipes are copied to files that it can no longer make, and a shell names them below /proc.
    script = f"exec {labkit.MONGOSONAR} report <(cat {log}) --html >(cat > {page}) --json"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert json.loads(done.stdout)["rows"]


def test_a_log_in_the_root_of_a_process_can_be_read(tmp_path):
    """As in a container: whoever follows /proc/PID/root must be able to inspect the process."""
    log = tmp_path / "mongod.log.gz"
    shutil.copy(labkit.LAB.parent / "fixtures/mongod-4.4-minutes/mongod.log.gz", log)
    assert not labkit.run("logs", "report", f"/proc/{os.getpid()}/root{log}", "--json").stderr


def test_root_stays_where_nobody_could_list_a_folder_but_not_read_its_files(tmp_path):
    """As on some network file systems. Here no capability applies to the owner of the files, whom the namespace does not
    know, and root reads them by their group."""
    folder = tmp_path / "diagnostic.data"
    folder.mkdir(mode=0o755)
    for file in (labkit.LAB.parent / "fixtures/ftdc/day").iterdir():
        copied = shutil.copy(file, folder)
        os.chown(copied, 65_533, 0)
        os.chmod(copied, 0o640)
    command = [labkit.MONGOSONAR, "ftdc", "report", folder, "--json"]
    inside = ["unshare", "--user", "sh", "-c", 'echo && read -r _ && exec "$@"', "sh", *command]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with labkit.process(inside, **pipes) as child:
        assert child.stdout.readline() == b"\n", child.stderr.read()
        for ids in ["uid_map", "gid_map"]:
            pathlib.Path(f"/proc/{child.pid}/{ids}").write_text("0 0 1\n65534 65534 1\n")
        out, err = child.communicate(b"\n")
        assert child.returncode == 0 and not err, err
        assert json.loads(out)


def test_ctrl_z_in_a_view_of_the_past_stops_its_whole_process_group(tmp_path):
    """In a script of a user: where root starts it, it is nobody, who may not stop the script of root."""
    store, program = shutil.copytree(HISTORY, tmp_path / "store"), shutil.copy(labkit.MONGOSONAR, tmp_path)
    open_to_all(tmp_path)
    shell = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "bash", "--norc", "--noediting", "-i"]
    with on_terminal_of(*shell) as terminal:
        terminal.type(b"PS1='ready'\"> \"; stty -echo\n")
        terminal.wait_for(b"ready> ")
        terminal.type(f"sh -c '{program} queries --store {store} --from {FROM}; :'\n".encode())
        terminal.wait_for(b"\x1b[?1049h")
        # Before that, Ctrl-Z is up to the terminal.
        labkit.wait_until(lambda: terminal.read() and not terminal.modes()[3] & termios.ICANON, "raw mode")
        terminal.shown = b""
        terminal.type(b"\x1a")
        terminal.wait_for(b"ready> ")
        assert b"Stopped" in terminal.shown
        terminal.shown = b""
        terminal.type(b"fg\n")
        terminal.wait_for(b"\x1b[?1049h")
        labkit.wait_until(lambda: terminal.read() and not terminal.modes()[3] & termios.ICANON, "raw mode")
        terminal.type(b"q")
        terminal.wait_for(b"ready> ")
        terminal.type(b"exit\n")


def test_a_replay_of_a_file_of_another_process_says_what_it_takes(tmp_path):
    log = labkit.LAB.parent / "fixtures/mongod-4.4-minutes/mongod.log.gz"
    inside = f"/proc/{os.getpid()}/root{log}"
    words = ["agent", "--replay", inside, "--store", tmp_path / "store"]
    assert "--keep-privileges" in labkit.run(*words, code=1).stderr
    labkit.run(*words, "--keep-privileges")


def test_a_replay_keeps_root_for_its_store_only(tmp_path):
    pipe, store = tmp_path / "pipe", tmp_path / "store"
    os.mkfifo(pipe)
    log = labkit.LAB.parent / "fixtures/mongod-4.4-minutes/mongod.log.gz"
    command = [labkit.MONGOSONAR, "agent", "--replay", pipe, "--store", store]
    with labkit.process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert_reads_without_root(child, "0")
        pipe.write_bytes(log.read_bytes())
        out, err = child.communicate()
        assert child.returncode == 0 and b"not permitted" not in err, (out, err)
    past = ["timeline", "--store", store, "--json"]
    assert not labkit.run(*past).stderr
    # Its writer was killed, and whoever copied it left out the index.
    (day,) = store.glob("*.db")
    program = "import os, sqlite3, sys; one = sqlite3.connect(sys.argv[1]); one.execute('pragma user_version = 99'); "
    program += "one.execute('pragma user_version = ' + sys.argv[2]); one.commit(); os._exit(0)"
    with contextlib.closing(sqlite3.connect(day)) as database:
        (version,) = database.execute("pragma user_version").fetchone()
    subprocess.run([sys.executable, "-c", program, day, str(version)], check=True)
    os.remove(f"{day}-shm")
    assert os.path.getsize(f"{day}-wal") > 0
    assert not labkit.run(*past).stderr
