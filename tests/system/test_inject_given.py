"""Rules that inject, as they are given: secrets by name, and what is there before the entry point starts."""

import time

import pytest

from qsdaemon import error
from test_reports_stdio import output


def rule(**inject):
    return {"rules": [{"domains": ["api.test"], "inject": [inject]}]}


@pytest.fixture
def secret(api):
    assert api.put("/v1/secrets/given", json={"values": {"TOKEN": "s3cr3t-of-the-test"}}).status_code in (200, 201)
    yield "given"
    api.delete("/v1/secrets/given")


def test_a_secret_that_is_not_there_is_told_with_its_rule(api, secret):
    def refused(network, words):
        e = error(api.post("/v1/sandboxes", json={"network": network}), 400, "invalid_argument", "network")
        assert words in e["message"], e

    refused(rule(header="x-key", value="$TOKEN", secret="never-made"), "rule 1: there is no secret 'never-made'")
    refused(rule(header="x-key", value="$OTHER", secret=secret), "rule 1: the secret 'given' has no key 'OTHER'")
    refused(rule(header="x-key", value="$TOKEN"), "rule 1: $TOKEN is a value of a secret, but the inject names none")
    refused(rule(aws_sigv4={"service": "s3", "region": "r"}, secret=secret), "has no key 'AWS_ACCESS_KEY_ID'")
    two = rule(header="x-key", value="$TOKEN", secret="never-made")
    two["rules"].insert(0, {"domains": ["other.test"]})
    refused(two, "rule 2: there is no secret 'never-made'")
    with api.sandbox(network={"rules": []}) as sb:
        e = error(api.put(f"/v1/sandboxes/{sb.id}/policy", json=two), 400, "invalid_argument", "network")
        assert "rule 2" in e["message"]
        assert api.get(f"/v1/sandboxes/{sb.id}/policy").json()["rules"] == []


def test_the_entry_point_finds_authority_and_placeholder(daemon, api, secret):
    network = rule(placeholder="API_KEY", prefix="sk-", value="$TOKEN", secret=secret)
    command = ["sh", "-c", "echo $API_KEY; echo $SSL_CERT_FILE; grep -c BEGIN $NODE_EXTRA_CA_CERTS"]
    seen = []
    for _ in range(2):
        with api.sandbox(network=network, command=command) as sb:
            assert api.get(f"/v1/sandboxes/{sb.id}", params={"wait": "exit"}).json()["exit"]["code"] == 0
            lines = api.get(f"/v1/sandboxes/{sb.id}/logs").text.splitlines()
            assert lines[0].startswith("sk-") and len(lines[0]) >= 16
            assert lines[1:] == ["/etc/quicksand/authorities.pem", "1"]
            seen.append(lines[0])
            shown = api.get(f"/v1/sandboxes/{sb.id}").text + api.get("/v1/audit").text
            assert "s3cr3t-of-the-test" not in shown
    assert seen[0] != seen[1]


def test_changes_of_a_secret_reach_a_sandbox_in_use(daemon, api, secret):
    with api.sandbox(network=rule(header="x-key", value="$TOKEN", secret=secret)) as sb:
        revision = api.get(f"/v1/sandboxes/{sb.id}/network").json()["revision"]
        assert api.put(f"/v1/secrets/{secret}", json={"values": {"TOKEN": "another"}}).status_code == 200
        assert api.delete(f"/v1/secrets/{secret}").status_code == 204
        for role in ("node", "egress"):
            daemon.kill_role(role)
            daemon.wait_ready()
            end = time.monotonic() + 30
            while True:
                r = api.get(f"/v1/sandboxes/{sb.id}/network")
                if r.status_code == 200 and r.json()["revision"] == revision:
                    break
                assert time.monotonic() < end, r.text
                time.sleep(0.2)
        assert output(api.run(sb, ["true"])) == b""
        assert r.json()["injected"] == 0
