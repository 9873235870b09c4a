"""
Damage to layers is found by `verify`, and mended by whoever brings the layer again; sandboxes that live on the old tree keep it.
"""

import os
import subprocess

import pytest

import qsdaemon
from registry import Image, tar_of

LAYERS = [tar_of({"etc/conf": b"as it was", "bin/tool": b"#!/bin/sh\n", "link": ("link", "etc/conf")}), tar_of({"upper": b"u"})]


def verify(images, image):
    r = images.api.post(f"/v1/images/{image}/verify", timeout=120)
    assert r.status_code == 200, r.text
    return r.json()


def states(images, image):
    return [layer["state"] for layer in verify(images, image)["layers"]]


def change(path):
    path.write_bytes(b"AS it was")


def same_text_other_mode(path):
    path.chmod(0o600)


def gone(path):
    path.unlink()


def other_owner(path):
    os.chown(path, 1234, -1)


@pytest.mark.parametrize("damage", [change, same_text_other_mode, gone, other_owner], ids=lambda f: f.__name__.replace("_", "-"))
def test_damage_is_found_and_mended(images, registry, image_daemon, damage):
    layers = [tar_of({"etc/conf": b"as it was", "of": damage.__name__.encode()}), LAYERS[1]]
    ref = f"{registry.host}/damaged-{damage.__name__}:1"
    registry.push(Image(layers), ref.split("/", 1)[1])
    image = images.pull(ref)
    assert verify(images, image["id"]) == {"whole": True, "layers": [{"layer": name, "state": "whole", "message": None} for name in image["layers"]]}
    lower = image_daemon.data_dir / "layers" / image["layers"][1]
    damage(lower / "etc/conf")
    found = verify(images, image["id"])
    assert found["whole"] is False and [layer["state"] for layer in found["layers"]] == ["whole", "damaged"]
    assert found["layers"][1]["message"] == "its files are not those that were unpacked"
    with images.box(image["id"]) as old:
        op = images.wait(images.begin_pull(ref, refresh=True))
        assert op["state"] == "succeeded" and op["image"] == image["id"], op
        assert sum("is there already" in line for line in images.log(op)) == 1
        assert states(images, image["id"]) == ["whole", "whole"]
        with images.box(image["id"]) as new:
            assert new.read("/etc/conf") == b"as it was" and new.stat("/etc/conf")["mode"] == "0644"
        assert old.read("/of") == damage.__name__.encode()      # its own tree is still there
    assert images.staged() == []


def test_a_missing_layer(images, registry, image_daemon):
    ref = f"{registry.host}/missing-layer:1"
    registry.push(Image([tar_of({"m": b"to be lost"})]), "missing-layer:1")
    image = images.pull(ref)
    layer = image_daemon.data_dir / "layers" / image["layers"][0]
    subprocess.run(["rm", "-r", "--", layer], check=True)
    assert states(images, image["id"]) == ["missing"]
    assert images.pull(ref, refresh=True)["id"] == image["id"]
    assert states(images, image["id"]) == ["whole"]


def test_an_import_mends_too(images, image_daemon):
    data = tar_of({"file": b"imported", "d/.wh.name": b"a file's name"})

    def load():
        r = images.api.post("/v1/images", content=data)
        assert r.status_code == 201, r.text
        return r.json()

    first = load()
    layer = image_daemon.data_dir / "layers" / first["layers"][0]
    (layer / "file").write_bytes(b"important")
    assert states(images, first["id"]) == ["damaged"]
    second = load()
    assert second["layers"] == first["layers"]
    assert states(images, first["id"]) == ["whole"] and (layer / "file").read_bytes() == b"imported"
    # A layer from before sums were kept.
    (layer.parent / ".sums" / layer.name).unlink()
    found = verify(images, first["id"])
    assert found["whole"] is True and found["layers"][0]["state"] == "unknown"


def test_the_command_line(images, image_daemon):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": image_daemon.url, "QUICKSAND_TOKEN": image_daemon.token}

    def cli(*args):
        return subprocess.run([qsdaemon.build_dir() / "src/cli/quicksand", "image", "verify", *args], env=env, capture_output=True, text=True,
                              timeout=120, check=False)

    image = images.api.post("/v1/images", params={"name": "to-verify"}, content=tar_of({"file": b"of the command line"})).json()
    short = image["layers"][0][:12]
    p = cli("to-verify")
    assert (p.returncode, p.stdout, p.stderr) == (0, f"{short} whole\n", "")
    (image_daemon.data_dir / "layers" / image["layers"][0] / "file").write_bytes(b"x")
    p = cli("to-verify")
    assert p.returncode == 1 and p.stdout == f"{short} damaged\n" and "to-verify is damaged" in p.stderr and "--refresh" in p.stderr
    assert cli("no-such-image").returncode == 1
