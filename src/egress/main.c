/*
 * main.c - the egress role: the one way out of the sandboxes
 *
 * Usage: quicksand-egress [--config FILE], with descriptor 3 a listening SEQPACKET socket.
 * Started by the keeper as its own user, in the host's network. It holds nothing that may not be lost: the node tells it
 * again what it has to know, and while it is away nothing leaves.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "base/conf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/egress.h"
#include "egress/open/open.h"
#include "sys/caps.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"
#include "sys/userlookup.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define LISTENER 3
#define TOTALS_MS 2000      /* what a sudden end of this process may leave uncounted */

/*
 * Sockets of both families to dial and to ask resolvers; messages with descriptors from the node; payloads by memfd; bytes
 * that are only passed on go by pipes. No files: the resolvers' configuration is read before.
 */
static const unsigned filter_groups = SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_INET | SECCOMP_MEMFD | SECCOMP_SPLICE;

static void on_stop(int sig, void *arg)
{
    loop_stop(arg);
}

static int become(const struct conf *conf, uint32_t *ret_node_uid, struct err *e)
{
    struct user self, node;
    int r = user_lookup(conf->user_egress, &self);

    if (r < 0)
        return err_sys(e, -r, "user %s", conf->user_egress);
    r = user_lookup(conf->user_node, &node);
    if (r < 0)
        return err_sys(e, -r, "user %s", conf->user_node);
    *ret_node_uid = node.uid;
    /* The keeper has done this before the program started; by hand it is started as root. */
    r = geteuid() == self.uid ? 0 : caps_become_user(self.uid, self.gid);
    return r < 0 ? err_sys(e, -r, "become user %s", conf->user_egress) : 0;
}

/* Sockets of this namespace are never a sandbox's. */
static uint64_t own_netns(void)
{
    auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint64_t cookie = 0;
    socklen_t n = sizeof cookie;

    if (fd >= 0)
        (void)getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &n);
    return cookie;
}

static void on_totals(void *arg)
{
    struct egress *g = arg;
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    while (map_next(&g->boxes, &it, &id, &value))
        box_tell_totals(value);
    loop_timer_set(g->totals_timer, TOTALS_MS);
}

static int run(const struct conf *conf, struct err *e)
{
    struct egress g = {0};
    uint32_t node_uid = 0;

    if (become(conf, &node_uid, e) < 0)
        return -1;
    if (fd_set_cloexec(LISTENER, true) < 0 || fd_set_nonblock(LISTENER, true) < 0)
        return err_set(e, ERR_INTERNAL, "cannot set up the listener");
    (void)signal(SIGPIPE, SIG_IGN);
    /* What is freed is overwritten: values of secrets go through buffers that grow, and through OpenSSL's. */
    (void)mallopt(M_PERTURB, 0x51);
    g.loop = loop_new();
    map_init(&g.boxes);
    g.own_netns = own_netns();
    g.resolver = resolver_new(g.loop, conf->egress_dns, e);
    g.tls = open_tls_new(conf->egress_ca, e);
    if (g.resolver == NULL || g.tls == NULL || seccomp_role_install(filter_groups, e) < 0)
        return -1;              /* the process ends: nothing needs undoing */
    loop_on_signal(g.loop, SIGTERM, on_stop, g.loop);
    loop_on_signal(g.loop, SIGINT, on_stop, g.loop);
    g.links = links_new(&g, LISTENER, node_uid);
    g.totals_timer = loop_timer_new(g.loop, on_totals, &g);
    loop_timer_set(g.totals_timer, TOTALS_MS);
    log_info("egress.ready", "user=%s", conf->user_egress);
    int r = loop_run(g.loop);
    loop_timer_free(g.totals_timer);
    boxes_done(&g);             /* which tells the last totals */
    links_free(take_ptr(&g.links));
    open_tls_free(g.tls);
    resolver_free(g.resolver);
    loop_free(g.loop);
    return r < 0 ? err_sys(e, -r, "run the event loop") : 0;
}

int main(int argc, char **argv)
{
    struct conf conf;
    struct err e = {0};
    char text[sizeof e.message];

    log_init("egress", LOG_L_INFO);
    if (argc != 1 && (argc != 3 || strcmp(argv[1], "--config") != 0)) {
        log_error("egress.usage", "text=quicksand-egress_[--config_FILE]");
        return 2;
    }
    if (!fd_is_listener(LISTENER)) {
        (void)err_set(&e, ERR_INTERNAL, "descriptor 3 is not a listener");
    } else if (conf_load(&conf, argc == 3 ? argv[2] : CONF_DEFAULT_PATH, argc == 1, &e) == 0) {
        log_init("egress", log_level_from_name(conf.log_level));
        if (run(&conf, &e) == 0)
            return 0;
    }
    log_error("egress.start", "error=\"%s\"", log_escape(e.message, text, sizeof text));
    return 1;
}
