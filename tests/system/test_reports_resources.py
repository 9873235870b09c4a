"""What users of sandbox platforms reported about limits and what is seen of them: one test a report, under its number."""

import concurrent.futures
import os
import time


import qsdaemon
from test_bombs import daemons_rss
from test_limits import group_files, groups, memory_limits

MIB = 1 << 20


def sh(api, sb, script, **fields):
    return api.run(sb, ["sh", "-c", script], **fields)


def test_a_memory_limit_is_told_and_spares_the_sandbox(api):
    """UR-139: an OOM kill is named, the next command works, the entry point's own is the sandbox's end."""
    hungry = "import sys\nb = []\nwhile True: b.append(bytearray(8 << 20))"
    with api.sandbox(memory_mb=256) as sb:
        r = api.run(sb, ["python3", "-c", hungry])
        assert r["exec"]["exit"]["reason"] == "oom_limit" and r["exec"]["shell_code"] == 137
        assert "python3" in r["exec"]["exit"]["message"]
        assert sh(api, sb, "echo ok")["stdout"] == "ok\n"
        r = api.run(sb, ["python3", "-c", "import os, time\nfor i in range(20):\n if os.fork() == 0:\n  b = bytearray(100 << 20); time.sleep(5); os._exit(0)\ntime.sleep(1)"])
        assert sh(api, sb, "echo ok")["stdout"] == "ok\n"
        r = sh(api, sb, "head -c 400000000 /dev/zero >/dev/shm/x; echo told $?")
        assert "told 0" not in r["stdout"]
        assert sh(api, sb, "rm -f /dev/shm/x; echo ok")["stdout"] == "ok\n"
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["usage"]["oom_kills"] > 0
    sb = api.post("/v1/sandboxes", json={"memory_mb": 64, "command": ["python3", "-c", hungry]}).json()
    ended = api.get(f"/v1/sandboxes/{sb['id']}", params={"wait": "exit", "timeout_s": 60}, timeout=90).json()
    assert ended["exit"]["reason"] == "oom_limit" and ended["usage"]["oom_kills"] > 0
    api.delete(f"/v1/sandboxes/{sb['id']}")


def test_limits_are_in_force_from_the_first_command_on(api, daemon):
    """UR-140: after a create and after a change the groups have the values, and the first program is held to them."""
    with api.sandbox(memory_mb=128, pids=77, cpu=0.5) as sb:
        mine = [g for g, limit in groups(daemon, "memory.max", "memory.limit_in_bytes").items() if limit == str(128 * MIB)]
        assert mine
        assert "77" in group_files(daemon, "pids.max")
        # Groups that no sandbox has yet are without limits; where swap is not counted there is no file.
        swap = groups(daemon, "memory.swap.max", "memory.memsw.limit_in_bytes")
        assert {swap.get(g, "0") for g in mine} <= {"0", str(128 * MIB)}, swap
        r = api.run(sb, ["python3", "-c", f"b = bytearray({140 * MIB})\nfor i in range(0, len(b), 4096): b[i] = 1"])
        assert r["exec"]["exit"]["reason"] == "oom_limit"
        assert api.patch(f"/v1/sandboxes/{sb.id}", json={"memory_mb": 256}).status_code == 200
        assert str(256 * MIB) in memory_limits(daemon)
        r = api.run(sb, ["python3", "-c", f"b = bytearray({140 * MIB})\nfor i in range(0, len(b), 4096): b[i] = 1"])
        assert r["exec"]["exit"]["code"] == 0


def test_processes_are_many_and_bounded(api):
    """UR-141: three thousand threads are no attack; a fork bomb is stopped, and its sandbox can be used and ended."""
    threads = "import threading, time\ne = threading.Event()\nt = [threading.Thread(target=e.wait) for _ in range(3000)]\n" \
              "[x.start() for x in t]\nprint(threading.active_count())\ne.set()"
    with api.sandbox() as sb:
        r = api.run(sb, ["python3", "-c", "import threading; threading.stack_size(65536)\n" + threads])
        assert r["stdout"] == "3001\n", r
    sb = api.post("/v1/sandboxes", json={"pids": 100, "idle_timeout_s": None}).json()
    url = f"/v1/sandboxes/{sb['id']}"
    api.post(url + "/execs", json={"command": ["python3", "-c", "import os\nwhile True:\n try: os.fork()\n except OSError: pass"]})
    time.sleep(1)
    began = time.monotonic()
    r = api.post(url + "/run", json={"command": ["echo", "ok"]})
    assert (r.status_code == 200 and r.json()["stdout"] == "ok\n") or r.json()["error"]["code"] != "internal", r.text
    r = api.post(url + "/terminate", json={"grace_s": 0})
    assert r.json()["state"] == "ended" and time.monotonic() - began < 60
    assert api.delete(url).status_code == 204


