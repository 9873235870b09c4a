"""A large stream over connections that break: `stream.py KIND MIB`, run by test_hostile.py. Prints the two hashes as JSON."""

import hashlib
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kit import end, run, shared  # noqa: E402

kind, size = sys.argv[1], int(sys.argv[2]) << 20
sb = shared()
mine = hashlib.sha256()
if kind == "stdout":
    run(sb, "sh", "-c", f"head -c {size} /dev/urandom >/tmp/big")
    for chunk in sb.exec("cat", "/tmp/big", text=False).stdout:
        mine.update(chunk)
elif kind == "write":
    data = os.urandom(size)
    mine.update(data)
    sb.filesystem.write_bytes(data, "/tmp/big")
theirs = run(sb, "sha256sum", "/tmp/big")[0].split()[0]
end()
print("RESULT", json.dumps({"mine": mine.hexdigest(), "theirs": theirs}), flush=True)
os._exit(0)
