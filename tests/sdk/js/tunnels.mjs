/* tunnels.mjs - servers in a sandbox reached from outside: tunnels by TLS and TCP, connect tokens. */
import https from "node:https";
import net from "node:net";
import tls from "node:tls";

import { assert, create, end, main, sleep, test, withSandbox } from "./harness.mjs";

const server = `
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()`;
const echo = `
import socket, sys, threading
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def serve(c):
    while data := c.recv(65536): c.sendall(data)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()`;

/* The certificate of a test server is signed by itself. */
function get(url, headers = {}) {
    return new Promise((resolve, reject) => {
        https.get(url, { rejectUnauthorized: false, headers }, (r) => {
            let text = "";
            r.setEncoding("utf8").on("data", (d) => (text += d)).on("end", () => resolve({ status: r.statusCode, text }));
        }).on("error", reject);
    });
}

async function eventually(fn) {
    for (let i = 0; ; i++) {
        try {
            const r = await fn();
            if (r) return r;
        } catch (e) {
            if (i > 200) throw e;
        }
        assert.ok(i <= 200, "it did not happen");
        await sleep(100);
    }
}

async function echoes(socket) {
    const data = Buffer.from("hello ü");
    return new Promise((resolve, reject) => {
        socket.on("error", reject).once("data", (d) => { socket.destroy(); resolve(d.equals(data)); }).once("close", () => resolve(false));
        socket.write(data);
    });
}

test("an encrypted port is reached by its url", async () => {
    await withSandbox({ encryptedPorts: [8000], command: ["python3", "-c", server, "8000"] }, async (sb) => {
        const tunnels = await sb.tunnels();
        assert.deepEqual(Object.keys(tunnels), ["8000"]);
        const [host, port] = tunnels[8000].tlsSocket;
        assert.equal(tunnels[8000].url, `https://${host}:${port}`);
        assert.throws(() => tunnels[8000].tcpSocket);
        const r = await eventually(async () => { const r = await get(tunnels[8000].url + "/there?x=1"); return r.status === 200 && r; });
        assert.equal(JSON.parse(r.text).path, "/there?x=1");
    });
});

test("an unencrypted port carries any bytes", async () => {
    await withSandbox({ unencryptedPorts: [7777], command: ["python3", "-c", echo, "7777"] }, async (sb) => {
        const t = (await sb.tunnels())[7777];
        const [host, port] = t.tcpSocket;
        assert.ok(await eventually(() => echoes(net.connect(port, host))));
        assert.ok(await echoes(tls.connect({ host: t.host, port: t.port, rejectUnauthorized: false })));
    });
});

test("an h2 port agrees on HTTP/2", async () => {
    await withSandbox({ h2Ports: [8443] }, async (sb) => {
        const t = (await sb.tunnels())[8443];
        const socket = tls.connect({ host: t.host, port: t.port, rejectUnauthorized: false, ALPNProtocols: ["h2", "http/1.1"] });
        await new Promise((resolve, reject) => socket.once("secureConnect", resolve).once("error", reject));
        assert.equal(socket.alpnProtocol, "h2");
        socket.destroy();
    });
});

test("ports of all kinds work with a blocked network", async () => {
    const params = { encryptedPorts: [1], h2Ports: [2], unencryptedPorts: [3], blockNetwork: true };
    const sb = await create(params).catch((e) => e);
    if (sb instanceof Error) {          /* clients may refuse the combination themselves */
        assert.match(sb.message, /port/i);
        return;
    }
    assert.deepEqual(Object.keys(await sb.tunnels()).sort(), ["1", "2", "3"]);
    await end(sb);
});

test("a sandbox without ports has no tunnels", async () => {
    await withSandbox({}, async (sb) => assert.deepEqual(await sb.tunnels(), {}));
});

test("who may connect is a matter of addresses", async () => {
    const params = (list) => ({ unencryptedPorts: [7777], inboundCidrAllowlist: list, command: ["python3", "-c", echo, "7777"] });
    await withSandbox(params(["127.0.0.0/8"]), async (sb) => {
        const [host, port] = (await sb.tunnels())[7777].tcpSocket;
        assert.ok(await eventually(() => echoes(net.connect(port, host))));
    });
    await withSandbox(params(["10.0.0.0/8"]), async (sb) => {
        const [host, port] = (await sb.tunnels())[7777].tcpSocket;
        for (let i = 0; i < 3; i++) {
            assert.equal(await echoes(net.connect(port, host)).catch(() => false), false);
            await sleep(300);
        }
    });
});

test("nobody listens, and a tunnel ends with its sandbox", async () => {
    await withSandbox({ encryptedPorts: [8000] }, async (sb) => {
        const t = (await sb.tunnels())[8000];
        const r = await get(t.url);
        assert.equal(r.status, 502);
        assert.match(r.text, /nothing listens on port 8000/);
        await sb.terminate();
        await eventually(() => get(t.url).then(() => false, () => true));
    });
});

test("a connect token leads to its port and says who calls", { only: "0.11.1" }, async () => {
    await withSandbox({ command: ["python3", "-c", server, "8080"] }, async (sb) => {
        const c = await sb.createConnectToken({ userMetadata: '{"user":"me"}' });
        const headers = { authorization: `Bearer ${c.token}`, "x-verified-user-data": "forged" };
        const r = await eventually(async () => { const r = await get(c.url + "/a", headers); return r.status === 200 && r; });
        const seen = JSON.parse(r.text);
        assert.equal(seen.path, "/a");
        assert.equal(seen.headers["x-verified-user-data"], '{"user":"me"}');
        assert.equal(seen.headers.authorization, undefined);
        assert.equal((await get(c.url)).status, 401);
        const other = await sb.createConnectToken({ port: 9 });
        assert.equal((await get(other.url, { authorization: `Bearer ${other.token}` })).status, 502);
    });
});

await main();
