"""
Credentials in all forms, and ways to a registry: basic, the forms of a docker config.json, a proxy and hosts that are reached without it, mirrors.
"""

import contextlib
import http.server
import json
import os
import socket
import socketserver
import subprocess
import tempfile
import threading

import helpers
import pytest
import qsdaemon
from hostile import Hostile
from registry import Image, free_port, tar_of


@pytest.fixture(scope="module")
def server(hostile):
    s = Hostile(hostile)
    yield s
    s.stop()


@pytest.fixture
def bad(server, image_daemon):
    server.reset()
    yield server
    image_daemon.registry_auth.write_text("{}")


def image(text):
    return Image([tar_of({"f": text.encode()})])


def test_basic(images, bad):
    bad.image, bad.basic = image("basic"), "Basic " + helpers.b64("me:pass:word")
    ref = f"{bad.host}/basic/x:1"
    images.pull_fails(ref, "permission_denied", "without credentials")
    images.pull_fails(ref, "permission_denied", "for these credentials", username="me", password="wrong")
    assert images.pull(ref, username="me", password="pass:word")["digest"] == bad.image.digest
    assert "pass:word" not in images.api.get("/v1/operations").text


@pytest.mark.parametrize("key,entry", [
    ("{host}", {"auth": helpers.b64("u:s3cret")}),
    ("http://{host}", {"username": "u", "password": "s3cret"}),
    ("https://{host}/v1/", {"auth": helpers.b64("u:s3cret"), "email": "x@example"}),
    ("{host}", {"auth": "", "username": "u", "password": "s3cret"}),
], ids=["auth", "fields", "url", "empty-auth"])
def test_forms_of_the_file(images, bad, image_daemon, request, key, entry):
    bad.image, bad.basic = image(request.node.name), "Basic " + helpers.b64("u:s3cret")
    image_daemon.registry_auth.write_text(json.dumps({"auths": {"other.example": {"auth": helpers.b64("a:b")}, key.format(host=bad.host): entry}}))
    name = request.node.name.split("[")[1].rstrip("]")
    assert images.pull(f"{bad.host}/file/{name}:1")["digest"] == bad.image.digest


@pytest.mark.parametrize("text", ["not json", json.dumps({"auths": {"HOST": {"auth": "%%%"}}}), json.dumps({"auths": {"HOST": {"auth": "bm9jb2xvbg=="}}})],
                         ids=["json", "base64", "no-colon"])
def test_a_file_that_is_wrong(images, bad, image_daemon, text):
    bad.image = image("wrong file")
    image_daemon.registry_auth.write_text(text.replace("HOST", bad.host))
    r = images.api.post("/v1/images:pull", json={"ref": f"{bad.host}/wrong/file:1"})
    assert r.status_code >= 400 and "registry credentials" in r.json()["error"]["message"], r.text
    assert bad.requests == []


def run_cli(daemon, *args, **env):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token, **env}
    return subprocess.run([qsdaemon.build_dir() / "src/cli/quicksand", *map(str, args)], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=240, check=False)


def test_by_registry(images, bad, image_daemon):
    """Credentials of several registries with one request: each sees its own."""
    ref = f"{bad.host}/by-registry/x:1"
    bad.image, bad.basic = image("by registry"), "Basic " + helpers.b64("u:s3cret")
    auths = {"other.example": {"auth": helpers.b64("a:b")}, f"http://{bad.host}/v1/": {"auth": helpers.b64("u:s3cret")}}
    images.pull_fails(ref, "permission_denied", "for these credentials", auths=auths, username="u", password="no")
    images.pull_fails(ref, "permission_denied", "without credentials", auths={"other.example": auths["other.example"]})
    assert images.pull(ref, auths=auths)["digest"] == bad.image.digest
    told = images.api.get("/v1/operations").text
    assert "s3cret" not in told and helpers.b64("u:s3cret") not in told
    for wrong, word in (([], "object"), ({"x": "y"}, "entry of x"), ({"x": {"auth": "%%%"}}, "base64"), ({"x": {"auth": 7}}, "auth of x"),
                        ({"x": {"pass": "y"}}, "pass of x"), ({f"r{i}": {} for i in range(101)}, "100")):
        r = images.api.post("/v1/images:pull", json={"ref": ref, "refresh": True, "auths": wrong})
        assert r.status_code == 400 and r.json()["error"]["param"] == "auths" and word in r.json()["error"]["message"], r.text


