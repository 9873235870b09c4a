"""Faults that users of such systems met: time limits, endings, races. Each test bears the report's number."""

import concurrent.futures
import contextlib
import random
import time

import httpx
import pytest

from test_reports_exec import error
from test_reports_stdio import follow, output, start, wait


def ended(api, sandbox, timeout_s=30):
    r = api.get(f"/v1/sandboxes/{sandbox}", params={"wait": "exit", "timeout_s": timeout_s}, timeout=timeout_s + 10)
    assert r.status_code == 200, r.text
    return r.json()


@pytest.mark.parametrize("field,value", [
    ("timeout_s", 0), ("timeout_s", -1), ("timeout_s", 31622401), ("timeout_s", "60"), ("timeout_s", 1e300),
    ("idle_timeout_s", 0), ("idle_timeout_s", -5),
    ("cpu", 0), ("cpu", -0.5), ("cpu", 1025), ("memory_mb", 0), ("memory_mb", 1), ("memory_mb", 2 ** 63), ("memory_mb", 64.5),
    ("pids", 0), ("pids", -1), ("grace_s", -1), ("grace_s", 301), ("retain_s", -1), ("cpu_weight", 0), ("cpu_weight", 10001),
    ("workdir", "relative"), ("command", []), ("command", [""]), ("command", [1]), ("tags", {"a": 1}), ("tags", []), ("image", ""),
])
def test_ur044_values_out_of_range_are_refused_by_name(api, field, value):
    before = {s["id"] for s in api.get("/v1/sandboxes", params={"limit": 1000}).json()["items"]}
    r = api.post("/v1/sandboxes", json={field: value})
    assert r.status_code in (400, 404, 413), r.text
    if field == "image":
        assert r.json()["error"]["code"] in ("not_found", "invalid_argument")
    else:
        assert r.json()["error"]["param"].split(".")[0].split("[")[0] == field, r.text
    assert {s["id"] for s in api.get("/v1/sandboxes", params={"limit": 1000}).json()["items"]} == before


def test_ur044_not_a_number_is_not_json(api):
    r = api.post("/v1/sandboxes", content=b'{"cpu": NaN}', headers={"content-type": "application/json"})
    assert error(r, 400, "malformed_request")


@pytest.mark.parametrize("seconds", [86400, 2 ** 31 - 1, 2 ** 32 + 5])
def test_ur045_long_timeouts_are_kept_or_refused(api, seconds):
    r = api.post("/v1/sandboxes", json={"timeout_s": seconds})
    if seconds <= 31622400:
        sb = r.json()
        assert r.status_code == 201
        assert abs(sb["expires_at"] - sb["created_at"] - seconds) < 2
        assert api.delete(f"/v1/sandboxes/{sb['id']}").status_code == 204
    else:
        assert error(r, 400, "invalid_argument")["param"] == "timeout_s"
    with api.sandbox() as sb:
        r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sleep", "1"], "timeout_s": seconds})
        if r.status_code == 201:
            assert wait(api, sb.id, r.json()["id"])["exit"]["reason"] == "exited"
        else:
            error(r, 400, "invalid_argument")


def test_ur051_an_entry_point_that_ignores_sigterm(api):
    program = "import signal,time;signal.signal(15,signal.SIG_IGN);print('up',flush=True);time.sleep(1e6)"
    r = api.post("/v1/sandboxes", json={"command": ["python3", "-c", program], "name": "stubborn", "grace_s": 1})
    assert r.status_code == 201, r.text
    sb = r.json()["id"]
    while api.get(f"/v1/sandboxes/{sb}/logs", params={"follow": "false"}).content != b"up\n":
        time.sleep(0.05)
    t0 = time.monotonic()
    r = api.post(f"/v1/sandboxes/{sb}/terminate", json={}, timeout=30)
    assert time.monotonic() - t0 < 3
    assert r.json()["state"] == "ended"
    assert r.json()["exit"]["reason"] == "terminated"
    again = api.post("/v1/sandboxes", json={"name": "stubborn"})
    assert again.status_code == 201, again.text
    for i in (sb, again.json()["id"]):
        assert api.delete(f"/v1/sandboxes/{i}").status_code == 204


def test_ur052_the_entry_point_sees_sigterm(api):
    program = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    with api.sandbox(command=["sh", "-c", program]) as sb:
        while api.get(f"/v1/sandboxes/{sb.id}/logs", params={"follow": "false"}).content != b"up\n":
            time.sleep(0.05)
        first = api.post(f"/v1/sandboxes/{sb.id}/terminate", json={}, timeout=30).json()
        assert api.get(f"/v1/sandboxes/{sb.id}/logs").content == b"up\nbye\n"
        assert (first["exit"]["reason"], first["exit"]["code"]) == ("terminated", 3)
        assert api.post(f"/v1/sandboxes/{sb.id}/terminate", json={}, timeout=30).json()["exit"] == first["exit"]


