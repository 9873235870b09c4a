"""
Which requests of an opened connection go out: methods, paths, hosts; and what is refused because it could be read in two ways.
"""

import hashlib
import json
import re
import time

import pytest

import qsdaemon
import teller as t
import world as w
from opened import HEADER, VALUE, ask, field, head, last_denial, network, policy, rule, spec, talk, talks, text, told
from test_decisions import all_lines

KEYED = policy(rule({"header": "X-Key", "value": "$TOKEN"}, protocol="any"))


def first_lines(server):
    return [h.split(b"\r\n")[0].decode() for h in server.heads]


@pytest.mark.parametrize("port", [t.TLS, t.PLAIN])
def test_methods_and_paths(api, server, port):
    rules = policy({"name": "no-admin", "action": "deny", "domains": ["allowed.test"], "paths": ["/admin*"]},
                   {"name": "read", "domains": ["allowed.test"], "methods": ["GET", "HEAD"]},
                   {"name": "upload", "domains": ["allowed.test"], "methods": ["PUT"], "paths": ["/up/*"]})
    with api.sandbox(network=rules) as sb:
        out = ask(api, sb, head("/x"), head("/admin"), head("/x", method="DELETE"), head("/up/1", method="PUT", Content_Length=0),
                  head("/%61dmin/x"), head("//admin"), head("/y"), head("/./admin"), port=port)
        assert [a[0] for a in out] == [200, 403, 403, 200, 403, 403, 200, 403]
        assert told(out[0])["connection"] == told(out[6])["connection"]
        assert out[1][2] == f"quicksand: the network policy of this sandbox does not allow the request: allowed.test port {port} (rule no-admin)\n"
        assert out[2][2].endswith("(rule)\n")
        protocol = "http" if port == t.PLAIN else "tls"
        assert [(d["reason"], d["protocol"], d["name"], d["port"], d["rule"]) for d in network(api, sb)["denials"]] == [
            ("rule", protocol, "allowed.test", port, by) for by in ("no-admin", None, "no-admin", "no-admin", "no-admin")]
        assert first_lines(server) == ["GET /x HTTP/1.1", "PUT /up/1 HTTP/1.1", "GET /y HTTP/1.1"]
        # A body that is not wanted ends the connection; what can be read in two ways is nobody's.
        out = text(api, sb, [head("/x", method="POST", Content_Length=5) + "hello" + head("/z")], port=port)
        assert out.startswith("HTTP/1.1 403 ") and "Connection: close" in out and out.count("HTTP/1.1") == 1
        targets = ("/a/../admin", "/a/%2e%2e/admin", "/a\\admin", "/a%zz", "/a#b", "/a%00b")
        for answer in talks(api, sb, [spec([head(target, Connection="close")], port=port) for target in targets]):
            assert answer["out"][0].startswith("HTTP/1.1 400 "), answer
        out = text(api, sb, [head("/x") + head("/y", method="get", Connection="close")], port=port)
        assert out.count("HTTP/1.1 200") == 1 and out.count("HTTP/1.1 400") == 1
        assert len(server.heads) == 4
        # The log outside has each of them.
        counts = [(x["verdict"], x["reason"], x["rule"], x["method"], x["path"]) for x in all_lines(api, sb)[1] for _ in range(x["count"])]
        assert counts.count(("deny", "rule", "no-admin", "GET", "/admin")) == 3        # also as //admin and /./admin
        assert {("deny", "rule", None, "DELETE", "/x"), ("deny", "rule", "no-admin", "GET", "/admin/x")} <= set(counts)


def test_a_method_in_a_field_counts_too(api, server):
    rules = policy({"name": "no-delete", "action": "deny", "domains": ["allowed.test"], "methods": ["DELETE"]}, {"domains": ["allowed.test"]})
    with api.sandbox(network=rules) as sb:
        out = ask(api, sb, head("/1", X_HTTP_Method_Override="DELETE"), head("/2", X_Method_Override="delete"), head("/3", X_HTTP_Method="PUT"),
                  head("/4").replace("\r\n\r\n", "\r\nX_HTTP_Method_Override: DELETE\r\n\r\n"), head("/5", X_Other="DELETE"),
                  head("/6", X_HTTP_Method_Override="GET, DELETE"), head("/7", X_HTTP_Method_Override="DELETE;x"))
        assert [a[0] for a in out] == [403, 403, 200, 403, 200, 400, 400]
        assert "(rule no-delete)" in out[0][2] and first_lines(server) == ["GET /3 HTTP/1.1", "GET /5 HTTP/1.1"]


def test_rules_of_action_log(api, server):
    rules = policy({"name": "writes", "action": "log", "domains": ["allowed.test"], "methods": ["POST"]},
                   {"name": "all", "domains": ["allowed.test"]})
    with api.sandbox(network=rules) as sb:
        ask(api, sb, head("/1"), head("/2", method="POST", Content_Length=0), head("/3"), head("/4", method="POST", Content_Length=0))
        assert network(api, sb)["noted"] == 2 and network(api, sb)["denied"] == 0


