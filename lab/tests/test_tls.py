"""Encrypted connections: what mongosonar reads inside the process that ends TLS, against what clients sent."""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
import test_tshark
import tlskit

import labkit

pytestmark = pytest.mark.root

BOTH = ["1.2", "1.3"]


def check_raw(lines, clients):
    """The same for connections of the tests themselves, with the sizes of messages."""
    sent = [command for client in clients for command in client.sent]
    tlskit.check(lines, sent)
    assert not tlskit.differing_sizes(labkit.operations(lines), sent)


def small_commands(client, count=10):
    for number in range(count):
        client.ask({"find": "items", "filter": {"a": number}, "$db": "lab_raw"})
        client.ask({"ping": 1, "$db": "admin"})
    client.ask({"noSuchCommand": 1, "$db": "admin"})


def endpoints():
    """Each program that ends TLS, with both versions. What differs between these lies in the library, not in the program."""
    rarely = pytest.mark.skipif(
        not os.environ.get("LONG"), reason="other programs do it with TLS 1.2; LONG=1 lets it run"
    )
    for endpoint in tlskit.ENDPOINTS:
        for version in BOTH:
            is_rare = version == "1.2" and endpoint not in ("membio", "nginx")
            yield pytest.param(endpoint, version, marks=[rarely] if is_rare else [])


@pytest.mark.parametrize(("endpoint", "version"), endpoints())
def test_every_command_of_a_driver_is_captured(endpoint, version, served_v4, tmp_path):
    with tlskit.ENDPOINTS[endpoint](tmp_path, served_v4, version) as address:
        with tlskit.capture(tmp_path, address) as sonar:
            sent = labkit.run_driver("python", address, tmp_path / "driver.jsonl", tlskit.OPTIONS)
            lines = tlskit.settled(sonar, sent)
    assert len(sent) > 400 and any(command["outcome"] == "failed" for command in sent)
    tlskit.check(lines, sent)
    suite = {"1.2": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "1.3": "TLS_AES_256_GCM_SHA384"}[version]
    found = {(op["tls_version"], op["tls_cipher"]) for op in labkit.operations(lines)}
    assert found == {(f"TLSv{version}", suite)}


@pytest.mark.parametrize("language", [language for language in labkit.DRIVERS if language != "python"])
def test_every_command_of_other_drivers_is_captured(language, served_v4, tmp_path):
    with tlskit.membio(tmp_path, served_v4, "1.3") as address:
        with tlskit.capture(tmp_path, address) as sonar:
            sent = labkit.run_driver(language, address, tmp_path / "driver.jsonl", tlskit.OPTIONS)
            lines = tlskit.settled(sonar, sent)
    assert len(sent) > 400
    tlskit.check(lines, sent)


