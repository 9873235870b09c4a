"""The command router: what Modal's SDKs do inside a sandbox, said by hand."""

import concurrent.futures
import hashlib
import json
import os
import signal
import threading
import time
import uuid

import grpc
import pytest

import routerclient
from nodeclient import NodeClient, NodeSandbox
from routerclient import Router, RouterError, own_key, task_of, teach

HELPER = "/__modal/.bin/modal-sandbox-fs-tools"
MIB = 1024 * 1024


@pytest.fixture
def taught(daemon):
    teach(daemon)
    return daemon


@pytest.fixture
def sb(taught, api):
    with api.sandbox(image="base") as sandbox:
        yield sandbox


@pytest.fixture
def r(taught, sb):
    router = Router(taught, sb.id)
    yield router
    router.close()


def refused(call, *names, text=""):
    with pytest.raises(RouterError) as e:
        call()
    assert e.value.name in names, e.value
    assert text in e.value.text, e.value
    return e.value


def later(seconds):
    return int(time.time()) + seconds


# --- tokens

def test_tokens_that_do_not_pass(taught, sb):
    task, key = task_of(sb.id), own_key()
    good = key.token(task_id=task, exp=later(60))
    header, claims, signature = good.split(".")
    forged = routerclient.b64(json.dumps({"task_id": task, "exp": later(999)}).encode())
    tokens = {
        "none": "",
        "garbage": "abc",
        "two parts": f"{header}.{claims}",
        "other claims": f"{header}.{forged}.{signature}",
        "cut": good[:-4],
        "expired": key.token(task_id=task, exp=later(-1)),
        "not yet": key.token(task_id=task, exp=later(60), nbf=later(30)),
        "no exp": key.token(task_id=task),
        "no task": key.token(exp=later(60)),
        "no alg": key.token({"alg": "none"}, task_id=task, exp=later(60)),
        "HS256": key.token({"alg": "HS256"}, task_id=task, exp=later(60)),
        "EdDSA": key.token({"alg": "EdDSA"}, task_id=task, exp=later(60)),
        "unknown key": key.token({"kid": "other"}, task_id=task, exp=later(60)),
        "another's key": routerclient.Key().token(task_id=task, exp=later(60)),
        "critical": key.token({"crit": ["x"]}, task_id=task, exp=later(60)),
        "padded": good + "==",
        "float": key.token(task_id=task, exp=time.time() + 60),
    }
    for name, token in tokens.items():
        router = Router(taught, sb.id, token=token)
        refused(lambda: router.TaskExecStart(exec_id="a", command_args=["true"]), "UNAUTHENTICATED")
        with pytest.raises(RouterError) as e:
            router.stream_in("a", b"x")
        assert e.value.name == "UNAUTHENTICATED", name
        router.close()
    assert Router(taught, sb.id, token=good).run(["true"])[2] == 0


def test_a_token_is_for_one_sandbox(taught, api, sb, r):
    with api.sandbox(image="base") as other:
        for call in (lambda **f: r.TaskExecStart(exec_id="a", command_args=["true"], **f),
                     lambda **f: r.TaskExecWait(exec_id="a", **f), lambda **f: r.TaskExecPoll(exec_id="a", **f),
                     lambda **f: list(r.TaskExecStdioRead(exec_id="a", **f)), lambda **f: list(r.SandboxStdioReadV2(**f)),
                     lambda **f: r.SandboxStdinWriteV2(eof=True, **f), lambda **f: r.TaskExecStdinStatus(exec_id="a", **f),
                     lambda **f: r.SandboxWaitUntilReady(**f), lambda **f: r.TaskContainerList(**f),
                     lambda **f: r.TaskReloadVolumes(**f), lambda **f: r.TaskExecStdinWrite(exec_id="a", eof=True, **f)):
            refused(lambda call=call: call(task_id=task_of(other.id)), "PERMISSION_DENIED")
            refused(lambda call=call: call(task_id="ta-nonsense"), "NOT_FOUND")
    start = [{"start": {"task_id": task_of(other.id), "exec_id": "a", "offset": 0}}]
    refused(lambda: r.TaskExecStdinWriteStream(iter(start)), "PERMISSION_DENIED")
    # Both generations of a task's name, and the sandbox's own, are the same sandbox.
    assert Router(taught, sb.id, own_key().token(task_id=task_of(sb.id, "S"), exp=later(60))).run(["true"])[2] == 0
    assert Router(taught, sb.id, own_key().token(sandbox_id=sb.id, exp=later(60))).run(["true"])[2] == 0


