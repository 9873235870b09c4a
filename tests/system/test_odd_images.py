"""Images that lack what every sandbox needs, or have something else in its place."""

import io
import json
import pathlib
import subprocess
import tarfile
import time

import pytest

import qsdaemon

from test_reports_exec import error
from test_reports_stdio import output

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    out = tmp_path_factory.mktemp("probe") / "probe"
    subprocess.run(["gcc", "-static", "-O1", "-o", out, HERE / "probe.c"], check=True)
    return out.read_bytes()


def rootfs(probe, *entries):
    """A tar with the program, a canary, and entries (name, kind, content or target)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, data in (("probe", "file", probe), ("canary", "file", b"untouched\n"), *entries):
            m = tarfile.TarInfo(name)
            m.mode = 0o755
            if kind == "file":
                m.size = len(data)
                t.addfile(m, io.BytesIO(data))
            else:
                m.type = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "fifo": tarfile.FIFOTYPE}[kind]
                m.linkname = data
                t.addfile(m)
    return packed.getvalue()


class Imported:
    def __init__(self, api, data, name=None):
        self.api = api
        # Told to try again: a former test's image of the same bytes is being removed.
        for _ in range(100):
            r = api.post("/v1/images", params={"name": name} if name else {}, content=data, timeout=120)
            if r.status_code != 503:
                break
            time.sleep(0.1)
        assert r.status_code == 201, r.text
        self.image = r.json()

    def __enter__(self):
        return self.image["id"]

    def __exit__(self, *_):
        assert self.api.delete(f"/v1/images/{self.image['id']}", timeout=60).status_code == 204


ODD = {
    "empty": [],
    "links": [("proc", "link", "/canary"), ("dev", "link", "/etc"), ("sys", "link", "nowhere"), ("etc", "dir", ""), ("etc/hosts", "link", "/canary"), ("__modal", "link", "/etc")],
    "files": [("proc", "file", b"x"), ("dev", "file", b"x"), ("sys", "file", b"x"), ("__modal", "file", b"x"), ("etc", "dir", ""), ("etc/hosts", "dir", ""), ("etc/hostname", "fifo", "")],
    "etc link": [("etc", "link", "/usr"), ("usr", "dir", "")],
    "etc file": [("etc", "file", b"x")],
    "loop": [("proc", "link", "proc"), ("etc", "dir", ""), ("etc/hosts", "link", "hosts")],
    "escape": [("proc", "link", "../../../../../../proc"), ("dev", "link", "../../../../dev"), ("etc", "dir", ""), ("etc/hosts", "link", "../../../../../../etc/passwd")],
}


@pytest.mark.parametrize("shape", ODD)
def test_the_places_are_there_whatever_the_image_holds(api, probe, shape):
    with Imported(api, rootfs(probe, *ODD[shape])) as image, api.sandbox(image=image) as sb:
        r = api.run(sb, ["/probe"])
        seen = dict(line.split("=", 1) for line in output(r).decode().splitlines())
        assert seen["status"].startswith("Name:\tprobe"), seen
        assert seen["null"] == "ok"
        assert seen["canary"] == "untouched"
        assert seen["hosts"].startswith("127.0.0.1")
        assert seen["hostname"] == seen["host"]
        for place in ("/proc", "/dev", "/sys", "/__modal", "/dev/shm", "/etc"):
            assert seen[place] == "directory", (place, seen)
        assert seen["/etc/hosts"] == "file"
        assert seen["/__modal/.bin/modal-sandbox-fs-tools"] == "file"
        assert seen["/dev/pts/ptmx"] == "device"


def test_ur037_files_and_commands_without_a_userland(api, probe):
    """A scratch image: no shell, no libc, no /tmp; files, terminals and signals still work."""
    with Imported(api, rootfs(probe)) as image, api.sandbox(image=image) as sb:
        base = f"/v1/sandboxes/{sb.id}/files"
        assert api.put(base, params={"path": "/new/dir/f"}, content=b"data").status_code == 201
        assert api.get(base, params={"path": "/new/dir/f"}).content == b"data"
        names = {i["name"] for i in api.get(base + "/list", params={"path": "/"}).json()["items"]}
        assert {"probe", "canary", "new"} <= names
        assert api.delete(base, params={"path": "/new", "recursive": "true"}).status_code == 204
        error(api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sh"]}), 422, "executable_not_found")
        assert b"null=ok" in output(api.run(sb, ["/probe"]))


def test_an_image_knows_its_name_and_refuses_to_go_while_it_is_used(api, probe):
    with Imported(api, rootfs(probe), name="odd-named") as image:
        assert api.get("/v1/images/odd-named").json()["id"] == image
        with api.sandbox(image="odd-named", command=["/probe"]) as sb:
            assert api.get(f"/v1/sandboxes/{sb.id}").json()["image"] in ("odd-named", image)
        with api.sandbox(image="odd-named"):
            error(api.delete(f"/v1/images/{image}"), 409, "conflict")
    error(api.get("/v1/images/odd-named"), 404, "not_found")


@pytest.mark.parametrize("data,word", [
    (b"this is no archive" * 100, ""),
    (b"", ""),
    (None, ""),
])
def test_archives_that_are_none_are_refused(api, daemon, probe, data, word):
    before = set((daemon.data_dir / "layers").iterdir())
    if data is None:
        data = rootfs(probe)[:-20000]          # truncated
        data = data[: len(data) // 2]
    r = api.post("/v1/images", content=data, timeout=60)
    assert r.status_code == 400, r.text
    assert r.json()["error"]["message"]
    # Not equality: layers of images that are gone by now are removed meanwhile.
    assert set((daemon.data_dir / "layers").iterdir()) <= before


def test_the_environment_of_an_image_is_inherited(api, probe):
    query = [("env", "FROM_IMAGE=1"), ("env", "BOTH=image"), ("workdir", "/srv/w"), ("user", "1234:1235")]
    r = api.post("/v1/images", params=query, content=open(qsdaemon.base_tar(), "rb"), timeout=120)
    assert r.status_code == 201, r.text
    image = r.json()
    try:
        with api.sandbox(image=image["id"], env={"BOTH": "sandbox"}) as sb:
            text = output(api.run(sb, ["sh", "-c", "echo $FROM_IMAGE $BOTH $MINE; pwd; id -u; id -g"], env={"MINE": "exec"})).decode()
            assert text == "1 sandbox exec\n/srv/w\n1234\n1235\n"
            text = output(api.run(sb, ["sh", "-c", "id -u; pwd"], user="root", workdir="/")).decode()
            assert text == "0\n/\n"
        assert json.loads(json.dumps(image["env"])) in ({"FROM_IMAGE": "1", "BOTH": "image"}, ["FROM_IMAGE=1", "BOTH=image"])
    finally:
        assert api.delete(f"/v1/images/{image['id']}", timeout=60).status_code == 204
