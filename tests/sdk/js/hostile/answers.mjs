/*
 * answers.mjs - one answer of the server is lost; run by test_hostile.py as `node answers.mjs KIND`
 *
 * KIND: create, terminate, exec, stdin, file, queue, named. Asks for the loss by printing "arm" and waits for a line. Prints RESULT and JSON with what
 * was there in the end.
 */
import { app, assert, client, create, crypto, end, image, list, run, sandbox, sha256, unique } from "../harness.mjs";

function arm() {
    return new Promise((resolve) => {
        process.stdin.once("data", resolve);
        process.stdout.write("arm\n");
    });
}

async function count(params) {
    let n = 0;
    for await (const sb of list(params)) {
        n += sb ? 1 : 0;
    }
    return n;
}

const kinds = {
    async create() {
        await image.build(app);
        await (await create()).terminate({ wait: true });
        const before = await count({ appId: app.appId });
        await arm();
        const sb = await create();
        const made = (await count({ appId: app.appId })) - before;
        const { stdout } = await run(sb, ["echo", "ok"]);
        await end(sb);
        return { made, stdout };
    },
    async terminate() {
        const sb = await create();
        await arm();
        return { code: await sb.terminate({ wait: true }) };
    },
    async exec() {
        const sb = await sandbox();
        await run(sb, ["true"]);
        await arm();
        const r = await run(sb, ["sh", "-c", "echo once >>/tmp/runs; cat /tmp/runs"]);
        return { stdout: r.stdout, code: r.code };
    },
    async stdin() {
        const p = await (await sandbox()).exec(["cat"]);
        await p.stdin.writeText("one\n");
        await arm();
        await p.stdin.writeText("two\n");
        await p.stdin.writeText("three\n");
        await p.stdin.close();
        return { stdout: await p.stdout.readText() };
    },
    async file() {
        const sb = await sandbox(), data = crypto.randomBytes(1 << 20);
        await run(sb, ["true"]);
        await arm();
        await sb.filesystem.writeBytes(data, "/tmp/f");
        const sum = (await run(sb, ["sha256sum", "/tmp/f"])).stdout.split(" ")[0];
        return { same: sum === sha256(data) };
    },
    async queue() {
        const q = await client.queues.ephemeral();
        await q.put("first");
        await arm();
        await q.put("second");
        const n = await q.len();
        q.closeEphemeral();
        return { n };
    },
    async named() {
        const name = unique("queue");
        await client.queues.fromName(unique("other"), { createIfMissing: true });
        await arm();
        const made = await client.queues.fromName(name, { createIfMissing: true });
        assert.equal((await client.queues.fromName(name)).queueId, made.queueId);
        return { same: true };
    },
};

const result = await kinds[process.argv[2]]();
process.stdout.write(`RESULT ${JSON.stringify(result)}\n`);
process.exit(0);
