"""
The node by itself: every method of node.proto against real sandboxes, without control in between.
"""

import hashlib
import io
import os
import signal
import tarfile
import threading
import time

import pytest

from nodeclient import NodeClient, NodeError, NodeSandbox, new_id

RUNNING, ENDED = 2, 4
EXEC_RUNNING, EXEC_EXITED, EXEC_FAILED = 2, 3, 4
END_EXITED, END_SIGNALED, END_TIMEOUT, END_TERMINATED = 1, 2, 5, 7


@pytest.fixture(scope="module")
def node(daemon):
    client = NodeClient(daemon.run_dir)
    yield client
    client.close()


@pytest.fixture(scope="module")
def layers(daemon):
    return daemon.api.get("/v1/images/base").json()["layers"]


@pytest.fixture
def sandbox(node, layers):
    with NodeSandbox(node, layers) as sb:
        yield sb


def sh(script):
    return ["/bin/sh", "-c", script]


def fails(name, call, *args, **kw):
    with pytest.raises(NodeError) as e:
        call(*args, **kw)
    assert e.value.name == name, e.value
    return e.value


def eventually(check, seconds=10):
    give_up = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < give_up, "did not come true"
        time.sleep(0.02)
    return value


# --- sandboxes


def test_idle_sandbox(node, layers):
    with NodeSandbox(node, layers) as sb:
        assert sb.made.state == RUNNING
        assert sb.made.started_ms >= sb.made.created_ms > 0
        assert not sb.made.HasField("entry")
        assert sb.id in [s.sandbox_id for s in node.List().sandboxes]
        assert node.Create(sandbox_id=sb.id, layers=layers).created_ms == sb.made.created_ms
    fails("not_found", node.Get, sandbox_id=sb.id)
    assert sb.id not in [s.sandbox_id for s in node.List().sandboxes]
    node.Destroy(sandbox_id=sb.id)


def test_entry_point(node, layers):
    entry = {"argv": [b"/bin/sh", b"-c", b"echo hello; echo $A >&2; exit 3"], "env": [b"A=own"]}
    with NodeSandbox(node, layers, entry=entry, defaults={"env": ["A=default", "B=b"], "cwd": b"/tmp"}) as sb:
        got = node.Get(sandbox_id=sb.id, wait_ms=10000)
        assert (got.state, got.reason, got.code) == (ENDED, END_EXITED, 3)
        assert (got.entry.state, got.entry.code) == (EXEC_EXITED, 3)
        assert sb.read("entry", 1)[0] == b"hello\n"
        assert sb.read("entry", 2)[0] == b"own\n"
        fails("sandbox_ended", sb.start, ["/bin/true"])
        again = node.Create(sandbox_id=sb.id, layers=layers, entry=entry)
        assert (again.state, again.code) == (ENDED, 3)


def test_entry_point_that_cannot_start(node, layers, daemon):
    for argv, name in ((b"/no/such/program", "executable_not_found"), (b"/etc/passwd", "not_executable"),
                       (b"/etc", "not_executable")):
        sandbox_id = new_id()
        e = fails(name, node.Create, sandbox_id=sandbox_id, layers=layers, entry={"argv": [argv]})
        assert argv.decode() in e.text
        fails("not_found", node.Get, sandbox_id=sandbox_id)
        assert not (daemon.data_dir / "run" / sandbox_id).exists()
        assert not (daemon.data_dir / "node" / sandbox_id).exists()


def test_bad_create(node, layers):
    fails("invalid_argument", node.Create, layers=layers)
    fails("not_found", node.Create, sandbox_id="../../etc", layers=layers)
    fails("invalid_argument", node.Create, sandbox_id=new_id())
    fails("invalid_argument", node.Create, sandbox_id=new_id(), layers=["short"])
    gone = new_id()
    fails("not_found", node.Create, sandbox_id=gone, layers=["0" * 64])
    fails("not_found", node.Get, sandbox_id=gone)
    e = fails("invalid_argument", node.Create, sandbox_id=new_id(), layers=layers, defaults={"env": ["NO"]})
    assert e.param == "defaults.env"
    fails("invalid_argument", node.Create, sandbox_id=new_id(), layers=layers, entry={"argv": []})


