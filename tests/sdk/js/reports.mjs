/* reports.mjs - what users of sandbox platforms reported as broken, tried through this SDK. UR-n is the number of a report. */
import { app, assert, client, create, crypto, end, fromName, isV2, list, long, main, rejects, run, sandbox, sha256, sleep, test, unique,
         version, withSandbox } from "./harness.mjs";

const sh = (script) => ["sh", "-c", script];

async function bytesOf(sb, argv) {
    const p = await sb.exec(argv, { mode: "binary" });
    const [data, code] = await Promise.all([p.stdout.readBytes(), p.wait()]);
    return { data: Buffer.from(data), code };
}

async function feed(sb, argv, data) {
    const p = await sb.exec(argv, { mode: "binary" });
    let error = null;
    try {
        for (let at = 0; at < data.length; at += 1 << 20) {
            await p.stdin.writeBytes(data.subarray(at, at + (1 << 20)));
        }
        await p.stdin.close();
    } catch (e) {
        error = e;
    }
    return { error, code: await p.wait(), stdout: Buffer.from(await p.stdout.readBytes()).toString() };
}

test("UR-005 one line of 8 MiB", { alone: true }, async () => {
    const { stdout } = await run(await sandbox(), sh("head -c 8388608 /dev/zero | tr '\\0' x"));
    assert.equal(stdout.length, 8388608);
});

test("UR-005 a million short lines", { alone: true }, async () => {
    const { stdout } = await run(await sandbox(), ["seq", "1", "1000000"]);
    assert.equal(stdout.length, 6888896);
});

test("UR-006 blank lines and CRLF stay", async () => {
    const { data } = await bytesOf(await sandbox(), ["printf", "a\\n\\n\\nb\\r\\n\\r\\nc"]);
    assert.equal(data.toString("hex"), "610a0a0a620d0a0d0a63");
});

test("UR-007 NUL bytes stay", async () => {
    const sb = await sandbox();
    assert.equal((await bytesOf(sb, ["printf", "A=1\\0B=2\\0"])).data.toString("hex"), Buffer.from("A=1\0B=2\0").toString("hex"));
    const { data } = await bytesOf(sb, sh("head -c 1048576 /dev/urandom | tee /tmp/r"));
    assert.equal(sha256(data), sha256(Buffer.from(await sb.filesystem.readBytes("/tmp/r"))));
});

test("UR-010 nobody reads an endless output", async () => {
    await withSandbox({}, async (sb) => {
        await sb.exec(["yes"]);
        await sleep(2000);
        const start = Date.now();
        assert.equal((await run(sb, ["echo", "ok"])).stdout, "ok\n");
        assert.ok(Date.now() - start < 5000);
    });
});

test("UR-015 64 MiB to stdin", { alone: true }, async () => {
    const data = crypto.randomBytes(64 << 20);
    const r = await feed(await sandbox(), ["sha256sum"], data);
    assert.equal(r.error, null);
    assert.equal(r.stdout.split(" ")[0], sha256(data));
});

test("UR-015 a megabyte to a program that does not read", async () => {
    const r = await feed(await sandbox(), ["true"], crypto.randomBytes(1 << 20));
    assert.equal(r.code, 0);
});

test("UR-015 a megabyte to a program that sleeps", async () => {
    const r = await feed(await sandbox(), ["sleep", "3"], crypto.randomBytes(1 << 20));
    assert.equal(r.code, 0);
});

test("UR-018 a terminal ends cleanly, thirty times", { alone: true }, async () => {
    const sb = await sandbox();
    for (let i = 0; i < 30; i++) {
        const p = await sb.exec(sh("echo bye; exit 7"), { pty: true });
        assert.equal(await p.stdout.readText(), "bye\r\n");
        assert.equal(await p.wait(), 7);
    }
});

test("UR-019 half a character at the end", async () => {
    const { data, code } = await bytesOf(await sandbox(), sh("printf '\\342\\230'; exit 5"));
    assert.deepEqual([data.toString("hex"), code], ["e298", 5]);
});

async function short(count, parallel) {
    const sb = await sandbox();
    let next = 0;
    await Promise.all(Array.from({ length: parallel }, async () => {
        while (next < count) {
            const i = next++;
            assert.deepEqual(await run(sb, sh(`printf %s x${i}; printf %s y${i} >&2; exit ${i % 200}`)),
                             { stdout: `x${i}`, stderr: `y${i}`, code: i % 200 });
        }
    }));
}

