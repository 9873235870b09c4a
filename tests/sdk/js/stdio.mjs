/* stdio.mjs - standard input and output of the main process, and its log. */
import { assert, client, create, crypto, main, rejects, sha256, sleep, test, withSandbox } from "./harness.mjs";

test("output of the main process, read after its end", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["sh", "-c", "echo out; echo err >&2"] }, async (sb) => {
        assert.equal(await sb.wait(), 0);
        assert.equal(await sb.stdout.readText(), "out\n");
        assert.equal(await sb.stderr.readText(), "err\n");
    });
});

test("output of the main process, read while it runs", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["sh", "-c", "echo first; sleep 3; echo second"] }, async (sb) => {
        const start = Date.now();
        let firstAt = 0;
        let text = "";
        for await (const chunk of sb.stdout) {
            firstAt ||= Date.now() - start;
            text += chunk;
        }
        assert.equal(text, "first\nsecond\n");
        assert.ok(firstAt < 2500, `the first chunk came after ${firstAt} ms`);
    });
});

test("output without a newline at its end", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["printf", "no newline"] }, async (sb) => assert.equal(await sb.stdout.readText(), "no newline"));
});

test("a main process that says nothing", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["true"] }, async (sb) => {
        assert.equal(await sb.stdout.readText(), "");
        assert.equal(await sb.stderr.readText(), "");
    });
});

test("UTF-8 from the main process", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["sh", "-c", "i=0; while [ $i -lt 3000 ]; do printf 'äöü€🎈'; i=$((i+1)); done"] }, async (sb) => {
        assert.equal(await sb.stdout.readText(), "äöü€🎈".repeat(3000));
    });
});

test("ten MiB from the main process", { alone: true, not: "0.9.0-v2" }, async () => {
    const command = ["sh", "-c", "head -c 7864320 /dev/urandom | base64 -w 76 | tee /tmp/all; sha256sum /tmp/all >&2"];
    await withSandbox({ command }, async (sb) => {
        const [out, err] = await Promise.all([sb.stdout.readText(), sb.stderr.readText()]);
        assert.equal(err.split(" ")[0], sha256(out));
    });
});

test("stdin of the main process", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["cat"] }, async (sb) => {
        await sb.stdin.writeText("one\n");
        await sb.stdin.writeText("two\n");
        await sb.stdin.close();
        assert.equal(await sb.stdout.readText(), "one\ntwo\n");
        assert.equal(await sb.wait(), 0);
    });
});

test("stdin of the main process takes turns with its output", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["sh", "-c", "while read -r l; do echo \"got $l\"; done; echo bye"] }, async (sb) => {
        const reader = sb.stdout.getReader();
        let seen = "";
        for (let i = 0; i < 3; i++) {
            await sb.stdin.writeText(`${i}\n`);
            while (!seen.includes(`got ${i}\n`)) {
                const { value, done } = await reader.read();
                assert.ok(!done);
                seen += value;
            }
        }
        await sb.stdin.close();
        assert.equal(await sb.wait(), 0);
    });
});

test("many small writes to stdin stay in order", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["cat"] }, async (sb) => {
        const expected = Array.from({ length: 200 }, (_, i) => `${i}\n`);
        for (const line of expected) {
            await sb.stdin.writeText(line);
        }
        await sb.stdin.close();
        assert.equal(await sb.stdout.readText(), expected.join(""));
    });
});

test("writing to a finished main process is an error", { not: "0.9.0-v2" }, async () => {
    const sb = await create({ command: ["true"] });
    assert.equal(await sb.wait(), 0);
    await rejects(sb.stdin.writeText("late"));
});

test("two readers of the main process see the same", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ command: ["sh", "-c", "seq 1 1000"] }, async (sb) => {
        const other = await client.sandboxes.fromId(sb.sandboxId);
        const [a, b] = await Promise.all([sb.stdout.readText(), other.stdout.readText()]);
        assert.equal(a, b);
        assert.equal(a.trim().split("\n").length, 1000);
        other.detach();
    });
});

test("a terminal for the main process", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ pty: true, command: ["sh", "-c", "test -t 1 && echo tty; echo err >&2"] }, async (sb) => {
        assert.equal(await sb.stdout.readText(), "tty\r\nerr\r\n");
        assert.equal(await sb.stderr.readText(), "");
    });
});

test("the log's tail", { only: "0.11.1" }, async () => {
    await withSandbox({ command: ["sh", "-c", "seq 1 20; echo bad >&2"] }, async (sb) => {
        await sb.wait();
        await sleep(500);
        let text = "";
        for await (const entry of sb.logs.tail({ entries: 100 })) {
            text += entry.message;
        }
        assert.match(text, /1\n2\n3\n/);
        assert.match(text, /bad/);
        text = "";
        for await (const entry of sb.logs.tail({ entries: 100, source: "stderr" })) {
            text += entry.message;
        }
        assert.equal(text.trim(), "bad");
    });
});

test("the log by time", { only: "0.11.1" }, async () => {
    const since = new Date(Date.now() - 60_000);
    await withSandbox({ command: ["sh", "-c", "seq 1 20"] }, async (sb) => {
        await sb.wait();
        await sleep(500);
        let text = "";
        for await (const entry of sb.logs.fetch({ since, source: "stdout" })) {
            text += entry.message;
        }
        assert.equal(text, Array.from({ length: 20 }, (_, i) => `${i + 1}\n`).join(""));
    });
});

await main();
