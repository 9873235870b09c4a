"""
Limits as clients meet them: what is asked for is in force, what is not asked for has a default, what cannot be is refused with
field, value and limit, and a change counts at once.
"""

import os
import pathlib

import pytest

import qsdaemon
from qsdaemon import error

MIB = 1 << 20
HOST_MB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // MIB
HOST_CPUS = os.sysconf("SC_NPROCESSORS_ONLN")


def groups(daemon, *names):
    """What each control group of the instance's sandboxes has in the first of these files, by the group's name."""
    found = {}
    for root in qsdaemon.group_roots():
        for group in (root / daemon.cgroup).glob("[0-9]*"):
            for name in names:
                if (group / name).exists():
                    found.setdefault(group.name, (group / name).read_text().split()[0])
    return found


def group_files(daemon, *names):
    return list(groups(daemon, *names).values())


def memory_limits(daemon):
    return group_files(daemon, "memory.max", "memory.limit_in_bytes")


def quotas(daemon):
    return group_files(daemon, "cpu.max", "cpu.cfs_quota_us")


def test_defaults_are_parts_of_the_host(api):
    with api.sandbox() as sb:
        limits = sb["limits"]
        assert limits["memory_mb"] == HOST_MB * 50 // 100
        assert limits["cpu"] == max(1.0, HOST_CPUS * 0.75)
        assert limits["disk_mb"] == 8192
        assert limits["pids"] == 4096
        assert limits["cpu_weight"] == 100
        assert limits["memory_request_mb"] is None and limits["io_weight"] is None
        assert limits["oom"] == "exec"
        assert 16 <= limits["nofile"] <= 65536
        nofile = api.run(sb, ["sh", "-c", "ulimit -n; ulimit -Hn"])["stdout"].split()
        assert nofile == [str(limits["nofile"])] * 2
        rows = {r["name"]: r["value"] for r in api.get("/v1/limits").json()["items"]}
        assert rows["memory_default"] == limits["memory_mb"]
        assert rows["cpu_default"] == limits["cpu"] * 1000
        assert rows["disk_default"] == limits["disk_mb"]


def test_null_means_no_limit(api):
    with api.sandbox(cpu=None, memory_mb=None, disk_mb=None) as sb:
        assert sb["limits"]["cpu"] is None
        assert sb["limits"]["memory_mb"] is None
        assert sb["limits"]["disk_mb"] is None


def test_what_is_asked_for_is_in_force(api, daemon):
    with api.sandbox(cpu=0.35, memory_mb=123, memory_request_mb=50, pids=77, nofile=100, disk_mb=99) as sb:
        assert sb["limits"] == {"cpu": 0.35, "cpu_weight": 100, "memory_mb": 123, "memory_request_mb": 50, "pids": 77, "io_weight": None,
                                "disk_mb": 99, "nofile": 100, "oom": "exec"}
        assert str(123 * MIB) in memory_limits(daemon)
        assert "35000" in quotas(daemon)
        assert "77" in group_files(daemon, "pids.max")
        assert str(50 * MIB) in group_files(daemon, "memory.low", "memory.soft_limit_in_bytes")
        assert api.run(sb, ["sh", "-c", "ulimit -n; ulimit -Hn"])["stdout"].split() == ["100", "100"]
        r = api.run(sb, ["python3", "-c", "l = []\ntry:\n while True: l.append(open('/dev/null'))\nexcept OSError as e: print(e.errno, len(l))"])
        assert r["stdout"].split()[0] == "24" and 90 <= int(r["stdout"].split()[1]) <= 97


@pytest.mark.parametrize("field, value, limit", [
    ("cpu", 0.009, "0.01"), ("cpu", 1025, "1024"), ("cpu_weight", 0, "1"), ("cpu_weight", 10001, "10000"),
    ("memory_mb", 15, "16"), ("memory_mb", 4194305, "4194304"), ("memory_request_mb", 0, "1"), ("memory_request_mb", 4194305, "4194304"),
    ("pids", 3, "4"), ("pids", 1048577, "1048576"), ("io_weight", 0, "1"), ("io_weight", 10001, "10000"),
    ("disk_mb", 0, "1"), ("disk_mb", 1073741825, "1073741824"), ("nofile", 15, "16"), ("nofile", 1048577, "1048576"),
    ("oom", "never", "exec"),
])
def test_each_bound(api, field, value, limit):
    e = error(api.post("/v1/sandboxes", json={field: value}), 400, "invalid_argument", field)
    assert field in e["message"] and limit in e["message"], e


