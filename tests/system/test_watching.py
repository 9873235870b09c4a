"""Sandboxes from outside: the event stream of one, and what a list can be asked for."""

import json
import threading
import time

import pytest

from qsdaemon import error


def events(r):
    name = None
    for line in r.iter_lines():
        if line.startswith("event:"):
            name = line.split(":", 1)[1].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line.split(":", 1)[1])


def test_a_stream_tells_of_changes_and_the_end(api):
    sb = api.post("/v1/sandboxes", json={"name": "watched", "command": ["sleep", "300"]}).json()
    later = []
    with api.stream("GET", f"/v1/sandboxes/{sb['id']}/events", timeout=60) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
        stream = events(r)
        name, first = next(stream)
        assert (name, first["id"], first["state"], first["name"]) == ("sandbox", sb["id"], "running", "watched")
        api.patch(f"/v1/sandboxes/{sb['id']}", json={"name": "renamed"})
        name, changed = next(stream)
        assert (name, changed["name"]) == ("sandbox", "renamed")
        threading.Timer(0.2, lambda: later.append(api.post(f"/v1/sandboxes/{sb['id']}/terminate", json={"grace_s": 0}))).start()
        rest = list(stream)
    assert rest[-1][0] == "exit" and rest[-1][1]["exit"]["reason"] == "terminated"
    assert [name for name, _ in rest].count("exit") == 1
    # One that has ended says so at once.
    with api.stream("GET", f"/v1/sandboxes/{sb['id']}/events", timeout=60) as r:
        assert [name for name, _ in events(r)] == ["sandbox", "exit"]


def test_the_deadline_is_announced_once_a_deadline(api):
    sb = api.post("/v1/sandboxes", json={"timeout_s": 40}).json()
    with api.stream("GET", f"/v1/sandboxes/{sb['id']}/events", timeout=60) as r:
        stream = events(r)
        assert next(stream)[0] == "sandbox"
        name, notice = next(stream)
        assert name == "expiring" and 0 < notice["in_s"] <= 40 and notice["expires_at"] == sb["expires_at"]
        moved = api.patch(f"/v1/sandboxes/{sb['id']}", json={"expires_at": time.time() + 12}).json()
        seen = list(stream)
    assert [name for name, _ in seen].count("expiring") == 1
    assert [e["expires_at"] for name, e in seen if name == "expiring"] == [moved["expires_at"]]
    assert seen[-1][0] == "exit" and seen[-1][1]["exit"]["reason"] == "timeout"


def test_no_stream_of_what_is_not_there(api):
    error(api.get("/v1/sandboxes/sb-0000000000000000000000/events"), 404, "not_found")


@pytest.fixture
def five(api):
    made = [api.post("/v1/sandboxes", json={"app": "listed", "tags": {"n": str(i)}}).json()["id"] for i in range(5)]
    yield made
    for i in made:
        api.delete(f"/v1/sandboxes/{i}")


def test_lists_have_an_order_a_total_and_fields(api, five):
    def page(**query):
        r = api.get("/v1/sandboxes", params={"app": "listed", **query})
        assert r.status_code == 200, r.text
        return r.json()

    assert [o["id"] for o in page()["items"]] == five[::-1]
    assert [o["id"] for o in page(order="oldest")["items"]] == five
    ids, cursor = [], None
    while cursor is not None or not ids:
        p = page(order="oldest", limit=2, count="true", **({"cursor": cursor} if cursor else {}))
        assert p["total"] == 5
        ids += [o["id"] for o in p["items"]]
        cursor = p["next"]
    assert ids == five
    assert "total" not in page()
    assert page(tag="n:3", count="true", limit=1)["total"] == 1
    assert page(fields="id,state", limit=1, order="oldest")["items"] == [{"id": five[0], "state": "running"}]
    e = error(api.get("/v1/sandboxes", params={"app": "listed", "fields": "id,stat"}), 400, "unknown_field", "fields")
    assert "'stat'" in e["message"]
    error(api.get("/v1/sandboxes", params={"order": "up"}), 400, "invalid_argument", "order")
