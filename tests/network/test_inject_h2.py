"""
HTTP/2 through opened connections: each request of one is judged by itself, and gets what its rule puts in. The clients are curl,
Python's h2 and httpx, and gRPC's own.
"""

import hashlib
import json
import time

import pytest

import h2server as h
import teller as t
from opened import HEADER, VALUE, last_denial, network, policy, rule

# What the client inside does: steps of one connection; each prints what it saw.
CLIENT = r"""
import hashlib, json, socket, ssl, sys
import h2.config, h2.connection, h2.events, h2.exceptions
spec = json.loads(sys.stdin.read())
context = ssl.create_default_context()
context.set_alpn_protocols(spec.get("alpn", ["h2"]))
s = context.wrap_socket(socket.create_connection(("allowed.test", spec["port"]), timeout=60), server_hostname="allowed.test")
assert s.selected_alpn_protocol() == "h2", s.selected_alpn_protocol()
c = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1", validate_outbound_headers=False,
                                                         normalize_outbound_headers=False))
c.initiate_connection()
streams, goaway, gone, acks = {}, None, False, 0
def flush():
    s.sendall(c.data_to_send())
def take():
    global goaway, gone, acks
    try:
        data = s.recv(65536)
    except OSError as e:
        data, gone = b"", type(e).__name__
    if not data:
        gone = gone or "eof"
        return
    for e in c.receive_data(data):
        st = streams.get(getattr(e, "stream_id", None))
        if isinstance(e, h2.events.InformationalResponseReceived):
            st["hints"].append(dict(e.headers))
        elif isinstance(e, h2.events.ResponseReceived):
            st["fields"] = dict(e.headers)
        elif isinstance(e, h2.events.TrailersReceived):
            st["trailers"] = dict(e.headers)
        elif isinstance(e, h2.events.DataReceived):
            st["body"] += e.data.decode("latin-1")
            c.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        elif isinstance(e, h2.events.StreamEnded):
            st["ended"] = True
        elif isinstance(e, h2.events.StreamReset):
            st["reset"] = int(e.error_code)
        elif isinstance(e, h2.events.ConnectionTerminated):
            goaway = int(e.error_code)
        elif isinstance(e, h2.events.PingAckReceived):
            acks += 1
    flush()
def over(st):
    return st["ended"] or st["reset"] is not None
numbers = []
def begin(method="GET", path="/", authority="allowed.test", fields=(), body="", scheme="https", end=True):
    number = c.get_next_available_stream_id()
    pseudo = [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)]
    c.send_headers(number, pseudo + [tuple(f) for f in fields], end_stream=end and not body)
    streams[number] = {"hints": [], "fields": None, "trailers": None, "body": "", "ended": False, "reset": None}
    numbers.append(number)
    for at in range(0, len(body), 16384):
        while c.local_flow_control_window(number) < 16384:
            flush()
            take()
        c.send_data(number, body[at:at + 16384].encode(), end_stream=end and at + 16384 >= len(body))
    flush()
for what, arg in spec["steps"]:
    if what == "ask":               # and wait
        begin(**arg)
        while not over(streams[numbers[-1]]) and not gone:
            take()
    elif what == "begin":
        begin(**arg)
    elif what == "until":           # so many bytes of a body are there
        while len(streams[numbers[arg[0]]]["body"]) < arg[1] and not gone:
            take()
    elif what == "say":             # a line for the test, which does something then
        print(arg, flush=True)
    elif what == "wait":
        while not all(over(streams[numbers[i]]) for i in arg) and not gone:
            take()
    elif what == "reset":
        c.reset_stream(numbers[arg[0]], arg[1])
        flush()
    elif what == "ping":
        for i in range(arg):
            c.ping(b"%08d" % i)
        flush()
        while acks < arg and not gone:
            take()
    elif what == "raw":
        try:
            s.sendall(bytes.fromhex(arg))
        except OSError as e:
            gone = type(e).__name__
    elif what == "end":
        while not gone:
            take()
for st in streams.values():
    st["size"], st["sha256"] = len(st["body"]), hashlib.sha256(st["body"].encode("latin-1")).hexdigest()
    st["body"] = st["body"][:4000]
print(json.dumps({"streams": [streams[n] for n in numbers], "goaway": goaway, "gone": gone, "acks": acks}))
"""


@pytest.fixture(scope="module")
def h2(world, daemon):
    return h.Server(world, h.certificate(world))


@pytest.fixture
def outside(h2, secret):
    h2.clear()
    return h2


