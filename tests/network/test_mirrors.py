"""
Package managers in builds: apt, pip and npm install what mirrors of the test have, by the build's policy and nothing else.

The mirrors are on an address of the machine itself, which a policy has to name. pip and npm are this machine's own, copied into an image.
"""

import io
import os
import pathlib
import shutil
import subprocess
import tarfile
import uuid

import pytest

import mirrors
import world as w
from test_builds import build

POLICY = {"rules": [{"cidrs": [w.HOST + "/32"]}], "dns": "open"}


@pytest.fixture(scope="module")
def mirror(world, tmp_path_factory):
    m = mirrors.Mirror("host.test")
    mirrors.add_debian(m, tmp_path_factory.mktemp("deb"))
    mirrors.add_wheels(m)
    mirrors.add_npm(m)
    yield m
    m.close()


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
