"""Files over REST: content, ranges, lists, names, trees as tar, watches, batches; and what happens when something breaks."""

import base64
import hashlib
import io
import json
import os
import socket
import tarfile
import threading
import time

import httpx
import pytest

from qsdaemon import error


def url(sb, what=""):
    return f"/v1/sandboxes/{sb.id}/files{what}"


def get(api, sb, path, what="", **query):
    return api.get(url(sb, what), params={"path": path, **query}, timeout=60)


def put(api, sb, path, data, **query):
    return api.put(url(sb), params={"path": path, **query}, content=data, timeout=60)


@pytest.fixture(scope="module")
def sb(daemon):
    with daemon.api.sandbox() as sandbox:
        yield sandbox


def quiet(api, sb):
    """Waits until no helper runs in the sandbox and nothing temporary is left."""
    give_up = time.monotonic() + 15
    while time.monotonic() < give_up:
        left = api.run(sb, ["sh", "-c", "cat /proc/[0-9]*/comm; find / -xdev -name '.qs-*'"])["stdout"].split()
        if not [x for x in left if x.startswith(".qs-") or "/.qs-" in x or x == "fs-tools"]:
            return
        time.sleep(0.1)
    raise AssertionError(left)


# --- content


def test_a_file_comes_back_with_its_size_and_mode(api, sb):
    r = put(api, sb, "/tmp/content/a", b"hello", mode="0640")
    assert (r.status_code, r.json()) == (201, {"path": "/tmp/content/a", "size": 5})
    r = get(api, sb, "/tmp/content/a")
    assert r.content == b"hello"
    assert r.headers["x-file-size"] == "5" and r.headers["x-file-mode"] == "0640"
    assert r.headers["content-length"] == "5" and r.headers["content-type"] == "application/octet-stream"
    r = put(api, sb, "/tmp/content/a", b"again", mode="0600")
    assert r.status_code == 200
    assert get(api, sb, "/tmp/content/a").headers["x-file-mode"] in ("0640", "0600")


@pytest.mark.parametrize("n", [0, 1, 65535, 65536, 65537, 1000003])
def test_any_size(api, sb, n):
    data = os.urandom(n)
    assert put(api, sb, f"/tmp/size-{n}", data).json()["size"] == n
    r = get(api, sb, f"/tmp/size-{n}")
    assert r.content == data and r.headers["content-length"] == str(n)
    assert get(api, sb, f"/tmp/size-{n}", "/hash").json() == {"sha256": hashlib.sha256(data).hexdigest(), "size": n}


def test_an_upload_without_a_length(api, sb):
    blocks = [os.urandom(10000) for _ in range(50)]
    r = api.put(url(sb), params={"path": "/tmp/chunked"}, content=iter(blocks))
    assert r.status_code == 201 and r.json()["size"] == 500000
    assert get(api, sb, "/tmp/chunked").content == b"".join(blocks)


def test_parents_and_exclusive(api, sb):
    error(put(api, sb, "/tmp/no/parents/x", b"", parents="false"), 404, "file_not_found")
    assert put(api, sb, "/tmp/excl", b"1", exclusive="true").status_code == 201
    error(put(api, sb, "/tmp/excl", b"2", exclusive="true"), 409, "file_exists")
    assert get(api, sb, "/tmp/excl").content == b"1"
    error(put(api, sb, "/tmp/excl", b"2", mode="9"), 400, "invalid_argument", "mode")


def test_a_link_is_followed_and_stays(api, sb):
    api.run(sb, ["sh", "-c", "mkdir /tmp/ln; echo old > /tmp/ln/file; ln -s file /tmp/ln/link; ln -s nowhere /tmp/ln/dangling"])
    assert put(api, sb, "/tmp/ln/link", b"new").status_code == 200
    assert get(api, sb, "/tmp/ln/file").content == b"new"
    assert get(api, sb, "/tmp/ln/link", "/stat").json()["type"] == "symlink"
    error(get(api, sb, "/tmp/ln/dangling"), 404, "file_not_found")
    assert get(api, sb, "/tmp/ln/dangling", "/stat").json()["symlink_target"] == "nowhere"


DATA = bytes(range(256)) * 1000


