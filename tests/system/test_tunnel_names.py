"""Tunnels by name on one port: TLS by server name, certificates of files, the path form, and HTTP/2 for one host alone."""

import base64
import hashlib
import http.client
import io
import json
import os
import pathlib
import socket
import ssl
import subprocess
import time
import zipfile

import h2.config
import h2.connection
import h2.events
import hpack
import hyperframe
import pytest
import qsdaemon
from qsdaemon import error
from test_connect_tokens import SERVER as HTTP_SERVER
from test_tunnels import SERVER, read_all

DOMAIN = "boxes.example"

# Answers each request with its own authority, path and name; a request for /wait is answered when the next one comes.
H2_SERVER = r"""
import socket, sys, threading
import h2.config, h2.connection, h2.events
name, port = sys.argv[1], int(sys.argv[2])
def serve(c):
    con = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    con.initiate_connection(); c.sendall(con.data_to_send())
    bodies = {}; heads = {}
    while True:
        data = c.recv(65536)
        if not data: return
        for e in con.receive_data(data):
            if isinstance(e, h2.events.RequestReceived):
                heads[e.stream_id] = dict(e.headers); bodies[e.stream_id] = 0
            elif isinstance(e, h2.events.DataReceived):
                bodies[e.stream_id] += len(e.data)
                con.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.TrailersReceived):
                heads[e.stream_id].update(dict(e.headers))
            elif isinstance(e, h2.events.StreamEnded):
                h = heads[e.stream_id]
                text = "%s %s %s %d %s" % (name, h.get(":authority", ""), h[":path"], bodies[e.stream_id], h.get("x-end", ""))
                con.send_headers(e.stream_id, [(":status", "200"), ("x-server", name), ("content-type", "text/plain")])
                con.send_data(e.stream_id, text.encode())
                con.send_headers(e.stream_id, [("grpc-status", "0")], end_stream=True)
        c.sendall(con.data_to_send())
s = socket.create_server(("127.0.0.1", port)); print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def make_certificate(folder, name, *hosts, days=10):
    """Signed by itself, and moved into place whole."""
    names = ",".join(f"DNS:{h}" for h in hosts)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days), "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName={names}", "-keyout", folder / ".key", "-out", folder / ".crt"], check=True, capture_output=True)
    (folder / ".key").chmod(0o644)
    os.rename(folder / ".key", folder / f"{name}.key")
    os.rename(folder / ".crt", folder / f"{name}.crt")


@pytest.fixture(scope="module")
def certs():
    folder = qsdaemon.make_dir("qs-certs-")
    folder.chmod(0o755)
    make_certificate(folder, DOMAIN, f"*.{DOMAIN}")
    make_certificate(folder, "app.own.example", "app.own.example")
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


@pytest.fixture(scope="module")
def named(certs):
    import conftest
    instance = conftest.start(tunnel_domain=DOMAIN.upper(), tunnel_certs=certs)
    yield instance
    conftest.finish(instance)


@pytest.fixture
def sb(named):
    with named.api.sandbox() as sb:
        yield sb


def connect(named, host, trust=None, alpn=None, tls=True):
    """TLS for `host` to the one port that all share; with `trust`, the certificate must be that file's and for the host."""
    s = socket.create_connection(("127.0.0.1", named.tunnel_ports[0]), timeout=60)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return s
    ctx = ssl.create_default_context(cafile=trust) if trust else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not trust:
        ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    if alpn:
        ctx.set_alpn_protocols(alpn)
    return ctx.wrap_socket(s, server_hostname=host)


def opened(named, sb, port, **body):
    r = named.api.put(f"/v1/sandboxes/{sb['id']}/ports/{port}", json=body)
    assert r.status_code == 200, r.text
    return r.json()


def start(named, sb, code, *args, env=None):
    body = {"command": ["python3", "-c", code, *map(str, args)], "env": env or {}}
    i = named.api.post(f"/v1/sandboxes/{sb['id']}/execs", json=body).json()["id"]
    end = time.monotonic() + 60
    while named.api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
        assert time.monotonic() < end
        time.sleep(0.05)


def ask(s, text):
    s.sendall(text.encode())
    r = http.client.HTTPResponse(s)
    r.begin()
    data = r.read()
    s.close()
    return r.status, data


def get(host, path="/", **headers):
    extra = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return f"GET {path} HTTP/1.1\r\nhost: {host}\r\n{extra}\r\n"


