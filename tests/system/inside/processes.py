"""Processes, threads, signals, shared memory, clocks. Each check_ function runs by itself, as root and as an ordinary user."""

import concurrent.futures
import ctypes
import errno
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from libc import call, in_child, lib, refused

ROOT = os.geteuid() == 0
os.chdir(tempfile.mkdtemp())


def square(n):
    return n * n


def add_many(counter):
    for _ in range(500):
        with counter.get_lock():
            counter.value += 1


def fill(name):
    shm = multiprocessing.shared_memory.SharedMemory(name)
    shm.buf[:5] = b"child"
    shm.close()


def check_multiprocessing():
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            assert pool.map(square, range(20)) == [n * n for n in range(20)], method
        counter = context.Value("i", 0)
        workers = [context.Process(target=add_many, args=(counter,)) for _ in range(3)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert counter.value == 1500, method


def check_multiprocessing_shared_memory_and_managers():
    shm = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 20)
    p = multiprocessing.Process(target=fill, args=(shm.name,))
    p.start()
    p.join()
    assert bytes(shm.buf[:5]) == b"child"
    shm.close()
    shm.unlink()
    with multiprocessing.Manager() as manager:
        d = manager.dict()
        p = multiprocessing.Process(target=d.update, args=({"a": 1},))
        p.start()
        p.join()
        assert dict(d) == {"a": 1}
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert list(pool.map(square, (1, 2, 3))) == [1, 4, 9]


def check_many_threads():
    threads = []
    gate = threading.Barrier(301)
    for i in range(300):
        threads.append(threading.Thread(target=gate.wait))
        threads[-1].start()
    assert len(os.listdir("/proc/self/task")) == 301
    gate.wait()
    for t in threads:
        t.join()


def check_message_queues():
    name = f"/check-{os.getpid()}".encode()
    rt = ctypes.CDLL(None, use_errno=True)
    attributes = struct.pack("8q", 0, 4, 64, 0, 0, 0, 0, 0)
    q = rt.mq_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, attributes)
    assert q >= 0, os.strerror(ctypes.get_errno())
    for text, priority in ((b"low", 1), (b"high", 9)):
        assert rt.mq_send(q, text, len(text), priority) == 0
    assert name[1:].decode() in os.listdir("/dev/mqueue")
    out = ctypes.create_string_buffer(64)
    assert rt.mq_receive(q, out, 64, None) == 4 and out.value == b"high"
    assert rt.mq_unlink(name) == 0


def check_system_v_communication():
    IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
    shm = call("shmget", IPC_PRIVATE, 1 << 20, IPC_CREAT | 0o600)
    lib.shmat.restype = ctypes.c_void_p
    at = lib.shmat(shm, None, 0)
    ctypes.memset(at, 0, 16)
    in_child(ctypes.memmove, at, b"from the child", 14)
    assert ctypes.string_at(at, 14) == b"from the child"
    call("shmctl", shm, IPC_RMID, None)
    sem = call("semget", IPC_PRIVATE, 1, IPC_CREAT | 0o600)
    pid = os.fork()
    if pid == 0:
        time.sleep(0.1)
        call("semop", sem, struct.pack("Hhh", 0, 1, 0), 1)
        os._exit(0)
    call("semop", sem, struct.pack("Hhh", 0, -1, 0), 1)
    os.waitpid(pid, 0)
    call("semctl", sem, 0, IPC_RMID)
    queue = call("msgget", IPC_PRIVATE, IPC_CREAT | 0o600)
    call("msgsnd", queue, struct.pack("q8s", 7, b"message"), 8, 0)
    out = ctypes.create_string_buffer(64)
    assert call("msgrcv", queue, out, 56, 7, 0) == 8 and out.raw[8:15] == b"message"
    call("msgctl", queue, IPC_RMID, None)


def check_descriptors_for_events():
    event = os.eventfd(3)
    assert os.eventfd_read(event) == 3
    timer = call("timerfd_create", 1, 0)
    call("timerfd_settime", timer, 0, struct.pack("4q", 0, 0, 0, 20000000), None)
    signals = call("signalfd", -1, struct.pack("Q", 1 << (signal.SIGUSR1 - 1)), 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)
    with select.epoll() as poll:
        for fd in (event, timer, signals):
            poll.register(fd, select.EPOLLIN | select.EPOLLET)
        os.eventfd_write(event, 1)
        ready = set()
        while len(ready) < 3:
            events = poll.poll(10)
            assert events
            ready |= {fd for fd, _ in events}
    assert struct.unpack("Q", os.read(timer, 8)) == (1,)
    assert struct.unpack_from("I", os.read(signals, 128)) == (signal.SIGUSR1,)


