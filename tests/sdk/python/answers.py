"""
One answer of the server is lost: `answers.py KIND`, run by test_hostile.py.

Asks for the loss by printing "arm" and waits for a line; prints RESULT and what was there in the end, as js/hostile/answers.mjs does.
"""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import modal  # noqa: E402

from kit import app, create, end, run, sha256, shared, unique  # noqa: E402


def arm():
    print("arm", flush=True)
    sys.stdin.readline()


def count():
    return len(list(modal.Sandbox.list(app_id=app.app_id)))


def created():
    create().terminate(wait=True)
    before = count()
    arm()
    sb = create()
    made = count() - before
    out = run(sb, "echo", "ok")[0]
    sb.terminate()
    return {"made": made, "stdout": out}


def terminated():
    sb = create()
    arm()
    sb.terminate(wait=True)
    return {"code": sb.poll()}


def executed():
    run(shared(), "true")
    arm()
    out, _, code = run(shared(), "sh", "-c", "echo once >>/tmp/runs; cat /tmp/runs")
    return {"stdout": out, "code": code}


def fed():
    p = shared().exec("cat")
    p.stdin.write("one\n")
    p.stdin.drain()
    arm()
    for text in ("two\n", "three\n"):
        p.stdin.write(text)
        p.stdin.drain()
    p.stdin.write_eof()
    p.stdin.drain()
    return {"stdout": p.stdout.read()}


def written():
    data = os.urandom(1 << 20)
    run(shared(), "true")
    arm()
    shared().filesystem.write_bytes(data, "/tmp/f")
    return {"same": run(shared(), "sha256sum", "/tmp/f")[0].split()[0] == sha256(data)}


def queued():
    with modal.Queue.ephemeral() as q:
        q.put("first")
        arm()
        q.put("second")
        return {"n": q.len()}


def named():
    name = unique("queue")
    modal.Queue.from_name(unique("other"), create_if_missing=True).hydrate()
    arm()
    made = modal.Queue.from_name(name, create_if_missing=True).hydrate()
    return {"same": modal.Queue.from_name(name).hydrate().object_id == made.object_id}


result = {"create": created, "terminate": terminated, "exec": executed, "stdin": fed, "file": written, "queue": queued,
          "named": named}[sys.argv[1]]()
end()
print("RESULT", json.dumps(result), flush=True)
os._exit(0)
