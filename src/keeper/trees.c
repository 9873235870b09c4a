/*
 * trees.c - the btrfs that holds the writable trees of sandboxes
 *
 * It lies in a file whose blocks are all allocated, and grows in steps while the disk has room beyond a reserve: a loop device
 * that meets a full disk makes btrfs give up writing for good, so it must never ask for a block that is not there. Sandboxes that
 * fill it are told that no space is left, and go on.
 */
#include "keeper/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "keeper/keeper.h"
#include "keeper/sandbox.h"
#include "sys/btrfs.h"
#include "sys/fd.h"
#include "sys/loopdev.h"

#define IMAGE "trees.img"
#define IMAGE_NEW "trees.img.new"
#define FIRST_BYTES (4ULL << 30)        /* of a new image, at most a quarter of what the disk has */
#define LEAST_BYTES (256ULL << 20)
#define HEADROOM_MOST (2ULL << 30)      /* free space below which it grows: more than is written between two looks; */
#define HEADROOM_PART 16                /* of a small disk this part, or images would find no room */
#define STEP (1ULL << 30)
#define STEP_LEAST (64ULL << 20)
#define RESERVE_MOST (2ULL << 30)       /* of the disk, for output, state and logs: a twentieth, at most this */
#define LOOK_MS 100
#define LOOK_IDLE_MS 1000
#define RECLAIM_MS 1000

static int image_fd = -1, loop_fd = -1;
static uint64_t image_bytes;
static bool resize_is_due;              /* the file and the device have grown, the file system has not */

static void look(struct timer *t);
static struct timer timer = {.due = look};

/* What of the disk the image may take yet. */
static uint64_t disk_room(int data_fd)
{
    struct statvfs s;

    if (fstatvfs(data_fd, &s) < 0)
        return 0;
    uint64_t reserve = (uint64_t)s.f_blocks * s.f_frsize / 20, free = (uint64_t)s.f_bavail * s.f_frsize;
    if (reserve > RESERVE_MOST)
        reserve = RESERVE_MOST;
    return free > reserve ? free - reserve : 0;
}

static bool is_mounted(int data_fd, int trees_fd)
{
    struct stat outer, inner;

    return fstat(data_fd, &outer) == 0 && fstat(trees_fd, &inner) == 0 &&
           outer.st_dev != inner.st_dev;
}

static int run_mkfs(const char *image, struct err *e)
{
    char *const argv[] = {
        "mkfs.btrfs", "-q", "-m", "single", "-d", "single", (char *)(uintptr_t)image, NULL};
    char *const envp[] = {"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LANG=C.UTF-8", NULL};
    static const char *const programs[] = {"/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs",
                                           "/usr/bin/mkfs.btrfs"};
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (pid == 0) {
        /* Its notes on defaults are not for our log; its errors are. */
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0)
            (void)dup2(null, 1);
        for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
            (void)execve(programs[i], argv, envp);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(e, errno, "wait for mkfs.btrfs");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(e, ERR_UNSUPPORTED, "mkfs.btrfs is not installed (package btrfs-progs)");
    if (status != 0)
        return err_set(e, ERR_INTERNAL, "mkfs.btrfs of %s failed with status %d", image, status);
    return 0;
}

/* Made under another name and renamed when complete: a start cut short leaves nothing half-made in use. */
static int make_image(const struct conf *c, int data_fd, struct err *e)
{
    char path[sizeof c->data_dir + 32];
    int flags = 0;

    auto_close int fd = openat(data_fd, IMAGE_NEW, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "create %s/" IMAGE_NEW, c->data_dir);
    /* On a copy-on-write host every block would be copied twice; others do not know the flag. */
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && btrfs_is(fd)) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
    uint64_t bytes = disk_room(data_fd) / 4;
    if (bytes > FIRST_BYTES)
        bytes = FIRST_BYTES;
    if (bytes < LEAST_BYTES)
        bytes = LEAST_BYTES;
    if (bytes > c->trees_bytes)
        bytes = c->trees_bytes;
    bytes &= ~(STEP_LEAST - 1);
    if (fallocate(fd, 0, 0, (off_t)bytes) < 0) {
        if (errno != EOPNOTSUPP)
            return err_sys(e, errno, "make room for %" PRIu64 " bytes in %s/" IMAGE_NEW, bytes, c->data_dir);
        log_warn("trees", "%s cannot allocate ahead: keep it from running full", c->data_dir);
        if (ftruncate(fd, (off_t)c->trees_bytes) < 0)
            return err_sys(e, errno, "size %s/" IMAGE_NEW, c->data_dir);
    }
    snprintf(path, sizeof path, "%s/" IMAGE_NEW, c->data_dir);
    log_info("trees", "making a file system in %s; it grows up to %" PRIu64 " bytes", path, c->trees_bytes);
    if (run_mkfs(path, e) < 0)
        return -1;
    if (fsync(fd) < 0 || renameat(data_fd, IMAGE_NEW, data_fd, IMAGE) < 0)
        return err_sys(e, errno, "finish %s/" IMAGE, c->data_dir);
    return 0;
}

