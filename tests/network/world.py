"""
The world outside: a second network namespace with fake servers and a witness, joined to the test's own by one cable.

Nothing of the real network is there. Every packet that arrives is noted (`seen`), whoever answers it; servers answer on the
addresses of `HOSTS`. All of it runs in threads of the test's process: a socket stays in the namespace it was made in.
"""

import collections
import contextlib
import ctypes
import json
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)

HOST = "93.184.216.1"           # of the machine on which the daemon runs
HOST6 = "2606:2800:220:1::1"
DNS = "93.184.216.53"
ALLOWED = "93.184.216.34"
OTHER = "93.184.216.35"         # allowed as well, by some policies
EVIL = "198.97.190.53"          # nobody allows it
EVIL6 = "2606:2800:220:2::bad"
ALLOWED6 = "2606:2800:220:1::34"
PRIVATE = ["10.9.8.7", "192.168.77.7", "172.16.5.5", "100.64.0.9", "169.254.169.254", "169.254.7.7"]
# Nobody has them; but what goes there is seen.
FOREIGN = ["8.8.8.8", "2001:4860:4860::8888", "203.0.114.9", "fd00:ec2::254", "10.20.0.5", "10.20.0.6"]
HOSTS = [DNS, ALLOWED, OTHER, EVIL, ALLOWED6, EVIL6, *PRIVATE]

# What the authority answers. A list of lists is gone through, one answer a query.
ZONE = {
    "allowed.test": [ALLOWED, ALLOWED6],
    "other.test": [OTHER],
    "www.wild.test": [ALLOWED],
    "deep.er.wild.test": [ALLOWED],
    "wild.test": [ALLOWED],
    "evil.test": [EVIL, EVIL6],
    "six.test": [ALLOWED6],
    "xn--bcher-kva.test": [ALLOWED],
    "private.test": ["10.9.8.7"],
    "mixed.test": ["10.9.8.7", ALLOWED],
    "loop.test": ["127.0.0.1", "::1"],
    "mapped.test": ["::ffff:10.9.8.7"],
    "meta.test": ["169.254.169.254"],
    "host.test": [HOST],
    "many.test": [f"93.184.216.{n}" for n in range(100, 130)],
    "git.test": [ALLOWED],
    "crowd.test": [f"93.184.217.{n}" for n in range(1, 41)],
    "crowd6.test": [f"2606:2800:220:9::{n:x}" for n in range(1, 41)],
    "both.test": [f"93.184.217.{n}" for n in range(1, 41)] + [f"2606:2800:220:9::{n:x}" for n in range(1, 41)],
    "huge.test": [f"2606:2800:220:9::{n:x}" for n in range(1, 101)],
    "empty.test": [],
    "broken.test": None,            # the authority fails
    "alias.test": "allowed.test",   # another name for it
    "alias-inward.test": "private.test",
    "alias-metadata.test": "meta.test",
}


def sh(command):
    subprocess.run(command, shell=True, check=True, stdin=subprocess.DEVNULL)


HOME = None                     # the namespace in which the tests were started


def at_home(command, **options):
    """Runs a command where the tests were started: what is to be fetched comes from there."""
    return subprocess.run(command, preexec_fn=lambda: LIBC.setns(HOME, CLONE_NEWNET), check=True, stdin=subprocess.DEVNULL, **options)


def new_namespace():
    """For the calling thread, and those it starts."""
    if LIBC.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    pathlib.Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net").stat()


def enter(fd):
    """The calling thread goes into another network namespace."""
    if LIBC.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


Packet = collections.namedtuple("Packet", "proto src dst sport dport flags")   # flags: of ICMPv6 the type


