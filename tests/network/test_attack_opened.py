"""
Attacks on opened connections: on what rules over requests say, on values that are put in, and on egress itself.
"""

import json
import time

import pytest

import qsdaemon
import teller as t
from opened import HEADER, VALUE, ask, field, head, last_denial, network, policy, rule, spec, talk, talks, text, told

OPEN = {"name": "open", "domains": ["allowed.test"], "methods": ["GET"]}
NO_ADMIN = {"name": "no-admin", "action": "deny", "domains": ["allowed.test"], "paths": ["/admin/*"]}


def targets(server):
    return [h.split(b" ")[1].decode() for h in server.heads]


# --- paths


def test_readings_of_a_path_that_lead_elsewhere(api, server):
    public = {"name": "public", "domains": ["allowed.test"], "paths": ["/public/*"]}
    # Decoded once more, or without parameters, they go up.
    up = ["/public/%2e%2e%2fadmin", "/public/..%2Fadmin", "/public%2f..%2fadmin", "/public/x%2F%2e%2E", "/public/..;/admin",
          "/public/..;a=b/admin", "/public/.;/x", "/public/..%3b/admin", "/public/%2e%2e;x%2fadmin"]
    with api.sandbox(network=policy(public)) as sb:
        for target, answer in zip(up, talks(api, sb, [spec([head(p, Connection="close")]) for p in up])):
            assert answer["out"][0].startswith("HTTP/1.1 400 "), (target, answer)
        assert server.heads == []
        # An escaped slash is part of a name for many; three dots, or a word that ends so, are no way up.
        plain = ["/public/group%2Fproject", "/public/...", "/public/a..;b", "/public/v1..v2"]
        assert [a[0] for a in ask(api, sb, *[head(p) for p in plain])] == [200] * 4
        assert targets(server) == plain


def test_a_denied_path_with_escaped_slashes(api, server):
    with api.sandbox(network=policy(NO_ADMIN, OPEN)) as sb:
        out = ask(api, sb, head("/admin%2Fx"), head("/%2fadmin/x"), head("/%2f%2Fadmin%2fx"), head("/x%2Fadmin"))
        assert [a[0] for a in out] == [403, 403, 403, 200]
        assert targets(server) == ["/x%2Fadmin"]


def test_slashes_that_would_name_a_host(api, server):
    """Servers that read the target as the address of a page see a host behind two slashes, and another path behind that."""
    with api.sandbox(network=policy({"name": "public", "domains": ["allowed.test"], "paths": ["/public/*"]})) as sb:
        out = ask(api, sb, head("//public/admin"), head("///public//b?c=//d"), head(f"https://allowed.test:{t.TLS}//public/e"))
        assert [told(a)["target"] for a in out] == ["/public/admin", "/public//b?c=//d", "/public/e"]


# --- what is put in


def test_fields_that_servers_take_for_the_one_put_in(api, server, secret):
    """Gateways turn hyphens into underscores: a program cannot put a key of its own beside that of the rule."""
    with api.sandbox(network=policy(HEADER)) as sb:
        request = (f"GET / HTTP/1.1\r\nHost: allowed.test\r\nX_Key: mine\r\nx_kEY: mine\r\nX-KEY: mine\r\nx-key:\tmine\r\nX-Key2: other\r\n\r\n")
        fields = told(ask(api, sb, request)[0])["fields"]
        assert [(k, v) for k, v in fields if k.lower().startswith(("x-", "x_"))] == [("X-KEY", VALUE), ("X-Key2", "other")]


def test_a_placeholder_that_would_be_too_much(api, server, secret):
    text_of_it = "placeholder-0123456789"
    rules = policy(rule({"placeholder": "KEY", "value": "$TOKEN", "text": text_of_it}))
    many = text_of_it * 2600            # the value is longer
    with api.sandbox(network=rules) as sb:
        for request in (head(X_Many=many, Connection="close"), head("/?q=" + many, Connection="close")):
            out = text(api, sb, [request])
            assert out.startswith("HTTP/1.1 502 ") and "too large" in out, out[:200]
        assert server.heads == [] and last_denial(api, sb)[0] == "secret"


