"""
TCP proxies between a client and the server, for the hostile tests.

Cutting     forwards both ways and resets connections after random amounts of data, at most `cuts` times
DropAnswer  when armed with a method, forwards its call but ends the connection when the answer comes: the server has done the call, and
            its client does not know

Both run in a thread of their own with an event loop; use them as context managers.
"""

import asyncio
import contextlib
import random
import struct
import socket
import threading

import hpack

SIZE = 65536
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS = 1
PADDED, PRIORITY = 0x8, 0x20


class Proxy:
    def __init__(self, listen, target, tls=None):
        """tls: the context with which it answers its clients; to the server it speaks in the clear."""
        self.listen = listen
        self.target = target
        self.tls = tls
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.ready = threading.Event()
        self.failure = None

    def run(self):
        asyncio.set_event_loop(self.loop)
        try:
            self.server = self.loop.run_until_complete(asyncio.start_server(self.accept, *self.listen, ssl=self.tls))
        except OSError as e:
            self.failure = e
            self.ready.set()
            return
        self.ready.set()
        self.loop.run_forever()
        self.server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    def __enter__(self):
        self.thread.start()
        self.ready.wait()
        if self.failure:
            raise self.failure
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def accept(self, reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, up_writer)
        with contextlib.suppress(asyncio.CancelledError):
            shared = {}
            await asyncio.gather(self.pump(reader, up_writer, pair, {"shared": shared}, True),
                                 self.pump(up_reader, writer, pair, {"shared": shared}, False))
        for w in pair:
            w.close()

    async def pump(self, reader, writer, pair, state, from_client):
        """`state` is of this connection and direction, state["shared"] of both directions."""
        with contextlib.suppress(OSError):
            while data := await reader.read(SIZE):
                if not self.pass_on(data, from_client, state):
                    self.cut(pair)
                    return
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            else:
                writer.close()

    @staticmethod
    def cut(pair):
        for w in pair:
            s = w.get_extra_info("socket")
            if s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            w.transport.abort()


class Cutting(Proxy):
    def __init__(self, listen, target, cuts, mean_bytes, seed):
        super().__init__(listen, target)
        self.random = random.Random(seed)
        self.left = cuts
        self.mean = mean_bytes
        self.done = 0

    def pass_on(self, data, from_client, state):
        if "until" not in state:
            state["until"] = self.random.expovariate(1 / self.mean)
        state["until"] -= len(data)
        if state["until"] < 0 and self.left > 0:
            self.left -= 1
            self.done += 1
            return False
        return True


class DropAnswer(Proxy):
    """The first answer after arm(method) to a call whose method begins so is never delivered: its connection is cut when it comes."""

    def __init__(self, listen, target, tls=None):
        super().__init__(listen, target, tls)
        self.method = None
        self.dropped = 0

    def arm(self, method):
        self.method = method

    @staticmethod
    def frames(data, state):
        """The complete HTTP/2 frames of what has come so far: (type, flags, stream, payload)."""
        buffer = state.get("rest", b"") + data
        if buffer.startswith(PREFACE[:len(buffer)]):
            if len(buffer) < len(PREFACE):
                state["rest"] = buffer
                return
            buffer = buffer[len(PREFACE):]
        while len(buffer) >= 9 and len(buffer) >= 9 + (length := int.from_bytes(buffer[:3], "big")):
            yield buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big"), buffer[9:9 + length]
            buffer = buffer[9 + length:]
        state["rest"] = buffer

    def note_request(self, flags, stream, payload, shared):
        pad = payload[0] if flags & PADDED else 0
        start = (1 if flags & PADDED else 0) + (5 if flags & PRIORITY else 0)
        for name, value in shared["decoder"].decode(payload[start:len(payload) - pad]):
            if name == ":path":
                shared["methods"][stream] = value.rsplit("/", 1)[-1]

    def pass_on(self, data, from_client, state):
        shared = state["shared"]
        if "decoder" not in shared:
            shared["decoder"] = hpack.Decoder()
            shared["decoder"].max_allowed_table_size = 1 << 16
            shared["methods"] = {}
        for kind, flags, stream, payload in self.frames(data, state):
            if kind != HEADERS:
                continue
            if from_client:
                self.note_request(flags, stream, payload, shared)
            elif self.method and shared["methods"].get(stream, "").startswith(self.method):
                self.method = None
                self.dropped += 1
                return False
        return True
