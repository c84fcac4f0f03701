"""`mongosonar profiler` against a MOCK mongod (lab/mock/mongod.py: no real server at hand has the `profile` command), and
against the real lab server for what that has: connections, capped collections with tailable cursors, a load."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import termios
import threading
import time

import bson
import pymongo
import pytest
from test_netns import inside, namespaces

import labkit

MOCK = [sys.executable, labkit.LAB / "mock/mongod.py"]


class Mock:
    """Controls a mock mongod."""

    def __init__(self, address, user=None):
        self.address, self.uri = address, f"mongodb://{user + '@' if user else ''}{address}"
        self.client = pymongo.MongoClient(self.uri, directConnection=True, retryReads=True)

    def command(self, name, **fields):
        return self.client.admin.command({"mock": name, **fields})

    def changes(self):
        """The commands that it received and that change something."""
        return self.command("log")["log"]

    def profile(self, database="shop"):
        reply = self.client[database].command("profile", -1)
        return {key: reply[key] for key in ("was", "slowms", "sampleRate", "filter", "ratelimit") if key in reply}

    def write(self, count, first=0, database="shop", fields=None, **options):
        documents = [
            {
                "op": "query",
                "ns": f"{database}.people",
                "command": {"find": "people", "filter": {"a": n}, "sort": {"b": -1}, "$db": database},
                "keysExamined": 0,
                "docsExamined": n,
                "nreturned": 1,
                "numYield": 0,
                "millis": n % 5,
                "planSummary": "COLLSCAN",
                "responseLength": 200,
                "protocol": "op_msg",
                "client": "10.0.0.1",
                "appName": "api",
                **(fields or {}),
            }
            for n in range(first, first + count)
        ]
        return self.command("fill", db=database, documents=documents, **options)

    def down(self, seconds, restart=False):
        with contextlib.suppress(pymongo.errors.AutoReconnect):
            self.command("down", seconds=seconds, restart=restart)


@contextlib.contextmanager
def mongod(plays, *arguments, user=None):
    arguments = [*arguments, *(("--user", user) if user else ())]
    with labkit.ready([*MOCK, "--plays", plays, *arguments]) as address:
        mock = Mock(address, user)
        yield mock
        mock.client.close()


def run(*arguments, code=0, timeout=120):
    done = subprocess.run(
        [labkit.MONGOSONAR, "profiler", *map(str, arguments)], capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@contextlib.contextmanager
def running(directory, *arguments):
    """Runs `mongosonar profiler ARGUMENTS` with its output in files."""
    out, err = directory / "out", directory / "err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        command = [labkit.MONGOSONAR, "profiler", *map(str, arguments)]
        with labkit.process(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL) as child:
            child.out, child.err = out, err
            yield child


def wait_for_output(child, text):
    def found():
        assert child.poll() is None or text in child.err.read_text() + child.out.read_text(), child.err.read_text()
        return text in child.err.read_text() + child.out.read_text()

    labkit.wait_until(found, f"{text!r} in {child.err.read_text()!r}")


# -- status


@pytest.mark.parametrize("plays", ["4.4", "6.0", "8.0", "percona"])
def test_status_of_each_version(plays):
    with mongod(plays) as mock:
        mock.client.shop.command("profile", 1, slowms=33, sampleRate=0.5)
        mock.write(100)
        status = json.loads(run("status", "--json", mock.uri).stdout)
        shop = next(row for row in status["databases"] if row["database"] == "shop")
        assert (shop["level"], shop["slowms"], shop["sample_rate"]) == (1, 33, 0.5)
        assert shop["rate_limit"] == (1 if plays == "percona" else None)
        stats = mock.client.shop.command("collStats", "system.profile")
        assert (shop["documents"], shop["size_bytes"], shop["size_max_bytes"]) == (100, stats["size"], stats["maxSize"])
        assert not shop["full"] and shop["wraps_in_ns"] > 0
        blog = next(row for row in status["databases"] if row["database"] == "blog")
        assert blog["level"] == 0 and blog["documents"] is None and blog["wraps_in_ns"] is None
        table = run("status", "--db", "shop", mock.uri).stdout
        assert ("ratelimit" in table) == (plays == "percona")
        assert re.search(r"^shop .*33ms .* 100 .* in \d", table, re.M), table
        mock.write(4_000)
        assert json.loads(run("status", "--json", "--db", "shop", mock.uri).stdout)["databases"][0]["full"]
        assert "full, turns in" in run("status", "--db", "shop", mock.uri).stdout


def test_a_server_without_a_profiler_gives_that_error(served_v4):
    assert "has no profiler" in run("status", f"mongodb://{served_v4}", code=1).stderr
    with mongod("mongos") as mock:
        assert "is a mongos" in run("status", mock.uri, code=1).stderr
        assert "is a mongos" in run("tail", mock.uri, code=1).stderr


@pytest.mark.parametrize("plays", ["3.2", "4.0"])
def test_a_server_too_old_for_the_driver_gives_that_error(plays):
    with labkit.ready([*MOCK, "--plays", plays]) as address:
        result = run("status", f"mongodb://{address}/?serverSelectionTimeoutMS=2000", code=1).stderr
        assert "older than MongoDB 4.4" in result and "profiler report" in result


@contextlib.contextmanager
def encrypted(address, directory):
    """The address of a TLS proxy in front of a server, and the file of its certificate authority."""
    key, certificate, authority = (directory / name for name in ("key.pem", "certificate.pem", "authority.pem"))

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    new = ["req", "-newkey", "rsa:2048", "-nodes"]
    openssl(
        *new, "-x509", "-days", "2", "-keyout", directory / "authority.key", "-out", authority, "-subj", "/CN=authority"
    )
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    openssl(*new, "-keyout", key, "-out", directory / "request.pem", "-subj", "/CN=localhost", *names)
    signed = ["-CA", authority, "-CAkey", directory / "authority.key", "-CAcreateserial", "-copy_extensions", "copyall"]
    openssl("x509", "-req", "-days", "2", "-in", directory / "request.pem", *signed, "-out", certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    host, port = address.rsplit(":", 1)

    def pump(source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with contextlib.suppress(OSError):
                    ends = context.wrap_socket(plain, server_side=True), socket.create_connection((host, int(port)))
                    for pair in (ends, ends[::-1]):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"localhost:{listener.getsockname()[1]}", authority
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_tls_with_a_private_certificate_authority(tmp_path):
    with mongod("6.0") as mock, encrypted(mock.address, tmp_path) as (address, authority):
        options = "directConnection=true&serverSelectionTimeoutMS=4000"
        trusted = f"mongodb://{address}/?tls=true&tlsCAFile={authority}&{options}"
        status = json.loads(run("status", "--json", "--db", "shop", trusted).stdout)
        assert status["databases"][0]["level"] == 0, status
        run("set", "--db", "shop", "--level", "1", trusted)
        assert mock.profile()["was"] == 1
        # A certificate of an unknown authority is refused.
        assert "ertificate" in run("status", f"mongodb://{address}/?tls=true&{options}", code=1).stderr


def test_the_connection_string_names_the_user(tmp_path):
    with mongod("6.0", user="ops:s3cret") as mock:
        mock.client.shop.command("profile", 1)
        status = json.loads(run("status", "--json", "--db", "shop", mock.uri).stdout)
        assert status["databases"][0]["level"] == 1, status
        begun = len(mock.changes())
        run("set", "--db", "shop", "--level", "2", "--duration", "1s", mock.uri)
        assert names(mock.changes()[begun:]) == [("profile", 2), ("profile", 1)]
        # A wrong or missing password gives an error without the password, and nothing is changed.
        wrong = run("status", "--db", "shop", f"mongodb://ops:wr0ng@{mock.address}", code=1)
        assert "authentication failed" in wrong.stderr and "authSource" in wrong.stderr, wrong.stderr
        assert "wr0ng" not in wrong.stdout + wrong.stderr
        nobody = run("set", "--db", "shop", "--level", "2", f"mongodb://{mock.address}", code=1)
        assert "the server requires a user; give --username" in nobody.stderr, nobody.stderr
        assert mock.profile()["was"] == 1


@pytest.mark.root
def test_a_name_of_a_cluster_is_looked_up():
    """`mongodb+srv`: host and port from SRV, options from TXT, from the name server of a network namespace."""
    with namespaces("srv") as made, contextlib.ExitStack() as stack:
        home = pathlib.Path("/etc/netns") / made["srv"]
        home.mkdir(parents=True)
        stack.callback(shutil.rmtree, home)
        (home / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1\n")
        there = inside(made["srv"])
        user = "ops:secret"
        address = stack.enter_context(labkit.ready([*there, *MOCK, "--plays", "6.0", "--user", user]))
        # The user exists only in `admin`, which the TXT record names.
        zone = ["--cluster", "cluster.lab.example", "--host", "db.lab.example", "--txt", "authSource=admin"]
        stack.enter_context(
            labkit.ready(
                [*there, sys.executable, labkit.LAB / "mock/names.py", *zone, "--port", labkit.port_of(address)]
            )
        )
        uri = f"mongodb+srv://{user}@cluster.lab.example/shop?tls=false"
        command = [*there, labkit.MONGOSONAR, "profiler", "status", "--json", "--db", "shop", uri]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["databases"][0]["level"] == 0


def test_invalid_connection_strings():
    assert "connection string" in run("status", "http://x", code=2).stderr
    assert "connection string" in run("status", "--uri", "mongodb://", code=2).stderr


def one_cause(*arguments, env=None):
    """The error of a command that cannot reach its server: one line, one cause, no internals of the driver."""
    done = subprocess.run(
        [labkit.MONGOSONAR, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1, (arguments, done.stdout, done.stderr)
    line = done.stderr.strip()
    assert line.startswith("mongosonar: ") and "\n" not in line, line
    for word in ("Topology", "Kind:", "os error", "labels", "Some(", "{", "ServerSelection", "selection timeout"):
        assert word not in line, line
    return line


@contextlib.contextmanager
def listener(answer):
    """A port that sends `answer` to each client; `None` closes the connection immediately, `""` sends nothing."""

    def serve(server):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = server.accept()
                held.append(peer)
                with contextlib.suppress(OSError):
                    if answer is None:
                        peer.close()
                    else:
                        peer.sendall(answer)

    held = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for peer in held:
            peer.close()


SOON = "/?serverSelectionTimeoutMS=1500&connectTimeoutMS=700&directConnection=true"


@pytest.mark.parametrize(
    "command",
    [
        ["profiler", "status"],
        ["profiler", "tail"],
        ["profiler", "impact"],
        ["profiler", "report"],
        ["profiler", "set", "--db", "shop", "--level", "1"],
        ["io", "reorder", "shop.orders"],
    ],
)
def test_every_command_gives_the_same_error_for_a_closed_port(command):
    line = one_cause(*command, "--uri", f"mongodb://127.0.0.1:1{SOON}")
    assert line == "mongosonar: cannot connect to 127.0.0.1:1: connection refused; no server listens there"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", "is not a MongoDB server"),
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "is not a MongoDB server"),
        (None, "closes every connection"),
        (b"", "no answer in time"),
    ],
)
def test_a_port_of_another_program_gives_that_error(answer, words):
    with listener(answer) as address:
        line = one_cause("profiler", "status", "--uri", f"mongodb://{address}{SOON}")
        assert words in line and line.count(address) == 1, line


def test_an_unknown_host_gives_that_error():
    line = one_cause("profiler", "status", "--uri", f"mongodb://no-such-host.invalid:27017{SOON}")
    # Without a name server the resolver cannot know.
    assert "unknown host name" in line or "no name server answers" in line, line


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_tls_on_one_side_only_gives_that_error(tmp_path):
    with mongod("6.0") as mock, encrypted(mock.address, tmp_path) as (address, authority):
        assert "accepts only TLS connections; add --tls" in one_cause(
            "profiler", "status", "--uri", f"mongodb://{address}{SOON}"
        )
        assert "signed by an unknown authority" in one_cause(
            "profiler", "status", "--tls", "--uri", f"mongodb://{address}{SOON}"
        )
        plain = one_cause("profiler", "status", "--tls", "--uri", f"mongodb://{mock.address}{SOON}")
        assert "does not answer the TLS handshake" in plain, plain
        assert run(
            "status", "--db", "shop", "--tls", "--tlsCAFile", authority, "--uri", f"mongodb://{address}{SOON}"
        ).stdout


def test_a_replica_set_without_a_primary_gives_that_error():
    with replica_set() as (mocks, uri):
        for mock in mocks:
            mock.command("primary", **{"is": False})
        line = one_cause("profiler", "status", "--uri", uri)
        assert "the replica set rs has no primary at the moment" in line, line


# -- the server, as MongoDB's tools name it


def test_a_server_is_named_as_in_the_tools(tmp_path):
    with mongod("6.0", user="ops:s3cret") as mock:
        host, port = mock.address.rsplit(":", 1)
        user = ["--username", "ops", "--password", "s3cret"]
        environment = {**os.environ, "MONGOSONAR_URI": mock.address}
        for named in (
            ["--uri", mock.address],
            ["--uri", f"mongodb://{mock.address}"],
            ["--host", mock.address],
            ["--host", host, "--port", port],
            [mock.address],
        ):
            status = json.loads(run("status", "--json", "--db", "shop", *user, *named).stdout)
            assert mock.address in status["server"], named
        done = subprocess.run(
            [labkit.MONGOSONAR, "profiler", "status", *user],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert mock.address in done.stdout, done.stderr
        # The address of an empty profile is read from the server, not from a file.
        assert run("report", mock.address, "--db", "shop", *user)
        wrong = one_cause("profiler", "status", "--uri", mock.address, *user, "--authenticationDatabase", "shop")
        assert "authentication failed" in wrong and "s3cret" not in wrong
        for both in (["--uri", mock.address, "--host", host], [mock.address, "--port", port]):
            assert "cannot be used with" in run("status", *both, code=2).stderr


def test_a_password_is_asked_for_and_not_shown():
    with mongod("6.0", user="ops:s3cret") as mock:
        for password, expected in (("s3cret", "shop"), ("wr0ng", "authentication failed")):
            main, side = pty.openpty()
            command = [
                labkit.MONGOSONAR,
                "profiler",
                "status",
                "--db",
                "shop",
                "--username",
                "ops",
                "--uri",
                mock.address,
            ]
            # Its own session, with the terminal as controlling terminal.
            child = subprocess.Popen(["setsid", "--ctty", "--wait", *command], stdin=side, stdout=side, stderr=side)
            os.close(side)
            seen, typed = b"", False
            with contextlib.suppress(OSError):
                while piece := os.read(main, 4096):
                    seen += piece
                    if not typed and b"Password of ops: " in seen:
                        typed = True
                        # The prompt comes first; then the terminal stops echoing.
                        labkit.wait_until(lambda: not termios.tcgetattr(main)[3] & termios.ECHO, "no echo")
                        os.write(main, password.encode() + b"\n")
            child.wait(30)
            os.close(main)
            assert typed and expected in seen.decode() and password not in seen.decode(), seen
        # Without a terminal to ask on, it explains what to do.
        quiet = subprocess.run(
            ["setsid", "--wait", *command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
        assert quiet.returncode == 1 and "give --password" in quiet.stderr, quiet.stderr


# -- set


def names(changes):
    return [(next(iter(change)), next(iter(change.values()))) for change in changes]


def test_a_resize_happens_in_the_right_order_with_all_messages():
    with mongod("6.0") as mock:
        mock.client.shop.command("profile", 1)
        mock.write(10)
        begun = len(mock.changes())
        done = run(
            "set", "--db", "shop", "--level", "2", "--slowms", "20", "--sample-rate", "0.25", "--size", "4m", mock.uri
        )
        assert names(mock.changes()[begun:]) == [
            ("profile", 0),
            ("drop", "system.profile"),
            ("create", "system.profile"),
            ("profile", 2),
        ]
        assert mock.changes()[-2]["size"] == 4 << 20
        assert mock.profile() == {"was": 2, "slowms": 20, "sampleRate": 0.25}
        assert re.search(
            r"^shop: was level 1, slowms 100, sample rate 1, no filter, system.profile of 1MiB with 10 documents$",
            done.stdout,
            re.M,
        )
        assert re.search(
            r"^shop: now level 2, slowms 20, .*system.profile of 4MiB with \d documents?$", done.stdout, re.M
        )
        assert "every operation is written" in done.stderr and "drops what system.profile holds: 1" in done.stderr
        assert "to the log only what is slower than slowms" in done.stderr, "it is a 6.0"


def test_filters_and_all_databases():
    with mongod("8.0") as mock:
        run("set", "--all-dbs", "--level", "1", "--filter", '{"millis": {"$gt": 20}, "op": "update"}', mock.uri)
        for database in "shop", "blog":
            assert mock.profile(database)["filter"] == {"millis": {"$gt": 20}, "op": "update"}
        assert {change["$db"] for change in mock.changes()} == {"shop", "blog"}, "not admin, config, local"
        assert 'filter {"millis":{"$gt":20},"op":"update"}' in run("status", "--db", "shop", mock.uri).stdout
        run("set", "--db", "shop", "--filter", "unset", mock.uri)
        assert "filter" not in mock.profile() and mock.profile()["was"] == 1
        assert "filter" in mock.profile("blog")
        assert "no find expression" in run("set", "--db", "shop", "--filter", "{", mock.uri, code=2).stderr


@pytest.mark.parametrize(
    ("plays", "option", "word"),
    [("4.4.1", ["--filter", '{"op": "query"}'], "4.4.2"), ("6.0", ["--rate-limit", "10"], "Percona")],
)
def test_an_unsupported_option_is_refused_before_anything_changes(plays, option, word):
    with mongod(plays) as mock:
        assert word in run("set", "--db", "shop", "--level", "2", "--size", "8m", *option, mock.uri, code=1).stderr
        assert mock.changes() == []


def test_the_rate_limit_of_percona():
    with mongod("percona") as mock:
        run("set", "--db", "shop", "--level", "2", "--rate-limit", "100", mock.uri)
        assert mock.profile() == {"was": 2, "slowms": 100, "sampleRate": 1.0, "ratelimit": 100}


CHANGE = ["--level", "2", "--slowms", "5", "--sample-rate", "0.1", "--filter", '{"op": "insert"}', "--size", "4m"]
WAS = {"was": 1, "slowms": 70, "sampleRate": 0.75, "filter": {"op": "query"}}


@pytest.mark.parametrize("end", ["time", "SIGINT", "SIGTERM", "SIGHUP", "lost", "restart"])
def test_everything_is_restored_however_it_ends(end, tmp_path):
    with mongod("6.0") as mock:
        for database in "shop", "blog":
            mock.client[database].command("profile", 1, slowms=70, sampleRate=0.75, filter=WAS["filter"])
        length = "1s" if end == "time" else "3s" if end in ("lost", "restart") else "600s"
        with running(tmp_path, "set", "--db", "shop", "--db", "blog", *CHANGE, "--duration", length, mock.uri) as child:
            wait_for_output(child, "for ")
            assert mock.profile() == {"was": 2, "slowms": 5, "sampleRate": 0.1, "filter": {"op": "insert"}}
            if end in ("lost", "restart"):
                # The server is down when the time is over, and up again later.
                time.sleep(2)
                mock.down(3, restart=end == "restart")
            elif end != "time":
                child.send_signal(getattr(signal, end))
            assert child.wait(30) == 0, child.err.read_text()
        assert "again level 1" in child.out.read_text()
        if end in ("lost", "restart"):
            assert "trying again" in child.err.read_text()
        for database in "shop", "blog":
            assert mock.profile(database) == WAS
            assert mock.client[database].command("collStats", "system.profile")["maxSize"] == 1 << 20


def test_a_second_signal_gives_up_and_prints_what_to_do(tmp_path):
    with mongod("6.0") as mock:
        with running(
            tmp_path,
            "set",
            "--db",
            "shop",
            "--level",
            "2",
            "--duration",
            "600s",
            f"{mock.uri}/?serverSelectionTimeoutMS=300",
        ) as child:
            wait_for_output(child, "for ")
            mock.down(60)
            child.send_signal(signal.SIGINT)
            wait_for_output(child, "trying again")
            # Signals within 50 ms are one request.
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 1
        assert 'db.getSiblingDB("shop").runCommand({"profile":0' in child.err.read_text().split("NOT restored")[1]


def test_the_collection_is_kept_on_request(tmp_path):
    with mongod("6.0") as mock:
        run("set", "--db", "shop", "--level", "2", "--size", "4m", "--duration", "300ms", "--keep-size", mock.uri)
        assert mock.profile()["was"] == 0
        stats = mock.client.shop.command("collStats", "system.profile")
        assert stats["maxSize"] == 4 << 20 and stats["count"] > 0


def test_the_last_line_is_the_state_that_the_server_has(tmp_path):
    """A collection that was created in the meantime stays without --size, and the last line must show it."""
    with mongod("4.4") as mock:
        done = run("set", "--db", "shop", "--level", "2", "--duration", "300ms", mock.uri)
        assert re.search("^shop: was level 0, .*, no system.profile$", done.stdout, re.M), done.stdout
        last = done.stdout.splitlines()[-1]
        count = mock.client.shop.command("collStats", "system.profile")["count"]
        assert re.fullmatch(rf"shop: again level 0, .*, system.profile of 1MiB with {count} documents?", last), last
        # At level 0 nothing more is written, so it never wraps.
        status = json.loads(run("status", "--json", "--db", "shop", mock.uri).stdout)["databases"][0]
        assert status["documents"] == count and status["wraps_in_ns"] is None and status["turn_ns"] is None, status
        assert " in " not in run("status", "--db", "shop", mock.uri).stdout.splitlines()[-1]
        # The same without --duration: the last line is read after the last change, which may be another client's.
        done = run("set", "--db", "shop", "--level", "1", "--slowms", "5", mock.uri)
        assert done.stdout.splitlines()[-1].startswith("shop: now level 1, slowms 5, "), done.stdout


# -- tail


def lines(child):
    return labkit.read_lines(child.out)


def examined(child):
    return [line["docs_examined"] for line in lines(child) if "docs_examined" in line]


def test_tail_shows_the_last_operations_and_then_each_new_one_once(tmp_path):
    with mongod("8.0") as mock:
        mock.write(50)
        with running(tmp_path, "tail", "--db", "shop", "-n", "3", "--json", mock.uri) as child:
            labkit.wait_until(lambda: examined(child) == [47, 48, 49], "the last three")
            mock.write(5, 50)
            labkit.wait_until(lambda: examined(child) == list(range(47, 55)), "the new ones")
        line = lines(child)[-1]
        assert line["database"] == "shop" and line["collection"] == "people" and line["command"] == "find"
        assert line["shape"] == "{filter: {a: ?number}, sort: {b: -1}}"
        assert line["collection_scan"] and line["plan"] == "COLLSCAN" and line["app"] == "api"
        assert len({line["shape_id"] for line in lines(child)}) == 1
        text = run("tail", "--db", "shop", "-n", "1", "--count", "1", mock.uri).stdout
        assert re.search(
            r"Z shop\.people find .*plan=COLLSCAN keys=0 examined=54 returned=1 .*app=api \{filter: \{a: \?number\}",
            text,
        )


def test_tail_reports_missed_operations_and_continues(tmp_path):
    with mongod("6.0") as mock:
        mock.write(30, size=20_000)
        with running(tmp_path, "tail", "--db", "shop", "--json", mock.uri) as child:
            labkit.wait_until(lambda: 29 in examined(child), "the ones before")
            filled = mock.write(1_000, 100)
            labkit.wait_until(lambda: 1_099 in examined(child), "the last of the flood")
            mock.write(3, 5_000)
            labkit.wait_until(lambda: 5_002 in examined(child), "what came after it")
        gap = next(line for line in lines(child) if line.get("missed"))
        seen = [n for n in examined(child) if 100 <= n < 1_100]
        assert seen == list(range(seen[0], 1_100))
        # The mock numbers its records without gaps, as a real capped collection does.
        assert gap["documents"] == 1_000 - len(seen), (filled, gap)
        assert f"{gap['documents']} documents missed" in child.err.read_text()
        assert len(examined(child)) == len(set(examined(child)))


def test_tail_survives_a_restart_without_gaps_or_duplicates(tmp_path):
    with mongod("6.0") as mock:
        mock.client.shop.command("profile", 1)
        mock.write(5)
        with running(tmp_path, "tail", "--db", "shop", "--json", mock.uri) as child:
            labkit.wait_until(lambda: examined(child) == list(range(5)), "the first ones")
            mock.down(1.5, restart=True)
            wait_for_output(child, "connection lost")
            labkit.wait_until(lambda: succeeds(lambda: mock.write(5, 5)), "the mock again")
            labkit.wait_until(lambda: len(examined(child)) >= 10, "what came after")
            wait_for_output(child, "following continues")
            wait_for_output(child, "the profiling level is 0 now, it was 1")
        assert examined(child) == list(range(10))


def succeeds(action):
    with contextlib.suppress(pymongo.errors.PyMongoError):
        action()
        return True
    return False


@contextlib.contextmanager
def replica_set():
    """Two mocks that claim to be a replica set; the first is the primary."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(2):
            probe = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(probe.getsockname()[1])
    members = ",".join(f"127.0.0.1:{port}" for port in ports)
    with contextlib.ExitStack() as stack:
        mocks = [stack.enter_context(mongod("6.0", "--port", str(port), "--members", members)) for port in ports]
        yield mocks, f"mongodb://{members}/?replicaSet=rs&heartbeatFrequencyMS=500&serverSelectionTimeoutMS=3000"


