/*
 * main.c - quicksand-control: the API of the service and the only writer of its state
 *
 * Started by the keeper as its own user. May be killed at any instant: rows are committed before
 * anything is done, and the next start drives every half-done operation to an end. Reaches the node
 * alone, by run_dir/node.sock.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/modal/modal.h"
#include "api/rest/op.h"
#include "api/shared/build/build.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/ports.h"
#include "core/sandbox.h"
#include "core/token.h"
#include "json/json.h"
#include "net/tls.h"
#include "store/store.h"
#include "sys/caps.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"
#include "sys/userlookup.h"

#define LISTEN_FD 3         /* from the keeper, if it could have the address */
#define LAST_ANSWERS_MS 200 /* between the end of all operations and the end of all connections */

static const unsigned filter_groups = SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_INET |
                                      SECCOMP_READ_FILES | SECCOMP_WRITE_FILES;

struct control {
    struct conf conf;
    struct loop *loop;
    struct store *store;
    struct core *core;
    struct vault *vault;
    struct modal *modal;
    struct http_server *server;
    struct loop_timer *last;
};

/* By hand it may be started as root; it does not stay that. */
static int drop_root(const struct conf *c, struct err *e)
{
    struct user u;

    if (geteuid() != 0)
        return 0;
    int r = user_lookup(c->user_control, &u);
    if (r < 0)
        return err_sys(e, -r, "look up user_control '%s'", c->user_control);
    if (u.uid == 0)
        return err_set(e, ERR_INVALID, "user_control must not be root");
    r = caps_become_user(u.uid, u.gid);
    return r < 0 ? err_sys(e, -r, "become user %s", c->user_control) : 0;
}

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    struct control *ct = arg;

    if (modal_is_request(rq))
        modal_handle(ct->modal, st, rq);
    else
        rest_handle(st, rq, ct->core);
}

static int listen_on(struct control *ct, struct err *e)
{
    struct conf *c = &ct->conf;
    char cert[512], key[512];
    bool is_made = false;

    if (c->listen[0] == '\0')
        return 0;
    (void)snprintf(cert, sizeof cert, "%s", c->tls_cert);
    (void)snprintf(key, sizeof key, "%s", c->tls_key);
    if (cert[0] == '\0') {
        (void)snprintf(cert, sizeof cert, "%s/control/tls.crt", c->data_dir);
        (void)snprintf(key, sizeof key, "%s/control/tls.key", c->data_dir);
        if (net_tls_self_signed(cert, key, &is_made, e) < 0)
            return -1;
        if (is_made)
            log_info("tls.self_signed", "certificate=%s", cert);
    }
    ct->server = http_server_new(ct->loop, on_request, ct);
    if (http_server_tls(ct->server, cert, key, e) < 0)
        return -1;
    if (fd_is_listener(LISTEN_FD))
        return http_server_listen_fd(ct->server, LISTEN_FD, e);
    return http_server_listen(ct->server, c->listen, e);
}

/* What a sandbox has that does not say: parts of this host, so that one cannot take all of it. */
static void default_limits(const struct conf *c, struct core *core)
{
    uint64_t cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t memory_mb = ((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)) >> 20;
    struct sandbox_limits l = *core_default_limits(core);
    struct rlimit files;

    if (c->default_cpu_percent != 0) {
        uint64_t milli = cpus * c->default_cpu_percent * 10;
        l.cpu_milli = (uint32_t)(milli < 1000 ? 1000 : milli > LIMIT_CPU_MILLI_MAX ? LIMIT_CPU_MILLI_MAX : milli);
    }
    if (c->default_memory_percent != 0) {
        l.memory_mb = memory_mb * c->default_memory_percent / 100;
        if (l.memory_mb < LIMIT_MEMORY_MB_MIN)
            l.memory_mb = LIMIT_MEMORY_MB_MIN;
    }
    l.disk_mb = c->default_disk_mb;
    if (l.disk_mb > c->trees_bytes >> 21)       /* half of all that there can be */
        l.disk_mb = c->trees_bytes >> 21;
    l.pids = c->default_pids;
    l.spool_mb = c->spool_mb;
    /* Monitors and inits are children of the same daemon as we. */
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max > LIMIT_NOFILE_MAX)
        files.rlim_max = LIMIT_NOFILE_MAX;
    if (l.nofile > files.rlim_max)
        l.nofile = (uint32_t)files.rlim_max;
    core_set_default_limits(core, &l, (uint32_t)files.rlim_max);
}

