/*
 * list.c - pages of lists
 */
#include "api/rest/list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int page_init(struct page *p, const struct call *c, struct err *e)
{
    const char *cursor = call_query(c, "cursor");

    memset(p, 0, sizeof *p);
    p->limit = (size_t)call_query_int(c, "limit", LIST_DEFAULT);
    p->fields = call_query(c, "fields");
    p->total = -1;
    if (cursor != NULL) {
        char *end;
        errno = 0;
        p->cursor = strtoll(cursor, &end, 10);
        if (p->cursor <= 0 || errno != 0 || *end != '.' || strlen(end + 1) >= sizeof p->cursor_id)
            return err_param(e, ERR_INVALID, "cursor",
                             "the cursor is none that this server gave out");
        (void)snprintf(p->cursor_id, sizeof p->cursor_id, "%s", end + 1);
    }
    p->items = json_array();
    return 0;
}

size_t page_limit(const struct page *p)
{
    return p->limit + 1;
}

/* The named members of the item, which is consumed. */
static json_t *pick(struct page *p, json_t *item)
{
    char name[sizeof p->unknown];
    json_t *few = json_object();

    for (const char *at = p->fields; *at != '\0'; at += *at == ',') {
        size_t n = strcspn(at, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, at);
        json_t *value = json_object_get(item, name);
        if (value != NULL && n < sizeof name)
            (void)json_object_set(few, name, value);
        else if (p->unknown[0] == '\0')
            (void)snprintf(p->unknown, sizeof p->unknown, "%s", n > 0 ? name : "(empty)");
        at += n;
    }
    json_decref(item);
    return few;
}

void page_add(struct page *p, json_t *item, int64_t time, const char *id)
{
    size_t n = json_array_size(p->items);

    /* The item past the page only says that there is more. It must not become the cursor. */
    if (n == p->limit) {
        (void)json_array_append_new(p->items, json_null());
        json_decref(item);
        return;
    }
    if (n > p->limit) {
        json_decref(item);
        return;
    }
    (void)json_array_append_new(p->items, p->fields != NULL ? pick(p, item) : item);
    p->last = time;
    (void)snprintf(p->last_id, sizeof p->last_id, "%s", id);
}

void page_reply(struct page *p, struct call *c)
{
    char cursor[64];
    json_t *next = json_null();
    struct err e;

    if (p->unknown[0] != '\0') {
        json_decref(next);
        (void)err_param(&e, ERR_UNKNOWN_FIELD, "fields", "the items of this list have no field '%s'", p->unknown);
        page_fail(p, c, &e);
        return;
    }
    if (json_array_size(p->items) > p->limit) {
        (void)json_array_remove(p->items, p->limit);
        (void)snprintf(cursor, sizeof cursor, "%" PRId64 ".%s", p->last, p->last_id);
        next = json_string(cursor);
    }
    json_t *body = json_object();
    (void)json_object_set_new(body, "items", p->items);
    (void)json_object_set_new(body, "next", next);
    if (p->total >= 0)
        (void)json_object_set_new(body, "total", json_integer(p->total));
    p->items = NULL;
    call_reply(c, 200, body);
}

void page_fail(struct page *p, struct call *c, const struct err *e)
{
    json_decref(p->items);
    p->items = NULL;
    call_fail(c, e);
}
