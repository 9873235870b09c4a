"""
A registry that lies, stalls and sends people away. What it does is said in its attributes; every request is counted.
"""

import contextlib
import http.server
import json
import ssl
import threading
import time

from registry import index_of


class Hostile:
    def __init__(self, port, address="127.0.0.1", tls=None):
        self.port = port
        self.host = f"{address}:{port}"
        self.reset()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def handle(self):
                with contextlib.suppress(OSError):      # of a handshake, which is the first thing that happens
                    super().handle()

            def do_GET(self):
                with contextlib.suppress(ConnectionError):
                    outer.handle(self)

            def do_POST(self):
                self.form = self.rfile.read(int(self.headers.get("content-length", "0"))).decode()
                outer.forms.append(self.form)
                with contextlib.suppress(ConnectionError):
                    outer.handle(self)

        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        self.server.daemon_threads = True
        if tls:                         # files of certificate and key
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        self.image = None
        self.manifest = None            # instead of the image's
        self.on_blob = None             # f(request, digest, blob) -> True if it has answered
        self.on_manifest = None
        self.token = None               # asked for, when set
        self.token_basic = None         # value of the Authorization header without which there is no token
        self.token_busy = []            # answers (status, body, headers) before others
        self.token_answer = None        # instead of {"token": ...}
        self.basic = None               # value of the Authorization header that is asked for
        self.requests = []
        self.forms = []                 # bodies of POST
        self.override = {}              # digest -> bytes

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def send(self, rq, status, body=b"", headers=()):
        rq.send_response(status)
        for name, value in headers:
            rq.send_header(name, value)
        rq.send_header("content-length", str(len(body)))
        rq.end_headers()
        rq.wfile.write(body)

    def handle(self, rq):
        self.requests.append((rq.path, dict(rq.headers)))
        if rq.path.startswith("/token"):
            if self.token_busy:
                self.send(rq, *self.token_busy.pop(0))
                return
            if self.token_basic is not None and rq.headers.get("authorization") != self.token_basic:
                self.send(rq, 401, b"{}")
                return
            self.send(rq, 200, json.dumps({"token": "the-token"}).encode() if self.token_answer is None else self.token_answer)
            return
        if self.basic is not None and rq.headers.get("authorization") != self.basic:
            self.send(rq, 401, b"{}", [("www-authenticate", 'Basic realm="x"')])
            return
        if self.token is not None and rq.headers.get("authorization") != f"Bearer {self.token}":
            challenge = f'Bearer realm="http://{self.host}/token",service="svc",scope="repository:x:pull"'
            self.send(rq, 401, b"{}", [("www-authenticate", challenge)])
            return
        parts = rq.path.split("/")
        if parts[-2] == "manifests":
            if self.on_manifest and self.on_manifest(rq):
                return
            known = {self.image.digest: self.image.manifest} if self.image else {}
            body = self.manifest if self.manifest is not None else known.get(parts[-1], self.image and self.image.manifest)
            self.send(rq, 200, body, [("content-type", "application/vnd.oci.image.manifest.v1+json")])
            return
        blob = self.override.get(parts[-1], self.image.blobs.get(parts[-1]))
        if blob is None:
            self.send(rq, 404)
        elif not (self.on_blob and self.on_blob(rq, parts[-1], blob)):
            self.send_blob(rq, blob)

    def send_blob(self, rq, blob, cut=None):
        start = 0
        if rq.headers.get("range"):
            start = int(rq.headers["range"].split("=")[1].split("-")[0])
        rq.send_response(206 if start else 200)
        rq.send_header("content-length", str(len(blob) - start))
        rq.end_headers()
        rq.wfile.write(blob[start:] if cut is None else blob[start:start + cut])
        if cut is not None:
            rq.wfile.flush()
            rq.close_connection = True
            rq.connection.shutdown(2)


__all__ = ["Hostile", "index_of", "time"]
