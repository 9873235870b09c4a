"""
What the policy lets out goes out unharmed, and nothing else does: names, addresses, ports.
"""

import hashlib
import json
import pathlib
import subprocess
import time

import pytest

import world as w

INSIDE = (pathlib.Path(__file__).parent / "inside.py").read_text()

BY_NAME = {"allow_domains": ["allowed.test", "*.wild.test", "xn--bcher-kva.test"]}


def attempt(api, sb, **spec):
    r = api.run(sb, ["python3", "-c", INSIDE, json.dumps(spec)])
    assert r["exec"]["exit"]["code"] == 0, r
    return json.loads(r["stdout"])


def http(host, path="/"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


def get(api, sb, host, address=None, port=80, **more):
    return attempt(api, sb, kind="tcp", address=address or host, port=port, data=http(host), **more)


def tls(api, sb, sni, address=None, port=443, **more):
    return attempt(api, sb, kind="tls", address=address or sni, port=port, sni=sni, **more)


def body(answer):
    assert answer["ok"], answer
    return json.loads(answer["data"].partition("\r\n\r\n")[2])


def status(answer):
    assert answer["ok"], answer
    return int(answer["data"].split()[1])


def said(api, sb, i, text):
    """Waits until a command has written a text: a connection that is counted need not be decided yet."""
    give_up = time.monotonic() + 60
    while text not in (out := api.get(f"/v1/sandboxes/{sb.id}/execs/{i}/stdout", params={"follow": "false"}).text):
        assert time.monotonic() < give_up, out
        time.sleep(0.05)


def network(api, sb):
    r = api.get(f"/v1/sandboxes/{sb.id}/network")
    assert r.status_code == 200, r.text
    return r.json()


@pytest.fixture(scope="module")
def named(daemon):
    with daemon.api.sandbox(network=BY_NAME) as sb:
        yield sb


def test_a_name_that_is_allowed(api, world, named):
    assert body(get(api, named, "allowed.test"))["address"] == w.ALLOWED
    assert body(tls(api, named, "allowed.test")) == {
        "address": w.ALLOWED, "port": 443, "protocol": "tls", "sni": "allowed.test", "method": "GET", "path": "/",
        "host": "allowed.test", "upgrade": None, "fields": {"connection": "close", "host": "allowed.test"}, "body": 0}
    assert body(tls(api, named, "www.wild.test"))["sni"] == "www.wild.test"
    assert body(tls(api, named, "deep.er.wild.test"))["sni"] == "deep.er.wild.test"
    assert not world.went_to(w.EVIL, w.OTHER, *w.PRIVATE)


def test_other_ways_to_write_a_name(api, world, named):
    for host in ("ALLOWED.Test", "allowed.test.", "allowed.test:80", "Allowed.TEST.:80"):
        assert body(get(api, named, host, address="allowed.test"))["host"] == host
    assert body(tls(api, named, "xn--bcher-kva.test"))["sni"] == "xn--bcher-kva.test"
    assert body(tls(api, named, "allowed.test", port=8443))["port"] == 8443


def test_where_the_packets_go_does_not_matter(api, world, named):
    """A forged name leads to where the name leads."""
    assert body(tls(api, named, "allowed.test", address=w.EVIL))["address"] == w.ALLOWED
    assert body(get(api, named, "allowed.test", address=w.EVIL))["address"] == w.ALLOWED
    assert body(get(api, named, "allowed.test", address=w.EVIL6))["address"] == w.ALLOWED
    assert not world.went_to(w.EVIL, w.EVIL6)


def test_a_refusal_says_so_at_once(api, world, named):
    out = get(api, named, "evil.test", address=w.EVIL)
    assert status(out) == 403 and "evil.test port 80" in out["data"] and out["seconds"] < 2
    out = tls(api, named, "evil.test", address=w.EVIL)
    assert out["error"] == "SSLError" and "ACCESS_DENIED" in out["text"]
    out = attempt(api, named, kind="tcp", address=w.EVIL, port=22)
    assert out["error"] == "ConnectionResetError"
    denials = network(api, named)["denials"][-3:]
    assert [(d["reason"], d["protocol"], d["name"], d["address"], d["port"]) for d in denials] == [
        ("rule", "http", "evil.test", w.EVIL, 80), ("rule", "tls", "evil.test", w.EVIL, 443), ("rule", "tcp", None, w.EVIL, 22)]
    assert not world.went_to(w.EVIL)


@pytest.mark.parametrize("name", ["private.test", "loop.test", "mapped.test", "meta.test", "host.test"])
def test_names_that_lead_inwards(api, world, name):
    with api.sandbox(network={"allow_domains": ["*.test"]}) as sb:
        assert status(get(api, sb, name, address=w.EVIL)) == 403
        assert attempt(api, sb, kind="resolve", name=name)["error"] == "gaierror"
        assert network(api, sb)["denials"][0]["reason"] == "address"
    assert not world.went_anywhere()


def test_rebinding(api, world):
    """The first answer is public; the next one, for the connection, is not."""
    with api.sandbox(network={"allow_domains": ["rebind.test"]}) as sb:
        world.zone["rebind.test"] = [[w.ALLOWED], ["10.9.8.7"], ["127.0.0.1"], ["169.254.169.254"]]
        assert body(get(api, sb, "rebind.test"))["address"] == w.ALLOWED
        time.sleep(2.5)                 # longer than an answer is kept
        for _ in range(3):
            assert status(get(api, sb, "rebind.test", address=w.EVIL)) == 403
            time.sleep(2.2)
    assert not world.went_to(*w.PRIVATE, "127.0.0.1")


def test_prefixes(api, world):
    with api.sandbox(network={"allow_cidrs": [w.ALLOWED + "/32", "2606:2800:220:1::/64"]}) as sb:
        assert body(get(api, sb, "whatever.test", address=w.ALLOWED))["address"] == w.ALLOWED
        assert body(get(api, sb, "whatever.test", address=w.ALLOWED6))["address"] == w.ALLOWED6
        assert attempt(api, sb, kind="tcp", address=w.ALLOWED, port=22, until_close=False)["data"].startswith("SSH-2.0")
        assert get(api, sb, "allowed.test", address=w.OTHER)["error"] == "ConnectionResetError"
        assert get(api, sb, "allowed.test", address=w.EVIL6)["error"] == "ConnectionResetError"
        assert attempt(api, sb, kind="resolve", name="allowed.test")["error"] == "gaierror"
    assert not world.went_to(w.OTHER, w.EVIL, w.EVIL6)


@pytest.mark.parametrize("address", [*w.PRIVATE, w.HOST])
def test_private_addresses_only_when_named(api, world, address):
    with api.sandbox(network={"allow_cidrs": ["0.0.0.0/0"]}) as sb:
        assert get(api, sb, "x.test", address=address)["error"] == "ConnectionResetError"
    assert not world.went_to(address)
    with api.sandbox(network={"allow_cidrs": [address]}) as sb:
        if address != w.HOST:
            assert body(get(api, sb, "x.test", address=address))["address"] == address


def test_open(api, world):
    with api.sandbox(network="open") as sb:
        assert body(get(api, sb, "evil.test"))["address"] == w.EVIL
        assert body(tls(api, sb, "evil.test"))["address"] == w.EVIL
        for address in w.PRIVATE:
            assert get(api, sb, "x.test", address=address)["error"] == "ConnectionResetError"
        assert attempt(api, sb, kind="tcp", address=w.EVIL, port=25)["error"] == "ConnectionResetError"
    assert not world.went_to(*w.PRIVATE)
    assert not [p for p in world.seen if p.dport == 25]


def test_blocked(api, world):
    for spec in ({}, {"network": "block"}, {"network": None}):
        with api.sandbox(**spec) as sb:
            for address in (w.ALLOWED, w.ALLOWED6, "127.0.0.1"):
                out = get(api, sb, "allowed.test", address=address)
                assert out["error"] == "ConnectionRefusedError" and out["seconds"] < 2
            out = attempt(api, sb, kind="resolve", name="allowed.test")
            assert out["error"] == "gaierror" and out["seconds"] < 5
            r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"rules": []})
            assert r.status_code == 409
    assert not world.went_anywhere() and not world.queries


