"""Commands in a running sandbox through the Python client."""

import concurrent.futures
import os
import time

import modal
import modal.exception as ex
from kit import alone, raises, run, sandbox, sha256, shared, within
from modal._utils.async_utils import synchronizer
from modal.sandbox._sandbox import _Sandbox
from modal.stream_type import StreamType


def test_streams_are_apart():
    assert run(shared(), "sh", "-c", "echo out; echo err >&2; exit 3") == ("out\n", "err\n", 3)


def test_arguments_arrive_as_they_are():
    args = ["x", "a b", "", "*", "$HOME", "ü€🎈", "-n", "new\nline", "'\""]
    assert run(shared(), "printf", "%s|", *args)[0] == "|".join(args) + "|"


def test_signals():
    assert run(shared(), "sh", "-c", "kill -9 $$")[2] == 137
    assert run(shared(), "sh", "-c", "kill -TERM $$")[2] == 143


def test_returncode_and_poll():
    p = shared().exec("sh", "-c", "sleep 1; exit 4")
    assert p.poll() is None
    assert p.wait() == 4
    assert p.poll() == 4 and p.returncode == 4


def test_binary():
    data = os.urandom(1 << 20)
    p = shared().exec("cat", text=False)
    p.stdin.write(data)
    p.stdin.write_eof()
    p.stdin.drain()
    assert p.stdout.read() == data
    assert p.wait() == 0


def test_lines():
    p = shared().exec("sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done", bufsize=1)
    assert list(p.stdout) == ["1\n", "2\n", "3\n"]


def test_stdin_text():
    p = shared().exec("cat")
    p.stdin.write("line 1\n")
    p.stdin.drain()
    p.stdin.write("line 2\n")
    p.stdin.write_eof()
    p.stdin.drain()
    assert p.stdout.read() == "line 1\nline 2\n"


def test_workdir():
    assert run(shared(), "pwd", workdir="/usr")[0] == "/usr\n"


def test_env():
    assert run(shared(), "printenv", "HERE", env={"HERE": "yes"})[0] == "yes\n"
    assert run(shared(), "printenv", "HERE")[2] == 1


def test_secrets():
    secret = modal.Secret.from_dict({"PASS": "word"})
    assert run(shared(), "printenv", "PASS", secrets=[secret])[0] == "word\n"


def test_timeout():
    with within(10):
        p = shared().exec("sleep", "999", timeout=1)
        try:
            assert p.wait() in (137, -1)
        except ex.ExecTimeoutError:
            pass


def test_devnull():
    p = shared().exec("sh", "-c", "echo out; echo err >&2", stdout=StreamType.DEVNULL)
    assert p.stderr.read() == "err\n"
    assert p.wait() == 0


def test_terminal():
    p = shared().exec("sh", "-c", "test -t 0 && echo tty; echo err >&2", pty=True)
    assert p.stdout.read() == "tty\r\nerr\r\n"
    assert p.wait() == 0


def test_missing_program():
    try:
        out, err, code = run(shared(), "no-such-program-here")
        assert code == 127 and err
    except ex.Error as e:
        assert "no-such-program-here" in str(e)


def test_output_after_wait():
    p = shared().exec("sh", "-c", "echo later")
    assert p.wait() == 0
    assert p.stdout.read() == "later\n"


def test_streaming():
    p = shared().exec("sh", "-c", "echo first; sleep 2; echo second")
    start = time.monotonic()
    first = next(iter(p.stdout))
    assert first == "first\n" and time.monotonic() - start < 1.5
    p.wait()


def test_unicode():
    text = "äöü€🎈" * 20000
    p = shared().exec("cat")
    p.stdin.write(text)
    p.stdin.write_eof()
    p.stdin.drain()
    assert p.stdout.read() == text


@alone
def test_a_hundred_mib():
    sb = shared()
    total = run(sb, "sh", "-c", "head -c 104857600 /dev/urandom >/tmp/big; sha256sum /tmp/big")[0].split()[0]
    p = sb.exec("cat", "/tmp/big", text=False)
    assert sha256(p.stdout.read()) == total
    assert p.wait() == 0
    run(sb, "rm", "/tmp/big")


@alone
def test_thirty_at_once():
    sb = shared()
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda i: run(sb, "sh", "-c", f"echo {i}; exit {i}"), range(30)))
    assert results == [(f"{i}\n", "", i) for i in range(30)]


def test_arguments_too_long():
    with raises(ex.InvalidError):
        shared().exec("echo", "x" * 70000)


def test_the_end_of_the_sandbox_ends_a_command():
    with sandbox() as sb:
        p = sb.exec("sleep", "999")
        time.sleep(0.2)
        sb.terminate(wait=True)
    with within(15):
        try:
            assert p.wait() == 137
        except ex.Error:
            pass


def test_asynchronous_interface():
    import asyncio

    async def go():
        p = await shared().exec.aio("sh", "-c", "echo async")
        text = await p.stdout.read.aio()
        return text, await p.wait.aio()
    assert asyncio.run(go()) == ("async\n", 0)


@alone
def test_a_slow_reader():
    lines = 0
    for line in shared().exec("seq", "-f", "%0400.0f", "1", "10000", bufsize=1).stdout:
        lines += 1
        assert line == f"{lines:0400d}\n"
        if lines < 1000 and lines % 50 == 0:
            time.sleep(0.1)
    assert lines == 10000


@alone
def long_five_hundred_at_once():
    import asyncio
    sb = shared()

    async def one(i):
        p = await sb.exec.aio("sh", "-c", f"echo {i}; exit {i % 256}")
        return await p.stdout.read.aio(), await p.wait.aio()

    async def go():
        return await asyncio.gather(*(one(i) for i in range(500)))
    assert asyncio.run(go()) == [(f"{i}\n", i % 256) for i in range(500)]


def long_an_idle_connection():
    run(shared(), "true")
    time.sleep(35)
    assert run(shared(), "echo", "again")[0] == "again\n"


@synchronizer.create_blocking
async def run_with_a_spoilt_token(sandbox_id, *argv):
    """The client is given a token of the command router that does not pass; what it has after the command comes back too."""
    sb = await _Sandbox.from_id(sandbox_id)
    router = await sb._get_command_router_client(await sb._get_task_id())
    router._jwt, router._jwt_exp = router._jwt[:-8] + "AAAAAAAA", 1
    p = await sb.exec(*argv)
    return await p.stdout.read(), await p.wait(), router._jwt


def test_a_token_that_is_not_valid_any_more_is_renewed():
    with sandbox() as sb:
        out, code, token = run_with_a_spoilt_token(sb.object_id, "echo", "ok")
        assert (out, code) == ("ok\n", 0)
        assert token.count(".") == 2 and not token.endswith("AAAAAAAA")
