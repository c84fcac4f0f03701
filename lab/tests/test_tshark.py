"""tshark as oracle: message by message on the same capture."""

import collections
import subprocess

import pytest

import labkit

pytestmark = pytest.mark.root


def messages(tshark, pcap, port, decoded_as=None):
    """Each MongoDB message that tshark sees: (client endpoint, to the server?, request id, response to, length).

    `decoded_as`: options that say what is on the port, if it is not the plain protocol."""
    fields = ["tcp.srcport", "tcp.dstport", "mongo.request_id", "mongo.response_to", "mongo.message_length"]
    decoded_as = decoded_as or ["-d", f"tcp.port=={port},mongo"]
    # With several processors, the kernel may record the packets of a connection in another order.
    in_order = ["-o", "tcp.reassemble_out_of_order:TRUE"]
    command = [tshark, "-n", "-r", pcap, *in_order, *decoded_as, "-Y", "mongo", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        source, destination, *columns = line.split("\t")
        ids, answers, lengths = (column.split(",") for column in columns)
        for request_id, answer, length in zip(ids, answers, lengths, strict=True):
            request = int(destination) == port
            client = int(source) if request else int(destination)
            yield client, request, int(request_id, 0) & 0xFFFFFFFF, int(answer, 0) & 0xFFFFFFFF, int(length)


def test_every_message_that_tshark_sees_is_captured(tshark, served, tmp_path):
    port, pcap = labkit.port_of(served), tmp_path / "wire.pcap"
    with labkit.tcpdump(pcap, "lo", f"tcp port {port}"):
        labkit.run_driver("go", served, tmp_path / "driver.jsonl")
    seen = list(messages(tshark, pcap, port))
    captured = labkit.read_capture(pcap, "--port", str(port))

    requests = collections.Counter(
        (client, request_id, length) for client, request, request_id, _, length in seen if request
    )
    ours = collections.Counter(
        (int(op["client"].rpartition(":")[2]), op["request_id"], op["request_bytes"]) for op in captured
    )
    assert len(requests) > 400
    assert requests == ours, (list((requests - ours).items())[:5], list((ours - requests).items())[:5])

    replies = collections.Counter()
    for client, request, _, answer, length in seen:
        if not request:
            replies[client, answer] += length
    for op in captured:
        if op["outcome"] in ("ok", "failed"):
            client = int(op["client"].rpartition(":")[2])
            assert replies[client, op["request_id"]] == op["response_bytes"], op
