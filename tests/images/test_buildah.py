"""
The same Dockerfiles built here and by Debian's buildah, compared file by file: kind, mode, owner, contents, links, and the configuration.
Without RUN, so that both need no base image. What is meant to differ is not in here: VOLUME makes no directory (BuildKit makes none either),
and the patterns of ${x##y} and its kind are not known to this buildah.
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

from registry import tar_of
from test_build import build

FILES = {"a": b"a", "b.txt": b"b", "dir/one": b"1", "dir/sub/two": b"2", "dir/link": ("link", "one"), "empty": ("dir", 0o750),
         "x.tar": tar_of({"in/file": b"inner", "in/exec": b"#!"}), "odd name": b"odd"}

CORPUS = {
    "copy-file": "COPY a /a",
    "copy-into": "COPY a b.txt /into/",
    "copy-deep": "COPY a /very/deep/place/a",
    "copy-dir": "COPY dir /dir",
    "copy-dir-slash": "COPY dir/ /there/",
    "copy-all": "COPY . /all/",
    "copy-empty": "COPY empty /empty",
    "copy-glob": "COPY *.txt /globbed/\nCOPY d?r/o* /more/",
    "copy-json": 'COPY ["odd name", "/with blank/"]',
    "copy-over": "COPY dir /d\nCOPY b.txt /d/one\nCOPY a /d/sub/",
    "copy-merge": "COPY dir /d\nCOPY empty /d/sub",
    "chown": "COPY --chown=5:6 dir /owned\nCOPY --chown=7 a /seven",
    "chmod": "COPY --chmod=640 a b.txt /modes/",
    "workdir": "WORKDIR /w\nWORKDIR sub\nCOPY a .\nCOPY b.txt ./named",
    "add-tar": "ADD x.tar /unpacked/",
    "add-file": "ADD a /added",
    "args": "ARG WHERE=/from-arg\nENV NAME=file$WHERE\nCOPY a ${WHERE}/${NAME:-none}",
    "stages": "COPY dir /d\nFROM scratch AS last\nCOPY --from=0 /d/sub /sub\nCOPY --from=0 /d/one /renamed",
    "config": 'ENV A=1 B="two three"\nLABEL l=v\nEXPOSE 80\nUSER 1:2\nWORKDIR /x\nENTRYPOINT ["e"]\nCMD ["c", "d"]\nSTOPSIGNAL TERM',
}


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    if shutil.which("buildah") is None:
        pytest.skip("needs buildah")
    home = tmp_path_factory.mktemp("buildah")
    (home / "context").mkdir()
    with tarfile.open(fileobj=io.BytesIO(tar_of({k: v for k, v in FILES.items()}))) as tar:
        tar.extractall(home / "context")
    env = {**os.environ, "XDG_RUNTIME_DIR": str(home)}

    def run(*argv):
        command = ["buildah", "--storage-driver", "vfs", "--root", home / "root", "--runroot", home / "run", *argv]
        r = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, timeout=240)
        assert r.returncode == 0, r.stderr
        return r.stdout.strip()

    run.home = home
    yield run
    shutil.rmtree(home, ignore_errors=True)


def entry(st, path, target, data):
    kind = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}[stat.S_IFMT(st.st_mode)]
    mode = None if kind == "link" else stat.S_IMODE(st.st_mode)
    return kind, mode, st.st_uid, st.st_gid, target, data


def tree_of_buildah(root):
    found = {}
    for at, dirs, files in os.walk(root):
        for name in dirs + files:
            p = pathlib.Path(at) / name
            st = p.lstat()
            found[str(p.relative_to(root))] = entry(st, p, os.readlink(p) if p.is_symlink() else None,
                                                    p.read_bytes() if stat.S_ISREG(st.st_mode) else None)
    return found


def tree_of_ours(data_dir, layers):
    """The layers, which are ours alone here, laid over each other as overlay does; they lie there with ids as inside."""
    found = {}
    for layer in reversed(layers):
        found |= tree_of_buildah(data_dir / "layers" / layer)
    return found


@pytest.mark.parametrize("case", sorted(CORPUS))
def test_same_as_buildah(images, buildah, case):
    text = "FROM scratch\n" + CORPUS[case] + "\n"
    (buildah.home / "Dockerfile").write_text(text)
    buildah("bud", "--isolation", "chroot", "-q", "-t", case, "-f", buildah.home / "Dockerfile", buildah.home / "context")
    container = buildah("from", case)
    theirs = tree_of_buildah(pathlib.Path(buildah("mount", container)))
    their_config = json.loads(buildah("inspect", "--type", "image", case))["OCIv1"].get("config", {})
    image, _ = build(images, text, FILES)
    ours = tree_of_ours(images.daemon.data_dir, image["layers"])
    assert set(ours) == set(theirs)
    for path in theirs:
        assert ours[path] == theirs[path], path
    config = image["config"]["config"]
    for key in ("User", "WorkingDir", "Entrypoint", "Cmd", "ExposedPorts", "Volumes", "StopSignal"):
        assert config.get(key) == their_config.get(key), key
    env = {e.split("=", 1)[0]: e.split("=", 1)[1] for e in their_config.get("Env", [])}
    assert {k: v for k, v in image["env"].items() if k != "PATH"} == {k: v for k, v in env.items() if k != "PATH"}
