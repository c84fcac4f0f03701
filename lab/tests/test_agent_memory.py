"""The memory of the agent, its helpers and its eBPF programs has limits, and the status shows what is in use, and what of
the memory of the processes is accounted for."""

import contextlib
import os
import pathlib
import re
import struct
import subprocess

import bson
import pytest
from test_agent import agent, free_port, mongod
from test_agent_split import threaded
from test_privileges import children

import labkit

pytestmark = pytest.mark.root
less = pytest.mark.skipif(not os.environ.get("LONG"), reason="the agent holds more with split; LONG=1 lets it run")
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
        assert {one["place"] for one in held.values()} == {"agent", "mapped", "helper", "kernel"}
        for name, one in held.items():
            assert None in (one["bytes"], one["max_bytes"]) or one["bytes"] <= one["max_bytes"], (name, one)
            assert one["place"] != "kernel" or one["bytes"] is None, (name, one)
        unlimited = {name for name, one in held.items() if one["max_bytes"] is None}
        parts = {"code", "stacks", "allocator", "store_index", "packet_ring", "map_views", "helpers_code"}
        assert unlimited == parts, unlimited
        high = int(re.search(r"^MemoryHigh=(\d+)M$", UNIT.read_text(), re.M)[1]) << 20
        assert sum(one["max_bytes"] or 0 for one in held.values()) < high
        # What the kernel has, by its own account.
        processes = [running.child.pid, *children(running.child.pid)]
        kernel = {id: bytes for process in processes for id, bytes in maps(process).items()}
        most = sum(one["max_bytes"] for one in held.values() if one["place"] == "kernel")
        assert kernel and most / 2 < sum(kernel.values()) <= most, (sum(kernel.values()), most)
        # What a helper may have, and far less that it has.
        helpers = sum(one["max_bytes"] or 0 for one in held.values() if one["place"] == "helper")
        limits = []
        for helper in processes[1:]:
            text = pathlib.Path(f"/proc/{helper}/limits").read_text()
            limits.append(int(re.search(r"^Max data size +(\d+) ", text, re.M)[1]))
            used = re.search(r"^VmData:\s+(\d+) kB", pathlib.Path(f"/proc/{helper}/status").read_text(), re.M)
            assert int(used[1]) << 10 < limits[-1] / 2, helper
        assert sum(limits) == helpers, limits


def in_status(pid, *names):
    """The sum of these fields of /proc/PID/status, in bytes. A process that has ended has none of them."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M))
    return sum(int(fields.get(name, 0)) << 10 for name in names)


def own_in_files(pid):
    """The bytes of mapped files that are the process's own, because it has written to them."""
    total, path = 0, ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            path = words[5] if len(words) > 5 else ""
        elif words[0] == "Anonymous:" and path.startswith("/"):
            total += int(words[1]) << 10
    return total


def held_and_used(running):
    """What a running agent says that each part of it holds, by place and name. It adds up to what its processes have."""
    status, helpers = running.status(), children(running.child.pid)
    of_place = lambda place: {one["name"]: one["bytes"] or 0 for one in status["held"] if one["place"] == place}
    held = {place: of_place(place) for place in ("agent", "mapped", "helper")}
    sums = {place: sum(held[place].values()) for place in held}
    # Without what is mapped.
    own = in_status(running.child.pid, "RssAnon") - own_in_files(running.child.pid)
    counted = sum(bytes for name, bytes in held["agent"].items() if name not in ("code", "store_index"))
    for what, sum_, all_ in [
        ("all of the agent", sums["agent"] + sums["mapped"], in_status(running.child.pid, "VmRSS")),
        ("its own", counted, own),
        ("its helpers", sums["helper"], sum(in_status(helper, "VmRSS") for helper in helpers)),
    ]:
        print(f"memory of {what}: {sum_} bytes accounted for, {all_} in use")
        assert 0.8 * all_ < sum_ < 1.2 * all_, (what, sum_, all_, held)
    return held


@contextlib.contextmanager
def thousand_a_second(directory, port):
    """Twenty connections that ask for a thousand operations a second."""
    body = struct.pack("<I", 0) + b"\0" + bson.encode({"find": "orders", "filter": {"burn": 0}, "$db": "lab"})
    request = directory / "request"
    # An OP_MSG (2013) with its header.
    request.write_bytes(struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body)
    command = [labkit.LAB / "bin/threaded-load", port, 20, 1000, 600]
    with open(request, "rb") as asked, labkit.process(command, stdin=asked, stdout=subprocess.DEVNULL):
        yield


@pytest.mark.servers
@pytest.mark.parametrize("server, split", [pytest.param(mongod, "false", marks=less), (threaded, "true")])
def test_what_each_holds_adds_up_to_what_the_processes_have(tmp_path, server, split):
    port = free_port()
    config = f'[collectors]\nsplit = {split}\n[split]\nsample = "1/1"\n'
    with server(tmp_path, port), agent(tmp_path, config) as running, thousand_a_second(tmp_path, port):
        running.wait_for("queries", "working")
        if split == "true":
            running.wait_for("split", "working")
        running.observe(1)
        held = held_and_used(running)
        assert held["mapped"]["packet_ring"] == 32 << 20, held
        assert held["agent"]["captured"] > 0 and held["agent"]["stacks"] > 0, held
        assert "accounted for" in labkit.run("agent", "--status", "--store", running.store).stdout


def test_root_that_cannot_leave_its_user_is_in_the_status(tmp_path):
    prefix = ["setpriv", "--bounding-set", "-setuid,-setgid"]
    with agent(tmp_path, prefix=prefix) as running:
        notices = running.status()["notices"]
        assert any("stay root, because CAP_SETUID is missing" in notice for notice in notices), notices
        assert labkit.stop(running.child) == 0
