"""
Hundreds of attempts to get out past an allow-list, by root inside. The cable outside is the witness.

Each is shown to be one: what the policy stops gets out under a policy that allows everything, and what the namespace stops gets out when
the same program runs beside the daemon, outside of a sandbox.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import world as w

BYPASS = (pathlib.Path(__file__).parent / "bypass.py").read_text()
NAMES = re.findall(r'"([a-z0-9-]+)": (?:lambda|[a-z_]+,)', BYPASS)
POLICY = {"allow_domains": ["allowed.test", "*.wild.test"]}
EVERYTHING = {"dns": "open", "rules": [{"cidrs": w.PRIVATE + ["fd00:ec2::254"]}, {"protocol": "udp", "cidrs": w.PRIVATE},
                                       {"ports": ["1-65535"]}, {"protocol": "udp", "ports": ["1-65535"]}]}


# The namespace and its rules stop these, under every policy: they are seen outside when they run beside a sandbox.
BY_CONSTRUCTION = {
    "broadcast", "dccp", "device", "dhcp", "dns-port-5353", "fast-open", "icmp", "icmp6", "igmp", "l2tp", "llmnr", "mark",
    "mdns", "mptcp", "multicast", "multicast-six", "own-port-foreign", "own-port-foreign-six", "own-port-foreign-udp", "packet",
    "packet-dgram", "priority", "private-10", "raw-crafted", "raw-esp", "raw-gre", "raw-icmp", "raw-ipip", "raw-ospf",
    "raw-sit", "raw-tcp", "raw-udp", "raw6", "raw6-crafted", "raw6-none", "raw6-udp", "record-route", "sctp", "sctp-one",
    "six-destination", "six-destination-first", "six-hops", "six-route-4", "source-route", "source-route-strict", "ssdp",
    "timestamps", "udp-encap", "udp-segments", "udp-source-route", "udplite",
}

# They would change something instead of sending: beside a sandbox, in a namespace made for them, they succeed.
CHANGES = {
    "bridge", "fast-open-key", "flags", "new-address", "packet-all", "sysctl", "sysctl-local", "sysctl-route",
    "sysctl-segments", "sysctl-six", "transparent", "tun", "xdp",
}

# Nothing is there that they could use: families and protocols that the filter or the kernel does not have, doors of the daemon that
# are not inside, addresses that nobody can be reached by, questions that the resolver answers by itself.
NO_WAY = {
    "6to4", "appletalk", "audit", "bluetooth", "can", "compatible", "dns-any", "dns-axfr", "dns-chaos", "dns-cname",
    "dns-dot-label", "dns-https", "dns-long", "dns-notify", "dns-ptr", "dns-two", "dns-txt", "dns-txt-allowed", "dns-update",
    "generic", "host-namespace", "ieee802154", "kcm", "key", "link-local", "loopback-far", "mctp", "mdns6", "nat64", "neighbours",
    "new-namespace", "new-route", "nfc", "other-namespace", "own-port", "own-port-self", "own-port-udp", "own-port6", "ppp",
    "qrtr", "raw-any", "rds", "reserved", "resolver-doh", "resolver-dot", "resolver-http", "resolver-udp-port", "routes",
    "rules", "six-header-included", "six-route-0", "six-route-2", "smc", "socks5", "source-address", "teredo", "this-net",
    "tipc", "udp-packet-info", "udp-reserved", "udp-source", "udp-source-loopback", "unix-abstract", "unix-egress", "unix-journal",
    "unix-monitor", "unix-node", "user-namespace",
    "vlan", "vsock", "x25", "xfrm", "zero",
}

# All others the policy stops: they are seen outside under one that allows everything.
BY_POLICY = set(NAMES) - BY_CONSTRUCTION - CHANGES - NO_WAY

# What this kernel does not have: family, protocol, type of socket, package.
LACKING = re.compile(r"Errno (65|93|94|97)\]")


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
    assert len(NAMES) == len(set(NAMES)) >= 280
    assert len(BY_POLICY) >= 140 and BY_CONSTRUCTION | CHANGES | NO_WAY <= set(NAMES)


def test_nothing_gets_out(api, world):
    with api.sandbox(network=POLICY, timeout_s=900) as sb:
        out = run(api, sb, "all")
        assert set(out) == set(NAMES)
        packets, names, requests = escapes(world)
        assert not packets and not names and not requests, (packets[:10], names[:10], requests[:10])
        # Nobody answered for somebody else: what came back is a refusal of ours or of the allowed host.
        for name, text in out.items():
            assert f'"address": "{w.EVIL}' not in text and "udp:" not in text and "SSH-" not in text, (name, text)
        assert not {name: out[name] for name in CHANGES if not out[name].startswith("!")}
        for name in ("tcp-9999", "tcp-22", "udp-9999", "udp-443", "dns-direct", "icmp", "packet", "raw-tcp", "own-port-udp"):
            assert out[name].startswith("!") or out[name] == "b''", (name, out[name])


def trace(world):
    """Something was begun; the end of a connection of the attempt before is nothing."""
    packets, names, requests = escapes(world)
    return bool([p for p in packets if p.proto != 6 or p.flags & 0x02] or names or requests or world.requests)


@pytest.mark.long
def test_each_gets_out_without_its_rule(api, world):
    with api.sandbox(network=EVERYTHING, timeout_s=3000) as sb:
        silent, told = [], {}
        for name in sorted(BY_POLICY):
            world.clear()
            told.update(run(api, sb, name))
            if not trace(world):
                silent.append(name)
        assert not silent, "\n".join(f"{name}: {told[name]}" for name in silent)


@pytest.mark.long
def test_each_gets_out_beside_a_sandbox(world):
    pathlib.Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 2147483647")     # as inside
    silent, told = [], {}
    for name in sorted(BY_CONSTRUCTION):
        world.clear()
        out = subprocess.run([sys.executable, "-c", BYPASS, name, w.EVIL, w.EVIL6, w.ALLOWED, w.DNS], capture_output=True, text=True,
                             timeout=120, env={"DEVICE": "out0", "PATH": os.environ["PATH"]})
        told[name] = out.stdout
        if not trace(world) and not LACKING.search(out.stdout):
            silent.append(name)
    assert not silent, "\n".join(f"{name}: {told[name]}" for name in silent)


@pytest.mark.long
def test_changes_are_possible_elsewhere():
    failed = {}
    for name in sorted(CHANGES):
        out = subprocess.run(["unshare", "--net", sys.executable, "-c", BYPASS, name, w.EVIL, w.EVIL6, w.ALLOWED, w.DNS],
                             capture_output=True, text=True, timeout=120)
        if ("! " in out.stdout or out.returncode != 0) and not LACKING.search(out.stdout):
            failed[name] = out.stdout + out.stderr
    assert not failed


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
