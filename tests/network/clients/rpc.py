# gRPC: single calls, streams each way, large messages, many at once, a failure as the server said it, a call that lasts.
import sys
import threading
import time

import grpc

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.5
with open("/etc/ssl/certs/ca-certificates.crt", "rb") as f:
    tls = grpc.ssl_channel_credentials(f.read())
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
for channel in (grpc.secure_channel("grpc.farm.test:50051", tls, options), grpc.insecure_channel("grpc.farm.test:50052", options)):
    grpc.channel_ready_future(channel).result(30)
    one, down = channel.unary_unary("/farm.Echo/One"), channel.unary_stream("/farm.Echo/Down")
    up, both = channel.stream_unary("/farm.Echo/Up"), channel.stream_stream("/farm.Echo/Both")
    assert one(b"hello") == b"hello"
    large = bytes(range(256)) * 40_000
    assert one(large) == large
    assert one(b"") == b""
    assert [len(m) for m in down(b"200 50000 0")] == [50_000] * 200
    assert up(iter([large[:100_000]] * 50)) == b"5000000"
    assert [m for m in both(iter([b"%d" % i for i in range(500)]))] == [b"%d" % i for i in range(500)]
    assert [f.result() for f in [one.future(b"%d" % i) for i in range(200)]] == [b"%d" % i for i in range(200)]
    try:
        channel.unary_unary("/farm.Echo/Fails")(b"")
        raise AssertionError
    except grpc.RpcError as e:
        assert (e.code(), e.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not today")
    try:
        list(channel.unary_stream("/farm.Echo/Down")(b"10 1 60", timeout=1))
        raise AssertionError
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    # A conversation with pauses: each message is answered before the next one is sent.
    answered, stop = threading.Semaphore(1), time.monotonic() + seconds

    def talk():
        i = 0
        while time.monotonic() < stop:
            answered.acquire()
            yield b"%d" % i
            i += 1
            time.sleep(0.2)

    heard = 0
    for message in both(talk()):
        assert message == b"%d" % heard
        heard += 1
        answered.release()
    assert heard > 1
    channel.close()
