"""What real programs speak through tunnels, paths and connect tokens; tokens and paths of sandboxes that are gone; what keeps one from being idle."""

import asyncio
import hashlib
import io
import os
import pathlib
import ssl
import time
import zipfile

import pytest
import websockets
from qsdaemon import error
from test_connect_tokens import SERVER as HTTP_SERVER
from test_connect_tokens import ask, make
from test_tunnel_names import H2_SERVER, Client, h2_modules
from test_tunnels import ports, read_all, tls

WEBSOCKETS = r"""
import asyncio, websockets
async def echo(ws, path=None):
    async for m in ws:
        if m == "close": await ws.close(4001, "as you wish"); return
        if m == "ping": await (await ws.ping()); m = "pong came"
        await ws.send(m)
async def main():
    async with websockets.serve(echo, "127.0.0.1", 8000, subprotocols=["one", "two"], max_size=32 << 20):
        print("ready", flush=True)
        await asyncio.Future()
asyncio.run(main())
"""


@pytest.fixture
def sb(api):
    with api.sandbox(ports=[8000, {"port": 8001, "kind": "raw"}, {"port": 8002, "kind": "h2"}]) as sb:
        yield sb


def put(api, sb, path, data):
    assert api.put(f"/v1/sandboxes/{sb['id']}/files", params={"path": path}, content=data).status_code in (200, 201)


def start(api, sb, code, *args, env=None):
    body = {"command": ["python3", "-c", code, *map(str, args)], "env": env or {}}
    i = api.post(f"/v1/sandboxes/{sb['id']}/execs", json=body).json()["id"]
    end = time.monotonic() + 60
    while api.get(f"/v1/sandboxes/{sb['id']}/execs/{i}/stdout", params={"follow": "false"}).text != "ready\n":
        assert time.monotonic() < end
        time.sleep(0.05)
    return i


def modules(*packages):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for package in packages:
            folder = pathlib.Path(package.__file__).parent
            for f in folder.rglob("*.py"):
                z.write(f, f"{folder.name}/{f.relative_to(folder)}")
    return out.getvalue()


def trusting():
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    return ctx


@pytest.mark.parametrize("way", ["port", "path", "token"])
def test_websockets(api, sb, way):
    """UR-128: upgrades through an exposed port failed."""
    put(api, sb, "/tmp/ws.zip", modules(websockets))
    start(api, sb, WEBSOCKETS, env={"PYTHONPATH": "/tmp/ws.zip"})
    p = ports(api, sb)[8000]
    token = make(api, sb, port=8000)
    url = {"port": p["url"], "path": p["path_url"], "token": token["url"]}[way].replace("https://", "wss://")
    headers = {"authorization": f"Bearer {token['token']}"} if way == "token" else {}

    def connect(**kw):
        return websockets.connect(url, ssl=trusting(), extra_headers=headers, max_size=32 << 20, open_timeout=120, ping_interval=None, **kw)

    async def one(i):
        async with connect(compression=None) as ws:
            await ws.send(f"text {i}")
            assert await ws.recv() == f"text {i}"

    async def all_of_it():
        async with connect(subprotocols=["two"]) as ws:
            assert ws.subprotocol == "two" and "permessage-deflate" in ws.response_headers["sec-websocket-extensions"]
            await ws.send("héllo")
            assert await ws.recv() == "héllo"
            big = os.urandom(16 << 20)
            await ws.send(big)
            assert hashlib.sha256(await ws.recv()).digest() == hashlib.sha256(big).digest()
            await ws.send(part for part in ("frag", "mented"))
            assert await ws.recv() == "fragmented"
            await ws.send("ping")
            assert await ws.recv() == "pong came"
            await (await ws.ping())
            await ws.send("close")
            with pytest.raises(websockets.ConnectionClosed):
                await ws.recv()
            assert (ws.close_code, ws.close_reason) == (4001, "as you wish")
        await asyncio.gather(*(one(i) for i in range(60)))

    asyncio.run(all_of_it())


def test_old_addresses_lead_nowhere(api):
    """UR-133: the URL of a sandbox that had ended led to the next one."""
    spec = {"app": "default", "name": "ur-133", "ports": [8000], "command": ["python3", "-c", HTTP_SERVER, "8000"]}
    first = api.post("/v1/sandboxes", json=spec).json()
    token = make(api, first, port=8000)
    path = ports(api, first)[8000]["path_url"].split("/", 3)[3]
    end = time.monotonic() + 60
    while ask(token)[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.1)
    kept = tls(int(token["url"].rsplit(":", 1)[1]))
    api.delete(f"/v1/sandboxes/{first['id']}")
    with api.sandbox(**spec) as second:
        fresh = make(api, second, port=8000)
        while ask(fresh)[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert ask(token)[0] == 401
        assert ask(token, path="/" + path)[0] == 401 and ask(fresh, path="/" + path)[0] == 403
        assert ask(fresh, headers={"cookie": f"quicksand_token={token['token']}"})[0] in (200, 401)
        kept.sendall(f"GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token['token']}\r\n\r\n".encode())
        assert read_all(kept).startswith(b"HTTP/1.1 401 ")
        error(api.get(f"/v1/sandboxes/{first['id']}/ports"), 404, "not_found")


def test_http2_to_the_end(api, sb):
    """UR-134: services need HTTP/2 from end to end, with trailers, and many streams."""
    put(api, sb, "/tmp/h2.zip", h2_modules())
    start(api, sb, H2_SERVER, "one", 8002, env={"PYTHONPATH": "/tmp/h2.zip"})
    s = tls(ports(api, sb)[8002]["tls_port"], ["h2", "http/1.1"])
    assert s.selected_alpn_protocol() == "h2"
    c = Client(s)
    for _ in range(20):
        streams = [(i, c.send("svc.example", f"/{i}")) for i in range(50)]
        for i, stream in streams:
            assert c.wait(stream) == (200, f"one svc.example /{i} 0 ", {"grpc-status": "0"})
    stream = c.con.get_next_available_stream_id()
    c.con.send_headers(stream, [(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/")])
    c.con.reset_stream(stream)
    c.flush()
    assert c.ask("svc.example", "/after")[0] == 200


def test_idle_counts_what_is_open(api):
    """A connection that a token opened keeps its sandbox from being idle, like one through a tunnel, and is named so."""
    with api.sandbox(command=["python3", "-c", HTTP_SERVER, "8080"], idle_timeout_s=4) as sb:
        token = make(api, sb)
        end = time.monotonic() + 60
        while ask(token)[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        s = tls(int(token["url"].rsplit(":", 1)[1]))
        s.sendall((f"GET /ws HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token['token']}\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
                   "sec-websocket-version: 13\r\nsec-websocket-key: MDAwMDAwMDAwMDAwMDAwMA==\r\n\r\n").encode())
        assert s.recv(4096).startswith(b"HTTP/1.1 101 ")
        time.sleep(9)
        now = api.get(f"/v1/sandboxes/{sb.id}").json()
        assert now["state"] == "running" and now["last_activity"]["kind"] == "tunnel"
        s.close()
        ended = api.get(f"/v1/sandboxes/{sb.id}", params={"wait": "exit", "timeout_s": 60}, timeout=90).json()
        assert ended["exit"]["reason"] == "idle_timeout"