def parse(frame):
    kind = struct.unpack("!H", frame[12:14])[0]
    if kind == 0x0800:
        ihl = (frame[14] & 15) * 4
        proto, src, dst = frame[23], socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
        rest = frame[14 + ihl:]
    elif kind == 0x86DD:
        proto, rest = frame[20], frame[54:]
        src, dst = socket.inet_ntop(socket.AF_INET6, frame[22:38]), socket.inet_ntop(socket.AF_INET6, frame[38:54])
    else:
        return None
    sport, dport = struct.unpack("!HH", rest[:4]) if proto in (6, 17) and len(rest) >= 4 else (0, 0)
    flags = rest[13] if proto == 6 and len(rest) > 13 else rest[0] if proto == 58 and rest else 0
    return Packet(proto, src, dst, sport, dport, flags)


class World:
    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.seen = []              # packets that arrived from the machine
        self.queries = []           # names asked of the authority
        self.by_tcp = 0             # queries of the authority that came by TCP
        self.stray = []             # datagrams that were answered from elsewhere
        self.requests = []          # (address, port, protocol, name, first bytes)
        self.zone = {k: list(v) if isinstance(v, list) else v for k, v in ZONE.items()}
        self.turn = collections.Counter()
        self.lock = threading.Lock()
        self.make_certificates()
        ready = threading.Event()
        self.failure = None
        threading.Thread(target=self.run, args=(ready,), daemon=True).start()
        ready.wait(30)
        if self.failure:
            raise self.failure
        sh(f"ip addr add {HOST}/32 dev out0 && ip -6 addr add {HOST6}/128 dev out0 nodad && ip link set out0 up"
           " && ip route add default dev out0 && ip -6 route add default dev out0")
        # The addresses of both ends are known to each other without asking.
        for host in HOSTS + FOREIGN:
            sh(f"ip neigh replace {host} lladdr {self.mac} dev out0 nud permanent")

    # --- set-up in the namespace outside

    def make_certificates(self):
        d = self.home
        names = ",".join(f"DNS:{n},DNS:*.{n}" for n in ("allowed.test", "other.test", "evil.test", "wild.test", "git.test", "test"))
        sh(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=Test-CA"
           f" -keyout {d}/ca.key -out {d}/ca.pem 2>/dev/null &&"
           f" openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout {d}/tls.key"
           f" -out {d}/tls.csr 2>/dev/null && printf 'subjectAltName={names}' > {d}/ext &&"
           f" openssl x509 -req -in {d}/tls.csr -CA {d}/ca.pem -CAkey {d}/ca.key -CAcreateserial -days 3650"
           f" -extfile {d}/ext -out {d}/tls.pem 2>/dev/null")
        self.ca = (d / "ca.pem").read_text()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(d / "tls.pem", d / "tls.key")
        self.tls.set_alpn_protocols(["http/1.1"])

    def run(self, ready):
        try:
            task = threading.get_native_id()
            home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            new_namespace()
            outside = os.open(f"/proc/self/task/{task}/ns/net", os.O_RDONLY)
            LIBC.setns(home, CLONE_NEWNET)
            sh(f"ip link add out0 type veth peer name world netns /proc/{os.getpid()}/fd/{outside}")
            sh("ip link set out0 up")
            near = subprocess.run("ip -br link show out0", shell=True, capture_output=True, text=True, check=True).stdout.split()[2]
            LIBC.setns(outside, CLONE_NEWNET)
            self.netns = outside
            sh("ip link set lo up && ip link set world up && ip route add default dev world && ip -6 route add default dev world")
            for host in HOSTS:
                sh(f"ip addr add {host}/{'128 nodad' if ':' in host else '32'} dev world" if ":" not in host
                   else f"ip -6 addr add {host}/128 dev world nodad")
            for host in (HOST, HOST6):
                sh(f"ip neigh replace {host} lladdr {near} dev world nud permanent")
            self.mac = subprocess.run("ip -br link show world", shell=True, capture_output=True, text=True,
                                      check=True).stdout.split()[2]
            self.witness = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.witness.bind(("world", 0))
            threading.Thread(target=self.watch, daemon=True).start()
            self.dns_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.dns_socket.bind((DNS, 53))
            threading.Thread(target=self.answer_names, daemon=True).start()
            names = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            names.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            names.bind((DNS, 53))
            names.listen(16)
            threading.Thread(target=self.answer_names_by_tcp, args=(names,), daemon=True).start()
            for port in (80, 443, 8080, 8443, 22, 25, 9999):
                self.listen(port)
            for port in (53, 443, 123, 9999):
                self.listen_udp(port)
            self.listen_stray()
        except BaseException as e:      # noqa: BLE001 - handed to the thread that waits
            self.failure = e
        ready.set()

    # --- the witness

    def watch(self):
        while True:
            frame, address = self.witness.recvfrom(65536)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            packet = parse(frame)
            # Neighbours find each other, and routers are looked for: no business of a sandbox.
            if packet is None or packet.proto in (0, 2) or (packet.proto == 58 and packet.flags in range(133, 138)):
                continue
            with self.lock:
                self.seen.append(packet)

    def clear(self):
        with self.lock:
            self.seen.clear()
            self.queries.clear()
            self.requests.clear()

    def went_to(self, *addresses, settle=0.3):
        """Packets that arrived for one of the addresses, once nothing more is on its way."""
        time.sleep(settle)
        with self.lock:
            return [p for p in self.seen if p.dst in addresses]

    def went_anywhere(self, settle=0.3):
        time.sleep(settle)
        with self.lock:
            return [p for p in self.seen if not (p.proto == 17 and p.dst == DNS and p.dport == 53)]

    # --- names

    def answer_names(self):
        while True:
            try:
                data, peer = self.dns_socket.recvfrom(2048)
            except OSError:
                continue
            with contextlib.suppress(Exception):
                answer, room = self.resolve(data), 512
                if data[10:12] == b"\0\1":              # what the asker takes is in a record of its own
                    room, = struct.unpack("!H", data[-8:-6])
                if len(answer) > room:
                    end = 12 + len(data[12:].split(b"\0")[0]) + 5
                    answer = answer[:2] + b"\x83\x80\0\1" + b"\0" * 6 + answer[12:end]
                self.dns_socket.sendto(answer, peer)

    def answer_names_by_tcp(self, s):
        while True:
            c, _ = s.accept()
            with contextlib.suppress(Exception), c:
                c.settimeout(5)
                f = c.makefile("rb")
                answer = self.resolve(f.read(struct.unpack("!H", f.read(2))[0]))
                self.by_tcp += 1
                c.sendall(struct.pack("!H", len(answer)) + answer)

    def resolve(self, data):
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
            at += 1 + data[at]
        question = data[12:at + 5]
        kind = struct.unpack("!H", data[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        with self.lock:
            self.queries.append((name, kind))
            addresses = self.zone.get(name)
            alias = addresses if isinstance(addresses, str) else None
            if alias:
                addresses = self.zone[alias]
            if addresses and isinstance(addresses[0], list):
                turn = self.turn[name, kind]
                self.turn[name, kind] += 1
                addresses = addresses[min(turn, len(addresses) - 1)]
        code = 3 if name not in self.zone else 2 if addresses is None else 0
        records, owner = b"", b"\xc0\x0c"
        count = 0
        if alias:
            owner = b"".join(bytes([len(p)]) + p.encode() for p in alias.split(".")) + b"\0"
            records = b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 0, len(owner)) + owner
            count = 1
        for a in addresses or []:
            family = socket.AF_INET6 if ":" in a else socket.AF_INET
            if kind == (28 if ":" in a else 1):
                raw = socket.inet_pton(family, a)
                records += owner + struct.pack("!HHIH", kind, 1, 0, len(raw)) + raw
                count += 1
        return data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, count, 0, 0) + question + records

    # --- servers

    def listen(self, port):
        s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", port))
        s.listen(512)
        threading.Thread(target=self.accept, args=(s, port), daemon=True).start()

    def listen_udp(self, port):
        for address in (ALLOWED, OTHER, EVIL, ALLOWED6, EVIL6, *PRIVATE):
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((address, port))
            threading.Thread(target=self.echo_udp, args=(s,), daemon=True).start()

    def listen_stray(self):
        """Who asks on port 9998 is answered from another port, and from another address."""
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((ALLOWED, 9998))
        others = []
        for address, port in ((ALLOWED, 9997), (OTHER, 9998)):
            others.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            others[-1].bind((address, port))

        def serve():
            while True:
                data, peer = s.recvfrom(65536)
                for o in others:
                    o.sendto(b"stray", peer)
                self.stray.append(data)

        threading.Thread(target=serve, daemon=True).start()

    def echo_udp(self, s):
        while True:
            data, peer = s.recvfrom(65536)
            s.sendto(b"udp:" + data, peer)

    def accept(self, s, port):
        while True:
            c, _ = s.accept()
            threading.Thread(target=self.serve, args=(c, port), daemon=True).start()

    def note(self, address, port, protocol, name, first):
        with self.lock:
            self.requests.append((address, port, protocol, name, first))

    def serve(self, c, port):
        address = c.getsockname()[0].removeprefix("::ffff:")
        with contextlib.suppress(OSError, ssl.SSLError, ValueError), c:
            c.settimeout(60)
            name, protocol = None, "http"
            if port in (22, 25):
                self.note(address, port, "banner", None, b"")
                c.sendall(b"SSH-2.0-fake\r\n" if port == 22 else b"220 fake ESMTP\r\n")
                while data := c.recv(65536):
                    c.sendall(data)
                return
            if port in (443, 8443):
                names = []
                self.tls.sni_callback = None
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.home / "tls.pem", self.home / "tls.key")
                context.sni_callback = lambda sock, n, ctx: names.append(n)
                c = context.wrap_socket(c, server_side=True)
                name, protocol = (names or [None])[0], "tls"
            if port == 9999:
                self.note(address, port, "raw", None, b"")
                while data := c.recv(65536):
                    c.sendall(data)
                return
            self.http(c, address, port, protocol, name)

    def http(self, c, address, port, protocol, name):
        f = c.makefile("rb")
        while True:
            line = f.readline(65537)
            if not line:
                return
            headers = {}
            while (h := f.readline(65537)) not in (b"\r\n", b"\n", b""):
                k, _, v = h.decode("latin-1").partition(":")
                headers[k.strip().lower()] = v.strip()
            body = f.read(int(headers.get("content-length", 0)))
            method, path, *_ = line.decode("latin-1").split()
            self.note(address, port, protocol, name or headers.get("host"), line)
            if headers.get("upgrade") == "websocket":
                c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                while data := f.read1(65536):
                    c.sendall(data)
                return
            if path.startswith("/bytes/"):
                n = int(path.split("/")[2])
                c.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n".encode())
                block = bytes(range(256)) * 256
                while n > 0:
                    c.sendall(block[:n])
                    n -= len(block)
                continue
            if path.startswith("/drip"):
                c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                for i in range(5):
                    c.sendall(f"event {i} {time.time():.3f}\n".encode())
                    time.sleep(0.3)
                return
            if path.startswith("/redirect"):
                to = "169.254.169.254" if path == "/redirect-inward" else "evil.test"
                c.sendall(f"HTTP/1.1 302 Found\r\nLocation: http://{to}/\r\nContent-Length: 0\r\n\r\n".encode())
                continue
            out = json.dumps({"address": address, "port": port, "protocol": protocol, "sni": name, "method": method, "path": path,
                              "host": headers.get("host"), "upgrade": headers.get("upgrade"), "body": len(body), "fields": headers}).encode()
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + str(len(out)).encode()
                      + b"\r\n\r\n" + out)
            if headers.get("connection") == "close":
                return
