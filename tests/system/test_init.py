"""PID 1 of a sandbox by itself: what the monitor relies on. Needs root."""

import errno
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tarfile
import termios
import time

import pytest

import initbox
import qsdaemon
from initbox import ALL, CGROUP, GROUP, MERGE, STDIN, STDOUT, TTY, Box

INIT = str(qsdaemon.build_dir() / "src/init/quicksand-init")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The base image, unpacked where no test is below it."""
    path = tmp_path_factory.mktemp("image", numbered=True)
    subprocess.run(["tar", "-xf", qsdaemon.base_tar(), "-C", path], check=True)
    os.chmod(path, 0o755)
    yield str(path)
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def box(image):
    with Box(INIT, [image]) as b:
        assert b.ready == (0, "")
        yield b


def fails(box, argv, **kw):
    with pytest.raises(OSError) as e:
        box.run(argv, **kw)
    return e.value.errno, e.value.strerror


def test_output_exit_codes_and_signals(box):
    e, out, err = box.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (e["code"], e["signal"], out, err) == (7, 0, b"out\n", b"err\n")
    e, _, _ = box.run(["sh", "-c", "kill -9 $$"])
    assert (e["code"], e["signal"], e["comm"]) == (-1, 9, "sh")


def test_arguments_and_large_environments_arrive(box):
    argv = ["printf", "%s|", "a\nb", "", "$(id)", "é☕"]
    assert box.run(argv)[1] == b"a\nb||$(id)|" + "é☕".encode() + b"|"
    big = [f"V{i}=" + "x" * 100000 for i in range(2)]
    _, out, _ = box.run(["sh", "-c", "echo ${#V0} ${#V1}"], env=["PATH=/usr/bin", *big])
    assert out == b"100000 100000\n"


def test_what_cannot_start_is_named(box):
    assert fails(box, ["no-such-xyz"]) == (errno.ENOENT, "exec")
    assert fails(box, ["/etc/passwd"]) == (errno.EACCES, "exec")
    assert fails(box, ["/tmp"]) == (errno.EACCES, "exec")
    assert fails(box, [""]) == (errno.ENOENT, "exec")
    box.run(["sh", "-c", "printf '#!/nope\\n' > /tmp/s; printf 'echo hi' > /tmp/n; chmod 755 /tmp/s /tmp/n"])
    assert fails(box, ["/tmp/s"]) == (errno.ENOENT, "interpreter")
    assert fails(box, ["s"], env=["PATH=/tmp"]) == (errno.ENOENT, "interpreter")
    assert fails(box, ["/tmp/n"]) == (errno.ENOEXEC, "exec")
    assert fails(box, ["true"], cwd="/nope") == (errno.ENOENT, "cwd")
    assert fails(box, ["true"], cwd="relative") == (errno.EINVAL, "cwd")
    assert fails(box, ["true"], user="nobody-here") == (errno.ENOENT, "user")
    assert fails(box, ["true"], user="70000") == (errno.EINVAL, "user")
    assert fails(box, ["x" * 300]) == (errno.ENAMETOOLONG, "exec")


def test_users_and_groups(box):
    def ids(user, **kw):
        return box.run(["id"], user=user, **kw)[1].decode().strip()

    box.run(["sh", "-c", "echo 'dev:x:1500:1501::/home/dev:/bin/sh' >> /etc/passwd; printf 'devg:x:1501:\\nmore:x:1502:a,dev,b\\n' >> /etc/group; mkdir -p /home/dev; chown 1500 /home/dev"])
    assert ids("") == "uid=0(root) gid=0(root) groups=0(root)"
    assert ids("dev") == "uid=1500(dev) gid=1501(devg) groups=1501(devg),1502(more)"
    assert ids("1500") == "uid=1500(dev) gid=1501(devg) groups=1501(devg),1502(more)"
    assert ids("dev:more") == "uid=1500(dev) gid=1502(more) groups=1502(more)"
    assert ids("1777:1778") == "uid=1777 gid=1778 groups=1778"
    assert fails(box, ["id"], user="dev:nosuch") == (errno.ENOENT, "user")
    _, out, _ = box.run(["sh", "-c", "echo $HOME $USER $LOGNAME $PWD"], user="dev", cwd="")
    assert out == b"/home/dev dev dev /home/dev\n"
    _, out, _ = box.run(["sh", "-c", "echo $HOME $USER"], user="dev", env=["PATH=/usr/bin", "HOME=/x", "USER=y"])
    assert out == b"/x y\n"
    _, out, _ = box.run(["sh", "-c", "grep -E 'Cap(Prm|Eff)' /proc/self/status"], user="dev")
    assert out.split() == [b"CapPrm:", b"0" * 16, b"CapEff:", b"0" * 16]


def test_directory_umask_limits(box):
    assert box.run(["pwd"], cwd="/new/deep/dir", make_cwd=True)[1] == b"/new/deep/dir\n"
    _, out, _ = box.run(["sh", "-c", "umask; nice; ulimit -n; ulimit -Hn"], umask=0o77, nice=5, nofile=123)
    assert out.split() == [b"0077", b"5", b"123", b"123"]


def test_children_get_three_descriptors_and_default_signals(box):
    _, out, _ = box.run(["sh", "-c", "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status"])
    assert out.split() == [b"0", b"1", b"2", b"3", b"SigBlk:", b"0" * 16, b"SigIgn:", b"0" * 16]


def test_null_and_merged_streams(box):
    r, w = os.pipe()
    seq = box.start(["sh", "-c", "cat; echo a; echo b >&2"], flags=STDOUT | MERGE, fds=[w])
    os.close(w)
    assert box.wait(seq)["code"] == 0
    assert os.read(r, 100) == b"a\nb\n"
    os.close(r)


def test_terminal_is_the_controlling_one_and_belongs_to_the_user(box):
    # The outer end is opened through the sandbox's own devpts, as the monitor does.
    master = os.open(f"/proc/{box.init_pid}/root/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(master, 0x40045431, struct.pack("i", 0))
    inner = fcntl.ioctl(master, 0x5441, os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    seq = box.start(["sh", "-c", "tty; stty size </dev/tty; ps -o tpgid= -p $$ 2>/dev/null; stat -c %U $(tty)"], flags=TTY, fds=[inner], user="nobody", cwd="/")
    os.close(inner)
    assert box.wait(seq)["code"] == 0
    text = b""
    while select.select([master], [], [], 0.3)[0]:
        try:
            text += os.read(master, 1000)
        except OSError:
            break
    os.close(master)
    assert text.startswith(b"/dev/pts/") and b"33 99" in text and b"nobody" in text


def test_signals_reach_process_group_and_all(box):
    seq = box.start(["sh", "-c", "trap 'exit 3' TERM; sleep 100 & wait"])
    box.wait_started(seq)
    time.sleep(0.2)
    box.signal(seq, signal.SIGTERM)
    assert box.wait(seq)["code"] == 3
    seq = box.start(["sh", "-c", "sleep 1001 & sleep 1001"])
    box.wait_started(seq)
    time.sleep(0.2)
    box.signal(seq, signal.SIGKILL, GROUP)
    assert box.wait(seq)["signal"] == 9
    seqs = [box.start(["sleep", "1001"]) for _ in range(5)]
    for s in seqs:
        box.wait_started(s)
    box.signal(0, signal.SIGKILL, ALL)
    assert [box.wait(s)["signal"] for s in seqs] == [9] * 5
    assert b"sleep" not in box.run(["sh", "-c", "cat /proc/[0-9]*/comm"])[1]
    box.signal(4711, signal.SIGKILL)
    assert box.run(["echo", "on"])[1] == b"on\n"


def test_stopping_everything_does_not_stop_pid_1(box):
    seq = box.start(["sh", "-c", "kill -STOP -1; kill -TERM 1; kill -KILL 1; sleep 0.1; exit 5"])
    assert box.wait(seq)["code"] == 5
    assert box.run(["echo", "on"])[1] == b"on\n"
    box.signal(0, signal.SIGKILL, ALL)


def test_orphans_are_reaped_and_leave_no_zombies(box):
    box.run(["sh", "-c", "for i in $(seq 300); do (sleep 0.05 &) ; done"])
    time.sleep(0.5)
    _, out, _ = box.run(["sh", "-c", "cat /proc/[0-9]*/stat"])
    assert b" Z " not in out
    assert b"(sleep)" not in out


def test_exits_are_exact_under_load(box):
    seqs = {box.start(["sh", "-c", f"exit {i % 256}"]): i % 256 for i in range(300)}
    assert {s: box.wait(s)["code"] for s in seqs} == seqs


def test_no_way_up(box):
    def sh(script):
        return box.run(["sh", "-c", script])

    assert sh("unshare -U true")[0]["code"] != 0
    assert sh("unshare -m true")[0]["code"] != 0
    assert sh("mount -t tmpfs x /mnt")[0]["code"] != 0
    assert sh("umount /proc/kcore || umount /dev/shm")[0]["code"] != 0
    assert sh("chroot / true")[0]["code"] == 0
    assert sh("mknod /tmp/mem c 1 1")[0]["code"] != 0
    assert sh("hostname evil")[0]["code"] != 0
    assert sh("cat /proc/1/environ /proc/1/mem; ls /proc/1/root/ /proc/1/cwd/")[1] == b""
    for f in ("kcore", "keys", "kallsyms", "timer_list", "partitions"):
        assert sh(f"cat /proc/{f}")[1] == b"", f
    for f in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces"):
        assert sh(f"cat {f} > /tmp/v; echo 1 > {f}")[0]["code"] != 0, f
    assert sh("echo x >> /__modal/.bin/quicksand-init; echo x >> /proc/1/exe")[2].count(b"\n") >= 1
    bound = int(sh("grep CapBnd /proc/self/status")[1].split()[1], 16)
    assert bound == 0xA80425FB


def test_few_superblocks_and_no_host_paths(box):
    _, out, _ = box.run(["cat", "/proc/self/mountinfo"])
    rows = [line.split(" - ") for line in out.decode().splitlines()]
    nodes = {"null", "zero", "full", "random", "urandom", "tty"}
    # /sys, the device nodes and the figures of the machine are binds of what all sandboxes share
    shared = {f"/dev/{n}" for n in nodes} | {"/proc/meminfo", "/proc/stat", "/proc/loadavg"}
    own = {left.split()[2] for left, _ in rows if left.split()[4] not in shared and not left.split()[4].startswith("/sys")}
    assert len(own) == 5
    assert "/var/tmp" not in out.decode()


def test_names_and_resolver_files(box):
    assert box.run(["hostname"])[1] == b"box\n"
    assert box.run(["cat", "/etc/hostname"])[1] == b"box\n"
    assert b"127.0.1.1" in box.run(["getent", "hosts", "box"])[1]
    assert box.run(["cat", "/etc/resolv.conf"])[1].startswith(b"nameserver 192.0.2.53\n")
    box.run(["sh", "-c", "echo '10.9.9.9 mine' >> /etc/hosts"])
    assert b"10.9.9.9" in box.run(["getent", "hosts", "mine"])[1]


def test_devices_and_shared_memory(box):
    _, out, err = box.run(["sh", "-c", "head -c4 /dev/zero | od -An -tx1; echo x > /dev/null; echo hi > /dev/shm/a; cat /dev/shm/a; readlink /dev/fd /dev/ptmx"])
    assert (out, err) == (b" 00 00 00 00\nhi\n/proc/self/fd\npts/ptmx\n", b"")
    e, _, err = box.run(["sh", "-c", "head -c 100000000 /dev/zero > /dev/shm/big"])
    assert b"No space" in err
    box.run(["rm", "-f", "/dev/shm/big"])


def cgroup_v2():
    for line in open("/proc/self/mounts"):
        f = line.split()
        if f[2] == "cgroup2":
            return f[1]
    return None


@pytest.mark.skipif(cgroup_v2() is None, reason="needs cgroup v2")
@pytest.mark.parametrize("owner", [0, initbox.BASE_ID])
def test_commands_start_in_their_cgroup_or_else_start_all_the_same(box, owner):
    parent = f"{cgroup_v2()}/init-test-{os.getpid()}"
    own = f"{parent}/x"
    os.mkdir(parent)
    os.mkdir(own)
    try:
        for f in (parent, own):
            os.chown(f"{f}/cgroup.procs", owner, owner)
        with open(f"{parent}/cgroup.procs", "w") as f:
            f.write(str(box.init_pid))
        fd = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
        r, w = os.pipe()
        seq = box.start(["sh", "-c", "cat"], flags=STDIN | CGROUP, fds=[r, fd])
        os.close(r)
        assert box.wait_started(seq)["error"] == 0
        inside = open(f"{own}/cgroup.procs").read().split()
        assert bool(inside) == (owner != 0)
        os.close(w)
        box.wait(seq)
        os.close(fd)
    finally:
        with open(f"{cgroup_v2()}/cgroup.procs", "w") as f:
            f.write(str(box.init_pid))
        os.rmdir(own)
        os.rmdir(parent)


def filter_program(*refused):
    """Refuses clone3 with ENOSYS and the given calls with EPERM."""
    ins = [(0x20, 0, 0, 0)]
    for nr, ret in [(435, 0x00050000 | errno.ENOSYS)] + [(n, 0x00050000 | errno.EPERM) for n in refused]:
        ins += [(0x15, 0, 1, nr), (0x06, 0, 0, ret)]
    ins.append((0x06, 0, 0, 0x7FFF0000))
    return b"".join(struct.pack("HBBI", *i) for i in ins)


def test_filter_binds_commands_without_no_new_privs(image):
    with Box(INIT, [image], seccomp=filter_program(165)) as b:
        assert b.ready == (0, "")
        _, out, _ = b.run(["sh", "-c", "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status"])
        assert out.split() == [b"NoNewPrivs:", b"0", b"Seccomp:", b"2"]
        fd = os.open(cgroup_v2() or "/", os.O_RDONLY | os.O_DIRECTORY)
        seq = b.start(["true"], flags=CGROUP, fds=[fd])
        os.close(fd)
        assert b.wait(seq)["code"] == 0


def test_helper_runs_in_an_empty_image_and_after_everything_was_deleted(image, tmp_path):
    with Box(INIT, [str(tmp_path)]) as b:
        assert b.ready == (0, "")
        e, _, err = b.run(["/__modal/.bin/modal-sandbox-fs-tools", '{"Nonsense":{}}'], helper=True)
        assert e["code"] == 1 and b'"error_kind":"NotSupported"' in err
        e, _, err = b.run(["/__modal/.bin/modal-sandbox-fs-tools", '{"Nonsense":{}}'])
        assert e["code"] == 1
    with Box(INIT, [image]) as b:
        b.run(["sh", "-c", "rm -rf --one-file-system /bin /usr /lib /lib64 /__modal /sbin /etc 2>/dev/null"])
        e, _, err = b.run(["/__modal/.bin/modal-sandbox-fs-tools", '{"Nonsense":{}}'], helper=True)
        assert e["code"] == 1 and b'"error_kind":"NotSupported"' in err


def test_a_tree_with_tampered_etc_still_starts(image, tmp_path):
    up = tmp_path / "up"
    (up / "upper").mkdir(parents=True)
    (up / "upper/etc").symlink_to("/proc")
    with Box(INIT, [image], upper=str(up)) as b:
        assert b.ready == (0, "")
        assert b.run(["readlink", "/etc"])[1] == b"/proc\n"


def test_volatile_residue_is_cleared(image, tmp_path):
    up = tmp_path / "up"
    os.makedirs(up)
    for d in ("upper", "work"):
        os.makedirs(up / d)
    os.chown(up, 0, 0)
    for i in range(2):
        with Box(INIT, [image], upper=str(up)) as b:
            assert b.ready == (0, ""), i
            b.run(["sh", "-c", f"echo {i} >> /kept"])
    assert (up / "upper/kept").read_text() == "0\n1\n"
    assert os.stat(up / "upper/kept").st_uid == 0


def test_failures_name_their_step(image):
    with Box(INIT, [image], seccomp=b"123") as b:
        assert b.ready == (errno.EINVAL, "filter")
        with pytest.raises(EOFError):
            b.receive()


def test_the_end_of_the_channel_ends_everything(image):
    b = Box(INIT, [image])
    seq = b.start(["sleep", "1000"])
    b.wait_started(seq)
    pidfd = os.pidfd_open(b.init_pid)
    b.close()
    assert select.select([pidfd], [], [], 5)[0]
    os.close(pidfd)


def helper(box, op, stdin=b"", **args):
    e, out, err = box.run(["/__modal/.bin/modal-sandbox-fs-tools", json.dumps({op: args})], stdin=stdin, helper=True)
    return e["code"], out, json.loads(err)["error_kind"] if e["code"] else err


def test_the_helper_on_the_sandbox_s_own_mounts(box):
    # Files of the image are replaced at once, and their own mounts in place.
    box.run(["sh", "-c", "echo 'x' > /tmp/plain; chmod 640 /tmp/plain"])
    assert helper(box, "WriteFile", b"new os\n", path="/usr/lib/os-release")[0] == 0
    assert helper(box, "WriteFile", b"10.0.0.1 a\n", path="/etc/hosts")[0] == 0
    assert helper(box, "ReadFile", path="/etc/hosts")[1] == b"10.0.0.1 a\n"
    assert box.run(["cat", "/usr/lib/os-release"])[1] == b"new os\n"
    assert helper(box, "Remove", path="/etc/hosts")[2] == "Refused"
    assert helper(box, "Remove", path="/proc", recursive=True)[2] == "Refused"
    assert helper(box, "Remove", path="/", recursive=True)[2] == "Refused"
    # A directory of the image cannot be renamed by overlay, so it is copied.
    assert helper(box, "Move", **{"from": "/etc/pam.d", "to": "/etc/pam.moved"})[0] == 0
    assert box.run(["sh", "-c", "ls /etc/pam.moved | wc -l; ls /etc/pam.d 2>&1 | wc -l"])[1].split()[0] != b"0"
    assert helper(box, "ReadFile", path="/dev/zero")[2] == "SpecialFile"
    assert b"VmRSS" in helper(box, "ReadFile", path="/proc/self/status")[1]
    assert box.run(["sh", "-c", "find / -xdev -name '.qs-*' 2>/dev/null"])[1] == b""


def test_the_helper_watches_image_directories(box):
    r, w = os.pipe()
    stop_r, stop_w = os.pipe()
    seq = box.start(["/__modal/.bin/modal-sandbox-fs-tools", json.dumps({"Watch": {"path": "/etc", "recursive": True, "filter": ["Create", "Modify"]}})],
                    helper=True, flags=STDIN | STDOUT, fds=[stop_r, w])
    os.close(w)
    os.close(stop_r)
    box.wait_started(seq)
    time.sleep(0.3)
    box.run(["sh", "-c", "echo x >> /etc/profile; echo y > /etc/new-file"])
    time.sleep(0.3)
    os.close(stop_w)
    assert box.wait(seq)["code"] == 0
    got = {(e["event_type"], e["paths"][0]) for e in map(json.loads, os.read(r, 100000).splitlines())}
    os.close(r)
    assert {("Modify", "/etc/profile"), ("Create", "/etc/new-file")} <= got


def test_an_archive_of_the_whole_image_is_whole(box, image):
    r, w = os.pipe()
    seq = box.start(["/__modal/.bin/modal-sandbox-fs-tools", json.dumps({"TarOut": {"path": "/usr/share"}})], helper=True, flags=STDOUT, fds=[w])
    os.close(w)
    names = set()
    with os.fdopen(r, "rb") as f, tarfile.open(fileobj=f, mode="r|") as t:
        for m in t:
            names.add(os.path.normpath(m.name))
    assert box.wait(seq)["code"] == 0
    there = {os.path.relpath(os.path.join(base, n), f"{image}/usr/share") for base, dirs, files in os.walk(f"{image}/usr/share") for n in dirs + files}
    assert there <= names
