"""How the commands of `mongosonar profiler` reach a server, or say why they cannot."""

import contextlib
import json
import os
import pathlib
import pty
import shutil
import socket
import ssl
import subprocess
import sys
import termios
import threading

import pytest
from profilers import MOCK, mongod, names, replica_set, run
from test_netns import inside, namespaces

import labkit


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

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
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
        words = ["profiler", "status", "--json", "--db", "shop", uri]
        assert labkit.document(*words, prefix=there, timeout=60)["databases"][0]["level"] == 0


def test_invalid_connection_strings():
    assert "connection string" in run("status", "http://x", code=2).stderr
    assert "connection string" in run("status", "--uri", "mongodb://", code=2).stderr


def one_cause(*arguments, env=None):
    """The error of a command that cannot reach its server: one line, one cause, no internals of the driver."""
    done = labkit.run(*arguments, code=1, timeout=60, env=env, stdin=subprocess.DEVNULL)
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
        done = labkit.run("profiler", "status", *user, code=None, env=environment, timeout=60)
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
