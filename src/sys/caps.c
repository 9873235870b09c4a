/*
 * caps.c - lowering the capabilities of the calling process for good
 */
#include "sys/caps.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int drop_bounding(uint64_t keep)
{
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    for (int cap = 0; cap < 64; cap++) {
        if ((keep & CAP_BIT(cap)) != 0)
            continue;
        int has = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
        if (has < 0)
            break; /* past the last one this kernel knows */
        if (has > 0 && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return -errno;
    }
    return 0;
}

static int lower_sets(uint64_t keep)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};

    if (syscall(SYS_capget, &head, sets) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        sets[i].permitted &= (uint32_t)(keep >> (32 * i));
        sets[i].effective = sets[i].permitted;
        sets[i].inheritable = 0;
    }
    return syscall(SYS_capset, &head, sets) < 0 ? -errno : 0;
}

int caps_raise(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};

    if (syscall(SYS_capget, &head, sets) < 0)
        return -errno;
    for (int i = 0; i < 2; i++)
        sets[i].effective = sets[i].permitted;
    return syscall(SYS_capset, &head, sets) < 0 ? -errno : 0;
}

int caps_limit(uint64_t keep)
{
    int r = drop_bounding(keep);

    return r < 0 ? r : lower_sets(keep);
}

int caps_become_user(uint32_t uid, uint32_t gid)
{
    int r = caps_become_user_as(uid, uid, gid);

    if (r < 0)
        return r;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

int caps_become_user_as(uint32_t real_uid, uint32_t uid, uint32_t gid)
{
    int r = drop_bounding(0);

    if (r < 0)
        return r;
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(real_uid, uid, uid) < 0)
        return -errno;
    return lower_sets(0);
}
