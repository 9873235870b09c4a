"""The life of a sandbox through the Python client."""

import re
import time

import modal
import modal.exception as ex
from kit import APP_NAME, V2, alone, app, create, image, only, raises, run, sandbox, unique, within


def test_create_run_terminate():
    sb = create()
    assert run(sb, "echo", "hello") == ("hello\n", "", 0)
    sb.terminate()


def test_shape_of_ids():
    with sandbox() as sb:
        assert bool(re.fullmatch(r"sb-[0-9A-Za-z]{22}", sb.object_id)) != V2


def test_poll_is_none_while_it_runs():
    with sandbox() as sb:
        assert sb.poll() is None


def test_exit_code_of_the_main_process():
    with sandbox("sh", "-c", "exit 7") as sb:
        sb.wait(raise_on_termination=False)
        assert sb.returncode == 7
        assert sb.poll() == 7


def test_success_of_the_main_process():
    with sandbox("true") as sb:
        sb.wait()
        assert sb.returncode == 0


def test_terminate_gives_137():
    sb = create()
    sb.terminate(wait=True)
    assert sb.poll() == 137


def test_wait_raises_when_terminated():
    sb = create()
    other = modal.Sandbox.from_id(sb.object_id)
    sb.terminate()
    with raises(ex.SandboxTerminatedError):
        other.wait()


def test_terminate_twice():
    sb = create()
    other = modal.Sandbox.from_id(sb.object_id)
    sb.terminate()
    other.terminate()


def test_lifetime():
    with sandbox(timeout=2) as sb, within(15):
        with raises(ex.SandboxTimeoutError):
            sb.wait()
        assert sb.returncode == 124


def test_idle_timeout():
    with sandbox(idle_timeout=2) as sb, within(20):
        sb.wait(raise_on_termination=False)
        assert sb.returncode is not None


def test_environment():
    with sandbox(env={"GREETING": "hello", "ODD": "a=b 'c' ü"}) as sb:
        assert run(sb, "sh", "-c", 'printf "%s|%s" "$GREETING" "$ODD"')[0] == "hello|a=b 'c' ü"


def test_secrets():
    secret = modal.Secret.from_dict({"PASS": "from secret"})
    with sandbox(secrets=[secret]) as sb:
        assert run(sb, "printenv", "PASS")[0] == "from secret\n"


def test_workdir():
    with sandbox(workdir="/tmp") as sb:
        assert run(sb, "pwd")[0] == "/tmp\n"


def test_cpu_and_memory():
    with sandbox(cpu=(0.5, 1.0), memory=(128, 256)) as sb:
        assert run(sb, "true")[2] == 0


def test_block_network():
    with sandbox(block_network=True) as sb:
        assert run(sb, "sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")[0] == "lo\n"


def test_from_id():
    with sandbox() as sb:
        run(sb, "sh", "-c", "echo mark >/tmp/mark")
        other = modal.Sandbox.from_id(sb.object_id)
        assert run(other, "cat", "/tmp/mark")[0] == "mark\n"
        other.detach()


def test_an_unknown_id_is_not_found():
    with raises(ex.NotFoundError):
        modal.Sandbox.from_id("sb-01JZ7N5V8Q2M4K6T9R3W5X7Y1Z" if V2 else "sb-0000000000000000000000").poll()


def test_detach_leaves_it_running():
    sb = create()
    sandbox_id = sb.object_id
    sb.detach()
    other = modal.Sandbox.from_id(sandbox_id)
    assert run(other, "echo", "alive")[0] == "alive\n"
    other.terminate()


def test_a_name_is_found_and_taken():
    name = unique("name")
    with sandbox(name=name) as sb:
        assert modal.Sandbox.from_name(APP_NAME, name).object_id == sb.object_id
        with raises(ex.AlreadyExistsError):
            create(name=name)


def test_an_unknown_name_is_not_found():
    with raises(ex.NotFoundError):
        modal.Sandbox.from_name(APP_NAME, unique("nobody"))


def test_a_name_is_free_after_the_end():
    name = unique("name")
    create(name=name).terminate(wait=True)
    with sandbox(name=name) as sb:
        assert modal.Sandbox.from_name(APP_NAME, name).object_id == sb.object_id


def test_tags():
    with sandbox(tags={"a": "1"}) as sb:
        assert sb.get_tags() == {"a": "1"}
        sb.set_tags({"b": "2", "c": "3"})
        assert sb.get_tags() == {"b": "2", "c": "3"}


