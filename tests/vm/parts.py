"""
What the test machine is made of: kernel, initial file system, root disk. Called by tests/vm/lane.

Kernel and root disk come from Debian's mirrors, as this machine's apt knows them, and are kept in CACHE under a name that tells what they
were made of: the kernel's version and the list of packages.
"""

import collections
import errno
import hashlib
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("QUICKSAND_TEST_CACHE", "/var/cache/quicksand-test"))
KERNEL = "linux-image-cloud-amd64"
# Loaded before there is a root disk; the kernel asks for all others itself.
BOOT_MODULES = ("virtio_mmio", "virtio_blk", "virtio_console")
# Of the package lists, what a machine does not need that gets everything built.
LEFT_OUT = {"clang", "libclang-rt-14-dev", "meson", "ninja-build", "musl-tools", "python3-venv", "mmdebstrap", "pkg-config", "docker-registry", "skopeo"}
ADDED = {"e2fsprogs", "iproute2", "kmod", "nftables", "openssl", "libnftnl-dev", "libmnl-dev", "libc-ares-dev"}
DISK_BYTES = 24 << 30       # sparse; thrown away after each run
FORMAT = "1"                # another one when the root disk is made otherwise
LZ4_MAGIC = b"\x02\x21\x4c\x18"


Parts = collections.namedtuple("Parts", "kernel initrd disk")


class Missing(Exception):
    """This machine lacks what the lane needs; the text names it."""


def run(*argv, **options):
    """Its output; if we are ended, its whole tree is ended too, and may clean up."""
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                         **options)
    try:
        out, _ = p.communicate()
    except BaseException:
        os.killpg(p.pid, signal.SIGTERM)
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        raise
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: status {p.returncode}\n{out[-3000:]}")
    return out


def require_tools():
    if platform.machine() != "x86_64":
        raise Missing("the test machine is of x86_64")
    try:
        run(ROOT / "tools/install-deps", "vm")
    except RuntimeError as e:
        raise Missing("QEMU and the tools around it cannot be installed: " + str(e).strip().splitlines()[-1]) from e


def kernel_package():
    """Name of the package that holds the kernel: what the cloud kernel's own package depends on."""
    try:
        m = re.search(r"^\s*Depends: (linux-image-\S+)$", run("apt-cache", "depends", KERNEL), re.M)
    except (RuntimeError, OSError):
        m = None
    if not m:
        raise Missing(f"no package {KERNEL} in this machine's apt sources")
    return m[1]


def packages():
    names = set(ADDED)
    for part in ("run", "test", "build"):
        text = (ROOT / f"packaging/debian-packages/{part}.txt").read_text()
        names |= {line for line in text.split("\n") if line and line[0] != "#"}
    return sorted(names - LEFT_OUT)


def unpack_kernel(package, work):
    """Returns the directory into which the package was unpacked, and the version of the kernel."""
    try:
        run("apt-get", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "download", package, cwd=work)
    except RuntimeError as e:
        raise Missing(f"the package {package} cannot be downloaded") from e
    run("dpkg", "-x", next(work.glob("*.deb")), work / "kernel")
    version = next((work / "kernel/lib/modules").iterdir()).name
    run("depmod", "-b", work / "kernel", version)
    return work / "kernel", version


def make_vmlinux(kernel, version, out):
    """The kernel as ELF, which QEMU starts without the slow unpacking; a kernel of another packing is used as it is."""
    packed = (kernel / f"boot/vmlinuz-{version}").read_bytes()
    at = packed.find(LZ4_MAGIC)
    if at > 0:
        # The archive ends before the file does, of which lz4 complains when it has written everything.
        r = subprocess.run(["lz4", "-d", "-c"], input=packed[at:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        if r.stdout[:4] == b"\x7fELF":
            out.write_bytes(r.stdout)
            return
    out.write_bytes(packed)


def make_initrd(kernel, version, work, out):
    tree = work / "initrd"
    for d in ("bin", "m", "dev", "proc", "root"):
        (tree / d).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    shutil.copy(HERE / "boot.sh", tree / "init")
    (tree / "init").chmod(0o755)
    order = []
    for module in BOOT_MODULES:
        for line in run("modprobe", "-d", kernel, "-S", version, "--show-depends", module).splitlines():
            if line.startswith("insmod ") and line.split()[1] not in order:
                order.append(line.split()[1])
    for path in order:
        shutil.copy(path, tree / "m")
    (tree / "modules").write_text("".join(f"/m/{os.path.basename(p)}\n" for p in order))
    run("sh", "-c", f"find . | cpio --quiet -o -H newc >'{out}'", cwd=tree)


def make_disk(kernel, version, work, base_tar, out):
    tree = work / "root"
    tree.mkdir()
    # Its mounts are in a namespace of its own, so that none is left should it be killed.
    run("unshare", "--mount", ROOT / "tools/make-base-image", work / "root.tar", *packages())
    run("tar", "-xf", work / "root.tar", "-C", tree)
    (work / "root.tar").unlink()
    shutil.copytree(kernel / "lib/modules", tree / "lib/modules", dirs_exist_ok=True)
    run("depmod", "-b", tree, version)
    (tree / "var/cache/quicksand-test").mkdir(parents=True)
    shutil.copy(base_tar, tree / "var/cache/quicksand-test/base.tar")
    with open(out, "wb") as f:
        f.truncate(DISK_BYTES)
    # Nothing on it outlives the run: no journal, and no tables but those that are used.
    run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1,root_owner=0:0", "-d", tree, out)


def make_kept(package, work, base_tar, made):
    kernel, version = unpack_kernel(package, work)
    make_vmlinux(kernel, version, made / "vmlinux")
    make_disk(kernel, version, work, base_tar, made / "root.img")
    shutil.copytree(kernel, made / "kernel")


def make(work, base_tar):
    """Paths of kernel, initial file system and root disk."""
    package = kernel_package()
    digest = hashlib.sha256("\n".join([FORMAT, *packages()]).encode()).hexdigest()
    kept = CACHE / f"vm-{package}-{digest[:16]}"
    if not kept.is_dir():
        made = kept.with_name(kept.name + f".{os.getpid()}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        try:
            make_kept(package, work, base_tar, made)
            # Another run may have made the same meanwhile; what has the name is whole.
            try:
                made.rename(kept)
            except OSError as e:
                if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        for old in CACHE.glob("vm-*"):
            if old != kept and not re.search(r"\.\d+$", old.name):
                shutil.rmtree(old, ignore_errors=True)
    version = next((kept / "kernel/lib/modules").iterdir()).name
    make_initrd(kept / "kernel", version, work, work / "initrd.img")
    return Parts(kept / "vmlinux", work / "initrd.img", kept / "root.img")
