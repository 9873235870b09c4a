"""The API process itself: one port for every protocol, images, tokens, restarts."""

import concurrent.futures
import io
import json
import signal
import socket
import sqlite3
import subprocess
import tarfile
import threading
import time

import pytest

from test_reports_exec import error
from test_reports_stdio import output


def curl(*args):
    r = subprocess.run(["curl", "-sS", *args], capture_output=True, timeout=30)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("options,scheme,version", [
    (["--http1.1"], "http", b"1.1"),
    (["--http2-prior-knowledge"], "http", b"2"),
    (["--http1.1", "-k"], "https", b"1.1"),
    (["--http2", "-k"], "https", b"2"),
])
def test_one_port_speaks_every_protocol(daemon, options, scheme, version):
    url = f"{scheme}://127.0.0.1:{daemon.port}/v1/me"
    out = curl(*options, "-w", "\n%{http_version} %{http_code}", "-H", f"authorization: Bearer {daemon.token}", url)
    body, status = out.rsplit(b"\n", 1)
    assert status == version + b" 200"
    assert json.loads(body)["scopes"] == ["*"]


@pytest.mark.parametrize("path,status", [
    ("modal.client.ModalClient/SandboxCreate", 16),         # no token
    ("modal.client.ModalClient/NoSuchCall", 12),
    ("no.such.Service/Call", 12),
    ("quicksand.node.Node/List", 12),                       # the node's own service is not served to clients
])
def test_grpc_calls_that_cannot_be_served_are_told_why(daemon, path, status):
    head = curl("--http2-prior-knowledge", "-D", "-", "-o", "/dev/null", "-X", "POST", "--data-binary", "",
                "-H", "content-type: application/grpc", "-H", "te: trailers", f"http://127.0.0.1:{daemon.port}/{path}")
    assert f"grpc-status: {status}\r".encode() in head.lower()


def test_paths_and_methods_that_are_not_there(api):
    error(api.get("/v1/nothing"), 404, "not_found")
    error(api.get("/"), 404, "not_found")
    r = api.put("/v1/sandboxes", json={})
    error(r, 405, "method_not_allowed")
    assert set(r.headers["allow"].split(", ")) == {"GET", "POST"}
    error(api.get("/v1/sandboxes/%2e%2e%2fetc"), 404, "not_found")
    error(api.get("/v1/sandboxes?app=a%00"), 400, "malformed_request")


