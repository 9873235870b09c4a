"""
Peers that mean harm: floods, bombs, stalls, garbage. The server stays small, keeps serving others and says why it hangs up.
"""

import random
import resource
import socket
import struct
import time

import h2.events
import pytest

from echoserver import H2, PREFACE, EchoServer, frame, read_all

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
ENHANCE_YOUR_CALM = 11
# GET / of http://a, from the static table.
REQUEST = bytes([0x82, 0x86, 0x84, 0x41, 0x01, 0x61])
# Sanitizers multiply memory; growth is what counts.
GROWTH_KIB = 64 * 1024


@pytest.fixture
def server():
    s = EchoServer()
    s.get("/hello")
    before = s.rss_kib()
    yield s
    assert s.get("/hello") == (200, b"hello")
    assert s.rss_kib() - before < 4 * GROWTH_KIB
    s.stop()


def raw(server):
    s = server.connect()
    s.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return s


def send(s, data):
    """False once the server has hung up."""
    try:
        s.sendall(data)
        return True
    except (BrokenPipeError, ConnectionResetError):
        return False


def is_ended(s):
    """Whether the server hangs up (and does not merely say nothing)."""
    read_all(s)
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def goaway_code(data):
    """The error code of the GOAWAY frame in what the server sent, None without one."""
    while len(data) >= 9:
        n = int.from_bytes(data[:3], "big")
        if data[3] == GOAWAY and len(data) >= 17:
            code = int.from_bytes(data[13:17], "big")
            if code != 0:
                return code
        data = data[9 + n:]
    return None


def test_rapid_reset(server):
    """Streams opened and reset at once: allowed in moderation, then the connection ends."""
    s = raw(server)
    other = H2(server.connect())
    stream = 1
    hung_up = False
    for _ in range(200):
        burst = b""
        for _ in range(100):
            burst += frame(HEADERS, END_STREAM | END_HEADERS, stream, REQUEST)
            burst += frame(RST, 0, stream, struct.pack(">I", 8))
            stream += 2
        if not send(s, burst):
            hung_up = True
            break
    assert other.status(other.request("/hello")) == 200
    assert hung_up or goaway_code(read_all(s)) is not None
    # A client that cancels a thousand calls at once is no attacker.
    good = H2(server.connect())
    for i in range(1000):
        good.request("/never")
    for i in range(1000):
        good.h.reset_stream(1 + 2 * i, 8)
    good.flush()
    assert good.status(good.request("/hello")) == 200


def test_continuation_flood(server):
    s = raw(server)
    before = server.rss_kib()
    block = bytes([0x00, 0x01]) + b"x" + bytes([0x7f, 0x81, 0x7e]) + b"y" * 16000   # one literal field of 16 kB
    send(s, frame(HEADERS, END_STREAM, 1, REQUEST))
    for _ in range(10000):
        if not send(s, frame(CONTINUATION, 0, 1, block[:16000])):
            break
    assert is_ended(s)
    assert server.rss_kib() - before < GROWTH_KIB


def test_empty_continuations(server):
    s = raw(server)
    send(s, frame(HEADERS, END_STREAM, 1, REQUEST))
    for _ in range(100000):
        if not send(s, frame(CONTINUATION, 0, 1)):
            break
    assert is_ended(s)