def check_process_descriptors():
    with subprocess.Popen(["sleep", "60"]) as p:
        fd = os.pidfd_open(p.pid)
        assert not select.select([fd], [], [], 0)[0]
        signal.pidfd_send_signal(fd, signal.SIGTERM)
        assert select.select([fd], [], [], 10)[0]
        assert os.waitid(os.P_PIDFD, fd, os.WEXITED).si_status == signal.SIGTERM


def check_memory_files_and_seals():
    import fcntl
    fd = os.memfd_create("m", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, b"sealed")
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    refused(errno.EPERM, os.write, fd, b"no")
    assert mmap.mmap(fd, 6, prot=mmap.PROT_READ)[:] == b"sealed"


def check_own_children_can_be_traced():
    """What debuggers do: attach, read memory, go on."""
    secret = ctypes.create_string_buffer(b"to be read by the parent")
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(1)
    out = ctypes.create_string_buffer(24)
    local, remote = (struct.pack("QQ", ctypes.addressof(b), 24) for b in (out, secret))
    assert call("process_vm_readv", pid, local, 1, remote, 1, 0) == 24
    assert out.raw == b"to be read by the parent"
    call("ptrace", 16, pid, 0, 0)                               # ATTACH
    assert os.WIFSTOPPED(os.waitpid(pid, 0)[1])
    assert f"TracerPid:\t{os.getpid()}" in open(f"/proc/{pid}/status").read()
    with open(f"/proc/{pid}/mem", "rb") as m:
        m.seek(ctypes.addressof(secret))
        assert m.read(5) == b"to be"
    call("ptrace", 17, pid, 0, 0)                               # DETACH
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def check_queued_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
    for value in (11, 22, 33):
        call("sigqueue", os.getpid(), signal.SIGRTMIN + 1, ctypes.c_void_p(value))
    for _ in range(3):
        assert signal.sigtimedwait([signal.SIGRTMIN + 1], 5).si_signo == signal.SIGRTMIN + 1
    assert signal.sigtimedwait([signal.SIGRTMIN + 1], 0) is None


def check_timers_send_signals():
    got = []
    signal.signal(signal.SIGALRM, lambda *_: got.append("real"))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    while len(got) < 3:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGVTALRM, lambda *_: got.append("virtual"))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
    give_up = time.monotonic() + 30
    while "virtual" not in got:
        assert time.monotonic() < give_up


def check_a_daemon_is_reaped():
    """A double fork: the orphan belongs to process 1, which must take it away when it ends."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(0.1)
        os.write(w, struct.pack("ii", os.getpid(), os.getppid()))
        os._exit(0)
    os.waitpid(pid, 0)
    orphan, parent = struct.unpack("ii", os.read(r, 8))
    assert parent == 1
    give_up = time.monotonic() + 30
    while os.path.exists(f"/proc/{orphan}"):
        assert time.monotonic() < give_up, "a zombie"
        time.sleep(0.02)


def check_a_subreaper_gets_orphans():
    call("prctl", 36, 1, 0, 0, 0)                               # SET_CHILD_SUBREAPER
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            time.sleep(0.2)
            os._exit(7)
        os._exit(0)
    codes = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
    assert codes == [0, 7]


def check_groups_and_sessions():
    assert os.getsid(0) == os.getpgid(0)

    def leader():
        os.setsid()
        assert os.getsid(0) == os.getpgid(0) == os.getpid()
        refused(errno.EPERM, os.setsid)

    in_child(leader)
    with subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True) as p:
        os.killpg(p.pid, signal.SIGTERM)
        assert p.wait(10) == -signal.SIGTERM


def check_exit_codes_and_signals():
    for code in (0, 1, 42, 255):
        assert subprocess.run(["sh", "-c", f"exit {code}"]).returncode == code
    for sig in ("TERM", "KILL", "SEGV", "ABRT", "PIPE"):
        assert subprocess.run(["sh", "-c", f"kill -{sig} $$"]).returncode == -getattr(signal, "SIG" + sig)


def check_a_broken_pipe():
    text = subprocess.run(["bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}"], stdout=subprocess.PIPE, text=True).stdout
    assert text == "y\n141\n"                                   # SIGPIPE is not ignored
    ignored = int(re.search(r"SigIgn:\s+(\w+)", open("/proc/self/status").read())[1], 16)
    # Python ignores SIGPIPE and SIGXFSZ itself.
    assert ignored & ~(1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0, hex(ignored)


def check_job_control():
    """A shell on a terminal: a job is stopped by Ctrl-Z, goes on in the background and comes to the front again."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "ready> ", "TERM": "dumb"})
    seen = b""

    def until(word):
        nonlocal seen
        give_up = time.monotonic() + 30
        while word not in seen:
            left = give_up - time.monotonic()
            assert left > 0 and select.select([fd], [], [], left)[0], seen
            seen += os.read(fd, 4096)
        seen = seen[seen.index(word) + len(word):]

    def in_front():
        """Until the job has the terminal and runs its program: before that it takes no signals."""
        give_up = time.monotonic() + 30
        while True:
            group = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[5]
            if group != str(pid) and open(f"/proc/{group}/comm").read() == "sleep\n":
                return
            assert time.monotonic() < give_up
            time.sleep(0.01)

    until(b"ready> ")
    os.write(fd, b"sleep 1000\n")
    until(b"sleep 1000\r\n")
    in_front()
    os.write(fd, b"\x1a")
    until(b"Stopped")
    until(b"ready> ")
    os.write(fd, b"bg; jobs\n")
    until(b"Running")
    until(b"ready> ")
    os.write(fd, b"fg\n")
    until(b"sleep 1000\r\n")
    in_front()
    os.write(fd, b"\x03")
    until(b"ready> ")
    os.write(fd, b"echo code $?\n")
    until(b"code 130")
    os.write(fd, b"exit\n")
    os.waitpid(pid, 0)


