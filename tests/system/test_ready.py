"""Readiness probes: each kind, when it is not ready and why, and what a wait that runs into its end does."""

import time

import pytest
from qsdaemon import error

HTTP = r"""
import http.server, os, time
time.sleep(float(os.environ.get("LATE", "0")))
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        status = int(self.path.strip("/").split("?")[0] or 200) if self.path != "/soon" else (200 if os.path.exists("/tmp/go") else 503)
        self.send_response(status); self.end_headers()
        self.wfile.write(b"state: warm\nversion: 7\n")
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
"""


def wait(api, sb, timeout_s=60):
    return api.post(f"/v1/sandboxes/{sb.id}/wait-ready", json={"timeout_s": timeout_s}, timeout=timeout_s + 60)


def ready(api, sb):
    r = wait(api, sb)
    assert r.status_code == 200, r.text
    return r.json()["ready_at"]


def late(api, sb, timeout_s=3):
    """Why it is not ready."""
    return error(wait(api, sb, timeout_s), 504, "timeout")["message"]


@pytest.mark.parametrize("probe", [{"tcp": 8000}, {"http": {"port": 8000}}, {"http": {"port": 8000, "path": "/204", "status": 204}},
                                   {"http": {"port": 8000, "path": "/418?x=1", "status": [400, 499], "body": "^version: [0-9]+$"}},
                                   {"exec": ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8000))"]}])
def test_a_server_becomes_ready(api, probe):
    before = time.time()
    with api.sandbox(command=["python3", "-c", HTTP], env={"LATE": "1"}, ready=probe) as sb:
        at = ready(api, sb)
        assert before + 0.9 < at < time.time() + 1
        assert ready(api, sb) == at                     # kept
        execs = api.get(f"/v1/sandboxes/{sb.id}/execs").json()["items"]
        assert [e for e in execs if e["id"].startswith("probe-")] == []


def test_a_file(api):
    with api.sandbox(command=["sh", "-c", "sleep 1; touch /tmp/there; sleep 600"], ready={"file": "/tmp/there"}) as sb:
        ready(api, sb)
    with api.sandbox(ready={"file": "/tmp/not there"}) as sb:
        assert "the file is not there" in late(api, sb)


def test_a_line_of_the_log(api):
    script = "i=0; while [ $i -lt 20000 ]; do echo noise $i; i=$((i+1)); done; printf 'listening '; sleep 1; echo 'on 7 \x01' >&2; echo 'on 8000'; sleep 600"
    with api.sandbox(command=["sh", "-c", script], ready={"log": "^listening on [0-9]+$"}) as sb:
        ready(api, sb)
    with api.sandbox(command=["sh", "-c", "echo ready >&2; sleep 600"], ready={"log": "^ready$"}) as sb:
        ready(api, sb)
    with api.sandbox(command=["sh", "-c", "echo nearly ready; sleep 600"], ready={"log": "^ready$"}) as sb:
        assert "no line of the log matches yet" in late(api, sb)


@pytest.mark.parametrize("probe, why", [
    ({"tcp": 4}, "nothing accepts connections on the port"), ({"http": {"port": 4}}, "nothing accepts connections on the port"),
    ({"http": {"port": 8000, "path": "/500"}}, "the status of the answer is 500"),
    ({"http": {"port": 8000, "body": "cold"}}, "the body of the answer does not match"),
    ({"exec": ["sh", "-c", "echo first; echo 'no \x1b[31mdatabase' >&2; exit 3"]}, "it exited with code 3: first no ?[31mdatabase"),
    ({"exec": ["sh", "-c", "kill -9 $$"]}, "it was ended by signal 9"), ({"exec": ["/not/there"]}, "could not be started"),
    ({"exec": ["sleep", "600"], "try_timeout_s": 0.5}, "signal 9"),
])
def test_why_it_is_not_ready(api, probe, why):
    with api.sandbox(command=["python3", "-c", HTTP], ready=probe) as sb:
        assert why in late(api, sb, 6)
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["state"] == "running"


def test_successes_in_a_row(api):
    count = "n=$(($(cat /tmp/n 2>/dev/null || echo 0)+1)); echo $n >/tmp/n; [ $n -ne 3 ]"
    with api.sandbox(ready={"exec": ["sh", "-c", count], "threshold": 4, "interval_s": 0.05}) as sb:
        ready(api, sb)
        assert api.run(sb, ["cat", "/tmp/n"])["stdout"] == "7\n"        # two, a failure, four


def test_a_failure_may_end_the_sandbox(api):
    with api.sandbox(ready={"exec": ["sh", "-c", "echo no; false"], "on_fail": "terminate"}) as sb:
        assert "is ended; the last try failed: it exited with code 1: no" in late(api, sb)
        ended = api.get(f"/v1/sandboxes/{sb.id}", params={"wait": "exit", "timeout_s": 60}, timeout=90).json()
        assert ended["state"] == "ended" and ended["exit"]["reason"] == "terminated"
        error(wait(api, sb), 409, "sandbox_ended")


def test_waits_end_with_the_sandbox(api):
    with api.sandbox(command=["sleep", "2"], ready={"tcp": 4}) as sb:
        assert wait(api, sb).status_code in (404, 409)
    with api.sandbox() as sb:
        assert "no readiness probe" in error(wait(api, sb), 409, "conflict")["message"]
    error(api.post("/v1/sandboxes/sb-0000000000000000000000/wait-ready", json={}), 404, "not_found")


@pytest.mark.parametrize("probe", [{}, {"tcp": 0}, {"tcp": "8000"}, {"tcp": 1, "file": "/a"}, {"tcp": 1, "x": 1}, {"file": "a"}, {"exec": []}, {"exec": [""]},
                                   {"exec": "true"}, {"http": 80}, {"http": {}}, {"http": {"port": 1, "path": "x"}}, {"http": {"port": 1, "path": "/ x"}},
                                   {"http": {"port": 1, "status": 99}}, {"http": {"port": 1, "status": [300, 200]}}, {"http": {"port": 1, "body": "("}},
                                   {"http": {"port": 1, "y": 1}}, {"log": "x"}, {"tcp": 1, "interval_s": 0}, {"tcp": 1, "threshold": 0},
                                   {"tcp": 1, "on_fail": "explode"}, {"tcp": 1, "try_timeout_s": -1}, [1], "tcp"])
def test_bad_probes(api, probe):
    error(api.post("/v1/sandboxes", json={"ready": probe}), 400, "invalid_argument", "ready")


@pytest.mark.parametrize("pattern", ["(", "a{9}", "((a{99}){99}){99}", ""])
def test_bad_patterns(api, pattern):
    error(api.post("/v1/sandboxes", json={"command": ["sleep", "9"], "ready": {"log": pattern}}), 400, "invalid_argument", "ready")
