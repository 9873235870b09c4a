"""
Outbound policies through the Python client: headers that are replaced in requests outside of the sandbox, and routes, which no client
sends yet. Outside are the servers of tests/network/world.py.
"""

import json
import os
import pathlib

import modal
import modal.exception as ex
import modal.experimental
from kit import V2, app, create, image, raises, run, sandbox, unique
from modal._utils.async_utils import synchronizer
from modal_proto import api_pb2

ASK = pathlib.Path(os.environ["QS_ASK"]).read_text()
ALLOWED, OTHER, EVIL = "93.184.216.34", "93.184.216.35", "198.97.190.53"


def ask(sb, host, address=None, **headers):
    spec = {"url": f"https://{host}/x", "headers": {k.replace("_", "-"): v for k, v in headers.items()}}
    out, err, code = run(sb, "python3", "-c", ASK, json.dumps({**spec, **({"address": address} if address else {})}))
    assert code == 0, err
    return json.loads(out)


def field(sb, name, host, **headers):
    """What the server saw of a field, by a connection that was opened."""
    r = ask(sb, host, **headers)
    assert r.get("own"), r
    return r["fields"].get(name)


def is_untouched(r):
    return r.get("own") is False and "x-key" not in r["fields"] and "authorization" not in r["fields"]


def make_secret(value):
    name = unique("secret")
    modal.Secret.objects.create(name, {"TOKEN": value, "USER": "me"})
    return modal.Secret.from_name(name)


def policy(domain="allowed.test", secret=None, **headers):
    return modal.experimental.OutboundPolicy().with_header_replacement(
        domain=domain, secret=secret, headers={k.replace("_", "-"): v for k, v in headers.items()})


def test_headers_are_replaced():
    value = unique("value-of-the-secret")
    mine = policy(secret=make_secret(value), Authorization="Bearer $TOKEN").with_header_replacement(
        domain="*.wild.test", headers={"X-Key": "a$$b ${USER}"})
    with sandbox(_experimental_outbound_policy=mine) as sb:
        assert field(sb, "authorization", "allowed.test") == f"Bearer {value}"
        assert field(sb, "authorization", "allowed.test", Authorization="mine") == f"Bearer {value}"
        assert field(sb, "x-key", "www.wild.test", X_Key="mine") == "a$b ${USER}"
        assert field(sb, "x-key", "wild.test") == "a$b ${USER}"
        assert field(sb, "authorization", "wild.test", Authorization="mine") == "mine"
        assert is_untouched(ask(sb, "other.test"))
        inside = run(sb, "sh", "-c", "env; cat /proc/1/environ; grep -rs value-of-the-secret /etc /root /tmp /run /var; true")[0]
        assert "value-of-the-secret" not in inside


def long_the_more_exact_domain_goes_first():
    mine = policy("*", X_Key="all", X_All="1").with_header_replacement(domain="*.wild.test", headers={"X-Key": "wild"})
    mine = mine.with_header_replacement(domain="www.wild.test", headers={"x-key": "exact"})
    with sandbox(_experimental_outbound_policy=mine) as sb:
        for host, want in (("www.wild.test", "exact"), ("wild.test", "wild"), ("evil.test", "all")):
            r = ask(sb, host)
            assert (r["own"], r["fields"]["x-key"], r["fields"]["x-all"]) == (True, want, "1"), host


def test_replacements_allow_nothing():
    mine = policy("*", X_Key="1")
    with sandbox(_experimental_outbound_policy=mine, outbound_cidr_allowlist=[OTHER]) as sb:
        assert ask(sb, "other.test", OTHER).get("address") == OTHER
        assert "error" in ask(sb, "allowed.test", ALLOWED) and "error" in ask(sb, "evil.test", OTHER.replace("35", "34"))
    with sandbox(_experimental_outbound_policy=policy("other.test", X_Key="1"), outbound_cidr_allowlist=[OTHER]) as sb:
        assert field(sb, "x-key", "other.test") == "1"
        assert "error" in ask(sb, "allowed.test")
    with sandbox(_experimental_outbound_policy=mine, outbound_cidr_allowlist=[], outbound_domain_allowlist=[]) as sb:
        assert "error" in ask(sb, "allowed.test", ALLOWED)
        sb._experimental_set_outbound_network_policy(outbound_domain_allowlist=["allowed.test"])
        assert field(sb, "x-key", "allowed.test") == "1"
        assert "error" in ask(sb, "evil.test", EVIL)
    with raises(ex.InvalidError):
        create(_experimental_outbound_policy=mine, block_network=True)


