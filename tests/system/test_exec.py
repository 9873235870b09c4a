"""Commands over REST: starting, waiting, output by offset, stdin, signals, terminals, events, WebSocket, run."""

import base64
import json
import os
import re
import socket
import struct
import threading
import time

import httpx
import pytest

from qsdaemon import error


def url(sb, exec_id=None, what=""):
    return f"/v1/sandboxes/{sb.id}/execs" + (f"/{exec_id}{what}" if exec_id else "")


def start(api, sb, command, **fields):
    r = api.post(url(sb), json={"command": command, **fields})
    assert r.status_code == 201, r.text
    return r.json()["id"]


def wait(api, sb, exec_id, seconds=30):
    r = api.get(url(sb, exec_id), params={"wait": "exit", "timeout_s": seconds}, timeout=seconds + 30)
    assert r.status_code == 200, r.text
    return r.json()


def read(api, sb, exec_id, stream="stdout", **query):
    return api.get(url(sb, exec_id, "/" + stream), params=query, timeout=60)


@pytest.fixture(scope="module")
def sb(daemon):
    with daemon.api.sandbox() as sandbox:
        yield sandbox


# --- starting


def test_an_exec_object_has_every_member(api, sb):
    i = start(api, sb, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    x = wait(api, sb, i)
    assert x["id"] == i and x["sandbox"] == sb.id and x["state"] == "exited"
    assert x["exit"] == {"reason": "exited", "code": 3, "signal": None, "message": ""}
    assert x["shell_code"] == 3 and x["stdout_bytes"] == 4 and x["stderr_bytes"] == 4
    assert x["stdout_first"] == 0 and x["stdin_bytes"] == 0 and x["tty"] is False
    assert x["command"].startswith("sh -c echo") and x["pid"] > 0
    assert x["started_at"] <= x["ended_at"] <= time.time() + 1
    assert x["usage"]["max_rss_kb"] > 0


def test_a_signal_is_no_code(api, sb):
    x = wait(api, sb, start(api, sb, ["sh", "-c", "kill -9 $$"]))
    assert x["exit"]["reason"] == "signaled" and x["exit"]["code"] is None and x["exit"]["signal"] == 9
    assert x["shell_code"] == 137


def test_fields_reach_the_program(api, sb):
    program = "echo \"$A-$B\"; pwd; umask; id -u; id -g; ulimit -n; nice"
    r = api.run(sb, ["sh", "-c", program], env={"A": "l1\nl2", "B": "=x="}, workdir="/tmp", umask="077",
                user="nobody", nofile=77, nice=5)
    assert r["stdout"] == "l1\nl2-=x=\n/tmp\n0077\n65534\n65534\n77\n5\n"


def test_streams_can_be_dropped_and_merged(api, sb):
    program = ["sh", "-c", "echo out; echo err >&2"]
    r = api.run(sb, program, stdout="drop")
    assert (r["stdout"], r["stderr"]) == ("", "err\n")
    r = api.run(sb, program, stderr="drop")
    assert (r["stdout"], r["stderr"]) == ("out\n", "")
    r = api.run(sb, program, stderr="merge")
    assert (r["stdout"], r["stderr"]) == ("out\nerr\n", "")


@pytest.mark.parametrize("body,status,code,param", [
    ({"command": ["no-such-program"]}, 422, "executable_not_found", None),
    ({"command": ["/no/such/program"]}, 422, "executable_not_found", None),
    ({"command": [""]}, 400, "invalid_argument", "command"),
    ({"command": ["/etc"]}, 422, "not_executable", None),
    ({"command": ["/etc/passwd"]}, 422, "not_executable", None),
    ({"command": ["pwd"], "workdir": "/no/such"}, None, None, None),
    ({"command": ["pwd"], "workdir": "relative"}, 400, "invalid_argument", "workdir"),
    ({"command": ["pwd"], "user": "nobody-here"}, None, None, None),
    ({"command": []}, 400, "invalid_argument", "command"),
    ({}, 400, "invalid_argument", "command"),
    ({"command": "ls"}, 400, "invalid_argument", "command"),
    ({"command": ["a", 1]}, 400, "invalid_argument", "command"),
    ({"command": ["x" * 140000]}, 413, "too_large", "command"),
    ({"command": ["true"], "env": {"A=B": "1"}}, 400, "invalid_argument", "env"),
    ({"command": ["true"], "umask": "888"}, 400, "invalid_argument", "umask"),
    ({"command": ["true"], "nice": 20}, 400, "invalid_argument", "nice"),
    ({"command": ["true"], "timeout_s": 0}, 400, "invalid_argument", "timeout_s"),
    ({"command": ["true"], "timeout_s": -1}, 400, "invalid_argument", "timeout_s"),
    ({"command": ["true"], "stdout": "merge"}, 400, "invalid_argument", "stdout"),
    ({"command": ["true"], "tty": {"rows": 0, "cols": 80}}, 400, "invalid_argument", "tty"),
    ({"command": ["true"], "comand": 1}, 400, "unknown_field", "comand"),
])
def test_what_cannot_start_is_an_error_everywhere_alike(api, sb, body, status, code, param):
    answers = [api.post(url(sb), json=body), api.post(f"/v1/sandboxes/{sb.id}/run", json=body),
               api.put(url(sb, "put-" + os.urandom(4).hex()), json=body)]
    errors = [r.json()["error"] for r in answers]
    assert len({(e["code"], e["param"], r.status_code) for e, r in zip(errors, answers)}) == 1, errors
    if status is not None:
        for r in answers:
            error(r, status, code, param)
    assert 400 <= answers[0].status_code < 500
    if code in ("executable_not_found", "not_executable"):
        assert body["command"][0] in errors[0]["message"]


def test_put_starts_once(api, sb):
    body = {"command": ["sh", "-c", "echo x >> /tmp/put-once"]}
    i = "once." + os.urandom(4).hex()
    first = api.put(url(sb, i), json=body)
    assert first.status_code == 201 and first.json()["id"] == i
    again = api.put(url(sb, i), json=body)
    assert again.status_code == 200 and again.json()["id"] == i
    error(api.put(url(sb, i), json={"command": ["true"]}), 409, "conflict")
    wait(api, sb, i)
    assert api.put(url(sb, i), json=body).json()["state"] == "exited"
    assert api.run(sb, ["cat", "/tmp/put-once"])["stdout"] == "x\n"


@pytest.mark.parametrize("bad", ["-x", ".x", "a b", "x" * 64, "a/b"])
def test_exec_ids_have_a_form(api, sb, bad):
    r = api.put(url(sb) + "/" + bad.replace(" ", "%20"), json={"command": ["true"]})
    assert r.status_code in (400, 404), r.text


def test_an_idempotency_key_starts_once(api, sb):
    body = {"command": ["sh", "-c", "echo x >> /tmp/key-once"]}
    key = {"idempotency-key": "k-" + os.urandom(6).hex()}
    first = api.post(url(sb), json=body, headers=key)
    again = api.post(url(sb), json=body, headers=key)
    assert first.status_code == 201 and again.json()["id"] == first.json()["id"]
    assert "idempotency-replayed" not in first.headers and again.headers["idempotency-replayed"] == "true"
    error(api.post(url(sb), json={"command": ["true"]}, headers=key), 409, "idempotency_conflict")
    wait(api, sb, first.json()["id"])
    assert api.run(sb, ["cat", "/tmp/key-once"])["stdout"] == "x\n"


def test_lists_have_what_runs(api):
    with api.sandbox() as sb:
        done, live = start(api, sb, ["true"]), start(api, sb, ["sleep", "100"])
        wait(api, sb, done)
        assert [x["id"] for x in api.get(url(sb), params={"state": "live"}).json()["items"]] == [live]
        assert [x["id"] for x in api.get(url(sb)).json()["items"]] == [live, done]
        api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/x"}, content=b"x")
        assert len(api.get(url(sb)).json()["items"]) == 2


def test_delete_kills_and_forgets(api, sb):
    i = start(api, sb, ["sh", "-c", "sleep 4711 & sleep 4712"])
    assert api.delete(url(sb, i)).status_code == 204
    error(api.get(url(sb, i)), 404, "not_found")
    error(read(api, sb, i), 404, "not_found")
    assert api.run(sb, ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])["stdout"].count("sleep 471") == 0
    error(api.delete(url(sb, i)), 404, "not_found")


