/*
 * loopdev.c - a file as a block device
 */
#include "sys/loopdev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "sys/fd.h"

#define TRIES 32 /* others may take the free device first */

static int find(const struct stat *file, char *ret_path, size_t size, int *ret_fd)
{
    DIR *dir = opendir("/dev");
    const struct dirent *de;
    int found = -ENOENT;

    if (dir == NULL)
        return -errno;
    while (found == -ENOENT && (de = readdir(dir)) != NULL) {
        char path[300];
        struct loop_info64 info;

        if (strncmp(de->d_name, "loop", 4) != 0 || de->d_name[4] < '0' || de->d_name[4] > '9')
            continue;
        snprintf(path, sizeof path, "/dev/%s", de->d_name);
        auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
            continue;
        if (info.lo_device != file->st_dev || info.lo_inode != file->st_ino)
            continue;
        if (strlen(path) >= size) {
            found = -ENAMETOOLONG;
            break;
        }
        memcpy(ret_path, path, strlen(path) + 1);
        *ret_fd = take_fd(&fd);
        found = 0;
    }
    (void)closedir(dir);
    return found;
}

/* Direct I/O spares a second copy of every page; not every backing file system has it. */
static int configure(int fd, int backing_fd)
{
    struct loop_config config = {
        .fd = (unsigned)backing_fd,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO},
    };

    if (ioctl(fd, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno == EBUSY)
        return -EBUSY;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    return ioctl(fd, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

int loopdev_get(int backing_fd, char *ret_path, size_t size, int *ret_fd)
{
    struct stat file;

    if (fstat(backing_fd, &file) < 0)
        return -errno;
    int r = find(&file, ret_path, size, ret_fd);
    if (r != -ENOENT)
        return r;
    auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return -errno;
    for (int i = 0; i < TRIES; i++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            return -errno;
        if (snprintf(ret_path, size, "/dev/loop%d", n) >= (int)size)
            return -ENAMETOOLONG;
        auto_close int fd = open(ret_path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        r = configure(fd, backing_fd);
        if (r == 0) {
            *ret_fd = take_fd(&fd);
            return 0;
        }
        if (r != -EBUSY)
            return r;
    }
    return -EBUSY;
}
