"""What takes long on its way in: events one by one, answers that come late, calls in both directions, many connections at once."""

import http.client
import resource
import ssl
import threading
import time

import grpc
import pytest
from test_connect_tokens import make
from test_reports_tunnels import SOCKETS, frame, read_frame
from test_tunnel_names import h2_modules
from test_tunnels import plain, ports, tls

# Each event waits until the one before it has been seen: who holds one back waits for ever.
STREAMS = r"""
import http.server, os, sys, time
def wait(name):
    end = time.monotonic() + 100
    while not os.path.exists("/tmp/" + name):
        if time.monotonic() > end: sys.exit("nobody has seen " + name)
        time.sleep(0.01)
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        what, _, name = self.path.strip("/").partition("-")
        if what == "events":
            self.send_response(200); self.send_header("content-type", "text/event-stream"); self.send_header("connection", "close"); self.end_headers()
            for n in range(5):
                self.wfile.write(b"data: %d\n\n" % n); self.wfile.flush()
                wait("%s-%d" % (name, n))
            self.close_connection = True
        elif what == "poll":
            wait(name)
            self.send_response(200); self.send_header("content-length", "4"); self.end_headers(); self.wfile.write(b"late")
        else:
            self.send_response(307); self.send_header("location", "http://169.254.169.254/latest/"); self.send_header("content-length", "0")
            self.end_headers()
class S(http.server.ThreadingHTTPServer):
    daemon_threads = True
s = S(("127.0.0.1", 8000), H)
print("ready", flush=True)
s.serve_forever()
"""

