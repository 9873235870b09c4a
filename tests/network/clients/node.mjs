// fetch, node:https with one connection kept, node:http2; large bodies both ways.
import assert from "node:assert";
import crypto from "node:crypto";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { once } from "node:events";

const web = "https://www.farm.test";
const sha = (data) => crypto.createHash("sha256").update(data).digest("hex");
const want = (await (await fetch(`${web}/big.sha256`)).text()).trim();
const big = Buffer.from(await (await fetch(`${web}/big`)).arrayBuffer());
assert.equal(sha(big), want);
const up = big.subarray(0, 9000001);
const told = `${up.length} ${sha(up)}\n`;
for (const base of [web, "http://www.farm.test"]) {
    assert.equal(await (await fetch(`${base}/app/upload`, { method: "POST", body: up })).text(), told);
    const stream = new ReadableStream({
        start(c) {
            for (let at = 0; at < up.length; at += 65536) c.enqueue(up.subarray(at, at + 65536));
            c.close();
        },
    });
    assert.equal(await (await fetch(`${base}/app/upload`, { method: "POST", body: stream, duplex: "half" })).text(), told);
    assert.equal(await (await fetch(`${base}/moved`)).text(), "small\n");
}
const all = await Promise.all(Array.from({ length: 60 }, (_, i) => fetch(`${web}/small?${i}`).then((r) => r.text())));
assert.deepEqual(new Set(all), new Set(["small\n"]));

for (const [lib, base] of [[https, web], [http, "http://www.farm.test"]]) {
    const agent = new lib.Agent({ keepAlive: true, maxSockets: 1 });
    const ports = new Set();
    for (let i = 0; i < 10; i++) {
        const request = lib.get(`${base}/small`, { agent });
        const [response] = await once(request, "response");
        ports.add(response.socket.localPort);
        let text = "";
        for await (const part of response) text += part;
        assert.equal(text, "small\n");
    }
    assert.equal(ports.size, 1);
    agent.destroy();
}

const session = http2.connect(web);
const texts = await Promise.all(Array.from({ length: 50 }, async (_, i) => {
    const stream = session.request({ ":path": `/app/slow?${i}` });
    let text = "";
    for await (const part of stream) text += part;
    return text;
}));
assert.deepEqual(new Set(texts), new Set(["0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"]));
const sent = session.request({ ":method": "POST", ":path": "/app/upload" });
sent.end(up);
let answer = "";
for await (const part of sent) answer += part;
assert.equal(answer, told);
session.close();

// Server-sent events come one by one.
const events = await fetch(`${web}/app/events`);
const times = [];
for await (const part of events.body) times.push(...[...Buffer.from(part).toString().matchAll(/data: /g)].map(() => Date.now()));
assert.equal(times.length, 5);
assert(times[4] - times[0] > 400);
