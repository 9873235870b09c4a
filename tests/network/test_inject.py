"""
What rules put into requests outside of the sandbox, and that its values are nowhere inside.

The server (teller.py) tells what arrived.
"""

import base64
import hashlib
import hmac
import json
import re
import urllib.parse

import pytest

import teller as t
from opened import AWS_KEY, HEADER, VALUE, ask, field, head, last_denial, network, policy, rule, talk, text, told
from test_decisions import all_lines

HOLDER = "sk-0123456789abcdef"


def basic(password):
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


@pytest.mark.parametrize("port", [t.TLS, t.PLAIN])
def test_a_header(api, server, secret, port):
    with api.sandbox(network=policy(rule({"header": "X-Key", "value": "Bearer $TOKEN"}, protocol="any"))) as sb:
        one, two, three = ask(api, sb, head("/a?b=c"), head("/", X_Key="mine"), head("/", method="HEAD"), port=port)
        assert field(one, "x-key") == ["Bearer " + VALUE] and field(two, "x-key") == ["Bearer " + VALUE]
        assert told(one)["target"] == "/a?b=c" and told(one)["connection"] == told(two)["connection"]
        assert three[0] == 200 and three[2] == ""
        assert network(api, sb)["injected"] == 3


def test_the_default_is_tls_alone(api, server, secret):
    """Nobody's credentials go out in the clear unless a rule says so."""
    with api.sandbox(network=policy(HEADER)) as sb:
        assert text(api, sb, [head()], port=t.PLAIN).startswith("HTTP/1.1 403 ")
        assert server.heads == []


def test_query_basic_and_placeholder(api, server, secret):
    rules = policy(
        {**rule({"query": "key", "value": "$TOKEN"}), "paths": ["/query*"]},
        {**rule({"basic": {"user": "$USER", "password": "$TOKEN"}}), "paths": ["/basic"]},
        {**rule({"header": "X-Key", "value": "$TOKEN", "mode": "replace"}), "paths": ["/replace"]},
        rule({"placeholder": "API_KEY", "value": "$TOKEN", "text": HOLDER}))
    with api.sandbox(network=rules) as sb:
        out = ask(api, sb, head("/query?a=1&key=mine&b=2"), head("/basic"), head("/replace"), head("/replace", X_Key="fake"),
                  head(f"/bot-{HOLDER}/send?k={HOLDER}", Authorization="Bearer " + HOLDER), head("/", Authorization=basic(HOLDER)),
                  head("/nothing"))
        assert told(out[0])["target"] == f"/query?a=1&b=2&key={VALUE}"
        assert field(out[1], "authorization") == [basic(VALUE)]
        assert field(out[2], "x-key") == [] and field(out[3], "x-key") == [VALUE]
        assert told(out[4])["target"] == f"/bot-{VALUE}/send?k={VALUE}" and field(out[4], "authorization") == ["Bearer " + VALUE]
        assert field(out[5], "authorization") == [basic(VALUE)]
        assert VALUE not in out[6][2]
        assert api.run(sb, ["sh", "-c", "echo $API_KEY"])["stdout"] == HOLDER + "\n"
        assert network(api, sb)["injected"] == 5


def is_signed(head, body, key, region, service):
    """Signature Version 4, recomputed from its published description."""
    lines = head.decode().split("\r\n")[:-2]
    method, target, _ = lines[0].split(" ")
    fields = {}
    for line in lines[1:]:
        name, value = line.split(": ", 1)
        fields.setdefault(name.lower(), []).append(" ".join(value.split()))
    (authorization,) = fields["authorization"]
    parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w{64})",
                         authorization)
    assert parts is not None, authorization
    who, day, *scope, signed, signature = parts.groups()
    assert (who, scope) == ("AKIDEXAMPLE", [region, service]) and {"host", "x-amz-date"} <= set(signed.split(";"))
    path, _, query = target.partition("?")
    if service != "s3":
        path = urllib.parse.quote(path, safe="/-_.~")
    pairs = [p.partition("=")[::2] for p in query.split("&") if p]
    quoted = sorted(tuple(urllib.parse.quote(urllib.parse.unquote(x), safe="-_.~") for x in p) for p in pairs)
    (payload,) = fields.get("x-amz-content-sha256", [hashlib.sha256(body).hexdigest()])
    canonical = "\n".join([method, path, "&".join(f"{k}={v}" for k, v in quoted),
                           *(f"{n}:{','.join(fields[n])}" for n in signed.split(";")), "", signed, payload])
    (date,) = fields["x-amz-date"]
    words = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/{service}/aws4_request", hashlib.sha256(canonical.encode()).hexdigest()])
    k = ("AWS4" + key).encode()
    for part in (day, region, service, "aws4_request", words):
        k = hmac.new(k, part.encode(), hashlib.sha256).digest()
    return k.hex() == signature and payload in (hashlib.sha256(body).hexdigest(), "UNSIGNED-PAYLOAD")