def test_every_answer_has_a_request_id(api):
    assert api.get("/v1/me").headers["x-request-id"].startswith("rq-")
    assert api.get("/v1/me", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    r = api.get("/v1/sandboxes/none", headers={"x-request-id": "mine-2"})
    assert r.json()["error"]["request_id"] == "mine-2" == r.headers["x-request-id"]
    assert r.headers["content-type"] == "application/problem+json"
    assert api.get("/v1/me", headers={"x-request-id": "not harmless"}).headers["x-request-id"].startswith("rq-")


def test_bodies_have_a_limit(api):
    error(api.post("/v1/sandboxes", content=b"{" + b" " * (2 << 20)), 413, "too_large")

    def pieces():
        for _ in range(40):
            yield b" " * 65536

    error(api.post("/v1/sandboxes", content=pieces()), 413, "too_large")
    assert api.get("/v1/me").status_code == 200


def test_the_description_names_every_operation(api):
    doc = api.get("/openapi.json", headers={"authorization": ""}).json()
    assert doc["openapi"].startswith("3.1")
    create = doc["paths"]["/v1/sandboxes"]["post"]
    assert create["x-scope"] == "sandbox:create"
    assert create["requestBody"]["content"]["application/json"]["schema"]["properties"]["timeout_s"]["type"] == ["number", "null"]
    ids = [op["operationId"] for path in doc["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids)) > 40
    assert {e["code"] for e in api.get("/v1/errors").json()["items"]} >= {"not_found", "internal"}
    assert {e["name"]: e["value"] for e in api.get("/v1/limits").json()["items"]}["tags"] == 64


def tar_of(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def test_images_have_names_and_a_life(api):
    query = {"name": "tiny", "env": ["A=1", "B=x=y"], "workdir": "/work", "user": "12:34"}
    r = api.post("/v1/images", params=query, content=tar_of({"file": b"content"}))
    assert r.status_code == 201, r.text
    image = r.json()
    assert (image["names"], image["env"], image["workdir"], image["user"]) == (["tiny"], {"A": "1", "B": "x=y"}, "/work", "12:34")
    # One image has more to show than one of a list, or one just made.
    shown = api.get("/v1/images/tiny").json()
    assert shown == api.get(f"/v1/images/{image['id']}").json()
    assert {k: shown[k] for k in image} == image
    assert [x["bytes"] for x in shown["layer_details"]] == [7] and shown["sandboxes"] == []
    again = api.post("/v1/images", params={"name": "tiny"}, content=tar_of({"file": b"content"})).json()
    assert again["layers"] == image["layers"]
    assert api.get("/v1/images/tiny").json()["id"] == again["id"]
    assert api.put("/v1/images/names/tiny", json={"image": image["id"]}).json()["id"] == image["id"]
    error(api.put("/v1/images/names/tiny", json={"image": "none"}), 404, "not_found")
    error(api.put("/v1/images/names/im-x", json={"image": "tiny"}), 400, "invalid_argument")
    assert {i["id"] for i in api.get("/v1/images", params={"limit": 1000}).json()["items"]} >= {image["id"], again["id"]}
    for i in (image, again):
        assert api.delete(f"/v1/images/{i['id']}").status_code == 204
    error(api.get("/v1/images/tiny"), 404, "not_found")
    error(api.post("/v1/images", params={"name": "a/b"}, content=b""), 400, "invalid_argument")
    error(api.post("/v1/images", params={"env": "novalue"}, content=b""), 400, "invalid_argument")
    error(api.post("/v1/images", content=b"this is no archive" * 100), 400, "invalid_argument")


def test_an_image_in_use_stays(api):
    with api.sandbox():
        error(api.delete("/v1/images/base"), 409, "conflict")


def test_the_defaults_of_a_sandbox_reach_its_commands(api):
    with api.sandbox(env={"X": "y"}, workdir="/made/when/missing", user="nobody") as sb:
        r = api.run(sb, ["sh", "-c", "pwd; id -un; echo $X"])
        assert output(r) == b"/made/when/missing\nnobody\ny\n"
        assert (sb["workdir"], sb["user"]) == ("/made/when/missing", "nobody")


def test_tokens_cannot_give_what_they_lack(api):
    t = api.post("/v1/tokens", json={"name": "admin-only", "scopes": ["token:admin"], "expires_s": 60}).json()
    mine = {"authorization": f"Bearer {t['id']}.{t['secret']}"}
    error(api.post("/v1/tokens", json={"name": "more", "scopes": ["*"]}, headers=mine), 403, "permission_denied")
    body = error(api.post("/v1/tokens", json={"name": "typo", "scopes": ["sandbox:reed"]}), 400, "invalid_argument")
    assert "sandbox:read" in body["hint"]
    assert abs(t["expires_at"] - t["created_at"] - 60) < 1
    assert api.delete(f"/v1/tokens/{t['id']}", headers=mine).status_code == 204
    error(api.get("/v1/me", headers=mine), 401, "unauthenticated")


def test_secrets_are_kept_as_hashes_only(make_daemon):
    d = make_daemon()
    t = d.api.post("/v1/tokens", json={"name": "n", "scopes": ["*"]}).json()
    state = d.data_dir / "control/state.db"
    everything = b"".join(p.read_bytes() for p in state.parent.glob("state.db*"))
    assert t["id"].encode() in everything
    assert t["secret"].encode() not in everything and d.token.split(".")[1].encode() not in everything
    assert state.stat().st_mode & 0o777 == 0o600
    assert (d.data_dir / "control/admin-token").stat().st_mode & 0o777 == 0o600


def test_control_may_die_at_any_time(make_daemon):
    d = make_daemon()
    over = threading.Event()
    made, failed = [], []

    def creator(n):
        while not over.is_set():
            try:
                r = d.api.post("/v1/sandboxes", json={"app": f"worker-{n}"}, timeout=30)
                (made if r.status_code == 201 else failed).append(r.json())
            except Exception as e:      # the connection broke: nothing was promised
                failed.append(repr(e))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(creator, n) for n in range(4)]
        for _ in range(6):
            time.sleep(0.4)
            d.kill_role("control")
            d.wait_ready()
        over.set()
        for j in jobs:
            j.result()
    promised = {s["id"] for s in made}
    give_up = time.monotonic() + 10
    while True:
        listed = {s["id"]: s["state"] for s in d.api.get("/v1/sandboxes", params={"limit": 1000}).json()["items"]}
        real = {p.name for p in (d.data_dir / "run").iterdir() if p.name.startswith("sb-")}
        if set(listed) == real and set(listed.values()) <= {"running"} or time.monotonic() > give_up:
            break
        time.sleep(0.2)
    assert set(listed) == real
    assert promised <= set(listed)
    assert set(listed.values()) <= {"running"}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda i: d.api.delete(f"/v1/sandboxes/{i}", timeout=60).status_code, listed)) <= {204}


def test_a_stop_is_orderly_and_answers_who_waits(make_daemon):
    d = make_daemon()
    with d.api.sandbox() as sb:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(d.api.get, f"/v1/sandboxes/{sb.id}", params={"wait": "exit", "timeout_s": 60}, timeout=90)
            time.sleep(0.5)
            d.kill_role("control", signal.SIGTERM)
            error(waiting.result(), 503, "unavailable")
        d.wait_ready()
        assert d.api.get(f"/v1/sandboxes/{sb.id}").json()["state"] == "running"
    path = d.data_dir / "control/state.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("role", ["control", "node"])
def test_a_client_waits_while_a_role_restarts(daemon, role):
    """The keeper has the listener: nobody is refused, and who came meanwhile is served by the next one."""
    port = daemon.port if role == "control" else daemon.router_port
    before = daemon.pids(role)
    daemon.kill_role(role)
    waiting = []
    give_up = time.monotonic() + 30
    while not daemon.pids(role) or daemon.pids(role) == before or len(waiting) < 20:
        assert time.monotonic() < give_up
        waiting.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        time.sleep(0.02)
    for s in (waiting[0], waiting[-1]):
        s.sendall(b"GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 " + (b"200" if role == "control" else b"404"))
    for s in waiting:
        s.close()
    daemon.wait_ready()
