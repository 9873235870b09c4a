"""
The log of decisions: each denial and each connection that a rule notes is in it, or is counted in it; and so are bytes and
connections, whatever dies meanwhile.
"""

import json
import subprocess
import threading
import time

import world as w
from test_policy import attempt, body, get, network, status, tls


def log(api, sb, **query):
    r = api.get(f"/v1/sandboxes/{sb.id}/network/log", params=query)
    assert r.status_code == 200, r.text
    return r.json()


def all_lines(api, sb):
    """Once the lines add up to the counters."""
    give_up = time.monotonic() + 30
    while True:
        n, items = network(api, sb), log(api, sb, limit=1000)["items"]
        told = sum(x["count"] + x["missed"] for x in items)
        if told == n["denied"] + n["noted"] + n["injected"]:
            return n, items
        assert told < n["denied"] + n["noted"] + n["injected"] and time.monotonic() < give_up, (told, n)
        time.sleep(0.2)


RULES = {"rules": [{"name": "no-evil", "action": "deny", "domains": ["evil.test"]},
                   {"name": "watched", "action": "log", "domains": ["*.wild.test"]},
                   {"action": "allow", "domains": ["allowed.test", "*.wild.test"]}]}


def test_what_was_decided(api, world):
    with api.sandbox(network=RULES) as sb:
        assert body(get(api, sb, "allowed.test"))["address"] == w.ALLOWED
        assert log(api, sb) == {"items": [], "next": 0, "last": 0}
        for _ in range(3):
            assert not tls(api, sb, "evil.test", address=w.EVIL)["ok"]
        assert status(get(api, sb, "other.test", address=w.OTHER)) == 403
        assert body(get(api, sb, "www.wild.test"))["address"] == w.ALLOWED
        assert attempt(api, sb, kind="resolve", name="nowhere.test")["error"] == "gaierror"
        n, items = all_lines(api, sb)
        assert [x["seq"] for x in items] == list(range(1, len(items) + 1))
        assert all(time.time() - 60 < x["at"] < time.time() + 5 and x["revision"] == 1 for x in items)
        kinds = {}
        for x in items:
            key = (x["verdict"], x["reason"], x["rule"], x["protocol"], x["name"], x["address"], x["port"])
            kinds[key] = kinds.get(key, 0) + x["count"]
        dns = {k: v for k, v in kinds.items() if k[3] == "dns"}
        assert dns and all(k[:3] == ("deny", "rule", None) and k[4] == "nowhere.test" and k[5:] == (None, 53) for k in dns)
        assert {k: v for k, v in kinds.items() if k[3] != "dns"} == {
            ("deny", "rule", "no-evil", "tls", "evil.test", w.EVIL, 443): 3,
            ("deny", "rule", None, "http", "other.test", w.OTHER, 80): 1,
            ("allow", "noted", "watched", "http", "www.wild.test", w.ALLOWED, 80): 1,
        }
        assert n["noted"] == 1 and n["denied"] == 4 + sum(dns.values())

        # In pages, after a number, and waiting for what is to come.
        first = log(api, sb, limit=1)
        assert [x["seq"] for x in first["items"]] == [1] and first["next"] == 1 and first["last"] == len(items)
        rest = log(api, sb, after=first["next"])
        assert rest["items"] == items[1:] and rest["next"] == len(items)
        assert log(api, sb, after=rest["next"], wait_s=0.3) == {"items": [], "next": len(items), "last": len(items)}
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_domains": ["other.test"]})
        assert r.json() == {"revision": 2}
        got = []
        waiter = threading.Thread(target=lambda: got.append(log(api, sb, after=rest["next"], wait_s=30)))
        waiter.start()
        assert status(get(api, sb, "allowed.test", address=w.ALLOWED)) == 403
        waiter.join(40)
        line = got[0]["items"][0]
        assert (line["revision"], line["name"], line["rule"], line["seq"]) == (2, "allowed.test", None, len(items) + 1)
    for query in ({"limit": 0}, {"after": -1}, {"wait_s": "x"}):
        assert api.get(f"/v1/sandboxes/{sb.id}/network/log", params=query).status_code == 400


