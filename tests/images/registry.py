"""
Registries for the tests: Debian's own docker-registry, filled by skopeo, and images made of a few files.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time

import httpx

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar_of(entries):
    """A layer of {path: bytes | ("link", target) | ("dir", mode) | ("hard", target) | tarfile.TarInfo}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, what in entries.items():
            info = tarfile.TarInfo(path)
            info.mtime, info.mode = 1700000000, 0o644
            data = None
            if isinstance(what, tarfile.TarInfo):
                info = what
            elif isinstance(what, bytes):
                data, info.size = io.BytesIO(what), len(what)
            elif what[0] == "dir":
                info.type, info.mode = tarfile.DIRTYPE, what[1]
            elif what[0] == "link":
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, what[1], 0o777
            elif what[0] == "hard":
                info.type, info.linkname = tarfile.LNKTYPE, what[1]
            tar.addfile(info, data)
    return out.getvalue()


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


class Image:
    """Blobs and manifest of an image made of layers (tars); `how` compresses each."""

    FORMS = {
        "plain": (lambda b: b, "application/vnd.oci.image.layer.v1.tar"),
        "gzip": (lambda b: gzip.compress(b, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip"),
        "zstd": (zstd, "application/vnd.oci.image.layer.v1.tar+zstd"),
        "docker": (lambda b: gzip.compress(b, mtime=0), "application/vnd.docker.image.rootfs.diff.tar.gzip"),
    }

    def __init__(self, layers, form="gzip", arch=MACHINE, config=None, diff_ids=None):
        compress, media = self.FORMS[form]
        self.blobs = {}
        docker = form == "docker"
        described = []
        for tar in layers:
            blob = compress(tar)
            self.blobs[sha256(blob)] = blob
            described.append({"mediaType": media, "digest": sha256(blob), "size": len(blob)})
        self.diff_ids = diff_ids or [sha256(tar) for tar in layers]
        body = {"architecture": arch, "os": "linux", "config": config or {},
                "rootfs": {"type": "layers", "diff_ids": self.diff_ids}}
        text = json.dumps(body).encode()
        self.blobs[sha256(text)] = text
        self.layers = described
        self.media = ("application/vnd.docker.distribution.manifest.v2+json" if docker
                      else "application/vnd.oci.image.manifest.v1+json")
        config_media = ("application/vnd.docker.container.image.v1+json" if docker
                        else "application/vnd.oci.image.config.v1+json")
        self.body = {"schemaVersion": 2, "mediaType": self.media,
                     "config": {"mediaType": config_media, "digest": sha256(text), "size": len(text)}, "layers": described}
        self.arch = arch

    @property
    def manifest(self):
        return json.dumps(self.body).encode()

    @property
    def digest(self):
        return sha256(self.manifest)

    def write_layout(self, directory, tag="latest"):
        """As an OCI layout, which skopeo reads."""
        directory = pathlib.Path(directory)
        blobs = directory / "blobs/sha256"
        blobs.mkdir(parents=True)
        for digest, blob in {**self.blobs, self.digest: self.manifest}.items():
            (blobs / digest.split(":")[1]).write_bytes(blob)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        entry = {"mediaType": self.media, "digest": self.digest, "size": len(self.manifest),
                 "annotations": {"org.opencontainers.image.ref.name": tag}}
        (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))


def index_of(images):
    body = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{"mediaType": i.media, "digest": i.digest, "size": len(i.manifest),
                           "platform": {"os": "linux", "architecture": i.arch}} for i in images]}
    return json.dumps(body).encode()


class Registry:
    """Debian's docker-registry on loopback."""

    def __init__(self, home, htpasswd=None):
        self.home = pathlib.Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.host = f"localhost:{self.port}"
        auth = ""
        if htpasswd:
            (self.home / "htpasswd").write_text(htpasswd)
            auth = f"auth:\n  htpasswd:\n    realm: test\n    path: {self.home}/htpasswd\n"
        config = self.home / "config.yml"
        config.write_text(
            f"version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: {self.home}/data\n"
            f"http:\n  addr: 127.0.0.1:{self.port}\n{auth}")
        self.log = open(self.home / "log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL)
        give_up = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/v2/", trust_env=False).status_code in (200, 401):
                    return
            if time.monotonic() > give_up or self.process.poll() is not None:
                raise RuntimeError("the registry does not start: " + (self.home / "log").read_text()[-2000:])
            time.sleep(0.05)

    def push(self, image, name, creds=None, skopeo=True):
        """By skopeo, or for what skopeo would not carry as it is by plain requests."""
        repository, _, tag = name.partition(":")
        if not skopeo:
            self.push_plain(image, repository, tag)
            return
        with tempfile.TemporaryDirectory(dir=self.home) as at:
            image.write_layout(pathlib.Path(at) / "oci", tag)
            command = ["skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false"]
            if creds:
                command += ["--dest-creds", creds]
            subprocess.run([*command, f"oci:{at}/oci:{tag}", f"docker://{self.host}/{name}"], check=True, stdin=subprocess.DEVNULL)

    def put_blob(self, client, repository, digest, blob):
        r = client.post(f"/v2/{repository}/blobs/uploads/")
        assert r.status_code == 202, r.text
        at = r.headers["location"]
        r = client.put(at, params={**httpx.URL(at).params, "digest": digest}, content=blob)
        assert r.status_code == 201, r.text

    def push_plain(self, image, repository, tag):
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=120) as client:
            for digest, blob in image.blobs.items():
                self.put_blob(client, repository, digest, blob)
            self.put_manifest(client, repository, tag or "latest", image.manifest, image.media)

    def put_manifest(self, client, repository, tag, text, media):
        r = client.put(f"/v2/{repository}/manifests/{tag}", content=text, headers={"content-type": media})
        assert r.status_code == 201, r.text

    def push_index(self, images, repository, tag):
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False) as client:
            for image in images:
                for digest, blob in image.blobs.items():
                    self.put_blob(client, repository, digest, blob)
                self.put_manifest(client, repository, image.digest, image.manifest, image.media)
            self.put_manifest(client, repository, tag, index_of(images), "application/vnd.oci.image.index.v1+json")

    def blob_requests(self, repository):
        """Digests that were asked for, in order, by the registry's own access log."""
        lines = (self.home / "log").read_text(errors="replace").splitlines()
        mark = f"GET /v2/{repository}/blobs/"
        return [line.split(mark, 1)[1].split()[0] for line in lines if mark in line]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)
