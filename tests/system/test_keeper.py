"""quicksandd by itself: slots, sandboxes, their ends, restarts. The roles are stand-ins. Needs root."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

import qsdaemon
from keeperclient import CREATE, DESTROY, EXEC_ENTRY, Keeper, Monitor, Reader, Refused, new_id, text

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

LAYER = "a" * 64
CAPACITY = 17           # ERR_CAPACITY of src/base/errors.def
ROLES = ("control", "node", "egress", "image")
NODE_UID = 64991
# The leak check at exit needs calls that the keeper's filter refuses.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"}
STAND_IN = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[3], "--layers") == 0 && chdir(argv[4]) == 0) {
        int fd = open(".staging/made", O_CREAT | O_WRONLY, 0644);
        if (fd < 0 || fchown(fd, 1000, 1000) < 0)
            perror("stand-in");
    }
    for (;;)
        pause();
}
"""


def processes(prefix):
    """pid -> command line of every process whose program or command line has the prefix."""
    out = {}
    for d in pathlib.Path("/proc").iterdir():
        if not d.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            line = (d / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(prefix) in line or str(prefix) in os.readlink(d / "exe"):
                out[int(d.name)] = line
    return out


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def eventually(check, timeout=15):
    end = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


class Rig:
    def __init__(self, **conf):
        self.home = qsdaemon.make_dir("keeper-")
        self.home.chmod(0o755)
        self.data, self.run, self.lib = (self.home / n for n in ("data", "run", "lib"))
        self.lib.mkdir()
        build = qsdaemon.build_dir()
        for name in ("init", "monitor"):
            shutil.copy(build / f"src/{name}/quicksand-{name}", self.lib)
        shutil.copy(build / "src/keeper/quicksandd", self.lib)
        (self.home / "stand-in.c").write_text(STAND_IN)
        subprocess.run(["cc", "-O1", "-o", self.lib / "quicksand-control", self.home / "stand-in.c"], check=True)
        for role in ROLES[1:]:
            shutil.copy(self.lib / "quicksand-control", self.lib / f"quicksand-{role}")
        self.cgroup = qsdaemon.group_name(self.home)
        self.base = random.randrange(15000, 32000)
        settings = {"data_dir": self.data, "run_dir": self.run, "lib_dir": self.lib, "cgroup_name": self.cgroup,
                    "listen": "127.0.0.1:0", "router_listen": "[::1]:0",
                    "id_base_range": self.base, "trees_bytes": 4 << 30, "pool_size": 3, "user_control": 64990,
                    "user_node": NODE_UID, "user_egress": 64992, "user_image": 64993, **conf}
        self.config = self.home / "conf"
        self.config.write_text("".join(f"{k} = {v}\n" for k, v in settings.items()))
        self.log = open(self.home / "log", "ab")
        self.process = None
        self.open = []

    def start(self):
        self.process = subprocess.Popen([self.lib / "quicksandd", "--config", self.config, "--foreground"],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=ENVIRONMENT)
        eventually(self.answers)
        return self

    def answers(self):
        assert self.process.poll() is None, self.tail()
        try:
            self.connect().stats()
        except (OSError, EOFError):
            return False
        return True

    def connect(self):
        k = Keeper(str(self.run / "keeper.sock"))
        self.open.append(k)
        return k

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(20) == 0

    def tail(self):
        return (self.home / "log").read_text()[-4000:]

    def groups(self):
        return {str(p) for root in qsdaemon.group_roots() for p in (root / self.cgroup).glob("[0-9]*")}

    def bases(self):
        return [str(root / self.cgroup) for root in qsdaemon.group_roots() if (root / self.cgroup).is_dir()]

    def mounts(self):
        return [m for m in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(self.home) in m]

    def traces(self, sb):
        return [str(p) for p in (self.data / "keeper" / sb, self.data / "run" / sb, self.data / "trees/sandboxes" / sb) if p.exists()]

    def left(self):
        """What a stopped keeper without sandboxes must not leave."""
        loops = subprocess.run(["losetup", "-j", self.data / "trees.img"], capture_output=True, text=True, check=True).stdout
        return self.mounts() + loops.split("\n")[:-1] + self.bases() + list(processes(self.home).values())

    def purge(self):
        for k in self.open:
            k.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in processes(self.home):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(50):
            for base in self.bases():
                for d, _s, _f in sorted(os.walk(base), reverse=True):
                    with contextlib.suppress(OSError):
                        (pathlib.Path(d) / "cgroup.kill").write_text("1")
                    with contextlib.suppress(OSError):
                        os.rmdir(d)
            if not self.bases():
                break
            time.sleep(0.05)
        subprocess.run(["umount", "-q", self.data / "trees"], check=False)
        shutil.rmtree(self.home, ignore_errors=True)


def put_layer(rig, layer=LAYER):
    target = rig.data / "layers" / layer
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xf", qsdaemon.base_tar(), "-C", target], check=True)


@pytest.fixture(scope="module")
def rig():
    r = Rig()
    try:
        put_layer(r)
        r.start()
        yield r
        for sb in r.connect().list():
            r.connect().destroy(sb)
        r.stop()
        assert r.left() == []
    finally:
        print(r.tail())
        r.purge()


@pytest.fixture
def keeper(rig):
    if rig.process is None or rig.process.poll() is not None:
        rig.start()
    k = rig.connect()
    yield k
    if not rig.answers():
        rig.start()
    k = rig.connect()                           # the test may have started another keeper
    for sb in k.list():
        k.destroy(sb)
    for other in rig.open:
        other.close()
    rig.open.clear()


@contextlib.contextmanager
def sandbox(k, **fields):
    sb, m = k.create([LAYER], **fields)
    try:
        yield sb, m
    finally:
        m.close()
        k.destroy(sb)


def sh(m, script, **options):
    return m.run("/bin/sh", "-c", script, **options)


def test_create_run_destroy(rig, keeper):
    sb, m = keeper.create([LAYER], hostname="my-box")
    assert m.run("/bin/echo", "hello") == (0, b"hello\n")
    assert sh(m, "hostname; id -u; cat /proc/sys/kernel/hostname; exit 7") == (7, b"my-box\n0\nmy-box\n")
    assert len(rig.traces(sb)) == 3
    assert keeper.list() == {sb}
    keeper.destroy(sb)
    assert rig.traces(sb) == []
    assert keeper.list() == set()
    keeper.destroy(sb)                          # again: the same answer
    keeper.destroy(new_id())                    # never there: the same answer


def test_ids_are_its_own(rig, keeper):
    with sandbox(keeper) as (sb, m), sandbox(keeper) as (other, n):
        sh(m, "echo x >/root/f; chown 1000:1000 /root/f")
        on_disk = rig.data / "trees/sandboxes" / sb / "upper/root/f"
        assert (on_disk.stat().st_uid, on_disk.stat().st_gid) == (1000, 1000)
        maps = {sh(x, "cat /proc/self/uid_map")[1] for x in (m, n)}
        assert len(maps) == 2
        for one in maps:
            inside, outside, count = map(int, one.split())
            assert (inside, count) == (0, 65536) and outside >= (rig.base + 1) << 16
        # the run directory is its monitor's and the node's
        st = (rig.data / "run" / sb).stat()
        assert st.st_uid >> 16 == rig.base - 1 and st.st_gid == NODE_UID and st.st_mode & 0o7777 == 0o2770


def test_ranges_of_ids_come_round(rig, keeper):
    """Where they end differs between kernels: at 2^32, or at 2^31 if terminals cannot have owners beyond."""
    for last in (32767, 65534):
        rig.stop()
        (rig.data / "keeper/next").write_text(f"{last - 1}\n")
        rig.start()
        k = rig.connect()
        seen = []
        for _ in range(6):
            with sandbox(k) as (sb, m):
                seen.append(int(sh(m, "cat /proc/self/uid_map")[1].split()[1]) >> 16)
        assert len(set(seen)) == 6
        assert all(rig.base < n <= 65534 for n in seen), seen


def test_values_are_checked_again(keeper):
    for fields in ({"hostname": "-"}, {"cpu_weight": 0}, {"memory_bytes": 1}, {"pids": 1}, {"deadline_ms": -1}, {"delta": "x"}):
        with pytest.raises(Refused):
            keeper.create([LAYER], **fields)
    for layers in ([], ["b" * 63], ["../" + "a" * 61], [LAYER, LAYER]):
        with pytest.raises(Refused):
            keeper.create(layers)
    with pytest.raises(Refused, match="not on this node"):
        keeper.create(["b" * 64])
    with pytest.raises(Refused, match="not on this node"):
        keeper.create([LAYER], delta=new_id("im-"))
    for kind in (CREATE, DESTROY, 4, 5):
        with pytest.raises(Refused):
            keeper.ask(kind, b"\xff" * 30)
    with pytest.raises(Refused):
        keeper.ask(99)
    assert keeper.list() == set()


def test_same_id_twice(keeper):
    with sandbox(keeper) as (sb, m):
        with pytest.raises(Refused, match="exists"):
            keeper.create([LAYER], sandbox=sb)
        assert m.run("/bin/true") == (0, b"")


def test_many_destroys_of_one(keeper):
    """Each is answered, and those that wait are so many and no more, whatever is asked."""
    sb, m = keeper.create([LAYER])
    m.close()
    tags = [keeper.send(DESTROY, text(sb)) for _ in range(300)]
    codes = {Reader(keeper.answer(t)[1]).get("H") for t in tags}
    assert codes <= {0, CAPACITY} and 0 in codes
    assert sb not in keeper.list()


def test_a_layer_that_is_a_link_is_refused(rig, keeper):
    link = rig.data / "layers" / ("c" * 64)
    link.symlink_to("/")
    try:
        with pytest.raises(Refused, match="not on this node"):
            keeper.create(["c" * 64])
    finally:
        link.unlink()


def test_layer_delete(rig, keeper):
    small = "d" * 64
    (rig.data / "layers" / small / "deep/er").mkdir(parents=True)
    with sandbox(keeper):
        with pytest.raises(Refused, match="used"):
            keeper.delete_layer(LAYER)
        keeper.delete_layer(small)
    with pytest.raises(Refused, match="not on this node"):
        keeper.delete_layer(small)
    eventually(lambda: not list((rig.data / "layers/.trash").iterdir()))


def test_hundred_at_once(rig, keeper):
    ids = [new_id() for _ in range(100)]
    tags = {keeper.send(CREATE, Keeper.create_message(sb, [LAYER])): sb for sb in ids}
    monitors = {}
    for tag, sb in tags.items():
        _kind, payload, fds = keeper.answer(tag, 60)
        assert Reader(payload).get("H") == 0, payload
        monitors[sb] = Monitor(socket.socket(fileno=fds[0]))
    assert keeper.list() == set(ids)
    for sb, m in monitors.items():
        assert m.run("/bin/echo", sb) == (0, sb.encode() + b"\n")
    tags = [keeper.send(DESTROY, text(sb)) for sb in ids]
    for tag in tags:
        assert Reader(keeper.answer(tag, 60)[1]).get("H") == 0
    assert keeper.list() == set()
    for sb in ids:
        assert rig.traces(sb) == []


def test_memory_limit(keeper):
    with sandbox(keeper, memory_bytes=64 << 20) as (_sb, m):
        code, _ = m.run("/usr/bin/python3", "-c", "b = bytearray(200 << 20)")
        assert code == -9
        assert m.run("/bin/true") == (0, b"")


def test_pids_limit(keeper):
    with sandbox(keeper, pids=20) as (_sb, m):
        _code, out = sh(m, "for i in $(seq 40); do sleep 5 & done 2>&1 | grep -c . ; echo done")
        assert b"done" in out or b"ork" in out
        assert sh(m, "ls /proc | grep -c '^[0-9]'")[1].strip().isdigit()


def cpu_quota(rig):
    """The quotas written for slots: of v1 or of v2."""
    files = [f for root in qsdaemon.group_roots() for f in (root / rig.cgroup).glob("[0-9]*/cpu.*")]
    return {f.read_text().split()[0] for f in files if f.name in ("cpu.cfs_quota_us", "cpu.max")} - {"-1", "max"}


def test_cpu_limit_and_change(rig, keeper):
    burn = "import time; t = time.time(); c = time.process_time()\nwhile time.time() - t < 1: pass\nprint(time.process_time() - c)"
    with sandbox(keeper, cpu_milli=100) as (sb, m):
        assert float(m.run("/usr/bin/python3", "-c", burn)[1]) < 0.4
        assert cpu_quota(rig) == {"10000"}
        keeper.limits(sb, cpu_milli=250, memory_bytes=128 << 20, pids=50)
        assert cpu_quota(rig) == {"25000"}
        keeper.limits(sb)
        assert cpu_quota(rig) == set()
    with pytest.raises(Refused):
        keeper.limits(sb)


def test_disk_limit(keeper):
    with sandbox(keeper, disk_bytes=32 << 20) as (_sb, m):
        code, out = sh(m, "head -c 100000000 /dev/zero >/big 2>&1; sync; stat -c %s /big")
        assert int(out.split()[-1]) <= 40 << 20, (code, out)


def test_device_nodes_cannot_be_changed(keeper):
    with sandbox(keeper) as (_sb, m), sandbox(keeper) as (_other, n):
        for attack in ("chmod 000 /dev/null", "chown 1000 /dev/zero", "rm -f /dev/urandom", "touch -d 1990-01-01 /dev/full"):
            assert sh(m, attack + " 2>&1")[0] != 0 or "rm" in attack
        assert sh(n, "echo x >/dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c")[1] == b"4\n4\n"


def test_setuid_programs_work(keeper):
    with sandbox(keeper) as (_sb, m):
        sh(m, "cp /usr/bin/id /usr/bin/sid; chmod 4755 /usr/bin/sid")
        assert b"euid=0(root)" in m.run("/usr/bin/sid", user="1000")[1]
        assert sh(m, "find /usr/bin/su -perm -4000")[1] == b"/usr/bin/su\n"


def test_loopback_and_low_ports(keeper):
    script = ("import socket\nfor family, host in ((2, '127.0.0.1'), (10, '::1')):\n s = socket.socket(family); s.bind((host, 80)); s.listen()\n"
              " c = socket.create_connection((host, 80)); s.accept()[0].send(b'hi'); print(c.recv(2).decode())\n"
              "try: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print(e.errno)")
    with sandbox(keeper) as (_sb, m):
        code, out = m.run("/usr/bin/python3", "-c", script)
        assert (code, out.split()) == (0, [b"hi", b"hi", b"111"])


def test_filter(keeper):
    calls = {
        "mount": (165, 1), "umount2": (166, 1), "unshare user": (272, 1), "setns": (308, 1), "bpf": (321, 1),
        "perf_event_open": (298, 1), "keyctl": (250, 1), "io_uring_setup": (425, 1), "userfaultfd": (323, 1),
        "kexec_load": (246, 1), "init_module": (175, 1), "open_by_handle_at": (304, 1), "unknown": (9999, 38),
    }
    lines = ["import ctypes, socket", "libc = ctypes.CDLL(None, use_errno=True)"]
    for name, (number, _) in calls.items():
        first = 0x10000000 if name == "unshare user" else 0
        lines.append(f"libc.syscall({number}, {first}, 0, 0, 0, 0); print(ctypes.get_errno())")
    lines += ["for f in (40, 17, 38, 29):", " try: socket.socket(f, socket.SOCK_DGRAM); print(0)", " except OSError as e: print(e.errno)"]
    with sandbox(keeper) as (_sb, m):
        code, out = m.run("/usr/bin/python3", "-c", "\n".join(lines))
        assert code == 0
        assert [int(x) for x in out.split()] == [e for _, e in calls.values()] + [97] * 4


def test_nested_user_namespaces_are_off(keeper):
    with sandbox(keeper) as (_sb, m):
        assert sh(m, "unshare -r true")[0] != 0
        assert sh(m, "unshare -r true", user="1000")[0] != 0


def test_entry_point_ends_the_sandbox(rig, keeper):
    with sandbox(keeper) as (sb, m):
        with contextlib.suppress(EOFError, OSError):        # its monitor may end before it has answered
            m.run("/bin/true", exec_id="entry", flags=EXEC_ENTRY)
        eventually(lambda: (rig.data / "run" / sb / "exit").exists())
        eventually(lambda: keeper.stats()["sandboxes"] == 0)
        # its traces stay until it is destroyed, its control groups do not
        assert keeper.list() == {sb} and len(rig.traces(sb)) == 3


def monitor_of(rig, sb):
    uid = (rig.data / "run" / sb).stat().st_uid
    for pid in processes("quicksand-monitor"):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                return pid
    return None


def sleeper(m):
    """Starts a program that stays; its pid is known by its odd argument."""
    mark = str(random.randrange(10**8, 10**9))
    sh(m, f"setsid sleep {mark} >/dev/null 2>&1 </dev/null & echo started")
    eventually(lambda: processes(f"sleep {mark}"))
    return next(iter(processes(f"sleep {mark}")))


def test_monitor_killed(rig, keeper):
    with sandbox(keeper) as (sb, m):
        pid = sleeper(m)
        os.kill(monitor_of(rig, sb), signal.SIGKILL)
        eventually(lambda: not alive(pid))
        eventually(lambda: keeper.stats()["sandboxes"] == 0)
        assert keeper.list() == {sb}
        assert not (rig.data / "run" / sb / "exit").exists()


def test_keeper_killed_and_started(rig, keeper):
    sb, m = keeper.create([LAYER])
    pid = sleeper(m)
    ended, n = keeper.create([LAYER])
    rig.kill()
    assert alive(pid)
    assert m.run("/bin/echo", "still here") == (0, b"still here\n")
    os.kill(monitor_of(rig, ended), signal.SIGKILL)
    eventually(lambda: monitor_of(rig, ended) is None)
    rig.start()
    k = rig.connect()
    assert k.list() == {sb, ended}
    assert k.stats()["sandboxes"] == 1
    assert m.run("/bin/echo", "and here") == (0, b"and here\n")
    k.limits(sb, memory_bytes=64 << 20)
    k.destroy(sb)
    assert not alive(pid) and rig.traces(sb) == []
    k.destroy(ended)
    assert rig.traces(ended) == [] and k.list() == set()
    # slots of the killed keeper that nobody used: monitors see the end of their channel, groups are swept
    eventually(lambda: len({g.rsplit("/", 1)[1] for g in rig.groups()}) <= 3)


def test_keeper_killed_at_random_instants(rig, keeper):
    for _round in range(8):
        k = rig.connect()
        asked = [new_id() for _ in range(12)]
        for sb in asked:
            k.send(CREATE, Keeper.create_message(sb, [LAYER]))
        time.sleep(random.uniform(0, 0.06))
        rig.kill()
        answered = set()
        with contextlib.suppress(EOFError, TimeoutError, OSError):
            while True:
                _kind, tag, payload, fds = k.receive(0.5)
                if Reader(payload).get("H") == 0:
                    answered.add(asked[tag - 1])
                for fd in fds:
                    os.close(fd)
        rig.start()
        k = rig.connect()
        # half-made ones are on their way out: what stays was finished, and what was answered is there
        eventually(lambda: k.list() == {sb for sb in asked if (rig.data / "keeper" / sb).exists()} and k.stats()["sandboxes"] == len(k.list()))
        assert answered <= k.list()
        for sb in k.list():
            k.destroy(sb)
        for sb in asked:
            assert rig.traces(sb) == []
    eventually(lambda: len({g.rsplit("/", 1)[1] for g in rig.groups()}) <= 3)


def test_keeper_killed_while_destroying(rig, keeper):
    for _round in range(4):
        k = rig.connect()
        ids = [k.create([LAYER])[0] for _ in range(6)]
        for sb in ids:
            k.send(DESTROY, text(sb))
        time.sleep(random.uniform(0, 0.02))
        rig.kill()
        rig.start()
        k = rig.connect()
        for sb in ids:
            k.destroy(sb)
            assert rig.traces(sb) == []
        assert k.list() == set()


def test_spawner_killed(rig, keeper):
    sb, m = keeper.create([LAYER])
    spawner = next(p for p in processes(rig.lib / "quicksandd") if p != rig.process.pid)
    os.kill(spawner, signal.SIGKILL)
    assert rig.process.wait(10) == 1
    assert m.run("/bin/true") == (0, b"")
    rig.start()
    k = rig.connect()
    assert k.list() == {sb}
    k.destroy(sb)


def role_pids(rig):
    return {r: next(iter(processes(rig.lib / f"quicksand-{r}")), None) for r in ROLES}


def test_roles(rig, keeper):
    eventually(lambda: all(role_pids(rig).values()))
    before = role_pids(rig)
    for role, pid in before.items():
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        uid = {"control": 64990, "node": NODE_UID, "egress": 64992, "image": rig.base << 16}[role]
        assert set(status["Uid"].split()) == {str(uid)} and status["NoNewPrivs"] == "1"
        assert int(status["CapEff"], 16) == (0x8000001B if role == "image" else 0)
        assert int(status["CapBnd"], 16) == (0x8000001B if role == "image" else 0)
        environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {v.split(b"=")[0] for v in environ if v} == {b"PATH", b"LANG"}
        fds = {int(f) for f in os.listdir(f"/proc/{pid}/fd")}
        # a socket to listen on, and the node a second one; the image stand-in has its file open
        assert fds - ({4} if role == "image" else set()) == {0, 1, 2, 3} | ({4} if role == "node" else set())
    made = rig.data / "layers/.staging/made"
    assert (made.stat().st_uid, made.stat().st_gid) == (1000, 1000)
    # a dead one comes back, and those who connect meanwhile wait
    os.kill(before["node"], signal.SIGKILL)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(rig.run / "node.sock"))
    eventually(lambda: role_pids(rig)["node"] not in (None, before["node"]))
    rig.kill()
    eventually(lambda: not any(role_pids(rig).values()))
    rig.start()


