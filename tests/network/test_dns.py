"""
The resolver of a sandbox, by datagrams and by TCP: what it answers, what it never says, how much it takes.
"""

import json
import pathlib
import socket
import struct
import time

import pytest

import world as w
from test_policy import network

INSIDE = (pathlib.Path(__file__).parent / "inside_dns.py").read_text()
A, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, HTTPS, IXFR, AXFR, ANY = 1, 5, 6, 12, 15, 16, 28, 33, 65, 251, 252, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16


def question(name, kind=A, flags=0x0100, cls=1, opt=None, version=0, ident=7, options=b""):
    labels = b"".join(bytes([len(p)]) + p for p in name.encode().split(b".")) + b"\0"
    extra = b"" if opt is None else struct.pack("!BHHBBHH", 0, 41, opt, 0, version, 0, len(options)) + options
    return struct.pack("!HHHHHH", ident, flags, 1, 0, 0, len(extra) > 0) + labels + struct.pack("!HH", kind, cls) + extra


class Answer:
    def __init__(self, raw):
        self.size = len(raw)
        self.id, flags, questions, count, _, extra = struct.unpack("!HHHHHH", raw[:12])
        assert flags & 0x8000
        self.code, self.truncated, self.addresses, self.opt, self.blocked = flags & 15, bool(flags & 0x200), [], None, False
        at = 12
        for _ in range(questions):
            while raw[at]:
                at += 1 + raw[at]
            at += 5
        for _ in range(count + extra):
            at += 2 if raw[at] >= 0xc0 else 1
            kind, size, high, _, _, n = struct.unpack("!HHBBHH", raw[at:at + 10])
            data = raw[at + 10:at + 10 + n]
            at += 10 + n
            if kind == 41:
                self.opt, self.code = size, self.code | high << 4
                self.blocked = data == b"\0\x0f\0\2\0\x0f"
            else:
                self.addresses.append(socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, data))
        assert at == len(raw)


def ask(api, sb, *queries, way="udp", **more):
    """None where nothing came back."""
    r = api.run(sb, ["python3", "-c", INSIDE, json.dumps({"way": way, "queries": [q.hex() for q in queries], **more})], timeout=120)
    assert r["exec"]["exit"]["code"] == 0, r
    return [Answer(bytes.fromhex(a)) if a else None for a in json.loads(r["stdout"])]


@pytest.fixture(scope="module")
def named(daemon):
    with daemon.api.sandbox(network={"allow_domains": ["*.test"]}) as sb:
        yield sb


@pytest.mark.parametrize("way", ["udp", "tcp"])
def test_shapes_of_answers(api, world, named, way):
    rows = [("allowed.test", A, NOERROR, [w.ALLOWED]), ("allowed.test", AAAA, NOERROR, [w.ALLOWED6]),
            ("ALLOWED.Test", A, NOERROR, [w.ALLOWED]), ("other.test", AAAA, NOERROR, []), ("empty.test", A, NOERROR, []),
            ("missing.test", A, NXDOMAIN, []), ("missing.test", AAAA, NXDOMAIN, []), ("broken.test", A, SERVFAIL, []),
            ("not.allowed.example", A, NXDOMAIN, []), ("1.0.0.10.in-addr.arpa", PTR, NXDOMAIN, []),
            ("mixed.test", A, NOERROR, [w.ALLOWED]), ("private.test", A, NOERROR, [])]
    rows += [("allowed.test", kind, NOERROR, []) for kind in (CNAME, SOA, MX, TXT, SRV, HTTPS, ANY)]
    rows += [("allowed.test", kind, REFUSED, []) for kind in (AXFR, IXFR)]
    answers = ask(api, named, *(question(name, kind, ident=i) for i, (name, kind, _, _) in enumerate(rows)), way=way)
    for i, ((name, kind, code, addresses), a) in enumerate(zip(rows, answers)):
        assert (a.id, a.code, a.addresses, a.opt, a.truncated) == (i, code, addresses, None, False), (name, kind)
    assert {kind for _, kind in world.queries} <= {A, AAAA}
    assert not [n for n, _ in world.queries if not n.endswith(".test")]


@pytest.mark.parametrize("way", ["udp", "tcp"])
def test_queries_that_are_none(api, named, way):
    good = question("allowed.test")
    rows = [(good[:4] + b"\0\2" + good[6:], FORMERR), (good[:-1], FORMERR), (good[:20], FORMERR), (good[:12], FORMERR),
            (question("allowed.test", flags=0x2800), NOTIMP), (question("allowed.test", cls=3), REFUSED),
            (question("a" * 63 + ".b c.test"), NXDOMAIN), (good[:12] + b"\xc0\x0c" + good[12:], FORMERR),
            (question("x.allowed.test", opt=1232, options=b"\0\x0a\0\0")[:-1], FORMERR), (good[:11], None),
            (question("allowed.test", flags=0x8100), None), (good, NOERROR)]
    answers = ask(api, named, *(q for q, _ in rows), way=way, timeout=3)
    assert [a and a.code for a in answers] == [code for _, code in rows]


