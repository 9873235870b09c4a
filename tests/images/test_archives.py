"""
Archives with an image in them: OCI layouts as skopeo writes them, and what `docker save` writes; a root file system stays one.
"""

import io
import json
import pathlib
import subprocess
import tarfile

from registry import MACHINE, Image, tar_of

LAYERS = [tar_of({"a": b"one", "gone": b"x"}), tar_of({"a": b"two", ".wh.gone": b""})]
CONFIG = {"Env": ["X=1"], "WorkingDir": "/w", "Cmd": ["x"]}


def load(images, data, **params):
    return images.api.post("/v1/images", params=params, content=data, timeout=120)


def tar_dir(path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for p in sorted(pathlib.Path(path).rglob("*")):
            tar.add(p, p.relative_to(path), recursive=False)
    return out.getvalue()


def check(images, r, image):
    assert r.status_code == 201, r.text
    got = images.get(r.json()["id"])
    assert got["layers"] == [d.split(":")[1] for d in reversed(image.diff_ids)]
    assert got["env"] == {"X": "1", "Y": "2"} and got["workdir"] == "/w"
    assert got["config"]["config"]["Cmd"] == ["x"]
    with images.box(got["id"]) as box:
        assert box.read("/a") == b"two" and "gone" not in box.names("/")
    assert images.staged() == []


def test_an_oci_layout(images, tmp_path):
    image = Image(LAYERS, config=CONFIG)
    image.write_layout(tmp_path)
    check(images, load(images, tar_dir(tmp_path), name="loaded/oci:1", env="Y=2"), image)
    assert images.get("loaded/oci:1")["digest"] == image.digest


def test_what_docker_save_writes(images, registry, tmp_path):
    image = Image(LAYERS, config=CONFIG)
    registry.push(image, "to-save:1")
    archive = tmp_path / "saved.tar"
    subprocess.run(["skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{registry.host}/to-save:1",
                    f"docker-archive:{archive}:saved:1"], check=True, stdin=subprocess.DEVNULL)
    check(images, load(images, archive.read_bytes(), env="Y=2"), image)


def test_broken_archives(images, tmp_path):
    image = Image([tar_of({"not": b"here before"})])
    image.write_layout(tmp_path)
    blob = tmp_path / "blobs/sha256" / image.layers[0]["digest"].split(":")[1]
    blob.unlink()
    r = load(images, tar_dir(tmp_path))
    assert r.status_code == 400 and "no file" in r.json()["error"]["message"], r.text
    blob.symlink_to("/etc/passwd")
    assert load(images, tar_dir(tmp_path)).status_code == 400
    (tmp_path / "index.json").write_text("{}")
    assert load(images, tar_dir(tmp_path)).status_code == 400
    assert images.staged() == []


def test_layers_that_are_too_much_together(images, tmp_path):
    """Each alone would be within the limit of an image; what the second one promises is known before it comes."""
    info = tarfile.TarInfo("large")
    info.size = (16 << 30) - 100
    image = Image([tar_of({"small": b"x" * 1000}), info.tobuf(tarfile.PAX_FORMAT) + bytes(1 << 20)], "plain")
    image.write_layout(tmp_path)
    r = load(images, tar_dir(tmp_path))
    assert r.json()["error"]["code"] == "too_large" and "'large'" in r.json()["error"]["message"], r.text
    assert images.staged() == []


def test_more_than_one_image(images, tmp_path):
    """Neither the first one is taken in silence, nor the archive for a root file system."""
    for name in ("one", "two"):
        Image([tar_of({name: name.encode()})], config=CONFIG).write_layout(tmp_path / name, name)
        subprocess.run(["skopeo", "copy", "-q", f"oci:{tmp_path}/{name}:{name}", f"oci:{tmp_path}/both:{name}"], check=True, stdin=subprocess.DEVNULL)
    r = load(images, tar_dir(tmp_path / "both"))
    assert r.status_code == 400 and "has 2 images (one, two)" in r.json()["error"]["message"], r.text
    index = json.loads((tmp_path / "both/index.json").read_text())
    for entry in index["manifests"]:
        entry["platform"] = {"os": "linux", "architecture": MACHINE}
    (tmp_path / "both/index.json").write_text(json.dumps(index))
    r = load(images, tar_dir(tmp_path / "both"))
    assert r.status_code == 400 and "has 2 images (one, two)" in r.json()["error"]["message"], r.text
    # What docker save writes of two.
    saved = [{"Config": "c.json", "RepoTags": [f"{name}:1"], "Layers": ["layer.tar"]} for name in ("one", "two")]
    r = load(images, tar_of({"manifest.json": json.dumps(saved).encode(), "c.json": b"{}", "layer.tar": b""}))
    assert r.status_code == 400 and "has 2 images" in r.json()["error"]["message"], r.text
    # One image under two names is one, and so is one for two machines.
    index["manifests"] = [index["manifests"][0], {**index["manifests"][0], "annotations": {"org.opencontainers.image.ref.name": "again"}}]
    (tmp_path / "both/index.json").write_text(json.dumps(index))
    r = load(images, tar_dir(tmp_path / "both"))
    assert r.status_code == 201, r.text
    foreign = {**index["manifests"][0], "digest": "sha256:" + "5" * 64, "platform": {"os": "linux", "architecture": "s390x"}}
    index["manifests"] = [foreign, index["manifests"][0]]
    (tmp_path / "both/index.json").write_text(json.dumps(index))
    assert load(images, tar_dir(tmp_path / "both")).json()["digest"] == r.json()["digest"]


def test_a_root_file_system_with_such_names(images):
    r = load(images, tar_of({"manifest.json": json.dumps({"name": "an app"}).encode(), "index.json": b"{}"}))
    assert r.status_code == 201, r.text
    with images.box(r.json()["id"]) as box:
        assert box.read("/index.json") == b"{}"


def test_a_long_list_of_layers_is_folded(images, tmp_path):
    image = Image([tar_of({f"f{i}": b"%d" % i, "last": b"%d" % i}) for i in range(90)])
    image.write_layout(tmp_path)
    r = load(images, tar_dir(tmp_path))
    assert r.status_code == 201 and len(r.json()["layers"]) == 1, r.text
    with images.box(r.json()["id"]) as box:
        assert box.read("/last") == b"89" and box.read("/f0") == b"0"
    assert r.json()["files"] == 92      # and the root
