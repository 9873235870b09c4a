# WebSocket: large and many frames, pings both ways, a conversation with pauses, an orderly end.
import asyncio
import os
import ssl
import sys
import time

import websockets

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.5


async def use(url, context):
    async with websockets.connect(url, ssl=context, max_size=None, ping_interval=0.5, ping_timeout=30) as ws:
        for n in (0, 1, 125, 126, 65_535, 65_536, 12_000_000):
            data = os.urandom(n)
            await ws.send(data)
            assert await ws.recv() == data
        await ws.send(["in ", "several ", "frames"])
        assert await ws.recv() == "in several frames"
        for i in range(300):
            await ws.send(f"message {i}")
        for i in range(300):
            assert await ws.recv() == f"message {i}"
        await asyncio.wait_for(await ws.ping(), 30)
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            await ws.send("still there")
            assert await ws.recv() == "still there"
            await asyncio.sleep(0.7)
    assert ws.close_code == 1000


async def main():
    context = ssl.create_default_context()
    await asyncio.gather(use("wss://ws.farm.test:8765/", context), use("ws://ws.farm.test:8766/", None))
    # Many at once.
    many = [await websockets.connect("wss://ws.farm.test:8765/", ssl=context) for _ in range(30)]
    for i, ws in enumerate(many):
        await ws.send(str(i))
    assert [await ws.recv() for ws in many] == [str(i) for i in range(30)]
    await asyncio.gather(*(ws.close() for ws in many))


asyncio.run(main())
