"""
Images as users of the Python client define them: its default image from a registry, packages by apt, pip and uv from mirrors.

The registry (Debian's own), its images (made of Debian's packages) and the mirrors are the test's: nothing comes from the network. What
runs in a build reaches the mirrors on an address of the machine, which the configuration opens for builds. The cases are in
tests/sdk/python/installs.py.
"""

import crypt
import importlib.util
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import mirrors
import qsdaemon
import world as w

TESTS = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = TESTS / "sdk/python/installs.py"
CASES = re.findall(r"^def (test_\w+)\(", PROGRAM.read_text(), re.M)
IMAGES = ("library/python:3.11.12-slim-bookworm", "library/debian-of-the-test:1")


def load(name, path):
    """A module of another folder of tests, by its path: their names are not unique."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


registries = load("image_registry", TESTS / "images/registry.py")
sdk_programs = load("sdk_programs", TESTS / "sdk/programs.py")


@pytest.fixture(scope="module")
def client():
    """Where the Python client is installed; the registry of its packages is where the tests were started."""
    r = w.at_home([TESTS / "sdk/setup"], stdout=subprocess.PIPE, text=True, timeout=900)
    state, where = next(line.split(" ", 2)[::2] for line in r.stdout.splitlines() if line.split()[1] == "python")
    if state == "skip":
        pytest.skip(where)
    assert state == "ok", where
    return pathlib.Path(where)


@pytest.fixture(scope="module")
def tree():
    """The root file system of the stand-ins."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import qsdaemon; print(qsdaemon.packages_tar('python'))"
    r = w.at_home([sys.executable, "-c", code, TESTS / "system"], stdout=subprocess.PIPE, text=True, timeout=900)
    return pathlib.Path(r.stdout.splitlines()[-1]).read_bytes()


@pytest.fixture(scope="module")
def mirror(world, tmp_path_factory):
    m = mirrors.Mirror(w.HOST)
    work = tmp_path_factory.mktemp("deb")
    mirrors.add_debian(m, work, {name: ("", {f"usr/bin/{name}": f"#!/bin/sh\necho {name} of the test\n"})
                                 for name in ("gcc", "gfortran", "build-essential")})
    mirrors.add_wheels(m)
    mirrors.add_wheel(m, "wheel", module="wheel_of_the_test", text="print('wheel of the test')\n")
    mirrors.add_wheel(m, "uv")
    yield m
    m.close()


def settle(m, ref):
    """The layer that makes the stand-in use the mirrors."""
    pip = f"[global]\nindex-url = {m.url}/simple\ntrusted-host = {m.host}\nbreak-system-packages = true\nroot-user-action = ignore\n"
    return registries.tar_of({
        "etc/stand-in": ref.removeprefix("library/").encode() + b"\n",
        "etc/apt/sources.list": f"deb [trusted=yes] {m.url}/debian ./\n".encode(),
        "etc/apt/sources.list.d/.wh..wh..opq": b"",
        "etc/pip.conf": pip.encode(),
        "usr/local/bin/python": ("link", "/usr/bin/python3"),
        "usr/lib/python3.11/.wh.EXTERNALLY-MANAGED": b"",
    })


def small(name, data, mode=0o644):
    """An image of one file."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(info, io.BytesIO(data))
    return registries.Image([out.getvalue()], form="zstd")


@pytest.fixture(scope="module")
def registry(mirror, tree, client):
    for program in ("docker-registry", "skopeo"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    r = registries.Registry(qsdaemon.make_dir("qs-registry-"))
    try:
        config = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"UV_DEFAULT_INDEX={mirror.url}/simple", f"UV_INSECURE_HOST={mirror.host}",
                          "UV_BREAK_SYSTEM_PACKAGES=1"]}
        for ref in IMAGES:
            r.push(registries.Image([tree, settle(mirror, ref)], form="zstd", config=config), ref)
        r.push(small("moving", b"moving\n"), "library/moving-of-the-test:1")
        r.push(small("uv", (client / "bin/uv").read_bytes(), 0o755), "astral-sh/uv:latest")
        yield r
    finally:
        r.stop()


@pytest.fixture(scope="module")
def private_registry(registry):
    users = [("me", "secret"), ("_json_key", '{"type": "service_account", "client_email": "a@b", "private_key": "-----BEGIN PRIVATE KEY-----"}')]
    lines = [f"{name}:{crypt.crypt(password, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n" for name, password in users]
    r = registries.Registry(qsdaemon.make_dir("qs-registry-"), htpasswd="".join(lines))
    try:
        for name in ("private", "account"):
            r.push(small("private", name.encode() + b"\n"), f"team/{name}:1", creds="me:secret")
        yield r
    finally:
        r.stop()


@pytest.fixture(scope="module")
def results(mirror, registry, private_registry, client, tmp_path_factory):
    """The cases' results by name: the program is run once, for all of them."""
    daemon = qsdaemon.Daemon(qsdaemon.build_dir(), egress_dns=w.DNS, build_network=f"open {mirror.host}",
                             registry_mirrors=f"docker.io={registry.host} ghcr.io={registry.host}",
                             registry_insecure=f"{registry.host} {private_registry.host}")
    try:
        daemon.start()
        # There is no image named base: it would stand for Debian's and Python's.
        home = tmp_path_factory.mktemp("home")
        env = {**sdk_programs.base_env(daemon, "v2", home), "QS_MIRROR": mirror.url, "QS_REGISTRY": private_registry.host}
        r = subprocess.run([client / "bin/python3", TESTS / "sdk/python/runner.py", PROGRAM], env=env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=1200)
        lines = [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]
        assert r.returncode == 0 and lines, r.stdout[-2000:] + r.stderr[-4000:]
        yield {line["name"]: line for line in lines}
    finally:
        left, reports = daemon.stop(), daemon.sanitizer_reports()
        daemon.purge()
    assert not reports, "\n".join(reports[:20])
    assert not left, "left behind: " + ", ".join(left[:20])


@pytest.mark.parametrize("name", CASES)
def test_installs(results, name):
    result = results[name]
    assert result["ok"], result["error"]
