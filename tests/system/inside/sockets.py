"""Sockets between processes of one sandbox. Each check_ function runs by itself, as root and as an ordinary user."""

import array
import errno
import http.server
import os
import select
import socket
import socketserver
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

from libc import in_child, refused

ROOT = os.geteuid() == 0
os.chdir(tempfile.mkdtemp())


def echo_once(listener):
    def serve():
        c, _ = listener.accept()
        with c:
            while data := c.recv(65536):
                c.sendall(data)

    threading.Thread(target=serve, daemon=True).start()


def exchange(client, size=300000):
    data = os.urandom(size)
    threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)), daemon=True).start()
    got = b""
    while part := client.recv(65536):
        got += part
    assert got == data


def check_tcp():
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "127.9.8.7")):
        with socket.create_server((address, 0), family=family) as s:
            echo_once(s)
            with socket.create_connection(s.getsockname()[:2]) as c:
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                assert len(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)) == 104
                exchange(c)


def check_servers_on_every_address():
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as s:
        port = s.getsockname()[1]
        for address in ("127.0.0.1", "::1", "localhost"):
            echo_once(s)
            with socket.create_connection((address, port)) as c:
                exchange(c, 1000)


def check_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as a, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as b:
        a.bind(("127.0.0.1", 0))
        b.sendto(b"x" * 60000, a.getsockname())
        data, sender = a.recvfrom(65536)
        assert data == b"x" * 60000
        a.sendto(b"back", sender)
        assert b.recv(10) == b"back"


def check_one_port_for_several_processes():
    first = socket.create_server(("127.0.0.1", 0), reuse_port=True)
    second = socket.create_server(first.getsockname(), reuse_port=True)
    for _ in range(20):
        with socket.create_connection(first.getsockname()):
            ready, _, _ = select.select([first, second], [], [], 10)
            ready[0].accept()[0].close()
    first.close()
    second.close()


def check_low_ports():
    """A server may listen where its users expect it, as root."""
    if ROOT:
        socket.create_server(("127.0.0.1", 80)).close()


def check_nobody_listens():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        refused(errno.ECONNREFUSED, socket.create_connection, s.getsockname())


def check_the_outside_is_told_at_once():
    begin = time.monotonic()
    for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family) as s:
            refused((errno.ENETUNREACH, errno.ECONNREFUSED, errno.EHOSTUNREACH), s.connect, (address, 80))
    try:
        socket.getaddrinfo("host.example.com", 80)
    except socket.gaierror:
        pass
    else:
        raise AssertionError("a name of the outside was resolved")
    assert time.monotonic() - begin < 20


def check_names():
    addresses = {a[4][0] for a in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)}
    assert addresses == {"127.0.0.1", "::1"}, addresses
    assert socket.gethostbyname(socket.gethostname()).startswith("127.")
    assert socket.gethostname() == os.uname().nodename == open("/etc/hostname").read().strip()
    assert socket.getservbyname("domain") == 53 if os.path.exists("/etc/services") else True


def check_interfaces():
    assert socket.if_nameindex() == [(1, "lo")]
    assert subprocess.run(["cat", "/proc/net/tcp", "/proc/net/dev", "/proc/net/route"], stdout=subprocess.DEVNULL).returncode == 0


def check_unix_sockets():
    for name in ("path", f"\0abstract-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(name)
            s.listen()
            echo_once(s)
            with socket.socket(socket.AF_UNIX) as c:
                c.connect(name)
                exchange(c)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        a.send(b"one")
        a.send(b"two")
        assert (b.recv(100), b.recv(100)) == (b"one", b"two")


def check_descriptors_and_credentials_travel():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    r, w = os.pipe()
    in_child(lambda: a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w]))]))
    os.close(w)
    _, ancillary, _, _ = b.recvmsg(10, 1024)
    kinds = {kind: data for _, kind, data in ancillary}
    pid, uid, gid = struct.unpack("3i", kinds[socket.SCM_CREDENTIALS])
    assert pid > 1 and (uid, gid) == (os.getuid(), os.getgid())
    fd, = array.array("i", kinds[socket.SCM_RIGHTS])
    os.write(fd, b"through")
    assert os.read(r, 100) == b"through"
    pid, uid, gid = struct.unpack("3i", a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert (pid, uid, gid) == (os.getpid(), os.getuid(), os.getgid())


def check_an_http_server_and_its_client():
    with open("page", "w") as f:
        f.write("served")
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}/page"
        assert urllib.request.urlopen(url, timeout=10).read() == b"served"
        assert subprocess.check_output(["curl", "-fsS", url]) == b"served"
        server.shutdown()


def check_a_forking_server():
    class Upper(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(self.rfile.readline().upper())

    with socketserver.ForkingTCPServer(("127.0.0.1", 0), Upper) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for _ in range(10):
            with socket.create_connection(server.server_address) as c:
                c.sendall(b"hello\n")
                assert c.makefile().readline() == "HELLO\n"
        server.shutdown()


def check_tls_starts():
    context = ssl.create_default_context()
    assert context.cert_store_stats()["x509_ca"] > 50           # the image's certificates are found


def check_families_that_are_not_there():
    for family in (socket.AF_VSOCK, socket.AF_PACKET, 38, 44):  # AF_ALG, AF_XDP
        refused(errno.EAFNOSUPPORT, socket.socket, family, socket.SOCK_RAW if family == socket.AF_PACKET else socket.SOCK_STREAM)
    refused(errno.EPERM, socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def check_pings_of_the_kernel():
    """ICMP without rights, which ping uses: the kernel answers on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.settimeout(10)
        s.sendto(struct.pack("!BBHHH", 8, 0, 0, 0, 1) + b"ping", ("127.0.0.1", 0))
        assert s.recv(100)[8:] == b"ping"
