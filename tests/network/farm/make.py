"""Packages for pip and for npm, made of a few lines each."""

import base64
import hashlib
import io
import json
import os
import pathlib
import tarfile
import zipfile

FILLING = os.urandom(2_000_000)


def wheel(name, version, requires=()):
    base, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {r}\n" for r in requires)
    files = {f"{base}/__init__.py": f"version = '{version}'\n".encode(), f"{base}/filling": FILLING, f"{info}/METADATA": meta.encode(),
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for path, data in files.items():
            z.writestr(path, data)
    return f"{base}-{version}-py3-none-any.whl", out.getvalue()


def pypi(top):
    for name, version, requires in (("farm-thing", "1.0", ["farm-part>=2"]), ("farm-part", "2.0", [])):
        file, data = wheel(name, version, requires)
        (top / "files").mkdir(parents=True, exist_ok=True)
        (top / "files" / file).write_bytes(data)
        page = top / "simple" / name
        page.mkdir(parents=True)
        link = f'<a href="../../files/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")


def npm(top):
    for name, version, needs in (("farm-thing", "1.0.0", {"farm-part": "^2.0.0"}), ("farm-part", "2.0.0", {})):
        package = {"name": name, "version": version, "main": "index.js", "dependencies": needs}
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for path, data in (("package.json", json.dumps(package).encode()), ("index.js", b"module.exports = 42\n"), ("filling", FILLING)):
                info = tarfile.TarInfo(f"package/{path}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        data = out.getvalue()
        (top / name / "-").mkdir(parents=True)
        (top / name / "-" / f"{name}-{version}.tgz").write_bytes(data)
        dist = {"tarball": f"https://npm.farm.test/{name}/-/{name}-{version}.tgz",
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
        (top / name / "index.json").write_text(json.dumps({
            "name": name, "dist-tags": {"latest": version}, "versions": {version: {**package, "dist": dist}}}))


pypi(pathlib.Path("/srv/pypi.farm.test"))
npm(pathlib.Path("/srv/npm"))