@pytest.mark.parametrize("command,reason,code,signal", [
    (["sh", "-c", "exit 7"], "exited", 7, None),
    (["sh", "-c", "kill -9 $$"], "signaled", None, 9),
    (["true"], "exited", 0, None),
])
def test_exit_reasons_of_entry_points(api, command, reason, code, signal):
    with api.sandbox(command=command) as sb:
        record = ended(api, sb.id)
        assert record["state"] == "ended"
        assert (record["exit"]["reason"], record["exit"]["code"], record["exit"]["signal"]) == (reason, code, signal)
        assert record["usage"]["cpu_s"] >= 0


def test_exit_reason_timeout(api):
    with api.sandbox(timeout_s=1.5, grace_s=0) as sb:
        e = start(api, sb.id, ["sh", "-c", "echo kept; sleep 60"])
        t0 = time.monotonic()
        record = ended(api, sb.id)
        assert time.monotonic() - t0 < 3.5
        assert record["exit"]["reason"] == "timeout"
        assert follow(api, sb.id, e["id"]) == b"kept\n"
        assert wait(api, sb.id, e["id"])["exit"]["reason"] == "terminated"


def test_exit_reason_idle_timeout(api):
    with api.sandbox(idle_timeout_s=1) as sb:
        api.run(sb, ["sleep", "1.5"])           # a running command is activity
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["state"] == "running"
        record = ended(api, sb.id, 10)
        assert record["exit"]["reason"] == "idle_timeout"
        assert record["last_activity"]["kind"] == "exec"


def test_exit_reason_out_of_memory_names_the_process(api):
    with api.sandbox(memory_mb=64) as sb:
        r = api.run(sb, ["python3", "-c", "x = bytearray(256 << 20)"])
        assert r["exec"]["exit"]["reason"] == "oom_limit", r
        assert "python3" in r["exec"]["exit"]["message"]
        assert output(api.run(sb, ["echo", "ok"])) == b"ok\n"
    with api.sandbox(memory_mb=64, command=["python3", "-c", "x = bytearray(256 << 20)"]) as sb:
        assert ended(api, sb.id)["exit"]["reason"] == "oom_limit"


def test_the_lifetime_can_be_changed_while_it_runs(api):
    with api.sandbox(timeout_s=60) as sb:
        url = f"/v1/sandboxes/{sb.id}"
        before = api.get(url).json()["expires_at"]
        assert abs(api.patch(url, json={"extend_s": 100}).json()["expires_at"] - before - 100) < 0.5
        assert api.patch(url, json={"expires_at": None}).json()["expires_at"] is None
        assert api.patch(url, json={"expires_at": time.time() + 1}).status_code == 200
        assert ended(api, sb.id, 10)["exit"]["reason"] == "timeout"


def test_a_failed_create_leaves_nothing(api, daemon):
    before = set((daemon.data_dir / "run").iterdir())
    body = error(api.post("/v1/sandboxes", json={"command": ["/no/such/program"]}), 422, "executable_not_found")
    assert "/no/such/program" in body["message"]
    error(api.post("/v1/sandboxes", json={"image": "no-such-image"}), 404, "not_found")
    assert set((daemon.data_dir / "run").iterdir()) == before


def test_unknown_fields_are_refused_with_the_nearest_name(api):
    body = error(api.post("/v1/sandboxes", json={"timout_s": 5}), 400, "unknown_field")
    assert "timeout_s" in body["hint"]
    with api.sandbox() as sb:
        body = error(api.post(f"/v1/sandboxes/{sb.id}/run", json={"comand": ["true"]}), 400, "unknown_field")
        assert "command" in body["hint"]


def test_a_repeated_create_with_a_key_makes_one_sandbox(api):
    key = {"idempotency-key": "create-once-1"}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: api.post("/v1/sandboxes", json={"tags": {"k": "1"}}, headers=key), range(6)))
    ids = {r.json()["id"] for r in replies if r.status_code in (200, 201)}
    assert len(ids) == 1, [r.text for r in replies]
    again = api.post("/v1/sandboxes", json={"tags": {"k": "1"}}, headers=key)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["id"] in ids
    error(api.post("/v1/sandboxes", json={"tags": {"k": "2"}}, headers=key), 409, "idempotency_conflict")
    assert api.delete(f"/v1/sandboxes/{ids.pop()}").status_code == 204


