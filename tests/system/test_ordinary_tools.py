"""
Programs that people run in sandboxes, from Debian's packages and without a change: package managers, compilers, debuggers,
databases, terminals, programs with more rights than their caller.

The scripts are tests/system/inside/*.sh; each runs with bash, stops at the first command that fails, and says in its head
as whom it runs. `dev` is an ordinary user who may use sudo.
"""

import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).parent / "inside"


def scripts(image):
    """(script, user) of those that want this image; "tools" where they name none."""
    found = []
    for p in sorted(HERE.glob("*.sh")):
        head = dict(re.findall(r"^# (as|image): (.*)", p.read_text(), re.M))
        if head.get("image", "tools") == image:
            found += [(p.stem, user) for user in head["as"].split()]
    return found


SCRIPTS = scripts("tools")
PREPARE = """
adduser --disabled-password --gecos '' --quiet dev
echo 'dev ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/dev
chmod 440 /etc/sudoers.d/dev
"""


def succeeds(api, sb, command, **fields):
    r = api.run(sb, command, stderr="merge", timeout=600, **fields)
    assert r["exec"]["exit"] == {**r["exec"]["exit"], "reason": "exited", "code": 0}, r["stdout"][-6000:]
    return r["stdout"]


def prepare(api, sb):
    succeeds(api, sb, ["bash", "-euc", PREPARE])
    for path in HERE.glob("*.sh"):
        r = api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": f"/opt/scripts/{path.name}"}, content=path.read_bytes())
        assert r.status_code == 201, r.text


@pytest.fixture(scope="module")
def box(daemon, tools):
    with daemon.api.sandbox(image=tools, timeout_s=7200) as sb:
        prepare(daemon.api, sb)
        yield sb


@pytest.mark.parametrize("script,user", SCRIPTS, ids=[f"{s}-{u}" for s, u in SCRIPTS])
def test_ordinary(api, box, script, user):
    succeeds(api, box, ["bash", "-eux", f"/opt/scripts/{script}.sh"], user=user, timeout_s=500)


def test_a_server_lives_on_between_commands(api, box):
    """What one command left behind is there for the next, and its output goes where it was sent."""
    start = "cd /srv && echo page > page && python3 -m http.server 8123 --bind 127.0.0.1 >/srv/log 2>&1 & echo $! > /srv/pid"
    succeeds(api, box, ["sh", "-c", start])
    assert succeeds(api, box, ["sh", "-c", "until curl -fs http://127.0.0.1:8123/page; do sleep 0.1; done"]) == "page\n"
    assert "GET /page" in succeeds(api, box, ["sh", "-c", "cat /srv/log; kill $(cat /srv/pid)"])