@pytest.mark.parametrize("value,first,last", [
    ("bytes=0-0", 0, 0), ("bytes=10-19", 10, 19), ("bytes=255990-", 255990, 255999), ("bytes=-10", 255990, 255999),
    ("bytes=255999-300000", 255999, 255999), ("bytes=-999999", 0, 255999), ("bytes=0-", 0, 255999), ("bytes=5-250000", 5, 250000),
])
def test_ranges(api, sb, value, first, last):
    put(api, sb, "/tmp/ranged", DATA)
    r = api.get(url(sb), params={"path": "/tmp/ranged"}, headers={"range": value})
    assert r.status_code == 206
    assert r.headers["content-range"] == f"bytes {first}-{last}/{len(DATA)}"
    assert r.content == DATA[first:last + 1] and r.headers["content-length"] == str(last + 1 - first)
    assert r.headers["x-file-size"] == str(len(DATA))


def test_ranges_that_are_not_there(api, sb):
    put(api, sb, "/tmp/ranged", DATA)
    put(api, sb, "/tmp/empty", b"")
    for path, value in (("/tmp/ranged", "bytes=256000-"), ("/tmp/ranged", "bytes=-0"), ("/tmp/empty", "bytes=0-")):
        r = api.get(url(sb), params={"path": path}, headers={"range": value})
        error(r, 416, "range_not_satisfiable")
    for value in ("bytes=5-1", "lines=1-2", "bytes=0-1,5-6", "nonsense"):
        r = api.get(url(sb), params={"path": "/tmp/ranged"}, headers={"range": value})
        assert r.status_code == 200 and r.content == DATA


@pytest.mark.parametrize("path", ["relative", "", "\0", "/a\0b"])
def test_paths_are_absolute(api, sb, path):
    for r in (get(api, sb, path), put(api, sb, path, b""), get(api, sb, path, "/stat"), get(api, sb, path, "/list"),
              api.delete(url(sb), params={"path": path}), get(api, sb, path, "/archive"), get(api, sb, path, "/watch")):
        assert r.status_code == 400, r.text
    error(api.get(url(sb)), 400, "invalid_argument", "path")


def test_operations_on_no_sandbox(api):
    for what in ("", "/stat", "/list", "/hash", "/archive", "/watch"):
        error(api.get("/v1/sandboxes/sb-" + "0" * 22 + "/files" + what, params={"path": "/x"}), 404, "not_found")
    error(api.put("/v1/sandboxes/sb-" + "0" * 22 + "/files", params={"path": "/x"}, content=b"x"), 404, "not_found")


def test_operations_on_an_ended_sandbox(api):
    with api.sandbox() as sb:
        api.post(f"/v1/sandboxes/{sb.id}/terminate", json={})
        error(get(api, sb, "/etc/passwd"), 409, "sandbox_ended")
        error(put(api, sb, "/tmp/x", b"x"), 409, "sandbox_ended")


# --- names


NAMES = [b"n" * 255, b"new\nline", b"\xff\xfe", b"sp ace", b"%41", b"+", b"q?x=1&y=2", b"#", "é☕".encode(), b"-rf", b"'\"$(id)`", b"\\", b"\x01\x7f", b".hidden"]


def encoded(path):
    return "path=" + "".join(f"%{b:02x}" for b in path)


def test_any_name(api, sb):
    for name in NAMES:
        q = "?" + encoded(b"/tmp/names/" + name)
        r = api.put(url(sb) + q, content=name)
        assert r.status_code == 201, (name, r.text)
        assert api.get(url(sb) + q).content == name
    items = get(api, sb, "/tmp/names", "/list").json()["items"]
    assert len(items) == len(NAMES)
    seen = {base64.b64decode(i["name_b64"]) if "name_b64" in i else i["name"].encode() for i in items}
    assert seen == set(NAMES)
    bad = b"/tmp/names/\xff\xfe"
    r = api.post(url(sb, "/move"), json={"from_b64": base64.b64encode(bad).decode(), "to": "/tmp/names/moved"})
    assert r.status_code == 200, r.text
    assert get(api, sb, "/tmp/names/moved").content == b"\xff\xfe"
    error(get(api, sb, "/tmp/" + "n" * 256), 400, "file_name_too_long")


# --- small operations


