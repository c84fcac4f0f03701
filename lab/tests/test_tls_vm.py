"""Encrypted connections and sockets of processes on a stock Debian kernel, which attaches a program to one place at a time
and does not report what sockets receive: every command of a real driver, and none more."""

import json
import os
import subprocess

import pytest
import tlskit

import labkit
import vm

# The relay that ends TLS as mongod does, in front of the lab's server; what is read of the relay, and of the server.
SCRIPT = """
ms() { name=$1; shift
    mongosonar queries "$@" --each --json --class all --role all > /tmp/$name.out 2> /tmp/$name.err &
    started="$started $!"
    for i in $(seq 300); do grep -q "listening on" /tmp/$name.err && return; sleep 1; done
    cat /tmp/$name.err >&2; exit 1
}
until_ready() { for i in $(seq 300); do grep -q ready $1 && return; sleep 1; done; exit 1; }
mkdir /tmp/data
server --listen 127.0.0.1:27117 --dir /tmp/data > /tmp/server.log 2>&1 &
until_ready /tmp/server.log
membio 27118 27117 /root/both.pem > /tmp/relay.log 2>&1 &
until_ready /tmp/relay.log
ms tls --interface lo --port 27118
ms sockets --source process --no-tls --port 27117
driver-go 'mongodb://127.0.0.1:27118/?OPTIONS' /tmp/driver.jsonl _go > /tmp/driver.log 2>&1
sleep 15
# Not their helpers, which may end before each is signalled.
kill -INT $started
wait $started
cat /tmp/tls.err /tmp/sockets.err
"""


@pytest.mark.vm
@pytest.mark.skipif(not os.environ.get("LONG"), reason="it computes for a minute; LONG=1 lets it run")
def test_every_command_of_a_driver_is_read_on_a_stock_kernel(tmp_path):
    program = tmp_path / "mongosonar"
    subprocess.run(["strip", "-g", "-o", program, labkit.MONGOSONAR], check=True)
    bin = labkit.LAB / "bin"
    files = [(bin / name, f"/bin/{name}") for name in ("server", "membio", "driver-go")]
    files += [(program, "/bin/mongosonar"), (tlskit.certificate(tmp_path), "/root/both.pem")]
    taken = ["/tmp/tls.out", "/tmp/sockets.out", "/tmp/driver.jsonl"]
    script = SCRIPT.replace("OPTIONS", tlskit.OPTIONS)
    done = vm.run(script, files=files, take=taken, memory=1536, seconds=600)
    assert done.code == 0, done
    assert "reading encrypted connections" in done.out and "reading the sockets" in done.out, done
    lines = {name: [json.loads(line) for line in done.taken[name].splitlines()] for name in taken}
    sent = lines["/tmp/driver.jsonl"]
    assert len(sent) > 400
    tlskit.check(lines["/tmp/tls.out"], sent)
    assert {op["tls_version"] for op in labkit.operations(lines["/tmp/tls.out"])} == {"TLSv1.3"}
    read = labkit.operations(lines["/tmp/sockets.out"])
    assert {command["request_id"] for command in sent} <= {op["request_id"] for op in read}
    assert len(read) == len(labkit.operations(lines["/tmp/tls.out"]))