def test_header_bomb(server):
    """One entry of the table, referred to sixty thousand times in a small block."""
    s = raw(server)
    before = server.rss_kib()
    entry = bytes([0x40, 0x01]) + b"x" + bytes([0x7f]) + bytes([0x80 + (3900 - 127) % 128, (3900 - 127) // 128]) \
        + b"y" * 3900
    send(s, frame(HEADERS, END_STREAM | END_HEADERS, 1, REQUEST + entry))
    for i in range(50):
        if not send(s, frame(HEADERS, END_STREAM | END_HEADERS, 3 + 2 * i, REQUEST + b"\xbe" * 16000)):
            break
    read_for(s)
    assert server.rss_kib() - before < GROWTH_KIB


def read_for(s, seconds=3):
    s.settimeout(seconds)
    return read_all(s)


def test_settings_and_priority_floods(server):
    s = raw(server)
    other = H2(server.connect())
    for _ in range(2000):
        if not send(s, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 10
                    + frame(PRIORITY, 0, 1, bytes(4) + b"\x10") * 10):
            break
    assert other.status(other.request("/hello")) == 200


def test_ping_flood_with_reading(server):
    """Pings are answered, however many, as long as the peer reads."""
    s = raw(server)
    s.settimeout(20)
    for _ in range(200):
        s.sendall(frame(PING, 0, 0, b"12345678") * 100)
        answers = b""
        while answers.count(frame(PING, ACK, 0, b"12345678")) < 100:
            part = s.recv(65536)
            assert part
            answers += part


def test_ping_flood_without_reading(server):
    s = raw(server)
    before = server.rss_kib()
    s.settimeout(5)
    try:
        for _ in range(100000):
            if not send(s, frame(PING, 0, 0, b"12345678") * 100):
                break
    except TimeoutError:
        pass
    assert server.rss_kib() - before < GROWTH_KIB


def test_malformed_frames_that_cost_streams(server):
    """Requests that the peer makes the server reset: the other way round, the same limit."""
    s = raw(server)
    stream = 1
    sent = True
    for _ in range(5000):
        sent = sent and send(s, frame(HEADERS, END_HEADERS, stream, REQUEST)
                             + frame(WINDOW, 0, stream, struct.pack(">I", 0x7fffffff)))
        stream += 2
    data = read_for(s, 10)
    assert not sent or goaway_code(data) is not None


def test_no_window(server):
    """A client that grants no window asks for a thousand downloads: little is queued for it."""
    before = server.rss_kib()
    c = H2(server.connect(), initial_window=0)
    streams = [c.request("/bytes?1000000000") for _ in range(500)]
    for stream in streams:
        assert c.status(stream) == 200
    assert server.rss_kib() - before < 500 * 400 + GROWTH_KIB
    assert server.get("/hello") == (200, b"hello")
    c.s.close()
    server.wait_for(lambda: server.closed()["other"] >= 500)


def test_more_streams_than_allowed(server):
    s = raw(server)
    stream = 1
    for _ in range(1500):
        send(s, frame(HEADERS, END_STREAM | END_HEADERS, stream, bytes([0x82, 0x86, 0x04, 0x06]) + b"/never"
                      + bytes([0x41, 0x01, 0x61])))
        stream += 2
    c = H2(server.connect())
    assert c.status(c.request("/hello")) == 200
    s.close()


def test_data_over_the_window(server):
    """A peer that ignores the window of a stream loses it; others on the connection would be served."""
    s = raw(server)
    send(s, frame(HEADERS, END_HEADERS, 1, bytes([0x83, 0x86, 0x04, 0x06]) + b"/never" + bytes([0x41, 0x01, 0x61])))
    sent = True
    for _ in range(12000):
        sent = sent and send(s, frame(DATA, 0, 1, b"x" * 16384))
        if not sent:
            break
    data = read_for(s)
    assert not sent or goaway_code(data) is not None or bytes([0, 0, 4, RST, 0, 0, 0, 0, 1]) in data


@pytest.mark.parametrize("junk", [
    frame(DATA, 0, 0, b"x"), frame(HEADERS, END_HEADERS, 2, REQUEST), frame(PUSH, 4, 1, bytes(4) + REQUEST),
    frame(SETTINGS, 0, 0, b"x"), frame(SETTINGS, 0, 1), frame(PING, 0, 0, b"x"), frame(WINDOW, 0, 0, bytes(4)),
    frame(HEADERS, END_HEADERS, 1, b"\xff" * 20), frame(CONTINUATION, 4, 1), frame(RST, 0, 9, bytes(4)),
    b"\xff\xff\xff" + bytes(6), frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0x80000000)),
])
def test_protocol_errors_end_with_goaway(server, junk):
    s = raw(server)
    send(s, junk)
    s.settimeout(5)
    assert goaway_code(read_all(s)) is not None


@pytest.mark.parametrize("fields", [
    [(":method", "CONNECT"), (":authority", "a:1")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/a b"), (":authority", "a")],
    [(":method", "GET"), (":scheme", "http"), (":path", "x"), (":authority", "a")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("Upper", "x")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("connection", "close")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("te", "gzip")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("x", "a\r\nb: c")],
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":path", "/b"), (":authority", "a")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "a")],
    [(":method", "GET"), ("x", "y"), (":path", "/"), (":scheme", "http")],
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a"), ("content-length", "5")],
])
def test_malformed_h2_requests(server, fields):
    """Refused or reset, never handed to a handler as if they were right; the connection goes on."""
    c = H2(server.connect())
    stream = c.h.get_next_available_stream_id()
    c.h.send_headers(stream, fields, end_stream=True)
    c.flush()
    while True:
        c.read()
        done = [e for e in c.events if isinstance(e, (h2.events.StreamReset, h2.events.ResponseReceived))]
        if done or c.is_closed:
            break
    if done and isinstance(done[0], h2.events.ResponseReceived):
        assert dict(done[0].headers)[b":status"] in (b"400", b"405")
    if not c.is_closed:
        assert c.status(c.request("/hello")) == 200


