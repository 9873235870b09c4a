"""
Policies with names: versions, the sandboxes that follow them and those that stay, changes by others, removal.
"""

import json
import subprocess

import pytest

import world as w
from routerclient import Router, teach
from test_decisions import log
from test_policy import body, get, said, status

ONE = {"allow_domains": ["allowed.test"]}
TWO = {"allow_domains": ["other.test"]}


@pytest.fixture
def name(api, request):
    text = "p-" + request.node.originalname.replace("_", "-")[:50]
    yield text
    api.delete(f"/v1/policies/{text}", params={"force": "true"})


def put(api, name, policy, **query):
    r = api.put(f"/v1/policies/{name}", json=policy, params=query)
    assert r.status_code in (200, 201), r.text
    return r.json()


def policy(api, sb):
    return api.get(f"/v1/sandboxes/{sb.id}/policy").json()


def reaches(api, sb, host):
    address = {"allowed.test": w.ALLOWED, "other.test": w.OTHER}[host]
    answer = get(api, sb, host, address=address)
    return status(answer) == 200


def test_versions(api, name):
    assert api.get(f"/v1/policies/{name}").status_code == 404
    assert api.put(f"/v1/policies/{name}", json=ONE).status_code == 201
    first = api.get(f"/v1/policies/{name}").json()
    assert (first["name"], first["version"], first["policy"]) == (name, 1, ONE) and first["created_by"].startswith("tk-")
    assert put(api, name, ONE)["version"] == 1          # nothing has changed
    assert put(api, name, TWO)["version"] == 2
    assert api.get(f"/v1/policies/{name}").json()["policy"] == TWO
    assert api.get(f"/v1/policies/{name}", params={"version": 1}).json()["policy"] == ONE
    assert api.get(f"/v1/policies/{name}", params={"version": 3}).status_code == 404
    assert [x["version"] for x in api.get(f"/v1/policies/{name}/versions").json()["items"]] == [2, 1]
    listed = {x["name"]: x["version"] for x in api.get("/v1/policies").json()["items"]}
    assert listed[name] == 2
    r = api.get(f"/v1/policies/{name}/explain", params={"url": "https://allowed.test/", "version": 1}).json()
    assert (r["action"], r["rule_name"], r["version"]) == ("allow", "allow_domains", 1)
    assert api.get(f"/v1/policies/{name}/explain", params={"url": "https://allowed.test/"}).json()["action"] == "deny"
    for n in range(3, 106):
        put(api, name, {"allow_domains": [f"h{n}.test"]})
    assert [x["version"] for x in api.get(f"/v1/policies/{name}/versions").json()["items"]] == list(range(105, 5, -1))
    assert api.delete(f"/v1/policies/{name}").status_code == 204
    assert api.delete(f"/v1/policies/{name}").status_code == 404
    assert api.get(f"/v1/policies/{name}/versions").status_code == 404


