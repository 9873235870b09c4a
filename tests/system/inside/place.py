"""What a program finds around it: environment, /dev, /proc, identity. Each check_ function runs by itself, as root and as an ordinary user."""

import errno
import locale
import os
import pwd
import re
import subprocess
import sys
import tempfile
import time

from libc import call, refused

ROOT = os.geteuid() == 0
os.chdir(tempfile.mkdtemp())


def output(*argv):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def check_the_environment():
    me = pwd.getpwuid(os.getuid())
    expected = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": me.pw_dir,
        "USER": me.pw_name,
        "LOGNAME": me.pw_name,
    }
    found = dict(os.environ)
    found.pop("LC_CTYPE", None)                                 # Python's own
    assert found == expected, found


def check_the_identity():
    me = pwd.getpwuid(os.getuid())
    assert output("id", "-un") == output("whoami") == me.pw_name + "\n"
    assert os.getgroups() in ([], [os.getgid()]), os.getgroups()
    assert os.getgid() == me.pw_gid
    mask = os.umask(0)
    assert mask == 0o022, oct(mask)
    output("who")
    output("groups")


def check_devices():
    expected = {"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}
    assert expected <= set(os.listdir("/dev")), os.listdir("/dev")
    with open("/dev/zero", "rb") as f:
        assert f.read(100000) == bytes(100000)
    with open("/dev/null", "r+b", buffering=0) as f:
        assert f.write(b"x" * 100000) == 100000 and f.read() == b""
    with open("/dev/full", "wb", buffering=0) as f:
        refused(errno.ENOSPC, f.write, b"x")
    refused(errno.ENXIO, open, "/dev/tty")                      # there is no terminal
    assert subprocess.run(["sh", "-c", "echo out > /dev/stdout; cat /dev/stdin /dev/fd/0; echo end >&2"], input=b"in\n",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.split() == [b"out", b"in", b"end"]
    assert subprocess.check_output(["bash", "-c", "cat <(echo one) <(echo two); echo three | tee >(cat >&2) > /dev/null"], stderr=subprocess.DEVNULL) == b"one\ntwo\n"


def check_own_process_files():
    me = f"/proc/{os.getpid()}"
    assert os.readlink("/proc/self") == str(os.getpid())
    assert os.readlink("/proc/self/exe") == os.path.realpath(sys.executable)
    assert os.readlink("/proc/self/cwd") == os.getcwd()
    assert os.readlink("/proc/self/root") == "/"
    assert open("/proc/self/cmdline").read().split("\0")[0] == "python3"
    assert "PATH=" in open("/proc/self/environ").read()
    for name in ("auxv", "cgroup", "coredump_filter", "io", "limits", "maps", "mountinfo", "mounts", "oom_score", "pagemap", "sched", "smaps",
                 "smaps_rollup", "stat", "statm", "status", "wchan", "uid_map"):
        with open(f"{me}/{name}", "rb") as f:
            f.read(4096)
    assert {"0", "1", "2"} <= set(os.listdir("/proc/self/fd"))


def check_facts_of_the_machine():
    for name in ("cpuinfo", "loadavg", "meminfo", "stat", "uptime", "version", "filesystems", "vmstat", "swaps", "devices",
                 "sys/kernel/hostname", "sys/kernel/ostype", "sys/kernel/osrelease", "sys/kernel/pid_max", "sys/kernel/random/boot_id",
                 "sys/kernel/random/entropy_avail", "sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/kernel/shmmax",
                 "sys/vm/overcommit_memory", "sys/vm/max_map_count", "sys/fs/file-max", "sys/fs/nr_open", "sys/net/core/somaxconn",
                 "sys/net/ipv4/ip_local_port_range", "sys/net/ipv4/tcp_fin_timeout"):
        with open("/proc/" + name) as f:
            assert f.read(), name
    assert open("/proc/sys/kernel/hostname").read().strip() == os.uname().nodename
    assert os.cpu_count() >= 1 and os.sysconf("SC_PHYS_PAGES") > 0
    assert int(output("nproc")) >= 1
    assert float(open("/proc/uptime").read().split()[0]) >= 0


def check_settings_cannot_be_changed():
    for name in ("kernel/hostname", "vm/overcommit_memory", "kernel/core_pattern", "net/ipv4/ip_forward"):
        try:
            with open("/proc/sys/" + name, "r+") as f:
                f.write(f.read())
        except OSError as e:
            assert e.errno in (errno.EROFS, errno.EACCES, errno.ENOENT), (name, e)
        else:
            raise AssertionError(name)


def check_programs_that_look_around():
    """They need not know everything, but must neither fail nor hang."""
    assert re.search(r"\bps aux\b", output("ps", "aux"))
    assert "Tasks:" in output("top", "-b", "-n1")
    assert "Mem:" in output("free", "-m")
    assert re.search(r" /$", output("df", "-h"), re.M)
    assert " on / type overlay" in output("mount")
    output("findmnt")
    output("uptime")
    output("vmstat")
    output("w")
    output("uname", "-a")
    output("arch")
    output("lscpu")
    output("lsns")
    output("lsblk")
    output("lslocks")
    output("ipcs")
    output("pgrep", "-a", "python3")
    output("dmesg", "--version")
    output("getconf", "-a")
    output("locale")
    output("tput", "-T", "xterm-256color", "cols")
    output("infocmp", "xterm-256color")
    output("date", "+%Z")
    output("sysctl", "kernel.ostype")
    output("pmap", str(os.getpid()))
    output("cat", "/proc/1/status")


def check_host_names():
    assert output("uname", "-n") == open("/etc/hostname").read()
    hosts = open("/etc/hosts").read()
    assert "127.0.0.1\tlocalhost" in hosts and "::1\t" in hosts and os.uname().nodename in hosts
    assert open("/etc/resolv.conf").read().startswith("nameserver ")


def check_generated_files_can_be_changed():
    """Programs edit /etc/hosts; a rename over it is refused by the kernel, so they write it in place."""
    if not ROOT:
        refused(errno.EACCES, open, "/etc/hosts", "a")
        return
    before = open("/etc/hosts").read()
    with open("/etc/hosts", "a") as f:
        f.write("127.0.0.1 db.test\n")
    import socket
    assert socket.gethostbyname("db.test") == "127.0.0.1"
    with open("/etc/hosts", "w") as f:
        f.write(before)


def check_time_zones():
    os.environ["TZ"] = "Europe/Berlin" if os.path.exists("/usr/share/zoneinfo/Europe/Berlin") else "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    assert time.strftime("%H:%M %Z", time.localtime(1700000000)) == "23:13 CET"
    assert output("env", "-u", "TZ", "date", "-d", "@1700000000", "+%F %T %Z") == "2023-11-14 22:13:20 UTC\n"


def check_locales():
    assert locale.setlocale(locale.LC_ALL, "") == "C.UTF-8"
    assert sys.getfilesystemencoding() == sys.stdout.encoding == "utf-8"
    assert output("printf", "%s", "é☕") == "é☕"
    assert len("é☕") == 2 and output("sh", "-c", "printf 'é☕' | wc -m").strip() == "2"


def check_the_first_process():
    assert open("/proc/1/comm").read() == "quicksand-init\n"
    assert os.getppid() == 1
    if ROOT:
        os.kill(1, 9)                                           # the kernel shields it from its own children
    else:
        refused(errno.EPERM, os.kill, 1, 9)


def check_capabilities():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
    assert status["NoNewPrivs"] == "0" and status["Seccomp"] == "2"
    effective = int(status["CapEff"], 16)
    assert effective == (int(status["CapBnd"], 16) if ROOT else 0)
    assert call("prctl", 3, 0, 0, 0, 0) == 1                    # GET_DUMPABLE: debuggers and /proc/self work


def check_mounted_files_are_not_replaced():
    """docs/inside.md says so: a rename over a generated file is refused, writing into it is not."""
    if not ROOT:
        return
    with open("/etc/hosts.new", "w") as f:
        f.write("127.0.0.1 localhost\n")
    refused(errno.EBUSY, os.rename, "/etc/hosts.new", "/etc/hosts")
    os.unlink("/etc/hosts.new")
