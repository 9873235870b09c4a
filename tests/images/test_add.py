"""
ADD of URLs: what comes, under which name and attributes, when it is asked for again, what the build's network policy lets it reach, and
servers that do not do what they should.
"""

import hashlib
import io
import os
import tarfile
import time

import pytest
from test_build import begin, build, build_fails
from web import Web

LOCAL = {"rules": [{"cidrs": ["127.0.0.1"]}]}
WHEN = "Wed, 21 Oct 2015 07:28:00 GMT"


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def server():
    s = Web()
    yield s
    s.stop()


@pytest.fixture
def web(server):
    server.reset()
    return server


def paths(images, image, path):
    with images.box(image["id"]) as box:
        return {n: (box.stat(f"{path}/{n}"), box.read(f"{path}/{n}")) for n in box.names(path)}


def test_names_and_attributes(images, web):
    web.files = {"/a/file.txt": b"one", "/with%20blank": b"two", "/glob%5Ba%5D%2A": b"three", "/query": b"four", "/": b"root"}
    web.headers["/a/file.txt"] = {"Last-Modified": WHEN}
    u = web.url
    made, _ = build(images, f"""FROM base
WORKDIR /w
ADD {u}/a/file.txt /d/
ADD {u}/a/file.txt /d/other
ADD --chmod=0751 --chown=7:8 {u}/query?x=1#y /d/
ADD --link {u}/with%20blank {u}/glob%5Ba%5D%2A d2/
ADD ["{u}/", "/d/root"]
RUN mkdir /d3
ADD {u}/query /d3
""", network=LOCAL)
    found = paths(images, made, "/d")
    assert {n: c for n, (_, c) in found.items()} == {"file.txt": b"one", "other": b"one", "query": b"four", "root": b"root"}
    stat = found["file.txt"][0]
    assert (stat["mode"], stat["uid"], stat["gid"], int(stat["modified_at"])) == ("0600", 0, 0, 1445412480), stat
    assert int(found["root"][0]["modified_at"]) == 0
    assert [found["query"][0][k] for k in ("mode", "uid", "gid")] == ["0751", 7, 8]
    assert {n: c for n, (_, c) in paths(images, made, "/w/d2").items()} == {"with blank": b"two", "glob[a]*": b"three"}
    assert {n: c for n, (_, c) in paths(images, made, "/d3").items()} == {"query": b"four"}


def test_archives_stay_as_they_are(images, web):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("inside"), io.BytesIO(b""))
    web.files["/x.tar.gz"] = out.getvalue()
    made, _ = build(images, f"FROM base\nADD x.tar {web.url}/x.tar.gz /d/\n", files={"x.tar": out.getvalue()}, network=LOCAL)
    # That of the context is unpacked, the other is not.
    assert {n: c for n, (_, c) in paths(images, made, "/d").items()} == {"inside": b"", "x.tar.gz": out.getvalue()}


def test_a_variable_and_onbuild(images, web):
    web.files["/v1/tool"] = b"tool"
    web.files["/trigger"] = b"t"
    build(images, f"FROM base\nONBUILD ADD {web.url}/trigger /\n", name="add-onbuild")
    made, _ = build(images, f"FROM add-onbuild\nARG V=v1\nADD {web.url}/$V/tool /bin/tool\n", network=LOCAL)
    with images.box(made["id"]) as box:
        assert box.read("/bin/tool") == b"tool" and box.read("/trigger") == b"t"


def test_checksums(images, web):
    web.files["/sum"] = body = os.urandom(100_000)
    text = f"FROM base\nADD --checksum={sha(body)} {web.url}/sum /sum\n"
    made, _ = build(images, text, network=LOCAL)
    again, op = build(images, text, network=LOCAL)
    assert len(web.requests) == 1 and again["layers"] == made["layers"]
    assert any("cached" in line for line in images.log(op))
    # The file there may change: what is here is what was asked for. Without the cache it is noticed.
    web.files["/sum"] = b"other"
    build(images, text, network=LOCAL)
    op = build_fails(images, text, "invalid_argument", "line 2", "checksum", sha(b"other"), network=LOCAL, no_cache=True)
    assert len(web.requests) == 2
    build_fails(images, f"FROM base\nADD --checksum={sha(b'x')} {web.url}/sum /sum\n", "invalid_argument", "checksum", sha(b"other"), network=LOCAL)


