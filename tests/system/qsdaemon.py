"""
A private instance of the daemon for tests: its own directories, port, cgroups and id ranges. Needs root.

Used by conftest.py. What an instance leaves behind after all its sandboxes were deleted and it was stopped is a leak and is
reported; then everything that bears its name is removed, so that one failure does not become the next test's.
"""

import contextlib
import fcntl
import fcntl
import hashlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("QUICKSAND_TEST_CACHE", "/var/cache/quicksand-test"))
EXECUTABLE = {"keeper": "quicksandd"}
# Everything that the tests make on disk is below this directory. Not in /tmp, which may be a tmpfs: id-mapped layers are not to be
# had there on every kernel. tools/check names one of its own for each run, so that what is left can be told.
TEST_DIR = os.environ.get("QUICKSAND_TEST_DIR", "/var/tmp")
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def group_roots():
    """The roots of the hierarchies of control groups: of v2 alone, or of v1's and v2 beside each other."""
    return [CGROUPS] if (CGROUPS / "cgroup.procs").exists() else [d for d in CGROUPS.iterdir() if d.is_dir()]


def make_dir(prefix):
    return pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=TEST_DIR))


def group_name(home):
    """A control group's name tells the run that made it."""
    return f"{os.path.basename(TEST_DIR)}-{home.name}"


def build_dir():
    for name in (os.environ.get("QUICKSAND_BUILD"), ROOT / "build-asan", ROOT / "build"):
        if name and (pathlib.Path(name) / "build.ninja").exists():
            return pathlib.Path(name)
    raise RuntimeError("no build directory: run `make build`, or set QUICKSAND_BUILD")


def base_tar():
    """The root file system of the image `base`, made once a machine, by whoever asks first."""
    path = CACHE / "base.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            subprocess.run([ROOT / "tools/make-base-image", path], check=True, stdin=subprocess.DEVNULL)
    return path


