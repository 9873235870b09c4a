/* sandbox.mjs - the life of a sandbox: create with its options, poll, wait, terminate, timeouts, find it again. */
import { assert, client, create, end, fromName, isV2, list, long, main, modal, rejects, run, sandbox, sleep,
         test, unique, withSandbox } from "./harness.mjs";

test("create, run a command, terminate", async () => {
    const sb = await create();
    const r = await run(sb, ["echo", "hello"]);
    assert.deepEqual(r, { stdout: "hello\n", stderr: "", code: 0 });
    assert.equal(await sb.terminate({ wait: true }), 137);
});

test("the id has the shape of its generation", async () => {
    await withSandbox({}, async (sb) => {
        assert.equal(/^sb-[0-9A-Za-z]{22}$/.test(sb.sandboxId), !isV2, sb.sandboxId);
    });
});

test("poll is null while it runs", async () => {
    await withSandbox({}, async (sb) => assert.equal(await sb.poll(), null));
});

test("wait gives the exit code of the main process", async () => {
    await withSandbox({ command: ["sh", "-c", "exit 7"] }, async (sb) => {
        assert.equal(await sb.wait(), 7);
        assert.equal(await sb.poll(), 7);
        assert.equal(await sb.wait(), 7);
    });
});

test("wait gives 0 for success", async () => {
    await withSandbox({ command: ["true"] }, async (sb) => assert.equal(await sb.wait(), 0));
});

test("wait gives 128 + n for a signal", async () => {
    await withSandbox({ command: ["sh", "-c", "kill -TERM $$"] }, async (sb) => assert.equal(await sb.wait(), 143));
});

test("terminate makes a pending wait return 137", async () => {
    const sb = await create();
    const waiting = sb.wait();
    await sleep(300);
    await sb.terminate();
    assert.equal(await waiting, 137);
});

test("terminate twice is fine", async () => {
    const sb = await create();
    const id = sb.sandboxId;
    assert.equal(await sb.terminate({ wait: true }), 137);
    const again = await client.sandboxes.fromId(id);
    await again.terminate();
    assert.equal(await (await client.sandboxes.fromId(id)).poll(), 137);
});

test("the lifetime ends it with 124", async () => {
    await withSandbox({ timeoutMs: 2000 }, async (sb) => {
        const start = Date.now();
        assert.equal(await sb.wait(), 124);
        assert.ok(Date.now() - start < 15_000);
    });
});

test("the idle timeout ends it", async () => {
    await withSandbox({ idleTimeoutMs: 2000 }, async (sb) => assert.notEqual(await sb.wait(), null));
});

test("a command holds the idle timeout off", async () => {
    await withSandbox({ idleTimeoutMs: 3000 }, async (sb) => {
        const r = await run(sb, ["sh", "-c", "sleep 5; echo still here"]);
        assert.equal(r.stdout, "still here\n");
        assert.notEqual(await sb.wait(), null);
    });
});

test("environment of the sandbox reaches commands and the main process", async () => {
    const params = { env: { GREETING: "hello", EMPTY: "", ODD: "a=b 'c' \"d\" ü" }, command: ["sh", "-c", "echo $GREETING; sleep 60"] };
    await withSandbox(params, async (sb) => {
        const r = await run(sb, ["sh", "-c", 'printf "%s|%s|%s" "$GREETING" "$EMPTY" "$ODD"']);
        assert.equal(r.stdout, "hello||a=b 'c' \"d\" ü");
    });
});

test("secrets of the sandbox reach commands", async () => {
    const secret = await client.secrets.fromObject({ TOKEN_OF_MINE: "s3cret", BOTH: "secret" });
    await withSandbox({ secrets: [secret], env: { BOTH: "env" } }, async (sb) => {
        const r = await run(sb, ["sh", "-c", 'echo "$TOKEN_OF_MINE $BOTH"']);
        assert.equal(r.stdout, "s3cret env\n");
    });
});

test("a later secret wins over an earlier one", async () => {
    const first = await client.secrets.fromObject({ WHO: "first" });
    const second = await client.secrets.fromObject({ WHO: "second" });
    await withSandbox({ secrets: [first, second] }, async (sb) => {
        assert.equal((await run(sb, ["printenv", "WHO"])).stdout, "second\n");
    });
});

test("workdir of the sandbox is that of its commands", async () => {
    await withSandbox({ workdir: "/tmp" }, async (sb) => assert.equal((await run(sb, ["pwd"])).stdout, "/tmp\n"));
});

