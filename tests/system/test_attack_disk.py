"""A disk that runs full: by a sandbox, by output, by others. Errors that say so, no false success, and a way back."""

import contextlib
import os
import subprocess
import time

import pytest

import qsdaemon
from conftest import finish, INSTANCES


class SmallDisk(qsdaemon.Daemon):
    """An instance whose data directory is a file system of its own of 700 MiB."""

    def __init__(self, build, **conf):
        super().__init__(build, **conf)
        image = self.home / "disk.img"
        subprocess.run(["truncate", "-s", "700M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.data_dir], check=True)

    def mounts(self):
        return [m for m in super().mounts() if m != str(self.data_dir) or self.process is None]

    def purge(self):
        self.process = None
        super().purge()

    def free(self):
        s = os.statvfs(self.data_dir)
        return s.f_bavail * s.f_frsize


@pytest.fixture
def small():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    d = SmallDisk(qsdaemon.build_dir(), trees_bytes=4 << 30)
    INSTANCES.append(d)
    try:
        d.start()
        d.import_base()
    except BaseException:
        print(d.log_tail())
        finish(d, check=False)
        raise
    yield d
    finish(d)


def create(d, **fields):
    r = d.api.post("/v1/sandboxes", json={"idle_timeout_s": None, **fields})
    assert r.status_code == 201, r.text
    return f"/v1/sandboxes/{r.json()['id']}"


def sh(d, url, text):
    r = d.api.post(url + "/run", json={"command": ["sh", "-c", text]}, timeout=120)
    assert r.status_code == 200, r.text
    return r.json()


@contextlib.contextmanager
def filled(d):
    """All that is left of the disk is taken by somebody else."""
    path = d.data_dir / "fill"
    try:
        with open(path, "wb") as f, contextlib.suppress(OSError):
            while True:
                os.write(f.fileno(), b"x" * (1 << 20))
        with open(path, "ab") as f, contextlib.suppress(OSError):
            while True:
                os.write(f.fileno(), b"x" * 4096)
        assert d.free() < 65536
        yield
    finally:
        path.unlink()


def test_a_sandbox_that_fills_everything_hurts_nobody_else(small):
    d = small
    a, b = create(d), create(d)
    r = sh(d, a, "head -c 3000000000 /dev/zero > /big; echo $?; sync; ls -l /big >&2")
    assert r["stdout"] == "1\n" and "o space left" in r["stderr"], r
    assert d.free() > 20 << 20
    # The neighbour is told the same, and runs on; so does the API.
    assert sh(d, b, "echo hi; cat /etc/hostname >/dev/null")["stdout"] == "hi\n"
    assert len(sh(d, b, "head -c 200000 /dev/zero | tr '\\0' x")["stdout"]) == 200000
    assert d.api.put(b + "/tags", json={"a": "b"}).status_code == 200
    assert d.api.delete(a).status_code == 204
    end = time.monotonic() + 70             # the space comes back in the background
    while (r := sh(d, b, "head -c 50000000 /dev/zero > /x && sync && wc -c < /x"))["stdout"] != "50000000\n":
        assert time.monotonic() < end, r
        time.sleep(0.5)
    c = create(d)
    assert sh(d, c, "echo x > /x; cat /x")["stdout"] == "x\n"


def test_a_full_disk_is_said_and_survived(small):
    d = small
    api = d.api
    a, b = create(d), create(d)
    with filled(d):
        # What the writable layers need is theirs already.
        r = sh(d, b, "head -c 20000000 /dev/zero > /y; sync; wc -c < /y; rm /y; sync")
        assert r["stdout"] == "20000000\n", r
        # Output that can be kept nowhere is not passed off as the whole.
        r = sh(d, b, "head -c 3000000 /dev/zero | tr '\\0' x")
        if r["exec"]["exit"]["reason"] != "exited" or r["stdout_bytes"] != 3000000:
            assert r["exec"]["exit"]["reason"] == "output_limit" and "No space left" in r["exec"]["exit"]["message"], r["exec"]
        with open(qsdaemon.base_tar(), "rb") as tar:
            r = api.post("/v1/images", params={"name": "more"}, content=tar, timeout=120)
        assert (r.status_code, r.json()["error"]["code"]) == (429, "no_capacity"), r.text
        r = api.post("/v1/sandboxes", json={})
        assert r.status_code in (201, 429), r.text
        # Ending and removing works, or nobody could make room.
        r = api.post(b + "/terminate", json={"grace_s": 0})
        assert r.status_code == 200 and r.json()["state"] == "ended", r.text
        assert api.delete(b).status_code == 204
        assert api.get(a).json()["state"] == "running"
    c = create(d)
    for url in (a, c):
        assert sh(d, url, "head -c 2000000 /dev/zero > /y; sync; wc -c < /y")["stdout"] == "2000000\n"
        assert len(sh(d, url, "head -c 200000 /dev/zero | tr '\\0' x")["stdout"]) == 200000
    assert api.put(c + "/tags", json={"a": "b"}).status_code == 200
    assert "more" not in [n for i in api.get("/v1/images").json()["items"] for n in i["names"]]


def test_output_that_fills_the_disk(small):
    d = small
    a = create(d)
    r = d.api.post(a + "/execs", json={"command": ["sh", "-c", "yes"]}).json()
    x = f"{a}/execs/{r['id']}"
    record = d.api.get(x, params={"wait": "exit", "timeout_s": 60}, timeout=90).json()
    assert record["state"] == "exited", record
    assert record["exit"]["reason"] == "output_limit" and "No space left" in record["exit"]["message"], record
    assert sh(d, a, "echo x > /x; sync; cat /x")["stdout"] == "x\n"
    assert d.api.post(a + "/terminate", json={"grace_s": 0}).status_code == 200
    assert d.api.delete(a).status_code == 204
    assert d.free() > 50 << 20
    b = create(d)
    assert sh(d, b, "echo y")["stdout"] == "y\n"


def test_the_trees_grow_when_they_must(make_daemon):
    d = make_daemon(trees_bytes=6 << 30)
    image = d.data_dir / "trees.img"
    before = image.stat().st_size
    assert before <= 4 << 30 and image.stat().st_blocks * 512 >= before
    url = create(d, disk_mb=6 << 10)
    r = sh(d, url, "fallocate -l 3G /a && echo ok")
    assert r["stdout"] == "ok\n", r
    end = time.monotonic() + 15
    while image.stat().st_size == before and time.monotonic() < end:
        time.sleep(0.1)
    assert before < image.stat().st_size <= 6 << 30
    end = time.monotonic() + 15
    while (r := sh(d, url, "fallocate -l 1500M /b && echo ok"))["stdout"] != "ok\n" and time.monotonic() < end:
        time.sleep(0.2)
    assert r["stdout"] == "ok\n", r
    assert image.stat().st_blocks * 512 >= image.stat().st_size
    assert d.api.delete(url).status_code == 204
