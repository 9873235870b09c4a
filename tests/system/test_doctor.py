"""`quicksand doctor`: what it says of a host that has everything, and of one that lacks something. Deficits are made in namespaces."""

import json
import os
import pathlib
import platform
import shlex
import shutil
import socket
import subprocess
import time

import pytest

import qsdaemon

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

STATES = {"ok", "degraded", "missing"}
# What every host must have: the names of the checks that decide whether sandboxes can run.
NEEDED = {"privileges", "kernel", "seccomp", "namespaces", "idmapped_mounts", "overlay", "cgroups", "cgroup_pids", "btrfs", "disk", "inodes",
          "memory", "mount_options", "open_files", "user_control", "user_node", "user_egress", "user_image", "ids", "listen", "router_listen"}


@pytest.fixture
def host():
    """A configuration of a daemon that could be started here."""
    home = qsdaemon.make_dir("doctor-")
    home.chmod(0o755)
    conf = {"data_dir": home / "data", "listen": f"127.0.0.1:{qsdaemon.free_port()}", "router_listen": f"127.0.0.1:{qsdaemon.free_port()}",
            "max_sandboxes": 100}
    yield home, conf
    shutil.rmtree(home)


def command(home, conf, *options):
    path = home / "conf"
    path.write_text("".join(f"{k} = {v}\n" for k, v in conf.items()))
    return [str(qsdaemon.build_dir() / "src/cli/quicksand"), "doctor", "--config", str(path), *options]


