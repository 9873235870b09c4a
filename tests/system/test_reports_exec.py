"""Faults that users of such systems met: launching commands, exit codes, environment. Each test bears the report's number."""

import concurrent.futures
import time

import pytest

from qsdaemon import error
from test_reports_stdio import follow, output, start, wait


def launch(api, sb, command, **fields):
    return api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": command, **fields})


def test_ur024_a_missing_program_is_named(api):
    with api.sandbox() as sb:
        for how in ("execs", "run"):
            r = api.post(f"/v1/sandboxes/{sb.id}/{how}", json={"command": ["no-such-xyz"]})
            assert "no-such-xyz" in error(r, 422, "executable_not_found")["message"]
        r = api.run(sb, ["sh", "-c", "no-such-xyz"])
        assert r["exec"]["exit"]["code"] == 127


def test_ur024_what_cannot_be_executed_is_named(api):
    with api.sandbox() as sb:
        api.run(sb, ["sh", "-c", "echo hi > /tmp/plain; chmod 644 /tmp/plain; printf '#!/nope\\n' > /tmp/script; chmod 755 /tmp/script"])
        assert "/tmp/plain" in error(launch(api, sb, ["/tmp/plain"]), 422, "not_executable")["message"]
        assert "/tmp" in error(launch(api, sb, ["/tmp"]), 422, "not_executable")["message"]
        assert "/tmp/script" in error(launch(api, sb, ["/tmp/script"]), 422, "executable_not_found")["message"]


@pytest.mark.parametrize("command", [[], [""], None, "ls"])
def test_ur024_a_command_must_have_a_program(api, command):
    with api.sandbox() as sb:
        assert error(launch(api, sb, command), 400, "invalid_argument")["param"].startswith("command")


def test_ur026_arguments_arrive_byte_for_byte(api):
    argv = ["printf", "%s\\0", "a\nb", "", "  ", "$(id)", "\"'\\", "é☕", "-n", "*"]
    with api.sandbox() as sb:
        r = api.run(sb, argv)
        assert output(r) == b"".join(a.encode() + b"\0" for a in argv[2:])


def test_ur028_environment_values_arrive_exactly(api):
    env = {"A": "l1\nl2\n", "B": "a\"b'c$HOME`\\", "C": "", "D": "-n", "E": "=x=", "F": "f" * 100000}
    with api.sandbox() as sb:
        r = api.run(sb, ["env", "-0"], env=env, stdout_max_bytes=1 << 20)
        seen = dict(v.split("=", 1) for v in output(r).decode().split("\0") if v)
        for name, value in env.items():
            assert seen[name] == value, name


@pytest.mark.parametrize("name,value", [("", "x"), ("A=B", "x"), ("N", "a\0b")])
def test_ur028_bad_environment_is_refused(api, name, value):
    with api.sandbox() as sb:
        body = error(launch(api, sb, ["true"], env={name: value}), 400, "invalid_argument")
        assert body["param"].startswith("env")


def test_ur028_a_nul_in_a_name_is_not_taken(api):
    with api.sandbox() as sb:
        body = error(launch(api, sb, ["true"], env={"A\0": "x"}), 400, "invalid_argument")
        assert body["param"] == "env"


def test_ur030_here_documents(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["sh", "-c", "cat > /tmp/t <<'EOF'\nline\n  EOF\nEOF\nwc -l </tmp/t"])
        assert output(r).strip() == b"2"
        api.run(sb, ["sh", "-c", "cat <<EOF\nnever ended"])
        assert output(api.run(sb, ["echo", "ok"])) == b"ok\n"


def test_ur031_a_background_child_does_not_hold_the_exit(api):
    with api.sandbox() as sb:
        t0 = time.monotonic()
        r = api.run(sb, ["sh", "-c", "sleep 300 & echo started"])
        assert time.monotonic() - t0 < 3
        assert (output(r), r["exec"]["exit"]["code"]) == (b"started\n", 0)
        assert output(api.run(sb, ["pgrep", "-c", "sleep"])).strip() == b"1"


