/*
 * fd.h - descriptors: always close-on-exec, -1 is "none"
 */
#ifndef QS_SYS_FD_H
#define QS_SYS_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

void fd_close(int *fd);                 /* closes if >= 0 and sets -1; keeps errno */

static inline void fd_close_p(int *fd)
{
    fd_close(fd);
}

#define auto_close __attribute__((cleanup(fd_close_p), unused))
#define take_fd(p) ({ int tf_ = *(p); *(p) = -1; tf_; })

/* All or -errno; EINTR is retried, EAGAIN is an error. */
int fd_write_all(int fd, const void *p, size_t n);
/* Up to `size` bytes until end of file; returns the count or -errno (-EFBIG if there is more). */
ssize_t fd_read_all(int fd, void *p, size_t size);
/* Write a short text to `name` below `dirfd` (cgroup and proc files). 0 or -errno. */
int fd_write_at(int dirfd, const char *name, const char *text);
/* Read a short text, NUL-terminated, trailing newline removed. Length or -errno. */
ssize_t fd_read_at(int dirfd, const char *name, char *out, size_t size);
bool fd_is_listener(int fd);            /* a listening socket; false for whatever else has that number */
/* Allows this process as many descriptors as its hard limit does. 0 or -errno. */
int fd_raise_limit(void);
int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);
/* Atomic replace: temporary file in the same directory, fsync if asked, rename. 0 or -errno. */
int fd_replace_file(int dirfd, const char *name, const void *p, size_t n, mode_t mode, bool sync);

#endif