def test_other_hosts_are_left_alone(api, world, server, secret):
    """An allow list beside injection: there it is the client's own TLS, with the server's own certificate."""
    curl = ["curl", "-sS", "--http1.1"]
    with api.sandbox(network=policy(HEADER, {"domains": ["other.test"]})) as sb:
        assert api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/ca.pem"}, content=world.ca).status_code in (200, 201)
        r = api.run(sb, [*curl, "--cacert", "/tmp/ca.pem", f"https://other.test:{t.TLS}/"])
        assert json.loads(r["stdout"])["fields"] and VALUE not in r["stdout"]
        assert api.run(sb, [*curl, f"https://other.test:{t.TLS}/"])["exec"]["exit"]["code"] == 60
        r = api.run(sb, [*curl, f"https://allowed.test:{t.TLS}/"])
        assert r["exec"]["exit"]["code"] == 0 and VALUE in r["stdout"]
        assert talk(api, sb, [head(host="evil.test")], host="evil.test", address=w.EVIL)["error"] == "SSLError"
    assert not world.went_to(w.EVIL)


def test_the_host_of_the_request_is_that_of_the_connection(api, world, server, secret):
    with api.sandbox(network=policy(HEADER, {"domains": ["other.test"]})) as sb:
        assert text(api, sb, [head("/", host="other.test")]).startswith("HTTP/1.1 421 ")
        assert last_denial(api, sb)[0] == "mismatch"
        assert text(api, sb, ["GET / HTTP/1.1\r\n\r\n"]).startswith("HTTP/1.1 421 ")
        out = text(api, sb, [head("/") + head("/", host="other.test")])
        assert out.count("HTTP/1.1 200") == 1 and out.count("HTTP/1.1 421") == 1
        assert text(api, sb, [head("https://other.test/")]).startswith("HTTP/1.1 421 ")
        # In absolute form the path counts, and the server is asked for that.
        one, two = ask(api, sb, head("https://allowed.test/x?y"), head("https://allowed.test?y", host="Allowed.TEST:4443"))
        assert told(one)["target"] == "/x?y" and told(two)["target"] == "/?y"
        # A dot alone is no step, and the server is asked for what was judged.
        dots = {"/./a": "/a", "/a/./b/.": "/a/b/", "/.": "/", "/././": "/", "/.//a": "/a", "/a/.?q=/./": "/a/?q=/./", "https://allowed.test/./x": "/x",
                "/a/.b/..c/./d.": "/a/.b/..c/d."}
        assert [told(a)["target"] for a in ask(api, sb, *[head(target) for target in dots])] == list(dots.values())
        for target, host in (("allowed.test:443", "allowed.test"), ("other.test:443", "other.test:443")):
            assert text(api, sb, [head(target, method="CONNECT", host=host)])[:12] in ("HTTP/1.1 403", "HTTP/1.1 421")
        assert all(b"other.test" not in h and b"CONNECT" not in h for h in server.heads)
    assert not world.went_to(w.OTHER)