@pytest.mark.parametrize("program", [
    "sleep 1001 & sleep 1002 | cat & wait",
    "setsid sleep 1001 & trap '' TERM; sleep 1002 & wait; sleep 1001",
    "python3 -c 'import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: os.execvp(\"sleep\",[\"sleep\",\"1001\"])\n os._exit(0)\nos.wait();time.sleep(1002)'",
])
def test_ur033_a_timeout_kills_the_whole_tree_of_the_exec_only(api, program):
    with api.sandbox() as sb:
        assert api.run(sb, ["sh", "-c", "setsid sleep 777 >/dev/null 2>&1 & exit 0"])["exec"]["exit"]["code"] == 0
        r = api.run(sb, ["sh", "-c", "echo before; " + program], timeout_s=1, grace_s=0.5)
        assert r["exec"]["exit"]["reason"] == "timeout"
        assert output(r) == b"before\n"
        time.sleep(0.3)
        assert output(api.run(sb, ["sh", "-c", "pgrep -f 'sleep 100[12]' | grep -v $$ | wc -l"])).strip() == b"0"
        assert output(api.run(sb, ["pgrep", "-fc", "^sleep 777"])).strip() == b"1"


def test_ur033_deleting_a_running_exec_kills_its_tree(api):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sh", "-c", "setsid sleep 1001 & sleep 1002"])
        time.sleep(0.3)
        assert api.delete(f"/v1/sandboxes/{sb.id}/execs/{e['id']}").status_code == 204
        time.sleep(0.3)
        assert output(api.run(sb, ["sh", "-c", "pgrep -x sleep | wc -l"])).strip() == b"0"


def test_ur035_five_hundred_exit_codes(api):
    with api.sandbox() as sb:
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            codes = pool.map(lambda n: api.run(sb, ["sh", "-c", f"exit {n % 256}"])["exec"]["exit"]["code"], range(500))
            assert list(codes) == [n % 256 for n in range(500)]


def test_ur036_start_up_files_of_shells_are_not_read(api):
    with api.sandbox() as sb:
        api.run(sb, ["sh", "-c", "for f in .bashrc .profile .zshenv; do echo 'read x; exit 3' > /root/$f; done"])
        for command in (["echo", "ok"], ["sh", "-c", "echo ok"], ["bash", "-c", "echo ok"]):
            assert output(api.run(sb, command)) == b"ok\n"


def test_ur038_deleting_tmp_breaks_nothing_of_ours(api):
    with api.sandbox() as sb:
        api.run(sb, ["sh", "-c", "rm -rf /tmp /var/tmp /run/*; rm -f /dev/null; chmod 000 /root"])
        assert output(api.run(sb, ["echo", "ok"])) == b"ok\n"
        r = api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": "/srv/f"}, content=b"data")
        assert r.status_code == 201, r.text
        assert api.get(f"/v1/sandboxes/{sb.id}/files", params={"path": "/srv/f"}).content == b"data"
        e = start(api, sb.id, ["echo", "tty"], tty=True)
        assert follow(api, sb.id, e["id"]) == b"tty\r\n"


def test_ur040_one_exec_id_runs_once(api):
    with api.sandbox() as sb:
        url = f"/v1/sandboxes/{sb.id}/execs/once-1"
        body = {"command": ["sh", "-c", "echo x >> /tmp/n"]}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: api.put(url, json=body), range(8)))
        assert {r.status_code for r in replies} <= {200, 201}
        assert [r.status_code for r in replies].count(201) <= 1
        wait(api, sb.id, "once-1")
        assert api.put(url, json=body).status_code == 200
        error(api.put(url, json={"command": ["sh", "-c", "echo y >> /tmp/n"]}), 409, "conflict")
        assert output(api.run(sb, ["cat", "/tmp/n"])) == b"x\n"


