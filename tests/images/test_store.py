"""
What the store keeps: results of build steps and uploads for builds, what a collection of garbage says of them beforehand, and their end.
"""

import os
import sqlite3
import time
import uuid

import pytest

from helpers import Images
from hostile import Hostile
from qsdaemon import error
from registry import Image, free_port, tar_of
from test_build import begin, build, context
from test_pull import wait_until

STEP = "FROM base\nENV X={}\nRUN dd if=/dev/zero of=/kept bs=1k count=700 2>/dev/null\n"


def collect(images, **fields):
    r = images.api.post("/v1/images:gc", json={"unused_s": 0, **fields})
    assert r.status_code == 200, r.text
    return r.json()


def layer_of(image):
    return image["layers"][0]


def test_a_dry_run_tells_what_goes(images, image_daemon):
    """Layers that steps keep count once the steps go; what a dry run would forget is still known after it."""
    text = STEP.format(uuid.uuid4().hex)
    image, _ = build(images, text)
    at = image_daemon.data_dir / "layers" / layer_of(image)
    collect(images)                     # what other tests left
    image, op = build(images, text)
    assert op["result"]["cached_steps"] == 0
    before = collect(images, dry_run=True)
    assert [i["image"] for i in before["images"]] == [image["id"]] and before["build_steps"] == 1
    assert before["freed_bytes"] >= 700 * 1024
    again, op = build(images, text)
    assert op["result"]["cached_steps"] == 1 and images.get(image["id"])
    # Of two images with one layer nothing is counted twice.
    both = collect(images, dry_run=True)
    assert sorted(i["image"] for i in both["images"]) == sorted([image["id"], again["id"]])
    assert both["freed_bytes"] == before["freed_bytes"] and both["build_steps"] == 1
    # A named image keeps the layer; the step goes alone.
    assert images.api.put("/v1/images/names/kept:1", json={"image": again["id"]}).status_code == 200
    named = collect(images, dry_run=True)
    assert [i["image"] for i in named["images"]] == [image["id"]]
    assert (named["freed_bytes"], named["build_steps"]) == (0, 1)
    assert images.api.delete("/v1/images/names/kept:1").status_code == 204
    # Steps as old as asked for; those of now are not.
    assert collect(images, unused_s=3600) == {"dry_run": False, "images": [], "caches": [], "freed_bytes": 0, "build_steps": 0}
    done = collect(images)
    assert {**done, "dry_run": True} == both
    wait_until(lambda: not at.exists())
    _, op = build(images, text)
    assert op["result"]["cached_steps"] == 0


def test_an_upload_serves_one_build(images, image_daemon):
    """Two with the same files are two: the end of one build takes nothing from another."""
    files = {"f": uuid.uuid4().bytes}
    first, second = context(images, files), context(images, files)
    assert first == second
    text = "FROM scratch\nCOPY f /f\n"
    for _ in range(2):
        build(images, text, context=first)
    error(begin(images, text, context=first), 404, "not_found", "context")
    wait_until(lambda: not (image_daemon.data_dir / "layers" / first).exists())
    # A text that is refused takes none.
    third = context(images, files)
    assert begin(images, "FROM\n", context=third).status_code == 400
    build(images, text, context=third)
    # Nor is one taken that was never there.
    error(begin(images, text, context="0" * 64), 404, "not_found", "context")


def break_off(server):
    """An image whose last layer is not what its digest says, and comes to its end when the first one is unpacked."""
    server.image = Image([tar_of({"good": uuid.uuid4().bytes * 5000}), tar_of({"bad": os.urandom(100_000)})])
    last = server.image.layers[1]["digest"]
    server.override[last] = bytes(len(server.image.blobs[last]))


def good_layer(images, server):
    """The layer that a pull leaves which broke off at another one."""
    at = images.daemon.data_dir / "layers" / server.image.diff_ids[0].split(":")[1]
    last = server.image.layers[1]["digest"]

    def drip(rq, digest, blob):
        if digest != last:
            return False
        rq.send_response(200)
        rq.send_header("content-length", str(len(blob)))
        rq.end_headers()
        sent = 0
        while not at.exists() and sent < len(blob) - 100:       # faster than what counts as stalled
            rq.wfile.write(blob[sent:sent + 100])
            sent += 100
            time.sleep(0.05)
        rq.wfile.write(blob[sent:])
        return True

    server.on_blob = drip
    images.pull_fails(f"{server.host}/broken/image:1", "invalid_argument", "digest")
    server.on_blob = None
    assert at.exists()
    return at


@pytest.fixture
def broken(hostile):
    server = Hostile(hostile)
    break_off(server)
    yield server
    server.stop()


def test_layers_of_pulls_that_broke_off_are_garbage(images, broken):
    collect(images)
    at = good_layer(images, broken)
    assert collect(images, unused_s=3600, dry_run=True)["freed_bytes"] == 0 and at.exists()
    collect(images)
    wait_until(lambda: not at.exists())
    broken.override.clear()
    assert images.pull(f"{broken.host}/broken/image:1")["size_bytes"] == 180_000


def test_collections_during_a_build(images):
    """What a build has made and still needs is not taken from it, however often somebody collects everything."""
    steps = "".join(f"RUN echo {n} >/f{n}\nCOPY f /c{n}\n" for n in range(6))
    op = begin(images, f"FROM base\nENV X={uuid.uuid4().hex}\n{steps}RUN cat /f0 /f5 /c0 /c5 >/all\n", {"f": b"of the context\n"}, name="of-collections:1").json()
    n = 0
    while images.api.get(f"/v1/operations/{op['id']}").json()["state"] == "running":
        collect(images)
        n += 1
    op = images.wait(op)
    assert op["state"] == "succeeded" and n > 1, (op["error"], n)
    with images.box(op["image"]) as box:
        assert box.read("/all") == b"0\n5\nof the context\nof the context\n"


def test_what_nobody_asks_for_expires(make_daemon):
    """Uploads that no build takes, and layers that came with a pull that broke off."""
    broken = Hostile(free_port())
    break_off(broken)
    daemon = make_daemon(registry_insecure=broken.host)
    images = Images(daemon)
    pulled = good_layer(images, broken)
    broken.stop()
    old, new = (context(images, {"f": word}) for word in (b"old" * 1000, b"new" * 1000))
    layers = daemon.data_dir / "layers"
    assert (layers / old).is_dir() and (layers / new).is_dir()
    with sqlite3.connect(daemon.data_dir / "control/state.db", timeout=30) as db:
        n = db.execute("UPDATE build_steps SET used_us = used_us - 3601000000 WHERE key LIKE ?", (f"context:{old}:%",)).rowcount
        m = db.execute("UPDATE layers SET created_us = created_us - 86401000000 WHERE layer = ?", (pulled.name,)).rowcount
    db.close()
    assert (n, m) == (1, 1)
    daemon.kill_role("control")         # it looks when it starts, and every ten minutes
    wait_until(lambda: not (layers / old).exists() and not pulled.exists())
    give_up = time.monotonic() + 60
    while True:
        try:
            r = begin(images, "FROM scratch\nCOPY f /\n", context=old)
            break
        except OSError:
            assert time.monotonic() < give_up
    error(r, 404, "not_found", "context")
    build(images, "FROM scratch\nCOPY f /\n", context=new)
