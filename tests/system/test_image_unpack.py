"""The image role alone: what it makes of archives, kind and nasty. Runs quicksand-image as root over its socket."""

import gzip
import hashlib
import io
import lzma
import os
import pathlib
import shutil
import socket
import stat
import struct
import subprocess
import tarfile
import threading
import time

import pytest

import qsdaemon

UNPACK, PROGRESS, DONE = 1, 2, 3


class Done:
    def __init__(self, payload):
        self.code = struct.unpack_from("<H", payload)[0]
        at = 2
        texts = []
        for _ in range(2):
            n = struct.unpack_from("<I", payload, at)[0]
            texts.append(payload[at + 4:at + 4 + n].decode())
            at += 4 + n
        self.message, self.layer = texts
        self.bytes, self.files = struct.unpack_from("<QQ", payload, at)


class Image:
    def __init__(self, build, home):
        self.home = pathlib.Path(home)
        self.layers = self.home / "layers"
        self.layers.mkdir(exist_ok=True)
        config = self.home / "conf"
        config.write_text(f"data_dir = {home}\n")
        self.path = str(self.home / "image.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        listener.listen(64)
        self.log = open(self.home / "log", "wb")
        self.process = subprocess.Popen(
            [build / "src/image/quicksand-image", "--config", config, "--layers", self.layers],
            preexec_fn=lambda: os.set_inheritable(3, True) if listener.fileno() == 3 else os.dup2(listener.fileno(), 3), close_fds=False, stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, env={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"})
        listener.close()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(10) == 0, (self.home / "log").read_text()
        self.log.close()

    def connect(self, max_bytes=0, max_files=0):
        """Sends a request; returns the connection and the write end of the pipe."""
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(60)
        s.connect(self.path)
        r, w = os.pipe()
        body = struct.pack("<QQ", max_bytes, max_files)
        socket.send_fds(s, [struct.pack("<HHII", UNPACK, 1, 1, len(body)) + body], [r])
        os.close(r)
        return s, w

    def result(self, s):
        progress = 0
        while True:
            packet = s.recv(65536)
            assert packet, "the connection closed without an answer:\n" + (self.home / "log").read_text()
            kind = struct.unpack_from("<H", packet)[0]
            if kind == DONE:
                done = Done(packet[12:])
                done.progress = progress
                return done
            assert kind == PROGRESS
            progress += 1

    def unpack(self, data, **limits):
        s, w = self.connect(**limits)

        def feed():
            try:
                with open(w, "wb") as f:
                    f.write(data)
            except BrokenPipeError:
                pass

        t = threading.Thread(target=feed)
        t.start()
        done = self.result(s)
        s.close()
        t.join(30)
        assert not t.is_alive()
        return done

    def tree(self, done):
        assert done.code == 0, done.message
        return self.layers / done.layer

    def staging(self):
        return list((self.layers / ".staging").iterdir())


@pytest.fixture(scope="module")
def image():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    home = qsdaemon.make_dir("qs-image-")
    role = Image(qsdaemon.build_dir(), home)
    yield role
    role.stop()
    assert role.staging() == []
    shutil.rmtree(home)


def member(name, kind=tarfile.REGTYPE, data=b"", **fields):
    m = tarfile.TarInfo(name)
    m.type = kind
    m.size = len(data)
    for key, value in fields.items():
        setattr(m, key, value)
    return m, data


def tar(*members, format=tarfile.PAX_FORMAT, end=True):
    out = io.BytesIO()
    t = tarfile.open(fileobj=out, mode="w", format=format, errors="surrogateescape")
    for m, data in members:
        t.addfile(m, io.BytesIO(data))
    at = out.tell()
    t.close()
    return out.getvalue() if end else out.getvalue()[:at]


def directory(name, **fields):
    return member(name, tarfile.DIRTYPE, mode=fields.pop("mode", 0o755), **fields)


def link(name, target, **fields):
    return member(name, tarfile.SYMTYPE, linkname=target, **fields)


def hard(name, target):
    return member(name, tarfile.LNKTYPE, linkname=target)


def refused(image, data, *words, code=None, **limits):
    before = {p.name for p in image.layers.iterdir()}
    done = image.unpack(data, **limits)
    assert done.code != 0
    assert done.layer == ""
    for word in words:
        assert word in done.message, done.message
    assert {p.name for p in image.layers.iterdir()} == before
    assert image.staging() == []
    return done


def test_modes_owners_times_links_and_names_are_kept(image):
    data = tar(
        directory("./", mode=0o751, uid=3, gid=4, mtime=1000),
        directory("d", mode=0o1777, mtime=1234567890.5),
        member("d/setuid", data=b"x" * 10000, mode=0o4755, uid=65535, gid=65534, mtime=1700000000.123456789),
        hard("d/again", "d/setuid"),
        link("d/link", "/etc/passwd", uid=5, gid=6, mtime=99),
        link("d/up", "../../../../x"),
        member("d/fifo", tarfile.FIFOTYPE, mode=0o640, uid=7),
        member("d/e\u0301 nfd\n", data=b"1"),
        member("d/\u00e9 nfc", data=b"2"),
        member("d/" + "n" * 255, data=b"3"),
        member("d/.wh.plain", data=b"4"),
        member(b"d/\xff\xfe".decode("utf-8", "surrogateescape"), data=b"5"),
        member("no/parents/here", data=b"6"),
    )
    done = image.unpack(data)
    root = image.tree(done)
    # A name that would be a whiteout in a layer: the tree is another than that of the layer of the same bytes, and so is its name.
    assert done.layer == hashlib.sha256(b"root:" + hashlib.sha256(data).hexdigest().encode()).hexdigest()
    st = root.stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_mtime) == (0o751, 3, 4, 1000)
    st = (root / "d").stat()
    assert (stat.S_IMODE(st.st_mode), st.st_mtime) == (0o1777, 1234567890.5)
    st = (root / "d/setuid").stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_nlink, st.st_size) == (0o4755, 65535, 65534, 2, 10000)
    assert abs(st.st_mtime_ns - 1700000000123456789) < 1000
    assert (root / "d/again").stat().st_ino == st.st_ino
    st = (root / "d/link").lstat()
    assert (os.readlink(root / "d/link"), st.st_uid, st.st_gid, st.st_mtime) == ("/etc/passwd", 5, 6, 99)
    assert os.readlink(root / "d/up") == "../../../../x"
    st = (root / "d/fifo").lstat()
    assert stat.S_ISFIFO(st.st_mode) and (stat.S_IMODE(st.st_mode), st.st_uid) == (0o640, 7)
    for name, content in {"e\u0301 nfd\n".encode(): b"1", "\u00e9 nfc".encode(): b"2", b".wh.plain": b"4", b"\xff\xfe": b"5"}.items():
        assert name in os.listdir(os.fsencode(root / "d"))
        assert (root / "d" / os.fsdecode(name)).read_bytes() == content
    assert (root / "d" / ("n" * 255)).read_bytes() == b"3"
    st = (root / "no/parents").stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid) == (0o755, 0)
    assert done.files == 13


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, lambda d: subprocess.run(["zstd", "-c"], input=d, stdout=subprocess.PIPE, check=True).stdout])
def test_compression_does_not_change_the_layer(image, pack):
    data = tar(member("f", data=os.urandom(100000)))
    first = image.unpack(data)
    again = image.unpack(pack(data))
    assert first.layer == again.layer == hashlib.sha256(data).hexdigest()
    assert image.tree(again).exists()
    assert image.staging() == []