test("cpu and memory are taken", async () => {
    await withSandbox({ cpu: 0.5, memoryMiB: 128, memoryLimitMiB: 256, cpuLimit: 1 }, async (sb) => {
        assert.equal((await run(sb, ["true"])).code, 0);
    });
});

test("verbose, cloud and region are taken", async () => {
    await withSandbox({ verbose: true, cloud: "aws", regions: ["us-east-1", "us-west-2"] }, async (sb) => {
        assert.equal((await run(sb, ["true"])).code, 0);
    });
});

test("an unknown cloud is refused", async () => {
    await rejects(create({ cloud: "invalid-cloud" }), null, /cloud/i);
});

test("an unknown region is refused", async () => {
    await rejects(create({ regions: ["invalid-region"] }), null, /region/i);
});

test("blockNetwork leaves no network but the loopback", async () => {
    await withSandbox({ blockNetwork: true }, async (sb) => {
        const r = await run(sb, ["sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"]);
        assert.equal(r.stdout, "lo\n");
    });
});

test("fromId finds it and can use it", async () => {
    await withSandbox({}, async (sb) => {
        await run(sb, ["sh", "-c", "echo mark >/tmp/mark"]);
        const other = await client.sandboxes.fromId(sb.sandboxId);
        assert.equal(other.sandboxId, sb.sandboxId);
        assert.equal((await run(other, ["cat", "/tmp/mark"])).stdout, "mark\n");
        other.detach();
    });
});

test("an unknown id is not found", async () => {
    const id = isV2 ? "sb-01JZ7N5V8Q2M4K6T9R3W5X7Y1Z" : "sb-0000000000000000000000";
    await rejects((async () => (await client.sandboxes.fromId(id)).wait())(), null, /not.?found|does not exist|no such|no sandbox/i);
});

test("detach leaves it running", async () => {
    const sb = await create();
    sb.detach();
    const other = await client.sandboxes.fromId(sb.sandboxId);
    assert.equal(await other.poll(), null);
    assert.equal((await run(other, ["echo", "alive"])).stdout, "alive\n");
    await other.terminate();
});

test("a command after terminate is an error, soon", async () => {
    const sb = await create();
    await sb.terminate({ wait: true });
    const other = await client.sandboxes.fromId(sb.sandboxId);
    const start = Date.now();
    await rejects(other.exec(["true"]));
    assert.ok(Date.now() - start < 10_000);
});

test("a finished sandbox can be found by id and polled", async () => {
    const sb = await create({ command: ["sh", "-c", "exit 3"] });
    assert.equal(await sb.wait(), 3);
    assert.equal(await (await client.sandboxes.fromId(sb.sandboxId)).poll(), 3);
});

test("readiness of a TCP port", async () => {
    const serve = "sleep 1; python3 -c 'import socket,time\ns=socket.socket()\ns.bind((\"127.0.0.1\",8077))\ns.listen()\ntime.sleep(60)'";
    const params = { readinessProbe: modal.Probe.withTcp(8077, { intervalMs: 100 }), command: ["sh", "-c", serve] };
    await withSandbox(params, async (sb) => {
        await sb.waitUntilReady(30_000);
        await sb.waitUntilReady(1_000);
    });
});

test("readiness of a command", async () => {
    const params = {
        readinessProbe: modal.Probe.withExec(["test", "-e", "/tmp/ready"], { intervalMs: 100 }),
        command: ["sh", "-c", "sleep 1; touch /tmp/ready; sleep 60"],
    };
    await withSandbox(params, async (sb) => sb.waitUntilReady(30_000));
});

test("readiness that never comes times out", async () => {
    const params = { readinessProbe: modal.Probe.withExec(["false"], { intervalMs: 100 }) };
    await withSandbox(params, async (sb) => {
        await rejects(sb.waitUntilReady(1500), "TimeoutError");
    });
});

test("a name is found, and taken while it runs", async () => {
    const name = unique("name");
    await withSandbox({ name }, async (sb) => {
        assert.equal((await fromName(name)).sandboxId, sb.sandboxId);
        await rejects(create({ name }), "AlreadyExistsError", /already exists/);
    });
});

test("a name is free again after the end", async () => {
    const name = unique("name");
    const first = await create({ name });
    await first.terminate({ wait: true });
    await rejects(fromName(name), "NotFoundError");
    await withSandbox({ name }, async (sb) => assert.equal((await fromName(name)).sandboxId, sb.sandboxId));
});