def test_ur041_exec_on_a_sandbox_that_ended(api):
    with api.sandbox(command=["true"]) as sb:
        r = api.get(f"/v1/sandboxes/{sb.id}", params={"wait": "exit", "timeout_s": 10}, timeout=20)
        assert r.json()["state"] == "ended"
        t0 = time.monotonic()
        error(launch(api, sb, ["true"]), 409, "sandbox_ended")
        assert time.monotonic() - t0 < 5
    error(api.post("/v1/sandboxes/sb-0000000000000000000000/execs", json={"command": ["true"]}), 404, "not_found")


def test_ur041_create_terminate_and_exec_at_once(api):
    def one(_):
        sb = api.post("/v1/sandboxes", json={}).json()
        with concurrent.futures.ThreadPoolExecutor(2) as pair:
            t0 = time.monotonic()
            a = pair.submit(lambda: api.post(f"/v1/sandboxes/{sb['id']}/terminate", json={"grace_s": 0}, timeout=30))
            b = pair.submit(lambda: api.post(f"/v1/sandboxes/{sb['id']}/run", json={"command": ["sleep", "60"]}, timeout=30))
            a, b = a.result(), b.result()
            took = time.monotonic() - t0
        assert a.status_code == 200
        if b.status_code == 200:
            assert b.json()["exec"]["exit"]["reason"] in ("terminated", "signaled", "killed"), b.json()
        else:
            assert b.json()["error"]["code"] in ("sandbox_ended", "not_found"), b.text
        assert api.delete(f"/v1/sandboxes/{sb['id']}").status_code == 204
        return took

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert max(pool.map(one, range(40))) < 8


@pytest.mark.parametrize("program", [
    ["sh", "-c", "kill -STOP 0; sleep 99"],
    ["python3", "-c", "import signal,time;[signal.signal(s,signal.SIG_IGN) for s in (1,2,3,15)];time.sleep(99)"],
    ["sh", "-c", "kill -STOP -1; sleep 99"],
])
def test_ur042_a_program_cannot_stop_its_timeout(api, program):
    with api.sandbox() as sb:
        t0 = time.monotonic()
        r = api.run(sb, program, timeout_s=2, grace_s=1)
        assert 1.9 < time.monotonic() - t0 < 6
        assert r["exec"]["exit"]["reason"] == "timeout"
        assert output(api.run(sb, ["echo", "ok"])) == b"ok\n"


def test_signals_reach_the_group(api):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sh", "-c", "trap 'echo usr1; exit 9' USR1; echo up; while :; do sleep 0.05; done"])
        url = f"/v1/sandboxes/{sb.id}/execs/{e['id']}"
        while b"up" not in api.get(url + "/stdout", params={"follow": "false"}).content:
            time.sleep(0.02)
        assert api.post(url + "/signal", json={"signal": "SIGUSR1"}).status_code in (200, 204)
        assert wait(api, sb.id, e["id"], 10)["exit"]["code"] == 9
        assert follow(api, sb.id, e["id"]) == b"up\nusr1\n"


def test_users_and_work_directories(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["sh", "-c", "id -u; id -g; pwd; echo $HOME"], user="nobody", workdir="/usr")
        assert output(r).split() == [b"65534", b"65534", b"/usr", b"/nonexistent"]
        assert error(launch(api, sb, ["true"], user="no-such-user"), 400, "invalid_argument")["param"] == "user"
        assert error(launch(api, sb, ["true"], workdir="/no/such"), 400, "invalid_argument")["param"] == "workdir"
        assert error(launch(api, sb, ["true"], workdir="relative"), 400, "invalid_argument")["param"] == "workdir"


def test_limits_on_arguments_and_environment_are_named(api):
    with api.sandbox() as sb:
        body = error(launch(api, sb, ["true", "x" * (129 * 1024)]), 413, "too_large")
        assert body["param"] == "command" and "131072" in body["message"]
        body = error(launch(api, sb, ["true"], env={"A": "x" * (257 * 1024)}), 413, "too_large")
        assert body["param"] == "env" and "262144" in body["message"]
        r = api.run(sb, ["sh", "-c", "printf %s \"$1\" | wc -c", "sh", "x" * (120 * 1024)])
        assert output(r).strip() == b"122880"
