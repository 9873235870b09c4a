"""
Registries that lie, stall, loop and send people away; archives that want out. A clear error each time, nothing left behind, and the
next pull works.
"""

import io
import json
import tarfile
import time

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


def name(request):
    return request.node.name.replace("[", "-").replace("]", "").replace("_", "-").lower()[:100]


@pytest.fixture
def ref(server, request):
    return f"{server.host}/x/{name(request)}:1"


def layer(text=b"x"):
    return tar_of({"f": text})


def layer_digest(image):
    return image.layers[0]["digest"]


def test_wrong_bytes_of_a_layer(images, bad, ref):
    bad.image = Image([layer()])
    blob = bad.image.blobs[layer_digest(bad.image)]
    bad.override[layer_digest(bad.image)] = blob[:-1] + bytes([blob[-1] ^ 1])
    images.pull_fails(ref, "invalid_argument", "digest")
    bad.override.clear()
    assert images.pull(ref)["digest"] == bad.image.digest


def test_a_longer_and_a_shorter_layer(images, bad, ref):
    bad.image = Image([layer(b"longer")])
    digest = layer_digest(bad.image)
    bad.override[digest] = bad.image.blobs[digest] + b"more"
    images.pull_fails(ref, "invalid_argument", "longer")
    bad.override[digest] = bad.image.blobs[digest][:-5]
    images.pull_fails(ref, "invalid_argument", "ends after")


def test_a_layer_that_breaks_off_is_continued(images, bad, ref):
    bad.image = Image([tar_of({"f": bytes(range(256)) * 4000})], "plain")
    size = bad.image.layers[0]["size"]
    seen = []

    def breaking(rq, digest, blob):
        if digest != layer_digest(bad.image):
            return False
        seen.append(rq.headers.get("range"))
        if len(seen) < 4:
            bad.send_blob(rq, blob, cut=size // 5)
            return True
        return False

    bad.on_blob = breaking
    images.pull(ref)
    assert seen[0] is None and all(r is not None for r in seen[1:]), seen
    starts = [int(r.split("=")[1].rstrip("-")) for r in seen[1:]]
    assert starts == sorted(starts) and starts[0] == size // 5


def test_another_tree_than_the_configuration_says(images, bad, ref):
    bad.image = Image([layer(b"tree")], diff_ids=["sha256:" + "1" * 64])
    images.pull_fails(ref, "invalid_argument", "111111111111")


def test_a_manifest_that_is_not_the_one_asked_for(images, bad, server):
    bad.image = Image([layer()])
    bad.manifest = Image([layer(b"other")]).manifest
    wanted = "sha256:" + "2" * 64
    images.pull_fails(f"{server.host}/x/y@{wanted}", "invalid_argument", "digest")


@pytest.mark.parametrize("text,code", [
    (b"", "malformed_request"), (b"not json", "malformed_request"), (b"[]", "invalid_argument"), (b"{}", "invalid_argument"),
    (b'{"schemaVersion": 1}', "not_supported"), (b'{"schemaVersion": 2, "manifests": []}', "not_found"),
    (b'{"schemaVersion": 2, "a": ' + b"[" * 100 + b"]" * 100 + b"}", "malformed_request"),
    (b'{"schemaVersion": 2, "layers": "' + b"x" * 5_000_000 + b'"}', "too_large"),
], ids=["empty", "no-json", "array", "nothing", "old", "empty-index", "deep", "long"])
def test_manifests_that_are_none(images, bad, ref, text, code):
    bad.manifest = text
    images.pull_fails(ref, code)


def test_very_many_layers(images, bad, ref):
    bad.image = Image([layer()])
    body = dict(bad.image.body)
    body["layers"] = body["layers"] * 10000
    bad.manifest = json.dumps(body).encode()
    images.pull_fails(ref, "too_large", "10000 layers")


def test_a_million_layers(images, bad, ref):
    bad.image = Image([layer()])
    body = json.dumps({**bad.image.body, "layers": []})
    one = json.dumps(bad.image.body["layers"][0])
    bad.manifest = body.replace('"layers": []', '"layers": [' + ",".join([one] * 1_000_000) + "]").encode()
    images.pull_fails(ref, "too_large")


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b'{"token": ""}', b'{"token": 7}', b'{"token": "a\\r\\nX: y"}', b"x" * 400_000],
                         ids=["empty", "none", "array", "blank", "number", "newline", "long"])
