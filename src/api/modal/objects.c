/*
 * objects.c - named and ephemeral objects
 */
#include "api/modal/objects.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static const char *kind_name(enum object_kind kind)
{
    return kind == OBJECT_QUEUE ? "queue" : "dict";
}

static int insert(struct mcall *c, enum object_kind kind, const char *environment, const char *name, bool is_ephemeral,
                  struct object_row *r, struct err *e)
{
    memset(r, 0, sizeof *r);
    id_make(r->id, kind == OBJECT_QUEUE ? "qu-" : "di-");
    r->kind = kind;
    (void)snprintf(r->environment, sizeof r->environment, "%s", environment);
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    r->created_us = clock_wall_us();
    r->seen_ms = is_ephemeral ? clock_wall_ms() : 0;
    return store_object_insert(m_store(c), r, e);
}

int object_get_or_create(struct mcall *c, enum object_kind kind, const char *environment, const char *name, int how,
                         struct object_row *ret, bool *ret_new, struct err *e)
{
    struct environment_row env;
    struct err local = {0};

    *ret_new = false;
    if (m_environment(c, environment, &env, e) < 0)
        return -1;
    if (how == CREATE_EPHEMERAL || how == CREATE_ANONYMOUS) {
        *ret_new = true;
        return insert(c, kind, m_env_key(&env), "", true, ret, e);
    }
    if (how != CREATE_LOOKUP && m_check_name(kind_name(kind), name, e) < 0)
        return -1;
    if (store_object_by_name(m_store(c), kind, m_env_key(&env), name, ret, &local) == 0)
        return how == CREATE_NEW ? err_set(e, ERR_EXISTS, "the %s '%s' already exists", kind_name(kind), name) : 0;
    if (local.code != ERR_NOT_FOUND || how == CREATE_LOOKUP) {
        *e = local;
        return -1;
    }
    *ret_new = true;
    return insert(c, kind, m_env_key(&env), name, false, ret, e);
}

int object_get(struct mcall *c, enum object_kind kind, const char *id, struct object_row *ret, struct err *e)
{
    return store_object_get(m_store(c), kind, m_text(id), ret, e);
}

void object_heartbeat(struct mcall *c, enum object_kind kind, const char *id)
{
    struct object_row row;
    struct err e;

    if (object_get(c, kind, id, &row, &e) < 0 || store_object_seen(m_store(c), row.id, clock_wall_ms(), &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

void object_delete(struct mcall *c, enum object_kind kind, const char *id)
{
    struct object_row row;
    struct err e;

    if (object_get(c, kind, id, &row, &e) < 0 || store_object_remove(m_store(c), row.id, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

static void add_row(void *ctx, const struct object_row *r)
{
    struct object_list *l = ctx;

    if (l->n < OBJECTS_MAX)
        l->rows[l->n++] = *r;
}

int object_list(struct mcall *c, enum object_kind kind, const char *environment, const M(ListPagination) *page,
                struct object_list *ret, struct err *e)
{
    int64_t before_us;
    size_t limit;

    ret->n = 0;
    m_page(page, &before_us, &limit);
    if (m_environment(c, environment, &ret->env, e) < 0)
        return -1;
    return store_object_list(m_store(c), kind, m_env_key(&ret->env), before_us, limit, add_row, ret, e);
}
