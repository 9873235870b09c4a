"""
Moments at which something could slip through: the first instant of a sandbox, changes of its policy, the end of egress and node.
"""

import time

import world as w
from test_policy import get, network, status

# Tries all the time, by connections and datagrams, until /tmp/stop is there; prints how often, and how often somebody answered.
TRY = r"""
import os, socket, sys
n = answers = 0
while not os.path.exists("/tmp/stop") and n < 200000:
    for address in sys.argv[1:]:
        six = ":" in address
        with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM) as s:
            s.settimeout(0.2)
            try:
                s.connect((address, 80)); s.sendall(b"GET / HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n")
                answers += b"200 OK" in s.recv(100)
            except OSError: pass
        with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.05)
            try:
                s.connect((address, 9999)); s.send(b"leak"); answers += s.recv(100) == b"udp:leak"
            except OSError: pass
        n += 1
print(n, answers)
"""


def only(address):
    return {"rules": [{"cidrs": [address]}, {"cidrs": [address], "protocol": "udp"}]}


def begun(world, *addresses):
    """What was begun towards them: the end of a connection that is cut is no beginning."""
    return [p for p in world.went_to(*addresses) if p.proto != 6 or p.flags & 0x02]


def start(api, sb, *addresses):
    return api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["python3", "-c", TRY, *addresses]}).json()["id"]


def stop(api, sb, i):
    api.run(sb, ["touch", "/tmp/stop"])
    x = api.get(f"/v1/sandboxes/{sb.id}/execs/{i}", params={"wait": "exit", "timeout_s": 60}).json()
    assert x["exit"]["code"] == 0, x
    out = api.get(f"/v1/sandboxes/{sb.id}/execs/{i}/stdout", params={"follow": "false"}).text.split()
    return int(out[0]), int(out[1])


def wait_for(world, n, address):
    give_up = time.monotonic() + 60
    while len(world.went_to(address, settle=0.05)) < n:
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_from_the_first_instant(api, world):
    """The entry point tries before egress has ever heard of the sandbox."""
    for policy in (only(w.ALLOWED), {"rules": []}, {"allow_domains": ["allowed.test"]}, "block"):
        with api.sandbox(network=policy, command=["python3", "-c", TRY, w.EVIL, w.EVIL6, w.DNS]) as sb:
            time.sleep(1.5)
            assert api.get(f"/v1/sandboxes/{sb.id}").json()["state"] == "running"
    assert not world.went_anywhere()
    # The same program, where it may.
    with api.sandbox(network=only(w.EVIL), command=["python3", "-c", TRY, w.EVIL, w.EVIL6, w.DNS]):
        wait_for(world, 2, w.EVIL)
        assert begun(world, w.EVIL6) == []


def test_while_the_policy_changes(api, world):
    with api.sandbox(network=only(w.ALLOWED)) as sb:
        i = start(api, sb, w.ALLOWED, w.OTHER, w.EVIL)
        for n in range(8):
            allowed, other = (w.OTHER, w.ALLOWED) if n % 2 == 0 else (w.ALLOWED, w.OTHER)
            assert api.put(f"/v1/sandboxes/{sb.id}/policy", json=only(allowed)).json() == {"revision": n + 2}
            time.sleep(0.02)            # what was on the cable is there
            world.clear()
            wait_for(world, 4, allowed)
            assert begun(world, other) == []
        tries, answers = stop(api, sb, i)
        assert tries > 20 and answers > 8
        assert begun(world, w.EVIL) == []


def test_while_egress_and_node_die(api, world, daemon):
    with api.sandbox(network=only(w.ALLOWED)) as sb:
        i = start(api, sb, w.EVIL, w.ALLOWED, w.EVIL6)
        for role in ("egress", "node", "egress", "egress"):
            wait_for(world, 2, w.ALLOWED)
            daemon.kill_role(role)
            time.sleep(0.5)
            assert begun(world, w.EVIL, w.EVIL6) == []
            world.clear()
        wait_for(world, 2, w.ALLOWED)
        give_up = time.monotonic() + 60
        while True:
            try:
                tries, answers = stop(api, sb, i)
                break
            except (AssertionError, KeyError):
                assert time.monotonic() < give_up
        assert tries > 10 and answers > 4
        assert network(api, sb)["denied"] > 0
    assert begun(world, w.EVIL, w.EVIL6) == []


def test_while_everything_is_dead(api, world, daemon):
    """Keeper, control, node and egress are killed: nothing leaves, and afterwards what left before, and no more."""
    with api.sandbox(network=only(w.ALLOWED)) as sb:
        i = start(api, sb, w.EVIL, w.ALLOWED, w.EVIL6)
        wait_for(world, 2, w.ALLOWED)
        daemon.hold_down()
        time.sleep(0.3)
        world.clear()
        time.sleep(2)
        assert begun(world, w.ALLOWED, w.EVIL, w.EVIL6) == []
        daemon.let_up()
        wait_for(world, 2, w.ALLOWED)
        tries, answers = stop(api, sb, i)
        assert tries > 4 and answers > 2
    assert begun(world, w.EVIL, w.EVIL6) == []


def test_while_it_ends(api, world):
    for _ in range(3):
        with api.sandbox(network=only(w.ALLOWED)) as sb:
            start(api, sb, w.EVIL, w.ALLOWED)
            wait_for(world, 2, w.ALLOWED)
        world.clear()
        time.sleep(0.5)
        assert begun(world, w.EVIL, w.ALLOWED) == []


def test_two_at_once_have_their_own(api, world):
    """The same addresses inside, two policies: neither leaves by the other's."""
    with api.sandbox(network=only(w.ALLOWED)) as a, api.sandbox(network={"allow_domains": ["other.test"]}) as b:
        i, j = start(api, a, w.ALLOWED, w.OTHER), start(api, b, w.ALLOWED, w.OTHER)
        wait_for(world, 6, w.ALLOWED)
        assert stop(api, a, i)[1] > 0 and stop(api, b, j)[1] == 0
        assert begun(world, w.OTHER) == []
        assert status(get(api, b, "allowed.test", address=w.ALLOWED)) == 403
