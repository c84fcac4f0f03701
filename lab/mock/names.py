"""MOCK: a name server that knows one cluster: its SRV record, its TXT record, and the address of its host.

    names.py --cluster cluster.lab.example --host db.lab.example --port 27017 [--txt authSource=admin]

answers on 127.0.0.1:53 (UDP), prints `ready 127.0.0.1:53`, and answers that everything else does not exist.
"""

import argparse
import socket
import struct

A, TXT, SRV = 1, 16, 33


def packed(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def asked(query):
    """Name and type of the question, and where it ends."""
    at, parts = 12, []
    while query[at]:
        parts.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    return ".".join(parts).lower(), struct.unpack_from(">H", query, at + 1)[0], at + 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "cluster", "host", "txt":
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--port", type=int, default=27_017)
    known = parser.parse_args()
    records = {
        (f"_mongodb._tcp.{known.cluster}", SRV): struct.pack(">HHH", 0, 0, known.port) + packed(known.host),
        (known.host, A): socket.inet_aton("127.0.0.1"),
    }
    if known.txt:
        records[known.cluster, TXT] = bytes([len(known.txt)]) + known.txt.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        print("ready 127.0.0.1:53", flush=True)
        while True:
            query, client = server.recvfrom(4096)
            name, kind, end = asked(query)
            record = records.get((name, kind))
            exists = any(name == other for other, _ in records)
            flags = 0x8580 | (0 if exists else 3)
            answer = query[:2] + struct.pack(">HHHHH", flags, 1, int(record is not None), 0, 0) + query[12:end]
            if record is not None:
                answer += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(record)) + record
            server.sendto(answer, client)


main()