test("UR-020 three hundred very short commands", { alone: true }, async () => short(300, 16));
long("UR-020 two thousand very short commands", { only: "0.11.1", generation: "v2", alone: true, timeoutMs: 270_000 }, async () => short(2000, 32));

long("UR-022 a command that is silent for two minutes", { only: "0.11.1", generation: "v2", timeoutMs: 200_000 }, async () => {
    assert.equal((await run(await sandbox(), sh("sleep 120; echo done"))).stdout, "done\n");
});

test("UR-024 what cannot start", async () => {
    const sb = await sandbox();
    await run(sb, sh("printf '#!/nope\\n' >/tmp/nope; chmod 755 /tmp/nope; echo >/tmp/plain"));
    for (const [argv, code, text] of [[["no-such-xyz"], 127, /no-such-xyz/], [["/tmp/plain"], 126, /plain/], [["/tmp"], 126, /tmp/],
                                      [["/tmp/nope"], 127, /nope/], [[""], 127, /./]]) {
        const r = await run(sb, argv).catch((e) => ({ code, stderr: e.message }));
        assert.equal(r.code, code, JSON.stringify(argv));
        assert.match(r.stderr, text);
    }
    assert.equal((await run(sb, sh("no-such-xyz"))).code, 127);
});

test("UR-026 arguments byte for byte", async () => {
    const argv = ["a\nb", "", "  ", "$(id)", "\"'", "é☕", "-n", "*"];
    const { data } = await bytesOf(await sandbox(), ["printf", "%s\\0", ...argv]);
    assert.equal(data.toString(), argv.join("\0") + "\0");
});

test("UR-028 environment values byte for byte", async () => {
    const env = { A: "l1\nl2\n", B: "a\"b'c$HOME`\\", C: "", D: "-n", E: "=x=", F: "f".repeat(100_000) };
    const { data } = await bytesOf(await sandbox(), ["env", "-0"]);
    assert.ok(data.length > 0);
    const p = await (await sandbox()).exec(["env", "-0"], { env, mode: "binary" });
    const seen = new Map(Buffer.from(await p.stdout.readBytes()).toString().split("\0").map((l) => [l.split("=", 1)[0], l]));
    for (const [k, v] of Object.entries(env)) {
        assert.equal(seen.get(k), `${k}=${v}`);
    }
});

test("UR-028 names that are none", async () => {
    for (const env of [{ "A=B": "x" }, { "": "x" }]) {
        await rejects((await sandbox()).exec(["true"], { env }));
    }
});

test("UR-028 a NUL in a value", async () => {
    const sb = await sandbox();
    await rejects(sb.exec(["true"], { env: { A: "x\0y" } }), null, /NUL/);
    await rejects(sb.exec(["echo", "x\0y"]), null, /NUL/);
    await rejects(sb.exec(["true"], { workdir: "/tmp\0x" }), null, /NUL/);
});

test("UR-030 here-documents", async () => {
    const sb = await sandbox();
    assert.equal((await run(sb, sh("cat > /tmp/t <<'EOF'\nline\n  EOF\nEOF\nwc -l </tmp/t"))).stdout.trim(), "2");
    await run(sb, sh("cat <<EOF\nnever ended"));
    assert.equal((await run(sb, ["echo", "ok"])).stdout, "ok\n");
});

test("UR-031 a background child keeps running and holds nothing", async () => {
    const sb = await sandbox(), start = Date.now();
    assert.deepEqual(await run(sb, sh("sleep 311 & echo started")), { stdout: "started\n", stderr: "", code: 0 });
    assert.ok(Date.now() - start < 8000);
    assert.notEqual((await run(sb, sh("grep -lsa 'sleep.31[1]' /proc/[0-9]*/cmdline"))).stdout, "");
});

test("UR-033 a timeout kills the whole group", async () => {
    const sb = await sandbox();
    await run(sb, sh("sleep 1003 >/dev/null 2>&1 </dev/null &"));
    const p = await sb.exec(sh("sleep 1001 & sleep 1002 | cat & trap '' TERM; wait"), { timeoutMs: 2000 });
    assert.equal(await p.wait(), 137);
    await sleep(1000);
    assert.equal((await run(sb, sh("grep -lsa 'sleep.100[12]' /proc/[0-9]*/cmdline | wc -l"))).stdout, "0\n");
    assert.equal((await run(sb, sh("grep -lsa 'sleep.100[3]' /proc/[0-9]*/cmdline | wc -l"))).stdout, "1\n");
});