def test_stat_has_every_member(api, sb):
    api.run(sb, ["sh", "-c", "mkdir -p /tmp/st; echo abc > /tmp/st/f; chmod 4751 /tmp/st/f; chown nobody:nogroup /tmp/st/f; mkfifo /tmp/st/p; ln -s f /tmp/st/l"])
    x = get(api, sb, "/tmp/st/f", "/stat").json()
    assert (x["name"], x["path"], x["type"], x["size"], x["uid"], x["gid"], x["owner"], x["group"], x["symlink_target"]) == (
        "f", "/tmp/st/f", "file", 4, 65534, 65534, "nobody", "nogroup", None)
    assert x["mode"] in ("4751", "0751") and abs(x["modified_at"] - time.time()) < 60
    assert get(api, sb, "/tmp/st", "/stat").json()["type"] == "directory"
    assert get(api, sb, "/tmp/st/p", "/stat").json()["type"] == "fifo"
    assert get(api, sb, "/dev/null", "/stat").json()["type"] == "device"
    assert get(api, sb, "/", "/stat").json()["type"] == "directory"


def test_lists_are_sorted_deep_and_in_pages(api, sb):
    api.run(sb, ["sh", "-c", "mkdir -p /tmp/tree/b/c; cd /tmp/tree; touch a b/1 b/2 b/c/x z .dot; ln -s .. b/up"])

    def paths(**query):
        return [i["path"].removeprefix("/tmp/tree/") for i in get(api, sb, "/tmp/tree", "/list", **query).json()["items"]]

    assert paths() == [".dot", "a", "b", "z"]
    assert paths(hidden="false") == ["a", "b", "z"]
    assert paths(depth=2) == [".dot", "a", "b", "b/1", "b/2", "b/c", "b/up", "z"]
    assert paths(depth=9) == [".dot", "a", "b", "b/1", "b/2", "b/c", "b/c/x", "b/up", "z"]
    seen, after = [], None
    for _ in range(20):
        page = get(api, sb, "/tmp/tree", "/list", depth=9, limit=2, **({"after": after} if after else {})).json()
        assert len(page["items"]) <= 2
        seen += [i["path"].removeprefix("/tmp/tree/") for i in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == paths(depth=9)
    error(get(api, sb, "/tmp/tree", "/list", limit=0), 400, "invalid_argument", "limit")
    error(get(api, sb, "/tmp/tree", "/list", after="/etc/x"), 400, "invalid_argument", "after")
    assert get(api, sb, "/tmp/tree/b/c", "/list").json() == {"items": get(api, sb, "/tmp/tree/b/c", "/list").json()["items"], "next": None}


def test_directories_links_modes_owners(api, sb):
    assert api.post(url(sb, "/mkdir"), json={"path": "/tmp/ops/a/b", "mode": "0711"}).status_code == 200
    assert get(api, sb, "/tmp/ops/a/b", "/stat").json()["mode"] == "0711"
    assert api.post(url(sb, "/mkdir"), json={"path": "/tmp/ops/a/b"}).status_code == 200
    error(api.post(url(sb, "/mkdir"), json={"path": "/tmp/ops/a/b", "parents": False}), 409, "file_exists")
    error(api.post(url(sb, "/mkdir"), json={"path": "/tmp/ops/x/y", "parents": False}), 404, "file_not_found")
    assert api.post(url(sb, "/symlink"), json={"path": "/tmp/ops/l", "target": "../anything at all"}).status_code == 200
    assert get(api, sb, "/tmp/ops/l", "/stat").json()["symlink_target"] == "../anything at all"
    error(api.post(url(sb, "/symlink"), json={"path": "/tmp/ops/l", "target": "x"}), 409, "file_exists")
    put(api, sb, "/tmp/ops/f", b"x")
    assert api.post(url(sb, "/chmod"), json={"path": "/tmp/ops/f", "mode": "0604"}).status_code == 200
    assert api.post(url(sb, "/chown"), json={"path": "/tmp/ops/f", "uid": 12, "gid": 34}).status_code == 200
    x = get(api, sb, "/tmp/ops/f", "/stat").json()
    assert (x["mode"], x["uid"], x["gid"]) == ("0604", 12, 34)
    error(api.post(url(sb, "/chmod"), json={"path": "/tmp/ops/f", "mode": "rwx"}), 400, "invalid_argument", "mode")
    error(api.post(url(sb, "/chmod"), json={"path": "/tmp/ops/f"}), 400, "invalid_argument", "mode")
    error(api.post(url(sb, "/chmod"), json={"mode": "0644"}), 400, "invalid_argument", "path")
    error(api.post(url(sb, "/mkdir"), json={"path": "/x", "pth": 1}), 400, "unknown_field", "pth")


def test_move_and_remove(api, sb):
    put(api, sb, "/tmp/mv/a", b"a")
    put(api, sb, "/tmp/mv/b", b"b")
    error(api.post(url(sb, "/move"), json={"from": "/tmp/mv/a", "to": "/tmp/mv/b", "overwrite": False}), 409, "file_exists")
    r = api.post(url(sb, "/move"), json={"from": "/tmp/mv/a", "to": "/tmp/mv/b"})
    assert (r.status_code, r.json()) == (200, {"path": "/tmp/mv/b"})
    assert get(api, sb, "/tmp/mv/b").content == b"a"
    error(api.post(url(sb, "/move"), json={"from": "/tmp/mv/none", "to": "/tmp/mv/x"}), 404, "file_not_found")
    error(api.delete(url(sb), params={"path": "/tmp/mv"}), 409, "directory_not_empty")
    assert api.delete(url(sb), params={"path": "/tmp/mv", "recursive": "true"}).status_code == 204
    error(get(api, sb, "/tmp/mv", "/stat"), 404, "file_not_found")


def test_batch_items_succeed_and_fail_each_for_itself(api, sb):
    ops = [
        {"op": "mkdir", "path": "/tmp/batch"},
        {"op": "write", "path": "/tmp/batch/t", "text": "é", "mode": "0600"},
        {"op": "write", "path": "/tmp/batch/b", "b64": base64.b64encode(b"\xff\0").decode()},
        {"op": "read", "path": "/tmp/batch/t"},
        {"op": "read", "path": "/tmp/batch/b"},
        {"op": "read", "path": "/tmp/batch/none"},
        {"op": "stat", "path": "/tmp/batch/t"},
        {"op": "list", "path": "/tmp/batch"},
        {"op": "write", "path": "relative", "text": ""},
        {"op": "move", "from": "/tmp/batch/t", "to": "/tmp/batch/u"},
        {"op": "remove", "path": "/tmp/batch/u"},
    ]
    r = api.post(url(sb, "/batch"), json={"ops": ops})
    assert r.status_code == 200, r.text
    items = r.json()["items"]
    assert [list(i)[0] for i in items] == ["ok"] * 5 + ["error"] + ["ok"] * 2 + ["error"] + ["ok"] * 2
    assert items[3]["ok"]["text"] == "é" and base64.b64decode(items[4]["ok"]["b64"]) == b"\xff\0"
    assert items[5]["error"]["code"] == "file_not_found" and items[8]["error"]["code"] == "invalid_argument"
    assert items[6]["ok"]["mode"] == "0600" and [x["name"] for x in items[7]["ok"]["items"]] == ["b", "t"]
    many = [{"op": "write", "path": f"/tmp/batch/many/{n}", "text": "x" * 500} for n in range(1000)]
    r = api.post(url(sb, "/batch"), json={"ops": many}, timeout=60)
    assert r.status_code == 200 and all("ok" in i for i in r.json()["items"])
    error(api.post(url(sb, "/batch"), json={"ops": many + many[:1]}), 413, "too_large", "ops")
    error(api.post(url(sb, "/batch"), json={"ops": [{"op": "format"}]}), 400, "invalid_argument", "ops")
    error(api.post(url(sb, "/batch"), json={"ops": "x"}), 400, "invalid_argument", "ops")
    assert api.post(url(sb, "/batch"), json={"ops": []}).json() == {"items": []}


# --- trees


def tar_of(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, value in entries:
            m = tarfile.TarInfo(name)
            m.mode, m.mtime = (0o755 if kind == "d" else 0o644), 1000000000
            if kind == "f":
                m.size = len(value)
            m.type = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE}[kind]
            m.linkname = value if kind in "lh" else ""
            t.addfile(m, io.BytesIO(value) if kind == "f" else None)
    return out.getvalue()


def test_a_tree_as_tar_there_and_back(api, sb):
    entries = [("d", "d", ""), ("d/f", "f", b"content"), ("d/" + "n" * 200, "f", b"long"), ("d/l", "l", "f"), ("d/h", "h", "d/f"), ("e", "d", "")]
    r = api.put(url(sb, "/archive"), params={"path": "/tmp/in"}, content=tar_of(entries))
    assert r.status_code == 200, r.text
    assert api.run(sb, ["sh", "-c", "cd /tmp/in && cat d/f d/h && readlink d/l && stat -c %Y d/f && stat -c %h d/f && ls"])["stdout"] == "contentcontentf\n1000000000\n2\nd\ne\n"
    r = get(api, sb, "/tmp/in", "/archive")
    assert r.status_code == 200 and r.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(r.content)) as t:
        names = {os.path.normpath(m.name) for m in t.getmembers()} - {"."}
    assert names == {"d", "d/f", "d/" + "n" * 200, "d/l", "d/h", "e"}
    error(get(api, sb, "/tmp/none", "/archive"), 404, "file_not_found")


