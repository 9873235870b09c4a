"""
Datagrams leave by rule alone, and their answers come from where they were sent to.
"""

import json
import pathlib
import time

import pytest

import world as w
from test_policy import network

INSIDE = (pathlib.Path(__file__).parent / "inside_udp.py").read_text()


def ask(api, sb, *steps, **more):
    """One socket, one step after the other."""
    r = api.run(sb, ["python3", "-c", INSIDE, json.dumps({"steps": steps, **more})], timeout=120)
    assert r["exec"]["exit"]["code"] == 0, r
    return json.loads(r["stdout"])


def one(api, sb, address, port=9999, data="ping", **more):
    return ask(api, sb, [address, port, data], **more)[0]


def udp(*, action="allow", **rule):
    return {"rules": [{"action": action, "protocol": "udp", **rule}]}


def echo(address, data="ping", port=9999):
    return {"from": [address, port], "data": "udp:" + data}


def denials(api, sb):
    return [(d["reason"], d["protocol"], d["name"], d["address"], d["port"], d["rule"]) for d in network(api, sb)["denials"]]


def test_answers_come_from_where_it_was_sent(api, world):
    with api.sandbox(network=udp(cidrs=[w.ALLOWED, w.OTHER, w.ALLOWED6])) as sb:
        for address in (w.ALLOWED, w.ALLOWED6):
            assert one(api, sb, address) == echo(address)
            assert one(api, sb, address, connect=True) == echo(address)
        # One socket, several peers, and again the first.
        assert ask(api, sb, [w.ALLOWED, 9999, "a"], [w.OTHER, 9999, "b"], [w.ALLOWED, 443, "c"], [w.ALLOWED, 9999, "d"]) == [
            echo(w.ALLOWED, "a"), echo(w.OTHER, "b"), echo(w.ALLOWED, "c", 443), echo(w.ALLOWED, "d")]
        for n in (0, 1, 1472, 1473, 9000, 60000):
            assert one(api, sb, w.ALLOWED, data="x" * n) == echo(w.ALLOWED, "x" * n)
        n = network(api, sb)
        assert n["denied"] == 0 and n["connections"] >= 11 and n["connections_open"] >= 11
        assert n["sent_bytes"] == 4 * 4 + 4 + 71946 and n["received_bytes"] == n["sent_bytes"] + 4 * 14


def test_a_refusal_is_told_and_counted(api, world):
    with api.sandbox(network={"rules": [{"name": "no-evil", "action": "deny", "protocol": "udp", "cidrs": [w.EVIL, w.EVIL6]},
                                        {"name": "rest", "protocol": "udp", "ports": [443, 53]}]}) as sb:
        for address in (w.EVIL, w.EVIL6):
            start = time.monotonic()
            assert one(api, sb, address, 443, connect=True) == {"error": "ConnectionRefusedError"}
            assert time.monotonic() - start < 10
        assert one(api, sb, w.ALLOWED, 9999, connect=True) == {"error": "ConnectionRefusedError"}
        assert one(api, sb, "169.254.169.254", 443, connect=True) == {"error": "ConnectionRefusedError"}
        assert denials(api, sb) == [
            ("rule", "udp", None, w.EVIL, 443, "no-evil"), ("rule", "udp", None, w.EVIL6, 443, "no-evil"),
            ("rule", "udp", None, w.ALLOWED, 9999, None), ("address", "udp", None, "169.254.169.254", 443, "rest")]
        # A socket that is not connected is told if it asks for it.
        assert one(api, sb, w.EVIL, 443, errors=True) == {"error": "ConnectionRefusedError"}
    assert not world.went_anywhere()


@pytest.mark.parametrize("policy", ["open", {"allow_domains": ["*"]}, {"allow_cidrs": ["0.0.0.0/0", "::/0"]}, {"rules": []},
                                    {"rules": [{"protocol": "tcp"}]}, {"rules": [{}]}], ids=str)
def test_only_by_a_rule_that_says_udp(api, world, policy):
    with api.sandbox(network=policy) as sb:
        for address in (w.ALLOWED, w.EVIL6):
            for port in (443, 123, 53):
                assert one(api, sb, address, port, connect=True) == {"error": "ConnectionRefusedError"}, (address, port)
        assert {d[:2] for d in denials(api, sb)} == {("rule", "udp")} and network(api, sb)["denied"] == 6
    assert not world.went_anywhere()


