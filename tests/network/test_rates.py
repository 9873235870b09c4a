"""
How much in a second, and how many at once. What is measured is what the daemon counted over a time that the test took itself: a slow machine makes
that time longer and never the bound smaller.
"""

import hashlib
import json
import time

import pytest

import world as w
from test_policy import body, get, network, status

RATE = 100_000                  # bytes a second
SLACK = 25_000 + 65_536         # what was saved up, and the read that was begun with the last of it
BITS = 8 * RATE

DOWNLOAD = ("import urllib.request,hashlib\nd=urllib.request.urlopen('http://allowed.test/bytes/%d').read()\n"
            "print(len(d), hashlib.sha256(d).hexdigest())")
UPLOAD = ("import urllib.request,json\nr=urllib.request.urlopen('http://allowed.test/up',data=b'u'*%d)\nprint(json.load(r)['body'])")


def policy(**bandwidth):
    return {"allow_domains": ["allowed.test"], "bandwidth": bandwidth}


def start(api, sb, script):
    r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", script]})
    assert r.status_code == 201, r.text
    return r.json()["id"]


def result(api, sb, i):
    x = api.get(f"/v1/sandboxes/{sb.id}/execs/{i}", params={"wait": "exit", "timeout_s": 100}, timeout=120).json()
    assert x["exit"]["code"] == 0, api.get(f"/v1/sandboxes/{sb.id}/execs/{i}/stderr", params={"follow": "false"}).text
    return api.get(f"/v1/sandboxes/{sb.id}/execs/{i}/stdout", params={"follow": "false"}).text


