"""
Daemons die by SIGKILL at random instants of create, exec, stdin write, file write and terminate. Afterwards the list equals
reality, output equals a known sequence, nothing was lost or run twice, terminate works; deadlines fire while every daemon is
dead. A few rounds run each time, a hundred with --long.
"""

import hashlib
import os
import random
import threading
import time

import httpx
import pytest

ROLES = ["keeper", "control", "node", "egress", "image"]
RETRY = {500, 502, 503, 504}
PATIENCE_S = 40


def persist(call, *, until=PATIENCE_S):
    """What a careful client does: the same request again while the service is away."""
    give_up = time.monotonic() + until
    while True:
        try:
            r = call()
            if r.status_code not in RETRY:
                return r
            last = r.text
        except httpx.TransportError as e:
            last = repr(e)
        assert time.monotonic() < give_up, last
        time.sleep(0.05)


def read_all(api, url):
    """A stream read to its end, resumed by offset whenever it breaks."""
    got = bytearray()
    give_up = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < give_up, f"{url}: {len(got)} bytes, no end"
        try:
            with api.stream("GET", url, params={"offset": len(got)}, timeout=30) as r:
                if r.status_code != 200:
                    assert r.status_code in RETRY, r.read()
                    time.sleep(0.05)
                    continue
                length = r.headers.get("content-length")
                start = len(got)
                for chunk in r.iter_raw():
                    got += chunk
                if length is None or len(got) - start == int(length):
                    return bytes(got)
        except httpx.TransportError:
            time.sleep(0.05)