def test_an_identity_token(images, bad, image_daemon):
    """What docker login keeps where a registry gave it a token of that kind: the token service takes it by a form, and nobody else sees it."""
    bad.image, bad.token = image("identity token"), "the-token"
    images.pull(f"{bad.host}/identity/x:1", auths={bad.host: {"auth": helpers.b64("00000000-0000-0000-0000-000000000000:"), "identitytoken": "a+b/c="}})
    assert bad.forms == ["grant_type=refresh_token&client_id=quicksand&service=svc&scope=repository%3Ax%3Apull&refresh_token=a%2Bb%2Fc%3D"]
    assert not any(helpers.b64("a+b/c=") in str(h) or "a+b" in path for path, h in bad.requests)
    bad.forms.clear()
    image_daemon.registry_auth.write_text(json.dumps({"auths": {bad.host: {"identitytoken": "of-the-file"}}}))
    images.pull(f"{bad.host}/identity/x:1", refresh=True)
    assert [form.rsplit("=", 1)[1] for form in bad.forms] == ["of-the-file"]


def test_what_docker_login_left(images, bad, image_daemon, tmp_path):
    """The command line takes it for the registry that is asked, from the file or from the program that keeps it; options go before it."""
    bad.image, bad.basic = image("docker login"), "Basic " + helpers.b64("u:s3cret")
    other = "other.example:5000"
    config, program = tmp_path / "config.json", tmp_path / "docker-credential-test"
    path = f"{tmp_path}:{os.environ['PATH']}"
    program.write_text(f'#!/bin/sh\nread key; echo "$1 $key" >>{tmp_path}/asked\n'
                       f'[ "$key" = {bad.host} ] || {{ echo "credentials not found"; exit 1; }}\n'
                       'echo "{\\"ServerURL\\": \\"$key\\", \\"Username\\": \\"u\\", \\"Secret\\": \\"s3cret\\"}"\n')
    program.chmod(0o755)

    def pull(*options, path=path, **env):
        return run_cli(image_daemon, "image", "pull", "-q", "--refresh", *options, f"{bad.host}/docker/login:1", **{"DOCKER_CONFIG": str(tmp_path), "PATH": path, **env})

    assert "without credentials" in pull().stderr
    for text in ({"auths": {other: {"auth": helpers.b64("x:y")}, bad.host: {"auth": helpers.b64("u:s3cret")}}},
                 {"auths": {bad.host: {}}, "credsStore": "test"}, {"credsStore": "test"}, {"credHelpers": {bad.host: "test"}, "credsStore": "not-there"}):
        config.write_text(json.dumps(text))
        done = pull()
        assert done.returncode == 0 and done.stderr == "", done
    assert set((tmp_path / "asked").read_text().splitlines()) == {f"get {bad.host}"}
    (tmp_path / ".docker").mkdir()
    config.rename(tmp_path / ".docker/config.json")
    assert pull(DOCKER_CONFIG="", HOME=str(tmp_path)).returncode == 0
    (tmp_path / ".docker/config.json").rename(config)
    assert "for these credentials" in pull("--username", "somebody").stderr
    config.write_text(json.dumps({"credsStore": "not-there"}))
    done = pull()
    assert "docker-credential-not-there" in done.stderr and "without credentials" in done.stderr, done
    config.write_text("{")
    assert "config.json is no JSON" in pull().stderr


def test_a_build_from_two_registries(images, bad, image_daemon, tmp_path):
    """FROM and COPY --from, one server under two names: each gets what is for it and nothing of the other."""
    bad.image = image("of two")
    first, second = bad.host, f"localhost:{bad.port}"
    mine = {first: "Basic " + helpers.b64("u:s3cret"), second: "Basic " + helpers.b64("v:0ther")}
    sent = {first: set(), second: set()}

    def guard(rq, *ignored):
        sent[rq.headers["host"]].add(rq.headers.get("authorization"))
        if rq.headers.get("authorization") == mine[rq.headers["host"]]:
            return False
        bad.send(rq, 401, b"{}", [("www-authenticate", 'Basic realm="x"')])
        return True

    bad.on_manifest = bad.on_blob = guard
    auths = {host: {"auth": value.split(" ")[1]} for host, value in mine.items()}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    (tmp_path / "Dockerfile").write_text(f"FROM {first}/two/first:1\nCOPY --from={second}/two/second:1 /f /g\n")
    done = run_cli(image_daemon, "build", "-q", "--refresh", tmp_path, DOCKER_CONFIG=str(tmp_path))
    assert done.returncode == 0, done
    with images.box(done.stdout.strip()) as box:
        assert box.read("/f") == b"of two" and box.read("/g") == b"of two"
    assert sent == {host: {None, value} for host, value in mine.items()}
    # One user and password are for FROM alone.
    (tmp_path / "Dockerfile").write_text(f"FROM {first}/two/first:1\nCOPY --from={second}/two/third:1 /f /g\n")
    sent[second].clear()
    done = run_cli(image_daemon, "build", "-q", "--username", "v", tmp_path, DOCKER_CONFIG=str(tmp_path))
    assert done.returncode == 1 and "without credentials" in done.stderr and sent[second] == {None}, done