def test_a_token_service_that_gives_none(images, bad, ref, answer):
    bad.image = Image([layer()])
    bad.token, bad.token_answer = "the-token", answer
    op = images.wait(images.begin_pull(ref))
    assert op["state"] == "failed" and op["error"]["message"], op
    assert len(bad.requests) < 10


def test_a_kind_of_authentication_that_is_not_known(images, bad, ref):
    bad.on_manifest = lambda rq: bad.send(rq, 401, b"", [("www-authenticate", 'Negotiate realm="x"')]) or True
    images.pull_fails(ref, "permission_denied", "Negotiate")


def test_an_archive_that_is_a_bomb(images, bad, ref):
    """Its header promises twenty gigabytes; that is known before any of them is written."""
    info = tarfile.TarInfo("bomb")
    info.size = 20 << 30
    bad.image = Image([info.tobuf(tarfile.PAX_FORMAT) + bytes(1 << 20)])
    images.pull_fails(ref, "too_large", "bomb")


@pytest.mark.long
def test_a_stall_ends_by_itself(images, bad, ref):
    bad.on_manifest = lambda rq: time.sleep(10) or bad.send(rq, 200, b"{}") or True
    images.pull_fails(ref, "timeout", "stalled")


def test_endless_401(images, bad, ref):
    bad.image = Image([layer()])
    bad.token = "never-this"
    images.pull_fails(ref, "permission_denied", "credentials")
    assert len(bad.requests) < 10


def test_a_token(images, bad, ref):
    bad.image = Image([layer(b"token")])
    bad.token = "the-token"
    images.pull(ref, username="me", password="pass word")
    paths = [p for p, _ in bad.requests]
    token = next(h for p, h in bad.requests if p.startswith("/token"))
    assert any("service=svc" in p and "scope=" in p for p in paths)
    assert token["Authorization"] == "Basic bWU6cGFzcyB3b3Jk"


def test_credentials_of_the_file(images, bad, ref, image_daemon):
    bad.image = Image([layer(b"file")])
    bad.token = "the-token"
    image_daemon.registry_auth.write_text(json.dumps({"auths": {bad.host: {"auth": "dXNlcjpzZWNyZXQ="}}}))
    images.pull(ref)
    token = next(h for p, h in bad.requests if p.startswith("/token"))
    assert token["Authorization"] == "Basic dXNlcjpzZWNyZXQ="
    image_daemon.registry_auth.write_text("{}")


def test_too_many_requests(images, bad, ref):
    bad.image = Image([layer(b"429")])
    answers = [("retry-after", "1")], [("retry-after", "1")]
    left = list(answers)

    def busy(rq):
        if not left:
            return False
        bad.send(rq, 429, b"", left.pop())
        return True

    bad.on_manifest = busy
    start = time.monotonic()
    images.pull(ref)
    assert time.monotonic() - start >= 2


def test_too_many_requests_for_an_hour(images, bad, ref):
    bad.on_manifest = lambda rq: bad.send(rq, 429, b"", [("retry-after", "3600")]) or True
    images.pull_fails(ref, "rate_limited", "3600")


def test_a_stall(images, bad, ref):
    bad.image = Image([layer(b"stall")])

    def stall(rq, digest, blob):
        if digest != layer_digest(bad.image):
            return False
        rq.send_response(200)
        rq.send_header("content-length", str(len(blob)))
        rq.end_headers()
        rq.wfile.write(blob[:1])
        rq.wfile.flush()
        time.sleep(60)
        return True

    bad.on_blob = stall
    op = images.begin_pull(ref)
    time.sleep(1)
    assert images.api.get(f"/v1/operations/{op['id']}").json()["state"] == "running"
    assert images.api.post(f"/v1/operations/{op['id']}/cancel").status_code == 202
    assert images.wait(op)["state"] == "cancelled"


