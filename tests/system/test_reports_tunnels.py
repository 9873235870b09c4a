"""
Faults of others that users have reported, one test each: ways into sandboxes.
"""

import base64
import hashlib
import http.client
import json
import os
import pathlib
import socket
import struct
import time

import pytest

from test_tunnels import plain, ports, read_all, serve, tls

HEADS = r"""
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        n = int(self.headers.get("content-length", 0)); body = self.rfile.read(n)
        data = json.dumps({"who": sys.argv[2], "path": self.path, "heads": self.headers.items(), "body": len(body)}).encode()
        self.send_response(200); self.send_header("content-length", str(len(data))); self.end_headers(); self.wfile.write(data)
    do_POST = do_GET
s = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H)
print("ready", flush=True)
s.serve_forever()
"""

# A WebSocket server of its own: frames come back as they are, masked or not; what it was asked for is told in the first.
SOCKETS = r"""
import base64, hashlib, socket, struct, sys, threading
def serve(c):
    f = c.makefile("rb"); heads = {}
    f.readline()
    while (line := f.readline().strip()): heads[line.split(b":")[0].lower()] = line.split(b":", 1)[1].strip()
    key = base64.b64encode(hashlib.sha1(heads[b"sec-websocket-key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + key
              + b"\r\nSec-WebSocket-Protocol: " + heads.get(b"sec-websocket-protocol", b"-") + b"\r\nSec-WebSocket-Extensions: "
              + heads.get(b"sec-websocket-extensions", b"-") + b"\r\n\r\n")
    while True:
        a = f.read(2)
        if len(a) < 2: break
        n = a[1] & 127
        if n == 126: n, = struct.unpack("!H", f.read(2))
        elif n == 127: n, = struct.unpack("!Q", f.read(8))
        mask = f.read(4); data = f.read(n)
        size = bytes([n]) if n < 126 else b"\x7e" + struct.pack("!H", n) if n < 65536 else b"\x7f" + struct.pack("!Q", n)
        data = (int.from_bytes(data, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")
        op = a[0] & 15
        c.sendall(bytes([a[0] & 0xf0 | (10 if op == 9 else op)]) + size + data)
        if op == 8: break
    c.close()
s = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=200)
print("ready", flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def sb(api):
    sb = api.post("/v1/sandboxes", json={"ports": [8000, {"port": 8001, "kind": "raw"}]}).json()
    yield sb
    api.delete(f"/v1/sandboxes/{sb['id']}")


def start(api, sb, code, *args):
    i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json={"command": ["python3", "-c", code, *map(str, args)]}).json()["id"]
    end = time.monotonic() + 60
    while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
        assert time.monotonic() < end
        time.sleep(0.05)
    return i


def request(s, heads, body=b""):
    s.sendall(f"GET /x HTTP/1.1\r\n{heads}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    r = http.client.HTTPResponse(s)
    r.begin()
    return r.status, r.read()


def frame(op, data, last=True):
    n = len(data)
    size = bytes([128 | n]) if n < 126 else b"\xfe" + struct.pack("!H", n) if n < 65536 else b"\xff" + struct.pack("!Q", n)
    return bytes([(0x80 if last else 0) | op]) + size + b"\0\0\0\0" + data


def read_frame(f):
    a, b = f.read(2)
    n = b
    if n == 126:
        n, = struct.unpack("!H", f.read(2))
    elif n == 127:
        n, = struct.unpack("!Q", f.read(8))
    return a, f.read(n)


def test_websockets_pass(api, sb):
    """UR-128: upgrades through exposed ports failed."""
    known = ports(api, sb)
    start(api, sb, SOCKETS, 8000)
    key = base64.b64encode(os.urandom(16)).decode()
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())

    def upgrade():
        s = tls(known[8000]["tls_port"])
        s.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat.v2\r\n"
                  "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n".encode())
        f = s.makefile("rb")
        assert f.readline().split()[1] == b"101"
        heads = {}
        while line := f.readline().strip():
            heads[line.split(b":")[0].lower()] = line.split(b":", 1)[1].strip()
        assert heads[b"sec-websocket-accept"] == accept and heads[b"sec-websocket-protocol"] == b"chat.v2"
        assert heads[b"sec-websocket-extensions"] == b"permessage-deflate"
        return s, f

    s, f = upgrade()
    big = os.urandom(1 << 20) * 16
    for op, data, last in ((1, b"text", True), (1, b"a" * 125, True), (2, b"b" * 126, True), (2, b"c" * 65536, True), (1, b"first", False),
                           (0, b"second", True), (2, big, True)):
        s.sendall(frame(op, data, last))
        assert read_frame(f) == ((0x80 if last else 0) | op, data)
    s.sendall(frame(9, b"are you there"))
    assert read_frame(f) == (0x8a, b"are you there")
    s.sendall(frame(8, struct.pack("!H", 4001) + b"bye"))
    assert read_frame(f) == (0x88, struct.pack("!H", 4001) + b"bye") and f.read() == b""
    many = [upgrade() for _ in range(60)]
    for i, (s, _) in enumerate(many):
        s.sendall(frame(1, b"%d" % i))
    assert [read_frame(f)[1] for _, f in many] == [b"%d" % i for i in range(60)]


def test_heads_pass_as_they_are(api, sb):
    """UR-131: rewritten Host fields broke servers that look at them. A tunnel changes no byte."""
    known = ports(api, sb)
    start(api, sb, HEADS, 8000, "a")
    for host in ("127.0.0.1", f"127.0.0.1:{known[8000]['tls_port']}", "UPPER.Example", "dotted.example.", "[::1]:80"):
        heads = [["Host", host], ["X-Forwarded-For", "10.1.1.1"], ["X-Forwarded-Proto", "gopher"], ["Content-Length", "0"]]
        s = tls(known[8000]["tls_port"])
        code, data = request(s, "".join(f"{k}: {v}\r\n" for k, v in heads[:-1]))
        assert code == 200 and json.loads(data)["heads"] == heads


def test_a_server_that_comes_and_goes(api, sb):
    """UR-132: servers on one family or interface were not found, nor after a restart."""
    known = ports(api, sb)
    for n in range(6):
        host = ["127.0.0.1", "::1", "0.0.0.0", "::"][n % 4]
        i = serve(api, sb, 8000, host)
        s = tls(known[8000]["tls_port"])
        s.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert read_all(s).endswith(b"hello"), host
        assert api.post(f"/v1/sandboxes/{sb['id']}/execs/{i}/signal", json={"signal": "KILL"}).status_code in (200, 204)
        api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}", params={"wait": "exit", "timeout_s": 30})
        s = tls(known[8000]["tls_port"])
        s.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = read_all(s)
        assert answer.startswith(b"HTTP/1.1 502 ") and b"nothing listens on port 8000" in answer


def test_old_ways_lead_nowhere_new(api):
    """UR-133: the address of a sandbox that had gone led to another one."""
    def ask(port):
        try:
            return request(plain(port), "Host: x\r\n")[1]
        except (OSError, http.client.HTTPException):
            return b""

    old = []
    for n in range(4):
        box = api.post("/v1/sandboxes", json={"ports": [{"port": 8000, "kind": "raw"}]}).json()
        start(api, box, HEADS, 8000, f"box-{n}")
        port = ports(api, box)[8000]["raw_port"]
        kept = plain(port)
        assert json.loads(request(kept, "Host: x\r\n")[1])["who"] == f"box-{n}"
        for was in old:
            # A number may be given out again in time, but not while there are others.
            assert was != port and ask(was) == b""
        assert api.delete(f"/v1/sandboxes/{box['id']}").status_code in (200, 202, 204)
        kept.settimeout(60)
        try:
            kept.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert kept.recv(100) == b""
        except (ConnectionResetError, BrokenPipeError):
            pass
        old.append(port)


def test_any_protocol_passes_a_raw_port(api, sb):
    """UR-134: what is no HTTP/1.1 was taken for it."""
    known = ports(api, sb)
    serve(api, sb, 8001)
    for data in (b"*1\r\n$4\r\nPING\r\n", b"SSH-2.0-x\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", bytes(range(256))):
        for s in (plain(known[8001]["raw_port"]), tls(known[8001]["tls_port"])):
            s.sendall(b"echo\n" + data)
            got = b""
            while len(got) < len(data):
                got += s.recv(1000)
            assert got == data
            s.close()


def test_small_requests_are_not_held_back(api, sb):
    """UR-137: each small request took 40 ms longer, and bytes were lost where nobody read for a while."""
    known = ports(api, sb)
    serve(api, sb, 8001)
    for s in (plain(known[8001]["raw_port"]), tls(known[8001]["tls_port"])):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(b"echo\n")
        took = []
        for n in range(500):
            start_at = time.monotonic()
            # In two parts: the second waits for nothing.
            s.sendall(b"x" * 50)
            s.sendall(b"y" * 50)
            got = b""
            while len(got) < 100:
                got += s.recv(100)
            took.append(time.monotonic() - start_at)
            assert got == b"x" * 50 + b"y" * 50
        assert sorted(took)[len(took) // 4] < 0.03      # a delayed acknowledgement takes 0.04 s, of each
        s.close()


@pytest.mark.long
def test_a_gibibyte_and_a_reader_that_sleeps(api, daemon, sb):
    """UR-137: bytes were lost, or kept in memory, where nobody read for a while."""
    def memory():
        node, = daemon.pids("node")
        return int(pathlib.Path(f"/proc/{node}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024

    known = ports(api, sb)
    serve(api, sb, 8001)
    block, size, before, most = bytes(range(256)) * 4096, 1 << 30, memory(), 0
    want = hashlib.sha256()
    for _ in range(size // len(block)):
        want.update(block)
    for s in (plain(known[8001]["raw_port"]), tls(known[8001]["tls_port"])):
        s.sendall(b"send %d\n" % size)
        got, n, slept = hashlib.sha256(), 0, False
        while data := s.recv(1 << 20):
            got.update(data)
            n += len(data)
            if n > size // 2 and not slept:
                time.sleep(60)
                slept = True
                most = max(most, memory())
        assert (n, got.hexdigest()) == (size, want.hexdigest())
        s.close()
    s = plain(known[8001]["raw_port"])
    s.sendall(b"sum\n")
    for _ in range(size // len(block)):
        s.sendall(block)
    s.shutdown(socket.SHUT_WR)
    assert read_all(s) == f"{size} {want.hexdigest()}\n".encode()
    assert max(most, memory()) - before < 64 << 20


def test_only_the_address_itself_counts(api, sb):
    """UR-138: a forged field of a request stood for the client's address."""
    start(api, sb, HEADS, 9100, "a")
    for allow, passes in ((["10.0.0.0/8"], False), ([], False), (["::1/128"], False), (["127.0.0.1/32", "10.0.0.0/8"], True), (None, True)):
        p = api.put(f"/v1/sandboxes/{sb['id']}/ports/9100", json={"kind": "raw", "inbound_allow": allow}).json()
        code = None
        try:
            code, _ = request(plain(p["raw_port"]), "Host: x\r\nX-Forwarded-For: 10.1.1.1\r\nForwarded: for=10.1.1.1\r\nX-Real-IP: 10.1.1.1\r\n")
        except (OSError, http.client.HTTPException):
            pass
        assert code == (200 if passes else None), allow
        assert api.delete(f"/v1/sandboxes/{sb['id']}/ports/9100").status_code == 204
