"""The memory of the agent, its helpers and its eBPF programs has limits, and the status shows what is in use."""

import pathlib
import re

import pytest
from test_agent import agent
from test_privileges import children

import labkit

pytestmark = pytest.mark.root
UNIT = labkit.LAB.parent / "packaging/mongosonar.service"


def maps(process):
    """The eBPF maps that a process has open, by id, with their bytes in the kernel."""
    found = {}
    for file in pathlib.Path(f"/proc/{process}/fdinfo").iterdir():
        try:
            fields = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        except FileNotFoundError:
            continue
        if "map_type" in fields:
            found[int(fields["map_id"])] = int(fields["memlock"])
    return found


def test_the_status_has_each_holder_and_none_has_more_than_it_may(tmp_path):
    with agent(tmp_path, "[collectors]\nsplit = true\n") as running:
        held = {one["name"]: one for one in running.status()["held"]}
        assert {one["place"] for one in held.values()} == {"agent", "helper", "kernel"}
        for name, one in held.items():
            assert one["bytes"] is None or one["bytes"] <= one["max_bytes"], (name, one)
            assert one["place"] == "agent" or one["bytes"] is None, (name, one)
        high = int(re.search(r"^MemoryHigh=(\d+)M$", UNIT.read_text(), re.M)[1]) << 20
        assert sum(one["max_bytes"] for one in held.values()) < high
        # What the kernel has, by its own account.
        processes = [running.child.pid, *children(running.child.pid)]
        kernel = {id: bytes for process in processes for id, bytes in maps(process).items()}
        most = sum(one["max_bytes"] for one in held.values() if one["place"] == "kernel")
        assert kernel and most / 2 < sum(kernel.values()) <= most, (sum(kernel.values()), most)
        # What a helper may have, and far less that it has.
        helpers = sum(one["max_bytes"] for one in held.values() if one["place"] == "helper")
        limits = []
        for helper in processes[1:]:
            text = pathlib.Path(f"/proc/{helper}/limits").read_text()
            limits.append(int(re.search(r"^Max data size +(\d+) ", text, re.M)[1]))
            used = re.search(r"^VmData:\s+(\d+) kB", pathlib.Path(f"/proc/{helper}/status").read_text(), re.M)
            assert int(used[1]) << 10 < limits[-1] / 2, helper
        assert sum(limits) == helpers, limits


def test_root_that_cannot_leave_its_user_is_in_the_status(tmp_path):
    prefix = ["setpriv", "--bounding-set", "-setuid,-setgid"]
    with agent(tmp_path, prefix=prefix) as running:
        notices = running.status()["notices"]
        assert any("stay root, because CAP_SETUID is missing" in notice for notice in notices), notices
        assert labkit.stop(running.child) == 0
