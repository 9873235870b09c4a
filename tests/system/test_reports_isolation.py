"""What users of sandbox platforms reported of isolation and leaks of information. Each test names the reports that it stands for."""

import os
import pathlib
import time

import pytest

KEPT = 0xA80425FB       # the capabilities that root of a sandbox has, in its own namespace: src/init/caps.c


@pytest.fixture(scope="module")
def sb(daemon):
    with daemon.api.sandbox() as sb:
        yield sb


def sh(api, sb, script, **fields):
    return api.run(sb, ["sh", "-c", script], **fields)


def test_kernel_and_host_details(api, daemon, sb):
    """UR-150: what can be read is masked or the sandbox's own, nothing can be written; mounts name no place of the host."""
    masked = ("/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/sysrq-trigger", "/proc/partitions")
    for path in masked:
        assert sh(api, sb, f"cat {path} 2>/dev/null")["stdout"] == "", path
    for path in ("/proc/acpi", "/proc/bus", "/sys/firmware"):
        assert sh(api, sb, f"ls -A {path} 2>/dev/null")["stdout"] == "", path
    for path in ("/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/uevent_helper", "/sys/class/dmi", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse"):
        assert sh(api, sb, f"ls -d {path}")["exec"]["exit"]["code"] == 2, path
    for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
                 "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward"):
        assert sh(api, sb, f"echo 1 > {path}")["exec"]["exit"]["code"] != 0, path
    assert sh(api, sb, "dmesg")["exec"]["exit"]["code"] != 0
    text = sh(api, sb, "cat /proc/mounts /proc/self/mountinfo")["stdout"]
    assert str(daemon.home) not in text
    assert os.uname().nodename not in sh(api, sb, "hostname; uname -n; cat /proc/sys/kernel/hostname")["stdout"].split()


def test_classic_escapes(api, daemon, sb):
    """UR-151: mounts, release_agent, namespaces, file handles, /proc/self/exe: none reaches the host; sudo-like programs and packages still work."""
    canary = daemon.home / "canary-of-classic-escapes"
    canary.write_text("untouched")
    for attack in (
            "unshare -Urm true", "unshare -m true", "mount -t proc p /mnt", "mount -t sysfs s /mnt", "mount -t tmpfs t /mnt", "mount -t cgroup -o memory c /mnt",
            "mount -t overlay o -o lowerdir=/etc,upperdir=/tmp,workdir=/var/tmp /mnt", "mount --bind / /mnt", "pivot_root / /mnt", "umount -l /proc",
            "mknod /tmp/disk b 254 0", "mknod /tmp/mem c 1 1", "nsenter -t 1 -m true", "nsenter -t 1 -p true", "nsenter -t 1 -n true",
            "echo x >> /__modal/.bin/modal-sandbox-fs-tools", "cp /bin/sh /__modal/.bin/modal-sandbox-fs-tools", "rm -f /__modal/.bin/quicksand-init"):
        assert sh(api, sb, attack)["exec"]["exit"]["code"] != 0 or "/__modal" in attack, attack
    handles = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
at = os.open('/', os.O_RDONLY)
won = 0
for kind in (1, 2, 0x81, 0x4d, 0x4f):
    for ino in range(1, 300):
        h = struct.pack('Ii', 8, kind) + struct.pack('II', ino, 0)
        won += libc.syscall(304, at, h, 0) >= 0
