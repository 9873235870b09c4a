"""
Registries whose answers lead round in circles, and archives with what no file system has or no overlay sees.
"""

import io
import json
import tarfile

import pytest

from hostile import Hostile
from registry import Image, sha256, tar_of


@pytest.fixture(scope="module")
def server(hostile):
    s = Hostile(hostile)
    yield s
    s.stop()


@pytest.fixture
def bad(server, images):
    server.reset()
    yield server
    assert images.staged() == []


def breaking(server, with_range, cut):
    """A layer that breaks off each time after `cut` bytes; f(request, bytes) answers whoever wants to go on."""
    server.image = Image([tar_of({"f": bytes(range(256)) * 400})], "plain")
    asked = []

    def answer(rq, digest, blob):
        if digest != server.image.layers[0]["digest"]:
            return False
        asked.append(rq.headers.get("range"))
        if rq.headers.get("range") is None or not with_range(rq, blob):
            server.send_blob(rq, blob, cut=cut)
        return True

    server.on_blob = answer
    return asked


def test_a_server_that_breaks_off_and_does_not_go_on(images, bad):
    asked = breaking(bad, lambda rq, blob: bad.send(rq, 416) or True, 70_000)
    op = images.wait(images.begin_pull(f"{bad.host}/circle/a:1"), 120)
    assert op["state"] == "failed" and op["error"]["code"] in ("unavailable", "invalid_argument"), op
    assert 2 < len(asked) < 40


def test_a_server_that_sends_one_byte_each_time(images, bad):
    asked = breaking(bad, lambda rq, blob: False, 1)
    op = images.wait(images.begin_pull(f"{bad.host}/circle/b:1"), 120)
    assert op["state"] == "failed" and op["error"]["code"] in ("unavailable", "invalid_argument"), op
    assert 2 < len(asked) < 40


def file_with(name, data=b"x", **fields):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, io.BytesIO(data)


def archive(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, data)
    return out.getvalue()


def attribute(name, value):
    return file_with("f", pax_headers={f"SCHILY.xattr.{name}": value})


@pytest.mark.parametrize("entries,word", [
    ([attribute("security.capability", "x")], "security.capability"),
    ([attribute("user.big", "x" * 70_000)], "user.big"),
    ([attribute("user." + "n" * 300, "1")], "user.nnn"),
    ([file_with("s", b"", type=tarfile.SYMTYPE, linkname="t" * 5000)], "symbolic link"),
    ([file_with("d", b"", type=tarfile.DIRTYPE), file_with("h", b"", type=tarfile.LNKTYPE, linkname="d")], "hard link to 'd'"),
], ids=["capability", "large", "long-name", "long-link", "directory"])
def test_what_no_file_system_has(images, bad, entries, word):
    """It is the archive that is at fault, and the error says so."""
    bad.image = Image([archive(*entries)])
    images.pull_fails(f"{bad.host}/none/a:1", "invalid_argument", word)


LOWER = {"lower": b"1", "d/under": b"2"}
UPPER = {".wh..wh..opq": b"", "only": b"3"}


def whole(images, image):
    with images.box(image) as box:
        return [name for name in box.names("/") if name in ("lower", "d", "only", "top")]


def test_a_layer_that_hides_all_below(images, bad):
    bad.image = Image([tar_of(LOWER), tar_of(UPPER), tar_of({"top": b"4"})])
    image = images.pull(f"{bad.host}/opaque/a:1")
    assert len(image["layers"]) == 2
    assert whole(images, image["id"]) == ["only", "top"]


def test_a_layer_of_an_archive_that_hides_all_below(images):
    image = Image([tar_of({**LOWER, "other": b"1"}), tar_of({**UPPER, "other": b"2"})])
    files = {f"blobs/sha256/{digest.split(':')[1]}": blob for digest, blob in {**image.blobs, sha256(image.manifest): image.manifest}.items()}
    entry = {"mediaType": image.media, "digest": image.digest, "size": len(image.manifest)}
    files |= {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()}
    r = images.api.post("/v1/images", params={"name": "hides-all"}, content=tar_of(files))
    assert r.status_code == 201, r.text
    assert whole(images, r.json()["id"]) == ["only"]
