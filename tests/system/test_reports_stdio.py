"""Faults that users of such systems met: standard streams. Each test bears the report's number."""

import base64
import concurrent.futures
import hashlib
import json
import os
import threading
import time

import pytest


def digest(data):
    return hashlib.sha256(data).hexdigest()


def output(reply, stream="stdout"):
    """The bytes of a stream of a run's reply, whatever form they came in."""
    if reply.get(stream) is not None:
        return reply[stream].encode()
    return base64.b64decode(reply[stream + "_b64"])


def follow(api, sandbox, exec_id, stream="stdout", offset=0):
    r = api.get(f"/v1/sandboxes/{sandbox}/execs/{exec_id}/{stream}", params={"offset": offset}, timeout=120)
    assert r.status_code == 200, r.text
    return r.content


def start(api, sandbox, command, **fields):
    r = api.post(f"/v1/sandboxes/{sandbox}/execs", json={"command": command, **fields})
    assert r.status_code == 201, r.text
    return r.json()


def wait(api, sandbox, exec_id, timeout_s=60):
    r = api.get(f"/v1/sandboxes/{sandbox}/execs/{exec_id}", params={"wait": "exit", "timeout_s": timeout_s}, timeout=timeout_s + 30)
    assert r.status_code == 200, r.text
    return r.json()


def stdin(api, sandbox, exec_id, data=b"", **query):
    return api.post(f"/v1/sandboxes/{sandbox}/execs/{exec_id}/stdin", params=query, content=data, timeout=120)