def watch(api, sb, field, begun, least):
    """Looks at a counter until it is at least `least`: no two looks may be further apart than the rate allows."""
    looks = [(begun, begun, 0)]
    give_up = time.monotonic() + 90
    while looks[-1][2] < least:
        assert time.monotonic() < give_up, looks[-1]
        before = time.monotonic()
        n = network(api, sb)[field]
        looks.append((before, time.monotonic(), n))
        time.sleep(0.1)
    for early in looks[:: max(1, len(looks) // 20)]:
        for late in looks:
            assert late[2] - early[2] <= RATE * (max(0, late[1] - early[0])) + SLACK, (early, late)
    return looks[-1][2]


# Requests looked at, bytes left to the kernel, TLS opened: each has its own way through egress.
KINDS = {"name": ("http://allowed.test", {"allow_domains": ["allowed.test"]}), "address": (f"http://{w.ALLOWED}", {"allow_cidrs": [w.ALLOWED]}),
         "opened": ("https://allowed.test", {"rules": [{"domains": ["allowed.test"], "methods": ["GET", "POST"]}]})}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way,script,field", [("down_bits_s", DOWNLOAD, "received_bytes"), ("up_bits_s", UPLOAD, "sent_bytes")],
                         ids=["down", "up"])
def test_a_connection_is_held_to_the_rate(api, world, way, script, field, kind):
    size = 20_000_000           # would take more than three minutes
    url, free = KINDS[kind]
    script = script.replace("http://allowed.test", url)
    with api.sandbox(network={**free, "bandwidth": {way: BITS}}) as sb:
        assert api.get(f"/v1/sandboxes/{sb.id}/policy").json()["bandwidth"] == {"up_bits_s": None, "down_bits_s": None, way: BITS}
        begun = time.monotonic()
        i = start(api, sb, script % size)
        watch(api, sb, field, begun, 5 * RATE)
        # It is lifted while they go on: nothing is lost, and nothing holds them any more.
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json=free)
        assert r.json() == {"revision": 2}, r.text
        out = result(api, sb, i).split()
        want = (bytes(range(256)) * 256 * (size // 65536 + 1))[:size]
        assert out == ([str(size), hashlib.sha256(want).hexdigest()] if way == "down_bits_s" else [str(size)])
        assert network(api, sb)[field] >= size
        assert api.get(f"/v1/sandboxes/{sb.id}/policy").json()["bandwidth"] is None


def test_a_limit_comes_while_they_go_on(api, world, daemon):
    """By a change, and again when egress comes back."""
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        i = start(api, sb, DOWNLOAD % 3_000_000)
        assert result(api, sb, i).split()[0] == "3000000"
        assert api.put(f"/v1/sandboxes/{sb.id}/policy", json=policy(down_bits_s=BITS)).json() == {"revision": 2}
        for _ in range(2):
            had, begun = network(api, sb)["received_bytes"], time.monotonic()
            start(api, sb, DOWNLOAD % 20_000_000)
            give_up = begun + 90
            while (n := network(api, sb)["received_bytes"]) < had + 2 * RATE:
                assert time.monotonic() < give_up
                time.sleep(0.05)
            assert n - had <= RATE * (time.monotonic() - begun) + SLACK
            daemon.kill_role("egress")
            give_up = time.monotonic() + 60
            while not get(api, sb, "allowed.test")["ok"]:
                assert time.monotonic() < give_up


def test_what_comes_with_the_first_bytes_counts(api, world):
    """Many short connections are no way around it, and none of them is forgotten."""
    script = ("import socket,threading,json\n"
              "def one(out):\n s=socket.create_connection(('allowed.test',80))\n"
              " s.sendall(b'POST / HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\nContent-Length: 30000\\r\\n\\r\\n'+b'x'*30000)\n"
              " d=b''\n while (p:=s.recv(4096)): d+=p\n out.append(d.startswith(b'HTTP/1.1 200'))\n"
              "out=[]\nts=[threading.Thread(target=one,args=(out,)) for _ in range(20)]\n"
              "[t.start() for t in ts]; [t.join() for t in ts]\nprint(json.dumps(out))")
    with api.sandbox(network=policy(up_bits_s=BITS)) as sb:
        begun = time.monotonic()
        i = start(api, sb, script)
        watch(api, sb, "sent_bytes", begun, 600_000)
        assert json.loads(result(api, sb, i)) == [True] * 20


def test_connections_share(api, world):
    script = ("import socket,selectors\nsel=selectors.DefaultSelector()\nn={}\n"
              "for i in range(8):\n s=socket.create_connection(('allowed.test',80)); n[s]=0\n"
              " s.sendall(b'GET /bytes/9000000 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); sel.register(s,selectors.EVENT_READ)\n"
              "while min(n.values())<60000:\n for k,_ in sel.select(): n[k.fileobj]+=len(k.fileobj.recv(65536))\n"
              "print(min(n.values()),max(n.values()))")
    with api.sandbox(network=policy(down_bits_s=BITS)) as sb:
        least, most = map(int, result(api, sb, start(api, sb, script)).split())
        assert least >= 60000 and most < 3 * least


def test_datagrams_are_lost_beyond_it(api, world):
    rules = [{"cidrs": [w.ALLOWED], "protocol": "udp"}]
    script = ("import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(('%s',9999)); s.settimeout(0.0)\nn=0\n"
              "for i in range(3000):\n s.send(b'x'*1000)\n"
              " try: n+=len(s.recv(2000))\n except BlockingIOError: pass\n"
              "s.settimeout(1)\ntry:\n while True: n+=len(s.recv(2000))\nexcept OSError: print(n)" % w.ALLOWED)
    with api.sandbox(network={"rules": rules, "bandwidth": {"up_bits_s": BITS}}) as sb:
        begun = time.monotonic()
        got = int(result(api, sb, start(api, sb, script)))
        n = network(api, sb)
        assert 10_000 < n["sent_bytes"] <= RATE * (time.monotonic() - begun) + SLACK
        assert 0 < got <= n["received_bytes"] and n["denied"] == 0
        # Without it they go.
        assert api.put(f"/v1/sandboxes/{sb.id}/policy", json={"rules": rules}).status_code == 200
        had = n["sent_bytes"]
        result(api, sb, start(api, sb, script))
        assert network(api, sb)["sent_bytes"] - had > 1_000_000


@pytest.mark.parametrize("bandwidth,says", [
    ({"up_bits_s": 63_999}, "up_bits_s"), ({"down_bits_s": 10**12 + 1}, "down_bits_s"), ({"up_bits_s": "1000000"}, "up_bits_s"),
    ({"up": 1000000}, "bandwidth"), ([1000000], "bandwidth"), ({"down_bits_s": 0}, "64000"), ({"up_bits_s": 1e6}, "up_bits_s")], ids=str)
def test_numbers_are_checked(api, bandwidth, says):
    r = api.post("/v1/sandboxes", json={"network": {"rules": [], "bandwidth": bandwidth}})
    assert r.status_code in (400, 422), r.text
    assert says in r.json()["error"]["message"] and r.json()["error"]["param"] == "network"


MANY = r"""
import json, socket, sys, time
held = []
for i in range(1024):
    s = socket.create_connection((sys.argv[1], 9999), 30)
    s.sendall(b"x")
    held.append(s)
for s in held:
    s.settimeout(60)
    assert s.recv(1) == b"x"
print("full", flush=True)
def more():
    try:
        with socket.create_connection((sys.argv[1], 9999), 30) as s:
            s.sendall(b"y")
            return s.recv(1).decode() or "end"
    except OSError as e:
        return type(e).__name__
refused = [more() for _ in range(3)]
for s in held[:10]:
    s.close()
again, give_up = more(), time.monotonic() + 30
while again != "y" and time.monotonic() < give_up:
    time.sleep(0.1)
    again = more()
held[10].sendall(b"z")
print(json.dumps([refused, again, held[10].recv(1).decode()]))
"""


def test_the_number_of_connections_is_limited(api, world):
    """The one too many is refused and noted; who had one keeps it, and places become free again."""
    assert {r["name"]: r["value"] for r in api.get("/v1/limits").json()["items"]}["flows"] == 1024
    with api.sandbox(network={"rules": [{"name": "one", "cidrs": [w.ALLOWED]}]}) as sb:
        r = api.run(sb, ["python3", "-c", MANY, w.ALLOWED], timeout=300)
        assert r["exec"]["exit"]["code"] == 0, r
        full, rest = r["stdout"].split("\n")[:2]
        refused, again, kept = json.loads(rest)
        assert (full, refused, again, kept) == ("full", ["ConnectionResetError"] * 3, "y", "z"), r["stdout"]
        n = network(api, sb)
        assert n["denied"] >= 3 and {(d["reason"], d["protocol"], d["address"], d["port"]) for d in n["denials"]} == {("limit", "tcp", w.ALLOWED, 9999)}
        give_up = time.monotonic() + 30
        while not (lines := api.get(f"/v1/sandboxes/{sb.id}/network/log").json()["items"]):
            assert time.monotonic() < give_up
            time.sleep(0.1)
        assert (lines[0]["verdict"], lines[0]["reason"], lines[0]["address"], lines[0]["port"]) == ("deny", "limit", w.ALLOWED, 9999)
        assert status(get(api, sb, "x.test", address=w.ALLOWED)) == 200
        # Of one sandbox: another one has its own.
        with api.sandbox(network={"allow_cidrs": [w.ALLOWED]}) as other:
            assert body(get(api, other, "x.test", address=w.ALLOWED))["address"] == w.ALLOWED
