"""
`quicksand build`: a directory, a Dockerfile from elsewhere, arguments, secrets, the network; what it prints and its exit code.
"""

import os
import subprocess

import pytest

import qsdaemon
from test_build import sh


@pytest.fixture
def cli(image_daemon, tmp_path):
    program = str(qsdaemon.build_dir() / "src/cli/quicksand")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": image_daemon.url, "QUICKSAND_TOKEN": image_daemon.token}

    def run(*args, code=0, more=None, **kw):
        r = subprocess.run([program, *map(str, args)], capture_output=True, text=True, env={**env, **(more or {})}, timeout=240, cwd=tmp_path,
                           stdin=kw.pop("stdin", subprocess.DEVNULL), **kw)
        assert r.returncode == code, r
        return r
    return run


def test_build(cli, images, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nARG V=0\nLABEL from=file\nCOPY . /here\nRUN echo built $V; echo $V >/v\n")
    (tmp_path / ".dockerignore").write_text("*.log\n")
    (tmp_path / "x.log").write_text("")
    (tmp_path / "kept").write_text("kept\n")
    r = cli("build", "-t", "cli/built:1", "--build-arg", "V=7", "--label", "more=label", ".")
    image = images.get("cli/built:1")
    assert r.stdout == image["id"] + "\n"
    assert "step 5/5: RUN echo built $V" in r.stderr and "built 7" in r.stderr
    assert image["config"]["config"]["Labels"] == {"from": "file", "more": "label"}
    assert sh(images, image, "cat /v; ls -A /here") == "7\n.dockerignore\nDockerfile\nkept\n"
    again = cli("build", "-q", "--build-arg", "V=7", ".")
    assert images.get(again.stdout.strip())["layers"] == image["layers"] and "step" not in again.stderr


def test_secrets(cli, images, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN --mount=type=secret,id=A --mount=type=secret,id=B --mount=type=secret,id=C,env=C "
                                         "cat /run/secrets/A /run/secrets/B | sha256sum >/sum; test \"$C\" = three\n")
    (tmp_path / "file").write_text("one\n")
    import hashlib
    r = cli("build", "--no-cache", "--secret", "id=A,src=file", "--secret", "id=B,env=TWO", "--secret", "C=three", ".", more={"TWO": "two"})
    want = hashlib.sha256(b"one\ntwo").hexdigest()
    assert sh(images, images.get(r.stdout.strip()), "cat /sum") == f"{want}  -\n"
    assert "there is no variable 'NOT_SET'" in cli("build", "--secret", "id=A,env=NOT_SET", ".", code=1).stderr
    assert "nothing.txt" in cli("build", "--secret", "id=A,src=nothing.txt", ".", code=1).stderr


def test_a_failure(cli, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo before; exit 5\n")
    r = cli("build", ".", code=1)
    assert "before" in r.stderr and "line 2" in r.stderr and "exit code 5" in r.stderr and r.stdout == ""
    (tmp_path / "Dockerfile").write_text("FROM base\nNONSENSE\n")
    assert "line 2, column 1" in cli("build", ".", code=1).stderr


def test_network_options(cli, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo ok\n")
    assert "exclude each other" in cli("build", "--network", "open", "--allow-domain", "x.test", ".", code=1).stderr
    assert "no JSON" in cli("build", "--network", "{", ".", code=1).stderr
    for network in ("block", "open", '{"rules": [{"cidrs": ["10.0.0.7"]}]}'):
        cli("build", "-q", "--network", network, ".")
    cli("build", "-q", "--allow-domain", "x.test", ".")


def test_what_is_ignored_is_not_sent(cli, images, image_daemon, tmp_path):
    """UR-094: neither the image nor the server ever has it; the file beside another Dockerfile goes before the common one."""
    word = "do-not-send-" + os.urandom(8).hex()
    for path in (".env", "deep/er/.env", "logs/a.log", "logs/keep/b"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(word if path.endswith(".env") else "x")
    (tmp_path / "-dash").write_text("d")
    (tmp_path / "with\nnewline").write_text("n")
    (tmp_path / "link").symlink_to("-dash")
    (tmp_path / ".dockerignore").write_text("**/.env\nlogs\n!logs/keep\n")
    (tmp_path / "other").write_text("FROM base\nCOPY . /c\nRUN sleep 0\n")
    r = cli("build", "--no-cache", "-f", "other", ".")
    image = images.get(r.stdout.strip())
    assert sh(images, image, "cd /c; find . | sort | tr '\\n' ' '; readlink link") == (
        ". ./-dash ./.dockerignore ./deep ./deep/er ./link ./logs ./logs/keep ./logs/keep/b ./other ./with newline -dash\n")
    for path in (image_daemon.data_dir / "layers").rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1000:
            assert word.encode() not in path.read_bytes()
    (tmp_path / "other2").write_text("FROM base\nCOPY deep /\n")
    (tmp_path / "other2.dockerignore").write_text("deep\n")
    (tmp_path / "other.dockerignore").write_text("*\n!-dash\n")
    assert "no 'deep' in the build context" in cli("build", "-f", "other2", ".", code=1).stderr
    image = images.get(cli("build", "-f", "other", ".").stdout.strip())
    assert sh(images, image, "ls -A /c") == "-dash\n"