def test_limits_that_do_not_go_together(api):
    e = error(api.post("/v1/sandboxes", json={"memory_mb": 64, "memory_request_mb": 65}), 400, "invalid_argument", "memory_request_mb")
    assert "65" in e["message"] and "64" in e["message"]
    ceiling = int(pathlib.Path("/proc/self/limits").read_text().split("Max open files")[1].split()[1])
    if ceiling < 1048576:
        e = error(api.post("/v1/sandboxes", json={"nofile": 1048576}), 400, "invalid_argument", "nofile")
        assert "1048576" in e["message"] and str(ceiling) in e["message"]


def test_more_than_the_host_has_cannot_be_set_aside(api):
    # A default that is below what is asked for goes with it.
    most = HOST_MB * 80 // 100
    with api.sandbox(memory_request_mb=most - 1000) as sb:
        assert sb["limits"]["memory_mb"] == max(HOST_MB * 50 // 100, most - 1000)
        e = error(api.post("/v1/sandboxes", json={"memory_request_mb": 1100}), 429, "no_capacity", "memory_request_mb")
        assert "1100" in e["message"], e
        with api.sandbox(memory_request_mb=500) as other:
            error(api.patch(f"/v1/sandboxes/{other.id}", json={"memory_request_mb": 1100}), 429, "no_capacity", "memory_request_mb")
    with api.sandbox(memory_request_mb=1100):       # given back by the first one's end
        pass


def test_a_change_counts_at_once(api, daemon):
    with api.sandbox(cpu=0.25, memory_mb=64, pids=50) as sb:
        url = f"/v1/sandboxes/{sb.id}"
        r = api.patch(url, json={"cpu": 0.5, "memory_mb": 300, "pids": 60, "cpu_weight": 300})
        assert r.status_code == 200, r.text
        limits = r.json()["limits"]
        assert (limits["cpu"], limits["memory_mb"], limits["pids"], limits["cpu_weight"]) == (0.5, 300, 60, 300)
        assert api.get(url).json()["limits"] == limits
        assert str(300 * MIB) in memory_limits(daemon) and "50000" in quotas(daemon) and "60" in group_files(daemon, "pids.max")
        assert api.run(sb, ["python3", "-c", "print(len(bytearray(200 << 20)))"])["stdout"] == f"{200 * MIB}\n"
        r = api.patch(url, json={"cpu": None, "memory_mb": 100})
        assert r.json()["limits"]["cpu"] is None and r.json()["limits"]["memory_mb"] == 100
        assert api.run(sb, ["python3", "-c", "print(len(bytearray(200 << 20)))"])["exec"]["exit"]["reason"] == "oom_limit"
        e = error(api.patch(url, json={"memory_mb": 15}), 400, "invalid_argument", "memory_mb")
        assert "15" in e["message"] or "16" in e["message"]
        error(api.patch(url, json={"memory_request_mb": 101}), 400, "invalid_argument", "memory_request_mb")


def test_a_limit_below_what_is_in_use_is_refused(api, daemon):
    with api.sandbox(memory_mb=300) as sb:
        url = f"/v1/sandboxes/{sb.id}"
        x = api.post(url + "/execs", json={"command": ["python3", "-c", "b = bytearray(150 << 20)\nprint('have', flush=True)\nimport time; time.sleep(1000)"]}).json()
        with api.stream("GET", f"{url}/execs/{x['id']}/stdout", params={"follow": "true"}) as r:
            assert next(r.iter_raw()) == b"have\n"
        e = error(api.patch(url, json={"memory_mb": 100, "cpu": 0.1}), 409, "conflict", "memory_mb")
        assert "100" in e["message"], e
        assert api.get(url).json()["limits"] == sb["limits"]        # nothing of it has changed
        assert str(300 * MIB) in memory_limits(daemon) and "10000" not in quotas(daemon)
        assert api.get(f"{url}/execs/{x['id']}").json()["exit"] is None


def test_an_io_weight_is_kept_or_refused(api, daemon):
    r = api.post("/v1/sandboxes", json={"io_weight": 250})
    if r.status_code == 201:
        sb = r.json()
        assert sb["limits"]["io_weight"] == 250
        assert "250" in " ".join(group_files(daemon, "blkio.bfq.weight", "io.bfq.weight", "io.weight")) or \
            "default" in group_files(daemon, "io.weight")
        assert api.delete(f"/v1/sandboxes/{sb['id']}").status_code == 204
    else:
        error(r, 501, "not_supported", "io_weight")


def test_an_ended_outputs_room_is_given_to_the_next(make_daemon):
    d = make_daemon(spool_mb=16)
    with d.api.sandbox() as sb:
        url = f"/v1/sandboxes/{sb.id}/execs"
        ids = []
        for i in range(4):
            ids.append(d.api.post(url, json={"command": ["sh", "-c", f"head -c 7000000 /dev/zero | tr '\\0' {i}"]}).json()["id"])
            record = d.api.get(f"{url}/{ids[-1]}", params={"wait": "exit"}).json()
            assert record["exit"]["reason"] == "exited" and record["stdout_bytes"] == 7000000
        kept = [len(d.api.get(f"{url}/{x}/stdout").content) for x in ids]
        assert kept == [0, 0, 7000000, 7000000]
        on_disk = sum(p.stat().st_blocks * 512 for p in (d.data_dir / "run" / sb.id).glob("*"))
        assert on_disk <= 17 << 20
        # One alone that is over all there may be ends by rule.
        x = d.api.post(url, json={"command": ["sh", "-c", "yes"]}).json()["id"]
        record = d.api.get(f"{url}/{x}", params={"wait": "exit"}).json()
        assert record["exit"]["reason"] == "output_limit"
        assert record["stdout_bytes"] <= 16 << 20


# --- out of memory

HOG = "b = []\nwhile True: b.append(bytearray(1 << 20))"
# A child that the limit kills, of a parent that would go on.
CHILD = ["sh", "-c", f"python3 -c '{HOG}'; echo $?; sleep 0.3; echo lives"]


def run_exec(api, sb, argv, **fields):
    return api.run(sb, argv, **fields)


def test_the_process_that_memory_killed_is_named(api):
    with api.sandbox(memory_mb=100) as sb:
        x = api.run(sb, ["python3", "-c", HOG])["exec"]
        assert x["exit"]["reason"] == "oom_limit" and x["exit"]["signal"] == 9
        assert x["exit"]["message"] == f"the memory limit was reached and 'python3' (pid {x['pid']}) was killed"
        assert api.run(sb, ["echo", "ok"])["stdout"] == "ok\n"
        assert api.get(f"/v1/sandboxes/{sb.id}").json()["usage"]["oom_kills"] == 1


def test_the_rest_of_the_exec_goes_with_it(api):
    with api.sandbox(memory_mb=100) as sb:
        other = api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": ["sleep", "1000"]}).json()["id"]
        r = api.run(sb, CHILD)
        assert r["exec"]["exit"]["reason"] == "oom_limit", r
        assert "'python3' (pid " in r["exec"]["exit"]["message"], r
        assert "lives" not in r["stdout"]
        assert api.get(f"/v1/sandboxes/{sb.id}/execs/{other}").json()["exit"] is None      # another exec does not
        assert api.run(sb, ["sh", "-c", "ls /proc | grep -c '^[0-9]'"])["stdout"].strip() in ("3", "4", "5")


def test_only_the_process_goes(api):
    with api.sandbox(memory_mb=100, oom="process") as sb:
        r = api.run(sb, CHILD)
        assert r["stdout"] == "137\nlives\n", r
        assert r["exec"]["exit"]["reason"] == "exited" and r["exec"]["exit"]["code"] == 0
        assert r["exec"]["oom"]["comm"] == "python3" and r["exec"]["oom"]["pid"] > 1


@pytest.mark.parametrize("argv", [["python3", "-c", HOG], CHILD])
def test_the_sandbox_goes(api, argv):
    with api.sandbox(memory_mb=100, oom="sandbox", command=["sleep", "1000"]) as sb:
        api.post(f"/v1/sandboxes/{sb.id}/execs", json={"command": argv})
        end = api.get(f"/v1/sandboxes/{sb.id}", params={"wait": "exit", "timeout_s": 60}).json()
        assert end["state"] == "ended" and end["exit"]["reason"] == "oom_limit", end
        assert end["exit"]["message"].startswith("the memory limit was reached and 'python3' (pid "), end


def test_an_entry_point_that_memory_killed(api):
    with api.sandbox(memory_mb=100, command=["python3", "-c", HOG]) as sb:
        end = api.get(f"/v1/sandboxes/{sb.id}", params={"wait": "exit", "timeout_s": 60}).json()
        assert end["exit"]["reason"] == "oom_limit" and end["exit"]["signal"] == 9
        assert end["exit"]["message"].startswith("the memory limit was reached and 'python3' (pid "), end
