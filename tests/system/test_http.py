"""
src/http as strangers see it: a stock gRPC client, curl, Python's TLS, h2 and websockets.
"""

import asyncio
import concurrent.futures
import hashlib
import json
import os
import socket
import ssl
import subprocess

import grpc
import pytest
import websockets

from echoserver import EchoServer


@pytest.fixture(scope="module")
def server():
    s = EchoServer()
    yield s
    s.stop()


def same(data):
    return data


class Stub:
    def __init__(self, channel):
        self.unary = channel.unary_unary("/test.Echo/Unary", same, same)
        self.stream = channel.stream_stream("/test.Echo/Stream", same, same)
        self.never = channel.unary_unary("/test.Echo/Never", same, same)
        self.fail = channel.unary_unary("/test.Echo/Fail", same, same)
        self.absent = channel.unary_unary("/test.Echo/Absent", same, same)


SIZES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture(params=["tcp", "unix", "tls"])
def stub(server, request):
    if request.param == "tls":
        channel = grpc.secure_channel(f"localhost:{server.port}",
                                      grpc.ssl_channel_credentials(server.cert.read_bytes()), options=SIZES)
    else:
        target = f"127.0.0.1:{server.port}" if request.param == "tcp" else f"unix:{server.sock}"
        channel = grpc.insecure_channel(target, options=SIZES)
    with channel:
        yield Stub(channel)


# --- gRPC ------------------------------------------------------------------------------------


def test_grpc_unary(stub):
    for size in (0, 1, 1000, 16384, 100000, 5_000_000):
        data = os.urandom(size)
        assert stub.unary(data, timeout=60) == data


def test_grpc_metadata(stub):
    reply, call = stub.unary.with_call(b"x", metadata=[("x-echo", "some value")], timeout=10)
    assert reply == b"x"
    assert ("x-echo-back", "some value") in [tuple(m) for m in call.trailing_metadata()]


def test_grpc_large_message(stub):
    data = os.urandom(1 << 20) * 60
    digest = hashlib.sha256(data).digest()
    assert hashlib.sha256(stub.unary(data, timeout=120)).digest() == digest


def test_grpc_message_over_the_limit(stub):
    with pytest.raises(grpc.RpcError) as e:
        stub.unary(bytes(100 * 1024 * 1024 + 1), timeout=120)
    assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_grpc_stream(stub):
    messages = [os.urandom(i * 37 % 5000) for i in range(2000)]
    assert list(stub.stream(iter(messages), timeout=60)) == messages


def test_grpc_errors(stub):
    with pytest.raises(grpc.RpcError) as e:
        stub.fail(b"", timeout=10)
    assert e.value.code() == grpc.StatusCode.NOT_FOUND
    assert e.value.details() == "no sandbox 'ä%\n'"
    trailers = dict(e.value.trailing_metadata())
    assert trailers["qs-error"] == "not_found"
    assert trailers["qs-param"] == "sandbox_id"
    with pytest.raises(grpc.RpcError) as e:
        stub.absent(b"", timeout=10)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_grpc_compressed_message_is_refused(stub):
    with pytest.raises(grpc.RpcError) as e:
        stub.unary(b"x" * 10000, compression=grpc.Compression.Gzip, timeout=10)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_grpc_deadline_and_cancel(stub, server):
    before = server.closed()["other"]
    with pytest.raises(grpc.RpcError) as e:
        stub.never(b"", timeout=0.2)
    assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    call = stub.never.future(b"")
    server.wait_for(lambda: server.closed()["other"] == before + 1)
    call.cancel()
    server.wait_for(lambda: server.closed()["other"] == before + 2)


def test_grpc_thousand_at_once(stub):
    futures = [stub.unary.future(b"%d" % i, timeout=60) for i in range(1000)]
    assert [f.result() for f in futures] == [b"%d" % i for i in range(1000)]


def test_grpc_eager_pings_are_not_punished(server):
    options = [("grpc.keepalive_time_ms", 20), ("grpc.keepalive_permit_without_calls", 1),
               ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_ping_interval_without_data_ms", 10),
               ("grpc.http2.min_time_between_pings_ms", 10)]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        with pytest.raises(grpc.RpcError) as e:
            Stub(channel).never(b"", timeout=2)
        assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_grpc_needs_its_content_type(server):
    out = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}",
                          "-H", "content-type: application/grpcx", "-d", "x", server.url + "/test.Echo/Unary"],
                         capture_output=True, check=True)
    assert out.stdout == b"200"     # not gRPC: an ordinary request
    out = subprocess.run(["curl", "-sS", "--http1.1", "-o", "/dev/null", "-w", "%{http_code}",
                          "-H", "content-type: application/grpc", "-d", "x", server.url + "/test.Echo/Unary"],
                         capture_output=True, check=True)
    assert out.stdout == b"415"


# --- curl and TLS ----------------------------------------------------------------------------

CURL = {
    "http1": ["--http1.1"],
    "h2c": ["--http2-prior-knowledge"],
    "https1": ["--http1.1"],
    "https2": ["--http2"],
}


@pytest.fixture(params=list(CURL))
def curl(server, request):
    def run(path, *arguments, check=True):
        command = ["curl", "-sS", "--max-time", "60", *CURL[request.param], *arguments]
        if request.param.startswith("https"):
            command += ["--cacert", server.cert, f"https://localhost:{server.port}{path}"]
        else:
            command.append(server.url + path)
        return subprocess.run(command, capture_output=True, check=check).stdout

    run.version = 20 if "2" in request.param else 11
    run.tls = request.param.startswith("https")
    return run


