"""
Clients over bad connections: cut at random, an answer lost, the server killed and started again in the middle. And callers who are
not clients: wrong and expired tokens, the task of another sandbox, messages that are too large or no messages.
"""

import base64
import json
import os
import ssl
import subprocess
import threading
import time

import grpc
import pytest

import nodeclient
import programs as sdk_programs
from qsdaemon import free_port
from proxy import Cutting, DropAnswer

HERE = sdk_programs.HERE
ROUTER_HOST = "127.0.0.2"
CLIENTS = ("js", "python", "go")
KINDS = ("stdout", "stdin", "read", "write", "main")


def pairs(names, core):
    """(client, what): those that are not in `core` run with --long."""
    return [pytest.param(c, n, marks=[] if (c, n) in core else [pytest.mark.rest]) for c in CLIENTS for n in names]


def command_of(daemon, installed, client, generation, home, program, *arguments):
    """The command line and the environment of a hostile program: `stream KIND MIB` or `answers KIND`."""
    env = sdk_programs.base_env(daemon, generation, home)
    if client == "js":
        env["QS_MODAL_MODULE"] = str(installed("js-0.11.1") / "node_modules/modal/dist/index.js")
        env["QS_SDK_VERSION"] = "0.11.1"
        return ["node", HERE / f"js/hostile/{program}.mjs", *arguments], env
    if client == "python":
        return [installed("python") / "bin/python3", HERE / f"python/{program}.py", *arguments], env
    env["QS_HOSTILE"] = " ".join(arguments)
    return [installed("go") / "sdktests", "-test.run", f"^TestHostile{program.capitalize()}$", "-test.v"], env


def result_of(out):
    return json.loads(out.split("RESULT ", 1)[1].split("\n", 1)[0])


def stream(command, env):
    r = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280)
    assert r.returncode == 0 and "RESULT " in r.stdout, (r.stdout + r.stderr)[-3000:]
    result = result_of(r.stdout)
    assert result["mine"] == result["theirs"], result
    return result


@pytest.fixture(scope="module")
def far_daemon():
    """Its router is reached at another address: there a proxy can stand between."""
    from system_conftest import finish, start
    daemon = start(router_host=ROUTER_HOST)
    yield daemon
    finish(daemon)


def router_proxy(daemon, kind, *arguments, **options):
    return kind((ROUTER_HOST, daemon.router_port), ("127.0.0.1", daemon.router_port), *arguments, **options)


def tls_of(daemon, client):
    """Python's client alone speaks TLS to the router of a server on this machine; it takes any certificate there."""
    if client != "python":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(daemon.data_dir / "node/tls.crt", daemon.data_dir / "node/tls.key")
    context.set_alpn_protocols(["h2"])
    return context


