/*
 * caps.c - what root inside the sandbox may do, and the syscall filter
 *
 * The bounding set is lowered while the slot is prepared; nothing is executed before SETUP, so init keeps
 * what it needs for mounting until caps_drop(). The filter goes in between: with CAP_SYS_ADMIN it
 * needs no no_new_privs, so setuid programs of the image work.
 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init.h"
#include "init/kernel.h"

/*
 * The usual set of containers. All of it counts inside the sandbox's user namespace alone. NET_RAW is
 * there because ping carries it as a file capability and would not even start without it;
 * AUDIT_WRITE is what sudo asks for; SETFCAP lets package managers unpack.
 */
static const unsigned kept[] = {
    CAP_AUDIT_WRITE, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_MKNOD,
    CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SETFCAP, CAP_SETGID, CAP_SETPCAP, CAP_SETUID,
    CAP_SYS_CHROOT,
};

static uint64_t kept_mask(void)
{
    uint64_t mask = 0;

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        mask |= 1ULL << kept[i];
    return mask;
}

int caps_bound(struct fault *f)
{
    uint64_t mask = kept_mask();

    for (unsigned cap = 0; cap < 64; cap++) {
        if ((mask >> cap & 1) != 0)
            continue;
        if (prctl(PR_CAPBSET_DROP, cap) < 0) {
            if (errno == EINVAL)        /* past the last one this kernel knows */
                return 0;
            return fault_set(f, "bounding set");
        }
    }
    return 0;
}

int caps_filter(int memfd, struct fault *f)
{
    struct stat st;

    if (fstat(memfd, &st) < 0)
        return fault_set(f, "filter");
    if (st.st_size == 0)
        return 0;
    size_t size = (size_t)st.st_size;
    if (size % sizeof(struct sock_filter) != 0 || size / sizeof(struct sock_filter) > BPF_MAXINSNS) {
        errno = EINVAL;
        return fault_set(f, "filter");
    }
    void *program = mmap(NULL, size, PROT_READ, MAP_PRIVATE, memfd, 0);
    if (program == MAP_FAILED)
        return fault_set(f, "filter");
    struct sock_fprog fprog = {
        .len = (unsigned short)(size / sizeof(struct sock_filter)),
        .filter = program,
    };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) < 0)
        return fault_set(f, "filter");
    (void)munmap(program, size);
    return 0;
}

int caps_drop(struct fault *f)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};
    uint64_t mask = kept_mask();

    for (int i = 0; i < 2; i++) {
        sets[i].effective = (uint32_t)(mask >> (32 * i));
        sets[i].permitted = sets[i].effective;
    }
    if (syscall(SYS_capset, &header, sets) < 0)
        return fault_set(f, "capabilities");
    return 0;
}
