/*
 * outbound.mjs - outbound policies: headers that are replaced in requests outside of the sandbox, given at creation and while it runs.
 * Outside are the servers of tests/network/world.py.
 */
import fs from "node:fs";

import { assert, client, create, long, main, modal, rejects, run, test, unique, withSandbox } from "./harness.mjs";

const program = fs.readFileSync(process.env.QS_ASK, "utf8");
const [allowed, other, evil] = ["93.184.216.34", "93.184.216.35", "198.97.190.53"];

async function ask(sb, host, { headers = {}, ...more } = {}) {
    const r = await run(sb, ["python3", "-c", program, JSON.stringify({ url: `https://${host}/x`, headers, ...more })]);
    assert.equal(r.code, 0, r.stderr);
    return JSON.parse(r.stdout);
}

/* What the server saw of a field, by a connection that was opened. */
async function field(sb, name, host, headers) {
    const r = await ask(sb, host, { headers });
    assert.ok(r.own, JSON.stringify(r));
    return r.fields[name];
}

async function untouched(sb, host) {
    const r = await ask(sb, host);
    return r.own === false && r.fields["x-key"] === undefined && r.fields.authorization === undefined;
}

const policy = (domain, headers, secret) => new modal.ExperimentalOutboundPolicy().withHeaderReplacement({ domain, headers, secret });

async function secretOf(value) {
    const name = unique("secret");
    const r = await fetch(`${process.env.MODAL_SERVER_URL}/v1/secrets/${name}`, {
        method: "PUT", body: JSON.stringify({ values: { TOKEN: value, USER: "me" } }),
        headers: { authorization: `Bearer ${process.env.MODAL_TOKEN_ID}.${process.env.MODAL_TOKEN_SECRET}`, "content-type": "application/json" } });
    assert.ok(r.ok, await r.text());
    return client.secrets.fromName(name);
}

test("headers are replaced outside", { only: "0.11.1" }, async () => {
    const value = unique("value-of-the-secret");
    const mine = policy("allowed.test", { Authorization: "Bearer $TOKEN" }, await secretOf(value))
        .withHeaderReplacement({ domain: "*.wild.test", headers: { "X-Key": "a$$b ${USER}" } });
    await withSandbox({ experimentalOutboundPolicy: mine }, async (sb) => {
        assert.equal(await field(sb, "authorization", "allowed.test"), `Bearer ${value}`);
        assert.equal(await field(sb, "authorization", "allowed.test", { Authorization: "mine" }), `Bearer ${value}`);
        assert.equal(await field(sb, "x-key", "www.wild.test", { "X-Key": "mine" }), "a$b ${USER}");
        assert.equal(await field(sb, "x-key", "wild.test"), "a$b ${USER}");
        assert.ok(await untouched(sb, "other.test"));
        assert.ok(!(await run(sb, ["sh", "-c", "env; cat /proc/1/environ"])).stdout.includes("value-of-the-secret"));
    });
});

long("replacements allow nothing", { only: "0.11.1" }, async () => {
    const params = { experimentalOutboundPolicy: policy("other.test", { "X-Key": "1" }), outboundCidrAllowlist: [other] };
    await withSandbox(params, async (sb) => {
        assert.equal(await field(sb, "x-key", "other.test"), "1");
        assert.ok((await ask(sb, "allowed.test", { address: allowed })).error);
        await sb.updateNetworkPolicy({ outboundCidrAllowlist: [], outboundDomainAllowlist: [] });
        assert.ok((await ask(sb, "other.test", { address: other })).error);
        await sb.updateNetworkPolicy({ outboundCidrAllowlist: [], outboundDomainAllowlist: ["*.test"] });
        assert.equal(await field(sb, "x-key", "other.test"), "1");
        assert.ok(await untouched(sb, "evil.test"));
    });
    for (const beside of [{ blockNetwork: true }, { outboundDomainAllowlist: ["a.test"] }]) {
        await rejects(create({ ...params, outboundCidrAllowlist: undefined, ...beside }));
    }
});

test("each half changes alone", { only: "0.11.1" }, async () => {
    await withSandbox({ experimentalOutboundPolicy: policy("allowed.test", { "X-Key": "one" }) }, async (sb) => {
        assert.equal(await field(sb, "x-key", "allowed.test"), "one");
        await sb.updateNetworkPolicy({ outboundCidrAllowlist: [], outboundDomainAllowlist: ["allowed.test", "other.test"] });
        assert.equal(await field(sb, "x-key", "allowed.test"), "one");
        assert.ok((await ask(sb, "evil.test", { address: evil })).error);
        await sb.experimentalUpdateOutboundPolicy(policy("other.test", { "X-Key": "two" }));
        assert.equal(await field(sb, "x-key", "other.test"), "two");
        assert.ok(await untouched(sb, "allowed.test"));
        assert.ok((await ask(sb, "evil.test", { address: evil })).error);
        await sb.experimentalUpdateOutboundPolicy(new modal.ExperimentalOutboundPolicy());
        assert.ok(await untouched(sb, "other.test"));
    });
});

long("a sandbox that was made without one", { only: "0.11.1" }, async () => {
    await withSandbox({}, async (sb) => {
        assert.ok(await untouched(sb, "allowed.test"));
        await sb.experimentalUpdateOutboundPolicy(policy("allowed.test", { "X-Key": "late" }));
        assert.equal(await field(sb, "x-key", "allowed.test"), "late");
    });
    await withSandbox({ blockNetwork: true }, async (sb) => {
        await rejects(sb.experimentalUpdateOutboundPolicy(policy("allowed.test", { "X-Key": "late" })), null, /is blocked for good/);
    });
});

long("what is wrong with one is named", { only: "0.11.1" }, async () => {
    const secret = await secretOf("value");
    const bad = [[policy("allowed.test", { "X-Key": "$NO" }, secret), /has no key 'NO'/],
                 [policy("allowed.test", { Host: "evil.test" }), /Invalid header 'Host'/],
                 [policy("a b", { "X-Key": "1" }), /domain/], [policy("allowed.test", { "X-Key": "$TOKEN" }), /secret/]];
    await withSandbox({}, async (sb) => {
        for (const [one, text] of bad) {
            await rejects(create({ experimentalOutboundPolicy: one }), null, text);
            await rejects(sb.experimentalUpdateOutboundPolicy(one), null, text);
        }
        assert.ok(await untouched(sb, "allowed.test"));
    });
});

await main();
