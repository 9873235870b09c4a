"""
`quicksand image`: pull with its progress, inspect, tag, untag, ls, rm, gc, build; operations that are followed over a restart of the daemon.
What is exported, imported and verified by it: test_export.py, test_archives.py, test_verify.py; `quicksand build`: test_build_cli.py.
"""

import json
import os
import pty
import re
import subprocess
import threading
import time
import uuid

import pytest

import qsdaemon
from helpers import Images
from hostile import Hostile
from registry import Image, tar_of
from test_pull import wait_until

PROGRAM = qsdaemon.build_dir() / "src/cli/quicksand"


def environment(daemon):
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token}


@pytest.fixture
def cli(image_daemon):
    def run(*args, code=0, **options):
        r = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, env=environment(image_daemon), timeout=240, check=False,
                           stdin=subprocess.DEVNULL, **options)
        assert r.returncode == code, r
        return r
    return run


def test_from_pull_to_gc(cli, images, registry):
    image = Image([tar_of({"one": b"1" * 1000}), tar_of({"two": b"2" * 500})])
    registry.push(image, "by-cli:1", skopeo=False)
    ref = f"{registry.host}/by-cli:1"
    r = cli("image", "pull", ref)
    pulled = r.stdout.strip()
    assert re.fullmatch(r"im-\w{22}", pulled) and r.stdout.count("\n") == 1
    assert "resolved to" in r.stderr and "layer 1/2" in r.stderr and "1 files, 1000 bytes" in r.stderr
    again = cli("image", "pull", "--quiet", "--refresh", ref)
    assert (again.stdout, again.stderr) == (pulled + "\n", "")
    name = f"cli-{uuid.uuid4().hex}:v"
    assert cli("image", "tag", ref, name).stderr == ""
    told = json.loads(cli("image", "inspect", name).stdout)
    assert told == images.get(pulled) and told["names"] == sorted([ref, name])
    assert told["digest"] == image.digest and told["size_bytes"] == 1500 and told["sandboxes"] == []
    row, = [line for line in cli("image", "ls").stdout.splitlines() if pulled in line]
    assert name in row and ref in row
    with images.api.sandbox(image=name) as sb:
        told = json.loads(cli("image", "inspect", name).stdout)
        assert told["sandboxes"] == [sb.id] and told["last_used_at"] is not None
        assert "in use" in cli("image", "rm", name, code=1).stderr
        cli("image", "untag", name, ref)
        assert pulled not in cli("image", "gc", "--unused", "0").stdout
    dry = cli("image", "gc", "--unused", "0", "--dry-run")
    assert pulled in dry.stdout and re.fullmatch(r"would free \d+\.\d MB, \d+ build steps\n", dry.stderr)
    assert images.get(pulled)
    assert pulled in cli("image", "gc", "--unused", "0").stdout
    assert "no image" in cli("image", "inspect", pulled, code=1).stderr
    assert "manifest" in cli("image", "pull", f"{registry.host}/by-cli:not-there", code=1).stderr
    assert "--unused" in cli("image", "gc", "--unused", "soon", code=2).stderr


@pytest.mark.long
def test_all_of_a_long_list(cli, images):
    """More than a page of the API has; nothing is left out in silence."""
    first = images.api.post("/v1/images", content=tar_of({"f": uuid.uuid4().bytes})).json()["id"]
    archive = tar_of({"many": uuid.uuid4().bytes})
    made = [images.api.post("/v1/images", content=archive).json()["id"] for _ in range(1001)]
    listed = cli("image", "ls").stdout
    assert first in listed and all(i in listed for i in made)
    for i in (first, *made):
        assert images.api.delete(f"/v1/images/{i}").status_code == 204


def test_build_is_there_too(cli, images, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo of image build\n")
    r = cli("image", "build", "-t", "by-image-build", tmp_path)
    assert "of image build" in r.stderr and images.get("by-image-build")["id"] == r.stdout.strip()


def on_a_terminal(daemon, *args):
    """The program with a terminal for its errors: the process, and what it has written so far."""
    master, slave = pty.openpty()
    process = subprocess.Popen([PROGRAM, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, env=environment(daemon), text=True)
    os.close(slave)
    seen = bytearray()

    def read():
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:             # the other side is closed
                break
            if not data:
                break
            seen.extend(data)
        os.close(master)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return process, seen, thread


def test_progress_on_a_terminal(image_daemon, hostile):
    server = Hostile(hostile)
    server.image = Image([tar_of({"f": os.urandom(3_000_000)})], "plain")
    digest, size = server.image.layers[0]["digest"], server.image.layers[0]["size"]
    go = threading.Event()

    def slow(rq, asked, blob):
        if asked != digest or rq.headers.get("range") or go.is_set():
            return False
        rq.send_response(200)
        rq.send_header("content-length", str(size))
        rq.end_headers()
        rq.wfile.write(blob[:1_000_000])
        rq.wfile.flush()
        while not go.wait(0.5):         # a byte now and then: it does not stall
            rq.wfile.write(blob[1_000_000 + slow.more:1_000_001 + slow.more])
            rq.wfile.flush()
            slow.more += 1
        rq.wfile.write(blob[1_000_000 + slow.more:])
        return True

    slow.more = 0
    server.on_blob = slow
    try:
        process, seen, thread = on_a_terminal(image_daemon, "image", "pull", f"{server.host}/x/slow-{uuid.uuid4().hex}:1")
        wait_until(lambda: b"1.0 of 3.0 MB\r" in seen)
        go.set()
        assert process.wait(60) == 0
        thread.join(30)
        assert process.stdout.read().startswith("im-")
        lines = [line.split(b"\r")[-1].replace(b"\x1b[K", b"") for line in bytes(seen).replace(b"\r\n", b"\n").split(b"\n")]
        assert any(line.startswith(b"layer 1/1") for line in lines) and not any(b" of 3.0 MB" in line for line in lines), lines
    finally:
        go.set()
        server.stop()


def test_a_build_is_followed_over_a_restart(make_daemon, tmp_path):
    """The command waits for the daemon and says what became of the build."""
    daemon = make_daemon(supervised=True)
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo begun; sleep 1000\n")
    process, seen, thread = on_a_terminal(daemon, "build", tmp_path)
    wait_until(lambda: b"begun" in seen)
    daemon.hold_down()
    time.sleep(1)
    assert process.poll() is None, bytes(seen)
    daemon.let_up()
    assert process.wait(120) == 1
    thread.join(30)
    assert b"the service was restarted while it ran" in seen, bytes(seen)
    api = Images(daemon).api
    wait_until(lambda: api.get("/v1/sandboxes", params={"app": "builds", "state": "any"}).json()["items"] == [])