def test_without_a_network_nothing_is_there(api, world):
    with api.sandbox() as sb:
        for address in (w.ALLOWED, w.ALLOWED6):
            assert one(api, sb, address, 443, connect=True)["error"] in ("PermissionError", "OSError", "ConnectionRefusedError")
    assert not world.went_anywhere()


def test_other_resolvers_take_a_port(api, world):
    with api.sandbox(network=udp()) as sb:
        assert one(api, sb, w.ALLOWED, 53, connect=True) == {"error": "ConnectionRefusedError"}
        assert one(api, sb, w.ALLOWED, 443) == echo(w.ALLOWED, port=443)
    assert not [p for p in world.went_to(w.ALLOWED) if p.dport == 53]
    with api.sandbox(network=udp(ports=[53])) as sb:
        assert one(api, sb, w.ALLOWED, 53) == echo(w.ALLOWED, port=53)
        assert one(api, sb, w.ALLOWED, 443, connect=True) == {"error": "ConnectionRefusedError"}


def test_by_name(api, world):
    """An address counts as the names for which the resolver gave it."""
    with api.sandbox(network=udp(domains=["git.test"], ports=[443])) as sb:
        assert one(api, sb, w.ALLOWED, 443, connect=True) == {"error": "ConnectionRefusedError"}
        assert one(api, sb, "git.test", 443) == echo(w.ALLOWED, port=443)
        assert one(api, sb, w.ALLOWED, 443) == echo(w.ALLOWED, port=443)
        assert one(api, sb, "git.test", 9999, connect=True) == {"error": "ConnectionRefusedError"}
        assert one(api, sb, w.OTHER, 443, connect=True) == {"error": "ConnectionRefusedError"}
        assert one(api, sb, "evil.test", 443)["error"] == "gaierror"
    assert not world.went_to(w.OTHER, w.EVIL)


def test_a_name_that_is_denied(api, world):
    rules = [{"name": "not-evil", "action": "deny", "protocol": "udp", "domains": ["evil.test"]}, {"protocol": "udp"}]
    with api.sandbox(network={"rules": rules, "dns": "open"}) as sb:
        assert one(api, sb, "evil.test", connect=True) == {"error": "ConnectionRefusedError"}
        assert denials(api, sb)[-1][:3] == ("rule", "udp", "evil.test") and denials(api, sb)[-1][5] == "not-evil"
    assert not world.went_to(w.EVIL)


@pytest.mark.parametrize("address", [*w.PRIVATE, w.HOST])
def test_private_addresses_only_when_named(api, world, address):
    with api.sandbox(network=udp(cidrs=["0.0.0.0/0"])) as sb:
        assert one(api, sb, address, connect=True) == {"error": "ConnectionRefusedError"}
        assert denials(api, sb) == [("address", "udp", None, address, 9999, "#1")]
    assert not world.went_to(address)
    with api.sandbox(network=udp(cidrs=[address])) as sb:
        if address != w.HOST:
            assert one(api, sb, address) == echo(address)


def test_names_that_lead_inwards(api, world):
    with api.sandbox(network={"rules": [{"protocol": "udp", "domains": ["*.test"]}]}) as sb:
        for name in ("private.test", "meta.test", "host.test", "loop.test"):
            assert one(api, sb, name)["error"] == "gaierror"
        assert one(api, sb, "10.9.8.7", connect=True) == {"error": "ConnectionRefusedError"}
    assert not world.went_anywhere()


def test_a_change_cuts_or_keeps(api, world):
    with api.sandbox(network=udp(cidrs=[w.ALLOWED])) as sb:
        x = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", INSIDE, json.dumps(
            {"steps": [[w.ALLOWED, 9999, "a"], ["wait", "/tmp/1"], [w.ALLOWED, 9999, "b"], ["wait", "/tmp/2"],
                       [w.ALLOWED, 9999, "c"], [w.ALLOWED, 9999, "d"]], "connect": True, "mark": "/tmp/at-"})]}).json()

        def step(n):
            give_up = time.monotonic() + 30
            while api.run(sb, ["test", "-e", f"/tmp/at-{n}"])["exec"]["exit"]["code"] != 0:
                assert time.monotonic() < give_up
                time.sleep(0.1)

        step(1)
        assert network(api, sb)["connections_open"] == 1
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", params={"keep": "true"}, json={"rules": []})
        assert r.json() == {"revision": 2}
        assert network(api, sb)["connections_open"] == 1
        api.run(sb, ["touch", "/tmp/1"])
        step(3)                         # it went on
        assert api.put(f"/v1/sandboxes/{sb.id}/policy", json={"rules": []}).json() == {"revision": 3}
        n = network(api, sb)
        assert n["connections_open"] == 0 and n["denials"][-1]["address"] == w.ALLOWED
        world.clear()
        api.run(sb, ["touch", "/tmp/2"])
        out = api.get(f"/v1/sandboxes/{sb.id}/execs/{x['id']}", params={"wait": "exit", "timeout_s": 60}).json()
        assert out["exit"]["code"] == 0
        done = json.loads(api.run(sb, ["cat", "/tmp/at-end"])["stdout"])
        assert done[0] == done[2] | {"data": "udp:a"} and done[2]["data"] == "udp:b"
        assert done[4] == done[5] == {"error": "ConnectionRefusedError"}
    assert not world.went_to(w.ALLOWED)


