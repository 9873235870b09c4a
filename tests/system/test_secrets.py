"""Secrets: named values that only the way out of a sandbox uses; nobody is told them again, and no disk has them in the clear."""

import os
import subprocess
import time

import pytest

import qsdaemon
from qsdaemon import error

VALUE = "s3cr3t-value-that-is-nowhere-" + "x" * 20


@pytest.fixture
def secret(api):
    api.delete("/v1/secrets/deploy")
    yield "deploy"
    api.delete("/v1/secrets/deploy")


def test_a_secret_has_names_keys_and_times_but_shows_no_value(api, secret):
    before = time.time()
    r = api.put(f"/v1/secrets/{secret}", json={"values": {"TOKEN": VALUE, "USER": "me"}})
    assert r.status_code == 201, r.text
    made = r.json()
    assert (made["name"], sorted(made["keys"]), made["version"], made["last_used_at"]) == (secret, ["TOKEN", "USER"], 1, None)
    assert before - 5 < made["created_at"] < time.time() + 5
    r = api.put(f"/v1/secrets/{secret}", json={"values": {"TOKEN": VALUE + "2"}})
    assert (r.status_code, r.json()["keys"], r.json()["version"]) == (200, ["TOKEN"], 2)
    r = api.patch(f"/v1/secrets/{secret}", json={"set": {"OTHER": VALUE}, "unset": ["TOKEN", "never-there"]})
    assert (r.status_code, r.json()["keys"], r.json()["version"]) == (200, ["OTHER"], 3)
    assert api.get(f"/v1/secrets/{secret}").json() == r.json()
    assert [s for s in api.get("/v1/secrets").json()["items"] if s["name"] == secret] == [r.json()]
    for answer in (api.get("/v1/secrets"), api.get(f"/v1/secrets/{secret}"), api.get("/v1/audit")):
        assert VALUE not in answer.text
    assert api.delete(f"/v1/secrets/{secret}").status_code == 204
    error(api.get(f"/v1/secrets/{secret}"), 404, "not_found")
    error(api.delete(f"/v1/secrets/{secret}"), 404, "not_found")


def test_what_is_no_secret_is_refused_with_the_reason(api, secret):
    error(api.put("/v1/secrets/a%20b", json={"values": {}}), 400, "invalid_argument", "name")
    error(api.put(f"/v1/secrets/{secret}", json={}), 400, "invalid_argument", "values")
    error(api.put(f"/v1/secrets/{secret}", json={"values": {"A": 1}}), 400, "invalid_argument", "values")
    error(api.put(f"/v1/secrets/{secret}", json={"values": {"A=B": "x"}}), 400, "invalid_argument", "values")
    error(api.put(f"/v1/secrets/{secret}", json={"values": {"A": "x" * 300_000}}), 413, "too_large", "values")
    error(api.patch(f"/v1/secrets/{secret}", json={"set": {"A": "x"}}), 404, "not_found")
    error(api.get(f"/v1/secrets/{secret}"), 404, "not_found")


def test_pages_of_secrets_miss_none(api):
    names = [f"page-{i}" for i in range(5)]
    for name in names:
        assert api.put(f"/v1/secrets/{name}", json={"values": {"K": "v"}}).status_code == 201
    seen, cursor = [], None
    while True:
        page = api.get("/v1/secrets", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [s["name"] for s in page["items"] if s["name"] in names]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == names[::-1]
    for name in names:
        api.delete(f"/v1/secrets/{name}")


def test_scopes_of_secrets(api, secret):
    def as_token(*scopes):
        t = api.post("/v1/tokens", json={"name": "s", "scopes": list(scopes), "expires_s": 60}).json()
        return {"authorization": f"Bearer {t['id']}.{t['secret']}"}

    reader, other = as_token("secret:read"), as_token("sandbox:write", "sandbox:read")
    error(api.put(f"/v1/secrets/{secret}", json={"values": {}}, headers=reader), 403, "permission_denied")
    error(api.get("/v1/secrets", headers=other), 403, "permission_denied")
    assert api.get("/v1/secrets", headers=reader).status_code == 200
    assert api.put(f"/v1/secrets/{secret}", json={"values": {}}, headers=as_token("secret:write")).status_code == 201


def test_values_are_on_no_disk_in_the_clear(daemon, api, secret):
    api.put(f"/v1/secrets/{secret}", json={"values": {"TOKEN": VALUE}})
    # Not the layers, nor the file system of sandboxes, which is a big file.
    places = [str(d) for d in (*(daemon.data_dir / n for n in ("control", "node", "egress", "run")), daemon.run_dir) if d.exists()]
    found = subprocess.run(["grep", "-rlaF", "--devices=skip", VALUE, *places], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.returncode) == ("", 1), found.stderr


def cli(daemon, *words, stdin=b"", **env):
    return subprocess.run([str(qsdaemon.build_dir() / "src/cli/quicksand"), *words], input=stdin, capture_output=True, timeout=30,
                          env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": daemon.url,
                               "QUICKSAND_TOKEN": daemon.token, **env})


def test_the_command_line_takes_values_from_everywhere_but_its_words(daemon, api, secret, tmp_path):
    def keys():
        return sorted(api.get(f"/v1/secrets/{secret}").json()["keys"])

    r = cli(daemon, "secret", "set", secret, "TOKEN", stdin=VALUE.encode() + b"\n")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"", b"")
    assert cli(daemon, "secret", "set", "--from-env", "MINE", secret, MINE=VALUE).returncode == 0
    assert keys() == ["MINE", "TOKEN"]
    lines = tmp_path / "env"
    lines.write_text("# none\n\nA=1\nB=x=y\n")
    assert cli(daemon, "secret", "set", "--env-file", str(lines), secret).returncode == 0
    assert keys() == ["A", "B", "MINE", "TOKEN"]
    assert cli(daemon, "secret", "set", "--replace", "--env-file", "-", secret, stdin=b"C=1\r\n").returncode == 0
    assert keys() == ["C"]
    out = cli(daemon, "secret", "ls").stdout.decode()
    assert [line.split() for line in out.splitlines() if line.startswith(secret)][0][2:] == ["C"]
    r = cli(daemon, "secret", "set", secret, "TOKEN=visible")
    assert r.returncode == 2 and b"everybody's to see" in r.stderr
    r = cli(daemon, "secret", "set", secret)
    assert r.returncode == 2
    r = cli(daemon, "secret", "set", "--from-env", "NOT_THERE", secret)
    assert r.returncode == 1 and b"no variable NOT_THERE" in r.stderr
    r = cli(daemon, "secret", "set", secret, "BAD", stdin=b"\xff\xfe")
    assert r.returncode == 1 and b"UTF-8" in r.stderr
    assert keys() == ["C"]
    assert cli(daemon, "secret", "rm", secret).returncode == 0
    error(api.get(f"/v1/secrets/{secret}"), 404, "not_found")
