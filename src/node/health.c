/*
 * health.c - how the node and its neighbours are
 */
#include <stdio.h>

#include "ipc/channel.h"
#include "ipc/keeper_proto.h"
#include "node/keeper_link.h"
#include "node/ops.h"
#include "sys/fd.h"

#define KEEPER_MS 2000

static bool answers(const struct node *n, const char *name)
{
    auto_close int fd = -1;
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", n->conf.run_dir, name);
    return chan_connect(path, &fd) == 0;
}

static void on_stats(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;
    Quicksand__Node__HealthResponse m = QUICKSAND__NODE__HEALTH_RESPONSE__INIT;
    struct keeper_stats s;

    (void)fd;
    m.has_keeper = m.has_egress = m.has_image = 1;
    m.egress = answers(op->node, "egress.sock");
    m.image = answers(op->node, "image.sock");
    if (e == NULL && keeper_stats_decode(&s, payload, len) == 0) {
        m.keeper = 1;
        m.has_pool_ready = m.has_sandboxes = m.has_memory_total = m.has_memory_available = 1;
        m.has_trees_total = m.has_trees_free = 1;
        m.pool_ready = s.pool_ready;
        m.sandboxes = s.sandboxes;
        m.memory_total = s.memory_total;
        m.memory_available = s.memory_available;
        m.trees_total = s.trees_total;
        m.trees_free = s.trees_free;
    }
    op_reply(op, &m.base);
}

void op_health(struct op *op)
{
    keeper_call(op->node->keeper, KEEPER_STATS, NULL, 0, KEEPER_MS, on_stats, op);
}
