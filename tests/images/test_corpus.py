"""
The Dockerfiles of corpus.py, built here and by Debian's buildah (chroot isolation, vfs), compared file by file: kind, mode, owner, content, links,
hard links, and the configuration. Those that buildah does not know are compared with what the table says. A core runs always, the rest
with --long.

What is not compared: times, /proc, /sys, /dev and /run, which builders mount over, and the labels of buildah itself.
"""

import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile

import pytest

import corpus
from helpers import Images
from registry import tar_of
from test_build import build

APPLETS = ("sh cat chmod chown cp echo false grep id ln ls mkdir mkfifo mv pwd rm sed sleep test touch true head tail wc sort env stat find sha256sum "
           "mktemp uname printf").split()
LEFT_OUT = ("proc", "sys", "dev", "run")
KEYS = ("User", "WorkingDir", "Entrypoint", "Cmd", "ExposedPorts", "Volumes", "StopSignal", "Healthcheck", "OnBuild", "Shell", "Labels", "Env")


def tiny():
    """A base with a shell, users and files to change; small, because buildah copies it for each step."""
    root = {d: ("dir", 0o755) for d in ("bin", "etc", "usr", "usr/share", "usr/share/tiny", "usr/share/tiny/deep", "proc", "sys", "dev", "run", "home", "opt")}
    root |= {"tmp": ("dir", 0o1777), "root": ("dir", 0o700)}
    program = tarfile.TarInfo("bin/busybox")
    root |= {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/sh\nnobody:x:65534:65534:n:/nowhere:/bin/sh\n",
             "etc/group": b"root:x:0:\ndaemon:x:1:\nadm:x:4:\nnogroup:x:65534:\n", "etc/issue": b"tiny\n", "usr/share/tiny/one": b"1\n", "usr/share/tiny/deep/two": b"2\n",
             "etc/hosts": b"", "etc/hostname": b"", "etc/resolv.conf": b"", "etc/machine-id": b""}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        data = pathlib.Path("/bin/busybox").read_bytes()
        program.size, program.mode, program.mtime = len(data), 0o755, 1700000000
        inner = tarfile.open(fileobj=io.BytesIO(tar_of(root)))
        for member in inner:
            tar.addfile(member, inner.extractfile(member) if member.isreg() else None)
        tar.addfile(program, io.BytesIO(data))
        for name in APPLETS:
            link = tarfile.TarInfo("bin/" + name)
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return out.getvalue()


@pytest.fixture(scope="module")
def builder(image_daemon):
    """Our side: with the bases of the corpus."""
    images = Images(image_daemon)
    r = images.api.post("/v1/images", params={"name": "tiny", "env": "PATH=/bin"}, content=tiny())
    assert r.status_code == 201, r.text
    build(images, "FROM tiny\nONBUILD RUN echo pulled >/trigger\nONBUILD COPY . /app/\n", name="triggering")
    return images


class Buildah:
    def __init__(self, home):
        self.home = home
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(home)}
        self.import_base(tiny())

    def call(self, *argv, data=None):
        command = ["buildah", "--storage-driver", "vfs", "--root", self.home / "root", "--runroot", self.home / "run", *argv]
        r = subprocess.run(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, input=data, timeout=240)
        assert r.returncode == 0, r.stderr.decode()
        return r.stdout.decode().strip()

    def import_base(self, tar):
        (self.home / "base.tar").write_bytes(tar)
        at = self.call("from", "scratch")
        self.call("add", "-q", at, self.home / "base.tar", "/")
        self.call("config", "--env", "PATH=/bin", at)
        self.call("commit", "-q", "--format", "docker", "--rm", at, "tiny")

    def build(self, case, work):
        (work / "Dockerfile").write_bytes(case.text.encode())
        options = [w for k, v in case.args.items() for w in ("--build-arg", f"{k}={v}")] + (["--target", case.target] if case.target else [])
        self.call("bud", "--isolation", "chroot", "--format", "docker", "-q", "-t", "result", *options, "-f", work / "Dockerfile", work / "context")
        at = self.call("from", "result")
        try:
            config = json.loads(self.call("inspect", "--type", "image", "result"))["Docker"]["config"]
            return read_tree(pathlib.Path(self.call("mount", at))), config
        finally:
            self.call("rm", at)
            self.call("rmi", "-f", "result")


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    if shutil.which("buildah") is None:
        pytest.skip("needs buildah")
    home = tmp_path_factory.mktemp("buildah")
    yield Buildah(home)
    shutil.rmtree(home, ignore_errors=True)