def test_terminate(node, layers):
    with NodeSandbox(node, layers) as sb:
        sb.start(sh("echo early; exec sleep 1000"), exec_id="long")
        eventually(lambda: sb.get_exec("long").out_total == 6)
        got = node.Terminate(sandbox_id=sb.id, actor="token-1", wait_ms=20000)
        assert (got.state, got.reason, got.actor) == (ENDED, END_TERMINATED, "token-1")
        assert node.Terminate(sandbox_id=sb.id, wait_ms=1000).ended_ms == got.ended_ms
        assert sb.get_exec("long").state == EXEC_EXITED
        assert sb.read("long")[0] == b"early\n"
        assert [x.exec_id for x in node.ExecList(sandbox_id=sb.id).execs] == ["long"]
        listed = {s.sandbox_id: s for s in node.List().sandboxes}
        assert listed[sb.id].state == ENDED
        fails("sandbox_ended", node.Update, sandbox_id=sb.id, deadline_ms=1)


def test_deadline_and_update(node, layers):
    with NodeSandbox(node, layers, deadline_ms=int(time.time() * 1000) + 3600_000) as sb:
        deadline = int(time.time() * 1000) + 500
        assert node.Update(sandbox_id=sb.id, deadline_ms=deadline).deadline_ms == deadline
        got = node.Get(sandbox_id=sb.id, wait_ms=20000)
        assert (got.state, got.reason) == (ENDED, END_TIMEOUT)
        assert 0 <= got.ended_ms - deadline < 1000


def test_waiting_ends(node, sandbox):
    begun = time.monotonic()
    assert node.Get(sandbox_id=sandbox.id, wait_ms=300).state == RUNNING
    assert 0.25 < time.monotonic() - begun < 5
    sandbox.start(["/bin/sleep", "1000"], exec_id="s")
    begun = time.monotonic()
    assert sandbox.get_exec("s", wait_ms=300).state == EXEC_RUNNING
    assert 0.25 < time.monotonic() - begun < 5


# --- execs


def test_run(sandbox):
    out, err, exited = sandbox.run(sh("echo out; echo err >&2; exit 5"))
    assert (out, err) == (b"out\n", b"err\n")
    assert (exited.state, exited.reason, exited.code, exited.signal) == (EXEC_EXITED, END_EXITED, 5, 0)
    assert (exited.out_total, exited.err_total) == (4, 4)
    out, err, exited = sandbox.run(sh("kill -9 $$"))
    assert (exited.reason, exited.code, exited.signal) == (END_SIGNALED, -1, 9)


def test_run_is_idempotent(sandbox):
    script = sh("echo -n x >> /tmp/count; cat /tmp/count; echo done")
    assert sandbox.run(script, exec_id="once")[0] == b"xdone\n"
    assert sandbox.run(script, exec_id="once")[0] == b"xdone\n"
    assert sandbox.run(script, exec_id="once", stdout_offset=1)[0] == b"done\n"
    assert sandbox.start(script, exec_id="once").state == EXEC_EXITED
    fails("conflict", sandbox.start, sh("other"), exec_id="once")


def test_environment(node, layers):
    defaults = {"env": ["IMAGE=1", "OVER=image"], "cwd": b"/srv/made", "user": "nobody"}
    with NodeSandbox(node, layers, defaults=defaults) as sb:
        out, _, _ = sb.run(["/usr/bin/env"], env=["OVER=own", "NL=a\nb=c"])
        assert b"OVER=own\n" in out and b"IMAGE=1\n" in out and b"NL=a\nb=c\n" in out
        assert b"OVER=image" not in out and b"LANG=C.UTF-8\n" in out and b"HOME=" in out
        assert sb.run(sh("pwd; id -un"))[0] == b"/srv/made\nnobody\n"
        assert sb.run(sh("pwd; id -un"), cwd="/usr", user="root")[0] == b"/usr\nroot\n"