def test_unknown_objects(api, sb):
    error(api.get(url(sb, "nope")), 404, "not_found")
    error(api.get("/v1/sandboxes/sb-" + "0" * 22 + "/execs"), 404, "not_found")
    error(api.post("/v1/sandboxes/sb-" + "0" * 22 + "/run", json={"command": ["true"]}), 404, "not_found")


def test_an_ended_sandbox_starts_nothing_but_is_read(api):
    with api.sandbox() as sb:
        i = start(api, sb, ["echo", "kept"])
        wait(api, sb, i)
        assert api.post(f"/v1/sandboxes/{sb.id}/terminate", json={}).status_code == 200
        r = api.post(f"/v1/sandboxes/{sb.id}/run", json={"command": ["true"]})
        error(r, 409, "sandbox_ended")
        assert read(api, sb, i).content == b"kept\n"
        assert api.get(url(sb, i)).json()["exit"]["code"] == 0


# --- waiting and timeouts


def test_a_long_poll_answers_at_the_end_or_the_time(api, sb):
    i = start(api, sb, ["sleep", "1"])
    t0 = time.monotonic()
    r = api.get(url(sb, i), params={"wait": "exit", "timeout_s": 0.2})
    assert r.json()["state"] == "running" and 0.15 < time.monotonic() - t0 < 0.9
    assert wait(api, sb, i)["state"] == "exited"
    assert time.monotonic() - t0 < 3


