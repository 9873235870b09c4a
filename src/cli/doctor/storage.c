/*
 * storage.c - where layers and writable trees are to lie: btrfs, loop devices, space and inodes
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/btrfs.h"
#include "sys/fd.h"

#define MIB (1024.0 * 1024)
#define SPACE_LEAST (1ULL << 30)        /* the first tree image and a small layer */
#define SPACE_WANTED (10ULL << 30)
#define INODES_LEAST 20000              /* of one small Debian image */
#define INODES_WANTED 200000
#define TMPFS 0x01021994

static bool kernel_knows(const char *type)
{
    FILE *f = fopen("/proc/filesystems", "re");
    char line[64], name[48];
    bool found = false;

    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = sscanf(line, "%*[^\t]\t%47s", name) == 1 || sscanf(line, "\t%47s", name) == 1
                    ? strcmp(name, type) == 0 : false;
    (void)fclose(f);
    return found;
}

static void btrfs(struct doctor *d, bool is_mounted)
{
    char path[64];

    if (kernel_knows("btrfs") || doctor_has_module("btrfs"))
        doctor_ok(d, "btrfs", is_mounted ? "mounted" : "in this kernel");
    else
        doctor_bad(d, "btrfs", FINDING_MISSING, "quicksandd does not start: writable trees are subvolumes",
                   "apt-get install linux-image-amd64 && reboot", "not in this kernel");
    if (is_mounted)
        return;
    if (doctor_has_program("mkfs.btrfs", path, sizeof path))
        doctor_ok(d, "mkfs.btrfs", "%s", path);
    else
        doctor_bad(d, "mkfs.btrfs", FINDING_MISSING, "quicksandd does not start: it makes the file system of the writable trees",
                   "apt-get install btrfs-progs", "not installed");
    if (access("/dev/loop-control", R_OK | W_OK) == 0)
        doctor_ok(d, "loop", "/dev/loop-control");
    else if (geteuid() == 0)
        doctor_bad(d, "loop", FINDING_MISSING, "quicksandd does not start, unless a btrfs is mounted at data_dir/trees",
                   "modprobe loop && echo loop >/etc/modules-load.d/loop.conf", "/dev/loop-control: %s", strerror(errno));
}

static void space(struct doctor *d, const char *place)
{
    struct statvfs s;
    char fix[400];

    if (statvfs(place, &s) < 0) {
        doctor_bad(d, "disk", FINDING_MISSING, "quicksandd does not start", "", "%s: %s", place, strerror(errno));
        return;
    }
    uint64_t room = (uint64_t)s.f_bavail * s.f_frsize;
    snprintf(fix, sizeof fix, "free space on the disk of %s, or set data_dir to a directory on a larger one", place);
    if (room < SPACE_WANTED)
        doctor_bad(d, "disk", room < SPACE_LEAST ? FINDING_MISSING : FINDING_DEGRADED,
                   room < SPACE_LEAST ? "there is no room for an image and a sandbox" : "room for few images and little data",
                   fix, "%.0f MiB free at %s", (double)room / MIB, place);
    else
        doctor_ok(d, "disk", "%.0f MiB free at %s", (double)room / MIB, place);
    /* Some file systems make them as they are needed, and say 0. */
    if (s.f_files == 0)
        return;
    if (s.f_favail < INODES_WANTED)
        doctor_bad(d, "inodes", s.f_favail < INODES_LEAST ? FINDING_MISSING : FINDING_DEGRADED,
                   s.f_favail < INODES_LEAST ? "an image cannot be unpacked" : "room for few images", fix,
                   "%" PRIu64 " free at %s", (uint64_t)s.f_favail, place);
    else
        doctor_ok(d, "inodes", "%" PRIu64 " free at %s", (uint64_t)s.f_favail, place);
}

/* tmpfs is lost at a reboot, and its contents are memory. */
static void kind(struct doctor *d, const char *place)
{
    struct statfs s;

    if (statfs(place, &s) == 0 && s.f_type == TMPFS)
        doctor_bad(d, "data_dir", FINDING_DEGRADED, "images and records are memory, and gone after a reboot",
                   "set data_dir in the configuration to a directory on a disk", "%s is a tmpfs", place);
    else
        doctor_ok(d, "data_dir", "%s%s%s%s", d->conf.data_dir, strcmp(place, d->conf.data_dir) == 0 ? "" : " (to be made in ",
                  strcmp(place, d->conf.data_dir) == 0 ? "" : place, strcmp(place, d->conf.data_dir) == 0 ? "" : ")");
}

/* What sandboxes get of the directory keeps the flags of its mount. */
static void flags(struct doctor *d, const char *place)
{
    static const struct {
        unsigned long flag;
        const char *name, *opposite, *cost;
        enum finding state;
    } rows[] = {
        {ST_RDONLY, "ro", "rw", "nothing can be kept", FINDING_MISSING},
        {ST_NOEXEC, "noexec", "exec", "no program of an image can be started", FINDING_MISSING},
        {ST_NODEV, "nodev", "dev", "/dev/null and its like do not work in sandboxes", FINDING_MISSING},
        {ST_NOSUID, "nosuid", "suid", "sudo and its like do not work in sandboxes", FINDING_DEGRADED},
    };
    enum finding worst = FINDING_OK;
    char have[64] = "", cost[300] = "", fix[400];
    size_t n, h = 0, c = 0;
    struct statvfs s;

    if (statvfs(place, &s) < 0)
        return;
    n = (size_t)snprintf(fix, sizeof fix, "mount -o remount");
    for (size_t i = 0; i < array_len(rows); i++) {
        if ((s.f_flag & rows[i].flag) == 0)
            continue;
        h += (size_t)snprintf(have + h, sizeof have - h, "%s%s", h == 0 ? "" : ",", rows[i].name);
        c += (size_t)snprintf(cost + c, sizeof cost - c, "%s%s", c == 0 ? "" : "; ", rows[i].cost);
        n += (size_t)snprintf(fix + n, sizeof fix - n, ",%s", rows[i].opposite);
        worst = rows[i].state > worst ? rows[i].state : worst;
    }
    snprintf(fix + n, sizeof fix - n, " $(findmnt -no TARGET -T %s), and the same in /etc/fstab", place);
    if (worst == FINDING_OK)
        doctor_ok(d, "mount_options", "nothing in the way");
    else
        doctor_bad(d, "mount_options", worst, cost, fix, "the file system of %s is mounted %s", place, have);
}

void doctor_check_storage(struct doctor *d)
{
    char place[sizeof d->conf.data_dir], trees[sizeof d->conf.data_dir + 8];
    struct stat outer, inner;

    doctor_existing_parent(d->conf.data_dir, place, sizeof place);
    snprintf(trees, sizeof trees, "%s/trees", d->conf.data_dir);
    auto_close int fd = open(trees, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool mounted = fd >= 0 && stat(place, &outer) == 0 && fstat(fd, &inner) == 0 && outer.st_dev != inner.st_dev;
    if (mounted && !btrfs_is(fd))
        doctor_bad(d, "trees", FINDING_MISSING, "quicksandd does not start", "umount it, or mount a btrfs there",
                   "%s is a mount of something that is not btrfs", trees);
    kind(d, place);
    flags(d, place);
    btrfs(d, mounted && btrfs_is(fd));
    space(d, place);
}
