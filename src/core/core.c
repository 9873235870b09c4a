/*
 * core.c - making and ending core
 *
 * The control process has one. Order at the end: core_stop (every caller gets its answer), the
 * listeners, core_free.
 */
#include "core/core.h"

#include "base/mem.h"
#include "core/internal.h"
#include "core/life.h"

struct core *core_new(struct loop *l, struct store *store, const char *node_address,
                      const char *data_dir)
{
    struct core *c = mem_zalloc(sizeof *c);

    c->loop = l;
    c->store = store;
    c->data_dir = mem_strdup(data_dir);
    c->node = http_client_new(l, node_address);
    map_init(&c->boxes);
    map_init(&c->tokens);
    c->defaults = (struct sandbox_limits){
        .cpu_weight = 100, .pids = LIMIT_PIDS_DEFAULT, .nofile = LIMIT_NOFILE_DEFAULT,
    };
    c->nofile_max = LIMIT_NOFILE_MAX;
    audit_open(c);
    return c;
}

int core_start(struct core *c, struct err *e)
{
    if (operations_open(c, e) < 0)
        return -1;
    return sandboxes_open(c, e);
}

void core_stop(struct core *c)
{
    c->is_stopping = true;
    node_calls_fail_all(c);
    life_wake_all(c);
    node_calls_fail_all(c);
    operations_stop(c);
    sandboxes_close(c);
}

void core_free(struct core *c)
{
    if (c == NULL)
        return;
    if (!c->is_stopping)
        core_stop(c);
    audit_close(c);
    http_client_free(c->node);
    node_calls_free_all(c);
    operations_close(c);
    tokens_close(c);
    map_done(&c->boxes);
    free(c->data_dir);
    json_decref(c->build_network);
    free(c->registry_auth);
    free(c->tunnel_host);
    free(c);
}

void core_log(enum log_level level, const char *event, const char *id, const struct err *e)
{
    char cause[512];

    log_write(level, event, "id=%s code=%s cause=%s", id, err_row(e->code)->name,
              log_escape(e->message, cause, sizeof cause));
}

void core_set_registry_auth(struct core *c, const char *path)
{
    free(c->registry_auth);
    c->registry_auth = mem_strdup(path);
}

const char *core_data_dir(const struct core *c)
{
    return c->data_dir;
}

struct loop *core_loop(struct core *c)
{
    return c->loop;
}

struct store *core_store(struct core *c)
{
    return c->store;
}

struct vault *core_vault(struct core *c)
{
    return c->vault;
}

struct http_client *core_node(struct core *c)
{
    return c->node;
}
