"""Frames: read from a recording, moved to other addresses and ports, built by hand, and sent at a given rate."""

import array
import ctypes
import gzip
import multiprocessing
import os
import random
import socket
import struct
import subprocess
import time

# Ports from here on belong to clients; ports of servers are lower and stay unchanged.
FIRST_CLIENT_PORT = 32_768
CLIENT_PORTS = 65_536 - FIRST_CLIENT_PORT
# Addresses for documentation (RFC 5737, RFC 3849): no host has them, so nobody answers.
SERVER, CLIENTS = socket.inet_aton("192.0.2.1"), socket.inet_aton("198.51.100.0")
SERVER6, CLIENTS6 = (socket.inet_pton(socket.AF_INET6, text) for text in ("2001:db8::1", "2001:db8:1::"))
CLONE_NEWNET = 0x4000_0000
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20


def packets(path):
    """Microseconds since 1970 and frame of each packet of a pcap file (little-endian, microseconds, Ethernet)."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\xd4\xc3\xb2\xa1":
        raise SystemExit(f"{path} is no little-endian pcap with microseconds")
    at = 24
    while at < len(data):
        seconds, micros, length, _ = struct.unpack_from("<IIII", data, at)
        yield seconds * 1_000_000 + micros, data[at + 16 : at + 16 + length]
        at += 16 + length


def tcp_offset(frame):
    """The offset of the TCP header of a frame; None if it has none."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP:
        return 14 + (frame[14] & 15) * 4
    return 54 if kind == b"\x86\xdd" and frame[20] == socket.IPPROTO_TCP else None


def client_port_at(frame, tcp):
    """The offset of the client's port, and whether the client sends."""
    source, _ = struct.unpack_from(">HH", frame, tcp)
    return (tcp, True) if source >= FIRST_CLIENT_PORT else (tcp + 2, False)


def connections(path):
    """The frames of a recording as (connection, frame, offset of TCP), and how many connections there are."""
    found, numbers = [], {}
    for _, frame in packets(path):
        tcp = tcp_offset(frame)
        if tcp is not None:
            ports = frozenset(struct.unpack_from(">HH", frame, tcp))
            found.append((numbers.setdefault(ports, len(numbers)), frame, tcp))
    return found, len(numbers)


def ip_checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - ((total & 0xFFFF) + (total >> 16))


def client_address(host, family=socket.AF_INET):
    """The address of a client, from 0 to 255."""
    return (CLIENTS if family == socket.AF_INET else CLIENTS6)[:-1] + bytes([host])


def between_others(frame, tcp, host):
    """The same frame between a client and SERVER. Sequence numbers differ from host to host: the same ones with the
    same bytes would look like one connection on both sides of an address translation."""
    _, from_client = client_port_at(frame, tcp)
    client, client6 = client_address(host), client_address(host, socket.AF_INET6)
    frame = bytearray(frame)
    for at in (tcp + 4, tcp + 8):
        struct.pack_into(">I", frame, at, (struct.unpack_from(">I", frame, at)[0] + host * 0x0100_0000) & 0xFFFF_FFFF)
    if frame[12:14] == b"\x08\x00":
        frame[26:34] = client + SERVER if from_client else SERVER + client
        frame[24:26] = b"\0\0"
        struct.pack_into(">H", frame, 24, ip_checksum(bytes(frame[14:tcp])))
    else:
        frame[22:54] = client6 + SERVER6 if from_client else SERVER6 + client6
    return bytes(frame)


class Schedule:
    """Frames in the order in which they are sent, again and again.

    Connections have numbers. Each time the schedule starts again, every connection gets another client port, so that
    a capture sees a new connection. Ports repeat after 32,768 connections.
    """

    def __init__(self):
        self.bodies, self.places, self.order = [], {}, []
        self.connections = 0
        self.bytes = 0

    def add(self, frame, tcp, connection):
        """Adds a frame; the bytes of a frame object that was added before are not stored again."""
        place = self.places.get(id(frame))
        if place is None:
            place = self.places[id(frame)] = len(self.bodies)
            self.bodies.append((frame, client_port_at(frame, tcp)[0]))
        self.order.append((place, connection))
        self.connections = max(self.connections, connection + 1)
        self.bytes += len(frame)

    def __len__(self):
        return len(self.order)


