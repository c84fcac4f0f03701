"""OP_COMPRESSED: the same comparison through the lab's compressing proxy, with each compressor that drivers know."""

import pytest
from test_drivers import compare

import labkit

pytestmark = pytest.mark.root


@pytest.mark.parametrize("compressor", ["snappy", "zlib", "zstd"])
def test_compressed_commands_are_heard(compressor, served_v4, tmp_path):
    proxy = [labkit.LAB / "bin/proxy", "--server", served_v4, "--compressor", compressor]
    with labkit.ready(proxy) as address:
        said, live, read, _ = compare(tmp_path, "python", address, f"compressors={compressor}")
    for way, heard in ("live", live), ("from the file", read):
        difference = labkit.join(heard, said)
        assert not difference, f"{way}:\n{difference}"
        requests = {command["request_id"] for command in said}
        compressed = {op["compressor"] for op in heard if op["request_id"] in requests}
        assert compressed == {compressor}
        assert {op["opcode"] for op in heard if op["request_id"] in requests} == {"OP_MSG"}