/* An image from elsewhere may have holes; they are filled if the disk has the room. */
static void fill_holes(const struct conf *c, int data_fd, int image)
{
    struct stat st;

    if (fstat(image, &st) < 0)
        return;
    image_bytes = (uint64_t)st.st_size;
    uint64_t has = (uint64_t)st.st_blocks * 512;
    if (has >= image_bytes)
        return;
    if (image_bytes - has > disk_room(data_fd) || fallocate(image, 0, 0, st.st_size) < 0)
        log_warn("trees", "%s/" IMAGE " has holes that cannot be filled: keep the disk from running full", c->data_dir);
}

static int mount_image(const struct conf *c, const char *device, struct err *e)
{
    char path[sizeof c->data_dir + 32];

    snprintf(path, sizeof path, "%s/trees", c->data_dir);
    /* Not noexec: programs are mapped from here, and the flag of this mount would forbid it. No discards: they make holes. */
    if (mount(device, path, "btrfs", MS_NOSUID | MS_NODEV | MS_NOATIME, "nodiscard") < 0)
        return err_sys(e, errno, "mount %s on %s", device, path);
    return 0;
}

int trees_mount(const struct conf *c, int data_fd, struct err *e)
{
    char device[32];
    auto_close int loop = -1;
    auto_close int trees = openat(data_fd, "trees", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (trees < 0)
        return err_sys(e, errno, "open %s/trees", c->data_dir);
    bool mounted = is_mounted(data_fd, trees);
    if (mounted && !btrfs_is(trees))
        return err_set(e, ERR_CONFLICT, "%s/trees is a mount of something that is not btrfs",
                       c->data_dir);
    auto_close int image = openat(data_fd, IMAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (image < 0 && mounted)
        return 0;           /* a disk of its own, which does not grow */
    if (image < 0 && errno == ENOENT) {
        if (make_image(c, data_fd, e) < 0)
            return -1;
        image = openat(data_fd, IMAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (image < 0)
        return err_sys(e, errno, "open %s/" IMAGE, c->data_dir);
    int r = loopdev_get(image, device, sizeof device, &loop);
    if (r < 0)
        return err_sys(e, -r, "attach %s/" IMAGE " to a loop device", c->data_dir);
    fill_holes(c, data_fd, image);
    if (!mounted && mount_image(c, device, e) < 0)
        return -1;
    image_fd = take_fd(&image);
    loop_fd = take_fd(&loop);
    resize_is_due = mounted;            /* an earlier keeper may have been killed half-way */
    return 0;
}

/* Says once why it does not grow. */
static void complain(const char *step, int error)
{
    static int said;

    if (said != error)
        log_warn("trees", "%s: errno %d; sandboxes may find no space left", step, error);
    said = error;
}

uint64_t trees_growable(void)
{
    uint64_t room = image_fd >= 0 ? disk_room(keeper.data_fd) : 0;
    uint64_t most = keeper.conf.trees_bytes > image_bytes ? keeper.conf.trees_bytes - image_bytes : 0;

    return room < most ? room : most;
}

static void grow(void)
{
    struct btrfs_ioctl_vol_args args = {.name = "max"};

    if (!resize_is_due) {
        uint64_t step = trees_growable();
        if (step > STEP)
            step = STEP;
        step &= ~(STEP_LEAST - 1);
        if (step == 0)
            return;
        if (fallocate(image_fd, 0, (off_t)image_bytes, (off_t)step) < 0) {
            complain("make room in " IMAGE, errno);
            return;
        }
        image_bytes += step;
    }
    resize_is_due = true;
    if (ioctl(loop_fd, LOOP_SET_CAPACITY, 0) < 0)
        complain("grow the device of " IMAGE, errno);
    else if (ioctl(keeper.trees_fd, BTRFS_IOC_RESIZE, &args) < 0)
        complain("grow the file system in " IMAGE, errno);
    else
        resize_is_due = false;
}

static bool is_short(void)
{
    struct statvfs trees, disk;

    if (fstatvfs(keeper.trees_fd, &trees) < 0 || fstatvfs(keeper.data_fd, &disk) < 0)
        return false;
    uint64_t headroom = (uint64_t)disk.f_blocks * disk.f_frsize / HEADROOM_PART;
    if (headroom > HEADROOM_MOST)
        headroom = HEADROOM_MOST;
    return (uint64_t)trees.f_bavail * trees.f_frsize < headroom;
}

/* btrfs gives back the space of removed trees after a commit, and makes one each half a minute: too late when it is short. */
static void reclaim(void)
{
    static int64_t next_ms;
    int64_t now = clock_boot_ms();

    if (now < next_ms)
        return;
    next_ms = now + RECLAIM_MS;
    (void)ioctl(keeper.trees_fd, BTRFS_IOC_START_SYNC, NULL);      /* only starts it */
}

static void look(struct timer *t)
{
    bool short_of = is_short();

    if (resize_is_due || short_of)
        grow();
    if (short_of)
        reclaim();
    evloop_timer(&keeper.loop, t, sandbox_alive() > 0 ? LOOK_MS : LOOK_IDLE_MS);
}

void trees_watch(void)
{
    if (image_fd >= 0)
        look(&timer);
}

void trees_close(void)
{
    fd_close(&image_fd);
    fd_close(&loop_fd);
}

void trees_unmount(const struct conf *c)
{
    char path[sizeof c->data_dir + 32];

    evloop_timer_stop(&keeper.loop, &timer);
    trees_close();
    snprintf(path, sizeof path, "%s/trees", c->data_dir);
    if (umount2(path, 0) < 0 && errno != EINVAL)
        log_info("trees", "%s stays mounted: errno %d", path, errno);
}
