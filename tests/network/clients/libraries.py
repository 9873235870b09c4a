# The HTTP libraries of Python: down, up, streamed, at once, on connections that are used again.
import asyncio
import hashlib
import urllib.request

import aiohttp
import httpx
import requests
import urllib3

WEB = "https://www.farm.test"
CA = "/etc/ssl/certs/ca-certificates.crt"
want = urllib.request.urlopen(WEB + "/big.sha256").read().decode().strip()
data = urllib.request.urlopen(WEB + "/big").read()
assert hashlib.sha256(data).hexdigest() == want
up = data[:9_000_001]
told = f"{len(up)} {hashlib.sha256(up).hexdigest()}\n"


def chunks():
    for at in range(0, len(up), 70_000):
        yield up[at:at + 70_000]


def same(parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    assert digest.hexdigest() == want


with requests.Session() as s:
    for base in (WEB, "http://www.farm.test"):
        for _ in range(5):
            assert s.get(base + "/small").text == "small\n"
        with s.get(base + "/big", stream=True) as r:
            same(r.iter_content(100_000))
        assert s.post(base + "/app/upload", data=up).text == told
        assert s.post(base + "/app/upload", data=chunks()).text == told
        assert s.post(base + "/app/upload", files={"f": up}).text.startswith("9000")
        assert s.get(base + "/moved").text == "small\n"
        assert s.get(base + "/big", headers={"Range": "bytes=5-9"}).content == data[5:10]
    assert s.get(WEB + "/nothing").status_code == 404

for h2 in (False, True):
    with httpx.Client(http2=h2, verify=CA, timeout=60) as c:
        r = c.get(WEB + "/small")
        assert (r.text, r.http_version) == ("small\n", "HTTP/2" if h2 else "HTTP/1.1")
        with c.stream("GET", WEB + "/big") as r:
            same(r.iter_bytes())
        assert c.post(WEB + "/app/upload", content=up).text == told
        assert c.post(WEB + "/app/upload", content=chunks()).text == told
        assert c.get("http://www.farm.test/small").text == "small\n"

pool = urllib3.PoolManager(ca_certs=CA, maxsize=4)
for _ in range(20):
    assert pool.request("GET", WEB + "/small").data == b"small\n"
assert pool.connection_from_url(WEB).num_connections == 1
assert pool.request("PUT", WEB + "/app/upload", body=up).data.decode() == told


async def many():
    async with httpx.AsyncClient(http2=True, verify=CA, timeout=60) as c:
        got = await asyncio.gather(*(c.get(f"{WEB}/app/slow?{i}") for i in range(40)))
        assert {r.text for r in got} == {"".join(f"{i}\n" for i in range(10))}
    async with aiohttp.ClientSession() as s:
        async def one(i):
            async with s.get(f"{WEB}/small?{i}") as r:
                return await r.text()
        assert set(await asyncio.gather(*(one(i) for i in range(80)))) == {"small\n"}
        async with s.get(WEB + "/big") as r:
            digest = hashlib.sha256()
            async for part in r.content.iter_any():
                digest.update(part)
            assert digest.hexdigest() == want

        async def pieces():
            for part in chunks():
                yield part
        for base in (WEB, "http://www.farm.test"):
            async with s.post(base + "/app/upload", data=pieces()) as r:
                assert await r.text() == told


asyncio.run(many())
