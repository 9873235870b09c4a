"""Connect tokens: HTTP to a port of a sandbox for who shows one, and what the server inside gets to see."""

import base64
import hashlib
import http.client
import json
import os
import socket
import ssl
import time

import pytest

from qsdaemon import error

# Says what it was asked, as JSON; /big sends, /sum counts, /ws speaks WebSocket frames back as they came, /close ends without a word.
SERVER = r"""
import base64, hashlib, http.server, json, os, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def body(self):
        if self.headers.get("transfer-encoding") == "chunked":
            out = b""
            while True:
                n = int(self.rfile.readline(), 16)
                out += self.rfile.read(n); self.rfile.readline()
                if n == 0: return out
        return self.rfile.read(int(self.headers.get("content-length", 0)))
    def reply(self, data, kind="application/json"):
        self.send_response(200); self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def do_GET(self):
        if self.path == "/big":
            return self.reply(bytes(range(256)) * (1 << 16), "application/octet-stream")
        if self.path == "/close":
            self.close_connection = True
            return
        if self.path == "/ws":
            key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101); self.send_header("upgrade", "websocket"); self.send_header("connection", "upgrade")
            self.send_header("sec-websocket-accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers(); self.wfile.flush()
            while True:
                data = self.rfile.read1(65536)
                if not data: break
                self.wfile.write(data); self.wfile.flush()
            self.close_connection = True
            return
        body = self.body()
        self.reply(json.dumps({"path": self.path, "method": self.command, "headers": [[k.lower(), v] for k, v in self.headers.items()],
                               "body": hashlib.sha256(body).hexdigest(), "length": len(body)}).encode())
    do_POST = do_PUT = do_DELETE = do_GET
class S(http.server.ThreadingHTTPServer):
    daemon_threads = True
s = S(("127.0.0.1", int(sys.argv[1])), H)
print("ready", flush=True)
s.serve_forever()
"""


@pytest.fixture(scope="module")
def sb(daemon):
    api = daemon.api
    sb = api.post("/v1/sandboxes", json={}).json()
    for port in (8080, 9090):
        i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json={"command": ["python3", "-c", SERVER, str(port)]}).json()["id"]
        end = time.monotonic() + 60
        while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
            assert time.monotonic() < end
            time.sleep(0.05)
    yield sb
    api.delete(f"/v1/sandboxes/{sb['id']}")


def make(api, sb, **body):
    r = api.post(f"/v1/sandboxes/{sb['id']}/connect-tokens", json=body)
    assert r.status_code == 201, r.text
    return r.json()


def connect(t):
    port = int(t["url"].rsplit(":", 1)[1])
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, context=ctx, timeout=60)


def ask(t, path="/", method="GET", headers=None, body=None, token=True):
    c = connect(t)
    c.request(method, path, body=body, encode_chunked=True, headers={**({"authorization": f"Bearer {t['token']}"} if token else {}), **(headers or {})})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, data


def seen(t, **kw):
    status, data = ask(t, **kw)
    assert status == 200, data
    return json.loads(data)


def test_a_token_opens_its_port(api, sb):
    t = make(api, sb)
    assert t["port"] == 8080 and t["uses_left"] is None and t["expires_at"] is None
    s = seen(t, path="/a/b?c=d%20e")
    assert (s["path"], s["method"]) == ("/a/b?c=d%20e", "GET")
    data = os.urandom(3_000_000)
    s = seen(t, path="/", method="POST", body=data)
    assert (s["length"], s["body"]) == (len(data), hashlib.sha256(data).hexdigest())
    s = seen(t, path="/", method="PUT", body=iter([b"one", b"two", data[:100000]]), headers={"transfer-encoding": "chunked"})
    assert (s["length"], s["body"]) == (100006, hashlib.sha256(b"onetwo" + data[:100000]).hexdigest())
    status, data = ask(t, path="/big")
    assert status == 200 and data == bytes(range(256)) * (1 << 16)