def test_names_lead_to_their_ports(named, certs, sb):
    with named.api.sandbox(ports=[8000]) as other:
        theirs = named.api.get(f"/v1/sandboxes/{other.id}/ports").json()["items"][0]
        ours = opened(named, sb, 8000)
        second = opened(named, sb, 8001)
        port = named.tunnel_ports[0]
        digits = hashlib.sha256(sb["id"].encode()).hexdigest()[:32]
        assert ours["host"] == f"8000-{digits}.{DOMAIN}" and ours["tls_port"] == port and ours["url"] == f"https://{ours['host']}:{port}"
        for p, box, name in ((8000, sb, "one"), (8001, sb, "two"), (8000, other, "three")):
            start(named, box, SERVER.replace("c.sendall(data)", f"c.sendall(b'{name} ' + data)"), p, "127.0.0.1")
        for tunnel, name in ((ours, b"one"), (second, b"two"), (theirs, b"three")):
            for host in (tunnel["host"], tunnel["host"].upper()):
                s = connect(named, host, trust=certs / f"{DOMAIN}.crt", alpn=["h2", "http/1.1"])
                assert s.selected_alpn_protocol() == "http/1.1"
                s.sendall(b"echo\nhello")
                assert s.recv(100) == name + b" hello"
                s.close()
    # The name of a sandbox that has gone leads nowhere.
    assert ask(connect(named, theirs["host"]), get(theirs["host"]))[0] == 401


def test_a_server_may_speak_first(named, sb):
    start(named, sb, "import socket\ns = socket.create_server(('127.0.0.1', 2525)); print('ready', flush=True)\n"
                     "while True:\n    c, _ = s.accept(); c.sendall(b'220 hello\\r\\n'); c.close()", 2525)
    s = connect(named, opened(named, sb, 2525)["host"])
    assert read_all(s) == b"220 hello\r\n"


