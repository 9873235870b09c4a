"""
What a sandbox sees of the machine is its own: memory, processors, load, uptime; by every way that programs use to ask.
"""

import os
import re
import time

import pytest

MIB = 1 << 20
HOST_CPUS = len(os.sched_getaffinity(0))


def out(api, sb, *argv):
    r = api.run(sb, list(argv))
    assert r["exec"]["exit"]["code"] == 0, r
    return r["stdout"]


def meminfo(api, sb):
    return {k: int(v) for k, v in re.findall(r"^(\S+):\s+(\d+)", out(api, sb, "cat", "/proc/meminfo"), re.M)}


def test_memory_is_the_sandboxs(api):
    with api.sandbox(memory_mb=300) as sb:
        m = meminfo(api, sb)
        assert m["MemTotal"] == 300 * 1024
        assert 0 < m["MemFree"] <= m["MemAvailable"] <= m["MemTotal"]
        assert m["SwapTotal"] == m["SwapFree"] == 0
        assert out(api, sb, "sh", "-c", "free -m | awk '/^Mem/ {print $2}'").strip() in ("300", "")
        # What a program takes is seen.
        text = ("b = bytearray(200 << 20)\nimport time\nfor i in range(200):\n"
                " m = dict(l.split()[:2] for l in open('/proc/meminfo'))\n if int(m['MemFree:']) < 110 * 1024: break\n time.sleep(0.1)\nprint(m['MemFree:'])")
        assert int(out(api, sb, "python3", "-c", text)) < 110 * 1024
        # A changed limit is the next command's.
        assert api.patch(f"/v1/sandboxes/{sb.id}", json={"memory_mb": 500}).status_code == 200
        time.sleep(0.2)
        assert meminfo(api, sb)["MemTotal"] == 500 * 1024


def test_memory_without_a_limit_is_the_hosts(api):
    with api.sandbox(memory_mb=None) as sb:
        assert meminfo(api, sb)["MemTotal"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 1024


@pytest.mark.parametrize("cpu, count", [(0.5, 1), (1, 1), (1.5, 2), (None, HOST_CPUS)])
def test_processors_by_every_way_of_counting(api, cpu, count):
    if count > HOST_CPUS:
        pytest.skip("needs two processors")
    with api.sandbox(cpu=cpu) as sb:
        assert out(api, sb, "nproc").strip() == str(count)
        assert out(api, sb, "python3", "-c", "import os; print(len(os.sched_getaffinity(0)), os.sysconf('SC_NPROCESSORS_ONLN'))").split() == [str(count)] * 2
        assert out(api, sb, "python3", "-c", "import os, multiprocessing; print(os.cpu_count(), multiprocessing.cpu_count())").split() == [str(count)] * 2
        assert out(api, sb, "sh", "-c", "grep -c ^processor /proc/cpuinfo; grep -c ^cpu[0-9] /proc/stat").split() == [str(count)] * 2
        online = out(api, sb, "cat", "/sys/devices/system/cpu/online").strip()
        assert sum(int(b or a) - int(a) + 1 for a, b in re.findall(r"(\d+)(?:-(\d+))?", online)) == count
        # They are the ones on which its programs run.
        ids = set(map(int, re.findall(r"^processor\s*: (\d+)", out(api, sb, "cat", "/proc/cpuinfo"), re.M)))
        assert ids == set(eval(out(api, sb, "python3", "-c", "import os; print(os.sched_getaffinity(0))")))


def test_a_changed_quota_counts_for_the_next_command(api):
    with api.sandbox(cpu=0.5) as sb:
        assert out(api, sb, "nproc").strip() == "1"
        assert api.patch(f"/v1/sandboxes/{sb.id}", json={"cpu": None}).status_code == 200
        assert out(api, sb, "nproc").strip() == str(HOST_CPUS)
        assert out(api, sb, "python3", "-c", "import os; print(os.cpu_count())").strip() == str(HOST_CPUS)
        assert api.patch(f"/v1/sandboxes/{sb.id}", json={"cpu": 1}).status_code == 200
        assert out(api, sb, "nproc").strip() == "1"


def test_small_sandboxes_are_spread(api):
    if HOST_CPUS < 2:
        pytest.skip("needs two processors")
    with api.sandbox(cpu=1) as a, api.sandbox(cpu=1) as b:
        assert out(api, a, "cat", "/sys/devices/system/cpu/online") != out(api, b, "cat", "/sys/devices/system/cpu/online")


def test_load_and_processor_time_are_the_sandboxs(api):
    with api.sandbox(cpu=1) as sb:
        load = out(api, sb, "cat", "/proc/loadavg").split()
        assert len(load) == 5 and float(load[0]) < 0.5, load
        before = [int(v) for v in out(api, sb, "cat", "/proc/stat").split("\n")[0].split()[1:]]
        assert len(before) == 10 and sum(before[:3]) < 500
        out(api, sb, "python3", "-c", "import time\nend = time.process_time() + 2\nwhile time.process_time() < end: pass")
        time.sleep(0.2)
        after = [int(v) for v in out(api, sb, "cat", "/proc/stat").split("\n")[0].split()[1:]]
        assert 180 <= sum(after[:3]) - sum(before[:3]) <= 500
        assert 0 < float(out(api, sb, "cat", "/proc/loadavg").split()[0]) <= 1


def test_it_has_started_when_it_was_made(api):
    with api.sandbox() as sb:
        up = float(out(api, sb, "cat", "/proc/uptime").split()[0])
        host = float(open("/proc/uptime").read().split()[0])
        assert up < host - 60 or host < 120, (up, host)
        btime = int(re.search(r"^btime (\d+)", out(api, sb, "cat", "/proc/stat"), re.M)[1])
        assert abs(time.time() - up - btime) < 5
        # Ages of processes come of all three.
        ticks = int(out(api, sb, "sh", "-c", "cut -d' ' -f22 /proc/self/stat"))
        assert 0 <= ticks / 100 <= up + 5


def test_nothing_of_it_can_be_changed(api):
    with api.sandbox(cpu=1) as sb:
        for path in ("/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/cpuinfo", "/sys/devices/system/cpu/online"):
            r = api.run(sb, ["sh", "-c", f"chmod 777 {path}; rm -f {path}; echo x > {path}"])
            assert r["exec"]["exit"]["code"] != 0
            assert out(api, sb, "head", "-c", "1", path) != "x"


def test_an_idle_sandbox_wakes_nobody(api, daemon):
    with api.sandbox(command=["sleep", "1000"], idle_timeout_s=None) as sb:
        time.sleep(5)
        monitors = [p for p in daemon.pids("monitor") if sb.id in os.readlink(f"/proc/{p}/cwd")]
        assert len(monitors) == 1

        def switches():
            text = open(f"/proc/{monitors[0]}/status").read()
            return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])

        before = switches()
        time.sleep(10)
        assert switches() - before <= 2
