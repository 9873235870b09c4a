/*
 * kernel.c - the kernel's version and what of it every sandbox stands on
 */
#include <errno.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"

/* cgroup.kill and id-mapped mounts of ext4 came with 5.14 and 5.12, id-mapped layers of overlay with 5.19. */
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 19

static void version(struct doctor *d)
{
    struct utsname u;
    unsigned major = 0, minor = 0;

    if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2) {
        doctor_bad(d, "kernel", FINDING_MISSING, "the version of the kernel cannot be read", "", "unknown");
        return;
    }
    if (major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR))
        doctor_bad(d, "kernel", FINDING_MISSING, "sandboxes do not start: overlay takes id-mapped layers since Linux 5.19",
                   "apt-get install linux-image-amd64 && reboot", "Linux %s on %s", u.release, u.machine);
    else
        doctor_ok(d, "kernel", "Linux %s on %s", u.release, u.machine);
    if (strcmp(u.machine, "x86_64") != 0 && strcmp(u.machine, "aarch64") != 0)
        doctor_bad(d, "architecture", FINDING_MISSING, "there is no list of system calls for this architecture", "", "%s",
                   u.machine);
}

static void seccomp(struct doctor *d)
{
    uint32_t action = SECCOMP_RET_ERRNO;

    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
        doctor_ok(d, "seccomp", "filters of system calls");
    else
        doctor_bad(d, "seccomp", FINDING_MISSING, "nothing is started without a filter of system calls",
                   "boot a kernel with CONFIG_SECCOMP_FILTER=y (Debian's own have it)", "seccomp: %s", strerror(errno));
}

static void landlock(struct doctor *d)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (abi > 0)
        doctor_ok(d, "landlock", "ABI %ld", abi);
    else if (errno == EOPNOTSUPP)
        doctor_bad(d, "landlock", FINDING_DEGRADED, "a monitor that was taken over can open what everybody on the host may read",
                   "add landlock to the kernel's command line: lsm=landlock,... in /etc/default/grub, then update-grub && reboot",
                   "there, but not turned on");
    else
        doctor_bad(d, "landlock", FINDING_DEGRADED, "a monitor that was taken over can open what everybody on the host may read",
                   "boot a kernel with CONFIG_SECURITY_LANDLOCK=y (Debian's own have it)", "not in this kernel");
}

static void time_namespace(struct doctor *d)
{
    if (access("/proc/self/ns/time", F_OK) == 0)
        doctor_ok(d, "time_namespace", "there");
    else
        doctor_bad(d, "time_namespace", FINDING_DEGRADED, "sandboxes see for how long the host is up",
                   "boot a kernel with CONFIG_TIME_NS=y (Debian's own have it)", "not in this kernel");
}

static void oom(struct doctor *d)
{
    long long panic = doctor_number("/proc/sys/vm/panic_on_oom");

    if (panic > 0)
        doctor_bad(d, "panic_on_oom", panic > 1 ? FINDING_MISSING : FINDING_DEGRADED,
                   "a sandbox that uses its memory up can end the host", "sysctl -w vm.panic_on_oom=0", "vm.panic_on_oom = %lld",
                   panic);
}

static void privileges(struct doctor *d)
{
    if (geteuid() == 0)
        doctor_ok(d, "privileges", "root");
    else
        doctor_bad(d, "privileges", FINDING_MISSING,
                   "most of what follows cannot be tried, and quicksandd must be started by root",
                   "sudo quicksand doctor", "uid %u", (unsigned)geteuid());
}

void doctor_check_kernel(struct doctor *d)
{
    privileges(d);
    version(d);
    seccomp(d);
    landlock(d);
    time_namespace(d);
    oom(d);
}