def test_extensions(api, named):
    plain, small, large, version, blocked, rest = ask(
        api, named, question("allowed.test"), question("allowed.test", opt=100), question("allowed.test", opt=4096),
        question("allowed.test", opt=1232, version=1), question("not.allowed.example", opt=1232),
        question("private.test", opt=1232))
    assert plain.opt is None and small.opt == large.opt == 1232 and small.addresses == large.addresses == [w.ALLOWED]
    assert version.code == BADVERS and version.addresses == []
    assert (blocked.code, blocked.blocked) == (NXDOMAIN, True) and (rest.code, rest.addresses, rest.blocked) == (NOERROR, [], True)


def test_large_answers(api, world, named):
    """As many as fit, and by TCP or in a larger datagram all that are told."""
    for name, kind, fit, opt_fit in (("crowd.test", A, 30, 32), ("crowd6.test", AAAA, 17, 32), ("both.test", A, 16, 16),
                                     ("both.test", AAAA, 16, 16)):
        udp, edns = ask(api, named, question(name, kind), question(name, kind, opt=1232))
        tcp, = ask(api, named, question(name, kind), way="tcp")
        assert (len(udp.addresses), udp.truncated) == (fit, fit < opt_fit) and udp.size <= 512
        assert (len(edns.addresses), edns.truncated, len(tcp.addresses), tcp.truncated) == (opt_fit, False, opt_fit, False)
        assert udp.addresses == tcp.addresses[:fit]
    assert world.by_tcp == 0
    udp, = ask(api, named, question("huge.test", AAAA, opt=1232))
    assert len(udp.addresses) == 32 and not udp.truncated and world.by_tcp == 1     # the host's resolver was asked by TCP


def test_names_are_limited(api, world, named):
    long = ".".join(["x" * 50] * 3) + ".test"       # 157 characters are taken, more are not
    ok, refused = ask(api, named, question(long), question("yyy" + long[:49] + "." + long))
    assert (ok.code, refused.code) == (NXDOMAIN, REFUSED)
    assert [n for n, _ in world.queries if "yyy" in n] == []
    last = network(api, named)["denials"][-1]
    assert (last["reason"], last["protocol"], last["port"]) == ("limit", "dns", 53)


def test_the_rate_is_limited(api, world):
    with api.sandbox(network={"allow_domains": ["*.test"]}) as sb:
        answers = ask(api, sb, *(question(f"n{i}.test", ident=i) for i in range(900)), burst=True)
        codes = [a.code for a in answers if a]
        assert set(codes) == {NXDOMAIN, REFUSED} and codes.count(NXDOMAIN) >= 450
        n = network(api, sb)
        assert n["dns_queries"] >= len(codes) and n["denied"] == n["dns_queries"] - len({q for q, _ in world.queries})
        assert n["denials"][-1]["reason"] == "limit"
        time.sleep(1)
        assert ask(api, sb, question("allowed.test"))[0].code == NOERROR


def test_tcp_connections(api, named):
    good = question("allowed.test")
    framed = struct.pack("!H", len(good)) + good
    rows = api.run(named, ["python3", "-c", INSIDE.replace("main(sys.argv[1])", "connections(sys.argv[1])"), framed.hex()], timeout=120)
    assert rows["exec"]["exit"]["code"] == 0, rows
    assert rows["stdout"].split() == ["pieces:1", "pipelined:3", "empty:0", "long:0", "idle:ok", "many:16"]


def test_the_libraries_own_ways(api, named):
    for options in ("use-vc", "edns0", "use-vc edns0", "single-request", ""):
        r = api.run(named, ["sh", "-c", f"RES_OPTIONS='{options}' getent ahosts allowed.test"])
        assert {line.split()[0] for line in r["stdout"].splitlines()} == {w.ALLOWED, w.ALLOWED6}, options


def test_a_change_is_in_force_at_once(api, world):
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        assert ask(api, sb, question("allowed.test"))[0].addresses == [w.ALLOWED]
        assert api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_domains": ["other.test"]}).status_code == 200
        assert [(a.code, a.addresses) for a in ask(api, sb, question("allowed.test"), question("other.test"))] == [
            (NXDOMAIN, []), (NOERROR, [w.OTHER])]


def test_queries_are_in_the_log(api, daemon, named):
    time.sleep(1.1)                     # so many a second are noted
    ask(api, named, question("noted.test", TXT), question("Noted2.Test"))
    lines = [f"egress.query sandbox={named.id} name=noted.test type=16 code=0 addresses=0",
             f"egress.query sandbox={named.id} name=noted2.test type=1 code=3 addresses=0"]
    give_up = time.monotonic() + 15
    while missing := [line for line in lines if line not in daemon.log.read_text(errors="replace")]:
        assert time.monotonic() < give_up, missing
        time.sleep(0.1)