def run(argv, in_user_namespace=False):
    """With its own user namespace it is root there, of all ids, as soon as they are mapped."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}
    if in_user_namespace:
        argv = ["unshare", "-U", "sh", "-c", 'read -r line; exec "$@"', "sh", *argv]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        if in_user_namespace:
            proc = pathlib.Path(f"/proc/{p.pid}")
            give_up = time.monotonic() + 30
            while os.readlink(proc / "ns/user") == os.readlink("/proc/self/ns/user"):
                assert p.poll() is None and time.monotonic() < give_up
                time.sleep(0.01)
            for name in ("uid_map", "gid_map"):
                (proc / name).write_text("0 0 4294967295\n")
        out, errors = p.communicate("\n", timeout=120)
    finally:
        p.kill()
        p.wait()
    return subprocess.CompletedProcess(argv, p.returncode, out, errors)


def examine(home, conf, wrap=None, **options):
    """The checks by name, and the whole answer; `wrap` runs a script that gets the command as "$@"."""
    argv = command(home, conf, "--json")
    r = run(argv if wrap is None else [*wrap[:-1], "sh", "-euc", wrap[-1] + '\nexec "$@"', "sh", *argv], **options)
    assert r.stderr == "", r.stderr
    answer = json.loads(r.stdout)
    checks = {c["name"]: c for c in answer["checks"]}
    assert len(checks) == len(answer["checks"])
    count = {s: sum(c["state"] == s for c in checks.values()) for s in STATES}
    assert sum(count.values()) == len(checks)
    assert (answer["missing"], answer["degraded"]) == (count["missing"], count["degraded"])
    assert answer["ready"] is (count["missing"] == 0)
    assert r.returncode == (0 if answer["ready"] else 1)
    for c in checks.values():
        assert c["found"] != ""
        assert (c["cost"] == "") is (c["state"] == "ok"), c
    return checks, answer


def test_a_host_that_runs_sandboxes_is_ready(host):
    home, conf = host
    checks, answer = examine(home, conf)
    assert NEEDED <= checks.keys()
    assert {n: checks[n]["state"] for n in NEEDED} == {n: "ok" for n in NEEDED}
    assert answer["ready"] is True and answer["daemon"] is None
    assert answer["config"] == str(home / "conf")
    assert checks["kernel"]["found"] == f"Linux {platform.release()} on {platform.machine()}"
    assert checks["listen"]["found"] == f"{conf['listen']} is free"
    v2_alone = pathlib.Path("/sys/fs/cgroup/cgroup.procs").exists()
    assert checks["cgroups"]["found"].startswith("v2 alone; v2 /sys/fs/cgroup" if v2_alone else "hybrid: limits on v1, processes on v2; v2 ")
    assert checks["cgroup_pids"]["found"].startswith("v2" if v2_alone else "v1 at /sys/fs/cgroup/pids")
    assert not (home / "data").exists()         # it looks and makes nothing


def test_a_disk_that_heeds_no_weights(host):
    home, conf = host
    number = os.stat(home).st_dev
    disk = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not disk.exists():
        pytest.skip("the tests' directory is not on a disk of its own number")
    disk = disk.resolve().parent if (disk / "partition").exists() else disk.resolve()
    checks, _ = examine(home, conf)
    c = checks["io_weight"]
    scheduler = (disk / "queue/scheduler").read_text()
    costs = qsdaemon.CGROUPS / "io.cost.qos"
    counted = costs.exists() and any(line.startswith((disk / "dev").read_text().strip() + " ") and "enable=1" in line
                                     for line in costs.read_text().splitlines())
    if "[bfq]" in scheduler:
        assert (c["state"], c["found"]) == ("ok", f"kept on {disk.name} by BFQ")
    elif counted:
        assert (c["state"], c["found"]) == ("ok", f"kept on {disk.name} by the cost model")
    else:
        assert (c["state"], c["found"]) == ("degraded", f"the scheduler of {disk.name} heeds no weights")
        assert c["fix"].startswith(f"echo bfq >/sys/block/{disk.name}/queue/scheduler ")


def test_text(host):
    home, conf = host
    r = run(command(home, {**conf, "user_egress": "qs-nobody-of-that-name"}))
    assert r.returncode == 1
    lines = r.stdout.splitlines()
    at = lines.index(next(x for x in lines if "user_egress" in x))
    assert lines[at].split(None, 2) == ["missing", "user_egress", "there is no user 'qs-nobody-of-that-name'"]
    assert lines[at + 1].strip() == "so: quicksandd does not start"
    assert lines[at + 2].strip().startswith("do: useradd --system ")
    assert lines[-1].startswith("Not ready: 1 missing, ")
    assert r.stderr == ""


def test_a_missing_user_and_its_fix(host):
    home, conf = host
    name = f"qs-doctor-{os.getpid()}"
    conf["user_node"] = name
    checks, _ = examine(home, conf)
    assert checks["user_node"]["state"] == "missing"
    # The command that it names is the one that helps: here with a copy of the accounts, which it cannot replace in place.
    etc = home / "root/etc"
    etc.mkdir(parents=True)
    accounts = ("passwd", "group", "shadow", "gshadow")
    for f in (*accounts, "login.defs"):
        if pathlib.Path(f"/etc/{f}").exists():
            shutil.copy(f"/etc/{f}", etc)
    words = shlex.split(checks["user_node"]["fix"])
    r = subprocess.run([words[0], "--prefix", home / "root", *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    binds = "".join(f"mount --bind {etc}/{f} /etc/{f}\n" for f in accounts)
    checks, _ = examine(home, conf, wrap=["unshare", "-m", binds])
    assert checks["user_node"]["state"] == "ok", checks["user_node"]


def test_root_may_be_no_role(host):
    home, conf = host
    checks, _ = examine(home, {**conf, "user_control": "root"})
    assert (checks["user_control"]["state"], checks["user_control"]["found"]) == ("missing", "'root' is root")


@pytest.mark.parametrize("key", ["listen", "router_listen"])
def test_a_taken_port(host, key):
    home, conf = host
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        checks, _ = examine(home, {**conf, key: f"127.0.0.1:{port}"})
        c = checks[key]
        assert (c["state"], c["found"], c["cost"]) == ("missing", f"127.0.0.1:{port}: Address already in use", "the daemon cannot listen")
        assert f"ss -ltnp 'sport = :{port}'" in c["fix"]
    assert examine(home, {**conf, key: f"127.0.0.1:{port}"})[0][key]["state"] == "ok"


def test_an_address_that_is_not_ours(host):
    home, conf = host
    checks, _ = examine(home, {**conf, "listen": "192.0.2.77:7070"})
    assert checks["listen"]["state"] == "missing"
    assert checks["listen"]["fix"] == "set listen to an address of this host (port 7070)"


@pytest.mark.parametrize("options,check,state", [("size=900m", "disk", "missing"), ("size=5g", "disk", "degraded"),
                                                 ("size=20g,nr_inodes=5000", "inodes", "missing"),
                                                 ("size=20g,nr_inodes=50000", "inodes", "degraded")])
def test_a_small_disk(host, options, check, state):
    home, conf = host
    (home / "data").mkdir()
    script = f"mount -t tmpfs -o {options} tmpfs {home}/data\n"
    checks, _ = examine(home, conf, wrap=["unshare", "-m", script])
    assert checks[check]["state"] == state, checks[check]
    assert f" free at {home}/data" in checks[check]["found"]
    assert f"the disk of {home}/data" in checks[check]["fix"]
    assert checks["data_dir"]["state"] == "degraded" and "is a tmpfs" in checks["data_dir"]["found"]


@pytest.fixture
def container():
    """The start of a script after which it is in the topmost group of a container, with a tree of control groups of its own."""
    if not (qsdaemon.CGROUPS / "cgroup.procs").exists():
        pytest.skip("needs a host with cgroup v2 alone")
    group = qsdaemon.CGROUPS / f"{os.path.basename(qsdaemon.TEST_DIR)}-container"
    (qsdaemon.CGROUPS / "cgroup.subtree_control").write_text("+memory +pids +cpu +io")
    group.mkdir()
    yield ["sh", "-euc", f'echo $$ >{group}/cgroup.procs\nexec unshare -C -m "$@"', "sh"], f"umount {qsdaemon.CGROUPS}\nmount -t cgroup2 cgroup2 {qsdaemon.CGROUPS}\n"
    for d, _s, _f in sorted(os.walk(group), reverse=True):
        os.rmdir(d)


def test_processes_in_the_topmost_group_of_a_container(host, container):
    home, conf = host
    enter, mount = container
    checks, _ = examine(home, conf, wrap=[*enter, mount])
    c = checks["cgroup_delegation"]
    assert (c["state"], c["found"]) == ("missing", "/sys/fs/cgroup has processes of its own and is not the root of the host's hierarchy")
    # The command that it names helps; and the daemon, which said the same, starts then.
    checks, _ = examine(home, conf, wrap=[*enter, mount + c["fix"] + "\n"])
    assert checks["cgroup_delegation"]["state"] == "ok"
    lib = home / "lib"
    subprocess.run([qsdaemon.ROOT / "tools/stage", qsdaemon.build_dir(), lib], check=True)
    text = "".join(f"{k} = {v}\n" for k, v in {**conf, "lib_dir": lib, "run_dir": home / "run", "cgroup_name": "qs"}.items())
    (home / "daemon.conf").write_text(text)
    start = f"{lib}/quicksandd --foreground --config {home}/daemon.conf"
    r = run([*enter, "sh", "-euc", f"{mount}exec timeout 60 {start}"])
    assert r.returncode == 1 and "the topmost control group has processes of its own" in r.stderr, r.stderr
    r = run([*enter, "sh", "-euc", f"{mount}{c['fix']}\n{start} >&2 & p=$!\n"
             f"n=0; until curl -sf http://{conf['listen']}/v1/health >{home}/health; do n=$((n+1)); [ $n -lt 600 ]; sleep 0.1; done\n"
             "kill $p; wait $p"])
    assert r.returncode == 0, r.stderr
    assert json.loads((home / "health").read_text())["status"] == "ok"


@pytest.mark.parametrize("options,state,opposite", [("ro", "missing", "rw"), ("noexec", "missing", "exec"), ("nodev,nosuid", "missing", "dev,suid"),
                                                    ("nosuid", "degraded", "suid")])
def test_mount_options_in_the_way(host, options, state, opposite):
    home, conf = host
    (home / "data").mkdir()
    checks, _ = examine(home, conf, wrap=["unshare", "-m", f"mount -t tmpfs -o {options} tmpfs {home}/data\n"])
    c = checks["mount_options"]
    assert (c["state"], c["found"]) == (state, f"the file system of {home}/data is mounted {options}")
    assert c["fix"].startswith(f"mount -o remount,{opposite} ")


def test_few_process_numbers(host):
    home, conf = host
    here = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())
    for most in (here // 8, 20000):
        checks, _ = examine(home, {**conf, "max_sandboxes": min(most, 20000)})
        assert checks["processes"]["state"] == ("ok" if min(most, 20000) * 8 <= here else "degraded")
        assert checks["processes"]["found"].startswith(f"kernel.pid_max = {here}")


def test_few_files_for_the_whole_host(host):
    """The setting is the host's own and is left alone: what is said must fit what it is."""
    home, conf = host
    here = int(pathlib.Path("/proc/sys/fs/file-max").read_text())
    checks, _ = examine(home, conf)
    assert checks["files_of_all"]["state"] == ("ok" if here >= 1000000 else "degraded")
    assert checks["files_of_all"]["found"] == f"fs.file-max = {here}"