@pytest.mark.parametrize("name", ["ETag", "Last-Modified"])
def test_what_has_not_changed_is_not_sent_again(images, web, name):
    path = "/" + name
    web.files[path], web.headers[path] = b"first " + name.encode(), {name: '"v1"' if name == "ETag" else WHEN}
    text = f"FROM base\nADD {web.url}{path} /f\nRUN cat /f >/g\n"
    made, _ = build(images, text, network=LOCAL)
    again, op = build(images, text, network=LOCAL)
    assert again["layers"] == made["layers"] and op["result"]["cached_steps"] == 1
    assert any("has not changed" in line for line in images.log(op))
    field = "If-None-Match" if name == "ETag" else "If-Modified-Since"
    assert [headers.get(field) for _, headers in web.requests] == [None, web.headers[path][name]]
    web.files[path], web.headers[path] = b"second " + name.encode(), {name: '"v2"' if name == "ETag" else "Wed, 21 Oct 2015 07:29:00 GMT"}
    changed, op = build(images, text, network=LOCAL)
    assert op["result"]["cached_steps"] == 0
    with images.box(changed["id"]) as box:
        assert box.read("/g") == b"second " + name.encode()


def test_a_server_that_says_nothing_is_asked_each_time(images, web):
    web.files["/plain"] = b"first"
    text = f"FROM base\nADD {web.url}/plain /f\n"
    build(images, text, network=LOCAL)
    web.files["/plain"] = b"second"
    made, _ = build(images, text, network=LOCAL)
    with images.box(made["id"]) as box:
        assert box.read("/f") == b"second"
    assert len(web.requests) == 2


def test_redirects_and_trouble_that_passes(images, web):
    web.files["/end"] = b"end"
    web.redirects = {"/one": "/two", "/two": f"http://localhost:{web.port}/end", "/loop": "/loop", "/file": "file:///etc/passwd",
                     "/far": "http://169.254.169.254/latest/meta-data", "/nowhere": ""}
    web.answers["/end"] = [503, 500]
    named = {"rules": [{"cidrs": ["127.0.0.0/8"]}, {"domains": ["localhost"], "cidrs": ["127.0.0.0/8", "::1"]}]}
    made, _ = build(images, f"FROM base\nADD {web.url}/one /d/\n", network=named)
    # The name is that of the first URL.
    assert {n: c for n, (_, c) in paths(images, made, "/d").items()} == {"one": b"end"}
    build_fails(images, f"FROM base\nADD {web.url}/one /d/\n", "permission_denied", "no rule for the name localhost", network=LOCAL)
    build_fails(images, f"FROM base\nADD {web.url}/loop /d/\n", "unavailable", "more than 10 times", network=LOCAL)
    build_fails(images, f"FROM base\nADD {web.url}/file /d/\n", "invalid_argument", "no URL of http", network=LOCAL)
    build_fails(images, f"FROM base\nADD {web.url}/far /d/\n", "permission_denied", "169.254.169.254", network=LOCAL)


def test_each_path_is_judged_also_on_a_connection_that_stands(images, web):
    web.files = {"/open/here": b"here", "/closed": b"closed"}
    web.redirects = {"/open/in": "/open/here", "/open/out": "/closed"}
    rules = {"rules": [{"domains": ["localhost"], "cidrs": ["127.0.0.0/8", "::1"], "paths": ["/open/*"]}]}
    url = f"http://localhost:{web.port}"
    made, _ = build(images, f"FROM base\nADD {url}/open/in /d/\n", network=rules)
    assert {n: c for n, (_, c) in paths(images, made, "/d").items()} == {"in": b"here"}
    build_fails(images, f"FROM base\nADD {url}/open/out /d/\n", "permission_denied", "network policy", "/closed", network=rules)
    assert "/closed" not in [path for path, _ in web.requests]


@pytest.mark.parametrize("network", [None, "open", {"rules": [{"domains": ["*"]}]}, {"rules": [{"cidrs": ["10.0.0.0/8"]}]},
                                     {"rules": [{"cidrs": ["127.0.0.1"], "ports": [1]}]},
                                     {"rules": [{"action": "deny", "cidrs": ["127.0.0.1"]}, {"cidrs": ["127.0.0.0/8"]}]}],
                         ids=["default", "open", "names", "others", "port", "deny"])
