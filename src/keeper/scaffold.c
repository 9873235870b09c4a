/*
 * scaffold.c - the read-only layer of ours on top of every image
 *
 * The layer is a directory named after a hash of quicksand-init, because it carries a copy of it. A new
 * version is made beside the old one and renamed when complete; sandboxes go on using the one they
 * have mounted.
 */
#include "keeper/scaffold.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "keeper/keeper.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

#define FNV_BASIS 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL

static const char *const directories[] = {
    "proc", "dev", "sys", "sys/fs", "sys/fs/cgroup", "etc", "__modal", "__modal/.bin",
};
static const char *const files[] = {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/machine-id"};
static const char *const programs[] = {"__modal/.bin/modal-sandbox-fs-tools",
                                       "__modal/.bin/quicksand-init"};

/* Reads the program from its start; hashes it, and writes it to `out` unless that is -1. */
static int copy_program(int out, uint64_t *ret_hash)
{
    unsigned char block[16384];
    uint64_t hash = FNV_BASIS;
    off_t at = 0;

    for (;;) {
        ssize_t n = pread(keeper.init_exe, block, sizeof block, at);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            hash = (hash ^ block[i]) * FNV_PRIME;
        if (out >= 0) {
            int r = fd_write_all(out, block, (size_t)n);
            if (r < 0)
                return r;
        }
        at += n;
    }
    *ret_hash = hash;
    return 0;
}

static int make_file(int root, const char *name, mode_t mode)
{
    int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);

    return fd < 0 ? -errno : fd;
}

static int fill(int root)
{
    uint64_t hash;

    for (size_t i = 0; i < array_len(directories); i++)
        if (mkdirat(root, directories[i], 0755) < 0)
            return -errno;
    for (size_t i = 0; i < array_len(files); i++) {
        auto_close int fd = make_file(root, files[i], 0644);
        if (fd < 0)
            return fd;
    }
    for (size_t i = 0; i < array_len(programs); i++) {
        auto_close int fd = make_file(root, programs[i], 0755);
        int r = fd < 0 ? fd : copy_program(fd, &hash);
        if (r < 0)
            return r;
    }
    return 0;
}

static void remove_others(int home, const char *keep)
{
    int fd = openat(home, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *de;

    if (dir == NULL)
        return;
    while ((de = readdir(dir)) != NULL)
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 && strcmp(de->d_name, keep) != 0)
            (void)rmtree(home, de->d_name);     /* what stays is tried again at the next start */
    (void)closedir(dir);
}

int scaffold_prepare(unsigned sandboxes, struct err *e)
{
    char name[24], fresh[32];
    uint64_t hash;
    auto_close int home = openat(keeper.data_fd, "scaffold", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (home < 0)
        return err_sys(e, errno, "open scaffold");
    int r = copy_program(-1, &hash);
    if (r < 0)
        return err_sys(e, -r, "read quicksand-init");
    snprintf(name, sizeof name, "%016" PRIx64, hash);
    if (sandboxes == 0)
        remove_others(home, name);
    keeper.scaffold_fd = openat(home, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (keeper.scaffold_fd >= 0)
        return 0;
    snprintf(fresh, sizeof fresh, ".new-%s", name);
    r = rmtree(home, fresh);
    if (r == 0 && mkdirat(home, fresh, 0755) < 0)
        r = -errno;
    auto_close int root = r < 0 ? -1 : openat(home, fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0)
        r = root < 0 ? -errno : fill(root);
    if (r == 0 && renameat(home, fresh, home, name) < 0)
        r = -errno;
    if (r < 0)
        return err_sys(e, -r, "make scaffold layer %s", name);
    keeper.scaffold_fd = take_fd(&root);
    return 0;
}
