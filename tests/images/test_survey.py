"""
Layers that lie on the node and that no row knows: an import that broke off leaves them, or a kill at the wrong moment.
"""

import os
import time
import uuid

from helpers import Images
from registry import Image, tar_of
from test_archives import load, tar_dir
from test_pull import wait_until


def age(layers, name, hours):
    """The sum of a layer is written when it comes."""
    os.utime(layers / ".sums" / name, (time.time() - hours * 3600,) * 2)


def test_what_no_row_knows_goes_after_a_day(make_daemon, tmp_path):
    daemon = make_daemon()
    images = Images(daemon)
    layers = daemon.data_dir / "layers"
    left = []
    for i in range(2):                  # imports that fail at their last layer
        image = Image([tar_of({"good": uuid.uuid4().bytes}), tar_of({"bad": uuid.uuid4().bytes})])
        image.write_layout(tmp_path / str(i))
        (tmp_path / str(i) / "blobs/sha256" / image.layers[1]["digest"].split(":")[1]).unlink()
        r = load(images, tar_dir(tmp_path / str(i)))
        assert r.status_code == 400 and "no file" in r.json()["error"]["message"], r.text
        left.append(image.diff_ids[0].split(":")[1])
        assert (layers / left[i]).is_dir()
    whole = Image([tar_of({"one": b"1"}), tar_of({"two": b"2"})])
    whole.write_layout(tmp_path / "whole")
    kept = load(images, tar_dir(tmp_path / "whole")).json()
    known = {p.name for p in layers.iterdir() if len(p.name) == 64} - set(left)
    assert set(kept["layers"]) <= known
    for name in known | {left[0]}:
        age(layers, name, 25)
    age(layers, left[1], 23)
    daemon.kill_role("control")         # it looks when it starts, and every day
    wait_until(lambda: not (layers / left[0]).exists())
    assert (layers / left[1]).is_dir() and {p.name for p in layers.iterdir() if len(p.name) == 64} == known | {left[1]}
    wait_until(lambda: images.api.get("/v1/health").json()["status"] == "ok")
    with images.box(kept["id"]) as box:
        assert box.read("/one") == b"1" and box.read("/two") == b"2"
    # More than a page: all of them go.
    names = ["%064x" % (n << 200) for n in range(1, 300)]
    for name in names:
        (layers / name).mkdir()
        (layers / ".sums" / name).write_text("- 0 1\n")
        age(layers, name, 25)
    daemon.kill_role("control")
    wait_until(lambda: not any((layers / name).exists() for name in names))
    assert {p.name for p in layers.iterdir() if len(p.name) == 64} == known | {left[1]}
