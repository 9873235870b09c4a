"""
Starts the test machine and sees to it that it ends. Called by tests/vm/lane.

A boot that says nothing in time is ended and tried again. KVM is used only where a boot shows that it
works: there are hosts with a /dev/kvm on which no common kernel starts.
"""

import os
import pathlib
import subprocess
import threading
import time

QEMU = "qemu-system-x86_64"
MEMORY_MB = 3072
SPARE_MB = 1024             # that the host must have besides
REPORT_BYTES = 64 << 20
TRIES = 4
BOOT_SECONDS = {"kvm": 10, "tcg": 180}     # on a host that is busy with other things
KERNEL_LINE = ("console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off nokaslr no_timer_check cryptomgr.notests audit=0 "
               "lsm=landlock init_on_alloc=0 transparent_hugepage=never nowatchdog rdinit=/init")
# v2 alone, as Debian's systemd has it; or v1 alone, with v2 mounted nowhere, as of old.
LAYOUTS = {"v2": "cgroup_no_v1=all", "v1": "quicksand.cgroups=v1"}


def free_mb():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def command(accel, layout, parts, tree, report, console):
    # Emulated, a repeated string instruction is dear each time round; without these two features no copy is made byte by byte.
    cpu = "host" if accel == "kvm" else "max,-erms,-fsrm"
    disks = [(parts.disk, "on"), (tree, "off"), (report, "off")]
    # Emulated, its clock goes by the instructions that were executed: else a busy host makes the kernel's measuring of its clocks fail (every
    # second boot hung), and the tests' waits run out.
    pace = ["-smp", "2"] if accel == "kvm" else ["-smp", "1", "-icount", "shift=1"]
    argv = [QEMU, "-M", f"microvm,accel={accel}", "-cpu", cpu, *pace, "-m", str(MEMORY_MB),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", parts.kernel, "-initrd", parts.initrd, "-append", f"{KERNEL_LINE} {LAYOUTS[layout]}",
            "-serial", "stdio", "-object", "rng-random,filename=/dev/urandom,id=rng", "-device", "virtio-rng-device,rng=rng",
            "-device", "virtio-serial-device", "-chardev", f"file,path={console},id=console", "-device", "virtconsole,chardev=console"]
    for i, (path, throw_away) in enumerate(disks):
        argv += ["-drive", f"if=none,id=d{i},file={path},format=raw,cache=unsafe,snapshot={throw_away}"]
    for i in range(len(disks)):
        argv += ["-device", f"virtio-blk-device,drive=d{i}"]
    return argv


class Machine:
    """One start of QEMU. What it says on the serial port is followed by a thread."""

    def __init__(self, argv, work):
        self.stages = {}
        self.lines = []
        # It ends with us whatever ends us.
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env={**os.environ, "TMPDIR": str(work)})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for raw in self.process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self.lines.append(line)
            if line.startswith("vm: "):
                self.stages.setdefault(line[4:], time.monotonic())

    def wait(self, stage, seconds):
        """Whether the guest reached the stage; also ends when QEMU has ended."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            if stage in self.stages:
                return True
            if self.process.poll() is not None:
                self.reader.join(5)
                return stage in self.stages
            time.sleep(0.05)
        return False

    def end(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)

    def tail(self):
        return "\n".join(self.lines[-40:])


def boot(layout, parts, tree, work):
    """A machine in which the tests have begun, and the accelerator that it uses."""
    said = ""
    for accel in ["kvm"] * os.access("/dev/kvm", os.R_OK | os.W_OK) + ["tcg"] * TRIES:
        with open(work / "report.img", "wb") as f:
            f.truncate(REPORT_BYTES)
        machine = Machine(command(accel, layout, parts, tree, work / "report.img", work / "console"), work)
        try:
            if machine.wait("up", BOOT_SECONDS[accel]) and machine.wait("tests", 3 * BOOT_SECONDS[accel]):
                return machine, accel
        except BaseException:
            machine.end(0)
            raise
        machine.end(0)
        said = machine.tail()
    raise RuntimeError(f"the test machine did not start in {TRIES} tries; the last said:\n{said}")
