"""TLS in front of the lab's server: certificates, programs that end TLS, and clients that say what they sent."""

import contextlib
import functools
import json
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile

import bson
import pytest

import labkit

sys.path.insert(0, str(labkit.LAB / "drivers/python"))
import workload

MEMBIO = labkit.LAB / "bin/membio"
# Each driver takes these; none knows the certificate's authority.
OPTIONS = "tls=true&tlsInsecure=true"
NGINX_STREAM = pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so")
OP_MSG = 2013
# How much of a reply is copied: its beginning and its end.
COPIED_OF_A_REPLY = 16_384 + 2_048


@functools.cache
def key_and_certificate():
    """A key and a certificate for localhost. Looking for primes takes a third of a second, so all tests have the same."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    with tempfile.TemporaryDirectory() as folder:
        key, signed = pathlib.Path(folder) / "key.pem", pathlib.Path(folder) / "certificate.pem"
        subprocess.run([*command, "-keyout", key, "-out", signed], check=True, capture_output=True)
        return key.read_text() + signed.read_text()


def certificate(folder):
    """Returns a file with a certificate for localhost and its key."""
    both = folder / "both.pem"
    both.write_text(key_and_certificate())
    return both


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=15):
        return True
    return False


@contextlib.contextmanager
def listening(folder, command, port):
    """Runs a program until it accepts connections; yields its address."""
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    errors = folder / f"{command[0]}.err"
    with open(errors, "wb") as stderr, labkit.process(command, stdout=stderr, stderr=stderr) as child:

        def comes():
            assert child.poll() is None, f"{command[0]} ended: {errors.read_text()}"
            return accepts(port)

        labkit.wait_until(comes, f"{command[0]} on port {port}")
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def stunnel(folder, server, version):
    """stunnel: OpenSSL on the sockets themselves."""
    port, config = free_port(), folder / "stunnel.conf"
    config.write_text(
        f"foreground = yes\npid =\ndebug = 3\nsslVersion = TLSv{version}\n"
        f"[mongo]\naccept = 127.0.0.1:{port}\nconnect = {server}\ncert = {certificate(folder)}\n"
    )
    with listening(folder, ["stunnel4", str(config)], port) as address:
        yield address


@contextlib.contextmanager
def haproxy(folder, server, version):
    """HAProxy: a BIO of its own, whose calls OpenSSL makes."""
    port, config = free_port(), folder / "haproxy.cfg"
    config.write_text(
        "global\n maxconn 1000\n nbthread 2\n"
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n"
        f"frontend mongo\n bind 127.0.0.1:{port} ssl crt {certificate(folder)}"
        f" ssl-min-ver TLSv{version} ssl-max-ver TLSv{version}\n default_backend mongod\n"
        f"backend mongod\n server mongod {server}\n"
    )
    with listening(folder, ["haproxy", "-db", "-f", str(config)], port) as address:
        yield address


@contextlib.contextmanager
def nginx(folder, server, version):
    """nginx with its stream module: a master that listens, and a worker that reads."""
    if not NGINX_STREAM.exists():
        pytest.skip("libnginx-mod-stream is not installed")
    port, config, pem = free_port(), folder / "nginx.conf", certificate(folder)
    config.write_text(
        f"load_module {NGINX_STREAM};\nuser root;\ndaemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\n"
        "error_log stderr error;\nevents { worker_connections 2048; }\n"
        f"stream {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};"
        f" ssl_protocols TLSv{version}; ssl_session_cache shared:mongo:1m; proxy_pass {server}; proxy_timeout 1h; }} }}\n"
    )
    with listening(folder, ["nginx", "-p", str(folder), "-c", str(config), "-e", "stderr"], port) as address:
        yield address


@contextlib.contextmanager
def membio(folder, server, version, *options, prefix=()):
    """The lab's relay, which uses OpenSSL as mongod does."""
    command = [*prefix, MEMBIO, "0", str(labkit.port_of(server)), certificate(folder), "--tls", version, *options]
    with labkit.ready(command) as address:
        yield address


@contextlib.contextmanager
def membio_between(folder, server, version):
    """Two such relays, one behind the other: the threads of the first alternate between two sessions."""
    behind = folder / "behind"
    behind.mkdir()
    with membio(behind, server, version) as inner, membio(folder, inner, version, "--upstream-tls") as address:
        yield address


def membio_with(*options):
    return lambda folder, server, version: membio(folder, server, version, *options)


ENDPOINTS = {
    "stunnel": stunnel,
    "haproxy": haproxy,
    "nginx": nginx,
    "membio": membio,
    "membio-shared-thread": membio_with("--shared-thread"),
    "membio-tiny": membio_with("--tiny"),
    "membio-upstream-tls": membio_between,
    "membio-seccomp": membio_with("--seccomp"),
}


def arguments(address, *more):
    """What `queries` is told to show every operation of an address."""
    port = str(labkit.port_of(address))
    return ["--interface", "lo", "--port", port, *labkit.EACH, *more]


@contextlib.contextmanager
def capture(folder, address, *more):
    """`mongosonar queries` on an address; the block starts when it also reads the processes."""
    with labkit.live_capture(folder, arguments(address, *more)) as sonar:
        labkit.wait_until(lambda: "listening on" in sonar.err.read_text(), "the probes")
        yield sonar


def may_be_unread(command):
    """Whether a server may never receive this command, because its driver does not wait for its last one: a client that
    gets answers it did not ask for resets its connection as it closes, and Node.js closes a connection while TLS may
    still hold what was written. Decrypted captures of such runs do not have the command."""
    may_be_unsent = command["driver"] == "node" or command["client"].endswith("-silent")
    return command["command"] == "endSessions" and may_be_unsent