print(won, ctypes.get_errno())
"""
    assert api.run(sb, ["python3", "-c", handles])["stdout"] == "0 1\n"
    # The program of PID 1 and of the file helper, through what runs from it.
    assert sh(api, sb, "for f in /proc/1/exe /proc/[0-9]*/exe; do (echo x >> $f) 2>/dev/null && echo $f; done; true")["stdout"] == ""
    chroot = "import os\nos.mkdir('/tmp/c')\nos.chroot('/tmp/c')\nfor _ in range(40): os.chdir('..')\nos.chroot('.')\nprint(os.path.exists(%r), os.path.exists('/__modal'))" % str(canary)
    assert api.run(sb, ["python3", "-c", chroot])["stdout"] == "False True\n"
    assert canary.read_text() == "untouched"
    # The helper still is what it was: it serves a file.
    assert api.get(f"/v1/sandboxes/{sb.id}/files", params={"path": "/etc/hostname"}).status_code == 200
    # What hardening must not break.
    r = sh(api, sb, "cp /usr/bin/id /usr/bin/sid && chmod 4755 /usr/bin/sid")
    assert r["exec"]["exit"]["code"] == 0
    assert "euid=0(root)" in api.run(sb, ["sid"], user="1000")["stdout"]
    assert sh(api, sb, "dpkg --configure -a && dpkg -s dpkg | grep -c ^Status")["stdout"] == "1\n"


STATUS = "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status; cat /proc/self/uid_map"


def rights(text):
    words = dict(line.split(":\t") for line in text.splitlines() if ":\t" in line)
    return {k: int(v, 16) for k, v in words.items()}, text.splitlines()[-1].split()


def test_the_minimal_set_on_every_path(api):
    """UR-152: for root and others, as a command, an exec and behind a terminal: the documented capabilities, a filter, and no root of the host."""
    with api.sandbox(command=["sh", "-c", STATUS + "; echo whole; sleep 100"]) as sb:
        url = f"/v1/sandboxes/{sb.id}"
        give_up = time.monotonic() + 30
        while "whole\n" not in (text := api.get(f"{url}/logs", params={"follow": "false"}).text) and time.monotonic() < give_up:
            time.sleep(0.1)
        texts = {"entry point": (text, 0)}
        texts["exec"] = sh(api, sb, STATUS)["stdout"], 0
        texts["exec of a user"] = sh(api, sb, STATUS, user="1000")["stdout"], 1000
        r = api.post(f"{url}/execs", json={"command": ["sh", "-c", STATUS], "tty": True})
        x = f"{url}/execs/{r.json()['id']}"
        assert api.get(x, params={"wait": "exit"}).json()["exit"]["code"] == 0
        texts["terminal"] = api.get(f"{x}/stdout").text.replace("\r", ""), 0
        for path, (text, uid) in texts.items():
            caps, uid_map = rights("\n".join(line for line in text.splitlines() if ":\t" in line or line.strip()[:1].isdigit()))
            own = KEPT if uid == 0 else 0
            assert caps == {"CapInh": 0, "CapPrm": own, "CapEff": own, "CapBnd": KEPT, "CapAmb": 0, "NoNewPrivs": 0, "Seccomp": 2}, path
            inside, outside, count = map(int, uid_map)
            assert (inside, count) == (0, 65536) and outside >= 1 << 16, path


def test_nothing_is_typed_into_a_terminal(api, sb):
    """UR-154: the terminal is a new one, and what a program pushes into its input stays there."""
    script = """
import fcntl, os, sys
for number, name in ((0x5412, 'TIOCSTI'), (0x541C, 'TIOCLINUX')):
    for fd in (0, 1, 2):
        try:
            fcntl.ioctl(fd, number, b'x')
        except OSError as e:
            print(name, fd, e.errno)
print(os.ttyname(0))
"""
    r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", script], "tty": True})
    url = f"/v1/sandboxes/{sb.id}/execs/{r.json()['id']}"
    assert api.get(url, params={"wait": "exit"}).json()["exit"]["code"] == 0
    out = api.get(f"{url}/stdout").text
    assert "/dev/pts/" in out and out.count("TIOCLINUX") == 3
    # The next terminal knows nothing of it.
    r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sh", "-c", "timeout 0.3 cat; echo done"], "tty": True})
    url = f"/v1/sandboxes/{sb.id}/execs/{r.json()['id']}"
    assert api.get(url, params={"wait": "exit"}).json()["exit"]["code"] == 0
    assert api.get(f"{url}/stdout").text == "done\r\n"


LEAVE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
found = []
for d in ('/tmp', '/var/tmp', '/dev/shm', '/dev/mqueue', '/root', '/run'):
    found += [d + '/' + n for n in os.listdir(d) if n.startswith('mark')]
if libc.shmget(0x5153, 4096, 0) >= 0: found.append('shm')
if libc.semget(0x5153, 1, 0) >= 0: found.append('sem')
if libc.msgget(0x5153, 0) >= 0: found.append('msg')
s = socket.socket(socket.AF_UNIX)
try:
    s.connect('\\0mark'); found.append('abstract socket')
except OSError: pass
s = socket.socket()
try:
    s.connect(('127.0.0.1', 7777)); found.append('port')
except OSError: pass
found += [p for p in os.listdir('/proc') if p.isdigit() and open('/proc/' + p + '/comm').read() == 'mark\\n']
found += [k for k in os.environ if k.startswith('MARK')]
print(found)
for d in ('/tmp', '/var/tmp', '/dev/shm', '/root', '/run'):
    open(d + '/mark', 'w').write('x')
libc.mq_open(b'/mark', os.O_CREAT | os.O_RDWR, 0o600, None)
libc.shmget(0x5153, 4096, 0o1600); libc.semget(0x5153, 1, 0o1600); libc.msgget(0x5153, 0o1600)
if os.fork() == 0:
    os.setsid()
    open('/proc/self/comm', 'w').write('mark')
    a = socket.socket(socket.AF_UNIX); a.bind('\\0mark'); a.listen()
    b = socket.socket(); b.bind(('127.0.0.1', 7777)); b.listen()
    for fd in (0, 1, 2): os.close(fd)
    import time; time.sleep(1000)
"""


