"""A process that is called like a server withholds what others want to read of it at their start: its program and its log
are on a file system that stops answering. Commands and the agent start all the same, say so, and observe other servers."""

import contextlib
import json
import subprocess

import pytest
from agents import Agent
from hanging import hanging_files
from test_agent import free_port
from writing import answering_mongod

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

WITHHELD = "left out, because they do not answer"


@contextlib.contextmanager
def withholding(tmp_path):
    """A server that answers, and one that withholds its files; yields their processes and ports."""
    ports = [free_port() for _ in range(2)]
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(tmp_path / "hung", tmp_path / "below"))
        (files.folder / "opened").touch()
        servers = []
        for folder, port in zip((tmp_path, files.point), ports, strict=True):
            (folder / "mongod.log").touch()
            options = ["--logpath", str(folder / "mongod.log")]
            opened = stack.enter_context((files.point / "opened").open())
            servers.append(stack.enter_context(answering_mongod(folder, port, *options, stdin=opened)))
        files.stop()
        yield servers, ports


def test_what_a_process_withholds_holds_up_no_command_that_starts(tmp_path):
    with withholding(tmp_path) as ((healthy, hung), ports):
        named = [word for port in ports for word in ("--port", str(port))]
        queries = ["queries", "--interface", "lo", *named, "--json", "--duration", "1s"]
        for words in [queries, [*queries, "--split"], ["why", *named, "--json", "--duration", "1s"]]:
            done = subprocess.run([labkit.MONGOSONAR, *words], capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, (words, done.stderr)
            silent = [line for line in done.stderr.splitlines() if WITHHELD in line]
            assert silent and all(line.endswith(f"processes {hung.pid}") for line in silent), done.stderr
            # Both have a file open there, and nobody asks its file system for it.
            assert "names of files" not in done.stderr, done.stderr
            if words[0] == "why":
                assert f"tracing process {min(healthy.pid, hung.pid)}" in done.stderr, done.stderr


def test_what_a_process_withholds_does_not_hold_up_the_doctor(tmp_path):
    with withholding(tmp_path) as ((healthy, hung), _):
        done = subprocess.run([labkit.MONGOSONAR, "doctor", "--json"], capture_output=True, text=True, timeout=300)
        (log,) = [one for one in json.loads(done.stdout)["checks"] if one["name"] == "log"]
        assert f"({hung.pid}): its log does not answer" in log["found"], log
        assert str(tmp_path / "mongod.log") in log["found"], log


def test_what_a_process_withholds_holds_up_no_agent_that_starts(tmp_path):
    with withholding(tmp_path) as ((_, hung), ports):
        (tmp_path / "agent.toml").write_text(
            f'[collectors]\nsplit = true\n[queries]\ninterface = ["lo"]\nport = {ports}\n'
        )
        with Agent.start(tmp_path, tmp_path / "store") as life:
            seen = lambda: {one["port"] for one in (life.status() or {"servers": []})["servers"]}
            life.wait(lambda: set(ports) <= seen(), "both servers")
            assert any(WITHHELD in line and str(hung.pid) in line for line in life.errors().splitlines())
            assert life.stop() == 0
