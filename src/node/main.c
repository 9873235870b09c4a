/*
 * main.c - quicksand-node, the data plane of one machine
 *
 * Started by the keeper as its own user, with the listening socket of node.sock as descriptor 3.
 * May be killed at any instant: sandboxes run on in their monitors and the next node finds them
 * there.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "http/http.h"
#include "json/json.h"
#include "node/defaults.h"
#include "node/keeper_link.h"
#include "node/modal/router.h"
#include "node/monitor_link.h"
#include "node/network.h"
#include "node/node.h"
#include "node/service.h"
#include "node/tunnel/tunnel.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"

#define LISTEN_FD 3

static const unsigned filter_groups = SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX |
                                      SECCOMP_READ_FILES | SECCOMP_WRITE_FILES | SECCOMP_MEMFD | SECCOMP_SPLICE;

/* data_dir/<name>, made if it is missing. */
static int open_dir(const struct conf *c, const char *name, struct err *e)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", c->data_dir, name);
    if (mkdir(path, 0750) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make directory %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open directory %s", path);
    return fd;
}

static int listen_on(struct node *n, struct err *e)
{
    char address[256];

    n->server = http_server_new(n->loop, service_request, n);
    if (fd_is_listener(LISTEN_FD)) {
        (void)fd_set_cloexec(LISTEN_FD, true);
        return http_server_listen_fd(n->server, LISTEN_FD, e);
    }
    (void)snprintf(address, sizeof address, "unix:%s/node.sock", n->conf.run_dir);
    return http_server_listen(n->server, address, e);
}

int node_open(struct node *n, struct err *e)
{
    char path[256];

    map_init(&n->creating);
    map_init(&n->probes);
    n->run_fd = open_dir(&n->conf, "run", e);
    if (n->run_fd < 0)
        return -1;
    n->state_fd = open_dir(&n->conf, "node", e);
    if (n->state_fd < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/keeper.sock", n->conf.run_dir);
    n->keeper = keeper_link_new(n->loop, path);
    n->monitors = monitor_pool_new(n->loop, n->run_fd);
    n->defaults = defaults_store_new(n->state_fd);
    n->network = network_new(n, e);
    if (n->network == NULL)
        return -1;
    if (router_open(n, e) < 0 || tunnels_new(n, e) < 0)
        return -1;
    return listen_on(n, e);
}

static void node_close(struct node *n)
{
    http_server_free(n->server);
    tunnels_free(n);
    router_close(n);
    network_free(n->network);
    monitor_pool_free(n->monitors);
    keeper_link_free(n->keeper);
    defaults_store_free(n->defaults);
    map_done(&n->creating);
    map_done(&n->probes);
    fd_close(&n->run_fd);
    fd_close(&n->state_fd);
}

static void on_stop(int sig, void *arg)
{
    log_info("stop", "signal=%d", sig);
    loop_stop(arg);
}

static int run(const char *conf_path, struct err *e)
{
    struct node n = {.run_fd = -1, .state_fd = -1};

    if (conf_load(&n.conf, conf_path, false, e) < 0)
        return -1;
    log_init("node", log_level_from_name(n.conf.log_level));
    /* One descriptor a sandbox: as many as we may have. */
    int r = fd_raise_limit();
    if (r < 0)
        log_warn("nofile", "error=%s", strerror(-r));
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(027);
    js_init();
    n.loop = loop_new();
    if (node_open(&n, e) < 0)
        return -1;              /* the process ends: nothing needs undoing */
    loop_on_signal(n.loop, SIGTERM, on_stop, n.loop);
    loop_on_signal(n.loop, SIGINT, on_stop, n.loop);
    if (seccomp_role_install(filter_groups, e) < 0)
        return -1;
    log_info("start", "router_listen=%s data_dir=%s", n.conf.router_listen, n.conf.data_dir);
    r = loop_run(n.loop);
    node_close(&n);
    loop_free(n.loop);
    return r < 0 ? err_sys(e, -r, "run the event loop") : 0;
}

int main(int argc, char **argv)
{
    struct err e;

    log_init("node", LOG_L_INFO);
    if (argc != 3 || strcmp(argv[1], "--config") != 0) {
        log_error("usage", "quicksand-node --config FILE");
        return 2;
    }
    if (run(argv[2], &e) < 0) {
        log_error("failed", "%s", e.message);
        return 1;
    }
    return 0;
}