def test_a_file_system_without_id_maps(host):
    home, conf = host
    checks, _ = examine(home, {**conf, "data_dir": "/proc/sys"})
    assert checks["idmapped_mounts"]["state"] == "missing"
    assert "ext4, xfs or btrfs" in checks["idmapped_mounts"]["fix"]


@pytest.mark.parametrize("kind", ["user", "net", "mnt", "pid", "ipc", "uts"])
def test_a_host_that_allows_no_namespaces(host, kind):
    """The limits are of a user namespace, so the test has one of its own, in which it is root as far as that goes."""
    home, conf = host
    inner = f"echo 0 >/proc/sys/user/max_{kind}_namespaces\n"
    checks, _ = examine(home, conf, wrap=["env", inner], in_user_namespace=True)
    c = checks[f"{kind}_namespace"]
    assert c["state"] == "missing"
    assert c["found"] == f"cannot be made: No space left on device (user.max_{kind}_namespaces = 0)"
    assert c["fix"] == f"sysctl -w user.max_{kind}_namespaces=100000"


def test_too_few_namespaces_for_max_sandboxes(host):
    home, conf = host
    inner = "echo 50 >/proc/sys/user/max_net_namespaces\n"
    checks, answer = examine(home, conf, wrap=["env", inner], in_user_namespace=True)
    c = checks["namespaces"]
    assert (c["state"], c["found"]) == ("degraded", "at most 50 of a kind, for max_sandboxes = 100")
    assert c["fix"] == "sysctl -w user.max_net_namespaces=216"


