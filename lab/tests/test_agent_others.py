"""What other users of a host choose - command lines, names of folders, open files - ends no helper of the agent and hides no
server; and where a helper or the folder of the store is gone all the same, the agent ends, so that its service starts it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from agents import Agent
from test_agent import described, free_port
from test_agent_stops import helpers
from writing import Writer, answering_mongod

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

SOURCES = "[collectors]\nfiles = true\n[queries]\ntls = false\n"
NOBODY = 65534
# The system's, as other users may not run one that is below a home.
PYTHON = "/usr/bin/python3"
# Opens a file under as many numbers as it may, listens, and waits for the end.
LISTENS = """
import os, resource, socket, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
most = min(most, 50_000)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
path = open(os.path.join(os.getcwd(), "f" * 200), "w")
for number in range(most - 100):
    os.dup(path.fileno())
one = socket.socket()
one.bind(("127.0.0.1", int(sys.argv[1])))
one.listen()
print("ready here:0", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def hostile_mongod(program, port, folder, arguments):
    """A process called mongod that listens, of another user, who has chosen its folder and its arguments."""
    os.makedirs(folder, exist_ok=True)
    os.chown(folder, NOBODY, NOBODY)
    command = [program, "-S", "-c", LISTENS, str(port), *arguments]
    resource = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, user=NOBODY, group=NOBODY)
    with labkit.process(command, **resource) as child:
        labkit.first_line(child)
        yield child


def agent(stack, folder, ports, log):
    (folder / "agent.toml").write_text(SOURCES + f'interface = ["lo"]\nport = {ports}\n' + described(ports[0], log))
    life = stack.enter_context(Agent.start(folder, folder / "store"))
    life.wait(lambda: life.collector("log")["state"] == "working", "the log")
    return life


@pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"no {PYTHON}, which any user may run")
def test_what_others_start_ends_no_helper_and_hides_no_server(tmp_path):
    port, *others = (free_port() for _ in range(4))
    log = tmp_path / "mongod.log"
    log.touch()
    with contextlib.ExitStack() as stack:
        real = stack.enter_context(answering_mongod(tmp_path, port))
        # Other users cannot enter the folder of the tests.
        theirs = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-others-")))
        theirs.chmod(0o755)
        program = shutil.copy(os.path.realpath(PYTHON), theirs / "mongod")
        life = agent(stack, tmp_path, [port, *others], log)
        found = helpers(life)
        # A command line of 150,000 arguments, as `rm *` has.
        command = [PYTHON, "-c", "import sys; print('ready here:0', flush=True); sys.stdin.read()", *["a"] * 150_000]
        waits = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=NOBODY)
        labkit.first_line(stack.enter_context(labkit.process(command, **waits)))
        control = "\x01" * 120_000
        folders = [os.fsencode(theirs / name) for name in ("deep", "plain")]
        folders[0] = os.path.join(folders[0], *[b"d" * 200] * 15)
        for number, (folder, arguments) in enumerate(
            [
                (os.fsencode(theirs) + b"/\xe9", ["--dbpath", "db"]),
                (folders[0], ["--dbpath", "db", "--logpath", "log"]),
                (folders[1], [f"--{control}=1", "--dbpath", control, "--logpath", control]),
            ]
        ):
            stack.enter_context(hostile_mongod(program, others[number], folder, arguments))
        seen = lambda: {one["port"] for one in life.status()["servers"]}
        life.wait(lambda: {port, *others} <= seen(), "all servers")
        # Another search, after all of them were found.
        later = free_port()
        stack.enter_context(answering_mongod(tmp_path, later))
        life.wait(lambda: later in seen(), "a server that starts then")
        assert helpers(life) == found, "the same processes"
        assert real.poll() is None
        begun = time.time_ns()
        with Writer(log, port, turns=50):
            life.wait(lambda: (life.collector("log").get("last_data_ns") or 0) > begun, "lines of the log")
        assert life.stop() == 0


@pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"no {PYTHON}, which any user may run")
def test_a_log_path_of_another_user_is_shown_and_not_obeyed(tmp_path):
    port = free_port()
    with contextlib.ExitStack() as stack:
        theirs = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-others-")))
        theirs.chmod(0o755)
        program = shutil.copy(os.path.realpath(PYTHON), theirs / "mongod")
        # Sets the title of a terminal, goes back to the first column, and begins a line of its own.
        path = f"{theirs}/\x1b]0;owned\x07\x1b[2J\r\nmongosonar: all is well"
        folder = os.fsencode(theirs / "db")
        stack.enter_context(hostile_mongod(program, port, folder, ["--dbpath", "db", "--logpath", path]))
        (tmp_path / "agent.toml").write_text(SOURCES + f'interface = ["lo"]\nport = [{port}]\n')
        life = stack.enter_context(Agent.start(tmp_path, tmp_path / "store"))
        life.wait(lambda: port in {one["port"] for one in (life.status() or {"servers": []})["servers"]}, "the server")
        shown = [labkit.MONGOSONAR, "agent", "--status", "--store", life.store], [labkit.MONGOSONAR, "doctor"]
        printed = {command[1]: subprocess.run(command, capture_output=True) for command in shown}
        assert life.stop() == 0
        output = life.errors().encode() + b"".join(done.stdout + done.stderr for done in printed.values())
        assert b"owned" in output
        assert not {0x1B, 0x07, 0x0D} & set(output), output
        assert b"\nmongosonar: all is well" not in output, output


def ended(life):
    """The exit code of an agent that ends by itself."""
    return labkit.wait_until(lambda: life.child.poll() is not None, "the end") and life.child.returncode


def test_without_a_helper_the_agent_ends_and_the_next_one_goes_on(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(answering_mongod(tmp_path, port))
        life = agent(stack, tmp_path, [port], log)
        life.wait(lambda: life.status()["windows"] > 0, "a window")
        os.kill(helpers(life)["sonar-logs"][0], signal.SIGKILL)
        # Its unit restarts it after a failure, but not after exit code 2.
        assert ended(life) == 1
        assert "the helper process sonar-logs has ended: the agent ends, so that its service" in life.errors()
        again = agent(stack, tmp_path, [port], log)
        assert again.stop() == 0


def test_without_the_folder_of_its_store_the_agent_ends_and_the_next_one_makes_it(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(answering_mongod(tmp_path, port))
        life = agent(stack, tmp_path, [port], log)
        labkit.wait_until(
            lambda: not shutil.rmtree(life.store, ignore_errors=True) and not life.store.exists(), "it is gone"
        )
        assert ended(life) == 1
        assert f"the folder {life.store} was deleted: the agent ends" in life.errors()
        assert "makes the folder" in labkit.run("agent", "--status", "--store", life.store, code=1).stderr
        again = agent(stack, tmp_path, [port], log)
        assert again.status()["windows"] >= 0 and again.stop() == 0
