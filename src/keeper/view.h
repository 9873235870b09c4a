/*
 * view.h - a file tree of one's own
 *
 * Called by the spawner for itself and by its children on their way to become a role (role_view.c says who sees what). The
 * rest of the host is not there to be opened, whatever the rights of a program are; and its mounts are not kept busy by a
 * copy of them.
 */
#ifndef QS_KEEPER_VIEW_H
#define QS_KEEPER_VIEW_H

#include <stddef.h>

enum {
    VIEW_WRITE = 1,     /* else read-only */
    VIEW_TREE = 2,      /* with what is mounted below it */
    VIEW_NODES = 4,     /* device nodes in it can be used */
    VIEW_EXEC = 8,      /* programs in it can be executed */
    VIEW_NEEDED = 16,   /* its absence is an error, else it is left out */
};

struct view_entry {
    const char *path;   /* absolute: the same inside; "" = passed over */
    unsigned flags;
    int mount;          /* > 0: this detached mount is put there instead; borrowed */
};

/*
 * The caller has a mount namespace of its own. Everything in `entries` is shown at its place in a new root, links as links;
 * then the old root is left and `base`, any directory that exists and is not shown, was only where the new one was built. 0
 * or -errno.
 */
int view_enter(const char *base, const struct view_entry *entries, size_t n);

#endif