def test_deleting_removes_every_trace(api, daemon):
    sb = api.post("/v1/sandboxes", json={}).json()["id"]
    assert (daemon.data_dir / "run" / sb).exists()
    assert api.delete(f"/v1/sandboxes/{sb}").status_code == 204
    assert not (daemon.data_dir / "run" / sb).exists()
    error(api.get(f"/v1/sandboxes/{sb}"), 404, "not_found")
    assert api.delete(f"/v1/sandboxes/{sb}").status_code in (204, 404)


def test_ur047_deadline_and_idle_rule_survive_the_daemons(make_daemon):
    daemon = make_daemon()
    api = daemon.api
    limited = api.post("/v1/sandboxes", json={"timeout_s": 5, "idle_timeout_s": None, "grace_s": 0}).json()
    idle = api.post("/v1/sandboxes", json={"timeout_s": 300, "idle_timeout_s": 4, "grace_s": 0}).json()
    time.sleep(0.5)
    daemon.hold_down()
    daemon.let_up()
    now = {s["id"]: s for s in api.get("/v1/sandboxes").json()["items"]}
    assert set(now) == {limited["id"], idle["id"]}
    assert now[limited["id"]]["expires_at"] == limited["expires_at"]
    assert now[idle["id"]]["idle_timeout_s"] == 4
    record = ended(api, limited["id"], 20)
    assert record["exit"]["reason"] == "timeout"
    assert -0.1 < record["ended_at"] - limited["expires_at"] < 1
    assert ended(api, idle["id"], 20)["exit"]["reason"] == "idle_timeout"


def kill_right_after_create(make_daemon, rounds):
    daemon = make_daemon(supervised=True)
    rng = random.Random(48)
    last = 0
    for _ in range(rounds):
        with contextlib.suppress(httpx.TransportError):
            daemon.api.post("/v1/sandboxes", json={"timeout_s": 6, "idle_timeout_s": None, "grace_s": 0}, timeout=10)
            last = time.time()
            time.sleep(rng.uniform(0, 0.5))
        for role in ("keeper", "control", "node", "egress", "image"):
            daemon.kill_role(role)
        daemon.wait_ready()
    give_up = max(last, time.time()) + 6 + 15
    run = daemon.data_dir / "run"
    while alive := [d.name for d in run.iterdir() if not (d / "exit").exists()]:
        assert time.time() < give_up, alive
        time.sleep(0.2)
    # The list follows what is real within seconds.
    give_up = time.time() + 5
    while listed := daemon.api.get("/v1/sandboxes").json()["items"]:
        assert time.time() < give_up, listed
        time.sleep(0.2)


def test_ur048_no_sandbox_outlives_its_deadline_whatever_was_killed(make_daemon):
    kill_right_after_create(make_daemon, 6)


@pytest.mark.long
def test_ur048_fifty_times(make_daemon):
    kill_right_after_create(make_daemon, 50)


def test_ur049_calls_that_race_with_the_end(api):
    rng = random.Random(49)
    for _ in range(25):
        sb = api.post("/v1/sandboxes", json={}).json()["id"]
        offsets = [rng.uniform(0, 0.03) for _ in range(4)]

        def later(i, call):
            time.sleep(offsets[i])
            return call()

        calls = [lambda: api.post(f"/v1/sandboxes/{sb}/terminate", json={"grace_s": 0}, timeout=30),
                 lambda: api.post(f"/v1/sandboxes/{sb}/run", json={"command": ["true"]}, timeout=30),
                 lambda: api.put(f"/v1/sandboxes/{sb}/tags", json={"a": "b"}, timeout=30),
                 lambda: api.patch(f"/v1/sandboxes/{sb}", json={"extend_s": 60}, timeout=30)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(later, range(4), calls))
        assert replies[0].status_code == 200, replies[0].text
        for r in replies[1:]:
            assert r.status_code == 200 or r.json()["error"]["code"] in ("sandbox_ended", "conflict", "not_found"), r.text
        assert ended(api, sb, 10)["exit"]["reason"] == "terminated"
        assert api.delete(f"/v1/sandboxes/{sb}").status_code == 204


def test_ur054_no_lifetime_at_all(api):
    with api.sandbox(timeout_s=None, idle_timeout_s=None) as sb:
        assert sb["expires_at"] is None and sb["idle_timeout_s"] is None
        e = start(api, sb.id, ["sleep", "0.5"], timeout_s=None)
        assert wait(api, sb.id, e["id"])["exit"]["reason"] == "exited"