test("UR-038 without /tmp and /run", async () => {
    await withSandbox({}, async (sb) => {
        await run(sb, sh("rm -rf /tmp /var/tmp /run/*; rm -f /dev/null"));
        assert.equal((await run(sb, ["echo", "ok"])).stdout, "ok\n");
        await sb.filesystem.writeText("still", "/root/f");
        assert.equal(await sb.filesystem.readText("/root/f"), "still");
        const p = await sb.exec(["echo", "tty"], { pty: true });
        assert.equal(await p.stdout.readText(), "tty\r\n");
    });
});

test("UR-041 a command in a sandbox that is ending", async () => {
    const sb = await create({ command: ["true"] });
    const start = Date.now();
    await sb.exec(["sleep", "100"]).then((p) => p.wait()).catch((e) => e);
    assert.ok(Date.now() - start < 10_000);
    await end(sb);
});

test("UR-041 create, run and terminate at once", { alone: true }, async () => {
    await Promise.all(Array.from({ length: 12 }, async () => {
        const sb = await create(), start = Date.now();
        await Promise.all([sb.exec(["true"]).then((p) => p.wait()).catch((e) => e), end(sb)]);
        assert.ok(Date.now() - start < 20_000);
    }));
});

test("UR-042 commands that resist their time limit", async () => {
    const sb = await sandbox();
    const ignore = "import signal,time;[signal.signal(s,signal.SIG_IGN) for s in (1,2,3,15)];time.sleep(99)";
    for (const argv of [sh("kill -STOP 0; sleep 99"), ["python3", "-c", ignore]]) {
        const start = Date.now();
        const p = await sb.exec(argv, { timeoutMs: 3000 });
        assert.equal(await p.wait(), 137);
        const took = Date.now() - start;
        assert.ok(took > 2500 && took < 10_000, `${took} ms`);
    }
    assert.equal((await run(sb, ["echo", "ok"])).stdout, "ok\n");
});

test("UR-051 a main process that ignores SIGTERM", async () => {
    const name = unique("stubborn");
    const command = ["python3", "-c", "import signal,time;signal.signal(15,signal.SIG_IGN);time.sleep(1e6)"];
    const sb = await create({ name, command }), start = Date.now();
    await sb.terminate({ wait: true });
    assert.ok(Date.now() - start < 15_000);
    await end(await create({ name }));
});

test("UR-055 twenty creations with one name", { alone: true }, async () => {
    const name = unique("race");
    const made = await Promise.allSettled(Array.from({ length: 20 }, () => create({ name })));
    const good = made.filter((m) => m.status === "fulfilled");
    assert.equal(good.length, 1, made.filter((m) => m.reason).map((m) => m.reason.message).join("; "));
    made.filter((m) => m.reason).forEach((m) => assert.equal(m.reason.name, "AlreadyExistsError"));
    assert.equal((await fromName(name)).sandboxId, good[0].value.sandboxId);
    await good[0].value.terminate({ wait: true });
    await end(await create({ name }));
});

long("UR-057 two hundred are listed once each while some end", { only: "0.11.1", alone: true, timeoutMs: 270_000 }, async () => {
    const inApp = await client.apps.fromName(unique("app"), { createIfMissing: true });
    const made = [];
    for (let i = 0; i < 10; i++) {
        made.push(...await Promise.all(Array.from({ length: 20 }, () => create({}, { inApp }))));
    }
    const seen = [];
    const ending = new Set(made.slice(0, 20).map((sb) => sb.sandboxId));
    const killing = Promise.all(made.slice(0, 20).map(end));
    for await (const sb of list({ appId: inApp.appId })) {
        seen.push(sb.sandboxId);
    }
    await killing;
    assert.equal(new Set(seen).size, seen.length);
    made.forEach((sb) => assert.ok(seen.includes(sb.sandboxId) || ending.has(sb.sandboxId)));
    await Promise.all(made.slice(20).map(end));
});

test("UR-065 special files", async () => {
    const sb = await sandbox(), f = sb.filesystem;
    await run(sb, sh("mkfifo /tmp/fifo"));
    for (const path of ["/tmp/fifo", "/dev/zero"]) {
        const start = Date.now();
        await rejects(f.readBytes(path), "SandboxFilesystemError");
        assert.ok(Date.now() - start < 8000, path);
    }
    assert.match(await f.readText("/proc/self/status"), /^Name:/);
});

