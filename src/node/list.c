/*
 * list.c - every sandbox that has a trace on this node
 *
 * Names come from the run directories, the defaults on disk and, if it can be reached, the keeper.
 * Each is then asked: the exit record if there is one, else the monitor, LIST_AT_ONCE of them at a
 * time. With ended_of only the exit records of those ids are looked for.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "ipc/keeper_proto.h"
#include "ipc/wire.h"
#include "node/keeper_link.h"
#include "node/map.h"
#include "node/ops.h"
#include "node/query.h"
#include "node/spool.h"

#define LIST_AT_ONCE 64
#define LIST_FILES_A_PASS 128   /* exit records read before other calls get their turn */
#define KEEPER_MS 3000

struct item {
    struct op *op;
    struct query *q;
    bool known;                 /* record is filled in */
    struct sandbox_record record;
};

struct list {
    struct map seen;
    struct item **items;        /* owned */
    size_t n, size;
    size_t next;                /* first item that was not asked yet */
    size_t asking;
    struct loop_timer *more;
};

static void free_list(struct op *op)
{
    struct list *l = op->state;

    for (size_t i = 0; i < l->n; i++) {
        query_cancel(&l->items[i]->q);
        free(l->items[i]);
    }
    free(l->items);
    map_done(&l->seen);
    loop_timer_free(l->more);
}

static void add(struct op *op, const char *id)
{
    struct list *l = op->state;

    if (!id_is(id, "sb-") || l->n >= 2 * LIMIT_SANDBOXES || map_get(&l->seen, id) != NULL)
        return;
    if (l->n == l->size) {
        l->size = l->size == 0 ? 64 : l->size * 2;
        l->items = mem_realloc(l->items, l->size * sizeof *l->items);
    }
    struct item *it = mem_zalloc(sizeof *it);
    it->op = op;
    (void)snprintf(it->record.sandbox, sizeof it->record.sandbox, "%s", id);
    l->items[l->n++] = it;
    (void)map_put(&l->seen, id, it);
}

static int add_names(struct op *op, int dir_fd, const char *what, struct err *e)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL) {
        err_sys(e, errno, "list %s", what);
        if (fd >= 0)
            (void)close(fd);
        e->code = ERR_INTERNAL;
        return -1;
    }
    for (struct dirent *de; (de = readdir(d)) != NULL;)
        add(op, de->d_name);
    (void)closedir(d);
    return 0;
}

static void answer(struct op *op)
{
    struct list *l = op->state;
    Quicksand__Node__ListResponse rs = QUICKSAND__NODE__LIST_RESPONSE__INIT;
    auto_free Quicksand__Node__Sandbox **ptrs = mem_array(l->n + 1, sizeof *ptrs);
    auto_free Quicksand__Node__Sandbox *sandboxes = mem_array(l->n + 1, sizeof *sandboxes);
    auto_free Quicksand__Node__Usage *usages = mem_array(l->n + 1, sizeof *usages);

    for (size_t i = 0; i < l->n; i++) {
        if (!l->items[i]->known)
            continue;           /* removed while we asked */
        map_sandbox(&l->items[i]->record, &usages[i], NULL, &sandboxes[i]);
        ptrs[rs.n_sandboxes++] = &sandboxes[i];
    }
    rs.sandboxes = ptrs;
    op_reply(op, &rs.base);
}

/* There is no run directory: it is being made, or something of it is left. */
static void without_run_dir(struct item *it, bool creating)
{
    it->known = true;
    if (creating) {
        it->record.state = SB_STARTING;
        return;
    }
    it->record.state = SB_ENDED;
    it->record.reason = END_NODE_LOST;
    it->record.code = -1;
    (void)snprintf(it->record.message, sizeof it->record.message,
                   "only remains of this sandbox are left; destroy it");
}

static void pump(void *arg);

