# Threads, children, a cluster, servers, watches, timers.
# as: root dev
cd "$(mktemp -d)"
cat >a.js <<'C'
const { Worker, isMainThread, parentPort } = require('worker_threads');
const cp = require('child_process'), http = require('http'), fs = require('fs'), os = require('os'), crypto = require('crypto'), net = require('net');
const cluster = require('cluster'), assert = require('assert');
if (!isMainThread) { parentPort.postMessage(6 * 7); }
else if (process.argv[2] === 'child') { process.on('message', m => { process.send(m + 1); process.disconnect(); }); }
else if (cluster.isWorker) { http.createServer((q, r) => r.end(String(process.pid))).listen(0, 'localhost', function () { process.send(this.address().port); }); }
else (async () => {
    const once = (o, e) => new Promise((ok, no) => { o.once(e, ok); o.once('error', no); });
    assert.strictEqual(await once(new Worker(__filename), 'message'), 42);
    const child = cp.fork(__filename, ['child']);
    child.send(1);
    assert.strictEqual(await once(child, 'message'), 2);
    assert.strictEqual(cp.execSync('echo $0 | cat').toString(), '/bin/sh\n');
    const w = cluster.fork();
    const port = await once(w, 'message');
    assert.strictEqual(Number(await (await fetch(`http://localhost:${port}/`)).text()), w.process.pid);
    w.kill();
    await once(w, 'exit');
    const watched = once(fs.watch('.'), 'change');
    fs.writeFileSync('new', 'x');
    await watched;
    const s = net.createServer(c => c.pipe(c)).listen('sock');
    await once(s, 'listening');
    const c = net.connect('sock');
    c.write('echo');
    assert.strictEqual((await once(c, 'data')).toString(), 'echo');
    assert.ok(os.cpus().length > 0 && os.totalmem() > 0 && os.networkInterfaces().lo && os.userInfo().username);
    await new Promise(ok => crypto.pbkdf2('a', 'b', 1000, 32, 'sha256', ok));
    console.log('all well');
    process.exit(0);
})();
C
[ "$(node a.js)" = "all well" ]
[ "$(node --max-old-space-size=64 -e 'console.log(process.version.startsWith("v"))')" = true ]
[ "$(echo 'console.log(1)' | node)" = 1 ]
