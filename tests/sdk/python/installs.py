"""
The client's default image and what installs packages: run by tests/network/test_installs.py, where a registry and mirrors of the test stand for those
of the network. QS_MIRROR is where they are, QS_REGISTRY is a registry with a password.
"""

import os
import pathlib
import tempfile

import modal
import modal.exception

from kit import app, raises, run, unique

MIRROR = os.environ["QS_MIRROR"]
REGISTRY = os.environ["QS_REGISTRY"]
slim = modal.Image.debian_slim("3.11")


def output(img, *argv):
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    try:
        out, err, code = run(sb, *argv)
        assert code == 0, (out, err)
        return out
    finally:
        sb.terminate()


def content(img, path):
    """Of a file in an image that may have no program at all."""
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    try:
        return sb.filesystem.read_text(path)
    finally:
        sb.terminate()


def test_the_default_image():
    """All of the client's lines are done on what the registry has."""
    assert output(slim, "sh", "-c", "cat /etc/stand-in; gcc; python -m wheel_of_the_test; python3 --version | cut -c1-9") == (
        "python:3.11.12-slim-bookworm\ngcc of the test\nwheel of the test\nPython 3.\n")


def test_its_command_keeps_a_sandbox():
    sb = modal.Sandbox.create(app=app, image=slim, timeout=300)
    assert run(sb, "sh", "-c", "tr '\\0' ' ' </proc/$(pgrep -o sleep)/cmdline")[0] == "sleep 172800 "
    assert sb.poll() is None
    sb.terminate()


def test_apt_install():
    assert output(slim.apt_install("qs-tool", "qs-library"), "qs-tool") == "library\nroot\n"


def test_apt_install_of_what_is_not_there():
    with raises(modal.exception.Error, "Unable to locate package no-such-tool"):
        slim.apt_install("no-such-tool").build(app)


def test_pip_install():
    img = slim.pip_install("qspkg==1.0")
    assert output(img, "python", "-c", "import qspkg, qsdep; print(qspkg.NAME, qsdep.NAME)") == "qspkg qsdep\n"


def test_pip_install_of_what_is_not_there():
    with raises(modal.exception.Error, "No matching distribution found for no-such-package"):
        slim.pip_install("no-such-package").build(app)


def test_pip_install_from_requirements():
    with tempfile.TemporaryDirectory() as at:
        local = pathlib.Path(at) / "requirements.txt"
        local.write_text("qspkg\n")
        img = slim.pip_install_from_requirements(local)
        assert output(img, "python", "-c", "import qsdep; print(qsdep.NAME)") == "qsdep\n"


def test_pip_install_from_pyproject():
    with tempfile.TemporaryDirectory() as at:
        local = pathlib.Path(at) / "pyproject.toml"
        local.write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["qspkg>=1"]\n')
        assert output(slim.pip_install_from_pyproject(local), "python", "-c", "import qspkg; print(qspkg.NAME)") == "qspkg\n"


def test_uv_pip_install():
    img = slim.uv_pip_install("qspkg")
    assert output(img, "python", "-c", "import qspkg, qsdep; print(qspkg.NAME, qsdep.NAME)") == "qspkg qsdep\n"


def test_a_chain():
    """Layers on layers; the second time all of it is there."""
    def chain():
        return (modal.Image.from_registry("debian-of-the-test:1").apt_install("qs-tool").env({"A": "1"}).workdir("/srv")
                .run_commands("qs-tool >out", "echo $A >>out").dockerfile_commands("RUN echo end >>out"))

    assert output(chain(), "cat", "/srv/out") == "library\nroot\n1\nend\n"
    a, b = chain().build(app), chain().build(app)
    assert a.object_id == b.object_id


def test_a_private_registry():
    ref = f"{REGISTRY}/team/private:1"
    good = modal.Secret.from_dict({"REGISTRY_USERNAME": "me", "REGISTRY_PASSWORD": "secret"})
    bad = modal.Secret.from_dict({"REGISTRY_USERNAME": "me", "REGISTRY_PASSWORD": "wrong"})
    with raises(modal.exception.Error):
        modal.Image.from_registry(ref, secret=bad).build(app)
    with raises(modal.exception.Error):
        modal.Image.from_registry(ref).build(app)
    assert content(modal.Image.from_registry(ref, secret=good), "/private") == "private\n"


ACCOUNT = '{"type": "service_account", "client_email": "a@b", "private_key": "-----BEGIN PRIVATE KEY-----"}'


def test_a_service_account():
    key = modal.Secret.from_dict({"SERVICE_ACCOUNT_JSON": ACCOUNT})
    img = modal.Image.from_gcp_artifact_registry(f"{REGISTRY}/team/account:1", secret=key)
    assert content(img, "/private") == "account\n"


def test_force_build_pulls_again():
    first = modal.Image.from_registry("moving-of-the-test:1").build(app)
    again = modal.Image.from_registry("moving-of-the-test:1").build(app)
    forced = modal.Image.from_registry("moving-of-the-test:1", force_build=True).build(app)
    assert first.object_id == again.object_id
    assert forced.object_id != first.object_id
    assert content(forced, "/moving") == "moving\n"


def test_what_the_registry_does_not_have():
    with raises(modal.exception.Error, "no-such-image"):
        modal.Image.from_registry("no-such-image:1").build(app)


def test_multi_stage_from_the_registry():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        word = unique("word")
        (root / "Dockerfile").write_text(
            f"FROM debian-of-the-test:1 AS made\nRUN echo {word} >/made\nFROM moving-of-the-test:1\nCOPY --from=made /made /made\n"
            "COPY --from=debian-of-the-test:1 /etc/stand-in /from\n")
        img = modal.Image.from_dockerfile(root / "Dockerfile")
        assert [content(img, path) for path in ("/made", "/from", "/moving")] == [f"{word}\n", "debian-of-the-test:1\n", "moving\n"]
