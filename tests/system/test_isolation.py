"""What root of a sandbox sees of the machine: /proc, /sys, /dev, mounts, ids and terminals; and what it shares with neighbours."""

import ctypes
import os
import pathlib
import re

import pytest

LANDLOCK_CREATE_RULESET = 444
NODES = ("null", "zero", "full", "random", "urandom", "tty")
MASKED_FILES = (
    "buddyinfo", "cmdline", "config.gz", "consoles", "diskstats", "dma", "interrupts", "iomem", "ioports", "kallsyms", "kcore", "key-users", "keys", "kmsg",
    "kpagecount", "kpageflags", "mdstat", "modules", "mtrr", "pagetypeinfo", "partitions", "sched_debug", "schedstat", "slabinfo", "softirqs",
    "sysrq-trigger", "timer_list", "vmallocinfo", "zoneinfo")
MASKED_DIRS = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi")


@pytest.fixture(scope="module")
def pair(daemon):
    with daemon.api.sandbox() as a, daemon.api.sandbox() as b:
        yield a, b


def sh(api, sb, script, **fields):
    r = api.run(sb, ["sh", "-c", script], **fields)
    assert r["exec"]["exit"]["code"] == 0, r
    return r["stdout"]


def mounts(api, sb):
    """The fields of mountinfo: (device, root, mount point, options, type, source)."""
    for line in sh(api, sb, "cat /proc/self/mountinfo").splitlines():
        left, right = line.split(" - ")
        f, g = left.split(), right.split()
        yield f[2], f[3], f[4], f[5].split(","), g[0], g[1]


def test_mountinfo_names_nothing_of_the_host(api, daemon, pair):
    text = sh(api, pair[0], "cat /proc/self/mountinfo /proc/self/mounts")
    disks = [d for d in os.listdir("/sys/block")] + [p.name for p in pathlib.Path("/sys/class/block").iterdir()]
    assert str(daemon.home) not in text and "/data" not in text and "keeper" not in text
    assert not [d for d in disks if re.search(rf"\b{re.escape(d)}\b", text)]
    roots = {m[2]: m[1] for m in mounts(api, pair[0])}
    for node in NODES:
        assert re.fullmatch(rf"/\d+/{node}", roots[f"/dev/{node}"])


def test_five_superblocks_of_its_own(api, pair):
    mine, other = ({m[0] for m in mounts(api, sb)} for sb in pair)
    assert len(mine - other) == 5
    shared = [m for m in mounts(api, pair[0]) if m[0] in other]
    # What is shared is the tmpfs of device nodes, figures and /sys, and the host's sysfs; all of it read-only.
    assert {m[4] for m in shared} <= {"tmpfs", "sysfs"} and len({m[0] for m in shared}) <= 2
    assert all("ro" in m[3] for m in shared)
    # But for /sys each has a directory of its own in there.
    slots = [{m[1].split("/")[1] for m in mounts(api, sb) if m[0] in mine & other and not m[2].startswith("/sys")} for sb in pair]
    assert len(slots[0]) == len(slots[1]) == 1 and slots[0] != slots[1]


def test_device_nodes_are_not_shared(api, pair):
    """One inode for all would carry locks and watches from sandbox to sandbox."""
    inodes = [sh(api, sb, "stat -c '%i %u:%g %a' " + " ".join(f"/dev/{n}" for n in NODES)).splitlines() for sb in pair]
    assert not set(inodes[0]) & set(inodes[1])
    assert all(line.endswith(" 0:0 666") for line in inodes[0])
    hold = "import fcntl, time; f = open('/dev/null'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(%d)"
    r = api.post(f"/v1/sandboxes/{pair[0].id}/execs", json={"command": ["python3", "-c", hold % 30]})
    assert r.status_code == 201, r.text
    take = "import fcntl; fcntl.flock(open('/dev/null'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')"
    assert api.run(pair[1], ["python3", "-c", take])["stdout"] == "free\n"
    assert sh(api, pair[1], "echo x >/dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; printf x >/dev/full || echo full").split() == ["4", "4", "full"]


