#!/usr/bin/env python3
"""
The network's benchmarks: egress and tunnels beside a direct connection and Debian's haproxy, in one run.

    unshare --net bench/net.py BUILD RESULTS.json       (bench/run does so)

The daemon runs in a namespace without an uplink; a cable leads to a second one, in which the servers outside are. Rounds are
interleaved: each has one sample of every contender, and what is compared is the median of ratios within rounds. Adds its rows to
RESULTS.json, if it is there. QUICK=1: fewer rounds, less data.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests/system"))

import qsdaemon  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
BYTES = (64 if QUICK else 512) << 20
SHAPED_BYTES = (24 if QUICK else 96) << 20      # a second, or near that, at 1 Gbit/s
PINGS = 500 if QUICK else 3000
ROUNDS = 3 if QUICK else 7
NEAR, FAR, NAME = "93.184.216.1", "93.184.216.34", "bench.test"
PORT, HAPROXY, HAPROXY_TLS, HAPROXY_IN = 9000, 9001, 9002, 9003
INSIDE = "/tmp/netload"


def sh(command):
    subprocess.run(command, shell=True, check=True, stdin=subprocess.DEVNULL)


def far(*argv):
    """A process in the namespace at the cable's other end."""
    return ["nsenter", f"--net={FAR_NS}", *map(str, argv)]


# --- the two ends, and what stands between them

def make_cable():
    global FAR_NS
    keeper = subprocess.Popen(["unshare", "--net", "sleep", "100000"])
    FAR_NS = f"/proc/{keeper.pid}/ns/net"
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(FAR_NS) == own:
        time.sleep(0.01)
    sh(f"ip link set lo up && ip link add near type veth peer name far netns {keeper.pid}")
    sh(f"ip addr add {NEAR}/24 dev near && ip link set near up")
    subprocess.run(far("sh", "-c", f"ip link set lo up; ip addr add {FAR}/24 dev far; ip link set far up"), check=True)
    return keeper


