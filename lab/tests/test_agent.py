"""The agent as a service runs it: real packets, a log that is rotated, sources that die and return, a changed
configuration, the service manager, privileges, and how it ends."""

import contextlib
import datetime
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from agents import WINDOW_S, Agent
from test_netns import inside, ip, join_by_veth, namespaces
from test_privileges import ATTACHING, DAC_READ_SEARCH, NET_RAW, SYS_PTRACE, children, tasks

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]


def wait_for_a_boundary():
    """Windows lie on the boundaries of the clock."""
    # span: the rest of the present window
    time.sleep(WINDOW_S - time.time() % WINDOW_S)


@contextlib.contextmanager
def agent(directory, config="", environment=None, arguments=(), prefix=()):
    """`mongosonar agent` with a store of its own; the block starts when it has written its status."""
    store, err, file = directory / "store", directory / "agent.err", directory / "agent.toml"
    out = directory / "agent.out"
    file.write_text(config)
    command = [*prefix, labkit.MONGOSONAR, "agent", "--store", str(store), "--config", str(file), *arguments]
    with open(err, "wb") as stderr, open(out, "wb") as stdout:
        options = {"stderr": stderr, "stdout": stdout, "stdin": subprocess.DEVNULL}
        with labkit.process(command, env=dict(os.environ) | (environment or {}), **options) as child:
            running = Agent(child, store, err)

            running.wait(running.status, "the status of the agent")
            yield running


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def mongod(directory, port):
    """The lab's server under the name of the real one, with a small workload."""
    program = labkit.put_as_mongod("server", directory / "mongod")
    with labkit.ready([program, "--demo", "--listen", f"127.0.0.1:{port}"]):
        yield


def described(port, log):
    """The configuration that names the log of this server."""
    return f'[[server]]\nport = {port}\nlog = "{log}"\n'


def slow_query(second, namespace="shop.carts", millis=120):
    at = datetime.datetime.fromtimestamp(second, datetime.UTC).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "t": {"$date": at},
            "s": "I",
            "c": "COMMAND",
            "id": 51803,
            "ctx": "conn7",
            "msg": "Slow query",
            "attr": {
                "type": "command",
                "ns": namespace,
                "command": {"find": namespace.split(".")[1], "filter": {"user": 1}, "$db": namespace.split(".")[0]},
                "planSummary": "COLLSCAN",
                "keysExamined": 0,
                "docsExamined": 8000,
                "nreturned": 1,
                "durationMillis": millis,
            },
        },
        separators=(",", ":"),
    )