def test_ed25519_and_the_end_of_a_key(taught, sb):
    key = routerclient.Key("EdDSA")
    teach(taught, ("ed", key))
    token = key.token({"kid": "ed"}, task_id=task_of(sb.id), exp=later(60))
    assert Router(taught, sb.id, token).run(["true"])[2] == 0
    wrong = key.token({"kid": "ed", "alg": "ES256"}, task_id=task_of(sb.id), exp=later(60))
    refused(lambda: Router(taught, sb.id, wrong).TaskReloadVolumes(), "UNAUTHENTICATED")


def test_the_node_service_is_not_reachable_by_tcp(taught):
    with grpc.insecure_channel(f"127.0.0.1:{taught.router_port}") as channel:
        call = channel.unary_unary("/quicksand.node.Node/List")
        with pytest.raises(grpc.RpcError) as e:
            call(b"", timeout=20)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_tls(taught, sb):
    pem = (taught.data_dir / "node/tls.crt").read_bytes()
    channel = grpc.secure_channel(f"localhost:{taught.router_port}", grpc.ssl_channel_credentials(pem))
    assert Router(taught, sb.id, channel=channel).run(["echo", "x"]) == (b"x\n", b"", 0)
    channel.close()


# --- start

def test_run(r):
    out, err, code = r.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (out, err, code) == (b"out\n", b"err\n", 7)


def test_start_again_is_no_other_start(r):
    exec_id = r.start(["sh", "-c", "echo x >> /tmp/once"])
    r.start(["sh", "-c", "echo x >> /tmp/once"], exec_id)
    r.start(["sh", "-c", "echo other >> /tmp/once"], exec_id)
    assert r.wait(exec_id) == 0
    r.start(["sh", "-c", "echo x >> /tmp/once"], exec_id)
    assert r.run(["cat", "/tmp/once"])[0] == b"x\n"


def test_starts_that_fail(r):
    for argv, fields, text in ((["/no/such"], {}, "/no/such"), (["no-such"], {}, "no-such"), ([], {}, "empty"),
                               (["/etc/passwd"], {}, "/etc/passwd"), (["true"], {"workdir": "/no/dir"}, "/no/dir"),
                               (["true"], {"workdir": "relative"}, "absolute"), ([""], {}, "empty")):
        exec_id = str(uuid.uuid4())
        for _ in range(2):      # the same answer to a repeated call
            refused(lambda: r.start(argv, exec_id, **fields), "INVALID_ARGUMENT", text=text)
    refused(lambda: r.start(["true"], container_id="ctr-x"), "NOT_FOUND")
    refused(lambda: r.start(["true"], secret_ids=["st-unknown"]), "FAILED_PRECONDITION", text="st-unknown")
    assert r.run(["true"], container_id="main")[2] == 0


def test_environment_and_workdir(taught, r):
    node = NodeClient(taught.run_dir)
    node.PutSecrets(secrets=[{"secret_id": "st-1", "version": 2, "env": [b"A=1", b"B=1"]},
                             {"secret_id": "st-2", "version": 1, "env": [b"B=2"]}])
    node.PutSecrets(secrets=[{"secret_id": "st-1", "version": 1, "env": [b"A=old"]}])
    show = ["sh", "-c", "echo $A $B $C; pwd"]
    assert r.run(show, secret_ids=["st-1", "st-2"], env={"C": "3"}, workdir="/tmp")[0] == b"1 2 3\n/tmp\n"
    assert r.run(show, secret_ids=["st-2", "st-1"], env={"A": "x"})[0].startswith(b"x 1\n")
    sources = [{"secret_id": "st-1"}, {"env": {"contents": {"B": "in", "C": "line"}}}, {"secret_id": "st-2"}]
    assert r.run(show, secret_sources=sources)[0].startswith(b"1 2 line\n")
    # A repeated start is not looked at again, even when the secret has gone meanwhile.
    exec_id = r.start(show, secret_ids=["st-1"])
    node.PutSecrets(secrets=[{"secret_id": "st-1", "version": 3, "deleted": True}])
    r.start(show, exec_id, secret_ids=["st-1"])
    refused(lambda: r.start(show, secret_ids=["st-1"]), "FAILED_PRECONDITION")
    node.close()