def test_a_flood_is_counted(api, world):
    """Many different ones at once: few lines, and not one is lost from the sums."""
    script = ("import socket\nfor i in range(600):\n s=socket.create_connection(('%s',80))\n"
              " s.sendall(b'GET / HTTP/1.1\\r\\nHost: h%%d.test\\r\\n\\r\\n' %% (i %% 300))\n"
              " while s.recv(4096): pass\n s.close()" % w.EVIL)
    with api.sandbox(network=RULES) as sb:
        assert api.run(sb, ["python3", "-c", script], timeout=300)["exec"]["exit"]["code"] == 0
        n, items = all_lines(api, sb)
        assert n["denied"] == 600
        assert len(items) < 400 and sum(x["missed"] for x in items) > 0
    assert not world.went_to(w.EVIL)


def test_nothing_is_forgotten(api, world, daemon):
    with api.sandbox(network=RULES) as sb:
        assert body(get(api, sb, "allowed.test"))["address"] == w.ALLOWED
        assert status(get(api, sb, "evil.test", address=w.EVIL)) == 403
        before, items = all_lines(api, sb)
        time.sleep(3)               # totals are told every two seconds
        daemon.kill_role("egress")
        give_up = time.monotonic() + 20
        while not get(api, sb, "allowed.test", timeout=3)["ok"] and time.monotonic() < give_up:
            pass
        now, later = all_lines(api, sb)
        assert later[:len(items)] == items
        assert now["denied"] >= before["denied"] and now["connections"] == before["connections"] + 1
        assert now["sent_bytes"] > before["sent_bytes"] > 0 and now["received_bytes"] > before["received_bytes"] > 0
        daemon.kill_role("node")
        give_up = time.monotonic() + 20
        while api.get(f"/v1/sandboxes/{sb.id}/network/log").status_code != 200 and time.monotonic() < give_up:
            time.sleep(0.2)
        assert log(api, sb)["items"] == later
        assert status(get(api, sb, "evil.test", address=w.EVIL)) == 403
        now, later = all_lines(api, sb)
        assert api.post(f"/v1/sandboxes/{sb.id}/terminate").status_code == 200
        give_up = time.monotonic() + 20
        while network(api, sb)["connections_open"] and time.monotonic() < give_up:
            time.sleep(0.1)
        after, kept = all_lines(api, sb)
        assert kept == later
        same = ("sent_bytes", "received_bytes", "connections", "denied", "noted", "dns_queries", "revision")
        assert {k: after[k] for k in same} == {k: now[k] for k in same}
    assert api.get(f"/v1/sandboxes/{sb.id}/network/log").status_code == 404
    assert not list((daemon.data_dir / "node" / ".network").glob(sb.id + "*"))


def test_events(api, world):
    seen = []

    def read():
        with api.stream("GET", f"/v1/sandboxes/{sb.id}/events", timeout=60) as r:
            name = None
            for line in r.iter_lines():
                if line.startswith("event: "):
                    name = line[7:].strip()
                if line.startswith("data: "):
                    seen.append((name, json.loads(line[6:])))

    with api.sandbox(network=RULES) as sb:
        assert status(get(api, sb, "evil.test", address=w.EVIL)) == 403     # before the stream: not in it
        reader = threading.Thread(target=read)
        reader.start()
        give_up = time.monotonic() + 20
        while not seen and time.monotonic() < give_up:
            time.sleep(0.05)
        time.sleep(1)
        assert status(get(api, sb, "other.test", address=w.OTHER)) == 403
        while len(seen) < 2 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert api.post(f"/v1/sandboxes/{sb.id}/terminate").status_code == 200
        reader.join(30)
        names = [name for name, _ in seen]
        assert names[0] == "sandbox" and names[-1] == "exit" and names.count("network") == 1, seen
        line = seen[names.index("network")][1]
        assert (line["verdict"], line["name"], line["address"], line["count"]) == ("deny", "other.test", w.OTHER, 1)


