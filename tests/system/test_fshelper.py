"""The file helper by itself: every operation, its errors, and archives compared with GNU tar's."""

import base64
import collections
import contextlib
import hashlib
import io
import json
import os
import pathlib
import random
import select
import socket
import stat
import struct
import subprocess
import tarfile
import threading
import time

import pytest

import qsdaemon

INIT = str(qsdaemon.build_dir() / "src/init/quicksand-init")
NAME = "/__modal/.bin/modal-sandbox-fs-tools"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Failed(Exception):
    def __init__(self, status, body):
        super().__init__(body)
        self.status, self.kind, self.message = status, body["error_kind"], body["message"]
        self.detail = body.get("detail")


def raw(op, stdin=b"", user=None, **args):
    fields = {k: v for k, v in args.items()}
    return subprocess.run([NAME, json.dumps({op: fields})], executable=INIT, input=stdin, capture_output=True, timeout=60,
                          user=user, group=user, extra_groups=[] if user else None)


def call(op, stdin=b"", user=None, **args):
    r = raw(op, stdin, user, **{k.rstrip("_"): str(v) if isinstance(v, os.PathLike) else v for k, v in args.items()})
    if r.returncode:
        body = json.loads(r.stderr)
        assert body["version"] == 1 and body["message"].strip()
        raise Failed(r.returncode, body)
    assert r.stderr == b""
    return r.stdout


def call_json(*a, **k):
    out = call(*a, **k)
    return json.loads(out) if out else None


def kind(op, *a, **k):
    with pytest.raises(Failed) as e:
        call(op, *a, **k)
    return e.value.kind


def b64(data):
    return base64.b64encode(data).decode()


def leftovers(path):
    return [n for n in os.listdir(path) if n.startswith(".qs-")]


@pytest.fixture
def d():
    """A directory that every user reaches (pytest's own are closed to others)."""
    path = qsdaemon.make_dir("fshelper-")
    os.chmod(path, 0o755)
    (path / "d").mkdir()
    yield path / "d"
    subprocess.run(["rm", "-rf", path])


# --- arguments

@pytest.mark.parametrize("text,kind", [
    ("", "Invalid"), ("[]", "Invalid"), ("{}", "Invalid"), ('{"Stat":{"path":"/"}', "Invalid"), ('{"Stat":[]}', "Invalid"),
    ('{"Nope":{}}', "NotSupported"), ('{"Stat":{}}', "Invalid"), ('{"Stat":{"path":"x"}}', "Invalid"), ('{"Stat":{"path":""}}', "Invalid"),
    ('{"Stat":{"path":"/\\u0000"}}', "Invalid"), ('{"Stat":{"path":1}}', "Invalid"), ('{"Stat":{"path":"/","follow":"x"}}', "Invalid"),
    ('{"Stat":{"path":"/\\ud800"}}', "Invalid"), ('{"Stat":{"path_b64":"!"}}', "Invalid"), ('{"Stat":{"path":"/"},"x":1}', "Invalid"),
    ('{"Stat":{"path":"/"}}x', "Invalid"), ('{"ListFiles":{"path":"/","depth":0}}', "Invalid"), ('{"ListFiles":{"path":"/","depth":1.5}}', "Invalid"),
])
def test_malformed_requests_are_refused(text, kind):
    r = subprocess.run([NAME, text], executable=INIT, capture_output=True)
    assert r.returncode != 0 and json.loads(r.stderr)["error_kind"] == kind


def test_unknown_arguments_are_ignored_and_counts_are_checked(d):
    assert call_json("Stat", path=d, future={"a": [1]})["type"] == "directory"
    for argv in ([NAME], [NAME, "{}", "{}"]):
        r = subprocess.run(argv, executable=INIT, capture_output=True)
        assert r.returncode != 0 and json.loads(r.stderr)["error_kind"] == "Invalid"


