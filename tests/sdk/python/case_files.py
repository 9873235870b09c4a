"""sandbox.filesystem through the Python client."""

import os
import pathlib
import tempfile
import threading
import time

import modal.exception as ex
from kit import alone, raises, run, sha256, shared, unique


def where():
    return f"/tmp/{unique('f')}"


def test_text():
    f, p = shared().filesystem, where()
    f.write_text("hello ü€🎈\n", p)
    assert f.read_text(p) == "hello ü€🎈\n"


def test_bytes():
    f, p, data = shared().filesystem, where(), os.urandom(300000)
    f.write_bytes(data, p)
    assert f.read_bytes(p) == data


def test_empty_file():
    f, p = shared().filesystem, where()
    f.write_bytes(b"", p)
    assert f.read_bytes(p) == b""


def test_parents_are_made():
    f, p = shared().filesystem, where() + "/a/b/c"
    f.write_text("deep", p)
    assert f.read_text(p) == "deep"


def test_stat():
    f, p = shared().filesystem, where()
    f.write_text("12345", p)
    s = f.stat(p)
    assert (s.name, s.path, s.size, s.permissions, s.owner, s.group) == (p.split("/")[-1], p, 5, "0644", "root", "root")
    assert s.is_file()


def test_listing():
    f, d = shared().filesystem, where()
    f.write_text("1", d + "/b")
    f.write_text("22", d + "/a")
    f.make_directory(d + "/c/inner")
    run(shared(), "ln", "-s", "/nowhere", d + "/d")
    entries = f.list_files(d)
    assert [e.name for e in entries] == ["a", "b", "c", "d"]
    assert entries[3].symlink_target == "/nowhere"


def test_make_directory():
    f, d = shared().filesystem, where()
    f.make_directory(d + "/x")
    f.make_directory(d + "/x")
    with raises(ex.SandboxFilesystemPathAlreadyExistsError):
        f.make_directory(d, create_parents=False)
    with raises(ex.SandboxFilesystemNotFoundError):
        f.make_directory(d + "/no/parent", create_parents=False)


def test_remove():
    f, d = shared().filesystem, where()
    f.write_text("1", d + "/tree/file")
    with raises(ex.SandboxFilesystemDirectoryNotEmptyError):
        f.remove(d)
    f.remove(d + "/tree/file")
    f.remove(d, recursive=True)
    with raises(ex.SandboxFilesystemNotFoundError):
        f.stat(d)


def test_not_found():
    f, p = shared().filesystem, where()
    for call in (f.read_text, f.read_bytes, f.list_files, f.stat, f.remove):
        with raises(ex.SandboxFilesystemNotFoundError):
            call(p)


def test_is_a_directory():
    f = shared().filesystem
    with raises(ex.SandboxFilesystemIsADirectoryError):
        f.read_text("/tmp")
    with raises(ex.SandboxFilesystemIsADirectoryError):
        f.write_text("x", "/tmp")


def test_not_a_directory():
    f, p = shared().filesystem, where()
    f.write_text("x", p)
    with raises(ex.SandboxFilesystemNotADirectoryError):
        f.list_files(p)
    with raises(ex.SandboxFilesystemNotADirectoryError):
        f.write_text("x", p + "/below")


def test_copies():
    f, p, data = shared().filesystem, where(), os.urandom(100000)
    with tempfile.TemporaryDirectory() as d:
        a, b = pathlib.Path(d) / "a", pathlib.Path(d) / "deep/b"
        a.write_bytes(data)
        f.copy_from_local(a, p)
        f.copy_to_local(p, b)
        assert b.read_bytes() == data


def test_relative_path_is_refused():
    with raises(ex.InvalidError):
        shared().filesystem.read_text("relative")


@alone
def test_twenty_mib():
    f, p, data = shared().filesystem, where(), os.urandom(20 << 20)
    f.write_bytes(data, p)
    assert run(shared(), "sha256sum", p)[0].split()[0] == sha256(data)
    assert sha256(f.read_bytes(p)) == sha256(data)


def test_watch():
    f, d = shared().filesystem, where()
    f.make_directory(d)
    seen, over = [], threading.Event()

    def act():
        for i in range(40):
            if over.wait(0.25):
                return
            f.write_text("x", f"{d}/n{i}")

    writer = threading.Thread(target=act)
    writer.start()
    for event in f.watch(d, timeout=20):
        seen.append(event)
        break
    over.set()
    writer.join()
    assert seen and all(p.startswith(d) for p in seen[0].paths)


def test_watch_ends_after_its_time():
    start = time.monotonic()
    assert list(shared().filesystem.watch("/usr", timeout=2)) == []
    assert 1 < time.monotonic() - start < 10
