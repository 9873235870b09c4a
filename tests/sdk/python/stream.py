"""
Large streams over connections that break: `stream.py KIND MIB`, run by test_hostile.py.

KIND: stdout and stdin of a command, read and write of a file, main (output of the main process). Prints RESULT and the two hashes.
"""

import hashlib
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kit import create, end, run, sha256, shared  # noqa: E402


def sum_of(sb, path):
    return run(sb, "sha256sum", path)[0].split()[0]


def hash_of(chunks, total=None):
    mine, n = hashlib.sha256(), 0
    for chunk in chunks:
        data = chunk.encode() if isinstance(chunk, str) else chunk
        mine.update(data)
        n += len(data)
        if n == total:
            break
    return mine.hexdigest()


def stdout(sb, size):
    run(sb, "sh", "-c", f"head -c {size} /dev/urandom >/tmp/big")
    return hash_of(sb.exec("cat", "/tmp/big", text=False).stdout), sum_of(sb, "/tmp/big")


def stdin(sb, size):
    data = os.urandom(size)
    p = sb.exec("sh", "-c", "cat >/tmp/in", text=False)
    for at in range(0, size, 1 << 20):
        p.stdin.write(data[at:at + (1 << 20)])
        p.stdin.drain()
    p.stdin.write_eof()
    p.stdin.drain()
    assert p.wait() == 0
    return sha256(data), sum_of(sb, "/tmp/in")


def read(sb, size):
    run(sb, "sh", "-c", f"head -c {size} /dev/urandom >/tmp/big")
    return sha256(sb.filesystem.read_bytes("/tmp/big")), sum_of(sb, "/tmp/big")


def write(sb, size):
    data = os.urandom(size)
    sb.filesystem.write_bytes(data, "/tmp/written")
    return sha256(data), sum_of(sb, "/tmp/written")


def main(_, size):
    # Long lines: this client hands them out one by one, between two threads.
    lines = size // 65533
    sb = create("sh", "-c", f"head -c {lines * 49149} /dev/urandom | base64 -w 65532 | tee /tmp/all; sleep 600", timeout=900)
    result = hash_of(sb.stdout, lines * 65533), sum_of(sb, "/tmp/all")
    sb.terminate()
    return result


kind, size = sys.argv[1], int(sys.argv[2]) << 20
mine, theirs = {"stdout": stdout, "stdin": stdin, "read": read, "write": write, "main": main}[kind](shared() if kind != "main" else None, size)
end()
print("RESULT", json.dumps({"mine": mine, "theirs": theirs}), flush=True)
os._exit(0)
