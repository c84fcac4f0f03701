"""Commands that read files and do nothing else, started by root: what they may do, and that they still read and write."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from test_privileges import DAC_READ_SEARCH, tasks

import labkit

pytestmark = pytest.mark.root

READING = [
    ["queries", "--read", "{}"],
    ["logs", "report", "{}"],
    ["profiler", "report", "{}"],
    ["report", "{}"],
    ["compare", "{}", "{}"],
    ["ftdc", "report", "{}"],
    ["ftdc", "export", "{}"],
    ["ftdc", "compare", "{}", "{}"],
    ["io", "report", "{}"],
    ["io", "compare", "{}", "{}"],
    ["stacks", "compare", "{}", "{}"],
    ["disk", "estimate", "{}", "--documents", "1"],
    ["disk", "bench", "--compare", "{}", "{}"],
]


@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(word for word in words if word != "{}"))
def test_a_command_that_reads_files_is_not_root(words, tmp_path):
    """It waits for the writer of a pipe, and so is where it would decode."""
    pipe, page = tmp_path / "pipe", tmp_path / "page.html"
    os.mkfifo(pipe)
    arguments = [word.format(pipe) for word in words]
    with labkit.process([labkit.MONGOSONAR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert_reads_without_root(child)
        with open(pipe, "wb") as writer:
            writer.write(b"no such file\n")
        out, err = child.communicate()
        assert child.returncode in (1, 3), (out, err)
        assert b"ermission" not in err and b"not permitted" not in err, err
    assert not page.exists()


def assert_reads_without_root(child, user="65534"):
    def is_confined():
        assert child.poll() is None, child.stderr.read()
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
    command = [labkit.MONGOSONAR, "logs", "report", log, "--json", "--html", page]
    # Many containers have only this one.
    for bounds in ["-dac_read_search", "+all"]:
        done = subprocess.run(["setpriv", "--bounding-set", bounds, *command], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
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
    command = [labkit.MONGOSONAR, "logs", "report", f"/proc/{os.getpid()}/root{log}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


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
    past = [labkit.MONGOSONAR, "timeline", "--store", store, "--json"]
    done = subprocess.run(past, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    # Its writer was killed, and whoever copied it left out the index.
    (day,) = store.glob("*.db")
    program = "import os, sqlite3, sys; one = sqlite3.connect(sys.argv[1]); one.execute('pragma user_version = 99'); "
    program += "one.execute('pragma user_version = ' + sys.argv[2]); one.commit(); os._exit(0)"
    with contextlib.closing(sqlite3.connect(day)) as database:
        (version,) = database.execute("pragma user_version").fetchone()
    subprocess.run([sys.executable, "-c", program, day, str(version)], check=True)
    os.remove(f"{day}-shm")
    assert os.path.getsize(f"{day}-wal") > 0
    done = subprocess.run(past, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