@pytest.mark.parametrize("entries", [
    [("../out", "f", b"x")], [("/etc/out", "f", b"x")], [("a/../../out", "f", b"x")],
    [("l", "l", "/etc"), ("l/out", "f", b"x")], [("h", "h", "/etc/passwd"), ("h", "f", b"x")],
])
def test_a_tar_stays_below_its_path(api, sb, entries):
    before = api.run(sb, ["sh", "-c", "sha256sum /etc/passwd; ls /etc /tmp"])["stdout"]
    r = api.put(url(sb, "/archive"), params={"path": "/tmp/jail/deep"}, content=tar_of(entries))
    assert r.status_code < 500, r.text
    after = api.run(sb, ["sh", "-c", "sha256sum /etc/passwd; ls /etc /tmp"])["stdout"]
    assert after.replace("jail\n", "") == before.replace("jail\n", "")
    assert api.run(sb, ["sh", "-c", "ls -A /tmp/jail"])["stdout"] in ("deep\n", "")
    api.run(sb, ["rm", "-rf", "/tmp/jail"])


def test_a_tar_that_is_none(api, sb):
    r = api.put(url(sb, "/archive"), params={"path": "/tmp/notar"}, content=b"this is no tar" * 100)
    assert 400 <= r.status_code < 500, r.text


