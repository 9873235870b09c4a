"""COPY and ADD with --exclude and --parents: which files come, where to, and with whose attributes."""

import io
import tarfile

import pytest
from test_build import begin, build, build_fails

FILES = {name: name.encode() for name in (
    "a.txt", "b.md", "src/main.c", "src/main.o", "src/deep/x.c", "src/deep/x.o", "src/deep/keep.o", "src/node_modules/m/index.js",
    "packages/one/package.json", "packages/one/index.js", "packages/two/package.json", "packages/two/sub/package.json", "lib/z.c")}


def tree(images, dockerfile, path="/d", files=FILES, **fields):
    made, _ = build(images, dockerfile, files=files, **fields)
    with images.box(made["id"]) as box:
        found, left = [], [path]
        while left:
            at = left.pop()
            for name in box.names(at):
                entry = f"{at}/{name}"
                if box.stat(entry)["type"] == "directory":
                    left.append(entry)
                else:
                    found.append(entry[len(path) + 1:])
                    assert box.read(entry) is not None
        return sorted(found)


@pytest.mark.parametrize("line,expected", [
    ("COPY --exclude=**/*.o --exclude=node_modules src /d", ["deep/x.c", "main.c"]),
    ("COPY --exclude=*.o src /d", ["deep/keep.o", "deep/x.c", "deep/x.o", "main.c", "node_modules/m/index.js"]),
    ("COPY --exclude=deep --exclude=node_modules src /d/", ["main.c", "main.o"]),
    ("COPY --exclude=**/*.o --exclude=!deep/keep.o --exclude=node_modules src /d", ["deep/keep.o", "deep/x.c", "main.c"]),
    ("COPY --exclude=src --exclude=packages . /d", ["a.txt", "b.md", "lib/z.c"]),
    ("COPY --exclude=*.md *.txt *.md /d/", ["a.txt"]),
    ("ADD --exclude=*.md a.txt b.md /d/", ["a.txt"]),
    ("ARG P=deep\nCOPY --exclude=$P --exclude=node_modules src /d", ["main.c", "main.o"]),
    ("COPY --parents packages/*/package.json /d/", ["packages/one/package.json", "packages/two/package.json"]),
    ("COPY --parents packages/*/package.json lib/z.c ./a.txt /d/", ["a.txt", "lib/z.c", "packages/one/package.json", "packages/two/package.json"]),
    ("COPY --parents packages/**/package.json /d", ["packages/one/package.json", "packages/two/package.json", "packages/two/sub/package.json"]),
    ("COPY --parents **/*.c /d/", ["lib/z.c", "src/deep/x.c", "src/main.c"]),
    ("COPY --parents src/./deep/x.c /d", ["deep/x.c"]),
    ("COPY --parents /src/./**/*.c /d", ["deep/x.c", "main.c"]),
    ("COPY --parents packages/one lib/ /d/", ["lib/z.c", "packages/one/index.js", "packages/one/package.json"]),
    ("COPY --parents --exclude=**/*.o --exclude=src/node_modules src lib /d/", ["lib/z.c", "src/deep/x.c", "src/main.c"]),
    ("COPY --parents=false packages/one /d", ["index.js", "package.json"]),
    ("COPY --parents packages/one/./ /d/", ["index.js", "package.json"]),
])
def test_which_files_come(images, line, expected):
    assert tree(images, f"FROM scratch\n{line}\n") == expected


def test_attributes_of_the_directories_on_the_way(images):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, mode in (("a", 0o711), ("a/b", 0o750)):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.uid = tarfile.DIRTYPE, mode, 77
            tar.addfile(info)
        info = tarfile.TarInfo("a/b/f")
        info.size, info.mode, info.uid = 1, 0o640, 77
        tar.addfile(info, io.BytesIO(b"f"))
    r = images.api.post("/v1/builds/contexts", content=out.getvalue())
    assert r.status_code == 201, r.text
    r = images.api.post("/v1/builds", json={"context": r.json()["context"], "dockerfile": (
        "FROM base\nRUN mkdir -m 700 -p /d/a && chown 5:6 /d/a\nCOPY --parents a/b/f /d/\nCOPY --parents --chown=8:9 a/b/f /e/\n")})
    op = images.wait(r.json())
    assert op["state"] == "succeeded", op
    with images.box(op["image"]) as box:
        def of(path):
            s = box.stat(path)
            return s["mode"], s["uid"], s["gid"]
        # What is there stays as it is; what is not comes as the source has it.
        assert of("/d/a") == ("0700", 5, 6) and of("/d/a/b") == ("0750", 0, 0) and of("/d/a/b/f") == ("0640", 0, 0)
        assert of("/e/a") == ("0711", 8, 9) and of("/e/a/b") == ("0750", 8, 9) and of("/e/a/b/f") == ("0640", 8, 9)


def test_a_stage_and_dockerignore(images):
    text = "FROM base AS one\nRUN mkdir -p /x/y && echo 1 >/x/y/f && echo 2 >/x/y/g\nFROM scratch\nCOPY --from=one --parents --exclude=**/g /x/y /d/\n"
    assert tree(images, text) == ["x/y/f"]
    files = {**FILES, ".dockerignore": b"**\n!src/deep\n!lib/**\n"}
    assert tree(images, "FROM scratch\nCOPY --parents **/*.c /d/\n", files=files) == ["lib/z.c", "src/deep/x.c"]


@pytest.mark.parametrize("line,words", [
    ("COPY --parents nothing /d/", ["'nothing'"]), ("COPY --parents pack/*/package.json /d/", ["'pack/*/package.json'"]),
    ("COPY --parents a.txt/./b /d/", ["a.txt/./b"]),
])
def test_nothing_matches(images, line, words):
    build_fails(images, f"FROM scratch\n{line}\n", "not_found", "line 2", *words, files=FILES)


@pytest.mark.parametrize("line,code,words", [
    ("COPY --parents=maybe a.txt /d/", "invalid_argument", ["--parents", "maybe"]),
    ("COPY --exclude= a.txt /d/", "invalid_argument", ["--exclude is empty"]),
    ("COPY --parents ../a.txt /d/", "invalid_argument", ["'..'"]),
    ("COPY --parents pack*/./one /d/", "not_supported", ["/./"]),
    ("ADD --parents a.txt /d/", "invalid_argument", ["no flag --parents"]),
    ("COPY --exclude=" + "x" * 4096 + " a.txt /d/", "invalid_argument", ["4095"]),
], ids=["bool", "empty", "up", "pivot", "add", "long"])
def test_what_is_refused(images, line, code, words):
    r = begin(images, f"FROM scratch\n{line}\n", FILES)
    assert r.status_code == 202, r.text
    op = images.wait(r.json())
    assert op["state"] == "failed" and op["error"]["code"] == code, op
    for word in ["line 2", *words]:
        assert word in op["error"]["message"], op["error"]
