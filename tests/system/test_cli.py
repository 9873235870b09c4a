"""The quicksand command line against a daemon: streams, exit codes, terminals, copies, lists, configuration."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import qsdaemon


@pytest.fixture(scope="module")
def cli(daemon):
    program = str(qsdaemon.build_dir() / "src/cli/quicksand")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token}

    def run(*args, stdin=subprocess.DEVNULL, check=None, extra=None, **kw):
        data = stdin if isinstance(stdin, bytes) else None
        r = subprocess.run([program, *args], input=data, stdin=None if data is not None else stdin, capture_output=True,
                           env={**env, **(extra or {})}, timeout=kw.pop("timeout", 60), **kw)
        if check is not None:
            assert r.returncode == check, r
        return r

    run.program, run.env = program, env
    return run


@pytest.fixture(scope="module")
def box(cli):
    name = "cli-" + os.urandom(3).hex()
    cli("create", "--name", name, check=0)
    yield name
    cli("rm", name)


FAMILIES = {"image": ("pull", "import", "export", "ls", "inspect", "verify", "tag", "untag", "rm", "gc"), "secret": ("set", "ls", "rm"), "token": ("create", "ls", "rm")}
COMMANDS = [(c,) for c in ("run", "create", "exec", "sh", "ps", "cp", "port", "logs", "kill", "rm", "inspect", *FAMILIES)]
COMMANDS += [(f, c) for f, names in FAMILIES.items() for c in names]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_tells_its_usage(cli, command):
    r = cli(*command, "--help", check=0)
    assert r.stdout.startswith(b"usage: quicksand " + " ".join(command).encode()) and r.stderr == b""
    r = cli(*command, "--no-such-option")
    assert r.returncode in (2, 125) and r.stdout == b""
    assert b"--no-such-option" in r.stderr and r.stderr.startswith(b"quicksand: ") and r.stderr.count(b"\n") == 1


def one_line(r):
    assert r.stderr.startswith(b"quicksand: ") and r.stderr.count(b"\n") == 1, r.stderr
    return r.stderr.decode()


def test_run_passes_streams_and_the_exit_code(cli, api):
    before = {s["id"] for s in api.get("/v1/sandboxes").json()["items"]}
    r = cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (r.returncode, r.stdout, r.stderr) == (7, b"out\n", b"err\n")
    r = cli("run", "base", "--", "true", check=0)
    r = cli("run", "-I", "base", "-e", "A=1", "-e", "HOME", "-w", "/tmp", "-u", "nobody", "sh", "-c", "echo $A $HOME $(pwd) $(id -un)", check=0)
    assert r.stdout == b"1 /nonexistent /tmp nobody\n"
    assert {s["id"] for s in api.get("/v1/sandboxes").json()["items"]} == before


@pytest.mark.parametrize("command,code,words", [
    (["no-such"], 127, "no-such"), (["/etc/passwd"], 126, "/etc/passwd"), (["/etc"], 126, "/etc"),
    (["sh", "-c", "no-such"], 127, None), (["sh", "-c", "kill -9 $$"], 137, None),
])
def test_exit_codes_are_a_shells(cli, box, command, code, words):
    for r in (cli("run", *command), cli("exec", box, *command)):
        assert r.returncode == code, r
        if words:
            assert words in one_line(r)


def test_our_own_failures_are_125_and_one_line(cli, box):
    assert "no-such-box" in one_line(cli("exec", "no-such-box", "true", check=125))
    assert "no-image" in one_line(cli("run", "-I", "no-image", "true", check=125))
    one_line(cli("exec", "-w", "/no/such", box, "true", check=125))
    one_line(cli("run", "--bogus", "true", check=125))
    one_line(cli("run", "true", check=125, extra={"QUICKSAND_URL": "http://127.0.0.1:1"}))
    one_line(cli("run", "true", check=125, extra={"QUICKSAND_TOKEN": "tk-x.y"}))
    one_line(cli("bogus", check=2))
    assert cli("exec", box, check=125).stderr.startswith(b"usage: ")
    assert cli(check=2).stdout == b"" and b"run" in cli("help", check=0).stdout
    assert re.fullmatch(rb"quicksand \S+\n", cli("version", check=0).stdout)


def test_stdin_is_read_only_when_asked(cli, box):
    r, w = os.pipe()
    os.write(w, b"not yours")
    started = time.monotonic()
    assert cli("exec", box, "cat", stdin=r, check=0).stdout == b""
    assert time.monotonic() - started < 5
    assert os.read(r, 100) == b"not yours"
    os.close(r)
    os.close(w)
    assert cli("exec", "-i", box, "cat", stdin=b"a\0\xff", check=0).stdout == b"a\0\xff"
    data = os.urandom(3000000)
    assert cli("exec", "-i", box, "cat", stdin=data, check=0).stdout == data
    assert cli("exec", "-i", box, "head", "-c", "3", stdin=data, check=0).stdout == data[:3]


def test_large_output_comes_whole(cli, box):
    r = cli("exec", box, "sh", "-c", "seq 1 500000; seq 1 1000 >&2", check=0)
    assert r.stdout == b"".join(b"%d\n" % n for n in range(1, 500001)) and r.stderr.count(b"\n") == 1000


def test_an_interrupt_goes_to_the_command(cli, box):
    p = subprocess.Popen([cli.program, "exec", box, "sh", "-c", "trap 'echo got; exit 9' INT; echo ready; while :; do sleep 0.05; done"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=cli.env)
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGINT)
    assert p.stdout.read() == b"got\n" and p.wait(10) == 9


def test_run_removes_its_sandbox_when_interrupted(cli, api):
    p = subprocess.Popen([cli.program, "run", "--name", "interrupted", "--", "sh", "-c", "trap '' INT TERM; echo ready; sleep 100; sleep 100"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=cli.env)
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == 128 + 15
    assert api.get("/v1/apps/default/sandboxes/interrupted", params={"state": "live"}).status_code == 404


# --- terminals


class Terminal:
    """The command line on a terminal of ours, started from a shell-like parent that watches its settings."""

    def __init__(self, cli, *args, rows=40, cols=132):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave

        def session():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.p = subprocess.Popen([cli.program, *args], stdin=slave, stdout=slave, stderr=slave, env={**cli.env, "TERM": "xterm"},
                                  preexec_fn=session)
        self.data = b""

    def until(self, text, seconds=15):
        end = time.monotonic() + seconds
        while text not in self.data:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], self.data
            self.data += os.read(self.master, 65536)
        out, self.data = self.data.split(text, 1)
        return out

    def drain(self):
        while select.select([self.master], [], [], 0.2)[0]:
            self.data += os.read(self.master, 65536)
        return self.data

    def type(self, data):
        os.write(self.master, data)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def typed_ahead(self):
        """What would be read by the shell that comes next."""
        fcntl.fcntl(self.slave, fcntl.F_SETFL, os.O_NONBLOCK)
        t = termios.tcgetattr(self.slave)
        t[3] &= ~termios.ICANON
        termios.tcsetattr(self.slave, termios.TCSANOW, t)
        try:
            return os.read(self.slave, 1000)
        except BlockingIOError:
            return b""


def test_a_terminal_session(cli, box):
    t = Terminal(cli, "exec", "-it", box, "sh", "-c", "stty size; tty; trap 'stty size' WINCH; while read x; do echo got:$x; done; echo bye; exit 5")
    t.until(b"40 132\r\n")
    assert b"/dev/pts/" in t.until(b"\r\n")
    assert termios.tcgetattr(t.slave)[3] & (termios.ICANON | termios.ECHO) == 0
    t.type(b"hello\r")
    t.until(b"got:hello\r\n")
    t.resize(50, 200)
    t.until(b"50 200\r\n")
    t.type(b"\x04")
    t.until(b"bye\r\n")
    assert t.p.wait(10) == 5
    assert termios.tcgetattr(t.slave) == t.before


def test_ctrl_c_and_shell_commands(cli, box):
    t = Terminal(cli, "sh", box)
    t.type(b"echo $((40+2)); tty\r")
    t.until(b"42\r\n")
    t.type(b"sleep 100\r")
    time.sleep(0.5)
    t.type(b"\x03")
    t.type(b"echo after-$?\r")
    t.until(b"after-130")
    t.type(b"exit 3\r")
    assert t.p.wait(10) == 3
    assert termios.tcgetattr(t.slave) == t.before


def test_a_terminal_merges_its_streams(cli, box):
    t = Terminal(cli, "exec", "-t", box, "sh", "-c", "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes; echo E >&2")
    t.until(b"yes\r\nE\r\n")
    assert t.p.wait(10) == 0
    r = cli("exec", box, "sh", "-c", "[ -t 0 ] || [ -t 1 ] || echo notty; echo E >&2", check=0)
    assert (r.stdout, r.stderr) == (b"notty\n", b"E\n")


def test_nothing_is_typed_into_the_shell_afterwards(cli, box):
    program = "printf '\\033[?1049h\\033[?2004h\\033[?1000h\\033[?25l\\033[c\\033[6n\\033]52;c;?\\007\\033[21t'; exit 0"
    t = Terminal(cli, "exec", "-it", box, "sh", "-c", program)
    t.until(b"\033[21t")
    # What a terminal would answer, part of it late.
    t.type(b"\033[?62;22c\033[1;1R")
    time.sleep(0.03)
    t.type(b"\033]52;c;cm0gLXJmIC8K\007rm -rf /\r")
    assert t.p.wait(10) == 0
    undo = t.drain()
    for mode in (b"\033[?1049l", b"\033[?2004l", b"\033[?1000l", b"\033[?25h"):
        assert mode in undo
    assert termios.tcgetattr(t.slave) == t.before
    assert t.typed_ahead() == b""


def test_the_terminal_is_restored_when_we_are_ended(cli, box):
    t = Terminal(cli, "exec", "-it", box, "sh", "-c", "printf '\\033[?1049h'; echo ready; sleep 100")
    t.until(b"ready")
    t.p.send_signal(signal.SIGTERM)
    assert t.p.wait(10) == 128 + 15
    assert b"\033[?1049l" in t.drain()
    assert termios.tcgetattr(t.slave) == t.before


# --- sandboxes


def test_life_by_name(cli, api):
    r = cli("create", "--name", "life", "--tag", "k=v", "-m", "64", "--timeout", "100", "sh", "-c", "echo log; echo elog >&2; exec sleep 1000", check=0)
    sb = json.loads(cli("inspect", "life", check=0).stdout)
    assert r.stdout.decode().strip() == sb["id"] and sb["tags"] == {"k": "v"} and sb["limits"]["memory_mb"] == 64
    assert sb["id"].encode() in cli("ps", check=0).stdout and b"life" in cli("ps", check=0).stdout
    assert sb["id"] in [x["id"] for x in json.loads(cli("ps", "-o", "json", check=0).stdout)]
    assert sb["id"].encode() in cli("ps", "-q", check=0).stdout.split()
    r = cli("logs", "life", check=0)
    assert (r.stdout, r.stderr) == (b"log\n", b"elog\n")
    cli("kill", "life", check=0)
    assert sb["id"].encode() not in cli("ps", "-q", check=0).stdout
    assert sb["id"].encode() in cli("ps", "-aq", check=0).stdout
    assert json.loads(cli("inspect", "life", check=0).stdout)["exit"]["reason"] == "terminated"
    assert cli("logs", "-f", "life", check=0).stdout == b"log\n"
    cli("rm", "life", check=0)
    one_line(cli("inspect", "life", check=1))


def test_kill_with_a_signal_spares_the_sandbox(cli, api):
    i = cli("create", check=0).stdout.decode().strip()
    e = api.post(f"/v1/sandboxes/{i}/execs", json={"command": ["sleep", "100"]}).json()["id"]
    cli("kill", "-s", "KILL", i, check=0)
    x = api.get(f"/v1/sandboxes/{i}/execs/{e}", params={"wait": "exit"}).json()
    assert x["exit"]["signal"] == 9
    assert json.loads(cli("inspect", i, check=0).stdout)["state"] == "running"
    assert json.loads(cli("inspect", i, e, check=0).stdout)["id"] == e
    cli("rm", i, check=0)


# --- copies


def test_files_are_copied(cli, box, tmp_path):
    data = os.urandom(200000)
    (tmp_path / "in put").write_bytes(data)
    os.chmod(tmp_path / "in put", 0o750)
    cli("cp", str(tmp_path / "in put"), f"{box}:/tmp/cp/out", check=0)
    assert cli("exec", box, "stat", "-c", "%a %s", "/tmp/cp/out", check=0).stdout == b"750 200000\n"
    cli("cp", f"{box}:/tmp/cp/out", str(tmp_path / "back"), check=0)
    assert (tmp_path / "back").read_bytes() == data
    cli("cp", str(tmp_path / "in put"), f"{box}:/tmp", check=0)
    assert cli("exec", box, "ls", "/tmp/in put", check=0).stdout == b"/tmp/in put\n"
    (tmp_path / "d").mkdir()
    cli("cp", f"{box}:/tmp/in put", str(tmp_path / "d"), check=0)
    assert (tmp_path / "d" / "in put").read_bytes() == data
    assert cli("cp", f"{box}:/tmp/cp/out", "-", check=0).stdout == data
    cli("cp", "-", f"{box}:/tmp/cp/stdin", stdin=b"piped", check=0)
    assert cli("exec", box, "cat", "/tmp/cp/stdin", check=0).stdout == b"piped"
    one_line(cli("cp", f"{box}:/tmp/none", str(tmp_path / "x"), check=1))
    one_line(cli("cp", str(tmp_path / "none"), f"{box}:/tmp/x", check=1))
    assert not (tmp_path / "x").exists() and sorted(os.listdir(tmp_path)) == ["back", "d", "in put"]


def test_trees_are_copied(cli, box, tmp_path):
    src = tmp_path / "src"
    (src / "sub" / "empty").mkdir(parents=True)
    (src / ".dot").write_bytes(b"dot")
    (src / "sub" / "f").write_bytes(b"f")
    os.symlink("f", src / "sub" / "l")
    cli("cp", str(src), f"{box}:/tmp/tree", check=0)
    assert cli("exec", box, "sh", "-c", "cd /tmp/tree; cat .dot sub/l; ls -d sub/empty", check=0).stdout == b"dotfsub/empty\n"
    cli("cp", str(src), f"{box}:/tmp/tree", check=0)
    assert cli("exec", box, "cat", "/tmp/tree/src/.dot", check=0).stdout == b"dot"
    cli("exec", box, "rm", "-r", "/tmp/tree/src", check=0)
    cli("cp", f"{box}:/tmp/tree", str(tmp_path / "dst"), check=0)
    assert (tmp_path / "dst" / ".dot").read_bytes() == b"dot" and os.readlink(tmp_path / "dst" / "sub" / "l") == "f"
    cli("cp", f"{box}:/tmp/tree", str(tmp_path / "dst"), check=0)
    assert (tmp_path / "dst" / "tree" / "sub" / "f").read_bytes() == b"f"


# --- images, tokens, configuration


def test_images(cli, tmp_path):
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "hello").write_text("hi")
    subprocess.run(["tar", "-C", root, "-cf", tmp_path / "i.tar", "."], check=True)
    i = cli("image", "import", "-e", "A=1", str(tmp_path / "i.tar"), "cli-image", check=0).stdout.decode().strip()
    assert i.startswith("im-")
    ls = cli("image", "ls", check=0).stdout
    assert i.encode() in ls and b"cli-image" in ls
    cli("image", "rm", "cli-image", check=0)
    assert i.encode() not in cli("image", "ls", check=0).stdout
    one_line(cli("image", "rm", "cli-image", check=1))


def test_tokens(cli):
    token = cli("token", "create", "-s", "sandbox:read", "ci", check=0).stdout.decode().strip()
    i = token.split(".")[0]
    assert i in cli("token", "ls", check=0).stdout.decode()
    cli("ps", check=0, extra={"QUICKSAND_TOKEN": token})
    assert "sandbox:create" in one_line(cli("create", check=1, extra={"QUICKSAND_TOKEN": token}))
    cli("token", "rm", i, check=0)
    one_line(cli("ps", check=1, extra={"QUICKSAND_TOKEN": token}))


def test_configuration(cli, daemon, tmp_path):
    conf = tmp_path / "quicksand" / "config"
    conf.parent.mkdir()
    conf.write_text(f"# mine\nurl = {daemon.url}/\ntoken = {daemon.token}\n")
    os.chmod(conf, 0o600)
    env = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(tmp_path)}
    assert subprocess.run([cli.program, "ps"], env=env, capture_output=True).returncode == 0
    os.chmod(conf, 0o644)
    r = subprocess.run([cli.program, "ps"], env=env, capture_output=True)
    assert r.returncode == 1 and b"chmod 600" in r.stderr
    os.chmod(conf, 0o600)
    conf.write_text("tokn = x\n")
    r = subprocess.run([cli.program, "ps"], env=env, capture_output=True)
    assert r.returncode == 1 and b"line 1" in r.stderr


def test_output_survives_a_server_that_restarts(make_daemon, cli):
    d = make_daemon(supervised=True)
    env = {**cli.env, "QUICKSAND_URL": d.url, "QUICKSAND_TOKEN": d.token}
    p = subprocess.Popen([cli.program, "run", "--", "sh", "-c", "for n in $(seq 1 80); do echo $n; sleep 0.05; done; exit 4"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    for role in ("control", "node", "control"):
        time.sleep(0.8)
        d.kill_role(role)
    out, err = p.communicate(timeout=60)
    assert out == b"".join(b"%d\n" % n for n in range(1, 81)), err
    assert p.returncode == 4


def test_what_a_newcomer_meets(cli, box):
    """Messages and tables say what helps: names of images, why there is no log, which limit ended a command."""
    table = cli("ps", check=0).stdout.decode().splitlines()
    row = next(line for line in table if box in line.split())
    assert row.split()[2] == "base" and table[0].split() == ["ID", "NAME", "IMAGE", "STATE", "AGE", "COMMAND"]
    assert all(line == line.rstrip() for line in table)
    r = cli("logs", box)
    assert r.returncode == 1 and "was made without a command" in one_line(r)
    r = cli("run", "--timeout", "1", "--", "sleep", "60")
    assert r.returncode == 137 and r.stderr.startswith(b"quicksand: the sandbox was ended: timeout"), r
    r = cli("exec", box)
    assert r.returncode == 125 and r.stderr.decode() == ("usage: quicksand exec [options] SANDBOX COMMAND [ARG...] "
                                                         "('quicksand exec --help' tells more)\n")
    r = cli("image", "rm")
    assert r.returncode == 2 and b"('quicksand image rm --help' tells more)" in r.stderr


def test_mistakes_are_answered_with_what_helps(cli, box):
    said = {
        ("create", "-I", "basee"): "no image 'basee' (import or pull it first",
        ("exec", "-u", "stranger", box, "true"): "cannot run true: the sandbox's /etc/passwd and /etc/group have no such user or group",
        ("token", "create", "-s", "sandbox:*", "x"): "item 0 of scopes is 'sandbox:*', which is no scope (did you mean 'sandbox:",
        ("inspect", box, "ex-none"): "no exec 'ex-none' in the sandbox",
    }
    for command, words in said.items():
        r = cli(*command)
        assert r.returncode in (1, 125) and r.stdout == b""
        assert one_line(r).startswith("quicksand: " + words), r.stderr


def test_options_of_a_sandbox(cli):
    r = cli("run", "--nofile", "100", "--user-namespaces", "--", "sh", "-c", "ulimit -n; unshare -r id -u", check=0)
    assert r.stdout == b"100\n0\n"
    r = cli("run", "--no-new-privileges", "--", "grep", "NoNewPrivs", "/proc/self/status", check=0)
    assert r.stdout.split() == [b"NoNewPrivs:", b"1"]
    i = cli("create", "--allow-domain", "example.com", "--allow-domain", "*.example.org", check=0).stdout.decode().strip()
    said = json.loads(cli("policy", "get", i, check=0).stdout)
    assert "example.com" in json.dumps(said) and "*.example.org" in json.dumps(said)
    cli("rm", i, check=0)
    i = cli("create", "--network", json.dumps({"allow_domains": ["example.net"]}), check=0).stdout.decode().strip()
    assert b"example.net" in cli("policy", "get", i, check=0).stdout
    cli("rm", i, check=0)
    for options in (["--network", "{nothing"], ["--network", "open", "--allow-domain", "a.example"], ["--network", "nothing"]):
        assert "network" in one_line(cli("create", *options))
    r = cli("run", "--oom", "nothing", "--", "true")
    assert r.returncode == 125 and "oom" in one_line(r)


def test_a_port_is_opened_and_listed(cli, box):
    cli("exec", box, "sh", "-c", "cd /srv && echo page > page && python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &", check=0)
    assert cli("port", box, check=0).stdout.split() == [b"PORT", b"KIND", b"URL", b"WITHOUT", b"TLS"]
    row = cli("port", "-k", "raw", box, "8000", check=0).stdout.decode().splitlines()[1].split()
    assert row[:2] == ["8000", "raw"]
    give_up = time.monotonic() + 30
    while True:
        r = subprocess.run(["curl", "-fsS", f"http://{row[3]}/page"], capture_output=True)
        if r.returncode == 0 or time.monotonic() > give_up:
            break
        time.sleep(0.2)
    assert r.stdout == b"page\n", r.stderr
    assert "port" in one_line(cli("port", box, "70000"))
    assert "whole number" in one_line(cli("port", box, "http"))


def test_create_waits_until_it_is_ready(cli):
    serve = "import http.server, time; time.sleep(1); http.server.HTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
    for probe in ("tcp:8000", "http:8000/", '{"file": "/etc/passwd"}'):
        i = cli("create", "--ready", probe, "python3", "-c", serve, check=0).stdout.decode().strip()
        cli("rm", i, check=0)
    r = cli("create", "--ready", "log:^never", "sh", "-c", "echo ever; sleep 1")
    assert r.returncode == 1 and b"ended" in r.stderr and r.stdout.startswith(b"sb-")
    cli("rm", r.stdout.decode().strip(), check=0)
    for bad in ("tcp:x", "http:", "udp:1", "{", "8000"):
        r = cli("create", "--ready", bad)
        one_line(r)
        assert r.returncode == 1 and b"--ready" in r.stderr and r.stdout == b""