# --- watch


def test_a_watch_tells_changes_and_ends_in_time(api, sb):
    api.run(sb, ["mkdir", "-p", "/tmp/w"])
    seen, ready = [], threading.Event()

    def watch():
        with api.stream("GET", url(sb, "/watch"), params={"path": "/tmp/w", "recursive": "true", "timeout_s": 4}, timeout=30) as r:
            assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
            ready.set()
            name = None
            for line in r.iter_lines():
                line = line.rstrip("\n")
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    seen.append((name, json.loads(line[5:])))

    t0 = time.monotonic()
    t = threading.Thread(target=watch)
    t.start()
    assert ready.wait(10)
    api.run(sb, ["sh", "-c", "cd /tmp/w; mkdir d; sleep 0.2; echo x > d/f; mv d/f d/g; rm d/g"])
    t.join(30)
    assert 3 < time.monotonic() - t0 < 9
    assert {name for name, _ in seen} == {"change"}
    kinds = {(c["type"], p) for _, c in seen for p in c["paths"]}
    assert ("create", "/tmp/w/d") in kinds and ("create", "/tmp/w/d/f") in kinds and ("modify", "/tmp/w/d/f") in kinds
    assert ("remove", "/tmp/w/d/g") in kinds and any(k == "rename" for k, _ in kinds)
    error(get(api, sb, "/tmp/none", "/watch"), 404, "file_not_found")
    quiet(api, sb)


def test_a_watcher_that_leaves_leaves_no_helper(api, sb):
    with api.stream("GET", url(sb, "/watch"), params={"path": "/tmp"}, timeout=30) as r:
        assert r.status_code == 200
    quiet(api, sb)


# --- what breaks


def broken_put(daemon, sb, path, head, body, seconds=0.3):
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.sendall(f"PUT {url(sb)}?path={path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n{head}\r\n\r\n".encode() + body)
        time.sleep(seconds)


