/*
 * classes.c - what other walls this host could put around a sandbox: KVM, gVisor; and FUSE
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/fd.h"

#define KVM_VERSION 12
#define GUEST_BYTES 4096
#define VM_COST "only the native class of isolation: one kernel for all sandboxes"

#ifdef __x86_64__
/* Runs one instruction, hlt, in real mode, where a guest begins. */
static int kvm_halt(int vm)
{
    const struct kvm_userspace_memory_region region = {.slot = 0, .guest_phys_addr = 0, .memory_size = GUEST_BYTES};
    struct kvm_userspace_memory_region with = region;
    struct kvm_sregs special;
    struct kvm_regs regs = {.rip = 0, .rflags = 2};
    int r = -EIO;

    uint8_t *memory = mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    memory[0] = 0xf4;
    with.userspace_addr = (uintptr_t)memory;
    auto_close int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
    if (vcpu < 0 || ioctl(vm, KVM_SET_USER_MEMORY_REGION, &with) < 0 || ioctl(vcpu, KVM_GET_SREGS, &special) < 0) {
        r = -errno;
    } else {
        special.cs.base = 0;
        special.cs.selector = 0;
        struct kvm_run *run = mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
        if (run == MAP_FAILED || ioctl(vcpu, KVM_SET_SREGS, &special) < 0 || ioctl(vcpu, KVM_SET_REGS, &regs) < 0 ||
            ioctl(vcpu, KVM_RUN, 0) < 0)
            r = -errno;
        else
            r = run->exit_reason == KVM_EXIT_HLT ? 0 : -ENOEXEC;
        if (run != MAP_FAILED)
            (void)munmap(run, GUEST_BYTES);
    }
    (void)munmap(memory, GUEST_BYTES);
    return r;
}

/* In a child: a guest that hangs is ended with it. */
static int kvm_try(void)
{
    auto_close int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (kvm < 0)
        return -errno;
    if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_VERSION)
        return -EPROTO;
    auto_close int vm = ioctl(kvm, KVM_CREATE_VM, 0);
    return vm < 0 ? -errno : kvm_halt(vm);
}
#endif

static void kvm(struct doctor *d)
{
#ifdef __x86_64__
    struct doctor_child c;
    int r = doctor_child_start(&c, 0, 0, kvm_try);

    if (r == 0)
        r = doctor_child_act(&c);
    doctor_child_end(&c);
    bool hardware = access("/sys/module/kvm_intel", F_OK) == 0 || access("/sys/module/kvm_amd", F_OK) == 0;
    if (r == 0 && hardware)
        doctor_ok(d, "kvm", "ran a guest");
    else if (r == 0)
        doctor_bad(
            d, "kvm", FINDING_DEGRADED, VM_COST,
            "use a host whose processor's virtualization is passed on (nested virtualization)",
            "/dev/kvm runs code, but without the processor's help: common kernels do not start in it");
    else
        doctor_bad(d, "kvm", FINDING_DEGRADED, VM_COST, "modprobe kvm_intel || modprobe kvm_amd", "%s", strerror(-r));
#else
    doctor_bad(d, "kvm", FINDING_DEGRADED, VM_COST, "", "not tried on this architecture");
#endif
}

static void gvisor(struct doctor *d)
{
    char path[64];

    if (doctor_has_program("runsc", path, sizeof path))
        doctor_ok(d, "gvisor", "%s", path);
    else
        doctor_bad(d, "gvisor", FINDING_DEGRADED, VM_COST,
                   "apt-get install runsc (from gVisor's own repository)",
                   "runsc is not installed");
}

static void fuse(struct doctor *d)
{
    auto_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd >= 0)
        doctor_ok(d, "fuse", "/dev/fuse");
    else
        doctor_bad(d, "fuse", FINDING_DEGRADED, "resource figures inside (/proc/meminfo, /proc/stat) are the host's",
                   "modprobe fuse && echo fuse >/etc/modules-load.d/fuse.conf", "/dev/fuse: %s", strerror(errno));
}

void doctor_check_classes(struct doctor *d)
{
    fuse(d);
    kvm(d);
    gvisor(d);
}
