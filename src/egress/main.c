/*
 * main.c - the egress role: the one way out of a sandbox
 *
 * Usage: quicksand-egress [--config FILE], with descriptor 3 a listening SEQPACKET socket.
 * Started by the keeper as its own user. Sandboxes have a loopback device and
 * nothing else, so no connection can leave them and there is no policy to apply: the role holds its place,
 * its user, its filter and its link to the node, and answers a greeting so that its health can be seen.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/err.h"
#include "base/log.h"
#include "ipc/channel.h"
#include "ipc/egress_proto.h"
#include "ipc/wire.h"
#include "loop/loop.h"
#include "sys/caps.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"
#include "sys/userlookup.h"

#define LISTENER 3
#define LINKS_MAX 16

struct link {
    struct egress *egress;
    int fd;                         /* -1 = free */
    struct loop_io *io;
};

struct egress {
    struct loop *loop;
    uint32_t node_uid;              /* who may speak to us besides root */
    struct link links[LINKS_MAX];
};

static void close_link(struct link *l)
{
    loop_io_free(l->io);
    l->io = NULL;
    fd_close(&l->fd);
}

static int answer(struct link *l, const struct chan_msg *m)
{
    struct wire_writer w;
    uint8_t out[64];

    if (m->type != EGRESS_HELLO || m->len != 0)
        return -EBADMSG;
    wire_init(&w, out, sizeof out);
    wire_put_u32(&w, 0);
    wire_put_str(&w, QS_VERSION);
    return chan_send(l->fd, EGRESS_HELLO_R, m->tag, out, w.len, NULL, 0);
}

static void on_message(int fd, unsigned what, void *arg)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    struct link *l = arg;
    struct chan_msg m;

    int r = chan_recv(fd, space, sizeof space, 0, &m);
    if (r == -EAGAIN)
        return;
    if (r == 1) {
        r = answer(l, &m);
        chan_msg_done(&m);
        if (r == 0)
            return;
    }
    if (r < 0)
        log_warn("egress.link", "error=%d", -r);
    close_link(l);
}

static void on_connection(int listener, unsigned what, void *arg)
{
    struct egress *g = arg;
    uint32_t uid;
    int32_t pid;
    auto_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (chan_peer(fd, &uid, &pid) < 0 || (uid != 0 && uid != g->node_uid)) {
        log_warn("egress.refused", "uid=%u", uid);
        return;
    }
    for (size_t i = 0; i < LINKS_MAX; i++) {
        struct link *l = &g->links[i];
        if (l->fd >= 0)
            continue;
        l->fd = take_fd(&fd);
        l->io = loop_io_new(g->loop, l->fd, LOOP_READ, on_message, l);
        return;
    }
    log_warn("egress.refused", "links=%d", LINKS_MAX);
}

static void on_stop(int signal, void *arg)
{
    loop_stop(arg);
}

static int become(const struct conf *conf, struct egress *g, struct err *e)
{
    struct user self, node;
    int r = user_lookup(conf->user_egress, &self);

    if (r < 0)
        return err_sys(e, -r, "user %s", conf->user_egress);
    r = user_lookup(conf->user_node, &node);
    if (r < 0)
        return err_sys(e, -r, "user %s", conf->user_node);
    g->node_uid = node.uid;
    /* The keeper has done this before the program started; by hand it is started as root. */
    r = geteuid() == self.uid ? 0 : caps_become_user(self.uid, self.gid);
    if (r < 0)
        return err_sys(e, -r, "become user %s", conf->user_egress);
    return seccomp_role_install(SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_INET | SECCOMP_MEMFD, e);
}

int main(int argc, char **argv)
{
    static struct egress g;
    struct conf conf;
    struct err e = {0};
    char text[sizeof e.message];

    log_init("egress", LOG_L_INFO);
    if (argc != 1 && (argc != 3 || strcmp(argv[1], "--config") != 0)) {
        log_error("egress.usage", "text=quicksand-egress_[--config_FILE]");
        return 2;
    }
    for (size_t i = 0; i < LINKS_MAX; i++)
        g.links[i] = (struct link){&g, -1, NULL};
    if (!fd_is_listener(LISTENER)) {
        (void)err_set(&e, ERR_INTERNAL, "descriptor 3 is not a listener");
        goto failed;
    }
    if (conf_load(&conf, argc == 3 ? argv[2] : CONF_DEFAULT_PATH, argc == 1, &e) < 0 || become(&conf, &g, &e) < 0)
        goto failed;
    log_init("egress", log_level_from_name(conf.log_level));
    if (fd_set_cloexec(LISTENER, true) < 0 || fd_set_nonblock(LISTENER, true) < 0) {
        (void)err_set(&e, ERR_INTERNAL, "cannot set up the listener");
        goto failed;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    g.loop = loop_new();
    loop_on_signal(g.loop, SIGTERM, on_stop, g.loop);
    loop_on_signal(g.loop, SIGINT, on_stop, g.loop);
    struct loop_io *listener = loop_io_new(g.loop, LISTENER, LOOP_READ, on_connection, &g);
    log_info("egress.ready", "user=%s", conf.user_egress);
    int r = loop_run(g.loop);
    for (size_t i = 0; i < LINKS_MAX; i++)
        close_link(&g.links[i]);
    loop_io_free(listener);
    loop_free(g.loop);
    return r < 0 ? 1 : 0;

failed:
    log_error("egress.start", "error=\"%s\"", log_escape(e.message, text, sizeof text));
    return 1;
}
