/*
 * listen.c - listening sockets, see listen.h
 */
#include "net/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/addr.h"
#include "net/conn.h"
#include "sys/fd.h"

#define ACCEPT_PAUSE_MS 100
/* Connections taken in one turn of the loop, so that a flood does not starve those already here. */
#define ACCEPT_BATCH 64

struct net_listener {
    struct loop_io *io;
    struct loop_timer *resume;
    int fd;
    net_accept_cb cb;
    void *arg;
    int port;
    char *path;                 /* unix socket file that is ours to remove, or NULL */
    dev_t path_dev;             /* the file we made: another one of that name is left alone */
    ino_t path_ino;
};

static void on_resume(void *arg)
{
    struct net_listener *ls = arg;

    loop_io_set(ls->io, LOOP_READ);
}

static void on_acceptable(int fd, unsigned what, void *arg)
{
    struct net_listener *ls = arg;

    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t len = sizeof peer;
        int c = accept4(fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (c >= 0) {
            ls->cb(c, (struct sockaddr *)&peer, ls->arg);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            loop_io_set(ls->io, 0);
            loop_timer_set(ls->resume, ACCEPT_PAUSE_MS);
        }
        /* The rest (EAGAIN, a peer that left already) concerns this one connection only. */
        if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

struct net_listener *net_listen_fd(struct loop *l, int fd, net_accept_cb cb, void *arg, struct err *e)
{
    auto_close int own = fd;
    struct net_addr a = {.len = sizeof a.sa};
    int is_listening = 0;
    socklen_t len = sizeof is_listening;

    if (getsockname(fd, (struct sockaddr *)&a.sa, &a.len) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) < 0) {
        (void)err_sys(e, errno, "inherited listener %d", fd);
        return NULL;
    }
    if (!is_listening) {
        (void)err_set(e, ERR_INVALID, "descriptor %d does not listen", fd);
        return NULL;
    }
    int r = fd_set_nonblock(fd, true);
    if (r == 0)
        r = fd_set_cloexec(fd, true);
    if (r < 0) {
        (void)err_sys(e, -r, "listener %d", fd);
        return NULL;
    }
    net_socket_tune(fd);
    struct net_listener *ls = mem_zalloc(sizeof *ls);
    ls->fd = take_fd(&own);
    ls->cb = cb;
    ls->arg = arg;
    ls->port = net_addr_port(&a);
    ls->io = loop_io_new(l, ls->fd, LOOP_READ, on_acceptable, ls);
    ls->resume = loop_timer_new(l, on_resume, ls);
    return ls;
}

/* Removes the socket file of a server that is gone. 0, or -1 if somebody still answers there. */
static int clear_path(const struct net_addr *a, const char *path, struct err *e)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "look at %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_EXISTS, "%s exists and is no socket", path);
    auto_close int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return err_sys(e, errno, "make a socket");
    if (connect(probe, (const struct sockaddr *)&a->sa, a->len) == 0 || errno == EAGAIN)
        return err_set(e, ERR_EXISTS, "another process listens on %s", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove stale socket %s", path);
    return 0;
}

struct net_listener *net_listen(struct loop *l, const char *address, net_accept_cb cb, void *arg,
                                struct err *e)
{
    struct net_addr a;
    int on = 1;

    if (net_addr_parse(address, &a, e) < 0)
        return NULL;
    int family = a.sa.ss_family;
    const char *path = family == AF_UNIX ? ((struct sockaddr_un *)&a.sa)->sun_path : NULL;
    if (path != NULL && clear_path(&a, path, e) < 0)
        return NULL;
    auto_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        (void)err_sys(e, errno, "make a socket");
        return NULL;
    }
    if (path == NULL)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* bind tells if it matters */
    if (family == AF_INET6) {
        bool any = IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&a.sa)->sin6_addr);
        int v6only = !any;
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only);
    }
    if (bind(fd, (struct sockaddr *)&a.sa, a.len) < 0 || listen(fd, SOMAXCONN) < 0) {
        (void)err_sys(e, errno, "listen on %s", address);
        return NULL;
    }
    struct net_listener *ls = net_listen_fd(l, take_fd(&fd), cb, arg, e);
    struct stat st;
    if (ls != NULL && path != NULL && lstat(path, &st) == 0) {
        ls->path = mem_strdup(path);
        ls->path_dev = st.st_dev;
        ls->path_ino = st.st_ino;
    }
    return ls;
}

int net_listener_port(const struct net_listener *ls)
{
    return ls->port;
}

void net_listener_free(struct net_listener *ls)
{
    struct stat st;

    if (ls == NULL)
        return;
    loop_io_free(ls->io);
    loop_timer_free(ls->resume);
    if (ls->path != NULL && lstat(ls->path, &st) == 0 && st.st_dev == ls->path_dev &&
        st.st_ino == ls->path_ino)
        (void)unlink(ls->path);     /* a file left behind is replaced at the next start */
    free(ls->path);
    fd_close(&ls->fd);
    free(ls);
}