def test_list_by_app_and_tags():
    in_app = modal.App.lookup(unique("app"), create_if_missing=True)
    made = [create(app=in_app, tags={"extra": x}) for x in ("x", "y", "y")]
    ids = [sb.object_id for sb in made]
    assert {sb.object_id for sb in modal.Sandbox.list(app_id=in_app.app_id)} == set(ids)
    assert {sb.object_id for sb in modal.Sandbox.list(app_id=in_app.app_id, tags={"extra": "y"})} == set(ids[1:])
    made[0].terminate(wait=True)
    assert {sb.object_id for sb in modal.Sandbox.list(app_id=in_app.app_id)} == set(ids[1:])
    for sb in made[1:]:
        sb.terminate()


def test_readiness_of_a_command():
    probe = modal.Probe.with_exec("test", "-e", "/tmp/ready", interval_ms=100)
    with sandbox("sh", "-c", "sleep 1; touch /tmp/ready; sleep 60", readiness_probe=probe) as sb:
        sb.wait_until_ready(timeout=30)
        sb.wait_until_ready(timeout=5)


def test_readiness_of_a_port():
    serve = "import socket, time; time.sleep(1); s = socket.create_server(('127.0.0.1', 8077)); time.sleep(60)"
    with sandbox("python3", "-c", serve, readiness_probe=modal.Probe.with_tcp(8077, interval_ms=100)) as sb:
        sb.wait_until_ready(timeout=30)


def test_readiness_of_a_sandbox_that_ends():
    with sandbox("sleep", "1", readiness_probe=modal.Probe.with_tcp(8077)) as sb:
        with raises(ex.Error):
            sb.wait_until_ready(timeout=30)


def test_readiness_that_never_comes():
    with sandbox(readiness_probe=modal.Probe.with_exec("false", interval_ms=100)) as sb:
        with raises(ex.TimeoutError):
            sb.wait_until_ready(timeout=2)


def test_output_of_the_main_process():
    with sandbox("sh", "-c", "echo out; echo err >&2") as sb:
        sb.wait()
        assert (sb.stdout.read(), sb.stderr.read()) == ("out\n", "err\n")


def test_output_of_the_main_process_while_it_runs():
    with sandbox("sh", "-c", "echo first; sleep 3; echo second") as sb:
        start, first = time.monotonic(), None
        text = ""
        for line in sb.stdout:
            first = first or time.monotonic() - start
            text += line
        assert text == "first\nsecond\n"
        assert first < 2.5


def test_stdin_of_the_main_process():
    with sandbox("cat") as sb:
        sb.stdin.write("one\n")
        sb.stdin.drain()
        sb.stdin.write("two\n")
        sb.stdin.write_eof()
        sb.stdin.drain()
        assert sb.stdout.read() == "one\ntwo\n"
        sb.wait()
        assert sb.returncode == 0


def test_a_terminal_for_the_main_process():
    with sandbox("sh", "-c", "test -t 1 && echo tty; echo err >&2", pty=True) as sb:
        assert sb.stdout.read() == "tty\r\nerr\r\n"


def test_unicode_of_the_main_process():
    with sandbox("sh", "-c", "i=0; while [ $i -lt 3000 ]; do printf 'äöü€🎈'; i=$((i+1)); done") as sb:
        assert sb.stdout.read() == "äöü€🎈" * 3000


@alone
def test_twenty_four_at_once_are_all_listed():
    in_app = modal.App.lookup(unique("app"), create_if_missing=True)
    made = [create(app=in_app) for _ in range(24)]
    found = [sb.object_id for sb in modal.Sandbox.list(app_id=in_app.app_id)]
    assert len(found) == 24 and set(found) == {sb.object_id for sb in made}
    for sb in made:
        sb.terminate()


def test_a_command_after_the_end_fails_soon():
    sb = create()
    sandbox_id = sb.object_id
    sb.terminate(wait=True)
    with within(20), raises(ex.Error):
        modal.Sandbox.from_id(sandbox_id).exec("true")


@only("v2")
def test_a_name_given_later():
    name = unique("late")
    with sandbox() as sb:
        if hasattr(sb, "_experimental_set_name"):
            sb._experimental_set_name(name)
            assert modal.Sandbox.from_name(APP_NAME, name).object_id == sb.object_id


def test_a_gpu_is_refused():
    with within(10), raises(ex.Error):
        create(gpu="T4")


def test_the_default_image():
    sb = modal.Sandbox.create("echo", "hello world", app=app)
    sb.wait()
    assert sb.stdout.read() == "hello world\n"
    sb.terminate()


def test_an_image_by_id():
    with sandbox() as sb:
        assert run(sb, "true")[2] == 0
    assert image.object_id.startswith("im-")
    with sandbox(image=modal.Image.from_id(image.object_id)) as sb:
        assert run(sb, "echo", "ok")[0] == "ok\n"