static int open_state(struct control *ct, struct err *e)
{
    char path[512], node[256];

    (void)snprintf(path, sizeof path, "%s/control", ct->conf.data_dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make directory %s", path);
    (void)snprintf(path, sizeof path, "%s/control/state.db", ct->conf.data_dir);
    if (store_open(path, &ct->store, e) < 0)
        return -1;
    (void)snprintf(node, sizeof node, "unix:%s/node.sock", ct->conf.run_dir);
    ct->core = core_new(ct->loop, ct->store, node, ct->conf.data_dir);
    default_limits(&ct->conf, ct->core);
    if (core_set_build_network(ct->core, ct->conf.build_network, e) < 0)
        return -1;
    core_set_registry_auth(ct->core, ct->conf.registry_auth);
    core_set_tunnel_host(ct->core, ct->conf.tunnel_host);
    ct->vault = vault_open(ct->core, ct->conf.data_dir, e);
    if (ct->vault == NULL)
        return -1;
    const struct modal_config modal = {.router_listen = ct->conf.router_listen, .router_host = ct->conf.router_host};
    ct->modal = modal_new(ct->core, ct->vault, &modal, e);
    if (ct->modal == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/control/admin-token", ct->conf.data_dir);
    return token_admin_file(ct->core, path, e);
}

static void on_last(void *arg)
{
    loop_stop(((struct control *)arg)->loop);
}

static void on_stop(int sig, void *arg)
{
    struct control *ct = arg;

    if (ct->last != NULL)
        return;
    log_info("stop", "signal=%d", sig);
    vault_stop(ct->vault);
    core_stop(ct->core);
    ct->last = loop_timer_new(ct->loop, on_last, ct);
    loop_timer_set(ct->last, LAST_ANSWERS_MS);
}

static void close_all(struct control *ct)
{
    loop_timer_free(ct->last);
    core_stop(ct->core); /* calls that came after the first */
    if (ct->server != NULL)
        http_server_free(ct->server);
    modal_free(ct->modal);
    vault_stop(ct->vault);
    core_free(ct->core);
    vault_free(ct->vault);
    store_close(ct->store);
    loop_free(ct->loop);
}

static int run(const char *conf_path, struct err *e)
{
    static struct control ct;

    if (conf_load(&ct.conf, conf_path, false, e) < 0)
        return -1;
    log_init("control", log_level_from_name(ct.conf.log_level));
    if (drop_root(&ct.conf, e) < 0)
        return -1;
    int r = fd_raise_limit();
    if (r < 0)
        log_warn("nofile", "error=%s", strerror(-r));
    (void)signal(SIGPIPE, SIG_IGN);
    (void)umask(077);
    js_init();
    ct.loop = loop_new();
    if (open_state(&ct, e) < 0 || listen_on(&ct, e) < 0)
        return -1; /* the process ends: nothing needs undoing */
    loop_on_signal(ct.loop, SIGTERM, on_stop, &ct);
    loop_on_signal(ct.loop, SIGINT, on_stop, &ct);
    if (seccomp_role_install(filter_groups, e) < 0 || core_start(ct.core, e) < 0 || build_recover(ct.core, e) < 0)
        return -1;
    vault_start(ct.vault);
    log_info("start", "listen=%s data_dir=%s", ct.conf.listen, ct.conf.data_dir);
    r = loop_run(ct.loop);
    close_all(&ct);
    return r < 0 ? err_sys(e, -r, "run the event loop") : 0;
}

int main(int argc, char **argv)
{
    struct err e;

    log_init("control", LOG_L_INFO);
    if (argc != 3 || strcmp(argv[1], "--config") != 0) {
        log_error("usage", "quicksand-control --config FILE");
        return 2;
    }
    if (run(argv[2], &e) < 0) {
        log_error("failed", "%s", e.message);
        return 1;
    }
    return 0;
}
