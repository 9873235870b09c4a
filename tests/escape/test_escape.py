"""
The escape suite against a private instance of the daemon: every attempt by its name, each shown by its control.

`quicksand selftest --isolation` is what users run; it is run here as it is, as root, and every attempt is a test of its own.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import qsdaemon  # noqa: E402

PROGRAM = qsdaemon.build_dir() / "tests/escape/quicksand-escape"
LEAST = 100


def names():
    out = subprocess.run([PROGRAM, "list"], check=True, capture_output=True, text=True, timeout=60).stdout
    return [line.split("\t")[0] for line in out.splitlines()]


@pytest.fixture(scope="module")
def report(daemon):
    secrets = []
    for name in ("control/admin-token", "control/secrets.key"):
        path = daemon.data_dir / name
        if path.exists() and path.read_bytes().isascii():
            secrets += ["--secret", path]
    where = daemon.home / "where"
    where.write_text(str(daemon.data_dir))
    group = daemon.home / "group"
    group.write_text(daemon.cgroup)
    env = {**os.environ, "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token}
    # Programs that lie beside each other, as an instance has them.
    r = subprocess.run([daemon.lib_dir / "quicksand", "selftest", "--isolation", "-o", "json", *secrets, "--secret", where,
                        "--secret", group], env=env, capture_output=True, text=True, timeout=280)
    assert r.stdout, r.stderr
    said = json.loads(r.stdout)
    said["exit"] = r.returncode
    said["by_name"] = {a["name"]: a for a in said["attempts"]}
    return said


def test_there_are_enough_and_they_are_shown(report):
    shown = [a for a in report["attempts"] if a["verdict"] == "held" and a["control"] is not None]
    assert len(shown) >= LEAST
    assert len({a["name"] for a in report["attempts"]}) == len(report["attempts"])
    assert (report["exit"] == 0) == (report["out"] + report["wrong"] + report["unshown"] == 0)


@pytest.mark.parametrize("name", names())
def test_attempt(report, name):
    judge(report["by_name"][name])


def judge(attempt):
    if attempt["verdict"] == "skipped":
        pytest.skip(f"the host's kernel lacks it: {attempt['control']}")
    assert attempt["verdict"] == "held", attempt


def test_nothing_of_others_can_be_read(report):
    found = [a for a in report["attempts"] if a["name"].startswith(("canary-", "host-", "secret-")) and a["verdict"] not in ("held", "skipped")]
    assert len([a for a in report["attempts"] if a["name"].startswith("canary-")]) == 30
    assert not found, found


def test_the_file_api_never_reaches_the_host(report):
    paths = [a for a in report["attempts"] if a["name"].startswith("path-")]
    assert len(paths) == 17
    assert not [a for a in paths if a["verdict"] != "held"], paths


def test_nobody_outside_was_touched(report):
    seen = [a for a in report["attempts"] if a["name"].startswith("witness-")]
    assert len(seen) == 3
    assert not [a for a in seen if a["verdict"] != "held"], seen


def test_without_root_the_controls_are_said_to_be_skipped(daemon):
    env = {"PATH": "/usr/bin:/bin", "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token, "ASAN_OPTIONS": "detect_leaks=0"}
    r = subprocess.run([daemon.lib_dir / "quicksand", "selftest", "--isolation"], env=env, capture_output=True, text=True,
                       timeout=280, user=65534, group=65534, extra_groups=[], cwd="/")
    lines = r.stdout.splitlines()
    assert r.returncode == 0, [line for line in lines if not line.startswith(("held", "skipped"))] + [r.stderr]
    assert " 0 got out, 0 ended otherwise than they must, 0 not shown by their control" in lines[-1]
    assert lines[-1].endswith("; controls skipped: they need root")
    assert sum(line.startswith("held") and "control: skipped (not root)" in line for line in lines) >= LEAST
    assert not daemon.api.get("/v1/sandboxes", params={"tag": "purpose:selftest"}).json()["items"]


def test_what_must_be_said_on_the_command_line(daemon):
    for words in (["selftest"], ["selftest", "--isolation", "-o", "xml"]):
        r = subprocess.run([daemon.lib_dir / "quicksand", *words], capture_output=True, text=True, timeout=60)
        assert r.returncode == 2 and "usage: quicksand selftest --isolation" in r.stderr
    r = subprocess.run([daemon.lib_dir / "quicksand", "selftest", "--isolation", "--program", "/nonexistent"], capture_output=True, text=True,
                       timeout=60, env={**os.environ, "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token})
    assert r.returncode == 1 and "/nonexistent" in r.stderr
