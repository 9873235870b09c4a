"""
A server of HTTP/2 for the tests of opened connections, and what a client inside needs of libraries.

It tells, as JSON, what arrived of each request, and does other things on the paths that are made for it. Like teller.py it runs
in the world outside, in threads of the test's process.
"""

import collections
import contextlib
import hashlib
import importlib.util
import io
import json
import pathlib
import socket
import ssl
import struct
import subprocess
import tarfile
import threading
import zipfile

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

import teller
import world as w

PORT = 4450
RESET = struct.pack("ii", 1, 0)


def serve(world, port, handle):
    """handle(socket) in a thread for each connection that comes to the port outside."""
    ready = threading.Event()

    def run():
        w.enter(world.netns)
        s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", port))
        s.listen(512)
        ready.set()
        while True:
            c, _ = s.accept()
            threading.Thread(target=handle, args=(c,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    assert ready.wait(30)


class Server:
    def __init__(self, world, certificate):
        self.certificate = certificate
        self.lock = threading.Lock()
        self.requests = []          # (method, path) as they came
        self.resets = []            # (path, code) of the client's
        self.goaways = []           # codes
        self.connections = 0
        self.live = []
        serve(world, PORT, self.handle)

    def clear(self):
        with self.lock:
            self.requests.clear()
            self.resets.clear()
            self.goaways.clear()
            self.connections = 0

    def handle(self, sock):
        with self.lock:
            self.connections += 1
            number = self.connections
        with contextlib.suppress(OSError, ssl.SSLError), sock:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            context.set_alpn_protocols(["h2"])
            tls = context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False)
            if tls.selected_alpn_protocol() == "h2":
                with tls:
                    connection = Connection(self, tls, number)
                    with self.lock:
                        self.live.append(connection)
                    connection.run()

    def do(self, what):
        """Calls what(connection) for the last one that is there."""
        with self.lock:
            connection = self.live[-1]
        with connection.lock:
            what(connection)
            connection.flush()


class Connection:
    def __init__(self, server, tls, number):
        self.server, self.tls, self.number = server, tls, number
        self.lock = threading.Lock()
        self.c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="latin-1"))
        self.streams = {}
        self.waiting = {}           # path -> stream
        self.out = collections.defaultdict(bytes)
        self.trailers = {}

    def flush(self):
        self.tls.sendall(self.c.data_to_send())

    def run(self):
        with self.lock:
            self.c.initiate_connection()
            self.flush()
        while data := self.tls.recv(65536):
            with self.lock:
                try:
                    for event in self.c.receive_data(data):
                        self.on(event)
                    self.flush()
                except h2.exceptions.ProtocolError:
                    self.flush()
                    return

    def on(self, e):
        if isinstance(e, h2.events.RequestReceived):
            self.streams[e.stream_id] = {"fields": e.headers, "body": 0, "hash": hashlib.sha256(), "trailers": []}
            head = dict(e.headers)
            with self.server.lock:
                self.server.requests.append((head[":method"], head[":path"]))
        elif isinstance(e, h2.events.DataReceived):
            s = self.streams[e.stream_id]
            s["body"] += len(e.data)
            s["hash"].update(e.data)
            if not dict(s["fields"])[":path"].startswith("/hold"):
                self.c.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        elif isinstance(e, h2.events.TrailersReceived):
            self.streams[e.stream_id]["trailers"] = e.headers
        elif isinstance(e, h2.events.StreamEnded):
            self.answer(e.stream_id, self.streams[e.stream_id])
        elif isinstance(e, h2.events.StreamReset):
            with self.server.lock:
                self.server.resets.append((dict(self.streams[e.stream_id]["fields"])[":path"], int(e.error_code)))
            self.out.pop(e.stream_id, None)
        elif isinstance(e, h2.events.WindowUpdated):
            for stream in list(self.out) if e.stream_id == 0 else [e.stream_id]:
                self.push(stream)
        elif isinstance(e, h2.events.ConnectionTerminated):
            with self.server.lock:
                self.server.goaways.append(int(e.error_code))

    def push(self, stream):
        """What the windows let through of a body; its end behind it."""
        out = self.out.get(stream)
        while out:
            n = min(self.c.local_flow_control_window(stream), self.c.max_outbound_frame_size, len(out))
            if n == 0:
                self.out[stream] = out
                return
            self.c.send_data(stream, out[:n])
            out = out[n:]
        if self.out.pop(stream, None) is None:
            return
        if stream in self.trailers:
            self.c.send_headers(stream, self.trailers.pop(stream), end_stream=True)
        else:
            self.c.end_stream(stream)

    def say(self, stream, status, body, *fields):
        self.c.send_headers(stream, [(":status", str(status)), *fields])
        self.out[stream] = b"" if dict(self.streams[stream]["fields"])[":method"] == "HEAD" else body
        self.push(stream)

    def answer(self, stream, s):
        head = dict(s["fields"])
        path = head[":path"].split("?")[0]
        if path == "/reset":
            self.c.reset_stream(stream, int(head[":path"].split("?")[1]))
        elif path == "/wait":
            self.c.send_headers(stream, [(":status", "200")])
            self.c.send_data(stream, b"first")
            self.waiting[path] = stream
        elif path == "/silent":
            self.waiting[path] = stream
        elif path == "/drop":
            self.tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            raise OSError("dropped")
        elif path == "/goaway":
            self.say(stream, 200, b"the last one")
            self.c.close_connection(h2.errors.ErrorCodes.NO_ERROR, last_stream_id=stream)
        elif path == "/hint":
            self.c.send_headers(stream, [(":status", "103"), ("link", "</style.css>")])
            self.say(stream, 200, b"after a hint")
        elif path == "/trailers":
            self.trailers[stream] = [("x-sum", "42"), ("x-echo", head.get("x-key", "none"))]
            self.say(stream, 200, b"with trailers")
        elif path.startswith("/bytes/"):
            self.say(stream, 200, bytes(range(256)) * (int(path.split("/")[2]) // 256))
        else:
            about = {"connection": self.number, "fields": s["fields"], "body": s["body"], "sha256": s["hash"].hexdigest(),
                     "trailers": s["trailers"]}
            self.say(stream, 200, json.dumps(about).encode(), ("content-type", "application/json"),
                     ("x-echo", head.get("x-key", "none")))


# --- inside ----------------------------------------------------------------------------------------------------------

def package(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def python_libraries(*names):
    """A zip of packages without anything compiled, for PYTHONPATH."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name in names:
            root = package(name)
            for path in root.rglob("*"):
                if path.suffix in (".py", ".pem", ".json"):
                    z.write(path, path.relative_to(root.parent))
    return out.getvalue()


def grpc_library():
    """A tar of grpcio with the shared libraries that it needs; the image is of the same release as the machine."""
    root = package("grpc")
    extension = next(root.glob("_cython/cygrpc*.so"))
    listed = subprocess.run(["ldd", extension], check=True, capture_output=True, text=True).stdout
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name in ("grpc", "six"):
            found = pathlib.Path(importlib.util.find_spec(name).origin)
            path = found.parent if found.name == "__init__.py" else found
            tar.add(path, f"grpc/{path.name}", filter=lambda i: None if "__pycache__" in i.name else i)
        for line in listed.splitlines():
            path = line.partition("=> ")[2].split(" ")[0]
            if path and not path.rsplit("/", 1)[-1].startswith(("libc.", "libm.", "libpthread.", "ld-")):
                tar.add(pathlib.Path(path).resolve(), f"grpc/lib/{pathlib.Path(path).name}")
    return out.getvalue()


GRPC_PORT = 4451

GRPC_SERVER = """
import sys, time
from concurrent import futures
import grpc

class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        name = details.method
        fields = dict(details.invocation_metadata)
        def tell(context):
            context.set_trailing_metadata((("x-echo", fields.get("authorization", "none")),))
            return (name + " " + fields.get("authorization", "none")).encode()
        def unary(request, context):
            if name.endswith("/Fail"):
                context.abort(grpc.StatusCode.DATA_LOSS, "as asked for")
            if name.endswith("/Slow"):
                while context.is_active():
                    time.sleep(0.02)
                print("cancelled", flush=True)
            return tell(context) + b" " + request[:100]
        def split(request, context):
            for i in range(int(request)):
                yield b"%d " % i + tell(context)
        def sum_(requests, context):
            return b"%d " % sum(len(r) for r in requests) + tell(context)
        def chat(requests, context):
            for r in requests:
                yield r[::-1]
            tell(context)
        kind = name.rsplit("/", 1)[1]
        if kind == "Split":
            return grpc.unary_stream_rpc_method_handler(split)
        if kind == "Sum":
            return grpc.stream_unary_rpc_method_handler(sum_)
        if kind == "Chat":
            return grpc.stream_stream_rpc_method_handler(chat)
        return grpc.unary_unary_rpc_method_handler(unary) if kind in ("Get", "Put", "Fail", "Slow") else None

port, pem, key = sys.argv[1:]
server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[Handler()])
server.add_secure_port(f"[::]:{port}", grpc.ssl_server_credentials([(open(key, "rb").read(), open(pem, "rb").read())]))
server.start()
print("ready", flush=True)
sys.stdin.read()
server.stop(0)
"""


@contextlib.contextmanager
def grpc_server(world, certificate):
    """A gRPC server outside; its standard output."""
    out = []

    def run():
        w.enter(world.netns)
        out.append(subprocess.Popen(["/usr/bin/python3", "-c", GRPC_SERVER, str(GRPC_PORT), *map(str, certificate)], text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    process = out[0]
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.stdout
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def certificate(world):
    return teller.certificate(world.home, "h2", ["allowed.test", "other.test"])
