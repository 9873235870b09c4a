"""
The life of opened connections: servers and clients that do not trust or break off, changes of policy and secret, copies of sandboxes.
"""

import time

import pytest

import teller as t
from opened import HEADER, VALUE, head, last_denial, network, policy, rule, spec, talk, talks, text

STAY = r"""
import http.client, ssl, sys
c = http.client.HTTPSConnection("allowed.test", int(sys.argv[1]), timeout=120, context=ssl.create_default_context())
for line in iter(sys.stdin.readline, ""):
    try:
        c.request("GET", line.strip())
        r = c.getresponse()
        print("head", r.status, flush=True)
        print(r.read().decode().replace("\n", " "), flush=True)
    except (OSError, http.client.HTTPException) as e:
        print("failed", type(e).__name__, flush=True)
        c.close()
"""


class Stay:
    """A program inside that keeps one connection and asks for the paths that it is given."""

    def __init__(self, api, sb):
        self.api, self.base = api, f"/v1/sandboxes/{sb.id}/execs"
        r = api.post(self.base, json={"command": ["python3", "-uc", STAY, str(t.TLS)], "stdin": True})
        assert r.status_code == 201, r.text
        self.base += "/" + r.json()["id"]
        self.seen = 0

    def send(self, path):
        r = self.api.post(self.base + "/stdin", content=(path + "\n").encode())
        assert r.status_code in (200, 204), r.text

    def next(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            lines = self.api.get(self.base + "/stdout", params={"follow": "false"}).text.split("\n")[:-1]
            if len(lines) > self.seen:
                self.seen += 1
                return lines[self.seen - 1]
            time.sleep(0.1)
        raise AssertionError("nothing came")

    def ask(self, path):
        self.send(path)
        first = self.next()
        return (first, None) if first.startswith("failed") else (first, self.next())


def put_policy(api, sb, p, **query):
    r = api.put(f"/v1/sandboxes/{sb.id}/policy", json=p, params=query)
    assert r.status_code == 200, r.text


# --- servers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port,says", [(t.STRANGER, "unable to get local issuer certificate"), (t.WRONG_NAME, "hostname mismatch"),
                                       (t.EXPIRED, "certificate has expired")])
def test_servers_that_cannot_be_relied_on(api, server, secret, port, says):
    with api.sandbox(network=policy(HEADER)) as sb:
        out = text(api, sb, [head("/x")], port=port)
        assert out.startswith("HTTP/1.1 502 ") and f"its certificate cannot be relied on: {says}" in out, out
        assert last_denial(api, sb) == ("certificate", "tls", "allowed.test", port, "keyed")
        # What the policy does not allow is refused before that.
        put_policy(api, sb, policy({**HEADER, "methods": ["PUT"]}))
        assert text(api, sb, [head("/x", Connection="close")], port=port).startswith("HTTP/1.1 403 ")
        assert server.heads == []


def test_servers_that_break_off(api, server, secret):
    with api.sandbox(network=policy(HEADER)) as sb:
        out = text(api, sb, [head("/x")], port=t.CUT)
        assert out.startswith("HTTP/1.1 502 ") and "TLS with it failed: " in out
        assert network(api, sb)["connections_failed"] == 1
        reset, short, garbage, open_end, clean = talks(api, sb, [spec([head(p)]) for p in
                                                                 ("/reset", "/short", "/garbage", "/to-end", "/to-end?clean")])
        assert reset["out"] == [""] and reset["error"] is not None
        assert short["out"][0].endswith("\r\n\r\nhalf") and short["error"] is not None
        assert garbage["out"] == [""] and garbage["error"] is not None
        more = talk(api, sb, [head("/more")])
        assert more["out"][0].endswith("\r\n\r\nwhole") and more["error"] is None
        # An end that TLS does not vouch for is passed on as one.
        assert open_end["out"][0].endswith("to the end") and "UNEXPECTED_EOF" in open_end["text"]
        assert clean["out"][0].endswith("to the end") and clean["error"] is None


@pytest.mark.long
def test_a_server_that_says_nothing(api, server, secret):
    with api.sandbox(network=policy(HEADER)) as sb:
        out = text(api, sb, [head("/x")], port=t.MUTE, timeout=60)
        assert out.startswith("HTTP/1.1 502 ") and "there was no answer" in out


