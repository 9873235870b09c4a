"""
A node that was taken over sends the keeper what it can think of (tests/abuse/evil_node.py): mutated and wild requests, floods, descriptors, halves of
messages, names that are paths. Nothing outside of what a node may ask for happens, and the keeper goes on.

What a node may do is not tried here: to make sandboxes, to change and to destroy them.
"""

import hashlib
import os
import pathlib
import random
import stat
import subprocess
import sys
import time

import pytest

from test_keeper import LAYER, NODE_UID, Rig, eventually, put_layer, sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

EVIL = pathlib.Path(__file__).parents[1] / "abuse/evil_node.py"
GROWTH = 48 << 20


def tree(top, skip=()):
    """Everything of a directory: kind, owner, mode, size and content."""
    out = {}
    for path in sorted(pathlib.Path(top).rglob("*")):
        if any(path == s or s in path.parents for s in skip):
            continue
        s = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(s.st_mode) else os.readlink(path) if stat.S_ISLNK(s.st_mode) else ""
        out[str(path)] = (s.st_mode, s.st_uid, s.st_gid, s.st_nlink, content)
    return out


class Witness:
    """Sees what is around the keeper: a canary of each kind that its rights reach, and what is the host's."""

    def __init__(self, rig):
        self.rig = rig
        canary = rig.home / "canary"
        canary.mkdir()
        (canary / "file").write_text("untouched")
        (canary / "link").symlink_to("/etc/passwd")
        for place in (rig.data, rig.data / "keeper", rig.data / "run", rig.data / "trees"):
            (place / "canary").mkdir(mode=0o700)
            (place / "canary" / "file").write_text("untouched")
        self.group = pathlib.Path(f"/sys/fs/cgroup/{rig.cgroup}-canary")
        for root in pathlib.Path("/sys/fs/cgroup").iterdir():
            if (root / "cgroup.procs").exists():
                self.group = root / f"{rig.cgroup}-canary"
        self.group.mkdir()
        self.process = subprocess.Popen(["sleep", "1000"])
        (self.group / "cgroup.procs").write_text(str(self.process.pid))

    def look(self):
        r = self.rig
        changing = [r.data / "trees/sandboxes", r.data / "trees/deltas", r.data / "run", r.data / "keeper", r.data / "layers", r.home / "log", r.data / "trees.img"]
        mounts = [m for m in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(r.home) in m]
        return {
            "files": tree(r.home, changing),
            "canaries": [tree(p / "canary") for p in (r.data / "keeper", r.data / "run", r.data / "trees")],
            "layers": [p.name for p in (r.data / "layers").iterdir()],
            "layer": tree(r.data / "layers" / LAYER / "etc"),
            "mounts": mounts,
            "passwd": pathlib.Path("/etc/passwd").read_bytes(),
            "process": self.process.poll(),
            "group": (self.group / "cgroup.procs").read_text(),
        }

    def close(self):
        self.process.kill()
        self.process.wait()
        eventually(lambda: not (self.group / "cgroup.procs").read_text())
        self.group.rmdir()
        for place in (self.rig.data / "keeper", self.rig.data / "run", self.rig.data / "trees"):
            (place / "canary" / "file").unlink()
            (place / "canary").rmdir()


@pytest.fixture(scope="module")
def rig():
    r = Rig(max_sandboxes=40, pool_size=2)
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


def resident(pid):
    return next(int(line.split()[1]) * 1024 for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("seconds", [8, pytest.param(120, marks=pytest.mark.long)])
def test_nothing_outside_its_contract_happens(rig, seconds):
    k = rig.connect()
    witness = Witness(rig)
    try:
        with sandbox(k) as (sb, m):
            before, size, fds = witness.look(), resident(rig.process.pid), descriptors(rig.process.pid)
            seed = random.randrange(1 << 30)
            evil = subprocess.Popen([sys.executable, "-B", EVIL, rig.run / "keeper.sock", str(seconds), str(seed), sb, LAYER], user=NODE_UID, group=NODE_UID,
                                    extra_groups=[], stdout=subprocess.PIPE, text=True)
            slowest = 0
            while evil.poll() is None:
                began = time.monotonic()
                assert m.run("/bin/echo", "here") == (0, b"here\n")
                assert k.stats()["sandboxes"] >= 1
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(0.05)
            print("seed", seed, "slowest", slowest)
            assert evil.returncode == 0 and int(evil.stdout.read()) > 20 * seconds
            assert rig.process.poll() is None, "the keeper died"
            for other in k.list() - {sb}:
                k.destroy(other)            # sandboxes that it made, as it may
            assert k.list() == {sb}
            assert witness.look() == before
            assert resident(rig.process.pid) < size + GROWTH
            eventually(lambda: descriptors(rig.process.pid) <= fds + 2)
            assert slowest < 20
            # It is of use as before.
            with sandbox(k) as (_other, n):
                assert n.run("/bin/echo", "fine") == (0, b"fine\n")
            assert m.run("/bin/echo", "here") == (0, b"here\n")
    finally:
        witness.close()
