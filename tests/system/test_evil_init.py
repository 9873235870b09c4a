"""
A PID 1 that attacks its monitor: tests/abuse/evil_init.c in the place of quicksand-init, in a sandbox beside others with the real one.

Whatever it sends, or does not send, nothing but its own sandbox suffers: a neighbour's commands go on, the memory of the daemons stays what
it was, every call about the sandbox ends, and it can be removed.
"""

import pathlib
import shutil
import threading
import time

import httpx
import pytest

import qsdaemon
from test_attack_inside import Neighbour

ATTACKS = ("early", "error", "exit", "close", "stall", "flood", "fork", "lies", "ends", "again", "files", "memory", "large", "junk")
# The first word that is not of the protocol ends the sandbox.
BREACHES = set(ATTACKS) - {"error", "exit", "close", "stall"}
ATTACK_S = 1.5
GROWTH = 48 << 20       # of a daemon, of what is garbage from then on; a leak for each message would be far more


@pytest.fixture(scope="module")
def daemon(request):
    evil = qsdaemon.build_dir() / "tests/abuse/evil-init"
    instance = qsdaemon.Daemon(qsdaemon.build_dir(), pool_size=2)
    try:
        shutil.copy(evil, instance.lib_dir / "quicksand-init")
        instance.start()
        instance.import_base()
        yield instance
        assert instance.stop() == []
        assert instance.sanitizer_reports() == []
    finally:
        print(instance.log_tail())
        instance.stop()
        instance.purge()


@pytest.fixture(scope="module")
def api(daemon):
    return daemon.api


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def roles(daemon):
    return {r: daemon.pids(r)[0] for r in ("keeper", "node", "control")}


class Victim(threading.Thread):
    """A command in the attacked sandbox, by a client that waits for its end."""

    def __init__(self, daemon, sandbox):
        super().__init__()
        self.daemon, self.sandbox, self.answer = daemon, sandbox, None
        self.start()

    def run(self):
        with qsdaemon.Api(self.daemon.url, self.daemon.token) as api:
            try:
                self.answer = api.post(f"/v1/sandboxes/{self.sandbox}/run", json={"command": ["true"], "timeout_s": 30})
            except httpx.TransportError as e:
                self.answer = e


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_but_its_own_sandbox_suffers(daemon, api, attack):
    before = {r: (pid, resident(pid)) for r, pid in roles(daemon).items()}
    with Neighbour(api):
        r = api.post("/v1/sandboxes", json={"name": f"evil-{attack}", "cpu": 0.5, "memory_mb": 256})
        if r.status_code == 201:
            sandbox = r.json()["id"]
            victims = [Victim(daemon, sandbox) for _ in range(3)]
            time.sleep(ATTACK_S)
            wait = {} if attack == "stall" else {"wait": "exit", "timeout_s": 60}
            state = api.get(f"/v1/sandboxes/{sandbox}", params=wait, timeout=90)
            assert state.status_code == 200
            if attack in BREACHES:
                assert state.json()["state"] == "ended" and state.json()["exit"]["message"] == "init broke the protocol", state.text
            else:
                assert attack in ("error", "exit", "close", "stall") and state.json()["state"] == ("running" if attack == "stall" else "ended"), state.text
            began = time.monotonic()
            assert api.delete(f"/v1/sandboxes/{sandbox}").status_code == 204
            assert time.monotonic() - began < 30
            for v in victims:
                v.join(60)
                # A lie about its own command is believed; everything else is an error of the sandbox.
                assert isinstance(v.answer, httpx.Response), (attack, v.answer)
                assert v.answer.status_code == 200 or "error" in v.answer.json(), v.answer.text
            assert api.get(f"/v1/sandboxes/{sandbox}").status_code == 404
        else:
            assert attack not in ("stall", "lies", "ends") and r.json()["error"]["message"], r.text
    after = {r: (pid, resident(pid)) for r, pid in roles(daemon).items()}
    for role, (pid, size) in before.items():
        assert after[role][0] == pid, f"{role} died"
        assert after[role][1] < size + GROWTH, (role, size, after[role][1])
    with api.sandbox() as sb:
        assert api.run(sb, ["echo", "fine"])["stdout"] == "fine\n"


@pytest.mark.long
def test_one_that_never_is_ready(daemon, api):
    """The create ends with an error when its time is over, and is gone."""
    with Neighbour(api):
        r = api.post("/v1/sandboxes", json={"name": "evil-silent"}, timeout=120)
        assert r.status_code >= 500 and r.json()["error"]["code"] and r.json()["error"]["message"], r.text
    assert api.get("/v1/sandboxes", params={"name": "evil-silent", "state": "any"}).json()["items"] == []