def describe(p, st):
    if stat.S_ISLNK(st.st_mode):
        return f"link {st.st_uid}:{st.st_gid} {os.readlink(p)}"
    kind = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFIFO: "fifo", stat.S_IFCHR: "device"}[stat.S_IFMT(st.st_mode)]
    content = p.read_bytes().decode("latin-1") if kind == "file" else ""
    return f"{kind} {stat.S_IMODE(st.st_mode):o} {st.st_uid}:{st.st_gid} {content}"


def read_tree(root, onto=None):
    """{path: what it is}; of files with several names each says which the first is. `onto`: laid over it as overlay does."""
    found = {} if onto is None else onto
    for at, dirs, files in os.walk(root):
        if onto is not None and at != str(root) and b"y" == (os.getxattr(at, "user.overlay.opaque") if "user.overlay.opaque" in os.listxattr(at) else b""):
            below = os.path.relpath(at, root) + "/"
            for path in [p for p in found if p.startswith(below)]:
                del found[path]
        for name in sorted(dirs + files):
            p = pathlib.Path(at) / name
            path = str(p.relative_to(root))
            st = p.lstat()
            old = found.get(path)
            if old is not None and not (old[0].startswith("dir ") and stat.S_ISDIR(st.st_mode)):
                for gone in [q for q in found if q.startswith(path + "/")]:
                    del found[gone]
            if onto is not None and stat.S_ISCHR(st.st_mode) and st.st_rdev == 0:
                for gone in [q for q in found if q == path or q.startswith(path + "/")]:
                    del found[gone]
                continue
            found[path] = describe(p, st), (st.st_dev, st.st_ino) if st.st_nlink > 1 and stat.S_ISREG(st.st_mode) else None
    if onto is not None:
        return found
    return finished(found)


def finished(found):
    first = {}
    out = {}
    for path in sorted(found):
        what, inode = found[path]
        if inode is not None:
            names = first.setdefault(inode, [])
            names.append(path)
            what = f"{what} (first {names[0]})" if len(names) > 1 else what
        if path.split("/")[0] not in LEFT_OUT:
            out[path] = what
    return out


def our_tree(data_dir, layers):
    found = {}
    for layer in reversed(layers):
        found = read_tree(data_dir / "layers" / layer, found)
    return finished(found)


def normal(config, key):
    """As both write it: nothing, null and empty are one; PATH is what builders set."""
    value = config.get(key)
    if key == "Env":
        pairs = [e.split("=", 1) for e in value or []]
        return {k: v for k, v in pairs if k != "PATH"} or None
    if key == "Labels":
        return {k: v for k, v in (value or {}).items() if not k.startswith("io.buildah")} or None
    if key == "WorkingDir" and value == "/":
        return None
    return value or None


def chosen():
    for name, case in sorted(corpus.CORPUS.items()):
        yield pytest.param(name, marks=[] if case.core else pytest.mark.long, id=name)


@pytest.mark.parametrize("name", chosen())
def test_corpus(builder, request, tmp_path, name):
    case = corpus.CORPUS[name]
    files = corpus.FILES if case.files is None else case.files
    image, _ = build(builder, case.text, files, args=case.args, **({"target": case.target} if case.target else {}))
    ours = our_tree(builder.daemon.data_dir, image["layers"])
    config = image["config"]["config"]
    if case.tree is not None:
        base = {}
        if "FROM scratch" not in case.text:
            base = our_tree(builder.daemon.data_dir, builder.get("tiny")["layers"])
        want = {**base, **{k: v for k, v in case.tree.items() if v is not None}}
        for path in [p for p, v in case.tree.items() if v is None]:
            del want[path]
        assert ours == want
        for key, value in case.config.items():
            assert (normal(config, key) or None) == (value or None), key
        return
    (tmp_path / "context").mkdir()
    with tarfile.open(fileobj=io.BytesIO(tar_of(files))) as tar:
        tar.extractall(tmp_path / "context")
    theirs, their_config = request.getfixturevalue("buildah").build(case, tmp_path)
    for place, (_, meant) in case.differs.items():
        if place in KEYS:
            assert config.get(place) == meant and their_config.get(place) != meant
            their_config[place] = meant
        else:
            assert ours.get(place) == meant and theirs.get(place) != meant
            theirs[place] = meant
            if meant is None:
                del theirs[place]
    assert ours == theirs
    assert {k: normal(config, k) for k in KEYS} == {k: normal(their_config, k) for k in KEYS}


def test_the_corpus_is_as_large_as_it_says():
    assert len(corpus.CORPUS) >= 60
    assert len([c for c in corpus.CORPUS.values() if c.tree is None]) >= 60