def test_start_failures(sandbox):
    for call in (sandbox.start, sandbox.run):
        fails("executable_not_found", call, ["/no/such"])
        fails("executable_not_found", call, ["no-such-name"])
        fails("not_executable", call, ["/etc/passwd"])
        fails("not_executable", call, ["/etc"])
        assert fails("invalid_argument", call, ["/bin/true"], cwd="/no/such").param == "cwd"
        assert fails("invalid_argument", call, ["/bin/true"], user="nosuchuser").param == "user"
        assert fails("invalid_argument", call, []).param == "argv"
        assert fails("invalid_argument", call, [""]).param == "argv"
        assert fails("too_large", call, ["/bin/true", "x" * 200000]).param == "argv"
        assert fails("too_large", call, ["/bin/true"], env=["A=" + "x" * 300000]).param == "env"
        fails("invalid_argument", call, ["/bin/true"], exec_id="entry")
        fails("invalid_argument", call, ["/bin/true"], exec_id="a/b")
    fails("executable_not_found", sandbox.start, ["/no/such"], exec_id="failed")
    assert sandbox.get_exec("failed").state == EXEC_FAILED
    listed = {x.exec_id: x for x in sandbox.node.ExecList(sandbox_id=sandbox.id).execs}
    assert listed["failed"].state == EXEC_FAILED and listed["failed"].error == 2
    fails("not_found", sandbox.get_exec, "unknown")
    fails("not_found", sandbox.read, "unknown")


def test_largest_arguments(sandbox):
    args = ["x" * 1000] * 120
    assert sandbox.run(["/bin/echo"] + args)[0] == " ".join(args).encode() + b"\n"
    assert sandbox.run(["/usr/bin/env"], env=[f"V{i}=" + "y" * 2000 for i in range(120)])[2].code == 0


def test_large_output(sandbox):
    n = 64 * 1024 * 1024
    out, _, exited = sandbox.run(sh(f"head -c {n} /dev/zero | tr '\\0' 'a'"))
    assert len(out) == n and hashlib.sha256(out).digest() == hashlib.sha256(b"a" * n).digest()
    assert exited.out_total == n


def test_read_follows_and_resumes(sandbox):
    sandbox.start(sh("for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done"), exec_id="lines")
    text = b"".join(b"line %d\n" % i for i in range(1, 6))
    got, first, last = sandbox.read("lines")
    assert (got, first, last.eof, last.total) == (text, 0, True, len(text))
    assert sandbox.read("lines", offset=7)[0] == text[7:]
    assert sandbox.read("lines", offset=len(text))[0] == b""
    assert sandbox.read("lines", follow=False)[0] == text
    sandbox.start(sh("echo now; sleep 1000"), exec_id="open")
    eventually(lambda: sandbox.get_exec("open").out_total == 4)
    got, _, last = sandbox.read("open", follow=False)
    assert (got, last.eof, last.total) == (b"now\n", False, 4)


def test_slow_reader(daemon, sandbox):
    """A reader that takes nothing does not hold the program back, and costs the node little memory."""
    n = 200 * 1024 * 1024
    sandbox.start(sh(f"head -c {n} /dev/zero; echo end >&2"), exec_id="big")
    stream = iter(sandbox.node.ExecRead(ref=sandbox.ref("big"), stream=1, follow=True, timeout=120))
    first = next(stream)
    assert sandbox.get_exec("big", wait_ms=60000).state == EXEC_EXITED
    (pid,) = daemon.pids("node")
    with open(f"/proc/{pid}/status") as f:
        rss_kb = int(next(line for line in f if line.startswith("VmRSS")).split()[1])
    assert rss_kb < 400 * 1024
    assert len(first.data) + sum(len(m.data) for m in stream) == n


