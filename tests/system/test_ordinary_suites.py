"""
Test suites that others wrote, run in a sandbox as they are: Python's, PostgreSQL's and a compiler's; and three more languages.

What fails inside is run again outside, on the same files without a sandbox: what passes there is our fault, what fails there too
is not. What cannot pass inside is left out by name, with the reason.
"""

import os
import re
import subprocess

import pytest

import qsdaemon
from test_ordinary_tools import prepare, scripts, succeeds

pytestmark = pytest.mark.long

PYTHON = """
    test_asyncio test_cmd_line test_concurrent_futures test_ctypes test_datetime test_dbm test_eintr test_epoll test_faulthandler
    test_fcntl test_file test_fileio test_fork1 test_ftplib test_gc test_getpass test_glob test_grp test_hashlib test_httplib
    test_httpservers test_imaplib test_io test_ioctl test_largefile test_locale test_logging test_mailbox test_mmap
    test_multiprocessing_spawn test_openpty test_os test_pathlib test_platform test_poll test_popen test_poplib test_posix
    test_posixpath test_pty test_pwd test_queue test_random test_repl test_resource test_sched test_select test_selectors
    test_shutil test_signal test_site test_smtplib test_socket test_socketserver test_ssl test_stat test_subprocess test_sys test_syslog
    test_tarfile test_tempfile test_thread test_threading test_time test_tracemalloc test_unicode_file test_urllib
    test_urllib2_localnet test_uuid test_venv test_wait3 test_wait4 test_zipfile
""".split()
IDS = "a sandbox has the ids 0 to 65535; these tests give files to users beyond"
PYTHON_LEFT_OUT = {
    "test.test_posix.PosixTester.test_chown": IDS,
    "test.test_posix.PosixTester.test_fchown": IDS,
    "test.test_posix.PosixTester.test_lchown": IDS,
}

# $1: one connection limit for slow machines; the server's own files are used, the tests come from the source package.
POSTGRES = """
cd /work
mkdir pg
tar -C pg --strip-components=1 -xf source --wildcards '*/src/test/regress'
dpkg-deb -x headers.deb headers
cd pg/src/test/regress
gcc -shared -fPIC -O2 -I/work/headers/usr/include/postgresql/15/server -o regress.so regress.c
cp /usr/lib/postgresql/15/lib/pgxs/src/test/regress/pg_regress .
chown -R postgres: /work
mkdir -p /var/run/postgresql
chown postgres: /var/run/postgresql
runuser -u postgres -- ./pg_regress --temp-instance=tmp --inputdir=. --bindir=/usr/lib/postgresql/15/bin --dlpath=. \
    --max-connections=8 --schedule=parallel_schedule --no-locale --encoding=UTF8 </dev/null || true
"""

TCC = """
cd /work
mkdir tcc
tar -C tcc -xf source
cd tcc
./configure >/dev/null
make -s -j2 >/dev/null
make -k test && echo PASSED || true
"""


@pytest.fixture(scope="module")
def box(daemon, suites):
    with daemon.api.sandbox(image=suites, timeout_s=14400) as sb:
        prepare(daemon.api, sb)
        yield sb


