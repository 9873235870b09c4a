"""
What a connection costs egress does not depend on how many rules its policy has: instructions counted by callgrind.

egress runs alone, by hand, in the namespace of the test's world; the test is the node, and a third namespace the sandbox. What is
counted is the difference between a run with connections and one without, so neither the start nor the reading of the policy is in it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading

import pytest

import qsdaemon
import world as w

CONNECTIONS = 150
ATTACH, OK = 3, 8
ALLOW, DENY = 1, 2
ANY, TCP, TLS, HTTP = 0, 1, 2, 3
SANDBOX = "sb-0000000000000000000001"

# There is no filter under callgrind, whose own calls it would not know.
NO_FILTER = "int seccomp_load(void *c) { (void)c; return 0; }\n"


def text(s):
    return struct.pack("<I", len(s)) + s.encode()


def rule(action=ALLOW, protocol=ANY, domains=(), cidrs=(), ports=()):
    out = struct.pack("<BB", action, protocol) + text("")
    out += struct.pack("<I", len(domains)) + b"".join(text(d) for d in domains)
    out += struct.pack("<I", len(cidrs))
    for address, bits in cidrs:
        out += struct.pack("<I", 16) + bytes(10) + b"\xff\xff" + socket.inet_aton(address) + bytes([96 + bits])
    return out + struct.pack("<I", len(ports)) + b"".join(struct.pack("<HH", p, p) for p in ports)


def policy(rules):
    return struct.pack("<BII", 1, 0, len(rules)) + b"".join(rules)


LAST = [rule(domains=["allowed.test"])]


def mixed(n):
    """Names and prefixes, and the rule that decides is the last one."""
    half = (n - 1) // 2
    return ([rule(domains=[f"host{i}.example.com"], ports=[443]) for i in range(half)] +
            [rule(DENY, cidrs=[(f"11.{i // 250}.{i % 250}.0", 24)]) for i in range(n - 1 - half)] + LAST)


def wildcards(n):
    return [rule(domains=[f"*.w{i}.example.com", f"w{i}.example.com"]) for i in range(n - 1)] + LAST


def by_port(n):
    """Rules about ports alone: nothing else tells them apart."""
    return [rule(DENY, ports=[1000 + i]) for i in range(n - 1)] + LAST


def one_rule(n):
    """As many names in one rule."""
    return [rule(domains=[f"host{i}.example.com" for i in range(n - 1)] + ["allowed.test"])]


def with_prefixes(n):
    """A name and where it may lead: what no rule allows has to be resolved before that is known."""
    return [rule(domains=[f"host{i}.example.com"], cidrs=[("93.184.216.0", 24)]) for i in range(n - 1)] + LAST


class Egress:
    """One run; .count is known once it is closed."""

    def __init__(self, tmp, home):
        self.out = tmp / "callgrind.out"
        conf = tmp / "conf"
        conf.write_text(f"data_dir = {tmp}\nrun_dir = {tmp}\nuser_egress = root\nuser_node = root\negress_dns = {w.DNS}\n")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(tmp / "egress.sock"))
        listener.listen(4)
        self.log = open(tmp / "log", "w+")
        fd = fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD, 10)
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec 3<&{fd} {fd}<&-; exec valgrind --tool=callgrind --callgrind-out-file={self.out} --dump-instr=no"
             f" {home}/quicksand-egress --config {conf}"],
            env={**os.environ, "LD_PRELOAD": str(tmp / "nofilter.so")}, pass_fds=[fd], stdout=self.log, stderr=self.log)
        os.close(fd)
        listener.close()
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.connect(str(tmp / "egress.sock"))
        self.link.settimeout(120)

    def attach(self, rules, sockets):
        payload = text(SANDBOX) + struct.pack("<Q?", 1, False) + struct.pack("<I", len(rules)) + rules
        memfd = os.memfd_create("message", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.write(memfd, payload)
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        by_memfd = len(payload) + 12 > 64 * 1024
        head = struct.pack("<HHII", ATTACH | (0x8000 if by_memfd else 0), 1, 1, len(payload))
        socket.send_fds(self.link, [head] if by_memfd else [head, payload],
                        ([memfd] if by_memfd else []) + [s.fileno() for s in sockets])
        os.close(memfd)
        answer = self.link.recv(65536)
        assert struct.unpack("<HHI", answer[:8]) == (OK, 1, 1), answer

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.link.close()
        self.log.seek(0)
        said = self.log.read()
        self.log.close()
        found = re.search(r"Collected : (\d+)", said)
        assert found, said[-2000:]
        return int(found[1])


@contextlib.contextmanager
def sandbox_sockets():
    """A namespace like a sandbox's: every address leads to its loopback. Yields its sockets and a way to run in it."""
    box, ready, done, jobs = {}, threading.Event(), threading.Event(), []

    def run():
        w.new_namespace()
        w.sh("ip link set lo up && ip route add local 0.0.0.0/0 dev lo")
        tcp = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        tcp.bind(("::", 80))
        tcp.listen(64)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("0.0.0.0", 53))
        box["sockets"] = (tcp, udp)
        ready.set()
        while not done.wait(0.01):
            while jobs:
                fn, finished, out = jobs.pop(0)
                try:
                    out.append(fn())
                except Exception as e:      # noqa: BLE001 - raised by the one who asked
                    out.append(e)
                finished.set()

    def within(fn):
        finished, out = threading.Event(), []
        jobs.append((fn, finished, out))
        assert finished.wait(300)
        if isinstance(out[0], Exception):
            raise out[0]
        return out[0]

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(20)
    try:
        yield box["sockets"], within
    finally:
        done.set()
        thread.join()
        for s in box["sockets"]:
            s.close()