NAMES = [b"plain", b" sp ace ", b"new\nline", b"q\"uo\\te", b"\xff\xfe", b"\xed\xa0\x80", "é☕".encode(), b"x" * 255, b"-n", b"tab\t\x01", b"\x7f"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_works(d, name):
    path = bytes(d) + b"/" + name
    call("WriteFile", b"data", path_b64=b64(path))
    assert open(path, "rb").read() == b"data"
    assert call("ReadFile", path_b64=b64(path)) == b"data"
    s = call_json("Stat", path_b64=b64(path))
    listed = call_json("ListFiles", path=d)
    for e in (s, listed[0]):
        seen = base64.b64decode(e["path_b64"]) if "path_b64" in e else e["path"].encode()
        assert seen == path
        assert (base64.b64decode(e["name_b64"]) if "name_b64" in e else e["name"].encode()) == name
    call("Remove", path_b64=b64(path))
    assert os.listdir(d) == []


# --- reading

def test_read_whole_and_part(d):
    data = random.randbytes(700_000)
    (d / "f").write_bytes(data)
    os.symlink("f", d / "l")
    assert call("ReadFile", path=d / "f") == data
    assert call("ReadFile", path=d / "l") == data
    assert call("ReadFile", path=d / "f", offset=3, length=5) == data[3:8]
    assert call("ReadFile", path=d / "f", offset=699_999, length=50) == data[-1:]
    assert call("ReadFile", path=d / "f", offset=10**12) == b""
    assert call("ReadFile", path=d / "f", length=0) == b""
    assert call("ReadFile", path=d / "f", length=None) == data
    assert kind("ReadFile", path=d / "f", max=699_999) == "FileTooLarge"
    assert call("ReadFile", path=d / "f", max=10, length=10) == data[:10]


def test_read_refuses_what_has_no_end_or_no_bytes(d):
    os.mkfifo(d / "fifo")
    socket.socket(socket.AF_UNIX).bind(str(d / "sock"))
    os.symlink("loop", d / "loop")
    (d / "f").write_bytes(b"")
    assert kind("ReadFile", path=d) == "IsDirectory"
    for p in (d / "fifo", d / "sock", "/dev/zero", "/dev/tty"):
        assert kind("ReadFile", path=p) == "SpecialFile"
    assert kind("ReadFile", path=d / "nope") == "NotFound"
    assert kind("ReadFile", path=d / "f" / "x") == "NotDirectory"
    assert kind("ReadFile", path=d / "loop") == "Loop"
    assert kind("ReadFile", path=f"{d}/{'n' * 256}") == "NameTooLong"
    with open(d / "huge", "wb") as f:
        f.truncate(5 * 2**30 + 1)
    assert kind("ReadFile", path=d / "huge") == "FileTooLarge"


def test_read_files_of_proc():
    assert b"VmRSS" in call("ReadFile", path="/proc/self/status")
    assert call("ReadFile", path="/proc/version").startswith(b"Linux")
    assert kind("ReadFile", path="/proc/kallsyms", max=1000) == "FileTooLarge"


@root_only
def test_permissions_are_the_users(d):
    (d / "secret").write_bytes(b"s")
    os.chmod(d / "secret", 0o600)
    os.mkdir(d / "closed", 0o700)
    u = {"user": 12345}
    assert kind("ReadFile", path=d / "secret", **u) == "PermissionDenied"
    assert kind("WriteFile", path=d / "secret", **u) == "PermissionDenied"
    assert kind("WriteFile", path=d / "new", **u) == "PermissionDenied"
    assert kind("ListFiles", path=d / "closed", **u) == "PermissionDenied"
    assert kind("MakeDirectory", path=d / "x", **u) == "PermissionDenied"
    assert kind("MakeDirectory", path=d / "closed/x/y", **u) == "PermissionDenied"
    assert kind("Remove", path=d / "secret", **u) == "PermissionDenied"
    assert kind("Move", from_=d / "secret", to=d / "t", **u) == "PermissionDenied"
    assert kind("Chmod", path=d / "secret", mode="0644", **u) == "PermissionDenied"
    assert kind("Chown", path=d / "secret", uid=0, **u) == "PermissionDenied"
    assert kind("Watch", path=d / "closed", timeout_secs=0, **u) == "PermissionDenied"


# --- writing

def test_write_creates_and_replaces(d):
    assert call_json("WriteFile", b"one", path=d / "a/b/c") == {"created": True, "size": 3}
    assert call_json("WriteFile", b"", path=d / "a/b/c") == {"created": False, "size": 0}
    assert (d / "a/b/c").read_bytes() == b""
    assert stat.S_IMODE(os.stat(d / "a/b/c").st_mode) == 0o644
    call("WriteFile", b"x", path=d / "m", mode="0751")
    assert stat.S_IMODE(os.stat(d / "m").st_mode) == 0o751
    call("WriteFile", b"y", path=d / "m")
    assert stat.S_IMODE(os.stat(d / "m").st_mode) == 0o751
    call("WriteFile", b"z", path=d / "m", mode="4600")
    assert stat.S_IMODE(os.stat(d / "m").st_mode) == 0o4600
    assert leftovers(d) == []
    assert kind("WriteFile", path=d / "no/parent", parents=False) == "NotFound"
    assert kind("WriteFile", path=d / "m", exclusive=True) == "PathAlreadyExists"
    assert call_json("WriteFile", b"1", path=d / "ex", exclusive=True)["created"]


def test_write_errors_come_before_the_content(d):
    (d / "file").write_bytes(b"")
    os.mkfifo(d / "fifo")
    for path, want in ((d, "IsDirectory"), (f"{d}/x/", "IsDirectory"), (d / "file/x", "NotDirectory"), (d / "file/x/y", "NotDirectory"),
                       (d / "fifo", "SpecialFile"), (f"{d}/{'n' * 256}", "NameTooLong"), ("/proc/nope", "NotFound")):
        p = subprocess.Popen([NAME, json.dumps({"WriteFile": {"path": str(path)}})], executable=INIT, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert p.wait(5) != 0, path
        assert json.loads(p.stderr.read())["error_kind"] in (want, "PermissionDenied" if "/proc" in str(path) else want), path
        p.stdin.close()


def test_write_follows_links(d):
    os.mkdir(d / "real")
    os.symlink("real/target", d / "dangling")
    call("WriteFile", b"1", path=d / "dangling")
    assert os.path.islink(d / "dangling") and (d / "real/target").read_bytes() == b"1"
    os.symlink(d / "dangling", d / "second")
    call("WriteFile", b"2", path=d / "second")
    assert (d / "real/target").read_bytes() == b"2" and not os.path.islink(d / "real/target")
    os.symlink("self", d / "self")
    assert kind("WriteFile", path=d / "self") == "Loop"
    assert kind("WriteFile", path=d / "dangling", exclusive=True) == "PathAlreadyExists"


@root_only
def test_write_keeps_owner_mode_and_attributes(d):
    (d / "f").write_bytes(b"old")
    os.chown(d / "f", 1234, 2345)
    os.chmod(d / "f", 0o2640)
    os.setxattr(d / "f", "user.note", b"kept")
    call("WriteFile", b"new", path=d / "f")
    s = os.stat(d / "f")
    assert (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)) == (1234, 2345, 0o2640)
    assert os.getxattr(d / "f", "user.note") == b"kept"
    call("WriteFile", b"new", path=d / "f", uid=77, gid=88)
    s = os.stat(d / "f")
    assert (s.st_uid, s.st_gid) == (77, 88)
    # Somebody else's file that we may write to stays theirs.
    os.chmod(d, 0o777)
    (d / "g").write_bytes(b"old and longer")
    os.chmod(d / "g", 0o666)
    call("WriteFile", b"new", path=d / "g", user=12345)
    assert (d / "g").read_bytes() == b"new" and os.stat(d / "g").st_uid == 0


def test_write_keeps_all_names_of_a_file(d):
    (d / "a").write_bytes(b"something long")
    os.link(d / "a", d / "b")
    call("WriteFile", b"new", path=d / "a")
    assert (d / "b").read_bytes() == b"new" and os.stat(d / "a").st_nlink == 2


@root_only
def test_write_to_a_bind_mounted_file(d):
    (d / "below").write_bytes(b"something long")
    (d / "point").write_bytes(b"")
    subprocess.run(["mount", "--bind", d / "below", d / "point"], check=True)
    try:
        call("WriteFile", b"new", path=d / "point")
        assert (d / "below").read_bytes() == b"new"
        assert leftovers(d) == []
        assert kind("Remove", path=d / "point") == "Refused"
        assert kind("Move", from_=d / "point", to=d / "q") == "Refused"
    finally:
        subprocess.run(["umount", d / "point"], check=True)


@root_only
def test_full_and_read_only_disks(d):
    os.mkdir(d / "small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "x", d / "small"], check=True)
    try:
        call("WriteFile", b"old", path=d / "small/f")
        assert kind("WriteFile", os.urandom(1 << 20), path=d / "small/f") == "NoSpace"
        assert (d / "small/f").read_bytes() == b"old" and leftovers(d / "small") == []
        t = io.BytesIO()
        with tarfile.open(fileobj=t, mode="w") as tar:
            info = tarfile.TarInfo("big")
            info.size = 1 << 20
            tar.addfile(info, io.BytesIO(os.urandom(1 << 20)))
        with pytest.raises(Failed) as e:
            call("TarIn", t.getvalue(), path=d / "small")
        assert (e.value.kind, e.value.detail) == ("NoSpace", "big")
        assert os.listdir(d / "small") == ["f"]
        subprocess.run(["mount", "-o", "remount,ro", d / "small"], check=True)
        for op, a in (("WriteFile", {"path": d / "small/f"}), ("WriteFile", {"path": d / "small/new"}), ("MakeDirectory", {"path": d / "small/x"}),
                      ("Remove", {"path": d / "small/f"}), ("Move", {"from_": d / "small/f", "to": d / "small/g"}), ("Chmod", {"path": d / "small/f", "mode": "600"}),
                      ("Symlink", {"target": "x", "path": d / "small/l"})):
            assert kind(op, **a) == "ReadOnly", op
        assert kind("Remove", path=d / "small", recursive=True) == "Refused"
    finally:
        subprocess.run(["umount", d / "small"], check=True)


def frames(*parts, end=True):
    return b"".join(struct.pack("<I", len(p)) + p for p in parts) + (struct.pack("<I", 0) if end else b"")


def test_write_is_all_or_nothing(d):
    (d / "f").write_bytes(b"old")
    assert kind("WriteFile", b"12345", path=d / "f", expected_size=6) == "Incomplete"
    assert kind("WriteFile", b"1234567", path=d / "f", expected_size=6) == "Incomplete"
    assert (d / "f").read_bytes() == b"old"
    call("WriteFile", b"123456", path=d / "f", expected_size=6)
    assert (d / "f").read_bytes() == b"123456"
    big = os.urandom(500_000)
    assert call_json("WriteFile", frames(big, b"x", big), path=d / "f", require_commit=True)["size"] == 1_000_001
    assert (d / "f").read_bytes() == big + b"x" + big
    for broken in (b"", frames(b"abc", end=False), frames(b"abc", end=False)[:-1], b"\1", frames(end=False) + b"\0\0"):
        assert kind("WriteFile", broken, path=d / "f", require_commit=True) == "Incomplete"
    assert kind("WriteFile", frames(b"abc", end=False), path=d / "newly", require_commit=True) == "Incomplete"
    call("WriteFile", frames(), path=d / "empty", require_commit=True)
    assert sorted(os.listdir(d)) == ["empty", "f"] and (d / "f").stat().st_size == 1_000_001


def test_a_killed_writer_leaves_nothing(d):
    (d / "f").write_bytes(b"old")
    p = subprocess.Popen([NAME, json.dumps({"WriteFile": {"path": str(d / "f")}})], executable=INIT, stdin=subprocess.PIPE)
    p.stdin.write(b"n" * 200_000)
    p.stdin.flush()
    time.sleep(0.1)
    p.kill()
    p.wait()
    p.stdin.close()
    assert os.listdir(d) == ["f"] and (d / "f").read_bytes() == b"old"


def test_readers_see_one_or_the_other(d):
    a, b = b"A" * 3_000_000, b"B" * 3_000_000
    (d / "f").write_bytes(a)
    seen, stop = collections.Counter(), threading.Event()

    def read():
        while not stop.is_set():
            seen[hashlib.sha256((d / "f").read_bytes()).hexdigest()] += 1

    t = threading.Thread(target=read)
    t.start()
    for n in range(20):
        call("WriteFile", b if n % 2 == 0 else a, path=d / "f")
    stop.set()
    t.join()
    assert set(seen) <= {hashlib.sha256(x).hexdigest() for x in (a, b)}


def test_parallel_writes_and_directories(d):
    ps = [subprocess.Popen([NAME, json.dumps({"WriteFile": {"path": f"{d}/d/e/f/{n}"}})], executable=INIT, stdin=subprocess.DEVNULL) for n in range(40)]
    ps += [subprocess.Popen([NAME, json.dumps({"MakeDirectory": {"path": f"{d}/g/h/i"}})], executable=INIT) for _ in range(20)]
    assert [p.wait() for p in ps] == [0] * 60
    assert len(os.listdir(d / "d/e/f")) == 40


# --- listing

def test_list_and_stat(d):
    (d / "b").write_bytes(b"12345")
    os.chmod(d / "b", 0o4751)
    os.utime(d / "b", ns=(0, 1_500_000_000_123_456_789))
    os.mkdir(d / "a")
    os.symlink("nowhere", d / "c")
    os.mkfifo(d / "fifo")
    (d / ".hidden").write_bytes(b"")
    entries = call_json("ListFiles", path=d)
    assert [e["name"] for e in entries] == [".hidden", "a", "b", "c", "fifo"]
    by = {e["name"]: e for e in entries}
    st = os.stat(d / "b")
    assert by["b"]["path"] == f"{d}/b" and by["b"]["type"] == "file" and by["b"]["size"] == 5
    assert by["b"]["mode"] == st.st_mode and by["b"]["permissions"] == "4751" and by["b"]["symlink_target"] is None
    assert (by["b"]["uid"], by["b"]["gid"], by["b"]["nlink"], by["b"]["ino"]) == (st.st_uid, st.st_gid, 1, str(st.st_ino))
    assert abs(by["b"]["modified_time"] - 1_500_000_000.123456789) < 1e-6
    assert by["a"]["type"] == "directory" and by["c"]["type"] == "symlink" and by["c"]["symlink_target"] == "nowhere"
    assert by["fifo"]["type"] == "file" and by["fifo"]["special"] == "fifo"
    if os.geteuid() == 0:
        assert by["b"]["owner"] == "root" and by["b"]["group"] == "root"
        os.chown(d / "b", 1, 54321)
        s = call_json("Stat", path=d / "b")
        assert (s["owner"], s["group"]) == ("daemon", "54321")
    assert call_json("Stat", path=d / "c")["type"] == "symlink"
    assert call_json("Stat", path=f"{d}/a/")["name"] == "a"
    assert call_json("Stat", path="/")["name"] == "/"
    assert kind("Stat", path=d / "nope") == "NotFound"
    assert kind("Stat", path=d / "b/x") == "NotDirectory"
    assert kind("Stat", path=d / "c", follow=True) == "NotFound"
    assert kind("ListFiles", path=d / "b") == "NotDirectory"
    assert kind("ListFiles", path=d / "nope") == "NotFound"
    os.symlink("a", d / "link")
    (d / "a/x").write_bytes(b"")
    assert call_json("ListFiles", path=d / "link")[0]["path"] == f"{d}/link/x"
    assert [e["name"] for e in call_json("ListFiles", path=d, hidden=False)] == ["a", "b", "c", "fifo", "link"]
    os.utime(d / "b", ns=(0, -250_000_000))
    assert abs(call_json("Stat", path=d / "b")["modified_time"] + 0.25) < 1e-9


def test_list_is_paged_and_deep(d):
    for p in ("a/1", "a/2/deep", "a.b", "ab", "z/.h/x", "b"):
        os.makedirs(d / os.path.dirname(p), exist_ok=True)
        (d / p).write_bytes(b"")

    def paths(**kw):
        return [e["path"][len(str(d)) + 1:] for e in call_json("ListFiles", path=d, **kw)]

    everything = ["a", "a/1", "a/2", "a/2/deep", "a.b", "ab", "b", "z", "z/.h", "z/.h/x"]
    assert paths(depth=99) == everything
    assert paths(depth=2) == ["a", "a/1", "a/2", "a.b", "ab", "b", "z", "z/.h"]
    assert paths(depth=99, hidden=False) == everything[:8]
    for size in (1, 2, 3, 7):
        seen, after = [], None
        while True:
            page = paths(depth=99, limit=size, after=after)
            if not page:
                break
            seen += page
            after = page[-1]
        assert seen == everything
    assert paths(glob="a*") == ["a", "a.b", "ab"]
    assert paths(glob="*/1", depth=99) == ["a/1"]
    assert paths(glob="[") == []


def test_deep_and_wide_trees(d):
    os.mkdir(d / "t")
    fd = os.open(d / "t", os.O_RDONLY)
    depth = 300
    for _ in range(depth):
        os.mkdir("n" * 100, dir_fd=fd)
        nfd = os.open("n" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = nfd
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    os.mkdir(d / "wide")
    for n in range(3000):
        (d / f"wide/{n}").touch()
    assert len(call_json("ListFiles", path=d / "t", depth=1000)) == depth + 1
    assert len(call_json("ListFiles", path=d / "wide")) == 3000
    out = call("TarOut", path=d / "t")
    os.mkdir(d / "u")
    call("TarIn", out, path=d / "u")
    assert len(call_json("ListFiles", path=d / "u", depth=1000)) == depth + 1
    for n in ("t", "u", "wide"):
        call("Remove", path=d / n, recursive=True)
    assert os.listdir(d) == []


# --- directories, moves, attributes

def test_mkdir(d):
    (d / "file").write_bytes(b"")
    call("MakeDirectory", path=d / "a/b/c")
    call("MakeDirectory", path=d / "a/b/c")
    call("MakeDirectory", path=f"{d}/a/b/c/")
    call("MakeDirectory", path="/")
    assert kind("MakeDirectory", path=d / "a", parents=False) == "PathAlreadyExists"
    assert kind("MakeDirectory", path=d / "x/y", parents=False) == "NotFound"
    assert kind("MakeDirectory", path=d / "file/x") == "NotDirectory"
    assert kind("MakeDirectory", path=d / "file/x/y") == "NotDirectory"
    for parents in (True, False):
        assert kind("MakeDirectory", path=d / "file", parents=parents) == "PathAlreadyExists"
    call("MakeDirectory", path=d / "m", mode="1777")
    assert stat.S_IMODE(os.stat(d / "m").st_mode) == 0o1777


def test_remove(d):
    os.makedirs(d / "tree/x/y")
    (d / "tree/x/f").write_bytes(b"")
    (d / "keep").mkdir()
    (d / "keep/f").write_bytes(b"")
    os.symlink("keep", d / "link")
    os.symlink("../keep", d / "tree/link")
    assert kind("Remove", path=d / "tree") == "DirectoryNotEmpty"
    assert kind("Remove", path=d / "nope", recursive=True) == "NotFound"
    assert kind("Remove", path=d / "keep/f/x") == "NotDirectory"
    call("Remove", path=d / "tree", recursive=True)
    call("Remove", path=f"{d}/link/", recursive=True)
    assert os.listdir(d) == ["keep"] and os.listdir(d / "keep") == ["f"]
    for path in ("/", "//", f"{d}/.", f"{d}/keep/..", f"{d}/keep/../"):
        assert kind("Remove", path=path, recursive=True) == "Refused"
    assert kind("Remove", path="") == "Invalid"
    call("Remove", path=d / "keep/f")
    call("Remove", path=d / "keep")


@root_only
def test_remove_does_not_cross_mounts(d):
    os.makedirs(d / "t/m")
    subprocess.run(["mount", "-t", "tmpfs", "x", d / "t/m"], check=True)
    try:
        (d / "t/m/f").write_bytes(b"")
        with pytest.raises(Failed) as e:
            call("Remove", path=d / "t", recursive=True)
        assert (e.value.kind, e.value.detail) == ("Refused", "m")
        assert (d / "t/m/f").exists()
        names = tarfile.open(fileobj=io.BytesIO(call("TarOut", path=d / "t"))).getnames()
        assert names == [".", "m"]
        # A move to another file system is a copy.
        os.makedirs(d / "src/sub")
        (d / "src/sub/f").write_bytes(b"1")
        os.symlink("sub/f", d / "src/l")
        call("Move", from_=d / "src", to=d / "t/m/dst")
        assert not (d / "src").exists()
        assert (d / "t/m/dst/sub/f").read_bytes() == b"1" and os.readlink(d / "t/m/dst/l") == "sub/f"
        assert leftovers(d / "t/m") == []
    finally:
        subprocess.run(["umount", d / "t/m"], check=True)


def test_move_and_copy(d):
    (d / "a").write_bytes(b"a")
    (d / "b").write_bytes(b"b")
    assert kind("Move", from_=d / "a", to=d / "b", overwrite=False) == "PathAlreadyExists"
    call("Move", from_=d / "a", to=d / "new/dir/a")
    call("Move", from_=d / "new/dir/a", to=d / "b")
    assert (d / "b").read_bytes() == b"a"
    assert kind("Move", from_=d / "nope", to=d / "x/y") == "NotFound"
    assert not (d / "x").exists()
    assert kind("Move", from_=d / "new", to=d / "new/dir/in") == "Invalid"
    assert kind("Move", from_="/", to=d / "x") == "Refused"
    assert kind("Move", from_=d / "b", to="/") == "Refused"
    assert kind("Move", from_=d / "b", to=d / "new") == "IsDirectory"
    os.makedirs(d / "t/s")
    (d / "t/s/f").write_bytes(b"x" * 100_000)
    os.chmod(d / "t/s/f", 0o4711)
    os.utime(d / "t/s", ns=(1, 10**18))
    os.mkfifo(d / "t/fifo")
    os.symlink("s", d / "t/l")
    call("Copy", from_=d / "t", to=d / "t2")
    assert (d / "t2/s/f").read_bytes() == b"x" * 100_000
    assert os.stat(d / "t2/s/f").st_mode == os.stat(d / "t/s/f").st_mode
    assert os.stat(d / "t2/s").st_mtime_ns == 10**18 and os.readlink(d / "t2/l") == "s" and (d / "t2/fifo").is_fifo()
    assert kind("Copy", from_=d / "t", to=d / "t/in") == "Invalid"
    assert kind("Copy", from_=d / "t", to=d / "t3", recursive=False) == "IsDirectory"
    assert kind("Copy", from_=d / "b", to=d / "t2/s/f", overwrite=False) == "PathAlreadyExists"
    call("Copy", from_=d / "b", to=d / "t2/s/f")
    assert (d / "t2/s/f").read_bytes() == b"a"
    assert leftovers(d) == []


def test_attributes_links_hashes(d):
    (d / "f").write_bytes(b"abc")
    call("Chmod", path=d / "f", mode="0600")
    assert stat.S_IMODE(os.stat(d / "f").st_mode) == 0o600
    assert kind("Chmod", path=d / "f", mode="0800") == kind("Chmod", path=d / "f") == kind("Chmod", path=d / "f", mode="17777") == "Invalid"
    assert kind("Chmod", path=d / "nope", mode="600") == "NotFound"
    call("Symlink", target="f", path=d / "x/l")
    assert call_json("ReadLink", path=d / "x/l") == {"target": "f"}
    call("Symlink", target_b64=b64(b"\xff"), path=d / "l2")
    assert call_json("ReadLink", path=d / "l2") == {"target": "\ufffd", "target_b64": b64(b"\xff")}
    assert kind("Symlink", target="y", path=d / "l2") == "PathAlreadyExists"
    assert kind("ReadLink", path=d / "f") == "Invalid"
    assert call_json("Hash", path=d / "f") == {"sha256": hashlib.sha256(b"abc").hexdigest(), "size": 3}
    big = os.urandom(1_000_003)
    (d / "big").write_bytes(big)
    assert call_json("Hash", path=d / "big")["sha256"] == hashlib.sha256(big).hexdigest()
    assert kind("Hash", path=d) == "IsDirectory"
    os.makedirs(d / "t/s")
    (d / "t/s/f").write_bytes(b"")
    call("Chmod", path=d / "t", mode="0700", recursive=True)
    assert {stat.S_IMODE(os.stat(p).st_mode) for p in (d / "t", d / "t/s", d / "t/s/f")} == {0o700}
    if os.geteuid() == 0:
        os.symlink("/etc/passwd", d / "t/l")
        call("Chown", path=d / "t", uid=1234, gid=2345, recursive=True)
        assert {(os.lstat(p).st_uid, os.lstat(p).st_gid) for p in (d / "t", d / "t/s", d / "t/s/f", d / "t/l")} == {(1234, 2345)}
        assert os.stat("/etc/passwd").st_uid == 0
        call("Chown", path=d / "t", gid=7)
        assert (os.stat(d / "t").st_uid, os.stat(d / "t").st_gid) == (1234, 7)


def test_batch(d):
    ops = [
        {"op": "write", "path": f"{d}/x/a", "text": "héllo"},
        {"op": "write", "path": f"{d}/x/b", "b64": b64(b"\0\xff"), "mode": "0600"},
        {"op": "read", "path": f"{d}/x/b"},
        {"op": "read", "path": f"{d}/nope"},
        {"op": "stat", "path": f"{d}/x/a"},
        {"op": "list", "path": f"{d}/x"},
        {"op": "mkdir", "path": f"{d}/y"},
        {"op": "move", "from": f"{d}/x/a", "to": f"{d}/y/a"},
        {"op": "remove", "path": f"{d}/x", "recursive": True},
        {"op": "TarIn", "path": f"{d}"}, {"op": "Batch", "ops": []}, {}, 5,
        {"op": "write", "path": f"{d}/z"},
        {"op": "list", "path": f"{d}"},
    ]
    for args in ({"ops": ops}, {"stdin": json.dumps(ops).encode()}):
        r = call_json("Batch", **args)
        assert r[0] == {"ok": {"created": True, "size": 6}} and r[2] == {"ok": {"size": 2, "b64": b64(b"\0\xff")}}
        assert r[3]["error"]["error_kind"] == "NotFound" and r[4]["ok"]["size"] == 6
        assert [e["name"] for e in r[5]["ok"]] == ["a", "b"]
        assert r[6] == r[7] == r[8] == {"ok": None}
        assert [x["error"]["error_kind"] for x in r[9:13]] == ["NotSupported"] * 4
        assert r[13]["error"]["error_kind"] == "Invalid"
        assert [e["name"] for e in r[14]["ok"]] == ["y"]
        call("Remove", path=d / "y", recursive=True)
    (d / "big").write_bytes(b"x" * (1 << 20))
    (d / "bigger").write_bytes(b"x" * ((1 << 20) + 1))
    r = call_json("Batch", ops=[{"op": "read", "path": f"{d}/big"}, {"op": "read", "path": f"{d}/bigger"}])
    assert len(base64.b64decode(r[0]["ok"]["b64"])) == 1 << 20 and r[1]["error"]["error_kind"] == "FileTooLarge"
    ops = [{"op": "write", "path": f"{d}/w{n}", "b64": b64(b"y" * (1 << 20))} for n in range(5)]
    assert all("ok" in x for x in call_json("Batch", json.dumps(ops).encode()))
    assert kind("Batch", b"[{]") == kind("Batch", ops={}) == kind("Batch", ops=[{}] * 1001) == "Invalid"


# --- archives

def make_tree(t):
    os.makedirs(t / "dir/sub")
    (t / "dir/file").write_bytes(os.urandom(100_001))
    (t / "dir/empty").write_bytes(b"")
    os.chmod(t / "dir/file", 0o640)
    os.utime(t / "dir/file", ns=(0, 1_234_567_890_987_654_321))
    os.link(t / "dir/file", t / "dir/sub/hard")
    os.symlink("x" * 300, t / "longlink")
    os.symlink("dir", t / "dirlink")
    os.symlink("/etc/passwd", t / "abs")
    (t / ("n" * 255)).write_bytes(b"long")
    os.makedirs(t / ("p" * 120) / ("q" * 150))
    (t / ("p" * 120) / ("q" * 150) / "f").write_bytes(b"deep")
    os.makedirs(bytes(t) + b"/raw\xff\ndir")
    open(bytes(t) + b"/raw\xff\ndir/\xfe", "wb").close()
    os.mkfifo(t / "fifo", 0o600)
    (t / "old").write_bytes(b"")
    os.utime(t / "old", ns=(0, -5_250_000_000))
    (t / "sticky").mkdir()
    os.chmod(t / "sticky", 0o1777)
    (t / "suid").write_bytes(b"")
    os.chmod(t / "suid", 0o4755)
    with open(t / "sparse", "wb") as f:
        for at in (0, 1 << 20, 5 << 20):
            f.seek(at)
            f.write(b"data" * 2000)
        f.truncate(1 << 33)
    with open(t / "hole", "wb") as f:
        f.truncate(1 << 20)
    if os.geteuid() == 0:
        os.chown(t / "dir/empty", 70000, 3_000_000)
        os.setxattr(t / "dir/file", "user.a", b"v\0\xff\n")
        os.setxattr(t / "dir", "user.dir", b"d")
        os.setxattr(t / "suid", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    os.utime(t / "dir", ns=(0, 10**18 + 1))


def content_hash(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        at, size = 0, os.fstat(f.fileno()).st_size
        while at < size:
            try:
                data = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            hole = os.lseek(f.fileno(), data, os.SEEK_HOLE)
            for at in range(data, hole, 1 << 20):
                block = os.pread(f.fileno(), min(1 << 20, hole - at), at)
                if block.strip(b"\0"):
                    h.update(str(at).encode() + block.rstrip(b"\0"))
            at = hole
    return h.hexdigest()


def shape(top, times=True):
    top = bytes(top)
    out, inodes = {}, collections.defaultdict(list)
    for base, dirs, files in os.walk(top):
        for n in [b"."] * (base == top) + dirs + files:
            p = base if n == b"." else base + b"/" + n
            s = os.lstat(p)
            e = [stat.S_IFMT(s.st_mode), s.st_uid, s.st_gid]
            if not stat.S_ISLNK(s.st_mode):
                e += [stat.S_IMODE(s.st_mode), sorted((a, os.getxattr(p, a)) for a in os.listxattr(p))]
            if times:
                e.append(s.st_mtime_ns)
            if stat.S_ISREG(s.st_mode):
                e += [s.st_size, content_hash(p)]
                inodes[s.st_ino].append(os.path.relpath(p, top))
            if stat.S_ISLNK(s.st_mode):
                e.append(os.readlink(p))
            out[os.path.relpath(p, top)] = e
    return out, sorted(sorted(v) for v in inodes.values() if len(v) > 1)


def test_tar_round_trip(d):
    t = d / "t"
    t.mkdir()
    make_tree(t)
    socket.socket(socket.AF_UNIX).bind(str(d / "t/socket"))
    os.utime(t, ns=(0, 10**18))
    packed = call("TarOut", path=t)
    os.unlink(t / "socket")
    os.utime(t, ns=(0, 10**18))
    assert len(packed) < 2_000_000
    r = call_json("TarIn", packed, path=d / "u/new")
    assert r["entries"] > 20
    assert shape(d / "u/new") == shape(t)
    assert os.stat(d / "u/new/sparse").st_blocks * 512 < 200_000
    # Once more over what is there.
    call("TarIn", packed, path=d / "u/new")
    assert shape(d / "u/new") == shape(t)


def test_gnu_tar_reads_ours(d):
    t = d / "t"
    t.mkdir()
    make_tree(t)
    (d / "u").mkdir()
    packed = call("TarOut", path=t)
    subprocess.run(["tar", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", "-", "-C", d / "u"], input=packed, check=True)
    assert shape(d / "u") == shape(t)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert {os.path.normpath(m.name) for m in tar.getmembers()} >= {".", "dir/file", "sparse", "longlink"}
    listed = subprocess.run(["tar", "-tvf", "-"], input=packed, check=True, capture_output=True)
    assert listed.stderr == b""


@pytest.mark.parametrize("fmt", ["pax", "gnu", "ustar", "v7"])
def test_we_read_gnu_tars(d, fmt):
    t = d / "t"
    t.mkdir()
    make_tree(t)
    if fmt in ("ustar", "v7"):
        for n in ("longlink", "n" * 255, "p" * 120, "sparse", "dir/empty"):
            subprocess.run(["rm", "-rf", t / n])
        os.utime(t / "old", ns=(0, 0))
    if fmt == "v7":
        os.unlink(t / "fifo")
    # Directory times change when something is removed from them.
    os.utime(t, ns=(0, 10**18))
    args = ["--sparse", "--sparse-version=1.0", "--xattrs", "--xattrs-include=*"] if fmt == "pax" else []
    if fmt == "gnu":
        os.unlink(t / "sparse")
        os.utime(t, ns=(0, 10**18))
    packed = subprocess.run(["tar", f"--format={fmt}", *args, "--numeric-owner", "-C", t, "-cf", "-", "."], check=True, capture_output=True).stdout
    call("TarIn", packed, path=d / "u")
    a, b = shape(d / "u", fmt == "pax"), shape(t, fmt == "pax")
    if fmt != "pax":
        for s in (a[0], b[0]):
            for e in s.values():
                if len(e) > 4 and isinstance(e[4], list):
                    e[4] = []
    assert a == b


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, arg in members:
            i = tarfile.TarInfo(name)
            i.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                i.linkname = arg
            elif kind == tarfile.REGTYPE:
                i.size = len(arg)
            i.mode = 0o755
            t.addfile(i, io.BytesIO(arg) if kind == tarfile.REGTYPE else None)
    return out.getvalue()


def test_archives_do_not_lead_out(d):
    top, out = d / "top", d / "out"
    out.mkdir()
    (out / "victim").write_bytes(b"safe")
    F, S, L, D = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
    refused = [
        ("../out/x", F, b"evil"), ("a/../../out/x", F, b"evil"), ("..", D, None), ("h", L, "../out/victim"),
    ]
    for m in refused:
        assert kind("TarIn", tar_of(m), path=top) == "Refused", m
    for via in ("../out", str(out), "/"):
        assert kind("TarIn", tar_of(("l", S, via), ("l/x", F, b"evil")), path=top) == "Refused", via
        call("Remove", path=top, recursive=True)
    call("TarIn", tar_of(("/abs/f", F, b"in")), path=top)
    assert (top / "abs/f").read_bytes() == b"in"
    # A file does not write through a link of its name, and a hard link to a link is the link.
    os.symlink(out / "victim", top / "t")
    call("TarIn", tar_of(("t", F, b"new")), path=top)
    assert (top / "t").read_bytes() == b"new" and (out / "victim").read_bytes() == b"safe"
    assert os.listdir(out) == ["victim"]
    # Links that stay inside are followed, as /bin of an image.
    (top / "usr").mkdir()
    os.symlink("usr", top / "bin")
    call("TarIn", tar_of(("bin/prog", F, b"p"), ("bin", D, None)), path=top)
    assert os.path.islink(top / "bin") and (top / "usr/prog").read_bytes() == b"p"
    # Links may point anywhere; only unpacking through them is refused.
    call("TarIn", tar_of(("etc", S, "/etc")), path=top)
    assert os.readlink(top / "etc") == "/etc"
    with pytest.raises(Failed) as e:
        call("TarIn", tar_of(("usr", F, b"x")), path=top)
    assert (e.value.kind, e.value.detail) == ("DirectoryNotEmpty", "usr")


def test_broken_archives_are_refused(d):
    good = tar_of(("a", tarfile.REGTYPE, b"x" * 1000), ("b", tarfile.REGTYPE, b"y"))
    assert kind("TarIn", b"", path=d / "u") == "Incomplete"
    assert kind("TarIn", good[:700], path=d / "u") == "Incomplete"
    assert not (d / "u/a").exists()
    assert kind("TarIn", good[:1536], path=d / "u") == "Incomplete"
    assert kind("TarIn", good[:1536 + 100], path=d / "u") == "Incomplete"
    assert kind("TarIn", b"hello" * 1000, path=d / "u") == "Invalid"
    assert kind("TarIn", bytes([good[0] ^ 1]) + good[1:], path=d / "u") == "Invalid"
    import gzip
    assert kind("TarIn", gzip.compress(os.urandom(2000)), path=d / "u") == "NotSupported"
    (d / "f").write_bytes(b"")
    assert kind("TarIn", good, path=d / "f") == "NotDirectory"
    assert kind("TarIn", good, path=d / "n/x", parents=False) == "NotFound"
    assert kind("TarOut", path=d / "nope") == "NotFound"


def test_tar_of_one_file_and_of_changing_files(d):
    (d / "f").write_bytes(b"abc")
    with tarfile.open(fileobj=io.BytesIO(call("TarOut", path=d / "f"))) as t:
        assert t.getnames() == ["f"] and t.extractfile("f").read() == b"abc"


# --- watching

class Watch:
    def __init__(self, path, **args):
        self.p = subprocess.Popen([NAME, json.dumps({"Watch": {"path": str(path), **args}})], executable=INIT, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.buffer = b""
        time.sleep(0.15)

    def events(self, quiet=0.3):
        while select.select([self.p.stdout], [], [], quiet)[0]:
            data = os.read(self.p.stdout.fileno(), 1 << 20)
            if not data:
                break
            self.buffer += data
        lines = self.buffer.split(b"\n")
        self.buffer = lines.pop()
        return [json.loads(x) for x in lines]

    def pairs(self, base, **kw):
        return [(e["event_type"], *[os.path.relpath(p, base) for p in e["paths"]]) for e in self.events(**kw)]

    def stop(self):
        self.p.stdin.close()
        assert self.p.wait(5) == 0
        self.p.stdout.close()
        self.p.stderr.close()


def test_watch_a_directory(d):
    (d / "sub").mkdir()
    w = Watch(d)
    (d / "f").write_bytes(b"1")
    assert w.pairs(d)[:2] == [("Create", "f"), ("Modify", "f")]
    os.chmod(d / "f", 0o600)
    assert w.pairs(d) == [("Modify", "f")]
    os.rename(d / "f", d / "g")
    assert w.pairs(d) == [("Rename", "f", "g")]
    os.rename(d / "g", d / "sub/g")
    assert w.pairs(d) == [("RenameFrom", "g")]
    os.rename(d / "sub/g", d / "h")
    assert w.pairs(d) == [("RenameTo", "h")]
    (d / "sub/deep").write_bytes(b"")
    os.unlink(d / "h")
    assert w.pairs(d) == [("Remove", "h")]
    w.stop()


def test_watch_recursively(d):
    w = Watch(d, recursive=True)
    os.makedirs(d / "a/b/c")
    (d / "a/b/c/f").touch()
    got = w.pairs(d)
    # A directory that appears while its parent is being read may be told of twice; none is missed.
    created = list(dict.fromkeys(g for g in got if g[0] == "Create"))
    assert created == [("Create", p) for p in ("a", "a/b", "a/b/c", "a/b/c/f")]
    os.rename(d / "a", d / "z")
    assert w.pairs(d) == [("Rename", "a", "z")]
    (d / "z/b/c/g").touch()
    assert ("Create", "z/b/c/g") in w.pairs(d)
    outside = d.parent / (d.name + "-out")
    outside.mkdir()
    os.rename(d / "z", outside / "z")
    assert w.pairs(d) == [("RenameFrom", "z")]
    (outside / "z/b/unseen").touch()
    assert w.pairs(d) == []
    os.rename(outside / "z", d / "back")
    assert w.pairs(d) == [("RenameTo", "back")]
    (d / "back/b/seen").touch()
    assert ("Create", "back/b/seen") in w.pairs(d)
    call("WriteFile", b"x", path=d / "back/b/api")
    assert any(g[0] in ("Create", "RenameTo", "Rename") and g[-1] == "back/b/api" for g in w.pairs(d))
    subprocess.run(["rm", "-rf", d / "back"])
    assert ("Remove", "back") in w.pairs(d)
    w.stop()


def test_watch_ends_with_what_it_watches(d):
    (d / "w").mkdir()
    w = Watch(d / "w", recursive=True)
    (d / "w/f").touch()
    subprocess.run(["rm", "-rf", d / "w"])
    assert w.pairs(d)[-1] == ("Remove", "w")
    assert w.p.wait(5) == 0
    (d / "f").touch()
    w = Watch(d / "f")
    (d / "other").touch()
    (d / "f").write_bytes(b"1")
    assert set(w.pairs(d)) == {("Modify", "f")}
    call("WriteFile", b"2", path=d / "f")
    assert any(g[-1] == "f" for g in w.pairs(d))
    with open(d / "f", "ab") as f:
        f.write(b"3")
    assert ("Modify", "f") in w.pairs(d)
    os.unlink(d / "f")
    assert w.pairs(d)[-1] == ("Remove", "f")
    assert w.p.wait(5) == 0


def test_watch_filters_times_and_errors(d):
    w = Watch(d, filter=["Create"])
    (d / "f").write_bytes(b"1")
    os.unlink(d / "f")
    assert w.pairs(d) == [("Create", "f")]
    w.stop()
    w = Watch(d, filter=[])
    (d / "f").write_bytes(b"1")
    assert w.events() == []
    w.stop()
    w = Watch(d, filter=["Access"])
    (d / "f").read_bytes()
    assert ("Access", "f") in w.pairs(d)
    w.stop()
    t0 = time.monotonic()
    call("Watch", path=d, timeout_secs=0)
    p = subprocess.Popen([NAME, json.dumps({"Watch": {"path": str(d), "timeout_secs": 1}})], executable=INIT, stdin=subprocess.PIPE)
    assert p.wait(5) == 0
    p.stdin.close()
    assert 0.9 < time.monotonic() - t0 < 3
    assert kind("Watch", path=d / "nope") == "NotFound"
    os.symlink(d, d / "link")
    w = Watch(d / "link")
    (d / "via").touch()
    assert w.events()[0]["paths"] == [f"{d}/via"]
    w.stop()
    raw_name = bytes(d) + b"/\xff"
    w = Watch(d, filter=["Create"])
    open(raw_name, "wb").close()
    e = w.events()[0]
    assert e["paths"] == [f"{d}/\ufffd"] and base64.b64decode(e["paths_b64"][0]) == raw_name
    w.stop()


def test_watch_tells_of_overflow_and_goes_on(d):
    w = Watch(d, recursive=True, filter=["Create"])
    w.p.send_signal(19)
    limit = int(open("/proc/sys/fs/inotify/max_queued_events").read())
    (d / "sub").mkdir()
    for n in range(limit + 10):
        fd = os.open(f"{d}/f{n % 100}", os.O_CREAT | os.O_WRONLY)
        os.close(fd)
        os.unlink(f"{d}/f{n % 100}")
    (d / "late").mkdir()
    w.p.send_signal(18)
    got = w.events(quiet=1)
    lost = [e for e in got if e.get("overflow")]
    assert lost and lost[0]["event_type"] == "Unknown" and lost[0]["paths"] == [str(d)]
    (d / "late/seen").touch()
    assert ("Create", "late/seen") in w.pairs(d)
    w.stop()


def test_watches_come_and_go(d):
    for _ in range(200):
        p = subprocess.Popen([NAME, json.dumps({"Watch": {"path": str(d), "recursive": True}})], executable=INIT, stdin=subprocess.PIPE)
        p.stdin.close()
        assert p.wait(5) == 0


# --- what control asks for (ipc/fs_proto.h)

ALIVE = b"\xff\xff\xff\xff"


def test_read_with_a_header(d):
    data = os.urandom(200_000)
    (d / "f").write_bytes(data)
    os.chmod(d / "f", 0o640)
    (d / "empty").write_bytes(b"")

    def read(path=d / "f", **kw):
        head, body = call("ReadFile", path=path, header=True, **kw).split(b"\n", 1)
        return json.loads(head), body

    assert read() == ({"size": 200_000, "mode": 0o640, "offset": 0, "length": 200_000}, data)
    assert read(offset=100, length=50) == ({"size": 200_000, "mode": 0o640, "offset": 100, "length": 50}, data[100:150])
    assert read(offset=199_990, length=50) == ({"size": 200_000, "mode": 0o640, "offset": 199_990, "length": 10}, data[-10:])
    assert read(suffix=7) == ({"size": 200_000, "mode": 0o640, "offset": 199_993, "length": 7}, data[-7:])
    assert read(suffix=10**9)[1] == data
    assert kind("ReadFile", path=d / "f", header=True, offset=200_000) == "InvalidRange"
    assert kind("ReadFile", path=d / "f", header=True, suffix=0) == "InvalidRange"
    assert read(d / "empty", offset=5) == ({"size": 0, "mode": 0o644, "offset": 5, "length": None}, b"")
    head, body = read("/proc/self/status", max=2**63 - 1)
    assert head["length"] is None and b"VmRSS" in body



def test_signs_of_life_between_frames(d):
    body = ALIVE + frames(b"ab", end=False) + ALIVE + ALIVE + frames(b"cd")
    assert call_json("WriteFile", body, path=d / "f", require_commit=True)["size"] == 4
    assert (d / "f").read_bytes() == b"abcd"
    assert kind("WriteFile", struct.pack("<I", (1 << 20) + 1) + b"x", path=d / "f", require_commit=True) == "Invalid"
    t0 = time.monotonic()
    p = subprocess.Popen([NAME, json.dumps({"WriteFile": {"path": str(d / "f"), "require_commit": True, "silence_s": 1}})], executable=INIT,
                         stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(3):
        p.stdin.write(ALIVE)
        p.stdin.flush()
        time.sleep(0.6)
    assert p.poll() is None
    assert p.wait(5) != 0 and 2 < time.monotonic() - t0 < 5
    assert json.loads(p.stderr.read())["error_kind"] == "Incomplete" and (d / "f").read_bytes() == b"abcd"
    p.stdin.close()


def test_archives_in_frames(d):
    packed = tar_of(("a", tarfile.REGTYPE, b"x" * 3000))
    assert call_json("TarIn", frames(packed[:1000], packed[1000:]), path=d / "u", require_commit=True)["entries"] == 1
    for cut in (frames(packed, end=False), frames(packed[:1024], end=False), b""):
        assert kind("TarIn", cut, path=d / "v", require_commit=True) == "Incomplete"
    assert kind("TarIn", frames(packed[:1024]), path=d / "v", require_commit=True) == "Incomplete"


def test_output_waits_for_credit(d):
    (d / "f").write_bytes(os.urandom(300_000))
    for op, args in (("ReadFile", {"header": True}), ("TarOut", {})):
        p = subprocess.Popen([NAME, json.dumps({op: {"path": str(d / "f"), "window": 8192, **args}})], executable=INIT, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        got, allowed = b"", 8192
        while True:
            while select.select([p.stdout], [], [], 0.2 if len(got) < 20000 else 0.02)[0]:
                data = os.read(p.stdout.fileno(), 65536)
                got += data
                if not data:
                    break
            if p.poll() is not None:
                break
            assert len(got) <= allowed
            allowed += 4096
            with contextlib.suppress(BrokenPipeError):      # it may end between the two
                os.write(p.stdin.fileno(), b"ka")
        assert p.wait() == 0 and (d / "f").read_bytes() in got
        p.stdin.close()
        p.stdout.close()
    p = subprocess.Popen([NAME, json.dumps({"ReadFile": {"path": str(d / "f"), "window": 8192}})], executable=INIT, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.close()
    assert p.wait(5) != 0
    p = subprocess.Popen([NAME, json.dumps({"ReadFile": {"path": str(d / "f"), "window": 8192, "silence_s": 1}})], executable=INIT,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.wait(5) != 0
    p.stdin.close()


def test_watch_says_when_it_is_ready_and_ends_in_silence(d):
    p = subprocess.Popen([NAME, json.dumps({"Watch": {"path": str(d), "ready": True, "silence_s": 1, "window": 65536, "timeout_secs": 30.5}})],
                         executable=INIT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert json.loads(p.stdout.readline()) == {"event_type": "Ready", "paths": []}
    (d / "f").touch()
    assert json.loads(p.stdout.readline())["event_type"] == "Create"
    for _ in range(4):
        os.write(p.stdin.fileno(), b"k")
        time.sleep(0.5)
    assert p.poll() is None
    assert p.wait(5) == 0
    p.stdin.close()
    p = subprocess.Popen([NAME, json.dumps({"Watch": {"path": str(d), "timeout_secs": 0.25}})], executable=INIT, stdin=subprocess.PIPE)
    assert p.wait(3) == 0
    p.stdin.close()


def test_minus_one_leaves_an_owner(d):
    (d / "f").write_bytes(b"")
    s = os.stat(d / "f")
    call("Chown", path=d / "f", uid=-1, gid=-1)
    assert (os.stat(d / "f").st_uid, os.stat(d / "f").st_gid) == (s.st_uid, s.st_gid)
