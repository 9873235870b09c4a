"""
What the image tests do with the API.
"""

import base64
import contextlib


class Images:
    def __init__(self, daemon):
        self.daemon = daemon
        self.api = daemon.api

    def wait(self, operation, seconds=240):
        """The operation once it has ended."""
        r = self.api.get(f"/v1/operations/{operation['id']}", params={"wait_s": seconds}, timeout=seconds + 30)
        assert r.status_code == 200, r.text
        assert r.json()["state"] != "running", r.text
        return r.json()

    def begin_pull(self, ref, **fields):
        r = self.api.post("/v1/images:pull", json={"ref": ref, **fields})
        assert r.status_code == 202, r.text
        return r.json()

    def pull(self, ref, **fields):
        """The image that a successful pull brings."""
        op = self.wait(self.begin_pull(ref, **fields))
        assert op["state"] == "succeeded", (op["error"], self.log(op))
        return self.get(op["image"])

    def pull_fails(self, ref, code, *words, **fields):
        op = self.wait(self.begin_pull(ref, **fields))
        assert op["state"] == "failed", op
        assert op["error"]["code"] == code, op["error"]
        for word in words:
            assert word in op["error"]["message"], op["error"]
        assert op["image"] is None
        return op

    def log(self, op):
        r = self.api.get(f"/v1/operations/{op['id']}/log")
        assert r.status_code == 200, r.text
        return [line["text"] for line in r.json()["items"]]

    def get(self, image):
        r = self.api.get("/v1/images/" + image.replace("/", "%2F"))
        assert r.status_code == 200, r.text
        return r.json()

    @contextlib.contextmanager
    def box(self, image):
        with self.api.sandbox(image=image) as sb:
            yield Box(self.api, sb)

    def staged(self):
        layers = self.daemon.data_dir / "layers"
        return [str(p) for p in (layers / ".staging").iterdir()]


class Box:
    """A sandbox of an image that may have no program at all: files are read by the helper."""

    def __init__(self, api, sb):
        self.api, self.sb = api, sb
        self.at = f"/v1/sandboxes/{sb.id}/files"

    def names(self, path):
        r = self.api.get(self.at + "/list", params={"path": path})
        assert r.status_code == 200, r.text
        return sorted(e["name"] for e in r.json()["items"])

    def read(self, path):
        r = self.api.get(self.at, params={"path": path})
        assert r.status_code == 200, r.text
        return r.content

    def stat(self, path):
        r = self.api.get(self.at + "/stat", params={"path": path})
        assert r.status_code == 200, r.text
        return r.json()

    def remove(self, path):
        r = self.api.delete(self.at, params={"path": path, "recursive": "true"})
        assert r.status_code == 204, r.text


def b64(text):
    return base64.b64encode(text.encode()).decode()
