"""
Pulling images from a registry of Debian's packages: forms of layers, platforms, digests, whiteouts, names.
"""

import os
import time

import pytest

import helpers
from registry import Image, tar_of

BASE = {"bin": ("dir", 0o755), "bin/tool": b"tool", "etc/conf": b"one", "etc/gone": b"x", "data/old": b"old", "data/sub/old": b"old"}
UPPER = {"etc/conf": b"two", "etc/.wh.gone": b"", "data/.wh..wh..opq": b"", "data/new": b"new", "lone/.wh.missing": b"",
         "link": ("link", "etc/conf"), "hard": ("hard", "etc/conf")}
CONFIG = {"Env": ["A=1", "PATH=/bin", "A=2"], "WorkingDir": "/data", "User": "1000:1000", "Cmd": ["tool"], "Labels": {"x": "y"}}


def check_tree(images, image):
    with images.box(image["id"]) as box:
        assert box.read("/etc/conf") == b"two"
        assert "gone" not in box.names("/etc") and "conf" in box.names("/etc")
        assert box.names("/data") == ["new"]
        assert box.names("/lone") == []
        assert box.read("/link") == b"two"
        assert box.read("/hard") == b"two"
        assert box.read("/bin/tool") == b"tool"


@pytest.mark.parametrize("form", ["plain", "gzip", "zstd", "docker"])
def test_layers_of_every_form(images, registry, form):
    image = Image([tar_of(BASE), tar_of(UPPER)], form, config=CONFIG)
    registry.push(image, f"form-{form}:1", skopeo=form in ("gzip", "zstd"))
    got = images.pull(f"{registry.host}/form-{form}:1")
    assert f"{registry.host}/form-{form}:1" in got["names"]
    assert got["layers"] == [d.split(":")[1] for d in reversed(image.diff_ids)]
    assert got["env"] == {"A": "2", "PATH": "/bin"}
    assert (got["workdir"], got["user"]) == ("/data", "1000:1000")
    assert got["config"]["config"]["Labels"] == {"x": "y"}
    assert got["digest"] == image.digest
    check_tree(images, got)


def test_a_tag_is_frozen_until_refreshed(images, registry):
    ref = f"{registry.host}/frozen:v"
    one, two = (Image([tar_of({"f": text})]) for text in (b"one", b"two"))
    registry.push(one, "frozen:v")
    first = images.pull(ref)
    registry.push(two, "frozen:v")
    op = images.wait(images.begin_pull(ref))
    assert op["image"] == first["id"] and op["result"]["existing"] is True
    second = images.pull(ref, refresh=True)
    assert second["id"] != first["id"] and second["digest"] == two.digest
    assert images.get(ref)["id"] == second["id"]
    assert images.get(first["id"])["names"] == []
    assert images.pull(f"{registry.host}/frozen@{one.digest}")["id"] == first["id"]


def test_the_machines_image_of_an_index(images, registry):
    mine, other = Image([tar_of({"f": b"mine"})]), Image([tar_of({"f": b"other"})], arch="s390x")
    registry.push_index([other, mine], "multi", "1")
    got = images.pull(f"{registry.host}/multi:1")
    assert got["digest"] == mine.digest
    with images.box(got["id"]) as box:
        assert box.read("/f") == b"mine"
    images.pull_fails(f"{registry.host}/multi:1", "not_found", "linux/riscv64", "linux/s390x", arch="riscv64", name="multi-riscv")


def test_an_image_for_another_machine(images, registry):
    registry.push(Image([tar_of({"f": b""})], arch="s390x"), "foreign:1", skopeo=False)
    images.pull_fails(f"{registry.host}/foreign:1", "not_found", "s390x")