def of_recording(recording, largest, rounds, with_large=False, host=1):
    """A schedule of client `host`: the connections of a recording without a frame above `largest` bytes, `rounds`
    times; `with_large` spreads the others evenly among them, once."""
    found, count = connections(recording)
    large = {connection for connection, frame, _ in found if len(frame) > largest}
    moved = [(connection, between_others(frame, tcp, host), tcp) for connection, frame, tcp in found]
    small = [item for item in moved if item[0] not in large]
    others = [item for item in moved if item[0] in large] if with_large else []
    schedule, taken, total = Schedule(), 0, len(small) * rounds
    for position in range(total):
        connection, frame, tcp = small[position % len(small)]
        schedule.add(frame, tcp, count * (1 + position // len(small)) + connection)
        while taken * total < (position + 1) * len(others):
            connection, frame, tcp = others[taken]
            schedule.add(frame, tcp, connection)
            taken += 1
    return schedule


class Conversation:
    """A TCP connection built by hand, between a client and SERVER."""

    def __init__(self, client, port, server_port):
        self.addresses = (client, SERVER)
        self.ports = (port, server_port)
        self.next = [random.getrandbits(32), random.getrandbits(32)]

    def frame(self, side, payload=b"", flags=0x18):
        """A segment from the client (side 0) or the server (side 1); flags are those of TCP."""
        source, target = side, 1 - side
        length = 40 + len(payload)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0x4000, 64, 6, 0)
        ip += self.addresses[source] + self.addresses[target]
        ip = ip[:10] + struct.pack(">H", ip_checksum(ip)) + ip[12:]
        tcp = struct.pack(
            ">HHIIBBHHH",
            self.ports[source],
            self.ports[target],
            self.next[source],
            self.next[target] if flags & 0x10 else 0,
            5 << 4,
            flags,
            65_535,
            0,
            0,
        )
        self.next[source] = (self.next[source] + len(payload) + bool(flags & 0x03)) & 0xFFFF_FFFF
        return bytes(12) + b"\x08\x00" + ip + tcp + payload

    def handshake(self):
        return [(0, self.frame(0, flags=0x02)), (1, self.frame(1, flags=0x12)), (0, self.frame(0, flags=0x10))]


def bson(document):
    """Encodes a document of the few types that benches use."""
    out = b""
    for key, value in document.items():
        name = key.encode() + b"\0"
        if isinstance(value, float):
            out += b"\x01" + name + struct.pack("<d", value)
        elif isinstance(value, int):
            out += b"\x10" + name + struct.pack("<i", value)
        elif isinstance(value, str):
            out += b"\x02" + name + struct.pack("<i", len(value.encode()) + 1) + value.encode() + b"\0"
        elif isinstance(value, list):
            out += b"\x04" + name + bson({str(at): one for at, one in enumerate(value)})
        else:
            out += b"\x03" + name + bson(value)
    return struct.pack("<i", len(out) + 5) + out + b"\0"


def message(document, request_id, response_to=0):
    """An OP_MSG with an encoded document."""
    return struct.pack("<iIIiIB", 21 + len(document), request_id, response_to, 2013, 0, 0) + document


class Sender:
    """A process that sends a schedule on an interface; `namespace_of` is the process in whose network namespace
    that is, or "new" for a new one.

    `with Sender(...) as sender: sender.begin(rate, seconds); …; sender.end()`.
    """

    def __init__(self, interface, schedule, cpu=None, namespace_of=None):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, interface, schedule, cpu, namespace_of), daemon=True
        )
        self.process.start()
        theirs.close()
        self.pipe.recv()

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()

    def begin(self, rate, seconds, turns=None):
        """Starts sending `rate` frames a second (None: as fast as possible), for `seconds` or `turns` of the
        schedule."""
        self.pipe.send((rate, seconds, turns))

    def end(self):
        """Waits until everything is sent; returns `frames`, `bytes`, `seconds`, `turns` (a fraction)."""
        try:
            return self.pipe.recv()
        except EOFError:
            raise SystemExit("the sender failed") from None


