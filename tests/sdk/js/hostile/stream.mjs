/*
 * stream.mjs - large streams over connections that break; run by test_hostile.py as `node stream.mjs KIND MIB`
 *
 * KIND: stdout (of a command), stdin (of a command), read and write (a file), main (output of the main process). Prints RESULT and JSON:
 * {"mine": hash on this side, "theirs": hash in the sandbox, "bytes"}.
 */
import { assert, create, crypto, end, run, sandbox, sha256 } from "../harness.mjs";

const [kind, mib] = [process.argv[2], Number(process.argv[3])];
const bytes = mib << 20;

async function sumOf(sb, path) {
    const r = await run(sb, ["sha256sum", path]);
    assert.equal(r.code, 0, r.stderr);
    return r.stdout.split(" ")[0];
}

async function hashStream(stream) {
    const hash = crypto.createHash("sha256");
    let n = 0;
    for await (const chunk of stream) {
        const data = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
        hash.update(data);
        n += data.length;
    }
    return [hash.digest("hex"), n];
}

const kinds = {
    async stdout(sb) {
        await run(sb, ["sh", "-c", `head -c ${bytes} /dev/urandom >/tmp/big`]);
        const p = await sb.exec(["cat", "/tmp/big"], { mode: "binary" });
        const [mine, n] = await hashStream(p.stdout);
        assert.equal(await p.wait(), 0);
        return { mine, theirs: await sumOf(sb, "/tmp/big"), bytes: n };
    },
    async stdin(sb) {
        const data = crypto.randomBytes(bytes);
        const p = await sb.exec(["sh", "-c", "cat >/tmp/in"], { mode: "binary" });
        for (let at = 0; at < bytes; at += 1 << 20) {
            await p.stdin.writeBytes(data.subarray(at, at + (1 << 20)));
        }
        await p.stdin.close();
        assert.equal(await p.wait(), 0);
        return { mine: sha256(data), theirs: await sumOf(sb, "/tmp/in"), bytes };
    },
    async write(sb) {
        const data = crypto.randomBytes(bytes);
        await sb.filesystem.writeBytes(data, "/tmp/written");
        return { mine: sha256(data), theirs: await sumOf(sb, "/tmp/written"), bytes };
    },
    async read(sb) {
        await run(sb, ["sh", "-c", `head -c ${bytes} /dev/urandom >/tmp/big`]);
        const data = Buffer.from(await sb.filesystem.readBytes("/tmp/big"));
        return { mine: sha256(data), theirs: await sumOf(sb, "/tmp/big"), bytes: data.length };
    },
    async main() {
        const random = Math.floor(bytes / 77) * 57;
        const script = `head -c ${random} /dev/urandom | base64 -w 76 | tee /tmp/all; sleep 600`;
        const sb = await create({ command: ["sh", "-c", script], timeoutMs: 900_000 });
        const hash = crypto.createHash("sha256");
        const total = (random / 57) * 77;
        let n = 0;
        for await (const chunk of sb.stdout) {
            hash.update(chunk);
            n += chunk.length;
            if (n >= total) {
                break;
            }
        }
        const theirs = await sumOf(sb, "/tmp/all");
        await end(sb);
        return { mine: hash.digest("hex"), theirs, bytes: n };
    },
};

const sb = kind === "main" ? null : await sandbox();
const result = await kinds[kind](sb);
if (sb) {
    await end(sb);
}
process.stdout.write(`RESULT ${JSON.stringify(result)}\n`);
process.exit(0);