def test_the_server_sees_who_calls_and_not_the_token(api, sb):
    t = make(api, sb, port=9090, metadata='{"user": "Zoë"}')
    s = seen(t, headers={"x-forwarded-for": "10.1.1.1", "x-forwarded-proto": "gopher", "x-verified-user-data": "forged", "x-real-ip": "1.2.3.4",
                         "forwarded": "for=1.2.3.4", "cookie": "a=1; b=2", "host": "app.example:1234", "x-own": "kept"})
    h = {}
    for k, v in s["headers"]:
        h.setdefault(k, []).append(v)
    assert h["x-forwarded-for"] == ["127.0.0.1"] and h["x-forwarded-proto"] == ["https"] and h["x-forwarded-host"] == ["app.example:1234"]
    assert [v.encode("latin-1").decode() for v in h["x-verified-user-data"]] == ['{"user": "Zoë"}']
    assert h["host"] == ["app.example:1234"] and h["x-own"] == ["kept"] and h["cookie"] == ["a=1; b=2"]
    assert not {"authorization", "x-real-ip", "forwarded"} & set(h)
    assert t["token"] not in json.dumps(s)


@pytest.mark.parametrize("how", ["header", "cookie", "only cookie"])
def test_other_ways_to_show_a_token(api, sb, how):
    t = make(api, sb)
    headers = {"header": {"x-quicksand-token": t["token"], "authorization": "Basic abc"},
               "cookie": {"cookie": f"a=1; quicksand_token={t['token']}; b=2", "authorization": "Basic abc"},
               "only cookie": {"cookie": f"quicksand_token={t['token']}", "authorization": "Basic abc"}}[how]
    s = seen(t, token=False, headers=headers)
    h = dict(map(tuple, s["headers"]))
    assert h["authorization"] == "Basic abc"        # the application's own
    assert h.get("cookie") == {"header": None, "cookie": "a=1; b=2", "only cookie": None}[how]
    assert t["token"] not in json.dumps(s)


def test_who_is_not_let_in(api, sb):
    t = make(api, sb)
    assert ask(t, token=False)[0] == 401
    assert ask({**t, "token": "qsc_" + "0" * 48})[0] == 401
    assert ask({**t, "token": t["token"][:-1]})[0] == 401
    admin = api.headers["authorization"].split()[1]
    assert ask({**t, "token": admin})[0] == 401                     # no other token is one
    assert api.get("/v1/me", headers={"authorization": f"Bearer {t['token']}"}).status_code == 401

    once = make(api, sb, max_uses=2)
    assert [ask(once)[0] for _ in range(3)] == [200, 200, 401]
    short = make(api, sb, expires_s=1.5)
    assert ask(short)[0] == 200
    time.sleep(2)
    status, data = ask(short)
    assert status == 401 and b"expired" in data

    assert api.delete(f"/v1/sandboxes/{sb['id']}/connect-tokens/{t['id']}").status_code == 204
    assert ask(t)[0] == 401
    error(api.delete(f"/v1/sandboxes/{sb['id']}/connect-tokens/{t['id']}"), 404, "not_found")
    listed = api.get(f"/v1/sandboxes/{sb['id']}/connect-tokens").json()["items"]
    assert t["id"] not in [x["id"] for x in listed] and once["id"] in [x["id"] for x in listed]
    assert once["token"] not in json.dumps(listed)


@pytest.mark.parametrize("body, param", [({"port": 0}, "port"), ({"port": 65536}, "port"), ({"metadata": "a\nb"}, "metadata"),
                                         ({"max_uses": 0}, "max_uses"), ({"expires_s": 0}, "expires_s")])
def test_bad_wishes(api, sb, body, param):
    error(api.post(f"/v1/sandboxes/{sb['id']}/connect-tokens", json=body), 400, "invalid_argument", param)


def raw(t, data, end=False, timeout=20):
    """What comes back to these bytes, sent as they are."""
    port = int(t["url"].rsplit(":", 1)[1])
    s = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    s.sendall(data)
    out = b""
    try:
        while True:
            got = s.recv(65536)
            if not got:
                break
            out += got
    except (ConnectionResetError, TimeoutError):
        pass
    s.close()
    return out