def test_a_timeout_kills_the_whole_tree_and_keeps_the_output(api, sb):
    i = start(api, sb, ["sh", "-c", "trap '' TERM; echo before; sleep 5001 & sleep 5002; wait"], timeout_s=0.5, grace_s=0.5)
    x = wait(api, sb, i, 10)
    assert x["exit"]["reason"] == "timeout"
    assert 0.9 < x["ended_at"] - x["started_at"] < 3
    assert read(api, sb, i).content == b"before\n"
    assert "sleep 500" not in api.run(sb, ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])["stdout"].replace("sleep 500\"", "")


# --- output


def test_output_is_read_by_offset_during_and_after(api, sb):
    i = start(api, sb, ["sh", "-c", "echo one; read x; echo two"], stdin=True)
    for _ in range(100):
        r = read(api, sb, i, follow="false")
        if r.content:
            break
        time.sleep(0.02)
    assert r.content == b"one\n" and r.headers["x-offset"] == "0"
    assert r.headers["content-type"] == "application/octet-stream"
    assert api.post(url(sb, i, "/stdin"), content=b"go\n").status_code == 200
    assert read(api, sb, i).content == b"one\ntwo\n"
    r = read(api, sb, i, offset=4)
    assert (r.content, r.headers["x-offset"]) == (b"two\n", "4")
    assert read(api, sb, i, offset=8).content == b""
    error(read(api, sb, i, offset=9), 416, "range_not_satisfiable", "offset")
    assert read(api, sb, i, "stderr").content == b""


def test_a_follower_sees_output_when_it_is_written(api, sb):
    i = start(api, sb, ["sh", "-c", "echo a; sleep 0.5; echo b; sleep 0.5; echo c"])
    seen = []
    with api.stream("GET", url(sb, i, "/stdout")) as r:
        for chunk in r.iter_raw():
            seen.append((time.monotonic(), chunk))
    assert b"".join(c for _, c in seen) == b"a\nb\nc\n"
    assert len(seen) == 3 and seen[2][0] - seen[0][0] > 0.7


def test_a_broken_reader_goes_on_where_it_was(api, sb):
    i = start(api, sb, ["seq", "1", "400000"])
    got = b""
    while True:
        with api.stream("GET", url(sb, i, "/stdout"), params={"offset": len(got)}) as r:
            complete = True
            for chunk in r.iter_raw():
                got += chunk
                if len(got) % 7 == 0 and len(got) < 2500000:
                    complete = False
                    break
        if complete:
            break
    assert got == b"".join(b"%d\n" % n for n in range(1, 400001))


