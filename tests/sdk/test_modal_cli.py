"""The `modal` command line of the Python client: tokens, apps, containers, secrets, environments, queues, dicts, images, terminals."""

import json
import re
import subprocess
import time

import pytest

import programs as sdk_programs
from terminal import terminal

LIVE = ("import modal, os, sys\n"
        "app = modal.App.lookup(sys.argv[1], create_if_missing=True)\n"
        "sb = modal.Sandbox.create(*sys.argv[2:], app=app, image=modal.Image.from_registry('base'), timeout=300)\n"
        "print(sb.object_id, sb._get_task_id(), app.app_id)\n")

# tmux leaves out the space at the end of a line.
PROMPT = ":/#"


class Cli:
    def __init__(self, python, env):
        self.python = python
        self.env = env

    def __call__(self, *arguments, stdin="", fails=False, env=None):
        r = subprocess.run([self.python, "-m", "modal", *arguments], input=stdin, env={**self.env, **(env or {})}, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=120)
        assert (r.returncode != 0) == fails, f"{arguments} ended with {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r.stdout + r.stderr if fails else r.stdout

    def command(self, *arguments):
        return [self.python, "-m", "modal", *arguments]

    def json(self, *arguments):
        return json.loads(self(*arguments, "--json"))


def make_cli(daemon, installed, tmp_path, generation):
    env = sdk_programs.base_env(daemon, generation, tmp_path)
    env.update(COLUMNS="200", NO_COLOR="1")
    return Cli(installed("python") / "bin/python3", env)


@pytest.fixture
def modal(daemon, installed, tmp_path):
    return make_cli(daemon, installed, tmp_path, "v2")