class Proxy:
    """Knows every name: all of it is one registry."""

    def __init__(self, registry):
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                outer.asked.append(self.path)
                self.path = "/" + self.path.split("://", 1)[1].split("/", 1)[1]
                registry.handle(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


def test_a_proxy_and_mirrors(make_daemon):
    far, near = Hostile(free_port()), Hostile(free_port())
    proxy = Proxy(far)
    silent = free_port()
    daemon = make_daemon(registry_proxy=proxy.url, registry_no_proxy="127.0.0.1",
                         registry_insecure=f"far.example {near.host} 127.0.0.1:{silent}",
                         registry_mirrors=f"many.example=127.0.0.1:{silent} many.example={near.host} far.example={near.host}")
    images = helpers.Images(daemon)
    try:
        far.image, near.image = image("behind the proxy"), image("near")
        # The first mirror does not answer, the second has it.
        assert images.pull("many.example/a/b:1")["digest"] == near.image.digest
        assert proxy.asked == []
        assert images.pull(f"{near.host}/direct:1", name="direct")["digest"] == near.image.digest
        # A mirror that lacks it: the registry itself, by the proxy, with the user's credentials, which the mirror did not see.
        near.reset()
        near.on_manifest = lambda rq: near.send(rq, 404, b"{}") or True
        far.basic = "Basic " + helpers.b64("u:p")
        assert images.pull("far.example/a/b:1", username="u", password="p")["digest"] == far.image.digest
        assert proxy.asked and all(path.startswith("http://far.example/v2/a/b/") for path in proxy.asked)
        assert near.requests and not any("Authorization" in headers for _, headers in near.requests)
        # A mirror that has the manifest and not every layer, or another one than its digest says: what it gives is used.
        for n, wrong in enumerate((None, b"something else")):
            far.image = Image([tar_of({f"f{i}": b"%d of mirrors %d" % (i, n)}) for i in range(8)])
            lost = far.image.layers[7]["digest"]

            def without(rq, digest, blob, lost=lost, wrong=wrong):
                if digest != lost:
                    return False
                if wrong is None:
                    near.send(rq, 404)
                else:
                    near.send(rq, 200, (wrong * len(blob))[:len(blob)])
                return True

            near.reset()
            near.image, near.on_blob = far.image, without
            far.requests.clear()
            got = images.pull(f"far.example/half/mirror-{n}:1", username="u", password="p")
            assert got["digest"] == far.image.digest and got["size_bytes"] == sum(len(b"%d of mirrors %d" % (i, n)) for i in range(8))
            asked = {path.rsplit("/", 1)[1] for path, _ in far.requests}
            assert lost in asked and far.image.digest not in asked and "1" not in asked
        # And one that lacks the configuration.
        near.reset()
        far.image = near.image = image("no configuration")
        near.on_blob = lambda rq, digest, blob: digest == far.image.body["config"]["digest"] and (near.send(rq, 404) or True)
        assert images.pull("far.example/half/configuration:1", username="u", password="p")["digest"] == far.image.digest
    finally:
        for server in (far, near):
            server.stop()
        proxy.server.shutdown()
        proxy.server.server_close()


def certificate(at, name, host, ca=None):
    """Files of a certificate and its key; of one that nobody has signed but itself, or a `ca`."""
    cert, key = at / f"{name}.pem", at / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
               "-keyout", key, "-out", cert]
    command += ["-addext", f"subjectAltName={host}", "-CA", ca[0], "-CAkey", ca[1], "-addext", "basicConstraints=critical,CA:FALSE"] if ca else []
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return cert, key


