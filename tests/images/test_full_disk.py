"""
A disk that is full, or gets full by what comes: pulls, imports and builds say so, leave no half of anything, and work when there is room again.
"""

import contextlib
import os
import random
import subprocess
import uuid

import pytest

import qsdaemon
from conftest import system_conftest
from helpers import Images
from registry import Image, tar_of
from test_archives import load
from test_build import begin, build, context
from test_pull import wait_until


class SmallDisk(qsdaemon.Daemon):
    """An instance whose data directory is a file system of its own of 800 MiB."""

    def __init__(self, build, **conf):
        super().__init__(build, **conf)
        image = self.home / "disk.img"
        subprocess.run(["truncate", "-s", "800M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.data_dir], check=True)

    def mounts(self):
        return [m for m in super().mounts() if m != str(self.data_dir) or self.process is None]

    def purge(self):
        self.process = None
        super().purge()


@pytest.fixture(scope="module")
def small(registry):
    d = SmallDisk(qsdaemon.build_dir(), registry_insecure=registry.host)
    system_conftest.INSTANCES.append(d)
    try:
        d.start()
        d.import_base()
    except BaseException:
        print(d.log_tail())
        system_conftest.finish(d, check=False)
        raise
    yield Images(d)
    system_conftest.finish(d)


def fill(d, but):
    """Somebody else takes all of the disk but so many bytes."""
    s = os.statvfs(d.data_dir)
    path = d.data_dir / "fill"
    size = s.f_bavail * s.f_frsize - but
    assert size > 0
    with open(path, "wb") as f, contextlib.suppress(OSError):
        if size > 20_000_000:           # quickly
            os.posix_fallocate(f.fileno(), 0, size - 20_000_000)
        f.seek(0, os.SEEK_END)
        while but < (s := os.statvfs(d.data_dir)).f_bavail * s.f_frsize:
            os.write(f.fileno(), bytes(1 << 16))
    return path


def noise(n):
    return random.Random(n).randbytes(n)


def left(images):
    """Layers, and what is not finished."""
    layers = images.daemon.data_dir / "layers"
    return {p.name for p in layers.iterdir() if len(p.name) == 64}, images.staged(), list((layers / ".blobs").iterdir())


@pytest.mark.parametrize("but", [0, 25_000_000], ids=["full", "gets-full"])
def test_a_pull(small, registry, but):
    """No blob stays, which on other occasions the next pull goes on with; layers that were complete are used by it."""
    small.daemon.data_dir.joinpath("layers/.blobs").mkdir(mode=0o700, exist_ok=True)
    image = Image([tar_of({f"f{i}": noise(10_000_000 + but + i)}) for i in range(5)], "plain")
    registry.push(image, f"full-disk-{but}:1", skopeo=False)
    ref = f"{registry.host}/full-disk-{but}:1"
    layers, *_ = left(small)
    path = fill(small.daemon, but)
    small.pull_fails(ref, "no_capacity", "No space left on device")
    now, *unfinished = left(small)
    assert unfinished == [[], []] and layers <= now and len(now - layers) < 5
    path.unlink()
    got = small.pull(ref)
    assert got["size_bytes"] == sum(10_000_000 + but + i for i in range(5))
    with small.box(got["id"]) as box:
        assert box.stat("/f4")["size"] == 10_000_004 + but
    assert left(small)[1:] == ([], [])
    assert small.api.delete(f"/v1/images/{got['id']}").status_code == 204
    wait_until(lambda: not (set(got["layers"]) & left(small)[0]))


def test_an_import_and_a_build(small):
    layers, *_ = left(small)
    word = uuid.uuid4().hex
    files = context(small, {"f": noise(9_000_000)})
    path = fill(small.daemon, 5_000_000)
    r = load(small, tar_of({"x": noise(9_000_001)}))
    assert r.json()["error"]["code"] == "no_capacity" and "No space left on device" in r.json()["error"]["message"], r.text
    assert left(small) == (layers | {files}, [], [])
    text = f"FROM base\nENV X={word}\nCOPY f /f\nRUN echo {word} >/word\n"
    op = small.wait(begin(small, text, context=files).json())
    assert op["state"] == "failed" and op["error"]["code"] == "no_capacity" and "line 3" in op["error"]["message"], op
    assert left(small)[1:] == ([], [])
    # What has to be kept in the database has room on a full disk, and sandboxes begin.
    with small.box("base") as box:
        assert "etc" in box.names("/")
    path.unlink()
    built, _ = build(small, text, {"f": noise(9_000_000)})
    with small.box(built["id"]) as box:
        assert box.read("/word") == word.encode() + b"\n" and box.read("/f") == noise(9_000_000)
