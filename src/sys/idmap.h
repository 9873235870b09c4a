/*
 * idmap.h - user namespaces: the id maps of a process, the namespace as a descriptor
 */
#ifndef QS_SYS_IDMAP_H
#define QS_SYS_IDMAP_H

#include <stdint.h>
#include <sys/types.h>

#define IDMAP_COUNT 65536

/* Ids 0 to 65535 of `pid`'s new user namespace become base, base + 1, ... outside. 0 or -errno. */
int idmap_write(pid_t pid, uint32_t base);

/* The user namespace of `pid`: descriptor or -errno. */
int idmap_open_userns(pid_t pid);

#endif