static void on_sandbox(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct item *it = arg;
    struct op *op = it->op;
    struct list *l = op->state;

    l->asking--;
    if (r != NULL) {
        it->known = true;
        it->record = *r;
    } else if (e->code != ERR_NOT_FOUND) {
        /* Its monitor is there and does not answer: one such must not hide all the others. */
        char id[ID_SIZE];
        memcpy(id, it->record.sandbox, sizeof id);
        it->known = true;
        log_warn("list-no-answer", "sandbox=%s error=\"%s\"", id, e->message);
        if (spool_status(op->node->run_fd, id, &it->record) < 0) {
            it->record = (struct sandbox_record){.state = SB_STARTING};
            memcpy(it->record.sandbox, id, sizeof id);
        }
    }
    pump(op);
}

static void pump(void *arg)
{
    struct op *op = arg;
    struct list *l = op->state;
    int files = 0;

    while (l->next < l->n && l->asking < LIST_AT_ONCE) {
        if (files == LIST_FILES_A_PASS) {
            loop_timer_set(l->more, 0);
            return;
        }
        struct item *it = l->items[l->next++];
        char id[ID_SIZE];
        memcpy(id, it->record.sandbox, sizeof id);
        files++;
        if (spool_exit(op->node->run_fd, id, &it->record) == 0) {
            it->known = true;
        } else if (!spool_exists(op->node->run_fd, id)) {
            without_run_dir(it, map_get(&op->node->creating, id) != NULL);
        } else {
            l->asking++;
            query_sandbox_soon(op->node, &it->q, id, on_sandbox, it);
        }
    }
    if (l->next == l->n && l->asking == 0)
        answer(op);
}

static void on_keeper(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;
    struct wire_reader r;
    char id[ID_SIZE];

    (void)fd;
    if (op->call == NULL) {
        op_drop(op);
        return;
    }
    op->on_gone = op_drop;
    if (e == NULL) {
        wire_read(&r, payload, len);
        for (uint32_t n = wire_get_u32(&r); n > 0 && !r.failed; n--) {
            wire_get_str(&r, id, sizeof id);
            if (!r.failed)
                add(op, id);
        }
    }
    pump(op);
}

static void stay(struct op *op)
{
    (void)op;                   /* the keeper's answer finds the client gone */
}

static void list_ended(struct op *op, const Quicksand__Node__ListRequest *rq)
{
    struct list *l = op->state;
    struct err e;

    if (rq->n_ended_of > LIMIT_LIST) {
        (void)err_param(&e, ERR_TOO_LARGE, "ended_of", "ended_of has %zu ids, at most %d are accepted",
                        rq->n_ended_of, LIMIT_LIST);
        op_fail(op, &e);
        return;
    }
    for (size_t i = 0; i < rq->n_ended_of; i++)
        add(op, rq->ended_of[i]);
    for (size_t i = 0; i < l->n; i++) {
        struct item *it = l->items[i];
        char id[ID_SIZE];
        memcpy(id, it->record.sandbox, sizeof id);
        if (spool_exit(op->node->run_fd, id, &it->record) == 0)
            it->known = true;
        else if (!spool_exists(op->node->run_fd, id) && map_get(&op->node->creating, id) == NULL)
            without_run_dir(it, false);
    }
    answer(op);
}

void op_list(struct op *op)
{
    struct list *l = op_state(op, sizeof *l);
    const Quicksand__Node__ListRequest *rq = (const Quicksand__Node__ListRequest *)op->rq;
    struct err e;

    map_init(&l->seen);
    op->on_free = free_list;
    if (rq->n_ended_of > 0) {
        list_ended(op, rq);
        return;
    }
    l->more = loop_timer_new(op->node->loop, pump, op);
    op->on_gone = stay;
    if (add_names(op, op->node->run_fd, "run directories", &e) < 0 ||
        add_names(op, op->node->state_fd, "kept defaults", &e) < 0) {
        op_fail(op, &e);
        return;
    }
    keeper_call(op->node->keeper, KEEPER_LIST, NULL, 0, KEEPER_MS, on_keeper, op);
}