def test_lists_in_pages(api):
    names = [f"page-{i}" for i in range(5)]
    for n in names:
        put(api, n, ONE)
    got, query = [], {"limit": 2}
    while True:
        page = api.get("/v1/policies", params=query).json()
        got += [x["name"] for x in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert [n for n in got if n.startswith("page-")] == names
    for n in names:
        assert api.delete(f"/v1/policies/{n}").status_code == 204


@pytest.mark.parametrize("spec,says", [
    ({"name": "no such"}, "A-Z"), ({"name": "nobody"}, "nobody"), ({"name": "p", "version": 0}, "version"),
    ({"name": "p", "rules": []}, "rules"), ({"name": 7}, "name"),
], ids=str)
def test_bad_references(api, spec, says):
    r = api.post("/v1/sandboxes", json={"network": spec})
    assert r.status_code in (400, 404), r.text
    assert says in r.json()["error"]["message"] and r.json()["error"]["param"] == "network"


def test_bad_policies_have_no_version(api, name):
    for bad in ({"rules": [{"domains": ["a..b"]}]}, {"name": "other"}, {}):
        assert api.put(f"/v1/policies/{name}", json=bad).status_code == 400
    assert api.put("/v1/policies/a%20b", json=ONE).status_code == 400
    assert api.get(f"/v1/policies/{name}").status_code == 404


def test_those_who_follow(api, world, daemon, name):
    put(api, name, ONE)
    with api.sandbox(network={"name": name}) as follows, api.sandbox(network={"name": name, "version": 1}) as stays, \
            api.sandbox(network=ONE) as other:
        assert {k: policy(api, follows)[k] for k in ("name", "version", "follows", "revision")} == \
            {"name": name, "version": 1, "follows": True, "revision": 1}
        assert (policy(api, stays)["version"], policy(api, stays)["follows"], policy(api, other)["name"]) == (1, False, None)
        assert reaches(api, follows, "allowed.test")
        # A new version alone changes nothing.
        assert "applied" not in put(api, name, TWO)
        assert reaches(api, follows, "allowed.test") and not reaches(api, follows, "other.test")
        r = api.post(f"/v1/policies/{name}/apply").json()
        assert r == {"name": name, "version": 2, "applied": [{"sandbox": follows.id, "revision": 2}], "failed": []}
        assert reaches(api, follows, "other.test") and not reaches(api, follows, "allowed.test")
        assert log(api, follows)["items"][-1]["revision"] == 2
        assert reaches(api, stays, "allowed.test") and reaches(api, other, "allowed.test")
        assert policy(api, follows)["version"] == 2

        # By PUT a sandbox begins or ceases to follow.
        r = api.put(f"/v1/sandboxes/{other.id}/policy", json={"name": name})
        assert r.json() == {"revision": 2} and policy(api, other)["follows"]
        assert api.put(f"/v1/sandboxes/{follows.id}/policy", json={"name": name, "version": 2}).json() == {"revision": 3}
        r = put(api, name, ONE, apply="true")
        assert r["version"] == 3 and r["applied"] == [{"sandbox": other.id, "revision": 3}]
        assert reaches(api, other, "allowed.test") and reaches(api, follows, "other.test")

        # One that follows is not forgotten by a removal, unless that is wanted.
        r = api.delete(f"/v1/policies/{name}")
        assert r.status_code == 409 and other.id in r.json()["error"]["message"]
        # Somebody else's change ends it.
        teach(daemon)
        router = Router(daemon, other.id)
        router.TaskSetNetworkAccess(network_access={"network_access_type": 3, "allowed_cidrs": [], "allowed_domains": ["allowed.test"]})
        router.close()
        r = put(api, name, TWO, apply="true")
        assert r["version"] == 4 and r["applied"] == r["failed"] == []
        assert policy(api, other)["name"] is None
        assert api.delete(f"/v1/policies/{name}").status_code == 204
        assert reaches(api, follows, "other.test")
    lines = [x for x in api.get("/v1/audit", params={"limit": 200}).json()["items"] if x["operation"] == "policy.apply"]
    assert lines and lines[0]["target"] == name


def test_open_connections(api, world, name):
    """Cut by a version that does not allow them, or kept by flag."""
    script = ("import socket,sys\ns=socket.create_connection(('allowed.test',80))\n"
              "s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); s.recv(9999); print('up',flush=True)\n"
              "s.settimeout(60)\ntry: d=s.recv(10)\nexcept OSError as e: d=type(e).__name__\nprint('end',d,flush=True)")

    def open_now():
        return api.get(f"/v1/sandboxes/{sb.id}/network").json()["connections_open"]

    put(api, name, ONE)
    with api.sandbox(network={"name": name}) as sb:
        x = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", script]}).json()
        said(api, sb, x["id"], "up")
        assert open_now() == 1
        put(api, name, TWO, apply="true", keep="true")
        assert open_now() == 1
        api.post(f"/v1/policies/{name}/apply")
        assert open_now() == 0
        r = api.get(f"/v1/sandboxes/{sb.id}/execs/{x['id']}", params={"wait": "exit", "timeout_s": 30})
        assert r.json()["exit"]["code"] == 0


def test_the_command_line(api, world, daemon, name, tmp_path):
    env = {"QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}

    def quicksand(*words, stdin=None):
        return subprocess.run([daemon.lib_dir / "quicksand", "policy", *words], env=env, capture_output=True, text=True,
                              input=stdin)

    (tmp_path / "one.json").write_text(json.dumps(ONE))
    out = quicksand("put", name, f"@{tmp_path}/one.json")
    assert (out.returncode, out.stdout) == (0, f"{name} version 1\n"), out
    with api.sandbox(network={"name": name}) as sb:
        out = quicksand("put", "--apply", name, "@-", stdin=json.dumps(TWO))
        assert (out.returncode, out.stdout) == (0, f"{name} version 2\n{sb.id}: revision 2\n"), out
        assert json.loads(quicksand("show", "--version", "1", name).stdout)["policy"] == ONE
        assert [x.split()[:2] for x in quicksand("versions", name).stdout.splitlines()[1:]] == [[name, "2"], [name, "1"]]
        assert name in quicksand("ls").stdout
        out = quicksand("set", "--version", "1", sb.id, name)
        assert (out.returncode, out.stdout) == (0, "revision 3\n"), out
        assert body(get(api, sb, "allowed.test"))["address"] == w.ALLOWED
        assert quicksand("set", sb.id, json.dumps(TWO)).stdout == "revision 4\n"
        assert quicksand("set", sb.id, name).stdout == "revision 5\n"
        assert quicksand("apply", "--keep", name).stdout == f"{name} version 2\n{sb.id}: revision 6\n"
        out = quicksand("rm", name)
        assert out.returncode == 1 and "follow" in out.stderr
        assert quicksand("rm", "--force", name).returncode == 0
    assert quicksand("put", name, "nonsense").returncode == 1
    assert quicksand("put", name, "@/does/not/exist").returncode == 1
    assert quicksand("show", name).returncode == 1
