"""Images that are built: layers of commands, local files, secrets, names, failures."""

import pathlib
import tempfile

import modal

from kit import app, image, raises, run, unique
import modal.exception


def output(img, *argv):
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    try:
        out, err, code = run(sb, *argv)
        assert code == 0, (out, err)
        return out
    finally:
        sb.terminate()


def test_commands_environment_and_workdir():
    img = image.run_commands("echo built >/built", "mkdir -p /srv/x").env({"COLOR": "blue"}).workdir("/srv/x")
    assert output(img, "sh", "-c", "cat /built; pwd; echo $COLOR") == "built\n/srv/x\nblue\n"


def test_dockerfile_commands():
    img = image.dockerfile_commands("ARG A=1", "RUN echo $A \\", "  >/a", "ENV B=2", "USER 1000")
    assert output(img, "sh", "-c", "cat /a; echo $B; id -u") == "1\n2\n1000\n"


def test_local_files():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "tree/sub").mkdir(parents=True)
        (root / "tree/one").write_text("one")
        (root / "tree/sub/two").write_text("two")
        (root / "big").write_bytes(b"x" * 3_000_000)
        img = image.add_local_dir(root / "tree", "/tree", copy=True).add_local_file(root / "big", "/big", copy=True)
        img = img.run_commands("cat /tree/one /tree/sub/two >/both")
        assert output(img, "sh", "-c", "cat /both; wc -c </big") == "onetwo3000000\n"


def test_the_same_definition_is_the_same_image():
    command = f"echo {unique('x')} >/x"
    a, b = image.run_commands(command), image.run_commands(command)
    a.build(app)
    b.build(app)
    assert a.object_id == b.object_id
    c = image.run_commands(command, force_build=True)
    c.build(app)
    assert c.object_id != a.object_id


def test_secrets_are_for_the_command_alone():
    img = image.run_commands("test ${#TOKEN} = 6 && echo seen >/seen", secrets=[modal.Secret.from_dict({"TOKEN": "s3cr3t"})])
    assert output(img, "sh", "-c", "cat /seen; echo ${TOKEN:-none}") == "seen\nnone\n"


def test_a_failed_command():
    img = image.run_commands("echo the reason; exit 7")
    with raises(modal.exception.Error, "exit code 7"):
        img.build(app)


def test_dockerfiles():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "data").write_text("from the context")
        (root / "Dockerfile").write_text("FROM base AS one\nRUN echo 1 >/one\nFROM base\nCOPY data /data\nCOPY --from=one /one /one\n")
        img = modal.Image.from_dockerfile(root / "Dockerfile", context_dir=root)
        assert output(img, "sh", "-c", "cat /data /one") == "from the context1\n"


def test_scratch():
    img = modal.Image.from_scratch()
    img.build(app)
    assert img.object_id.startswith("im-")