POST = "POST / HTTP/1.1\r\nHost: allowed.test\r\n"
GET = "GET / HTTP/1.1\r\nHost: allowed.test\r\n"
SMUGGLED = {
    "length and chunks": POST + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": POST + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
    "the same length twice": POST + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": POST + "Content-Length: 0, 0\r\n\r\n",
    "a signed length": POST + "Content-Length: +0\r\n\r\n",
    "a folded field": GET + "X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n",
    "bare LF": "GET / HTTP/1.1\nHost: allowed.test\n\n",
    "bare LF in a field": GET + "X-A: b\nX-B: c\r\n\r\n",
    "bare CR": GET + "X-A: b\rX-B: c\r\n\r\n",
    "space before the colon": POST + "Content-Length : 5\r\n\r\nhello",
    "another coding": POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding in disguise": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": "POST / HTTP/1.0\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: allowed.test\r\n\r\n",
    "no version": "GET /\r\nHost: allowed.test\r\n\r\n",
    "a space in the target": "GET /a b HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    "a NUL": GET + "X-A: b\x00c\r\n\r\n",
    "HTTP/2 without TLS": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("port", [t.TLS, t.PLAIN])
def test_requests_that_could_be_read_in_two_ways(api, server, secret, port):
    with api.sandbox(network=KEYED) as sb:
        answers = talks(api, sb, [spec([request], port=port) for request in SMUGGLED.values()])
        for what, answer in zip(SMUGGLED, answers, strict=True):
            out = "".join(answer["out"])
            assert out == "" or out.startswith("HTTP/1.1 4"), (what, answer)
        assert server.heads == []
        # The same behind one that is good.
        answers = talks(api, sb, [spec([head("/first") + request], port=port) for request in SMUGGLED.values()])
        for what, answer in zip(SMUGGLED, answers, strict=True):
            out = answer["out"][0]
            assert out.startswith("HTTP/1.1 200 ") and out.count("HTTP/1.1 200 ") == 1, (what, answer)
        assert first_lines(server) == ["GET /first HTTP/1.1"] * len(SMUGGLED)
        # Chunks that are none cut the connection, and what followed is no request.
        server.clear()
        out = talk(api, sb, [head("/", method="POST", Transfer_Encoding="chunked") + "5\r\nhelloGET /x HTTP/1.1\r\n\r\n"], port=port)
        assert out["error"] is not None and first_lines(server) in ([], ["POST / HTTP/1.1"])
        # An offer of HTTP/2 is taken out.
        (one,) = ask(api, sb, head("/", Upgrade="h2c", Connection="Upgrade", HTTP2_Settings="AAMAAABkAAQ"), port=port)
        assert field(one, "upgrade") == []


def test_a_body_that_the_server_did_not_wait_for_is_no_request(api, server, secret):
    """What follows an answer to `Expect` would be the body to us, and a request to the server."""
    rules = policy({"name": "one", "domains": ["allowed.test"], "methods": ["POST"], "paths": ["/early"]})
    with api.sandbox(network=rules) as sb:
        hidden = head("/hidden", method="DELETE")
        out = talk(api, sb, [head("/early", method="POST", Content_Length=len(hidden), Expect="100-continue"), hidden], turns=True)
        assert out["out"][0].startswith("HTTP/1.1 417 ")
        time.sleep(0.5)
        assert first_lines(server) == ["POST /early HTTP/1.1"]


def test_bodies_both_ways(api, server, secret):
    with api.sandbox(network=policy(HEADER)) as sb:
        out = ask(api, sb, head("/", method="POST", Content_Length=5) + "hello",
                  head("/", method="POST", Transfer_Encoding="chunked") + "5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n",
                  head("/chunked"), head("/", Connection="close"))
        assert (told(out[0])["body"], told(out[1])["body"], told(out[1])["chunks"]) == (5, 11, 2)
        assert VALUE in out[2][2] and len({told(a)["connection"] for a in out}) == 1
        out = talk(api, sb, [head("/", method="POST", Content_Length=4, Expect="100-continue"), "body"], turns=True)["out"]
        assert out[0] == "HTTP/1.1 100 Continue\r\n\r\n" and out[1].startswith("HTTP/1.1 200 OK") and '"body": 4' in out[1]
        out = text(api, sb, ["GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n"])
        assert '"version": "HTTP/1.0"' in out and VALUE in out
        # A client need not wait for the answer before it sends the next request.
        out = text(api, sb, [head("/1") + head("/2") + head("/3", Connection="close")])
        assert re.findall(r'"target": "(/\d)"', out) == ["/1", "/2", "/3"]
        assert "to the end" in text(api, sb, [head("/to-end?clean")])


def peak_kb(daemon):
    (pid,) = daemon.pids("egress")
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


def test_much_goes_through_in_little_memory(api, daemon, server, secret):
    size = 100 << 20
    script = f"""set -e
        head -c {size} /dev/zero >/tmp/zero
        curl -sS -o /tmp/answer --http1.1 -T /tmp/zero https://allowed.test:{t.TLS}/up
        curl -sS --http1.1 https://allowed.test:{t.TLS}/bytes/{size} | sha256sum
        cat /tmp/answer"""
    with api.sandbox(network=policy(HEADER)) as sb:
        assert ask(api, sb, head())[0][0] == 200
        before = peak_kb(daemon)
        r = api.run(sb, ["bash", "-c", script], timeout=300)
        assert r["exec"]["exit"]["code"] == 0, r
        digest, _, answer = r["stdout"].partition("\n")
        assert json.loads(answer)["body"] == size and json.loads(answer)["sha256"] == hashlib.sha256(bytes(size)).hexdigest()
        assert digest.split()[0] == hashlib.sha256(bytes(range(256)) * (size // 256)).hexdigest()
        # A sanitizer keeps what was freed for a while.
        assert peak_kb(daemon) - before < (300 << 10 if "asan" in qsdaemon.build_dir().name else 16 << 10)
        assert network(api, sb)["sent_bytes"] > size and network(api, sb)["received_bytes"] > size


def test_websocket(api, server, secret):
    fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"}
    with api.sandbox(network=policy(HEADER)) as sb:
        out = talk(api, sb, [head("/ws", **fields), "ping", "GET /x HTTP/1.1\r\n\r\n"], turns=True)["out"]
        assert out[0].startswith("HTTP/1.1 101 ") and out[1:] == ["ping", "GET /x HTTP/1.1\r\n\r\n"], out
        assert b"X-Key: " + VALUE.encode() in server.heads[0]
        # Also behind another request.
        out = talk(api, sb, [head("/"), head("/ws", **fields), "pong"], turns=True)["out"]
        assert out[1].startswith("HTTP/1.1 101 ") and out[2] == "pong"
    # And by the rules over requests.
    with api.sandbox(network=policy({"name": "no-ws", "action": "deny", "domains": ["allowed.test"], "paths": ["/ws"]}, HEADER)) as sb:
        out = text(api, sb, [head("/ws", **fields)])
        assert out.startswith("HTTP/1.1 403 ") and "(rule no-ws)" in out