def test_tail_follows_a_fail_over(tmp_path):
    with replica_set() as ((first, second), uri):
        first.write(5)
        with running(tmp_path, "tail", "--db", "shop", "--json", uri) as child:
            labkit.wait_until(lambda: examined(child) == list(range(5)), "the first primary's")
            second.command("primary", **{"is": True, "term": 2})
            first.command("primary", **{"is": False})
            first.down(60)
            wait_for_output(child, f"following continues at {second.address}, another server")
            second.write(5, 50)
            labkit.wait_until(lambda: examined(child) == [*range(5), *range(50, 55)], "the second primary's")


def test_settings_are_restored_on_the_member_that_was_changed(tmp_path):
    with replica_set() as ((first, second), uri):
        with running(
            tmp_path, "set", "--db", "shop", "--level", "1", "--slowms", "7", "--duration", "4s", uri
        ) as child:
            wait_for_output(child, "for ")
            assert first.profile() == {"was": 1, "slowms": 7, "sampleRate": 1.0}
            second.command("primary", **{"is": True, "term": 2})
            first.command("primary", **{"is": False})
            assert child.wait(30) == 0, child.err.read_text()
        assert first.profile() == {"was": 0, "slowms": 100, "sampleRate": 1.0}
        assert second.changes() == []


def test_tail_of_all_databases_finds_new_databases_and_recreated_collections(tmp_path):
    with mongod("6.0") as mock:
        mock.write(2)
        with running(tmp_path, "tail", "--all-dbs", "--json", mock.uri) as child:
            labkit.wait_until(lambda: len(lines(child)) == 2, "the first database")
            mock.write(2, 10, database="fresh")
            labkit.wait_until(lambda: {10, 11} <= set(examined(child)), "the new database")
            run("set", "--db", "shop", "--size", "2m", mock.uri)
            wait_for_output(child, "was recreated")
            mock.write(2, 20)
            labkit.wait_until(lambda: {20, 21} <= set(examined(child)), "the new collection")
        assert {line["database"] for line in lines(child)} == {"shop", "fresh"}


