"""
Package managers in builds: apt, pip and npm install what mirrors of the test have, by the build's policy and nothing else.

The mirrors are on an address of the machine itself, which a policy has to name. pip and npm are this machine's own, copied into an image.
"""

import base64
import collections
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import threading
import uuid
import zipfile

import pytest

import world as w
from test_builds import build

POLICY = {"rules": [{"cidrs": [w.HOST + "/32"]}], "dns": "open"}


class Mirror:
    """Files by path, and how often each was asked for."""

    def __init__(self):
        self.files, self.asked = {}, collections.Counter()
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = self.path.split("?")[0].replace("%2f", "/").replace("/./", "/").rstrip("/")
                mirror.asked[path] += 1
                data = mirror.files.get(path)
                kind = "text/html" if path.startswith("/simple") else "application/json" if path.startswith("/npm") else "application/octet-stream"
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        self.url = f"http://host.test:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def mirror(world, tmp_path_factory):
    m = Mirror()
    add_debian(m, tmp_path_factory.mktemp("deb"))
    add_wheels(m)
    add_npm(m)
    yield m
    m.close()


def add_debian(m, work):
    listed = ""
    for name, depends, files in (("qs-library", "", {"usr/share/qs/library": "library\n"}),
                                 ("qs-tool", "qs-library (>= 1)", {"usr/bin/qs-tool": "#!/bin/sh\ncat /usr/share/qs/library /var/lib/qs/made\n"})):
        root = work / name
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text)
            (root / path).chmod(0o755)
        (root / "DEBIAN").mkdir()
        control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.com>\n"
        control += (f"Depends: {depends}\n" if depends else "") + "Description: of the test\n"
        (root / "DEBIAN/control").write_text(control)
        (root / "DEBIAN/postinst").write_text("#!/bin/sh\nset -e\nmkdir -p /var/lib/qs\nid -un >/var/lib/qs/made\n"
                                              "chown daemon:daemon /var/lib/qs && chmod 2750 /var/lib/qs\n")
        (root / "DEBIAN/postinst").chmod(0o755)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", root, work / f"{name}.deb"], check=True, stdout=subprocess.DEVNULL)
        deb = (work / f"{name}.deb").read_bytes()
        m.files[f"/debian/{name}.deb"] = deb
        listed += control.replace("Description", f"Filename: ./{name}.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\nDescription") + "\n"
    m.files["/debian/Packages"] = listed.encode()
    m.files["/debian/Packages.gz"] = gzip.compress(listed.encode())
    lines = "".join(f" {hashlib.sha256(m.files['/debian/' + n]).hexdigest()} {len(m.files['/debian/' + n])} {n}\n" for n in ("Packages", "Packages.gz"))
    m.files["/debian/Release"] = ("Date: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n" + lines).encode()


def add_wheels(m):
    for name, requires in (("qspkg", ["qsdep>=1"]), ("qsdep", [])):
        meta = f"{name}-1.0.dist-info"
        files = {f"{name}/__init__.py": f"NAME = '{name}'\n", f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                 f"{meta}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(f"Requires-Dist: {r}\n" for r in requires)}
        files[f"{meta}/RECORD"] = "".join(
            f"{p},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\n" for p, t in files.items()
        ) + f"{meta}/RECORD,,\n"
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            for path, text in files.items():
                z.writestr(path, text)
        wheel = f"{name}-1.0-py3-none-any.whl"
        m.files[f"/simple/{name}/{wheel}"] = out.getvalue()
        m.files[f"/simple/{name}"] = f'<html><body><a href="{wheel}#sha256={hashlib.sha256(out.getvalue()).hexdigest()}">{wheel}</a></body></html>'.encode()


def add_npm(m):
    for name, depends in (("qs-module", {"qs-inner": "^1.0.0"}), ("qs-inner", {})):
        package = {"name": name, "version": "1.0.0", "main": "index.js", "dependencies": depends, "scripts": {"postinstall": "node mark.js"} if depends else {}}
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for path, text in {"package.json": json.dumps(package), "mark.js": "require('fs').writeFileSync('marked', 'yes')",
                               "index.js": f"module.exports = '{name}'" + " + ' ' + require('qs-inner')" * bool(depends)}.items():
                info = tarfile.TarInfo("package/" + path)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        data = out.getvalue()
        m.files[f"/npm/{name}/-/{name}-1.0.0.tgz"] = data
        dist = {"tarball": f"{m.url}/npm/{name}/-/{name}-1.0.0.tgz", "shasum": hashlib.sha1(data).hexdigest(),
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
        m.files[f"/npm/{name}"] = json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}).encode()


