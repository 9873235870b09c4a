"""A node that has been taken over: what it may say to the keeper and to monitors, mutated and at random."""

import random
import socket
import struct
import time

from keeperclient import CREATE, DESTROY, LAYER_DELETE, LIMITS, LIST, STATS, Keeper, new_id, text


def connect(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(10)
    s.connect(str(path))
    return s


def mutated(rng, payload):
    data = bytearray(payload)
    for _ in range(rng.randrange(1, 6)):
        how = rng.randrange(6)
        at = rng.randrange(len(data) + 1)
        if how == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif how == 1:
            del data[at:]
        elif how == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif how == 3:
            data[at:at + 4] = struct.pack("<I", rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 65536)))
        elif how == 4:
            data[at:at + 8] = struct.pack("<Q", rng.choice((0, 1 << 63, (1 << 64) - 1)))
        else:
            data[at:at] = rng.choice((b"../", b"/", b"\0", b"..", b"\xff"))
    return bytes(data)


def snapshot(top):
    return sorted(str(p) for p in top.iterdir())


def test_mutated_messages_to_the_keeper(api, daemon):
    """It refuses or does what the node may ask for; it never ends, and nobody's sandbox or directory is touched."""
    rng = random.Random(7)
    pid = daemon.pids("keeper")
    path = daemon.run_dir / "keeper.sock"
    layer = api.get("/v1/images/base").json()["layers"][0].removeprefix("sha256:")
    with api.sandbox() as sb:
        before = {d: snapshot(daemon.data_dir / d) for d in ("layers", "control", "node", "run", "keeper")}
        seeds = [(CREATE, Keeper.create_message(new_id(), ["0" * 64])), (CREATE, Keeper.create_message("../../x", [layer])),
                 (CREATE, Keeper.create_message(new_id(), ["../control"])), (CREATE, Keeper.create_message(new_id(), [layer], delta="../../../etc")),
                 (DESTROY, text("../../control")), (DESTROY, text(new_id())), (LAYER_DELETE, text("../control")),
                 (LAYER_DELETE, text("0" * 64)), (LIMITS, text(new_id()) + struct.pack("<IIQI", 1, 1, 1, 1)), (LIST, b""), (STATS, b"")]
        s = connect(path)
        for i in range(1500):
            kind, payload = seeds[i % len(seeds)]
            if i >= len(seeds):
                payload = mutated(rng, payload)
                kind = rng.choice((kind, kind, kind, rng.randrange(65536)))
            packet = struct.pack("<HHII", kind, 1, i, len(payload)) + payload
            if rng.random() < 0.1:
                packet = mutated(rng, packet)
            try:
                s.send(packet or b"x")
                if rng.random() < 0.5:
                    s.settimeout(0.01)
                    s.recv(1 << 20)
            except TimeoutError:
                pass
            except OSError:
                s.close()
                s = connect(path)
            if i % 100 == 0:
                s.close()
                s = connect(path)
        s.close()
        assert daemon.pids("keeper") == pid and daemon.process.poll() is None
        assert api.run(sb, ["echo", "here"])["stdout"] == "here\n"
        time.sleep(1)
        after = {d: snapshot(daemon.data_dir / d) for d in before}
        for d in ("layers", "control", "node"):
            assert [p for p in before[d] if p not in after[d] and not p.endswith(("-wal", "-shm"))] == []
        assert set(before["run"]) <= set(after["run"])
        # What it was made to make has no row, and is taken away again.
        end = time.monotonic() + 20
        while set(snapshot(daemon.data_dir / "run")) != set(before["run"]) and time.monotonic() < end:
            time.sleep(0.3)
        assert set(snapshot(daemon.data_dir / "run")) == set(before["run"])
    with api.sandbox() as sb:
        assert api.run(sb, ["echo", "new"])["stdout"] == "new\n"


def test_mutated_messages_to_a_monitor(api, daemon):
    """Only its own sandbox may suffer."""
    rng = random.Random(11)
    with api.sandbox(idle_timeout_s=None) as sb, api.sandbox() as other:
        path = daemon.data_dir / "run" / sb.id / "monitor.sock"
        spec = struct.pack("<I", 1) + text("/bin/true") + struct.pack("<I", 0) + text("") + text("") + struct.pack("<IiQ??", 0o22, 0, 0, False, False)
        execute = text("x1") + text("") + struct.pack("<IQIQHH?", 0, 0, 0, 0, 0, 0, False) + struct.pack("<I", len(spec)) + spec
        ref = text("x1") + text("")
        seeds = [(1, execute), (3, ref + struct.pack("<BQII", 1, 0, 65536, 0)), (5, ref + struct.pack("<Q?I", 0, False, 0)), (7, ref),
                 (8, ref + struct.pack("<I", 0)), (9, struct.pack("<I", 0)), (11, ref + struct.pack("<iB", 9, 1)), (12, ref + struct.pack("<HH", 1, 1)),
                 (13, ref + b"\0"), (14, ref), (16, struct.pack("<I", 0))]
        s = connect(path)
        for i in range(2000):
            kind, payload = seeds[i % len(seeds)]
            packet = struct.pack("<HHII", kind, 1, i, len(payload)) + payload
            if i >= len(seeds):
                packet = packet[:12] + mutated(rng, payload) if rng.random() < 0.8 else mutated(rng, packet)
            try:
                s.settimeout(0.005)
                s.send(packet or b"x")
                s.recv(1 << 20)
            except TimeoutError:
                pass
            except OSError:
                s.close()
                s = connect(path)
        s.close()
        assert api.run(other, ["echo", "here"])["stdout"] == "here\n"
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["state"] == "running"
        assert api.run(sb, ["echo", "here"])["stdout"] == "here\n"