def test_streams_nobody_wants(r):
    exec_id = r.start(["sh", "-c", "echo out; echo err >&2"], stdout_config=0, stderr_config=0)
    assert (r.read(exec_id), r.read(exec_id, 1), r.wait(exec_id)) == (b"", b"", 0)
    exec_id = r.start(["sh", "-c", "echo out; echo err >&2"], stderr_config=2)
    assert (r.read(exec_id), r.read(exec_id, 1)) == (b"out\nerr\n", b"")


def test_terminal(r):
    pty = {"enabled": True, "winsz_rows": 33, "winsz_cols": 77, "env_term": "vt100", "env_colorterm": "truecolor"}
    exec_id = r.start(["sh", "-c", "stty size; echo $TERM $COLORTERM; cat; echo end"], pty_info=pty, stderr_config=0)
    r.TaskExecStdinWrite(exec_id=exec_id, offset=0, data=b"hello\n")
    r.TaskExecStdinWrite(exec_id=exec_id, offset=0, eof=True)
    out = r.read(exec_id).replace(b"\r\n", b"\n")
    # The terminal echoes what was typed, at whatever moment it came.
    assert b"33 77\n" in out and b"vt100 truecolor\n" in out and out.endswith(b"hello\nend\n")
    assert r.wait(exec_id) == 0


def test_a_timeout_kills_at_once(r):
    begun = time.monotonic()
    exec_id = r.start(["sh", "-c", "trap '' TERM; sleep 99"], timeout_secs=1)
    assert r.wait(exec_id) == -signal.SIGKILL
    assert 0.9 < time.monotonic() - begun < 4
    assert r.read(exec_id) == b""


# --- output

def test_reads_at_offsets(r):
    exec_id = r.start(["sh", "-c", "printf 0123456789; sleep 0.5; printf abc"])
    assert r.read(exec_id, offset=12) == b"c"       # beyond what is there: waits
    assert r.read(exec_id) == b"0123456789abc"
    assert r.read(exec_id, offset=4) == b"456789abc"
    assert r.read(exec_id, offset=13) == b"" and r.read(exec_id, offset=99) == b""


def test_a_hundred_mebibytes_with_broken_streams(r):
    make = "import hashlib,sys\nx=b'seed'\nfor i in range(1600):\n x=hashlib.sha256(x).digest()\n sys.stdout.buffer.write(x*2048)"
    exec_id = r.start(["python3", "-c", make])
    assert r.wait(exec_id, 120) == 0                # nobody reads meanwhile
    digest, got = hashlib.sha256(), 0
    for cut in (1, 700000, 33333333, 60000000, None):
        stream = r.TaskExecStdioRead(exec_id=exec_id, offset=got, timeout=120)
        for m in stream:
            digest.update(m.data)
            got += len(m.data)
            if cut and got > cut:
                stream.cancel()
                break
    assert got == 1600 * 65536
    x, want = b"seed", hashlib.sha256()
    for _ in range(1600):
        x = hashlib.sha256(x).digest()
        want.update(x * 2048)
    assert digest.digest() == want.digest()


def test_a_slow_reader_costs_nobody(taught, r):
    exec_id = r.start(["dd", "if=/dev/zero", "bs=1M", "count=64", "status=none"])
    stream = iter(r.TaskExecStdioRead(exec_id=exec_id, timeout=60))
    next(stream)
    assert r.wait(exec_id) == 0
    assert r.run(["echo", "quick"])[0] == b"quick\n"
    time.sleep(1)
    assert sum(len(m.data) for m in stream) > 63 * MIB


def test_a_background_child_does_not_hold_readers(r):
    exec_id = r.start(["sh", "-c", "sleep 30 & echo done"])
    begun = time.monotonic()
    assert r.read(exec_id) == b"done\n"
    assert time.monotonic() - begun < 5


