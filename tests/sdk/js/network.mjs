/*
 * network.mjs - what may leave a sandbox. Outside are the servers of tests/network/world.py: 93.184.216.34 is allowed.test, wild.test and
 * names below it, .35 is other.test, 198.97.190.53 is evil.test, 10.9.8.7 is a private one.
 */
import fs from "node:fs";

import { assert, create, long, main, modal, rejects, run, sleep, test, version, withSandbox } from "./harness.mjs";

const inside = fs.readFileSync(process.env.QS_INSIDE, "utf8");
const [allowed, other, evil, hidden] = ["93.184.216.34", "93.184.216.35", "198.97.190.53", "10.9.8.7"];

async function attempt(sb, spec) {
    const r = await run(sb, ["python3", "-c", inside, JSON.stringify({ timeout: 20, ...spec })]);
    assert.equal(r.code, 0, r.stderr);
    return JSON.parse(r.stdout);
}

/* The address of the server that answered, or undefined. */
const said = (r) => /"address": "([^"]+)"/.exec(r.data ?? "")?.[1];

async function tls(sb, name, address = name, port = 443) {
    return said(await attempt(sb, { kind: "tls", address, port, sni: name }));
}

async function http(sb, name, address = name) {
    const data = `GET / HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`;
    return said(await attempt(sb, { kind: "tcp", address, port: 80, data }));
}

/* Whether the bytes come back from a server that speaks no protocol. */
async function raw(sb, address, port = 9999) {
    return (await attempt(sb, { kind: "tcp", address, port, data: "hello", until_close: false })).data === "hello";
}

const resolves = async (sb, name) => (await attempt(sb, { kind: "resolve", name })).ok;

test("an open network reaches what is public, but no mail", async () => {
    await withSandbox({}, async (sb) => {
        assert.equal(await tls(sb, "allowed.test"), allowed);
        assert.equal(await http(sb, "evil.test"), evil);
        assert.ok(await raw(sb, other));
        assert.ok(!(await raw(sb, hidden)));
        assert.ok(!(await attempt(sb, { kind: "tcp", address: allowed, port: 25, until_close: false })).ok);
    });
});

test("a blocked network stays blocked", async () => {
    await withSandbox({ blockNetwork: true }, async (sb) => {
        assert.ok(!(await raw(sb, allowed)));
        assert.equal(await tls(sb, "allowed.test", allowed), undefined);
        assert.ok(!(await resolves(sb, "allowed.test")));
        await rejects(sb.updateNetworkPolicy({ outboundCidrAllowlist: ["0.0.0.0/0"], outboundDomainAllowlist: ["*"] }), null,
                      /is blocked for good/);
        assert.ok(!(await raw(sb, allowed)));
    });
    for (const list of ["outboundCidrAllowlist", "outboundDomainAllowlist", "inboundCidrAllowlist"]) {
        await rejects(create({ blockNetwork: true, [list]: [] }), null, new RegExp(list));
    }
});

long("prefixes", async () => {
    await withSandbox({ outboundCidrAllowlist: [`${other}/31`, "2606:2800:220:1::34"] }, async (sb) => {
        assert.ok((await raw(sb, other)) && (await raw(sb, allowed)) && (await raw(sb, "2606:2800:220:1::34")));
        assert.equal(await http(sb, "any.test", allowed), allowed);
        assert.ok(!(await raw(sb, evil)) && !(await raw(sb, hidden)));
        assert.equal(await tls(sb, "allowed.test", evil), undefined);
        assert.ok(!(await resolves(sb, "allowed.test")));
    });
    await withSandbox({ outboundCidrAllowlist: ["0.0.0.0/0"] }, async (sb) => {
        assert.ok((await raw(sb, evil)) && !(await raw(sb, hidden)));
        assert.equal(await tls(sb, "allowed.test"), allowed);
    });
});

