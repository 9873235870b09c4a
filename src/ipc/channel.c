/*
 * channel.c - SOCK_SEQPACKET messages with descriptors
 *
 * Used at both ends of every internal link. A packet is taken or refused as a whole; whatever
 * descriptors came with a refused packet are closed.
 */
#include "ipc/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/wire.h"
#include "sys/fd.h"

#define FLAG_MEMFD 0x8000u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define MAX_FDS (LIMIT_CHANNEL_FDS + 1)     /* the memfd payload is one more */

union control {
    char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    struct cmsghdr align;
};

static int sealed_memfd(const void *data, size_t len, int *ret_fd)
{
    auto_close int fd = memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, data, len);
    if (r < 0)
        return r;
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

static int send_packet(int fd, struct iovec *iov, size_t niov, const int *fds, size_t nfds)
{
    union control control;
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = niov};

    if (nfds > 0) {
        memset(&control, 0, sizeof control);
        mh.msg_control = control.bytes;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
    }
    for (;;) {
        if (sendmsg(fd, &mh, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

int chan_send(int fd, uint16_t type, uint32_t tag, const void *data, size_t len, const int *fds, int nfds)
{
    uint8_t header[CHAN_HEADER];
    auto_close int memfd = -1;
    int all[MAX_FDS];
    size_t n = 0;
    struct wire_writer w;

    if (type >= FLAG_MEMFD || nfds < 0 || nfds > LIMIT_CHANNEL_FDS)
        return -EINVAL;
    if (len > LIMIT_CHANNEL_MESSAGE)
        return -EMSGSIZE;
    bool by_memfd = CHAN_HEADER + len > LIMIT_CHANNEL_INLINE;
    if (by_memfd) {
        int r = sealed_memfd(data, len, &memfd);
        if (r < 0)
            return r;
        all[n++] = memfd;
    }
    for (int i = 0; i < nfds; i++)
        all[n++] = fds[i];

    wire_init(&w, header, sizeof header);
    wire_put_u16(&w, (uint16_t)(type | (by_memfd ? FLAG_MEMFD : 0)));
    wire_put_u16(&w, CHAN_VERSION);
    wire_put_u32(&w, tag);
    wire_put_u32(&w, (uint32_t)len);
    struct iovec iov[2] = {{header, sizeof header}, {(void *)(uintptr_t)data, len}};
    return send_packet(fd, iov, by_memfd || len == 0 ? 1 : 2, all, n);
}

/* Moves the descriptors of a received packet to m->fds; `memfd` gets the first one if asked for. */
static int take_fds(struct msghdr *mh, struct chan_msg *m, int *memfd, bool want_memfd)
{
    int all[MAX_FDS];
    size_t n = 0;
    bool bad = (mh->msg_flags & MSG_CTRUNC) != 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c != NULL; c = CMSG_NXTHDR(mh, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < got; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n < MAX_FDS)
                all[n++] = fd;
            else
                fd_close(&fd);
        }
    }
    size_t first = 0;
    if (want_memfd && n > 0)
        *memfd = all[first++];
    for (size_t i = first; i < n; i++) {
        if (m->nfds < LIMIT_CHANNEL_FDS) {
            m->fds[m->nfds++] = all[i];
        } else {
            bad = true;
            fd_close(&all[i]);
        }
    }
    return bad || (want_memfd && n == 0) ? -EBADMSG : 0;
}

static int map_payload(int memfd, struct chan_msg *m)
{
    struct stat st;

    /* Without the seals the sender could change bytes after they were checked, or cut the file and
     * make the reader die of SIGBUS. Only a memfd can have them. */
    int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return -EBADMSG;
    if (fstat(memfd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != m->len)
        return -EBADMSG;
    void *map = mmap(NULL, m->len, PROT_READ, MAP_PRIVATE, memfd, 0);
    if (map == MAP_FAILED)
        return -errno;
    m->map_ = map;
    m->data = map;
    return 0;
}

/* Reads the header and puts data and len in place. */
static int parse(struct msghdr *mh, const uint8_t *space, size_t got, unsigned flags,
                 struct chan_msg *m)
{
    auto_close int memfd = -1;
    struct wire_reader r;

    wire_read(&r, space, got);
    uint16_t type = wire_get_u16(&r);
    m->version = wire_get_u16(&r);
    m->tag = wire_get_u32(&r);
    m->len = wire_get_u32(&r);
    bool by_memfd = (type & FLAG_MEMFD) != 0;
    m->type = (uint16_t)(type & ~FLAG_MEMFD);
    if ((flags & CHAN_NO_FDS) == 0 && take_fds(mh, m, &memfd, by_memfd) < 0)
        return -EBADMSG;
    if (r.failed || m->version == 0 || (mh->msg_flags & MSG_TRUNC) != 0)
        return -EBADMSG;
    if (!by_memfd) {
        m->data = space + CHAN_HEADER;
        return m->len == got - CHAN_HEADER ? 0 : -EBADMSG;
    }
    if ((flags & CHAN_NO_FDS) != 0 || got != CHAN_HEADER)
        return -EBADMSG;
    if (m->len == 0 || m->len > LIMIT_CHANNEL_MESSAGE)
        return -EBADMSG;
    return map_payload(memfd, m);
}

int chan_recv(int fd, void *space, size_t size, unsigned flags, struct chan_msg *m)
{
    union control control;
    struct iovec iov = {space, size};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t got;

    m->nfds = 0;
    m->map_ = NULL;
    m->data = NULL;
    m->len = 0;
    if ((flags & CHAN_NO_FDS) == 0) {
        mh.msg_control = control.bytes;
        mh.msg_controllen = sizeof control.bytes;
    }
    do
        got = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    if (got == 0) {
        /* End of file, or an empty packet, which may carry descriptors all the same. */
        int memfd = -1;
        if ((flags & CHAN_NO_FDS) == 0)
            (void)take_fds(&mh, m, &memfd, false);
        chan_msg_done(m);
        return 0;
    }
    int r = parse(&mh, space, (size_t)got, flags, m);
    if (r < 0) {
        chan_msg_done(m);
        return r;
    }
    return 1;
}

void chan_msg_done(struct chan_msg *m)
{
    for (int i = 0; i < m->nfds; i++)
        fd_close(&m->fds[i]);
    m->nfds = 0;
    if (m->map_ != NULL)
        (void)munmap(m->map_, m->len);
    m->map_ = NULL;
    m->data = NULL;
    m->len = 0;
}

int chan_pair(int ret[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret) < 0 ? -errno : 0;
}

static int address(const char *path, struct sockaddr_un *ret)
{
    size_t n = strlen(path);

    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n == 0 || n >= sizeof ret->sun_path)
        return -ENAMETOOLONG;
    memcpy(ret->sun_path, path, n);
    return 0;
}

int chan_listen(const char *path, unsigned mode, int *ret_fd)
{
    struct sockaddr_un sa;
    struct stat st;
    int r = address(path, &sa);

    if (r < 0)
        return r;
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && unlink(path) < 0)
        return -errno;
    /* The mode must be right from the first instant, so it is set by the mask, not afterwards. */
    mode_t old = umask((mode_t)(0777 & ~mode));
    r = bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ? -errno : 0;
    (void)umask(old);
    if (r < 0)
        return r;
    if (listen(fd, SOMAXCONN) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

int chan_connect(const char *path, int *ret_fd)
{
    struct sockaddr_un sa;
    int r = address(path, &sa);

    if (r < 0)
        return r;
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

int chan_peer(int fd, uint32_t *ret_uid, int32_t *ret_pid)
{
    struct ucred cred;
    socklen_t n = sizeof cred;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return -errno;
    *ret_uid = cred.uid;
    *ret_pid = cred.pid;
    return 0;
}
