/*
 * path.c - paths and file contents
 */
#include "init/fs/path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sys/fd.h"

#define K_STATX_ATTR_MOUNT_ROOT 0x2000

char *path_trim(struct arena *a, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return arena_copy(a, path, n);
}

void path_split(struct arena *a, const char *path, char **ret_dir, const char **ret_name)
{
    const char *slash = strrchr(path, '/');

    *ret_name = slash + 1;
    *ret_dir = slash == path ? arena_copy(a, "/", 1) : arena_copy(a, path, (size_t)(slash - path));
}

int path_make(struct arena *a, const char *path, mode_t mode)
{
    char *p = path_trim(a, path);
    struct stat st;

    /* The usual case first: only the last one is missing, or nothing is. */
    if (mkdir(p, mode) == 0)
        return 0;
    for (char *at = p + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char was = *at;
        *at = '\0';
        if (mkdir(p, mode) < 0) {
            int error = errno;
            /* Parallel makers are fine, and so is EROFS or EACCES on what is there already. */
            if (stat(p, &st) < 0)
                return -(error == EEXIST ? errno : error);
            if (!S_ISDIR(st.st_mode))
                return -ENOTDIR;
        }
        *at = was;
        if (was == '\0')
            return 0;
    }
}

bool is_mount_root(int dirfd, const char *name)
{
    struct {
        uint32_t mask, blksize;
        uint64_t attributes;
        uint64_t rest[60];
    } x = {0};

    /* libc's own emulation would not tell. */
    return syscall(SYS_statx, dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &x) == 0 &&
           (x.attributes & K_STATX_ATTR_MOUNT_ROOT) != 0;
}

int path_guard(const char *trimmed, struct fs_error *e)
{
    const char *name = strrchr(trimmed, '/') + 1;

    if (name[0] == '\0')
        return fs_fail_kind(e, "Refused", "is the root directory");
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fs_fail_kind(e, "Refused", "ends in . or ..");
    if (is_mount_root(AT_FDCWD, trimmed))
        return fs_fail_kind(e, "Refused", "is a mount point");
    return 0;
}

static int copy_range(int from, int to, int64_t at, int64_t end)
{
    static char buffer[128 * 1024];

    while (at < end) {
        size_t want = end - at < (int64_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;
        ssize_t n = pread(from, buffer, want, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        for (ssize_t done = 0; done < n;) {
            ssize_t w = pwrite(to, buffer + done, (size_t)(n - done), at + done);
            if (w < 0 && errno != EINTR)
                return -errno;
            if (w > 0)
                done += w;
        }
        at += n;
    }
    return 0;
}

int copy_content(int from, int to, int64_t size)
{
    int64_t at = 0;

    while (at < size) {
        int64_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        int64_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (hole < 0) {                 /* a file system without holes */
            data = at;
            hole = size;
        }
        int r = copy_range(from, to, data, hole < size ? hole : size);
        if (r < 0)
            return r;
        at = hole;
    }
    return ftruncate(to, size) < 0 ? -errno : 0;
}

bool xattr_is_content(const char *name)
{
    return strncmp(name, "user.", 5) == 0 ? strncmp(name, "user.overlay.", 13) != 0
                                          : strcmp(name, "security.capability") == 0 ||
                                                strcmp(name, "system.posix_acl_access") == 0 ||
                                                strcmp(name, "system.posix_acl_default") == 0;
}

void copy_xattrs(int from, int to)
{
    static char names[64 * 1024], value[64 * 1024];
    ssize_t n = flistxattr(from, names, sizeof names);

    for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
        if (!xattr_is_content(p))
            continue;
        ssize_t len = fgetxattr(from, p, value, sizeof value);
        if (len >= 0)
            (void)fsetxattr(to, p, value, (size_t)len, 0);
    }
}

int spool_open(void)
{
    static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int fd = open(places[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fd;
    }
    return memfd_create("spool", MFD_CLOEXEC);
}
