/*
 * idmap.c - user namespaces: the id maps of a process, the namespace as a descriptor
 */
#include "sys/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "sys/fd.h"

int idmap_write(pid_t pid, uint32_t base)
{
    char name[32], map[48];

    snprintf(map, sizeof map, "0 %" PRIu32 " %d\n", base, IDMAP_COUNT);
    snprintf(name, sizeof name, "/proc/%d/uid_map", (int)pid);
    int r = fd_write_at(AT_FDCWD, name, map);
    if (r < 0)
        return r;
    snprintf(name, sizeof name, "/proc/%d/gid_map", (int)pid);
    r = fd_write_at(AT_FDCWD, name, map);
    if (r < 0)
        return r;
    /* Of quotas. Written here because anybody inside could write it, once, and so give files to a project of the host. */
    snprintf(name, sizeof name, "/proc/%d/projid_map", (int)pid);
    r = fd_write_at(AT_FDCWD, name, map);
    /* Our own namespace has no such ids (a container's): then nobody below it can have any. */
    return r == -EPERM ? 0 : r;
}

int idmap_open_userns(pid_t pid)
{
    char name[32];

    snprintf(name, sizeof name, "/proc/%d/ns/user", (int)pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}