def test_what_programs_count_is_the_sandboxs(api):
    """UR-144: processors and memory are those of the limits, by each way in which programs ask."""
    with api.sandbox(cpu=1.5 if os.cpu_count() > 1 else 1, memory_mb=1024) as sb:
        count = str(min(2, os.cpu_count()))
        r = sh(api, sb, "nproc; grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat; "
                        "python3 -c 'import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))'; "
                        "awk '/MemTotal/ {print $2}' /proc/meminfo; cut -d' ' -f1 /proc/uptime; cut -d' ' -f1 /proc/loadavg")
        lines = r["stdout"].split()
        assert lines[:5] == [count] * 5, r["stdout"]
        assert int(lines[5]) == 1024 * 1024
        with open("/proc/uptime") as f:
            assert float(lines[6]) < min(600, float(f.read().split()[0]))
        assert float(lines[7]) <= 3


def test_output_that_nobody_reads_has_a_bound(make_daemon):
    """UR-145: an entry point that writes for ever keeps its newest output, many commands fill no disk, the daemons stay small."""
    d = make_daemon(spool_mb=64)
    small = daemons_rss(d)
    sb = d.api.post("/v1/sandboxes", json={"image": "base", "idle_timeout_s": None, "command": ["sh", "-c", "yes 0123456789"]}).json()
    url = f"/v1/sandboxes/{sb['id']}"
    time.sleep(3)
    entry = d.api.get(url + "/execs/entry").json()      # the oldest goes, and it is said from where what is kept begins
    assert entry["stdout_first"] > 0 and entry["stdout_bytes"] - entry["stdout_first"] <= 64 * MIB, entry
    for i in range(20):
        d.api.post(url + "/run", json={"command": ["head", "-c", "10000000", "/dev/zero"], "stdout_max_bytes": 1}, timeout=60)
    kept = sum(f.stat().st_blocks * 512 for f in (d.data_dir / "run" / sb["id"]).iterdir() if f.is_file())
    assert kept <= 2 * 64 * MIB + 16 * MIB, kept
    assert daemons_rss(d) - small < 64 * MIB
    d.api.delete(url)


def test_nobody_inside_changes_his_own_groups(api):
    """UR-147: no control group can be frozen, widened, made, mounted or left from inside; the end comes all the same."""
    sb = api.post("/v1/sandboxes", json={"memory_mb": 128, "idle_timeout_s": None}).json()
    url = f"/v1/sandboxes/{sb['id']}"
    script = "for f in $(find /sys/fs/cgroup -name cgroup.freeze -o -name freezer.state -o -name memory.max -o -name cgroup.procs -o -name memory.limit_in_bytes 2>/dev/null); do " \
             "echo 1 >$f 2>/dev/null && echo wrote $f; done; mkdir /sys/fs/cgroup/mine 2>/dev/null && echo made; " \
             "mkdir -p /tmp/c; mount -t cgroup2 none /tmp/c 2>/dev/null && echo mounted 2; mount -t cgroup -o freezer none /tmp/c 2>/dev/null && echo mounted 1; echo done"
    assert api.post(url + "/run", json={"command": ["sh", "-c", script]}).json()["stdout"] == "done\n"
    began = time.monotonic()
    assert api.post(url + "/terminate", json={"grace_s": 0}).json()["state"] == "ended"
    assert time.monotonic() - began < 30
    api.delete(url)


def test_what_is_set_aside_is_counted_at_once(api):
    """UR-148: of many creates at the same time no more succeed than what is set aside for them allows; the rest hear why."""
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // MIB
    each = host // 8

    def create(_):
        return api.post("/v1/sandboxes", json={"memory_request_mb": each, "memory_mb": each, "idle_timeout_s": None}, timeout=120)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(create, range(20)))
    made = [r.json()["id"] for r in answers if r.status_code == 201]
    refused = [r for r in answers if r.status_code != 201]
    try:
        assert 1 <= len(made) * each <= host and refused
        for r in refused:
            e = qsdaemon.error(r, 429, "no_capacity")
            assert f"{each} MiB" in e["message"] and "set aside" in e["message"]
    finally:
        for i in made:
            api.delete(f"/v1/sandboxes/{i}")
    with api.sandbox(memory_request_mb=64, memory_mb=64) as sb:
        assert sh(api, sb, "echo ok")["stdout"] == "ok\n"
