/*
 * seccomp_role.h - the syscall filter of a daemon role, built from named groups
 *
 * Called by control, node, egress and image once, after their descriptors and users are in place
 * and before the first byte of a stranger. A call outside the groups answers ENOSYS, so that
 * libraries take their fallback and an intruder gets nothing. No group reaches mount, ptrace, bpf,
 * keyrings, modules, namespaces or other users' processes. The groups suffice for AddressSanitizer,
 * but not for its leak check at exit, which is therefore off in whatever links this.
 */
#ifndef QS_SYS_SECCOMP_ROLE_H
#define QS_SYS_SECCOMP_ROLE_H

#include "base/err.h"

enum seccomp_group {
    SECCOMP_BASE = 1 << 0,        /* memory, signals of its own, clocks, exit: every program */
    SECCOMP_IO = 1 << 1,          /* descriptors that are open already; event loop, pipes */
    SECCOMP_UNIX = 1 << 2,        /* sockets of the unix family */
    SECCOMP_INET = 1 << 3,        /* sockets of the IPv4 and IPv6 families */
    SECCOMP_READ_FILES = 1 << 4,  /* open and list what file permissions allow */
    SECCOMP_WRITE_FILES = 1 << 5, /* create, rename, remove, resize, sync */
    SECCOMP_MEMFD = 1 << 6,       /* sealed memory files: large channel messages */
    SECCOMP_SPLICE = 1 << 7,      /* move bytes between descriptors without copying */
    SECCOMP_THREADS = 1 << 8,     /* threads of the same process */
    SECCOMP_CHILDREN = 1 << 9,    /* fork and wait, no new namespaces: one child a job */
    SECCOMP_EXEC = 1 << 10,       /* start another program */
    SECCOMP_TREE = 1 << 11,       /* owners, modes, times, links, attributes: unpacking archives */
    SECCOMP_NARROW = 1 << 12,     /* take away more from itself: another filter, landlock, capabilities */
};

/* Sets no-new-privileges too. Irreversible. */
int seccomp_role_install(unsigned groups, struct err *e);

#endif