@pytest.fixture(scope="module")
def outside():
    """Runs a script on the image's files as root of the host: namespaces of processes and mounts, and nothing else."""
    top = qsdaemon.make_dir("qs-outside-")
    subprocess.run(["tar", "-C", top, "-xf", qsdaemon.packages_tar("suites")], check=True)
    enter = ('mount --make-rprivate /; mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; '
             'exec chroot "$0" /bin/bash -euc "$1"')

    def run(script):
        return subprocess.run(["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c", enter, top, script],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}).stdout

    run.top = top
    yield run
    subprocess.run(["rm", "-rf", "--one-file-system", top], check=True)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """fetch(kind, package) gets a source archive ("source") or a package ("deb") from the host's Debian mirror."""
    top = tmp_path_factory.mktemp("sources")
    for d in ("lists/partial", "archives/partial"):
        (top / d).mkdir(parents=True)
    listed = subprocess.run([qsdaemon.ROOT / "tools/debian-sources"], check=True, capture_output=True, text=True).stdout
    (top / "sources.list").write_text(listed + re.sub("^deb ", "deb-src ", listed, flags=re.M))
    (top / "apt.conf").write_text(f'Dir::Etc::sourcelist "{top}/sources.list";\nDir::Etc::sourceparts "/nonexistent";\n'
                                  f'Dir::State::lists "{top}/lists";\nDir::Cache "{top}";\nAPT::Sandbox::User "root";\n')
    env = {**os.environ, "APT_CONFIG": str(top / "apt.conf")}

    def apt(*args):
        return subprocess.run(["apt-get", "-q", *args], cwd=top, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    assert apt("update").returncode == 0

    def fetch(kind, package):
        # A mirror may lack the sources of security updates, though not those of the release.
        for name in (package, package + "/" + release()) if kind == "source" else (package,):
            r = apt(*(["source", "--download-only"] if kind == "source" else ["download"]), name)
            if r.returncode == 0:
                break
        assert r.returncode == 0, r.stdout
        found = sorted(top.glob(f"{package}_*.orig.tar.*" if kind == "source" else f"{package}_*.deb"))
        return found[-1]

    return fetch


def release():
    return re.search(r"^VERSION_CODENAME=(\w+)", open("/etc/os-release").read(), re.M)[1]


def run_inside(api, box, script, timeout_s=2700):
    e = api.post(f"/v1/sandboxes/{box.id}/execs", json={"command": ["bash", "-euc", script], "stderr": "merge", "timeout_s": timeout_s,
                                                        "output_limit_bytes": 64 << 20})
    assert e.status_code == 201, e.text
    url = f"/v1/sandboxes/{box.id}/execs/{e.json()['id']}"
    with api.stream("GET", url + "/stdout", params={"follow": "true"}, timeout=timeout_s + 60) as r:
        text = b"".join(r.iter_raw()).decode(errors="replace")
    end = api.get(url, params={"wait": "exit"}).json()["exit"]
    assert (end["reason"], end["code"]) == ("exited", 0), (end, text[-4000:])
    return text


def put(api, box, path, name):
    with open(path, "rb") as f:
        r = api.put(f"/v1/sandboxes/{box.id}/files", params={"path": f"/work/{name}", "parents": True}, content=f.read(), timeout=120)
    assert r.status_code in (200, 201), r.text


def python_script(modules):
    ignored = " ".join(f"-i {name}" for name in PYTHON_LEFT_OUT)
    return f"cd /tmp; python3 -m test -j2 -w --timeout 900 -u cpu,subprocess {ignored} {' '.join(modules)} </dev/null || true"


def failed_modules(text):
    """Those that also failed when they were run again, alone."""
    assert "== Tests result: " in text, text[-3000:]
    last = text[text.rindex("== Tests result: "):]
    listed = re.findall(r"^\d+ tests? failed:\n((?:    .*\n)*)", last, re.M)
    assert listed or re.search(r"^(All )?\d+ tests? OK\.$", last, re.M), last
    return set(re.findall(r"\btest_\w+", " ".join(listed)))


def test_the_test_suite_of_python(api, box, outside):
    text = run_inside(api, box, python_script(PYTHON))
    failed = failed_modules(text)
    if failed:
        ours = failed - failed_modules(outside(python_script(sorted(failed))))
        assert not ours, "\n".join(line for line in text.splitlines() if re.match("FAIL|ERROR|AssertionError|OSError", line))
    assert len(failed) < 5, failed


def test_the_regression_tests_of_postgresql(api, box, outside, sources):
    files = {"source": sources("source", "postgresql-15"), "headers.deb": sources("deb", "postgresql-server-dev-15")}
    for name, path in files.items():
        put(api, box, path, name)
    text = run_inside(api, box, POSTGRES)
    result = re.compile(r"^(?:test| {4}) ?(\w+) +\.\.\. (ok|FAILED)", re.M)
    inside = dict(result.findall(text))
    assert len(inside) > 200, text[-3000:]
    failed = {name for name, how in inside.items() if how == "FAILED"}
    if failed:
        # The tests may be some weeks older than the server.
        (outside.top / "work").mkdir()
        for name, path in files.items():
            (outside.top / "work" / name).write_bytes(path.read_bytes())
        control = dict(result.findall(outside(POSTGRES)))
        assert len(control) == len(inside)
        assert not failed - {name for name, how in control.items() if how == "FAILED"}
    assert len(failed) < 20, failed


def test_the_tests_of_a_compiler(api, box, sources):
    """tcc is compiled by gcc, compiles itself, and runs its tests with both."""
    put(api, box, sources("source", "tcc"), "source")
    text = run_inside(api, box, TCC)
    assert text.rstrip().endswith("PASSED"), text[-3000:]
    assert text.count("Test: ") > 100


@pytest.mark.parametrize("script,user", scripts("suites"), ids=lambda v: v)
def test_languages(api, box, script, user):
    succeeds(api, box, ["bash", "-eux", f"/opt/scripts/{script}.sh"], user=user, timeout_s=900)
