"""
Registries that lie, stall, loop and send people away; archives that want out. A clear error each time, nothing left behind, and the
next pull works.
"""

import email.utils
import io
import json
import tarfile
import threading
import time

import pytest

from hostile import Hostile
from registry import Image, index_of, sha256, tar_of


@pytest.fixture(scope="module")
def server(hostile):
    s = Hostile(hostile)
    yield s
    s.stop()


def images_there(images):
    return {i["id"] for i in images.api.get("/v1/images", params={"limit": 1000}).json()["items"]}


@pytest.fixture
def bad(server, images):
    server.reset()
    yield server
    assert images.staged() == []


@pytest.fixture
def nothing(bad, images):
    """Not even a row or a blob is there after the test that was not there before; only layers of a pull may be."""
    before = images_there(images)
    blobs = images.daemon.data_dir / "layers/.blobs"
    had = set(blobs.iterdir()) if blobs.exists() else set()
    yield
    assert images_there(images) == before
    assert set(blobs.iterdir()) <= had


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


def test_wrong_bytes_of_the_configuration(images, bad, ref, nothing):
    bad.image = Image([layer(b"configuration")])
    digest = bad.image.body["config"]["digest"]
    bad.override[digest] = bad.image.blobs[digest].replace(b"linux", b"Linux")
    images.pull_fails(ref, "invalid_argument", "digest")


@pytest.mark.parametrize("digest", ["sha256:", "sha256:" + "g" * 64, "sha256:" + "A" * 64, "md5:" + "0" * 32, "sha256:../../../etc/passwd", ""],
                         ids=["short", "letters", "capitals", "md5", "path", "empty"])
def test_digests_that_are_none(images, bad, ref, digest, nothing):
    bad.image = Image([layer(b"digests")])
    body = dict(bad.image.body)
    body["layers"] = [{**body["layers"][0], "digest": digest}]
    bad.manifest = json.dumps(body).encode()
    images.pull_fails(ref, "invalid_argument", "digest")
    assert not any("/blobs/" in path and not path.endswith(body["config"]["digest"]) for path, _ in bad.requests)


@pytest.mark.parametrize("size,code", [(-1, "invalid_argument"), (1 << 62, "invalid_argument"), ("10", "invalid_argument"), (None, "invalid_argument"), (1.5, "invalid_argument")])
def test_sizes_that_are_none(images, bad, ref, size, code, nothing):
    """One that is too large is known before a byte of it comes."""
    bad.image = Image([layer(b"sizes")])
    body = dict(bad.image.body)
    body["layers"] = [{**body["layers"][0], "size": size}]
    bad.manifest = json.dumps(body).encode()
    images.pull_fails(ref, code, "size")
    assert not any(path.endswith(body["layers"][0]["digest"]) for path, _ in bad.requests)


def test_a_bad_layer_above_good_ones(images, bad, ref):
    """What was good is not fetched again, and images of the same layers are what they were."""
    good = [tar_of({f"f{i}": bytes([i]) * 20_000}) for i in range(3)]
    bad.image = Image(good[:2])
    older = images.pull(f"{bad.host}/older/of-the-same:1")
    bad.image = Image([*good, layer(b"bad one")])
    before = images_there(images)
    last = bad.image.layers[3]["digest"]
    bad.override[last] = bytes(len(bad.image.blobs[last]))
    images.pull_fails(ref, "invalid_argument", "digest")
    assert images_there(images) == before
    r = images.api.post(f"/v1/images/{older['id']}/verify", json={})
    assert r.status_code == 200 and r.json()["whole"] is True, r.text
    with images.box(older["id"]) as box:
        assert box.read("/f1") == b"\1" * 20_000
    bad.override.clear()
    bad.requests.clear()
    image = images.pull(ref)
    fetched = [path.rsplit("/", 1)[1] for path, _ in bad.requests if "/blobs/" in path]
    assert last in fetched and bad.image.layers[0]["digest"] not in fetched and bad.image.layers[1]["digest"] not in fetched
    assert image["size_bytes"] == 60_007


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


def test_layers_come_four_at_once(images, bad, ref):
    """None is sent before four are asked for, and never are more."""
    bad.image = Image([tar_of({f"f{i}": b"four %d" % i}) for i in range(8)])
    layers, there, most, lock = {layer["digest"] for layer in bad.image.layers}, [], [], threading.Lock()
    meeting = threading.Barrier(4, there.clear)

    def together(rq, digest, blob):
        if digest not in layers:
            return False
        with lock:
            there.append(digest)
            most.append(len(there))
        meeting.wait(30)
        bad.send_blob(rq, blob)
        return True

    bad.on_blob = together
    assert images.pull(ref)["digest"] == bad.image.digest
    assert most == [1, 2, 3, 4] * 2


def test_another_tree_than_the_configuration_says(images, bad, ref, nothing):
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
def test_manifests_that_are_none(images, bad, ref, text, code, nothing):
    bad.manifest = text
    images.pull_fails(ref, code)


