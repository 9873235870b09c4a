/*
 * image_view.c - the file tree that the image role sees
 *
 * Called by role_child.c. The role unpacks what strangers send, so the host's files are none of its business; and a copy of
 * the host's mounts would keep trees busy that the keeper wants to unmount. The inherited mounts are locked to a less
 * privileged namespace (mount_namespaces(7)), so they cannot be unmounted one by one: the root is left instead.
 */
#include "keeper/image_view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "keeper/keeper.h"
#include "sys/fd.h"

/* What a dynamic program of ours needs; /proc is read by the sanitizers. Missing ones are left out. */
static const char *const system_dirs[] = {"usr", "bin", "lib", "lib32", "lib64", "etc", "dev", "proc"};

/* Makes the directories of an absolute path below the working directory; the last one too if `whole`. */
static int make_parents(const char *path, int whole)
{
    char part[PATH_MAX];

    for (const char *slash = path; slash != NULL;) {
        slash = strchr(slash + 1, '/');
        size_t n = slash != NULL ? (size_t)(slash - path) : strlen(path);
        if (slash == NULL && !whole)
            return 0;
        if (n >= sizeof part)
            return -ENAMETOOLONG;
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part + 1, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

/* A directory of the host at the same place; the links of a merged /usr stay links. */
static int show_system_dir(const char *name)
{
    char from[PATH_MAX], target[PATH_MAX];
    struct stat st;

    (void)snprintf(from, sizeof from, "/%s", name);
    if (lstat(from, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, target, sizeof target - 1);
        if (n < 0)
            return -errno;
        target[n] = '\0';
        return symlink(target, name) < 0 ? -errno : 0;
    }
    if (mkdir(name, 0755) < 0)
        return -errno;
    return mount(from, name, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

static int show_dir(const char *path)
{
    int r = make_parents(path, 1);

    if (r == 0 && mount(path, path + 1, NULL, MS_BIND | MS_REC, NULL) < 0)
        r = -errno;
    return r;
}

static int show_file(const char *path)
{
    int r = make_parents(path, 0);

    if (r < 0)
        return r;
    auto_close int fd = open(path + 1, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    return mount(path, path + 1, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

int image_view_enter(int layers)
{
    char path[sizeof keeper.conf.data_dir + 16];
    int r;

    (void)snprintf(path, sizeof path, "%s/layers", keeper.conf.data_dir);
    /* Any directory will do to put the new root on; this one exists and is left behind with the old one. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") < 0 || chdir(path) < 0)
        return -errno;
    for (size_t i = 0; i < array_len(system_dirs); i++) {
        r = show_system_dir(system_dirs[i]);
        if (r < 0)
            return r;
    }
    r = show_dir(keeper.conf.lib_dir);
    if (r == 0 && keeper.conf_path[0] == '/')
        r = show_file(keeper.conf_path);
    if (r == 0)
        r = make_parents(path, 1);
    if (r < 0)
        return r;
    if (move_mount(layers, "", AT_FDCWD, path + 1, MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}
