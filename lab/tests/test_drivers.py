"""Drivers as oracle: mongosonar captures every command in the driver's own command monitoring, live and from a file."""

import struct

import pytest

import labkit

pytestmark = pytest.mark.root


def compare(directory, language, address, options=""):
    """Records one run of a driver in three ways: by the driver, by mongosonar live, by tcpdump. Returns all three."""
    port, pcap = labkit.port_of(address), directory / "wire.pcap"
    arguments = ["--interface", "lo", "--port", str(port), *labkit.EACH]
    with labkit.tcpdump(pcap, "lo", f"tcp port {port}"), labkit.live_capture(directory, arguments) as sonar:
        sent = labkit.run_driver(language, address, directory / "driver.jsonl", options)
        labkit.wait_until_closed(port)
        live = labkit.operations(sonar.stop())
    return sent, live, labkit.read_capture(pcap), pcap


@pytest.mark.parametrize("language", labkit.DRIVERS)
def test_every_command_of_a_driver_is_captured(language, served, tmp_path):
    sent, live, read, _ = compare(tmp_path, language, served)
    commands = {command["command"] for command in sent}
    assert {"insert", "find", "getMore", "update", "delete", "aggregate", "distinct"} <= commands
    # The Rust driver refuses unacknowledged writes.
    assert language == "rust" or any(command.get("unacknowledged") for command in sent)
    assert any(command["outcome"] == "failed" for command in sent)
    assert any(command.get("write_errors") for command in sent)
    for way, captured in ("live", live), ("from the file", read):
        difference = labkit.join(captured, sent)
        assert not difference, f"{way}:\n{difference}"


def test_the_same_filter_in_two_orders_is_one_shape_with_two_orders(served_v4, tmp_path):
    sent, _, read, _ = compare(tmp_path, "go", served_v4)
    found = [op for op in read if op["command"] == "find" and "$gte" in op["shape"] and "tag" in op["shape"]]
    assert len(found) == 2
    assert len({op["shape_id"] for op in found}) == 1
    assert len({op["ordered_id"] for op in found}) == 2
    widths = [op for op in read if op["command"] == "find" and "$in" in op["shape"]]
    assert len(widths) == 3 and len({op["shape_id"] for op in widths}) == 1


def test_a_frame_removed_from_the_capture_is_missed(served_v4, tmp_path):
    """The control: the comparison can fail, and it fails for the request whose frame was removed."""
    sent, _, _, pcap = compare(tmp_path, "go", served_v4)
    victim = next(command for command in sent if command["command"] == "find" and command["client"] == "go-main")
    header, records = labkit.pcap_records(pcap)

    def carries_the_request(record):
        data = labkit.payload(record)
        return len(data) >= 16 and struct.unpack_from("<I", data, 4)[0] == victim["request_id"] and b"find\0" in data

    kept = [record for record in records if not carries_the_request(record)]
    assert len(kept) == len(records) - 1
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(header + b"".join(kept))
    missing = labkit.join(labkit.read_capture(cut), sent).missing
    assert [command["request_id"] for command in missing] == [victim["request_id"]]