def settled(sonar, sent):
    """What mongosonar saw, when it includes all that was sent. A client may have a reply before the call that sent it,
    whose end is what mongosonar sees, has ended."""
    sent = [command for command in sent if not may_be_unread(command)]
    with contextlib.suppress(AssertionError):
        labkit.wait_until(lambda: not labkit.join(labkit.operations(sonar.lines()), sent).missing, "all operations", 30)
    return sonar.stop()


@contextlib.contextmanager
def recording_client(address, path, name, **options):
    """A client of PyMongo that keeps a record as the lab's drivers do, in a file."""
    with open(path, "w", encoding="utf-8") as output:
        recorder = workload.Recorder(name, output)
        options = {"appname": name, "event_listeners": [recorder], "retryWrites": False, **options}
        with workload.MongoClient(f"mongodb://{address}/?{OPTIONS}", **options) as client:
            yield client


class RawClient:
    """A TLS connection on which the test itself writes messages; `sent` has what PyMongo's record would have."""

    def __init__(self, address, name, **options):
        """`options`: `session` to resume, `keys` for a file for the keys, `piece` for bytes in each record."""
        self.name, self.sent, self.piece = name, [], options.get("piece", 16384)
        if not (context := options.get("context")):
            # Not the default context, which reads all certificates of this machine.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", labkit.port_of(address)), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, session=options.get("session"))
        self.context, self.number = context, labkit.port_of(f":{plain_port(self.socket)}") << 12
        self.ask({"hello": 1, "client": metadata(name), "$db": "admin"}, monitored=False)

    def ask(self, command, monitored=True):
        """Sends a command and returns the reply."""
        message = self.begin(command)
        reply, length = self.end()
        first = next(iter(command))
        if monitored:
            collection = command[first] if isinstance(command[first], str) else None
            self.sent.append(
                {
                    "driver": "raw",
                    "client": self.name,
                    "request_id": self.number,
                    "command": first,
                    "ns": f"{command['$db']}.{collection}" if collection else command["$db"],
                    "us": 60_000_000,
                    "outcome": "ok" if reply["ok"] else "failed",
                    **({} if reply["ok"] else {"code": reply["code"]}),
                    "request_bytes": len(message),
                    "response_bytes": length,
                }
            )
        return reply

    def begin(self, command):
        """Sends a command; returns its message."""
        self.number += 1
        # As drivers do it, so that the beginning of a message tells what it is.
        documents = [bson.encode(document) for document in command.get("documents", [])]
        body = b"\0" + bson.encode({key: value for key, value in command.items() if key != "documents"})
        if documents:
            sequence = b"documents\0" + b"".join(documents)
            body += struct.pack("<Bi", 1, len(sequence) + 4) + sequence
        message = struct.pack("<iiiiI", len(body) + 20, self.number, 0, OP_MSG, 0) + body
        for at in range(0, len(message), self.piece):
            self.socket.sendall(message[at : at + self.piece])
        return message

    def end(self):
        """Waits for the reply to the last command; returns it and its length in bytes."""
        length, _, answers, _ = struct.unpack("<iiii", self.exactly(16))
        reply = bson.decode(self.exactly(length - 16)[5:])
        assert answers == self.number
        return reply, length

    def exactly(self, count):
        parts = []
        while count:
            part = self.socket.recv(min(count, 65536))
            assert part, "the server has closed the connection"
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def plain_port(connected):
    return connected.getsockname()[1]


def metadata(name):
    return {
        "application": {"name": name},
        "driver": {"name": "lab", "version": "1"},
        "os": {"type": "Linux"},
    }


def differing_sizes(operations, sent):
    """Commands whose sizes mongosonar reports otherwise."""
    seen = {(op["request_id"], op["command"]): op for op in operations}
    facts = ("request_bytes", "response_bytes")
    return [
        (command, {fact: op[fact] for fact in facts})
        for command in sent
        if (op := seen.get((command["request_id"], command["command"])))
        and any(command[fact] != op[fact] for fact in facts)
    ]


def coverage(lines):
    """The last coverage that was shown, as JSON text for messages of tests."""
    return json.dumps(next((line["coverage"] for line in reversed(lines) if "coverage" in line), None))


def without_uncounted_documents(captured, sent):
    """Leaves out the number of documents in replies of which the middle was not copied."""
    replies = {op["request_id"]: op for op in captured if op["response_bytes"] > COPIED_OF_A_REPLY}
    uncounted = {number for number, op in replies.items() if op["docs_returned"] is None}
    assert len(uncounted) < len(sent) / 20
    keep = lambda command: {name: value for name, value in command.items() if name != "docs"}
    return [keep(command) if command["request_id"] in uncounted else command for command in sent]


def check(lines, sent, encrypted=True):
    """Every command that was sent was captured as it was, and nothing else."""
    captured = labkit.operations(lines)
    assert all(op["tls"] == encrypted for op in captured)
    ids = {op["request_id"] for op in captured}
    missing = [command for command in sent if command["request_id"] not in ids]
    unread = [command for command in missing if may_be_unread(command)]
    sent = [command for command in sent if command not in unread]
    missing = [command for command in missing if command not in unread]
    assert not missing, f"{missing}\n{coverage(lines)}"
    difference = labkit.join(captured, without_uncounted_documents(captured, sent))
    assert not difference, f"{difference}\n{coverage(lines)}"
