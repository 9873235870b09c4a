"""What users of such systems reported of image builds, through the Python client; one case a report."""

import concurrent.futures
import os
import pathlib
import tempfile
import time

import modal
import modal.exception

from kit import app, image, raises, run, unique


def output(img, *argv):
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    try:
        out, err, code = run(sb, *argv)
        assert code == 0, (out, err)
        return out
    finally:
        sb.terminate()


def test_here_documents():
    """UR-090: bodies of here-documents are text, not instructions."""
    img = image.dockerfile_commands(
        "RUN <<EOF", "echo COPY x y >/one", "FROM=z; echo $FROM >>/one", "EOF",
        "RUN cat <<'A' >/two && cat <<-B >>/two", "FROM z $HOME", "A", "\tCOPY a b", "B")
    assert output(img, "cat", "/one", "/two") == "COPY x y\nz\nFROM z $HOME\nCOPY a b\n"


def test_flags_of_copy():
    """UR-091: flags are followed or refused by name, never left out."""
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "f").write_text("f")
        img = image.dockerfile_commands("COPY --chown=1001:1002 --chmod=741 f /a", "COPY --chown=daemon:nogroup f /b",
                                        "COPY --link f /c/", context_dir=root)
        assert output(img, "stat", "-c", "%u:%g %a", "/a", "/b", "/c/f") == "1001:1002 741\n1:65534 644\n0:0 644\n"
        with raises(modal.exception.Error, "perhaps"):
            image.dockerfile_commands("COPY --perhaps f /d", context_dir=root).build(app)


def test_variables():
    """UR-092: variables expand as in other builders; arguments of a build are not in the sandbox."""
    img = image.dockerfile_commands("ARG V=default", "ARG EMPTY", "ARG TARGETARCH", "ENV A=1", "ENV B=$A C=${EMPTY:-d}${A:+x} D=\\$A",
                                    'RUN echo "$V $B $C $D $TARGETARCH" >/v', "ENV k v w")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}
    out = output(img, "sh", "-c", "cat /v; echo \"${V:-none} $k\"; uname -m").splitlines()
    assert out[:2] == [f"default 1 dx $A {arch[out[2]]}", "none v w"]


def test_what_is_ignored():
    """UR-094: the client decides which files are sent; what it sends is there, hidden files and links to files too."""
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        for path in ("keep", "a.log", "sub/b.log", "sub/.hidden", ".env", "node_modules/x/index.js", "dir/x", "dir/y"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path)
        (root / "link").symlink_to("keep")
        (root / ".dockerignore").write_text("**/*.log\nnode_modules\ndir/*\n!dir/x\n# keep\n")
        (root / "Dockerfile").write_text("FROM base\nCOPY . /d\n")
        img = modal.Image.from_dockerfile(root / "Dockerfile", context_dir=root)
        assert output(img, "sh", "-c", "cd /d && find . -type f | sort") == (
            "./.dockerignore\n./.env\n./Dockerfile\n./dir/x\n./keep\n./link\n./sub/.hidden\n")
        for copy in (False, True):
            img = image.add_local_dir(root, "/d", ignore=["**/*.log", "dir", "node_modules"], copy=copy)
            assert output(img, "sh", "-c", "cd /d && find . -type f | sort; cat link") == (
                "./.dockerignore\n./.env\n./Dockerfile\n./keep\n./link\n./sub/.hidden\nkeep")


def odd(name):
    return modal.Image.from_registry(f"{os.environ['QS_ODD']}/{name}:1")


def texts(img, *paths):
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    try:
        return [sb.filesystem.read_text(path) for path in paths]
    finally:
        sb.terminate()


def test_odd_images():
    """UR-096: links that leave the root end at it; indexes in indexes, zstd and many layers."""
    assert texts(odd("links"), "/x/f", "/abs/f") == ["clamped", "clamped"]
    assert texts(odd("nested"), "/f") == ["mine"]
    assert texts(odd("zstd"), "/f") == ["zstd"]
    assert texts(odd("long"), "/l0", "/l64", "/l129") == ["0", "64", "129"]


def test_images_that_are_out_for_the_host():
    """UR-096: what is written by links stays in the image; the rest is refused, and says what is wrong."""
    assert texts(odd("through"), "/etc/qs-through", "/tmp/qs-through", "/etc/qs-second", "/qs-absolute") == ["x", "y", "z", "a"]
    with raises(modal.exception.Error):
        texts(odd("through"), "/disk")
    for name, word in (("dotdot", ".."), ("hard", ".."), ("digest", "1111111111"), ("path", "digest"), ("deep", "4 deep")):
        with raises(modal.exception.Error, word):
            odd(name).build(app)
    for path in ("/etc/qs-through", "/tmp/qs-through", "/etc/qs-second", "/qs-absolute", "/tmp/qs-dotdot"):
        assert not os.path.lexists(path), path


def test_what_builds_do_not_do():
    """Functions, volumes and GPUs are refused, with what to do instead."""
    def function():
        pass

    for img, word in ((image.run_function(function), "run_function"), (image.run_commands("true", gpu="T4"), "no GPUs"),
                      (image.run_commands("true", volumes={"/v": modal.Volume.from_id("vo-0")}), "volumes do not exist"),
                      (modal.Image.from_registry("base", add_python="3.12"), "add_python")):
        with raises(modal.exception.Error, word):
            img.build(app)


def test_working_directories_and_users():
    """UR-095: a sandbox and its helper start under any working directory and user."""
    img = image.dockerfile_commands("ENV X=/var/lib/made", "WORKDIR a", "WORKDIR b", "RUN pwd >/where", "WORKDIR $X", "RUN chown 1001 .",
                                    "USER 1001", "RUN id -u >mine", "USER nobody")
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    assert run(sb, "sh", "-c", "cat /where mine; pwd; id -un")[0] == "/a/b\n1001\n/var/lib/made\nnobody\n"
    sb.filesystem.write_text("x", "/tmp/x")
    assert sb.filesystem.read_text("/tmp/x") == "x"
    sb.terminate()


def test_failures_and_builds_at_once():
    """UR-098: a failure names line and code and has the end of the output; equal builds at once are one."""
    word = unique("end")
    for command, code in (("exit 3", 3), ("false", 1)):
        with raises(modal.exception.Error, f"exit code {code}"):
            image.run_commands(command).build(app)
    with raises(modal.exception.Error, word):
        image.run_commands(f"i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo {word}; exit 5").build(app)
    assert output(image.run_commands("false | true && echo ok >/ok"), "cat", "/ok") == "ok\n"
    command = f"sleep 1; date +%N >/when; echo {unique('same')}"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ids = {i.object_id for i in pool.map(lambda _: image.run_commands(command).build(app), range(4))}
    assert len(ids) == 1


def long_a_build_that_is_left():
    """UR-098: what the client does not wait for goes on, and is found by the next that asks for it."""
    command = f"sleep 5; echo {unique('left')} >/left"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(image.run_commands(command).build, app)
        time.sleep(1)
        start = time.monotonic()
        assert output(image.run_commands(command), "cat", "/left").startswith("left-")
        assert first.result().object_id == image.run_commands(command).build(app).object_id
        assert time.monotonic() - start < 60
