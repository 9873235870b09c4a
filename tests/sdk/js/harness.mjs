/*
 * harness.mjs - what every JavaScript case file uses: the client, a sandbox in either generation, and test()
 *
 * Run as `node js/NAME.mjs` by tests/sdk/programs.py, which finds the cases by reading the files: each is one line that starts with
 * test("NAME", or long("NAME", and may have { only: "0.11.1" }, { generation: "v2" } or { not: "0.9.0-v2" } before the function.
 * Prints one JSON line a finished case: {"name", "ok", "error", "ms"}. QS_CASES names the chosen ones, one a line.
 */
import assert from "node:assert/strict";
import crypto from "node:crypto";
import fs from "node:fs";

export const modal = await import(process.env.QS_MODAL_MODULE);
export const version = process.env.QS_SDK_VERSION;
export const generation = process.env.QS_GENERATION;
export const isV2 = generation === "v2";
export const imageName = process.env.QS_IMAGE;
export const client = new modal.ModalClient();
export { assert, crypto };

/* Names that no other run uses. */
export const unique = (prefix) => `${prefix}-${crypto.randomBytes(6).toString("hex")}`;
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const sha256 = (data) => crypto.createHash("sha256").update(data).digest("hex");

export const appName = unique("app");
export const app = await client.apps.fromName(appName, { createIfMissing: true });
export const image = client.images.fromRegistry(imageName);

/* 0.11.1 chooses the generation by MODAL_SANDBOX_V2, older ones by the method. */
export function create(params = {}, { inApp = app, by = client, of = image } = {}) {
    const old = version.startsWith("0.9");
    return old && isV2 ? by.sandboxes.experimentalCreate(inApp, of, params) : by.sandboxes.create(inApp, of, params);
}

export function fromName(name, params) {
    const old = version.startsWith("0.9");
    return old && isV2 ? client.sandboxes.experimentalFromName(appName, name, params)
                       : client.sandboxes.fromName(appName, name, params);
}

export function list(params = {}) {
    const old = version.startsWith("0.9");
    return old && isV2 ? client.sandboxes.experimentalList(params) : client.sandboxes.list(params);
}

export async function withSandbox(params, fn, options) {
    const sb = await create(params, options);
    try {
        return await fn(sb);
    } finally {
        await end(sb);
    }
}

/* Older versions detach in terminate(), so that a second one is an error of the client. */
export async function end(sb) {
    await sb.terminate().catch((e) => assert.ok(e instanceof modal.ClientClosedError, e));
}

/* One sandbox for all cases of a file that do not change it. */
let shared = null;
export const sandbox = () => (shared ??= create({ timeoutMs: 900_000 }));

/* Runs to the end; the streams are read while it runs. */
export async function run(sb, argv, params) {
    const p = await sb.exec(argv, params);
    const [stdout, stderr, code] = await Promise.all([p.stdout.readText(), p.stderr.readText(), p.wait()]);
    return { stdout, stderr, code };
}

export async function rejects(promise, kind, text) {
    const names = [].concat(kind).filter(Boolean);
    let error;
    try {
        await promise;
    } catch (e) {
        error = e;
    }
    assert.ok(error, "expected an error, there was none");
    if (names.length > 0) {
        assert.ok(names.some((n) => error instanceof modal[n]), `expected ${names}, got ${error.name}: ${error.message}`);
    }
    if (text) {
        assert.match(`${error.message} ${error.details ?? ""}`, text);
    }
    return error;
}

const chosen = process.env.QS_CASES ? new Set(fs.readFileSync(process.env.QS_CASES, "utf8").split("\n")) : null;
const cases = [];

export function test(name, options, fn = options) {
    if (!chosen || chosen.has(name)) {
        cases.push({ name, fn, alone: options.alone === true, timeoutMs: options.timeoutMs ?? 120_000 });
    }
}
export const long = test;

async function one({ name, fn, timeoutMs }) {
    const start = Date.now();
    let timer;
    let error = null;
    try {
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`not done after ${timeoutMs} ms`)), timeoutMs);
        });
        await Promise.race([fn(), late]);
    } catch (e) {
        error = String(e?.stack ?? e);
    }
    clearTimeout(timer);
    process.stdout.write(JSON.stringify({ name, ok: error === null, error, ms: Date.now() - start }) + "\n");
}

/* The last line of every case file. Cases with { alone: true } run one at a time, the others four at a time. */
export async function main() {
    const side = cases.filter((c) => !c.alone);
    const worker = async () => {
        while (side.length > 0) {
            await one(side.shift());
        }
    };
    await Promise.all([worker(), worker(), worker(), worker()]);
    for (const c of cases.filter((c) => c.alone)) {
        await one(c);
    }
    if (shared) {
        await (await shared).terminate();
    }
    client.close();
    process.exit(0);
}

process.on("unhandledRejection", (e) => {
    process.stderr.write(`unhandled rejection: ${e?.stack ?? e}\n`);
});
