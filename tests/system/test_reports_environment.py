"""
Faults that users of such systems met, where commands meet their surroundings: the image, its shells and directories, the environment.
Each test bears the report's number; test_reports_exec.py has those about starting and ending.
"""

import io
import pathlib
import subprocess
import tarfile
import time

import pytest

import qsdaemon
import routerclient
from qsdaemon import error
from test_odd_images import Imported
from test_reports_exec import launch
from test_reports_stdio import follow, output, start

BUSYBOX = pathlib.Path("/bin/busybox")


def text(r):
    return output(r).decode()


@pytest.fixture(scope="module")
def taught(daemon):
    routerclient.teach(daemon)
    return daemon


@pytest.fixture
def cli(daemon):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token}

    def run(*args, **kw):
        return subprocess.run([qsdaemon.build_dir() / "src/cli/quicksand", *args], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, **kw)

    return run


# What cannot start, and: the part of the message that names it; exit code of the command line; error of REST.
CANNOT_START = [
    (["no-such-xyz"], "no-such-xyz", 127, "executable_not_found"),
    (["/no/such/xyz"], "/no/such/xyz", 127, "executable_not_found"),
    (["/tmp/plain"], "/tmp/plain", 126, "not_executable"),
    (["/tmp"], "/tmp", 126, "not_executable"),
    (["/tmp/script"], "/tmp/script", 127, "executable_not_found"),
]


def test_ur024_what_cannot_start_is_told_alike_everywhere(taught, api, cli):
    with api.sandbox() as sb:
        assert text(api.run(sb, ["sh", "-c", "echo hi > /tmp/plain; printf '#!/nope\\n' > /tmp/script; chmod 755 /tmp/script"])) == ""
        r = routerclient.Router(taught, sb.id)
        for i, (command, named, code, name) in enumerate(CANNOT_START):
            said = error(launch(api, sb, command), 422, name)["message"]
            assert named in said
            seen = cli("exec", sb.id, *command)
            assert (seen.returncode, seen.stdout) == (code, "") and said in seen.stderr
            with pytest.raises(routerclient.RouterError) as e:
                r.TaskExecStart(exec_id=f"cannot-{i}", command_args=command)
            assert named in e.value.text, e.value
        assert cli("exec", sb.id, "sh", "-c", "no-such-xyz").returncode == 127
        with pytest.raises(routerclient.RouterError) as e:
            r.TaskExecStart(exec_id="empty", command_args=[])
        assert e.value.name == "INVALID_ARGUMENT"


def test_ur026_arguments_arrive_through_the_command_line_too(api, cli):
    argv = ["a\nb", "", "  ", "$(id)", "\"'\\", "é☕", "-n", "*", "--", "-e"]
    with api.sandbox() as sb:
        r = cli("exec", sb.id, "printf", "%s|", *argv)
        assert r.stdout == "".join(a + "|" for a in argv)


def test_ur028_the_environment_of_a_sandbox_arrives_exactly(api):
    env = {"A": "l1\nl2\n", "B": "a\"b'c$HOME`\\", "C": "", "1X": "a digit first", "with.dot": "x", "é": "☕"}
    with api.sandbox(env=env) as sb:
        seen = dict(v.split("=", 1) for v in text(api.run(sb, ["env", "-0"], env={"B": "of the command"})).split("\0") if v)
        assert {k: seen.get(k) for k in env} == {**env, "B": "of the command"}
        # What a shell cannot take as a name does not keep it from the rest.
        assert text(api.run(sb, ["sh", "-c", "echo \"$A\""])) == "l1\nl2\n\n"


def test_ur030_here_documents_and_text_that_looks_like_ours(api):
    with api.sandbox() as sb:
        body = "exit 3\n__QUICKSAND_END__\nEXIT_CODE=0\n\x04\x1b[0m\n"
        assert text(api.run(sb, ["sh", "-c", f"cat > /tmp/t <<'EOF'\n{body}EOF\ncat /tmp/t"])) == body
        r = api.run(sb, ["sh", "-c", "cat <<EOF\nnever ended"], stderr="merge")
        assert r["exec"]["exit"]["code"] == 0 and "never ended" in r["stdout"]
        assert text(api.run(sb, ["echo", "ok"])) == "ok\n"