def test_order_and_ports(api, world):
    rules = [{"action": "deny", "domains": ["evil.wild.test"]},
             {"action": "log", "domains": ["*.wild.test"]},
             {"action": "allow", "domains": ["*.wild.test"], "ports": [443], "protocol": "tls"},
             {"action": "allow", "domains": ["allowed.test"], "ports": ["8000-8100"], "protocol": "http"}]
    world.zone["evil.wild.test"] = [w.EVIL]
    with api.sandbox(network={"rules": rules}) as sb:
        assert body(tls(api, sb, "www.wild.test"))["sni"] == "www.wild.test"
        assert tls(api, sb, "evil.wild.test", address=w.EVIL)["error"] == "SSLError"
        assert not tls(api, sb, "www.wild.test", port=8443)["ok"]
        assert body(get(api, sb, "allowed.test", port=8080))["port"] == 8080
        assert status(get(api, sb, "allowed.test", port=80)) == 403 if get(api, sb, "allowed.test", port=80)["ok"] else True
        r = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": "https://evil.wild.test/"}).json()
        assert (r["action"], r["rule"]) == ("deny", 1)
        r = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": "https://www.wild.test/"}).json()
        assert (r["action"], r["rule"], r["logged_by"]) == ("allow", 3, 2)
    assert not world.went_to(w.EVIL)


