/* exec.mjs - commands in a running sandbox: exit codes, streams in every mode, stdin, environment, timeouts, terminals, many at once. */
import { assert, client, crypto, long, main, rejects, run, sandbox, sha256, sleep, test, withSandbox } from "./harness.mjs";

test("stdout and stderr are apart", async () => {
    assert.deepEqual(await run(await sandbox(), ["sh", "-c", "echo out; echo err >&2; exit 3"]),
                     { stdout: "out\n", stderr: "err\n", code: 3 });
});

test("arguments arrive as they are", async () => {
    const args = ["a b", "", "*", "$HOME", "ü€🎈", "-n", "tab\there", "new\nline", "'\""];
    const r = await run(await sandbox(), ["printf", "%s|", "x", ...args]);
    assert.equal(r.stdout, ["x", ...args].join("|") + "|");
});

test("the exit codes 0, 1, 2, 126, 255", async () => {
    for (const code of [0, 1, 2, 126, 255]) {
        assert.equal((await run(await sandbox(), ["sh", "-c", `exit ${code}`])).code, code);
    }
});

test("a signal gives 128 + n", async () => {
    assert.equal((await run(await sandbox(), ["sh", "-c", "kill -9 $$"])).code, 137);
    assert.equal((await run(await sandbox(), ["sh", "-c", "kill -TERM $$"])).code, 143);
});

test("a program that does not exist says so", async () => {
    const outcome = await (async () => {
        const r = await run(await sandbox(), ["no-such-program-here"]);
        return r.code === 127 && r.stderr.length > 0 ? "code" : JSON.stringify(r);
    })().catch((e) => (/no-such-program-here/.test(e.message) ? "error" : e.message));
    assert.ok(["code", "error"].includes(outcome), outcome);
});

test("a file that may not be executed says so", async () => {
    const sb = await sandbox();
    await run(sb, ["sh", "-c", "echo hi >/tmp/plain; chmod 644 /tmp/plain"]);
    const outcome = await run(sb, ["/tmp/plain"]).then((r) => r.code, () => 126);
    assert.equal(outcome, 126);
});

test("workdir of a command", async () => {
    assert.equal((await run(await sandbox(), ["pwd"], { workdir: "/usr" })).stdout, "/usr\n");
});

test("a workdir that does not exist is an error", async () => {
    const outcome = await run(await sandbox(), ["true"], { workdir: "/no/such/dir" }).then((r) => r.code, () => "error");
    assert.ok(outcome === "error" || outcome !== 0);
});

test("env of a command, for it alone", async () => {
    const sb = await sandbox();
    assert.equal((await run(sb, ["printenv", "ONLY_HERE"], { env: { ONLY_HERE: "yes" } })).stdout, "yes\n");
    assert.equal((await run(sb, ["printenv", "ONLY_HERE"])).code, 1);
});

test("secrets of a command", async () => {
    const secret = await client.secrets.fromObject({ PASS: "from secret", OTHER: "other" });
    const r = await run(await sandbox(), ["sh", "-c", "echo $PASS $OTHER"], { secrets: [secret], env: { OTHER: "env wins" } });
    assert.equal(r.stdout, "from secret env wins\n");
});

test("PATH and HOME are set", async () => {
    assert.match((await run(await sandbox(), ["sh", "-c", "echo $PATH:$HOME"])).stdout, /\/bin.*:\/root/);
});

test("binary output arrives as bytes", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "i=0; while [ $i -lt 256 ]; do printf \\\\$(printf %o $i); i=$((i+1)); done"],
                                           { mode: "binary" });
    const bytes = await p.stdout.readBytes();
    assert.deepEqual([...bytes], Array.from({ length: 256 }, (_, i) => i));
    assert.equal(await p.wait(), 0);
});

test("UTF-8 split between chunks stays whole", async () => {
    const text = "äöü€🎈".repeat(20_000);
    const p = await (await sandbox()).exec(["cat"]);
    await p.stdin.writeText(text);
    await p.stdin.close();
    assert.equal(await p.stdout.readText(), text);
});