def test_ur031_what_was_started_in_the_background_goes_on(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["sh", "-c", "sleep 300 & echo started"])
        assert text(r) == "started\n" and r["exec"]["exit"]["code"] == 0
        assert text(api.run(sb, ["pgrep", "-x", "-c", "sleep"])) == "1\n"


def test_ur033_a_child_that_ignores_sigterm_dies_with_its_command(api):
    with api.sandbox() as sb:
        assert text(api.run(sb, ["sh", "-c", "setsid sleep 2000 >/dev/null 2>&1 & echo"])) == "\n"
        r = api.run(sb, ["sh", "-c", "(trap '' TERM INT HUP; sleep 1001; sleep 1002) & sleep 1003 | cat & wait"], timeout_s=1, grace_s=1)
        assert r["exec"]["exit"]["reason"] == "timeout"
        give_up = time.monotonic() + 10
        while "100" in (left := text(api.run(sb, ["pgrep", "-a", "sleep"]))):
            assert time.monotonic() < give_up, left
        assert left.split()[1:] == ["sleep", "2000"]


STARTUP = "for f in .bashrc .profile .bash_profile .bash_login .zshenv .zshrc .kshrc; do echo 'read x; exit 3' > /root/$f; done; "


def test_ur036_the_shell_of_the_account_is_not_asked(make_daemon):
    """Neither start-up files nor the shell in /etc/passwd, nor the lack of one, touch a command; before and after a restart."""
    daemon = make_daemon(supervised=True)
    api = daemon.api
    with api.sandbox() as sb:
        api.run(sb, ["sh", "-c", STARTUP + "cp -p /root/.zshenv /etc/profile; sed -i 's|^\\(root:.*:\\)[^:]*$|\\1/no/such/zsh|' /etc/passwd"])
        for _ in range(2):
            for command in (["echo", "ok"], ["sh", "-c", "echo ok"], ["bash", "-c", "echo ok"]):
                assert text(api.run(sb, command)) == "ok\n"
            e = start(api, sb.id, ["echo", "tty"], tty=True)
            assert follow(api, sb.id, e["id"]) == b"tty\r\n"
            # Who asks for a login shell gets one.
            assert api.run(sb, ["bash", "-lc", "echo ok"])["exec"]["exit"]["code"] == 3
            daemon.hold_down()
            daemon.let_up()


