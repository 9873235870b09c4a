"""A sandbox made the way the keeper makes one, around quicksand-init alone: for tests of PID 1. Needs root."""

import ctypes
import fcntl
import os
import select
import shutil
import socket
import struct
import time

import qsdaemon

libc = ctypes.CDLL(None, use_errno=True)

SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT, SYS_MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
AT_EMPTY_PATH, AT_RECURSIVE, AT_FDCWD = 0x1000, 0x8000, -100
OPEN_TREE_CLONE, ATTR_RDONLY, ATTR_IDMAP = 1, 1, 0x100000
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NEWTIME = 0x80

SETUP, READY, EXEC, STARTED, EXITED, SIGNAL = 1, 2, 3, 4, 5, 6
TTY, STDIN, STDOUT, STDERR, MERGE, CGROUP, ENTRY = 1, 2, 4, 8, 16, 32, 64
PROCESS, GROUP, ALL = 0, 1, 2

BASE_ID = 700000


def sys(nr, *args):
    args = [a.encode() + b"\0" if isinstance(a, str) else a for a in args]
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, f"syscall {nr}: {os.strerror(e)}")
    return r


def clone_tree(path, idmap_fd=None, read_only=False):
    fd = sys(SYS_OPEN_TREE, AT_FDCWD, path, OPEN_TREE_CLONE | os.O_CLOEXEC)
    attr = struct.pack("QQQQ", (ATTR_IDMAP if idmap_fd is not None else 0) | (ATTR_RDONLY if read_only else 0), 0, 0, idmap_fd or 0)
    sys(SYS_MOUNT_SETATTR, fd, "", AT_EMPTY_PATH, attr, len(attr))
    return fd