# --- stdin

def test_stdin_offsets(r):
    exec_id = r.start(["cat"])
    write = r.TaskExecStdinWrite
    write(exec_id=exec_id, offset=0, data=b"abc")
    write(exec_id=exec_id, offset=0, data=b"abc")           # said twice
    write(exec_id=exec_id, offset=1, data=b"bcde")          # some of it said before
    refused(lambda: write(exec_id=exec_id, offset=9, data=b"gap"), "OUT_OF_RANGE", "FAILED_PRECONDITION")
    assert r.status(exec_id) == (5, False)
    write(exec_id=exec_id, offset=5, data=b"f", eof=True)
    write(exec_id=exec_id, offset=5, data=b"f", eof=True)   # the answer was lost
    write(exec_id=exec_id, offset=0, eof=True)
    assert r.read(exec_id) == b"abcdef" and r.wait(exec_id) == 0
    refused(lambda: write(exec_id=exec_id, offset=6, data=b"late"), "FAILED_PRECONDITION")
    assert r.status(exec_id) == (6, True)


def test_eof_at_offset_zero(r):
    exec_id = r.start(["cat"])
    r.TaskExecStdinWrite(exec_id=exec_id, offset=0, data=b"abc")
    r.TaskExecStdinWrite(exec_id=exec_id, offset=0, eof=True)
    assert r.read(exec_id) == b"abc"


def test_stdin_stream(r):
    data = os.urandom(20 * MIB)
    exec_id = r.start(["sha256sum"])
    r.stream_in(exec_id, data)
    assert r.read(exec_id).split()[0].decode() == routerclient.sha(data)


def test_one_large_piece(r):
    data = os.urandom(8 * MIB)
    exec_id = r.start(["sha256sum"])
    r.TaskExecStdinWrite(exec_id=exec_id, data=data, eof=True)
    assert r.read(exec_id).split()[0].decode() == routerclient.sha(data)


