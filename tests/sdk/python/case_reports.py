"""What users of sandbox platforms reported as broken, tried through the Python client. The number in a name is that of the report."""

import concurrent.futures
import os
import re
import threading
import time

import modal
import modal.exception as ex
from kit import APP_NAME, alone, app, create, raises, run, sandbox, sha256, shared, unique, within


def sh(script):
    return ["sh", "-c", script]


def raw(sb, *argv, **options):
    p = sb.exec(*argv, text=False, **options)
    return p.stdout.read(), p.wait()


@alone
def test_005_one_line_of_8_mib():
    assert len(run(shared(), *sh("head -c 8388608 /dev/zero | tr '\\0' x"))[0]) == 8388608


@alone
def test_005_many_lines():
    assert len(run(shared(), "seq", "1", "500000")[0]) == 3388895


def test_006_blank_lines():
    assert raw(shared(), "printf", "a\\n\\n\\nb\\r\\n\\r\\nc")[0] == b"a\n\n\nb\r\n\r\nc"


def test_007_nul_bytes():
    assert raw(shared(), "printf", "A=1\\0B=2\\0")[0] == b"A=1\0B=2\0"


@alone
def test_015_much_stdin():
    data = os.urandom(32 << 20)
    p = shared().exec("sha256sum", text=False)
    for at in range(0, len(data), 1 << 20):
        p.stdin.write(data[at:at + (1 << 20)])
        p.stdin.drain()
    p.stdin.write_eof()
    p.stdin.drain()
    assert p.stdout.read().split()[0].decode() == sha256(data)
    assert p.wait() == 0


def test_015_stdin_that_nobody_reads():
    p = shared().exec("true", text=False)
    try:
        p.stdin.write(os.urandom(1 << 20))
        p.stdin.write_eof()
        p.stdin.drain()
    except (ex.Error, ValueError, BrokenPipeError):
        pass
    assert p.wait() == 0


@alone
def test_018_terminals_end_cleanly():
    for _ in range(20):
        p = shared().exec(*sh("echo bye; exit 7"), pty=True)
        assert p.stdout.read() == "bye\r\n"
        assert p.wait() == 7


def test_019_half_a_character():
    assert raw(shared(), *sh("printf '\\342\\230'; exit 5")) == (b"\xe2\x98", 5)


@alone
def test_020_very_short_commands():
    sb = shared()

    def one(i):
        assert run(sb, *sh(f"printf %s x{i}; printf %s y{i} >&2; exit {i % 200}")) == (f"x{i}", f"y{i}", i % 200)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(160)))


def test_024_what_cannot_start():
    sb = shared()
    run(sb, *sh("printf '#!/nope\\n' >/tmp/nope; chmod 755 /tmp/nope; echo >/tmp/plain"))
    for argv, code in ((["no-such-xyz"], 127), (["/tmp/plain"], 126), (["/tmp"], 126), (["/tmp/nope"], 127)):
        try:
            _, err, got = run(sb, *argv)
            assert got == code and err, argv
        except ex.Error as e:
            assert argv[0].split("/")[-1] in str(e)
    assert run(sb, *sh("no-such-xyz"))[2] == 127


def test_026_arguments():
    argv = ["a\nb", "", "  ", "$(id)", "\"'", "é☕", "-n", "*"]
    assert raw(shared(), "printf", "%s\\0", *argv)[0].decode() == "\0".join(argv) + "\0"


def test_028_environment():
    env = {"A": "l1\nl2\n", "B": "a\"b'c$HOME`\\", "C": "", "D": "-n", "E": "=x=", "F": "f" * 100000}
    lines = raw(shared(), "env", "-0", env=env)[0].decode().split("\0")
    for k, v in env.items():
        assert f"{k}={v}" in lines


def test_028_a_nul():
    with raises(ex.Error, "NUL"):
        shared().exec("true", env={"A": "x\0y"}).wait()