def put_str(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<I", len(s)) + s


class Reader:
    def __init__(self, data):
        self.data = data

    def take(self, fmt):
        n = struct.calcsize(fmt)
        v = struct.unpack(fmt, self.data[:n])[0]
        self.data = self.data[n:]
        return v

    def str(self):
        n = self.take("<I")
        v, self.data = self.data[:n], self.data[n:]
        return v.decode()


def make_scaffold(path, init):
    for d in ("proc", "dev", "sys/fs/cgroup", "etc", "__modal/.bin"):
        os.makedirs(f"{path}/{d}", exist_ok=True)
    for f in ("hosts", "hostname", "resolv.conf", "machine-id"):
        open(f"{path}/etc/{f}", "w").close()
    for name in ("quicksand-init", "modal-sandbox-fs-tools"):
        shutil.copy(init, f"{path}/__modal/.bin/{name}")
        os.chmod(f"{path}/__modal/.bin/{name}", 0o755)


class Box:
    def __init__(self, init, layers, hostname="box", shm_bytes=64 << 20, volatile=True, upper=None, seccomp=b"", no_new_privs=False, user_namespaces=False, keep=False, devpts_in_userns=True):
        self.dir = str(qsdaemon.make_dir("init-box-"))
        self.keep = keep
        self.upper = upper or f"{self.dir}/upper"
        self.init, self.layers = init, layers
        self.seq = 0
        self.started, self.exited = {}, {}
        for d in (f"{self.upper}/upper", f"{self.upper}/work", f"{self.dir}/dev", f"{self.dir}/scaffold"):
            os.makedirs(d, exist_ok=True)
        make_scaffold(f"{self.dir}/scaffold", init)
        self.make_dev()
        self.slot()
        self.ready = None
        if hostname is not None:
            self.setup(hostname, shm_bytes, volatile, seccomp, no_new_privs, user_namespaces)

    def make_dev(self):
        dev = f"{self.dir}/dev"
        if libc.mount(b"tmpfs", dev.encode(), b"tmpfs", 0, b"mode=0755") < 0:
            raise OSError(ctypes.get_errno(), "mount tmpfs")
        for name, major, minor in (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)):
            os.mknod(f"{dev}/{name}", 0o020666, os.makedev(major, minor))
            os.chmod(f"{dev}/{name}", 0o666)
        for name in ("meminfo", "stat", "loadavg", "cpuinfo", "online"):
            open(f"{dev}/{name}", "w").close()
        os.makedirs(f"{dev}/sys/devices/system/cpu")

    def slot(self):
        self.sock, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        mapped_r, mapped_w = os.pipe()
        report_r, report_w = os.pipe()
        exe = os.open(self.init, os.O_RDONLY)
        dev_fd = clone_tree(f"{self.dir}/dev", read_only=True)
        sys_fd = clone_tree(f"{self.dir}/dev/sys", read_only=True)
        pid = os.fork()
        if pid == 0:
            try:
                self.sock.close()
                sys(272, NEWNET)
                sys(272, NEWUSER | NEWNS | NEWPID | NEWIPC | NEWUTS | NEWTIME)
                os.write(report_w, b"u")
                os.read(mapped_r, 1)
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
                os.setgroups([])
                fs = sys(SYS_FSOPEN, "devpts", 0)
                for k, v in (("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5")):
                    sys(SYS_FSCONFIG, fs, 1, k, v, 0)
                sys(SYS_FSCONFIG, fs, 6, 0, 0, 0)
                pts = sys(SYS_FSMOUNT, fs, 0, 2 | 8)
                child = os.fork()
                if child:
                    os.write(report_w, struct.pack("i", child))
                    _, status = os.waitpid(child, 0)
                    os._exit(os.waitstatus_to_exitcode(status) & 0xff)
                high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (inner.fileno(), pts, dev_fd, sys_fd, exe)]
                for i in range(4):
                    os.dup2(high[i], 3 + i)
                os.execve(high[4], ["quicksand-init"], {})
            except BaseException as e:
                os.write(2, f"slot: {e!r}\n".encode())
                os._exit(99)
        self.pid = pid
        assert os.read(report_r, 1) == b"u"
        for f in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{f}", "w") as m:
                m.write(f"0 {BASE_ID} 65536\n")
        self.userns = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        os.write(mapped_w, b"m")
        self.init_pid = struct.unpack("i", os.read(report_r, 4))[0]
        inner.close()
        for fd in (mapped_r, mapped_w, report_r, report_w, exe, dev_fd, sys_fd):
            os.close(fd)

    def setup(self, hostname, shm_bytes, volatile, seccomp, no_new_privs=False, user_namespaces=False):
        fds = [clone_tree(self.upper, self.userns)]
        trees = [f"{self.dir}/scaffold"] + self.layers
        fds += [clone_tree(t, self.userns, True) for t in trees]
        memfd = os.memfd_create("filter")
        os.write(memfd, seccomp)
        fds.append(memfd)
        body = put_str("sb-test") + put_str(hostname) + struct.pack("<IQBBB", len(trees), shm_bytes, volatile, no_new_privs, user_namespaces)
        body += struct.pack("<I", 128) + bytes(128)         # all processors
        began = time.perf_counter()
        self.send(SETUP, body, fds)
        for fd in fds:
            os.close(fd)
        kind, r = self.receive()
        self.setup_ms = (time.perf_counter() - began) * 1000
        assert kind == READY
        self.ready = (r.take("<i"), r.str())

    def send(self, kind, body, fds=()):
        packet = struct.pack("<HHII", kind, 1, 0, len(body)) + body
        if len(packet) > 65536:
            memfd = os.memfd_create("message", os.MFD_ALLOW_SEALING)
            os.write(memfd, body)
            fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, 15)
            packet = struct.pack("<HHII", kind | 0x8000, 1, 0, len(body))
            fds = [memfd, *fds]
        while True:
            try:
                return socket.send_fds(self.sock, [packet], list(fds))
            except BlockingIOError:
                if select.select([self.sock], [self.sock], [], 10)[0]:
                    self.pump()

    def receive(self, timeout=10):
        if not select.select([self.sock], [], [], timeout)[0]:
            raise TimeoutError("no message from init")
        data = self.sock.recv(65536)
        if not data:
            raise EOFError("init closed the channel")
        kind, version, tag, length = struct.unpack("<HHII", data[:12])
        assert length == len(data) - 12
        return kind, Reader(data[12:])

    def pump(self, timeout=10):
        kind, r = self.receive(timeout)
        if kind == STARTED:
            seq = r.take("<I")
            self.started[seq] = {"pid": r.take("<i"), "error": r.take("<i"), "step": r.str()}
        elif kind == EXITED:
            seq = r.take("<I")
            self.exited[seq] = {"code": r.take("<i"), "signal": r.take("<i"), "user_us": r.take("<Q"), "system_us": r.take("<Q"), "rss_kb": r.take("<Q"), "comm": r.str()}

    def start(self, argv, env=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",), cwd="/", user="", umask=0o22, nice=0, nofile=0, make_cwd=False, helper=False, flags=0, fds=()):
        self.seq += 1
        spec = struct.pack("<I", len(argv)) + b"".join(map(put_str, argv)) + struct.pack("<I", len(env)) + b"".join(map(put_str, env))
        spec += put_str(cwd) + put_str(user) + struct.pack("<IiQBB", umask, nice, nofile, make_cwd, helper)
        self.send(EXEC, struct.pack("<II", self.seq, flags) + struct.pack("<I", len(spec)) + spec, fds)
        return self.seq

    def wait_started(self, seq):
        while seq not in self.started:
            self.pump()
        return self.started[seq]

    def wait(self, seq, timeout=10):
        while seq not in self.exited:
            self.pump(timeout)
        return self.exited[seq]

    def run(self, argv, stdin=b"", timeout=10, **kw):
        """Runs to the end: (exit, stdout, stderr); an exec that does not start raises OSError."""
        pipes = [os.pipe() for _ in range(3)]
        extra = kw.pop("fds", [])
        seq = self.start(argv, flags=STDIN | STDOUT | STDERR | kw.pop("flags", 0), fds=[pipes[0][0], pipes[1][1], pipes[2][1], *extra], **kw)
        for fd in (pipes[0][0], pipes[1][1], pipes[2][1]):
            os.close(fd)
        try:
            s = self.wait_started(seq)
            if s["error"]:
                raise OSError(s["error"], s["step"])
            if stdin:
                os.write(pipes[0][1], stdin)
            os.close(pipes[0][1])
            pipes[0] = None
            out = {pipes[1][0]: b"", pipes[2][0]: b""}
            open_fds = set(out)
            end = time.monotonic() + timeout
            while open_fds:
                ready = select.select(list(open_fds), [], [], max(0, end - time.monotonic()))[0]
                if not ready:
                    raise TimeoutError(argv)
                for fd in ready:
                    data = os.read(fd, 65536)
                    out[fd] += data
                    if not data:
                        open_fds.discard(fd)
            return self.wait(seq), out[pipes[1][0]], out[pipes[2][0]]
        finally:
            if pipes[0]:
                os.close(pipes[0][1])
            os.close(pipes[1][0])
            os.close(pipes[2][0])

    def signal(self, seq, signal, scope=PROCESS):
        self.send(SIGNAL, struct.pack("<IiB", seq, signal, scope))

    def close(self):
        self.sock.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        os.close(self.userns)
        libc.umount2(f"{self.dir}/dev".encode(), 2)
        if not self.keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