def test_each_half_changes_alone():
    with sandbox(_experimental_outbound_policy=policy(X_Key="one")) as sb:
        assert field(sb, "x-key", "allowed.test") == "one"
        sb._experimental_set_outbound_network_policy(outbound_domain_allowlist=["*.test"])
        assert field(sb, "x-key", "allowed.test") == "one" and is_untouched(ask(sb, "evil.test"))
        sb._experimental_update_outbound_policy(policy("other.test", X_Key="two"))
        assert field(sb, "x-key", "other.test") == "two" and is_untouched(ask(sb, "allowed.test"))
        sb._experimental_set_outbound_network_policy(outbound_domain_allowlist=["allowed.test"])
        assert is_untouched(ask(sb, "allowed.test")) and "error" in ask(sb, "other.test", OTHER)
        sb._experimental_set_outbound_network_policy()
        assert field(sb, "x-key", "other.test") == "two" and is_untouched(ask(sb, "evil.test"))
        sb._experimental_update_outbound_policy(modal.experimental.OutboundPolicy())
        assert is_untouched(ask(sb, "other.test"))


def long_a_sandbox_made_without_one():
    with sandbox() as sb:
        assert is_untouched(ask(sb, "allowed.test"))
        sb._experimental_update_outbound_policy(policy(X_Key="late"))
        assert field(sb, "x-key", "allowed.test") == "late"
    with sandbox(block_network=True) as sb, raises(ex.ConflictError, "is blocked for good"):
        sb._experimental_update_outbound_policy(policy(X_Key="late"))


def test_a_changed_secret():
    secret = make_secret("value-before")
    with sandbox(_experimental_outbound_policy=policy(secret=secret, X_Key="$USER $TOKEN")) as sb:
        assert field(sb, "x-key", "allowed.test") == "me value-before"
        secret.update({"TOKEN": "value-after"})
        assert field(sb, "x-key", "allowed.test") == "me value-after"
        sb._experimental_update_outbound_policy(policy(secret=secret, X_Key="$TOKEN"))
        assert field(sb, "x-key", "allowed.test") == "value-after"


def test_what_is_refused():
    secret = make_secret("value")
    bad = ((policy(secret=secret, X_Key="$NO"), "has no key 'NO'"), (policy(Host="evil.test"), "Invalid header 'Host'"),
           (policy(Content_Length="1"), "Invalid header 'Content-Length'"))
    with sandbox() as sb:
        for one, text in bad:
            with raises(ex.InvalidError, text):
                create(_experimental_outbound_policy=one)
            with raises(ex.InvalidError, text):
                sb._experimental_update_outbound_policy(one)
        for one in (policy("a b", X_Key="1"), policy(X_Key="$TOKEN"), modal.experimental.OutboundPolicy().with_header_replacement(
                domain="a.test", headers={f"x{i}": "1" for i in range(26)})):
            with raises(ex.InvalidError):
                create(_experimental_outbound_policy=one)
        assert is_untouched(ask(sb, "allowed.test"))


# --- routes


@synchronizer.create_blocking
async def by_the_stub(client, method, request):
    return await getattr(client._stub, method)(request)