def test_redirects(images, bad, ref, server):
    bad.image = Image([layer(b"redirected")])
    bad.on_blob = lambda rq, digest, blob: "/elsewhere/" not in rq.path and (
        bad.send(rq, 307, b"", [("location", f"http://{server.host}/elsewhere/blobs/{digest}")]) or True)
    images.pull(ref, username="u", password="p")
    assert not any("Authorization" in h for p, h in bad.requests if p.startswith("/elsewhere/"))


def test_endless_redirects(images, bad, ref, server):
    bad.on_manifest = lambda rq: bad.send(rq, 302, b"", [("location", f"http://{server.host}{rq.path}")]) or True
    images.pull_fails(ref, "unavailable", "redirects")
    assert len(bad.requests) < 20


def entry(kind, path, **fields):
    info = tarfile.TarInfo(path)
    info.type, info.mode = kind, 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return {path: info}


@pytest.mark.parametrize("files,code,word", [
    ({"../out": b"x"}, "invalid_argument", ".."),
    (entry(tarfile.LNKTYPE, "h", linkname="/etc/passwd"), "invalid_argument", "hard link"),
    (entry(tarfile.LNKTYPE, "h", linkname="../../etc/passwd"), "invalid_argument", ".."),
    (entry(tarfile.REGTYPE, "f", uid=70000), "invalid_argument", "70000"),
    ({".wh.": b""}, "invalid_argument", "whiteout"), ({"d/.wh...": b""}, "invalid_argument", "whiteout"),
], ids=["dotdot", "hard-absolute", "hard-out", "id", "whiteout-empty", "whiteout-dotdot"])
def test_archives_that_are_refused(images, bad, ref, files, code, word):
    bad.image = Image([tar_of(files)])
    images.pull_fails(ref, code, word)


def test_archives_that_are_tamed(images, bad, ref):
    files = {"etc": ("dir", 0o755), "abs": ("link", "/etc"), "up": ("link", "../../.."), "abs/slipped": b"1", "up/slipped-too": b"2", "twice": b"a", "keep": b"k"}
    files |= entry(tarfile.CHRTYPE, "dev-node", devmajor=1, devminor=3)
    first = tar_of(files)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for text in (b"1", b"22"):
            info = tarfile.TarInfo("twice")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    bad.image = Image([first, out.getvalue()])
    image = images.pull(ref)
    with images.box(image["id"]) as box:
        assert box.read("/etc/slipped") == b"1" and box.read("/slipped-too") == b"2"
        assert box.read("/twice") == b"22" and box.read("/keep") == b"k"
        assert "dev-node" not in box.names("/")


def test_a_directory_that_becomes_a_link(images, bad, ref):
    """The second entry of that name is a link out; what follows lands where a program inside would find it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, kind, target, text in [("etc", tarfile.DIRTYPE, "", b""), ("d", tarfile.DIRTYPE, "", b""), ("d/f", tarfile.REGTYPE, "", b"1"),
                                         ("d", tarfile.SYMTYPE, "../../../../etc", b""), ("d/slipped", tarfile.REGTYPE, "", b"2"),
                                         ("d/.wh.f", tarfile.REGTYPE, "", b"")]:
            info = tarfile.TarInfo(path)
            info.type, info.linkname, info.size, info.mode = kind, target, len(text), 0o755
            tar.addfile(info, io.BytesIO(text))
    bad.image = Image([out.getvalue()])
    op = images.wait(images.begin_pull(ref))
    if op["state"] == "failed":         # a directory with files in it is not thrown away for a link
        assert op["error"]["code"] == "invalid_argument" and "'d'" in op["error"]["message"], op
        return
    with images.box(op["image"]) as box:
        assert box.read("/etc/slipped") == b"2" and "slipped" in box.names("/etc")


def test_cut_archives(images, bad, ref):
    whole = tar_of({"f": b"x" * 5000})
    bad.image = Image([whole[:3000]])
    images.pull_fails(ref, "invalid_argument", "complete tar")
    gz = Image([whole])
    digest = layer_digest(gz)
    cut = gz.blobs[digest][:-10]
    bad.image = Image([whole])
    body = dict(bad.image.body)
    body["layers"] = [{**body["layers"][0], "digest": sha256(cut), "size": len(cut)}]
    bad.image.blobs[sha256(cut)] = cut
    bad.manifest = json.dumps(body).encode()
    images.pull_fails(ref, "invalid_argument", "archive")
