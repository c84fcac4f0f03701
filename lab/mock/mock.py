"""MOCK: a scripted server and a scripted client, for behaviour that no available server has.

Not a MongoDB: it sends what the script says, byte for byte in the wire protocol, over real TCP connections.
Use it as `mock.Peer(script)`; see the scenes in ../tests/test_mock.py.
"""

import itertools
import socket
import struct
import threading

OP_REPLY, OP_QUERY, OP_GET_MORE, OP_COMPRESSED, OP_MSG = 1, 2004, 2005, 2012, 2013
CHECKSUM_PRESENT, MORE_TO_COME, EXHAUST_ALLOWED = 1, 2, 1 << 16
NOOP, SNAPPY, ZLIB, ZSTD = range(4)

_CRC_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    _CRC_TABLE.append(_byte)


def crc32c(data):
    """CRC-32C (Castagnoli), as OP_MSG's checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def message(opcode, body, request_id, response_to=0):
    """A complete message: the header and its body."""
    return struct.pack("<iIIi", 16 + len(body), request_id & 0xFFFFFFFF, response_to & 0xFFFFFFFF, opcode) + body


def kind_0(document):
    """A body section."""
    return b"\0" + document


def kind_1(identifier, documents):
    """A document sequence."""
    data = identifier.encode() + b"\0" + b"".join(documents)
    return b"\1" + struct.pack("<i", 4 + len(data)) + data


def msg(sections, request_id, response_to=0, flags=0, checksum=False):
    """An OP_MSG of these sections, with a checksum if requested."""
    if checksum:
        flags |= CHECKSUM_PRESENT
    body = struct.pack("<I", flags) + b"".join(sections)
    if not checksum:
        return message(OP_MSG, body, request_id, response_to)
    header = struct.pack("<iIIi", 16 + len(body) + 4, request_id & 0xFFFFFFFF, response_to & 0xFFFFFFFF, OP_MSG)
    return header + body + struct.pack("<I", crc32c(header + body))


def compressed(whole, compressor, compress):
    """The same message as OP_COMPRESSED."""
    _, request_id, response_to, opcode = struct.unpack_from("<iIIi", whole)
    body = whole[16:]
    return message(
        OP_COMPRESSED, struct.pack("<iiB", opcode, len(body), compressor) + compress(body), request_id, response_to
    )


def query(namespace, document, request_id, flags=0, skip=0, limit=0):
    """A legacy OP_QUERY."""
    body = struct.pack("<i", flags) + namespace.encode() + b"\0" + struct.pack("<ii", skip, limit) + document
    return message(OP_QUERY, body, request_id)


def get_more(namespace, cursor, request_id, limit=0):
    """A legacy OP_GET_MORE."""
    body = struct.pack("<i", 0) + namespace.encode() + b"\0" + struct.pack("<iq", limit, cursor)
    return message(OP_GET_MORE, body, request_id)


def reply(documents, request_id, response_to, cursor=0, flags=0):
    """A legacy OP_REPLY."""
    body = struct.pack("<iqii", flags, cursor, 0, len(documents)) + b"".join(documents)
    return message(OP_REPLY, body, request_id, response_to)


class Peer:
    """Both ends of one connection on loopback. What one end sends is read by the other before anything follows, so
    that the order on the wire is the order of the script."""

    def __init__(self, host="127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as listener:
            self.port = listener.getsockname()[1]
            self._host, self._listener = host, listener.dup()
        self.ids = itertools.count(1)

    def __enter__(self):
        self.client = socket.create_connection((self._host, self.port))
        self.server, _ = self._listener.accept()
        for end in self.client, self.server:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    def __exit__(self, *_):
        for end in self.client, self.server, self._listener:
            end.close()

    def ask(self, data):
        """The client sends; the server has read it all when this returns."""
        self._pass(self.client, self.server, data)

    def answer(self, data):
        """The server sends; the client has read it all when this returns."""
        self._pass(self.server, self.client, data)

    @staticmethod
    def _pass(sender, receiver, data):
        sending = threading.Thread(target=sender.sendall, args=(data,))
        sending.start()
        left = len(data)
        while left:
            left -= len(receiver.recv(min(left, 1 << 20)))
        sending.join()