def connect(host, n):
    """n requests one after the other; the status codes."""
    codes = set()
    for _ in range(n):
        with socket.create_connection((w.EVIL, 80), timeout=60) as s:
            s.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            data = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := s.recv(65536):
                    data += piece
            codes.add(data.split()[1].decode() if data else "reset")
    return codes


def instructions(tmp, rules, host, n):
    egress = Egress(tmp, qsdaemon.build_dir() / "src/egress")
    with sandbox_sockets() as (sockets, within):
        egress.attach(policy(rules), sockets)
        # Known names, one connection's first uses of everything.
        codes = within(lambda: connect(host, 3 + n))
        count = egress.close()
    (tmp / "egress.sock").unlink()
    return count, codes


@pytest.fixture
def workshop(tmp_path):
    for program in ("valgrind", "gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing")
    (tmp_path / "nofilter.c").write_text(NO_FILTER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "nofilter.so", tmp_path / "nofilter.c"], check=True)
    return tmp_path


CASES = [(mixed, "allowed.test", "200"), (mixed, "host7.example.net", "403"), (wildcards, "allowed.test", "200"),
         (by_port, "allowed.test", "200"), (by_port, "evil.test", "403"), (with_prefixes, "allowed.test", "200"),
         (with_prefixes, "evil.test", "403"), (one_rule, "allowed.test", "200")]


@pytest.mark.long
@pytest.mark.parametrize("make,host,code", CASES, ids=lambda v: v.__name__ if callable(v) else v)
def test_ten_thousand_rules_cost_what_ten_do(world, workshop, make, host, code):
    cost = {}
    for n in (10, 10000):
        idle, codes = instructions(workshop, make(n), host, 0)
        busy, more = instructions(workshop, make(n), host, CONNECTIONS)
        assert codes == more == {code}
        cost[n] = (busy - idle) / CONNECTIONS
    print(f"{make.__name__} {host}: {cost[10]:.0f} instructions a connection with 10 rules, {cost[10000]:.0f} with 10,000"
          f" ({cost[10000] / cost[10]:.3f})")
    assert cost[10000] < cost[10] * 1.10, cost