def test_a_stream_that_breaks_leaves_stdin_open(r):
    data = os.urandom(6 * MIB)
    exec_id = r.start(["sha256sum"])
    go = threading.Event()

    def messages():
        yield {"start": {"task_id": r.task_id, "exec_id": exec_id, "offset": 0}}
        for at in range(0, len(data) // 2, MIB // 4):
            yield {"data": data[at:at + MIB // 4]}
        go.wait(20)
    request = r.types["TaskExecStdinWriteStream"][0]
    call = r.channel.stream_unary(f"/{routerclient.SERVICE}/TaskExecStdinWriteStream",
                                  request_serializer=request.SerializeToString)
    future = call.future((request(**m) for m in messages()), metadata=r.metadata)
    time.sleep(0.5)
    future.cancel()
    go.set()
    taken, closed = r.status(exec_id)
    assert not closed and taken <= len(data) // 2
    refused(lambda: r.stream_in(exec_id, data[taken + 1:], offset=taken + 1), "FAILED_PRECONDITION")
    r.stream_in(exec_id, data[taken:], offset=taken)
    assert r.read(exec_id).split()[0].decode() == routerclient.sha(data)


def test_asking_where_stdin_stands_ends_the_stream(r):
    exec_id = r.start(["sleep", "60"])
    data = bytes(4 * MIB)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(r.stream_in, exec_id, data)       # nobody reads: it waits
        time.sleep(0.5)
        taken, closed = r.status(exec_id)
        with pytest.raises(RouterError) as e:
            job.result(10)
        assert e.value.name in ("FAILED_PRECONDITION", "ABORTED", "CANCELLED")
    assert not closed and 0 < taken < len(data)
    time.sleep(0.3)
    assert r.status(exec_id) == (taken, False)


def test_a_program_that_reads_no_stdin(r):
    exec_id = r.start(["sh", "-c", "exit 3"])
    r.wait(exec_id)
    refused(lambda: r.stream_in(exec_id, bytes(MIB)), "FAILED_PRECONDITION", "ABORTED")
    assert r.TaskExecPoll(exec_id=exec_id).code == 3
    r.stream_in(r.start(["cat"]), b"")


def test_streams_out_of_order(r):
    exec_id = r.start(["cat"])
    start = {"start": {"task_id": r.task_id, "exec_id": exec_id, "offset": 0}}
    for messages in ([{"data": b"x"}], [{"end": {}}], [start, start], [{}], []):
        with pytest.raises(RouterError) as e:
            r.TaskExecStdinWriteStream(iter(messages))
        assert e.value.name in ("INVALID_ARGUMENT", "FAILED_PRECONDITION")


# --- the end

def test_wait_and_poll(r):
    exec_id = r.start(["sh", "-c", "sleep 0.5; kill -TERM $$"])
    assert r.TaskExecPoll(exec_id=exec_id).WhichOneof("exit_status") is None
    assert r.wait(exec_id) == -signal.SIGTERM
    assert r.TaskExecPoll(exec_id=exec_id).signal == signal.SIGTERM
    assert r.wait(r.start(["true"])) == 0
    for call in (r.TaskExecWait, r.TaskExecPoll, r.TaskExecStdinStatus, lambda **f: list(r.TaskExecStdioRead(**f)),
                 lambda **f: r.TaskExecStdinWrite(data=b"x", **f)):
        refused(lambda call=call: call(exec_id=str(uuid.uuid4())), "NOT_FOUND")
        refused(lambda call=call: call(exec_id="../../etc"), "NOT_FOUND")


def test_after_the_sandbox(taught, api):
    with api.sandbox(image="base", command=["sh", "-c", "echo hello; echo oops >&2; sleep 99"]) as sb:
        r = Router(taught, sb.id)
        ended = r.start(["sh", "-c", "echo before; exit 5"])
        assert r.wait(ended) == 5
        running = r.start(["sleep", "99"])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(r.wait, running)
            time.sleep(0.3)
            assert api.post(f"/v1/sandboxes/{sb.id}/terminate", json={"grace_s": 0}).status_code < 300
            assert waiting.result(20) == -signal.SIGKILL
        for _ in range(100):
            if api.get(f"/v1/sandboxes/{sb.id}").json()["state"] == "ended":
                break
            time.sleep(0.1)
        assert (r.read(ended), r.wait(ended), r.wait(running)) == (b"before\n", 5, -signal.SIGKILL)
        assert b"".join(m.data for m in r.SandboxStdioReadV2()) == b"hello\n"
        assert b"".join(m.data for m in r.SandboxStdioReadV2(file_descriptor=1)) == b"oops\n"
        begun = time.monotonic()
        refused(lambda: r.start(["true"]), "NOT_FOUND")
        refused(lambda: r.TaskExecWait(exec_id="unknown"), "NOT_FOUND")
        refused(lambda: r.SandboxStdinWriteV2(data=b"x"), "FAILED_PRECONDITION")
        assert time.monotonic() - begun < 2
    refused(lambda: r.start(["true"]), "NOT_FOUND")
    refused(lambda: r.wait(ended), "NOT_FOUND")
    refused(lambda: list(r.SandboxStdioReadV2()), "NOT_FOUND")


def test_five_hundred_at_once(taught, sb, r):
    ids = [str(uuid.uuid4()) for _ in range(500)]

    def one(i):
        r.start(["sh", "-c", f"echo {i}; exit {i % 100}"], ids[i], timeout=120)
        return r.read(ids[i], timeout=120), r.wait(ids[i], 120)
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        results = list(pool.map(one, range(500)))
    assert results == [(f"{i}\n".encode(), i % 100) for i in range(500)]


# --- the entry point

def test_entry_point(taught, api):
    node = NodeClient(taught.run_dir)
    layers = taught.api.get("/v1/images/base").json()["layers"]
    with NodeSandbox(node, layers, entry={"argv": [b"cat"]}, entry_stdin=True) as sb:
        r = Router(taught, sb.id)
        r.SandboxStdinWriteV2(offset=0, data=b"one\n")
        stream = iter(r.SandboxStdioReadV2())
        first = next(stream)
        assert (first.data, first.starting_offset) == (b"one\n", 0)
        r.SandboxStdinWriteV2(offset=4, data=b"two\n", eof=True)
        rest = list(stream)
        assert b"".join(m.data for m in rest) == b"two\n" and rest[0].starting_offset == 4
        assert [m.data for m in r.SandboxStdioReadV2(offset=6)] == [b"o\n"]
    many = {"entry": {"argv": [b"sh", b"-c", b"yes | head -c 3000000; sleep 60"]}, "log_bytes": 1000000}
    with NodeSandbox(node, layers, **many) as sb:
        r = Router(taught, sb.id)
        time.sleep(1)
        stream = iter(r.SandboxStdioReadV2())
        assert next(stream).starting_offset == 2000000
        stream = None
    with NodeSandbox(node, layers) as sb:       # idles: its output is empty and ends with it
        r = Router(taught, sb.id)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda: list(r.SandboxStdioReadV2()))
            time.sleep(0.3)
            assert not job.done()
            node.Terminate(sandbox_id=sb.id, grace_ms=0)
            assert job.result(10) == []
    node.close()


def test_what_is_dropped_is_never_read_as_zeros(taught):
    """A log that drops its beginning under a slow reader: every line that comes is the one that belongs to its offset."""
    node = NodeClient(taught.run_dir)
    layers = taught.api.get("/v1/images/base").json()["layers"]
    entry = {"argv": [b"python3", b"-c", b"import sys\nfor i in range(4000000): sys.stdout.write('%015d\\n' % i)"]}
    with NodeSandbox(node, layers, entry=entry, log_bytes=3000000) as sb:
        r = Router(taught, sb.id)
        at, jumps, held = 0, 0, b""
        for n, m in enumerate(r.SandboxStdioReadV2(timeout=200)):
            if m.starting_offset != at:
                assert m.starting_offset > at
                at, jumps, held = m.starting_offset, jumps + 1, b""
            held += m.data
            at += len(m.data)
            start = at - len(held)
            skip = -start % 16
            lines = held[skip:]
            lines = lines[:len(lines) // 16 * 16]
            first = (start + skip) // 16
            assert lines == b"".join(b"%015d\n" % (first + i) for i in range(len(lines) // 16))
            held = held[skip + len(lines):]
            if n % 8 == 0:
                time.sleep(0.1)
        assert at == 64000000 and jumps > 0
    node.close()


# --- readiness

def test_readiness(taught):
    node = NodeClient(taught.run_dir)
    layers = taught.api.get("/v1/images/base").json()["layers"]
    with NodeSandbox(node, layers) as sb:
        refused(lambda: Router(taught, sb.id).SandboxWaitUntilReady(timeout=5.0), "FAILED_PRECONDITION", text="probe")
    probe = {"argv": [b"test", b"-e", b"/tmp/ready"], "interval_ms": 50}
    with NodeSandbox(node, layers, defaults={"probe": probe}) as sb:
        r = Router(taught, sb.id)
        call = routed(r, "SandboxWaitUntilReady")
        begun = time.monotonic()
        refused(lambda: call(timeout=0.4), "DEADLINE_EXCEEDED")
        assert 0.3 < time.monotonic() - begun < 3
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(call, timeout=30.0) for _ in range(8)]
            time.sleep(0.3)
            r.run(["touch", "/tmp/ready"])
            times = {j.result(10).ready_at for j in jobs}
        assert len(times) == 1 and abs(times.pop() - time.time()) < 5
        r.run(["rm", "/tmp/ready"])
        assert call(timeout=0.0).ready_at > 0        # once ready, ready for good
        assert len(node.ExecList(sandbox_id=sb.id).execs) == 2      # the two of ours
    with NodeSandbox(node, layers, defaults={"probe": {"tcp_port": 8000, "interval_ms": 50}}) as sb:
        r = Router(taught, sb.id)
        call = routed(r, "SandboxWaitUntilReady")
        refused(lambda: call(timeout=0.4), "DEADLINE_EXCEEDED")
        r.start(["python3", "-c", "import socket,time; s=socket.create_server(('127.0.0.1',8000)); time.sleep(60)"])
        assert call(timeout=20.0).ready_at > 0
    with NodeSandbox(node, layers, defaults={"probe": {"argv": [b"false"]}}) as sb:
        call = routed(Router(taught, sb.id), "SandboxWaitUntilReady")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(call, timeout=30.0)
            time.sleep(0.3)
            node.Terminate(sandbox_id=sb.id, grace_ms=0)
            refused(lambda: job.result(20), "NOT_FOUND")
    node.close()


def routed(r, name):
    """A method whose request has a field `timeout`, which is the call's elsewhere."""
    request, response = r.types[name]
    call = r.channel.unary_unary(f"/{routerclient.SERVICE}/{name}", request_serializer=request.SerializeToString,
                                 response_deserializer=response.FromString)

    def ask(**fields):
        try:
            return call(request(task_id=r.task_id, **fields), timeout=60, metadata=r.metadata)
        except grpc.RpcError as e:
            raise RouterError(e) from None
    return ask


# --- what is not there

def test_what_this_server_does_not_do(r):
    assert not r.TaskContainerList().containers
    r.TaskReloadVolumes()
    for call, name in ((lambda: r.TaskContainerCreate(container_name="x"), "UNIMPLEMENTED"),
                       (lambda: r.TaskContainerGet(container_name="x"), "NOT_FOUND"),
                       (lambda: routed(r, "TaskContainerWait")(container_id="x"), "NOT_FOUND"),
                       (lambda: r.TaskContainerTerminate(container_id="x"), "NOT_FOUND"),
                       (lambda: r.TaskMountDirectory(path=b"/x"), "UNIMPLEMENTED"),
                       (lambda: r.TaskUnmountDirectory(path=b"/x"), "FAILED_PRECONDITION"),
                       (lambda: r.TaskSnapshotDirectory(path=b"/x"), "UNIMPLEMENTED"),
                       (lambda: r.TaskSnapshotFilesystem(), "UNIMPLEMENTED"),
                       (lambda: r.TaskSnapshotMemory(), "UNIMPLEMENTED"),
                       (lambda: r.TaskSetNetworkAccess(), "INVALID_ARGUMENT"),
                       (lambda: r.TaskSetOutboundPolicy(), "INVALID_ARGUMENT"),
                       (lambda: r.TaskSetOutboundPolicy(experimental_outbound_policy={}), "FAILED_PRECONDITION")):
        refused(call, name)


# --- files and daemons

def test_files(r):
    data = os.urandom(3 * MIB)
    exec_id = r.start([HELPER, json.dumps({"WriteFile": {"path": "/tmp/d/file"}})])
    r.stream_in(exec_id, data)
    assert r.wait(exec_id) == 0
    exec_id = r.start([HELPER, json.dumps({"ReadFile": {"path": "/tmp/d/file"}})])
    assert r.wait(exec_id) == 0
    assert r.read(exec_id) == data
    exec_id = r.start([HELPER, json.dumps({"ReadFile": {"path": "/tmp/none"}})])
    assert r.wait(exec_id) != 0
    assert json.loads(r.read(exec_id, 1))["error_kind"] == "NotFound"
    exec_id = r.start([HELPER, json.dumps({"Watch": {"path": "/tmp/d", "recursive": False, "filter": None,
                                                     "timeout_secs": None}})])
    r.TaskExecStdinWrite(exec_id=exec_id, offset=0, eof=True)
    assert r.wait(exec_id) == 0


def test_control_and_node_may_die(make_daemon):
    daemon = make_daemon(supervised=True)
    teach(daemon)
    with daemon.api.sandbox(image="base") as sb:
        r = Router(daemon, sb.id)
        exec_id = r.start(["sh", "-c", "cat; echo end"])
        r.TaskExecStdinWrite(exec_id=exec_id, data=b"abc")
        daemon.kill_role("control", signal.SIGSTOP)     # away, without a new one in its place
        assert r.run(["echo", "alone"])[0] == b"alone\n"
        daemon.kill_role("node")
        give_up = time.monotonic() + 30
        while True:                                     # the next node knows the keys from disk
            try:
                assert r.status(exec_id) == (3, False)
                break
            except RouterError as e:
                assert e.name == "UNAVAILABLE" and time.monotonic() < give_up, e
                time.sleep(0.1)
        r.TaskExecStdinWrite(exec_id=exec_id, offset=3, eof=True)
        assert r.read(exec_id) == b"abcend\n"
        daemon.kill_role("control")
        daemon.wait_ready()
