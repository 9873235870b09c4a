/* files.mjs - sandbox.filesystem: every operation, every error class. */
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { assert, create, crypto, long, main, modal, rejects, run, sandbox, sha256, sleep, test, unique } from "./harness.mjs";

const where = () => `/tmp/${unique("f")}`;
const local = () => path.join(os.tmpdir(), unique("qs-local"));
async function filesystem() {
    return (await sandbox()).filesystem;
}

test("text comes back as it was written", async () => {
    const f = await filesystem(), p = where();
    await f.writeText("hello ü€🎈\n", p);
    assert.equal(await f.readText(p), "hello ü€🎈\n");
});

test("bytes come back as they were written", async () => {
    const f = await filesystem(), p = where(), data = crypto.randomBytes(300_000);
    await f.writeBytes(data, p);
    assert.deepEqual(Buffer.from(await f.readBytes(p)), data);
});

test("an empty file", async () => {
    const f = await filesystem(), p = where();
    await f.writeText("", p);
    assert.equal(await f.readText(p), "");
    assert.equal((await f.stat(p)).size, 0);
});

test("a file of 20 MiB, equal by its hash", { alone: true }, async () => {
    const f = await filesystem(), p = where(), data = crypto.randomBytes(20 << 20);
    await f.writeBytes(data, p);
    assert.equal((await run(await sandbox(), ["sha256sum", p])).stdout.split(" ")[0], sha256(data));
    assert.equal(sha256(Buffer.from(await f.readBytes(p))), sha256(data));
    await f.remove(p);
});

test("writing replaces what was there and keeps the mode", async () => {
    const f = await filesystem(), p = where();
    await f.writeText("a longer text that goes", p);
    await run(await sandbox(), ["chmod", "750", p]);
    await f.writeText("short", p);
    assert.equal(await f.readText(p), "short");
    assert.equal((await f.stat(p)).permissions, "0750");
});

test("writing makes missing parents", async () => {
    const f = await filesystem(), p = `${where()}/a/b/c.txt`;
    await f.writeText("deep", p);
    assert.equal(await f.readText(p), "deep");
});

test("writing follows a link", async () => {
    const f = await filesystem(), p = where();
    await run(await sandbox(), ["sh", "-c", `echo old >${p}.target; ln -s ${p}.target ${p}`]);
    await f.writeText("new", p);
    assert.equal(await f.readText(`${p}.target`), "new");
    assert.equal((await f.stat(p)).type, "symlink");
});

test("names with spaces, quotes and umlauts", async () => {
    const f = await filesystem(), p = `${where()}/a b'"\\ ü`;
    await f.writeText("odd", p);
    assert.equal(await f.readText(p), "odd");
    assert.equal((await f.listFiles(path.posix.dirname(p)))[0].name, "a b'\"\\ ü");
});

test("stat of a file", async () => {
    const f = await filesystem(), p = where();
    await f.writeText("12345", p);
    const s = await f.stat(p);
    assert.deepEqual([s.name, s.path, s.type, s.size, s.permissions, s.owner, s.group],
                     [path.posix.basename(p), p, "file", 5, "0644", "root", "root"]);
    assert.equal(s.mode & 0o170000, 0o100000);
    assert.ok(Math.abs(s.modifiedTime - Date.now() / 1000) < 120);
    assert.equal(s.symlinkTarget ?? null, null);
});

test("stat of a link does not follow it", async () => {
    const f = await filesystem(), p = where();
    await run(await sandbox(), ["ln", "-s", "/nowhere", p]);
    const s = await f.stat(p);
    assert.deepEqual([s.type, s.symlinkTarget], ["symlink", "/nowhere"]);
});

test("listing is sorted and has direct children only", async () => {
    const f = await filesystem(), d = where();
    await f.writeText("1", `${d}/b`);
    await f.writeText("22", `${d}/a`);
    await f.writeText("3", `${d}/c/inner`);
    await run(await sandbox(), ["ln", "-s", "/nowhere", `${d}/d`]);
    const entries = await f.listFiles(d);
    assert.deepEqual(entries.map((e) => [e.name, e.type]), [["a", "file"], ["b", "file"], ["c", "directory"], ["d", "symlink"]]);
    assert.equal(entries[0].path, `${d}/a`);
    assert.equal(entries[0].size, 2);
});

test("listing an empty directory", async () => {
    const f = await filesystem(), d = where();
    await f.makeDirectory(d);
    assert.deepEqual(await f.listFiles(d), []);
});

