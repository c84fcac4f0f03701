#!/usr/bin/env python3
"""Makes a large capture from a small one: the same packets again and again, with other client ports and times.

    multiply.py IN.pcap[.gz] OUT.pcap COPIES [--largest BYTES] [--ipv6] [--begin SECOND] [--every SECONDS]

--largest leaves out every connection with a longer frame, so that only small operations remain.
--ipv6 puts every second copy on IPv6, with addresses of fd00::/96 that contain those of IPv4.
--begin is the time of the first packet, in seconds since 1970; --every the time from one copy to the next.
Reads pcap with microseconds, little-endian, Ethernet, as libpcap writes it. Server ports (below 32768)
stay, client ports move, and without --every each copy begins where the one before ended. Prints what was written as JSON.
"""

import argparse
import json
import struct

from wire import packets, tcp_offset


def over_ipv6(frame, tcp):
    """The same segment over IPv6; checksums stay as they are, as on any loopback."""
    if frame[12:14] == b"\x86\xdd":
        return frame, tcp
    segment = frame[tcp : 14 + struct.unpack_from(">H", frame, 16)[0]]
    header = struct.pack(">IHBB", 6 << 28, len(segment), 6, 64)
    prefix = b"\xfd" + bytes(11)
    return frame[:12] + b"\x86\xdd" + header + prefix + frame[26:30] + prefix + frame[30:34] + segment, 54


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("copies", type=int)
    parser.add_argument("--largest", type=int, default=1 << 20)
    parser.add_argument("--ipv6", action="store_true")
    parser.add_argument("--begin", type=int)
    parser.add_argument("--every", type=int)
    args = parser.parse_args()
    all_packets = [(time, frame, tcp_offset(frame)) for time, frame in packets(args.source)]
    all_packets = [packet for packet in all_packets if packet[2]]

    def ports(packet):
        return struct.unpack_from(">HH", packet[1], packet[2])

    large = {frozenset(ports(packet)) for packet in all_packets if len(packet[1]) > args.largest}
    kept = [packet for packet in all_packets if frozenset(ports(packet)) not in large]
    moved = [(time, *over_ipv6(frame, tcp)) for time, frame, tcp in kept]
    first, last = kept[0][0], kept[-1][0]
    span = args.every * 1_000_000 if args.every else last - first + 1_000_000
    offset = args.begin * 1_000_000 - first if args.begin else 0
    written = {"frames": 0, "ipv6": 0, "bytes": 0}
    with open(args.target, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for copy in range(args.copies):
            for time, frame, tcp in moved if args.ipv6 and copy % 2 else kept:
                frame = bytearray(frame)
                for at in (tcp, tcp + 2):
                    port = struct.unpack_from(">H", frame, at)[0]
                    if port >= 32768:
                        port = 32768 + (port - 32768 + copy * 97) % 32768
                        struct.pack_into(">H", frame, at, port)
                time += offset + copy * span
                out.write(struct.pack("<IIII", time // 1_000_000, time % 1_000_000, len(frame), len(frame)))
                out.write(frame)
                written["frames"] += 1
                written["ipv6"] += frame[12:14] == b"\x86\xdd"
                written["bytes"] += len(frame)
    print(json.dumps(written))


main()