def test_few_descriptors(host):
    home, conf = host
    checks, answer = examine(home, {**conf, "max_sandboxes": 4096}, wrap=["env", "ulimit -n 2000"])
    c = checks["open_files"]
    assert (c["state"], c["found"]) == ("degraded", "hard limit of 2000 descriptors; max_sandboxes = 4096 may take 13312")
    checks, answer = examine(home, conf, wrap=["env", "ulimit -n 500"])
    assert checks["open_files"]["state"] == "missing" and answer["ready"] is False


def test_programs_and_devices_that_are_not_there(host):
    home, conf = host
    script = "mount -t tmpfs tmpfs /dev\nmount -t tmpfs tmpfs /usr/sbin\n"
    checks, _ = examine(home, conf, wrap=["unshare", "-m", script])
    assert (checks["loop"]["state"], checks["loop"]["fix"].split(" && ")[0]) == ("missing", "modprobe loop")
    assert (checks["fuse"]["state"], checks["fuse"]["fix"].split(" && ")[0]) == ("degraded", "modprobe fuse")
    assert checks["kvm"]["state"] == "degraded"
    if not any(pathlib.Path(d, "mkfs.btrfs").exists() for d in ("/usr/bin", "/usr/local/bin", "/usr/local/sbin")):
        assert (checks["mkfs.btrfs"]["state"], checks["mkfs.btrfs"]["fix"]) == ("missing", "apt-get install btrfs-progs")


@pytest.mark.parametrize("line,file", [("someone:{first}:65536", "subuid"), ("someone:{below}:131072", "subgid")])
def test_ids_that_others_have(host, line, file):
    home, conf = host
    conf["id_base_range"] = 20000
    first = 20000 * 65536
    (home / file).write_text("other:100000:65536\n" + line.format(first=first, below=first - 131072 - 1) + "\n")
    target = f"/etc/{file}"
    if not pathlib.Path(target).exists():
        pytest.skip(f"no {target}")
    checks, _ = examine(home, conf, wrap=["unshare", "-m", f"mount --bind {home}/{file} {target}\n"])
    assert checks["ids"]["state"] == "degraded", checks["ids"]
    assert f"someone of {target} has " in checks["ids"]["found"]
    (home / file).write_text(f"other:100000:65536\nsomeone:{first - 131072}:65536\n")
    checks, _ = examine(home, conf, wrap=["unshare", "-m", f"mount --bind {home}/{file} {target}\n"])
    assert checks["ids"]["state"] == "ok"


def test_not_root(host):
    home, conf = host
    program = home / "quicksand"
    shutil.copy(qsdaemon.build_dir() / "src/cli/quicksand", program)
    argv = command(home, conf, "--json")
    (home / "conf").chmod(0o644)
    r = run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, *argv[1:]])
    answer = json.loads(r.stdout)
    checks = {c["name"]: c for c in answer["checks"]}
    assert r.returncode == 1
    assert (checks["privileges"]["state"], checks["privileges"]["fix"]) == ("missing", "sudo quicksand doctor")


def test_a_bad_configuration(host):
    home, conf = host
    r = run(command(home, {**conf, "id_base_range": "many"}))
    assert (r.returncode, r.stdout) == (1, "")
    assert "id_base_range" in r.stderr and "line 5" in r.stderr
    r = run([*command(home, conf)[:2], "--config", str(home / "none")])
    assert (r.returncode, r.stdout) == (1, "") and str(home / "none") in r.stderr
    assert run([*command(home, conf)[:2], "--what"]).returncode == 2


def test_the_daemon_that_runs(daemon):
    home = qsdaemon.make_dir("doctor-")
    home.chmod(0o755)
    conf = {"data_dir": daemon.data_dir, "listen": f"127.0.0.1:{daemon.port}", "router_listen": f"127.0.0.1:{daemon.router_port}",
            "max_sandboxes": 100}
    try:
        checks, answer = examine(home, conf)
    finally:
        shutil.rmtree(home)
    assert answer["daemon"].keys() == daemon.api.get("/v1/health").json().keys()
    assert answer["daemon"]["status"] == "ok"
    assert (checks["daemon"]["state"], checks["daemon"]["found"]) == ("ok", f"answers at 127.0.0.1:{daemon.port}: ok")
    assert checks["listen"]["found"] == f"127.0.0.1:{daemon.port}, taken by the daemon that runs"
    assert checks["router_listen"]["state"] == "ok"
    assert checks["btrfs"]["found"] == "mounted"
