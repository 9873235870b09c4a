"""Tunnels: servers in a sandbox reached from outside, by TLS and without."""

import hashlib
import socket
import ssl
import time

import pytest

from qsdaemon import error

# One server for all: what it does is the first line that it is sent.
SERVER = r"""
import hashlib, os, socket, sys, threading
port, host = int(sys.argv[1]), sys.argv[2]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((host, port)); s.listen(100)
print("ready", flush=True)
def serve(c):
    f = c.makefile("rb")
    what = f.readline().split()
    if what[0] == b"echo":
        while True:
            data = f.read1(65536)
            if not data: break
            c.sendall(data)
    elif what[0] == b"sum":                 # all that comes, up to the end of their direction
        h = hashlib.sha256(); n = 0
        while True:
            data = f.read1(65536)
            if not data: break
            h.update(data); n += len(data)
        c.sendall(b"%d %s\n" % (n, h.hexdigest().encode()))
    elif what[0] == b"send":
        block = bytes(range(256)) * 256
        left = int(what[1])
        while left > 0:
            c.sendall(block[:left]); left -= min(left, len(block))
    elif what[0] == b"GET":
        c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
    c.close()
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
"""


def tls(port, alpn=None):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    if alpn:
        ctx.set_alpn_protocols(alpn)
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ctx.wrap_socket(s)


def plain(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_all(s):
    out = bytearray()
    while True:
        data = s.recv(65536)
        if not data:
            return bytes(out)
        out += data


def serve(api, sb, port, host="127.0.0.1"):
    i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json={"command": ["python3", "-c", SERVER, str(port), host]}).json()["id"]
    end = time.monotonic() + 60
    while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
        assert time.monotonic() < end
        time.sleep(0.05)
    return i


@pytest.fixture
def sb(api):
    sb = api.post("/v1/sandboxes", json={"ports": [8000, {"port": 8001, "kind": "raw"}, {"port": 8002, "kind": "h2"}]}).json()
    yield sb
    api.delete(f"/v1/sandboxes/{sb['id']}")


def ports(api, sb):
    r = api.get(f"/v1/sandboxes/{sb['id']}/ports")
    assert r.status_code == 200, r.text
    return {p["port"]: p for p in r.json()["items"]}


def test_bytes_pass_both_ways(api, sb):
    known = ports(api, sb)
    assert [(p["kind"], p["raw_port"] is not None) for p in known.values()] == [("tls", False), ("raw", True), ("h2", False)]
    assert known[8000]["url"] == f"https://127.0.0.1:{known[8000]['tls_port']}"
    for port in known:
        serve(api, sb, port)
    ways = [tls(known[8000]["tls_port"]), tls(known[8001]["tls_port"]), plain(known[8001]["raw_port"])]
    for s in ways:
        s.sendall(b"echo\nhello")
        assert s.recv(100) == b"hello"
        s.sendall(b"again")
        assert s.recv(100) == b"again"
        s.close()
    assert tls(known[8000]["tls_port"], ["h2", "http/1.1"]).selected_alpn_protocol() == "http/1.1"
    assert tls(known[8002]["tls_port"], ["h2", "http/1.1"]).selected_alpn_protocol() == "h2"