def check_terminals():
    """The size of a terminal and its change, raw mode, the terminal's name."""
    import fcntl
    import termios
    import tty
    parent, child = pty.openpty()
    fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    assert subprocess.check_output(["stty", "size"], stdin=child) == b"33 77\n"
    name = os.ttyname(child)
    assert re.fullmatch(r"/dev/pts/\d+", name)
    assert subprocess.check_output(["tty"], stdin=child).decode().strip() == name
    tty.setraw(child)
    os.write(parent, b"\x03\r")
    assert os.read(child, 10) == b"\x03\r"

    def lead():
        got = []
        signal.signal(signal.SIGWINCH, lambda *_: got.append(1))
        os.setsid()
        fcntl.ioctl(child, termios.TIOCSCTTY, 0)
        assert os.open("/dev/tty", os.O_RDWR) > 0
        fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("4H", 44, 88, 0, 0))
        give_up = time.monotonic() + 10
        while not got:
            assert time.monotonic() < give_up
            time.sleep(0.01)

    in_child(lead)


def check_limits_of_resources():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    fds = []
    refused(errno.EMFILE, lambda: [fds.append(os.dup(0)) for _ in range(64)])
    for fd in fds:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    assert resource.getrlimit(resource.RLIMIT_STACK)[0] == 8 << 20
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        fd = os.open("limited", os.O_WRONLY | os.O_CREAT)
        assert os.write(fd, bytes(2000)) == 1000
        refused(errno.EFBIG, os.write, fd, b"x")

    in_child(small)

    def busy():
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        while True:
            pass

    pid = os.fork()
    if pid == 0:
        busy()
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGXCPU


def check_scheduling():
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    assert os.sched_getaffinity(0) == {min(cpus)}
    os.sched_setaffinity(0, cpus)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.nice(5) == before + 5
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    assert os.sched_getscheduler(0) == os.SCHED_BATCH
    refused(errno.EPERM, os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_yield()
    subprocess.run(["ionice", "-c", "3", "nice", "-n", "10", "taskset", "-c", str(min(cpus)), "true"], check=True)


def check_clocks_are_read_without_a_system_call():
    assert "[vdso]" in open("/proc/self/maps").read()
    # In seccomp's strict mode every call but read, write and exit is death: what lives on made none.
    pid = os.fork()
    if pid == 0:
        buffer = ctypes.create_string_buffer(16)
        lib.clock_gettime(1, buffer)
        syscall = lib.syscall                                   # looked up while that is allowed
        lib.prctl(22, 1, 0, 0, 0)                               # SET_SECCOMP, strict
        lib.clock_gettime(1, buffer)
        lib.clock_gettime(0, buffer)
        syscall(60, 17)                                         # exit; exit_group would be death too
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17


def check_clocks():
    for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_PROCESS_CPUTIME_ID,
                  time.CLOCK_THREAD_CPUTIME_ID, time.CLOCK_MONOTONIC_RAW, time.CLOCK_TAI):
        a = time.clock_gettime_ns(clock)
        assert time.clock_gettime_ns(clock) >= a
        assert time.clock_getres(clock) > 0
    a = time.monotonic()
    time.sleep(0.05)
    assert time.monotonic() - a >= 0.05
    refused(errno.EPERM, time.clock_settime, time.CLOCK_REALTIME, 0)


