/*
 * call_impl.h - private to rest.c and call.c: a call and what belongs to it
 */
#ifndef QS_API_REST_CALL_IMPL_H
#define QS_API_REST_CALL_IMPL_H

#include "api/rest/rest.h"
#include "core/token.h"

struct call_param {
    const char *name;               /* of the row; not NUL-terminated */
    size_t name_len;
    char *value;                    /* decoded; in `texts` */
};

struct call_impl {
    struct call pub;
    struct http_request rq;
    char *texts;                    /* owned: one block with every text of rq and the parameters */
    struct http_header *headers;    /* owned */
    struct call_param params[ROUTE_PARAMS];
    size_t nparams;
    struct query_param *query;      /* owned; texts in `texts` */
    size_t nquery;
    char *query_text;               /* in `texts`: the copy that is split */
    struct token token;
    char request_id[LIMIT_ID + 1];
    struct buf body;                /* JSON operations: until it is complete */
    bool is_collecting;             /* ... which is the case now */
    bool is_answered;
    const char *extra_name, *extra_value;
    char target[LIMIT_ID];          /* what the call made, "" = the first parameter of the path */
    char allow[64];                 /* for the Allow header of 405, "" = none */
    int64_t started_ms;             /* CLOCK_BOOTTIME */
};

/* A call for a request; the texts are copied. */
struct call_impl *call_new(struct http_stream *st, const struct http_request *rq, struct core *core);
/* The stream has closed. */
void call_closed(struct call_impl *ci);
/* Answers with an error before or instead of a handler. */
void call_refuse(struct call_impl *ci, const struct err *e);

#endif