def test_raw_protocols_by_name(api, world):
    """A rule of protocol tcp goes by the addresses that the resolver gave for the name."""
    rule = {"domains": ["git.test"], "ports": [22], "protocol": "tcp"}
    with api.sandbox(network={"rules": [rule]}) as sb:
        assert not attempt(api, sb, kind="tcp", address=w.ALLOWED, port=22)["ok"]
        out = attempt(api, sb, kind="tcp", address="git.test", port=22, until_close=False)
        assert out["data"].startswith("SSH-2.0"), out
        assert not attempt(api, sb, kind="tcp", address=w.OTHER, port=22)["ok"]
    assert not world.went_to(w.OTHER)


def test_a_change_is_in_force_at_once(api, world):
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        script = ("import socket,sys,time\ns=socket.create_connection(('allowed.test',80))\n"
                  "s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); s.recv(9999); print('up',flush=True)\n"
                  "s.settimeout(30)\ntry: d=s.recv(10)\nexcept OSError as e: d=type(e).__name__\nprint('end',d,flush=True)")
        x = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", script]}).json()
        said(api, sb, x["id"], "up")
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", params={"keep": "true"}, json={"allow_domains": ["other.test"]})
        assert r.json() == {"revision": 2}, r.text
        assert network(api, sb)["connections_open"] == 1
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_domains": ["other.test"]})
        assert r.json() == {"revision": 3}
        assert network(api, sb)["connections_open"] == 0
        out = api.get(f"/v1/sandboxes/{sb.id}/execs/{x['id']}", params={"wait": "exit", "timeout_s": 30})
        assert out.status_code == 200
        assert status(get(api, sb, "allowed.test", address=w.ALLOWED)) == 403
        assert body(get(api, sb, "other.test"))["address"] == w.OTHER


def test_a_name_that_was_only_said_is_no_name_for_the_next_policy(api, world):
    """Where addresses decide, clients may say any name; once names decide, such a connection is not one to that name."""
    script = ("import socket,sys\nout=[]\n"
              "for host in sys.argv[1:]:\n"
              "    s=socket.create_connection((host,80)); s.settimeout(30)\n"
              "    s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); s.recv(9999); out.append(s)\n"
              "print('up',flush=True)\nsys.stdin.read()\n")
    before = {"rules": [{"action": "deny", "domains": ["other.test"]}, {"cidrs": [f"{w.EVIL}/32", f"{w.ALLOWED}/32"]}], "dns": "open"}
    with api.sandbox(network=before) as sb:
        x = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", script, w.EVIL], "stdin": True}).json()
        said(api, sb, x["id"], "up")
        assert network(api, sb)["connections_open"] == 1 and world.went_to(w.EVIL)
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_domains": ["allowed.test"]})
        assert r.status_code == 200, r.text
        assert network(api, sb)["connections_open"] == 0
        assert network(api, sb)["denials"][-1]["address"] == w.EVIL
        # Who is looked up under the new one is let out.
        assert body(get(api, sb, "allowed.test"))["address"] == w.ALLOWED


def test_egress_dies(api, world, daemon):
    with api.sandbox(network=BY_NAME) as sb:
        assert body(get(api, sb, "allowed.test"))["address"] == w.ALLOWED
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_domains": ["other.test"]})
        assert r.status_code == 200
        daemon.kill_role("egress")
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            out = get(api, sb, "other.test", timeout=3)
            if out["ok"]:
                break
        assert body(out)["address"] == w.OTHER
        assert status(get(api, sb, "allowed.test", address=w.ALLOWED)) == 403
        assert network(api, sb)["revision"] == 2


def test_downloads_and_streams(api, world, named):
    script = ("import urllib.request,hashlib\nd=urllib.request.urlopen('http://allowed.test/bytes/20000000').read()\n"
              "print(len(d), hashlib.sha256(d).hexdigest())")
    r = api.run(named, ["python3", "-c", script])
    want = (bytes(range(256)) * 256 * 400)[:20000000]
    assert r["stdout"].split() == ["20000000", hashlib.sha256(want).hexdigest()]
    r = api.run(named, ["sh", "-c", "printf 'GET /drip HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n' > /tmp/q; "
                                    "python3 -c \"import socket,time;s=socket.create_connection(('allowed.test',80));"
                                    "s.sendall(open('/tmp/q','rb').read());f=s.makefile('rb')\nfor l in f:\n"
                                    " if l.startswith(b'event'): print(time.time()-float(l.split()[2]))\""])
    delays = [float(x) for x in r["stdout"].split()]
    assert len(delays) == 5