test("names", async () => {
    await withSandbox({ outboundDomainAllowlist: ["Allowed.test", "*.wild.test"] }, async (sb) => {
        assert.equal(await tls(sb, "allowed.test"), allowed);
        assert.equal(await tls(sb, "deep.er.wild.test"), allowed);
        assert.equal(await tls(sb, "wild.test", allowed), undefined);
        assert.equal(await tls(sb, "evil.test", allowed), undefined);
        assert.equal(await tls(sb, "allowed.test", evil), allowed);     /* where the name leads, not where the program went */
        assert.equal(await tls(sb, "allowed.test", "allowed.test", 8443), undefined);
        assert.equal(await http(sb, "allowed.test"), undefined);
        assert.ok(!(await raw(sb, allowed, 443)));
        assert.ok(!(await resolves(sb, "evil.test")));
    });
    await withSandbox({ outboundDomainAllowlist: ["*"] }, async (sb) => {
        assert.equal(await tls(sb, "evil.test"), evil);
        assert.equal(await http(sb, "evil.test"), undefined);
    });
});

long("prefixes and names together", async () => {
    await withSandbox({ outboundCidrAllowlist: [other], outboundDomainAllowlist: ["allowed.test"] }, async (sb) => {
        assert.equal(await tls(sb, "allowed.test"), allowed);
        assert.ok((await raw(sb, other)) && !(await raw(sb, allowed)));
        assert.equal(await tls(sb, "evil.test", other), other);
        assert.equal(await tls(sb, "evil.test", evil), undefined);
    });
});

test("a list that is there and empty allows nothing", async () => {
    const everything = { outboundCidrAllowlist: ["0.0.0.0/0", "::/0"], outboundDomainAllowlist: ["*"] };
    for (const params of [{ outboundCidrAllowlist: [] }, { outboundDomainAllowlist: [] },
                          { outboundCidrAllowlist: [], outboundDomainAllowlist: [] }]) {
        await withSandbox(params, async (sb) => {
            assert.equal(await tls(sb, "allowed.test", allowed), undefined);
            assert.ok(!(await raw(sb, allowed)));
            await sb.updateNetworkPolicy(everything);
            assert.equal(await tls(sb, "allowed.test"), allowed);
            assert.ok(await raw(sb, allowed));
        });
    }
});

const badCidrs = ["10.0.0.0/33", "2001:db8::/129", "1.2.3", "example.com", "1.2.3.4/", "1.2.3.4/-1", ""];
const badDomains = ["a b", "1.2.3.4", "a..b", "a.*", "http://a.test", ""];

/* The text of an error names the entry. */
async function names(promise, text) {
    const e = await rejects(promise);
    assert.ok(`${e.message} ${e.details ?? ""}`.includes(text), `${text} is not in ${e.message}`);
    assert.ok(e instanceof modal.InvalidError || e.code === 3, `${e.name} ${e.code}`);
}

test("bad entries are named", async () => {
    for (const bad of badCidrs) {
        await names(create({ outboundCidrAllowlist: ["10.0.0.0/8", bad] }), `Invalid CIDR: '${bad}'`);
        await names(create({ inboundCidrAllowlist: [bad], encryptedPorts: [1] }), `Invalid CIDR: '${bad}'`);
    }
    for (const bad of badDomains) {
        await names(create({ outboundDomainAllowlist: ["allowed.test", bad] }), `Invalid domain: '${bad}'`);
    }
    await withSandbox({ outboundDomainAllowlist: ["allowed.test"] }, async (sb) => {
        for (const bad of badCidrs) {
            await names(sb.updateNetworkPolicy({ outboundCidrAllowlist: [bad], outboundDomainAllowlist: [] }), `Invalid CIDR: '${bad}'`);
        }
        for (const bad of badDomains) {
            await names(sb.updateNetworkPolicy({ outboundCidrAllowlist: [], outboundDomainAllowlist: [bad] }), `Invalid domain: '${bad}'`);
        }
        assert.equal(await tls(sb, "allowed.test"), allowed);
        assert.equal(await tls(sb, "evil.test", evil), undefined);
    });
});

const talk = `
import socket, sys
s = socket.create_connection((sys.argv[1], 9999))
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        data = s.recv(100)
    except OSError:
        data = b""
    print("got", data.decode().strip() or "nothing", flush=True)`;