def test_who_may_connect(rig, keeper):
    def attempt(uid, gid):
        code = ("import os, sys; sys.path.insert(0, %r); os.setgroups([]); os.setgid(%d); os.setuid(%d)\n"
                "from keeperclient import Keeper\nKeeper(%r).stats()" % (str(pathlib.Path(__file__).parent), gid, uid, str(rig.run / "keeper.sock")))
        return subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, check=False).returncode
    assert attempt(NODE_UID, NODE_UID) == 0
    assert attempt(65000, 65000) != 0           # the mode of the socket
    assert attempt(65000, NODE_UID) != 0        # in the group, but not the node


def test_admission(rig):
    other = Rig(max_sandboxes=2, pool_size=0)
    try:
        put_layer(other)
        other.start()
        k = other.connect()
        first, _m = k.create([LAYER])
        k.create([LAYER])
        with pytest.raises(Refused, match="maximum of 2"):
            k.create([LAYER])
        k.destroy(first)
        k.create([LAYER])
        for sb in k.list():
            k.destroy(sb)
        other.stop()
        assert other.left() == []
    finally:
        print(other.tail())
        other.purge()


@pytest.mark.parametrize("line, message", [
    ("user_node = nobody-of-that-name", "no such user"), ("user_node = 0", "root"),
    ("cgroup_name = a/b", "not a plain name"), ("log_level = loud", "none of"), ("colour = red", "unknown key"),
])
def test_bad_configuration(line, message):
    bad = Rig()
    try:
        bad.config.write_text(bad.config.read_text() + line + "\n")
        r = subprocess.run([bad.lib / "quicksandd", "--config", bad.config], capture_output=True, text=True, timeout=20, check=False,
                           env=ENVIRONMENT)
        assert r.returncode == 1 and message in r.stderr
    finally:
        bad.purge()


