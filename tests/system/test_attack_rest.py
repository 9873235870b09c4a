"""Abuse of the REST API: narrow tokens, odd values, races on one id, clients that vanish."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import socket
import threading
import time

import httpx
import pytest

SCOPES = ["sandbox:create", "sandbox:read", "sandbox:write", "exec:read", "exec:write", "files:read", "files:write",
          "image:read", "image:write", "secret:read", "secret:write", "token:admin"]


def operations(api):
    doc = api.get("/openapi.json").json()
    for path, methods in doc["paths"].items():
        for method, op in methods.items():
            yield method.upper(), path, op


def filled(path, sb):
    values = {"id": sb.id, "exec_id": "e1", "app": "default", "name": "n", "image": "base"}
    if path.startswith("/v1/tokens"):
        values["id"] = "tk-" + "A" * 22
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], "x"), path)


def token(api, scopes, **more):
    t = api.post("/v1/tokens", json={"name": "attack", "scopes": scopes, **more}).json()
    return t["id"], {"authorization": f"Bearer {t['id']}.{t['secret']}"}


@pytest.fixture(scope="module")
def sb(daemon):
    with daemon.api.sandbox(idle_timeout_s=None) as sandbox:
        yield sandbox


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def rss_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def settle(pids, before, slack, seconds=20):
    """The descriptors of the processes, once they are at most `before` + slack, or at the end of the time."""
    end = time.monotonic() + seconds
    while True:
        now = {role: descriptors(pid) for role, pid in pids.items()}
        if all(now[r] <= before[r] + slack for r in now) or time.monotonic() > end:
            return now
        time.sleep(0.1)


# --- who may do what


def test_every_operation_asks_for_its_scope(api, sb):
    everything_but = {s: token(api, [x for x in SCOPES if x != s]) for s in SCOPES}
    seen = 0
    try:
        for method, path, op in operations(api):
            if not op.get("x-scope"):
                continue
            url = filled(path, sb)
            for headers in ({"authorization": ""}, {"authorization": "Bearer tk-none.x"}, {"authorization": "Basic eDp5"}):
                r = api.request(method, url, headers=headers)
                assert r.status_code == 401, (method, path, r.text)
            # An operation that needs no more than a valid token names no scope of the list.
            if op["x-scope"] not in everything_but:
                continue
            r = api.request(method, url, headers=everything_but[op["x-scope"]][1])
            assert (r.status_code, r.json()["error"]["code"]) == (403, "permission_denied"), (method, path, r.text)
            seen += 1
    finally:
        for i, _ in everything_but.values():
            api.delete(f"/v1/tokens/{i}")
    assert seen > 40


def test_a_token_is_refused_from_its_end_on(api):
    i, mine = token(api, ["sandbox:read"], expires_s=1)
    assert api.get("/v1/me", headers=mine).status_code == 200
    time.sleep(1.2)
    assert api.get("/v1/me", headers=mine).status_code == 401
    for odd in ("Bearer", "Bearer .", f"Bearer {i}", f"Bearer {i}.", "Bearer " + "x" * 5000,
                f"Bearer {i}." + "A" * 43, "bearer\t" + i, "Bearer  " + i):
        assert api.get("/v1/me", headers={"authorization": odd}).status_code == 401, odd


ODD_TEXTS = ["..", ".", "%2e%2e", "..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "a%00b", "%ff%fe", "x" * 300, "%", "%zz",
             "*", "'", "%22%3b--", "sb-" + "A" * 22 + "%2f..", "entry", "-", "%0d%0aset-cookie:x", "%25s%25n", "AP-x", "~"]


def test_odd_ids_are_errors_of_the_client(api, daemon, sb):
    """No id of a path reaches a file system or a statement: each is refused, and by a 4xx."""
    for method, path, _op in operations(api):
        names = re.findall(r"\{(\w+)\}", path)
        for name in names:
            for odd in ODD_TEXTS:
                if name == "exec_id" and odd == "entry" and method == "GET":
                    continue
                if method == "PUT" and name in ("app", "name"):
                    continue
                url = filled(path.replace("{%s}" % name, "\0"), sb).replace("\0", odd)
                with socket.create_connection(("127.0.0.1", daemon.port)) as s:
                    s.settimeout(20)
                    s.sendall(f"{method} {url} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n"
                              "content-length: 0\r\nconnection: close\r\n\r\n".encode())
                    status = int(s.recv(4096).split(b" ", 2)[1])
                assert 400 <= status < 500, (method, url, status)
    assert api.get("/v1/health").json()["status"] == "ok"


ODD_BODIES = [
    b"[" * 100000, b'{"a":' * 5000, b'{"command": ["true"], "command": ["false"]}', b'{"command": ["true"], "timeout_s": 1e400}',
    b'{"command": ["true"], "timeout_s": -1}', b'{"command": ["true"], "timeout_s": NaN}', b'{"command": ["\\ud800"]}',
    b'{"command": ["\\udc00\\ud800"]}', b'{"command": ["\xff"]}', b'{"command": ["\xc0\x80"]}', b'{"command": ["a\\u0000b"]}',
    b"\xef\xbb\xbf{}", b"null", b"1", b'"x"', b"{}{}", b'{"command": []}', b'{"command": [""]}', b'{"command": "true"}',
    b'{"command": ["true"], "env": {"a=b": "c"}}', b'{"command": ["true"], "env": {"": "c"}}', b'{"command": [1]}',
    b'{"command": ["true"], "nice": 99999999999999999999}', b'{"command": ["true"], "nofile": -1}',
    b'{"command": ["true"], "umask": "999"}', b'{"command": ["true"], "tty": {"rows": 0, "cols": 1}}',
    b'{"command": ["true"], "output_limit_bytes": -5}', b'{"command": ["true"], "grace_s": 1e308}', b"{" + b" " * 900000,
    b'{"command": [' + b'"x",' * 200000 + b'"x"]}', b'{"command": ["' + b"x" * 200000 + b'"]}', b"'", b"{'a':1}", b"{,}", b"",
]


def test_odd_bodies_are_refused(api, sb):
    for body in ODD_BODIES:
        for url in (f"/v1/sandboxes/{sb.id}/execs", f"/v1/sandboxes/{sb.id}/run"):
            r = api.post(url, content=body)
            assert r.status_code in (400, 413), (body[:60], r.status_code, r.text)
        r = api.patch(f"/v1/sandboxes/{sb.id}", content=body)
        assert r.status_code in (400, 413) or body == b"", (body[:60], r.status_code, r.text)
    assert api.run(sb, ["echo", "ok"])["stdout"] == "ok\n"


# --- races on one id


def at_once(n, call):
    """call(i) in n threads that start together."""
    barrier = threading.Barrier(n)

    def one(i):
        barrier.wait()
        return call(i)

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, range(n)))


def test_of_parallel_starts_of_one_id_one_made_it(api, sb):
    for round_ in range(12):
        body = {"command": ["sh", "-c", f"echo x >> /tmp/race-{round_}"]}
        url = f"/v1/sandboxes/{sb.id}/execs/race-{round_}"
        answers = at_once(8, lambda _: api.put(url, json=body))
        assert sorted(r.status_code for r in answers) == [200] * 7 + [201], [r.text for r in answers]
        assert len({r.json()["pid"] for r in answers}) == 1
        assert api.get(url, params={"wait": "exit"}).json()["exit"]["code"] == 0
        assert api.put(url, json=body).status_code == 200
        assert api.run(sb, ["cat", f"/tmp/race-{round_}"])["stdout"] == "x\n"


def test_every_field_of_a_start_counts_for_a_conflict(api, sb):
    body = {"command": ["true"], "timeout_s": 5}
    url = f"/v1/sandboxes/{sb.id}/execs/fields"
    assert api.put(url, json=body).status_code == 201
    for other in ({"timeout_s": 6}, {"grace_s": 1}, {"output_limit_bytes": 4096}, {"env": {"a": "b"}}, {"nice": 1},
                  {"workdir": "/"}, {"stdin": True}, {"stderr": "merge"}, {"tty": True}):
        assert api.put(url, json={**body, **other}).status_code == 409, other
    assert api.put(url, json=body).status_code == 200


def test_of_different_commands_under_one_id_one_wins(api, sb):
    url = f"/v1/sandboxes/{sb.id}/execs/differ"
    answers = at_once(8, lambda i: api.put(url, json={"command": ["echo", str(i)]}))
    assert sorted(r.status_code for r in answers) == [201] + [409] * 7
    won = next(i for i, r in enumerate(answers) if r.status_code == 201)
    api.get(url, params={"wait": "exit"})
    assert api.get(url + "/stdout").text == f"{won}\n"


def test_start_and_delete_of_one_id(api, sb):
    """Whatever order they take: answers that make sense, and no exec twice under one id."""
    url = f"/v1/sandboxes/{sb.id}/execs/again"
    for _ in range(10):
        answers = at_once(8, lambda i: api.delete(url) if i % 2 else api.put(url, json={"command": ["sleep", "60"]}))
        # 409: told by a start that met the one being removed.
        assert {r.status_code for r in answers} <= {200, 201, 204, 404, 409}, [r.text for r in answers]
        listed = [x["id"] for x in api.get(f"/v1/sandboxes/{sb.id}/execs").json()["items"]]
        assert listed.count("again") <= 1
        assert api.delete(url).status_code in (204, 404)
    assert api.run(sb, ["pgrep", "-c", "sleep"])["stdout"] == "0\n"


def test_create_key_and_name_races(api):
    key = os.urandom(8).hex()
    answers = at_once(6, lambda _: api.post("/v1/sandboxes", json={}, headers={"idempotency-key": key}))
    ok = [r.json()["id"] for r in answers if r.status_code == 201]
    assert ok and len(set(ok)) == 1, [r.text for r in answers]
    assert {r.status_code for r in answers} <= {201, 409}
    assert api.delete(f"/v1/sandboxes/{ok[0]}").status_code == 204

    answers = at_once(6, lambda _: api.post("/v1/sandboxes", json={"name": "raced"}))
    made = [r.json()["id"] for r in answers if r.status_code == 201]
    assert len(made) == 1 and {r.status_code for r in answers} == {201, 409}
    answers = at_once(6, lambda _: api.post("/v1/sandboxes", json={"name": "raced", "if_exists": "return"}))
    assert {(r.status_code, r.json()["id"]) for r in answers} == {(200, made[0])}
    answers = at_once(5, lambda _: api.post("/v1/sandboxes", json={"name": "raced", "if_exists": "replace"}))
    assert {r.status_code for r in answers} <= {201, 409}, [r.text for r in answers]
    live = api.get("/v1/sandboxes", params={"name": "raced"}).json()["items"]
    assert len(live) == 1, live
    for r in answers:
        if r.status_code == 201:
            assert api.delete(f"/v1/sandboxes/{r.json()['id']}").status_code in (204, 404)
    assert not api.get("/v1/sandboxes", params={"name": "raced"}).json()["items"]


def test_terminate_delete_and_use_at_once(api, daemon):
    for _ in range(4):
        r = api.post("/v1/sandboxes", json={})
        url = f"/v1/sandboxes/{r.json()['id']}"
        calls = [lambda: api.post(url + "/terminate", json={"grace_s": 0}), lambda: api.delete(url),
                 lambda: api.post(url + "/run", json={"command": ["sleep", "3"]}),
                 lambda: api.put(url + "/files", params={"path": "/x"}, content=b"x" * 100000),
                 lambda: api.get(url, params={"wait": "exit"}), lambda: api.delete(url),
                 lambda: api.patch(url, json={"name": "late"}), lambda: api.put(url + "/tags", json={"a": "b"})]
        random.shuffle(calls)
        began = time.monotonic()
        answers = at_once(len(calls), lambda i: calls[i]())
        assert time.monotonic() - began < 8
        assert all(r.status_code < 500 or r.json()["error"]["retryable"] for r in answers), [r.text for r in answers]
        assert api.get(url).status_code == 404
        assert not (daemon.data_dir / "run" / url.split("/")[-1]).exists()


# --- clients that vanish


def raw(daemon, method, url, body=b"", head="", declare=None):
    s = socket.create_connection(("127.0.0.1", daemon.port))
    s.settimeout(20)
    s.sendall(f"{method} {url} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n{head}"
              f"content-length: {len(body) if declare is None else declare}\r\n\r\n".encode() + body)
    return s


def vanish(s, how):
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if how == "half":
        s.shutdown(socket.SHUT_WR)
        time.sleep(0.005)
    s.close()


def test_clients_that_vanish_leave_nothing(api, daemon, sb):
    pids = {r: daemon.pids(r)[0] for r in ("control", "node")}
    box = f"/v1/sandboxes/{sb.id}"
    slow = json.dumps({"command": ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep .05; done"]}).encode()
    flood = json.dumps({"command": ["sh", "-c", "head -c 3000000 /dev/zero"]}).encode()
    api.run(sb, ["sh", "-c", "head -c 3000000 /dev/zero > /tmp/big"])
    api.put(f"{box}/execs/long", json={"command": ["sleep", "600"], "stdin": True})
    ws = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    phases = [
        ("POST", box + "/run", slow, "", None), ("POST", box + "/run", flood, "", None), ("POST", box + "/run", slow, "", 5000),
        ("GET", box + "?wait=exit&timeout_s=600", b"", "", None), ("GET", box + "/execs/long?wait=exit", b"", "", None),
        ("GET", box + "/execs/long/stdout", b"", "", None), ("GET", box + "/execs/long/events", b"", "", None),
        ("GET", box + "/execs/long/ws", b"", ws, None), ("POST", box + "/execs/long/stdin", b"x" * 200000, "", 400000),
        ("PUT", box + "/files?path=/tmp/up", b"x" * 200000, "", 400000), ("GET", box + "/files?path=/tmp/big", b"", "", None),
        ("GET", box + "/files/archive?path=/usr/lib", b"", "", None), ("GET", box + "/files/watch?path=/tmp", b"", "", None),
        ("PUT", box + "/files/archive?path=/tmp/t", b"\0" * 512, "", 102400), ("POST", "/v1/images", b"junk" * 100, "", 100000),
        ("POST", "/v1/sandboxes", b"{}", "", 3), ("GET", box + "/logs", b"", "", None),
    ]

    def rounds(n):
        for i in range(n):
            for phase in phases:
                with contextlib.suppress(OSError):
                    s = raw(daemon, *phase)
                    if i % 3:
                        time.sleep(random.random() * 0.05)
                    vanish(s, ("reset", "close", "half")[i % 3])

    rounds(2)
    before = settle(pids, {r: 0 for r in pids}, 0, 3)
    memory = {r: rss_kb(pid) for r, pid in pids.items()}
    rounds(9)
    after = settle(pids, before, 4)
    assert all(after[r] <= before[r] + 4 for r in pids), (before, after)
    grown = {r: rss_kb(pid) - memory[r] for r, pid in pids.items()}
    assert all(v < 24000 for v in grown.values()), grown
    # What the helpers had been doing is over too, and the upload that broke off changed nothing.
    api.delete(f"{box}/execs/long")
    end = time.monotonic() + 10
    while time.monotonic() < end and api.run(sb, ["sh", "-c", "ps ax | grep -c '[f]s-tools'"])["stdout"] != "0\n":
        time.sleep(0.2)
    assert api.run(sb, ["sh", "-c", "ps ax | grep '[f]s-tools'; ls /tmp/up 2>/dev/null"])["stdout"] == ""
    left = [p for p in daemon.data_dir.glob("layers/.staging/*")]
    assert not left


def test_a_thousand_long_polls(api, daemon, sb):
    pids = {r: daemon.pids(r)[0] for r in ("control", "node")}
    before = {r: descriptors(pid) for r, pid in pids.items()}
    api.put(f"/v1/sandboxes/{sb.id}/execs/polled", json={"command": ["sleep", "600"]})
    url = f"/v1/sandboxes/{sb.id}/execs/polled?wait=exit&timeout_s=300"
    polls = [raw(daemon, "GET", url) for _ in range(1000)]
    began = time.monotonic()
    assert api.run(sb, ["echo", "ok"])["stdout"] == "ok\n"
    assert time.monotonic() - began < 5
    assert api.post(f"/v1/sandboxes/{sb.id}/execs/polled/signal", json={"signal": 9}).status_code == 204
    for s in polls:
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
        s.close()
    after = settle(pids, before, 4)
    assert all(after[r] <= before[r] + 4 for r in pids), (before, after)


def test_pipelined_requests_after_an_error(daemon, sb):
    one = (f"GET /v1/me HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n\r\n").encode()
    bad = (f"POST /v1/sandboxes/{sb.id}/run HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n"
           "transfer-encoding: chunked\r\n\r\n5\r\n{\"x\":\r\n0\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.settimeout(10)
        s.sendall((bad + one) * 10)
        got = b""
        while got.count(b"HTTP/1.1 ") < 20:
            part = s.recv(65536)
            assert part, got
            got += part
    assert got.count(b"HTTP/1.1 400") == 10 and got.count(b"HTTP/1.1 200") == 10


@pytest.mark.parametrize("tail", [
    b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", b"transfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
    b"transfer-encoding: chunked\r\n\r\n-1\r\nx", b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"transfer-encoding: chunked\r\n\r\n3\nabc\n0\n\n", b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    b"content-length: +1\r\n\r\nx", b"content-length: 18446744073709551616\r\n\r\nx", b"content-length: 0x1\r\n\r\nx",
    b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n", b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * 200000,
], ids=lambda tail: repr(tail[:40]))
def test_unclear_lengths_end_the_connection(daemon, tail):
    """What follows such a request is never taken for another one."""
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.settimeout(10)
        with contextlib.suppress(OSError):
            s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\n" + tail + b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while part := s.recv(65536):
                got += part
    assert b" 200 " not in got and got.count(b"HTTP/1.1 ") <= 1, got
