"""OP_COMPRESSED: the same comparison through the lab's compressing proxy, with each compressor that drivers know."""

import pytest
from test_drivers import compare

import labkit

pytestmark = pytest.mark.root


@pytest.mark.parametrize("compressor", ["snappy", "zlib", "zstd"])
def test_compressed_commands_are_captured(compressor, served_v4, tmp_path):
    proxy = [labkit.LAB / "bin/proxy", "--server", served_v4, "--compressor", compressor]
    with labkit.ready(proxy) as address:
        sent, live, read, _ = compare(tmp_path, "python", address, f"compressors={compressor}")
    for way, captured in ("live", live), ("from the file", read):
        difference = labkit.join(captured, sent)
        assert not difference, f"{way}:\n{difference}"
        requests = {command["request_id"] for command in sent}
        compressed = {op["compressor"] for op in captured if op["request_id"] in requests}
        assert compressed == {compressor}
        assert {op["opcode"] for op in captured if op["request_id"] in requests} == {"OP_MSG"}