def test_031_a_background_child():
    with within(8):
        assert run(shared(), *sh("sleep 312 & echo started")) == ("started\n", "", 0)


def test_033_a_timeout_kills_the_group():
    p = shared().exec(*sh("sleep 1011 & sleep 1012 | cat & wait"), timeout=2)
    try:
        p.wait()
    except ex.ExecTimeoutError:
        pass
    time.sleep(1)
    assert run(shared(), *sh("grep -lsa 'sleep.101[12]' /proc/[0-9]*/cmdline | wc -l"))[0] == "0\n"


def test_038_without_tmp():
    with sandbox() as sb:
        run(sb, *sh("rm -rf /tmp /var/tmp /run/*"))
        assert run(sb, "echo", "ok")[0] == "ok\n"
        sb.filesystem.write_text("still", "/root/f")
        assert sb.filesystem.read_text("/root/f") == "still"


def test_041_a_sandbox_that_ends_at_once():
    sb = create("true")
    with within(15):
        try:
            sb.exec("sleep", "100").wait()
        except ex.Error:
            pass
    sb.terminate()


def test_042_commands_that_resist():
    start = time.monotonic()
    p = shared().exec(*sh("kill -STOP 0; sleep 99"), timeout=3)
    try:
        p.wait()
    except ex.ExecTimeoutError:
        pass
    assert 2 < time.monotonic() - start < 10
    assert run(shared(), "echo", "ok")[0] == "ok\n"


def test_051_a_main_process_that_ignores_sigterm():
    name = unique("stubborn")
    sb = create("python3", "-c", "import signal,time;signal.signal(15,signal.SIG_IGN);time.sleep(1e6)", name=name)
    with within(15):
        sb.terminate(wait=True)
    create(name=name).terminate()


@alone
def test_055_one_name_many_times():
    name = unique("race")
    made, refused = [], []

    def one(_):
        try:
            made.append(create(name=name))
        except ex.AlreadyExistsError:
            refused.append(1)

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(one, range(10)))
    assert (len(made), len(refused)) == (1, 9)
    assert modal.Sandbox.from_name(APP_NAME, name).object_id == made[0].object_id
    made[0].terminate()


def test_056_names_at_the_limits():
    for name in (unique("n").ljust(64, "x"), unique("a--b-"), unique("UPPER.x_y")):
        with sandbox(name=name) as sb:
            assert modal.Sandbox.from_name(APP_NAME, name).object_id == sb.object_id
    for name in ("x" * 65, "é", "a/b", "x\n", "ap-" + "0" * 22):
        with raises(ex.Error):
            create(name=name)


def test_065_special_files():
    f = shared().filesystem
    run(shared(), "mkfifo", "/tmp/fifo")
    for path in ("/tmp/fifo", "/dev/zero"):
        with within(10), raises(ex.SandboxFilesystemError):
            f.read_bytes(path)
    assert f.read_text("/proc/self/status").startswith("Name:")


def test_067_odd_content():
    f = shared().filesystem
    for data in (os.urandom(1 << 20), "\ufeffBOM".encode(), b"\xed\xa0\x80\xff\xfe\0", b"\"'\\ $x `id`\nEOF\n\0"):
        f.write_bytes(data, "/tmp/odd.json")
        assert f.read_bytes("/tmp/odd.json") == data


@alone
def test_068_parallel_writes():
    f, d = shared().filesystem, f"/tmp/{unique('new')}/e/f"
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: f.write_text(str(i), f"{d}/{i}"), range(32)))
    assert len(f.list_files(d)) == 32


@alone
def test_069_written_is_there():
    for i in range(20):
        data = os.urandom(1000 + i)
        shared().filesystem.write_bytes(data, "/tmp/now")
        assert run(shared(), "sha256sum", "/tmp/now")[0].split()[0] == sha256(data)


