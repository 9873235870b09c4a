"""
What the machine has once for all sandboxes: none may take it from the others.
"""

import contextlib
import time

TAKE = r"""
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
def many(name, f, most):
    n = 0
    while n < most and f(n) >= 0:
        n += 1
    print(name, n, flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
many("inotify", lambda i: libc.inotify_init1(0), 100)
many("fanotify", lambda i: libc.syscall(300, 0x200, 0), 100)
many("terminals", lambda i: libc.posix_openpt(2), 100)
many("signals", lambda i: libc.sigqueue(os.getpid(), 40, 0), 1000)
if len(sys.argv) > 1:
    for f in (lambda: libc.inotify_init1(0), lambda: libc.syscall(300, 0x200, 0), lambda: libc.posix_openpt(2),
              lambda: libc.sigqueue(os.getpid(), 40, 0)):
        while f() >= 0:
            pass
    print("took all", flush=True)
    signal.pause()
"""
ALL = "inotify 100\nfanotify 100\nterminals 100\nsignals 1000\n"


def test_what_is_there_once_is_left_to_others(api):
    """File watches, terminals and pending signals are counted for the owner of a user namespace, or for the machine."""
    with contextlib.ExitStack() as stack:
        hogs = [stack.enter_context(api.sandbox()) for _ in range(2)]
        for hog in hogs:
            r = api.post(f"/v1/sandboxes/{hog.id}/execs", json={"command": ["python3", "-c", TAKE, "all"]})
            assert r.status_code == 201, r.text
            output = f"/v1/sandboxes/{hog.id}/execs/{r.json()['id']}/stdout"
            give_up = time.monotonic() + 60
            while "took all" not in (text := api.get(output, params={"follow": False}).text):
                assert time.monotonic() < give_up, text
                time.sleep(0.1)
            assert text == ALL + "took all\n"
        other = stack.enter_context(api.sandbox())
        assert api.run(other, ["python3", "-c", TAKE])["stdout"] == ALL
        # A terminal that a client asks for is there too.
        assert api.run(other, ["tty"], tty=True)["exec"]["exit"]["code"] == 0


def test_project_ids_are_taken(api):
    """Whoever may write the map of project ids could give files to a quota project of the host."""
    with api.sandbox() as sb:
        text = api.run(sb, ["sh", "-c", "cat /proc/self/projid_map; echo '0 0 1' > /proc/self/projid_map"], stderr="merge")
        assert text["exec"]["exit"]["code"] != 0
        inside, outside, count = text["stdout"].splitlines()[0].split()
        assert inside == "0" and int(outside) > 0 and count == "65536"


def test_sync_leaves_the_host_alone(api):
    """sync(2) would write back every file system of the host; inside it succeeds and does nothing (tests/unit/seccomp_filter_test.c)."""
    with api.sandbox() as sb:
        assert api.run(sb, ["sh", "-c", "sync && echo x > /f && sync /f && cat /f"])["stdout"] == "x\n"
