"""Faults that users of such systems met: files. Each test bears the report's number."""

import concurrent.futures
import hashlib
import io
import json
import os
import socket
import tarfile
import threading
import time

import pytest

from test_reports_exec import error
from test_reports_stdio import output


def url(sb, what=""):
    return f"/v1/sandboxes/{sb.id}/files{what}"


def read(api, sb, path):
    return api.get(url(sb), params={"path": path}, timeout=60)


def write(api, sb, path, data, **query):
    return api.put(url(sb), params={"path": path, **query}, content=data, timeout=120)


def test_ur063_a_tree_goes_in_and_comes_out_as_it_was(api, tmp_path):
    src = tmp_path / "src"
    (src / "empty").mkdir(parents=True)
    (src / ".git").mkdir()
    (src / ".git" / "HEAD").write_bytes(b"ref")
    (src / ".env").write_bytes(b"A=1")
    (src / "script").write_bytes(b"#!/bin/sh\n")
    os.chmod(src / "script", 0o755)
    (src / "private").write_bytes(b"p")
    os.chmod(src / "private", 0o640)
    os.utime(src / "private", (1000000000, 1000000000))
    os.symlink("script", src / "relative")
    os.symlink("/etc/hostname", src / "absolute")
    os.symlink("nowhere", src / "dangling")
    os.symlink(".", src / "loop")
    os.link(src / "script", src / "hard")
    (src / ("n" * 255)).write_bytes(b"long")
    (src / "new\nline").write_bytes(b"nl")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as t:
        t.add(src, ".")
    with api.sandbox() as sb:
        r = api.put(url(sb, "/archive"), params={"path": "/srv/tree"}, content=packed.getvalue(), timeout=60)
        assert r.status_code in (200, 201, 204), r.text
        assert output(api.run(sb, ["cat", "/srv/tree/.env"])) == b"A=1"
        assert output(api.run(sb, ["stat", "-c", "%a %Y", "/srv/tree/private"])) == b"640 1000000000\n"
        back = api.get(url(sb, "/archive"), params={"path": "/srv/tree"}, timeout=60)
        assert back.status_code == 200

    def shape(data):
        out = {}
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            members = {os.path.normpath(m.name): m for m in t.getmembers()}
            for name, m in members.items():
                if name == ".":
                    continue
                content = t.extractfile(m).read() if m.isfile() or m.islnk() else None
                out[name] = ("f" if m.islnk() else m.type and ("f" if m.isfile() else "l" if m.issym() else "d"),
                             m.mode if not m.issym() else 0, m.linkname if m.issym() else "", content)
        return out

    assert shape(back.content) == shape(packed.getvalue())


@pytest.mark.parametrize("path", ["/tmp/fifo", "/dev/zero", "/dev/tty", "/tmp/socket", "/tmp"])
def test_ur065_special_files_end_in_an_error(api, path):
    with api.sandbox() as sb:
        api.run(sb, ["python3", "-c", "import os,socket; os.mkfifo('/tmp/fifo'); socket.socket(socket.AF_UNIX).bind('/tmp/socket')"])
        t0 = time.monotonic()
        r = read(api, sb, path)
        assert time.monotonic() - t0 < 3
        assert r.status_code in (403, 409) and r.json()["error"]["code"] in ("not_a_regular_file", "is_a_directory"), r.text
        if path != "/tmp":
            assert write(api, sb, "/tmp/fifo", b"x").json()["error"]["code"] == "not_a_regular_file"


def test_ur065_proc_files_have_their_content(api):
    with api.sandbox() as sb:
        r = read(api, sb, "/proc/self/status")
        assert r.status_code == 200 and b"VmRSS" in r.content
        assert b"Linux version" in read(api, sb, "/proc/version").content


@pytest.mark.parametrize("data", [
    os.urandom(1 << 20), b"quotes ' \" \\ $x `id`\nEOF\n", b"\xef\xbb\xbfBOM", b"\xed\xa0\x80\xff", b'{"a": "\xff"}', b"", b"\0" * 5000,
])
def test_ur067_content_is_not_touched(api, data):
    with api.sandbox() as sb:
        assert write(api, sb, "/tmp/x.json", data).status_code == 201
        assert read(api, sb, "/tmp/x.json").content == data
        assert output(api.run(sb, ["sha256sum", "/tmp/x.json"])).split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_ur068_parallel_writes_into_a_new_directory(api):
    with api.sandbox() as sb:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            codes = list(pool.map(lambda n: write(api, sb, f"/d/e/f/{n}", b"%d" % n).status_code, range(64)))
            made = list(pool.map(lambda n: api.post(url(sb, "/mkdir"), json={"path": "/g/h"}).status_code, range(32)))
        assert set(codes) == {201}
        assert set(made) <= {200, 201, 204}
        r = api.post(url(sb, "/mkdir"), json={"path": "/d/e/f/0"})
        assert r.status_code == 409 and r.json()["error"]["code"] in ("file_exists", "not_a_directory")


