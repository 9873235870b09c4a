/*
 * sdk.mjs - Modal's published JavaScript client as a contender of the benchmark suite
 *
 * Started by bench/sdk.c, which writes one command a line and reads one answer a line:
 *   exec    `true` in one live sandbox: started and waited for          -> "ok MS" or "failed REASON"
 *   life N  create, and the first output of a command with the text N; the sandbox is ended afterwards, outside of the time
 * Times are taken here, so the pipe to this program is not in them. BENCH_SDK_MODULE is the client's index.js. One client, so one
 * connection to the control plane, and one to the command router for each sandbox.
 */
import readline from "node:readline";

const { ModalClient } = await import(process.env.BENCH_SDK_MODULE);
const client = new ModalClient({ logLevel: "error" });
const app = await client.apps.fromName("bench", { createIfMissing: true });
const image = await client.images.fromRegistry("base").build(app);
const create = () => client.sandboxes.create(app, image, { timeoutMs: 1_800_000 });
const live = await create();

async function exec() {
    const start = performance.now();
    const p = await live.exec(["/bin/true"]);
    const code = await p.wait();
    const ms = performance.now() - start;
    if (code !== 0) {
        throw new Error(`true ended with ${code}`);
    }
    return ms;
}

async function life(nonce) {
    const start = performance.now();
    const sb = await create();
    try {
        const p = await sb.exec(["/bin/echo", "-n", nonce]);
        const text = await p.stdout.readText();
        const ms = performance.now() - start;
        if (text !== nonce) {
            throw new Error(`echo said ${JSON.stringify(text)}`);
        }
        return ms;
    } finally {
        await sb.terminate();
    }
}

process.stdout.write("ready\n");
for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, nonce] = line.split(" ");
    const answer = await (command === "exec" ? exec() : life(nonce)).then((ms) => `ok ${ms.toFixed(4)}`,
                                                                          (e) => `failed ${String(e.message).split("\n")[0]}`);
    process.stdout.write(`${answer}\n`);
}
await live.terminate();
client.close();
process.exit(0);