test("a finished name is found when asked for", { only: "0.11.1" }, async () => {
    const name = unique("name");
    const sb = await create({ name });
    await sb.terminate({ wait: true });
    assert.equal((await fromName(name, { includeTerminated: true })).sandboxId, sb.sandboxId);
});

test("an unknown name is not found", async () => {
    await rejects(fromName(unique("nobody")), "NotFoundError");
});

test("an unknown app is not found", async () => {
    await rejects(client.sandboxes.fromName(unique("no-app"), "x"), "NotFoundError");
});

test("the same name in two apps", async () => {
    const name = unique("name");
    const other = await client.apps.fromName(unique("app"), { createIfMissing: true });
    await withSandbox({ name }, async (a) => {
        await withSandbox({ name }, async (b) => assert.notEqual(a.sandboxId, b.sandboxId), { inApp: other });
    });
});

test("a name is given later, once", { only: "0.11.1", generation: "v2" }, async () => {
    const name = unique("late");
    await withSandbox({}, async (sb) => {
        await sb.experimentalSetName(name);
        assert.equal((await fromName(name)).sandboxId, sb.sandboxId);
        await rejects(sb.experimentalSetName(unique("again")));
        await withSandbox({}, async (other) => rejects(other.experimentalSetName(name), "AlreadyExistsError"));
    });
});

test("tags are set at creation, replaced and cleared", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ tags: { a: "1", b: "2" } }, async (sb) => {
        assert.deepEqual(await sb.getTags(), { a: "1", b: "2" });
        await sb.setTags({ c: "3" });
        assert.deepEqual(await sb.getTags(), { c: "3" });
        await sb.setTags({});
        assert.deepEqual(await sb.getTags(), {});
    });
});

async function ids(params) {
    const found = [];
    for await (const sb of list(params)) {
        found.push(sb.sandboxId);
    }
    return found;
}

test("list finds by app and by all tags", { not: "0.9.0-v2" }, async () => {
    const inApp = await client.apps.fromName(unique("app"), { createIfMissing: true });
    const tag = unique("tag");
    const made = [];
    for (const extra of ["x", "y", "y"]) {
        made.push(await create({ tags: { run: tag, extra } }, { inApp }));
    }
    const all = made.map((sb) => sb.sandboxId);
    assert.deepEqual(new Set(await ids({ appId: inApp.appId })), new Set(all));
    assert.deepEqual(new Set(await ids({ appId: inApp.appId, tags: { run: tag, extra: "y" } })), new Set(all.slice(1)));
    assert.deepEqual(await ids({ appId: inApp.appId, tags: { run: tag, extra: "z" } }), []);
    await made[0].terminate({ wait: true });
    assert.deepEqual(new Set(await ids({ appId: inApp.appId })), new Set(all.slice(1)));
    await Promise.all(made.map(end));
});

test("list neither loses nor repeats when many were made at once", { alone: true }, async () => {
    const inApp = await client.apps.fromName(unique("app"), { createIfMissing: true });
    const made = await Promise.all(Array.from({ length: 24 }, () => create({}, { inApp })));
    const found = await ids({ appId: inApp.appId });
    assert.equal(found.length, 24);
    assert.deepEqual(new Set(found), new Set(made.map((sb) => sb.sandboxId)));
    await Promise.all(made.map(end));
});

test("two sandboxes do not see each other", async () => {
    await withSandbox({}, async (a) => {
        await run(a, ["sh", "-c", "echo a >/tmp/mine"]);
        await withSandbox({}, async (b) => assert.notEqual((await run(b, ["cat", "/tmp/mine"])).code, 0));
    });
});

test("the main process may be missing: it stays until it is terminated", async () => {
    const sb = await sandbox();
    assert.equal(await sb.poll(), null);
});

test("a main process that does not exist ends with an error", async () => {
    const gone = (async () => {
        const sb = await create({ command: ["/no/such/program"] });
        return sb.wait();
    })();
    const code = await gone.catch(() => 127);
    assert.notEqual(code, 0);
});

long("create and terminate two hundred times", { only: "0.11.1", alone: true, timeoutMs: 270_000 }, async () => {
    for (let i = 0; i < 50; i++) {
        await Promise.all(Array.from({ length: 4 }, async () => {
            const sb = await create();
            assert.equal((await run(sb, ["echo", String(i)])).stdout, `${i}\n`);
            assert.equal(await sb.terminate({ wait: true }), 137);
        }));
    }
});

await main();