@contextlib.contextmanager
def real_server(directory, listen="127.0.0.1:0"):
    with labkit.ready([labkit.LAB / "bin/server", "--listen", listen, "--dir", directory]) as address:
        yield address


def recorded(count, first=0):
    """Profile documents of several versions."""
    now = time.time()
    for n in range(first, first + count):
        head = {"op": "query", "ns": "shop.people"}
        tail = {"millis": n % 9, "ts": bson.datetime_ms.DatetimeMS(int(now * 1000) + n - first), "client": "10.0.0.1"}
        match n % 3:
            case 0:  # 2.6
                yield {**head, "query": {"a": n}, "nscanned": n, "nscannedObjects": n, "nreturned": 1, **tail}
            case 1:  # 3.2
                yield {
                    **head,
                    "query": {"find": "people", "filter": {"a": n}},
                    "keysExamined": 0,
                    "docsExamined": n,
                    "nreturned": 1,
                    **tail,
                }
            case _:  # 8.0, without "$db" in the command: this server takes no such key
                command = {"find": "people", "filter": {"a": n}}
                yield {
                    **head,
                    "command": command,
                    "keysExamined": 0,
                    "docsExamined": n,
                    "nreturned": 1,
                    "planSummary": "COLLSCAN",
                    **tail,
                }


