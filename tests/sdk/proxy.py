"""
TCP proxies between a client and the server, for the hostile tests.

Cutting     forwards both ways and resets connections after random amounts of data, at most `cuts` times
DropAnswer  when armed, forwards what the client sends but ends the connection at the server's first answer after that: the server has
            done the call, and its client does not know

Both run in a thread of their own with an event loop; use them as context managers.
"""

import asyncio
import contextlib
import random
import struct
import socket
import threading

SIZE = 65536
HEADERS = 1


class Proxy:
    def __init__(self, listen, target):
        self.listen = listen
        self.target = target
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.ready = threading.Event()
        self.failure = None

    def run(self):
        asyncio.set_event_loop(self.loop)
        try:
            self.server = self.loop.run_until_complete(asyncio.start_server(self.accept, *self.listen))
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
            await asyncio.gather(self.pump(reader, up_writer, pair, True), self.pump(up_reader, writer, pair, False))
        for w in pair:
            w.close()

    async def pump(self, reader, writer, pair, from_client):
        state = {}
        with contextlib.suppress(OSError):
            while data := await reader.read(SIZE):
                if not self.pass_on(data, from_client, state):
                    self.cut(pair)
                    return
                writer.write(data)
                await writer.drain()
            writer.write_eof()

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
    """Frames of the server are told apart by HTTP/2's nine byte headers; the first HEADERS after arm() is never delivered."""

    def __init__(self, listen, target):
        super().__init__(listen, target)
        self.armed = False
        self.dropped = 0

    def arm(self):
        self.armed = True

    def pass_on(self, data, from_client, state):
        if from_client:
            return True
        buffer = state.get("rest", b"") + data
        while len(buffer) >= 9:
            length = int.from_bytes(buffer[:3], "big")
            if buffer[3] == HEADERS and self.armed:
                self.armed = False
                self.dropped += 1
                return False
            if len(buffer) < 9 + length:
                break
            buffer = buffer[9 + length:]
        state["rest"] = buffer
        return True
