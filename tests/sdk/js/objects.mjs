/* objects.mjs - what is not a sandbox: apps, images, secrets, queues, environments; what the server does not have; credentials. */
import { app, appName, assert, client, create, image, imageName, isV2, main, modal, rejects, run, sleep, test, unique, version,
         withSandbox } from "./harness.mjs";

test("an app is made once and found again", async () => {
    const again = await client.apps.fromName(appName);
    assert.equal(again.appId, app.appId);
    assert.match(app.appId, /^ap-[0-9A-Za-z]{22}$/);
});

test("an unknown app is not found", async () => {
    await rejects(client.apps.fromName(unique("nobody")), "NotFoundError");
});

test("an app tells about itself", { only: "0.11.1" }, async () => {
    const info = await app.info({ refresh: true });
    assert.equal(info.appId, app.appId);
    assert.ok(Math.abs(info.lifecycle.createdAt.getTime() - Date.now()) < 600_000);
});

test("an imported image is found by its name and has an id", async () => {
    const built = await client.images.fromRegistry(imageName).build(app);
    assert.match(built.imageId, /^im-/);
    assert.equal((await client.images.fromRegistry(imageName).build(app)).imageId, built.imageId);
});

test("an image by id", async () => {
    const built = await client.images.fromRegistry(imageName).build(app);
    const same = await client.images.fromId(built.imageId);
    assert.equal(same.imageId, built.imageId);
    await withSandbox({}, async (sb) => assert.equal((await run(sb, ["echo", "ok"])).stdout, "ok\n"), { of: same });
});

test("an unknown image id is not found", async () => {
    await rejects(client.images.fromId("im-0000000000000000000000"), "NotFoundError", /Could not find image with ID/);
});

test("deleting an unknown image is not found", async () => {
    await rejects(client.images.delete("im-0000000000000000000000"), "NotFoundError", /No Image with ID/);
});

test("an image that nobody imported answers clearly", async () => {
    const e = await rejects(client.images.fromRegistry("no-such-image-here:v1").build(app));
    assert.match(e.message, /no-such-image-here/);
});

test("image steps are built, and answer clearly when they fail", async () => {
    const built = await image.dockerfileCommands(["RUN echo hi >/hi", "ENV COLOR=blue"]).build(app);
    const sandbox = await client.sandboxes.create(app, built);
    const p = await sandbox.exec(["sh", "-c", "cat /hi; echo $COLOR"]);
    assert.equal(await p.stdout.readText(), "hi\nblue\n");
    await sandbox.terminate();
    const e = await rejects(image.dockerfileCommands(["RUN exit 3"]).build(app));
    assert.match(e.message, /exit code 3/);
});

test("a published name is found", { only: "0.11.1" }, async () => {
    const built = await client.images.fromRegistry(imageName).build(app);
    const name = unique("published");
    await built.publish(name);
    assert.equal((await client.images.fromName(name)).imageId, built.imageId);
});

test("an unknown image name is not found", async () => {
    if (client.images.fromName) {
        await rejects(client.images.fromName(unique("nobody")), "NotFoundError");
    }
});

test("an unknown secret is not found", async () => {
    const name = unique("nobody");
    await rejects(client.secrets.fromName(name), "NotFoundError", new RegExp(`Secret '${name}' not found`));
});

test("a secret from a map needs strings", async () => {
    await rejects(client.secrets.fromObject({ KEY: 5 }), "InvalidError");
});

test("deleting an unknown secret", async () => {
    const name = unique("nobody");
    await rejects(client.secrets.delete(name), "NotFoundError");
    await client.secrets.delete(name, { allowMissing: true });
});

async function queue(fn) {
    const q = await client.queues.ephemeral();
    try {
        await fn(q);
    } finally {
        q.closeEphemeral();
    }
}

test("a queue keeps the order", async () => {
    await queue(async (q) => {
        await q.put("one");
        await q.putMany([2, { three: 3 }, null, true, [1, "x"]]);
        assert.equal(await q.len(), 6);
        assert.equal(await q.get(), "one");
        assert.deepEqual(await q.getMany(10), [2, { three: 3 }, null, true, [1, "x"]]);
        assert.equal(await q.len(), 0);
    });
});

test("an empty queue says so", async () => {
    await queue(async (q) => {
        await rejects(q.get({ timeoutMs: 0 }), "QueueEmptyError");
        const start = Date.now();
        await rejects(q.get({ timeoutMs: 1000 }), "QueueEmptyError");
        assert.ok(Date.now() - start >= 900);
    });
});

test("a get waits for a put", async () => {
    await queue(async (q) => {
        const getting = q.get({ timeoutMs: 10_000 });
        await sleep(300);
        await q.put("late");
        assert.equal(await getting, "late");
    });
});