def test_tail_of_a_real_server_live_and_through_its_restart(tmp_path):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        with contextlib.ExitStack() as stack:
            first = contextlib.ExitStack()
            address = first.enter_context(real_server(directory))
            stack.callback(first.close)
            client = pymongo.MongoClient(f"mongodb://{address}")
            stack.callback(client.close)
            client.shop.create_collection("system.profile", capped=True, size=1 << 20)
            profile = client.shop["system.profile"]
            profile.insert_many(recorded(30))
            child = stack.enter_context(
                running(tmp_path, "tail", "--db", "shop", "-n", "1000", "--json", f"mongodb://{address}")
            )
            labkit.wait_until(lambda: examined(child) == list(range(30)), "what was there")
            profile.insert_many(recorded(30, 30))
            labkit.wait_until(lambda: examined(child) == list(range(60)), "what was written meanwhile")
            shapes = {line["shape_id"] for line in lines(child)}
            assert len(shapes) == 1, "the same query in the documents of three versions"
            first.close()
            wait_for_output(child, "connection lost")
            stack.enter_context(real_server(directory, address))
            wait_for_output(child, "following continues")
            labkit.wait_until(lambda: succeeds(lambda: profile.insert_many(recorded(5, 60))), "the server again")
            labkit.wait_until(lambda: 64 in examined(child), "what came after the restart")
            assert examined(child) == list(range(65))


