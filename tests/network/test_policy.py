"""
What the policy lets out goes out unharmed, and nothing else does: names, addresses, ports.
"""

import json
import pathlib

import world as w

INSIDE = (pathlib.Path(__file__).parent / "inside.py").read_text()

BY_NAME = {"allow_domains": ["allowed.test", "*.wild.test", "xn--bcher-kva.test"]}


def attempt(api, sb, **spec):
    r = api.run(sb, ["python3", "-c", INSIDE, json.dumps(spec)])
    assert r["exec"]["exit"]["code"] == 0, r
    return json.loads(r["stdout"])


def http(host, path="/"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


def body(answer):
    assert answer["ok"], answer
    return json.loads(answer["data"].partition("\r\n\r\n")[2])


def test_a_name_that_is_allowed(api, world):
    with api.sandbox(network=BY_NAME) as sb:
        out = attempt(api, sb, kind="tcp", address="allowed.test", port=80, data=http("allowed.test"))
        assert body(out)["address"] == w.ALLOWED
        out = attempt(api, sb, kind="tls", address="allowed.test", port=443, sni="allowed.test")
        assert body(out) == {"address": w.ALLOWED, "port": 443, "protocol": "tls", "sni": "allowed.test", "method": "GET",
                             "path": "/", "host": "allowed.test", "upgrade": None, "body": 0}
    assert not world.went_to(w.EVIL, w.OTHER, *w.PRIVATE)