def test_certificates(make_daemon, tmp_path):
    """Of the authorities of the configuration, of nobody, and of a registry of which it does not count; redirects stay on TLS."""
    ca = certificate(tmp_path, "ca", "")
    trusted, other, unknown, insecure = servers = [Hostile(free_port(), tls=tls) for tls in (
        certificate(tmp_path, "trusted", "IP:127.0.0.1", ca), certificate(tmp_path, "other", "DNS:other.example", ca), certificate(tmp_path, "unknown", ""),
        certificate(tmp_path, "insecure", ""))]
    with tempfile.NamedTemporaryFile(dir="/etc", prefix="quicksand-test-", suffix=".pem") as file:      # roles see that directory
        file.write(ca[0].read_bytes())
        file.flush()
        os.chmod(file.name, 0o644)
        daemon = make_daemon(registry_ca=file.name, registry_insecure=insecure.host)
        images = helpers.Images(daemon)
        try:
            for server in servers:
                server.image = image(f"by TLS {server.port}")
            assert images.pull(f"{trusted.host}/a/b:1")["digest"] == trusted.image.digest
            assert images.pull(f"{insecure.host}/a/b:1")["digest"] == insecure.image.digest
            for server in (other, unknown):
                images.pull_fails(f"{server.host}/a/b:1", "unavailable", "certificate", username="me", password="secret")
                assert server.requests == []
            # Away from TLS nothing is followed, and what the insecure registry may do is not inherited.
            trusted.image = image("another by TLS")
            trusted.on_blob = lambda rq, digest, blob: trusted.send(rq, 307, b"", [("location", f"http://{trusted.host}/x")]) or True
            images.pull_fails(f"{trusted.host}/a/b:2", "permission_denied", "plain HTTP")
            insecure.image = image("from elsewhere")
            insecure.on_blob = lambda rq, digest, blob: insecure.send(rq, 307, b"", [("location", f"https://{unknown.host}/v2/a/b/blobs/{digest}")]) or True
            unknown.image = insecure.image
            images.pull_fails(f"{insecure.host}/a/b:2", "unavailable", "certificate")
            assert unknown.requests == []
        finally:
            for server in servers:
                server.stop()


class Tunnel(socketserver.ThreadingTCPServer):
    """A proxy that knows CONNECT, and every name: all of them are one server."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), None)
        self.to, self.asked = port, []
        self.url = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):
        head = b""
        while b"\r\n\r\n" not in head:
            data = request.recv(4096)
            if not data:
                return
            head += data
        self.asked.append(head.decode().split("\r\n"))
        if b"Proxy-Authorization: Basic " + helpers.b64("me:word").encode() not in head:
            request.sendall(b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.to)) as out:
            request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=self.copy, args=(out, request), daemon=True)
            back.start()
            self.copy(request, out)
            back.join(30)

    @staticmethod
    def copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)


def test_tls_through_a_proxy(make_daemon, tmp_path):
    """The proxy gets a name, and its own user and password; the certificate is checked beyond it."""
    ca = certificate(tmp_path, "ca", "")
    far = Hostile(free_port(), tls=certificate(tmp_path, "far", "DNS:far.example", ca))
    far.image, far.basic = image("far by TLS"), "Basic " + helpers.b64("u:p")
    tunnel = Tunnel(far.port)
    with tempfile.NamedTemporaryFile(dir="/etc", prefix="quicksand-test-", suffix=".pem") as file:
        file.write(ca[0].read_bytes())
        file.flush()
        os.chmod(file.name, 0o644)
        images = helpers.Images(make_daemon(registry_ca=file.name, registry_proxy=f"http://me:word@{tunnel.url}"))
        try:
            assert images.pull("far.example/a/b:1", username="u", password="p")["digest"] == far.image.digest
            assert {lines[0] for lines in tunnel.asked} == {"CONNECT far.example:443 HTTP/1.1"}
            assert not any("Authorization: Basic " + helpers.b64("u:p") in line for lines in tunnel.asked for line in lines)
            assert not any(k.lower() == "proxy-authorization" for _, headers in far.requests for k in headers)
            images.pull_fails("another.example/a/b:1", "unavailable", "another.example")        # the certificate is not for that name
        finally:
            far.stop()
            tunnel.shutdown()
            tunnel.server_close()