def test_layers_are_shared(images, registry):
    base = tar_of({"base": b"x" * 100000})
    one = Image([base, tar_of({"one": b"1"})])
    two = Image([base, tar_of({"two": b"2"})])
    registry.push(one, "shared-one:1")
    registry.push(two, "shared-two:1")
    first = images.pull(f"{registry.host}/shared-one:1")
    op = images.wait(images.begin_pull(f"{registry.host}/shared-two:1"))
    assert any("is there already" in line for line in images.log(op))
    second = images.get(op["image"])
    assert second["layers"][1] == first["layers"][1]
    assert second["shared_bytes"] == 100000
    assert [d["images"] for d in second["layer_details"]] == [1, 2]
    assert second["size_bytes"] == 100001


def test_one_layer_twice_and_none_at_all(images, registry):
    a, b = tar_of({"a": b"a"}), tar_of({".wh.a": b"", "b": b"b"})
    registry.push(Image([a, b, a]), "twice:1")
    twice = images.pull(f"{registry.host}/twice:1")
    with images.box(twice["id"]) as box:
        assert box.read("/a") == b"a"
        assert box.read("/b") == b"b"
    assert len(twice["layers"]) == 2
    registry.push(Image([]), "none:1", skopeo=False)
    none = images.pull(f"{registry.host}/none:1")
    with images.box(none["id"]) as box:
        assert "b" not in box.names("/")


@pytest.mark.parametrize("n", [41, pytest.param(150, marks=pytest.mark.long)])
def test_a_long_list_of_layers_is_folded(images, registry, image_daemon, n):
    layers = [tar_of({"all/f%d" % i: b"%d" % i, "changes": b"%d" % i, "gone": b"", **({"all/.wh.f%d" % (i - 1): b""} if i % 10 == 0 else {}),
                      "top": ("dir", 0o700 + i % 8)}) for i in range(n - 1)] + [tar_of({".wh.gone": b"", "n": b"%d" % n})]
    image = Image(layers)
    registry.push(image, f"long-{n}:1", skopeo=False)
    op = images.wait(images.begin_pull(f"{registry.host}/long-{n}:1"))
    assert op["state"] == "succeeded", op
    assert any("copied into one" in line for line in images.log(op))
    got = images.get(op["image"])
    assert len(got["layers"]) == 1 and got["digest"] == image.digest
    with images.box(got["id"]) as box:
        left = [i for i in range(n - 1) if (i + 1) % 10 != 0 or i == n - 2]
        assert box.names("/all") == sorted(f"f{i}" for i in left)
        assert box.read("/changes") == b"%d" % (n - 2) and box.read(f"/all/f{n - 2}") == b"%d" % (n - 2)
        assert "gone" not in box.names("/") and box.stat("/top")["mode"] == "%04o" % (0o700 + (n - 2) % 8)
    # Once more: the same image, and what it came as is removed again.
    assert images.pull(f"{registry.host}/long-{n}:1", refresh=True)["id"] == got["id"]
    ids = {d.split(":")[1] for d in image.diff_ids}
    wait_until(lambda: not ids & {p.name for p in (image_daemon.data_dir / "layers").iterdir()})
    assert (image_daemon.data_dir / "layers" / got["layers"][0]).is_dir()


def test_the_same_image_at_once(images, registry, image_daemon):
    """Each blob is there for whoever comes second: nobody is disturbed by another that has unpacked and removed it."""
    image = Image([tar_of({f"f{i}": bytes([i]) * 300_000}) for i in range(12)])
    registry.push(image, "at-once:1", skopeo=False)
    ref = f"{registry.host}/at-once:1"
    ops = [images.begin_pull(ref, name=f"at-once-{i}", refresh=True) for i in range(4)]
    got = [images.wait(op) for op in ops]
    assert [op["state"] for op in got] == ["succeeded"] * 4, got
    assert {images.get(op["image"])["size_bytes"] for op in got} == {12 * 300_000}
    left = {p.name.split(".")[0] for p in (image_daemon.data_dir / "layers/.blobs").iterdir()}
    assert images.staged() == [] and not left & {layer["digest"].split(":")[1] for layer in image.layers}


