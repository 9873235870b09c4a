"""
A web server for ADD: files by path, and what else a server may do, said in its attributes. Every request is kept.
"""

import contextlib
import http.server
import threading
import time


class Web:
    def __init__(self):
        self.reset()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                with contextlib.suppress(ConnectionError):
                    outer.handle(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        self.files = {}                 # path -> bytes
        self.headers = {}               # path -> {name: value}
        self.redirects = {}             # path -> where to
        self.answers = {}               # path -> list of status, one a request
        self.requests = []              # (path, headers)
        self.is_done = False            # the endless ones end

    def stop(self):
        self.is_done = True
        self.server.shutdown()
        self.server.server_close()

    def reply(self, rq, status, body=b"", headers=()):
        rq.send_response(status)
        for name, value in dict(headers).items():
            rq.send_header(name, value)
        rq.send_header("content-length", str(len(body)))
        rq.end_headers()
        rq.wfile.write(body)

    def drip(self, rq, chunk, pause_s):
        rq.send_response(200)
        rq.send_header("connection", "close")
        rq.end_headers()
        rq.close_connection = True
        while not self.is_done:
            rq.wfile.write(chunk)
            time.sleep(pause_s)

    def handle(self, rq):
        self.requests.append((rq.path, dict(rq.headers)))
        path = rq.path.partition("?")[0]
        if self.answers.get(path):
            self.reply(rq, self.answers[path].pop(0))
        elif path in self.redirects:
            self.reply(rq, 302, b"gone", {"location": self.redirects[path]})
        elif path == "/endless":
            self.drip(rq, b"x" * 65536, 0)
        elif path == "/slow":
            self.drip(rq, b"x", 0.5)
        elif path == "/cut":
            rq.send_response(200)
            rq.send_header("content-length", "1000")
            rq.end_headers()
            rq.wfile.write(b"part")
            rq.wfile.flush()
            rq.close_connection = True
            rq.connection.shutdown(2)
        elif path in self.files:
            headers = self.headers.get(path, {})
            asked = rq.headers.get("if-none-match"), rq.headers.get("if-modified-since")
            if (asked[0] and asked[0] == headers.get("ETag")) or (asked[1] and asked[1] == headers.get("Last-Modified")):
                rq.send_response(304)
                rq.end_headers()
                return
            self.reply(rq, 200, self.files[path], headers)
        else:
            self.reply(rq, 404, b"no such page")