def shape(rate):
    """Both directions of the cable; None: as fast as it goes."""
    for prefix, dev in (([], "near"), (far(), "far")):
        subprocess.run([*prefix, "tc", "qdisc", "del", "dev", dev, "root"], stderr=subprocess.DEVNULL)
        if rate:
            subprocess.run([*prefix, "tc", "qdisc", "add", "dev", dev, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"], check=True)


def serve_names(s):
    """Every name leads to FAR."""
    while True:
        with contextlib.suppress(OSError):
            data, peer = s.recvfrom(2048)
            end = data.index(0, 12) + 5
            kind, = struct.unpack("!H", data[end - 4:end - 2])
            record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + socket.inet_aton(FAR) if kind == 1 else b""
            s.sendto(data[:2] + b"\x81\x80\x00\x01" + struct.pack("!HHH", bool(record), 0, 0) + data[12:end] + record, peer)


def start_haproxy(home):
    (home / "haproxy.cfg").write_text(f"""
global
    maxconn 1000
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    option splice-auto
listen out
    bind 127.0.0.1:{HAPROXY}
    server far {FAR}:{PORT}
listen in
    bind 0.0.0.0:{HAPROXY_IN}
    server inside 127.0.0.1:{PORT}
listen in-tls
    bind 0.0.0.0:{HAPROXY_TLS} ssl crt {home}/both.pem
    server inside 127.0.0.1:{PORT}
""")
    p = subprocess.Popen(["haproxy", "-db", "-f", home / "haproxy.cfg"], stderr=subprocess.DEVNULL)
    wait_for(HAPROXY)
    return p


def wait_for(port):
    end = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        if time.monotonic() > end:
            raise RuntimeError(f"nothing listens on port {port}")
        time.sleep(0.05)


def hello(name):
    """The greeting of a TLS client, as it goes over the wire."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ctx.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


# --- samples

def host(*argv, prefix=()):
    r = subprocess.run([*prefix, NETLOAD, *map(str, argv)], check=True, capture_output=True, text=True, timeout=300)
    return float(r.stdout)


def inside(api, sb, *argv):
    r = api.run(sb, [INSIDE, *map(str, argv)], timeout=300)
    if r["exec"]["exit"] is None or r["exec"]["exit"]["code"] != 0:
        raise RuntimeError(f"netload in the sandbox: {r}")
    return float(r["stdout"])


def tls(what, address, port, n):
    """netload's client over TLS; on the host, for both contenders."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    t = time.monotonic()
    with ctx.wrap_socket(socket.create_connection((address, port), timeout=300)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(struct.pack("=c7xQ", {"get": b"g", "put": b"p", "ping": b"e"}[what], n))
        view = memoryview(bytearray(256 * 1024))
        if what == "get":
            left = n
            while left > 0:
                got = s.recv_into(view)
                if got == 0:
                    raise RuntimeError("the connection ended")
                left -= got
            return time.monotonic() - t
        if what == "put":
            for _ in range(n // len(view)):
                s.sendall(view)
            s.recv(1)
            return time.monotonic() - t
        samples = []
        for _ in range(n):
            t = time.monotonic()
            s.sendall(view[:100])
            left = 100
            while left > 0:
                left -= s.recv_into(view, left)
            samples.append(time.monotonic() - t)
        return statistics.median(samples) * 1e6


def measure(contenders, n, what):
    """Samples by contender; in each round one of each, in turns that change."""
    samples = {name: [] for name in contenders}
    names = list(contenders)
    for i in range(ROUNDS + 1):
        for name in names[i % len(names):] + names[:i % len(names)]:
            v = contenders[name](what, n)
            if i > 0:                   # the first round warms up
                samples[name].append(v)
    return samples


def rate(seconds, n):
    return n / seconds / 1e6


# --- rows

rows = []


def add_row(name, samples, unit, gates):
    """`gates`: (contender, peer, least or None): how many times better than the peer."""
    better = (lambda a, b: a / b) if unit == "MB/s" else (lambda a, b: b / a)
    row = {"name": name, "ok": True, "runs": ROUNDS, "failures": 0, "unit_u": None, "gate_met": True, "value": {}, "ratio": {}, "gate": {}}
    for who, v in samples.items():
        key = f"{who}_{'mb_s' if unit == 'MB/s' else 'us'}"
        row["value"][key] = statistics.median(v)
    for who, peer, least in gates:
        ratio = statistics.median(better(a, b) for a, b in zip(samples[who], samples[peer]))
        row["ratio"][f"{who}/{peer}"] = ratio
        if least is not None:
            row["gate"][f"{who}/{peer}_min"] = least
            row["gate_met"] = row["gate_met"] and ratio >= least
    rows.append(row)
    print(f"{name:22} " + "  ".join(f"{w} {statistics.median(v):.1f}" for w, v in samples.items()) + f" {unit}")
    print(" " * 23 + "  ".join(f"{k} {v:.3f}" for k, v in row["ratio"].items()) + ("" if row["gate_met"] else "   GATE NOT MET"), flush=True)


def bench(name, contenders, ours, limit=None):
    """Down, up and round trips. `ours`: (contender, the haproxy that does the same)."""
    if limit:
        shape(limit)
        for what in ("get", "put"):
            raw = measure(contenders, SHAPED_BYTES, what)
            samples = {w: [rate(s, SHAPED_BYTES) for s in v] for w, v in raw.items()}
            add_row(f"{name}-{what}-1gbit", samples, "MB/s", [(who, "direct", 0.95) for who, _ in ours])
        shape(None)
        return
    for what in ("get", "put"):
        raw = measure(contenders, BYTES, what)
        samples = {w: [rate(s, BYTES) for s in v] for w, v in raw.items()}
        add_row(f"{name}-{what}", samples, "MB/s", [g for who, peer in ours for g in ((who, peer, 1.0), (who, "direct", None))])
    add_row(f"{name}-latency", measure(contenders, PINGS, "ping"), "us", [g for who, peer in ours for g in ((who, peer, None), (who, "direct", None))])


def egress(api, hello_file):
    addresses = {"rules": [{"action": "allow", "cidrs": ["93.184.216.0/24"]}]}
    names = {"rules": [{"action": "allow", "domains": [NAME], "protocol": "tls", "ports": [PORT]}]}
    with api.sandbox(network=addresses) as a, api.sandbox(network=names) as b:
        for sb in (a, b):
            for path, data in ((INSIDE, NETLOAD.read_bytes()), ("/tmp/hello", hello_file.read_bytes())):
                r = api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": path, "mode": "0755"}, content=data)
                assert r.status_code in (200, 201), r.text
        contenders = {
            "direct": lambda what, n: host(what, FAR, PORT, n),
            "haproxy": lambda what, n: host(what, "127.0.0.1", HAPROXY, n),
            "pass": lambda what, n: inside(api, a, what, FAR, PORT, n),
            "sni": lambda what, n: inside(api, b, what, FAR, PORT, n, "/tmp/hello"),
        }
        ours = [("pass", "haproxy"), ("sni", "haproxy")]
        bench("egress", contenders, ours)
        bench("egress", contenders, ours, "1gbit")


def tunnels(api):
    with api.sandbox(ports=[{"port": PORT, "kind": "raw"}]) as sb:
        r = api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": INSIDE, "mode": "0755"}, content=NETLOAD.read_bytes())
        assert r.status_code in (200, 201), r.text
        r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": [INSIDE, "serve", "127.0.0.1", str(PORT)]})
        assert r.status_code in (200, 201), r.text
        port = api.get(f"/v1/sandboxes/{sb.id}/ports").json()["items"][0]
        wait_for(port["raw_port"])
        contenders = {
            "direct": lambda what, n: host(what, "127.0.0.1", PORT, n),
            "haproxy": lambda what, n: host(what, "127.0.0.1", HAPROXY_IN, n),
            "raw": lambda what, n: host(what, "127.0.0.1", port["raw_port"], n),
            "haproxy-tls": lambda what, n: tls(what, "127.0.0.1", HAPROXY_TLS, n),
            "tls": lambda what, n: tls(what, "127.0.0.1", port["tls_port"], n),
        }
        bench("tunnel", contenders, [("raw", "haproxy"), ("tls", "haproxy-tls")])
        outside = {
            "direct": lambda what, n: host(what, NEAR, PORT, n, prefix=far()),
            "haproxy": lambda what, n: host(what, NEAR, HAPROXY_IN, n, prefix=far()),
            "raw": lambda what, n: host(what, NEAR, port["raw_port"], n, prefix=far()),
        }
        bench("tunnel", outside, [("raw", "haproxy")], "1gbit")


def main():
    global NETLOAD
    build, results = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    NETLOAD = build / "bench/netload"
    home = qsdaemon.make_dir("qs-bench-net-")
    home.chmod(0o755)
    processes = [make_cable()]
    daemon = None
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((NEAR, 5353))
        threading.Thread(target=serve_names, args=(s,), daemon=True).start()
        sh(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=bench -keyout {home}/key.pem -out {home}/cert.pem"
           f" 2>/dev/null && cat {home}/cert.pem {home}/key.pem > {home}/both.pem")
        (home / "hello").write_bytes(hello(NAME))
        for argv in ([NETLOAD, "serve", "0.0.0.0", str(PORT)], far(NETLOAD, "serve", FAR, PORT)):
            p = subprocess.Popen(argv, stdout=subprocess.PIPE)
            processes.append(p)
            assert p.stdout.readline() == b"ready\n"
        processes.append(start_haproxy(home))
        first = 20000
        daemon = qsdaemon.Daemon(build, egress_dns=f"{NEAR}:5353", log_level="warn", tunnel_listen=f"0.0.0.0:{first}-{first + 20}")
        daemon.start()
        daemon.import_base()
        print(f"load before: {os.getloadavg()}")
        egress(daemon.api, home / "hello")
        tunnels(daemon.api)
        print(f"load after: {os.getloadavg()}")
    finally:
        if daemon is not None:
            daemon.stop()
            daemon.purge()
        for p in reversed(processes):
            p.kill()
            p.wait()
        shutil.rmtree(home, ignore_errors=True)
    if results.exists():
        all_results = json.loads(results.read_text())
        all_results["benchmarks"] = [b for b in all_results["benchmarks"] if b["name"] not in {r["name"] for r in rows}] + rows
        results.write_text(json.dumps(all_results, indent=1))
    return 0 if all(r["gate_met"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
