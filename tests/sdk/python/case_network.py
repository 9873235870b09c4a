"""
What may leave a sandbox, asked for through the Python client. Outside are the servers of tests/network/world.py: 93.184.216.34 is
allowed.test, wild.test and names below it, .35 is other.test, 198.97.190.53 is evil.test, 10.9.8.7 is a private one.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import modal
import modal.exception as ex
from kit import app, create, raises, run, sandbox

INSIDE = pathlib.Path(os.environ["QS_INSIDE"]).read_text()
ALLOWED, OTHER, EVIL, PRIVATE = "93.184.216.34", "93.184.216.35", "198.97.190.53", "10.9.8.7"


def attempt(sb, **spec):
    out, err, code = run(sb, "python3", "-c", INSIDE, json.dumps({"timeout": 20, **spec}))
    assert code == 0, err
    return json.loads(out)


def said(r):
    """The address of the server that answered, or None."""
    found = re.search(r'"address": "([^"]+)"', r.get("data", ""))
    return found and found[1]


def tls(sb, name, address=None, port=443):
    return said(attempt(sb, kind="tls", address=address or name, port=port, sni=name))


def http(sb, name, address=None):
    return said(attempt(sb, kind="tcp", address=address or name, port=80,
                        data=f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"))


def raw(sb, address, port=9999):
    """Whether the bytes come back from a server that speaks no protocol."""
    return attempt(sb, kind="tcp", address=address, port=port, data="hello", until_close=False).get("data") == "hello"


def test_open():
    with sandbox() as sb:
        assert tls(sb, "allowed.test") == ALLOWED
        assert http(sb, "evil.test") == EVIL
        assert raw(sb, OTHER)
        assert not raw(sb, PRIVATE)
        assert not attempt(sb, kind="tcp", address=ALLOWED, port=25, until_close=False)["ok"]


def test_block_network():
    with sandbox(block_network=True) as sb:
        assert not raw(sb, ALLOWED)
        assert tls(sb, "allowed.test", ALLOWED) is None
        assert not attempt(sb, kind="resolve", name="allowed.test")["ok"]
        with raises(ex.ConflictError, "is blocked for good"):
            sb._experimental_set_outbound_network_policy()
        assert not raw(sb, ALLOWED)
    for options in ({"outbound_cidr_allowlist": []}, {"outbound_domain_allowlist": []}, {"encrypted_ports": [1]},
                    {"inbound_cidr_allowlist": []}):
        with raises(ex.InvalidError):
            create(block_network=True, **options)


def test_cidr_allowlist():
    with sandbox(outbound_cidr_allowlist=[f"{OTHER}/31", "2606:2800:220:1::34"]) as sb:     # host bits are cut off
        assert raw(sb, OTHER) and raw(sb, ALLOWED) and raw(sb, "2606:2800:220:1::34")
        assert http(sb, "any.test", ALLOWED) == ALLOWED
        assert not raw(sb, EVIL) and not raw(sb, PRIVATE)
        assert tls(sb, "allowed.test", EVIL) is None
        assert not attempt(sb, kind="resolve", name="allowed.test")["ok"]
    with sandbox(outbound_cidr_allowlist=["0.0.0.0/0"]) as sb:
        assert raw(sb, EVIL) and tls(sb, "allowed.test") == ALLOWED
        assert not raw(sb, PRIVATE)
    with sandbox(outbound_cidr_allowlist=["10.0.0.0/8"]) as sb:
        assert raw(sb, PRIVATE) and not raw(sb, ALLOWED)


def test_domain_allowlist():
    with sandbox(outbound_domain_allowlist=["Allowed.test", "*.wild.test"]) as sb:
        assert tls(sb, "allowed.test") == ALLOWED
        assert tls(sb, "www.wild.test") == ALLOWED and tls(sb, "deep.er.wild.test") == ALLOWED
        assert tls(sb, "wild.test", ALLOWED) is None
        assert tls(sb, "evil.test", ALLOWED) is None
        assert tls(sb, "allowed.test", EVIL) == ALLOWED         # where the name leads, not where the program went
        assert tls(sb, "allowed.test", port=8443) is None and http(sb, "allowed.test") is None
        assert not raw(sb, ALLOWED, 443)
        assert not attempt(sb, kind="resolve", name="evil.test")["ok"]
    with sandbox(outbound_domain_allowlist=["*"]) as sb:
        assert tls(sb, "evil.test") == EVIL and http(sb, "evil.test") is None


def long_both_allowlists():
    with sandbox(outbound_cidr_allowlist=[OTHER], outbound_domain_allowlist=["allowed.test"]) as sb:
        assert tls(sb, "allowed.test") == ALLOWED
        assert raw(sb, OTHER) and tls(sb, "evil.test", OTHER) == OTHER
        assert not raw(sb, ALLOWED)
        assert tls(sb, "evil.test", EVIL) is None


def test_present_and_empty_allows_nothing():
    for options in ({"outbound_cidr_allowlist": []}, {"outbound_domain_allowlist": []},
                    {"outbound_cidr_allowlist": [], "outbound_domain_allowlist": []}):
        with sandbox(**options) as sb:
            assert tls(sb, "allowed.test", ALLOWED) is None and not raw(sb, ALLOWED), options
            sb._experimental_set_outbound_network_policy()      # absent is everything
            assert tls(sb, "allowed.test") == ALLOWED and raw(sb, ALLOWED), options


BAD_CIDRS = ["10.0.0.0/33", "2001:db8::/129", "1.2.3", "example.com", "1.2.3.4/", "1.2.3.4/-1", ""]
BAD_DOMAINS = ["a b", "1.2.3.4", "a..b", "a.*", "http://a.test", ""]


def test_bad_entries():
    for bad in BAD_CIDRS:
        with raises(ex.InvalidError, f"Invalid CIDR: '{bad}'"):
            create(outbound_cidr_allowlist=["10.0.0.0/8", bad])
        with raises(ex.InvalidError, f"Invalid CIDR: '{bad}'"):
            create(inbound_cidr_allowlist=[bad], encrypted_ports=[1])
    for bad in BAD_DOMAINS:
        with raises(ex.InvalidError, f"Invalid domain: '{bad}'"):
            create(outbound_domain_allowlist=["allowed.test", bad])
    with sandbox(outbound_domain_allowlist=["allowed.test"]) as sb:
        for bad in BAD_CIDRS:
            with raises(ex.InvalidError, f"Invalid CIDR: '{bad}'"):
                sb._experimental_set_outbound_network_policy(outbound_cidr_allowlist=[bad])
        for bad in BAD_DOMAINS:
            with raises(ex.InvalidError, f"Invalid domain: '{bad}'"):
                sb._experimental_set_outbound_network_policy(outbound_domain_allowlist=[bad])
        assert tls(sb, "allowed.test") == ALLOWED and tls(sb, "evil.test", EVIL) is None


TALK = """
import socket, sys
s = socket.create_connection((sys.argv[1], 9999))
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        data = s.recv(100)
    except OSError:
        data = b""
    print("got", data.decode().strip() or "nothing", flush=True)
