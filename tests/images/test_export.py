"""
Images as archives, and back: what goes out is an OCI layout that other programs take, holds the layers as they came, and comes in again as
the same image.
"""

import gzip
import hashlib
import io
import json
import os
import struct
import subprocess
import tarfile
import time

import pytest

import qsdaemon
from registry import MACHINE, Image, tar_of

PROGRAM = str(qsdaemon.build_dir() / "src/cli/quicksand")
CONFIG = {"Env": ["B=2", "A=1"], "WorkingDir": "/w", "User": "1000:1000", "Cmd": ["x"], "Entrypoint": ["/e"], "Labels": {"l": "1"},
          "ExposedPorts": {"80/tcp": {}}, "StopSignal": "SIGINT"}
LONG = "long/" + "/".join(["d" * 60] * 4) + "/" + "f" * 120


def info(path, kind=tarfile.REGTYPE, mode=0o644, uid=0, gid=0, mtime=1600000000, pax=None, **fields):
    t = tarfile.TarInfo(path)
    t.type, t.mode, t.uid, t.gid, t.mtime = kind, mode, uid, gid, mtime
    t.pax_headers = pax or {}
    for key, value in fields.items():
        setattr(t, key, value)
    return t


def archive(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape") as tar:
        for t, data in entries:
            t.size = len(data)
            tar.addfile(t, io.BytesIO(data))
    return out.getvalue()


CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)     # version 2, effective, CAP_NET_BIND_SERVICE


def pax(**attributes):
    return {"SCHILY.xattr." + k.replace("__", "."): v for k, v in attributes.items()}


def rich_layers():
    dirs = "/".join(LONG.split("/")[:-1]).split("/")
    lower = [
        (info("./", tarfile.DIRTYPE, 0o750, mtime=1500000001), b""),
        (info("bin/", tarfile.DIRTYPE, 0o755), b""),
        (info("bin/setuid", mode=0o4755, mtime=1600000007), b"suid"),
        (info("bin/capable", mode=0o755, pax=pax(security__capability=CAPABILITY.decode("latin-1"), user__b="two", user__a="one")), b"cap"),
        (info("data/", tarfile.DIRTYPE, 0o1777, uid=7, gid=8, mtime=1600000042), b""),
        (info("data/owned", uid=65535, gid=1), bytes(range(256)) * 300),
        (info("data/empty", mtime=1600000000.25), b""),
        (info("data/old", tarfile.DIRTYPE), b""),
        (info("data/old/hidden"), b"x"),
        (info("fifo", tarfile.FIFOTYPE, 0o600), b""),
        (info("gone"), b"x"),
        (info("hard-a", mode=0o640), b"one file"),
        (info("hard-b", tarfile.LNKTYPE, 0o640, linkname="hard-a"), b""),
        (info("link", tarfile.SYMTYPE, 0o777, linkname="/absolute/../x"), b""),
        (info("näme-ü"), b"utf8"),
    ]
    lower += [(info("/".join(dirs[:i + 1]) + "/", tarfile.DIRTYPE, 0o755), b"") for i in range(len(dirs))]
    lower.append((info(LONG), b"deep"))
    upper = [
        (info("./", tarfile.DIRTYPE, 0o755), b""),
        (info(".wh.gone", mode=0, mtime=0), b""),
        (info("data/", tarfile.DIRTYPE, 0o775), b""),
        (info("data/old/", tarfile.DIRTYPE, 0o715), b""),
        (info("data/old/.wh..wh..opq", mode=0, mtime=0), b""),
        (info("data/old/new"), b"new"),
        (info("link", tarfile.DIRTYPE, 0o755), b""),
    ]
    return [archive(sorted(part, key=lambda e: (e[0].name.strip("./").encode() if e[0].name == "./" else e[0].name.rstrip("/").encode())))
            for part in (lower, upper)]


def entries(tar):
    """Everything that a layer says, by path."""
    with tarfile.open(fileobj=io.BytesIO(tar), encoding="utf-8", errors="surrogateescape") as t:
        return {m.name.rstrip("/"): (m.type, m.mode, m.uid, m.gid, m.mtime, m.linkname,
                                     {k: v for k, v in m.pax_headers.items() if k.startswith("SCHILY")},
                                     t.extractfile(m).read() if m.isreg() else None) for m in t}


def export(images, image, **params):
    r = images.api.get(f"/v1/images/{image}/export", params=params, timeout=120)
    assert r.status_code == 200, r.text
    assert r.headers["content-type"] == "application/x-tar"
    return r.content