def put(api, sb, path, content):
    r = api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": path, "parents": True}, content=content)
    assert r.status_code in (200, 201), r.text


def start(api, sb, *steps, **more):
    """The client, running: an exec."""
    put(api, sb, "/opt/h2.zip", h.python_libraries("h2", "hpack", "hyperframe"))
    r = api.post(f"/v1/sandboxes/{sb.id}/run", timeout=300, json={
        "command": ["python3", "-c", CLIENT], "env": {"PYTHONPATH": "/opt/h2.zip"},
        "stdin": json.dumps({"port": h.PORT, "steps": steps, **more})})
    assert r.status_code == 200, r.text
    return r.json()


def talk(api, sb, *steps, **more):
    r = start(api, sb, *steps, **more)
    assert r["exec"]["exit"]["code"] == 0, r
    return json.loads(r["stdout"].splitlines()[-1])


def asks(api, sb, *requests):
    """The answers to requests of one connection, one after the other."""
    out = talk(api, sb, *[["ask", r] for r in requests])
    assert out["gone"] is False, out
    return out["streams"]


def status(stream):
    return int(stream["fields"][":status"])


def fields(stream):
    """That the server has seen."""
    assert status(stream) == 200 and stream["ended"], stream
    return json.loads(stream["body"])["fields"]


def values(stream, name):
    return [v for k, v in fields(stream) if k == name]


def test_each_request_by_itself(api, outside):
    rules = policy({"name": "no-admin", "action": "deny", "domains": ["allowed.test"], "paths": ["/admin*"]},
                   rule({"header": "X-Key", "value": "Bearer $TOKEN"}, paths=["/in/*"]),
                   {"name": "read", "domains": ["allowed.test"], "methods": ["GET", "HEAD"]})
    with api.sandbox(network=rules) as sb:
        out = asks(api, sb, {"path": "/a?b=c"}, {"path": "/admin"}, {"path": "/in/1", "fields": [["x-key", "mine"]]},
                   {"path": "/x", "method": "DELETE"}, {"path": "/a/../admin"}, {"path": "/in/2", "method": "POST", "body": "hello"},
                   {"path": "/%61dmin"}, {"authority": "other.test"}, {"fields": [["host", "other.test"]]}, {"scheme": "http"},
                   {"path": "/b", "method": "HEAD"}, {"path": "/c", "method": "POST", "body": "no"}, {"path": "/d"})
        assert [status(s) for s in out] == [200, 403, 200, 403, 400, 200, 403, 421, 421, 400, 200, 403, 200]
        assert all(s["ended"] and s["reset"] is None for s in out)
        assert values(out[0], ":path") == ["/a?b=c"] and values(out[0], "x-key") == []
        assert values(out[2], "x-key") == ["Bearer " + VALUE] and values(out[5], "x-key") == ["Bearer " + VALUE]
        assert json.loads(out[5]["body"])["body"] == 5
        assert out[1]["body"] == (f"quicksand: the network policy of this sandbox does not allow the request: allowed.test port {h.PORT}"
                                  " (rule no-admin)\n")
        assert out[1]["fields"]["server"] == "quicksand" and out[1]["fields"]["content-type"] == "text/plain"
        assert [r for r in outside.requests] == [("GET", "/a?b=c"), ("GET", "/in/1"), ("POST", "/in/2"), ("HEAD", "/b"), ("GET", "/d")]
        assert outside.connections == 1
        n = network(api, sb)
        assert n["injected"] == 2
        assert [(d["reason"], d["rule"]) for d in n["denials"]] == [
            ("rule", "no-admin"), ("rule", None), ("malformed", None), ("rule", "no-admin"), ("mismatch", None), ("mismatch", None),
            ("malformed", None), ("rule", None)]


def test_words_are_blackened(api, outside):
    with api.sandbox(network=policy({**HEADER, "redact": True})) as sb:
        one, two = asks(api, sb, {"path": "/x"}, {"path": "/trailers"})
        assert VALUE not in json.dumps([one, two])
        assert values(one, "x-key") == ["*" * len(VALUE)] and one["fields"]["x-echo"] == "*" * len(VALUE)
        assert two["trailers"] == {"x-sum": "42", "x-echo": "*" * len(VALUE)} and two["body"] == "with trailers"
        assert ("accept-encoding", "identity") in [tuple(f) for f in fields(one)]


