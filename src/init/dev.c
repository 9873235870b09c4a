/*
 * dev.c - the /dev tree of a slot
 *
 * Device nodes cannot be made in a user namespace, so the six usual ones are binds of a directory that
 * the builder of the slot filled; the rest is ours, on the staging tmpfs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

static const char *const nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};

static const struct {
    const char *name, *target;
} links[] = {
    {"fd", "/proc/self/fd"},
    {"stdin", "/proc/self/fd/0"},
    {"stdout", "/proc/self/fd/1"},
    {"stderr", "/proc/self/fd/2"},
    {"ptmx", "pts/ptmx"},
};

/* The directory of nodes at staging/nodes: a detached clone is moved, anything else is cloned first. */
static int nodes_attach(struct fault *f)
{
    if (mkdir("nodes", 0755) < 0)
        return fault_set(f, "dev nodes");
    if (k_move_mount(INIT_FD_DEV, "", AT_FDCWD, "nodes") < 0) {
        auto_close int tree = k_open_tree(INIT_FD_DEV, "", AT_EMPTY_PATH | OPEN_TREE_CLONE);
        if (tree < 0 || k_move_mount(tree, "", AT_FDCWD, "nodes") < 0)
            return fault_set(f, "dev nodes");
    }
    return 0;
}

static int node_bind(const char *name, struct fault *f)
{
    char from[32], to[32];

    snprintf(from, sizeof from, "nodes/%s", name);
    snprintf(to, sizeof to, "dev/%s", name);
    auto_close int file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    auto_close int tree = k_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE);
    if (file < 0 || tree < 0 || k_move_mount(tree, "", AT_FDCWD, to) < 0)
        return fault_set(f, to);
    return 0;
}

/* A bind of `from` (below staging) on dev/`name`, which is made. */
static int directory_bind(const char *from, const char *to, uint64_t attributes, struct fault *f)
{
    if (mkdir(to, 0755) < 0)
        return fault_set(f, to);
    auto_close int tree = k_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE);
    if (tree < 0 || k_mount_setattr(tree, "", AT_EMPTY_PATH, attributes) < 0 ||
        k_move_mount(tree, "", AT_FDCWD, to) < 0)
        return fault_set(f, to);
    return 0;
}

static int mqueue_mount(struct fault *f)
{
    if (mkdir("dev/mqueue", 0755) < 0 ||
        k_mount("mqueue", "dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return fault_set(f, "mqueue");
    return 0;
}

int dev_build(struct init *in, struct fault *f)
{
    /* dev is a mount of its own, so that the finished tree moves in one call. */
    auto_close int self = k_open_tree(AT_FDCWD, "dev", OPEN_TREE_CLONE);
    if (self < 0 || k_move_mount(self, "", AT_FDCWD, "dev") < 0)
        return fault_set(f, "dev");
    if (nodes_attach(f) < 0)
        return -1;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (node_bind(nodes[i], f) < 0)
            return -1;
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        char to[32];
        snprintf(to, sizeof to, "dev/%s", links[i].name);
        if (symlink(links[i].target, to) < 0)
            return fault_set(f, to);
    }
    if (figures_bind(in, f) < 0)
        return -1;
    if (k_umount2("nodes", KERNEL_MNT_DETACH) < 0)
        return fault_set(f, "dev nodes");
    if (directory_bind("shm", "dev/shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                       f) < 0 ||
        mqueue_mount(f) < 0)
        return -1;
    if (mkdir("dev/pts", 0755) < 0 || k_move_mount(INIT_FD_DEVPTS, "", AT_FDCWD, "dev/pts") < 0)
        return fault_set(f, "devpts");
    (void)close(INIT_FD_DEVPTS);
    (void)close(INIT_FD_DEV);
    return 0;
}