# Calls of gRPC by hand: /Echo sends back what comes, as it comes, and ends with trailers; /Fail has nothing but those.
CALLS = r"""
import socket, sys, threading
import h2.config, h2.connection, h2.events
def serve(c):
    con = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    con.initiate_connection(); c.sendall(con.data_to_send())
    rest = {}; ended = set()
    def flush():
        for i in list(rest):
            while rest[i]:
                n = min(con.local_flow_control_window(i), con.max_outbound_frame_size, len(rest[i]))
                if n <= 0: break
                con.send_data(i, rest[i][:n]); rest[i] = rest[i][n:]
            if not rest[i] and i in ended:
                con.send_headers(i, [("grpc-status", "0"), ("x-end", "bye")], end_stream=True)
                del rest[i]
        c.sendall(con.data_to_send())
    while True:
        data = c.recv(65536)
        if not data: return
        for e in con.receive_data(data):
            if isinstance(e, h2.events.RequestReceived):
                if dict(e.headers)[":path"] == "/Test/Fail":
                    con.send_headers(e.stream_id, [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5"),
                                                   ("grpc-message", "no such thing")], end_stream=True)
                else:
                    con.send_headers(e.stream_id, [(":status", "200"), ("content-type", "application/grpc")]); rest[e.stream_id] = b""
            elif isinstance(e, h2.events.DataReceived):
                if e.stream_id in rest: rest[e.stream_id] += e.data
                con.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.StreamEnded): ended.add(e.stream_id)
            elif isinstance(e, h2.events.StreamReset): rest.pop(e.stream_id, None)
        flush()
s = socket.create_server(("127.0.0.1", int(sys.argv[1]))); print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def start(api, sb, code, *args, env=None):
    body = {"command": ["python3", "-c", code, *map(str, args)], "env": env or {}}
    i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json=body).json()["id"]
    end = time.monotonic() + 60
    while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
        assert time.monotonic() < end
        time.sleep(0.05)


def touch(api, sb, name):
    assert api.put(f"/v1/sandboxes/{sb['id']}/files", params={"path": f"/tmp/{name}"}, content=b"").status_code in (200, 201)


@pytest.fixture(scope="module")
def sb(daemon):
    with daemon.api.sandbox(ports=[8000]) as sb:
        start(daemon.api, sb, STREAMS)
        yield sb


@pytest.fixture(params=["port", "path", "token"])
def way(api, sb, request):
    """A connection, what goes before its paths, and the fields that go with its requests."""
    p = ports(api, sb)[8000]
    if request.param == "port":
        return request.param, lambda: tls(p["tls_port"]), "", ""
    if request.param == "path":
        host, prefix = p["path_url"].removeprefix("https://").rstrip("/").split("/", 1)
        return request.param, lambda: tls(int(host.rsplit(":", 1)[1])), "/" + prefix, ""
    token = make(api, sb, port=8000)
    return request.param, lambda: tls(int(token["url"].rsplit(":", 1)[1])), "", f"authorization: Bearer {token['token']}\r\n"


def send(way, path):
    name, connect, prefix, fields = way
    s = connect()
    s.settimeout(120)
    s.sendall(f"GET {prefix}/{path} HTTP/1.1\r\nhost: x\r\n{fields}\r\n".encode())
    return s


def test_events_come_one_by_one(api, sb, way):
    with send(way, f"events-{way[0]}") as s:
        r = http.client.HTTPResponse(s)
        r.begin()
        assert (r.status, r.headers["content-type"]) == (200, "text/event-stream")
        for n in range(5):
            assert (r.readline(), r.readline()) == (b"data: %d\n" % n, b"\n")
            touch(api, sb, f"{way[0]}-{n}")
        assert r.read() == b""


def test_an_answer_may_be_late(api, sb, way):
    with send(way, f"poll-late-{way[0]}") as s:
        time.sleep(11)
        touch(api, sb, f"late-{way[0]}")
        r = http.client.HTTPResponse(s)
        r.begin()
        assert (r.status, r.read()) == (200, b"late")


def test_redirects_are_for_the_client(api, sb, way):
    """UR-127: a redirect of a server inside was followed for it, to an internal address."""
    with send(way, "redirect") as s:
        r = http.client.HTTPResponse(s)
        r.begin()
        assert (r.status, r.headers["location"], r.read()) == (307, "http://169.254.169.254/latest/", b"")


def call(target, pem, name):
    """Calls in both directions by gRPC's own client."""
    options = [("grpc.ssl_target_name_override", name), ("grpc.max_receive_message_length", -1)]
    with grpc.secure_channel(target, grpc.ssl_channel_credentials(pem.encode()), options) as channel:
        echo = channel.stream_stream("/Test/Echo")
        told, more = [], threading.Semaphore(0)

        def words():
            for i in range(200):
                yield b"%d" % i
                assert more.acquire(timeout=100)        # the answer, before the next question

        stream = echo(words(), timeout=200)
        for answer in stream:
            told.append(answer)
            more.release()
        assert told == [b"%d" % i for i in range(200)]
        assert stream.code() is grpc.StatusCode.OK and ("x-end", "bye") in stream.trailing_metadata()
        big = bytes(range(256)) * 8192
        assert list(echo(iter([big, b"", big]), timeout=200)) == [big, b"", big]
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary("/Test/Fail")(b"", timeout=100)
        assert (e.value.code(), e.value.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")
        # One that is given up does not hurt the others.
        given_up = echo(iter([b"x"]), timeout=100)
        assert next(given_up) == b"x"
        given_up.cancel()
        streams = [echo(iter([b"%d" % i] * 3), timeout=200) for i in range(100)]
        assert [list(s) for s in streams] == [[b"%d" % i] * 3 for i in range(100)]


def test_grpc(api):
    with api.sandbox(ports=[{"port": 8002, "kind": "h2"}]) as sb:
        assert api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/h2.zip"}, content=h2_modules()).status_code in (200, 201)
        start(api, sb, CALLS, 8002, env={"PYTHONPATH": "/tmp/h2.zip"})
        port = ports(api, sb)[8002]["tls_port"]
        call(f"127.0.0.1:{port}", ssl.get_server_certificate(("127.0.0.1", port)), "localhost")


# Answers on many connections without a thread for each.
MANY = r"""
import selectors, socket
sel = selectors.DefaultSelector()
l = socket.create_server(("127.0.0.1", 8001), backlog=2000); l.setblocking(False); sel.register(l, 1)
print("ready", flush=True)
while True:
    for k, _ in sel.select():
        if k.fileobj is l:
            c, _ = l.accept(); sel.register(c, 1)
            continue
        try: data = k.fileobj.recv(65536)
        except OSError: data = b""
        if data: k.fileobj.sendall(data)
        else: sel.unregister(k.fileobj); k.fileobj.close()
"""


def answers(s):
    try:
        s.sendall(b"x")
        return s.recv(1) == b"x"
    except OSError:
        return False


def test_so_many_connections_and_no_more(api):
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with api.sandbox(ports=[{"port": 8001, "kind": "raw"}]) as sb:
        start(api, sb, MANY)
        port = ports(api, sb)[8001]["raw_port"]
        held = [plain(port) for _ in range(1024)]
        assert all(answers(s) for s in held)
        for _ in range(3):
            with plain(port) as s:
                assert not answers(s)
        for s in held[:5]:
            s.close()
        end = time.monotonic() + 60
        while True:
            with plain(port) as s:
                if answers(s):
                    break
            assert time.monotonic() < end
            time.sleep(0.1)
        assert all(answers(s) for s in held[5:])
        for s in held:
            s.close()


@pytest.mark.long
def test_five_hundred_websockets_that_are_silent(api):
    """UR-128: sockets were cut when nothing was said for some minutes."""
    key = "MDAwMDAwMDAwMDAwMDAwMA=="
    with api.sandbox(ports=[8000], timeout_s=3000) as sb:
        start(api, sb, SOCKETS, 8000)
        port = ports(api, sb)[8000]["tls_port"]
        many = []
        for _ in range(500):
            s = tls(port)
            s.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
            f = s.makefile("rb")
            assert f.readline().split()[1] == b"101"
            while f.readline().strip():
                pass
            many.append((s, f))
        time.sleep(600)
        for i, (s, _) in enumerate(many):
            s.sendall(frame(1, b"%d" % i))
        assert [read_frame(f)[1] for _, f in many] == [b"%d" % i for i in range(500)]
        for s, f in many:
            f.close()
            s.close()
