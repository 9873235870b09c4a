"""
Registries for the client programs: stand-ins for Amazon's and Google's, with the services that give out passwords and tokens for them,
and one with images as few tools make them. QS_ODD/NAME:1 is one of these.
"""

import json
import pathlib
import sys
import tarfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "images"))

from aws import Aws  # noqa: E402
from helpers import b64  # noqa: E402
from hostile import Hostile  # noqa: E402
from registry import Image, free_port, index_of, sha256, tar_of  # noqa: E402

ACCOUNT = json.dumps({"type": "service_account", "client_email": "a@p.iam.gserviceaccount.com",
                      "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQ==\n-----END PRIVATE KEY-----\n"})


def device(name):
    info = tarfile.TarInfo(name)
    info.type, info.devmajor, info.devminor = tarfile.BLKTYPE, 8, 0
    return info


class Odd(Hostile):
    """Images by repository, each with whatever its manifests lead to."""

    def __init__(self, port):
        self.documents = {}             # (repository, tag or digest) -> bytes
        super().__init__(port)
        for name, image in self.make():
            self.add(name, image)

    def add(self, name, image, tag="1"):
        self.documents.update({(name, digest): blob for digest, blob in image.blobs.items()})
        for reference in (tag, image.digest):
            self.documents[name, reference] = image.manifest

    def add_nested(self, name, image, depth):
        """An index that leads to the image's by others, each beside an image of another machine."""
        self.add(name, image, tag="inner")
        other = Image([tar_of({"f": b"other"})], arch="s390x")
        self.add(name, other, tag="other")
        text = index_of([other, image])
        for _ in range(depth):
            self.documents[name, sha256(text)] = text
            entry = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": sha256(text), "size": len(text)}
            foreign = {"mediaType": other.media, "digest": other.digest, "size": len(other.manifest),
                       "platform": {"os": "linux", "architecture": "s390x"}}
            text = json.dumps({"schemaVersion": 2, "mediaType": entry["mediaType"], "manifests": [foreign, entry]}).encode()
        self.documents[name, "1"] = text

    def make(self):
        through = {"etc": ("dir", 0o755), "tmp": ("dir", 0o755), "out": ("link", "/etc"), "out/qs-through": b"x", "up": ("link", "../../../../../tmp"), "up/qs-through": b"y"}
        yield "links", Image([tar_of({"nix/f": b"clamped", "x": ("link", "../../../../nix"), "abs": ("link", "/nix"), "self": ("link", "self")})])
        yield "zstd", Image([tar_of({"f": b"zstd"})], form="zstd")
        yield "long", Image([tar_of({f"l{i}": str(i).encode()}) for i in range(130)])
        yield "through", Image([tar_of(through), tar_of({"etc": ("dir", 0o755), "out": ("link", "/etc"), "out/qs-second": b"z", "/qs-absolute": b"a", "disk": device("disk")})])
        yield "dotdot", Image([tar_of({"a/../../../../tmp/qs-dotdot": b"x"})])
        yield "hard", Image([tar_of({"f": ("hard", "../../../../etc/passwd")})])
        yield "digest", Image([tar_of({"f": b"x"})], diff_ids=["sha256:" + "1" * 64])
        broken = Image([tar_of({"f": b"x"})])
        broken.body["layers"][0]["digest"] = "sha256:../../../../../etc/passwd"
        yield "path", broken
        mine = Image([tar_of({"f": b"mine"})])
        self.add_nested("nested", mine, 2)
        self.add_nested("deep", mine, 9)

    def handle(self, rq):
        parts = rq.path.split("/")
        body = self.documents.get(("/".join(parts[2:-2]), parts[-1]))
        self.send(rq, 404 if body is None else 200, body or b"{}", [("content-type", "application/octet-stream")])


class Clouds:
    def __init__(self):
        self.odd = Odd(free_port())
        self.aws, self.ecr, self.google = Aws(free_port()), Hostile(free_port()), Hostile(free_port())
        self.ecr.image, self.google.image = (Image([tar_of({"f": text})]) for text in (b"amazon", b"google"))
        self.ecr.basic = "Basic " + b64(f"AWS:{self.aws.password}")
        self.google.token = "the-token"
        self.google.token_basic = "Basic " + b64(f"_json_key:{ACCOUNT}")

    def options(self):
        """Of the daemon."""
        return {"registry_insecure": f"{self.aws.host} {self.ecr.host} {self.google.host} {self.odd.host}", "registry_ecr_endpoint": self.aws.url,
                "build_network": "open 127.0.0.1"}

    def env(self):
        """Of the client programs."""
        (key, secret), = self.aws.keys.items()
        return {"QS_ECR": self.ecr.host, "QS_ECR_KEY": key, "QS_ECR_SECRET": secret, "QS_GOOGLE": self.google.host, "QS_GOOGLE_KEY": ACCOUNT,
                "QS_ODD": self.odd.host}

    def stop(self):
        for server in (self.aws, self.ecr, self.google, self.odd):
            server.stop()
