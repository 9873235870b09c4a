"""
Base images and texts of builds that are made to end, hold up or fill the daemon itself, and layers made to stand for others.
"""

import io
import json
import tarfile
import uuid

import pytest

from hostile import Hostile
from registry import Image, tar_of
from test_build import build, build_fails, sh


@pytest.fixture(scope="module")
def server(hostile):
    s = Hostile(hostile)
    yield s
    s.stop()


@pytest.fixture(autouse=True)
def same_daemon(images):
    """No role ended, whatever the test was about."""
    roles = {role: images.daemon.pids(role) for role in ("control", "node", "image")}
    yield
    assert {role: images.daemon.pids(role)[:1] for role in roles} == {role: pids[:1] for role, pids in roles.items()}
    assert images.staged() == []


TEXTS = [[1], [None], [{"a": 1}], [["RUN", "true"]], "RUN true", {"a": "b"}, 7]
WRONG = ([("OnBuild", v) for v in TEXTS] + [(key, v) for key in ("Shell", "Cmd", "Entrypoint", "Env") for v in ([None], "x", {"a": "b"})] +
         [(key, v) for key in ("User", "WorkingDir", "StopSignal") for v in (5, [], {})] +
         [("Labels", v) for v in ([], "x", {"a": 1})] + [(key, v) for key in ("ExposedPorts", "Volumes", "Healthcheck") for v in ([], "80")])


@pytest.mark.parametrize("key,value", WRONG, ids=lambda v: json.dumps(v).replace('"', "") if not isinstance(v, str) else v)
def test_fields_of_a_base_of_other_kinds(images, server, key, value):
    server.reset()
    server.image = Image([tar_of({"f": b"kinds"})], config={key: value})
    ref = f"{server.host}/kinds/{uuid.uuid4().hex}:1"
    build_fails(images, f"FROM {ref}\nLABEL a=b\n", "invalid_argument", "line 1", f"'{key}'")
    images.pull_fails(ref, "invalid_argument", f"'{key}'")


def test_fields_of_a_base_that_are_null(images, server):
    """As Docker writes them: what a build adds is there afterwards."""
    server.reset()
    nulls = ["Cmd", "Entrypoint", "Env", "OnBuild", "Shell", "User", "WorkingDir", "StopSignal", "Labels", "ExposedPorts", "Volumes", "Healthcheck"]
    server.image = Image([tar_of({"f": b"nulls"})], config=dict.fromkeys(nulls))
    image, _ = build(images, f"FROM {server.host}/nulls/{uuid.uuid4().hex}:1\nEXPOSE 80\nVOLUME /v\n", labels={"given": "with the build"})
    whole = exported(images, image)
    assert whole["config"]["Labels"] == {"given": "with the build"}
    assert whole["config"]["ExposedPorts"] == {"80/tcp": {}} and whole["config"]["Volumes"] == {"/v": {}}


def exported(images, image):
    """The configuration as others get it."""
    r = images.api.get(f"/v1/images/{image['id']}/export")
    assert r.status_code == 200, r.text
    with tarfile.open(fileobj=io.BytesIO(r.content)) as tar:
        name = json.load(tar.extractfile("manifest.json"))[0]["Config"]
        return json.load(tar.extractfile(name))


@pytest.mark.parametrize("pattern", ["#" + "*a" * 40 + "b", "##" + "a*" * 40 + "b", "%" + "b" + "*a" * 40, "%%" + "b*a" * 30, "/" + "*a" * 40 + "b/x", "//" + "a*" * 40 + "b/x"])
def test_patterns_that_never_end(images, pattern):
    build(images, "FROM scratch\nARG A=" + "a" * 100 + f"\nLABEL x=${{A{pattern}}}\n")


def test_patterns_of_long_texts(images):
    text = "FROM scratch\nARG A=" + "a" * 200_000 + "\nLABEL x=${A##*a*a*a*b}\n"
    build_fails(images, text, "too_large", "line 3", "pattern")
    build_fails(images, text.replace("##*a*a*a*b", "//*a*b/y"), "too_large", "line 3", "pattern")


def test_texts_that_grow(images):
    """Ten thousand lines of one variable that is a quarter of a megabyte are more than memory is kept for."""
    start = "FROM scratch\nENV B=" + "b" * 200_000 + "\n"
    build_fails(images, start + "".join(f"ENV V{i}=$B\n" for i in range(9000)), "too_large", "ENV V", "variables")
    build_fails(images, start + "".join(f"ARG V{i}=$B\n" for i in range(9000)), "too_large", "ARG V", "variables")
    build_fails(images, start + "".join(f"LABEL V{i}=$B\n" for i in range(9000)), "too_large", "LABEL V", "variables")
    stages = "".join(f"FROM s{i} AS s{i + 1}\n" for i in range(4000))
    build_fails(images, start.replace("scratch", "scratch AS s0") + stages, "too_large", "FROM s", "variables")
    ports = "FROM scratch\n" + "".join(f"EXPOSE 1-65535/{kind}\n" for kind in ("tcp", "udp", "sctp"))
    build_fails(images, ports, "too_large", "configuration")
    build_fails(images, ports + "EXPOSE 1-65535\n" * 5000, "too_large", "EXPOSE", "variables")


def test_thousands_of_stages(images):
    text = "FROM scratch AS s0\n" + "".join(f"FROM s{i} AS s{i + 1}\n" for i in range(9998))
    build(images, text)


def with_attribute(name, value, content=b"1"):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(content), 0o644, 1700000000
    info.pax_headers = {"SCHILY.xattr.user.x": value}
    return info


def context_of(images, entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    r = images.api.post("/v1/builds/contexts", content=out.getvalue())
    assert r.status_code == 201, r.text
    return r.json()["context"]


def test_an_attribute_that_reads_like_another_file(images):
    """What a layer is named by says where each part of it ends: the one that has a file is not the one that only speaks of it."""
    word = uuid.uuid4().hex
    forged = with_attribute("d/f", word + "f 0 0 644\0d/g\0" + "5\0hello")
    text = "FROM base\nCOPY d /d\n"
    first, _ = build(images, text, context=context_of(images, [(forged, b"1")]))
    other = tarfile.TarInfo("d/g")
    other.size, other.mode = 5, 0o644
    second, _ = build(images, text, context=context_of(images, [(with_attribute("d/f", word), b"1"), (other, b"hello")]))
    assert first["layers"][0] != second["layers"][0]
    assert sh(images, first, "ls /d") == "f\n" and sh(images, second, "ls /d; cat /d/g") == "f\ng\nhello"


def test_many_hard_links(images):
    """Names of one file stay names of one file."""
    text = ("FROM base AS links\nRUN python3 -c 'import os; os.mkdir(\"/l\"); [(open(f\"/l/a{i}\", \"w\").close(), os.link(f\"/l/a{i}\", f\"/l/b{i}\")) "
            "for i in range(2000)]'\nFROM base\nCOPY --from=links /l /copied\n")
    image, _ = build(images, text)
    assert sh(images, image, "ls /copied | wc -l; find /copied -type f -links 2 | wc -l; test /copied/a777 -ef /copied/b777 && echo same") == "4000\n4000\nsame\n"
