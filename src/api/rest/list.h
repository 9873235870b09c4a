/*
 * list.h - pages: `limit`, `cursor` and `fields` of the query, `items` and `next` of the answer
 *
 * A cursor is "<time>.<id>" of the last item, in the order of lists: newest first unless a list lets the
 * caller turn that around, ties broken by id.
 */
#ifndef QS_API_REST_LIST_H
#define QS_API_REST_LIST_H

#include "api/rest/op.h"

#define LIST_DEFAULT 100
#define LIST_FIELDS                                                                             \
    {"limit", FIELD_INT, 0, 1, LIMIT_LIST, NULL, "items of a page, default 100"},              \
    {"cursor", FIELD_STRING, 0, 1, 100, NULL, "`next` of the page before"},                    \
    {"fields", FIELD_STRING, 0, 1, 1000, NULL, "names with commas between: only these of each item"}

struct page {
    size_t limit;
    int64_t cursor;             /* 0 = from the newest */
    char cursor_id[ID_SIZE];
    const char *fields;         /* NULL = all */
    char unknown[64];           /* a field that the items do not have */
    json_t *items;
    int64_t total;              /* of all pages; -1 = was not asked for */
    int64_t last;               /* of the last item added */
    char last_id[ID_SIZE];
};

/* From the query; ERR_INVALID for a cursor that is none of ours. */
int page_init(struct page *p, const struct call *c, struct err *e);
void page_add(struct page *p, json_t *item, int64_t time, const char *id);
/* Callers ask the store for page_limit items: one more than are shown tells whether there is a
 * next page. */
size_t page_limit(const struct page *p);
void page_reply(struct page *p, struct call *c);
void page_fail(struct page *p, struct call *c, const struct err *e);

#endif