def test_parts_that_nobody_continues_go_after_a_day(images, registry, image_daemon):
    image = Image([tar_of({"f": b"after a day"})])
    registry.push(image, "parts:1", skopeo=False)
    images.pull(f"{registry.host}/parts:1")
    parts = [image_daemon.data_dir / "layers/.blobs" / (letter * 64 + ".part") for letter in "ab"]
    for part, hours in zip(parts, (23, 25), strict=True):
        part.write_bytes(b"begun")
        os.utime(part, (time.time() - hours * 3600,) * 2)
    images.pull(f"{registry.host}/parts:1", refresh=True)
    assert [part.exists() for part in parts] == [True, False]
    parts[0].unlink()


def test_a_mirror(images, registry):
    image = Image([tar_of({"m": b"mirrored"})])
    registry.push(image, "some/path:1")
    assert images.pull("mirrored.example/some/path:1")["digest"] == image.digest


def test_missing_ones(images, registry):
    images.pull_fails(f"{registry.host}/not-there:1", "not_found", "manifest '1'")
    r = images.api.post("/v1/images:pull", json={"ref": "UPPER/case"})
    assert r.status_code == 400 and r.json()["error"]["param"] == "ref", r.text
    r = images.api.post("/v1/images:pull", json={"ref": "x:y:z"})
    assert r.status_code == 400, r.text


def test_names(images, registry):
    registry.push(Image([tar_of({"n": b""})]), "named:1")
    got = images.pull(f"{registry.host}/named:1", name="docker.io/library/my:latest")
    assert got["names"] == ["my"]
    for spelled in ("my", "my:latest", "library/my", "docker.io/library/my:latest"):
        assert images.get(spelled)["id"] == got["id"]
    assert images.api.put("/v1/images/names/team%2Fmy:2", json={"image": "my"}).status_code == 200
    assert images.get("team/my:2")["names"] == ["my", "team/my:2"]
    assert images.api.delete("/v1/images/names/my").status_code == 204
    assert images.api.delete("/v1/images/names/my").status_code == 404
    assert images.get("team/my:2")["names"] == ["team/my:2"]


def test_garbage(images, registry):
    kept, gone = Image([tar_of({"k": b"k"})]), Image([tar_of({"g": b"g" * 5000})])
    registry.push(kept, "gc-kept:1")
    registry.push(gone, "gc-gone:1")
    keep = images.pull(f"{registry.host}/gc-kept:1")
    go = images.pull(f"{registry.host}/gc-gone:1", name="gc-name")
    assert images.api.delete("/v1/images/names/gc-name").status_code == 204
    dry = images.api.post("/v1/images:gc", json={"unused_s": 0, "dry_run": True}).json()
    assert go["id"] in [i["image"] for i in dry["images"]] and keep["id"] not in [i["image"] for i in dry["images"]]
    assert dry["freed_bytes"] >= 5000
    with images.box(go["id"]):
        r = images.api.post("/v1/images:gc", json={"unused_s": 0}).json()
        assert go["id"] not in [i["image"] for i in r["images"]]
    r = images.api.post("/v1/images:gc", json={"unused_s": 0}).json()
    assert go["id"] in [i["image"] for i in r["images"]]
    assert images.api.get(f"/v1/images/{go['id']}").status_code == 404
    assert images.get(keep["id"])["id"] == keep["id"]


