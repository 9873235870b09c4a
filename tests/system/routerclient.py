"""
A client of the command router for tests: its messages from proto/modal, tokens signed with a key of its own.

    teach(daemon)                       # the node learns the tests' key beside control's
    r = Router(daemon, sandbox_id)
    r.TaskExecStart(exec_id=..., command_args=[...])    # task_id is filled in

A failure is RouterError with the name of the gRPC code.
"""

import base64
import functools
import hashlib
import json
import subprocess
import tempfile
import time
import uuid

import grpc
from google.protobuf import message_factory

import nodeclient

SERVICE = "modal.task_command_router.TaskCommandRouter"
KID = "test-key"


@functools.lru_cache(maxsize=None)
def load_methods():
    factory = message_factory.MessageFactory()
    return {m.name: (m.client_streaming, m.server_streaming, factory.GetPrototype(m.input_type),
                     factory.GetPrototype(m.output_type))
            for m in nodeclient.load_service("modal/task_command_router.proto", SERVICE).methods}


# --- tokens

def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """A private key in a file, by way of the openssl program."""

    def __init__(self, alg="ES256"):
        self.alg = alg
        self.file = tempfile.NamedTemporaryFile(suffix=".pem")
        kind = ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"] if alg == "ES256" else ["ED25519"]
        subprocess.run(["openssl", "genpkey", "-out", self.file.name, "-algorithm", *kind], check=True, capture_output=True)
        self.pem = subprocess.run(["openssl", "pkey", "-in", self.file.name, "-pubout"], check=True,
                                  capture_output=True).stdout.decode()

    def sign(self, data):
        with tempfile.NamedTemporaryFile() as text:
            text.write(data)
            text.flush()
            if self.alg == "EdDSA":
                return subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.file.name, "-in", text.name],
                                      check=True, capture_output=True).stdout
            der = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.file.name, text.name], check=True,
                                 capture_output=True).stdout
        r_len = der[3]
        r, s = der[4:4 + r_len], der[6 + r_len:]
        return b"".join(int.from_bytes(v, "big").to_bytes(32, "big") for v in (r, s))

    def token(self, header=None, **claims):
        head = {"alg": self.alg, "kid": KID, "typ": "JWT", **(header or {})}
        text = b64(json.dumps(head).encode()) + "." + b64(json.dumps(claims).encode())
        return text + "." + b64(self.sign(text.encode()))


@functools.lru_cache(maxsize=None)
def own_key():
    return Key()


def teach(daemon, *extra):
    """Adds the tests' key, and more, to those that the node has."""
    node = nodeclient.NodeClient(daemon.run_dir)
    names = {KID, *(kid for kid, _ in extra)}
    keys = [{"kid": KID, "pem": own_key().pem}] + [{"kid": kid, "pem": key.pem} for kid, key in extra]
    path = daemon.data_dir / "node/.router-keys"
    if path.exists():
        keys += [{"kid": k.kid, "pem": k.pem, "not_after_ms": k.not_after_ms}
                 for k in node.request_types["SetKeys"].FromString(path.read_bytes()[4:]).keys if k.kid not in names]
    node.SetKeys(keys=keys)
    node.close()


def task_of(sandbox_id, generation="V"):
    return "ta-" + sandbox_id[3:25] + "000" + generation


# --- calls

class RouterError(Exception):
    def __init__(self, rpc_error):
        self.name = rpc_error.code().name
        self.text = rpc_error.details()
        super().__init__(f"{self.name}: {self.text}")


class Stream:
    def __init__(self, call):
        self.call = call

    def __iter__(self):
        try:
            yield from self.call
        except grpc.RpcError as e:
            raise RouterError(e) from None

    def cancel(self):
        self.call.cancel()


class Router:
    def __init__(self, daemon, sandbox_id, token=None, channel=None):
        self.task_id = task_of(sandbox_id)
        if token is None:
            token = own_key().token(task_id=self.task_id, exp=int(time.time()) + 3600)
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self.channel = channel or grpc.insecure_channel(
            f"127.0.0.1:{daemon.router_port}",
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                     ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50),
                     ("grpc.max_reconnect_backoff_ms", 200)])
        self.types = {}
        for name, (up, down, request, response) in load_methods().items():
            self.types[name] = (request, response)
            make = getattr(self.channel, f"{'stream' if up else 'unary'}_{'stream' if down else 'unary'}")
            call = make(f"/{SERVICE}/{name}", request_serializer=request.SerializeToString,
                        response_deserializer=response.FromString)
            setattr(self, name, self.method(call, up, down, request))

    def method(self, call, up, down, request):
        def fill(fields):
            return request(**{"task_id": self.task_id, **fields})

        def unary(timeout=60, **fields):
            try:
                return call(fill(fields), timeout=timeout, metadata=self.metadata, wait_for_ready=True)
            except grpc.RpcError as e:
                raise RouterError(e) from None

        def client_stream(messages, timeout=60):
            try:
                return call((request(**m) for m in messages), timeout=timeout, metadata=self.metadata, wait_for_ready=True)
            except grpc.RpcError as e:
                raise RouterError(e) from None

        def server_stream(timeout=60, **fields):
            return Stream(call(fill(fields), timeout=timeout, metadata=self.metadata, wait_for_ready=True))
        return client_stream if up else server_stream if down else unary

    def close(self):
        self.channel.close()

    # --- shortest ways

    def start(self, argv, exec_id=None, **fields):
        exec_id = exec_id or str(uuid.uuid4())
        self.TaskExecStart(exec_id=exec_id, command_args=argv, **{"stdout_config": 1, "stderr_config": 1, **fields})
        return exec_id

    def read(self, exec_id, stream=0, offset=0, timeout=60):
        return b"".join(self.chunks(exec_id, stream, offset, timeout))

    def chunks(self, exec_id, stream=0, offset=0, timeout=60):
        for m in self.TaskExecStdioRead(exec_id=exec_id, file_descriptor=stream, offset=offset, timeout=timeout):
            assert m.data, "an empty message"
            yield m.data

    def wait(self, exec_id, timeout=60):
        r = self.TaskExecWait(exec_id=exec_id, timeout=timeout)
        which = r.WhichOneof("exit_status")
        assert which
        return r.code if which == "code" else -r.signal

    def run(self, argv, timeout=60, **fields):
        exec_id = self.start(argv, **fields)
        return self.read(exec_id, timeout=timeout), self.read(exec_id, 1, timeout=timeout), self.wait(exec_id, timeout)

    def status(self, exec_id):
        r = self.TaskExecStdinStatus(exec_id=exec_id)
        return r.num_bytes_written, r.closed

    def stream_in(self, exec_id, data, offset=0, size=256 * 1024, end=True, timeout=60):
        def messages():
            yield {"start": {"task_id": self.task_id, "exec_id": exec_id, "offset": offset}}
            for at in range(0, len(data), size):
                yield {"data": data[at:at + size]}
            if end:
                yield {"end": {}}
        return self.TaskExecStdinWriteStream(messages(), timeout=timeout)


def sha(data):
    return hashlib.sha256(data).hexdigest()
