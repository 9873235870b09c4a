"""
About a hundred attempts to get out past an allow-list, by root inside. The cable outside is the witness.
"""

import pathlib
import re

import pytest

import world as w

BYPASS = (pathlib.Path(__file__).parent / "bypass.py").read_text()
NAMES = re.findall(r'^    "([a-z0-9-]+)": ', BYPASS, re.M)
POLICY = {"allow_domains": ["allowed.test", "*.wild.test"]}

# What gets out once the policy is open: each of these is a real attempt.
REAL = {
    "tcp-80", "tcp-8080", "tcp-9999", "tcp-22", "tcp6-80", "mapped", "sni", "sni-fragments", "sni-twice", "sni-suffix", "sni-ech",
    "sni-none", "sni-nul", "sni-address", "sni-wild", "ssl2", "not-tls", "half-hello", "host", "host-twice", "host-twice-turned",
    "host-absolute", "host-absolute-turned", "host-user", "host-none", "host-10", "host-folded", "host-space", "host-bare-lf",
    "host-nul", "host-address", "host-number", "host-hex", "host-six", "h2-prior", "dns", "dns-upper", "dot", "doh",
    "second-request", "second-body", "dns-direct-tcp",
}


def run(api, sb, names):
    r = api.run(sb, ["python3", "-c", BYPASS, names, w.EVIL, w.EVIL6, w.ALLOWED, w.DNS], timeout=600)
    assert r["exec"]["exit"]["code"] == 0, r
    return dict(line.split("\t", 1) for line in r["stdout"].splitlines())


def escapes(world):
    """Packets for anybody but the allowed host and the resolver, names that were none of the policy's, requests for others."""
    packets = [p for p in world.went_anywhere(0.5) if p.dst not in (w.ALLOWED, w.ALLOWED6) or p.proto != 6]
    names = [q for q in world.queries if q[0] != "allowed.test" and not q[0].endswith(".wild.test")]
    requests = [r for r in world.requests if r[3] is not None and "evil" in str(r[3])]
    return packets, names, requests


def test_there_are_many():
    assert len(NAMES) >= 100
    assert REAL <= set(NAMES)


def test_nothing_gets_out(api, world):
    with api.sandbox(network=POLICY, timeout_s=900) as sb:
        out = run(api, sb, "all")
        assert set(out) == set(NAMES)
        packets, names, requests = escapes(world)
        assert not packets and not names and not requests, (packets[:10], names[:10], requests[:10])
        # Nobody answered for somebody else: what came back is a refusal of ours or of the allowed host.
        for name in ("tcp-9999", "tcp-22", "udp-9999", "udp-443", "dns-direct", "icmp", "packet", "raw-tcp", "own-port-udp"):
            assert out[name].startswith("!") or out[name] == "b''", (name, out[name])


@pytest.mark.long
def test_each_gets_out_without_its_rule(api, world):
    with api.sandbox(network={"rules": [{}], "dns": "open"}, timeout_s=900) as sb:
        silent = []
        for name in sorted(REAL):
            world.clear()
            run(api, sb, name)
            packets, names, requests = escapes(world)
            if not packets and not names and not requests and not world.requests:
                silent.append(name)
        assert not silent


def test_no_foreign_address_answers(api, world, daemon):
    """A listener on every address of the sandbox is not what foreign addresses are, while egress lives and while it does not."""
    script = ("import socket\nl=socket.socket();l.setsockopt(1,2,1);l.bind(('0.0.0.0',8080));l.listen()\n"
              "for a in ('198.97.190.53','10.1.2.3','8.8.8.8'):\n"
              " s=socket.socket();s.settimeout(2)\n"
              " try:\n  s.connect((a,8080)); s.sendall(b'x'); d=s.recv(1)\n  print('answer' if d else 'end')\n"
              " except OSError as e: print(type(e).__name__)\n"
              "l.settimeout(0.2)\ntry: print('accepted', l.accept()[1])\nexcept OSError: print('nobody')\n")
    with api.sandbox(network=POLICY) as sb:
        for _ in range(2):
            lines = api.run(sb, ["python3", "-c", script])["stdout"].split("\n")
            assert lines[3] == "nobody" and "answer" not in lines, lines
            daemon.kill_role("egress")
    assert not world.went_to(w.EVIL, "10.1.2.3", "8.8.8.8")