# -- report


def test_the_report_of_a_server_equals_that_of_its_dump(tmp_path):
    with mongod("8.0") as mock:
        mock.write(300)
        mock.write(20, 1_000, database="blog")
        dump = tmp_path / "system.profile.bson"
        dump.write_bytes(b"".join(bson.encode(document) for document in mock.client.shop["system.profile"].find()))
        fields = lambda report: {
            key: value
            for key, value in json.loads(report.stdout).items()
            if key not in ("coverage", "reading", "source")
        }
        from_dump, from_server = (
            run("report", what, "--json", *db) for what, db in ((dump, []), (mock.uri, ["--db", "shop"]))
        )
        assert fields(from_dump)["rows"] == fields(from_server)["rows"] and fields(from_dump)["rows"]
        everything = run("report", mock.uri).stdout
        assert "320 operations" in everything and "blog.people" in everything and "shop.people" in everything
        assert "instead of a file" in run("report", dump, "--db", "shop", code=2).stderr


@pytest.mark.parametrize(("plays", "weight"), [("percona", 10), ("percona-4.4.6", 1)])
def test_a_rate_limit_counts_only_if_the_server_applies_it(plays, weight, tmp_path):
    """PSMDB-876: 4.4 before 4.4.8-9 writes rateLimit into its documents and profiles every operation."""
    with mongod(plays) as mock:
        mock.write(20, fields={"rateLimit": 10})
        report = json.loads(run("report", "--db", "shop", "--json", mock.uri).stdout)
        assert report["totals"]["calls"] == 20 * weight
        assert any("PSMDB-876" in note for note in report["notes"]) == (weight == 1)
        result = run("tail", "--db", "shop", "-n", "20", "--count", "20", "--json", mock.uri)
        assert {json.loads(line)["weight"] for line in result.stdout.splitlines()} == {weight}
        assert ("PSMDB-876" in result.stderr) == (weight == 1)
        dump = tmp_path / "system.profile.bson"
        dump.write_bytes(b"".join(bson.encode(document) for document in mock.client.shop["system.profile"].find()))
        # A dump has no information about its server.
        report = json.loads(run("report", dump, "--json").stdout)
        assert report["totals"]["calls"] == 200 and any("assumed" in note for note in report["notes"])


