"""
Runs inside of sandboxes: queries to the resolver as they are given, answers as they come. Sent as the text of `python3 -c`.
"""

import json
import socket
import struct
import sys
import time

RESOLVER = ("192.0.2.53", 53)


def by_udp(queries, spec):
    out = []
    if spec.get("burst"):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        s.connect(RESOLVER)
        s.settimeout(3)
        for i, q in enumerate(queries):
            s.send(q)
            if i % 20 == 19:
                time.sleep(0.01)
        try:
            while len(out) < len(queries):
                out.append(s.recv(4096))
        except TimeoutError:
            pass
        return out
    for q in queries:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(spec.get("timeout", 15))
            s.connect(RESOLVER)
            s.send(q)
            try:
                out.append(s.recv(4096))
            except TimeoutError:
                out.append(b"")
    return out


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def by_tcp(queries, spec):
    out = []
    for q in queries:
        with socket.create_connection(RESOLVER, 15) as s:
            s.settimeout(spec.get("timeout", 15))
            s.sendall(struct.pack("!H", len(q)) + q)
            try:
                out.append(exactly(s, struct.unpack("!H", exactly(s, 2))[0]))
            except (OSError, EOFError):
                out.append(b"")
    return out


def answers(s, most):
    n = 0
    try:
        while n < most:
            exactly(s, struct.unpack("!H", exactly(s, 2))[0])
            n += 1
    except (OSError, EOFError):
        pass
    return n


def connect():
    s = socket.create_connection(RESOLVER, 15)
    s.settimeout(15)
    return s


def connections(framed):
    framed = bytes.fromhex(framed)
    s = connect()
    for i in range(len(framed)):
        s.sendall(framed[i:i + 1])
    print(f"pieces:{answers(s, 1)}")
    s = connect()
    s.sendall(framed * 3)
    print(f"pipelined:{answers(s, 3)}")
    for what, data in (("empty", b"\0\0"), ("long", b"\x04\xd1" + b"x" * 1233)):
        s = connect()
        s.sendall(data)
        print(f"{what}:{answers(s, 1)}")
    s = connect()
    s.settimeout(40)
    s.sendall(framed[:5])
    try:
        print("idle:" + ("ok" if s.recv(1) == b"" else "?"))
    except OSError as e:
        print("idle:" + ("ok" if isinstance(e, ConnectionResetError) else type(e).__name__))
    all_of_them = [connect() for _ in range(20)]
    time.sleep(0.5)
    n = 0
    for s in all_of_them:
        try:
            s.sendall(framed)
            n += answers(s, 1)
        except OSError:
            pass
    print(f"many:{n}")


def main(spec):
    spec = json.loads(spec)
    way = by_tcp if spec["way"] == "tcp" else by_udp
    print(json.dumps([a.hex() for a in way([bytes.fromhex(q) for q in spec["queries"]], spec)]))


main(sys.argv[1])
