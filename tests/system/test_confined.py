"""Each program of the daemon as it runs: its user, capabilities, filter, file tree, limits. What an intruder in it would have."""

import os
import pathlib
import re

import pytest

ROLES = ("control", "node", "egress", "image")
KEEPER_CAPS = 0x20003B          # SYS_ADMIN, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL: src/keeper/main.c
SPAWNER_CAPS = sum(1 << c for c in (0, 1, 3, 4, 5, 6, 7, 8, 10, 12, 13, 18, 21, 23, 24, 27))   # src/keeper/spawner.c
IMAGE_CAPS = 0x8000001B


def status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def ppid(pid):
    return int(status(pid)["PPid"])


@pytest.fixture(scope="module")
def running(daemon):
    """name -> pid of every program, while a sandbox lives."""
    with daemon.api.sandbox() as sb:
        assert daemon.api.run(sb, ["true"])["exec"]["exit"]["code"] == 0
        found = {r: daemon.pids(r)[0] for r in ROLES}
        found["keeper"] = daemon.process.pid
        found["spawner"] = ppid(found["node"])
        # not one of a slot that nobody asked for yet
        found["init"] = next(p for p in daemon.pids("init") if os.path.exists(f"/proc/{p}/root/__modal"))
        found["monitor"] = ppid(found["init"])
        yield found


def test_users_and_capabilities(daemon, running):
    for name, pid in running.items():
        s = status(pid)
        uids = set(s["Uid"].split())
        bound = {"keeper": KEEPER_CAPS, "spawner": SPAWNER_CAPS, "image": IMAGE_CAPS, "init": 0xA80425FB}.get(name, 0)
        if name in ("keeper", "spawner"):
            bound &= int(status("self")["CapBnd"], 16)      # what this machine has to give
        assert int(s["CapBnd"], 16) == bound, (name, s["CapBnd"])
        assert int(s["CapEff"], 16) == int(s["CapPrm"], 16) == bound and int(s["CapAmb"], 16) == int(s["CapInh"], 16) == 0, name
        assert ("0" in uids) == (name in ("keeper", "spawner")), (name, uids)
        # An init has the sandbox's choice of no_new_privs; the spawner starts inits.
        assert s["NoNewPrivs"] == ("0" if name in ("spawner", "init") else "1"), name
        assert s["Seccomp"] == "2", name
        # init: its own filter behind that of the spawner
        assert int(s["Seccomp_filters"]) == (1 if name in ("keeper", "spawner") else 2), (name, s["Seccomp_filters"])
    users = {name: status(pid)["Uid"].split()[1] for name, pid in running.items() if name not in ("keeper", "spawner")}
    assert len(set(users.values())) == len(users), users


def visible(pid):
    """What stands in a program's file tree that is not the tree's own empty directories: mount point -> (read-only, type, root)."""
    out = {}
    for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        f = left.split()
        out[f[4]] = ("ro" in f[5].split(","), right.split()[0], f[3])
    return out


def test_each_sees_its_own_files(daemon, running):
    data, run = str(daemon.data_dir), str(daemon.run_dir)
    own = {
        "control": {f"{data}/control": "w", f"{run}/node.sock": "r"},
        "node": {f"{data}/node": "w", f"{data}/run": "r", f"{run}/keeper.sock": "r", f"{run}/image.sock": "r", f"{run}/egress.sock": "r"},
        "egress": {f"{data}/egress": "w"},
        "image": {f"{data}/layers": "w"},
    }
    for role in ROLES:
        root = pathlib.Path(f"/proc/{running[role]}/root")
        assert {p.name for p in root.iterdir()} <= {"usr", "bin", "lib", "lib32", "lib64", "etc", "dev", "proc", "run", *pathlib.Path(data).parts[1:2]}, role
        for absent in ("home", "root", "boot", "sys", "tmp", "srv", "var/lib", "etc/shadow" if role == "node" else "opt", "dev/kvm", "dev/mem"):
            assert not (root / absent).exists(), (role, absent)
        mounts = visible(running[role])
        for path, access in own[role].items():
            assert path in mounts and mounts[path][0] == (access == "r"), (role, path)
        in_data = {p.name for p in (root / data[1:]).iterdir()} if (root / data[1:]).exists() else set()
        assert in_data == {pathlib.Path(p).name for p in own[role] if p.startswith(data)}, (role, in_data)
        in_run = {p.name for p in (root / run[1:]).iterdir()} if (root / run[1:]).exists() else set()
        assert in_run == {pathlib.Path(p).name for p in own[role] if p.startswith(run)}, (role, in_run)
        # Nothing of the host can be written but that, and device nodes; the root itself is its maker's.
        writable = {m for m, (ro, _t, _r) in mounts.items() if not ro}
        assert {m for m in writable if not m.startswith(("/dev/", "/proc")) and m != "/"} == {p for p, a in own[role].items() if a == "w"}, role
        if role != "image" and "/proc" in mounts and os.environ.get("QUICKSAND_BUILD", "").find("asan") < 0:
            assert not (root / "proc/cpuinfo").exists()


def test_the_spawner_and_monitors_see_little_more(daemon, running):
    for name in ("spawner", "monitor"):
        root = pathlib.Path(f"/proc/{running[name]}/root")
        for absent in ("home", "root", "boot", "tmp", "srv", "opt", "dev/kvm", "dev/mem", "dev/vda"):
            assert not (root / absent).exists(), (name, absent)
        assert not [m for m in visible(running[name]) if m.startswith(f"{daemon.data_dir}/trees")]


def test_none_can_be_looked_into(running):
    for name, pid in running.items():
        if name in ("spawner", "image", "init"):  # the last two are root of namespaces of their own, which owns theirs either way
            continue
        # What belongs to root though the program does not is of one that is not dumpable.
        assert os.stat(f"/proc/{pid}/environ").st_uid == 0, name
    for role in ROLES:
        limits = pathlib.Path(f"/proc/{running[role]}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits), role
        assert re.search(r"Max msgqueue size +0 +0 ", limits), role


def test_namespaces(running):
    def ns(name, kind):
        return os.readlink(f"/proc/{running[name]}/ns/{kind}")
    for role in ROLES:
        assert ns(role, "mnt") not in {ns("keeper", "mnt"), ns("spawner", "mnt"), *(ns(r, "mnt") for r in ROLES if r != role)}
        assert ns(role, "ipc") not in {ns(r, "ipc") for r in running if r != role}
    assert ns("image", "user") != ns("keeper", "user")
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"):
        if os.path.exists(f"/proc/self/ns/{kind}"):
            assert ns("init", kind) != ns("keeper", kind), kind
    assert ns("monitor", "net") == ns("init", "net")
