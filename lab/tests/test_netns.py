"""Network namespaces: both ends of a veth pair and `any` give the same figures; a connection behind address translation is captured once; what is mirrored through a tunnel is read live."""

import contextlib
import dataclasses
import gzip
import pathlib
import secrets
import struct
import subprocess
import sys

import pytest

import labkit

pytestmark = pytest.mark.root

PORT = 27_017
EVERYTHING = [*labkit.EVERYTHING, "--limit", "1000"]


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def namespaces(*names):
    """Network namespaces with names of their own, with loopback up; gone at the end."""
    # Others run tests in other PID namespaces, so the number of this process is not enough.
    own = secrets.token_hex(4)
    made = {name: f"sonar-{own}-{name}" for name in names}
    try:
        for name in made.values():
            try:
                ip("netns", "add", name)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no network namespaces here: {error}")
            ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in made.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def join_by_veth(left, right):
    """A veth pair between (namespace, device, address/prefix) and another such."""
    (left_ns, left_device, _), (right_ns, right_device, _) = left, right
    ip("-n", left_ns, "link", "add", left_device, "type", "veth", "peer", "name", right_device, "netns", right_ns)
    for namespace, device, address in (left, right):
        ip("-n", namespace, "address", "add", address, "dev", device)
        ip("-n", namespace, "link", "set", device, "up")
    for namespace, device, _ in (left, right):
        # A worker of the kernel activates a link that is up. What is sent before is lost, without an error.
        labkit.wait_until(lambda: " UP " in ip("-n", namespace, "-brief", "link", "show", device), f"{device} carries")


def inside(namespace):
    return ["ip", "netns", "exec", namespace]


def listen(directory, namespace, *arguments, each=True):
    directory.mkdir()
    options = ["--port", str(PORT), "--json", *labkit.EVERYTHING, *arguments]
    if each:
        options.append("--each")
    return labkit.live_capture(directory, options, prefix=inside(namespace))


def test_both_ends_of_a_veth_pair_and_any_capture_the_same(tmp_path):
    with namespaces("client", "server") as ns, contextlib.ExitStack() as stack:
        join_by_veth((ns["client"], "c0", "10.99.1.1/24"), (ns["server"], "s0", "10.99.1.2/24"))
        address = stack.enter_context(labkit.server(f"10.99.1.2:{PORT}", prefix=inside(ns["server"])))
        ears = {
            "client's side": listen(tmp_path / "client", ns["client"], "--interface", "c0"),
            "server's side": listen(tmp_path / "server", ns["server"], "--interface", "s0"),
            "any": listen(tmp_path / "any", ns["server"]),
        }
        ears = {place: stack.enter_context(sonar) for place, sonar in ears.items()}
        sent = labkit.run_driver("go", address, tmp_path / "driver.jsonl", prefix=inside(ns["client"]))
        labkit.wait_until_closed(PORT, inside(ns["client"]))
        figures = {}
        for place, sonar in ears.items():
            captured = labkit.operations(sonar.stop())
            difference = labkit.join(captured, sent)
            assert not difference, f"{place}:\n{difference}"
            facts = ("request_id", "command", "shape_id", "request_bytes", "response_bytes", "docs_returned", "outcome")
            figures[place] = sorted([str([op[fact] for fact in facts]) for op in captured if op["class"] == "user"])
        assert figures["client's side"] == figures["server's side"] == figures["any"]