test("a change is in force when it is answered, and cuts what it does not allow", async () => {
    await withSandbox({}, async (sb) => {
        const p = await sb.exec(["python3", "-c", talk, allowed]);
        const lines = p.stdout[Symbol.asyncIterator]();
        const say = async (word) => {
            await p.stdin.writeText(word + "\n");
            return (await lines.next()).value;
        };
        const change = (cidrs, domains) => sb.updateNetworkPolicy({ outboundCidrAllowlist: cidrs, outboundDomainAllowlist: domains });
        assert.equal(await say("one"), "got one\n");
        await change([allowed], ["other.test"]);
        assert.equal(await say("two"), "got two\n");
        assert.ok(await raw(sb, allowed));
        assert.equal(await tls(sb, "other.test"), other);
        assert.equal(await tls(sb, "evil.test", evil), undefined);
        await change([], ["other.test"]);
        assert.equal(await say("three"), "got nothing\n");
        assert.ok(!(await raw(sb, allowed)));
        assert.equal(await tls(sb, "other.test"), other);
        await change([], []);
        assert.equal(await tls(sb, "other.test", other), undefined);
        await change(["0.0.0.0/0"], ["*"]);
        assert.equal(await tls(sb, "evil.test"), evil);
        assert.ok(await raw(sb, allowed));
        await rejects(sb.updateNetworkPolicy({ outboundCidrAllowlist: [] }), "InvalidError", /outboundDomainAllowlist/);
        await p.stdin.close();
    });
});

test("what was denied is in the system stream", { only: "0.11.1" }, async () => {
    const command = ["sh", "-c", "echo out; echo err >&2; sleep 600"];
    await withSandbox({ outboundDomainAllowlist: ["allowed.test"], command }, async (sb) => {
        assert.equal(await tls(sb, "evil.test", evil), undefined);
        assert.ok(!(await raw(sb, other)));
        assert.ok(!(await resolves(sb, "evil.test")));
        const want = [`network policy: denied DNS query for evil.test: no rule allows it`,
                      `network policy: denied tcp ${other} port 9999: no rule allows it`,
                      `network policy: denied tls evil.test (${evil}) port 443: no rule allows it`];
        const tail = async (source) => {
            const entries = [];
            for await (const e of sb.logs.tail({ source })) entries.push(e);
            return entries;
        };
        const decided = async () => {
            const entries = await tail("system");
            assert.ok(entries.every((e) => e.source === "system"));
            return [...new Set(entries.map((e) => e.message.trim().replace(/, \d+ times$/, "")))].sort();
        };
        for (let i = 0; (await decided()).length < want.length; i++) {
            assert.ok(i < 200, "they do not come");
            await sleep(300);
        }
        assert.deepEqual(await decided(), want);
        const all = await tail(undefined);
        assert.deepEqual([...new Set(all.map((e) => e.source))].sort(), ["stderr", "stdout", "system"]);
        assert.ok((await tail("stderr")).every((e) => e.message === "err\n"));
    });
});

long("experimental options", async () => {
    const options = version.startsWith("0.9") ? {} : { enable_docker: false, unheard_of: true };
    await withSandbox({ experimentalOptions: options }, async (sb) => assert.equal((await run(sb, ["true"])).code, 0));
    await rejects(create({ experimentalOptions: { enable_exit_snapshot: true } }), null, /enable_exit_snapshot/);
});

long("readiness does not need a network, and a probe that fails is waited for in vain", async () => {
    const serve = "import socket, time; time.sleep(0.5); s = socket.create_server(('0.0.0.0', 8077)); time.sleep(600)";
    const ready = modal.Probe.withTcp(8077, { intervalMs: 50 });
    await withSandbox({ blockNetwork: true, readinessProbe: ready, command: ["python3", "-c", serve] }, async (sb) => sb.waitUntilReady(60_000));
    const fails = modal.Probe.withExec(["sh", "-c", "echo not yet >&2; exit 7"], { intervalMs: 50 });
    await withSandbox({ readinessProbe: fails }, async (sb) => {
        await rejects(sb.waitUntilReady(2000), "TimeoutError");
    });
    await withSandbox({}, async (sb) => rejects(sb.waitUntilReady(2000), null, /probe/));
});

await main();
