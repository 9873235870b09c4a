"""What programs do with files. Each check_ function runs by itself inside a sandbox, as root and as an ordinary user."""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import time

from libc import call, in_child, refused

ROOT = os.geteuid() == 0
os.chdir(tempfile.mkdtemp())


def write(name, data=b"x"):
    with open(name, "wb") as f:
        f.write(data)


def read(name):
    with open(name, "rb") as f:
        return f.read()


def check_flock_excludes_another_process():
    with open("lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)

        def other():
            with open("lock") as g:
                refused(errno.EAGAIN, fcntl.flock, g, fcntl.LOCK_EX | fcntl.LOCK_NB)

        in_child(other)


def check_record_locks_exclude_another_process():
    write("lock", bytes(100))
    with open("lock", "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX, 10, 20)

        def other():
            with open("lock", "r+b") as g:
                fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 40)
                refused(errno.EAGAIN, fcntl.lockf, g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 25)

        in_child(other)


def check_open_file_locks():
    write("lock", bytes(10))
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    with open("lock", "r+b") as f, open("lock", "r+b") as g:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, whole)
        refused(errno.EAGAIN, fcntl.fcntl, g, fcntl.F_OFD_SETLK, whole)


def check_a_lease_is_broken_by_an_open():
    write("leased")
    with open("leased") as f:
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        assert fcntl.fcntl(f, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def check_hard_links():
    write("a", b"one")
    os.link("a", "b")
    with open("b", "ab") as f:
        f.write(b"two")
    a, b = os.stat("a"), os.stat("b")
    assert (a.st_ino, a.st_dev, a.st_nlink) == (b.st_ino, b.st_dev, 2)
    assert read("a") == b"onetwo"
    os.unlink("a")
    assert os.stat("b").st_nlink == 1


def check_user_attributes():
    write("f")
    os.setxattr("f", "user.note", b"\0binary\xff")
    assert os.getxattr("f", "user.note") == b"\0binary\xff"
    assert os.listxattr("f") == ["user.note"]
    os.mkdir("d")
    os.setxattr("d", "user.note", b"x" * 1000)
    assert len(os.getxattr("d", "user.note")) == 1000
    os.removexattr("f", "user.note")
    refused(errno.ENODATA, os.getxattr, "f", "user.note")


def check_sparse_files():
    with open("sparse", "wb") as f:
        f.seek(1 << 33)
        f.write(b"end")
    st = os.stat("sparse")
    assert st.st_size == (1 << 33) + 3 and st.st_blocks * 512 < 1 << 20
    with open("sparse", "rb") as f:
        assert os.lseek(f.fileno(), 0, os.SEEK_DATA) >= (1 << 33) - 65536
        assert os.lseek(f.fileno(), 0, os.SEEK_HOLE) == 0
        f.seek((1 << 33) - 3)
        assert f.read() == b"\0\0\0end"


def check_preallocation_and_holes():
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    os.pwrite(fd, b"x" * 65536, 65536)
    call("fallocate", fd, 3, 65536, 65536)          # PUNCH_HOLE | KEEP_SIZE
    assert os.pread(fd, 65536, 65536) == bytes(65536)
    os.close(fd)


def check_mappings_are_shared_between_processes():
    write("f", bytes(8192))
    with open("f", "r+b") as f, mmap.mmap(f.fileno(), 8192) as m:
        in_child(m.__setitem__, slice(4096, 4100), b"here")
        assert m[4096:4100] == b"here"
        m.flush()
    assert read("f")[4096:4100] == b"here"


def check_direct_io():
    fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    page = mmap.mmap(-1, 4096)
    page[:] = b"d" * 4096
    assert os.pwritev(fd, [page], 4096) == 4096
    page[:] = bytes(4096)
    assert os.preadv(fd, [page], 4096) == 4096 and page[:] == b"d" * 4096
    os.close(fd)


def check_files_without_a_name():
    fd = os.open(".", os.O_RDWR | os.O_TMPFILE, 0o600)
    os.write(fd, b"named later")
    call("linkat", -100, f"/proc/self/fd/{fd}".encode(), -100, b"named", 0x400)       # AT_SYMLINK_FOLLOW
    assert read("named") == b"named later"
    os.close(fd)


def check_an_unlinked_file_stays_for_its_holder():
    write("f", b"still here")
    with open("f", "rb") as f:
        os.unlink("f")
        assert f.read() == b"still here" and os.fstat(f.fileno()).st_nlink == 0


RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def renameat2(old, new, flags):
    call("renameat2", -100, old.encode(), -100, new.encode(), flags)


def check_renames():
    write("a", b"a")
    write("b", b"b")
    refused(errno.EEXIST, renameat2, "a", "b", RENAME_NOREPLACE)
    renameat2("a", "b", RENAME_EXCHANGE)
    assert (read("a"), read("b")) == (b"b", b"a")
    os.rename("a", "b")
    assert read("b") == b"b" and not os.path.exists("a")
    os.makedirs("d/e")
    write("d/e/f")
    os.rename("d", "moved")
    assert read("moved/e/f") == b"x"
    refused(errno.EINVAL, os.rename, "moved", "moved/e/deeper")


def check_directories_of_the_image_can_be_moved():
    """The kernel says EXDEV for a directory that lies in a layer; what moves files then copies."""
    if not ROOT:
        return
    before = sorted(os.listdir("/usr/share/common-licenses"))
    subprocess.run(["mv", "/usr/share/common-licenses", "/usr/share/moved-licenses"], check=True)
    shutil.move("/usr/share/moved-licenses", "/srv/licenses")
    assert sorted(os.listdir("/srv/licenses")) == before and len(before) > 5
    assert not os.path.exists("/usr/share/common-licenses")
    shutil.move("/srv/licenses", "/usr/share/common-licenses")


def check_files_of_the_image_can_be_changed():
    if not ROOT:
        refused(errno.EACCES, open, "/etc/passwd", "ab")
        return
    was = os.stat("/etc/passwd")
    with open("/etc/passwd", "ab") as f:
        f.write(b"added:x:4321:4321::/:/bin/sh\n")
    now = os.stat("/etc/passwd")
    assert (now.st_ino, now.st_dev, now.st_mode, now.st_uid) == (was.st_ino, was.st_dev, was.st_mode, was.st_uid)
    assert read("/etc/passwd").endswith(b"added:x:4321:4321::/:/bin/sh\n")
    os.truncate("/etc/passwd", was.st_size)


def check_a_removed_directory_of_the_image_stays_removed():
    if not ROOT:
        return
    shutil.copytree("/usr/share/common-licenses", "kept", symlinks=True)
    shutil.rmtree("/usr/share/common-licenses")
    os.mkdir("/usr/share/common-licenses")
    assert os.listdir("/usr/share/common-licenses") == []
    shutil.rmtree("/usr/share/common-licenses")
    shutil.copytree("kept", "/usr/share/common-licenses", symlinks=True)


def check_copies_inside_the_kernel():
    data = os.urandom(300000)
    write("from", data)
    with open("from", "rb") as f, open("by_copy", "wb") as g, open("by_sendfile", "wb") as h, open("by_splice", "wb") as i:
        assert os.copy_file_range(f.fileno(), g.fileno(), len(data), 0) == len(data)
        assert os.sendfile(h.fileno(), f.fileno(), 0, len(data)) == len(data)
        r, w = os.pipe()
        at = 0
        while at < len(data):
            at += os.splice(f.fileno(), w, min(65536, len(data) - at), offset_src=at)
            while select.select([r], [], [], 0)[0]:
                os.splice(r, i.fileno(), 65536)
    assert read("by_copy") == read("by_sendfile") == read("by_splice") == data
    subprocess.run(["cp", "--reflink=auto", "from", "reflink"], check=True)
    assert read("reflink") == data


def check_copies_keep_hard_links():
    os.mkdir("tree")
    for i in range(50):
        write(f"tree/{i}", str(i).encode())
        os.link(f"tree/{i}", f"tree/{i}-link")
    subprocess.run("tar cf t.tar tree; mkdir out; tar xf t.tar -C out; cp -a tree copy", shell=True, check=True)
    for top in ("out/tree", "copy"):
        inodes = {}
        for name in os.listdir(top):
            inodes.setdefault(os.stat(f"{top}/{name}").st_ino, set()).add(read(f"{top}/{name}"))
        assert len(inodes) == 50 and all(len(v) == 1 for v in inodes.values())


def check_the_image_itself_can_be_copied():
    """Inode numbers of layers do not collide: what tar takes for a hard link is one."""
    subprocess.run(["sh", "-c", "cd / && tar cf - --exclude=etc/shadow --exclude=etc/gshadow --ignore-failed-read usr/bin usr/lib/python3 etc 2>/dev/null | tar xf - -C "
                    + os.getcwd()], check=True)
    subprocess.run(["diff", "-r", "--no-dereference", "/usr/bin", "usr/bin"], check=True)
    subprocess.run(["diff", "-r", "--no-dereference", "/usr/lib/python3", "usr/lib/python3"], check=True)


def check_times():
    write("f")
    os.utime("f", ns=(1, 1234567890123456789))
    st = os.stat("f")
    assert st.st_mtime_ns == 1234567890123456789
    before = time.time() - 2
    os.utime("f")
    assert before < os.stat("f").st_mtime < time.time() + 2


def check_names_and_paths():
    write("n" * 255)
    refused(errno.ENAMETOOLONG, open, "n" * 256, "w")
    for name in ("é☕", b"\xff\xfe", " ", "\n", "a\\b", "-rf", "*"):
        write(name, b"named")
        assert read(name) == b"named"
    assert os.fsencode("é☕") in os.listdir(b".") and b"\xff\xfe" in os.listdir(b".")
    os.symlink("loop", "loop")
    refused(errno.ELOOP, open, "loop")
    deep = os.getcwd()
    for _ in range(15):
        deep += "/" + "d" * 200
        os.mkdir(deep)
    write(deep + "/f")
    refused(errno.ENAMETOOLONG, os.stat, deep + "/f" * 2000)


def check_a_large_directory():
    os.mkdir("d")
    names = {f"{i:05d}" for i in range(3000)}
    for n in names:
        write(f"d/{n}", b"")
    assert set(os.listdir("d")) == names
    seen = set()
    with os.scandir("d") as entries:
        for entry in entries:
            assert entry.is_file(follow_symlinks=False) and entry.inode() == entry.stat().st_ino
            os.unlink(entry.path)
            seen.add(entry.name)
    assert seen == names
    os.rmdir("d")


def check_owners_and_modes():
    write("f")
    os.chmod("f", 0o4755)
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o4755
    if not ROOT:
        refused(errno.EPERM, os.chown, "f", 0, 0)
        return
    for uid in (1, 1000, 65534, 65535):
        os.chown("f", uid, uid)
        assert (os.stat("f").st_uid, os.stat("f").st_gid) == (uid, uid)
    refused(errno.EINVAL, os.chown, "f", 65536, 0)
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o755          # chown takes the setuid bit away


def check_special_files():
    os.mkfifo("fifo")
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("sock")
        assert stat.S_ISSOCK(os.stat("sock").st_mode)
    # Which of the walls answers depends on the kernel.
    refused((errno.EPERM, errno.EACCES), os.mknod, "disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    refused(errno.EPERM, os.mknod, "null", 0o600 | stat.S_IFCHR, os.makedev(1, 5))


def check_programs_run_from_everywhere():
    shutil.copy("/bin/true", "prog")
    for where in (os.getcwd(), "/var/tmp"):
        path = os.path.join(tempfile.mkdtemp(dir=where), "prog")
        shutil.copy("/bin/true", path)
        subprocess.run([path], check=True)
    write("script", b"#!/bin/sh\necho \"$0 $1\"\n")
    os.chmod("script", 0o755)
    assert subprocess.check_output(["./script", "a b"]) == b"./script a b\n"
    fd = os.memfd_create("prog", 0)
    os.write(fd, read("/bin/true"))
    subprocess.run([f"/proc/self/fd/{fd}"], pass_fds=[fd], check=True)
    running = os.path.abspath("running")
    shutil.copy("/bin/sleep", running)
    with subprocess.Popen([running, "60"]) as p:
        try:
            while os.readlink(f"/proc/{p.pid}/exe") != running:
                time.sleep(0.01)
            refused(errno.ETXTBSY, open, running, "r+b")
            os.unlink(running)
            assert os.readlink(f"/proc/{p.pid}/exe") == running + " (deleted)"
        finally:
            p.kill()


def check_syncs():
    fd = os.open("f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 10000)
    os.fsync(fd)
    os.fdatasync(fd)
    call("syncfs", fd)
    call("sync_file_range", fd, 0, 0, 7)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    call("readahead", fd, 0, 4096)
    d = os.open(".", os.O_RDONLY)
    os.fsync(d)
    os.sync()
    os.close(fd)
    os.close(d)


def check_appends_of_many_writers_are_whole():
    def writer(c):
        fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for _ in range(200):
            os.write(fd, c * 99 + b"\n")

    pids = []
    for c in (b"a", b"b", b"c", b"d"):
        pid = os.fork()
        if pid == 0:
            writer(c)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    lines = read("log").splitlines()
    assert len(lines) == 800 and all(len(set(line)) == 1 and len(line) == 99 for line in lines)


IN_CREATE, IN_MODIFY, IN_MOVED_TO, IN_DELETE = 0x100, 0x2, 0x80, 0x200


def check_inotify():
    os.mkdir("watched")
    fd = call("inotify_init1", os.O_CLOEXEC)
    call("inotify_add_watch", fd, b"watched", IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_DELETE)
    write("watched/f", b"x")
    os.rename("watched/f", "watched/g")
    os.unlink("watched/g")
    events, at = [], 0
    data = os.read(fd, 65536)
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        events.append((mask, data[at + 16:at + 16 + length].rstrip(b"\0")))
        at += 16 + length
    assert events == [(IN_CREATE, b"f"), (IN_MODIFY, b"f"), (IN_MOVED_TO, b"g"), (IN_DELETE, b"g")], events


def check_inotify_on_a_file_of_the_image():
    fd = call("inotify_init1", os.O_CLOEXEC)
    call("inotify_add_watch", fd, b"/etc", 0x20)                # IN_OPEN
    read("/etc/passwd")
    assert b"passwd" in os.read(fd, 65536)


def check_fanotify_is_refused():
    refused(errno.EPERM, call, "fanotify_init", 4, 0)           # FAN_CLASS_CONTENT


def check_statfs():
    for path in ("/", "/tmp", "/dev/shm", "/proc", "/dev"):
        s = os.statvfs(path)
        assert s.f_bsize > 0 and s.f_namemax == 255, path
    s = os.statvfs("/")
    assert 0 < s.f_bavail <= s.f_bfree <= s.f_blocks


def check_shared_memory_directory():
    path = f"/dev/shm/check-{os.getpid()}"
    write(path, b"s" * 1000000)
    assert read(path) == b"s" * 1000000
    os.unlink(path)


def check_the_sticky_bit_of_tmp():
    assert stat.S_IMODE(os.stat("/tmp").st_mode) == 0o1777
    assert stat.S_IMODE(os.stat("/dev/shm").st_mode) == 0o1777
    if not ROOT:
        return
    write("/tmp/of-root")

    def other():
        os.setgid(65534)
        os.setuid(65534)
        refused(errno.EPERM, os.unlink, "/tmp/of-root")

    in_child(other)
    os.unlink("/tmp/of-root")


def check_extended_status():
    """statx, for the time of birth that file managers show."""
    write("f")
    out = ctypes.create_string_buffer(256)
    call("statx", -100, b"f", 0, 0xfff, out)
    mask, = struct.unpack_from("I", out, 0)
    assert mask & 0x7ff == 0x7ff


def check_a_changed_root():
    if not ROOT:
        refused(errno.EPERM, os.chroot, ".")
        return
    os.mkdir("new")
    write("new/inside", b"yes")

    def changed():
        os.chroot("new")
        os.chdir("/")
        assert os.listdir("/") == ["inside"]

    in_child(changed)


def check_mounts_are_refused():
    refused(errno.EPERM, call, "mount", b"none", b"/mnt", b"tmpfs", 0, None)
    refused(errno.EPERM, call, "umount2", b"/proc", 2)
