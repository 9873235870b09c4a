/*
 * fd.c - descriptor helpers; with init, the only place that calls close()
 */
#include "sys/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd);       /* on Linux the descriptor is gone whatever close() says */
        errno = saved;
    }
    *fd = -1;
}

int fd_write_all(int fd, const void *p, size_t n)
{
    const char *at = p;

    while (n > 0) {
        ssize_t w = write(fd, at, n);
        if (w < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        at += w;
        n -= (size_t)w;
    }
    return 0;
}

ssize_t fd_read_all(int fd, void *p, size_t size)
{
    size_t len = 0;

    for (;;) {
        char extra;
        bool full = len == size;
        ssize_t r = read(fd, full ? &extra : (char *)p + len, full ? 1 : size - len);
        if (r < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (r == 0)
            return (ssize_t)len;
        if (full)
            return -EFBIG;
        len += (size_t)r;
    }
}

int fd_write_at(int dirfd, const char *name, const char *text)
{
    auto_close int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return fd_write_all(fd, text, strlen(text));
}

ssize_t fd_read_at(int dirfd, const char *name, char *out, size_t size)
{
    auto_close int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    ssize_t n = fd_read_all(fd, out, size - 1);
    if (n < 0)
        return n;
    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    return n;
}

bool fd_is_listener(int fd)
{
    int on = 0;
    socklen_t n = sizeof on;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) == 0 && on != 0;
}

int fd_raise_limit(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return -errno;
    l.rlim_cur = l.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &l) < 0 ? -errno : 0;
}

int fd_set_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -errno;
    if (((flags & O_NONBLOCK) != 0) == on)
        return 0;
    return fcntl(fd, F_SETFL, flags ^ O_NONBLOCK) < 0 ? -errno : 0;
}

int fd_set_cloexec(int fd, bool on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

int fd_replace_file(int dirfd, const char *name, const void *p, size_t n, mode_t mode, bool sync)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash != NULL ? slash + 1 : name;
    char tmp[600];

    if (snprintf(tmp, sizeof tmp, "%.*s.%s.tmp", (int)(base - name), name, base) >= (int)sizeof tmp)
        return -ENAMETOOLONG;
    auto_close int fd =
        openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, p, n);
    if (r == 0 && sync && fsync(fd) < 0)
        r = -errno;
    if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(dirfd, tmp, 0);
    return r;
}