test("output streams while the command runs", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "echo first; sleep 2; echo second"]);
    const start = Date.now();
    let firstAt = 0;
    let text = "";
    for await (const chunk of p.stdout) {
        firstAt ||= Date.now() - start;
        text += chunk;
    }
    assert.equal(text, "first\nsecond\n");
    assert.ok(firstAt < 1500, `the first chunk came after ${firstAt} ms`);
});

test("the output can be read after the wait", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "echo later; echo too >&2"]);
    assert.equal(await p.wait(), 0);
    assert.equal(await p.stdout.readText(), "later\n");
    assert.equal(await p.stderr.readText(), "too\n");
});

test("a wait does not need anybody to read", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "head -c 5000000 /dev/zero; echo done >&2"], { mode: "binary" });
    assert.equal(await p.wait(), 0);
    assert.equal((await p.stdout.readBytes()).length, 5_000_000);
});

test("wait twice gives the same", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "exit 5"]);
    assert.equal(await p.wait(), 5);
    assert.equal(await p.wait(), 5);
});

test("stdout ignored is empty", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "echo out; echo err >&2"], { stdout: "ignore" });
    assert.equal(await p.stdout.readText(), "");
    assert.equal(await p.stderr.readText(), "err\n");
    assert.equal(await p.wait(), 0);
});

test("stderr ignored is empty", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "echo out; echo err >&2"], { stderr: "ignore" });
    assert.equal(await p.stdout.readText(), "out\n");
    assert.equal(await p.stderr.readText(), "");
    assert.equal(await p.wait(), 0);
});

test("stdin as text", async () => {
    const p = await (await sandbox()).exec(["cat"]);
    await p.stdin.writeText("line 1\n");
    await p.stdin.writeText("line 2\n");
    await p.stdin.close();
    assert.equal(await p.stdout.readText(), "line 1\nline 2\n");
    assert.equal(await p.wait(), 0);
});

test("stdin as bytes, a megabyte", async () => {
    const data = crypto.randomBytes(1 << 20);
    const p = await (await sandbox()).exec(["sha256sum"], { mode: "binary" });
    await p.stdin.writeBytes(data);
    await p.stdin.close();
    const text = new TextDecoder().decode(await p.stdout.readBytes());
    assert.equal(text.split(" ")[0], sha256(data));
});

test("stdin and stdout take turns", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "while read -r l; do echo \"got $l\"; done"]);
    const reader = p.stdout.getReader();
    let seen = "";
    const until = async (text) => {
        while (!seen.includes(text)) {
            const { value, done } = await reader.read();
            assert.ok(!done, `ended after ${seen}`);
            seen += value;
        }
    };
    for (let i = 0; i < 5; i++) {
        await p.stdin.writeText(`${i}\n`);
        await until(`got ${i}\n`);
    }
    await p.stdin.close();
    assert.equal(await p.wait(), 0);
});

test("a command that does not read its stdin ends", async () => {
    const p = await (await sandbox()).exec(["true"]);
    assert.equal(await p.wait(), 0);
    await p.stdin.writeText("nobody reads this").catch(() => {});
});

test("a command that waits for the end of stdin", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "cat >/dev/null; echo closed"]);
    await sleep(200);
    await p.stdin.close();
    assert.equal(await p.stdout.readText(), "closed\n");
});

test("a timeout kills and wait gives 137", async () => {
    const start = Date.now();
    const p = await (await sandbox()).exec(["sleep", "999"], { timeoutMs: 1000 });
    assert.equal(await p.wait(), 137);
    assert.ok(Date.now() - start < 8000);
});

test("a timeout kills what the command started", async () => {
    const sb = await sandbox();
    const p = await sb.exec(["sh", "-c", "sleep 4711 & sleep 4711"], { timeoutMs: 1000 });
    assert.equal(await p.wait(), 137);
    assert.equal((await run(sb, ["sh", "-c", "grep -lsa '471[1]' /proc/[0-9]*/cmdline | wc -l"])).stdout, "0\n");
});

test("a timeout that is not reached changes nothing", async () => {
    assert.deepEqual(await run(await sandbox(), ["echo", "quick"], { timeoutMs: 60_000 }), { stdout: "quick\n", stderr: "", code: 0 });
});