def test_much_passes_whole_and_a_direction_may_end_first(api, sb):
    known = ports(api, sb)
    serve(api, sb, 8001)
    block = bytes(range(256)) * 256
    size = 64 * 1024 * 1024
    expected = hashlib.sha256(block * (size // len(block))).hexdigest()

    s = plain(known[8001]["raw_port"])
    s.sendall(b"sum\n")
    for _ in range(size // len(block)):
        s.sendall(block)
    s.shutdown(socket.SHUT_WR)                  # our direction ends, the answer comes afterwards
    assert read_all(s) == f"{size} {expected}\n".encode()

    for s in (plain(known[8001]["raw_port"]), tls(known[8001]["tls_port"])):
        s.sendall(b"send %d\n" % size)
        time.sleep(0.5)                         # a slow reader: nothing may be lost, nothing may pile up
        got = hashlib.sha256()
        n = 0
        while True:
            data = s.recv(1 << 20)
            if not data:
                break
            got.update(data)
            n += len(data)
        assert (n, got.hexdigest()) == (size, expected)


def test_who_closes_while_the_reader_sleeps_is_heard_to_the_end(api, sb):
    known = ports(api, sb)
    serve(api, sb, 8001)
    # Sizes around what the buffers of kernel and node hold: of some the rest and the end wait where nobody reads.
    sizes = range(200_000, 8_000_000, 200_000)
    ways = [(size, plain(known[8001]["raw_port"])) for size in sizes]
    for size, s in ways:
        s.sendall(b"send %d\n" % size)
    time.sleep(2)
    assert [len(read_all(s)) for _, s in ways] == list(sizes)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_servers_of_both_families_are_found(api, sb, host):
    known = ports(api, sb)
    serve(api, sb, 8001, host)
    s = plain(known[8001]["raw_port"])
    s.sendall(b"echo\nx")
    assert s.recv(10) == b"x"


def test_nobody_listens(api, sb):
    known = ports(api, sb)
    s = tls(known[8000]["tls_port"])
    s.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    answer = read_all(s)
    assert answer.startswith(b"HTTP/1.1 502 ") and b"nothing listens on port 8000" in answer
    # What speaks no HTTP sees its connection end.
    s = plain(known[8001]["raw_port"])
    s.sendall(b"\x00\x01\x02")
    try:
        assert s.recv(10) == b""
    except ConnectionResetError:
        pass
    # As soon as somebody does, all is well.
    serve(api, sb, 8000)
    s = tls(known[8000]["tls_port"])
    s.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert read_all(s).endswith(b"hello")


def test_plain_words_on_a_tls_port_get_nowhere(api, sb):
    known = ports(api, sb)
    serve(api, sb, 8000)
    s = plain(known[8000]["tls_port"])
    s.sendall(b"echo\nsecret")
    try:
        assert read_all(s) == b""
    except ConnectionResetError:
        pass


def test_a_server_that_speaks_first_speaks_tls(api, sb):
    """Nothing is said in the clear to who has not spoken yet, and all of it to who then does."""
    known = ports(api, sb)
    banner = ("import socket,threading,sys\nl=socket.create_server(('127.0.0.1',int(sys.argv[1])))\nprint('ready',flush=True)\n"
              "def one(c):\n c.sendall(b'220 a secret word\\r\\n')\n if c.recv(100) == b'go on\\n': c.sendall(b'250 more\\r\\n')\n c.close()\n"
              "while True: threading.Thread(target=one,args=(l.accept()[0],)).start()")
    for port in (8000, 8002):
        i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json={"command": ["python3", "-c", banner, str(port)]}).json()["id"]
        end = time.monotonic() + 60
        while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
            assert time.monotonic() < end
            time.sleep(0.05)
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
        late, silent, leaves, clear = (plain(known[port]["tls_port"]) for _ in range(4))
        leaves.shutdown(socket.SHUT_WR)
        clear.sendall(b"go on\n")
        time.sleep(1)
        for s in (late, silent):
            s.setblocking(False)
            with pytest.raises(BlockingIOError):
                s.recv(100)
            s.settimeout(60)
        for s in (leaves, clear):
            try:
                assert s.recv(100) == b""
            except ConnectionResetError:
                pass
        with ctx.wrap_socket(late) as t:
            assert t.recv(100) == b"220 a secret word\r\n"
            t.sendall(b"go on\n")
            assert read_all(t) == b"250 more\r\n"
        silent.close()


def test_a_server_that_leaves_first_leaves_after_tls(api, sb):
    """One that says all it has and closes before the client has greeted."""
    known = ports(api, sb)
    serve = ("import socket,sys\nl=socket.create_server(('127.0.0.1',8000))\nprint('ready',flush=True)\n"
             "while True:\n c=l.accept()[0]; c.sendall(sys.argv[1].encode()); c.close()")
    for text in ("", "all there is"):
        i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json={"command": ["python3", "-c", serve, text]}).json()["id"]
        end = time.monotonic() + 60
        while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
            assert time.monotonic() < end
            time.sleep(0.05)
        for pause in (0, 0.5):
            s = plain(known[8000]["tls_port"])
            time.sleep(pause)
            ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
            with ctx.wrap_socket(s) as t:
                assert read_all(t) == text.encode()
        api.post(f"/v1/sandboxes/{sb['id']}/execs/{i}/signal", json={"signal": "KILL"})
        api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}", params={"wait": "exit", "timeout_s": 30})


def test_ports_open_and_close_later(api, sb):
    url = f"/v1/sandboxes/{sb['id']}/ports"
    serve(api, sb, 9000)
    opened = api.put(f"{url}/9000", json={"kind": "raw"})
    assert opened.status_code == 200, opened.text
    assert api.put(f"{url}/9000", json={"kind": "raw"}).json() == opened.json()
    error(api.put(f"{url}/9000", json={"kind": "h2"}), 409, "conflict", "port")
    s = plain(opened.json()["raw_port"])
    s.sendall(b"echo\nx")
    assert s.recv(10) == b"x"
    assert api.delete(f"{url}/9000").status_code == 204
    try:
        assert s.recv(10) == b""                # cut
    except ConnectionResetError:
        pass
    with pytest.raises(ConnectionRefusedError):
        plain(opened.json()["raw_port"])
    error(api.delete(f"{url}/9000"), 404, "not_found", "port")
    assert 9000 not in ports(api, sb)


