"""
The test server of src/http (http_echo_server) as a process, and small clients for it.

Used by test_http.py and test_http_abuse.py. Needs no root.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import time

import h2.config
import h2.connection
import h2.events
import h2.settings

import qsdaemon

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class EchoServer:
    def __init__(self, nofile=None):
        self.dir = qsdaemon.make_dir("qs-echo-")
        self.sock = self.dir / "s"
        self.cert = self.dir / "cert.pem"
        self.errors = self.dir / "stderr"
        program = qsdaemon.build_dir() / "tests/system/http_echo_server"

        def limit():
            if nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))

        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [program, "--tls", self.cert, self.dir / "key.pem", "127.0.0.1:0", f"unix:{self.sock}"],
                stdout=subprocess.PIPE, stderr=errors, preexec_fn=limit,
                # Freed memory that the address sanitizer keeps would look like growth.
                env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=4:thread_local_quarantine_size_kb=64"})
        line = self.process.stdout.readline().split()
        assert line and line[0] == b"port", self.errors.read_text()
        self.port = int(line[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise AssertionError("the server has no memory: is it dead?")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connect(self, timeout=20):
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(timeout)
        return s

    def get(self, path):
        """One HTTP/1.1 request on a connection of its own: (status, body)."""
        with self.connect() as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            head, _, body = read_all(s).partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def closed(self):
        return json.loads(self.get("/closed")[1])

    def wait_for(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "did not happen"
            time.sleep(0.02)

    def stop(self):
        """Ends the server; fails if it died before, or a sanitizer had something to say."""
        alive = self.process.poll() is None
        if alive:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self.process.stdout.close()
        errors = self.errors.read_text()
        shutil.rmtree(self.dir)
        assert alive and code == 0, f"exit code {code}: {errors[-4000:]}"
        assert errors == "", errors[-4000:]


def read_all(s):
    """Until the end of the connection, or the socket's timeout."""
    parts = []
    while True:
        try:
            part = s.recv(65536)
        except (ConnectionResetError, TimeoutError):
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)


class H2:
    """An HTTP/2 client that does as it is told, wrong things too."""

    def __init__(self, s, initial_window=None):
        self.s = s
        self.h = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False))
        self.events = []
        self.is_closed = False
        if initial_window is not None:
            self.h.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: initial_window})
        self.h.initiate_connection()
        self.flush()

    def flush(self):
        try:
            self.s.sendall(self.h.data_to_send())
        except (BrokenPipeError, ConnectionResetError):
            self.is_closed = True

    def raw(self, data):
        try:
            self.s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.is_closed = True

    def request(self, path, method="GET", end=True, headers=()):
        stream = self.h.get_next_available_stream_id()
        self.h.send_headers(stream, [(":method", method), (":scheme", "http"), (":path", path),
                                     (":authority", "a"), *headers], end_stream=end)
        self.flush()
        return stream

    def read(self):
        """Events of one read; none once the connection is closed."""
        try:
            data = self.s.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.is_closed = True
            return []
        events = self.h.receive_data(data)
        for e in events:
            if isinstance(e, h2.events.DataReceived) and e.flow_controlled_length:
                self.h.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        self.flush()
        self.events += events
        return events

    def until(self, kind, stream=None):
        """Reads until an event of the kind (of the stream); None if the connection closes first."""
        while True:
            for e in self.events:
                if isinstance(e, kind) and (stream is None or e.stream_id == stream):
                    return e
            if self.is_closed:
                return None
            self.read()

    def status(self, stream):
        e = self.until(h2.events.ResponseReceived, stream)
        return int(dict(e.headers)[b":status"]) if e else None


def frame(kind, flags, stream, payload=b""):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload)