test("UR-067 odd content", async () => {
    const f = (await sandbox()).filesystem;
    for (const data of [crypto.randomBytes(1 << 20), Buffer.from("\ufeffBOM"), Buffer.from([0xed, 0xa0, 0x80, 0xff, 0xfe, 0]),
                        Buffer.from("\"'\\ $x `id`\nEOF\n\0")]) {
        await f.writeBytes(data, "/tmp/odd.json");
        assert.deepEqual(Buffer.from(await f.readBytes("/tmp/odd.json")), data);
    }
});

test("UR-068 parallel writes into one new directory", { alone: true }, async () => {
    const f = (await sandbox()).filesystem, d = `/tmp/${unique("new")}/e/f`;
    await Promise.all(Array.from({ length: 32 }, (_, i) => f.writeText(String(i), `${d}/${i}`)));
    assert.equal((await f.listFiles(d)).length, 32);
    await Promise.all(Array.from({ length: 16 }, () => f.makeDirectory(`${d}/x/y`)));
});

test("UR-069 a written file is there for the next command", { alone: true }, async () => {
    const sb = await sandbox();
    for (let i = 0; i < 40; i++) {
        const data = crypto.randomBytes(1000 + i);
        await sb.filesystem.writeBytes(data, "/tmp/now");
        assert.equal((await run(sb, ["sha256sum", "/tmp/now"])).stdout.split(" ")[0], sha256(data));
    }
});

test("UR-070 readers never see half a file", { alone: true }, async () => {
    const sb = await sandbox();
    const [a, b] = ["A", "B"].map((c) => Buffer.alloc(4 << 20, c));
    await sb.filesystem.writeBytes(a, "/tmp/whole");
    const p = await sb.exec(sh("while [ ! -e /tmp/stop ]; do sha256sum </tmp/whole; done"));
    for (let i = 0; i < 10; i++) {
        await sb.filesystem.writeBytes(i % 2 ? a : b, "/tmp/whole");
    }
    await sb.filesystem.writeText("", "/tmp/stop");
    const seen = new Set((await p.stdout.readText()).trim().split("\n").map((l) => l.split(" ")[0]));
    assert.ok([...seen].every((h) => h === sha256(a) || h === sha256(b)));
    assert.equal((await run(sb, sh("ls -A /tmp | grep -c whole"))).stdout, "1\n");
});

test("UR-071 errors of names and loops", async () => {
    const sb = await sandbox(), f = sb.filesystem;
    await run(sb, sh("ln -sf loop /tmp/loop"));
    await rejects(f.readText("/tmp/loop"), "SandboxFilesystemError");
    await rejects(f.writeText("x", `/tmp/${"n".repeat(300)}`), "SandboxFilesystemError");
    await rejects(f.writeText("x", "/proc/version"), "SandboxFilesystemError");
});

test("UR-072 a tree made at once under a recursive watch", { alone: true }, async () => {
    const sb = await sandbox(), f = sb.filesystem, w = `/tmp/${unique("w")}`;
    await f.makeDirectory(w);
    const seen = new Set();
    const watching = (async () => {
        for await (const e of f.watch(w, { recursive: true, timeoutMs: 30_000 })) {
            e.paths.forEach((p) => seen.add(p));
            if (seen.has(`${w}/last`)) {
                break;
            }
        }
    })();
    await sleep(1000);
    await run(sb, sh(`cd ${w}; mkdir -p a/b/c && touch a/b/c/f; sleep 1; mv a z; sleep 1; touch z/b/c/g; sleep 1`));
    await f.writeText("x", `${w}/api`);
    await run(sb, ["touch", `${w}/last`]);
    await watching;
    for (const path of ["a/b/c/f", "z/b/c/g", "api"]) {
        assert.ok(seen.has(`${w}/${path}`), `${path} is not among ${[...seen].join(" ")}`);
    }
});

test("UR-075 what must not be removed", async () => {
    const f = (await sandbox()).filesystem;
    await rejects(f.remove("/", { recursive: true }));
    await rejects(f.remove("/proc", { recursive: true }));
    assert.ok((await f.listFiles("/")).length > 5);
});

test("UR-060 tags with other alphabets", { not: "0.9.0-v2" }, async () => {
    await withSandbox({ tags: { schlüssel: "wért" } }, async (sb) => {
        assert.deepEqual(await sb.getTags(), { "schlüssel": "wért" });
    }).catch((e) => assert.match(e.message, /tag/i));
});