"""


def test_live_change():
    with sandbox() as sb:
        p = sb.exec("python3", "-c", TALK, ALLOWED)
        lines = iter(p.stdout)

        def say(word):
            p.stdin.write(word + "\n")
            p.stdin.drain()
            return next(lines)

        assert say("one") == "got one\n"
        sb._experimental_set_outbound_network_policy(outbound_cidr_allowlist=[ALLOWED], outbound_domain_allowlist=["other.test"])
        assert say("two") == "got two\n"
        assert raw(sb, ALLOWED) and tls(sb, "other.test") == OTHER and tls(sb, "evil.test", EVIL) is None
        sb._experimental_set_outbound_network_policy(outbound_domain_allowlist=["other.test"])
        assert say("three") == "got nothing\n"          # what is not allowed any more is cut
        p.stdin.write_eof()
        p.stdin.drain()
        assert not raw(sb, ALLOWED) and tls(sb, "other.test") == OTHER
        sb._experimental_set_outbound_network_policy(outbound_cidr_allowlist=[])
        assert tls(sb, "other.test", OTHER) is None
        sb._experimental_set_outbound_network_policy()
        assert tls(sb, "evil.test") == EVIL and raw(sb, ALLOWED)


def cli(*arguments):
    r = subprocess.run([sys.executable, "-m", "modal", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    return r.stdout


def until(fn):
    end = time.monotonic() + 60
    while not (r := fn()):
        assert time.monotonic() < end
        time.sleep(0.3)
    return r


def decisions(text):
    """Lines of the system stream, without how often it happened."""
    return {re.sub(r", \d+ times$", "", found[0]) for found in re.finditer(r"network policy: .*", text)}


def test_denials_are_in_the_system_stream():
    with sandbox("sh", "-c", "echo out; echo err >&2; sleep 600", outbound_domain_allowlist=["allowed.test"]) as sb:
        assert tls(sb, "evil.test", EVIL) is None
        assert not raw(sb, OTHER)
        assert not attempt(sb, kind="resolve", name="evil.test")["ok"]
        want = {f"network policy: denied tls evil.test ({EVIL}) port 443: no rule allows it",
                f"network policy: denied tcp {OTHER} port 9999: no rule allows it",
                "network policy: denied DNS query for evil.test: no rule allows it"}

        def system():
            entries = list(sb.logs.tail(source="system"))
            assert {e.source for e in entries} <= {"system"}
            return decisions("".join(e.message for e in entries))

        until(lambda: want <= system())
        assert system() == want
        everything = {(e.source, e.message) for e in sb.logs.tail()}
        assert {("stdout", "out\n"), ("stderr", "err\n")} < everything and {"system"} < {source for source, _ in everything}
        assert not any("network policy" in e.message for e in sb.logs.tail(source="stderr"))
        assert decisions(cli("container", "logs", sb._get_task_id(), "--source", "system", "--tail", "50")) == want
        assert want <= decisions(cli("app", "logs", app.app_id, "--source", "system", "--tail", "50"))


def long_experimental_options_are_warned_about():
    with sandbox(experimental_options={"enable_docker": False, "unheard_of": True}) as sb:
        assert run(sb, "true")[2] == 0
    with raises(ex.InvalidError, "enable_exit_snapshot"):
        create(experimental_options={"enable_exit_snapshot": True})


def long_readiness():
    serve = "import socket, time; time.sleep(0.5); s = socket.create_server(('0.0.0.0', 8077)); time.sleep(600)"
    with sandbox("python3", "-c", serve, block_network=True, readiness_probe=modal.Probe.with_tcp(8077, interval_ms=50)) as sb:
        sb.wait_until_ready(timeout=60)
    probe = modal.Probe.with_exec("sh", "-c", "echo not yet >&2; exit 7", interval_ms=50)
    with sandbox(readiness_probe=probe) as sb:
        with raises(ex.TimeoutError):
            sb.wait_until_ready(timeout=2)
    with sandbox() as sb, raises(ex.Error, "probe"):
        sb.wait_until_ready(timeout=2)