# --- clients ----------------------------------------------------------------------------------------------------------


def test_clients_that_trust_only_their_own(api, world, server, secret):
    url = f"https://allowed.test:{t.TLS}/"
    with api.sandbox(network=policy(HEADER)) as sb:
        assert api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/ca.pem"}, content=world.ca).status_code in (200, 201)
        assert api.run(sb, ["curl", "-sS", "--cacert", "/tmp/ca.pem", url])["exec"]["exit"]["code"] == 60
        assert last_denial(api, sb) == ("pinned", "tls", "allowed.test", t.TLS, "keyed")
        pin = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
        assert api.run(sb, ["curl", "-sS", "--pinnedpubkey", pin, url])["exec"]["exit"]["code"] == 90
        assert [d["reason"] for d in network(api, sb)["denials"]] == ["pinned", "pinned"]
        assert api.run(sb, ["curl", "-sS", url])["exec"]["exit"]["code"] == 0
        assert server.heads and network(api, sb)["denied"] == 2


def test_a_client_that_offers_nothing_that_can_be_looked_at(api, server, secret):
    signs = rule({"aws_sigv4": {"service": "s3", "region": "eu-west-1"}}, paths=["/signed"])
    with api.sandbox(network=policy(signs, HEADER)) as sb:
        out = talk(api, sb, [head()], alpn=["h2"])
        assert out["error"] == "SSLError" and "NO_APPLICATION_PROTOCOL" in out["text"].upper().replace(" ", "_"), out
        assert last_denial(api, sb) == ("protocol", "tls", "allowed.test", t.TLS, "keyed")
        assert talk(api, sb, [head()], alpn=["h2", "http/1.1"], answers=True)["out"][0][0] == 200


def test_half_closed_and_gone(api, server, secret):
    """A client that leaves in the middle takes its connection outside with it."""
    with api.sandbox(network=policy(HEADER)) as sb:
        r = api.run(sb, ["curl", "-sS", "-m", "1", "-o", "/dev/null", f"https://allowed.test:{t.TLS}/wait"])
        assert r["exec"]["exit"]["code"] == 28
        end = time.monotonic() + 20
        while network(api, sb)["connections_open"] > 0 and time.monotonic() < end:
            time.sleep(0.2)
            server.go_on.set()
        assert network(api, sb)["connections_open"] == 0


# --- changes ----------------------------------------------------------------------------------------------------------


SLOW = r"""
import concurrent.futures, http.client, json, ssl, sys, time
context = ssl.create_default_context()
def ask(n):
    c = http.client.HTTPSConnection("allowed.test", int(sys.argv[1]), timeout=25, context=context)
    try:
        c.request("PUT", "/late", bytes(n))
        up = json.loads(c.getresponse().read())["body"]
        c.request("GET", f"/bytes/{n}")
        r = c.getresponse()
        time.sleep(0.5)
        return n, up, len(r.read())
    except OSError as e:
        return n, type(e).__name__
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    for got in pool.map(ask, range(600_000, 4_200_000, 20_011)):
        print(*got)
"""


def test_readers_that_make_all_wait(api, server, secret):
    """What waits in the middle goes on when there is room, also when nothing more comes behind it."""
    with api.sandbox(network=policy(HEADER)) as sb:
        r = api.run(sb, ["python3", "-c", SLOW, str(t.TLS)], timeout=250, timeout_s=240)
        assert r["exec"]["exit"]["code"] == 0, r["stderr"]
        assert r["stdout"].splitlines() == [f"{n} {n} {n}" for n in range(600_000, 4_200_000, 20_011)]


def test_a_secret_changes_between_requests(api, server, secret):
    with api.sandbox(network=policy(HEADER)) as sb:
        stay = Stay(api, sb)
        assert VALUE in stay.ask("/")[1]
        assert api.put("/v1/secrets/inject", json={"values": {"TOKEN": "another-value"}}).status_code == 200
        _, body = stay.ask("/")
        assert "another-value" in body and VALUE not in body and '"connection": 1' in body
        assert api.delete("/v1/secrets/inject").status_code == 204
        first, body = stay.ask("/")
        assert first == "head 502" and "a secret that the rule names is not known" in body
        assert len(server.heads) == 2