test("UR-056 names at the limits", async () => {
    for (const name of [`n${crypto.randomBytes(8).toString("hex")}`.padEnd(64, "x"), unique("a--b-"), unique("UPPER.x_y")]) {
        await withSandbox({ name }, async (sb) => {
            assert.equal((await fromName(name)).sandboxId, sb.sandboxId);
            assert.ok((await run(sb, ["hostname"])).stdout.length <= 64);
        });
    }
    for (const name of ["x".repeat(65), "é", "a/b", "x\n", `ap-${"0".repeat(22)}`]) {
        await rejects(create({ name }));
    }
});

test("UR-017 a terminal is a terminal", async () => {
    const sb = await sandbox();
    const p = await sb.exec(sh("tty; stty size; trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done"), { pty: true });
    let seen = "", sent = false;
    for await (const chunk of p.stdout) {
        seen += chunk;
        if (!sent && seen.includes("ready")) {
            sent = true;
            await p.stdin.writeText("\x03");
        }
    }
    assert.match(seen, /^\/dev\/pts\/\d+\r\n[1-9]\d* [1-9]\d*\r\nready\r\n(\^C)?interrupted\r\n$/);
    assert.equal(await p.wait(), 9);
});

test("UR-035 many exits at once keep their codes", { alone: true }, async () => {
    const sb = await sandbox();
    const codes = Array.from({ length: 100 }, (_, i) => (i * 7) % 256);
    assert.deepEqual(await Promise.all(codes.map(async (code) => (await sb.exec(sh(`exit ${code}`))).wait())), codes);
});

test("UR-036 start-up files are not read", async () => {
    await withSandbox({}, async (sb) => {
        await run(sb, sh("for f in .bashrc .profile .bash_profile .zshenv; do echo 'read x; exit 3' >/root/$f; done"));
        assert.deepEqual(await run(sb, ["echo", "ok"]), { stdout: "ok\n", stderr: "", code: 0 });
        assert.equal((await run(sb, sh("echo ok"))).stdout, "ok\n");
        assert.equal((await run(sb, ["bash", "-c", "echo ok"])).stdout, "ok\n");
    });
});

test("UR-044 times and resources that are none", async () => {
    const name = unique("none");
    for (const params of [{ timeoutMs: -1000 }, { timeoutMs: 1500 }, { idleTimeoutMs: -1000 }, { cpu: -0.5 }, { cpu: Number.NaN },
                          { memoryMiB: -1 }, { memoryMiB: 2 ** 53 }]) {
        await rejects(create({ name, ...params }));
    }
    await withSandbox({ name }, async (sb) => assert.equal((await run(sb, ["echo", "ok"])).stdout, "ok\n"));
    await rejects((await sandbox()).exec(["true"], { timeoutMs: -1000 }));
    await rejects((await sandbox()).exec(["true"], { timeoutMs: 0 }));
});

test("UR-045 times that are very long", async () => {
    for (const timeoutMs of [86_400_000, (2 ** 31 - 1) * 1000, (2 ** 32 + 5) * 1000]) {
        const made = await create({ timeoutMs }).catch((e) => e);
        if (made instanceof Error) {
            assert.match(made.message, /timeout|invalid uint32: 4294967301/i);
            assert.ok(timeoutMs > 86_400_000);
        } else {
            await sleep(6000);
            assert.equal(await made.poll(), null);
            await end(made);
        }
    }
    const sb = await sandbox();
    for (const timeoutMs of [86_400_000, (2 ** 32 + 2) * 1000]) {
        const r = await run(sb, sh("sleep 3; echo done"), { timeoutMs }).catch((e) => e);
        assert.ok(r instanceof Error ? /timeout|invalid uint32/i.test(r.message) : r.stdout === "done\n", String(r?.message ?? r?.code));
    }
});

test("UR-049 terminate, run and tag at once", { alone: true }, async () => {
    for (let i = 0; i < 12; i++) {
        const sb = await create();
        const later = (fn) => sleep(crypto.randomInt(50)).then(fn).catch((e) => e);
        const done = await Promise.all([later(() => sb.exec(["true"]).then((p) => p.wait())), later(() => sb.terminate({ wait: true })),
                                        version.startsWith("0.9") && isV2 ? 137 : later(() => sb.setTags({ a: "b" }))]);
        assert.equal(done[1], 137, String(done[1]));
        done.forEach((d) => assert.ok(!(d instanceof Error) || !/internal/i.test(d.message), String(d)));
    }
});