def test_nothing_is_smuggled_behind_a_request(api, sb):
    t = make(api, sb, metadata="honest")
    auth = f"host: x\r\nauthorization: Bearer {t['token']}\r\n".encode()
    forged = b"GET /forged HTTP/1.1\r\nhost: x\r\nx-verified-user-data: forged\r\n\r\n"
    for request in (b"GET /first HTTP/1.1\r\n" + auth + b"\r\n",
                    b"POST /first HTTP/1.1\r\n" + auth + b"content-length: 3\r\n\r\nabc",
                    b"POST /first HTTP/1.1\r\n" + auth + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                    # An upgrade that the server does not accept opens nothing either.
                    b"GET /first HTTP/1.1\r\n" + auth + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"):
        out = raw(t, request + forged, timeout=3)
        assert out.count(b"HTTP/1.1 200") == 1 and b"/first" in out and b"forged" not in out, out
    for request in (b"GET / HTTP/1.1\r\n" + auth + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
                    b"GET / HTTP/1.1\r\n" + auth + b"content-length: 3\r\ncontent-length: 4\r\n\r\n",
                    b"GET / HTTP/1.1\r\n" + auth + b"x: a\nb: c\r\n\r\n", b"CONNECT host:1 HTTP/1.1\r\n" + auth + b"\r\n", b"\x16\x03nonsense\r\n\r\n"):
        out = raw(t, request)
        assert b"200" not in out.split(b"\r\n")[0], out
    assert b"431" in raw(t, b"GET / HTTP/1.1\r\nx: " + b"a" * 100000 + b"\r\n\r\n").split(b"\r\n")[0]


def test_websockets_pass(api, sb):
    t = make(api, sb)
    c = connect(t)
    c.connect()
    s = c.sock
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall((f"GET /ws HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {t['token']}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
               f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n").encode() + b"\x81\x85early")
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(4096)
    head, rest = head.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 101 ")
    expected = b"\x81\x85early"
    for n in (1, 1000, 200_000):
        data = os.urandom(n)
        s.sendall(data)
        expected += data
        while len(rest) < len(expected):
            got = s.recv(65536)
            assert got
            rest += got
    assert rest == expected
    c.close()


def test_servers_that_are_not_there(api, sb):
    status, data = ask(make(api, sb, port=4))
    assert status == 502 and b"nothing listens on port 4" in data
    status, data = ask(make(api, sb), path="/close")
    assert status == 502 and b"without an answer" in data


def test_addresses_count_for_tokens_too(api):
    for allow, status in ((["10.0.0.0/8"], 403), (["127.0.0.0/8"], 502), ([], 403)):
        sb = api.post("/v1/sandboxes", json={"inbound_allow": allow}).json()
        assert ask(make(api, sb, port=5), headers={"x-forwarded-for": "10.1.1.1"})[0] == status
        api.delete(f"/v1/sandboxes/{sb['id']}")


def test_the_end_of_a_sandbox_ends_its_tokens(api):
    sb = api.post("/v1/sandboxes", json={"command": ["python3", "-c", SERVER, "8080"]}).json()
    t = make(api, sb)
    end = time.monotonic() + 60
    while ask(t)[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.1)
    api.post(f"/v1/sandboxes/{sb['id']}/terminate", json={"grace_s": 0})
    assert ask(t)[0] in (401, 410)
    error(api.post(f"/v1/sandboxes/{sb['id']}/connect-tokens", json={}), 409, "sandbox_ended")
    api.delete(f"/v1/sandboxes/{sb['id']}")
    assert ask(t)[0] == 401


def test_tokens_outlive_the_node(make_daemon):
    d = make_daemon()
    sb = d.api.post("/v1/sandboxes", json={"image": "base", "command": ["python3", "-c", SERVER, "8080"]}).json()
    t = make(d.api, sb, max_uses=100)
    end = time.monotonic() + 60
    while ask(t)[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.1)
    d.kill_role("node")
    while True:
        try:
            if ask(t)[0] == 200:
                break
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
    d.api.delete(f"/v1/sandboxes/{sb['id']}")
