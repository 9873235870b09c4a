"""
A registry on a public address that sends us to addresses which are none of its business.

It is on an address of the machine itself, which is a public one here; beside it listens what must not be reached.
"""

import importlib.util
import pathlib
import socket
import sys
import threading

import pytest

import qsdaemon
import world as w

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"


def load(name):
    """A module of the image tests, which import each other by name."""
    spec = importlib.util.spec_from_file_location(name, IMAGES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


registry = load("registry")
hostile = load("hostile")
helpers = load("helpers")


class Victim:
    """What listens on loopback for nobody from outside, and counts who came."""

    def __init__(self):
        self.came = []
        self.sockets = []
        self.port = None
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            s = socket.socket(family)
            s.bind((address, self.port or 0))
            s.listen()
            self.port = s.getsockname()[1]
            self.sockets.append(s)
            threading.Thread(target=self.accept, args=(s,), daemon=True).start()

    def accept(self, s):
        while True:
            try:
                c, peer = s.accept()
            except OSError:
                return
            self.came.append(peer)
            c.close()

    def close(self):
        for s in self.sockets:
            s.close()


@pytest.fixture(scope="module")
def server(world):
    s = hostile.Hostile(registry.free_port(), w.HOST)
    yield s
    s.stop()


@pytest.fixture(scope="module")
def images(server):
    instance = qsdaemon.Daemon(qsdaemon.build_dir(), registry_insecure=server.host, registry_stall_s=2)
    try:
        instance.start()
        yield helpers.Images(instance)
    finally:
        left = instance.stop()
        reports = instance.sanitizer_reports()
        instance.purge()
    assert not reports and not left, (reports[:20], left[:20])


@pytest.fixture
def victim():
    v = Victim()
    yield v
    v.close()


PLACES = ["http://127.0.0.1:{port}/x", "http://localhost:{port}/x", "http://[::1]:{port}/x", "http://0.0.0.0:{port}/x", "http://[::ffff:127.0.0.1]:{port}/x",
          "http://169.254.169.254/latest/meta-data", "http://10.9.8.7/x", "http://192.168.77.7/x", "http://2130706433:{port}/x"]


@pytest.mark.parametrize("what", ["manifest", "layer", "token"])
@pytest.mark.parametrize("place", PLACES)
def test_a_private_address_is_not_followed(server, images, victim, world, what, place):
    world.clear()
    server.reset()
    text = f"{what} {place}".encode()
    server.image = registry.Image([registry.tar_of({"f": text})])
    layer = server.image.layers[0]["digest"]
    to = place.format(port=victim.port)
    if what == "manifest":
        server.on_manifest = lambda rq: server.send(rq, 307, b"", [("location", to)]) or True
    elif what == "layer":
        server.on_blob = lambda rq, digest, blob: digest == layer and (server.send(rq, 307, b"", [("location", to)]) or True)
    else:
        server.on_manifest = lambda rq: server.send(rq, 401, b"", [("www-authenticate", f'Bearer realm="{to}",service="s",scope="repository:x:pull"')]) or True
    ref = f"{server.host}/x/y:1"
    op = images.pull_fails(ref, "permission_denied", "private address", refresh=True, username="me", password="secret")
    assert "secret" not in str(op) + " ".join(images.log(op))
    assert victim.came == []
    assert not [p for p in world.seen if p.dst in w.PRIVATE]
    assert images.staged() == []
    # The same registry, which behaves now.
    server.on_manifest = server.on_blob = None
    assert images.pull(ref, refresh=True)["digest"] == server.image.digest


def test_a_public_address_is_followed(server, images, victim):
    """What makes the others fail is the address alone."""
    server.reset()
    server.image = registry.Image([registry.tar_of({"f": b"public"})])
    server.on_blob = lambda rq, digest, blob: "/elsewhere/" not in rq.path and (
        server.send(rq, 307, b"", [("location", f"http://{server.host}/elsewhere/blobs/{digest}")]) or True)
    assert images.pull(f"{server.host}/x/public:1")["digest"] == server.image.digest