def test_curl(curl):
    reply = json.loads(curl("/a%20b?c=d"))
    assert (reply["path"], reply["query"]) == ("/a%20b", "c=d")
    assert (reply["version"], reply["tls"]) == (curl.version, curl.tls)
    assert curl("/none", "-w", "%{http_code}") == b"204"
    assert b"200" in curl("/hello", "--head")
    assert curl("/sse") == b"event: greeting\nid: 1\ndata: a\ndata: b\n\ndata: c\n\n"


def test_curl_bodies(curl, tmp_path):
    data = os.urandom(1 << 20) * 30 + b"end"
    (tmp_path / "in").write_bytes(data)
    curl("/echo", "-T", tmp_path / "in", "-o", tmp_path / "out")
    assert hashlib.sha256((tmp_path / "out").read_bytes()).digest() == hashlib.sha256(data).digest()
    assert json.loads(curl("/count", "-T", tmp_path / "in"))["length"] == len(data)
    out = curl("/bytes?50000000")
    assert len(out) == 50_000_000
    assert curl("/early", "-T", tmp_path / "in", "-w", "%{http_code}", check=False) == b"too much413"


def test_curl_chunked_upload_and_continue(server, tmp_path):
    (tmp_path / "in").write_bytes(b"x" * 3_000_000)
    for headers in (["transfer-encoding: chunked"], ["expect: 100-continue"]):
        command = ["curl", "-sS", "--http1.1", server.url + "/count", "-T", tmp_path / "in"]
        for h in headers:
            command += ["-H", h]
        out = subprocess.run(command, capture_output=True, check=True).stdout
        assert json.loads(out)["length"] == 3_000_000


def context(server, **options):
    c = ssl.create_default_context(cafile=server.cert)
    for name, value in options.items():
        setattr(c, name, value)
    return c


def test_tls_alpn(server):
    for offered, chosen in ((["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), (["foo"], None), ([], None)):
        c = context(server)
        if offered:
            c.set_alpn_protocols(offered)
        with c.wrap_socket(server.connect(), server_hostname="localhost") as s:
            assert s.selected_alpn_protocol() == chosen
            if chosen != "h2":
                s.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert s.recv(4096).endswith(b"hello")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_names_and_versions(server):
    for name in ("localhost", "127.0.0.1"):
        with context(server).wrap_socket(server.connect(), server_hostname=name) as s:
            assert s.version() == "TLSv1.3"
    with context(server, maximum_version=ssl.TLSVersion.TLSv1_2).wrap_socket(
            server.connect(), server_hostname="localhost") as s:
        assert s.version() == "TLSv1.2"
    c = context(server, minimum_version=ssl.TLSVersion.TLSv1_1, maximum_version=ssl.TLSVersion.TLSv1_1)
    c.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        c.wrap_socket(server.connect(), server_hostname="localhost")


def test_tls_client_that_leaves_without_a_word(server):
    """A connection that ends without close_notify is a close like any other."""
    before = server.closed()["other"]
    c = context(server)
    raw = server.connect()
    s = c.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=True)
    s.sendall(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n")
    assert server.closed()["other"] == before
    socket.socket(fileno=os.dup(s.fileno())).shutdown(socket.SHUT_RDWR)
    server.wait_for(lambda: server.closed()["other"] == before + 1)
    s.close()


def test_plain_and_tls_garbage(server):
    for garbage in (b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(200), b"\x80\x2e\x01\x00\x02", b"\0" * 100 + b"\n"):
        with server.connect() as s:
            s.sendall(garbage)
            s.shutdown(socket.SHUT_WR)
            while s.recv(4096):
                pass
    assert server.get("/hello") == (200, b"hello")


# --- WebSocket -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_websocket(server, scheme):
    async def talk():
        options = {"ssl": context(server)} if scheme == "wss" else {}
        async with websockets.connect(f"{scheme}://localhost:{server.port}/ws", max_size=None,
                                      subprotocols=["a", "b"], **options) as w:
            assert w.subprotocol == "a"
            for message in ("text ä", b"\0\xff", "", os.urandom(1_000_000)):
                await w.send(message)
                assert await w.recv() == message
            await (await w.ping(b"p"))
            sent = [os.urandom(50_000) for _ in range(400)]

            async def send():
                for m in sent:
                    await w.send(m)

            task = asyncio.create_task(send())
            for m in sent:
                assert await w.recv() == m
            await task
            await w.send("close")
            with pytest.raises(websockets.ConnectionClosed) as e:
                await w.recv()
            assert e.value.rcvd.code == 4001
        with pytest.raises(websockets.ConnectionClosed) as e:
            async with websockets.connect(f"{scheme}://localhost:{server.port}/ws", **options) as w:
                await w.send(bytes(1024 * 1024 + 1))
                await w.recv()
        assert e.value.rcvd.code == 1009

    asyncio.run(talk())


# --- many at once ----------------------------------------------------------------------------


def test_many_connections(server):
    sockets = [server.connect() for _ in range(900)]
    for s in sockets:
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
    for s in sockets:
        assert s.recv(4096).endswith(b"hello")
    before = server.descriptors()
    for s in sockets:
        s.close()
    server.wait_for(lambda: server.descriptors() <= before - 900)


def test_out_of_descriptors():
    server = EchoServer(nofile=64)
    sockets = [server.connect() for _ in range(100)]
    for s in sockets[:30]:
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert s.recv(4096).endswith(b"hello")
    for s in sockets:
        s.close()
    assert server.get("/hello") == (200, b"hello")
    server.stop()


def test_parallel_downloads(server):
    def fetch(i):
        return len(server.get(f"/bytes?{i * 100000}")[1]) > i * 100000

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert all(pool.map(fetch, range(64)))