def create_with(routes, decrypt=False, **fields):
    """A sandbox of a definition with routes."""
    image.build(app)
    definition = api_pb2.Sandbox(
        image_id=image.object_id, timeout_secs=600, entrypoint_args=["sleep", "600"],
        outbound_policy=api_pb2.OutboundPolicy(tls_decryption={"allowed": decrypt}, routes=[api_pb2.OutboundPolicy.Route(**r) for r in routes]),
        **{"network_access": api_pb2.NetworkAccess(network_access_type=api_pb2.NetworkAccess.OPEN), **fields})
    method = "SandboxCreateV2" if V2 else "SandboxCreate"
    request = getattr(api_pb2, method + "Request")(app_id=app.app_id, definition=definition)
    return modal.Sandbox.from_id(by_the_stub(modal.Client.from_env(), method, request).sandbox_id)


BLOCK = {"redirect": {"block": {}}}
NOTHING_ELSE = {"any": BLOCK}


def test_routes_in_their_order():
    secret = make_secret("value-of-a-route")
    secret.hydrate()
    replaced = {"secret_id": secret.object_id, "headers": {"X-Key": "$TOKEN"}}
    sb = create_with([{"tls": {"domains": ["evil.test"], **BLOCK}},
                      {"https": {"domains": ["allowed.test"], "header_replacements": [replaced]}},
                      {"https": {"domains": ["*.wild.test"]}},
                      {"ip": {"cidrs": [ALLOWED], "ports": [{"start": 9999, "end": 9999}]}},
                      {"tls": {"domains": ["*.test"]}}, NOTHING_ELSE], decrypt=True)
    try:
        assert field(sb, "x-key", "allowed.test") == "value-of-a-route"
        assert field(sb, "x-key", "wild.test") is None          # decrypted all the same
        assert is_untouched(ask(sb, "other.test"))
        assert "error" in ask(sb, "evil.test", EVIL)
        talk = "import socket; s = socket.create_connection(('%s', %d)); s.sendall(b'hi'); print(s.recv(2))"
        assert run(sb, "python3", "-c", talk % (ALLOWED, 9999))[0] == "b'hi'\n"
        assert run(sb, "python3", "-c", talk % (OTHER, 9999))[2] != 0
        for change in (lambda: sb._experimental_set_outbound_network_policy(),
                       lambda: sb._experimental_update_outbound_policy(policy(X_Key="1"))):
            with raises(ex.ConflictError, "the sandbox was created with outbound_policy"):
                change()
        assert "error" in ask(sb, "evil.test", EVIL)
    finally:
        sb.terminate()


def test_routes_that_are_refused():
    proxied = {"redirect": {"via_proxy": {"proxy_id": "pr-1"}}}
    aside = {"redirect": {"via_sidecar": {"sidecar_name": "x"}}}
    for routes, options, text in (
            ([{"ip": {"cidrs": [ALLOWED], **proxied}}, NOTHING_ELSE], {}, "outbound_policy.routes[0].ip.redirect.via_proxy: "),
            ([{"tls": {"domains": ["*"], **aside}}, NOTHING_ELSE], {}, "outbound_policy.routes[0].tls.redirect.via_sidecar: "),
            ([{"tls": {"domains": ["a.test"]}}, {"any": proxied}], {}, "outbound_policy.routes[1].any.redirect.via_proxy: "),
            ([{"https": {"domains": ["a.test"]}}, NOTHING_ELSE], {}, "outbound_policy.routes[0].https: "),
            ([{"ip": {"cidrs": ["1.2.3.4/33"]}}, NOTHING_ELSE], {}, "outbound_policy.routes[0].ip.cidrs: Invalid CIDR: '1.2.3.4/33'"),
            ([NOTHING_ELSE, {"tls": {"domains": ["a.test"]}}], {}, "outbound_policy.routes[0].any: it must be the last one"),
            ([{"tls": {"domains": ["a.test"]}}], {}, "the last one must be of kind any"),
            ([NOTHING_ELSE], {"network_access": api_pb2.NetworkAccess(network_access_type=api_pb2.NetworkAccess.ALLOWLIST)},
             "outbound_policy cannot be used with a network access other than OPEN"),
            ([NOTHING_ELSE], {"experimental_outbound_policy": api_pb2.ExperimentalOutboundPolicy()},
             "outbound_policy cannot be used with experimental_outbound_policy")):
        with raises(ex.InvalidError, text):
            create_with(routes, **options)