def check_random_numbers():
    assert len({os.getrandom(16) for _ in range(100)}) == 100
    for name in ("random", "urandom"):
        with open("/dev/" + name, "rb") as f:
            assert len(set(f.read(4096))) > 200
    a, b = (open("/proc/sys/kernel/random/uuid").read() for _ in range(2))
    assert a != b and len(a) == 37


def check_memory_calls():
    m = mmap.mmap(-1, 8 << 20)
    m.madvise(mmap.MADV_HUGEPAGE)
    m.madvise(mmap.MADV_DONTNEED)
    assert m[:10] == bytes(10)
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    call("mlock", ctypes.c_void_p(at), 4096)
    call("munlock", ctypes.c_void_p(at), 4096)
    call("mprotect", ctypes.c_void_p(at), 4096, 1)
    call("mincore", ctypes.c_void_p(at), 4096, ctypes.create_string_buffer(1))
    assert call("syscall", 324, 0, 0, 0) > 0                    # membarrier, what it knows
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)      # what compilers at run time need
    page.write(b"\xb8\x2a\x00\x00\x00\xc3")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))() == 42


def check_asynchronous_io():
    """The kernel's own, as databases use it."""
    context = ctypes.c_ulong(0)
    assert call("syscall", 206, 8, ctypes.byref(context)) == 0  # io_setup
    fd = os.open("aio", os.O_RDWR | os.O_CREAT)
    data = ctypes.create_string_buffer(b"by the kernel", 13)
    block = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 7, 0, 0, 1, 0, fd, ctypes.addressof(data), 13, 0, 0, 0, 0))
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    assert call("syscall", 209, context, 1, pointers) == 1      # io_submit
    events = ctypes.create_string_buffer(32)
    assert call("syscall", 208, context, 1, 1, events, None) == 1
    assert struct.unpack("QQqq", events.raw) == (7, ctypes.addressof(block), 13, 0)
    assert os.pread(fd, 100, 0) == b"by the kernel"
    call("syscall", 207, context)


def check_what_is_not_there_says_so():
    """Libraries fall back on these answers: to epoll, to user-space profiling, to threads."""
    refused(errno.EPERM, call, "syscall", 425, 8, ctypes.create_string_buffer(120))          # io_uring_setup
    refused(errno.EPERM, call, "syscall", 298, ctypes.create_string_buffer(128), 0, -1, -1, 0)      # perf_event_open
    refused(errno.EPERM, call, "syscall", 323, 0)               # userfaultfd
    refused(errno.EPERM, call, "syscall", 321, 0, ctypes.create_string_buffer(128), 128)     # bpf
    refused(errno.ENOSYS, call, "syscall", 9999)
    refused(errno.EPERM, call, "unshare", 0x10000000)           # a user namespace
    refused(errno.EPERM, call, "syscall", 250, 0, -3, 0)        # keyctl


def check_a_program_may_confine_itself():
    """What browsers, sshd and sandboxes of their own do: a filter, Landlock, no new privileges."""
    program = "import ctypes, os, struct\n" \
        "lib = ctypes.CDLL(None, use_errno=True)\n" \
        "assert lib.prctl(38, 1, 0, 0, 0) == 0\n" \
        "code = struct.pack('HBBIHBBIHBBIHBBI', 0x20, 0, 0, 0, 0x15, 0, 1, 102, 6, 0, 0, 0x50000 | 99, 6, 0, 0, 0x7fff0000)\n" \
        "b = ctypes.create_string_buffer(code)\n" \
        "f = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(b)))\n" \
        "assert lib.prctl(22, 2, f, 0, 0) == 0\n" \
        "assert lib.syscall(102) == -1 and ctypes.get_errno() == 99\n" \
        "fd = lib.syscall(444, ctypes.create_string_buffer(struct.pack('Q', 1 << 3)), 8, 0)\n" \
        "assert fd > 0 and lib.syscall(446, fd, 0) == 0\n" \
        "try: os.listdir('/'); print('no')\n" \
        "except PermissionError: print('confined')\n"
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout == "confined\n"


def check_names_of_threads_and_scores():
    with open("/proc/self/comm", "w") as f:
        f.write("named")
    assert open("/proc/self/comm").read() == "named\n"
    with open("/proc/self/oom_score_adj") as f:
        score = int(f.read())
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write(str(min(1000, score + 100)))


def check_background_processes_keep_their_output():
    with open("out", "w") as out:
        subprocess.run(["sh", "-c", "nohup sh -c 'sleep 0.2; echo done' &"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=True)
    give_up = time.monotonic() + 30
    while not open("out").read().endswith("done\n"):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    sid, pid = subprocess.check_output(["setsid", "-w", "sh", "-c", "ps -o sid= -p $$; echo $$"]).split()
    assert sid == pid
