"""
Servers that people's programs talk to, in a namespace of their own beside `world`: nginx, git, sshd, PostgreSQL, Redis, and
what farm/app.py serves. They run from the files of the image `clients`, so nothing of them is installed on this machine.

All of them answer on FARM and FARM6; where a connection is to fail there is an address that fails that way.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import qsdaemon
import world as w

HERE = pathlib.Path(__file__).resolve().parent
NET, NET6 = "93.184.218.0/24", "2606:2800:220:3::/64"
GATE, GATE6 = "93.184.218.1", "2606:2800:220:3::1"
FARM, FARM6 = "93.184.218.10", "2606:2800:220:3::10"
EMPTY = "93.184.218.11"         # is there, and nothing listens on it
SILENT = "93.184.218.12"        # takes packets and never answers
SILENT6 = "2606:2800:220:3::12"
NOBODY, BROKEN6 = "93.184.219.1", "2606:2800:220:4::1"      # no way leads there

ZONE = {
    **{f"{name}.farm.test": [FARM, FARM6] for name in ("www", "pypi", "npm", "deb", "git", "grpc", "ws", "db")},
    "four.farm.test": [FARM],
    "six.farm.test": [FARM6],
    "empty.farm.test": [EMPTY],
    "silent.farm.test": [SILENT],
    "nobody.farm.test": [NOBODY],
    "first-empty.farm.test": [EMPTY, FARM],
    "first-silent.farm.test": [SILENT, FARM],
    "silent-six.farm.test": [FARM, SILENT6],
    "broken-six.farm.test": [FARM, BROKEN6],
    "bare.farm.test": [],
}

PORTS = {"ssh": 2222, "git": 9418, "postgres": 15432, "redis": 16379, "grpc-plain": 50052, "ws-plain": 8766, "raw": (9001, 9009)}


class Farm:
    def __init__(self, world, tar):
        self.world = world
        self.process = None
        self.top = qsdaemon.make_dir("qs-farm-")
        try:
            self.join()
            self.unpack(tar)
            self.start()
        except BaseException:
            self.stop()
            raise
        with world.lock:
            world.zone.update({name: list(addresses) for name, addresses in ZONE.items()})

    # --- the namespace

    def join(self):
        found, done = [], threading.Event()

        def make():
            try:
                w.new_namespace()
                found.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            finally:
                done.set()

        threading.Thread(target=make).start()
        done.wait()
        self.netns = found[0]
        w.sh(f"ip link add farm0 type veth peer name farm1 netns /proc/{os.getpid()}/fd/{self.netns} && ip link set farm0 up"
             f" && ip addr add {GATE}/24 dev farm0 && ip -6 addr add {GATE6}/64 dev farm0 nodad"
             f" && ip route add unreachable {NOBODY} && ip -6 route add unreachable {BROKEN6}")
        mac = self.sh(f"ip link set lo up && ip link set farm1 up && ip addr add {FARM}/24 dev farm1 && ip addr add {EMPTY}/24 dev farm1"
                      f" && ip -6 addr add {FARM6}/64 dev farm1 nodad && ip route add default via {GATE}"
                      f" && ip -6 route add default via {GATE6} && ip -br link show farm1").split()[2]
        for silent in (SILENT, SILENT6):
            w.sh(f"ip neigh replace {silent} lladdr {mac} dev farm0 nud permanent")

    def sh(self, command):
        return subprocess.run(command, shell=True, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              preexec_fn=lambda: w.enter(self.netns)).stdout

    # --- the servers

    def unpack(self, tar):
        # In memory: a disk may take minutes to forget that many files.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=3g", "farm", self.top], check=True)
        subprocess.run(["tar", "-C", self.top, "-xf", tar], check=True)
        self.top.chmod(0o755)
        self.srv = self.top / "srv"
        d = self.world.home
        w.sh(f"openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=farm.test -keyout {self.srv}/tls.key"
             f" -out {self.srv}/tls.csr 2>/dev/null && printf 'subjectAltName=DNS:farm.test,DNS:*.farm.test' > {self.srv}/ext"
             f" && openssl x509 -req -in {self.srv}/tls.csr -CA {d}/ca.pem -CAkey {d}/ca.key -CAcreateserial -days 3650"
             f" -extfile {self.srv}/ext -out {self.srv}/tls.pem 2>/dev/null")
        for path in (HERE / "farm").iterdir():
            shutil.copy(path, self.srv / path.name)

    def start(self):
        go_in = ('mount --make-rprivate / && mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && '
                 'mount -t tmpfs -o mode=755 run "$0/run" && exec chroot "$0" /bin/bash -eu /srv/start.sh')
        self.log = open(self.srv / "log", "wb")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c", go_in, self.top],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}, preexec_fn=lambda: w.enter(self.netns))
        give_up = time.monotonic() + 120
        while not (self.srv / "ready").exists():
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError("the servers do not start:\n" + (self.srv / "log").read_text()[-4000:])
            time.sleep(0.05)
        self.key = (self.srv / "key").read_text()

    def accesses(self):
        """What nginx answered so far: (server name of TLS, protocol, request line, status) each."""
        lines = (self.srv / "access").read_text().splitlines()
        return [tuple(line.split("\t")) for line in lines]

    def stop(self):
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)       # its children are killed with it
            self.process.wait()
            self.log.close()
        for command in ("link del farm0", f"route del unreachable {NOBODY}", f"-6 route del unreachable {BROKEN6}"):
            subprocess.run(["ip", *command.split()], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["umount", "-l", self.top], stderr=subprocess.DEVNULL, check=False)
        self.top.rmdir()