def test_huge_output_without_a_newline(api, sb):
    i = start(api, sb, ["sh", "-c", "head -c 300000000 /dev/zero"])
    n = 0
    with api.stream("GET", url(sb, i, "/stdout"), timeout=120) as r:
        for chunk in r.iter_raw():
            n += len(chunk)
    assert n == 300000000
    assert api.delete(url(sb, i)).status_code == 204


def test_a_reader_that_does_not_read_holds_nothing_back(api, sb, daemon):
    i = start(api, sb, ["sh", "-c", "head -c 60000000 /dev/zero; echo done > /tmp/written"])
    with socket.create_connection(("127.0.0.1", daemon.port)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(f"GET {url(sb, i, '/stdout')} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n\r\n".encode())
        x = wait(api, sb, i)
    assert x["exit"]["code"] == 0 and x["stdout_bytes"] == 60000000
    assert len(read(api, sb, i).content) == 60000000


def test_unread_output_over_the_limit_ends_the_exec(api, sb):
    i = start(api, sb, ["yes"], output_limit_bytes=1 << 20)
    x = wait(api, sb, i)
    assert x["exit"]["reason"] == "output_limit"
    kept = read(api, sb, i).content
    assert len(kept) == x["stdout_bytes"] and kept.startswith(b"y\ny\n") and len(kept) >= 1 << 20


# --- stdin


def test_stdin_is_empty_unless_asked_for(api, sb):
    assert wait(api, sb, start(api, sb, ["cat"]), 5)["exit"]["code"] == 0


def test_stdin_by_offset(api, sb):
    i = start(api, sb, ["cat"], stdin=True)

    def send(data, **query):
        return api.post(url(sb, i, "/stdin"), params=query, content=data)

    assert api.get(url(sb, i, "/stdin")).json() == {"taken": 0, "closed": False}
    assert send(b"hello ", offset=0).json() == {"taken": 6, "closed": False}
    assert send(b"lo wor", offset=3).json() == {"taken": 9, "closed": False}
    assert send(b"hello ", offset=0).json() == {"taken": 9, "closed": False}
    error(send(b"x", offset=20), 416, "range_not_satisfiable")
    assert send(b"ld").json() == {"taken": 11, "closed": False}
    assert send(b"!", offset=11, eof="true").json() == {"taken": 12, "closed": True}
    assert read(api, sb, i).content == b"hello world!"
    x = wait(api, sb, i)
    assert x["stdin_bytes"] == 12 and x["stdin_closed"] is True


def test_an_empty_body_with_eof_closes(api, sb):
    i = start(api, sb, ["wc", "-c"], stdin=True)
    assert api.post(url(sb, i, "/stdin")).json() == {"taken": 0, "closed": False}
    assert api.post(url(sb, i, "/stdin"), params={"eof": "true"}).json() == {"taken": 0, "closed": True}
    assert read(api, sb, i).content == b"0\n"


def test_appending_writers_take_turns(api, sb):
    i = start(api, sb, ["cat"], stdin=True)
    threads = [threading.Thread(target=lambda c=c: api.post(url(sb, i, "/stdin"), content=c * 200000, timeout=60))
               for c in (b"a", b"b", b"c", b"d")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert api.post(url(sb, i, "/stdin"), params={"eof": "true"}).json()["taken"] == 800000
    got = read(api, sb, i).content
    assert sorted(got) == sorted(b"abcd" * 200000)


def test_stdin_waits_for_a_program_that_does_not_read(api, sb):
    i = start(api, sb, ["sh", "-c", "sleep 1; wc -c"], stdin=True)
    t0 = time.monotonic()
    r = api.post(url(sb, i, "/stdin"), params={"eof": "true"}, content=b"x" * 1000000, timeout=30)
    assert r.json() == {"taken": 1000000, "closed": True} and time.monotonic() - t0 > 0.7
    assert read(api, sb, i).content == b"1000000\n"


def test_stdin_of_a_program_that_has_gone(api, sb):
    i = start(api, sb, ["head", "-c", "3"], stdin=True)
    r = api.post(url(sb, i, "/stdin"), content=b"x" * 10000000, timeout=30)
    assert r.status_code in (200, 409), r.text
    if r.status_code == 200:
        assert r.json()["closed"] is True and r.json()["taken"] < 10000000
    assert read(api, sb, i).content == b"xxx"


# --- signals


@pytest.mark.parametrize("signal", ["TERM", "SIGTERM", "sigterm", 15, "15"])
def test_signals_by_name_and_number(api, sb, signal):
    i = start(api, sb, ["sh", "-c", "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done"])
    while b"ready" not in read(api, sb, i, follow="false").content:
        time.sleep(0.02)
    assert api.post(url(sb, i, "/signal"), json={"signal": signal}).status_code == 204
    assert wait(api, sb, i)["exit"]["code"] == 5


@pytest.mark.parametrize("signal", ["NOPE", 0, 65, -1, 1.5, None, [], ""])
def test_signals_that_are_none(api, sb, signal):
    i = start(api, sb, ["sleep", "100"])
    error(api.post(url(sb, i, "/signal"), json={"signal": signal}), 400, "invalid_argument", "signal")
    assert api.delete(url(sb, i)).status_code == 204


def test_the_scopes_of_a_signal(api, sb):
    program = "trap 'echo shell' USR1; setsid sh -c 'trap \"echo other; exit\" USR1; while :; do sleep 0.05; done' & echo ready; while :; do sleep 0.05; done"
    i = start(api, sb, ["sh", "-c", program])
    while b"ready" not in read(api, sb, i, follow="false").content:
        time.sleep(0.02)
    time.sleep(0.3)
    assert api.post(url(sb, i, "/signal"), json={"signal": "USR1", "scope": "process"}).status_code == 204
    time.sleep(0.5)
    assert read(api, sb, i, follow="false").content == b"ready\nshell\n"
    assert api.post(url(sb, i, "/signal"), json={"signal": "KILL", "scope": "tree"}).status_code == 204
    x = wait(api, sb, i)
    assert x["exit"]["signal"] == 9


def test_a_signal_to_the_whole_sandbox(api):
    with api.sandbox() as sb:
        ids = [start(api, sb, ["sleep", "1000"]) for _ in range(3)]
        assert api.post(f"/v1/sandboxes/{sb.id}/signal", json={"signal": "KILL"}).status_code == 204
        assert [wait(api, sb, i)["exit"]["signal"] for i in ids] == [9, 9, 9]
        assert api.run(sb, ["echo", "alive"])["stdout"] == "alive\n"


# --- terminals


def test_a_terminal_has_its_size_and_changes_it(api, sb):
    program = "stty size; trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    i = start(api, sb, ["sh", "-c", program], tty={"rows": 40, "cols": 132}, stdin=True)

    def until(text):
        for _ in range(200):
            got = read(api, sb, i, follow="false").content
            if text in got:
                return got
            time.sleep(0.02)
        raise AssertionError(got)

    assert until(b"ready").startswith(b"40 132\r\n")
    assert api.post(url(sb, i, "/resize"), json={"rows": 50, "cols": 200}).status_code == 204
    until(b"50 200\r\n")
    assert api.get(url(sb, i)).json()["tty"] is True
    error(api.post(url(sb, i, "/resize"), json={"rows": 0, "cols": 1}), 400, "invalid_argument", "rows")
    assert api.post(url(sb, i, "/stdin"), content=b"\x03").status_code == 200
    x = wait(api, sb, i, 10)
    assert x["exit"]["signal"] == 2 or x["exit"]["code"] == 130


def test_resize_without_a_terminal(api, sb):
    i = start(api, sb, ["sleep", "100"])
    r = api.post(url(sb, i, "/resize"), json={"rows": 1, "cols": 1})
    assert 400 <= r.status_code < 500, r.text
    api.delete(url(sb, i))


# --- events


def events(r):
    event = {}
    for line in r.iter_lines():
        line = line.rstrip("\n")
        if line == "" and "data" in event:
            yield event.get("event"), event.get("id"), json.loads(event["data"])
            event = {}
        elif line.startswith(":") or ":" not in line:
            continue
        else:
            key, value = line.split(":", 1)
            event[key] = event.get(key, "") + value.removeprefix(" ")


def test_events_tell_everything_and_resume(api, sb):
    i = start(api, sb, ["sh", "-c", "printf 'caf\\303'; sleep 0.3; printf '\\251\\n'; echo err >&2; sleep 0.3; printf '\\377'; exit 4"])
    with api.stream("GET", url(sb, i, "/events")) as r:
        assert r.headers["content-type"].startswith("text/event-stream")
        seen = list(events(r))
    assert [e[0] for e in seen][-1] == "exit" and seen[-1][2]["exit"]["code"] == 4
    out = b"".join(base64.b64decode(d["data_b64"]) if "data_b64" in d else d["data"].encode() for e, _, d in seen if e == "stdout")
    assert out == "café\n".encode() + b"\xff"
    assert any("é" in d.get("data", "") for e, _, d in seen if e == "stdout")
    assert "".join(d["data"] for e, _, d in seen if e == "stderr") == "err\n"
    assert re.fullmatch(r"7\.4", seen[-1][1])
    with api.stream("GET", url(sb, i, "/events"), headers={"last-event-id": "3.0"}) as r:
        again = list(events(r))
    assert [d["offset"] for e, _, d in again if e == "stdout"][0] == 3
    with api.stream("GET", url(sb, i, "/events"), params={"stdout_offset": 7, "stderr_offset": 4}) as r:
        assert [e[0] for e in events(r)] == ["exit"]
    error(api.get(url(sb, i, "/events"), headers={"last-event-id": "x"}), 400, "invalid_argument")


# --- WebSocket


class WebSocket:
    def __init__(self, daemon, path):
        self.s = socket.create_connection(("127.0.0.1", daemon.port), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall((f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\nupgrade: websocket\r\n"
                        f"connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n").encode())
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.fill()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])

    def fill(self):
        got = self.s.recv(65536)
        if not got:
            raise EOFError
        self.data += got

    def take(self, n):
        while len(self.data) < n:
            self.fill()
        out, self.data = self.data[:n], self.data[n:]
        return out

    def send(self, opcode, payload):
        mask = os.urandom(4)
        n = len(payload)
        head = bytes([0x80 | opcode]) + (bytes([0x80 | n]) if n < 126 else bytes([0xfe]) + struct.pack(">H", n) if n < 65536
                                         else bytes([0xff]) + struct.pack(">Q", n))
        self.s.sendall(head + mask + bytes(b ^ mask[k % 4] for k, b in enumerate(payload)))

    def text(self, o):
        self.send(1, json.dumps(o).encode())

    def message(self):
        b0, b1 = self.take(2)
        n = b1 & 0x7f
        if n == 126:
            n = struct.unpack(">H", self.take(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.take(8))[0]
        return b0 & 0xf, self.take(n)

    def until(self, stop):
        """Output of both streams until stop(out, err) holds, and the text messages."""
        out = {1: b"", 2: b""}
        texts = []
        while not stop(out, texts):
            op, payload = self.message()
            if op == 2:
                out[payload[0]] += payload[1:]
            elif op == 1:
                texts.append(json.loads(payload))
            elif op == 8:
                break
        return out, texts


def test_a_websocket_carries_all_streams(api, sb, daemon):
    i = start(api, sb, ["sh", "-c", "read x; echo got $x; echo err >&2; cat; exit 6"], stdin=True)
    ws = WebSocket(daemon, url(sb, i, "/ws"))
    assert ws.status == 101
    ws.send(2, b"line\n")
    ws.until(lambda out, _: out[1] == b"got line\n")
    ws.send(2, b"rest" * 1000)
    ws.text({"eof": True})
    out, texts = ws.until(lambda _, texts: texts)
    assert out[1] == b"rest" * 1000
    assert texts[0]["exit"]["exit"]["code"] == 6
    op, payload = ws.message()
    assert op == 8 and payload[:2] == struct.pack(">H", 1000)


def test_a_websocket_resizes_and_signals(api, sb, daemon):
    i = start(api, sb, ["sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"], stdin=True, tty=True)
    ws = WebSocket(daemon, url(sb, i, "/ws"))
    ws.until(lambda out, _: b"ready" in out[1])
    ws.text({"resize": {"rows": 33, "cols": 44}})
    ws.until(lambda out, _: b"33 44" in out[1])
    ws.text({"signal": "KILL"})
    _, texts = ws.until(lambda _, texts: texts)
    assert texts[0]["exit"]["exit"]["signal"] == 9


def test_a_websocket_that_leaves_ends_nothing(api, sb, daemon):
    i = start(api, sb, ["cat"], stdin=True)
    ws = WebSocket(daemon, url(sb, i, "/ws"))
    ws.send(2, b"abc")
    ws.until(lambda out, _: out[1] == b"abc")
    ws.s.close()
    again = WebSocket(daemon, url(sb, i, "/ws?stdout_offset=1"))
    again.send(2, b"d")
    again.until(lambda out, _: out[1] == b"bcd")
    again.text({"eof": True})
    _, texts = again.until(lambda _, texts: texts)
    assert texts[0]["exit"]["exit"]["code"] == 0


def test_websocket_nonsense_is_refused(api, sb, daemon):
    i = start(api, sb, ["sleep", "100"])
    error(api.get(url(sb, i, "/ws")), 400, "invalid_argument")
    assert WebSocket(daemon, url(sb, "nope", "/ws")).status == 404
    ws = WebSocket(daemon, url(sb, i, "/ws"))
    ws.send(1, b"what")
    _, texts = ws.until(lambda _, texts: False)
    assert texts[0]["error"]["code"] == "invalid_argument"
    assert api.get(url(sb, i)).json()["state"] == "running"
    api.delete(url(sb, i))


# --- run


def test_run_answers_text_and_bytes(api, sb):
    r = api.run(sb, ["sh", "-c", "printf 'caf\\303\\251\\0'; printf '\\377' >&2; exit 2"])
    assert r["stdout"] == "café\0" and "stdout_b64" not in r
    assert r["stderr"] is None and base64.b64decode(r["stderr_b64"]) == b"\xff"
    assert r["exec"]["exit"]["code"] == 2
    assert (r["stdout_bytes"], r["stderr_bytes"], r["stdout_truncated"], r["stderr_truncated"]) == (6, 1, False, False)


def test_run_caps_each_stream_by_itself(api, sb):
    r = api.run(sb, ["sh", "-c", "printf 'aaaaaaaa'; printf 'bbbb' >&2"], stdout_max_bytes=5, stderr_max_bytes=4)
    assert (r["stdout"], r["stdout_truncated"], r["stdout_bytes"]) == ("aaaaa", True, 8)
    assert (r["stderr"], r["stderr_truncated"], r["stderr_bytes"]) == ("bbbb", False, 4)
    assert read(api, sb, r["exec"]["id"], offset=5).content == b"aaa"
    r = api.run(sb, ["echo", "x"], stdout_max_bytes=0)
    assert (r["stdout"], r["stdout_truncated"], r["stdout_bytes"]) == ("", True, 2)


def test_run_takes_stdin(api, sb):
    assert api.run(sb, ["cat"], stdin="héllo")["stdout"] == "héllo"
    r = api.run(sb, ["cat"], stdin_b64=base64.b64encode(b"\0\xff").decode())
    assert base64.b64decode(r["stdout_b64"]) == b"\0\xff"
    assert api.run(sb, ["wc", "-c"], stdin="")["stdout"] == "0\n"
    big = "x" * 900000
    assert api.run(sb, ["wc", "-c"], stdin=big)["stdout"] == "900000\n"
    assert api.run(sb, ["true"], stdin=big)["exec"]["exit"]["code"] == 0
    r = api.post(f"/v1/sandboxes/{sb.id}/run", json={"command": ["cat"], "stdin": "a", "stdin_b64": "YQ=="})
    error(r, 400, "invalid_argument", "stdin_b64")
    error(api.post(f"/v1/sandboxes/{sb.id}/run", json={"command": ["cat"], "stdin_b64": "!"}), 400, "invalid_argument", "stdin_b64")


def test_run_keeps_the_connection_alive(api, sb):
    first = None
    t0 = time.monotonic()
    text = b""
    with api.stream("POST", f"/v1/sandboxes/{sb.id}/run", json={"command": ["sh", "-c", "sleep 17; echo late"]}, timeout=60) as r:
        for chunk in r.iter_raw():
            first = first or time.monotonic() - t0
            text += chunk
    assert r.status_code == 200 and 14 < first < 16.5
    assert text.startswith(b" ") and json.loads(text)["stdout"] == "late\n"


def test_a_run_whose_client_left_goes_on(api, sb):
    with pytest.raises(httpx.ReadTimeout):
        api.post(f"/v1/sandboxes/{sb.id}/run", json={"command": ["sh", "-c", "sleep 1; echo x > /tmp/went-on"]}, timeout=0.3)
    time.sleep(1.5)
    assert api.run(sb, ["cat", "/tmp/went-on"])["stdout"] == "x\n"


def test_run_does_not_wait_for_what_it_left_behind(api, sb):
    t0 = time.monotonic()
    r = api.run(sb, ["sh", "-c", "sleep 60 & echo started"])
    assert r["stdout"] == "started\n" and time.monotonic() - t0 < 10
    api.post(f"/v1/sandboxes/{sb.id}/signal", json={"signal": "KILL"})


# --- the entry point


def test_the_entry_point_is_read_and_written(api):
    with api.sandbox(command=["sh", "-c", "echo hello; echo err >&2; cat"], stdin=True) as sb:
        logs = f"/v1/sandboxes/{sb.id}/logs"
        assert api.post(f"/v1/sandboxes/{sb.id}/stdin", content=b"abc", params={"eof": "true"}).json() == {"taken": 3, "closed": True}
        assert api.get(logs, params={"stream": "stdout"}).content == b"hello\nabc"
        assert api.get(logs, params={"stream": "stderr"}).content == b"err\n"
        assert api.get(logs, params={"offset": 6}).content == b"abc"
        error(api.delete(url(sb, "entry")), 409, "conflict")


# --- faults


def test_readers_survive_a_node_that_dies(make_daemon):
    d = make_daemon(supervised=True)
    with d.api.sandbox() as sb:
        i = start(d.api, sb, ["sh", "-c", "for n in $(seq 1 60); do echo $n; sleep 0.05; done; echo end >&2; exit 9"])
        got = []
        t = threading.Thread(target=lambda: got.append(read(d.api, sb, i).content))
        r = []
        t2 = threading.Thread(target=lambda: r.append(d.api.run(sb, ["sh", "-c", "for n in $(seq 1 60); do echo $n; sleep 0.05; done"])))
        e = []

        def follow():
            with d.api.stream("GET", url(sb, i, "/events"), timeout=60) as s:
                e.extend(events(s))

        t3 = threading.Thread(target=follow)
        for x in (t, t2, t3):
            x.start()
        for _ in range(3):
            time.sleep(0.7)
            d.kill_role("node")
        for x in (t, t2, t3):
            x.join(60)
        want = b"".join(b"%d\n" % n for n in range(1, 61))
        assert got == [want]
        assert r and r[0]["stdout"].encode() == want and r[0]["exec"]["exit"]["code"] == 0
        assert "".join(x[2]["data"] for x in e if x[0] == "stdout").encode() == want
        assert e[-1][0] == "exit" and e[-1][2]["exit"]["code"] == 9


def test_stdin_survives_a_node_that_dies(make_daemon):
    d = make_daemon(supervised=True)
    data = os.urandom(1 << 20)
    with d.api.sandbox() as sb:
        program = "import os,time\nf=open('/tmp/got','wb')\nwhile b:=os.read(0,65536):\n f.write(b)\n time.sleep(0.02)"
        i = start(d.api, sb, ["python3", "-c", program], stdin=True)
        done = []
        t = threading.Thread(target=lambda: done.append(
            d.api.post(url(sb, i, "/stdin"), params={"offset": 0, "eof": "true"}, content=data * 4, timeout=60)))
        t.start()
        for _ in range(2):
            time.sleep(0.4)
            d.kill_role("node")
        t.join(60)
        assert done and done[0].status_code == 200, done and done[0].text
        wait(d.api, sb, i)
        assert d.api.get(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/got"}).content == data * 4