def test_client_that_leaves(sandbox):
    stream = sandbox.node.ExecRun(start=sandbox.request(sh("sleep 0.5; echo kept"), exec_id="left"))
    assert next(iter(stream)).HasField("started")
    stream.cancel()
    assert sandbox.get_exec("left", wait_ms=10000).code == 0
    assert sandbox.read("left")[0] == b"kept\n"


def test_stdin(sandbox):
    node, data = sandbox.node, os.urandom(3_000_000)
    sandbox.start(["/usr/bin/sha256sum"], exec_id="sum", stdin=True)
    chunks = [data[i:i + 100_000] for i in range(0, len(data), 100_000)]
    messages = [{"ref": sandbox.ref("sum"), "offset": 0, "data": chunks[0]}] + [{"data": c} for c in chunks[1:]]
    r = node.StdinWrite(messages)
    assert (r.taken, r.closed) == (len(data), False)
    # The same again does nothing; a gap is refused.
    assert node.StdinWrite(messages).taken == len(data)
    fails("range_not_satisfiable", node.StdinWrite, [{"ref": sandbox.ref("sum"), "offset": len(data) + 1, "data": b"x"}])
    r = node.StdinWrite([{"ref": sandbox.ref("sum"), "offset": len(data), "data": b"tail", "eof": True}])
    assert r.taken == len(data) + 4 and r.closed
    assert sandbox.get_exec("sum", wait_ms=10000).code == 0
    assert sandbox.read("sum")[0].split()[0].decode() == hashlib.sha256(data + b"tail").hexdigest()
    assert node.StdinStatus(**sandbox.ref("sum")).closed
    # One-shot commands read nothing.
    assert sandbox.run(["/bin/cat"])[0] == b""


def test_stdin_of_a_program_that_does_not_read(sandbox):
    sandbox.start(["/bin/sleep", "1000"], exec_id="deaf", stdin=True)
    done = []

    def write():
        done.append(sandbox.node.StdinWrite([{"ref": sandbox.ref("deaf"), "offset": 0, "data": b"x" * 1_000_000}]))

    writer = threading.Thread(target=write)
    writer.start()
    time.sleep(0.5)
    assert not done                     # held back
    sandbox.node.ExecKill(ref=sandbox.ref("deaf"))
    writer.join(10)
    assert done and done[0].closed and done[0].taken < 1_000_000


def test_terminal(sandbox):
    node = sandbox.node
    sandbox.start(["/bin/sh"], exec_id="tty", tty=True, stdin=True, rows=30, cols=100)
    node.StdinWrite([{"ref": sandbox.ref("tty"), "offset": 0, "data": b"stty size; tty; exit\n"}])
    sandbox.get_exec("tty", wait_ms=10000)
    out = sandbox.read("tty")[0]
    assert b"30 100" in out and b"/dev/pts/" in out
    sandbox.start(["/bin/sleep", "1000"], exec_id="t2", tty=True)
    node.ExecResize(ref=sandbox.ref("t2"), rows=50, cols=120)
    fails("invalid_argument", node.ExecResize, ref=sandbox.ref("t2"), rows=0, cols=1)


def test_signal_kill_timeout(sandbox):
    node = sandbox.node
    sandbox.start(sh("trap 'echo got; exit 7' USR1; echo up; while :; do sleep 0.05; done"), exec_id="trap")
    eventually(lambda: sandbox.get_exec("trap").out_total == 3)
    node.ExecSignal(ref=sandbox.ref("trap"), signal=int(signal.SIGUSR1))
    assert sandbox.get_exec("trap", wait_ms=10000).code == 7
    assert sandbox.read("trap")[0] == b"up\ngot\n"
    fails("invalid_argument", node.ExecSignal, ref=sandbox.ref("trap"), signal=0)

    sandbox.start(sh("sleep 1000 & echo $!; wait"), exec_id="tree")
    eventually(lambda: sandbox.get_exec("tree").out_total > 0)
    node.ExecKill(ref=sandbox.ref("tree"))
    assert sandbox.get_exec("tree", wait_ms=10000).signal == 9
    pid = sandbox.read("tree")[0].decode().strip()
    assert sandbox.run(sh(f"kill -0 {pid}"))[2].code != 0

    _, _, exited = sandbox.run(sh("echo before; sleep 1000"), timeout_ms=300, exec_id="slow")
    assert exited.reason == END_TIMEOUT
    assert sandbox.read("slow")[0] == b"before\n"