def test_a_policy_changes_between_requests(api, server, secret):
    other = rule({"header": "X-Key", "value": "plain"})
    with api.sandbox(network=policy(HEADER)) as sb:
        stay = Stay(api, sb)
        assert VALUE in stay.ask("/")[1]
        put_policy(api, sb, policy(other))
        _, body = stay.ask("/")
        assert VALUE not in body and '"plain"' in body and '"connection": 1' in body
        put_policy(api, sb, policy({**other, "methods": ["POST"]}))
        assert stay.ask("/")[0] == "head 403"
        put_policy(api, sb, policy(HEADER))
        assert VALUE in stay.ask("/")[1]
        # No rule is about requests any more: what is open stays, and the next connection is not opened.
        put_policy(api, sb, policy({"domains": ["allowed.test"]}))
        _, body = stay.ask("/")
        assert VALUE not in body and '"plain"' not in body and "X-Key" not in body
        assert talk(api, sb, [head()])["error"] == "SSLCertVerificationError"
        put_policy(api, sb, policy())
        assert stay.ask("/")[0].startswith("failed")


@pytest.mark.parametrize("keep", [False, True])
def test_a_policy_changes_during_a_request(api, server, secret, keep):
    with api.sandbox(network=policy(HEADER)) as sb:
        stay = Stay(api, sb)
        stay.send("/wait")
        assert stay.next() == "head 200"
        put_policy(api, sb, policy({**HEADER, "paths": ["/wait", "/other"]}))       # which it still allows
        put_policy(api, sb, policy({**HEADER, "paths": ["/other"]}), **({"keep": "true"} if keep else {}))
        server.go_on.set()
        if keep:
            assert stay.next() == "firstlast"
            assert stay.ask("/wait")[0] == "head 403"
        else:
            assert stay.next().startswith("failed")
            assert last_denial(api, sb)[0] == "rule"
        assert stay.ask("/other")[0] == "head 200"


def test_what_was_not_opened_is_cut_when_it_has_to_be(api, world, server, secret):
    with api.sandbox(network=policy({"domains": ["allowed.test"]})) as sb:
        assert api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/ca.pem"}, content=world.ca).status_code in (200, 201)
        stay = api.post(f"/v1/sandboxes/{sb.id}/execs", json={
            "command": ["curl", "-sS", "--http1.1", "--cacert", "/tmp/ca.pem", f"https://allowed.test:{t.TLS}/wait"]}).json()["id"]
        end = time.monotonic() + 30
        while not server.heads and time.monotonic() < end:
            time.sleep(0.1)
        assert VALUE.encode() not in server.heads[0]
        put_policy(api, sb, policy(HEADER))
        r = api.get(f"/v1/sandboxes/{sb.id}/execs/{stay}", params={"wait": "exit"})
        assert r.json()["exit"]["code"] in (18, 35, 52, 56), r.text


def test_egress_is_killed_in_the_middle(api, daemon, server, secret):
    with api.sandbox(network=policy(HEADER)) as sb:
        stay = Stay(api, sb)
        stay.send("/wait")
        assert stay.next() == "head 200"
        daemon.kill_role("egress")
        assert stay.next().startswith("failed")
        daemon.wait_ready()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            first, body = stay.ask("/")
            if first == "head 200":
                break
            time.sleep(0.2)
        assert first == "head 200" and VALUE in body


# --- others -----------------------------------------------------------------------------------------------------------


def authority(api, sb):
    r = api.run(sb, ["cat", "/etc/quicksand/authority.pem"])
    assert r["exec"]["exit"]["code"] == 0, r
    return r["stdout"]


def test_each_sandbox_has_an_authority_of_its_own(api, server, secret):
    url = f"https://allowed.test:{t.TLS}/"
    with api.sandbox(network=policy(HEADER)) as sb, api.sandbox(network=policy(HEADER)) as other:
        assert authority(api, other) != authority(api, sb)
        assert VALUE in api.run(sb, ["curl", "-sS", url])["stdout"]
        r = api.put(f"/v1/sandboxes/{other.id}/files", params={"path": "/tmp/of-another.pem"}, content=authority(api, sb))
        assert r.status_code in (200, 201)
        assert api.run(other, ["curl", "-sS", "--cacert", "/tmp/of-another.pem", url])["exec"]["exit"]["code"] == 60
        assert VALUE in api.run(other, ["curl", "-sS", url])["stdout"]