def test_a_pull_that_is_killed_goes_on(registry, make_daemon):
    """Twenty layers; the image role, then every daemon, is killed in the middle: what was complete is used by the next pull."""
    layers = [tar_of({f"d{i}/f{k}": bytes([i + 1, k]) * 100_000 for k in range(10)}) for i in range(20)]
    registry.push(Image(layers, "plain"), "big:1", skopeo=False)
    daemon = make_daemon(supervised=True, registry_insecure=registry.host)
    images = helpers.Images(daemon)
    ref = f"{registry.host}/big:1"

    def complete():
        return [p for p in (daemon.data_dir / "layers").iterdir() if len(p.name) == 64]

    before = len(complete())
    op = images.begin_pull(ref)
    wait_until(lambda: len(complete()) >= before + 3)
    daemon.kill_role("image")
    assert images.wait(op)["state"] in ("failed", "succeeded")
    op = images.begin_pull(ref, refresh=True)
    daemon.hold_down()
    daemon.let_up()
    ended = images.wait(op)
    assert ended["state"] == "failed" and "restarted" in ended["error"]["message"], ended
    there = {p.name for p in complete()}
    have = len(there) - before
    assert have >= 3
    asked = len(registry.blob_requests("big"))
    op = images.wait(images.begin_pull(ref, refresh=True))
    assert op["state"] == "succeeded", op
    assert sum("is there already" in line for line in images.log(op)) >= have
    # The registry notes a request at its end: those of the pull that was cut may come late, so each counts once.
    again = set(registry.blob_requests("big")[asked:])
    assert 0 < len(again) <= 20 - have + 1, again       # and the configuration
    assert not {d.split(":")[1] for d in again} & there, "what was complete came again"
    assert images.get(op["image"])["size_bytes"] == 20 * 2_000_000      # of those that came with broken pulls too
    with images.box(op["image"]) as box:
        assert box.read("/d19/f9") == bytes([20, 9]) * 100_000 and box.read("/d0/f0") == bytes([1, 0]) * 100_000
    assert images.staged() == [] and list((daemon.data_dir / "layers/.blobs").iterdir()) == []


@pytest.mark.long
def test_a_gibibyte_in_twenty_layers(registry, make_daemon):
    """Every daemon is killed at several points of the pull, from before the first layer to the last ones: no layer that was there comes again."""
    import random
    size = 54_000_000
    layers = [tar_of({f"big{i}": random.Random(i).randbytes(size)}) for i in range(20)]
    image = Image(layers, "zstd")
    registry.push(image, "gib:1")
    daemon = make_daemon(supervised=True, registry_insecure=registry.host)
    images = helpers.Images(daemon)
    store = daemon.data_dir / "layers"
    blob_of = {d.split(":")[1]: layer["digest"] for d, layer in zip(image.diff_ids, image.layers, strict=True)}

    def complete():
        return {p.name for p in store.iterdir()} & set(blob_of)

    def parts():
        return sum(p.stat().st_size for p in (store / ".blobs").iterdir())

    points = [lambda: True, lambda: parts() > size // 2, lambda: len(complete()) >= 1 and parts() > 0, lambda: len(complete()) >= 6, lambda: images.staged(),
              lambda: len(complete()) >= 12, lambda: len(complete()) >= 16]
    there = set()
    for point in points:
        asked = len(registry.blob_requests("gib"))
        op = images.begin_pull(f"{registry.host}/gib:1", refresh=True)
        wait_until(lambda now=point: now() or images.api.get(f"/v1/operations/{op['id']}").json()["state"] != "running")
        daemon.hold_down()
        now = complete()
        daemon.let_up()
        ended = images.wait(op)
        assert ended["state"] == "failed" and "restarted" in ended["error"]["message"], ended
        assert there <= now and there <= complete()
        assert not {blob_of[layer] for layer in there} & set(registry.blob_requests("gib")[asked:]), "what was complete came again"
        there = complete()
    assert len(there) >= 16
    asked = len(registry.blob_requests("gib"))
    image = images.pull(f"{registry.host}/gib:1", refresh=True)
    again = registry.blob_requests("gib")[asked:]
    assert not {blob_of[layer] for layer in there} & set(again) and len(again) <= 20 - len(there) + 1, again
    assert image["size_bytes"] == 20 * size and complete() == set(blob_of)
    assert images.staged() == [] and parts() == 0
    with images.box(image["id"]) as box:
        assert box.stat("/big19")["size"] == size
        assert box.read("/big7") == random.Random(7).randbytes(size)


def wait_until(condition, seconds=120):
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)