def daemon_rss_kb(daemon):
    """Resident memory of each of the daemon's processes, by name."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
            text = open(f"/proc/{pid}/status").read()
        except OSError:
            continue
        if exe.startswith(str(daemon.lib_dir)):
            rss = [line for line in text.splitlines() if line.startswith("VmRSS")]
            if rss:
                found[(os.path.basename(exe), pid)] = int(rss[0].split()[1])
    return found


def test_ur005_eight_mebibytes_in_one_line(api):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sh", "-c", "head -c 8388608 /dev/zero | tr '\\0' x"])
        assert digest(follow(api, sb.id, e["id"])) == digest(b"x" * 8388608)
        assert wait(api, sb.id, e["id"])["exit"]["code"] == 0


def test_ur005_three_million_lines(api):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["seq", "1", "3000000"])
        got = follow(api, sb.id, e["id"])
        assert got.count(b"\n") == 3000000
        assert got.endswith(b"2999999\n3000000\n")
        assert len(got) == wait(api, sb.id, e["id"])["stdout_bytes"]


def test_ur006_blank_lines_and_line_ends_are_kept(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["printf", "a\\n\\n\\nb\\r\\n\\r\\nc"])
        assert output(r) == bytes.fromhex("610a0a0a620d0a0d0a63")


def test_ur007_nul_bytes_and_random_bytes_are_kept(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["printf", "A=1\\0B=2\\0"])
        assert output(r) == b"A=1\0B=2\0"
        r = api.run(sb, ["sh", "-c", "head -c 1048576 /dev/urandom | tee /tmp/r"], stdout_max_bytes=4 << 20)
        f = api.get(f"/v1/sandboxes/{sb.id}/files", params={"path": "/tmp/r"})
        assert f.status_code == 200
        assert len(f.content) == 1048576
        assert digest(f.content) == digest(output(r))


def test_ur009_the_cap_is_kept_to_the_byte(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["python3", "-c", "import os;os.write(1,b'h'*655360)"], stdout_max_bytes=65536)
        assert len(output(r)) == 65536
        assert r["stdout_truncated"] is True
        assert r["stdout_bytes"] == 655360
        rest = follow(api, sb.id, r["exec"]["id"], offset=65536)
        assert len(rest) == 589824


def test_ur010_a_reader_that_left_costs_no_memory(api, daemon):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["yes"], output_limit_bytes=64 << 20)
        with api.stream("GET", f"/v1/sandboxes/{sb.id}/execs/{e['id']}/stdout") as r:
            for _ in r.iter_raw():
                break
        before = daemon_rss_kb(daemon)
        time.sleep(5)
        after = daemon_rss_kb(daemon)
        for key, kb in after.items():
            assert kb - before.get(key, kb) < 16 * 1024, key
        t0 = time.monotonic()
        assert output(api.run(sb, ["echo", "ok"])) == b"ok\n"
        assert time.monotonic() - t0 < 5
        assert api.delete(f"/v1/sandboxes/{sb.id}/execs/{e['id']}").status_code == 204


def test_ur012_a_long_stdout_does_not_hide_stderr(api):
    program = "import sys;print('x'*100001);print('fatal',file=sys.stderr);sys.exit(1)"
    with api.sandbox() as sb:
        r = api.run(sb, ["python3", "-c", program], stdout_max_bytes=65536, stderr_max_bytes=65536)
        assert output(r, "stderr") == b"fatal\n"
        assert r["stdout_truncated"] is True
        assert r["stderr_truncated"] is False
        assert r["exec"]["exit"]["code"] == 1


@pytest.mark.parametrize("command", [["cat"], ["python3", "-c", "import sys;print(len(sys.stdin.read()))"], ["sh", "-c", "read x; echo got:$x"]])
def test_ur013_programs_that_read_stdin_end_in_one_shot_runs(api, command):
    with api.sandbox() as sb:
        t0 = time.monotonic()
        r = api.run(sb, command)
        assert time.monotonic() - t0 < 5
        assert r["exec"]["state"] == "exited"


def test_ur015_sixty_four_mebibytes_of_stdin_arrive(api):
    data = os.urandom(1 << 20) * 64
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sha256sum"], stdin=True)
        r = stdin(api, sb.id, e["id"], data, offset=0, eof="true")
        assert r.status_code == 200, r.text
        assert r.json() == {"taken": len(data), "closed": True}
        assert follow(api, sb.id, e["id"]).split()[0].decode() == digest(data)


def test_ur015_a_program_that_does_not_read_stdin(api):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["true"], stdin=True)
        assert wait(api, sb.id, e["id"])["exit"]["code"] == 0
        r = stdin(api, sb.id, e["id"], b"x" * (1 << 20), offset=0)
        assert (r.status_code, r.json().get("closed")) == (200, True) or r.status_code == 409, r.text
        e = start(api, sb.id, ["sleep", "2"], stdin=True)
        r = stdin(api, sb.id, e["id"], b"x" * (1 << 20), offset=0, eof="true")
        assert r.status_code in (200, 409), r.text
        assert wait(api, sb.id, e["id"])["exit"]["code"] == 0


def test_ur016_stdin_offsets_are_deduplicated(api):
    data = bytes(range(100)) + bytes(range(100, 150))
    with api.sandbox() as sb:
        e = start(api, sb.id, ["wc", "-c"], stdin=True)
        assert stdin(api, sb.id, e["id"], data[0:100], offset=0).json()["taken"] == 100
        assert stdin(api, sb.id, e["id"], data[50:150], offset=50).json()["taken"] == 150
        gap = stdin(api, sb.id, e["id"], b"late", offset=200)
        assert gap.status_code == 416
        assert gap.json()["error"]["code"] == "range_not_satisfiable"
        url = f"/v1/sandboxes/{sb.id}/execs/{e['id']}/stdin"
        assert api.get(url).json() == {"taken": 150, "closed": False}
        assert stdin(api, sb.id, e["id"], eof="true", offset=150).status_code == 200
        again = stdin(api, sb.id, e["id"], eof="true", offset=150)
        assert again.status_code == 200
        assert api.get(url).json() == {"taken": 150, "closed": True}
        assert follow(api, sb.id, e["id"]) == b"150\n"


def test_ur017_the_terminal_has_the_size_asked_and_follows_resizes(api):
    program = 'trap "stty size" WINCH; stty size; tty; while :; do sleep 0.05; done'
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sh", "-c", program], tty={"rows": 40, "cols": 132}, stdin=True)
        url = f"/v1/sandboxes/{sb.id}/execs/{e['id']}"

        def seen(text):
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                got = api.get(url + "/stdout", params={"follow": "false"}).content
                if text in got:
                    return got
                time.sleep(0.05)
            raise AssertionError((text, got))

        seen(b"40 132\r\n")
        assert b"/dev/pts/" in seen(b"/dev/pts/")
        assert api.post(url + "/resize", json={"rows": 50, "cols": 200}).status_code in (200, 204)
        seen(b"50 200\r\n")
        assert stdin(api, sb.id, e["id"], b"\x03").status_code == 200
        assert wait(api, sb.id, e["id"], 10)["exit"]["signal"] == 2


def test_ur018_a_terminal_ends_cleanly(api):
    with api.sandbox() as sb:
        for _ in range(30):
            e = start(api, sb.id, ["sh", "-c", "echo bye; exit 7"], tty=True)
            assert follow(api, sb.id, e["id"]) == b"bye\r\n"
            done = wait(api, sb.id, e["id"])
            assert (done["state"], done["exit"]["code"]) == ("exited", 7)


def test_ur019_half_a_character_at_the_end(api):
    with api.sandbox() as sb:
        r = api.run(sb, ["sh", "-c", "printf '\\342\\230'; exit 5"])
        assert output(r) == b"\xe2\x98"
        assert r["exec"]["exit"]["code"] == 5


def test_ur020_short_commands_keep_their_output(api):
    count = 400
    with api.sandbox() as sb:
        def one(i):
            r = api.run(sb, ["sh", "-c", f"printf %s x{i}; printf %s y{i} >&2; exit {i % 200}"])
            return output(r), output(r, "stderr"), r["exec"]["exit"]["code"]

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for i, got in enumerate(pool.map(one, range(count))):
                assert got == (b"x%d" % i, b"y%d" % i, i % 200)


def test_ur021_a_terminal_only_when_asked(api):
    program = "[ -t 0 ]||[ -t 1 ]||echo notty; echo E >&2"
    with api.sandbox() as sb:
        r = api.run(sb, ["sh", "-c", program])
        assert output(r) == b"notty\n"
        assert output(r, "stderr") == b"E\n"
        e = start(api, sb.id, ["sh", "-c", "[ -t 1 ] && echo yes; echo E >&2"], tty=True)
        assert follow(api, sb.id, e["id"]) == b"yes\r\nE\r\n"
        assert follow(api, sb.id, e["id"], "stderr") == b""


@pytest.mark.long
def test_ur022_a_command_may_be_silent_for_minutes(api):
    with api.sandbox() as sb:
        assert output(api.run(sb, ["sh", "-c", "sleep 130; echo done"], timeout=300)) == b"done\n"


def test_ur022_a_silent_run_sends_heartbeats(api):
    """The head of the answer is sent while the command is still silent, so that a proxy keeps the connection."""
    with api.sandbox() as sb:
        t0 = time.monotonic()
        body = {"command": ["sh", "-c", "sleep 19; echo done"]}
        with api.stream("POST", f"/v1/sandboxes/{sb.id}/run", json=body, timeout=60) as r:
            chunks = r.iter_raw()
            first = next(chunks)
            assert time.monotonic() - t0 < 18
            assert first.strip() == b""
            rest = b"".join(chunks)
        assert json.loads(rest)["stdout"] == "done\n"


def test_many_readers_of_one_stream_see_the_same_bytes(api):
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sh", "-c", "for i in 1 2 3 4 5; do seq $i 20000; sleep 0.1; done"])
        got = {}

        def read(n):
            got[n] = digest(follow(api, sb.id, e["id"]))

        threads = [threading.Thread(target=read, args=(n,)) for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(set(got.values())) == 1 and len(got) == 6


def test_a_stream_cut_at_random_resumes_to_the_same_bytes(api):
    import random

    random.seed(7)
    with api.sandbox() as sb:
        e = start(api, sb.id, ["sh", "-c", "i=0; while [ $i -lt 40 ]; do seq 1 4000; i=$((i+1)); sleep 0.02; done"])
        got = bytearray()
        cuts = 0
        while True:
            url = f"/v1/sandboxes/{sb.id}/execs/{e['id']}/stdout"
            limit = len(got) + random.randrange(1, 60000)
            with api.stream("GET", url, params={"offset": len(got)}, timeout=60) as r:
                assert r.status_code == 200
                cut = False
                for chunk in r.iter_raw():
                    got += chunk
                    if len(got) >= limit:
                        cut = True
                        cuts += 1
                        break
            if not cut:
                break
        expected = "".join(f"{n}\n" for n in range(1, 4001)).encode() * 40
        assert cuts > 20
        assert digest(bytes(got)) == digest(expected)
