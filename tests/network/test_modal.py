"""
Modal's forms of network access, at create (the mapping is a unit test) and changed while the sandbox runs.
"""

import time

import pytest

import world as w
from routerclient import Router, RouterError, teach
from test_policy import body, get, tls

OPEN, BLOCKED, ALLOWLIST = 1, 2, 3


@pytest.fixture
def modal(daemon, api):
    teach(daemon)
    with api.sandbox(network="open") as sb:
        router = Router(daemon, sb.id)

        def change(kind, cidrs=(), domains=()):
            router.TaskSetNetworkAccess(network_access={"network_access_type": kind, "allowed_cidrs": list(cidrs),
                                                        "allowed_domains": list(domains)})
        yield sb, change
        router.close()


def test_a_live_change(api, world, modal):
    sb, change = modal
    assert body(tls(api, sb, "evil.test"))["address"] == w.EVIL
    change(ALLOWLIST, domains=["allowed.test", "*.wild.test"])
    world.clear()
    assert body(tls(api, sb, "allowed.test"))["address"] == w.ALLOWED
    assert body(tls(api, sb, "www.wild.test"))["address"] == w.ALLOWED
    assert not tls(api, sb, "allowed.test", port=8443)["ok"]       # names count on port 443 alone
    assert not tls(api, sb, "evil.test", address=w.EVIL)["ok"]
    change(ALLOWLIST, cidrs=["93.184.216.35/31"], domains=["allowed.test"])     # host bits are cut off
    assert body(get(api, sb, "x.test", address=w.OTHER))["address"] == w.OTHER
    assert body(tls(api, sb, "allowed.test"))["address"] == w.ALLOWED
    change(ALLOWLIST)
    assert not tls(api, sb, "allowed.test", address=w.ALLOWED)["ok"]
    change(BLOCKED)
    assert not get(api, sb, "x.test", address=w.OTHER)["ok"]
    assert not world.went_to(w.EVIL)
    change(OPEN)
    assert body(tls(api, sb, "evil.test"))["address"] == w.EVIL


def test_what_cannot_be_allowed(api, modal):
    sb, change = modal
    for cidrs, domains in ((["10.0.0.0/33"], []), ([], ["a b"]), ([], ["1.2.3.4"])):
        with pytest.raises(RouterError) as e:
            change(ALLOWLIST, cidrs, domains)
        assert e.value.name == "INVALID_ARGUMENT" and (cidrs + domains)[0] in e.value.text
    assert body(tls(api, sb, "evil.test"))["address"] == w.EVIL


def test_replacements_of_none_leave_what_is_allowed(api, daemon, modal):
    sb, change = modal
    change(ALLOWLIST, domains=["allowed.test"])
    before = api.get(f"/v1/sandboxes/{sb.id}/policy").json()
    router = Router(daemon, sb.id)
    router.TaskSetOutboundPolicy(experimental_outbound_policy={})
    router.close()
    after = api.get(f"/v1/sandboxes/{sb.id}/policy").json()
    assert after.pop("revision") == before.pop("revision") + 1 and after == before


def test_a_secret_that_is_not_there(api, daemon, modal):
    sb, _ = modal
    router = Router(daemon, sb.id)
    for secret in ("st-0000000000000000000000", "st-x"):
        replaced = {"domain": "allowed.test", "secret_id": secret, "headers": {"X": "$TOKEN"}}
        with pytest.raises(RouterError) as e:
            router.TaskSetOutboundPolicy(experimental_outbound_policy={"header_replacements": [replaced]})
        assert e.value.name == "FAILED_PRECONDITION" and secret in e.value.text
    router.close()
    assert body(tls(api, sb, "evil.test"))["address"] == w.EVIL


def again_at_work(daemon, sb, access):
    """Control tells the node its own keys once more, maybe after the test has."""
    end = time.monotonic() + 60
    while True:
        teach(daemon)
        router = Router(daemon, sb.id)
        try:
            return router.TaskSetNetworkAccess(network_access=access)
        except RouterError as e:
            assert e.name in ("UNAUTHENTICATED", "UNAVAILABLE") and time.monotonic() < end, e
        finally:
            router.close()


def test_replacements_outlive_the_daemons(api, daemon, modal):
    """They are found again in the policy on disk, and in force again without anybody's doing."""
    sb, change = modal
    router = Router(daemon, sb.id)
    replaced = {"domain": "allowed.test", "headers": {"X-Key": "$$1"}}
    router.TaskSetOutboundPolicy(experimental_outbound_policy={"header_replacements": [replaced]})
    change(ALLOWLIST, domains=["other.test"])
    router.close()
    before = api.get(f"/v1/sandboxes/{sb.id}/policy").json()
    assert [r.get("name") for r in before["rules"]] == ["outbound_domain_allowlist", "outbound_allowlist", "header_replacement"]
    daemon.kill_role("node")
    daemon.kill_role("egress")
    daemon.wait_ready()
    again_at_work(daemon, sb, {"network_access_type": ALLOWLIST, "allowed_domains": ["allowed.test"]})
    assert [(r.get("name"), r["domains"]) for r in api.get(f"/v1/sandboxes/{sb.id}/policy").json()["rules"] if "domains" in r] == [
        ("header_replacement", ["allowed.test"]), ("outbound_domain_allowlist", ["allowed.test"]), ("header_replacement", ["allowed.test"])]
    assert body(tls(api, sb, "allowed.test"))["fields"]["x-key"] == "$1"


def test_what_the_call_does_not_speak_of_stays(api, modal):
    sb, change = modal
    where = f"/v1/sandboxes/{sb.id}/policy"
    policy = {"allow_domains": ["other.test"], "bandwidth": {"up_bits_s": 8000000}}
    assert api.put(where, json=policy).status_code == 200
    change(ALLOWLIST, domains=["allowed.test"])
    now = api.get(where).json()
    assert [r["domains"] for r in now["rules"]] == [["allowed.test"]] and now["bandwidth"]["up_bits_s"] == 8000000
    policy = {"rules": [], "refuse_ech": True}
    assert api.put(where, json=policy).status_code == 200
    change(OPEN)
    assert api.get(where).json()["refuse_ech"] is True


def test_blocked_is_for_good(api, daemon):
    teach(daemon)
    with api.sandbox() as sb:
        router = Router(daemon, sb.id)
        with pytest.raises(RouterError) as e:
            router.TaskSetNetworkAccess(network_access={"network_access_type": OPEN})
        assert e.value.name == "FAILED_PRECONDITION"
        router.close()