def test_one_keeper_a_data_directory(rig, keeper):
    r = subprocess.run([rig.lib / "quicksandd", "--config", rig.config], capture_output=True, text=True, timeout=30, check=False,
                       env=ENVIRONMENT)
    assert r.returncode == 1 and "another quicksandd" in r.stderr


def test_groups_of_another_keeper_are_left_alone(rig, keeper):
    other = Rig(cgroup_name=rig.cgroup)
    try:
        with sandbox(keeper) as (sb, _m):
            r = subprocess.run([other.lib / "quicksandd", "--config", other.config], capture_output=True, text=True, timeout=30,
                               check=False, env=ENVIRONMENT)
            assert r.returncode == 1 and "cgroup_name" in r.stderr and str(rig.data) in r.stderr
            assert sb in keeper.list()
        assert not other.mounts()
    finally:
        shutil.rmtree(other.home)


def test_background(rig):
    other = Rig()
    try:
        subprocess.run([other.lib / "quicksandd", "--config", other.config], check=True, timeout=30, stdin=subprocess.DEVNULL,
                       stdout=other.log, stderr=other.log, env=ENVIRONMENT)
        other.connect().stats()                 # it is ready when the command returns
        pids = [p for p in processes(other.lib / "quicksandd") if os.readlink(f"/proc/{p}/exe") == str(other.lib / "quicksandd")]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        try:
            eventually(lambda: other.left() == [])
        except AssertionError:
            raise AssertionError(other.left())
    finally:
        print(other.tail())
        other.purge()