def tree(*entries):
    """A tar of (name, content or link or None for a directory)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as t:
        for name, data in entries:
            m = tarfile.TarInfo(name)
            m.mode = 0o755
            if data is None:
                m.type = tarfile.DIRTYPE
                t.addfile(m)
            elif isinstance(data, str):
                m.type, m.linkname = tarfile.SYMTYPE, data
                t.addfile(m)
            else:
                m.size = len(data)
                t.addfile(m, io.BytesIO(data))
    return packed.getvalue()


def files_work(api, sb):
    url = f"/v1/sandboxes/{sb.id}/files"
    data = bytes(range(256)) * 1000
    assert api.put(url, params={"path": "/data/d/f", "parents": True}, content=data).status_code == 201
    assert api.get(url, params={"path": "/data/d/f"}).content == data
    listed = api.get(url + "/list", params={"path": "/data/d"}).json()["items"]
    assert [(i["name"], i["size"]) for i in listed] == [("f", len(data))]
    assert api.get(url + "/archive", params={"path": "/data"}).status_code == 200
    assert api.delete(url, params={"path": "/data", "recursive": "true"}).status_code == 204
    error(api.get(url, params={"path": "/data/d/f"}), 404, "file_not_found")


def test_ur037_an_image_of_busybox(api):
    if not BUSYBOX.exists():
        pytest.skip("busybox-static is not installed")
    names = ("sh", "echo", "id", "env", "cat", "ls", "ps", "wc", "sleep")
    image = tree(("bin", None), ("bin/busybox", BUSYBOX.read_bytes()), *((f"bin/{n}", "busybox") for n in names))
    with Imported(api, image) as image, api.sandbox(image=image, command=["sh", "-c", "echo from the entry point; sleep 1000"]) as sb:
        files_work(api, sb)
        assert text(api.run(sb, ["sh", "-c", "echo $HOME $PATH | wc -w; id -u"])) == "2\n0\n"
        e = start(api, sb.id, ["sh", "-c", "echo tty"], tty=True)
        assert follow(api, sb.id, e["id"]) == b"tty\r\n"
        logs = api.get(f"/v1/sandboxes/{sb.id}/execs/entry/stdout", params={"follow": "false"})
        assert logs.content == b"from the entry point\n", logs.text


def test_ur037_an_image_without_a_shell_at_its_place(api):
    """As on NixOS: programs lie elsewhere, and PATH says where."""
    if not BUSYBOX.exists():
        pytest.skip("busybox-static is not installed")
    image = tree(("nix", None), ("nix/store", None), ("nix/store/abc-busybox", BUSYBOX.read_bytes()), ("run/sw/bin/sh", "/nix/store/abc-busybox"),
                 ("run/sw/bin/echo", "/nix/store/abc-busybox"))
    with Imported(api, image) as image, api.sandbox(image=image, env={"PATH": "/run/sw/bin"}) as sb:
        files_work(api, sb)
        assert text(api.run(sb, ["sh", "-c", "echo found"])) == "found\n"
        said = error(launch(api, sb, ["/bin/sh", "-c", "true"]), 422, "executable_not_found")["message"]
        assert "/bin/sh" in said


def test_ur037_a_read_only_usr(api):
    """Nothing of ours is put into it: root may take away every right and every directory of it that is not in use."""
    with api.sandbox() as sb:
        api.run(sb, ["sh", "-c", "chmod -R a-w /usr /etc /var; rm -rf /usr/local /usr/share /var/lib"])
        files_work(api, sb)
        assert text(api.run(sb, ["echo", "ok"], user="nobody")) == "ok\n"


DESTROYED = {
    "directories": "rm -rf /tmp /var/tmp /run/*",
    "tmp without rights": "chmod 000 /tmp",
    "null": "rm -f /dev/null /dev/zero; true",
    "links": "rm -rf /tmp /run /var; ln -s /nowhere /tmp; ln -s /proc/1 /run",
    "accounts": "rm -f /etc/passwd /etc/group /etc/shadow /etc/nsswitch.conf",
    "names": "rm -f /etc/resolv.conf /etc/hosts /etc/hostname; : > /etc/ld.so.cache",
    "home": "rm -rf /root; chmod 700 /",
}


@pytest.mark.parametrize("what", DESTROYED)
def test_ur038_a_sandbox_that_was_laid_waste(api, what):
    with api.sandbox() as sb:
        api.run(sb, ["sh", "-c", DESTROYED[what]])
        for user in (None, "65534"):
            e = launch(api, sb, ["sh", "-c", "echo ok > /dev/null; echo ok"], **({"user": user} if user else {}))
            if what == "home" and user:
                assert "Permission denied" in error(e, 400, "invalid_argument")["message"]
                continue
            assert e.status_code == 201, e.text
            assert follow(api, sb.id, e.json()["id"]) == b"ok\n"
        e = start(api, sb.id, ["echo", "tty"], tty=True)
        assert follow(api, sb.id, e["id"]) == b"tty\r\n"
        files_work(api, sb)


def test_ur040_a_command_that_ended_is_not_run_again_over_grpc(taught, api):
    with api.sandbox() as sb:
        r = routerclient.Router(taught, sb.id)
        for _ in range(3):
            r.TaskExecStart(exec_id="once", command_args=["sh", "-c", "echo x >> /tmp/n"])
            r.TaskExecWait(exec_id="once")
        assert text(api.run(sb, ["cat", "/tmp/n"])) == "x\n"


def test_ur042_the_limit_holds_over_grpc(taught, api):
    with api.sandbox() as sb:
        r = routerclient.Router(taught, sb.id)
        begin = time.monotonic()
        r.TaskExecStart(exec_id="stopped", command_args=["sh", "-c", "kill -STOP 0; sleep 99"], timeout_secs=2)
        r.TaskExecWait(exec_id="stopped")
        assert 1.9 < time.monotonic() - begin < 30
        assert text(api.run(sb, ["echo", "ok"])) == "ok\n"