def _serve(pipe, interface, schedule, cpu, namespace_of):
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    libc = ctypes.CDLL(None, use_errno=True)
    if namespace_of == "new":
        entered = libc.unshare(CLONE_NEWNET)
    elif namespace_of:
        with open(f"/proc/{namespace_of}/ns/net", "rb") as namespace:
            entered = libc.setns(namespace.fileno(), CLONE_NEWNET)
    else:
        entered = 0
    if entered != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
    queue = _Queue(libc, schedule)
    pipe.send("ready")
    raw = None
    while True:
        try:
            rate, seconds, turns = pipe.recv()
        except EOFError:
            return
        if raw is None:
            if namespace_of:
                subprocess.run(["ip", "link", "set", interface, "up"], check=True)
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            raw.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            raw.bind((interface, 0))
        pipe.send(queue.send(raw.fileno(), rate, seconds, turns))


class _Queue:
    """A schedule in the form that sendmmsg(2) takes: each frame as the bytes before the client's port, the port of its
    connection, and the bytes after it."""

    BATCH = 256
    MESSAGE_BYTES = 64  # struct mmsghdr on 64-bit Linux

    def __init__(self, libc, schedule):
        self.libc, self.schedule = libc, schedule
        starts, joined = [], bytearray()
        for frame, _ in schedule.bodies:
            starts.append(len(joined))
            joined += frame
        self.joined, body = joined, _address(joined)
        self.ports = bytearray(2 * schedule.connections)
        port = _address(self.ports)
        self.vectors = array.array("Q")
        for place, connection in schedule.order:
            frame, at = schedule.bodies[place]
            start = body + starts[place]
            self.vectors.extend((start, at, port + 2 * connection, 2, start + at + 2, len(frame) - at - 2))
        vector = _address(self.vectors)
        self.messages = array.array("Q")
        for number in range(len(schedule)):
            self.messages.extend((0, 0, vector + 48 * number, 3, 0, 0, 0, 0))
        self.at, self.used = 0, 0

    def new_ports(self):
        for connection in range(self.schedule.connections):
            port = FIRST_CLIENT_PORT + (self.used + connection) % CLIENT_PORTS
            struct.pack_into(">H", self.ports, 2 * connection, port)
        self.used += self.schedule.connections

    def send(self, descriptor, rate, seconds, turns):
        first, whole = _address(self.messages), len(self.schedule)
        most = whole * turns if turns else None
        sent, began = 0, time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds and sent != most:
            due = self.BATCH if rate is None else int(elapsed * rate) - sent
            if most is not None:
                due = min(due, most - sent)
            if due <= 0:
                time.sleep(0.000_2)
                continue
            if self.at == 0:
                self.new_ports()
            count = min(due, self.BATCH, whole - self.at)
            done = self.libc.sendmmsg(
                descriptor, ctypes.c_void_p(first + self.at * self.MESSAGE_BYTES), ctypes.c_uint(count), 0
            )
            if done < 0:
                raise OSError(ctypes.get_errno(), "sendmmsg")
            sent += done
            self.at = (self.at + done) % whole
        elapsed = time.monotonic() - began
        return {"frames": sent, "bytes": sent * self.schedule.bytes // whole, "seconds": elapsed, "turns": sent / whole}


def _address(buffer):
    if isinstance(buffer, array.array):
        return buffer.buffer_info()[0]
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