def test_huge_heads(server):
    c = H2(server.connect())
    assert c.status(c.request("/hello", headers=[(f"x-{i}", "v") for i in range(150)])) == 431
    assert c.status(c.request("/hello", headers=[("x", "y" * 70000)])) in (431, None)
    for head in (b"GET /" + b"a" * 70000, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 70000,
                 b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 101 + b"\r\n"):
        with server.connect() as s:
            send(s, head)
            assert read_all(s).startswith(b"HTTP/1.1 431 ")


def test_slow_heads_do_not_block_others(server):
    slow = [server.connect() for _ in range(500)]
    for s in slow:
        s.sendall(b"GET / HTT")
    start = time.monotonic()
    for _ in range(50):
        assert server.get("/hello")[0] == 200
    assert time.monotonic() - start < 10
    for s in slow:
        s.close()


@pytest.mark.long
def test_slow_heads_are_ended(server):
    """A head, a preface and a TLS handshake must be complete within half a minute."""
    starts = [b"GET / HTTP/1.1\r\nHost:", b"PRI * HTTP/2.0\r\n", b"\x16\x03\x01", b""]
    slow = []
    for start in starts:
        s = server.connect(timeout=60)
        s.sendall(start)
        slow.append(s)
    for _ in range(8):
        time.sleep(3)
        send(slow[0], b"x")         # going on slowly does not help
    answers = [read_all(s) for s in slow]
    assert all(is_ended(s) for s in slow)
    assert answers[0].startswith(b"HTTP/1.1 408 ")
    assert answers[2] == answers[3] == b""


def test_client_that_reads_nothing(server):
    before = server.rss_kib()
    slow = []
    for _ in range(50):
        s = server.connect()
        s.sendall(b"GET /bytes?1000000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        slow.append(s)
    for _ in range(20):
        assert server.get("/hello")[0] == 200
        time.sleep(0.02)
    assert server.rss_kib() - before < 50 * 1024 + GROWTH_KIB
    for s in slow:
        s.close()
    server.wait_for(lambda: server.closed()["other"] >= 50)


def test_requests_without_reading(server):
    """Pipelined requests from a client that takes no answers stop being served, and being read."""
    before = server.rss_kib()
    s = server.connect(timeout=3)
    with pytest.raises(TimeoutError):
        while True:
            s.sendall(b"GET /bytes?100000 HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
    assert server.rss_kib() - before < GROWTH_KIB
    s.close()


def test_random_bytes(server):
    random.seed(7)
    for i in range(300):
        data = random.randbytes(random.randrange(1, 2000))
        start = random.choice([b"", b"GET / HTTP/1.1\r\n", PREFACE, PREFACE + frame(SETTINGS, 0, 0), b"\x16\x03\x01"])
        s = server.connect()
        send(s, start + data)
        s.close()
    server.wait_for(lambda: server.descriptors() < 30)


def test_random_mutations_of_h2(server):
    """A valid conversation with bytes changed."""
    random.seed(11)
    body = frame(HEADERS, END_HEADERS, 1, REQUEST) + frame(DATA, 0, 1, b"hello") + frame(PING, 0, 0, bytes(8)) \
        + frame(WINDOW, 0, 0, struct.pack(">I", 1000)) + frame(DATA, END_STREAM, 1, b"world") \
        + frame(HEADERS, END_HEADERS | END_STREAM, 3, REQUEST) + frame(RST, 0, 3, bytes(4)) + frame(GOAWAY, 0, 0, bytes(8))
    for i in range(500):
        data = bytearray(frame(SETTINGS, 0, 0) + body)
        for _ in range(random.randrange(1, 6)):
            data[random.randrange(len(data))] = random.randrange(256)
        s = server.connect()
        send(s, PREFACE + bytes(data))
        s.shutdown(socket.SHUT_WR)
        read_all(s)
        s.close()


def test_goaway_at_the_end():
    server = EchoServer()
    c = H2(server.connect())
    assert c.status(c.request("/hello")) == 200
    server.stop()
    assert c.until(h2.events.ConnectionTerminated) is not None


def test_more_connections_than_allowed():
    """Over the limit a connection gets an answer and is closed; those that are there are served on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 20000:
        pytest.skip("the limit of descriptors is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, hard))
    server = EchoServer(nofile=20000)
    sockets = []
    try:
        for _ in range(8300):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(server.sock))         # blocking: with a time-out a full backlog is EAGAIN at once
            s.settimeout(20)
            sockets.append(s)
        refused = read_all(sockets[-1])
        assert refused.startswith(b"HTTP/1.1 503 ") and refused.endswith(b"}}")
        sockets[7].sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert sockets[7].recv(4096).endswith(b"hello")
        for s in sockets[100:]:
            s.close()
        server.wait_for(lambda: server.descriptors() < 200)
        assert server.get("/hello") == (200, b"hello")
    finally:
        for s in sockets:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    server.stop()
