/*
 * helpers.c - what many attempts need
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escape.h"

static const struct {
    int error;
    const char *name;
} names[] = {
    {EPERM, "EPERM"}, {ENOENT, "ENOENT"}, {ESRCH, "ESRCH"}, {EINTR, "EINTR"}, {EIO, "EIO"}, {ENXIO, "ENXIO"},
    {E2BIG, "E2BIG"}, {ENOEXEC, "ENOEXEC"}, {EBADF, "EBADF"}, {ECHILD, "ECHILD"}, {EAGAIN, "EAGAIN"},
    {ENOMEM, "ENOMEM"}, {EACCES, "EACCES"}, {EFAULT, "EFAULT"}, {ENOTBLK, "ENOTBLK"}, {EBUSY, "EBUSY"},
    {EEXIST, "EEXIST"}, {EXDEV, "EXDEV"}, {ENODEV, "ENODEV"}, {ENOTDIR, "ENOTDIR"}, {EISDIR, "EISDIR"},
    {EINVAL, "EINVAL"}, {ENFILE, "ENFILE"}, {EMFILE, "EMFILE"}, {ENOTTY, "ENOTTY"}, {ETXTBSY, "ETXTBSY"},
    {EFBIG, "EFBIG"}, {ENOSPC, "ENOSPC"}, {ESPIPE, "ESPIPE"}, {EROFS, "EROFS"}, {EMLINK, "EMLINK"},
    {EPIPE, "EPIPE"}, {ERANGE, "ERANGE"}, {EDEADLK, "EDEADLK"}, {ENAMETOOLONG, "ENAMETOOLONG"},
    {ENOSYS, "ENOSYS"}, {ELOOP, "ELOOP"}, {ENODATA, "ENODATA"}, {ENOTSOCK, "ENOTSOCK"},
    {EPROTONOSUPPORT, "EPROTONOSUPPORT"}, {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"}, {EOPNOTSUPP, "EOPNOTSUPP"},
    {EAFNOSUPPORT, "EAFNOSUPPORT"}, {EADDRINUSE, "EADDRINUSE"}, {EADDRNOTAVAIL, "EADDRNOTAVAIL"},
    {ENETUNREACH, "ENETUNREACH"}, {ECONNREFUSED, "ECONNREFUSED"}, {ETIMEDOUT, "ETIMEDOUT"},
    {EHOSTUNREACH, "EHOSTUNREACH"}, {ENOTCONN, "ENOTCONN"}, {ENOPROTOOPT, "ENOPROTOOPT"},
    {EPROTOTYPE, "EPROTOTYPE"}, {EUSERS, "EUSERS"}, {EOVERFLOW, "EOVERFLOW"}, {ESTALE, "ESTALE"},
    {ENOKEY, "ENOKEY"}, {EKEYREJECTED, "EKEYREJECTED"}, {EDQUOT, "EDQUOT"}, {EREMOTEIO, "EREMOTEIO"}, {ENOPKG, "ENOPKG"},
};

const char *outcome_name(int r)
{
    static char other[24];

    switch (r) {
    case 0:
        return "ok";
    case SEEN_NOTHING:
        return "nothing";
    case SEEN_IGNORED:
        return "ignored";
    case SEEN_UNHEARD:
        return "unheard";
    case SEEN_MASKED:
        return "masked";
    default:
        break;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].error == -r)
            return names[i].name;
    snprintf(other, sizeof other, "errno-%d", -r);
    return other;
}

int open_outcome(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return -errno;
    (void)close(fd);
    return 0;
}

int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), r = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        r = errno != 0 ? -errno : -EIO;
    (void)close(fd);
    return r;
}

ssize_t read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;

    if (fd < 0)
        return -errno;
    while (n < size - 1) {
        ssize_t r = read(fd, out + n, size - 1 - n);
        if (r < 0 && n == 0) {
            int error = errno;
            (void)close(fd);
            return -error;
        }
        if (r <= 0)
            break;
        n += (size_t)r;
    }
    out[n] = '\0';
    (void)close(fd);
    return (ssize_t)n;
}

const char *scratch_path(const struct ctx *c, const char *name)
{
    static char buffers[4][160];
    static unsigned next;
    char *out = buffers[next++ % 4];

    snprintf(out, sizeof buffers[0], "%s/%s", c->scratch, name);
    return out;
}

uint32_t token_number(const char *token)
{
    uint32_t h = 2166136261u;

    for (; *token != '\0'; token++)
        h = (h ^ (unsigned char)*token) * 16777619u;
    return h;
}

pid_t fork_bound(void)
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent))
        _exit(0);
    return pid;
}

int copy_self(const char *to)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    char block[16384];
    ssize_t n;

    if (from < 0 || out < 0)
        return -errno;
    while ((n = read(from, block, sizeof block)) > 0)
        if (write(out, block, (size_t)n) != n)
            return -EIO;
    (void)close(from);
    (void)close(out);
    return n < 0 ? -EIO : 0;
}