def test_a_broken_upload_changes_nothing_and_leaves_nothing(api, sb, daemon):
    put(api, sb, "/tmp/brk/f", b"old")
    for head, body in (("content-length: 1000000", b"n" * 500000), ("transfer-encoding: chunked", b"10000\r\n" + b"n" * 65536 + b"\r\n")):
        broken_put(daemon, sb, "/tmp/brk/f", head, body)
        broken_put(daemon, sb, "/tmp/brk/new", head, body)
    quiet(api, sb)
    assert get(api, sb, "/tmp/brk/f").content == b"old"
    assert [i["name"] for i in get(api, sb, "/tmp/brk", "/list").json()["items"]] == ["f"]


def test_a_download_whose_client_leaves_ends_the_helper(api, sb):
    api.run(sb, ["truncate", "-s", "20G", "/tmp/sparse"])
    with api.stream("GET", url(sb), params={"path": "/tmp/sparse"}) as r:
        assert r.headers["content-length"] == str(20 << 30)
        for _ in r.iter_raw():
            break
    quiet(api, sb)
    r = api.get(url(sb), params={"path": "/tmp/sparse"}, headers={"range": "bytes=21474836470-"})
    assert r.status_code == 206 and r.content == b"\0" * 10


def test_a_slow_reader_costs_little(api, sb, daemon):
    api.run(sb, ["truncate", "-s", "4G", "/tmp/slow"])

    def free():
        st = os.statvfs("/tmp")
        return st.f_bavail * st.f_frsize

    before = free()
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(f"GET {url(sb)}?path=/tmp/slow HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n\r\n".encode())
        time.sleep(3)
        assert before - free() < 512 << 20
        assert api.run(sb, ["echo", "ok"])["stdout"] == "ok\n"
    quiet(api, sb)


def test_a_file_that_shrinks_is_no_whole_answer(api, sb, daemon):
    api.run(sb, ["sh", "-c", "head -c 100000000 /dev/zero > /tmp/shrinks"])
    with pytest.raises(httpx.RemoteProtocolError):
        with api.stream("GET", url(sb), params={"path": "/tmp/shrinks"}) as r:
            for k, _ in enumerate(r.iter_raw()):
                if k == 0:
                    api.run(sb, ["truncate", "-s", "1000", "/tmp/shrinks"])


def test_disk_full_is_told_and_leaves_the_old(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["sh", "-c", "mkdir /dev/shm/x && echo old > /dev/shm/x/f && df -k /dev/shm | tail -1"])
        size = int(r["stdout"].split()[1]) * 1024
        if size > 1 << 30:
            pytest.skip("the tmpfs is too large to fill")
        r = api.put(url(sb), params={"path": "/dev/shm/x/f"}, content=(b"x" * (1 << 20) for _ in range((size >> 20) + 4)), timeout=120)
        error(r, 507, "disk_full")
        assert get(api, sb, "/dev/shm/x/f").content == b"old\n"
        quiet(api, sb)


def test_files_survive_daemons_that_die(make_daemon):
    d = make_daemon(supervised=True)
    data = os.urandom(30 << 20)
    with d.api.sandbox() as sb:
        put(d.api, sb, "/srv/f", b"old")
        # An upload while control dies: the file is the old one and nothing is left.
        t = threading.Thread(target=broken_put, args=(d, sb, "/srv/f", "content-length: 1000000", b"n" * 500000, 1.5))
        t.start()
        time.sleep(0.7)
        d.kill_role("control")
        t.join()
        d.wait_ready()
        assert get(d.api, sb, "/srv/f").content == b"old"
        # The same, and a download, while the node dies: both go on.
        slow = (data[n:n + 65536] for n in range(0, len(data), 65536) if not time.sleep(0.002))
        result = []
        t = threading.Thread(target=lambda: result.append(d.api.put(url(sb), params={"path": "/srv/f"}, content=slow, timeout=60)))
        t.start()
        for _ in range(2):
            time.sleep(0.4)
            d.kill_role("node")
        t.join(60)
        assert result and result[0].status_code == 200, result and result[0].text
        got = b""
        with d.api.stream("GET", url(sb), params={"path": "/srv/f"}, timeout=60) as r:
            for k, chunk in enumerate(r.iter_raw()):
                if k == 3:
                    d.kill_role("node")
                got += chunk
        assert got == data