def append(log, *lines):
    with open(log, "a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def test_packets_and_a_rotated_log_become_windows(tmp_path):
    port, log, store = free_port(), tmp_path / "mongod.log", tmp_path / "store"
    log.touch()
    config = tmp_path / "agent.toml"
    config.write_text(f"[queries]\nport = [{port}]\n" + described(port, log))
    command = [labkit.MONGOSONAR, "agent", "--once", "25s", "--json", "--store", store, "--config", config]
    with mongod(tmp_path, port):
        child = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running = Agent(child, store, tmp_path / "agent.err")
        running.wait_for("log", "working")
        running.wait_for("queries", "working")
        append(log, *(slow_query(time.time()) for _ in range(10)))
        running.wait_until_read()
        # As logRotate does it: the server keeps the old file open until the new one is there.
        log.rename(tmp_path / "mongod.log.1")
        append(tmp_path / "mongod.log.1", slow_query(time.time()))
        append(log, *(slow_query(time.time()) for _ in range(5)))
        running.wait_until_read()
        # As logrotate does it with copytruncate.
        append(log, slow_query(time.time()))
        shutil.copy(log, tmp_path / "mongod.log.2")
        os.truncate(log, 0)
        append(log, *(slow_query(time.time()) for _ in range(4)))
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    summary = json.loads(out)
    collectors = {one["name"]: one for one in summary["collectors"]}
    assert collectors["log"]["operations"] == 10 + 1 + 5 + 1 + 4, summary
    assert collectors["queries"]["operations"] > 20
    assert collectors["machine"]["observed_ns"] > 15e9 and collectors["queries"]["observed_ns"] > 15e9
    assert summary["windows"] >= 3 and summary["windows_lost"] == 0 and summary["values"] > 50
    for file in store.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    # The same rows as those of the log and of the wire.
    rows = labkit.run("queries", "--store", store, "--from", "10 min ago", "--json", code=None)
    if rows.returncode == 0:
        shown = json.loads(rows.stdout.splitlines()[-1])["rows"]
        assert all(row["server"] == f"0.0.0.0:{port}" for row in shown) and shown


def test_sources_that_die_and_return_are_reported_once(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    with mongod(tmp_path, port), agent(tmp_path, described(port, log)) as running:
        running.wait_for("log", "working")
        log.rename(tmp_path / "aside")
        log.mkdir()
        running.wait_for("log", "waiting")
        problems = running.collector("log")["problems"]
        assert len(problems) == 1 and problems[0].startswith(f"port {port}: {log} cannot be read: "), problems
        # span: in which it looks at the log again and again
        time.sleep(3)
        assert running.errors().count("cannot be read") == 1, running.errors()
        log.rmdir()
        (tmp_path / "aside").rename(log)
        running.wait_for("log", "working")
        # Removed, and created again: the server was restarted after somebody had cleaned up.
        log.unlink()
        labkit.wait_until(lambda: running.collector("log")["problems"], "a missing log")
        append(log, slow_query(time.time()))
        labkit.wait_until(lambda: not running.collector("log")["problems"], "the log again")
        assert running.stop() == 0
    text = running.errors()
    assert text.count(f"{log} does not exist") == 1 and text.count(f"log, port {port}: it works again") == 2, text
    assert running.asked_status() is None


def test_a_server_that_starts_later_or_again_is_captured(tmp_path):
    port = free_port()
    with agent(tmp_path, f"[collectors]\nfiles = false\n[queries]\nport = [{port}]\n") as running:

        def is_watched():
            return any(server["port"] == port for server in running.status()["servers"])

        def last_data():
            return running.collector("queries")["last_data_ns"] or 0

        assert not is_watched()
        with mongod(tmp_path, port):
            labkit.wait_until(is_watched, "the server")
            labkit.wait_until(last_data, "its packets")
        labkit.wait_until(lambda: not is_watched(), "the end of the server")
        last = last_data()
        with mongod(tmp_path, port):
            labkit.wait_until(lambda: last_data() > last, "packets again")
        assert running.stop() == 0
    assert f"on port {port} has ended" in running.errors(), running.errors()


def test_one_unreadable_log_does_not_hide_the_others(tmp_path):
    ports, logs = [free_port(), free_port()], [tmp_path / "one.log", tmp_path / "other.log"]
    logs[0].touch()
    logs[1].mkdir()
    config = "".join(described(port, log) for port, log in zip(ports, logs, strict=True))
    with (
        mongod(tmp_path, ports[0]),
        mongod(tmp_path, ports[1]),
        agent(tmp_path, config, arguments=["--once", "6s", "--json"]) as running,
    ):
        running.wait_for("log", "working")
        labkit.wait_until(lambda: running.collector("log")["problems"], "a problem")
        status = running.collector("log")
        assert status["state"] == "working" and status["problems"][0].startswith(f"port {ports[1]}: "), status
        append(logs[0], slow_query(time.time()))
        assert running.child.wait(60) == 0
    summary = json.loads((tmp_path / "agent.out").read_text())
    log = next(one for one in summary["collectors"] if one["name"] == "log")
    assert log["operations"] == 1 and log["observed_ns"] > 3e9, summary
    assert any(f"port {ports[1]}" in note for note in summary["notes"]), summary


def test_a_folder_of_samples_that_goes_and_comes_is_reported_once(tmp_path):
    port, data = free_port(), tmp_path / "data"
    folder = data / "diagnostic.data"
    folder.mkdir(parents=True)
    config = f'[collectors]\nqueries = false\nfiles = false\n[[server]]\nport = {port}\ndbpath = "{data}"\n'
    with mongod(tmp_path, port), agent(tmp_path, config) as running:
        labkit.wait_until(
            lambda: "no sample has come so far" in running.collector("internals")["problems"], "no sample"
        )
        folder.rmdir()
        missing = f"{folder} cannot be read"
        labkit.wait_until(lambda: missing in str(running.collector("internals")["problems"]), "a missing folder")
        folder.mkdir()
        labkit.wait_until(lambda: missing not in str(running.collector("internals")["problems"]), "the folder again")
        assert running.stop() == 0
    text = running.errors()
    assert text.count(missing) == 1 and text.count(f"internals, port {port}: it works again") == 1, text


def test_an_interface_that_comes_goes_and_is_created_again_is_captured(tmp_path):
    with namespaces("client", "server") as ns:
        join = lambda: join_by_veth((ns["client"], "c0", "10.97.1.1/24"), (ns["server"], "s0", "10.97.1.2/24"))
        config = '[collectors]\nfiles = false\nlog = false\n[queries]\ninterface = ["s0"]\nport = [27017]\n'
        with agent(tmp_path, config, prefix=inside(ns["server"])) as running:
            problem = lambda: str(running.collector("queries")["problems"])
            labkit.wait_until(lambda: "interface s0: it does not exist" in problem(), "a missing interface")
            assert running.collector("queries")["state"] == "waiting"
            join()
            labkit.wait_until(lambda: problem() == "[]", "the interface")
            ip("-n", ns["server"], "link", "set", "s0", "down")
            labkit.wait_until(lambda: "interface s0: it is down" in problem(), "an interface that is down")
            ip("-n", ns["server"], "link", "delete", "s0")
            labkit.wait_until(lambda: "interface s0: it does not exist" in problem(), "a missing interface")
            join()
            labkit.wait_until(lambda: problem() == "[]", "the interface again")
            # Nobody answers, but a connection is asked for: a ring of the interface before would not see it.
            connect = "import socket\ntry: socket.create_connection(('10.97.1.2', 27017), 1)\nexcept OSError: pass"
            subprocess.run([*inside(ns["client"]), "python3", "-c", connect], check=True)
            labkit.wait_until(lambda: running.collector("queries")["last_data_ns"], "packets")
            assert running.stop() == 0
        text = running.errors()
        # An interface is also down between its creation and the next command, which the agent may see.
        assert text.count("queries, interface s0: it works again") == 2 and 1 <= text.count("it is down") <= 3, text


def test_a_server_has_one_name_also_by_an_address_that_its_host_gets_later(tmp_path):
    asked = "10.97.2.3"
    ask = f"import pymongo; pymongo.MongoClient('mongodb://{asked}:27017/?directConnection=true').lab.things.find_one()"
    config = "[collectors]\nfiles = false\nlog = false\n[queries]\ntls = false\n"
    program = labkit.put_as_mongod("server", tmp_path / "mongod")
    with namespaces("client", "server") as ns:
        join_by_veth((ns["client"], "c0", "10.97.2.1/24"), (ns["server"], "s0", "10.97.2.2/24"))
        there = inside(ns["server"])
        with (
            labkit.ready([*there, program, "--listen", "0.0.0.0:27017"]),
            agent(tmp_path, config, prefix=there) as running,
        ):
            running.wait_for("queries", "working")
            ip("-n", ns["server"], "address", "add", f"{asked}/24", "dev", "s0")

            def servers():
                subprocess.run([*inside(ns["client"]), sys.executable, "-c", ask], check=True)
                lines = labkit.documents("queries", "--store", running.store, "--from", "-1h", "--json", code=None)
                return {row["server"] for line in lines for row in line["rows"]}

            # Nobody asks by any other address.
            labkit.wait_until(lambda: any(asked not in server for server in servers()), "its name on this host")
            assert running.stop() == 0


def test_what_a_log_gets_while_no_agent_runs_is_read_by_the_next_one(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    append(log, slow_query(time.time()))
    with mongod(tmp_path, port):
        with agent(tmp_path, described(port, log)) as running:
            running.wait_for("log", "working")
            append(log, slow_query(time.time()))
            running.wait_until_read()
            assert running.stop() == 0
        append(log, *(slow_query(time.time()) for _ in range(3)))
        words = ["--once", "8s", "--json", "--store", tmp_path / "store", "--config", tmp_path / "agent.toml"]
        summary = labkit.document("agent", *words, timeout=60)
    collectors = {one["name"]: one for one in summary["collectors"]}
    assert collectors["log"]["operations"] == 3, summary


def test_each_line_of_a_log_is_stored_once_although_the_agent_is_killed(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    config = "[collectors]\nqueries = false\nfiles = false\nmachine = false\n" + described(port, log)
    with mongod(tmp_path, port):
        for _ in range(2):
            with agent(tmp_path, config) as running:
                running.wait_for("log", "working")
                append(log, *(slow_query(time.time()) for _ in range(10)))
                written = time.time_ns()
                stored = lambda: (running.status()["last_window_ns"] or 0) > written  # noqa: B023
                labkit.wait_until(stored, "a window with these lines")
                append(log, *(slow_query(time.time()) for _ in range(5)))
                running.wait_until_read()
                running.stop(signal.SIGKILL)
            append(log, *(slow_query(time.time()) for _ in range(3)))
        with agent(tmp_path, config) as running:
            running.wait_until_read()
            assert running.stop() == 0
    lines = labkit.documents("queries", "--store", running.store, "--from", "10 min ago", "--json")
    rows = [row for line in lines for row in line["rows"]]
    assert sum(row["calls"] for row in rows) == 2 * (10 + 5 + 3), rows


def test_the_configuration_is_loaded_again_and_a_wrong_one_is_refused(tmp_path):
    with agent(tmp_path) as running:
        running.wait_for("machine", "working")
        file = tmp_path / "agent.toml"

        def reload(text):
            file.write_text(text)
            running.child.send_signal(signal.SIGHUP)

        def refused():
            return running.status()["refused_configuration"] or ""

        reload("[collectors]\nlogs = false\n")
        labkit.wait_until(lambda: "the old one stays" in refused(), "a refusal")
        assert "agent.toml, line 2: collectors.logs" in running.errors()
        assert "line 2: collectors.logs" in refused()
        reload('[collectors]\nmachine = false\n\n[store]\nmax-size = "1G"\n')
        running.wait_for("machine", "off")
        assert "size and age of what is kept, machine is off" in running.errors() and not refused()
        reload('[store]\npath = "/elsewhere"\n')
        labkit.wait_until(refused, "a refusal")
        assert "only a restart can change: store.path, collectors.machine = true" in running.errors()
        assert running.collector("machine")["state"] == "off" and running.child.poll() is None
        assert running.stop(signal.SIGINT) == 0


def test_ports_interfaces_and_servers_change_while_the_agent_runs(tmp_path):
    port, logs = free_port(), [tmp_path / "one.log", tmp_path / "other.log"]
    for log in logs:
        log.touch()
    head = f"[collectors]\nfiles = false\n[queries]\nport = [{port}]\n"
    with mongod(tmp_path, port), agent(tmp_path, head + described(port, logs[0])) as running:
        running.wait_for("log", "working")
        (tmp_path / "agent.toml").write_text(head + 'interface = ["lo"]\nring-mib = 16\n' + described(port, logs[1]))
        running.child.send_signal(signal.SIGHUP)
        changed = "interfaces, ports and ring of queries, servers"
        labkit.wait_until(lambda: changed in running.errors(), "the change")
        # Other tests have servers too.
        ours = {"port": port, "log": str(logs[1])}
        labkit.wait_until(
            lambda: any(ours.items() <= server.items() for server in running.status()["servers"]), "the other log"
        )
        before = time.time_ns()
        labkit.wait_until(lambda: (running.collector("queries")["last_data_ns"] or 0) > before, "packets")
        # No reply lacks its request, and no stream has a gap, although the rings changed.
        assert running.collector("queries")["lost"] == 0, running.status()
        # Of a file of which one part cannot be applied, nothing is.
        others = described(port, logs[0]) + '[store]\nmax-size = "1G"\n'
        (tmp_path / "agent.toml").write_text(head + 'interface = ["nonexistent0"]\n' + others)
        running.child.send_signal(signal.SIGHUP)
        labkit.wait_until(lambda: running.status()["refused_configuration"], "a refusal")
        assert "queries: no such interface: nonexistent0" in running.status()["refused_configuration"]
        assert "size and age" not in running.errors()
        (tmp_path / "agent.toml").write_text(head + 'interface = ["lo"]\nring-mib = 16\n' + others)
        running.child.send_signal(signal.SIGHUP)
        changed = ": servers, size and age of what is kept"
        labkit.wait_until(lambda: changed in running.errors(), "the change of the other parts")
        assert running.stop() == 0


def test_the_status_shows_what_each_source_costs(tmp_path):
    port = free_port()
    switch = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    switch.write_text("1")
    try:
        with mongod(tmp_path, port), agent(tmp_path) as running:
            for source in ("machine", "files"):
                running.wait_for(source, "working")
            labkit.wait_until(lambda: running.collector("files")["ebpf_ns"], "the time of eBPF programs")
            machine = running.collector("machine")
            assert machine["user_ns"] + machine["system_ns"] > 0 and machine["ebpf_ns"] is None
            status = running.status()
            assert 0 < status["helpers_cpu_ns"] < 60e9 and status["cpu_ns"] > machine["user_ns"]
            assert running.stop() == 0
    finally:
        switch.write_text(before)


def test_the_service_manager_is_notified(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(30)
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}
        with agent(tmp_path, environment=environment) as running:
            assert manager.recv(256).startswith(b"READY=1")
            assert manager.recv(256) == b"WATCHDOG=1"
            running.child.send_signal(signal.SIGHUP)
            messages = [manager.recv(256)]
            while not messages[-1].startswith(b"READY=1"):
                messages.append(manager.recv(256))
            assert any(message.startswith(b"RELOADING=1\nMONOTONIC_USEC=") for message in messages)
            assert running.stop() == 0
        while not messages[-1].startswith(b"STOPPING=1"):
            messages.append(manager.recv(256))


def test_privileges_are_dropped_in_every_thread(tmp_path):
    port, log = free_port(), tmp_path / "mongod.log"
    log.touch()
    with agent(tmp_path, described(port, log)) as running, mongod(tmp_path, port):
        running.wait_for("log", "working")
        running.wait_for("queries", "working")
        pid = running.child.pid
        allowed = {"machine": SYS_PTRACE | DAC_READ_SEARCH}
        for name, fields in tasks(pid).items():
            thread = name.rsplit(" ", 1)[0]
            held = int(fields["CapEff"], 16)
            assert held & ~allowed.get(thread, 0) == 0, (name, fields["CapEff"])
            assert fields["NoNewPrivs"].strip() == "1" and fields["Seccomp"].strip() == "2", name
        names = {name.rsplit(" ", 1)[0] for name in tasks(pid)}
        assert {"capture-0", "log", "internals", "machine", "files"} <= names
        # What reads packets comes before other programs.
        nice = labkit.nice_values(pid)
        assert nice["capture-0"] == -10 and nice["log"] == nice["machine"] == 0, nice
        for child in children(pid):
            for name, fields in tasks(child).items():
                assert int(fields["CapEff"], 16) & ~(ATTACHING | NET_RAW) == 0, name
                assert fields["Seccomp"].strip() == "2", name
        # Another agent must not write to the same store.
        other = labkit.run("agent", "--once", "1s", "--store", running.store, code=1)
        assert f"process {pid}" in other.stderr, other
        assert running.stop() == 0
    assert "privileges are dropped in part" not in running.errors()
