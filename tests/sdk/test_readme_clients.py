"""The README's examples for Modal's clients, run as printed with nothing but the three variables set."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
README = (HERE.parents[1] / "README.md").read_text()


def example(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    assert len(found) == 1, f"the README has {len(found)} examples in {language}"
    return found[0]


@pytest.fixture
def variables(daemon, tmp_path):
    token_id, secret = daemon.token.split(".", 1)
    return {"PATH": os.environ["PATH"] + ":/usr/local/go/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8",
            "MODAL_SERVER_URL": daemon.url, "MODAL_TOKEN_ID": token_id, "MODAL_TOKEN_SECRET": secret}


def run(command, variables, cwd):
    r = subprocess.run(command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True, timeout=240)
    assert r.returncode == 0, r.stderr[-3000:]
    return r.stdout


def test_javascript(installed, variables, tmp_path):
    (tmp_path / "node_modules").symlink_to(installed("js-0.11.1") / "node_modules")
    (tmp_path / "example.mjs").write_text(example("javascript"))
    out = run(["node", "example.mjs"], variables, tmp_path)
    assert out.split("\n")[:3] == ["42", " 0", "hello from JavaScript"], out


def test_python(installed, variables, tmp_path):
    (tmp_path / "example.py").write_text(example("python"))
    out = run([installed("python") / "bin/python", "example.py"], variables, tmp_path)
    assert out.split("\n")[:3] == ["42", " 0", "hello from Python"], out


def test_go(installed, variables, tmp_path):
    installed("go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path / name)
    (tmp_path / "main.go").write_text(example("go"))
    cache = subprocess.run(["go", "env", "GOMODCACHE", "GOCACHE", "GOFLAGS", "GOPROXY"], text=True, stdout=subprocess.PIPE, check=True,
                           env={**os.environ, "PATH": variables["PATH"]}).stdout.split("\n")
    go = dict(zip(("GOMODCACHE", "GOCACHE", "GOFLAGS", "GOPROXY"), cache))
    out = run(["go", "run", "."], {**variables, **{k: v for k, v in go.items() if v}}, tmp_path)
    assert out.split("\n")[:3] == ["42", " 0", "hello from Go"], out
