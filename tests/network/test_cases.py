"""
The ways around a policy that are to be closed, each with the attempts (bypass.py) and tests that are about it: none is forgotten, and each is shown to
be one, because it gets out where its rule is removed (test_bypass.py, with --long) or in a test of its own.
"""

import pathlib
import socket
import subprocess
import sys

import world as w
from test_bypass import BY_CONSTRUCTION, BY_POLICY, BYPASS, CHANGES, NAMES, run
from test_policy import network

# What is to be closed: attempts; tests that show that what is allowed of it goes (or, where nothing may go ever, why not).
CASES = {
    "forged server name": (["sni", "sni-fragments", "sni-slow", "sni-suffix", "sni-prefix", "sni-two-hellos", "sni-after-alert"],
                           ["test_where_the_packets_go_does_not_matter", "test_a_name_is_not_believed"]),
    "no server name, or two": (["sni-none", "sni-empty", "sni-twice", "sni-list", "sni-list-turned", "sni-other-kind"], []),
    "Host that differs": (["host", "host-twice", "host-twice-turned", "host-absolute", "host-absolute-turned", "second-request", "host-forwarded"],
                          ["test_every_request_is_looked_at"]),
    "domain fronting": (["sni", "sni-h2", "host-absolute"], ["test_a_name_is_not_believed"]),
    "encrypted greeting": (["sni-ech", "sni-ech-outer"], ["test_encrypted_greetings"]),
    "addresses for names": (["sni-address", "sni-six", "sni-brackets", "sni-number", "host-address", "host-number", "host-hex", "host-six"], []),
    "final dots": (["sni-dot", "sni-dots", "host-dot", "host-dots"], ["test_other_ways_to_write_a_name"]),
    "upper case": (["sni-upper", "host-upper", "dns-upper"], ["test_other_ways_to_write_a_name"]),
    "other scripts": (["sni-punycode", "sni-utf8", "host-punycode", "host-utf8"], ["test_other_ways_to_write_a_name"]),
    "CONNECT": (["connect", "connect-evil", "connect-allowed", "proxy-request", "socks4"], ["test_every_request_is_looked_at"]),
    "HTTP/2": (["h2-authority", "h2-prior", "h2c-upgrade", "sni-h2"], ["test_every_request_is_looked_at"]),
    "plain HTTP": (["tcp-80", "tcp-8080", "http-on-443", "http-on-9999"], ["test_every_port_is_closed_and_says_so"]),
    "ambiguous requests": (["smuggled-both", "smuggled-te", "smuggled-length", "smuggled-plus", "smuggled-chunk", "host-bare-lf", "host-folded"], []),
    "TLS on other ports": (["sni-odd-port", "sni-on-80", "sni-on-22"], ["test_other_ways_to_write_a_name"]),
    "raw sockets": (["raw-tcp", "raw-udp", "raw-icmp", "raw-gre", "raw-ipip", "raw-crafted", "raw6", "raw6-crafted", "raw6-udp"], []),
    "packet sockets": (["packet", "packet-dgram", "packet-all", "xdp", "tun"], []),
    "ICMP": (["icmp", "icmp6"], []),
    "SCTP and others": (["sctp", "sctp-one", "dccp", "udplite", "l2tp", "mptcp"], ["test_other_protocols"]),
    "extension headers": (["six-hops", "six-destination", "six-destination-first", "six-route-4"], []),
    "source routing": (["source-route", "source-route-strict", "record-route", "udp-source-route"], []),
    "abstract sockets": (["unix-abstract"], ["test_abstract_sockets_of_the_host"]),
    "the proxy's own ports": (["own-port-foreign", "own-port-foreign-six", "own-port-foreign-udp"], ["test_no_foreign_address_answers"]),
    "the first instant": ([], ["test_from_the_first_instant"]),
    "a change of the policy": ([], ["test_while_the_policy_changes", "test_a_change_is_in_force_at_once"]),
    "the death of egress": ([], ["test_while_egress_and_node_die", "test_while_everything_is_dead", "test_egress_dies"]),
    "rebinding": ([], ["test_rebinding", "test_allowed_names_do_not_lead_inwards"]),
    "other resolvers": (["dns-direct", "dns-direct-tcp", "dns-public", "dns-public-tcp", "dns-six", "dot", "doh", "doq", "dns-port-5353"],
                        ["test_names_of_others_are_not_asked_for"]),
    "queries as a channel": (["dns", "dns-upper", "dns-edns", "dns-tcp-two", "resolver-tcp"], ["test_names_are_limited", "test_the_rate_is_limited"]),
    "QUIC and other datagrams": (["quic", "quic-allowed", "quic-six", "udp-443", "udp-123", "udp-9999", "udp6", "udp-stun"],
                                 ["test_other_protocols", "test_answers_come_from_where_it_was_sent"]),
    "private addresses": (["private-10", "private-192", "private-shared", "unique-local", "udp-private"],
                          ["test_private_addresses_only_when_named", "test_names_that_lead_inwards"]),
    "loopback and link-local": (["metadata", "mapped"], ["test_names_that_lead_inwards", "test_the_other_family_is_no_hole"]),
    "multicast": (["multicast", "multicast-six", "broadcast", "igmp", "mdns", "ssdp"], []),
    "the host and its services": (["metadata", "metadata-mapped", "udp-metadata"], ["test_the_host_and_neighbours_are_closed", "test_private_addresses_only_when_named"]),
}


def test_no_case_is_forgotten():
    here = pathlib.Path(__file__).parent
    tests = {line.split("(")[0] for f in here.glob("test_*.py") for line in f.read_text().split("\ndef ") if line.startswith("test_")}
    for case, (attempts, named) in CASES.items():
        assert attempts or named, case
        assert set(attempts) <= set(NAMES) and set(named) <= tests, (case, set(attempts) - set(NAMES), set(named) - tests)
        # Those for which there is no place where they succeed need a test that has one.
        assert named or set(attempts) <= BY_POLICY | BY_CONSTRUCTION | CHANGES, case


def test_encrypted_greetings(api, world):
    """The outer name decides; with `refuse_ech` neither does."""
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        run(api, sb, "sni-ech-outer")
        assert world.went_to(w.ALLOWED) and not world.went_to(w.EVIL)
        world.clear()
        assert api.put(f"/v1/sandboxes/{sb.id}/policy", json={"allow_domains": ["allowed.test"], "refuse_ech": True}).status_code == 200
        assert run(api, sb, "sni-ech-outer")["sni-ech-outer"] == repr(bytes([21, 3, 1, 0, 2, 2, 49]))       # access denied
        d = network(api, sb)["denials"][-1]
        assert (d["reason"], d["protocol"], d["name"], d["port"]) == ("encrypted-hello", "tls", "allowed.test", 443)
        assert not world.went_anywhere()


def test_abstract_sockets_of_the_host(api, world):
    """Beside a sandbox the attempt succeeds."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0quicksand-test-abstract")
        s.listen()
        with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
            assert run(api, sb, "unix-abstract")["unix-abstract"].startswith("! ConnectionRefusedError")
        out = subprocess.run([sys.executable, "-c", BYPASS, "unix-abstract", w.EVIL, w.EVIL6, w.ALLOWED, w.DNS], capture_output=True, text=True)
        assert out.stdout == "unix-abstract\tNone\n"