def cut_stream(daemon, installed, home, generation, client, kind, mib, cuts):
    command, env = command_of(daemon, installed, client, generation, home, "stream", kind, str(mib))
    with router_proxy(daemon, Cutting, cuts, (mib << 20) // (cuts + 2), mib) as proxy:
        stream(command, env)
        # In V1 the output of the main process does not come from the router.
        assert proxy.done > 0 or (kind == "main" and generation == "v1")


@pytest.mark.parametrize("client,kind", pairs(KINDS, [("js", k) for k in KINDS] + [(c, k) for c in CLIENTS for k in KINDS[:2]]))
def test_cut_connections(far_daemon, installed, tmp_path, generation, client, kind):
    """Few cuts and 20 MiB; the long test has 100 MiB and more of them."""
    cut_stream(far_daemon, installed, tmp_path, generation, client, kind, 20, 4)


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_cut_connections_of_a_hundred_mib(far_daemon, installed, tmp_path, generation, client, kind):
    # A client resumes stdin nine times at most; reading has no limit as long as something comes.
    cut_stream(far_daemon, installed, tmp_path, generation, client, kind, 100, 6 if kind in ("stdin", "write") else 30)


@pytest.mark.parametrize("client", CLIENTS)
def test_v1_output_of_the_main_process_over_cut_connections(daemon, installed, tmp_path, client):
    """In V1 it comes from the control plane, so that is where the connection is cut."""
    port = free_port()
    command, env = command_of(daemon, installed, client, "v1", tmp_path, "stream", "main", "20")
    env["MODAL_SERVER_URL"] = f"http://127.0.0.1:{port}"
    with Cutting(("127.0.0.1", port), ("127.0.0.1", daemon.port), 3, 6 << 20, 7) as proxy:
        stream(command, env)
        assert proxy.done > 0


# What is there in the end, and the call whose answer is lost.
ANSWERS = {
    "create": ({"made": 1, "stdout": "ok\n"}, "SandboxCreate"),
    "terminate": ({"code": 137}, "SandboxTerminate"),
    "queue": ({"n": 2}, "QueuePut"),
    "named": ({"same": True}, "QueueGetOrCreate"),
    "exec": ({"stdout": "once\n", "code": 0}, "TaskExecStart"),
    "stdin": ({"stdout": "one\ntwo\nthree\n"}, "TaskExecStdinWrite"),
    "file": ({"same": True}, "TaskExecStdinWrite"),
}
ONCE = [(c, k) for c in CLIENTS for k in ("create", "exec", "stdin")]


@pytest.mark.parametrize("client,kind", pairs(ANSWERS, [("js", k) for k in ANSWERS] + ONCE))
def test_a_lost_answer(far_daemon, installed, tmp_path, generation, client, kind):
    """The call was done once, and its client gets by."""
    expected, method = ANSWERS[kind]
    port = free_port()
    command, env = command_of(far_daemon, installed, client, generation, tmp_path, "answers", kind)
    env["MODAL_SERVER_URL"] = f"http://127.0.0.1:{port}"
    with (DropAnswer(("127.0.0.1", port), ("127.0.0.1", far_daemon.port)) as control,
          router_proxy(far_daemon, DropAnswer, tls=tls_of(far_daemon, client)) as router):
        proxy = router if method.startswith("Task") else control
        process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            line = process.stdout.readline()
            while line and line != "arm\n":
                line = process.stdout.readline()
            assert line, process.stderr.read()[-3000:]
            proxy.arm(method)
            out, err = process.communicate("go\n", timeout=90)
        finally:
            process.kill()
        assert process.returncode == 0 and "RESULT " in out, (out + err)[-3000:]
        assert result_of(out) == expected
        assert proxy.dropped == 1


@pytest.fixture(scope="module")
def killed_daemon():
    """Its roles are killed by the tests, and started again by it."""
    from system_conftest import finish, start
    daemon = start(supervised=True)
    yield daemon
    finish(daemon)


@pytest.mark.long
@pytest.mark.parametrize("client,kind,role", [("js", k, r) for k in KINDS for r in ("node", "control")] +
                         [(c, k, "node") for c in CLIENTS[1:] for k in ("stdout", "stdin")])
def test_the_server_is_killed_in_the_middle(killed_daemon, installed, tmp_path, generation, client, kind, role):
    command, env = command_of(killed_daemon, installed, client, generation, tmp_path, "stream", kind, "100")
    over = threading.Event()
    killed = []

    def kill():
        while len(killed) < 3 and not over.wait(1.5):
            killed_daemon.kill_role(role)
            killed.append(role)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        stream(command, env)
    finally:
        over.set()
        killer.join()
    assert killed


# --- callers who are not clients

class Raw:
    """Calls by name with our own description of the messages."""

    def __init__(self, address, proto, service, metadata=()):
        self.service = nodeclient.load_service(proto, service)
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        self.metadata = metadata

    def __call__(self, method, metadata=None, raw=None, **fields):
        m = self.service.methods_by_name[method]
        request = nodeclient.message_factory.MessageFactory().GetPrototype(m.input_type)
        response = nodeclient.message_factory.MessageFactory().GetPrototype(m.output_type)
        path = f"/{self.service.full_name}/{method}"
        data = raw if raw is not None else request(**fields).SerializeToString()
        call = self.channel.unary_unary(path, request_serializer=bytes, response_deserializer=response.FromString)
        return call(data, timeout=20, metadata=self.metadata if metadata is None else metadata)

    def fails(self, method, code, **options):
        with pytest.raises(grpc.RpcError) as e:
            self(method, **options)
        assert e.value.code() in [getattr(grpc.StatusCode, c) for c in code.split()], e.value
        return e.value.details()


@pytest.fixture
def control(daemon):
    token_id, secret = daemon.token.split(".", 1)
    return Raw(f"127.0.0.1:{daemon.port}", "modal/client.proto", "modal.client.ModalClient",
               (("x-modal-token-id", token_id), ("x-modal-token-secret", secret)))


def make_task(control, version):
    app = control("AppGetOrCreate", app_name="raw", object_creation_type=1)
    image = control("ImageGetOrCreate", app_id=app.app_id, image={"dockerfile_commands": ["FROM base"]})
    definition = {"image_id": image.image_id, "timeout_secs": 120}
    made = control(f"SandboxCreate{version}", app_id=app.app_id, definition=definition)
    task = control(f"SandboxGetTaskId{version}", sandbox_id=made.sandbox_id).task_id
    access = control("SandboxGetCommandRouterAccess", sandbox_id=made.sandbox_id) if version else control(
        "TaskGetCommandRouterAccess", task_id=task)
    return made.sandbox_id, task, access


@pytest.fixture
def raw_router(daemon, control, generation):
    """(router, task, a header with its token), and the same for another sandbox."""
    version = "V2" if generation == "v2" else ""
    router = Raw(f"127.0.0.1:{daemon.router_port}", "modal/task_command_router.proto", "modal.task_command_router.TaskCommandRouter")
    made = [make_task(control, version) for _ in range(2)]
    yield router, [(task, (("authorization", f"Bearer {access.jwt}"),)) for _, task, access in made]
    for sandbox_id, _, _ in made:
        control(f"SandboxTerminate{version}", sandbox_id=sandbox_id)


def test_router_token_of_another_sandbox(raw_router):
    router, [(task, mine), (_, other)] = raw_router
    fields = {"task_id": task, "exec_id": "e1", "command_args": ["true"]}
    router.fails("TaskExecStart", "UNAUTHENTICATED PERMISSION_DENIED NOT_FOUND", metadata=other, **fields)
    router("TaskExecStart", metadata=mine, **fields)
    router.fails("TaskExecWait", "UNAUTHENTICATED PERMISSION_DENIED NOT_FOUND", metadata=other, task_id=task, exec_id="e1")
    assert router("TaskExecWait", metadata=mine, task_id=task, exec_id="e1").code == 0


def damaged_tokens(token):
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))

    def encode(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    yield "none", ""
    yield "no token", "Bearer"
    yield "not three parts", f"Bearer {head}.{body}"
    yield "no signature", f"Bearer {head}.{body}."
    yield "another signature", f"Bearer {head}.{body}.{'A' * len(signature)}"
    yield "other claims", f"Bearer {head}.{encode({**claims, 'exp': claims['exp'] + 5})}.{signature}"
    yield "expired", f"Bearer {head}.{encode({**claims, 'exp': 1})}.{signature}"
    yield "alg none", f"Bearer {encode({'alg': 'none', 'typ': 'JWT'})}.{body}."
    yield "another key", f"Bearer {encode({'alg': 'ES256', 'typ': 'JWT', 'kid': 'x'})}.{body}.{signature}"
    yield "huge", "Bearer " + "A" * 7000
    yield "another scheme", "Basic " + token


def test_router_tokens_that_are_not_valid(raw_router):
    router, [(task, mine), _] = raw_router
    for name, header in damaged_tokens(mine[0][1].split(" ")[1]):
        metadata = (("authorization", header),) if header else ()
        router.fails("TaskExecPoll", "UNAUTHENTICATED", metadata=metadata, task_id=task, exec_id="x")
    router.fails("TaskExecPoll", "NOT_FOUND", metadata=mine, task_id=task, exec_id="x")


def test_control_tokens_that_are_not_valid(control):
    token_id, secret = control.metadata[0][1], control.metadata[1][1]
    for pair in (("", ""), (token_id, ""), ("", secret), (token_id, secret + "x"), (token_id + "x", secret), ("x" * 5000, "y" * 2000)):
        metadata = (("x-modal-token-id", pair[0]), ("x-modal-token-secret", pair[1]))
        control.fails("AuthTokenGet", "UNAUTHENTICATED", metadata=metadata)
    control.fails("AuthTokenGet", "UNAUTHENTICATED", metadata=())
    assert control("AuthTokenGet").token.count(".") == 2


def test_messages_that_are_none(control, raw_router):
    router, [(task, mine), _] = raw_router
    for raw in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05abc", b"\x08" + b"\x80" * 20):
        control.fails("SandboxCreate", "INVALID_ARGUMENT INTERNAL", raw=raw)
        router.fails("TaskExecStart", "INVALID_ARGUMENT INTERNAL", metadata=mine, raw=raw)
    control("AuthTokenGet")
    router.fails("TaskExecPoll", "NOT_FOUND", metadata=mine, task_id=task, exec_id="x")


def test_messages_that_are_too_large(control, raw_router):
    router, [(task, mine), _] = raw_router
    large = b"\x0a" + b"\x80\x80\x80\x38" + b"a" * (112 << 20)
    control.fails("SandboxCreate", "RESOURCE_EXHAUSTED INVALID_ARGUMENT CANCELLED UNAVAILABLE", raw=large)
    router.fails("TaskExecStart", "RESOURCE_EXHAUSTED INVALID_ARGUMENT CANCELLED UNAVAILABLE", metadata=mine, raw=large)
    control("AuthTokenGet")
    router.fails("TaskExecPoll", "NOT_FOUND", metadata=mine, task_id=task, exec_id="x")


def test_fields_nobody_knows_are_skipped(control):
    raw = b"\x0a\x03raw\x18\x01" + b"\xfa\x3f\x05hello" + b"\xf8\x3f\x07"
    assert control("AppGetOrCreate", raw=raw).app_id.startswith("ap-")


def test_unknown_methods(control, raw_router):
    router, [(_, mine), _] = raw_router
    for raw, metadata in ((control, control.metadata), (router, mine)):
        call = raw.channel.unary_unary(f"/{raw.service.full_name}/NoSuchMethod", request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.RpcError) as e:
            call(b"", timeout=20, metadata=metadata)
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_repeated_start_starts_once(raw_router):
    router, [(task, mine), _] = raw_router
    for _ in range(3):
        router("TaskExecStart", metadata=mine, task_id=task, exec_id="same", command_args=["sh", "-c", "echo x >>/tmp/n; wc -l </tmp/n"],
               stdout_config=1, stderr_config=1)
    assert router("TaskExecWait", metadata=mine, task_id=task, exec_id="same").code == 0
    router("TaskExecStart", metadata=mine, task_id=task, exec_id="count", command_args=["sh", "-c", "exit $(wc -l </tmp/n)"])
    assert router("TaskExecWait", metadata=mine, task_id=task, exec_id="count").code == 1


def test_offsets_of_stdin(raw_router):
    router, [(task, mine), _] = raw_router
    router("TaskExecStart", metadata=mine, task_id=task, exec_id="in", command_args=["sh", "-c", "test $(cat) = abcdef"])

    def write(offset, data, eof=False):
        router("TaskExecStdinWrite", metadata=mine, task_id=task, exec_id="in", offset=offset, data=data, eof=eof)

    write(0, b"abc")
    write(0, b"abc")
    write(1, b"bcde")
    router.fails("TaskExecStdinWrite", "FAILED_PRECONDITION OUT_OF_RANGE", metadata=mine, task_id=task, exec_id="in", offset=9, data=b"x")
    status = router("TaskExecStdinStatus", metadata=mine, task_id=task, exec_id="in")
    assert (status.num_bytes_written, status.closed) == (5, False)
    write(5, b"f")
    write(0, b"", eof=True)
    assert router("TaskExecWait", metadata=mine, task_id=task, exec_id="in").code == 0


def test_create_is_done_once_a_key(control):
    app = control("AppGetOrCreate", app_name="keys", object_creation_type=1)
    image = control("ImageGetOrCreate", app_id=app.app_id, image={"dockerfile_commands": ["FROM base"]})
    for version in ("", "V2"):
        metadata = (*control.metadata, ("x-idempotency-key", f"key-{os.getpid()}-{version}-{time.monotonic()}"))
        ids = {control(f"SandboxCreate{version}", metadata=metadata, app_id=app.app_id, definition={"image_id": image.image_id}).sandbox_id
               for _ in range(3)}
        assert len(ids) == 1
        control(f"SandboxTerminate{version}", sandbox_id=ids.pop())
