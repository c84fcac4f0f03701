"""File systems stop answering below the files of a server, and below the store: that is said, other servers are observed as
before, the agent ends when it is asked to, and goes on where it was once they answer."""

import contextlib
import os
import signal
import socket
import time

import pytest
from agents import Agent
from hanging import hanging_files
from test_agent import free_port
from writing import WINDOW_S, Writer, answering_mongod, stored, window_of

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

SOURCES = "[collectors]\nfiles = false\n[queries]\ntls = false\n"
ALL_SOURCES = "[collectors]\nsplit = true\n[queries]\ntls = false\n"
HANGS = "its file system does not answer"
# So often the agent must give a sign of life.
WATCHDOG_S = 1


def table(port, log, dbpath):
    return f'[[server]]\nport = {port}\nlog = "{log}"\ndbpath = "{dbpath}"\n'


def has_lines(life, writer, window):
    """Whether the lines of a window are stored, all of them once."""
    lines, _ = stored(life.store, window, window + WINDOW_S, writer.port)
    return lines[window] == writer.tallies()[window]


def test_files_of_one_server_that_hang_hold_up_no_other_server(tmp_path):
    hung, healthy, later = sorted(free_port() for _ in range(3))
    folders = [tmp_path / "hung", tmp_path / "healthy"]
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(folders[0], tmp_path / "below"))
        for folder in (files.folder, folders[1]):
            (folder / "diagnostic.data").mkdir(parents=True)
            (folder / "mongod.log").touch()
        config = f'interface = ["lo"]\nport = {[hung, healthy, later]}\n'
        config += "".join(
            table(port, folder / "mongod.log", folder) for port, folder in zip((hung, healthy), folders, strict=True)
        )
        (tmp_path / "agent.toml").write_text(ALL_SOURCES + config)
        for port in (hung, healthy):
            stack.enter_context(answering_mongod(tmp_path, port))
        life = stack.enter_context(Agent.start(tmp_path, tmp_path / "store"))
        life.wait(lambda: life.collector("log")["state"] == "working", "the logs")
        # One of both, and by the next status the other one, too.
        written = life.status()["written_ns"]
        life.wait(lambda: life.status()["written_ns"] > written, "another status")
        begun = time.time()
        # The one on the file system that hangs writes what is below it: it does not hang itself.
        writers = [
            stack.enter_context(Writer(folder / "mongod.log", port, turns=50))
            for folder, port in ((files.folder, hung), (folders[1], healthy))
        ]
        life.wait_until_read()
        files.stop()
        stopped = time.time()
        for name in ("log", "internals"):
            life.wait(lambda: HANGS in life.problems(name), f"that the files of {name} hang")  # noqa: B023
            assert f"port {hung}: " in life.problems(name) and f"port {healthy}: {folders[1]}" not in life.problems(
                name
            )
        window = window_of(stopped) + 2 * WINDOW_S
        enough = lambda: (life.status()["last_window_ns"] or 0) > (window + 2 * WINDOW_S) * 10**9
        life.wait(enough, "windows")
        labkit.wait_until(lambda: has_lines(life, writers[1], window), "the lines of the other server")
        # One that starts now is found, although the search asks for the files of all.
        stack.enter_context(answering_mongod(tmp_path, later))
        life.wait(lambda: any(one["port"] == later for one in life.status()["servers"]), "a server that starts now")
        files.go_on()
        life.wait(lambda: HANGS not in life.problems("log") + life.problems("internals"), "files that can be read")
        life.wait_until_read()
        for writer in writers:
            writer.close()
        ended = time.time()
        life.wait(lambda: life.status()["last_window_ns"] > ended * 1e9, "the last window")
        # It ends, and one begins, while they hang.
        files.stop()
        assert life.stop() == 0
        again = stack.enter_context(Agent.start(tmp_path, life.store))
        again.wait(lambda: HANGS in again.problems("log"), "that the log hangs at the start")
        assert again.collector("log")["state"] == "working", again.status()
        assert again.stop() == 0
    text = life.errors()
    assert text.count(f"log, port {hung}: it works again") == 1, text
    for writer in writers:
        lines, commands = stored(life.store, window_of(begun), window_of(ended) + WINDOW_S, writer.port)
        assert dict(lines) == dict(writer.tallies())
        for window in range(window_of(begun), window_of(ended) + WINDOW_S, WINDOW_S):
            least, most = writer.commands_of(window)
            assert least <= commands[window] <= most, window


