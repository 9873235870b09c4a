#!/usr/bin/env python3
"""
The network's benchmarks: egress and tunnels beside a direct connection and Debian's haproxy, in one run.

    unshare --net bench/net.py BUILD RESULTS.json       (bench/run does so)

Every contender is a way from a client to a server, and goes through as many hops: a sandbox's network -> egress -> server beside
host -> haproxy -> server. Rounds are interleaved: each has one sample of every contender, in turns that change, and what is
compared was measured in the same round. Adds its rows to RESULTS.json, if it is there. QUICK=1: fewer rounds, less data. How to read the rows:
bench/README.md.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "bench"))

import networld as w  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
ROUNDS = 5 if QUICK else 9
BYTES = (64 if QUICK else 128) << 20
SHAPED_ROUNDS = 3
SHAPED_BYTES = 48 << 20         # nearly half a second
ROUND_TRIPS = 300
SETUPS = 60
anchors = []                    # sandboxes with a process that shows where their network is


@dataclasses.dataclass
class Contender:
    """`run` starts netload with these words behind its first, and gives back what it says; `pids`: of what stands between."""
    run: Callable
    words: list
    options: list = dataclasses.field(default_factory=list)
    pids: Callable = lambda: []

    def sample(self, what, n, *more):
        return [float(v) for v in self.run([what, *self.words, n, *self.options, *more]).split()]


@dataclasses.dataclass
class Pair:
    """`ours` has to be at least as good as `peer`; both are told beside `direct`."""
    ours: str
    peer: str
    direct: str = "direct"


def on_host(prefix=()):
    def run(words):
        r = subprocess.run([*prefix, w.NETLOAD, *map(str, words)], check=True, capture_output=True, text=True, timeout=300)
        return r.stdout
    return run


def in_network(world, api, sb):
    """
    A prefix for processes in the sandbox's network. They are not in its control group: else rows would compare the share of the
    processors that a sandbox has with the one that the host's processes have.
    """
    r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sleep", f"1000{len(anchors)}"]})
    assert r.status_code in (200, 201), r.text
    anchors.append(sb.id)
    return ["nsenter", f"--net=/proc/{world.process_of(f'sleep 1000{len(anchors) - 1}')}/ns/net"]


# --- samples

def processor_us(pids):
    """What these processes have had of the processors."""
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1000


def measure(contenders, what, n, rounds, more=()):
    """By contender a sample of each round, and the processor's time that the proxy had for one of n."""
    samples = {name: [] for name in contenders}
    costs = {name: [] for name in contenders}
    names = list(contenders)
    for i in range(rounds + 1):
        for name in names[i % len(names):] + names[:i % len(names)]:
            c = contenders[name]
            before = processor_us(c.pids())
            v = c.sample(what, n, *more)
            if i > 0:                   # the first round warms up
                samples[name].append(v)
                costs[name].append((processor_us(c.pids()) - before) / n)
    return samples, costs


# --- rows

rows = []


def add_row(name, rounds, value, ratio, gate, unit):
    met = all(ratio[k.removesuffix("_min")] >= least for k, least in gate.items())
    rows.append({"name": name, "ok": True, "runs": rounds, "failures": 0, "unit_u": None, "gate_met": met,
                 "value": value, "ratio": ratio, "gate": gate})
    print(f"{name:22} " + "  ".join(f"{k} {v:.1f}" for k, v in value.items()) + f" {unit}")
    print(" " * 23 + "  ".join(f"{k} {v:.3f}" for k, v in ratio.items()) + ("" if met else "   BAR NOT MET"), flush=True)


def add_bulk(name, contenders, pairs, what, n, rounds, is_shaped):
    samples, _ = measure(contenders, what, n, rounds)
    rate = {who: [n / s / 1e6 for s, in v] for who, v in samples.items()}
    ratio, gate = {}, {}
    for p in pairs:
        for peer, least in ((p.peer, None if is_shaped else 1.0), (p.direct, 0.95 if is_shaped else None)):
            key = f"{p.ours}/{peer}"
            ratio[key] = statistics.median(a / b for a, b in zip(rate[p.ours], rate[peer]))
            if least is not None:
                gate[f"{key}_min"] = least
    add_row(name, rounds, {f"{who}_mb_s": statistics.median(v) for who, v in rate.items()}, ratio, gate, "MB/s")


def add_latency(world, name, contenders, pairs, what, n, rounds):
    """
    Added latency: the median of a contender less that of the direct connection in the same round. The ratio says how many times
    less we add than the peer. Pinned: where a process wakes up decides more than what it does, and changes from run to run.
    """
    with world.pinned() as more:
        samples, costs = measure(contenders, what, n, rounds, more)
    value, ratio, gate = {}, {}, {}
    for who, v in samples.items():
        value[f"{who}_p50_us"] = statistics.median(s[0] for s in v)
        value[f"{who}_p99_us"] = statistics.median(s[1] for s in v)
        if contenders[who].pids():
            value[f"{who}_cpu_us"] = statistics.median(costs[who])

    def added(who, direct):
        return statistics.median(a[0] - b[0] for a, b in zip(samples[who], samples[direct]))

    for p in pairs:
        for who in (p.ours, p.peer):
            value[f"{who}_added_us"] = added(who, p.direct)
        key = f"{p.peer}/{p.ours}_added"
        ratio[key] = value[f"{p.peer}_added_us"] / max(value[f"{p.ours}_added_us"], 0.1)
        gate[f"{key}_min"] = 1.0
    add_row(name, rounds, value, ratio, gate, "us")