def test_ur069_a_written_file_is_there_for_the_next_command(api):
    with api.sandbox() as sb:
        for n in range(60):
            data = os.urandom(1000)
            assert write(api, sb, f"/tmp/f{n}", data).status_code == 201
            assert output(api.run(sb, ["sha256sum", f"/tmp/f{n}"])).split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_ur070_readers_see_the_old_or_the_new_file(api):
    a, b = b"A" * (8 << 20), b"B" * (8 << 20)
    digests = {hashlib.sha256(x).hexdigest() for x in (a, b)}
    with api.sandbox() as sb:
        assert write(api, sb, "/f", a, mode="0640").status_code == 201
        assert output(api.run(sb, ["chown", "1000:1000", "/f"])) == b""
        loop = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sh", "-c", "while [ ! -e /stop ]; do sha256sum </f; done"]}).json()["id"]
        for n in range(16):
            assert write(api, sb, "/f", b if n % 2 == 0 else a).status_code == 200
        assert write(api, sb, "/stop", b"").status_code == 201
        lines = api.get(f"/v1/sandboxes/{sb.id}/execs/{loop}/stdout", timeout=60).content.split(b"\n")[:-1]
        assert len(lines) > 2 and {line.split()[0].decode() for line in lines} <= digests
        assert output(api.run(sb, ["stat", "-c", "%a %u:%g", "/f"])) == b"640 1000:1000\n"


def test_ur070_a_broken_upload_changes_nothing(api, daemon):
    with api.sandbox() as sb:
        assert write(api, sb, "/srv/f", b"old").status_code == 201
        for chunked in (False, True):
            with socket.create_connection(("127.0.0.1", daemon.port)) as s:
                length = "transfer-encoding: chunked" if chunked else "content-length: 1000000"
                s.sendall(f"PUT {url(sb)}?path=/srv/f HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n{length}\r\n\r\n".encode())
                s.sendall(b"10000\r\n" + b"n" * 65536 + b"\r\n" if chunked else b"n" * 65536)
                time.sleep(0.3)
            time.sleep(0.5)
            assert read(api, sb, "/srv/f").content == b"old"
            names = [i["name"] for i in api.get(url(sb, "/list"), params={"path": "/srv"}).json()["items"]]
            assert names == ["f"], names


@pytest.mark.parametrize("call,path,status,code", [
    ("read", "/no/such", 404, "file_not_found"),
    ("read", "/etc", 409, "is_a_directory"),
    ("read", "/etc/passwd/x", 409, "not_a_directory"),
    ("read", "/loop", 400, "symlink_loop"),
    ("read", "/tmp/" + "n" * 256, 400, "file_name_too_long"),
    ("write", "/etc", 409, "is_a_directory"),
    ("write", "/etc/passwd/x", 409, "not_a_directory"),
    ("write", "/proc/x", None, None),
    ("list", "/no/such", 404, "file_not_found"),
    ("list", "/etc/passwd", 409, "not_a_directory"),
    ("stat", "/no/such", 404, "file_not_found"),
    ("remove", "/no/such", 404, "file_not_found"),
    ("remove", "/etc", 409, "directory_not_empty"),
    ("read", "relative", 400, "invalid_argument"),
    ("read", "", 400, "invalid_argument"),
])
def test_ur071_errors_have_their_kind(api, call, path, status, code):
    with api.sandbox() as sb:
        api.run(sb, ["ln", "-s", "/loop", "/loop"])
        r = {
            "read": lambda: read(api, sb, path),
            "write": lambda: write(api, sb, path, b"x"),
            "list": lambda: api.get(url(sb, "/list"), params={"path": path}),
            "stat": lambda: api.get(url(sb, "/stat"), params={"path": path}),
            "remove": lambda: api.delete(url(sb), params={"path": path}),
        }[call]()
        assert 400 <= r.status_code < 500 or r.status_code == 507, r.text
        if status is not None:
            error(r, status, code)


def test_ur072_watch_follows_new_directories(api):
    with api.sandbox() as sb:
        assert api.post(url(sb, "/mkdir"), json={"path": "/w"}).status_code in (200, 201, 204)
        seen, ready = [], threading.Event()

        def watch():
            query = {"path": "/w", "recursive": "true", "timeout_s": 8}
            with api.stream("GET", url(sb, "/watch"), params=query, timeout=30) as r:
                ready.set()
                for line in r.iter_lines():
                    if line.startswith("data:"):
                        seen.append(json.loads(line[5:]))

        t = threading.Thread(target=watch)
        t.start()
        ready.wait(5)
        time.sleep(1)
        api.run(sb, ["sh", "-c", "mkdir -p /w/a/b/c && sleep 0.3 && touch /w/a/b/c/f && mv /w/a /w/z && sleep 0.3 && touch /w/z/b/c/g"])
        write(api, sb, "/w/api", b"x")
        t.join(30)
        paths = {p for e in seen for p in e["paths"]}
        for p in ("/w/a/b/c/f", "/w/z/b/c/g", "/w/api"):
            assert p in paths, sorted(paths)