def test_curl_through_an_allowed_rule(api, world, named):
    r = api.put(f"/v1/sandboxes/{named.id}/files", params={"path": "/tmp/ca.pem"}, content=world.ca)
    assert r.status_code in (200, 201, 204), r.text
    r = api.run(named, ["curl", "-sS", "--cacert", "/tmp/ca.pem", "https://allowed.test/x", "https://www.wild.test/y"])
    assert r["exec"]["exit"]["code"] == 0, r
    assert r["stdout"].count('"protocol": "tls"') == 2
    r = api.run(named, ["curl", "-sS", "-L", "http://allowed.test/redirect"])
    assert r["exec"]["exit"]["code"] != 0 or "does not allow" in r["stdout"]
    assert not world.went_to(w.EVIL)


BAD = [
    ({"rules": [{"domains": ["a..b"]}]}, "a..b"), ({"rules": [{"cidrs": ["10.0.0.0/33"]}]}, "10.0.0.0/33"),
    ({"rules": [{"cidrs": ["10.1.2.3/8"]}]}, "10.1.2.3/8"), ({"rules": [{"ports": [0]}]}, "port"),
    ({"rules": [{"ports": ["9-5"]}]}, "port"), ({"rules": [{"action": "permit"}]}, "action"),
    ({"rules": [{"protocol": "sctp"}]}, "udp"), ({"rules": [{"domains": []}]}, "empty"), ({"rule": []}, "rule"),
    ({"rules": [{"domians": ["a.b"]}]}, "domains"), ("closed", "network"), (7, "network"),
    ({"allow_domains": ["1.2.3.4"]}, "1.2.3.4"), ({"allow_domains": ["b\u00fccher.test"]}, "punycode"),
    ({"rules": [], "allow_cidrs": []}, "exclude"),
    ({"rules": [{"methods": ["GET"]}]}, "domains"), ({"rules": [{"domains": ["a.test"], "paths": ["x"]}]}, "path"),
    ({"rules": [{"domains": ["a.test"], "methods": ["GET"], "protocol": "tcp"}]}, "protocol"),
]


@pytest.mark.parametrize("spec,says", BAD, ids=str)
def test_bad_policies(api, spec, says):
    r = api.post("/v1/sandboxes", json={"network": spec})
    assert r.status_code in (400, 422, 501), r.text
    assert says in r.json()["error"]["message"]


def test_ten_thousand_rules(api, world):
    rules = [{"action": "allow", "domains": [f"host{n}.example.com"], "ports": [443]} for n in range(5000)]
    rules += [{"action": "deny", "cidrs": [f"11.{n // 250}.{n % 250}.0/24"]} for n in range(4999)]
    rules.append({"name": "last", "action": "allow", "domains": ["allowed.test"]})
    with api.sandbox(network={"rules": rules}) as sb:
        assert body(tls(api, sb, "allowed.test"))["address"] == w.ALLOWED
        assert not tls(api, sb, "evil.test", address=w.EVIL)["ok"]
        assert status(get(api, sb, "x.test", address="11.3.7.1", port=8080)) == 403
        r = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": "https://allowed.test/"}).json()
        assert (r["action"], r["rule"], r["rule_name"]) == ("allow", 10000, "last")
        assert len(api.get(f"/v1/sandboxes/{sb.id}/policy").json()["rules"]) == 10000
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json={"rules": rules + [{}]})
        assert r.status_code in (400, 413) and "10001" in r.json()["error"]["message"]
    assert not world.went_to(w.EVIL)


def test_the_command_line_explains(api, daemon, named):
    env = {"QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}

    def quicksand(*words):
        return subprocess.run([daemon.lib_dir / "quicksand", *words], env=env, capture_output=True, text=True)

    out = quicksand("policy", "explain", named.id, "https://www.wild.test/a?b=c")
    assert out.returncode == 0, out.stderr
    told = json.loads(out.stdout)
    assert (told["action"], told["rule_name"], told["name"]) == ("allow", "allow_domains", "www.wild.test")
    assert json.loads(quicksand("policy", "get", named.id).stdout)["dns"] == "rules"
    assert json.loads(quicksand("policy", "status", named.id).stdout)["revision"] == 1
    bad = quicksand("policy", "explain", named.id, "nonsense")
    assert bad.returncode == 1 and "port" in bad.stderr
