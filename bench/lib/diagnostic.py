"""Files of diagnostic.data of any length, made of a recorded one: the same samples again and again, at later times."""

import datetime
import pathlib
import struct
import zlib

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "fixtures/ftdc/day/metrics.2026-11-21T21-22-47Z-00000"
BEGAN = datetime.datetime(2026, 11, 21, 21, 22, 47)
# Seconds between two copies: the recorded file has 289 of them.
STEP = 300


def documents(data):
    while data:
        (length,) = struct.unpack_from("<I", data)
        yield data[:length]
        data = data[length:]


def later(document, milliseconds):
    """The document with its samples shifted by `milliseconds`; one without samples unchanged."""
    at = document.find(b"\x05data\0")
    if at < 0:
        return document
    begin = at + len(b"\x05data\0") + 5
    (length,) = struct.unpack_from("<I", document, begin - 5)
    unpacked = bytearray(zlib.decompress(document[begin + 4 : begin + length]))
    for name in b"\x09start\0", b"\x12uptimeMillis\0":
        place = unpacked.index(name) + len(name)
        (value,) = struct.unpack_from("<q", unpacked, place)
        struct.pack_into("<q", unpacked, place, value + milliseconds)
    packed = struct.pack("<I", len(unpacked)) + zlib.compress(bytes(unpacked))
    inner = document[4 : begin - 5] + struct.pack("<IB", len(packed), 0) + packed + b"\0"
    return struct.pack("<I", len(inner) + 4) + inner


def copies(folder, began=BEGAN):
    """Writes files of one server, one after the other in time, the first of which begins at `began`; yields the size of
    each, before the next one is made."""
    recorded = list(documents(RECORDED.read_bytes()))
    moved = began - BEGAN
    while True:
        data = b"".join(later(document, int(moved.total_seconds() * 1000)) for document in recorded)
        (folder / f"metrics.{BEGAN + moved:%Y-%m-%dT%H-%M-%SZ}-00000").write_bytes(data)
        yield len(data)
        moved += datetime.timedelta(seconds=STEP)