def test_much_passes_by_name(named, sb):
    start(named, sb, SERVER, 8000, "::1")
    host = opened(named, sb, 8000)["host"]
    block, size = bytes(range(256)) * 256, 32 * 1024 * 1024
    expected = hashlib.sha256(block * (size // len(block))).hexdigest()
    s = connect(named, host)
    s.sendall(b"echo\n")
    got, n = hashlib.sha256(), 0
    for _ in range(size // len(block)):         # both ways
        s.sendall(block)
        want = n + len(block)
        while n < want:
            data = s.recv(1 << 16)
            assert data
            got.update(data)
            n += len(data)
    assert got.hexdigest() == expected
    s.close()
    s = connect(named, host)
    s.sendall(b"send %d\n" % size)
    time.sleep(0.5)
    assert hashlib.sha256(read_all(s)).hexdigest() == expected


def test_ports_that_are_not_open_take_tokens_alone(named, sb):
    start(named, sb, HTTP_SERVER, 8080)
    start(named, sb, HTTP_SERVER, 8081)
    t = named.api.post(f"/v1/sandboxes/{sb['id']}/connect-tokens", json={"port": 8080, "metadata": "me", "max_uses": 4}).json()
    host = t["url"].removeprefix("https://").rsplit(":", 1)[0]
    auth = {"authorization": f"Bearer {t['token']}"}
    assert host.startswith("8080-") and host.endswith("." + DOMAIN)
    assert ask(connect(named, host), get(host))[0] == 401
    other = "8081" + host[4:]
    assert ask(connect(named, other), get(other, **auth))[0] == 403         # of another port, and no use
    status, data = ask(connect(named, host), get(host, **auth))
    assert status == 200 and dict(map(tuple, json.loads(data)["headers"]))["x-verified-user-data"] == "me"
    assert ask(connect(named, host, tls=False), get(host, **auth))[0] == 200
    assert ask(connect(named, "unknown.example"), get("unknown.example", **auth))[0] == 200     # the token says where to
    assert ask(connect(named, host), get(other, **auth))[0] == 421
    assert ask(connect(named, host), get("unknown.example", **auth))[0] == 421
    assert ask(connect(named, host), get(host, **auth))[0] == 200           # the fourth
    assert ask(connect(named, host), get(host, **auth))[0] == 401


def headers_of(data):
    return dict(map(tuple, json.loads(data)["headers"]))


@pytest.mark.parametrize("tls", [True, False])
def test_the_path_form(named, sb, tls):
    """UR-131: what a server is told of its caller is said once, and not by the caller; its host is the client's."""
    start(named, sb, HTTP_SERVER, 8080)
    p = opened(named, sb, 8080)
    prefix = f"/t/{sb['id']}/8080"
    assert p["path_url"] == f"https://127.0.0.1:{named.tunnel_ports[0]}{prefix}/"
    for path, inside in ((prefix + "/a/b?c=d", "/a/b?c=d"), (prefix, "/"), (prefix + "/", "/"), (prefix + "?x=1", "/?x=1")):
        status, data = ask(connect(named, "any.example", tls=tls), get("any.example:99", path, x_forwarded_prefix="/forged",
                                                                       x_verified_user_data="forged", x_forwarded_for="1.2.3.4"))
        assert status == 200 and json.loads(data)["path"] == inside, data
        h = headers_of(data)
        assert h["x-forwarded-prefix"] == prefix and h["x-forwarded-proto"] == ("https" if tls else "http")
        assert h["x-forwarded-for"] == "127.0.0.1" and h["x-forwarded-host"] == h["host"] == "any.example:99" and "x-verified-user-data" not in h
    # An application's own authorization passes where no token is asked for; a token of ours never does.
    status, data = ask(connect(named, None), get("x", prefix + "/", authorization="Bearer theirs"))
    assert status == 200 and headers_of(data)["authorization"] == "Bearer theirs"
    status, data = ask(connect(named, None), get("x", prefix + "/", authorization="Bearer qsc_" + "0" * 48, cookie="quicksand_token=x; a=b"))
    assert status == 200 and "authorization" not in headers_of(data) and headers_of(data)["cookie"] == "a=b"
    key = base64.b64encode(b"0" * 16).decode()
    s = connect(named, None, tls=tls)
    s.sendall(get("x", prefix + "/ws", connection="upgrade", upgrade="websocket", sec_websocket_key=key, sec_websocket_version="13").encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(4096)
    assert head.startswith(b"HTTP/1.1 101 ")
    s.sendall(b"frames")
    assert s.recv(100) == b"frames"
    s.close()


def test_paths_that_lead_nowhere(named, sb):
    for path in (f"/t/{sb['id']}/8080/", "/t/sb-0000000000000000000000/8080/", "/t/", f"/t/{sb['id']}", f"/t/{sb['id']}/0/", f"/t/{sb['id']}/65536/",
                 f"/t/{sb['id']}/08080/", f"/t/../{sb['id']}/8080/", f"/t/{sb['id'].lower()}/8080/"):
        assert ask(connect(named, None), get("x", path))[0] == 401, path
    start(named, sb, HTTP_SERVER, 9000)
    t = named.api.post(f"/v1/sandboxes/{sb['id']}/connect-tokens", json={"port": 9000}).json()
    auth = {"authorization": f"Bearer {t['token']}"}
    status, data = ask(connect(named, None), get("x", f"/t/{sb['id']}/9000/p", **auth))
    assert status == 200 and json.loads(data)["path"] == "/p"
    assert ask(connect(named, None), get("x", f"/t/{sb['id']}/9001/p", **auth))[0] == 403
    opened(named, sb, 9002)
    status, data = ask(connect(named, None), get("x", f"/t/{sb['id']}/9002/"))
    assert status == 502 and b"nothing listens on port 9002" in data


def test_the_host_of_plain_http_decides_too(named, sb):
    start(named, sb, HTTP_SERVER, 8080)
    host = opened(named, sb, 8080)["host"]
    for name in (host, host.upper(), host + ":1234", host + "."):
        status, data = ask(connect(named, None, tls=False), get(name, "/x"))
        assert status == 200 and json.loads(data)["path"] == "/x" and headers_of(data)["host"] == name


@pytest.mark.parametrize("allow, passes", [(["127.0.0.1"], True), (["10.0.0.0/8"], False), ([], False)])
def test_addresses_count_by_name_and_path(named, sb, allow, passes):
    start(named, sb, HTTP_SERVER, 8080)
    host = opened(named, sb, 8080, inbound_allow=allow)["host"]
    assert ask(connect(named, None), get("x", f"/t/{sb['id']}/8080/", x_forwarded_for="10.1.1.1"))[0] == (200 if passes else 403)
    assert ask(connect(named, host, tls=False), get(host))[0] == (200 if passes else 403)
    try:
        status = ask(connect(named, host), get(host))[0]
    except (OSError, http.client.HTTPException):
        status = None
    assert status == (200 if passes else None)


def test_hosts_of_ones_own(named, certs, sb):
    start(named, sb, HTTP_SERVER, 8080)
    p = opened(named, sb, 8080, host="App.own.example")
    assert (p["host"], p["url"]) == ("app.own.example", f"https://app.own.example:{named.tunnel_ports[0]}")
    s = connect(named, "app.own.example", trust=certs / "app.own.example.crt")
    assert ask(s, get("app.own.example", "/own"))[0] == 200
    url = f"/v1/sandboxes/{sb['id']}/ports"
    error(named.api.put(f"{url}/8081", json={"host": "app.own.example"}), 409, "conflict", "host")
    for bad in ("none.own.example", "app", "10.0.0.1", f"x.{DOMAIN}", "../app.own.example", "a..b", "-a.example", "a b.example", "a/b.example"):
        error(named.api.put(f"{url}/8081", json={"host": bad}), 400, "invalid_argument", "host")
    error(named.api.post("/v1/sandboxes", json={"ports": [{"port": 1, "host": "none.own.example"}]}), 400, "invalid_argument")
    assert named.api.delete(f"{url}/8080").status_code == 204
    with named.api.sandbox(ports=[{"port": 1, "host": "app.own.example"}]) as other:
        assert named.api.get(f"/v1/sandboxes/{other.id}/ports").json()["items"][0]["host"] == "app.own.example"


def test_certificates_that_change_are_read_again(named, certs, sb):
    start(named, sb, HTTP_SERVER, 8080)
    host = opened(named, sb, 8080)["host"]
    before = (certs / f"{DOMAIN}.crt").read_text()

    def shown():
        with connect(named, host) as s:
            return ssl.DER_cert_to_PEM_cert(s.getpeercert(True))

    assert shown() == before
    # One that cannot be read leaves the last one in use.
    (certs / ".bad").write_text("no certificate\n")
    os.rename(certs / ".bad", certs / f"{DOMAIN}.crt")
    time.sleep(1.5)
    assert shown() == before
    make_certificate(certs, DOMAIN, f"*.{DOMAIN}")
    after = (certs / f"{DOMAIN}.crt").read_text()
    end = time.monotonic() + 30
    while shown() != after:
        assert time.monotonic() < end
        time.sleep(0.2)
    assert after != before


def test_names_outlive_the_node(named, sb):
    start(named, sb, HTTP_SERVER, 8080)
    p = opened(named, sb, 8080, host="app.own.example")
    named.kill_role("node")
    end = time.monotonic() + 60
    while True:
        try:
            if ask(connect(named, "app.own.example"), get("app.own.example"))[0] == 200:
                break
        except (OSError, http.client.HTTPException):
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
    assert named.api.get(f"/v1/sandboxes/{sb['id']}/ports").json()["items"] == [p]


# --- HTTP/2

def h2_modules():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for module in (h2, hpack, hyperframe):
            folder = pathlib.Path(module.__file__).parent
            for f in folder.rglob("*.py"):
                z.write(f, f"{folder.name}/{f.relative_to(folder)}")
    return out.getvalue()


class Client:
    """One HTTP/2 connection; each request's answer as (status, body, trailers)."""

    def __init__(self, s):
        self.s = s
        self.con = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False))
        self.con.initiate_connection()
        self.flush()

    def flush(self):
        self.s.sendall(self.con.data_to_send())

    def send(self, authority, path="/", body=None, headers=(), trailers=None):
        stream = self.con.get_next_available_stream_id()
        fields = [(":method", "POST" if body is not None else "GET"), (":scheme", "https"), (":path", path), *headers]
        if authority is not None:
            fields.insert(1, (":authority", authority))
        self.con.send_headers(stream, fields, end_stream=body is None)
        self.flush()
        at = 0
        while body is not None:
            n = min(self.con.local_flow_control_window(stream), self.con.max_outbound_frame_size, len(body) - at)
            if n == 0 and at < len(body):
                self.events()
                if stream in self.closed:
                    break
                continue
            at += n
            self.con.send_data(stream, body[at - n:at], end_stream=at == len(body) and trailers is None)
            self.flush()
            if at == len(body):
                if trailers:
                    self.con.send_headers(stream, trailers, end_stream=True)
                    self.flush()
                break
        return stream

    answers = None
    closed = ()

    def events(self):
        data = self.s.recv(65536)
        assert data, "the connection ended"
        if self.answers is None:
            self.answers, self.closed = {}, set()
        for e in self.con.receive_data(data):
            a = self.answers.setdefault(getattr(e, "stream_id", 0), {"body": b"", "trailers": None})
            if isinstance(e, h2.events.ResponseReceived):
                a["status"] = int(dict(e.headers)[":status"])
            elif isinstance(e, h2.events.DataReceived):
                a["body"] += e.data
                self.con.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.TrailersReceived):
                a["trailers"] = dict(e.headers)
            elif isinstance(e, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.closed.add(e.stream_id)
            assert not isinstance(e, h2.events.ConnectionTerminated), e
        self.flush()

    def wait(self, stream):
        while stream not in self.closed:
            self.events()
        a = self.answers[stream]
        return a["status"], a["body"].decode(), a["trailers"]

    def ask(self, *args, **kw):
        return self.wait(self.send(*args, **kw))


def test_http2_serves_one_host_alone(named):
    modules = h2_modules()
    with named.api.sandbox() as a, named.api.sandbox() as b:
        hosts = []
        for box, name in ((a, "one"), (b, "two")):
            assert named.api.put(f"/v1/sandboxes/{box.id}/files", params={"path": "/tmp/h2.zip"}, content=modules).status_code in (200, 201, 204)
            start(named, box, H2_SERVER, name, 8443, env={"PYTHONPATH": "/tmp/h2.zip"})
            hosts.append(opened(named, box, 8443, kind="h2")["host"])
        s = connect(named, hosts[0], alpn=["h2"])
        assert s.selected_alpn_protocol() == "h2"
        c = Client(s)
        port = named.tunnel_ports[0]
        assert c.ask(hosts[0], "/a") == (200, f"one {hosts[0]} /a 0 ", {"grpc-status": "0"})
        # A wildcard certificate is good for the other too, and clients make use of that.
        assert c.ask(hosts[1], "/b") == (421, "", None)
        assert c.ask(f"{hosts[0]}:{port}", "/c") == (200, f"one {hosts[0]}:{port} /c 0 ", {"grpc-status": "0"})
        assert c.ask(hosts[0].upper(), "/d")[0] == 200
        assert c.ask(None, "/e") == (421, "", None)
        assert c.ask(None, "/f", headers=[("host", hosts[0])])[:1] == (200,)
        assert c.ask(None, "/g", headers=[("host", hosts[1])])[:1] == (421,)
        # Bodies, trailers and long heads, of requests that pass and of others between them; compression goes on.
        data = os.urandom(300_000)
        long = [(f"x-field-{i}", "value " * 100) for i in range(60)]
        for i in range(8):
            assert c.ask(hosts[0], f"/p{i}", body=data, headers=long, trailers=[("x-end", "yes")]) == (
                200, f"one {hosts[0]} /p{i} {len(data)} yes", {"grpc-status": "0"})
            assert c.ask(hosts[1], f"/r{i}", body=data, headers=long, trailers=[("x-end", "yes")])[0] == 421
        # Many at once.
        streams = [(i, c.send(hosts[i % 2], f"/m{i}")) for i in range(60)]
        for i, stream in streams:
            status, body, _ = c.wait(stream)
            assert (status, body) == ((200, f"one {hosts[0]} /m{i} 0 ") if i % 2 == 0 else (421, ""))
        s.close()
        # The first request of a connection may be the wrong one, before the server has said a word.
        c = Client(connect(named, hosts[1], alpn=["h2"]))
        assert c.ask(hosts[0], "/x", body=b"y" * 1000)[0] == 421
        assert c.ask(hosts[1], "/y")[:2] == (200, f"two {hosts[1]} /y 0 ")


def test_grpc_by_name(named, certs, sb):
    """Its own client, where each request is looked at."""
    from test_tunnel_streams import CALLS, call
    assert named.api.put(f"/v1/sandboxes/{sb['id']}/files", params={"path": "/tmp/h2.zip"}, content=h2_modules()).status_code in (200, 201)
    start(named, sb, CALLS, 8443, env={"PYTHONPATH": "/tmp/h2.zip"})
    host = opened(named, sb, 8443, kind="h2")["host"]
    call(f"127.0.0.1:{named.tunnel_ports[0]}", (certs / f"{DOMAIN}.crt").read_text(), host)


def test_what_is_not_http2_passes_an_h2_port(named, sb):
    start(named, sb, HTTP_SERVER, 8080)
    host = opened(named, sb, 8080, kind="h2")["host"]
    assert ask(connect(named, host), get(host, "/x"))[0] == 200


def test_broken_http2_is_cut(named, sb):
    start(named, sb, SERVER, 8000, "127.0.0.1")
    host = opened(named, sb, 8000, kind="h2")["host"]
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for frames in (b"\x00\x00\x01\x01\x04\x00\x00\x00\x02\x82",            # a request of an even stream
                   b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82\x00\x00\x00\x06\x00\x00\x00\x00\x00",      # a block that another frame interrupts
                   b"\x00\x00\x01\x09\x04\x00\x00\x00\x01\x82",            # a block that never began
                   b"\x00\x00\x02\x01\x0c\x00\x00\x00\x01\xff\x82",        # padding beyond the frame
                   b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff",            # half an index
                   b"\xff\xff\xff\x01\x04\x00\x00\x00\x01"):
        s = connect(named, host)
        s.sendall(preface + frames)
        try:
            assert read_all(s) == b""
        except (ConnectionResetError, ssl.SSLError):
            pass
        s.close()
