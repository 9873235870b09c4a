/*
 * trees.c - the btrfs that holds the writable trees of sandboxes
 */
#include "keeper/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "sys/btrfs.h"
#include "sys/fd.h"
#include "sys/loopdev.h"

#define IMAGE "trees.img"
#define IMAGE_NEW "trees.img.new"

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
    if (ftruncate(fd, (off_t)c->trees_bytes) < 0)
        return err_sys(e, errno, "size %s/" IMAGE_NEW, c->data_dir);
    snprintf(path, sizeof path, "%s/" IMAGE_NEW, c->data_dir);
    log_info("trees", "making a file system in %s, %llu bytes, sparse", path,
             (unsigned long long)c->trees_bytes);
    if (run_mkfs(path, e) < 0)
        return -1;
    if (fsync(fd) < 0 || renameat(data_fd, IMAGE_NEW, data_fd, IMAGE) < 0)
        return err_sys(e, errno, "finish %s/" IMAGE, c->data_dir);
    return 0;
}

int trees_mount(const struct conf *c, int data_fd, struct err *e)
{
    char path[sizeof c->data_dir + 32], device[32];
    auto_close int loop = -1;
    auto_close int trees = openat(data_fd, "trees", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (trees < 0)
        return err_sys(e, errno, "open %s/trees", c->data_dir);
    if (is_mounted(data_fd, trees)) {
        if (!btrfs_is(trees))
            return err_set(e, ERR_CONFLICT, "%s/trees is a mount of something that is not btrfs",
                           c->data_dir);
        return 0;
    }
    auto_close int image = openat(data_fd, IMAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
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
    snprintf(path, sizeof path, "%s/trees", c->data_dir);
    /* Not noexec: programs are mapped from here, and the flag of this mount would forbid it. */
    if (mount(device, path, "btrfs", MS_NOSUID | MS_NODEV | MS_NOATIME, "") < 0)
        return err_sys(e, errno, "mount %s on %s", device, path);
    return 0;
}

void trees_unmount(const struct conf *c)
{
    char path[sizeof c->data_dir + 32];

    snprintf(path, sizeof path, "%s/trees", c->data_dir);
    if (umount2(path, 0) < 0 && errno != EINVAL)
        log_info("trees", "%s stays mounted: errno %d", path, errno);
}
