"""
A server for the tests of opened connections: it tells, as JSON, what arrived of each request. It runs in the world outside, in
threads of the test's process, with and without TLS, and misbehaves on the paths and ports that are made for it.
"""

import contextlib
import gzip
import hashlib
import json
import pathlib
import socket
import ssl
import struct
import subprocess
import threading
import time

import world as w

TLS, STRANGER, WRONG_NAME, EXPIRED, MUTE, CUT, PLAIN, WRONG_HOST = 4443, 4444, 4445, 4446, 4447, 4448, 8081, 4449
RESET = struct.pack("ii", 1, 0)


def certificate(directory, name, names, days=3650, authority=None):
    """PEM files of a key and a certificate for the names."""
    d = pathlib.Path(directory)
    key, csr, pem, ext = (d / f"{name}.{suffix}" for suffix in ("key", "csr", "pem", "ext"))
    ext.write_text("subjectAltName=" + ",".join(f"DNS:{n}" for n in names))
    authority = authority or (d / "ca.pem", d / "ca.key")
    subprocess.run(f"openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {key} -out {csr} 2>/dev/null"
                   f" && openssl x509 -req -in {csr} -CA {authority[0]} -CAkey {authority[1]} -CAcreateserial -days {days}"
                   f" -extfile {ext} -out {pem} 2>/dev/null", shell=True, check=True, stdin=subprocess.DEVNULL)
    return pem, key


class Teller:
    def __init__(self, world):
        self.world = world
        self.lock = threading.Lock()
        self.heads = []             # of requests, as they came
        self.connections = 0
        self.go_on = threading.Event()
        d = world.home
        subprocess.run(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=Stranger"
                       f" -keyout {d}/stranger-ca.key -out {d}/stranger-ca.pem 2>/dev/null", shell=True, check=True)
        names = ["allowed.test", "other.test", "*.wild.test", "wild.test"]
        self.certificates = {
            TLS: certificate(d, "teller", names),
            STRANGER: certificate(d, "stranger", names, authority=(d / "stranger-ca.pem", d / "stranger-ca.key")),
            WRONG_NAME: certificate(d, "elsewhere", ["elsewhere.test"]),
            EXPIRED: certificate(d, "expired", names, days=-1),
        }
        for port in (TLS, STRANGER, WRONG_NAME, EXPIRED, MUTE, CUT, PLAIN):
            self.listen(port)

    def listen(self, port):
        ready = threading.Event()

        def run():
            w.enter(self.world.netns)
            s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.bind(("::", port))
            s.listen(512)
            ready.set()
            while True:
                c, _ = s.accept()
                threading.Thread(target=self.serve, args=(c, port), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        assert ready.wait(30)

    def clear(self):
        with self.lock:
            self.heads.clear()
            self.connections = 0
        self.go_on.clear()

    def serve(self, c, port):
        with self.lock:
            self.connections += 1
            number = self.connections
        with contextlib.suppress(OSError, ssl.SSLError, ValueError), c:
            c.settimeout(120)
            if port == MUTE:
                self.go_on.wait(120)
                return
            if port == CUT:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                c.recv(10)
                return
            if port in self.certificates:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*self.certificates[port])
                context.set_alpn_protocols(["http/1.1"])
                names = []
                context.sni_callback = lambda sock, name, ctx: names.append(name)
                c = context.wrap_socket(c, server_side=True, suppress_ragged_eofs=False)
                self.http(c, number, {"sni": names[0] if names else None, "alpn": c.selected_alpn_protocol()})
            else:
                self.http(c, number, {"sni": None, "alpn": None})

    def http(self, c, number, about):
        f = c.makefile("rb")
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = f.readline(70000)
                if not line:
                    return
                head += line
            with self.lock:
                self.heads.append(head)
            lines = head.decode("latin-1").split("\r\n")[:-2]
            method, target, version = lines[0].split(" ")
            fields = [line.split(": ", 1) for line in lines[1:]]
            headers = {k.lower(): v for k, v in fields}
            if not self.answer(c, f, number, about, method, target, version, fields, headers):
                return

    @staticmethod
    def body(f, headers):
        if headers.get("transfer-encoding") != "chunked":
            left = int(headers.get("content-length", 0))
            digest, total = hashlib.sha256(), 0
            while left > 0 and (data := f.read(min(left, 1 << 20))):
                digest.update(data)
                total += len(data)
                left -= len(data)
            return total, digest.hexdigest(), None
        digest, total, chunks = hashlib.sha256(), 0, 0
        while size := int(f.readline(100).split(b";")[0], 16):
            data = f.read(size)
            assert f.read(2) == b"\r\n"
            digest.update(data)
            total, chunks = total + size, chunks + 1
        while f.readline(1000) not in (b"\r\n", b""):
            pass
        return total, digest.hexdigest(), chunks

    def answer(self, c, f, number, about, method, target, version, fields, headers):
        path = target.split("?")[0]
        if headers.get("upgrade") == "websocket":
            c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while data := f.read1(65536):
                c.sendall(data)
            return False
        if path == "/early":                # without the body
            c.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
            return True
        if "expect" in headers:
            c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if path == "/late":                 # after the sender has had to wait
            time.sleep(0.5)
        total, digest, chunks = self.body(f, headers)
        if path == "/reset":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return False
        if path == "/short":
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return False
        if path == "/more":                 # than was asked for
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwholeHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
            return False
        if path == "/garbage":
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            return False
        if path == "/to-end":
            c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + headers.get("x-key", "none").encode() + b" to the end")
            if isinstance(c, ssl.SSLSocket) and target.endswith("?clean"):
                with contextlib.suppress(OSError):
                    c.unwrap()
            return False
        if path == "/wait":
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            self.go_on.wait(120)
            c.sendall(b"4\r\nlast\r\n0\r\n\r\n")
            return True
        if path.startswith("/bytes/"):
            left = int(path.split("/")[2])
            c.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n".encode())
            block = bytes(range(256)) * 1024
            while left > 0:
                c.sendall(block[:left])
                left -= len(block)
            return True
        out = json.dumps({**about, "connection": number, "method": method, "target": target, "version": version, "fields": fields,
                          "body": total, "sha256": digest, "chunks": chunks}).encode()
        extra = b"X-Echo: " + headers.get("x-key", "none").encode() + b"\r\n"
        if path == "/gzip":
            extra += b"Content-Encoding: gzip\r\n"
            out = gzip.compress(out)
        if path == "/chunked":
            c.sendall(b"HTTP/1.1 200 OK\r\n" + extra + b"Transfer-Encoding: chunked\r\n\r\n")
            for i in range(0, len(out), 7):     # so that every word is cut somewhere
                c.sendall(b"%x\r\n%s\r\n" % (len(out[i:i + 7]), out[i:i + 7]))
                time.sleep(0.001)
            c.sendall(b"0\r\n\r\n")
            return True
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + extra
                  + b"Content-Length: " + str(len(out)).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else out))
        return headers.get("connection") != "close" and version != "HTTP/1.0"
