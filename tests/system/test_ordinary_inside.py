"""
What programs do all day, done inside a sandbox of the image `base`: by root and by an ordinary user.

The checks are the check_ functions of tests/system/inside/*.py; each runs in a process of its own.
"""

import pathlib
import platform
import re

import pytest

HERE = pathlib.Path(__file__).parent / "inside"
FILES = ("files", "processes", "sockets", "place")
CHECKS = [(f, name) for f in FILES for name in re.findall(r"^def (check_\w+)", (HERE / f"{f}.py").read_text(), re.M)]


@pytest.fixture(scope="module")
def box(daemon):
    with daemon.api.sandbox(timeout_s=3600) as sb:
        for path in HERE.glob("*.py"):
            r = daemon.api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": f"/opt/checks/{path.name}"}, content=path.read_bytes())
            assert r.status_code == 201, r.text
        yield sb


@pytest.mark.parametrize("user", ["root", "nobody"])
@pytest.mark.parametrize("file,check", CHECKS, ids=[f"{f}-{c[6:]}" for f, c in CHECKS])
def test_ordinary(api, box, file, check, user):
    program = f"import sys; sys.path.insert(0, '/opt/checks'); import {file}; {file}.{check}()"
    r = api.run(box, ["python3", "-B", "-c", program], user=user, timeout_s=60, stderr="merge")
    if check == "check_files_without_a_name" and "Errno 95" in r["stdout"] and tuple(map(int, re.findall(r"\d+", platform.release())[:2])) < (6, 7):
        pytest.skip("overlayfs of this kernel has no files without a name (O_TMPFILE)")
    assert r["exec"]["exit"] == {**r["exec"]["exit"], "reason": "exited", "code": 0}, r["stdout"]