def context(api, add):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add(tar)
    r = api.post("/v1/builds/contexts", content=out.getvalue(), timeout=300)
    assert r.status_code == 201, r.text
    return r.json()["context"]


def built(api, text, **fields):
    op, lines = build(api, text, network=POLICY, **fields)
    assert op["state"] == "succeeded", "\n".join([op["error"]["message"], *lines[-30:]])
    return op["image"], lines


def run(api, image, script):
    with api.sandbox(image=image) as sb:
        r = api.run(sb, ["/bin/sh", "-c", script])
        assert r["exec"]["exit"]["code"] == 0, r
        return r["stdout"]


APT = """FROM base
RUN rm -f /etc/apt/sources.list.d/* && echo 'deb [trusted=yes] {url}/debian ./' >/etc/apt/sources.list
RUN {flags} apt-get update && apt-get install -y qs-tool
"""


def test_apt_get_install(api, mirror):
    image, lines = built(api, APT.format(url=mirror.url, flags=""))
    assert any("Setting up qs-tool" in line for line in lines)
    assert run(api, image, "qs-tool; dpkg -s qs-tool | grep Status; stat -c '%U:%G %a' /var/lib/qs") == "library\nroot\nStatus: install ok installed\ndaemon:daemon 2750\n"


def test_apt_get_install_with_caches(api, mirror):
    name = uuid.uuid4().hex
    flags = (f"--mount=type=cache,id=a{name},target=/var/cache/apt,sharing=locked --mount=type=cache,id=l{name},target=/var/lib/apt,sharing=locked"
             " echo 'Binary::apt::APT::Keep-Downloaded-Packages \"true\"; APT::Keep-Downloaded-Packages \"true\";' >/etc/apt/apt.conf.d/keep;")
    image, _ = built(api, APT.format(url=mirror.url, flags=flags), no_cache=True)
    before = mirror.asked["/debian/qs-tool.deb"]
    image, _ = built(api, APT.format(url=mirror.url, flags=flags), no_cache=True)
    assert mirror.asked["/debian/qs-tool.deb"] == before
    assert run(api, image, "qs-tool; ls /var/cache/apt/archives 2>/dev/null | grep deb; true") == "library\nroot\n"


def test_apt_get_fails_by_the_policy(api, mirror):
    op, lines = build(api, APT.format(url=mirror.url, flags="").replace("apt-get update", "apt-get -o Acquire::Retries=0 update"), network="open", no_cache=True)
    assert op["state"] == "failed" and "line 3" in op["error"]["message"] and "exit code 100" in op["error"]["message"]


def test_pip_install(api, mirror):
    pip = pathlib.Path("/usr/lib/python3/dist-packages/pip")
    if not pip.is_dir():
        pytest.skip("needs python3-pip")
    files = context(api, lambda tar: tar.add(pip, "pip"))
    image, _ = built(api, f"""FROM base
COPY pip /usr/lib/python3/dist-packages/pip
RUN --mount=type=cache,target=/root/.cache/pip python3 -m pip install --break-system-packages --index-url {mirror.url}/simple --trusted-host host.test qspkg
RUN python3 -c 'import qspkg, qsdep; print(qspkg.NAME, qsdep.NAME)' >/seen
""", context=files)
    assert run(api, image, "cat /seen; ls -d /root/.cache 2>/dev/null; echo end") == "qspkg qsdep\nend\n"


def test_npm_install(api, mirror):
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm")
    node, cli = os.path.realpath(node), pathlib.Path(os.path.realpath(npm))
    tree = pathlib.Path("/usr/share/nodejs") if cli.is_relative_to("/usr/share/nodejs") else cli.parents[1]
    libraries = [line.split()[2] for line in subprocess.run(["ldd", node], capture_output=True, text=True, check=True).stdout.splitlines() if "=> /" in line]

    def add(tar):
        tar.add(node, "node")
        tar.add(tree, "tree")
        for path in libraries:
            if not os.path.basename(path).startswith(("libc.so", "libm.so", "libdl.so", "libpthread.so")):
                tar.add(os.path.realpath(path), "lib/" + os.path.basename(path))
        info = tarfile.TarInfo("lib")
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)

    image, _ = built(api, f"""FROM base
COPY node /usr/bin/node
COPY lib /usr/lib/x86_64-linux-gnu/
COPY tree {tree}
WORKDIR /app
RUN --mount=type=cache,target=/root/.npm node {cli} install --no-audit --no-fund --registry {mirror.url}/npm qs-module
RUN node -e "console.log(require('qs-module'))" >/seen
""", context=context(api, add))
    assert run(api, image, "cat /seen /app/node_modules/qs-module/marked; ls -A /root/.npm 2>/dev/null; true") == "qs-module qs-inner\nyes"