def test_many_known_sandboxes():
    """The list of a full node does not fit into one packet."""
    other = Rig()
    try:
        other.start().stop()
        ids = {new_id() for _ in range(4000)}
        for sb in ids:
            entry = struct.pack("<IB", 0x314B5351, 2) + text(sb) + text("another boot") + struct.pack("<IiQ", 0, 1, 1) + text("")
            (other.data / "keeper" / sb).write_bytes(entry + struct.pack("<I", 0))
        other.start()
        k = other.connect()
        assert k.list() == ids
        assert k.stats()["sandboxes"] == 0
        # a node that asks for much before it reads anything: requests wait, no answer is lost
        first = k.tag + 1
        reader = threading.Thread(target=lambda: time.sleep(1) or [k.answer(tag, 60) for tag in range(first, first + len(ids))])
        reader.start()
        for sb in ids:
            k.send(DESTROY, text(sb))
        reader.join(60)
        assert not reader.is_alive() and k.tag == first + len(ids) - 1
        assert k.list() == set()
        other.stop()
        assert other.left() == []
    finally:
        print(other.tail())
        other.purge()


def test_an_entry_that_was_cut_short():
    other = Rig()
    try:
        other.start().stop()
        sb = new_id()
        (other.data / "keeper" / sb).write_bytes(b"QSK1\x01")
        (other.data / "run" / new_id()).mkdir()
        other.start()
        eventually(lambda: other.connect().list() == set() and other.traces(sb) == [] and not list((other.data / "run").iterdir()))
        other.stop()
    finally:
        other.purge()