@pytest.fixture
def live(daemon, installed, tmp_path, generation):
    """A function: starts a sandbox through the SDK; gives the CLI and the ids."""
    cli = make_cli(daemon, installed, tmp_path, generation)
    made = []

    def start(*command, app="cli-app"):
        r = subprocess.run([cli.python, "-c", LIVE, app, *command], env=cli.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        sandbox, task, app_id = r.stdout.split()
        # A task's id has our own id of the sandbox in it.
        made.append("sb-" + task[3:25])
        return cli, sandbox, task, app_id

    yield start
    for sandbox in made:
        daemon.api.delete(f"/v1/sandboxes/{sandbox}")


# --- tokens and profiles

def test_token_info(modal):
    text = modal("token", "info")
    assert modal.env["MODAL_TOKEN_ID"] in text


def test_token_info_of_a_wrong_token(modal):
    text = modal("token", "info", fails=True, env={"MODAL_TOKEN_SECRET": "as-wrong"})
    assert "token" in text.lower() or "auth" in text.lower()


def test_token_set(modal, tmp_path):
    env = {k: modal.env[k] for k in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")}
    bare = Cli(modal.python, {k: v for k, v in modal.env.items() if k not in env})
    bare("token", "set", "--token-id", env["MODAL_TOKEN_ID"], "--token-secret", env["MODAL_TOKEN_SECRET"], "--profile", "here")
    written = (tmp_path / "modal.toml").read_text()
    assert "[here]" in written and env["MODAL_TOKEN_ID"] in written
    assert "here" in bare("profile", "current")
    assert isinstance(bare.json("app", "list"), list)


def test_token_set_of_a_wrong_token(modal):
    modal("token", "set", "--token-id", "ak-nobody", "--token-secret", "as-wrong", "--profile", "wrong", fails=True)


def test_token_new_answers_clearly(modal):
    bare = Cli(modal.python, {k: v for k, v in modal.env.items() if not k.startswith("MODAL_TOKEN")})
    assert "modal token set" in bare("token", "new", fails=True)


# --- secrets, environments, queues, dicts, images

def test_secrets(modal):
    modal("secret", "create", "cli-secret", "ONE=1", "TWO=2")
    assert "already exists" in modal("secret", "create", "cli-secret", "ONE=1", fails=True).lower()
    modal("secret", "create", "cli-secret", "ONE=3", "--force")
    assert "cli-secret" in json.dumps(modal.json("secret", "list"))
    modal("secret", "delete", "cli-secret", "--yes")
    assert "cli-secret" not in json.dumps(modal.json("secret", "list"))
    modal("secret", "delete", "cli-secret", "--yes", fails=True)


def test_environments(modal):
    before = modal.json("environment", "list")
    assert before
    modal("environment", "create", "cli-env")
    modal("environment", "update", "cli-env", "--set-name", "cli-env-2")
    assert "cli-env-2" in json.dumps(modal.json("environment", "list"))
    modal("environment", "delete", "cli-env-2", "--yes")
    assert "cli-env" not in json.dumps(modal.json("environment", "list"))


def test_queues(modal):
    modal("queue", "create", "cli-queue")
    assert "cli-queue" in json.dumps(modal.json("queue", "list"))
    assert "0" in modal("queue", "len", "cli-queue")
    modal("queue", "peek", "cli-queue")
    modal("queue", "delete", "cli-queue", "--yes")


def test_dicts(modal):
    modal("dict", "create", "cli-dict")
    assert "cli-dict" in json.dumps(modal.json("dict", "list"))
    modal("dict", "items", "cli-dict")
    modal("dict", "delete", "cli-dict", "--yes")
    assert "cli-dict" not in json.dumps(modal.json("dict", "list"))


def test_images(modal, tmp_path):
    name, word = f"cli-image-{time.time_ns()}", f"word{time.time_ns()}"
    (tmp_path / "context").mkdir()
    (tmp_path / "context/file").write_text("file\n")
    (tmp_path / "context/Dockerfile").write_text(f"FROM base\nCOPY file /file\nRUN cat /file; echo {word}\n")
    text = modal("image", "build", "-t", f"{name}:v1", str(tmp_path / "context"))
    image = re.search(r"im-[0-9A-Za-z]{22}", text)[0]
    assert f"{name}:v1" in text
    assert word in modal("image", "logs", image)
    assert word in modal("image", "logs", image, "--all")
    again = modal("image", "build", "-t", name, str(tmp_path / "context"))
    assert image in again
    listed = modal.json("image", "names", "list", "--prefix", name)
    assert [(i["tag"], i["image_id"]) for i in listed] == [(f"{name}:latest", image), (f"{name}:v1", image)]
    history = modal.json("image", "names", "history", f"{name}:v1")
    assert [h["image_id"] for h in history] == [image] and history[0]["published_by"] != "-"
    modal("image", "names", "delete", f"{name}:v1", "--yes")
    assert [i["tag"] for i in modal.json("image", "names", "list", "--prefix", name)] == [f"{name}:latest"]
    assert "not found" in modal("image", "names", "delete", f"{name}:v1", "--yes", fails=True).lower()
    assert "No publishing history" in modal("image", "names", "history", f"{name}:v1", fails=True)


def test_an_image_that_cannot_be_built(modal, tmp_path):
    (tmp_path / "context").mkdir()
    (tmp_path / "context/Dockerfile").write_text("FROM base\nRUN echo the reason; exit 9\n")
    text = modal("image", "build", "-t", "cli-bad", str(tmp_path / "context"), fails=True)
    assert "the reason" in text and "exit code 9" in text
    failed = re.search(r"im-[0-9A-Za-z]{22}", text)[0]
    assert "the reason" in modal("image", "logs", failed)
    assert "Could not find image" in modal("image", "logs", "im-0000000000000000000000", fails=True)


def test_what_is_not_there_answers_clearly(modal):
    for arguments in (["volume", "create", "v"], ["volume", "list"]):
        start = time.monotonic()
        assert "volume" in modal(*arguments, fails=True).lower()
        assert time.monotonic() - start < 15


# --- apps

def test_apps(live):
    cli, _, _, app_id = live("sh", "-c", "echo from the app; sleep 100", app="cli-apps")
    assert "cli-apps" in json.dumps(cli.json("app", "list"))
    deadline = time.monotonic() + 20
    while "from the app" not in (text := cli("app", "logs", app_id)):
        assert time.monotonic() < deadline, text
    assert "from the app" in cli("app", "logs", "cli-apps", "--tail", "10")
    cli("app", "stop", app_id, "--yes")
    listed = [a for a in cli.json("app", "list") if app_id in json.dumps(a)]
    assert not listed or "stopped" in json.dumps(listed).lower()
    assert not any(app_id in json.dumps(c) for c in cli.json("container", "list"))


# --- containers

def test_container_list(live):
    cli, _, task, _ = live()
    assert task in json.dumps(cli.json("container", "list"))


def test_container_exec(live):
    cli, _, task, _ = live()
    assert cli("container", "exec", "--no-pty", task, "--", "sh", "-c", "echo out; echo $((6 * 7)); sleep 1") == "out\n42\n"


def test_container_logs(live):
    cli, _, task, _ = live("sh", "-c", "echo said this; sleep 100")
    deadline = time.monotonic() + 20
    while "said this" not in (text := cli("container", "logs", task)):
        assert time.monotonic() < deadline, text


def test_container_logs_followed(live):
    cli, _, task, _ = live("sh", "-c", "for i in 1 2 3; do echo line $i; sleep 1; done")
    assert re.findall(r"line \d", cli("container", "logs", "-f", task)) == ["line 1", "line 2", "line 3"]


def test_container_stop(live):
    cli, _, task, _ = live()
    cli("container", "stop", task, "--yes")
    deadline = time.monotonic() + 20
    while task in json.dumps(cli.json("container", "list")):
        assert time.monotonic() < deadline


def test_an_unknown_container(modal):
    text = modal("container", "exec", "--no-pty", "ta-0000000000000000000000000S", "true", fails=True)
    assert "not found" in text.lower() or "ta-0000" in text


def test_shell_of_a_sandbox_without_a_terminal(live):
    cli, sandbox, _, _ = live()
    assert "through the shell" in cli("shell", sandbox, "--no-pty", "-c", "sh -c 'echo through the shell; sleep 1'")


# --- terminals

def test_shell_in_a_terminal(live):
    cli, sandbox, _, _ = live()
    with terminal(cli.command("shell", sandbox), cli.env) as t:
        t.wait_for(PROMPT)
        t.type("echo $((6 * 7)) $(tput cols) $(test -t 0 && echo tty)")
        t.wait_for("42 100 tty")
        t.type("stty size; sleep 100")
        t.wait_for("30 100")
        time.sleep(0.5)
        t.key("C-c")
        t.type("echo inter''rupted")
        t.wait_for("interrupted")
        t.type("exit")
        t.wait_end()


def test_container_exec_in_a_terminal(live):
    cli, _, task, _ = live()
    with terminal(cli.command("container", "exec", task, "/bin/bash"), cli.env) as t:
        t.wait_for(PROMPT)
        t.type("read -r x; echo got $x")
        t.type("typed ü")
        t.wait_for("got typed ü")
        t.key("C-d")
        t.wait_end()


def test_shell_of_a_new_sandbox_in_a_terminal(modal):
    with terminal(modal.command("shell", "--image", "base"), modal.env) as t:
        t.wait_for(PROMPT, 90)
        t.type("echo $((6 * 7))")
        t.wait_for("\n42")
        t.type("exit")
        t.wait_end(90)


def test_app_logs_followed_in_a_terminal(live):
    cli, _, _, app_id = live("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 1; done")
    with terminal(cli.command("app", "logs", "-f", app_id), cli.env) as t:
        t.wait_for("line 1")
        t.wait_for("line 9")
        t.key("C-c")
        t.wait_end()