def test_the_host_is_no_place_for_a_value(api, world, server, secret):
    text_of_it = "placeholder-0123456789"
    rules = policy(rule({"placeholder": "KEY", "value": "$TOKEN", "text": text_of_it}, domains=["*.wild.test"]))
    world.zone[f"{text_of_it}.wild.test"] = [t.w.ALLOWED]
    with api.sandbox(network=rules) as sb:
        (answer,) = ask(api, sb, head(host=f"{text_of_it}.wild.test", X_Other=text_of_it), host=f"{text_of_it}.wild.test")
        assert field(answer, "Host") == [f"{text_of_it}.wild.test"] and field(answer, "X-Other") == [VALUE]


def test_more_values_than_can_be_blackened(api, server, secret):
    keys = [f"K{n:02}" for n in range(80)]
    assert api.put("/v1/secrets/many", json={"values": {k: f"value-of-{k}" for k in keys}}).status_code in (200, 201)
    try:
        few = {"name": "few", "domains": ["allowed.test"], "redact": True,
               "inject": [{"header": "X-Key", "value": " ".join(f"${k}" for k in keys[:64]), "secret": "many"}]}
        many = {**few, "name": "many", "inject": [{"header": "X-Key", "value": " ".join(f"${k}" for k in keys), "secret": "many"}]}
        with api.sandbox(network=policy({**many, "paths": ["/many"]}, few)) as sb:
            out = text(api, sb, [head("/many", Connection="close")])
            assert out.startswith("HTTP/1.1 502 ") and "blackened" in out and server.heads == []
            ((status, _, body),) = ask(api, sb, head())
            assert status == 200 and "value-of" not in body and "*" * 12 in body
    finally:
        api.delete("/v1/secrets/many")


@pytest.mark.parametrize("alike", [True, False])
def test_what_waits_does_not_tell_how_a_value_begins(api, server, secret, alike):
    """A program that has its own bytes sent back would guess a value byte by byte, if only what begins so were kept back."""
    guesses = [VALUE[:n] if alike else "x" * n for n in range(1, len(VALUE) // 2)]
    fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"}
    with api.sandbox(network=policy({**HEADER, "redact": True})) as sb:
        answers = talks(api, sb, [spec([head("/ws", **fields), guess], turns=True, timeout=10) for guess in guesses])
        assert [a["out"][1:] for a in answers] == [[guess] for guess in guesses]
        # The rest of it does not come, whole or behind such a piece.
        (answer,) = talks(api, sb, [spec([head("/ws", **fields), VALUE[:5], VALUE[5:] + "."], turns=True)])
        assert answer["out"][1:] == [VALUE[:5], "*" * (len(VALUE) - 5) + "."]


# --- egress itself


def memory_kb(daemon, what="VmHWM"):
    (pid,) = daemon.pids("egress")
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what + ":"))


NEVER_READS = r"""
import socket, ssl, sys, time
port, host = int(sys.argv[1]), "allowed.test"
s = ssl.create_default_context().wrap_socket(socket.create_connection((host, port)), server_hostname=host)
s.setblocking(False)
block = b"POST / HTTP/1.1\r\nHost: allowed.test\r\n\r\n" * 1000
sent, last = 0, time.monotonic()
while sent < 24 << 20 and time.monotonic() - last < 3:
    try:
        sent += s.send(block)
        last = time.monotonic()
    except ssl.SSLWantWriteError:
        time.sleep(0.01)
print(sent, flush=True)
# What was answered comes, and the connection goes on.
s.setblocking(True)
got = b""
while len(got) < 1 << 20:
    got += s.recv(65536)
print(got.startswith(b"HTTP/1.1 403 "))
"""