def test_ur073_a_burst_is_told_whole_or_as_an_overflow(api):
    count = 20000
    with api.sandbox() as sb:
        assert api.post(url(sb, "/mkdir"), json={"path": "/w"}).status_code in (200, 201, 204)
        query = {"path": "/w", "recursive": "true", "timeout_s": 20}
        created, overflow, told = set(), False, False
        with api.stream("GET", url(sb, "/watch"), params=query, timeout=60) as r:
            lines = r.iter_lines()
            api.run(sb, ["python3", "-c", f"for i in range({count}): open('/w/%d' % i, 'w').close()\nopen('/w/end', 'w').close()"])
            time.sleep(2)                   # a reader that is slow to begin
            for line in lines:
                if not line.startswith("data:"):
                    continue
                event = json.loads(line[5:])
                overflow = overflow or event["type"] == "overflow"
                if event["type"] == "create":
                    created.update(event["paths"])
                if overflow or "/w/end" in created:
                    told = True
                    break
        assert told
        assert overflow or {f"/w/{i}" for i in range(count)} <= created


def test_ur075_roots_are_not_removed(api):
    with api.sandbox() as sb:
        for path in ("/", "/proc", "/dev", "/..", "/tmp/.."):
            r = api.delete(url(sb), params={"path": path, "recursive": "true"})
            assert 400 <= r.status_code < 500, (path, r.text)
        api.run(sb, ["sh", "-c", "mkdir /srv/d; touch /srv/d/keep; ln -s d /srv/link"])
        assert api.delete(url(sb), params={"path": "/srv/link", "recursive": "true"}).status_code == 204
        assert output(api.run(sb, ["ls", "/srv/d"])) == b"keep\n"


def test_names_are_bytes(api):
    with api.sandbox() as sb:
        for name in (b"n" * 255, b"new\nline", b"\xff\xfe", b"sp ace", b"%41", b"+", b"q?x=1&y", b"#", "é☕".encode(), b"-rf", b"'\"$(id)"):
            path = b"/srv/names/" + name
            query = "path=" + "".join(f"%{b:02x}" for b in path)
            assert api.put(url(sb) + "?" + query, content=name).status_code == 201, name
            assert api.get(url(sb) + "?" + query).content == name
            stat = api.get(url(sb, "/stat") + "?" + query).json()
            assert stat["size"] == len(name)
        items = api.get(url(sb, "/list"), params={"path": "/srv/names"}).json()["items"]
        assert len(items) == 11


def test_ranges(api):
    data = bytes(range(256)) * 100
    with api.sandbox() as sb:
        write(api, sb, "/r", data)

        def part(value):
            return api.get(url(sb), params={"path": "/r"}, headers={"range": value})

        r = part("bytes=10-19")
        assert (r.status_code, r.content, r.headers["content-range"]) == (206, data[10:20], f"bytes 10-19/{len(data)}")
        assert part("bytes=25590-").content == data[25590:]
        assert part("bytes=-5").content == data[-5:]
        error(part("bytes=30000-"), 416, "range_not_satisfiable")


def test_a_huge_file_streams_both_ways(api):
    block = os.urandom(1 << 20)
    size = 256
    with api.sandbox() as sb:
        r = api.put(url(sb), params={"path": "/huge"}, content=(block for _ in range(size)), timeout=300)
        assert r.status_code == 201, r.text
        h, n = hashlib.sha256(), 0
        with api.stream("GET", url(sb), params={"path": "/huge"}, timeout=300) as r:
            for chunk in r.iter_raw():
                h.update(chunk)
                n += len(chunk)
        expected = hashlib.sha256()
        for _ in range(size):
            expected.update(block)
        assert (n, h.hexdigest()) == (size << 20, expected.hexdigest())
        assert api.get(url(sb, "/hash"), params={"path": "/huge"}).json() == {"sha256": expected.hexdigest(), "size": size << 20}


def test_batches(api):
    with api.sandbox() as sb:
        ops = [{"op": "mkdir", "path": "/b"}, {"op": "write", "path": "/b/f", "text": "é"}, {"op": "read", "path": "/b/f"},
               {"op": "stat", "path": "/b/f"}, {"op": "list", "path": "/b"}, {"op": "move", "from": "/b/f", "to": "/b/g"},
               {"op": "read", "path": "/b/f"}, {"op": "remove", "path": "/b", "recursive": True}]
        r = api.post(url(sb, "/batch"), json={"ops": ops})
        assert r.status_code == 200, r.text
        items = r.json()["items"]
        assert [("ok" in i) for i in items] == [True, True, True, True, True, True, False, True]
        assert items[2]["ok"]["text"] == "é"
        assert items[6]["error"]["code"] == "file_not_found"