test("a terminal: one stream, a tty, its size", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "test -t 0 && test -t 1 && echo tty; stty size; echo err >&2"], { pty: true });
    const [out, err, code] = await Promise.all([p.stdout.readText(), p.stderr.readText(), p.wait()]);
    assert.match(out, /^tty\r\n\d+ \d+\r\nerr\r\n$/);
    assert.equal(err, "");
    assert.equal(code, 0);
});

test("a terminal has TERM", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "echo term=$TERM"], { pty: true });
    assert.match(await p.stdout.readText(), /^term=\S+\r\n$/);
});

test("a terminal takes input", async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "read -r x; echo \"got $x\""], { pty: true });
    await p.stdin.writeText("typed\n");
    assert.match(await p.stdout.readText(), /got typed\r\n/);
    assert.equal(await p.wait(), 0);
});

test("a background child does not hold the stream", async () => {
    const start = Date.now();
    const p = await (await sandbox()).exec(["sh", "-c", "sleep 100 & echo started"]);
    assert.equal(await p.stdout.readText(), "started\n");
    assert.equal(await p.wait(), 0);
    assert.ok(Date.now() - start < 20_000);
});

test("an empty command is refused", async () => {
    await rejects((await sandbox()).exec([]));
});

test("arguments that are too long are refused", async () => {
    await rejects((await sandbox()).exec(["echo", "x".repeat(70_000)]), "InvalidError");
});

test("fifty at once", { alone: true }, async () => {
    const sb = await sandbox();
    const results = await Promise.all(Array.from({ length: 50 }, (_, i) => run(sb, ["sh", "-c", `echo ${i}; exit ${i}`])));
    results.forEach((r, i) => assert.deepEqual(r, { stdout: `${i}\n`, stderr: "", code: i }));
});

test("a hundred MiB of output, equal by its hash", { alone: true }, async () => {
    const sb = await sandbox();
    await run(sb, ["sh", "-c", "head -c 104857600 /dev/urandom >/tmp/big"]);
    const sum = (await run(sb, ["sha256sum", "/tmp/big"])).stdout.split(" ")[0];
    const p = await sb.exec(["cat", "/tmp/big"], { mode: "binary" });
    const hash = crypto.createHash("sha256");
    let n = 0;
    for await (const chunk of p.stdout) {
        hash.update(chunk);
        n += chunk.length;
    }
    assert.equal(n, 104857600);
    assert.equal(hash.digest("hex"), sum);
    assert.equal(await p.wait(), 0);
    await run(sb, ["rm", "/tmp/big"]);
});

test("a slow reader loses nothing", { alone: true }, async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "seq 1 400000"]);
    let lines = 0;
    let rest = "";
    let pauses = 20;
    for await (const chunk of p.stdout) {
        const parts = (rest + chunk).split("\n");
        rest = parts.pop();
        for (const part of parts) {
            assert.equal(part, String(++lines));
        }
        if (pauses-- > 0) {
            await sleep(50);
        }
    }
    assert.equal(lines, 400000);
    assert.equal(await p.wait(), 0);
});

test("the sandbox's end kills a running command", async () => {
    await withSandbox({}, async (sb) => {
        const p = await sb.exec(["sleep", "999"]);
        const waiting = p.wait().catch((e) => e);
        await sleep(200);
        await sb.terminate();
        const start = Date.now();
        const end = await waiting;
        assert.ok(end instanceof Error || end === 137, String(end));
        assert.ok(Date.now() - start < 15_000);
    });
});

long("an idle connection is used again", { only: "0.11.1", timeoutMs: 120_000 }, async () => {
    const sb = await sandbox();
    await run(sb, ["true"]);
    await sleep(40_000);
    assert.equal((await run(sb, ["echo", "again"])).stdout, "again\n");
});

long("five hundred at once", { only: "0.11.1", alone: true, timeoutMs: 270_000 }, async () => {
    const sb = await sandbox();
    const results = await Promise.all(Array.from({ length: 500 }, (_, i) => run(sb, ["sh", "-c", `echo ${i}`])));
    results.forEach((r, i) => assert.deepEqual(r, { stdout: `${i}\n`, stderr: "", code: 0 }));
});

long("a command longer than a wait's own limit", { only: "0.11.1", timeoutMs: 150_000 }, async () => {
    const p = await (await sandbox()).exec(["sh", "-c", "sleep 75; exit 9"]);
    assert.equal(await p.wait(), 9);
});

await main();