class Round:
    def __init__(self, daemon, number, rng):
        self.daemon, self.api, self.number, self.rng = daemon, daemon.api, number, rng
        self.everything = number % 10 == 9
        self.roles = ROLES if self.everything else rng.sample(ROLES, rng.randint(1, 3))

    def kill(self):
        """SIGKILL to the chosen daemons, the keeper first so that it cannot see the others fall."""
        for role in sorted(self.roles, key=lambda r: r != "keeper"):
            self.daemon.kill_role(role)

    def during(self, operation):
        """Runs an operation while the daemons are killed at a random instant of it."""
        outcome = {}

        def work():
            try:
                outcome["value"] = operation()
            except BaseException as e:  # noqa: B902 - reported below, in the test's own thread
                outcome["error"] = e

        t = threading.Thread(target=work)
        t.start()
        time.sleep(self.rng.uniform(0, 0.04))
        self.kill()
        t.join(PATIENCE_S * 2)
        assert not t.is_alive(), "an operation did not end"
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    def create(self):
        key = {"idempotency-key": f"round-{self.number}"}
        r = persist(lambda: self.api.post("/v1/sandboxes", json={"tags": {"round": str(self.number)}, "timeout_s": 300}, headers=key, timeout=30))
        assert r.status_code in (200, 201), r.text
        return r.json()["id"]

    def exec(self, sb, exec_id, command, **fields):
        url = f"/v1/sandboxes/{sb}/execs/{exec_id}"
        r = persist(lambda: self.api.put(url, json={"command": command, **fields}, timeout=30))
        assert r.status_code in (200, 201), r.text
        return url

    def send(self, url, data):
        """stdin by offset: asks what was taken and goes on from there."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < give_up
            at = persist(lambda: self.api.get(url + "/stdin", timeout=10)).json()
            if at["closed"]:
                assert at["taken"] == len(data)
                return
            try:
                r = self.api.post(url + "/stdin", params={"offset": at["taken"], "eof": "true"}, content=data[at["taken"]:], timeout=30)
                if r.status_code == 200 and r.json()["closed"]:
                    assert r.json()["taken"] == len(data)
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)

    def run(self):
        step = self.number % 5
        sb = self.during(self.create) if step == 0 else self.create()
        marked = "echo x >> /tmp/count; i=0; while [ $i -lt 40 ]; do seq 1 500; i=$((i+1)); sleep 0.02; done"
        expected = "".join(f"{n}\n" for n in range(1, 501)).encode() * 40

        if step == 1:
            url = self.during(lambda: self.exec(sb, "marked", ["sh", "-c", marked]))
        else:
            url = self.exec(sb, "marked", ["sh", "-c", marked])
        if step == 2:
            data = random.Random(self.number).randbytes(3 << 20)
            sink = self.exec(sb, "sink", ["sha256sum"], stdin=True)
            self.during(lambda: self.send(sink, data))
            assert read_all(self.api, sink + "/stdout").split()[0].decode() == hashlib.sha256(data).hexdigest()
        if step == 3:
            self.write_file(sb)
        if step == 4:
            self.terminate_during(sb)
            return
        assert hashlib.sha256(read_all(self.api, url + "/stdout")).digest() == hashlib.sha256(expected).digest()
        done = persist(lambda: self.api.get(url, params={"wait": "exit", "timeout_s": 20}, timeout=40)).json()
        assert (done["state"], done["exit"]["code"]) == ("exited", 0), done
        r = persist(lambda: self.api.post(f"/v1/sandboxes/{sb}/run", json={"command": ["cat", "/tmp/count"]}, timeout=30))
        assert r.json()["stdout"] == "x\n", "the command ran twice, or never"
        self.finish(sb)

    def write_file(self, sb):
        old, new = b"old" * 100000, b"new" * 1000000
        url = f"/v1/sandboxes/{sb}/files"
        query = {"path": "/srv/file"}
        assert persist(lambda: self.api.put(url, params=query, content=old, timeout=30)).status_code in (200, 201)

        def write_once():
            try:
                return self.api.put(url, params=query, content=new, timeout=30).status_code
            except httpx.TransportError:
                return None

        status = self.during(write_once)
        seen = persist(lambda: self.api.get(url, params=query, timeout=30)).content
        if status in (200, 201):
            assert seen == new, "a write that was reported is not there"
        else:
            assert seen in (old, new), "a broken write left half a file"
        assert persist(lambda: self.api.put(url, params=query, content=new, timeout=30)).status_code == 200
        assert persist(lambda: self.api.get(url, params=query, timeout=30)).content == new

    def terminate_during(self, sb):
        self.during(lambda: persist(lambda: self.api.post(f"/v1/sandboxes/{sb}/terminate", json={"grace_s": 0.2}, timeout=30)))
        self.finish(sb)

    def finish(self, sb):
        r = persist(lambda: self.api.post(f"/v1/sandboxes/{sb}/terminate", json={"grace_s": 0}, timeout=30))
        assert r.json()["state"] == "ended", r.text
        assert r.json()["exit"]["reason"] == "terminated", r.text
        assert persist(lambda: self.api.delete(f"/v1/sandboxes/{sb}", timeout=30)).status_code in (204, 404)

    def check_reality(self):
        """Within seconds the list of live sandboxes equals what lives."""
        give_up = time.monotonic() + 20
        while True:
            listed = {s["id"] for s in persist(lambda: self.api.get("/v1/sandboxes", params={"limit": 1000})).json()["items"]}
            real = {d.name for d in (self.daemon.data_dir / "run").iterdir() if not (d / "exit").exists()}
            if listed == real:
                break
            assert time.monotonic() < give_up, (listed, real)
            time.sleep(0.2)

    def check_deadline(self):
        """With every daemon dead and kept dead, a deadline fires within a second."""
        r = persist(lambda: self.api.post("/v1/sandboxes", json={"timeout_s": 2, "grace_s": 0, "command": ["sleep", "1000"]}, timeout=30))
        assert r.status_code == 201, r.text
        sb, deadline = r.json()["id"], r.json()["expires_at"]
        self.daemon.hold_down()
        try:
            record = self.daemon.data_dir / "run" / sb / "exit"
            assert not record.exists()
            while not record.exists():
                assert time.time() < deadline + 1, "the deadline did not fire"
                time.sleep(0.02)
            assert time.time() > deadline - 0.1
        finally:
            self.daemon.let_up()
        ended = persist(lambda: self.api.get(f"/v1/sandboxes/{sb}", params={"wait": "exit", "timeout_s": 5})).json()
        assert (ended["state"], ended["exit"]["reason"]) == ("ended", "timeout"), ended
        assert persist(lambda: self.api.delete(f"/v1/sandboxes/{sb}", timeout=30)).status_code == 204


def play(make_daemon, rounds):
    seed = int(os.environ.get("QUICKSAND_SEED", time.time_ns() % 100000))
    print(f"QUICKSAND_SEED={seed}")
    rng = random.Random(seed)
    daemon = make_daemon(supervised=True)
    for number in range(rounds):
        one = Round(daemon, number, rng)
        print(f"round {number}: {'+'.join(one.roles)}", flush=True)
        one.run()
        one.check_reality()
        if one.everything:
            one.check_deadline()


def test_twenty_rounds_of_killing(make_daemon):
    play(make_daemon, 20)


@pytest.mark.long
def test_a_hundred_rounds_of_killing(make_daemon):
    play(make_daemon, 100)