def test_forget(sandbox):
    sandbox.run(["/bin/echo", "x"], exec_id="gone")
    sandbox.node.ExecForget(**sandbox.ref("gone"))
    fails("not_found", sandbox.get_exec, "gone")


def test_many_at_once(sandbox):
    results = {}

    def one(i):
        results[i] = sandbox.run(["/bin/echo", f"n{i}"], exec_id=f"m{i}")[0]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: b"n%d\n" % i for i in range(50)}


# --- images


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            t.addfile(info, io.BytesIO(content))
    return out.getvalue()


def chunks(data, size=100_000, **first):
    yield {**first, "data": data[:size]}
    for at in range(size, len(data), size):
        yield {"data": data[at:at + size]}


def test_image_import(node, layers, daemon):
    tar = tar_of({"opt/hello": b"#!/bin/sh\necho from the layer\n", "opt/large": os.urandom(5_000_000)})
    r = node.ImageImport(chunks(tar))
    assert r.layer == hashlib.sha256(tar).hexdigest() and r.files >= 2 and r.bytes >= 5_000_000
    with NodeSandbox(node, [r.layer] + layers) as sb:
        assert sb.run(["/opt/hello"])[0] == b"from the layer\n"
        fails("conflict", node.LayerDelete, layer=r.layer)
    node.LayerDelete(layer=r.layer)
    node.LayerDelete(layer=r.layer)
    assert not (daemon.data_dir / "layers" / r.layer).exists()
    fails("invalid_argument", node.LayerDelete, layer="../run")


def test_bad_imports(node, daemon):
    before = sorted(os.listdir(daemon.data_dir / "layers"))
    tar = tar_of({"a": os.urandom(3_000_000)})
    with pytest.raises(NodeError):
        node.ImageImport(chunks(b"this is no tar at all" * 1000))
    with pytest.raises(NodeError):
        node.ImageImport(chunks(tar[:2_000_000]))
    fails("too_large", node.ImageImport, chunks(tar, max_bytes=1_000_000))
    fails("malformed_request", node.ImageImport, [])

    def leaves():
        yield from chunks(tar[:1_000_000])
        time.sleep(3)

    with pytest.raises(NodeError):
        node.ImageImport(leaves(), timeout=0.5)
    eventually(lambda: sorted(os.listdir(daemon.data_dir / "layers")) == before)


# --- faults