def test_private_addresses_are_closed(images, web, network):
    web.files["/secret"] = b"secret"
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1", "0x7f000001"):
        build_fails(images, f"FROM base\nADD http://{host}:{web.port}/secret /d/\n", "permission_denied", "network policy", network=network)
    assert web.requests == []


def test_a_build_without_a_network(images, web):
    web.files["/x"] = b"x"
    build_fails(images, f"FROM base\nADD {web.url}/x /x\n", "invalid_argument", "line 2, column 5", "the build has no network", network="block")
    assert web.requests == []


@pytest.mark.parametrize("path,code,words", [
    ("missing", "not_found", ["404"]), ("denied", "permission_denied", ["403"]), ("busy", "rate_limited", ["429"]),
    ("broken", "unavailable", ["500"]), ("cut", "unavailable", ["cannot be fetched"]), ("slow", "timeout", ["/slow"]),
    ("endless", "too_large", ["more than 1048576 bytes"]),
])
def test_servers_that_fail(images, web, path, code, words):
    web.answers = {"/denied": [403], "/busy": [429] * 9, "/broken": [500] * 9}
    op = build_fails(images, f"FROM base\nADD {web.url}/{path} /x\n", code, "line 2", f"{web.url}/{path}", *words, network=LOCAL, disk_mb=1)
    assert op["image"] is None and images.staged() == []


def test_nobody_listens(images, web):
    build_fails(images, "FROM base\nADD http://127.0.0.1:9/x /x\n", "unavailable", "line 2", "127.0.0.1", network=LOCAL)
    build_fails(images, f"FROM base\nADD https://{web.host}/x /x\n", "unavailable", "line 2", network=LOCAL)
    build_fails(images, "FROM base\nADD http://no-such-host.invalid/x /x\n", "unavailable", "line 2", "no-such-host.invalid", network="open")


def test_cancelled(images, web):
    r = begin(images, f"FROM base\nADD {web.url}/endless /x\n", network=LOCAL)
    assert r.status_code == 202, r.text
    give_up = time.monotonic() + 60
    while not web.requests:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert images.api.post(f"/v1/operations/{r.json()['id']}/cancel").status_code == 202
    op = images.wait(r.json())
    assert op["state"] == "cancelled", op
    give_up = time.monotonic() + 60
    while images.staged():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_a_time_limit(images, web):
    web.redirects["/again"] = "/slow"
    build_fails(images, f"FROM base\nADD {web.url}/endless /x\n", "timeout", "/endless", network=LOCAL, step_timeout_s=1)


@pytest.mark.parametrize("line,words", [
    ("ADD https://example.com/a/b.git /x", ["line 2, column 5", "git"]),
    ("ADD https://example.com/a/b.git#v1:sub /x", ["line 2, column 5", "git"]),
    ("ADD --chmod=644 git@example.com:a/b /x", ["line 2, column 17", "git"]),
    ("ADD ssh://git@example.com/a /x", ["line 2, column 5", "git"]),
    ("ADD ftp://example.com/a /x", ["line 2, column 5", "http://"]),
    ("ADD https://example.com/ /x/", ["line 2, column 5", "file name"]),
    ("ADD https://example.com/%2e%2e /x/", ["line 2, column 5", "no name of a file"]),
    ("ADD https://example.com/a%00b /x", ["line 2, column 5", "no name of a file"]),
    ("ADD https://me:pass@example.com/a /x", ["line 2", "has a user"]),
    ("ADD --checksum=md5:12 https://example.com/a /x", ["--checksum is 'md5:12'"]),
    (f"ADD --checksum=sha256:{'A' * 64} https://example.com/a /x", ["--checksum is 'sha256:AAA"]),
    (f"ADD --checksum=sha256:{'0' * 64} https://example.com/a https://example.com/b /x/", ["one source alone"]),
    (f"ADD --checksum=sha256:{'0' * 64} x /x", ["--checksum is for a file of http"]),
    (f"COPY --checksum=sha256:{'0' * 64} x /x", ["no flag --checksum"]),
    ("COPY https://example.com/a /x", ["ADD fetches files"]),
    ("ADD https://example.com/" + "a" * 3000 + " /x", ["2047 bytes"]),
], ids=lambda v: v[:40] if isinstance(v, str) else "")
def test_what_is_refused(images, line, words):
    op = build_fails(images, "FROM base\n" + line + "\n", "invalid_argument", *words, files={"x": b"x"})
    assert "me:pass" not in op["error"]["message"] or "ADD" in op["error"]["message"]