def bench(world, name, contenders, pairs):
    for what in ("get", "put"):
        add_bulk(f"{name}-{what}", contenders, pairs, what, BYTES, ROUNDS, False)
    add_latency(world, f"{name}-roundtrip", contenders, pairs, "ping", ROUND_TRIPS, ROUNDS)
    add_latency(world, f"{name}-setup", contenders, pairs, "setup", SETUPS, ROUNDS)


def bench_shaped(name, contenders, pairs):
    w.shape("1gbit")
    for what in ("get", "put"):
        add_bulk(f"{name}-{what}-1gbit", contenders, pairs, what, SHAPED_BYTES, SHAPED_ROUNDS, True)
    w.shape(None)


# --- what is compared

def egress(world, api):
    addresses = {"rules": [{"action": "allow", "cidrs": ["93.184.216.0/24"]}]}
    names = {"rules": [{"action": "allow", "domains": [w.NAME], "protocol": "tls", "ports": [w.PORT]}]}
    greeting = ["-g", world.home / "hello"]
    with api.sandbox(network=addresses) as a, api.sandbox(network=names) as b:
        host = on_host()
        far = [w.FAR, w.PORT]
        contenders = {
            "direct": Contender(host, far),
            "haproxy": Contender(host, ["127.0.0.1", w.HAPROXY], pids=world.haproxy_pids),
            "pass": Contender(on_host(in_network(world, api, a)), far, pids=world.egress_pids),
            "haproxy-sni": Contender(host, ["127.0.0.1", w.HAPROXY_SNI], greeting, world.haproxy_pids),
            "sni": Contender(on_host(in_network(world, api, b)), far, greeting, world.egress_pids),
        }
        pairs = [Pair("pass", "haproxy"), Pair("sni", "haproxy-sni")]
        bench(world, "egress", contenders, pairs)
        bench_shaped("egress", contenders, pairs)


def injection(world, api):
    """Both end TLS, add a line to each request, and see that the server is who it should be."""
    name, value = w.LINE.split(": ")
    rule = {"domains": [w.NAME], "protocol": "tls", "ports": [w.PORT_TLS], "inject": [{"header": name, "value": value}]}
    with api.sandbox(network={"rules": [rule]}) as sb:
        tls = ["-t", w.NAME]
        contenders = {
            "direct": Contender(on_host(), [w.FAR, w.PORT_TLS], [*tls, "-H", w.LINE]),
            "haproxy": Contender(on_host(), ["127.0.0.1", w.HAPROXY_INJECT], tls, world.haproxy_pids),
            "inject": Contender(on_host(in_network(world, api, sb)), [w.FAR, w.PORT_TLS], tls, world.egress_pids),
        }
        pairs = [Pair("inject", "haproxy")]
        bench(world, "inject", contenders, pairs)
        bench_shaped("inject", contenders, pairs)


def tunnels(world, api):
    with api.sandbox(ports=[{"port": w.PORT, "kind": "raw"}]) as sb:
        world.serve(in_network(world, api, sb), "127.0.0.1", w.PORT)
        port = api.get(f"/v1/sandboxes/{sb.id}/ports").json()["items"][0]
        w.wait_for(port["raw_port"])
        host = on_host()
        tls = ["-t", port["host"]]

        def pids():
            return world.daemon.pids("node")

        contenders = {
            "direct": Contender(host, ["127.0.0.1", w.PORT]),
            "haproxy": Contender(host, ["127.0.0.1", w.HAPROXY_IN], pids=world.haproxy_pids),
            "raw": Contender(host, ["127.0.0.1", port["raw_port"]], pids=pids),
            "direct-tls": Contender(host, ["127.0.0.1", w.PORT_TLS], tls),
            "haproxy-tls": Contender(host, ["127.0.0.1", w.HAPROXY_TLS], tls, world.haproxy_pids),
            "tls": Contender(host, ["127.0.0.1", port["tls_port"]], tls, pids),
        }
        bench(world, "tunnel", contenders, [Pair("raw", "haproxy"), Pair("tls", "haproxy-tls", "direct-tls")])
        outside = on_host(w.far())
        shaped = {
            "direct": Contender(outside, [w.NEAR, w.PORT]),
            "haproxy": Contender(outside, [w.NEAR, w.HAPROXY_IN]),
            "raw": Contender(outside, [w.NEAR, port["raw_port"]]),
            "direct-tls": Contender(outside, [w.NEAR, w.PORT_TLS], tls),
            "haproxy-tls": Contender(outside, [w.NEAR, w.HAPROXY_TLS], tls),
            "tls": Contender(outside, [w.NEAR, port["tls_port"]], tls),
        }
        bench_shaped("tunnel", shaped, [Pair("raw", "haproxy"), Pair("tls", "haproxy-tls", "direct-tls")])


def main():
    results = pathlib.Path(sys.argv[2])
    parts = {"egress": egress, "inject": injection, "tunnels": tunnels}
    with w.world(pathlib.Path(sys.argv[1]).resolve()) as world:
        print(f"load before: {os.getloadavg()}")
        for part in sys.argv[3:] or parts:
            parts[part](world, world.daemon.api)
        print(f"load after: {os.getloadavg()}")
    if results.exists():
        all_results = json.loads(results.read_text())
        all_results["benchmarks"] = [b for b in all_results["benchmarks"] if b["name"] not in {r["name"] for r in rows}] + rows
        results.write_text(json.dumps(all_results, indent=1))
    return 0 if all(r["gate_met"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