@pytest.mark.parametrize("endpoint", ["stunnel", "membio"])
def test_the_sizes_of_long_messages_are_right(endpoint, served_v4, tmp_path):
    with tlskit.ENDPOINTS[endpoint](tmp_path, served_v4, "1.3") as address:
        with tlskit.capture(tmp_path, address) as sonar, tlskit.RawClient(address, "raw") as client:
            client.ask({"drop": "long", "$db": "lab_raw"})
            for megabytes, pad in (1, 1_000_000), (40, 10_000_000):
                documents = [{"_id": f"{megabytes}-{n}", "pad": "x" * pad} for n in range(megabytes * 1_000_000 // pad)]
                client.ask({"insert": "long", "documents": documents, "$db": "lab_raw"})
                small_commands(client)
            client.ask({"insert": "long", "documents": [{"_id": 0, "pad": "x" * 100_000}], "$db": "lab_raw"})
            client.ask({"find": "long", "filter": {"_id": 0}, "$db": "lab_raw"})
            small_commands(client)
            client.ask({"drop": "long", "$db": "lab_raw"})
            lines = tlskit.settled(sonar, client.sent)
    assert max(command["request_bytes"] for command in client.sent) > 40_000_000
    assert max(command["response_bytes"] for command in client.sent) > 100_000
    check_raw(lines, [client])


@pytest.mark.parametrize("endpoint", ["stunnel", "haproxy", "nginx", "membio", "membio-shared-thread"])
def test_each_of_200_sessions_is_told_from_the_others(endpoint, served_v4, tmp_path):
    with (
        tlskit.ENDPOINTS[endpoint](tmp_path, served_v4, "1.3") as address,
        tlskit.capture(tmp_path, address) as sonar,
        contextlib.ExitStack() as opened,
    ):
        clients = [opened.enter_context(tlskit.RawClient(address, f"raw-{n}")) for n in range(200)]
        for turn in range(5):
            for client in clients if turn % 2 else reversed(clients):
                client.ask({"find": f"of_{client.name}", "filter": {"turn": turn}, "$db": "lab_raw"})
        lines = tlskit.settled(sonar, [command for client in clients for command in client.sent])
    check_raw(lines, clients)
    ports = collections.defaultdict(set)
    for op in labkit.operations(lines):
        if op["command"] == "find":
            ports[op["collection"]].add(op["client"])
    assert len(ports) == 200 and all(len(of_one) == 1 for of_one in ports.values())


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("endpoint", ["stunnel", "membio"])
def test_a_resumed_session_is_captured(endpoint, version, served_v4, tmp_path):
    with tlskit.ENDPOINTS[endpoint](tmp_path, served_v4, version) as address:
        with tlskit.capture(tmp_path, address) as sonar:
            with tlskit.RawClient(address, "first") as first:
                small_commands(first)
                session = first.socket.session
            with tlskit.RawClient(address, "second", session=session, context=first.context) as second:
                assert second.socket.session_reused
                small_commands(second)
            lines = tlskit.settled(sonar, first.sent + second.sent)
    check_raw(lines, [first, second])


@pytest.mark.parametrize("endpoint", ["stunnel", "membio", "membio-shared-thread"])
def test_records_of_one_byte_are_put_together(endpoint, served_v4, tmp_path):
    with tlskit.ENDPOINTS[endpoint](tmp_path, served_v4, "1.3") as address:
        with tlskit.capture(tmp_path, address) as sonar, tlskit.RawClient(address, "tiny", piece=1) as client:
            small_commands(client)
            lines = tlskit.settled(sonar, client.sent)
    check_raw(lines, [client])


def test_a_thread_that_serves_and_asks_confuses_no_sessions(served_v4, tmp_path):
    """Both connections are captured, so both ends of the inner one are read: each command is there once for each."""
    behind = tmp_path / "behind"
    behind.mkdir()
    with (
        tlskit.membio(behind, served_v4, "1.3") as inner,
        tlskit.membio(tmp_path, inner, "1.3", "--upstream-tls") as outer,
        tlskit.capture(tmp_path, outer, "--port", str(labkit.port_of(inner))) as sonar,
        tlskit.RawClient(outer, "raw") as client,
    ):
        small_commands(client, 50)
        lines = tlskit.settled(sonar, client.sent + client.sent)
    for address in outer, inner:
        of_it = [op for op in labkit.operations(lines) if op["server"] == address]
        check_raw(of_it, [client])


def test_a_connection_from_before_is_joined_late(served_v4, tmp_path):
    with tlskit.membio(tmp_path, served_v4, "1.3") as address, tlskit.RawClient(address, "raw") as client:
        small_commands(client)
        client.sent.clear()
        with tlskit.capture(tmp_path, address) as sonar:
            small_commands(client)
            lines = tlskit.settled(sonar, client.sent)
    captured = labkit.operations(lines)
    assert captured and all(op["joined_late"] and op["tls"] for op in captured), tlskit.coverage(lines)
    named = [{**op, "app": "raw"} for op in captured]
    difference = labkit.join(named, client.sent)
    assert not difference.missing and not difference.differing, difference


@contextlib.contextmanager
def membio_on(folder, server, port, **options):
    """The relay on this port, as a process that the test can kill."""
    command = [tlskit.MEMBIO, str(port), str(labkit.port_of(server)), tlskit.certificate(folder)]
    with labkit.process(command, stdout=subprocess.PIPE, **options) as child:
        labkit.first_line(child)
        yield child


def test_a_server_that_is_killed_and_starts_again_is_read_again(served_v4, tmp_path):
    port = tlskit.free_port()
    address = f"127.0.0.1:{port}"
    with membio_on(tmp_path, served_v4, port) as first, tlskit.capture(tmp_path, address) as sonar:
        with tlskit.RawClient(address, "first") as before:
            small_commands(before)
            first.kill()
            first.wait()
        with membio_on(tmp_path, served_v4, port) as second:
            again = f"connections of process {second.pid}"
            labkit.wait_until(lambda: again in sonar.err.read_text(), "the second server")
            with tlskit.RawClient(address, "second") as after:
                small_commands(after)
                lines = tlskit.settled(sonar, before.sent + after.sent)
    check_raw(lines, [before, after])


def test_a_killed_mongosonar_leaves_the_server_unharmed(served_v4, tmp_path):
    with tlskit.membio(tmp_path, served_v4, "1.3") as address, tlskit.RawClient(address, "raw") as client:
        with tlskit.capture(tmp_path, address) as sonar:
            small_commands(client)
            sonar.child.send_signal(signal.SIGKILL)
            small_commands(client, 100)
            assert sonar.child.wait(60) == -signal.SIGKILL
        small_commands(client, 100)
        with tlskit.capture(tmp_path, address) as sonar, tlskit.RawClient(address, "again") as again:
            small_commands(again)
            lines = tlskit.settled(sonar, again.sent)
    check_raw(lines, [again])


def test_a_server_under_a_seccomp_filter_lives_on(served_v4, tmp_path):
    """The filter kills the process at any system call that it does not know, uprobe and uretprobe among them."""
    with tlskit.membio(tmp_path, served_v4, "1.3", "--seccomp") as address:
        with tlskit.capture(tmp_path, address) as sonar, tlskit.RawClient(address, "raw") as client:
            small_commands(client, 500)
            lines = tlskit.settled(sonar, client.sent)
        # It is there after the probes have gone, too.
        small_commands_of_new_client(address)
    assert len(client.sent) > 1_000
    check_raw(lines, [client])


def small_commands_of_new_client(address):
    with tlskit.RawClient(address, "new") as client:
        small_commands(client)


def test_without_it_connections_are_said_to_be_encrypted(served_v4, tmp_path):
    with tlskit.membio(tmp_path, served_v4, "1.3") as address:
        with tlskit.capture(tmp_path, address, "--no-tls") as sonar:
            small_commands_of_new_client(address)
            lines = sonar.stop()
        assert not labkit.operations(lines)
        assert labkit.summary(lines)["coverage"]["streams_tls"] == 1
        shown = ["--interface", "lo", "--port", str(labkit.port_of(address)), "--no-tls"]
        with labkit.live_capture(tmp_path, shown) as sonar:
            small_commands_of_new_client(address)
            assert labkit.stop(sonar.child) == 0
    assert "The only connection is encrypted with TLS" in sonar.out.read_text()


def test_a_library_that_an_upgrade_deleted_is_read(served_v4, tmp_path):
    mapped = subprocess.run(["ldd", tlskit.MEMBIO], capture_output=True, text=True, check=True).stdout
    library = re.search(r"(libssl\S*) => (\S+)", mapped)
    own = tmp_path / "lib"
    own.mkdir()
    copy = pathlib.Path(shutil.copy(library[2], own / library[1]))
    port = tlskit.free_port()
    address = f"127.0.0.1:{port}"
    with membio_on(tmp_path, served_v4, port, env={"LD_LIBRARY_PATH": str(own)}) as child:
        copy.unlink()
        assert f"{copy} (deleted)" in pathlib.Path(f"/proc/{child.pid}/maps").read_text()
        with tlskit.capture(tmp_path, address) as sonar, tlskit.RawClient(address, "raw") as client:
            small_commands(client)
            lines = tlskit.settled(sonar, client.sent)
    check_raw(lines, [client])


# Puts its library where nobody outside can see it, and starts.
OWN_MOUNTS = 'mount -t tmpfs own /mnt && cp "$LIBRARY" /mnt && LD_LIBRARY_PATH=/mnt exec "$@"'


@pytest.mark.parametrize("may_open_mappings", [True, False])
def test_a_library_in_another_mount_namespace_is_read(may_open_mappings, served_v4, tmp_path):
    """As in a container. Without CAP_CHECKPOINT_RESTORE the library is found by its name inside the namespace."""
    mapped = subprocess.run(["ldd", tlskit.MEMBIO], capture_output=True, text=True, check=True).stdout
    library = re.search(r"libssl\S* => (\S+)", mapped)[1]
    port = tlskit.free_port()
    command = [tlskit.MEMBIO, str(port), str(labkit.port_of(served_v4)), tlskit.certificate(tmp_path)]
    inside = ["unshare", "--mount", "sh", "-c", OWN_MOUNTS, "sh", *command]
    limits = ["setpriv", "--bounding-set=-sys_admin,-checkpoint_restore", "--inh-caps=-all"]
    with labkit.process(inside, stdout=subprocess.PIPE, env=os.environ | {"LIBRARY": library}) as child:
        address = labkit.first_line(child)
        assert "/mnt/libssl" in pathlib.Path(f"/proc/{child.pid}/maps").read_text()
        options = tlskit.arguments(address)
        with labkit.live_capture(tmp_path, options, prefix=[] if may_open_mappings else limits) as sonar:
            labkit.wait_until(lambda: "reading encrypted connections" in sonar.err.read_text(), "the probes")
            with tlskit.RawClient(address, "raw") as client:
                small_commands(client)
                lines = tlskit.settled(sonar, client.sent)
    check_raw(lines, [client])


def test_a_server_that_is_stopped_in_the_middle_goes_on(served_v4, tmp_path):
    """Signals stop it wherever it is, also within a call that is probed."""
    port = tlskit.free_port()
    address = f"127.0.0.1:{port}"
    with membio_on(tmp_path, served_v4, port) as child, tlskit.capture(tmp_path, address) as sonar:
        with tlskit.RawClient(address, "raw") as client:
            asking = threading.Thread(target=small_commands, args=(client, 500))
            asking.start()
            for _ in range(20):
                child.send_signal(signal.SIGSTOP)
                # span: in which it stands still
                time.sleep(0.02)
                child.send_signal(signal.SIGCONT)
                # span: in which it goes on
                time.sleep(0.02)
            asking.join()
            lines = tlskit.settled(sonar, client.sent)
    assert len(client.sent) > 1_000
    check_raw(lines, [client])


@pytest.mark.parametrize("version", BOTH)
def test_tshark_with_the_keys_sees_the_same_messages(version, tshark, served_v4, tmp_path):
    keys, pcap = tmp_path / "keys", tmp_path / "wire.pcap"
    with tlskit.membio(tmp_path, served_v4, version, "--keylog", str(keys)) as address:
        port = labkit.port_of(address)
        with labkit.tcpdump(pcap, "lo", f"tcp port {port}"), tlskit.capture(tmp_path, address) as sonar:
            sent = labkit.run_driver("go", address, tmp_path / "driver.jsonl", tlskit.OPTIONS)
            lines = tlskit.settled(sonar, sent)
    decrypted = ["-o", f"tls.keylog_file:{keys}", "-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},mongo"]
    seen = list(test_tshark.messages(tshark, pcap, port, decrypted))
    requests = collections.Counter(
        (client, request_id, length) for client, request, request_id, _, length in seen if request
    )
    replies = collections.Counter()
    for client, request, _, answer, length in seen:
        if not request:
            replies[client, answer] += length
    ours = collections.Counter(
        (labkit.port_of(op["client"]), op["request_id"], op["request_bytes"]) for op in labkit.operations(lines)
    )
    assert len(requests) > 400
    assert requests == ours, (list((requests - ours).items())[:5], list((ours - requests).items())[:5])
    for op in labkit.operations(lines):
        if op["outcome"] in ("ok", "failed"):
            assert replies[labkit.port_of(op["client"]), op["request_id"]] == op["response_bytes"], op