def test_refused_requests_whose_answers_nobody_reads(api, daemon, server):
    with api.sandbox(network=policy(OPEN)) as sb:
        assert ask(api, sb, head())[0][0] == 200
        before = memory_kb(daemon)
        r = api.run(sb, ["python3", "-c", NEVER_READS, str(t.TLS)], timeout=300)
        assert r["stdout"].split("\n")[1:] == ["True", ""], r
        # A sanitizer keeps what was freed for a while.
        assert memory_kb(daemon) - before < (200 << 10 if "asan" in qsdaemon.build_dir().name else 8 << 10)


KEY_UPDATES = r"""
import ctypes, socket, sys
lib = ctypes.CDLL("libssl.so.3")
for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
    getattr(lib, name).restype = ctypes.c_void_p
context = lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_client_method()))
ssl = ctypes.c_void_p(lib.SSL_new(ctypes.c_void_p(context)))
s = socket.create_connection(("allowed.test", int(sys.argv[1])))
lib.SSL_set_fd(ssl, s.fileno())
lib.SSL_ctrl(ssl, 55, 0, b"allowed.test")       # the name
assert lib.SSL_connect(ssl) == 1
sent = 0
import time
end = time.monotonic() + float(sys.argv[2])
s.settimeout(None)
while time.monotonic() < end and lib.SSL_key_update(ssl, 1) == 1 and lib.SSL_do_handshake(ssl) == 1:
    sent += 1
print(sent)
"""


def test_changes_of_keys_without_end(api, daemon, server):
    """Each asks for an answer that nobody reads; a neighbour goes on meanwhile."""
    with api.sandbox(network=policy(OPEN)) as sb, api.sandbox(network=policy(OPEN)) as other:
        assert ask(api, sb, head())[0][0] == 200
        before = memory_kb(daemon)
        r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", KEY_UPDATES, str(t.TLS), "8"]})
        assert r.status_code == 201, r.text
        base = f"/v1/sandboxes/{sb.id}/execs/{r.json()['id']}"
        for _ in range(3):
            assert ask(api, other, head())[0][0] == 200
        out = api.get(base + "/stdout", timeout=120).text
        print(out)
        assert int(out) > 10
        assert memory_kb(daemon) - before < (200 << 10 if "asan" in qsdaemon.build_dir().name else 8 << 10)


STALLS = r"""
import resource, socket, ssl, struct, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
port, count = int(sys.argv[1]), int(sys.argv[2])
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
greeting = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="allowed.test")
try:
    greeting.do_handshake()
except ssl.SSLWantReadError:
    pass
hello = outgoing.read()
kept = []
for i in range(count):
    try:
        s = socket.create_connection(("allowed.test", port), timeout=20)
        s.sendall(hello if i % 2 else hello[:40])       # half of them not even to the end of the greeting
        kept.append(s)
    except OSError:
        pass
print(len(kept), flush=True)
time.sleep(float(sys.argv[3]))
"""


def test_greetings_that_stop(api, daemon, server):
    """As many connections as a sandbox may have stand in the middle of TLS: a neighbour goes on, and they end by themselves."""
    with api.sandbox(network=policy(OPEN)) as sb, api.sandbox(network=policy(OPEN)) as other:
        assert ask(api, other, head())[0][0] == 200
        before = memory_kb(daemon, "VmRSS")
        r = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-uc", STALLS, str(t.TLS), "1200", "120"]})
        assert r.status_code == 201, r.text
        base = f"/v1/sandboxes/{sb.id}/execs/{r.json()['id']}"
        end = time.monotonic() + 120
        while "\n" not in api.get(base + "/stdout", params={"follow": "false"}).text and time.monotonic() < end:
            assert ask(api, other, head())[0][0] == 200
        state = network(api, sb)
        assert state["connections_open"] <= 1024 and ask(api, other, head())[0][0] == 200
        print("flows", state["connections_open"], "memory", memory_kb(daemon, "VmRSS") - before)
        # A connection that stands still costs what a greeting costs.
        assert memory_kb(daemon, "VmRSS") - before < 1024 * (400 if "asan" in qsdaemon.build_dir().name else 160)
        while network(api, sb)["connections_open"] > 0:
            assert time.monotonic() < end + 120
            time.sleep(0.5)
        assert ask(api, sb, head())[0][0] == 200