def test_the_archives_of_gnu_tar_unpack(image, tmp_path):
    src = tmp_path / "src"
    (src / "usr/bin").mkdir(parents=True)
    os.symlink("usr/bin", src / "bin")
    (src / "usr/bin/prog").write_bytes(b"#!/bin/sh\n")
    (src / "sparse").touch()
    os.truncate(src / "sparse", 1 << 20)
    with open(src / "sparse", "r+b") as f:
        f.seek(500000)
        f.write(b"middle")
    (src / ("long" * 50)).write_bytes(b"long")
    os.setxattr(src / "usr/bin/prog", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
    os.setxattr(src / "usr/bin/prog", "user.note", b"kept")
    os.setxattr(src / "usr/bin/prog", "trusted.overlay.opaque", b"y")
    os.setxattr(src / "usr/bin", "user.overlay.opaque", b"y")
    os.setxattr(src / "usr/bin", "user.dir", b"kept too")
    out = subprocess.run(["tar", "-S", "--xattrs", "--xattrs-include=*", "-C", src, "-cf", "-", "."], stdout=subprocess.PIPE, check=True).stdout
    root = image.tree(image.unpack(out))
    assert (root / "sparse").read_bytes() == (src / "sparse").read_bytes()
    assert (root / ("long" * 50)).read_bytes() == b"long"
    prog = root / "usr/bin/prog"
    assert set(os.listxattr(prog)) == {"security.capability", "user.note"}
    assert os.getxattr(prog, "user.note") == b"kept"
    assert os.listxattr(root / "usr/bin") == ["user.dir"]


def test_links_among_the_parents_stay_below_the_root(image):
    outside = image.home / "outside"
    outside.mkdir(exist_ok=True)
    data = tar(
        directory("usr/bin"),
        link("bin", "usr/bin"),
        member("bin/sh", data=b"sh"),
        link("abs", "/usr"),
        member("abs/file", data=b"abs"),
        link("up", "../../../../../../usr"),
        member("up/file2", data=b"up"),
        directory("tmp"),
        link("evil", str(outside)),
    )
    root = image.tree(image.unpack(data))
    assert (root / "usr/bin/sh").read_bytes() == b"sh"
    assert (root / "usr/file").read_bytes() == b"abs"
    assert (root / "usr/file2").read_bytes() == b"up"
    refused(image, tar(link("evil", str(outside)), member("evil/f", data=b"x")), "evil/f")
    assert list(outside.iterdir()) == []


def test_an_absolute_name_is_below_the_root(image):
    root = image.tree(image.unpack(tar(member("/abs//./file", data=b"x"))))
    assert (root / "abs/file").read_bytes() == b"x"


def test_the_last_entry_of_a_name_wins(image):
    data = tar(
        member("f", data=b"old"), member("f", data=b"new"),
        directory("d"), member("d/in", data=b"x"), member("d", data=b"now a file"),
        member("g", data=b"file"), directory("g", mode=0o700), member("g/in", data=b"in"),
        link("l", "f"), member("l", data=b"not through the link"),
        link("m", "nowhere"), directory("m"),
        directory("twice", mode=0o700, mtime=5), directory("twice", mode=0o711, mtime=6),
        member("self", data=b"self"), hard("self", "self"),
    )
    root = image.tree(image.unpack(data))
    assert (root / "f").read_bytes() == b"new"
    assert (root / "d").read_bytes() == b"now a file"
    assert (root / "g/in").read_bytes() == b"in"
    assert (root / "l").read_bytes() == b"not through the link" and not (root / "l").is_symlink()
    assert (root / "m").is_dir() and not (root / "m").is_symlink()
    assert (stat.S_IMODE((root / "twice").stat().st_mode), (root / "twice").stat().st_mtime) == (0o711, 6)
    assert (root / "self").read_bytes() == b"self"


def test_devices_and_trusted_attributes_are_left_out(image):
    data = tar(member("null", tarfile.CHRTYPE, devmajor=1, devminor=3), member("sda", tarfile.BLKTYPE, devmajor=8), member("f", data=b"x"))
    done = image.unpack(data)
    root = image.tree(done)
    assert os.listdir(root) == ["f"]
    assert done.files == 1
    assert "2 device nodes" in done.message


@pytest.mark.parametrize("name", ["../up", "a/../../up", "a/..", ".."])
def test_dot_dot_is_refused_by_name(image, name):
    refused(image, tar(member(name, data=b"x")), name, "'..'")


def test_a_hard_link_to_the_outside_is_refused(image):
    refused(image, tar(hard("x", "../../../../../../etc/passwd")), "..", "x")
    refused(image, tar(hard("x", "/etc/passwd")), "not in the archive", "etc/passwd")
    refused(image, tar(link("e", "/etc"), hard("x", "e/passwd")), "x")


@pytest.mark.parametrize("ids", [{"uid": 65536}, {"gid": 70000}, {"uid": 1 << 31}])
def test_an_owner_beyond_the_range_is_refused_by_name(image, ids):
    refused(image, tar(member("fine", data=b"x"), member("owned", data=b"x", **ids)), "owned")


def test_a_name_that_is_too_long_is_refused(image):
    refused(image, tar(member("d/" + "n" * 256, data=b"x")), "longer")
    refused(image, tar(member("/".join(["d" * 200] * 21), data=b"x")), "longer")


def test_a_file_as_a_parent_is_refused(image):
    refused(image, tar(member("f", data=b"x"), member("f/g", data=b"x")), "f/g", "not a directory")


def test_a_truncated_archive_is_refused(image):
    whole = tar(directory("d"), member("d/a", data=os.urandom(50000)), member("d/b", data=os.urandom(50000)))
    for cut in (1, 100, 512, 700, 30000, 52736, 60000):
        refused(image, whole[:cut])
    refused(image, tar(member("a", data=b"x" * 512), end=False), "end is missing")
    packed = gzip.compress(whole)
    refused(image, packed[:len(packed) // 2])
    refused(image, lzma.compress(whole)[:-20])


@pytest.mark.parametrize("junk", [b"", b"hello", b"\0" * 100, os.urandom(5000), b"PK\x03\x04" + b"x" * 2000, gzip.compress(b"not a tar")])
def test_what_is_no_archive_is_refused(image, junk):
    refused(image, junk)


def test_bytes_after_the_end_count_for_the_name_only(image):
    data = tar(member("f", data=b"x")) + b"\0" * 100000
    done = image.unpack(data)
    assert done.layer == hashlib.sha256(data).hexdigest()
    assert (image.tree(done) / "f").read_bytes() == b"x"


def test_limits_stop_bombs(image):
    bomb = tar(member("zeros", data=b"\0" * (64 << 20)))
    start = time.monotonic()
    refused(image, gzip.compress(bomb, 1), "more than 1000000 bytes", max_bytes=1000000)
    refused(image, tar(*[member(f"f{i}", data=b"") for i in range(50)]), "more than 10 entries", max_files=10)
    huge, _ = member("sparse", data=b"")
    huge.size = 1 << 50
    out = huge.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2048
    refused(image, out, "more than", max_bytes=1 << 30)
    refused(image, gzip.compress(tar(member("f")) + b"\0" * (80 << 20), 1), "followed by", max_bytes=1000)
    assert time.monotonic() - start < 60


def test_a_deep_tree_is_made_and_removed(image):
    deep = "/".join(["d"] * 1500)
    members = [member(deep + "/f", data=b"x"), link("short", deep)]
    members += [member("short/" + deep + "/g", data=b"x")]
    refused(image, tar(*members, member("../x")))
    done = image.unpack(tar(*members))
    assert done.code == 0, done.message
    subprocess.run(["rm", "-rf", image.layers / done.layer], check=True)


def test_a_closed_connection_cancels_and_cleans(image):
    s, w = image.connect()
    data = tar(member("f", data=os.urandom(1 << 20)), end=False)
    os.write(w, data[:60000])
    give_up = time.monotonic() + 10
    while not image.staging():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    s.close()
    while image.staging():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    os.close(w)


def test_progress_is_told(image):
    s, w = image.connect()
    out = tar(member("f", data=os.urandom(4 << 20)))

    def slowly():
        with open(w, "wb") as f:
            for at in range(0, len(out), 1 << 20):
                f.write(out[at:at + (1 << 20)])
                f.flush()
                time.sleep(0.15)

    t = threading.Thread(target=slowly)
    t.start()
    done = image.result(s)
    t.join()
    s.close()
    assert done.code == 0 and done.progress >= 2


def test_many_jobs_at_once(image):
    archives = [tar(member("f", data=os.urandom(20000)), directory("d")) for _ in range(20)]
    results = {}

    def work(i):
        results[i] = image.unpack(archives[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [results[i].layer for i in range(20)] == [hashlib.sha256(d).hexdigest() for d in archives]


def test_a_child_that_dies_is_answered_for(image):
    s, w = image.connect()
    os.write(w, tar(member("f", data=b"x" * 100000))[:60000])
    give_up = time.monotonic() + 10
    while not image.staging():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    # All of them: one that a former test has done with may not be reaped yet.
    for child in pathlib.Path(f"/proc/{image.process.pid}/task/{image.process.pid}/children").read_text().split():
        os.kill(int(child), 9)
    done = image.result(s)
    assert done.code != 0 and "died" in done.message
    assert image.staging() == []
    s.close()
    os.close(w)


def test_a_bad_request_is_answered(image):
    for packet in (b"junk", struct.pack("<HHII", UNPACK, 1, 1, 0), struct.pack("<HHII", 77, 1, 1, 0)):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(10)
        s.connect(image.path)
        s.send(packet)
        assert image.result(s).code != 0
        s.close()


def test_stale_staging_is_removed_at_start(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    home = qsdaemon.make_dir("qs-image-")
    stale = pathlib.Path(home) / "layers/.staging/old/deep/er"
    stale.mkdir(parents=True)
    role = Image(qsdaemon.build_dir(), home)
    give_up = time.monotonic() + 10
    while (stale.parents[1]).exists():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    done = role.unpack(tar(member("f", data=b"x")))
    assert done.code == 0
    role.stop()
    shutil.rmtree(home)