def load(images, data, **params):
    r = images.api.post("/v1/images", params=params, content=data, timeout=120)
    assert r.status_code == 201, r.text
    return images.get(r.json()["id"])


class Layout:
    """An exported archive, every digest of it checked."""

    def __init__(self, data):
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            names = t.getnames()
            assert len(names) == len(set(names)), names
            assert all((m.uid, m.gid, m.mtime) == (0, 0, 0) for m in t)
            self.files = {m.name: t.extractfile(m).read() for m in t if m.isreg()}
        for name, blob in self.files.items():
            if name.startswith("blobs/sha256/"):
                assert hashlib.sha256(blob).hexdigest() == name.rpartition("/")[2]
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        (self.entry,) = json.loads(self.files["index.json"])["manifests"]
        self.manifest = json.loads(self.blob(self.entry))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.packed = [self.blob(layer) for layer in self.manifest["layers"]]

    def blob(self, described):
        blob = self.files["blobs/sha256/" + described["digest"].split(":")[1]]
        assert len(blob) == described["size"]
        return blob

    def layers(self):
        plain = []
        for described, blob in zip(self.manifest["layers"], self.packed, strict=True):
            kind = described["mediaType"].rpartition("tar")[2]
            plain.append({"": lambda b: b, "+gzip": gzip.decompress, "+zstd": unzstd}[kind](blob))
        assert self.config["rootfs"] == {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(p).hexdigest() for p in plain]}
        return plain


