/*
 * objects.c - device nodes and the /sys tree
 */
#include "keeper/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "keeper/keeper.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"

/* Read-only, so that owners and modes cannot change; writing to a device is no write to its mount. */
#define DEV_ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
#define SYS_ATTRIBUTES (DEV_ATTRIBUTES | MOUNT_ATTR_NODEV)

static const struct {
    const char *name;
    unsigned major, minor;
} nodes[] = {{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

/* Init binds the host's subtrees on some of these (init/sys.c); the others are there to be listed. */
static const char *const directories[] = {
    "sys", "sys/block", "sys/bus", "sys/class", "sys/class/block", "sys/class/net", "sys/dev",
    "sys/dev/block", "sys/dev/char", "sys/devices", "sys/devices/system",
    "sys/devices/system/clocksource", "sys/devices/system/cpu", "sys/devices/system/node",
    "sys/devices/virtual", "sys/devices/virtual/net", "sys/devices/virtual/net/lo", "sys/firmware", "sys/fs",
    "sys/fs/cgroup", "sys/kernel", "sys/kernel/mm", "sys/kernel/mm/hugepages",
    "sys/kernel/mm/transparent_hugepage", "sys/module", "sys/power",
};

/* The loopback interface, which is the only one there is; as the kernel shows it. */
static const struct {
    const char *name, *text;
} loopback[] = {
    {"addr_assign_type", "0\n"}, {"addr_len", "6\n"},     {"address", "00:00:00:00:00:00\n"},
    {"broadcast", "00:00:00:00:00:00\n"},                 {"carrier", "1\n"},
    {"dev_id", "0x0\n"},         {"dev_port", "0\n"},     {"dormant", "0\n"},
    {"flags", "0x9\n"},          {"ifalias", "\n"},       {"ifindex", "1\n"},
    {"iflink", "1\n"},           {"link_mode", "0\n"},    {"mtu", "65536\n"},
    {"netdev_group", "0\n"},     {"operstate", "unknown\n"}, {"tx_queue_len", "1000\n"},
    {"type", "772\n"},           {"uevent", "INTERFACE=lo\nIFINDEX=1\n"},
};

#define X(name) name,
static const char *const figures[OBJECTS_FIGURES] = {FIGURES(X)};
#undef X

static int fill_sys(int root)
{
    char name[64];

    for (size_t i = 0; i < array_len(directories); i++)
        if (mkdirat(root, directories[i], 0755) < 0)
            return -errno;
    for (size_t i = 0; i < array_len(loopback); i++) {
        snprintf(name, sizeof name, "sys/devices/virtual/net/lo/%s", loopback[i].name);
        auto_close int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        int r = fd < 0 ? -errno : fd_write_all(fd, loopback[i].text, strlen(loopback[i].text));
        if (r < 0)
            return r;
    }
    return symlinkat("../../devices/virtual/net/lo", root, "sys/class/net/lo") < 0 ? -errno : 0;
}

int objects_make(struct err *e)
{
    /* Without limits it tells nobody by its free space how much others use. */
    static const struct mount_option options[] = {
        {"source", "tmpfs"}, {"mode", "0711"}, {"size", "0"}, {"nr_inodes", "0"},
    };
    auto_close int fd = mount_new("tmpfs", options, array_len(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);

    if (fd < 0)
        return err_sys(e, -fd, "make a tmpfs for device nodes");
    int r = fill_sys(fd);
    if (r < 0)
        return err_sys(e, -r, "make the /sys tree");
    keeper.objects_fd = take_fd(&fd);
    return 0;
}

int objects_attach(void)
{
    char path[sizeof keeper.conf.data_dir + 16];

    /* Any directory that is always there; nobody looks for it by its name. */
    snprintf(path, sizeof path, "%s/keeper", keeper.conf.data_dir);
    return move_mount(keeper.objects_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int make_nodes(int dir, uint32_t owner)
{
    for (size_t i = 0; i < array_len(nodes); i++)
        if (mknodat(dir, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0 ||
            fchmodat(dir, nodes[i].name, 0666, 0) < 0 || fchownat(dir, nodes[i].name, owner, owner, 0) < 0)
            return -errno;
    return 0;
}

static int make_figures(int dir, uint32_t owner)
{
    for (size_t i = 0; i < array_len(figures); i++) {
        auto_close int fd = openat(dir, figures[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (fd < 0 || fchown(fd, owner, owner) < 0)
            return -errno;
    }
    return 0;
}

int objects_figure(uint32_t slot, int which)
{
    char name[32];

    snprintf(name, sizeof name, "%" PRIu32 "/%s", slot, figures[which]);
    int fd = openat(keeper.objects_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

int objects_dev(uint32_t slot, uint32_t owner, int *ret_mount, struct err *e)
{
    char name[16];

    /* The number tells no more than the sandbox's own map of ids does. */
    snprintf(name, sizeof name, "%" PRIu32, slot);
    if (mkdirat(keeper.objects_fd, name, 0755) < 0)
        return err_sys(e, errno, "make a directory of device nodes");
    auto_close int dir = openat(keeper.objects_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir < 0 ? -errno : make_nodes(dir, owner);
    if (r == 0)
        r = make_figures(dir, owner);
    if (r < 0)
        return err_sys(e, -r, "make device nodes");
    *ret_mount = mount_clone(keeper.objects_fd, name, DEV_ATTRIBUTES, -1);
    return *ret_mount < 0 ? err_sys(e, -*ret_mount, "clone the device nodes") : 0;
}

int objects_sys(int *ret_mount, struct err *e)
{
    *ret_mount = mount_clone(keeper.objects_fd, "sys", SYS_ATTRIBUTES, -1);
    return *ret_mount < 0 ? err_sys(e, -*ret_mount, "clone the /sys tree") : 0;
}

void objects_forget(uint32_t slot)
{
    char name[16];

    snprintf(name, sizeof name, "%" PRIu32, slot);
    auto_close int dir = openat(keeper.objects_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return;                 /* a sandbox that a former keeper made */
    for (size_t i = 0; i < array_len(nodes); i++)
        (void)unlinkat(dir, nodes[i].name, 0);
    for (size_t i = 0; i < array_len(figures); i++)
        (void)unlinkat(dir, figures[i], 0);
    (void)unlinkat(keeper.objects_fd, name, AT_REMOVEDIR);
}