test("listing a thousand files", { alone: true }, async () => {
    const f = await filesystem(), d = where();
    await run(await sandbox(), ["sh", "-c", `mkdir ${d}; cd ${d}; seq -f n%04g 1 1000 | xargs touch`]);
    const names = (await f.listFiles(d)).map((e) => e.name);
    assert.deepEqual(names, Array.from({ length: 1000 }, (_, i) => `n${String(i + 1).padStart(4, "0")}`));
});

test("a directory with its parents, twice", async () => {
    const f = await filesystem(), d = `${where()}/x/y`;
    await f.makeDirectory(d);
    await f.makeDirectory(d);
    assert.equal((await f.stat(d)).type, "directory");
});

test("a directory without its parents", async () => {
    const f = await filesystem(), d = where();
    await f.makeDirectory(d, { createParents: false });
    await rejects(f.makeDirectory(d, { createParents: false }), "SandboxFilesystemPathAlreadyExistsError");
    await rejects(f.makeDirectory(`${d}/no/parent`, { createParents: false }), "SandboxFilesystemNotFoundError");
});

test("remove a file, a link, a directory and a tree", async () => {
    const f = await filesystem(), d = where();
    await f.writeText("1", `${d}/tree/deep/file`);
    await f.writeText("1", `${d}/file`);
    await f.makeDirectory(`${d}/empty`);
    await run(await sandbox(), ["ln", "-s", `${d}/tree`, `${d}/link`]);
    await f.remove(`${d}/file`);
    await f.remove(`${d}/empty`);
    await f.remove(`${d}/link`);
    assert.equal((await f.stat(`${d}/tree/deep/file`)).size, 1);
    await f.remove(`${d}/tree`, { recursive: true });
    assert.deepEqual(await f.listFiles(d), []);
});

test("copies from and to here", async () => {
    const f = await filesystem(), p = where(), from = local(), to = path.join(local(), "deep", "file"), data = crypto.randomBytes(100_000);
    fs.writeFileSync(from, data);
    await f.copyFromLocal(from, p);
    await f.copyToLocal(p, to);
    assert.deepEqual(fs.readFileSync(to), data);
    fs.rmSync(from);
    fs.rmSync(path.dirname(path.dirname(to)), { recursive: true });
});

test("what is not there: read, list, stat, remove", async () => {
    const f = await filesystem(), p = where();
    await rejects(f.readText(p), "SandboxFilesystemNotFoundError");
    await rejects(f.readBytes(p), "SandboxFilesystemNotFoundError");
    await rejects(f.listFiles(p), "SandboxFilesystemNotFoundError");
    await rejects(f.stat(p), "SandboxFilesystemNotFoundError");
    await rejects(f.remove(p), "SandboxFilesystemNotFoundError");
    await rejects(f.remove(p, { recursive: true }), "SandboxFilesystemNotFoundError");
});

test("a directory is not a file: read, write", async () => {
    const f = await filesystem();
    await rejects(f.readText("/tmp"), "SandboxFilesystemIsADirectoryError");
    await rejects(f.writeText("x", "/tmp"), "SandboxFilesystemIsADirectoryError");
});

test("a file is not a directory: list, stat, write, mkdir below it", async () => {
    const f = await filesystem(), p = where();
    await f.writeText("x", p);
    await rejects(f.listFiles(p), "SandboxFilesystemNotADirectoryError");
    await rejects(f.stat(`${p}/below`), "SandboxFilesystemNotADirectoryError");
    await rejects(f.writeText("x", `${p}/below`), "SandboxFilesystemNotADirectoryError");
    await rejects(f.makeDirectory(`${p}/below`), "SandboxFilesystemNotADirectoryError");
    await rejects(f.makeDirectory(p), "SandboxFilesystemPathAlreadyExistsError");
});

test("a directory that is not empty stays", async () => {
    const f = await filesystem(), d = where();
    await f.writeText("x", `${d}/x`);
    await rejects(f.remove(d), "SandboxFilesystemDirectoryNotEmptyError");
    assert.equal((await f.listFiles(d)).length, 1);
});

test("a path that is not absolute is refused", async () => {
    const f = await filesystem();
    await rejects(f.readText("relative/path"), "InvalidError");
});

test("files of /proc can be read", async () => {
    assert.match(await (await filesystem()).readText("/proc/self/status"), /^Name:/);
});

test("a write that is refused changes nothing", async () => {
    const f = await filesystem(), d = where();
    await f.writeText("kept", `${d}/file`);
    await rejects(f.writeText("x", `${d}/file/below`));
    assert.equal(await f.readText(`${d}/file`), "kept");
});

