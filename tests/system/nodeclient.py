"""
A client of node.proto for tests: what control says to the node, said by hand.

    node = NodeClient(run_dir)
    node.Create(sandbox_id=..., layers=[...])
    for m in node.ExecRun(start=...): ...

The messages come from proto/node.proto by way of protoc-c, which can write descriptors; so no generated file is kept. A
failure is NodeError with the name of the row of errors.def.
"""

import pathlib
import secrets
import string
import subprocess
import tempfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICE = "quicksand.node.Node"


def load_service(proto, name):
    """The descriptors of a service; its methods name their types."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc-c", f"--descriptor_set_out={out.name}", "--include_imports",
                        f"--proto_path={ROOT / 'proto'}", proto], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for f in files.file:
        pool.Add(f)
    return pool.FindServiceByName(name)


class NodeError(Exception):
    def __init__(self, rpc_error):
        trailers = dict(rpc_error.trailing_metadata() or ())
        self.name = trailers.get("qs-error", rpc_error.code().name.lower())
        self.param = trailers.get("qs-param", "")
        self.text = rpc_error.details()
        super().__init__(f"{self.name}: {self.text}")


class Stream:
    """The messages of a server stream; cancel() leaves."""

    def __init__(self, call):
        self.call = call

    def __iter__(self):
        try:
            yield from self.call
        except grpc.RpcError as e:
            raise NodeError(e) from None

    def cancel(self):
        self.call.cancel()


class NodeClient:
    def __init__(self, run_dir):
        self.channel = grpc.insecure_channel(
            f"unix:{run_dir}/node.sock",
            options=[("grpc.max_receive_message_length", -1), ("grpc.initial_reconnect_backoff_ms", 50),
                     ("grpc.max_reconnect_backoff_ms", 200)])
        self.types = {}
        self.request_types = {}
        for m in load_service("node.proto", SERVICE).methods:
            self.add(m, *(self.type_of(t) for t in (m.input_type, m.output_type)))

    def type_of(self, descriptor):
        self.types[descriptor.name] = message_factory.MessageFactory().GetPrototype(descriptor)
        return self.types[descriptor.name]

    def add(self, method, request, response):
        path = f"/{SERVICE}/{method.name}"
        self.request_types[method.name] = request
        codec = {"request_serializer": request.SerializeToString, "response_deserializer": response.FromString}
        if method.name in ("ExecRead", "ExecRun", "Attend"):
            call = self.channel.unary_stream(path, **codec)
            setattr(self, method.name, lambda timeout=60, **f: Stream(call(request(**f), timeout=timeout)))
            return
        if method.name in ("StdinWrite", "ImageImport"):
            call = self.channel.stream_unary(path, **codec)

            def send(messages, timeout=60):
                return self.checked(call, (request(**m) for m in messages), timeout)
            setattr(self, method.name, send)
            return
        call = self.channel.unary_unary(path, **codec)
        setattr(self, method.name, lambda timeout=60, **f: self.checked(call, request(**f), timeout))

    @staticmethod
    def checked(call, request, timeout):
        try:
            return call(request, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as e:
            raise NodeError(e) from None

    def close(self):
        self.channel.close()


def new_id(prefix="sb-"):
    return prefix + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(22))


class NodeSandbox:
    """One sandbox and the shortest way to do things in it."""

    def __init__(self, node, layers, **create):
        self.node = node
        self.id = new_id()
        self.execs = 0
        self.made = node.Create(sandbox_id=self.id, layers=layers, **create)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.node.Destroy(sandbox_id=self.id)

    def ref(self, exec_id):
        return {"sandbox_id": self.id, "exec_id": exec_id}

    def next_exec(self):
        self.execs += 1
        return f"e{self.execs}"

    def request(self, argv, exec_id=None, env=(), cwd=None, user=None, **fields):
        command = {"argv": [a.encode() if isinstance(a, str) else a for a in argv],
                   "env": [v.encode() for v in env]}
        if cwd:
            command["cwd"] = cwd.encode()
        if user:
            command["user"] = user
        return {"ref": self.ref(exec_id or self.next_exec()), "command": command, **fields}

    def start(self, argv, **options):
        return self.node.ExecStart(**self.request(argv, **options))

    def run(self, argv, stdout_offset=0, stderr_offset=0, timeout=60, **options):
        """(stdout, stderr, exit record) with every rule of ExecRun checked."""
        out = {1: bytearray(), 2: bytearray()}
        at = {1: stdout_offset, 2: stderr_offset}
        started = exited = None
        for m in self.node.ExecRun(start=self.request(argv, **options), stdout_offset=stdout_offset,
                                   stderr_offset=stderr_offset, timeout=timeout):
            assert exited is None, "a message after the last"
            if m.HasField("started"):
                assert started is None
                started = m.started
            elif m.HasField("exited"):
                exited = m.exited
            else:
                assert started is not None, "data before started"
                assert m.data and m.offset == at[m.stream]
                out[m.stream] += m.data
                at[m.stream] += len(m.data)
        assert exited is not None, "the stream ended without an exit"
        return bytes(out[1]), bytes(out[2]), exited

    def read(self, exec_id, stream=1, offset=0, follow=True, timeout=60):
        """(bytes, first offset, last message)"""
        got, first, last = bytearray(), None, None
        for m in self.node.ExecRead(ref=self.ref(exec_id), stream=stream, offset=offset, follow=follow,
                                    timeout=timeout):
            assert last is None, "a message after the last"
            if first is None:
                first = m.offset
            assert m.offset == first + len(got)
            got += m.data
            if m.HasField("eof"):
                last = m
            else:
                assert m.data, "an empty message"
        assert last is not None
        return bytes(got), first, last

    def get_exec(self, exec_id, wait_ms=0):
        return self.node.ExecGet(ref=self.ref(exec_id), wait_ms=wait_ms)