def test_impact_does_not_measure_a_rate_limit_that_the_server_does_not_apply():
    with mongod("percona-4.4.6") as mock:
        done = run(
            "impact", "--clients", "1", "--rounds", "3", "--slice", "200ms", "--documents", "300", "--json", mock.uri
        )
        assert [cell["name"] for cell in json.loads(done.stdout)["cells"]] == ["0", "1", "2"]
        assert "PSMDB-876" in done.stderr


def drawn(page, directory):
    """The DOM of a page in a browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        pytest.skip("needs chromium")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        f"--user-data-dir={directory}/browser",
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_no_index_is_suggested_if_one_exists(tmp_path):
    def line(collection, n):
        attributes = {
            "type": "command",
            "ns": f"shop.{collection}",
            "command": {
                "find": collection,
                "filter": {"city": "x", "age": {"$gt": n}},
                "sort": {"seen": -1},
                "$db": "shop",
            },
            "planSummary": "COLLSCAN",
            "keysExamined": 0,
            "docsExamined": 9_000,
            "nreturned": 2,
            "hasSortStage": True,
            "durationMillis": 130,
        }
        head = {
            "t": {"$date": f"2026-05-01T10:00:{n % 60:02}.000+00:00"},
            "s": "I",
            "c": "COMMAND",
            "id": 51803,
            "ctx": "conn7",
        }
        return json.dumps({**head, "msg": "Slow query", "attr": attributes}, separators=(",", ":"))

    log = tmp_path / "mongod.log"
    log.write_text(
        "".join(line(collection, n) + "\n" for n in range(40) for collection in ("served", "partly", "bare", "absent"))
    )

    def hints(*arguments):
        command = [labkit.MONGOSONAR, "logs", "report", log, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return {row["collection"]: row["index_hint"] for row in json.loads(done.stdout)["rows"]}

    wanted = "{city: 1, seen: -1, age: 1}"
    assert hints("--json") == dict.fromkeys(("served", "partly", "bare", "absent"), wanted)
    with real_server(tmp_path / "server") as address, pymongo.MongoClient(f"mongodb://{address}") as client:
        # The same index with the opposite sort direction (an index can be read in both) and one more field.
        client.shop.served.create_index([("city", 1), ("seen", 1), ("age", 1), ("more", 1)])
        client.shop.partly.create_index([("city", 1), ("age", 1)])
        client.shop.bare.insert_one({"a": 1})
        uri = f"mongodb://{address}"
        assert hints("--json", "--uri", uri) == {"served": None, "partly": wanted, "bare": wanted, "absent": wanted}
        text = subprocess.run(
            [labkit.MONGOSONAR, "logs", "report", log, "--uri", uri], capture_output=True, text=True, check=True
        ).stdout
        assert (
            "none that exists serves" in text and "shop.partly {city: 1" in text and "shop.served {city: 1" not in text
        )
        page = tmp_path / "report.html"
        subprocess.run([labkit.MONGOSONAR, "logs", "report", log, "--uri", uri, "--html", page], check=True)
    dom = drawn(page, tmp_path)
    assert 'data-ready="yes"' in dom and dom.count('data-name="index"') == 3
    assert "Indexes that may help" in dom and "none that exists serves" in dom and "shop.partly" in dom


def test_a_report_of_operations_from_now_on(tmp_path):
    with mongod("6.0") as mock:
        mock.write(50)
        with running(tmp_path, "report", mock.uri, "--duration", "3s") as child:
            wait_for_output(child, "reading what")
            time.sleep(1)
            mock.write(7, 100)
            assert child.wait(20) == 0
        assert "7 operations" in child.out.read_text()


# -- impact


@pytest.mark.alone
def test_impact_finds_a_real_cost_and_cleans_up(tmp_path):
    with mongod("6.0", "--cost-us", "2000") as mock:
        arguments = ["--clients", "1,2", "--rounds", "4", "--slice", "400ms", "--documents", "300"]
        html = tmp_path / "a.html"
        done = run("impact", *arguments, "--level", "0,2", "--json", "--html", html, mock.uri)
        report = json.loads(done.stdout)
        # The mock sleeps 2 ms for each operation at level 2 and none at level 0.
        cells = {(cell["clients"], cell["level"]): cell for cell in report["cells"]}
        for clients in 1, 2:
            cell = cells[clients, 2]
            assert cell["differs"] and cell["loss_low"] <= cell["loss"] <= cell["loss_high"] and cell["loss"] > 0.1
            assert cell["p50_ns"] > cells[clients, 0]["p50_ns"] + 1_500_000
            assert cell["load_cpu_ns"] and cell["server_cpu_ns"] and cell["lock_waits"] == 0
        assert "less throughput" in report["verdicts"][0]
        order = [(piece["clients"], piece["round"], piece["variant"]) for piece in report["slices"]]
        assert len(order) == 16
        for clients in 1, 2:
            rounds = [[v for c, r, v in order if c == clients and r == n] for n in range(4)]
            assert all(sorted(of) == [0, 1] for of in rounds) and rounds[0] == rounds[1][::-1]
        # A browser draws the page: a chart, a row for each cell in both tables, and the verdict.
        dom = drawn(html, tmp_path)
        assert 'data-ready="yes"' in dom and dom.count('class="chart"') == 1, dom[:2_000]
        assert report["verdicts"][0].split(":")[0].split(",")[0] in dom and dom.count('data-name="clients"') == 2 * len(
            cells
        )
        assert "mongosonar_impact" not in mock.client.list_database_names()
        assert mock.profile("mongosonar_impact")["was"] == 0


@pytest.mark.alone
def test_impact_with_percona_measures_the_rate_limit_too():
    with mongod("percona") as mock:
        mock.client.admin.command("profile", 0, ratelimit=7)
        done = run(
            "impact", "--clients", "1", "--rounds", "3", "--slice", "200ms", "--documents", "300", "--json", mock.uri
        )
        names = [cell["name"] for cell in json.loads(done.stdout)["cells"]]
        assert names == ["0", "1", "2 1/1", "2 1/100"]
        assert mock.profile()["ratelimit"] == 7, "as it was"


def test_impact_refuses_a_database_that_exists():
    with mongod("6.0") as mock:
        result = run("impact", "--db", "shop", mock.uri, code=1).stderr
        assert "exists" in result and mock.changes() == [] and "shop" in mock.client.list_database_names()


@pytest.mark.alone
@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "lost"])
def test_impact_cleans_up_however_it_ends(end, tmp_path):
    with mongod("6.0") as mock:
        arguments = ["--clients", "2", "--rounds", "100", "--slice", "1s", "--documents", "300", "--level", "2,1"]
        with running(tmp_path, "impact", *arguments, f"{mock.uri}/?serverSelectionTimeoutMS=1000") as child:
            labkit.wait_until(lambda: mock.profile("mongosonar_impact")["was"] == 2, "profiling")
            if end == "lost":
                mock.down(1)
                wait_for_output(child, "measuring it again")
                child.send_signal(signal.SIGINT)
            else:
                child.send_signal(getattr(signal, end))
            assert child.wait(60) == 1
        assert "stopped; everything created on the server was removed" in child.err.read_text()
        assert "mongosonar_impact" not in mock.client.list_database_names()
        assert mock.profile("mongosonar_impact")["was"] == 0


def test_a_long_run_marks_the_wrap():
    with mongod("6.0") as mock:
        arguments = ["--level", "2", "--clients", "1", "--duration", "16s", "--size", "1m", "--documents", "300"]
        long = json.loads(run("impact", *arguments, "--json", mock.uri).stdout)
        assert len(long["seconds"]) >= 15 and long["profile_bytes"] == 1 << 20
        assert 0 < long["wrapped_ns"] < 16e9, "at least some hundred operations a second, 300 bytes each"
        assert "began to wrap after" in long["verdict"]
        assert "mongosonar_impact" not in mock.client.list_database_names()


@pytest.mark.alone
def test_equal_settings_show_no_difference_on_a_real_server(served_v4):
    # With this confidence, chance alone fails the test once in ten thousand runs.
    arguments = [
        "--level",
        "0,0",
        "--clients",
        "1,4",
        "--rounds",
        "5",
        "--slice",
        "600ms",
        "--documents",
        "300",
        "--confidence",
        "99.99",
    ]
    done = run("impact", *arguments, f"mongodb://{served_v4}")
    assert "Level 0 again against 0: no difference" in done.stdout and "less throughput" not in done.stdout
    with pymongo.MongoClient(f"mongodb://{served_v4}") as client:
        assert "mongosonar_impact" not in client.list_database_names()
    assert "has no profiler" in run("impact", f"mongodb://{served_v4}", code=1).stderr