test("file operations on an ended sandbox fail soon", async () => {
    const sb = await create();
    await sb.terminate({ wait: true });
    const start = Date.now();
    await rejects((await client()).sandboxes.fromId(sb.sandboxId).then((s) => s.filesystem.readText("/etc/passwd")));
    assert.ok(Date.now() - start < 10_000);
});

async function client() {
    return (await import("./harness.mjs")).client;
}

async function watched(params, act, enough) {
    const f = await filesystem(), d = where();
    await f.makeDirectory(`${d}/sub`);
    const events = [];
    const reading = (async () => {
        for await (const e of f.watch(d, { timeoutMs: 20_000, ...params })) {
            events.push(e);
            if (enough(events, d)) {
                break;
            }
        }
    })();
    for (let i = 0; i < 40 && !enough(events, d); i++) {
        await sleep(250);
        await act(f, d, i);
    }
    await reading;
    return { events, d };
}

test("watch tells what is made", async () => {
    const { events, d } = await watched({}, (f, dir, i) => f.writeText("x", `${dir}/made-${i}`),
                                        (all) => all.some((e) => e.eventType === "Create" || e.eventType === "Modify"));
    assert.ok(events.every((e) => e.paths.every((p) => p.startsWith(d))), JSON.stringify(events));
});

test("watch with a filter tells only that", async () => {
    const { events } = await watched({ filter: ["Remove"] }, async (f, dir, i) => {
        await f.writeText("x", `${dir}/gone-${i}`);
        await f.remove(`${dir}/gone-${i}`);
    }, (all) => all.length > 0);
    assert.deepEqual([...new Set(events.map((e) => e.eventType))], ["Remove"]);
});

test("watch with recursive looks below", async () => {
    const below = (e, d) => e.paths.some((p) => p.startsWith(`${d}/sub/`));
    const { events, d } = await watched({ recursive: true }, (f, dir, i) => f.writeText("x", `${dir}/sub/n-${i}`),
                                        (all, dir) => all.some((e) => below(e, dir)));
    assert.ok(events.some((e) => below(e, d)));
});

test("watch ends after its time", async () => {
    const f = await filesystem(), start = Date.now();
    for await (const e of f.watch("/usr", { timeoutMs: 2000 })) {
        assert.ok(e);
    }
    const took = Date.now() - start;
    assert.ok(took > 1000 && took < 10_000, `${took} ms`);
});

test("watch of what is not there", async () => {
    const f = await filesystem();
    await rejects((async () => {
        for await (const e of f.watch(where(), { timeoutMs: 3000 })) {
            assert.fail(JSON.stringify(e));
        }
    })(), "SandboxFilesystemNotFoundError");
});

test("a watch that is left stops its command", async () => {
    const sb = await sandbox();
    const { d } = await watched({}, (f, dir, i) => f.writeText("x", `${dir}/n-${i}`), (all) => all.length > 0);
    await sleep(1000);
    const pattern = `${d.slice(0, -1)}[${d.slice(-1)}]`;
    assert.equal((await run(sb, ["sh", "-c", `grep -lsa '${pattern}' /proc/[0-9]*/cmdline | wc -l`])).stdout, "0\n");
});

test("twenty operations at once", { alone: true }, async () => {
    const f = await filesystem(), d = where();
    await Promise.all(Array.from({ length: 20 }, async (_, i) => {
        await f.writeText(String(i), `${d}/n${i}`);
        assert.equal(await f.readText(`${d}/n${i}`), String(i));
    }));
    assert.equal((await f.listFiles(d)).length, 20);
});

test("an error is a SandboxFilesystemError", async () => {
    const e = await rejects((await filesystem()).readText(where()));
    assert.ok(e instanceof modal.SandboxFilesystemError);
});

long("a file of 300 MiB there and back", { only: "0.11.1", generation: "v2", alone: true, timeoutMs: 270_000 }, async () => {
    const f = await filesystem(), p = where(), from = local(), to = local();
    const hash = crypto.createHash("sha256");
    const out = fs.openSync(from, "w");
    for (let i = 0; i < 300; i++) {
        const piece = crypto.randomBytes(1 << 20);
        hash.update(piece);
        fs.writeSync(out, piece);
    }
    fs.closeSync(out);
    await f.copyFromLocal(from, p);
    const sum = hash.digest("hex");
    assert.equal((await run(await sandbox(), ["sha256sum", p])).stdout.split(" ")[0], sum);
    await f.copyToLocal(p, to);
    assert.equal(sha256(fs.readFileSync(to)), sum);
    [from, to].forEach((x) => fs.rmSync(x));
    await f.remove(p);
});

await main();