@pytest.mark.parametrize("allow, passes", [(None, True), (["127.0.0.0/8"], True), (["10.0.0.0/8"], False), ([], False),
                                           (["10.0.0.0/8", "127.0.0.1"], True)])
def test_who_may_connect(api, sb, allow, passes):
    """UR-138: the real peer decides; an empty list lets nobody in."""
    serve(api, sb, 9100)
    p = api.put(f"/v1/sandboxes/{sb['id']}/ports/9100", json={"kind": "raw", "inbound_allow": allow}).json()
    try:
        s = plain(p["raw_port"])
        s.sendall(b"echo\nx")
        got = s.recv(10)
    except (ConnectionResetError, BrokenPipeError):
        got = b""
    assert got == (b"x" if passes else b"")


@pytest.mark.parametrize("body, param", [
    ({"ports": [0]}, "ports"), ({"ports": [65536]}, "ports"), ({"ports": ["8000"]}, "ports"), ({"ports": 8000}, "ports"),
    ({"ports": [8000, 8000]}, "ports"), ({"ports": [{"port": 1, "kind": "udp"}]}, "ports"), ({"ports": [{"port": 1, "x": 1}]}, "ports"),
    ({"ports": [1], "inbound_allow": ["10.0.0.0/33"]}, "inbound_allow"), ({"ports": [1], "inbound_allow": ["home"]}, "inbound_allow"),
])
def test_bad_ports_are_refused(api, body, param):
    before = api.get("/v1/sandboxes", params={"count": "true"}).json()["total"]
    error(api.post("/v1/sandboxes", json=body), 400, "invalid_argument", param)
    assert api.get("/v1/sandboxes", params={"count": "true"}).json()["total"] == before


def test_without_a_free_port_there_is_no_sandbox(api):
    made = []
    try:
        while len(made) < 40:
            r = api.post("/v1/sandboxes", json={"ports": [1, 2, 3, 4]})
            if r.status_code != 201:
                break
            made.append(r.json()["id"])
        e = error(r, 429, "no_capacity")
        assert "ports for tunnels are in use" in e["message"]
        assert 2 <= len(made) <= 6
        # Deleting one makes room.
        api.delete(f"/v1/sandboxes/{made.pop()}")
        r = api.post("/v1/sandboxes", json={"ports": [1, 2, 3, 4]})
        assert r.status_code == 201, r.text
        made.append(r.json()["id"])
    finally:
        for i in made:
            api.delete(f"/v1/sandboxes/{i}")


def test_the_end_of_a_sandbox_cuts_and_frees(api, sb):
    known = ports(api, sb)
    serve(api, sb, 8001)
    s = plain(known[8001]["raw_port"])
    s.sendall(b"echo\nx")
    assert s.recv(10) == b"x"
    api.post(f"/v1/sandboxes/{sb['id']}/terminate", json={"grace_s": 0})
    try:
        assert s.recv(10) == b""
    except ConnectionResetError:
        pass
    end = time.monotonic() + 30
    while ports(api, sb):
        assert time.monotonic() < end
        time.sleep(0.2)
    with pytest.raises(ConnectionRefusedError):
        plain(known[8001]["raw_port"])


def test_an_open_connection_keeps_a_sandbox_from_being_idle(api):
    sb = api.post("/v1/sandboxes", json={"ports": [{"port": 8001, "kind": "raw"}], "idle_timeout_s": 4,
                                         "command": ["python3", "-c", SERVER, "8001", "127.0.0.1"]}).json()
    raw = ports(api, sb)[8001]["raw_port"]
    end = time.monotonic() + 30
    while True:
        s = plain(raw)
        try:
            s.sendall(b"echo\nx")
            if s.recv(10) == b"x":
                break
        except ConnectionError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(9)
    now = api.get(f"/v1/sandboxes/{sb['id']}").json()
    assert now["state"] == "running" and now["last_activity"]["kind"] == "tunnel"
    s.close()
    ended = api.get(f"/v1/sandboxes/{sb['id']}", params={"wait": "exit", "timeout_s": 60}, timeout=90).json()
    assert ended["exit"]["reason"] == "idle_timeout"


def test_tunnels_outlive_the_node(make_daemon):
    d = make_daemon()
    sb = d.api.post("/v1/sandboxes", json={"image": "base", "ports": [{"port": 8001, "kind": "raw"}], "inbound_allow": ["127.0.0.1"]}).json()
    serve(d.api, sb, 8001)
    before = ports(d.api, sb)
    d.kill_role("node")
    end = time.monotonic() + 60
    while True:
        try:
            s = plain(before[8001]["raw_port"])
            s.sendall(b"echo\nx")
            if s.recv(10) == b"x":
                break
        except ConnectionError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
    assert ports(d.api, sb) == before
    d.api.delete(f"/v1/sandboxes/{sb['id']}")
