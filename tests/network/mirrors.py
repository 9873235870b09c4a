"""
Mirrors for package managers: a server of files, and what apt, pip and npm find on it.

Used by test_mirrors.py and by tests/sdk.
"""

import base64
import collections
import gzip
import hashlib
import http.server
import io
import json
import subprocess
import tarfile
import threading
import zipfile


class Mirror:
    """Files by path, and how often each was asked for."""

    def __init__(self, host):
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
                if self.command == "GET":
                    self.wfile.write(data or b"")

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        self.host = host
        self.url = f"http://{host}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def add_debian(m, work, more=None):
    """qs-tool, which needs qs-library, and `more`: {name: (what it needs, {path: text})}."""
    listed = ""
    packages = {"qs-library": ("", {"usr/share/qs/library": "library\n"}),
                "qs-tool": ("qs-library (>= 1)", {"usr/bin/qs-tool": "#!/bin/sh\ncat /usr/share/qs/library /var/lib/qs/made\n"}), **(more or {})}
    for name, (depends, files) in packages.items():
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


def add_wheel(m, name, requires=(), module=None, text=None):
    meta = f"{name}-1.0.dist-info"
    files = {f"{module}.py" if module else f"{name}/__init__.py": text or f"NAME = '{name}'\n",
             f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             f"{meta}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(f"Requires-Dist: {r}\n" for r in requires)}
    files[f"{meta}/RECORD"] = "".join(
        f"{p},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\n" for p, t in files.items()
    ) + f"{meta}/RECORD,,\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for path, content in files.items():
            z.writestr(path, content)
    wheel = f"{name}-1.0-py3-none-any.whl"
    m.files[f"/simple/{name}/{wheel}"] = out.getvalue()
    m.files[f"/simple/{name}"] = f'<html><body><a href="{m.url}/simple/{name}/{wheel}#sha256={hashlib.sha256(out.getvalue()).hexdigest()}">{wheel}</a></body></html>'.encode()


def add_wheels(m):
    add_wheel(m, "qspkg", ["qsdep>=1"])
    add_wheel(m, "qsdep")


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
