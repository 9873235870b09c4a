"""Faults that users of such systems met: names, lists, tags. Each test bears the report's number."""

import concurrent.futures

import pytest

from test_reports_exec import error
from test_reports_stdio import output


def everything(api, **query):
    """All items of a list, page by page."""
    items, cursor = [], None
    while True:
        page = api.get("/v1/sandboxes", params={**query, **({"cursor": cursor} if cursor else {})}).json()
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items


def test_ur055_one_of_many_parallel_creates_of_a_name_wins(api):
    def create(_):
        return api.post("/v1/sandboxes", json={"name": "race", "app": "ur055"}, timeout=60)

    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(create, range(50)))
        won = [r.json() for r in replies if r.status_code == 201]
        assert len(won) == 1
        assert {r.json()["error"]["code"] for r in replies if r.status_code != 201} == {"already_exists"}
        found = api.get("/v1/apps/ur055/sandboxes/race").json()
        assert found["id"] == won[0]["id"]
        assert len(everything(api, app="ur055")) == 1
        assert api.post(f"/v1/sandboxes/{found['id']}/terminate", json={"grace_s": 0}, timeout=30).json()["state"] == "ended"
        error(api.get("/v1/apps/ur055/sandboxes/race"), 404, "not_found")
        assert api.get("/v1/apps/ur055/sandboxes/race", params={"state": "any"}).json()["exit"]["reason"] == "terminated"
    for s in everything(api, app="ur055", state="any"):
        assert api.delete(f"/v1/sandboxes/{s['id']}").status_code == 204


@pytest.mark.parametrize("name", ["x" * 64, "a--b-", "-a", "a.b", "UPPER", "..."])
def test_ur056_good_names(api, name):
    with api.sandbox(name=name, app="ur056") as sb:
        assert api.get(f"/v1/apps/ur056/sandboxes/{name}").json()["id"] == sb.id
        host = output(api.run(sb, ["hostname"])).strip()
        assert 0 < len(host) <= 63


@pytest.mark.parametrize("name", ["x" * 65, "é", "a/b", "..", ".", "", "x\n", "x\0", "ap-0123456789012345678901", "a b", 5, True])
def test_ur056_bad_names(api, name):
    assert error(api.post("/v1/sandboxes", json={"name": name}), 400, "invalid_argument")["param"] == "name"
    if isinstance(name, str):
        assert error(api.post("/v1/sandboxes", json={"app": name}), 400, "invalid_argument")["param"] == "app"


def test_ur057_pages_neither_lose_nor_repeat(api):
    def create(_):
        return api.post("/v1/sandboxes", json={"app": "ur057"}, timeout=120).json()["id"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        made = list(pool.map(create, range(120)))
    try:
        seen = [s["id"] for s in everything(api, app="ur057", limit=7)]
        assert sorted(seen) == sorted(made)
        ids, cursor, ended = [], None, set(made[::12])
        first = True
        while True:
            page = api.get("/v1/sandboxes", params={"app": "ur057", "limit": 10, **({"cursor": cursor} if cursor else {})}).json()
            ids += [s["id"] for s in page["items"]]
            if first:
                for i in ended:
                    assert api.post(f"/v1/sandboxes/{i}/terminate", json={"grace_s": 0}, timeout=30).status_code == 200
                first = False
            cursor = page["next"]
            if cursor is None:
                break
        assert len(ids) == len(set(ids))
        assert set(made) - ended <= set(ids)
    finally:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda i: api.delete(f"/v1/sandboxes/{i}", timeout=60).status_code, made)) == {204}


def test_ur060_tags(api):
    with api.sandbox(tags={"a": "1", "b": "2"}, app="ur060") as sb:
        def ids(*tags):
            return [s["id"] for s in api.get("/v1/sandboxes", params={"app": "ur060", "tag": list(tags)}).json()["items"]]

        assert ids("a:1") == [sb.id]
        assert ids("a:1", "b:2") == [sb.id]
        assert ids("a:2") == [] and ids("a:1", "b:1") == []
        url = f"/v1/sandboxes/{sb.id}/tags"
        assert api.put(url, json={"c": "é☕"}).status_code == 200
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["tags"] == {"c": "é☕"}
        assert api.patch(url, json={"d": "4", "c": None}).status_code == 200
        sandbox = api.get(f"/v1/sandboxes/{sb.id}").json()
        assert sandbox["tags"] == {"d": "4"}
        revision = str(sandbox["tags_revision"])
        assert api.put(url, json={"e": "5"}, headers={"if-match": revision}).status_code == 200
        error(api.put(url, json={"e": "6"}, headers={"if-match": revision}), 412, "precondition_failed")
        assert api.put(url, json={"k": "x" * 10240}).status_code in (400, 413)
        assert api.put(url, json={str(i): "v" for i in range(65)}).status_code in (400, 413, 429)
        assert api.get("/v1/sandboxes", params={"tag": "no-colon"}).status_code == 400
        assert api.get("/v1/sandboxes", params={"state": "nonsense"}).status_code == 400
        assert api.get("/v1/sandboxes", params={"cursor": "nonsense"}).status_code == 400
        assert api.get("/v1/sandboxes", params={"limit": 0}).status_code == 400


def test_ur061_reserved_tags(api):
    r = api.post("/v1/sandboxes", json={"tags": {"quicksand.owner": "me"}})
    assert error(r, 400, "invalid_argument")["param"].startswith("tags")


def test_tokens_see_only_what_their_scopes_allow(api):
    t = api.post("/v1/tokens", json={"name": "reader", "scopes": ["sandbox:read"]})
    assert t.status_code in (200, 201), t.text
    reader = {"authorization": f"Bearer {t.json()['id']}.{t.json()['secret']}"}
    assert api.get("/v1/sandboxes", headers=reader).status_code == 200
    body = error(api.post("/v1/sandboxes", json={}, headers=reader), 403, "permission_denied")
    assert "sandbox:create" in body["message"] + body["hint"]
    assert api.get("/v1/me", headers=reader).json()["scopes"] == ["sandbox:read"]
    assert "secret" not in api.get("/v1/tokens").text.replace("secrets", "")
    assert api.delete(f"/v1/tokens/{t.json()['id']}").status_code == 204
    error(api.get("/v1/sandboxes", headers=reader), 401, "unauthenticated")
    for bad in ("Bearer nonsense", "Bearer a.b", "Basic abc", ""):
        error(api.get("/v1/sandboxes", headers={"authorization": bad}), 401, "unauthenticated")


def test_every_call_leaves_an_audit_line(api):
    r = api.post("/v1/sandboxes", json={"app": "audited"})
    assert api.delete(f"/v1/sandboxes/{r.json()['id']}").status_code == 204
    import time

    time.sleep(1.5)
    lines = api.get("/v1/audit", params={"limit": 50}).json()["items"]
    mine = [line for line in lines if line["request_id"] == r.headers["x-request-id"]]
    assert len(mine) == 1
    assert (mine[0]["operation"], mine[0]["status"]) == ("sandbox.create", 201)
