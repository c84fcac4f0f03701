"""Helper processes of the agent stand still, as under a debugger or on a machine that is out of memory: what they do waits,
which is said; everything else goes on; and once they go on, nothing is missing and nothing is there twice."""

import collections
import contextlib
import os
import pathlib
import signal
import time

import pytest
from agents import Agent
from test_agent import described, free_port
from test_privileges import children
from writing import WINDOW_S, Writer, answering_mongod, stored, window_of

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]

LONG = bool(os.environ.get("LONG"))

# The collectors that each works for.
HELPERS = {
    "sonar-logs": ["log", "internals"],
    "sonar-rings": ["queries"],
    "sonar-folders": ["files"],
    "sonar-paths": ["files"],
}
# With the programs that divide time, and those at TLS libraries: loading them takes a while.
MORE = {"sonar-tls": ["queries"], "sonar-files": ["split"], "sonar-functions": ["split"]}
# With LONG=1, one after the other for a minute each; else all at once, until the agent has said so and stored two windows.
STANDSTILL_S = 60 if LONG else 0


def helpers(life):
    """The numbers of the helper processes by their names; some have the same."""
    found = collections.defaultdict(list)
    for pid in sorted(children(life.child.pid)):
        found[pathlib.Path(f"/proc/{pid}/comm").read_text().strip()].append(pid)
    return found


def has_stored(life, windows):
    stored_before = life.status()["windows"]
    life.wait(lambda: life.status()["windows"] >= stored_before + windows, f"{windows} windows")


def stand_still(life, names, wanted):
    """Stops these helpers, waits until that is said and longer, and lets them go on."""
    found = helpers(life)
    each = lambda number: [os.kill(pid, number) for name in names for pid in found[name]]
    each(signal.SIGSTOP)
    begun = time.time_ns()
    said = lambda: all(
        f"helper process {name}: process {found[name][0]} is stopped" in life.problems(collector)
        for name in names
        for collector in wanted[name]
    )
    life.wait(said, f"that {names} are stopped")
    # span: in which the others go on
    time.sleep(STANDSTILL_S)
    has_stored(life, 2)
    assert life.collector("machine")["last_data_ns"] > begun and life.collector("queries")["last_data_ns"] > begun
    each(signal.SIGCONT)
    goes_on = lambda: (
        not any("helper" in life.problems(name) for name in ("log", "internals", "queries", "files", "split"))
    )
    life.wait(goes_on, f"the end of what was wrong with {names}")
    assert helpers(life) == found, "the same processes"


def test_helpers_that_stand_still_hold_up_nothing_else_and_nothing_is_lost(tmp_path):
    ports, log = sorted([free_port(), free_port()]), tmp_path / "mongod.log"
    log.touch()
    split = 'split = true\n[split]\nsample = "1/1"\n' if LONG else ""
    queries = f'[queries]\ninterface = ["lo"]\nport = {ports}\ntls = {str(LONG).lower()}\n'
    (tmp_path / "agent.toml").write_text(f"[collectors]\n{split}{queries}" + described(ports[0], log))
    wanted = HELPERS | (MORE if LONG else {})
    with contextlib.ExitStack() as stack:
        stack.enter_context(answering_mongod(tmp_path, ports[0]))
        life = stack.enter_context(Agent.start(tmp_path, tmp_path / "store"))
        for name in ("log", "files"):
            life.wait(lambda: life.collector(name)["state"] == "working", name)  # noqa: B023
        assert set(wanted) <= set(helpers(life)), helpers(life)
        begun = time.time()
        writer = stack.enter_context(Writer(log, ports[0], turns=50))
        life.wait_until_read()
        for names in [[name] for name in wanted] if LONG else [list(wanted)]:
            # Nobody opens the new file meanwhile.
            writer.rotate = "rename"
            labkit.wait_until(lambda: writer.rotate is None, "a rotation")
            stand_still(life, names, wanted)
            life.wait_until_read()
        # A server is found that starts now.
        stack.enter_context(answering_mongod(tmp_path, ports[1]))
        life.wait(lambda: any(one["port"] == ports[1] for one in life.status()["servers"]), "the other server")
        writer.close()
        ended = time.time()
        has_stored(life, 2)
        assert any("came late" in notice for notice in life.status()["notices"]), life.status()["notices"]
        assert life.stop() == 0
    text = life.errors()
    for name in wanted:
        assert text.count(f"helper process {name}: it works again") == len(wanted[name]), (name, text)
    lines, commands = stored(life.store, window_of(begun), window_of(ended) + WINDOW_S)
    assert dict(lines) == dict(writer.tallies())
    for window in range(window_of(begun), window_of(ended) + WINDOW_S, WINDOW_S):
        least, most = writer.commands_of(window)
        assert least <= commands[window] <= most, window