def test_signatures(api, server, secret):
    rules = policy({**rule({"aws_sigv4": {"service": "dynamodb", "region": "eu-west-1"}}), "paths": ["/db*"]},
                   rule({"aws_sigv4": {"service": "s3", "region": "us-east-1"}}))
    with api.sandbox(network=rules) as sb:
        body = json.dumps({"TableName": "x" * 100_000})
        old = "AWS4-HMAC-SHA256 Credential=none/20200101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00"
        out = ask(api, sb, head("/db?b=2&a=1%20x", method="POST", Content_Length=len(body), Authorization=old, X_Amz_Target="Get") + body,
                  head("/bucket/key?list-type=2"), head("/db"))
        assert told(out[0])["body"] == len(body) and told(out[0])["sha256"] == hashlib.sha256(body.encode()).hexdigest()
        assert is_signed(server.heads[0], body.encode(), AWS_KEY, "eu-west-1", "dynamodb")
        assert is_signed(server.heads[1], b"", AWS_KEY, "us-east-1", "s3")
        assert is_signed(server.heads[2], b"", AWS_KEY, "eu-west-1", "dynamodb")
        assert not is_signed(server.heads[2], b"", AWS_KEY + "x", "eu-west-1", "dynamodb")
        # A body without a length cannot be signed, nor one that is too long to be kept.
        out = text(api, sb, [head("/db", method="POST", Transfer_Encoding="chunked")])
        assert out.startswith("HTTP/1.1 413 ") and "8 MiB" in out
        assert text(api, sb, [head("/db", method="POST", Content_Length=9 << 20)]).startswith("HTTP/1.1 413 ")
        assert len(server.heads) == 3
        # Who waits for leave to send such a body has it.
        out = talk(api, sb, [head("/db", method="POST", Content_Length=4, Expect="100-continue"), "body"], turns=True)["out"]
        assert out[0] == "HTTP/1.1 100 Continue\r\n\r\n" and out[1].startswith("HTTP/1.1 200 OK")
        assert is_signed(server.heads[3], b"body", AWS_KEY, "eu-west-1", "dynamodb")


def test_a_value_that_no_field_can_have(api, server, secret):
    values = {"TOKEN": "two\r\nX-Other: lines", "USER": "u"}
    with api.sandbox(network=policy(HEADER)) as sb:
        assert api.put(f"/v1/secrets/{secret}", json={"values": values}).status_code == 200
        out = text(api, sb, [head(Connection="close")])
        assert out.startswith("HTTP/1.1 502 ") and "(secret keyed)" in out and "lines" not in out
        assert server.heads == [] and last_denial(api, sb) == ("secret", "tls", "allowed.test", t.TLS, "keyed")


@pytest.mark.parametrize("path", ["/", "/chunked", "/to-end?clean"])
def test_values_are_blackened_in_responses(api, server, secret, path):
    with api.sandbox(network=policy({**HEADER, "redact": True})) as sb:
        ((status, fields, body),) = ask(api, sb, head(path, Accept_Encoding="gzip, br"))
        assert status == 200 and VALUE not in body and VALUE[len(VALUE) // 2:] not in body
        # Of what comes in pieces the first half may be seen, so that what waits tells nobody how a value begins.
        assert "*" * (len(VALUE) // 2 if path == "/chunked" else len(VALUE)) in body
        if path[:7] != "/to-end":
            assert fields["X-Echo"] == "*" * len(VALUE)
            assert ["Accept-Encoding", "identity"] in json.loads(body)["fields"]
            (value,) = [v for k, v in json.loads(body)["fields"] if k == "X-Key"]
            assert len(value) == len(VALUE) and (path == "/chunked" or set(value) == {"*"})


def test_what_cannot_be_blackened_does_not_come_in(api, server, secret):
    with api.sandbox(network=policy({**HEADER, "redact": True})) as sb:
        out = text(api, sb, [head("/gzip")])
        assert out.startswith("HTTP/1.1 502 ") and "packed" in out and VALUE not in out
        out = text(api, sb, [head("/", method="TRACE", Connection="close")])
        assert out.startswith("HTTP/1.1 502 ") and VALUE not in out and len(server.heads) == 1
        assert last_denial(api, sb)[0] == "secret"


def test_the_value_is_nowhere_inside(api, daemon, server, secret):
    rules = policy(rule({"header": "X-Key", "value": "$TOKEN"}, {"placeholder": "KEY", "value": "$TOKEN"}, redact=True))
    look = """env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'
        read -r half; read -r other; echo; echo searching
        grep -rlsF "$half$other" /etc /tmp /var /home /root /run /usr/local /opt /srv; echo searched"""
    with api.sandbox(network=rules, command=["sleep", "600"]) as sb:
        assert ask(api, sb, head("/"))[0][0] == 200
        r = api.run(sb, ["sh", "-c", look], stdin=f"{VALUE[:12]}\n{VALUE[12:]}\n", timeout=300)
        assert "\nKEY=" in r["stdout"] and VALUE not in r["stdout"]
        assert r["stdout"].endswith("\nsearching\nsearched\n"), r["stdout"]
        for path in ("", "/policy", "/network", "/network/log"):
            r = api.get(f"/v1/sandboxes/{sb.id}{path}")
            assert r.status_code == 200 and VALUE not in r.text
    assert VALUE not in api.get("/v1/audit").text
    assert VALUE not in daemon.log.read_text(errors="replace")


def test_each_use_is_told(api, daemon, server, secret):
    with api.sandbox(network=policy(rule({"header": "X-Key", "value": "$TOKEN"}, {"query": "k", "value": "$USER"}, {"header": "X", "value": "fixed", "secret": ""}))) as sb:
        ask(api, sb, *[head("/path?query=private", method="POST", Content_Length=0)] * 3, head("/other\xff\x1b"[:-1]))
        n, items = all_lines(api, sb)
        assert n["injected"] == 4
        lines = [(x["verdict"], x["reason"], x["rule"], x["name"], x["port"], x["method"], x["path"], x["secrets"]) for x in items
                 for _ in range(x["count"])]
        one = ("allow", "injected", "keyed", "allowed.test", t.TLS)
        assert sorted(lines) == sorted([(*one, "POST", "/path", ["inject"])] * 3 + [(*one, "GET", "/other?", ["inject"])])
        line = next(x for x in daemon.log.read_text().splitlines() if " injected " in x and sb.id in x)
        assert {"name=allowed.test", "method=POST", "path=/path", "secrets=inject", "rule=keyed"} <= set(line.split()), line
        assert "private" not in line and VALUE not in line
