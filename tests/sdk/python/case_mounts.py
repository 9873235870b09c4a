"""Local files: copied into images, laid over sandboxes; large ones as blobs, in one piece and in parts."""

import base64
import hashlib
import os
import pathlib
import tempfile
import urllib.error
import urllib.request

import modal
import modal.exception
from modal._utils.async_utils import synchronizer
from modal._utils.blob_utils import blob_download, blob_upload
from modal_proto import api_pb2

from kit import app, image, raises, run, sandbox, unique

MIB = 1024 * 1024


@synchronizer.create_blocking
async def call(client, method, request):
    return await getattr(client._stub, method)(request)


@synchronizer.create_blocking
async def upload(client, data):
    return await blob_upload(data, client._stub)


@synchronizer.create_blocking
async def download(client, blob):
    return await blob_download(blob, client._stub)


def noise(size, seed=0):
    """Bytes that no other run uploads."""
    start = hashlib.sha256(f"{os.getpid()} {unique('')} {seed}".encode()).digest()
    return (start * (size // len(start) + 1))[:size]


def declare(data, length=None):
    client = modal.Client.from_env()
    request = api_pb2.BlobCreateRequest(content_md5=base64.b64encode(hashlib.md5(data).digest()).decode(),
                                        content_sha256_base64=base64.b64encode(hashlib.sha256(data).digest()).decode(),
                                        content_length=len(data) if length is None else length)
    return client, call(client, "BlobCreate", request)


def http(method, url, data=None, headers=None):
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.read(), r.headers
    except urllib.error.HTTPError as e:
        return e.code, e.read(), e.headers


# --- blobs

def test_a_blob_there_and_back():
    client = modal.Client.from_env()
    data = noise(5 * MIB + 3)
    blob = upload(client, data)
    assert blob.startswith("bl-") and len(blob) == 25
    assert download(client, blob) == data
    assert download(client, upload(client, b"")) == b""


def test_a_blob_by_url():
    data = noise(1000)
    client, answer = declare(data)
    url = answer.upload_urls.items[0]
    assert (answer.blob_id, answer.upload_url) == (answer.blob_ids[0], url)
    md5 = hashlib.md5(data)
    status, body, headers = http("PUT", url, data, {"Content-MD5": base64.b64encode(md5.digest()).decode()})
    assert (status, body, headers["ETag"]) == (200, b"", f'"{md5.hexdigest()}"')
    assert http("PUT", url, data)[0] == 200, "the same again"
    got = call(client, "BlobGet", api_pb2.BlobGetRequest(blob_id=answer.blob_id)).download_url
    status, body, headers = http("GET", got)
    assert (status, body, headers["Content-Length"]) == (200, data, "1000")
    assert http("GET", url)[0] == 403, "a URL is for one method"
    assert http("PUT", got, data)[0] == 403
    assert http("DELETE", url)[0] == 405


def test_urls_are_signed():
    data = b"x" * 10
    client, answer = declare(data)
    url = answer.upload_urls.items[0]
    last = "0" if url[-1] != "0" else "1"
    other = declare(data)[1].upload_urls.items[0]
    mixed = other.split("?")[0] + "?" + url.split("?")[1]
    later = url.replace("expires=", "expires=9")
    for bad in (url[:-1] + last, url[:-1], url + "0", url.split("?")[0], mixed, later, url + "&x=1", url.replace("/1?", "/2?"),
                url.replace("/1?", "?"), url.replace("/1?", "/1/1?"), url.replace("bl-", "bl-../../")):
        status, body, _ = http("PUT", bad, data)
        assert status == 403, (bad, status, body)
    with raises(modal.exception.NotFoundError, "not uploaded completely"):
        call(client, "BlobGet", api_pb2.BlobGetRequest(blob_id=answer.blob_id))
    with raises(modal.exception.NotFoundError, "not found"):
        call(client, "BlobGet", api_pb2.BlobGetRequest(blob_id="bl-0000000000000000000000"))


def test_what_is_not_as_declared():
    data = noise(2 * MIB)
    client, answer = declare(data)
    url = answer.upload_urls.items[0]
    words = b"The Content-MD5 you specified did not match what we received."
    for wrong in (data[:-1] + b"!", data[:-1], data + b"!", b""):
        status, body, _ = http("PUT", url, wrong)
        assert status == 400 and words in body, (len(wrong), status, body)
    status, body, _ = http("PUT", url, data, {"Content-MD5": base64.b64encode(bytes(16)).decode()})
    assert status == 400 and words in body
    assert http("PUT", url, data, {"Content-MD5": "nonsense"})[0] == 400
    put = api_pb2.MountPutFileRequest(data_blob_id=declare(noise(100, 1))[1].blob_id, sha256_hex=hashlib.sha256(noise(100, 2)).hexdigest())
    with raises(modal.exception.InvalidError, "has the hash"):
        call(client, "MountPutFile", put)
    for request, text in ((api_pb2.BlobCreateRequest(content_length=1), "content_sha256_base64"),
                          (api_pb2.BlobCreateRequest(content_sha256_base64="AAAA", content_length=1), "content_sha256_base64")):
        with raises(modal.exception.InvalidError, text):
            call(client, "BlobCreate", request)
    for length, text in ((-1, "the length of a blob is -1"), (1 << 40, "a blob has at most 17179869184 bytes")):
        with raises(modal.exception.InvalidError, text):
            declare(b"", length=length)


def test_parts():
    """By hand, in another order, with a part twice."""
    data = noise(64 * MIB + 100)
    client, answer = declare(data)
    assert answer.WhichOneof("upload_types_oneof") == "multiparts"
    assert answer.WhichOneof("upload_type_oneof") is None
    item = answer.multiparts.items[0]
    assert (item.part_length, len(item.upload_urls)) == (64 * MIB, 2)
    pieces = [data[:64 * MIB], data[64 * MIB:]]
    sums = [hashlib.md5(p) for p in pieces]
    status, body, _ = http("POST", item.completion_url, b"")
    assert status == 400 and b"part 1 of 2 was not sent" in body
    assert http("PUT", item.upload_urls[1], b"!" * 100)[0] == 200
    assert http("PUT", item.upload_urls[0], pieces[0][:-1])[0] == 400
    status, _, headers = http("PUT", item.upload_urls[0], pieces[0])
    assert (status, headers["ETag"]) == (200, f'"{sums[0].hexdigest()}"')
    status, body, _ = http("POST", item.completion_url, b"")
    assert status == 400 and b"did not match what we received" in body, "a part is another one's"
    assert http("PUT", item.upload_urls[1], pieces[1])[0] == 200
    status, body, _ = http("POST", item.completion_url, b"<CompleteMultipartUpload/>")
    etag = hashlib.md5(b"".join(s.digest() for s in sums)).hexdigest() + "-2"
    assert status == 200 and f'<ETag>"{etag}"</ETag>'.encode() in body
    assert http("POST", item.completion_url, b"")[0] == 200, "the same again"
    assert hashlib.sha256(download(client, answer.blob_id)).digest() == hashlib.sha256(data).digest()


def long_a_blob_in_parts_by_the_client():
    client = modal.Client.from_env()
    data = noise(200 * MIB + 5)
    assert hashlib.sha256(download(client, upload(client, data))).digest() == hashlib.sha256(data).digest()


# --- files that are copied into an image

def test_a_large_file_is_copied():
    with tempfile.TemporaryDirectory() as at:
        local = pathlib.Path(at) / "big"
        data = noise(9 * MIB)
        local.write_bytes(data)
        img = image.add_local_file(local, "/big", copy=True)
        with sandbox(image=img) as sb:
            out = run(sb, "sha256sum", "/big")[0]
    assert out.split()[0] == hashlib.sha256(data).hexdigest()


def test_the_same_files_are_the_same_image():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        for i in range(20):
            (root / f"f{i}").write_text(f"{root} {i}")
        ids = {image.add_local_dir(root, "/d", copy=True).build(app).object_id for _ in range(2)}
        assert len(ids) == 1
        (root / "f3").write_text("changed")
        ids.add(image.add_local_dir(root, "/d", copy=True).build(app).object_id)
        assert len(ids) == 2


# --- files that are laid over a sandbox

def tree_of(root):
    (root / "pkg/sub").mkdir(parents=True)
    (root / "pkg/__init__.py").write_text("")
    (root / "pkg/sub/mod.py").write_text("VALUE = 42\n")
    (root / "pkg/run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "pkg/run.sh").chmod(0o755)
    (root / "pkg/secret").write_text("s")
    (root / "pkg/secret").chmod(0o600)


def test_files_over_a_sandbox():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        tree_of(root)
        (root / "motd").write_text(unique("over"))
        img = image.add_local_dir(root / "pkg", "/root/pkg").add_local_file(root / "motd", "/etc/motd")
        img = img.add_local_file(root / "motd", "/a directory/ünï")
        with sandbox(image=img) as sb:
            out, err, code = run(sb, "sh", "-c", "/root/pkg/run.sh; cat /root/pkg/sub/mod.py /etc/motd; cat '/a directory/ünï'; "
                                 "stat -c '%a %u %g' /root/pkg/run.sh /root/pkg/secret /etc/motd /root/pkg /etc; ls /etc/passwd")
            motd = (root / "motd").read_text()
            assert (code, err) == (0, "")
            assert out == ("ran\nVALUE = 42\n" + motd + motd + "755 0 0\n600 0 0\n644 0 0\n755 0 0\n755 0 0\n/etc/passwd\n")
            assert run(sb, "sh", "-c", "echo more >>/etc/motd && rm /root/pkg/run.sh && ls /root/pkg")[0] == "__init__.py\nsecret\nsub\n"
        with sandbox(image=img) as sb:
            assert run(sb, "sh", "-c", "cat /etc/motd; ls /root/pkg")[0] == motd + "__init__.py\nrun.sh\nsecret\nsub\n"


def test_python_source_over_a_sandbox():
    with sandbox(image=image.add_local_python_source("kit")) as sb:
        out, err, code = run(sb, "sh", "-c", "head -c 3 /root/kit.py; stat -c %F /root/kit.py")
        assert (out, code) == ('"""regular file\n', 0), err


def test_the_later_of_two_files_counts():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "a").write_text("first")
        (root / "b").write_text("second")
        img = image.add_local_file(root / "a", "/x").add_local_file(root / "b", "/x")
        with sandbox(image=img) as sb:
            assert run(sb, "cat", "/x")[0] == "second"


def test_changed_files_are_seen_by_the_next():
    with tempfile.TemporaryDirectory() as at:
        local = pathlib.Path(at) / "f"
        seen = []
        for text in ("one", "two"):
            local.write_text(text)
            with sandbox(image=image.add_local_file(local, "/f")) as sb:
                seen.append(run(sb, "cat", "/f")[0])
    assert seen == ["one", "two"]


def test_an_empty_directory():
    """The client sends files alone: there is nothing to lay over, and no error."""
    with tempfile.TemporaryDirectory() as at:
        for copy in (False, True):
            with sandbox(image=image.add_local_dir(at, "/empty", copy=copy)) as sb:
                assert run(sb, "ls", "/empty")[2] == 2


def test_a_dockerignore_among_the_files_is_a_file():
    """What is left out was decided by the client."""
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / ".dockerignore").write_text("kept\n")
        (root / "kept").write_text("kept")
        for copy in (False, True):
            with sandbox(image=image.add_local_dir(root, "/", copy=copy)) as sb:
                assert run(sb, "cat", "/.dockerignore", "/kept") == ("kept\nkept", "", 0)


def test_a_large_file_over_a_sandbox():
    with tempfile.TemporaryDirectory() as at:
        local = pathlib.Path(at) / "big"
        data = noise(6 * MIB)
        local.write_bytes(data)
        with sandbox(image=image.add_local_file(local, "/data/big")) as sb:
            assert run(sb, "sha256sum", "/data/big")[0].split()[0] == hashlib.sha256(data).hexdigest()


def test_mounts_that_are_not_there():
    client = modal.Client.from_env()
    image.build(app)
    definition = api_pb2.Sandbox(image_id=image.object_id, mount_ids=["mo-0000000000000000000000"], timeout_secs=60)
    with raises(modal.exception.NotFoundError, "Mount 'mo-0000000000000000000000' not found"):
        call(client, "SandboxCreate", api_pb2.SandboxCreateRequest(app_id=app.app_id, definition=definition))
    lost = api_pb2.MountFile(filename="/x", sha256_hex="0" * 64, mode=0o644)
    with raises(modal.exception.ConflictError, "was not uploaded"):
        call(client, "MountGetOrCreate", api_pb2.MountGetOrCreateRequest(files=[lost]))
    with raises(modal.exception.InvalidError, "the file changed while it was sent"):
        call(client, "MountPutFile", api_pb2.MountPutFileRequest(sha256_hex="0" * 64, data=b"x"))
    with raises(modal.exception.InvalidError, "64 hexadecimal digits"):
        call(client, "MountPutFile", api_pb2.MountPutFileRequest(sha256_hex="../../x", data=b"x"))


def long_many_files():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        for i in range(10_000):
            d = root / f"d{i % 100}"
            d.mkdir(exist_ok=True)
            (d / f"file-{i}").write_text(f"{i % 5000}")
        img = image.add_local_dir(root, "/many")
        with sandbox(image=img) as sb:
            assert run(sb, "sh", "-c", "find /many -type f | wc -l; cat /many/d99/file-9999")[0] == "10000\n4999"
        with sandbox(image=img.add_local_dir(root, "/more")) as sb:
            assert run(sb, "sh", "-c", "find /more /many -type f | wc -l")[0] == "20000\n"
