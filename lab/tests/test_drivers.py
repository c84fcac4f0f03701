"""Drivers as oracle: what each driver's own command monitoring says it sent, mongosonar heard, live and from a file."""

import struct
import time

import pytest

import labkit

pytestmark = pytest.mark.root


def compare(directory, language, address, options=""):
    """Records one run of a driver three ways: by the driver, by mongosonar live, by tcpdump. Gives all three."""
    port, pcap = labkit.port_of(address), directory / "wire.pcap"
    arguments = ["--interface", "lo", "--port", str(port), "--each", "--json", "--class", "all", "--role", "all"]
    with labkit.tcpdump(pcap, "lo", f"tcp port {port}"), labkit.listening(directory, arguments) as ear:
        said = labkit.run_driver(language, address, directory / "driver.jsonl", options)
        # Live figures come with the ring's blocks: the last operations are given a moment to arrive.
        deadline = time.monotonic() + 5
        while labkit.join(labkit.operations(ear.lines()), said).missing and time.monotonic() < deadline:
            time.sleep(0.1)
        live = labkit.operations(ear.stop())
    return said, live, labkit.read_capture(pcap), pcap


@pytest.mark.parametrize("language", labkit.DRIVERS)
def test_every_command_of_a_driver_is_heard(language, served, tmp_path):
    said, live, read, _ = compare(tmp_path, language, served)
    commands = {command["command"] for command in said}
    assert {"insert", "find", "getMore", "update", "delete", "aggregate", "distinct"} <= commands
    # The Rust driver refuses to write without acknowledgement.
    assert language == "rust" or any(command.get("unacknowledged") for command in said)
    assert any(command["outcome"] == "failed" for command in said)
    assert any(command.get("write_errors") for command in said)
    for way, heard in ("live", live), ("from the file", read):
        difference = labkit.join(heard, said)
        assert not difference, f"{way}:\n{difference}"


def test_the_same_filter_in_two_orders_is_one_shape_with_two_orders(served_v4, tmp_path):
    said, _, read, _ = compare(tmp_path, "go", served_v4)
    found = [op for op in read if op["command"] == "find" and "$gte" in op["shape"] and "tag" in op["shape"]]
    assert len(found) == 2
    assert len({op["shape_id"] for op in found}) == 1
    assert len({op["ordered_id"] for op in found}) == 2
    widths = [op for op in read if op["command"] == "find" and "$in" in op["shape"]]
    assert len(widths) == 3 and len({op["shape_id"] for op in widths}) == 1


def test_a_frame_taken_out_of_the_capture_is_missed(served_v4, tmp_path):
    """The control: the comparison can fail, and fails for the request whose frame is gone."""
    said, _, _, pcap = compare(tmp_path, "go", served_v4)
    victim = next(command for command in said if command["command"] == "find" and command["client"] == "go-main")
    header, records = labkit.pcap_records(pcap)

    def carries_the_request(record):
        data = labkit.payload(record)
        return len(data) >= 16 and struct.unpack_from("<I", data, 4)[0] == victim["request_id"] and b"find\0" in data

    kept = [record for record in records if not carries_the_request(record)]
    assert len(kept) == len(records) - 1
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(header + b"".join(kept))
    missing = labkit.join(labkit.read_capture(cut), said).missing
    assert [command["request_id"] for command in missing] == [victim["request_id"]]
