"""
What a start costs does not depend on how much there is in the image. System calls of all the daemon's processes are counted, not times.
"""

import collections
import re
import shutil
import signal
import subprocess
import time

import pytest

from registry import tar_of

STARTS = 3
SMALL = 10                      # files
# What makes a sandbox and its tree. Each of these is done as often for both, to the call.
MAKING = ("mkdir", "mkdirat", "mknodat", "symlink", "mount", "move_mount", "open_tree", "mount_setattr", "fsopen", "fsconfig", "fsmount", "openat2", "pivot_root",
          "clone3", "execveat", "fchownat", "linkat", "copy_file_range", "sendfile", "setxattr", "fsetxattr")


def counted(daemon, image, at):
    """How often each system call was made while sandboxes of the image started and ended."""
    command = ["strace", "-f", "-qq", "-o", at] + [word for pid, _ in daemon.own_processes() for word in ("-p", str(pid))]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        give_up = time.monotonic() + 60
        while not all(traced(pid) for pid, _ in daemon.own_processes()):
            assert tracer.poll() is None and time.monotonic() < give_up, "strace does not attach"
            time.sleep(0.1)
        for _ in range(STARTS):
            with daemon.api.sandbox(image=image):
                pass
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=60)
    calls = collections.Counter()
    for line in at.read_text(errors="replace").splitlines():
        if m := re.match(r"\d+ +(\w+)\(", line):
            calls[m[1]] += 1
    return calls


def traced(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return "TracerPid:\t0\n" not in f.read()
    except OSError:
        return True


@pytest.mark.parametrize("files,size", [(3000, 1 << 10), pytest.param(500, 1 << 20, marks=pytest.mark.long)], ids=["3000-files", "500-mebibytes"])
def test_a_start_does_as_much_for_a_large_image(make_daemon, tmp_path, files, size):
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    # Without ready slots each start is made from nothing, so that all of it is counted, and nothing of another.
    daemon = make_daemon(pool_size=0)
    for name, n in (("small", SMALL), ("large", files)):
        tar = tar_of({f"d{i % 10}/f{i}": bytes(size) for i in range(n)})
        r = daemon.api.post("/v1/images", params={"name": name}, content=tar, timeout=300)
        assert r.status_code == 201 and r.json()["size_bytes"] == n * size, r.text
        with daemon.api.sandbox(image=name):
            pass
    small, large = (counted(daemon, name, tmp_path / name) for name in ("small", "large"))
    assert small["open_tree"] > 0 and small["execveat"] >= STARTS
    assert {call: small[call] for call in MAKING} == {call: large[call] for call in MAKING}
    # The rest hangs on time too. Had a start to do with each file, there would be at least so many more.
    for call in small | large:
        assert large[call] - small[call] < files - SMALL, (call, small[call], large[call])