def test_what_those_outside_say_is_passed_on(api, world):
    """A port where nobody listens, on a host that may be reached."""
    with api.sandbox(network=udp(cidrs=[w.ALLOWED, w.ALLOWED6])) as sb:
        for address in (w.ALLOWED, w.ALLOWED6):
            assert one(api, sb, address, 7777, connect=True) == {"error": "ConnectionRefusedError"}
        assert network(api, sb)["denied"] == 0
    assert world.went_to(w.ALLOWED)


def test_there_are_limits(api, world):
    script = ("import socket\nok=0\nerr=0\nsocks=[]\nfor i in range(700):\n"
              " s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(('%s',9999)); s.settimeout(20); socks.append(s)\n"
              " s.send(b'x')\n try: ok+=s.recv(9)==b'udp:x'\n except ConnectionRefusedError: err+=1\nprint(ok,err)" % w.ALLOWED)
    with api.sandbox(network=udp(cidrs=[w.ALLOWED])) as sb:
        ok, err = map(int, api.run(sb, ["python3", "-c", script], timeout=300)["stdout"].split())
        assert ok + err == 700 and ok >= 512
        n = network(api, sb)
        assert n["connections_open"] == 512 and n["connections"] == ok and n["denied"] == err
        if err:
            assert n["denials"][-1]["reason"] == "limit"
        time.sleep(2.2)                 # then the oldest give way
        assert one(api, sb, w.ALLOWED) == echo(w.ALLOWED)
        assert network(api, sb)["connections_open"] == 512


def test_only_from_its_own_address(api, world):
    with api.sandbox(network=udp()) as sb:
        for address in ("127.0.0.1", w.ALLOWED):
            assert one(api, sb, w.EVIL, bind=[address, 40000]) == {"error": "PermissionError"}
        for address in ("224.0.0.251", "239.1.2.3", "255.255.255.255", "240.0.0.1", "ff02::fb%lo", "ff0e::1"):
            assert one(api, sb, address, broadcast=True)["error"] in ("PermissionError", "OSError"), address
        assert one(api, sb, w.EVIL, bind=["192.0.2.2", 40000]) == echo(w.EVIL)
    assert {p.dst for p in world.went_anywhere()} == {w.EVIL}


def test_nobody_else_can_answer(api, world):
    """A datagram from another address or port than was spoken to does not come in."""
    with api.sandbox(network=udp(cidrs=[w.ALLOWED])) as sb:
        world.stray.clear()
        out = ask(api, sb, [w.ALLOWED, 9998, "stray"], ["recv"], timeout=3)
        assert out == [{"error": "TimeoutError"}] * 2
        assert world.stray == [b"stray"]


def test_egress_dies(api, world, daemon):
    with api.sandbox(network=udp(cidrs=[w.ALLOWED])) as sb:
        assert one(api, sb, w.ALLOWED) == echo(w.ALLOWED)
        daemon.kill_role("egress")
        give_up = time.monotonic() + 30
        while (out := one(api, sb, w.ALLOWED, timeout=2)) != echo(w.ALLOWED) and time.monotonic() < give_up:
            pass
        assert out == echo(w.ALLOWED)
        assert one(api, sb, w.EVIL, connect=True) == {"error": "ConnectionRefusedError"}
    assert not world.went_to(w.EVIL)


def test_explained(api, world):
    with api.sandbox(network=udp(domains=["git.test"], ports=[443])) as sb:
        for url, action in (("quic://git.test", "allow"), ("udp://git.test:443", "allow"), ("udp://git.test:80", "deny"),
                            ("dns://8.8.8.8", "deny"), ("https://git.test/", "deny")):
            r = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": url}).json()
            assert r["action"] == action, url
