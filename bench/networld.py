"""
What the network's benchmarks run in: a daemon in a namespace without an uplink, a cable to a second one with the servers outside,
and haproxy beside the daemon. Used by net.py.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/system"))

import qsdaemon  # noqa: E402

NEAR, FAR, NAME, DOMAIN = "93.184.216.1", "93.184.216.34", "bench.test", "tunnel.test"
PORT, PORT_TLS = 9000, 9443
HAPROXY, HAPROXY_SNI, HAPROXY_INJECT, HAPROXY_IN, HAPROXY_TLS = range(9001, 9006)
LINE = "x-bench-key: k-0123456789abcdef"
TUNNELS = 20000
NETLOAD = FAR_NS = None


def sh(command):
    subprocess.run(command, shell=True, check=True, stdin=subprocess.DEVNULL)


def far(*argv):
    """A process in the namespace at the cable's other end."""
    return ["nsenter", f"--net={FAR_NS}", *map(str, argv)]


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
            subprocess.run([*prefix, "tc", "qdisc", "add", "dev", dev, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"],
                           check=True)


def serve_names(s):
    """Every name leads to FAR."""
    while True:
        with contextlib.suppress(OSError):
            data, peer = s.recvfrom(2048)
            end = data.index(0, 12) + 5
            kind, = struct.unpack("!H", data[end - 4:end - 2])
            record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + socket.inet_aton(FAR) if kind == 1 else b""
            s.sendto(data[:2] + b"\x81\x80\x00\x01" + struct.pack("!HHH", bool(record), 0, 0) + data[12:end] + record, peer)


def make_certificates(home):
    """An authority, and of it one for the server and for what stands before it."""
    with open(home / "names", "w") as f:
        f.write(f"subjectAltName=DNS:{NAME},DNS:*.{DOMAIN}\n")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    sh(f"cd {home} && exec 2>/dev/null; openssl req -x509 {key} -days 9 -subj /CN=bench-authority -keyout ca.key -out ca.pem"
       f" -addext basicConstraints=critical,CA:TRUE"
       f" && openssl req {key} -subj /CN={NAME} -keyout key.pem -out request.pem"
       f" && openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile names -out cert.pem"
       f" && cat cert.pem key.pem >both.pem && chmod 644 *.pem")


def start_haproxy(home):
    # A connection to the server for each of a client's, as egress has: what clients have in common is not what is compared.
    name, value = LINE.split(": ")
    (home / "haproxy.cfg").write_text(f"""
global
    maxconn 1000
    ssl-server-verify required
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    option splice-auto
listen out
    bind 127.0.0.1:{HAPROXY}
    server far {FAR}:{PORT}
listen sni
    bind 127.0.0.1:{HAPROXY_SNI}
    tcp-request inspect-delay 10s
    tcp-request content accept if {{ req.ssl_sni -i {NAME} }}
    tcp-request content reject if {{ req.ssl_hello_type 1 }}
    server far {FAR}:{PORT}
listen inject
    mode http
    http-reuse never
    bind 127.0.0.1:{HAPROXY_INJECT} ssl crt {home}/both.pem
    http-request set-header {name} {value}
    server far {FAR}:{PORT_TLS} ssl verify required ca-file {home}/ca.pem sni str({NAME}) verifyhost {NAME}
listen in
    bind 0.0.0.0:{HAPROXY_IN}
    server inside 127.0.0.1:{PORT}
listen in-tls
    bind 0.0.0.0:{HAPROXY_TLS} ssl crt {home}/both.pem
    tcp-request content reject unless {{ ssl_fc_sni -m end .{DOMAIN} }}
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


def groups_of(pid):
    """The control groups by which the scheduler weighs a process, as files to write processes to; in v1 with that of the root."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for top in {controllers, "cpu"} if controllers else {"unified", ""}:
            if (procs := pathlib.Path(f"/sys/fs/cgroup/{top}{path}/cgroup.procs")).exists():
                yield procs, pathlib.Path(f"/sys/fs/cgroup/{top}/cgroup.procs") if controllers else None
                break


class World:
    def __init__(self):
        self.home = self.daemon = self.haproxy = None
        self.processes = []

    def serve(self, prefix, *words):
        p = subprocess.Popen([*prefix, NETLOAD, "serve", *map(str, words)], stdout=subprocess.PIPE)
        self.processes.append(p)
        assert p.stdout.readline() == b"ready\n"

    def process_of(self, command):
        """Of a sandbox of this daemon, with this command line."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for pid, _ in self.daemon.own_processes():
                with contextlib.suppress(OSError):
                    if pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip() == command:
                        return pid
            time.sleep(0.02)
        raise RuntimeError(f"{command} does not run")

    def haproxy_pids(self):
        return [self.haproxy.pid]

    def egress_pids(self):
        return self.daemon.pids("egress")

    def ends(self):
        return [pid for pid, exe in self.daemon.processes() if exe == str(NETLOAD)]

    @contextlib.contextmanager
    def pinned(self):
        """
        The ends on the first processor, as clients with -a 0 are, and what stands between them on the second; all of them before
        whatever else the machine does.
        """
        if os.cpu_count() < 2:
            yield []
            return
        names = ("quicksand-egress", "quicksand-node", "quicksand-monitor")
        between = [pid for pid, exe in self.daemon.own_processes() if os.path.basename(exe) in names] + [self.haproxy.pid]
        groups = {pid: list(groups_of(pid)) for pid in between}
        for pid, of in groups.items():      # in v1 a group has no real time unless it is given some
            self.move(pid, [root for _, root in of if root is not None])
        where = [(pid, {0}) for pid in self.ends()] + [(pid, {1}) for pid in between]
        all_of_them = os.sched_getaffinity(0)
        self.place(where, os.SCHED_FIFO, 1)
        try:
            yield ["-a", 0]
        finally:
            self.place([(pid, all_of_them) for pid, _ in where], os.SCHED_OTHER, 0)
            for pid, of in groups.items():
                self.move(pid, [own for own, _ in of])

    @staticmethod
    def move(pid, groups):
        for procs in groups:
            with contextlib.suppress(ProcessLookupError):
                procs.write_text(str(pid))

    @staticmethod
    def place(where, policy, priority):
        for pid, processors in where:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(task), processors)
                    os.sched_setscheduler(int(task), policy, os.sched_param(priority))


@contextlib.contextmanager
def world(build):
    global NETLOAD
    NETLOAD = build / "bench/netload"
    made = World()
    made.home = home = qsdaemon.make_dir("qs-bench-net-")
    home.chmod(0o755)
    processes = made.processes
    processes.append(make_cable())
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((NEAR, 5353))
        threading.Thread(target=serve_names, args=(s,), daemon=True).start()
        make_certificates(home)
        (home / "hello").write_bytes(hello(NAME))
        secure = ["-c", home / "cert.pem", "-k", home / "key.pem"]
        made.serve([], "0.0.0.0", PORT)
        made.serve([], "0.0.0.0", PORT_TLS, *secure)
        made.serve(far(), FAR, PORT)
        made.serve(far(), FAR, PORT_TLS, *secure, "-w", LINE)
        made.haproxy = start_haproxy(home)
        processes.append(made.haproxy)
        made.daemon = qsdaemon.Daemon(build, egress_dns=f"{NEAR}:5353", egress_ca=home / "ca.pem", log_level="warn", tunnel_domain=DOMAIN,
                                      tunnel_listen=f"0.0.0.0:{TUNNELS}-{TUNNELS + 20}")
        made.daemon.start()
        made.daemon.import_base()
        # The same weight against all else.
        made.move(made.haproxy.pid, [own for own, _ in groups_of(made.daemon.pids("egress")[0])])
        yield made
    finally:
        for p in reversed(processes):
            p.kill()
            p.wait()
        if made.daemon is not None:
            made.daemon.stop()
            made.daemon.purge()
        shutil.rmtree(home, ignore_errors=True)