def test_a_connection_behind_address_translation_is_captured_once(tmp_path):
    """A router translates the server's address; both of its interfaces see each packet."""
    with namespaces("client", "router", "server") as ns, contextlib.ExitStack() as stack:
        join_by_veth((ns["client"], "c0", "10.99.1.1/24"), (ns["router"], "r0", "10.99.1.254/24"))
        join_by_veth((ns["server"], "s0", "10.99.2.2/24"), (ns["router"], "r1", "10.99.2.254/24"))
        ip("-n", ns["client"], "route", "add", "default", "via", "10.99.1.254")
        ip("-n", ns["server"], "route", "add", "default", "via", "10.99.2.254")
        subprocess.run([*inside(ns["router"]), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
        rules = (
            "table ip lab { chain before { type nat hook prerouting priority dstnat; "
            f"ip daddr 10.99.1.254 tcp dport {PORT} dnat to 10.99.2.2:{PORT}; }} "
            "chain after { type nat hook postrouting priority srcnat; oifname r1 masquerade; } }"
        )
        done = subprocess.run([*inside(ns["router"]), "nft", "-f", "-"], input=rules, capture_output=True, text=True)
        if done.returncode != 0:
            commands = [
                [
                    "-A",
                    "PREROUTING",
                    "-d",
                    "10.99.1.254",
                    "-p",
                    "tcp",
                    "--dport",
                    PORT,
                    "-j",
                    "DNAT",
                    "--to",
                    f"10.99.2.2:{PORT}",
                ],
                ["-A", "POSTROUTING", "-o", "r1", "-j", "MASQUERADE"],
            ]
            for command in commands:
                words = [*inside(ns["router"]), "iptables", "-t", "nat", *map(str, command)]
                if subprocess.run(words, capture_output=True).returncode != 0:
                    pytest.skip(f"no address translation here: {done.stderr.strip()}")
        stack.enter_context(labkit.server(f"10.99.2.2:{PORT}", prefix=inside(ns["server"])))
        sonar = stack.enter_context(listen(tmp_path / "router", ns["router"]))
        totals = stack.enter_context(listen(tmp_path / "totals", ns["router"], each=False))
        sent = labkit.run_driver("go", f"10.99.1.254:{PORT}", tmp_path / "driver.jsonl", prefix=inside(ns["client"]))
        labkit.wait_until_closed(PORT, inside(ns["client"]))
        captured = labkit.operations(sonar.stop())
        difference = labkit.join(captured, sent)
        assert not difference, str(difference)
        coverage = labkit.summary(totals.stop())["coverage"]
        # Both sides were visible; every second copy was counted as such and nothing else.
        assert coverage["frames_twin_nat"] > 500
        assert coverage["kernel_drops"] == coverage["gaps"] == coverage["messages_damaged"] == 0


MIRRORED = labkit.LAB.parent / "fixtures/mirrored"
SEND = """
import socket, struct, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
records = open(sys.argv[2], "rb").read()
while records:
    (length,), records = struct.unpack(">I", records[:4]), records[4:]
    link.send(records[:length])
    records = records[length:]
"""


def ipv4(protocol, content):
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 0, 0x4000, 64, protocol, 0)
    return head + bytes([198, 51, 100, 1]) + bytes([198, 51, 100, 9]) + content


def udp(port, content):
    return ipv4(17, struct.pack(">HHHH", 50000, port, 8 + len(content), 0) + content)


def vxlan(frame):
    return udp(4789, struct.pack(">II", 0x08000000, 4660 << 8) + frame)


def tagged(frame):
    """The frame with two VLAN tags."""
    return frame[:12] + struct.pack(">HHHH", 0x88A8, 100, 0x8100, 7) + frame[12:]


def ipv6(frame):
    """The segment of a frame with IPv4, between addresses of IPv6."""
    segment = frame[14 + 4 * (frame[14] & 15) : 14 + int.from_bytes(frame[16:18], "big")]
    source, destination = (bytes([0xFD]) + bytes(11) + frame[at : at + 4] for at in (26, 30))
    return struct.pack(">IHBB", 6 << 28, len(segment), 6, 64) + source + destination + segment


# Each takes an Ethernet frame with IPv4, and gives an Ethernet type and what follows it. Headers after RFC 7348,
# RFC 8926, RFC 2784, RFC 2890 with draft-foschiano-erspan, RFC 2003, RFC 4213, RFC 3032 and RFC 2516.
TUNNELS = {
    "vxlan": lambda frame: (0x0800, vxlan(frame)),
    "vxlan, tags inside": lambda frame: (0x0800, vxlan(tagged(frame))),
    "vxlan in gre": lambda frame: (0x0800, ipv4(47, struct.pack(">HH", 0, 0x0800) + vxlan(frame))),
    "geneve": lambda frame: (0x0800, udp(6081, struct.pack(">BBHI", 0, 0, 0x6558, 7 << 8) + frame)),
    "gre": lambda frame: (0x0800, ipv4(47, struct.pack(">HH", 0, 0x0800) + frame[14:])),
    "erspan": lambda frame: (0x0800, ipv4(47, struct.pack(">HHIHHI", 0x1000, 0x88BE, 1, 0x1001, 100, 0) + frame)),
    "erspan iii": lambda frame: (
        0x0800,
        ipv4(47, struct.pack(">HHIHHII", 0x1000, 0x22EB, 1, 0x2007, 100, 9, 0) + frame),
    ),
    "6in4": lambda frame: (0x0800, ipv4(41, ipv6(frame))),
    "ip in ip": lambda frame: (0x0800, ipv4(4, frame[14:])),
    "mpls": lambda frame: (0x8847, struct.pack(">I", 16 << 12 | 1 << 8 | 64) + frame[14:]),
    "pppoe": lambda frame: (
        0x8864,
        struct.pack(">BBHHH", 0x11, 0, 5, 2 + len(frame) - 14, 0x0021) + frame[14:],
    ),
}


@dataclasses.dataclass
class MirroredFrames:
    """The frames of a capture: inside a tunnel, as `SEND` takes them, and without it, as a capture file."""

    sent: pathlib.Path
    plain: pathlib.Path
    count: int
    ports: list

    @classmethod
    def inside(cls, kind, folder):
        capture = gzip.decompress((MIRRORED / "vxlan.pcap.gz").read_bytes())
        frames, at = [], 24
        while at < len(capture):
            (length,) = struct.unpack_from("<I", capture, at + 8)
            # Ethernet, IPv4, UDP and VXLAN around it.
            frames.append(capture[at + 16 + 14 + 20 + 8 + 8 : at + 16 + length])
            at += 16 + length
        frames = [frame for frame in frames if frame[12:14] == b"\x08\x00"]
        ethernet = bytes([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1])
        sent, plain = folder / "sent", folder / "plain.pcap"
        with open(sent, "wb") as out:
            for frame in frames:
                ethertype, content = TUNNELS[kind](frame)
                outer = ethernet + struct.pack(">H", ethertype) + content
                out.write(struct.pack(">I", len(outer)) + outer)
        with open(plain, "wb") as out:
            out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            for number, frame in enumerate(frames):
                time = (1_700_000_000 + number // 100, number % 100)
                out.write(struct.pack("<IIII", *time, len(frame), len(frame)) + frame)
        servers = {int.from_bytes(frame[36:38], "big") for frame in frames if frame[47] & 0x12 == 0x02}
        return cls(sent, plain, len(frames), sorted(servers))

    def calls(self, *options):
        """The calls of each shape, as the capture file without tunnels has them."""
        ports = [option for port in self.ports for option in ("--port", str(port))]
        return calls(labkit.summary(labkit.documents("queries", "--read", self.plain, "--json", *ports, *options)))


def calls(summary):
    """The calls of each shape."""
    key = lambda row: (row["command"], row["database"], row["collection"], row["shape"])
    return {key(row): row["calls"] for row in summary["rows"]}


@contextlib.contextmanager
def mirror():
    """Two namespaces, the first of which sends the frames of a mirror to the interface `h0` of the second."""
    with namespaces("mirror", "here") as ns:
        join_by_veth((ns["mirror"], "m0", "10.99.1.1/24"), (ns["here"], "h0", "10.99.1.2/24"))
        for namespace, device in ((ns["mirror"], "m0"), (ns["here"], "h0")):
            ip("-n", namespace, "link", "set", device, "mtu", "9900")
        yield ns


def send_frames(ns, frames):
    subprocess.run([*inside(ns["mirror"]), sys.executable, "-c", SEND, "m0", str(frames.sent)], check=True)


@pytest.mark.parametrize("kind", TUNNELS)
def test_mirrored_traffic_is_read_live_as_from_a_file(tmp_path, kind):
    frames = MirroredFrames.inside(kind, tmp_path)
    ports = [option for port in frames.ports for option in ("--port", str(port))]
    options = ["--interface", "h0", "--tunnels", "--json", *ports, *EVERYTHING]
    with mirror() as ns, labkit.live_capture(tmp_path, options, prefix=inside(ns["here"])) as sonar:
        send_frames(ns, frames)

        def captured():
            intervals = [line for line in sonar.lines() if "coverage" in line]
            return sum(line["coverage"]["frames_tunnelled"] for line in intervals) >= frames.count

        labkit.wait_until(captured, "all frames of the mirror")
        found = labkit.summary(sonar.stop())
    assert calls(found) == frames.calls(*EVERYTHING) and len(calls(found)) > 3
    assert found["coverage"]["frames_tunnelled"] == frames.count