@pytest.mark.parametrize("rounds", [12, pytest.param(1000, marks=pytest.mark.long)])
def test_nothing_of_earlier_ones_is_found(api, rounds):
    """UR-155: files, shared memory, queues, sockets, processes, environment; and no id is used again."""
    ids, machines = set(), set()
    for _ in range(rounds):
        with api.sandbox(env={"MARK": "x"} if len(ids) % 2 else {}) as sb:
            environment = {} if len(ids) % 2 == 0 else {"MARK": "x"}
            r = api.run(sb, ["python3", "-c", LEAVE])
            assert r["stdout"] == f"{list(environment)}\n", r
            machines.add(sh(api, sb, "cat /etc/machine-id /proc/sys/kernel/random/boot_id")["stdout"])
            ids.add(sb.id)
    assert len(ids) == len(machines) == rounds


def test_neighbours_do_not_see_or_signal_each_other(api):
    """UR-156: processes, queues, sockets, ports; and what the kernel counts for a user is not counted together."""
    with api.sandbox() as a, api.sandbox() as b:
        r = api.run(a, ["python3", "-c", LEAVE])
        assert r["stdout"] == "[]\n"
        assert api.run(b, ["python3", "-c", LEAVE])["stdout"] == "[]\n"
        api.run(a, ["sh", "-c", "kill -9 -1"])
        assert sh(api, b, "grep -l mark /proc/[0-9]*/comm | wc -l")["stdout"] == "1\n"
        # inotify instances and processes of one user id, taken up in one, are there in the other
        take = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
n = 0
while n < 5000 and libc.inotify_init() >= 0: n += 1
print(n)
"""
        started = api.post(f"/v1/sandboxes/{a.id}/execs", json={"command": ["python3", "-c", take + "import time, sys; sys.stdout.flush(); time.sleep(60)"]})
        assert started.status_code == 201
        time.sleep(1)
        assert int(api.run(b, ["python3", "-c", take])["stdout"]) > 50


def test_fuse_is_not_there(api, sb):
    """UR-161: there is no /dev/fuse, so there is no file system that can hang; a program that wants one is told so at once."""
    assert sh(api, sb, "ls /dev/fuse")["exec"]["exit"]["code"] == 2
    assert "fuse" not in sh(api, sb, "cat /proc/self/mountinfo")["stdout"]


def test_names_of_hosts(api, daemon):
    """UR-159: the sandbox's own name and localhost are known, search domains of the host are not, what is written stays."""
    with api.sandbox(name="box-one") as sb:
        assert sh(api, sb, "getent hosts $(hostname)")["stdout"].split() == ["127.0.1.1", "box-one"]
        assert sh(api, sb, "getent ahosts localhost | cut -d' ' -f1 | sort -u")["stdout"].split() == ["127.0.0.1", "::1"]
        resolver = sh(api, sb, "cat /etc/resolv.conf")["stdout"]
        host = pathlib.Path("/etc/resolv.conf")
        for line in host.read_text().splitlines() if host.exists() else ():
            if line.startswith(("search", "domain")):
                assert line not in resolver
        sh(api, sb, "echo '10.9.8.7 mine' >> /etc/hosts; echo '# note' >> /etc/resolv.conf")
        assert sh(api, sb, "getent hosts mine; tail -1 /etc/resolv.conf")["stdout"] == "10.9.8.7        mine\n# note\n"


def test_utf_8_by_default(api, sb):
    """UR-158: plain and behind a terminal; TERM only there; what the user says wins; a time zone by its rule where there is no database."""
    assert api.run(sb, ["python3", "-c", "print('é☕')"])["stdout"] == "é☕\n"
    assert sh(api, sb, "echo ${TERM-none} ${LANG-none}")["stdout"] == "none C.UTF-8\n"
    r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sh", "-c", "echo $TERM $LANG; python3 -c \"print('é☕')\""], "tty": True})
    url = f"/v1/sandboxes/{sb.id}/execs/{r.json()['id']}"
    assert api.get(url, params={"wait": "exit"}).json()["exit"]["code"] == 0
    first, second = api.get(f"{url}/stdout").text.splitlines()
    assert first.split()[1] == "C.UTF-8" and first.split()[0].startswith("xterm") and second == "é☕"
    assert sh(api, sb, "echo $LANG $TERM", env={"LANG": "de_DE.UTF-8", "TERM": "vt100"})["stdout"] == "de_DE.UTF-8 vt100\n"
    assert sh(api, sb, "date -d @0 +%H:%M", env={"TZ": "XYZ-5:30"})["stdout"] == "05:30\n"