def patient(call, seconds=20):
    """What control does while the node comes back."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return call()
        except NodeError as e:
            if e.name != "unavailable" or time.monotonic() > give_up:
                raise
            time.sleep(0.05)


def test_node_is_killed(daemon, node, layers):
    """Nothing of a sandbox is lost with the node: not the defaults, an exec, a byte, or a wait."""
    with NodeSandbox(node, layers, defaults={"env": ["KEPT=yes"]}) as sb:
        sb.start(sh("for i in $(seq 1 2000); do echo line $i; done; sleep 1; echo end; exit 4"), exec_id="work")
        daemon.kill_role("node")
        assert patient(lambda: sb.get_exec("work", wait_ms=20000)).code == 4
        text = b"".join(b"line %d\n" % i for i in range(1, 2001)) + b"end\n"
        assert sb.read("work")[0] == text
        assert sb.run(sh("echo $KEPT"))[0] == b"yes\n"
        assert sb.id in [s.sandbox_id for s in node.List().sandboxes]
        daemon.kill_role("node")
        assert patient(lambda: node.Terminate(sandbox_id=sb.id, wait_ms=20000)).state == ENDED


def test_monitor_is_killed(node, layers):
    """The death of a monitor answers all who wait."""
    with NodeSandbox(node, layers) as sb:
        sb.run(["/bin/echo", "kept"], exec_id="done")
        sb.start(["/bin/sleep", "1000"], exec_id="sleep", stdin=True)
        answers = []
        waits = [
            lambda: node.Get(sandbox_id=sb.id, wait_ms=60000),
            lambda: sb.get_exec("sleep", wait_ms=60000),
            lambda: sb.read("sleep"),
            lambda: sb.run(["/bin/sleep", "1000"]),
        ]

        def wait(call):
            try:
                answers.append(call())
            except NodeError as e:
                answers.append(e)

        threads = [threading.Thread(target=wait, args=(w,)) for w in waits]
        for t in threads:
            t.start()
        time.sleep(0.5)
        assert not answers
        (monitor,) = [int(p) for p in os.listdir("/proc") if p.isdigit() and holds_socket(p, sb.id)]
        os.kill(monitor, signal.SIGKILL)
        for t in threads:
            t.join(20)
        assert len(answers) == len(waits)
        assert node.Get(sandbox_id=sb.id).state == ENDED
        fails("sandbox_ended", sb.start, ["/bin/true"])


def test_remains_are_replaced(node, layers, daemon):
    """What a creation left half done is no obstacle to the next, and can be destroyed."""
    def create(sandbox_id, **more):
        assert node.Create(sandbox_id=sandbox_id, layers=layers, **more).state == RUNNING
        node.Destroy(sandbox_id=sandbox_id)

    for more in ({}, {"entry": {"argv": [b"/bin/sleep", b"1000"]}}):
        only_directory = new_id()
        (daemon.data_dir / "run" / only_directory).mkdir(mode=0o750)
        assert only_directory in [s.sandbox_id for s in node.List().sandboxes]
        fails("unavailable", node.Terminate, sandbox_id=only_directory)
        create(only_directory, **more)
    only_defaults = new_id()
    (daemon.data_dir / "node" / only_defaults).write_bytes(b"QSD1")
    assert [s.state for s in node.List().sandboxes if s.sandbox_id == only_defaults] == [ENDED]
    node.Destroy(sandbox_id=only_defaults)
    assert only_defaults not in [s.sandbox_id for s in node.List().sandboxes]


def test_hung_monitor(node, layers):
    """One monitor that does not answer hides nothing of the others, and holds nobody for long."""
    with NodeSandbox(node, layers) as hung, NodeSandbox(node, layers) as well:
        (monitor,) = [int(p) for p in os.listdir("/proc") if p.isdigit() and holds_socket(p, hung.id)]
        os.kill(monitor, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            listed = {s.sandbox_id: s.state for s in node.List().sandboxes}
            assert listed[hung.id] == RUNNING and listed[well.id] == RUNNING
            assert well.run(["/bin/echo", "x"])[0] == b"x\n"
            fails("timeout", node.Get, sandbox_id=hung.id)
            assert time.monotonic() - begun < 30
        finally:
            os.kill(monitor, signal.SIGCONT)


def test_offset_of_a_dropped_stream(sandbox):
    out, err, exited = sandbox.run(sh("echo out; echo err >&2"), drop_stdout=True, stdout_offset=5)
    assert (out, err, exited.code) == (b"", b"err\n", 0)


def holds_socket(pid, sandbox_id):
    """Is this the monitor of the sandbox? Its command line or its run directory says so."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}").endswith(f"/run/{sandbox_id}"):
                return True
    except OSError:
        pass
    return False


def test_health(node):
    h = node.Health()
    assert h.keeper and h.image and h.egress
    assert h.memory_total > h.memory_available > 0 and h.trees_total > h.trees_free > 0