def test_the_command_line(api, world, daemon):
    env = {"QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}

    def quicksand(*words):
        return subprocess.run([daemon.lib_dir / "quicksand", "policy", "log", *words], env=env, capture_output=True, text=True)

    with api.sandbox(network=RULES) as sb:
        assert not tls(api, sb, "evil.test", address=w.EVIL)["ok"]
        _, items = all_lines(api, sb)
        out = quicksand(sb.id)
        assert out.returncode == 0 and out.stdout.endswith(f"deny  tls evil.test ({w.EVIL}) port 443  rule no-evil\n"), out
        assert [json.loads(x) for x in quicksand("--json", sb.id).stdout.splitlines()] == items
        follower = subprocess.Popen([daemon.lib_dir / "quicksand", "policy", "log", "-f", sb.id], env=env, text=True,
                                    stdout=subprocess.PIPE)
        try:
            assert "evil.test" in follower.stdout.readline()
            assert status(get(api, sb, "other.test", address=w.OTHER)) == 403
            assert "http other.test" in follower.stdout.readline()
        finally:
            follower.kill()
            follower.wait()
            follower.stdout.close()
    with api.sandbox() as sb:
        out = quicksand(sb.id)
        assert out.returncode == 1 and "blocked for good" in out.stderr


ECHO = ("import socket,sys,threading\ns=socket.create_connection((sys.argv[1],9999))\nn=int(sys.argv[2])\n"
        "threading.Thread(target=lambda: (s.sendall(b'x'*n), s.shutdown(socket.SHUT_WR))).start()\ngot=0\n"
        "while (d:=s.recv(65536)): got+=len(d)\nprint(got)")


def test_what_a_sandbox_used_and_was_refused(api, world, daemon):
    """To the byte, in both interfaces the same: bytes, connections, denials by rule, name, address and port."""
    env = {"QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    rules = {"rules": [{"name": "no-evil", "action": "deny", "domains": ["evil.test"]}, {"name": "echo", "cidrs": [w.ALLOWED, w.ALLOWED6]},
                       {"domains": ["*.wild.test"]}]}
    with api.sandbox(network=rules) as sb:
        sizes = [0, 1, 70_000, 1_000_003]       # the last is left to the kernel
        for address in (w.ALLOWED, w.ALLOWED6):
            for n in sizes:
                assert api.run(sb, ["python3", "-c", ECHO, address, str(n)])["stdout"] == f"{n}\n"
        assert not tls(api, sb, "evil.test", address=w.EVIL, port=8443)["ok"]
        assert not attempt(api, sb, kind="tcp", address=w.EVIL6, port=22)["ok"]
        assert not attempt(api, sb, kind="udp", address=w.OTHER, port=123)["ok"]
        give_up = time.monotonic() + 30
        while (n := network(api, sb))["connections_open"] and time.monotonic() < give_up:
            time.sleep(0.1)
        assert (n["sent_bytes"], n["received_bytes"]) == (2 * sum(sizes),) * 2
        assert (n["connections"], n["connections_failed"], n["denied"], n["noted"], n["problem"]) == (8, 0, 3, 0, None)
        assert [(d["rule"], d["name"], d["address"], d["port"], d["protocol"]) for d in n["denials"]] == [
            ("no-evil", "evil.test", w.EVIL, 8443, "tls"), (None, None, w.EVIL6, 22, "tcp"), (None, None, w.OTHER, 123, "udp")]
        out = subprocess.run([daemon.lib_dir / "quicksand", "policy", "status", sb.id], env=env, capture_output=True, text=True)
        assert out.returncode == 0 and json.loads(out.stdout) == n, out
        assert sum(x["count"] for x in all_lines(api, sb)[1]) == 3
    with api.sandbox(network=rules) as other:        # of one sandbox, not of all
        n = network(api, other)
        assert (n["sent_bytes"], n["connections"], n["denied"], n["denials"]) == (0, 0, 0, [])
