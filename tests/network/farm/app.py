"""
What nginx hands on (127.0.0.1:9000), and servers that speak for themselves: gRPC, WebSocket, and raw TCP with odd manners.

    /app/upload     answers the length and SHA-256 of what was sent
    /app/facts      the method, the headers and the HTTP version, as JSON
    /app/events     five server-sent events, one every 0.2 s
    /app/poll?s=N   says nothing for N seconds, then "done"
    /app/slow       a body of ten pieces, one every 0.1 s
    others          git's own back end

    9001  resets after the first bytes          9004  takes the connection and says nothing
    9002  sends everything back after the end   9005  speaks first, then echoes
    9003  ends its own direction, then tells how much came
"""

import asyncio
import hashlib
import http.server
import json
import os
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse

import grpc
import websockets

ADDRESSES = ("93.184.218.10", "2606:2800:220:3::10")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            return
        left = int(self.headers.get("content-length", 0))
        while left:
            data = self.rfile.read(min(left, 1 << 16))
            if not data:
                raise ConnectionError
            left -= len(data)
            yield data

    def answer(self, data, kind="text/plain"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def pieces(self, kind, pause, texts):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in texts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            time.sleep(pause)
        self.wfile.write(b"0\r\n\r\n")

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if not url.path.startswith("/app/"):
            self.git(url)
            return
        digest, length = hashlib.sha256(), 0
        for data in self.body():
            digest.update(data)
            length += len(data)
        if url.path == "/app/upload":
            self.answer(f"{length} {digest.hexdigest()}\n".encode())
        elif url.path == "/app/facts":
            facts = {"method": self.command, "headers": {k.lower(): v for k, v in self.headers.items()}, "length": length}
            self.answer(json.dumps(facts).encode(), "application/json")
        elif url.path == "/app/events":
            self.pieces("text/event-stream", 0.2, [f"id: {i}\ndata: {time.time()}\n\n".encode() for i in range(5)])
        elif url.path == "/app/slow":
            self.pieces("text/plain", 0.1, [b"%d\n" % i for i in range(10)])
        elif url.path == "/app/poll":
            time.sleep(float(query["s"]))
            self.answer(b"done\n")
        else:
            self.send_error(404)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = serve

    def git(self, url):
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": "/srv/git", "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": url.path,
               "QUERY_STRING": url.query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("content-type", ""),
               "REMOTE_ADDR": "farm", "REMOTE_USER": "farm", "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
               "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", "")}
        if "content-length" in self.headers:
            env["CONTENT_LENGTH"] = self.headers["content-length"]
        cgi = subprocess.Popen(["git", "http-backend"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

        def feed():
            for data in self.body():
                cgi.stdin.write(data)
            cgi.stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        status, headers = 200, []
        while (line := cgi.stdout.readline().strip()):
            name, _, value = line.decode().partition(": ")
            if name == "Status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := cgi.stdout.read1(1 << 16):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")
        feeder.join()
        cgi.wait()


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


# --- raw TCP

class Reset(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(100)
        self.request.sendall(b"before")
        time.sleep(0.3)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()


class AfterEnd(socketserver.BaseRequestHandler):
    def handle(self):
        got = b""
        while data := self.request.recv(1 << 16):
            got += data
        self.request.sendall(got)


class EndsFirst(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"that is all")
        self.request.shutdown(socket.SHUT_WR)
        n = 0
        while data := self.request.recv(1 << 16):
            n += len(data)
        with open("/srv/came", "w") as f:
            f.write(str(n))


class Silent(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(1 << 16):
            pass


class SpeaksFirst(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello\n")
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


def tcp(address, port, handler):
    class Listener(Server):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = Listener((address, port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


# --- gRPC: bytes in, bytes out

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        kinds = {"/farm.Echo/One": grpc.unary_unary_rpc_method_handler(lambda data, c: self.facts(c) or data),
                 "/farm.Echo/Down": grpc.unary_stream_rpc_method_handler(self.down),
                 "/farm.Echo/Up": grpc.stream_unary_rpc_method_handler(lambda many, c: b"%d" % sum(len(m) for m in many)),
                 "/farm.Echo/Both": grpc.stream_stream_rpc_method_handler(lambda many, c: (m for m in many)),
                 "/farm.Echo/Fails": grpc.unary_unary_rpc_method_handler(
                     lambda data, c: c.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today"))}
        return kinds.get(details.method)

    @staticmethod
    def facts(context):
        context.set_trailing_metadata([("got-injected", dict(context.invocation_metadata()).get("x-injected", "none"))])

    @staticmethod
    def down(data, context):
        n, size, pause = (float(x) for x in data.split())
        for i in range(int(n)):
            yield bytes([i % 256]) * int(size)
            time.sleep(pause)


def serve_grpc():
    import concurrent.futures
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(64), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers([Echo()])
    with open("/srv/tls.key", "rb") as key, open("/srv/tls.pem", "rb") as pem:
        credentials = grpc.ssl_server_credentials([(key.read(), pem.read())])
    for address in ("93.184.218.10", "[2606:2800:220:3::10]"):
        server.add_secure_port(f"{address}:50051", credentials)
        server.add_insecure_port(f"{address}:50052")
    server.start()
    return server


# --- WebSocket

async def echo(socket_):
    async for message in socket_:
        await socket_.send(message)


async def serve_websockets():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/srv/tls.pem", "/srv/tls.key")
    for address in ADDRESSES:
        await websockets.serve(echo, address, 8765, ssl=context, max_size=None)
        await websockets.serve(echo, address, 8766, max_size=None)
    await asyncio.Future()


for where in ADDRESSES:
    for number, kind in ((9001, Reset), (9002, AfterEnd), (9003, EndsFirst), (9004, Silent), (9005, SpeaksFirst)):
        tcp(where, number, kind)
front = Server(("127.0.0.1", 9000), Handler)
threading.Thread(target=front.serve_forever, daemon=True).start()
keep = serve_grpc()
asyncio.run(serve_websockets())