test("partitions are apart", async () => {
    await queue(async (q) => {
        await q.put("a", { partition: "A" });
        await q.put("b", { partition: "B" });
        await q.put("none");
        assert.deepEqual([await q.len(), await q.len({ partition: "A" }), await q.len({ total: true })], [1, 1, 3]);
        assert.equal(await q.get({ partition: "B" }), "b");
        await q.clear({ partition: "A" });
        assert.equal(await q.len({ total: true }), 1);
        await q.clear({ all: true });
        assert.equal(await q.len({ total: true }), 0);
    });
});

test("a queue is read without taking", async () => {
    await queue(async (q) => {
        await q.putMany([1, 2, 3]);
        const seen = [];
        for await (const x of q.iterate({ itemPollTimeoutMs: 500 })) {
            seen.push(x);
        }
        assert.deepEqual(seen, [1, 2, 3]);
        assert.equal(await q.len(), 3);
    });
});

test("a queue with a name", async () => {
    const name = unique("queue");
    await rejects(client.queues.fromName(name), "NotFoundError");
    const q = await client.queues.fromName(name, { createIfMissing: true });
    await q.put("kept");
    const again = await client.queues.fromName(name);
    assert.equal(again.queueId, q.queueId);
    assert.equal(await again.get(), "kept");
    await client.queues.delete(name);
    await rejects(client.queues.fromName(name), "NotFoundError");
});

test("a full queue says so", { alone: true }, async () => {
    await queue(async (q) => {
        for (let i = 0; i < 5; i++) {
            await q.putMany(Array.from({ length: 1000 }, (_, n) => n));
        }
        await rejects(q.put("one more", { timeoutMs: 500 }), "QueueFullError");
    });
});

test("environments can be made, listed, deleted", { only: "0.11.1" }, async () => {
    const name = unique("env");
    await client.environments.objects.create(name);
    const names = async () => {
        const found = [];
        for await (const e of client.environments.objects.list()) {
            found.push(e.name);
        }
        return found;
    };
    assert.ok((await names()).includes(name));
    await rejects(client.environments.objects.create(name), "AlreadyExistsError");
    const inIt = await client.apps.fromName(appName, { environment: name, createIfMissing: true });
    assert.notEqual(inIt.appId, app.appId);
    await client.environments.objects.delete(name);
    assert.ok(!(await names()).includes(name));
});

test("an unknown environment is not found", { only: "0.11.1" }, async () => {
    await rejects(client.environments.fromName(unique("nobody")), "NotFoundError");
});

/* What the server does not have must say so, and soon. */
async function refused(promise, pattern) {
    const start = Date.now();
    const e = await rejects(promise);
    assert.match(e.message, pattern);
    assert.ok(Date.now() - start < 8000, `only after ${Date.now() - start} ms: ${e.message}`);
}

test("a GPU is refused clearly", async () => refused(create({ gpu: "T4" }), /gpu/i));
test("a function is refused clearly", async () => refused(client.functions.fromName("some-app", "f"), /./));
test("a proxy is refused clearly", async () => refused(client.proxies.fromName(unique("p")), /./));
test("a custom domain is refused clearly", async () => refused(create({ customDomain: "example.com" }), /domain/i));

test("a memory snapshot is refused clearly", { only: "0.11.1" }, async () => {
    await withSandbox({}, async (sb) => refused(sb.experimentalSnapshot(), /./));
});

test("an exit snapshot that was not asked for is an error", { only: "0.11.1" }, async () => {
    const sb = await create();
    await sb.terminate({ wait: true });
    await rejects(sb.experimentalGetExitSnapshot({ timeoutMs: 3000 }));
});

test("a bad CIDR is refused", async () => {
    await refused(create({ outboundCidrAllowlist: ["not-a-cidr"] }), /CIDR|not-a-cidr/i);
});

test("a wrong secret is refused at once", async () => {
    const id = process.env.MODAL_TOKEN_ID;
    for (const params of [{ tokenId: id, tokenSecret: "as-wrong" }, { tokenId: "ak-nobody", tokenSecret: "as-wrong" }]) {
        const other = new modal.ModalClient(params);
        const start = Date.now();
        const e = await rejects(other.apps.fromName("x", { createIfMissing: true }));
        assert.match(`${e.message}`, /UNAUTHENTICATED|token|credential/i);
        assert.ok(Date.now() - start < 5000);
        other.close();
    }
});

test("a closed client says so", async () => {
    const other = new modal.ModalClient();
    const a = await other.apps.fromName(appName);
    const sb = await create({}, { inApp: a, by: other, of: other.images.fromRegistry(imageName) });
    await sb.terminate();
    other.close();
    await rejects(sb.exec(["true"]));
});

test("two clients in one process", async () => {
    const other = new modal.ModalClient();
    await withSandbox({}, async (sb) => {
        const same = await other.sandboxes.fromId(sb.sandboxId);
        assert.equal((await run(same, ["echo", "two"])).stdout, "two\n");
        same.detach();
    });
    other.close();
});

test("the SDK is the version it should be", async () => {
    assert.equal(client.version(), version);
    assert.equal(isV2, process.env.MODAL_SANDBOX_V2 === "1");
});

await main();