def test_071_errors():
    f = shared().filesystem
    run(shared(), "ln", "-sf", "loop", "/tmp/loop")
    for call in (lambda: f.read_text("/tmp/loop"), lambda: f.write_text("x", "/tmp/" + "n" * 300), lambda: f.write_text("x", "/proc/version")):
        with raises(ex.SandboxFilesystemError):
            call()


@alone
def test_072_a_tree_under_a_watch():
    sb, w = shared(), f"/tmp/{unique('w')}"
    f = sb.filesystem
    f.make_directory(w)
    seen = set()

    def act():
        time.sleep(1.5)
        run(sb, *sh(f"cd {w}; mkdir -p a/b/c && touch a/b/c/f; sleep 1; mv a z; sleep 1; touch z/b/c/g; sleep 1; touch last"))

    acting = threading.Thread(target=act)
    acting.start()
    for event in f.watch(w, recursive=True, timeout=30):
        seen.update(event.paths)
        if f"{w}/last" in seen:
            break
    acting.join()
    assert {f"{w}/a/b/c/f", f"{w}/z/b/c/g"} <= seen, seen


def test_075_what_must_not_be_removed():
    with raises(ex.Error):
        shared().filesystem.remove("/", recursive=True)
    assert len(shared().filesystem.list_files("/")) > 5


def test_010_nobody_reads():
    with sandbox() as sb:
        sb.exec("yes")
        time.sleep(2)
        with within(5):
            assert run(sb, "echo", "ok")[0] == "ok\n"


def test_017_a_terminal():
    p = shared().exec(*sh("tty; stty size; stty -echo; echo ready; read -r x; echo got $x"), pty=True)
    text = ""
    for chunk in p.stdout:
        text += chunk
        if text.endswith("ready\r\n"):
            p.stdin.write("typed\n")
            p.stdin.drain()
    assert re.fullmatch(r"/dev/pts/\d+\r\n[1-9]\d* [1-9]\d*\r\nready\r\ngot typed\r\n", text), text
    assert p.wait() == 0


def test_030_here_documents():
    assert run(shared(), *sh("cat > /tmp/t <<'EOF'\nline\n  EOF\nEOF\nwc -l </tmp/t"))[0].strip() == "2"
    run(shared(), *sh("cat <<EOF\nnever ended"))
    assert run(shared(), "echo", "ok")[0] == "ok\n"


@alone
def test_035_many_exits():
    sb = shared()
    codes = [i * 7 % 256 for i in range(100)]
    with concurrent.futures.ThreadPoolExecutor(25) as pool:
        assert list(pool.map(lambda code: sb.exec(*sh(f"exit {code}")).wait(), codes)) == codes


def test_036_start_up_files():
    with sandbox() as sb:
        run(sb, *sh("for f in .bashrc .profile .bash_profile .zshenv; do echo 'read x; exit 3' >/root/$f; done"))
        assert run(sb, "echo", "ok") == ("ok\n", "", 0)
        assert run(sb, "bash", "-c", "echo ok")[0] == "ok\n"


def test_044_values_that_are_none():
    name = unique("none")
    # A timeout of 0 is the same on the wire as none at all: it is the usual lifetime.
    for options in ({"timeout": -1}, {"idle_timeout": 0}, {"idle_timeout": -1}, {"cpu": -0.5}, {"memory": -1}):
        with raises((ex.Error, ValueError), what=options):
            create(name=name, **options)
    with sandbox(name=name) as sb:
        assert run(sb, "echo", "ok")[0] == "ok\n"
    with raises((ex.Error, ValueError)):
        shared().exec("true", timeout=-1)


def test_045_very_long_times():
    for seconds in (86400, 2**31 - 1):
        try:
            with sandbox(timeout=seconds) as sb:
                assert sb.poll() is None
        except ex.Error as e:
            assert seconds > 86400 and "timeout" in str(e).lower(), e
    assert run(shared(), *sh("sleep 2; echo done"), timeout=86400)[0] == "done\n"


