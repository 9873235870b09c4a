/*
 * rest.c - from a request to its handler
 *
 * Order of checks: path, method, token, scope, shape of ids, query, body. A refusal needs no body;
 * what still comes of one is dropped.
 */
#include "api/rest/rest.h"

#include <stdio.h>
#include <string.h>

#include "api/rest/call_impl.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"

static int read_params(struct call_impl *ci, const struct route_match *m, struct err *e)
{
    char *at = ci->params[0].value; /* room for all of them, see call_new */

    for (size_t i = 0; i < m->nparams; i++) {
        struct call_param *p = &ci->params[i];
        p->name = m->params[i].name;
        p->name_len = m->params[i].name_len;
        p->value = at;
        int n = percent_decode(m->params[i].value, m->params[i].value_len, false, at);
        if (n < 0)
            return err_set(e, ERR_MALFORMED, "the path has a bad %%-escape or a NUL");
        at += n + 1;
        ci->nparams = i + 1;
        if (check_param(ci->pub.op, p->name, p->name_len, p->value, e) < 0)
            return -1;
    }
    return 0;
}

static int authorize(struct call_impl *ci, struct err *e)
{
    const struct op *op = ci->pub.op;

    if ((op->flags & OP_NO_AUTH) != 0)
        return 0;
    if (token_check(ci->pub.core, call_header(&ci->pub, "authorization"), &ci->token, e) < 0)
        return -1;
    ci->pub.token = &ci->token;
    if (op->scope == NULL || token_has_scope(&ci->token, op->scope))
        return 0;
    err_set(e, ERR_DENIED, "the token %s lacks the scope %s", ci->token.id, op->scope);
    err_hint(e, "use a token with the scope %s", op->scope);
    return -1;
}

/* Everything that can be judged before the body. */
static int admit(struct call_impl *ci, struct err *e)
{
    struct route_match m;
    char text[64];

    route_find(ci->rq.method, ci->rq.path, &m);
    if (!m.is_path)
        return err_set(e, ERR_NOT_FOUND, "no such path; /openapi.json lists what there is");
    if (m.op == NULL) {
        memcpy(ci->allow, m.allow, sizeof ci->allow);
        return err_set(e, ERR_METHOD, "this path has no %s, but %s",
                       log_escape(ci->rq.method, text, sizeof text), m.allow);
    }
    ci->pub.op = m.op;
    if (authorize(ci, e) < 0 || read_params(ci, &m, e) < 0)
        return -1;
    if (query_split(ci->query_text, &ci->query, &ci->nquery, e) < 0)
        return -1;
    return check_query(m.op, ci->query, ci->nquery, e);
}

static void run(struct call_impl *ci)
{
    struct err e = {0};

    ci->is_collecting = false;
    ci->pub.body = check_json(ci->pub.op, ci->body.data, ci->body.len, &e);
    buf_done(&ci->body);
    if (ci->pub.body == NULL)
        call_refuse(ci, &e);
    else
        ci->pub.op->fn(&ci->pub);
}

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    struct call_impl *ci = ctx;
    struct err e;

    if (ci->pub.on_body != NULL) { /* it gives the credit */
        ci->pub.on_body(&ci->pub, p, n);
        return;
    }
    http_stream_consume(st, n);
    if (!ci->is_collecting || buf_add(&ci->body, p, n) == 0)
        return;
    ci->is_collecting = false;
    err_set(&e, ERR_TOO_LARGE, "the JSON body has more than %d bytes", LIMIT_JSON_BODY);
    call_refuse(ci, &e);
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n,
                        void *ctx)
{
    struct call_impl *ci = ctx;

    if (ci->is_collecting)
        run(ci);
    else if (ci->pub.on_body_end != NULL)
        ci->pub.on_body_end(&ci->pub);
}

static void on_writable(struct http_stream *st, void *ctx)
{
    struct call_impl *ci = ctx;

    if (ci->pub.on_writable != NULL)
        ci->pub.on_writable(&ci->pub);
}

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    call_closed(ctx);
}

static const struct http_ops ops = {
    .on_body = on_body,
    .on_body_end = on_body_end,
    .on_writable = on_writable,
    .on_close = on_close,
};

void rest_handle(struct http_stream *st, const struct http_request *rq, void *core)
{
    struct call_impl *ci = call_new(st, rq, core);
    struct err e = {0};

    http_stream_set(st, &ops, ci);
    if (admit(ci, &e) < 0) {
        call_refuse(ci, &e);
    } else if ((ci->pub.op->flags & OP_RAW_BODY) != 0) {
        ci->pub.op->fn(&ci->pub);
    } else if (!rq->has_body) {
        run(ci);
    } else if (rq->content_length > LIMIT_JSON_BODY) {
        err_set(&e, ERR_TOO_LARGE, "the JSON body has %lld bytes, at most %d are accepted",
                (long long)rq->content_length, LIMIT_JSON_BODY);
        call_refuse(ci, &e);
    } else {
        ci->is_collecting = true;
    }
}
