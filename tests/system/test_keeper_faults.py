"""
Every call that the keeper, the spawner and the builders of slots make for a create and for a destroy is denied once, one at a time, and
so is every piece of memory: the answer is an error that says something, nothing is left behind, and the next one works.

All of them with --long; a sample otherwise.
"""

import errno
import mmap
import os
import pathlib
import struct
import subprocess
import time

import pytest

import qsdaemon
from keeperclient import Refused, new_id
from test_keeper import ENVIRONMENT, LAYER, Rig, eventually, put_layer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ANY, KEEPER, OTHERS = range(3)
CALLS, MEMORY = range(2)
ERRORS = (errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENOSPC)
MOST = 2000


class Faults:
    """The page that the preloaded library reads: tests/abuse/faults.c."""

    def __init__(self, directory):
        self.library = directory / "faults.so"
        source = pathlib.Path(__file__).parents[1] / "abuse/faults.c"
        subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", self.library, source], check=True)
        self.path = directory / "faults"
        self.path.write_bytes(bytes(4096))
        self.file = open(self.path, "r+b")
        self.page = mmap.mmap(self.file.fileno(), 4096)

    def arm(self, nth, who=ANY, kind=CALLS):
        self.page[0:4096] = bytes(4096)
        self.page[4:32] = struct.pack("<iiiqq", who, kind, ERRORS[nth % len(ERRORS)], nth, 0)
        self.page[0:4] = struct.pack("<i", 1)

    def disarm(self):
        """The call that failed, "" if it did not come to that."""
        self.page[0:4] = bytes(4)
        return self.page[32:96].split(b"\0")[0].decode()


class FaultRig(Rig):
    def __init__(self, **conf):
        super().__init__(**conf)
        self.faults = Faults(self.home)

    def start(self):
        self.process = subprocess.Popen([self.lib / "quicksandd", "--config", self.config, "--foreground"], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log,
                                        env={**ENVIRONMENT, "LD_PRELOAD": str(self.faults.library), "QS_FAULTS": str(self.faults.path)})
        eventually(self.answers)
        return self

    def keeper(self):
        """A connection to a keeper that runs; one that ended is started again, as its service manager would."""
        if self.process.poll() is not None:
            self.start()
        for k in self.open:
            k.close()
        self.open.clear()
        return self.connect()


@pytest.fixture(scope="module")
def rig():
    if (qsdaemon.build_dir() / "build.ninja").read_text().find("-fsanitize=address") >= 0:
        pytest.skip("the sanitizer has a preloaded library of its own")
    r = FaultRig(pool_size=0)
    try:
        put_layer(r)
        r.start()
        yield r
        k = r.keeper()
        for sb in k.list():
            k.destroy(sb)
        r.stop()
        assert r.left() == []
    finally:
        print(r.tail())
        r.purge()


def nothing_left(rig, k, sb, hit):
    def left():
        return [s for s in k.list() if s == sb], rig.traces(sb), rig.groups()
    end = time.monotonic() + 20
    while any(left()):
        assert time.monotonic() < end, (hit, left())
        time.sleep(0.02)


def destroy(rig, sb):
    """Whatever became of it: it can be destroyed, in the end."""
    for attempt in range(3):
        try:
            rig.keeper().destroy(sb)
            return
        except (Refused, OSError, EOFError, TimeoutError):
            if attempt == 2:
                raise
            time.sleep(0.1)


def sample(step):
    """Each step-th call, and all of them with --long."""
    return pytest.mark.parametrize("step", [step, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])


def deny_in_create(rig, step, who, kind):
    hits, ends = set(), set()
    for nth in range(1, MOST, step):
        sb = new_id()
        k = rig.keeper()
        rig.faults.arm(nth, who, kind)
        try:
            _sb, m = k.create([LAYER], sandbox=sb, timeout=90)
            # What the builder passed on to init shows here, at the first command, as it does in the node's create.
            out = m.run("/bin/echo", "here")
            m.close()
            failed = False
        except Refused as e:
            failed = True
            assert e.message and e.code != 0
        except (OSError, EOFError, struct.error):
            # The keeper itself ended, and what it left half made is finished by the next; or the command has an end and no record.
            failed = True
        hit = rig.faults.disarm()
        if failed:
            assert hit, "a create failed though nothing was denied"
            if rig.process.poll() is not None:
                ends.add(hit)
        else:
            assert out == (0, b"here\n"), hit
        # Where undoing was what failed, this must finish it.
        destroy(rig, sb)
        nothing_left(rig, rig.keeper(), sb, hit)
        if not hit:
            return hits, ends
        hits.add(hit)
    raise AssertionError(f"a create makes more than {MOST} calls")


@sample(3)
def test_calls_of_the_keeper_in_a_create(rig, step):
    hits, ends = deny_in_create(rig, step, KEEPER, CALLS)
    # Without its spawner, or random bytes, the keeper ends, and its service manager starts it again.
    assert len(hits) > 2 and ends <= {"recvmsg", "sendmsg", "getrandom"}, (hits, ends)


@sample(5)
def test_calls_of_the_builders_in_a_create(rig, step):
    hits, _ends = deny_in_create(rig, step, OTHERS, CALLS)
    assert len(hits) > 2, hits


@sample(2)
def test_memory_in_a_create(rig, step):
    """Without memory the keeper ends; the next one tidies up."""
    hits, _ends = deny_in_create(rig, step, ANY, MEMORY)
    assert hits


@sample(2)
def test_calls_of_the_keeper_in_a_destroy(rig, step):
    hits = set()
    for nth in range(1, MOST, step):
        sb, m = rig.keeper().create([LAYER])
        m.close()
        k = rig.keeper()
        rig.faults.arm(nth, KEEPER)
        try:
            k.destroy(sb)
        except Refused as e:
            assert e.message and e.code != 0
        except (OSError, EOFError):
            pass
        hit = rig.faults.disarm()
        destroy(rig, sb)
        nothing_left(rig, rig.keeper(), sb, hit)
        if not hit:
            break
        hits.add(hit)
    assert len(hits) > 2, hits