test("UR-052 the main process is told before it is killed", { not: "0.9.0-v2" }, async () => {
    const sb = await create({ command: sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done") });
    const reader = sb.stdout.getReader();
    assert.equal((await reader.read()).value, "ready\n");
    const ending = (await client.sandboxes.fromId(sb.sandboxId)).terminate({ wait: true });
    let rest = "";
    for (let r = await reader.read(); !r.done; r = await reader.read()) {
        rest += r.value;
    }
    assert.equal(rest, "bye\n");
    await ending;
});

test("UR-061 tags belong to the user alone", { not: "0.9.0-v2" }, async () => {
    const tags = { app: "ap-0000000000000000000000", app_id: "x", name: "other", "quicksand.app": "x", modal: "y" };
    await withSandbox({ tags }, async (sb) => {
        assert.deepEqual(await sb.getTags(), tags);
        const seen = [];
        for await (const s of list({ appId: app.appId, tags: { app_id: "x" } })) {
            seen.push(s.sandboxId);
        }
        assert.deepEqual(seen, [sb.sandboxId]);
        await rejects(fromName("other"), "NotFoundError");
    }).catch((e) => assert.match(e.message, /tag/i));
});

test("UR-067 text that is none", async () => {
    const f = (await sandbox()).filesystem;
    await f.writeBytes(Buffer.from([0x61, 0xff, 0x62]), "/tmp/latin");
    const text = await f.readText("/tmp/latin").catch((e) => e);
    assert.ok(text instanceof Error || text === "a\ufffdb", String(text));
});

test("UR-068 a directory over a file", async () => {
    const f = (await sandbox()).filesystem, p = `/tmp/${unique("plain")}`;
    await f.writeText("x", p);
    await rejects(f.makeDirectory(p), ["SandboxFilesystemPathAlreadyExistsError", "SandboxFilesystemNotADirectoryError"]);
    await rejects(f.makeDirectory(`${p}/below`), "SandboxFilesystemNotADirectoryError");
    assert.equal(await f.readText(p), "x");
});

test("UR-071 each error has its class", async () => {
    const sb = await sandbox(), f = sb.filesystem, d = `/tmp/${unique("errors")}`;
    await f.writeText("x", `${d}/file`);
    await rejects(f.readText(`${d}/no`), "SandboxFilesystemNotFoundError");
    await rejects(f.readText(d), "SandboxFilesystemIsADirectoryError");
    await rejects(f.listFiles(`${d}/file`), "SandboxFilesystemNotADirectoryError");
    await rejects(f.remove(d), "SandboxFilesystemDirectoryNotEmptyError");
    await rejects(f.makeDirectory(d, { createParents: false }), "SandboxFilesystemPathAlreadyExistsError");
});

test("UR-073 a burst of changes is not lost without a word", { alone: true }, async () => {
    const sb = await sandbox(), f = sb.filesystem, w = `/tmp/${unique("burst")}`;
    await f.makeDirectory(w);
    const seen = new Set();
    const watching = (async () => {
        for await (const e of f.watch(w, { recursive: true, timeoutMs: 60_000 })) {
            e.paths.forEach((p) => seen.add(p));
            if (seen.size < 100) {
                await sleep(5);
            }
            if (seen.has(`${w}/last`)) {
                break;
            }
        }
    })().catch((e) => e);
    await sleep(1000);
    await run(sb, sh(`cd ${w}; i=0; while [ $i -lt 5000 ]; do : >n$i; i=$((i+1)); done; sleep 1; : >last`));
    const failed = await watching;
    assert.ok(failed instanceof Error || seen.size === 5001, `${seen.size} of 5001 files were seen`);
});

test("UR-075 a link is removed, not what it leads to", async () => {
    const sb = await sandbox(), f = sb.filesystem, d = `/tmp/${unique("kept")}`;
    await f.writeText("x", `${d}/file`);
    await run(sb, ["ln", "-s", d, `${d}.link`]);
    await f.remove(`${d}.link`, { recursive: true });
    assert.equal(await f.readText(`${d}/file`), "x");
    await rejects(f.remove(""));
    await rejects(f.remove(`${d}/..`, { recursive: true }));
});

await main();