def packages_tar(name):
    """The base with the packages of packaging/debian-packages/image-NAME.txt, made once for each state of that list."""
    listed = (ROOT / f"packaging/debian-packages/image-{name}.txt").read_text()
    packages = [line for line in listed.splitlines() if line and not line.startswith("#")]
    path = CACHE / f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            subprocess.run([ROOT / "tools/make-base-image", path, *packages], check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return path


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def error(r, status, code, param=None):
    """The error that an answer must be."""
    assert r.status_code == status, r.text
    assert r.headers["content-type"] == "application/problem+json"
    e = r.json()["error"]
    assert e["code"] == code, e
    if param is not None:
        assert e["param"] == param, e
    return e


class Sandbox(dict):
    @property
    def id(self):
        return self["id"]


class Api(httpx.Client):
    """A client with the token in place and the two things that nearly every test does."""

    def __init__(self, url, token, **options):
        headers = {"authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=1200, max_keepalive_connections=50)
        super().__init__(base_url=url, headers=headers, timeout=60, limits=limits, trust_env=False, **options)

    @contextlib.contextmanager
    def sandbox(self, **spec):
        r = self.post("/v1/sandboxes", json=spec)
        assert r.status_code == 201, r.text
        sb = Sandbox(r.json())
        try:
            yield sb
        finally:
            assert self.delete(f"/v1/sandboxes/{sb.id}").status_code in (204, 404)

    def run(self, sb, argv, timeout=120, **fields):
        r = self.post(f"/v1/sandboxes/{sb.id}/run", json={"command": argv, **fields}, timeout=timeout)
        assert r.status_code == 200, r.text
        return r.json()


class Daemon:
    def __init__(self, build, supervised=False, **conf):
        self.home = make_dir("qs-")
        self.home.chmod(0o755)
        self.data_dir, self.run_dir, self.lib_dir = (self.home / n for n in ("data", "run", "lib"))
        for d in (self.data_dir, self.run_dir, self.lib_dir):
            d.mkdir(mode=0o755)
        # Programs of its own, so that an instance is known by the paths of its processes.
        subprocess.run([ROOT / "tools/stage", build, self.lib_dir], check=True)
        self.log = self.home / "log"
        self.config = self.home / "quicksand.conf"
        self.port = free_port()
        self.router_port = free_port()
        first = random.randrange(10000, 29000, 24)      # below the ports that clients are given
        self.tunnel_ports = (first, first + 23)
        self.url = f"http://127.0.0.1:{self.port}"
        self.cgroup = group_name(self.home)
        settings = {
            "data_dir": self.data_dir,
            "run_dir": self.run_dir,
            "lib_dir": self.lib_dir,
            "listen": f"127.0.0.1:{self.port}",
            "router_listen": f"127.0.0.1:{self.router_port}",
            "tunnel_listen": f"127.0.0.1:{self.tunnel_ports[0]}-{self.tunnel_ports[1]}",
            "cgroup_name": self.cgroup,
            "id_base_range": random.randrange(200, 12000),
            "trees_bytes": 16 << 30,
            **conf,
        }
        self.config.write_text("".join(f"{k} = {v}\n" for k, v in settings.items()))
        self.supervised = supervised
        self.held = threading.Event()
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.process = None
        self.guard = None
        self.token = None
        self.api = None

    # --- start and stop

    def start(self):
        self.spawn()
        if self.supervised:
            self.guard = threading.Thread(target=self.supervise, daemon=True)
            self.guard.start()
        self.wait_ready()
        self.token = (self.data_dir / "control/admin-token").read_text().strip()
        self.api = Api(self.url, self.token)
        return self

    def spawn(self):
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            # The filters of the roles forbid what the leak checker does at the end of a program.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        }
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.lib_dir / "quicksandd", "--foreground", "--config", self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)

    def supervise(self):
        """What systemd does: a daemon that died is started again."""
        while not self.over.wait(0.05):
            with self.lock:
                if self.process.poll() is not None and not self.held.is_set():
                    self.spawn()

    def wait_ready(self, seconds=60):
        give_up = time.monotonic() + seconds
        token = self.data_dir / "control/admin-token"
        why = "nothing answered"
        while time.monotonic() < give_up:
            if self.process.poll() is not None and not self.supervised:
                raise RuntimeError(f"the daemon ended at start:\n{self.log_tail()}")
            try:
                r = httpx.get(self.url + "/v1/health", timeout=5, trust_env=False)
                why = r.text
                if r.status_code == 200 and r.json()["status"] == "ok" and token.exists():
                    return
            except (httpx.TransportError, ValueError) as e:
                why = repr(e)
            time.sleep(0.05)
        raise RuntimeError(f"the daemon is not ready after {seconds} s ({why}):\n{self.log_tail()}")

    def import_base(self):
        self.import_image("base", base_tar())

    def import_image(self, name, path):
        with open(path, "rb") as tar:
            r = self.api.post("/v1/images", params={"name": name}, content=tar, timeout=600)
        assert r.status_code == 201, r.text

    def stop(self):
        """Orderly: every sandbox deleted, the daemon ended. Returns what is left that should not be."""
        if self.api:
            self.delete_all()
        self.over.set()
        if self.guard:
            self.guard.join()
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return ["the daemon did not end within 30 s of SIGTERM"]
        give_up = time.monotonic() + 10
        while (left := self.leftovers()) and time.monotonic() < give_up:
            time.sleep(0.1)
        return left

    def delete_all(self):
        with contextlib.suppress(httpx.TransportError, KeyError, ValueError):
            for _ in range(50):
                items = self.api.get("/v1/sandboxes", params={"state": "any", "limit": 1000}).json()["items"]
                if not items:
                    break
                for sb in items:
                    self.api.delete(f"/v1/sandboxes/{sb['id']}")

    # --- faults

    def pids(self, role):
        """Processes of one of the daemons: keeper, control, node, egress, image."""
        if role == "keeper":
            return [self.process.pid] if self.process.poll() is None else []
        path = str(self.lib_dir / EXECUTABLE.get(role, f"quicksand-{role}"))
        return [pid for pid, exe in self.processes() if exe.split(" (deleted)")[0] == path]

    def kill_role(self, role, sig=signal.SIGKILL):
        for pid in self.pids(role):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    def hold_down(self):
        """Kills every daemon and keeps them dead until let_up()."""
        self.held.set()
        with self.lock:
            for role in ("keeper", "control", "node", "egress", "image"):
                self.kill_role(role)
            self.process.wait()
        for role in ("control", "node", "egress", "image"):
            self.kill_role(role)

    def let_up(self):
        with self.lock:
            self.held.clear()
            if not self.supervised:
                self.spawn()
        self.wait_ready()

    # --- what is there

    def processes(self):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    yield int(name), os.readlink(f"/proc/{name}/exe")

    def own_processes(self):
        lib = str(self.lib_dir) + "/"
        groups = f"/{self.cgroup}/"
        found = []
        for pid, exe in self.processes():
            with contextlib.suppress(OSError):
                if exe.startswith(lib) or groups in pathlib.Path(f"/proc/{pid}/cgroup").read_text() + "/":
                    found.append((pid, exe))
        return found

    def mounts(self):
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        return [m for m in (line.split()[4] for line in lines) if m.startswith(str(self.home) + "/")]

    def cgroups(self):
        return [root / self.cgroup for root in group_roots() if (root / self.cgroup).is_dir()]

    def loop_devices(self):
        found = []
        for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                if backing.read_text().startswith(str(self.home) + "/"):
                    found.append("/dev/" + backing.parents[1].name)
        return found

    def leftovers(self):
        left = [f"process {pid} {exe}" for pid, exe in self.own_processes()]
        trees = str(self.data_dir / "trees")
        left += [f"mount {m}" for m in self.mounts() if m != trees]
        for top in self.cgroups():
            left += [f"cgroup {d}" for d in top.rglob("sb-*") if d.is_dir()]
        for where in ("run", "trees/sandboxes"):
            if (self.data_dir / where).is_dir():
                left += [f"file {p}" for p in (self.data_dir / where).iterdir()]
        left += [f"file {p}" for p in (self.data_dir / "layers/.staging").glob("*")]
        return left

    def log_tail(self, start=0, lines=60):
        with open(self.log, "rb") as f:
            f.seek(start)
            return "\n".join(f.read()[-200000:].decode(errors="replace").splitlines()[-lines:])

    def sanitizer_reports(self):
        marks = ("AddressSanitizer", "runtime error:", "UndefinedBehaviorSanitizer")
        return [line for line in self.log.read_text(errors="replace").splitlines() if any(m in line for m in marks)]

    def purge(self):
        """Removes everything that bears this instance's name."""
        give_up = time.monotonic() + 20
        while (own := self.own_processes()) and time.monotonic() < give_up:
            for pid, _ in own:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for mount in sorted(self.mounts(), key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        for device in self.loop_devices():
            subprocess.run(["losetup", "-d", device], check=False)
        for top in self.cgroups():
            for d in sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True):
                with contextlib.suppress(OSError):
                    d.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()
        shutil.rmtree(self.home, ignore_errors=True)