def test_what_comes_before_and_after(api, outside):
    with api.sandbox(network=policy(HEADER)) as sb:
        hint, trailers, big, posts = asks(api, sb, {"path": "/hint"}, {"path": "/trailers"}, {"path": "/bytes/3000064"},
                                          {"path": "/x", "method": "POST", "body": "x" * 40000})
        assert hint["hints"] == [{":status": "103", "link": "</style.css>"}] and hint["body"] == "after a hint"
        assert trailers["trailers"] == {"x-sum": "42", "x-echo": VALUE}
        assert big["size"] == 3000064 and big["sha256"] == hashlib.sha256(bytes(range(256)) * (3000064 // 256)).hexdigest()
        assert json.loads(posts["body"])["body"] == 40000


def test_streams_beside_each_other(api, outside):
    """Fifty at once, one of which is held back, one cut by each side."""
    steps = [["begin", {"path": "/wait"}], ["until", [0, 5]], ["begin", {"path": "/silent"}], ["begin", {"path": "/reset?8"}],
             *[["begin", {"path": f"/{i}"}] for i in range(50)], ["wait", [2, *range(3, 53)]], ["reset", [1, 8]], ["ping", 3],
             ["reset", [0, 11]], ["ask", {"path": "/last"}]]
    with api.sandbox(network=policy(HEADER)) as sb:
        out = talk(api, sb, *steps)
        assert out["gone"] is False and out["goaway"] is None and out["acks"] == 3
        s = out["streams"]
        assert s[0]["body"] == "first" and not s[0]["ended"]
        assert s[2]["reset"] == 8 and s[2]["fields"] is None
        assert all(values(x, "x-key") == [VALUE] for x in s[3:])
        assert outside.connections == 1
        assert sorted(outside.resets) == [("/silent", 8), ("/wait", 11)]


def test_ends(api, outside):
    with api.sandbox(network=policy(HEADER)) as sb:
        out = talk(api, sb, ["ask", {"path": "/goaway"}], ["end", 0])
        assert out["streams"][0]["body"] == "the last one" and out["streams"][0]["ended"]
        assert out["goaway"] == 0 and out["gone"] == "eof"
        # A server that is gone: what it had answered is whole, what it had not is told so.
        out = talk(api, sb, ["begin", {"path": "/silent"}], ["ask", {"path": "/x"}], ["begin", {"path": "/drop"}], ["end", 0])
        silent, whole, drop = out["streams"]
        assert status(silent) == 502 and "ended the connection before it answered" in silent["body"]
        assert status(drop) == 502 and values(whole, "x-key") == [VALUE]
        assert out["goaway"] == 0 and out["gone"] == "eof"
        # A client that leaves takes its streams with it.
        talk(api, sb, ["begin", {"path": "/silent"}], ["ask", {"path": "/x"}])
        deadline = time.monotonic() + 60
        while (("/silent", 8) not in outside.resets or outside.goaways[-1:] != [0]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ("/silent", 8) in outside.resets and outside.goaways[-1] == 0


def test_who_breaks_the_rules_is_cut(api, outside):
    with api.sandbox(network=policy(HEADER)) as sb:
        out = talk(api, sb, ["ask", {"path": "/x"}], ["raw", "000001010000000003" + "82" + "000000090000000003" * 5000], ["end", 0])
        assert out["gone"] and status(out["streams"][0]) == 200
        # Streams that are opened and reset, each of which would cost the server something.
        block = bytes([0x82, 0x87, 0x41, 12]) + b"allowed.test" + bytes([0x44, 2]) + b"/x"
        raw = b""
        for i in range(4000):
            stream = (3 + 2 * i).to_bytes(4, "big")
            raw += len(block).to_bytes(3, "big") + b"\x01\x05" + stream + block + b"\x00\x00\x04\x03\x00" + stream + b"\x00\x00\x00\x08"
        out = talk(api, sb, ["ask", {"path": "/x"}], ["raw", raw.hex()], ["end", 0])
        assert out["gone"]
        # Others are not concerned.
        assert values(asks(api, sb, {"path": "/y"})[0], "x-key") == [VALUE]


def test_a_policy_that_changes(api, daemon, outside):
    """A stream that is not allowed any more ends; the others and the connection go on."""
    both = policy({"name": "a", "domains": ["allowed.test"], "paths": ["/wait"]}, {"name": "b", "domains": ["allowed.test"], "methods": ["GET"]})
    with api.sandbox(network=both) as sb:
        put(api, sb, "/opt/h2.zip", h.python_libraries("h2", "hpack", "hyperframe"))
        script = CLIENT.replace("print(arg, flush=True)", "import pathlib, time\n        while not pathlib.Path('/tmp/changed').exists():\n            time.sleep(0.05)")
        put(api, sb, "/opt/spec", json.dumps({"port": h.PORT, "steps": [
            ["begin", {"path": "/wait"}], ["until", [0, 5]], ["begin", {"path": "/silent"}], ["ask", {"path": "/x"}], ["say", ""],
            ["wait", [1]], ["ask", {"path": "/y"}], ["reset", [0, 8]]]}).encode())
        put(api, sb, "/opt/client.py", script.encode())
        r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={
            "command": ["sh", "-c", "python3 /opt/client.py </opt/spec >/tmp/out 2>/tmp/err; echo $? >/tmp/code"],
            "env": {"PYTHONPATH": "/opt/h2.zip"}})
        assert r.status_code in (200, 201), r.text
        deadline = time.monotonic() + 120
        while len(outside.requests) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sorted(p for _, p in outside.requests) == ["/silent", "/wait", "/x"]
        r = api.put(f"/v1/sandboxes/{sb.id}/policy", json=policy({"name": "a", "domains": ["allowed.test"], "paths": ["/wait"]}))
        assert r.status_code == 200, r.text
        put(api, sb, "/tmp/changed", b"")
        out = api.run(sb, ["sh", "-c", "while ! [ -s /tmp/code ]; do sleep 0.1; done; cat /tmp/err /tmp/out"])["stdout"]
        out = json.loads(out.splitlines()[-1])
        waits, silent, x, y = out["streams"]
        assert waits["body"] == "first" and waits["reset"] is None and not waits["ended"]
        assert status(silent) == 403 and status(x) == 200 and status(y) == 403
        assert out["gone"] is False and outside.connections == 1
        assert sorted(outside.resets) == [("/silent", 8), ("/wait", 8)]


def test_only_what_both_speak(api, server, outside):
    """A server that takes HTTP/1.1 alone, a policy that signs, and a server that is not there."""
    curl = ["curl", "-sS", "--http2", "-w", "\n%{http_version} %{http_code}"]
    with api.sandbox(network=policy(HEADER)) as sb:
        old, new = (api.run(sb, [*curl, f"https://allowed.test:{port}/x"])["stdout"].splitlines() for port in (t.TLS, h.PORT))
        assert old[-1] == "1.1 200" and VALUE in old[0]
        assert new[-1] == "2 200" and VALUE in new[0]
        assert api.run(sb, ["curl", "-sS", "--http1.1", "-w", "%{http_version} %{http_code}", "-o", "/dev/null",
                            f"https://allowed.test:{h.PORT}/x"])["stdout"].split()[0] in ("1.1", "0")
        # A client that speaks HTTP/2 alone is told so in it.
        out = talk(api, sb, ["ask", {"path": "/x"}], port=t.TLS)["streams"][0]
        assert status(out) == 502 and "it does not speak HTTP/2" in out["body"]
        out = talk(api, sb, ["ask", {"path": "/x"}], port=t.STRANGER)["streams"][0]
        assert status(out) == 502 and "its certificate cannot be relied on" in out["body"]
        assert last_denial(api, sb)[0] == "certificate"
    signs = rule({"aws_sigv4": {"service": "s3", "region": "eu-west-1"}})
    with api.sandbox(network=policy(signs)) as sb:
        r = api.run(sb, [*curl, f"https://allowed.test:{t.TLS}/x"])
        assert r["stdout"].splitlines()[-1] == "1.1 200", r
        r = start(api, sb, ["ask", {"path": "/x"}])
        assert r["exec"]["exit"]["code"] != 0 and last_denial(api, sb)[0] == "protocol"


def test_curl(api, outside):
    url = f"https://allowed.test:{h.PORT}"
    with api.sandbox(network=policy(HEADER)) as sb:
        r = api.run(sb, ["sh", "-c", f"head -c 3000000 /dev/zero | curl -sS --http2 -T - {url}/up && "
                                     f"curl -sS --http2 --fail-early -Z {url}/bytes/1048576 {url}/bytes/2097152 | sha256sum; "
                                     f"curl -sS --http2 -D - {url}/trailers; curl -sS --http2 {url}/reset?2; echo $?"])
        assert '"body": 3000000' in r["stdout"], r
        assert "x-sum: 42" in r["stdout"] and r["stdout"].endswith("\n92\n"), r


def test_httpx(api, outside):
    script = f"""
import httpx, ssl
with httpx.Client(http2=True, verify=ssl.create_default_context(), timeout=60) as c:
    for i in range(3):
        r = c.post("https://allowed.test:{h.PORT}/x?i=%d" % i, content=b"x" * 100000)
        print(r.http_version, r.status_code, r.json()["body"], r.headers["x-echo"])
    r = c.get("https://allowed.test:{h.PORT}/admin")
    print(r.http_version, r.status_code, r.text)
"""
    rules = policy({"name": "no", "action": "deny", "domains": ["allowed.test"], "paths": ["/admin"]}, HEADER)
    with api.sandbox(network=rules) as sb:
        put(api, sb, "/opt/httpx.zip", h.python_libraries("httpx", "httpcore", "h11", "h2", "hpack", "hyperframe", "anyio", "sniffio", "idna",
                                                          "certifi", "rfc3986"))
        r = api.run(sb, ["python3", "-c", script], env={"PYTHONPATH": "/opt/httpx.zip"})
        assert r["exec"]["exit"]["code"] == 0, r
        lines = r["stdout"].splitlines()
        assert lines[:3] == [f"HTTP/2 200 100000 {VALUE}"] * 3
        assert lines[3].startswith("HTTP/2 403 quicksand: the network policy")
        assert outside.connections == 1


GRPC = f"""
import json, os, sys
sys.path.insert(0, "/opt/grpc")
import grpc
roots = open(os.environ["SSL_CERT_FILE"], "rb").read()
def outcome(call):
    try:
        return call()
    except grpc.RpcError as e:
        return [e.code().name, e.details()]
with grpc.secure_channel("allowed.test:{h.GRPC_PORT}", grpc.ssl_channel_credentials(roots)) as c:
    s = "/test.Service/"
    more = dict(timeout=60)
    def unary():
        reply, call = c.unary_unary(s + "Get").with_call(b"hello", metadata=(("authorization", "none"),), **more)
        return [reply.decode(), dict(call.trailing_metadata())["x-echo"]]
    out = [outcome(unary)]
    out.append(outcome(lambda: c.unary_unary(s + "Put")(b"hello", **more)))
    out.append(outcome(lambda: [r.decode().split()[0] for r in c.unary_stream(s + "Split")(b"500", **more)][-1]))
    out.append(outcome(lambda: c.stream_unary(s + "Sum")((b"x" * 10000 for _ in range(200)), **more).decode()))
    out.append(outcome(lambda: [r.decode() for r in c.stream_stream(s + "Chat")(iter([b"abc", b"def"]), **more)]))
    out.append(outcome(lambda: c.unary_unary(s + "Fail")(b"", **more)))
    out.append(outcome(lambda: c.unary_unary(s + "Nowhere")(b"", **more)))
    out.append(outcome(lambda: c.unary_unary(s + "Slow")(b"", timeout=2)))
    out.append(outcome(unary))
print(json.dumps(out))
"""


@pytest.mark.parametrize("redact", [False, True])
def test_grpc(api, world, outside, redact):
    methods = [f"/test.Service/{m}" for m in ("Get", "Split", "Sum", "Chat", "Fail", "Nowhere", "Slow")]
    rules = policy(rule({"header": "Authorization", "value": "Bearer $TOKEN"}, methods=["POST"], paths=methods, redact=redact))
    told = "*" * len(VALUE) if redact else VALUE
    with h.grpc_server(world, h.certificate(world)) as lines, api.sandbox(network=rules) as sb:
        put(api, sb, "/opt/grpc.tar", h.grpc_library())
        r = api.run(sb, ["sh", "-c", "tar -C /opt -xzf /opt/grpc.tar && exec python3 -c \"$0\"", GRPC],
                    env={"LD_LIBRARY_PATH": "/opt/grpc/lib"}, timeout=300)
        assert r["exec"]["exit"]["code"] == 0, r
        get, put_, split, total, chat, fail, nowhere, slow, again = json.loads(r["stdout"])
        assert get == again == [f"/test.Service/Get Bearer {told} hello", f"Bearer {told}"]
        assert put_[0] == "PERMISSION_DENIED", put_
        assert split == "499" and total == f"2000000 /test.Service/Sum Bearer {told}" and chat == ["cba", "fed"]
        assert fail == ["DATA_LOSS", "as asked for"] and nowhere[0] == "UNIMPLEMENTED" and slow[0] == "DEADLINE_EXCEEDED"
        assert lines.readline() == "cancelled\n"
        assert network(api, sb)["denied"] == 1 and last_denial(api, sb)[0] == "rule"