@alone
def test_049_terminate_run_and_tag_at_once():
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for _ in range(8):
            sb = create()
            other = modal.Sandbox.from_id(sb.object_id)
            calls = [pool.submit(lambda: sb.exec("true").wait()), pool.submit(lambda: other.set_tags({"a": "b"})),
                     pool.submit(lambda: sb.terminate(wait=True))]
            for call in calls:
                error = call.exception(timeout=60)
                assert error is None or isinstance(error, ex.Error) and not isinstance(error, ex.InternalError), repr(error)
            assert modal.Sandbox.from_id(sb.object_id).poll() == 137


def test_052_the_main_process_is_told():
    sb = create(*sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done"))
    lines = iter(sb.stdout)
    assert next(lines) == "ready\n"
    modal.Sandbox.from_id(sb.object_id).terminate()
    assert list(lines) == ["bye\n"]


@alone
def test_057_all_are_listed_once_while_some_end():
    in_app = modal.App.lookup(unique("app"), create_if_missing=True)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create(app=in_app), range(40)))
        ending = [sb.object_id for sb in made[:8]]
        ends = [pool.submit(sb.terminate) for sb in made[:8]]
        seen = [sb.object_id for sb in modal.Sandbox.list(app_id=in_app.app_id)]
        assert len(seen) == len(set(seen))
        assert {sb.object_id for sb in made} - set(ending) <= set(seen)
        for e in ends:
            e.result()
        list(pool.map(lambda sb: sb.terminate(), made[8:]))


def test_060_tags():
    with sandbox(tags={"a": "1", "b": "2", "c.d/e": "wért"}) as sb:
        def found(**tags):
            return sb.object_id in [s.object_id for s in modal.Sandbox.list(app_id=app.app_id, tags=tags)]

        assert found(a="1") and found(a="1", b="2") and not found(a="2") and not found(a="1", b="3")
        sb.set_tags({"c": "3"})
        assert sb.get_tags() == {"c": "3"} and found(c="3") and not found(a="1")
        with raises(ex.Error):
            sb.set_tags({"long": "x" * 10240})
        assert sb.get_tags() == {"c": "3"}


@alone
def test_070_readers_never_see_half():
    sb = shared()
    both = [c * (4 << 20) for c in (b"A", b"B")]
    sb.filesystem.write_bytes(both[0], "/tmp/whole")
    p = sb.exec(*sh("while [ ! -e /tmp/stop ]; do sha256sum </tmp/whole; done"))
    for i in range(8):
        sb.filesystem.write_bytes(both[i % 2], "/tmp/whole")
    sb.filesystem.write_text("", "/tmp/stop")
    assert {line.split()[0] for line in p.stdout.read().splitlines()} <= {sha256(b) for b in both}
    assert run(sb, *sh("ls -A /tmp | grep -c whole"))[0] == "1\n"


def test_071_each_error_has_its_class():
    f, d = shared().filesystem, f"/tmp/{unique('errors')}"
    f.write_text("x", d + "/file")
    for kind, call in ((ex.SandboxFilesystemNotFoundError, lambda: f.read_text(d + "/no")),
                       (ex.SandboxFilesystemIsADirectoryError, lambda: f.read_text(d)),
                       (ex.SandboxFilesystemNotADirectoryError, lambda: f.list_files(d + "/file")),
                       (ex.SandboxFilesystemDirectoryNotEmptyError, lambda: f.remove(d)),
                       (ex.SandboxFilesystemPathAlreadyExistsError, lambda: f.make_directory(d, create_parents=False))):
        with raises(kind):
            call()


def test_075_a_link_is_removed():
    f, d = shared().filesystem, f"/tmp/{unique('kept')}"
    f.write_text("x", d + "/file")
    run(shared(), "ln", "-s", d, d + ".link")
    f.remove(d + ".link", recursive=True)
    assert f.read_text(d + "/file") == "x"


def long_022_a_silent_command():
    assert run(shared(), *sh("sleep 100; echo done"))[0] == "done\n"
