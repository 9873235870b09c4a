"""Servers in a sandbox reached from outside through the Python client: tunnels and connect tokens."""

import json
import socket
import ssl
import time
import urllib.error
import urllib.request

import modal.exception as ex
from kit import create, raises, sandbox

SERVER = """
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()"""
ECHO = """
import socket, sys, threading
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def serve(c):
    while data := c.recv(65536): c.sendall(data)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()"""

# The certificate of a test server is signed by itself.
TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUST.check_hostname, TRUST.verify_mode = False, ssl.CERT_NONE


def get(url, token=None):
    rq = urllib.request.Request(url, headers={"authorization": f"Bearer {token}", "x-verified-user-data": "forged"} if token else {})
    try:
        with urllib.request.urlopen(rq, context=TRUST, timeout=30) as r:
            return r.status, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def eventually(fn):
    end = time.monotonic() + 60
    while True:
        try:
            r = fn()
            if r:
                return r
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)


def echoes(address, tls=False):
    with socket.create_connection(address, timeout=30) as s:
        if tls:
            s = TRUST.wrap_socket(s)
        s.sendall(b"hello")
        return s.recv(100) == b"hello"


def test_encrypted_port():
    with sandbox("python3", "-c", SERVER, "8000", encrypted_ports=[8000]) as sb:
        tunnels = sb.tunnels()
        assert list(tunnels) == [8000]
        t = tunnels[8000]
        assert t.url == f"https://{t.host}:{t.port}" and t.tls_socket == (t.host, t.port)
        with raises(ex.InvalidError):
            t.tcp_socket
        status, body = eventually(lambda: (r := get(t.url + "/there"))[0] == 200 and r)
        assert json.loads(body)["path"] == "/there"


def test_unencrypted_port():
    with sandbox("python3", "-c", ECHO, "7777", unencrypted_ports=[7777]) as sb:
        t = sb.tunnels()[7777]
        assert eventually(lambda: echoes(t.tcp_socket))
        assert echoes(t.tls_socket, tls=True)


def test_h2_port():
    with sandbox(h2_ports=[8443]) as sb:
        t = sb.tunnels()[8443]
        both = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        both.check_hostname, both.verify_mode = False, ssl.CERT_NONE
        both.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(t.tls_socket, timeout=30) as s:
            assert both.wrap_socket(s).selected_alpn_protocol() == "h2"


def test_ports_of_all_kinds_at_once():
    with sandbox("python3", "-c", ECHO, "3", encrypted_ports=[1], h2_ports=[2], unencrypted_ports=[3]) as sb:
        tunnels = sb.tunnels()
        assert sorted(tunnels) == [1, 2, 3]
        assert [bool(tunnels[p].unencrypted_host) for p in (1, 2, 3)] == [False, False, True]
        assert eventually(lambda: echoes(tunnels[3].tcp_socket))


def test_nobody_listens():
    with sandbox(encrypted_ports=[8000]) as sb:
        status, body = get(sb.tunnels()[8000].url)
        assert status == 502 and b"nothing listens on port 8000" in body


def test_a_tunnel_ends_with_its_sandbox():
    with sandbox("python3", "-c", ECHO, "7777", unencrypted_ports=[7777]) as sb:
        address = sb.tunnels()[7777].tcp_socket
        assert eventually(lambda: echoes(address))
        with socket.create_connection(address, timeout=60) as s:
            s.sendall(b"x")
            assert s.recv(10) == b"x"
            sb.terminate(wait=True)
            try:
                assert s.recv(10) == b""
            except ConnectionResetError:
                pass


def test_no_ports():
    with sandbox() as sb:
        assert sb.tunnels() == {}


def test_inbound_cidr_allowlist():
    with sandbox("python3", "-c", ECHO, "7777", unencrypted_ports=[7777], inbound_cidr_allowlist=["10.0.0.0/8"]) as sb:
        address = sb.tunnels()[7777].tcp_socket
        for _ in range(3):
            try:
                assert not echoes(address)
            except OSError:
                pass
            time.sleep(0.5)
    with sandbox("python3", "-c", ECHO, "7777", unencrypted_ports=[7777], inbound_cidr_allowlist=["127.0.0.0/8"]) as sb:
        address = sb.tunnels()[7777].tcp_socket
        assert eventually(lambda: echoes(address))


def test_connect_token():
    with sandbox("python3", "-c", SERVER, "8080") as sb:
        c = sb.create_connect_token(user_metadata={"user": "me"})
        status, body = eventually(lambda: (r := get(c.url + "/a", c.token))[0] == 200 and r)
        seen = json.loads(body)
        assert seen["path"] == "/a" and json.loads(seen["headers"]["x-verified-user-data"]) == {"user": "me"}
        assert "authorization" not in seen["headers"]
        assert get(c.url)[0] == 401
        other = sb.create_connect_token(port=9)
        assert get(other.url, other.token)[0] == 502


def test_connect_token_in_a_cookie():
    with sandbox("python3", "-c", SERVER, "8080") as sb:
        c = sb.create_connect_token()
        rq = urllib.request.Request(c.url + "/b", headers={"cookie": f"mine=1; quicksand_token={c.token}"})

        def ask():
            with urllib.request.urlopen(rq, context=TRUST, timeout=30) as r:
                return json.loads(r.read())

        seen = eventually(ask)
        assert seen["path"] == "/b" and seen["headers"]["cookie"] == "mine=1"
        other = sb.create_connect_token()
        assert other.token != c.token and other.url == c.url


def test_ends_with_its_sandbox():
    sb = create("python3", "-c", SERVER, "8080")
    c = sb.create_connect_token()
    eventually(lambda: get(c.url, c.token)[0] == 200)
    sb.terminate(wait=True)
    assert get(c.url, c.token)[0] in (401, 410)