def test_files_of_one_server_that_cannot_be_closed_hold_up_no_other_server(tmp_path):
    """The helper that opens a log closes it once the agent has it: its file system hangs there, and answers all else."""
    hung, healthy = sorted(free_port() for _ in range(2))
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(tmp_path / "hung", tmp_path / "below", "--hang-at-close"))
        folders = {hung: files.point, healthy: tmp_path / "healthy"}
        folders[healthy].mkdir()
        # What is below the one that hangs does not hang.
        logs = {hung: files.folder / "mongod.log", healthy: folders[healthy] / "mongod.log"}
        for log in logs.values():
            log.touch()
        config = f'interface = ["lo"]\nport = {[hung, healthy]}\n'
        config += "".join(table(port, folder / "mongod.log", folder) for port, folder in folders.items())
        (tmp_path / "agent.toml").write_text(SOURCES + config)
        for port in folders:
            stack.enter_context(answering_mongod(tmp_path, port))
        life = stack.enter_context(Agent.start(tmp_path, tmp_path / "store"))
        life.wait(lambda: life.collector("log")["state"] == "working", "the logs")
        written = life.status()["written_ns"]
        life.wait(lambda: life.status()["written_ns"] > written, "another status")
        writers = [stack.enter_context(Writer(log, port, turns=50)) for port, log in logs.items()]
        begun = time.time()
        window = window_of(begun) + WINDOW_S
        life.wait(lambda: (life.status()["last_window_ns"] or 0) > (window + 2 * WINDOW_S) * 10**9, "windows")
        for writer in writers:
            labkit.wait_until(lambda: has_lines(life, writer, window), "lines of both servers")  # noqa: B023
        assert not any(f"port {port}: " in life.problems("log") for port in folders), life.problems("log")
        # The kernel lets no process end that has such a file open.
        files.child.kill()
        assert life.stop() == 0


@contextlib.contextmanager
def service_manager(monkeypatch, path):
    """A service manager that wants signs of life from what is started meanwhile; yields what it receives them with."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_S * 10**6))
        yield manager


def signs_of_life(manager):
    """How many have come since the last call."""
    came = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            came += manager.recv(4096) == b"WATCHDOG=1"
    return came


def test_a_store_that_hangs_is_said_and_the_agent_goes_on_or_ends(tmp_path, monkeypatch):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    (tmp_path / "agent.toml").write_text(
        SOURCES + f'interface = ["lo"]\nport = [{port}]\n' + table(port, log, tmp_path)
    )
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(hanging_files(tmp_path / "hung", tmp_path / "below"))
        stack.enter_context(answering_mongod(tmp_path, port))
        manager = stack.enter_context(service_manager(monkeypatch, tmp_path / "notify"))
        life = stack.enter_context(Agent.start(tmp_path, files.point / "store"))
        life.wait(lambda: life.collector("log")["state"] == "working", "the log")
        begun = time.time()
        writer = stack.enter_context(Writer(log, port, turns=50))
        life.wait_until_read()
        files.stop()
        life.wait(lambda: "has not answered for" in life.errors(), "that the store hangs")
        # Those that came before were told by the main thread, which stands still now.
        signs_of_life(manager)
        life.wait(lambda: signs_of_life(manager), "a sign of life meanwhile")
        life.wait(lambda: signs_of_life(manager), "another one")
        files.go_on()
        life.wait(lambda: "the store did not answer for" in life.errors(), "that it answers")
        life.wait_until_read()
        # It stands still itself, and has much to catch up on: its service manager would kill it if it said nothing then.
        life.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, life.child.pid, os.WSTOPPED | os.WNOWAIT)
        # span: several times that in which a sign of life must come
        time.sleep(4 * WATCHDOG_S)
        signs_of_life(manager)
        life.child.send_signal(signal.SIGCONT)
        life.wait(lambda: signs_of_life(manager), "a sign of life after a standstill")
        life.wait_until_read()
        life.wait(lambda: signs_of_life(manager), "another one")
        writer.close()
        ended = time.time()
        life.wait(lambda: life.status()["last_window_ns"] > ended * 1e9, "the last window")
        assert life.status()["windows_lost"] == 0 and life.collector("queries")["lost"] == 0
        # Asked to end, it does, though it cannot store what is open.
        files.stop()
        life.child.send_signal(signal.SIGTERM)
        life.wait(
            lambda: "does not answer: the agent ends, and what waits is lost" in life.errors(), "that it gives up"
        )
        # SQLite has mapped a file there and has changed it: the kernel lets the process end once that is written, or
        # cannot be.
        files.child.kill()
        assert life.child.wait(60) == 1
        lines, commands = stored(files.folder / "store", window_of(begun), window_of(ended) + WINDOW_S)
    assert dict(lines) == dict(writer.tallies())
    for window in range(window_of(begun), window_of(ended) + WINDOW_S, WINDOW_S):
        least, most = writer.commands_of(window)
        assert least <= commands[window] <= most, window