def unzstd(data):
    return subprocess.run(["zstd", "-q", "-d", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


@pytest.fixture(scope="module")
def rich(image_daemon, tmp_path_factory):
    import helpers
    images = helpers.Images(image_daemon)
    image = Image(rich_layers(), config=CONFIG)
    directory = tmp_path_factory.mktemp("rich")
    image.write_layout(directory)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(directory, ".")
    return load(images, out.getvalue(), name="team/rich:v1")


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_round_trip(images, rich, compression):
    data = export(images, rich["id"], compression=compression)
    assert data == export(images, "team%2Frich:v1", compression=compression), "the same image, other bytes"
    layout = Layout(data)
    for got, wanted in zip(layout.layers(), rich_layers(), strict=True):
        assert entries(got) == entries(wanted)
    config = layout.config["config"]
    assert config == {**CONFIG, "Env": ["A=1", "B=2"]} or config == CONFIG
    assert layout.config["architecture"] == MACHINE and layout.config["os"] == "linux"
    assert layout.entry["annotations"] == {"org.opencontainers.image.ref.name": "v1", "io.containerd.image.name": "team/rich:v1"}
    saved = json.loads(layout.files["manifest.json"])
    assert saved[0]["RepoTags"] == ["team/rich:v1"] and len(saved[0]["Layers"]) == 2

    back = load(images, data)
    try:
        assert (back["env"], back["workdir"], back["user"]) == (rich["env"], rich["workdir"], rich["user"])
        assert back["config"]["config"]["Labels"] == {"l": "1"}
        assert back["files"] == rich["files"] and back["size_bytes"] == rich["size_bytes"]
        again = Layout(export(images, back["id"], compression=compression))
        assert again.config == layout.config
        assert [entries(x) for x in again.layers()] == [entries(x) for x in layout.layers()]
        assert again.packed == layout.packed
    finally:
        images.api.delete(f"/v1/images/{back['id']}")
    assert images.staged() == []


def test_other_programs_take_it(images, rich, tmp_path):
    for compression in ("gzip", "zstd", "none"):
        path = tmp_path / f"{compression}.tar"
        path.write_bytes(export(images, rich["id"], compression=compression))
        subprocess.run(["skopeo", "copy", "-q", f"oci-archive:{path}", f"dir:{tmp_path}/oci-{compression}"], check=True,
                       stdin=subprocess.DEVNULL)
        manifest = json.loads((tmp_path / f"oci-{compression}/manifest.json").read_text())
        assert len(manifest["layers"]) == 2
        subprocess.run(["skopeo", "copy", "-q", f"docker-archive:{path}:docker.io/team/rich:v1", f"dir:{tmp_path}/docker-{compression}"],
                       check=True, stdin=subprocess.DEVNULL)


def test_what_a_sandbox_sees_of_it(images, rich):
    back = load(images, export(images, rich["id"]))
    with images.box(back["id"]) as box:
        assert box.read("/data/old/new") == b"new" and box.names("/data/old") == ["new"]
        assert "gone" not in box.names("/")
        assert box.stat("/hard-b")["size"] == 8
        assert box.stat("/bin/setuid")["mode"] == "4755"
        owned = box.stat("/data/owned")
        assert (owned["uid"], owned["gid"], owned["size"]) == (65535, 1, 76800)
    images.api.delete(f"/v1/images/{back['id']}")


def test_an_imported_root_file_system(images):
    image = load(images, tar_of({"etc": ("dir", 0o755), "etc/x": b"1"}), env="K=v", workdir="/etc", user="7")
    layout = Layout(export(images, image["id"]))
    assert layout.config["config"] == {"Env": ["K=v"], "WorkingDir": "/etc", "User": "7"}
    assert layout.config["architecture"] == MACHINE
    assert "annotations" not in layout.entry
    assert entries(layout.layers()[0])["etc/x"][-1] == b"1"
    images.api.delete(f"/v1/images/{image['id']}")


def test_names_that_a_layer_cannot_have(images):
    image = load(images, tar_of({"d/.wh.x": b"a file"}))
    r = images.api.get(f"/v1/images/{image['id']}/export")
    assert r.json()["error"]["code"] == "not_supported" and ".wh.x" in r.json()["error"]["message"]
    assert images.staged() == []
    images.api.delete(f"/v1/images/{image['id']}")


def test_bad_requests(images, rich):
    assert images.api.get("/v1/images/nothing/export").status_code == 404
    r = images.api.get(f"/v1/images/{rich['id']}/export", params={"compression": "lzma"})
    assert r.status_code == 400 and r.json()["error"]["param"] == "compression"


def test_a_reader_that_leaves(images, image_daemon):
    image = load(images, tar_of({f"f{i}": os.urandom(4_000_000) for i in range(8)}))
    with images.api.stream("GET", f"/v1/images/{image['id']}/export", params={"compression": "none"}) as r:
        assert r.status_code == 200
        next(r.iter_raw(65536))
    give_up = time.monotonic() + 60
    while images.api.delete(f"/v1/images/{image['id']}").status_code != 204:
        assert time.monotonic() < give_up
    layer = image_daemon.data_dir / "layers" / image["layers"][0]
    while layer.exists():               # no longer held by the export
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert images.staged() == []


def test_a_layer_that_is_gone(images, image_daemon):
    image = load(images, tar_of({"some": b"file that no other test has"}))
    layer = image_daemon.data_dir / "layers" / image["layers"][0]
    aside = layer.with_name("aside")
    layer.rename(aside)
    r = images.api.get(f"/v1/images/{image['id']}/export")
    assert r.status_code >= 400 and image["layers"][0][:12] in r.json()["error"]["message"], r.text
    aside.rename(layer)
    assert Layout(export(images, image["id"])).packed
    images.api.delete(f"/v1/images/{image['id']}")


def test_the_command_line(images, image_daemon, rich, tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": image_daemon.url, "QUICKSAND_TOKEN": image_daemon.token}

    def cli(*args, code=0, **kwargs):
        p = subprocess.run([PROGRAM, "image", *args], env=env, capture_output=True, timeout=120, check=False, **kwargs)
        assert p.returncode == code, (args, p.returncode, p.stderr)
        return p

    cli("export", "team/rich:v1", str(tmp_path / "a.tar"), "--compression", "zstd")
    data = export(images, rich["id"], compression="zstd")
    assert (tmp_path / "a.tar").read_bytes() == data
    assert cli("export", "--compression=zstd", "team/rich:v1", "-").stdout == data
    assert b"nothing" in cli("export", "nothing", str(tmp_path / "b.tar"), code=1).stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar"]

    # A layout directory and a root file system as they lie there.
    with tarfile.open(tmp_path / "a.tar") as tar:
        tar.extractall(tmp_path / "layout", filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(tmp_path / "layout")
    got = images.get(cli("import", str(tmp_path / "layout"), "from-layout").stdout.decode().strip())
    assert got["config"]["config"]["Labels"] == {"l": "1"} and len(got["layers"]) == 2
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/name").write_text("plain tree")
    plain = images.get(cli("import", str(tmp_path / "root"), "from-root").stdout.decode().strip())
    with images.box(plain["id"]) as box:
        assert box.read("/etc/name") == b"plain tree"
    for image in (got, plain):
        images.api.delete(f"/v1/images/{image['id']}")