def test_indexes_in_indexes(images, bad, server):
    """UR-096: of an index that leads to another the machine's image comes, and one that leads to itself ends."""
    bad.image = Image([layer(b"in an index")])
    text, kind = index_of([bad.image]), "application/vnd.oci.image.index.v1+json"
    documents = {bad.image.digest: bad.image.manifest}
    for _ in range(6):
        documents[sha256(text)] = text
        entry = {"mediaType": kind, "digest": sha256(text), "size": len(text)}
        foreign = {"mediaType": bad.image.media, "digest": "sha256:" + "3" * 64, "size": 5, "platform": {"os": "linux", "architecture": "s390x"}}
        text = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [foreign, entry, {**entry, "digest": "sha256:" + "4" * 64}]}).encode()
    levels = list(documents)[1:]
    bad.on_manifest = lambda rq: bad.send(rq, 200, documents[rq.path.split("/")[-1]]) or True
    assert images.pull(f"{server.host}/nested/x@{levels[3]}")["digest"] == bad.image.digest
    images.pull_fails(f"{server.host}/nested/y@{levels[4]}", "invalid_argument", "4 deep")


def test_very_many_layers(images, bad, ref, nothing):
    bad.image = Image([layer()])
    body = dict(bad.image.body)
    body["layers"] = body["layers"] * 10000
    bad.manifest = json.dumps(body).encode()
    images.pull_fails(ref, "too_large", "10000 layers")


def test_a_million_layers(images, bad, ref, nothing):
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


def test_an_archive_that_is_a_bomb(images, bad, ref, nothing):
    """Its header promises twenty gigabytes; that is known before any of them is written."""
    info = tarfile.TarInfo("bomb")
    info.size = 20 << 30
    bad.image = Image([info.tobuf(tarfile.PAX_FORMAT) + bytes(1 << 20)])
    images.pull_fails(ref, "too_large", "bomb")


@pytest.mark.long
def test_a_stall_ends_by_itself(images, bad, ref):
    bad.on_manifest = lambda rq: time.sleep(10) or bad.send(rq, 200, b"{}") or True
    images.pull_fails(ref, "timeout", "stalled")


def test_endless_401(images, bad, ref, nothing):
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


def test_a_token_service_that_is_busy(images, bad, ref):
    bad.image, bad.token = Image([layer(b"busy token")]), "the-token"
    bad.token_busy = [(503, b""), (429, b"", [("retry-after", "1")])]
    images.pull(ref, username="me", password="pass word")
    asked = [h.get("Authorization") for path, h in bad.requests if path.startswith("/token")]
    assert len(asked) >= 3 and set(asked) == {"Basic bWU6cGFzcyB3b3Jk"} and bad.token_busy == []
    bad.token_busy = [(429, b"", [("retry-after", "3600")])]
    images.pull_fails(ref, "rate_limited", "3600", refresh=True)


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

    def busy_too(rq, digest, blob):
        """A layer: the time is a date."""
        if digest != layer_digest(bad.image) or len(dated) == 2:
            return False
        dated.append(time.time() + 2)
        bad.send(rq, 429, b"", [("retry-after", email.utils.formatdate(dated[-1], usegmt=True))])
        return True

    dated = []
    bad.on_manifest, bad.on_blob = busy, busy_too
    start = time.monotonic()
    images.pull(ref)
    assert not left and len(dated) == 2 and time.monotonic() - start >= 4


def test_too_many_requests_for_an_hour(images, bad, ref):
    bad.on_manifest = lambda rq: bad.send(rq, 429, b"", [("retry-after", "3600")]) or True
    images.pull_fails(ref, "rate_limited", "3600")
    bad.on_manifest = lambda rq: bad.send(rq, 429, b"", [("retry-after", email.utils.formatdate(time.time() + 7200, usegmt=True))]) or True
    images.pull_fails(ref, "rate_limited", "wait 7")


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


@pytest.mark.long
def test_a_stalled_layer_ends_by_itself(images, bad, ref):
    """The first bytes came, and then none; what came is gone on with by the next pull."""
    bad.image = Image([tar_of({"f": bytes(range(256)) * 4000})], "plain")
    digest, size = layer_digest(bad.image), bad.image.layers[0]["size"]

    def stall(rq, asked, blob):
        if asked != digest:
            return False
        start = int((rq.headers.get("range") or "bytes=0-").split("=")[1].rstrip("-"))
        rq.send_response(206 if start else 200)
        rq.send_header("content-length", str(size - start))
        rq.end_headers()
        rq.wfile.write(blob[start:1000])
        rq.wfile.flush()
        time.sleep(8)
        rq.close_connection = True
        return True

    bad.on_blob = stall
    op = images.wait(images.begin_pull(ref))
    assert op["state"] == "failed" and op["error"]["code"] == "timeout" and "stalled" in op["error"]["message"], op
    bad.on_blob = None
    bad.requests.clear()
    images.pull(ref)
    ranges = [{k.lower(): v for k, v in headers.items()}.get("range") for path, headers in bad.requests if path.endswith(digest)]
    assert ranges == ["bytes=1000-"]


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
def test_archives_that_are_refused(images, bad, ref, files, code, word, nothing):
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


def test_cut_archives(images, bad, ref, nothing):
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