def test_what_tells_of_the_host_is_masked(api, pair):
    files = [n for n in MASKED_FILES if os.path.exists(f"/proc/{n}")]
    dirs = [n for n in MASKED_DIRS if os.path.exists(f"/proc/{n}")]
    assert len(files) > 15 and len(dirs) > 3
    for name in files:
        r = api.run(pair[0], ["sh", "-c", f"cat /proc/{name}; echo x >/proc/{name}"])
        assert r["stdout"] == "" and "Read-only file system" in r["stderr"], (name, r)
    assert sh(api, pair[0], "cd /proc && ls -A " + " ".join(dirs)).split() == [w for n in sorted(dirs) for w in [f"{n}:"]]


def test_no_setting_of_the_kernel_can_be_written(api, pair):
    script = "cd /proc/sys && for f in $(find . -type f); do (echo 1 > $f) 2>/dev/null && echo $f; done; true"
    assert sh(api, pair[0], script) == ""
    script = "find /proc/sys /sys -type f -perm /222 -exec sh -c '(: >> \"$1\") 2>/dev/null && echo \"$1\"' _ {} ';'; true"
    assert sh(api, pair[0], script) == ""


def test_ids_of_the_machine_are_its_own(api, pair):
    host = {p: pathlib.Path(p).read_text() for p in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id") if os.path.exists(p)}
    seen = [sh(api, sb, "cat /etc/machine-id /proc/sys/kernel/random/boot_id") for sb in pair]
    for text in seen:
        machine, boot = text.splitlines()
        assert re.fullmatch(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}", machine)
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", boot)
        assert machine + "\n" not in host.values() and boot + "\n" not in host.values()
        # the same for all of its programs, whenever they look
        assert sh(api, pair[seen.index(text)], "cat /etc/machine-id /proc/sys/kernel/random/boot_id") == text
    assert not set(seen[0].splitlines()) & set(seen[1].splitlines())


def test_sys_is_small_and_read_only(api, pair):
    assert sh(api, pair[0], "ls /sys").split() == ["block", "bus", "class", "dev", "devices", "firmware", "fs", "kernel", "module", "power"]
    assert sh(api, pair[0], "ls /sys/class/net; cat /sys/class/net/lo/mtu /sys/class/net/lo/operstate").split() == ["lo", "65536", "unknown"]
    assert sh(api, pair[0], "ls -A /sys/firmware /sys/block /sys/bus /sys/module /sys/kernel").split() == ["/sys/block:", "/sys/bus:", "/sys/firmware:", "/sys/kernel:", "mm", "/sys/module:"]
    assert sh(api, pair[0], "cat /sys/devices/system/cpu/online /sys/devices/system/cpu/possible").count("\n") == 2
    for attack in ("touch /sys/x", "mkdir /sys/class/y", "rm /sys/class/net/lo", "echo 1 > /sys/class/net/lo/mtu", "echo 0 > /sys/devices/system/cpu/cpu1/online", "umount /sys", "rmdir /sys/power"):
        assert api.run(pair[0], ["sh", "-c", attack])["exec"]["exit"]["code"] != 0, attack


def test_terminals_belong_to_whoever_opens_them(api, pair):
    script = ("import os, pty, grp\nos.setgid(1000); os.setuid(1000)\na, b = pty.openpty()\ns = os.fstat(b)\nn = os.open(os.ttyname(b), os.O_RDWR)\n"
              "print(s.st_uid, s.st_gid, oct(s.st_mode & 0o777), os.isatty(n))")
    assert api.run(pair[0], ["python3", "-c", script])["stdout"] == "1000 5 0o620 True\n"


def test_a_terminal_of_an_exec_belongs_to_its_user(api, pair):
    for user, uid in (("", 0), ("1000", 1000)):
        fields = {"user": user} if user else {}
        r = api.post(f"/v1/sandboxes/{pair[0].id}/execs", json={"command": ["sh", "-c", "stat -c '%u:%g %a' $(tty); echo x > $(tty)"], "tty": {"rows": 5, "cols": 50}, **fields})
        assert r.status_code == 201, r.text
        url = f"/v1/sandboxes/{pair[0].id}/execs/{r.json()['id']}"
        assert api.get(url, params={"wait": "exit"}).json()["exit"]["code"] == 0
        assert api.get(f"{url}/stdout").text.split() == [f"{uid}:5", "620", "x"]


SETUID = "cp /usr/bin/id /usr/bin/sid && chmod 4755 /usr/bin/sid"


def test_no_new_privileges(api):
    """Off by default, so that sudo and su work; on, no program gains anything."""
    for option, euid in ((False, "euid=0(root)"), (True, None)):
        with api.sandbox(no_new_privileges=option) as sb:
            assert api.get(f"/v1/sandboxes/{sb.id}").json()["no_new_privileges"] is option
            sh(api, sb, SETUID)
            assert ("euid=0(root)" in api.run(sb, ["sid"], user="1000")["stdout"]) == (euid is not None)
            assert sh(api, sb, "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status").split() == ["NoNewPrivs:", str(int(option)), "Seccomp:", "2"]


def test_user_namespaces(api):
    """Off by default; on, namespaces may be nested and mounts made in them, and still nothing is won outside of them."""
    nested = "unshare -Urm sh -c 'mount -t tmpfs x /mnt && grep -c \" /mnt \" /proc/self/mountinfo && id -u'"
    with api.sandbox() as sb:
        for user in ("0", "1000"):
            assert api.run(sb, ["sh", "-c", nested], user=user)["stdout"] == ""
    with api.sandbox(user_namespaces=True) as sb:
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["user_namespaces"] is True
        for user in ("0", "1000"):
            assert sh(api, sb, nested, user=user).split() == ["1", "0"]
        for attack in ("mount -t tmpfs x /mnt", "umount /proc/cmdline", "mount -o remount,rw,bind /proc/sys", "nsenter -t 1 -m true", "unshare -m true"):
            assert api.run(sb, ["sh", "-c", attack])["exec"]["exit"]["code"] != 0, attack
        # What is masked or read-only stays so inside of a nested one, where root has every capability.
        inside = ("umount /proc/cmdline; mount -t proc p /mnt; mount -o remount,rw,bind /proc/sys; mount -o remount,rw,bind /sys; umount -l /proc; "
                  "cat /proc/cmdline; echo x > /proc/sys/kernel/core_pattern; mkdir /sys/x")
        r = api.run(sb, ["unshare", "-Urmpf", "sh", "-c", inside])
        assert r["stdout"] == "" and r["exec"]["exit"]["code"] != 0, r


def test_landlock_stands_behind_the_filter(api, pair):
    if ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) < 2:
        pytest.skip("this kernel has no Landlock")
    # It is asked before the capability, whose answer would be EPERM (1).
    make = "import os\ntry: os.mknod('/tmp/%s', 0o%s0600, os.makedev(7, 0))\nexcept OSError as e: print(e.errno)"
    assert api.run(pair[0], ["python3", "-c", make % ("b", "06")])["stdout"] == "13\n"
    assert api.run(pair[0], ["python3", "-c", make % ("c", "02")])["stdout"] == "1\n"
    # Nothing else of what programs do with files is different: moves between directories, links, removals.
    assert sh(api, pair[0], "mkdir -p /tmp/m/a /tmp/m/b && echo x >/tmp/m/a/f && mv /tmp/m/a/f /tmp/m/b && ln /tmp/m/b/f /tmp/m/a/g && "
                            "mv /tmp/m/a /tmp/m/b && mv /tmp/m/b/a/g /dev/shm && cat /dev/shm/g && mkfifo /tmp/m/p && mv /tmp/m/p /tmp && rm -r /tmp/m /tmp/p") == "x\n"
