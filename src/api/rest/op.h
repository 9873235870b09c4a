/*
 * op.h - the operation table: one row drives routing, authentication, scopes, checking of input and
 * /openapi.json
 *
 * Each group of operations is a file with a table (rest_sandbox_ops, rest_exec_ops, ...); rest.c
 * joins them. A handler runs only after the token, the scope, the path ids' shape, every query
 * parameter and (for JSON bodies) every field has been checked against the row.
 */
#ifndef QS_API_REST_OP_H
#define QS_API_REST_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/core.h"
#include "http/http.h"
#include "json/json.h"

enum field_type {
    FIELD_STRING,           /* min/max: bytes */
    FIELD_INT,              /* min/max: value */
    FIELD_NUMBER,           /* min/max: value; NaN and infinities are refused */
    FIELD_BOOL,
    FIELD_ENUM,             /* choices: "a|b|c" */
    FIELD_STRINGS,          /* array of strings; min/max: count */
    FIELD_STRING_MAP,       /* object of strings */
    FIELD_TTY,              /* bool or {rows, cols} */
    FIELD_JSON,             /* anything; the handler checks */
};

enum {
    FIELD_REQUIRED = 1,
    FIELD_NULLABLE = 2,
    FIELD_REPEATED = 4,     /* query parameter that may come more than once */
    FIELD_OPEN_MIN = 8,     /* value must be greater than min */
    FIELD_NAME = 16,        /* must satisfy name_is_valid */
    FIELD_ABS_PATH = 32,    /* must begin with '/' */
};

struct field {
    const char *name;
    enum field_type type;
    unsigned flags;
    double min, max;        /* both 0: unchecked */
    const char *choices;
    const char *doc;        /* for OpenAPI */
};

enum {
    OP_NO_AUTH = 1,
    OP_RAW_BODY = 2,        /* the body is bytes for the handler (stdin, files, tars), not JSON */
    OP_STREAM = 4,          /* the answer is a stream; no JSON response schema */
    OP_UPGRADE = 8,         /* may be a WebSocket upgrade */
    OP_OPEN_BODY = 16,      /* a JSON object whose members are not fields (tags): the handler checks them */
};

struct call;

struct op {
    const char *id;         /* "sandbox.create", for audit, OpenAPI and metrics */
    const char *method;
    const char *path;       /* "/v1/sandboxes/{id}/execs/{exec_id}" */
    const char *scope;      /* NULL with OP_NO_AUTH */
    unsigned flags;
    const char *summary;
    const struct field *query;
    size_t nquery;
    const struct field *body;
    size_t nbody;
    int success;            /* documented status */
    void (*fn)(struct call *c);
};

/*
 * One call. Everything here is the framework's and lives until the stream has closed AND the
 * handler has answered (call_* below) - see call_hold for handlers that go on after the client
 * left.
 */
struct call {
    const struct op *op;
    struct core *core;
    struct http_stream *stream;     /* NULL once the client has gone */
    const char *request_id;
    const struct token *token;      /* who calls; NULL with OP_NO_AUTH */
    json_t *body;                   /* checked object ({} if there was none); NULL with OP_RAW_BODY */
    const struct http_request *rq;  /* a copy that lives as long as the call */
    void *user;                     /* the handler's state */

    /* Hooks a handler sets before it returns; the framework owns the stream's callbacks and
     * forwards. All may stay NULL. After an answer (call_reply, call_fail, call_done) no hook is
     * called. */
    void (*on_gone)(struct call *c);    /* the client vanished; stream is NULL. The handler still ends the call, now or later
                                         * (call_done(c, CALL_CLIENT_GONE), or any answer: it goes nowhere) */
    void (*on_body)(struct call *c, const void *p, size_t n);   /* OP_RAW_BODY; give credit with http_stream_consume.
                                                                 * NULL: the bytes are dropped */
    void (*on_body_end)(struct call *c);                        /* OP_RAW_BODY: the whole body has come */
    void (*on_writable)(struct call *c);                        /* room to stream again (http.h) */
};

#define CALL_CLIENT_GONE 499        /* status in the audit line of a call whose client left */

/* Path parameter "{id}" and friends; never NULL for a name in the row's path. */
const char *call_param(const struct call *c, const char *name);
/* First value of a query parameter, decoded (bytes, NUL-terminated, no embedded NUL), or NULL. */
const char *call_query(const struct call *c, const char *name);
const char *call_query_nth(const struct call *c, const char *name, size_t i);
bool call_query_bool(const struct call *c, const char *name, bool fallback);
int64_t call_query_int(const struct call *c, const char *name, int64_t fallback);
double call_query_number(const struct call *c, const char *name, double fallback);
const char *call_header(const struct call *c, const char *name);
double call_number(const struct call *c, const char *name, double fallback);    /* body fields, checked already; */
int64_t call_int(const struct call *c, const char *name, int64_t fallback);     /* absent or null: fallback */
bool call_bool(const struct call *c, const char *name, bool fallback);
const char *call_string(const struct call *c, const char *name, const char *fallback);

/* Idempotency-Key and the hash of method, path and body to go with it into core/idempotency.h;
 * *ret_key is NULL when the header is absent. -1 when the header is malformed. */
int call_idem_key(struct call *c, const char **ret_key, uint8_t ret_hash[32], struct err *e);
/* One more header of the answer ("idempotency-replayed", "true"); both texts must be constants.
 * At most one. */
void call_add_header(struct call *c, const char *name, const char *value);

/* The object that the call made, for its audit line; otherwise the first id of the path is it. */
void call_set_target(struct call *c, const char *id);

/* Answers; exactly one ends the call, also after the client has gone (audit line; the call is
 * freed once its stream has closed, maybe at once: do not touch it afterwards). `body` is
 * consumed. */
void call_reply(struct call *c, int status, json_t *body);
void call_reply_empty(struct call *c, int status);
void call_fail(struct call *c, const struct err *e);
/* What call_fail would send as a body, {"error": {...}}, for an answer whose head has gone out;
 * the caller owns it. */
json_t *call_error_json(const struct call *c, const struct err *e);
/* For handlers that stream: after http_respond/sse_start they write, use the hooks, end the
 * stream (http_stream_end, or http_stream_cancel when the answer broke off) and then call
 * call_done. After ws_accept the callbacks are the handler's own, and call_done(c, 101) comes
 * from its ws on_close: 101 says so. status is for the audit line. */
void call_done(struct call *c, int status);
/* Response headers that every answer carries (x-request-id); writes into out, returns the count
 * (room for 4). */
size_t call_headers(const struct call *c, struct http_header *out);

/* The request handler of control's listener for everything under /v1 and /openapi.json. */
void rest_handle(struct http_stream *st, const struct http_request *rq, void *core);
/* All rows, for OpenAPI, docs and tests. */
const struct op *rest_op(size_t i);     /* NULL past the end */
json_t *rest_openapi(void);             /* caller owns */

/* The tables. */
extern const struct op rest_sandbox_ops[], rest_exec_ops[], rest_file_ops[], rest_image_ops[],
    rest_operation_ops[], rest_token_ops[], rest_service_ops[], rest_port_ops[], rest_pass_ops[],
    rest_network_ops[], rest_policy_ops[], rest_ready_ops[], rest_secret_ops[];
extern const size_t rest_sandbox_nops, rest_exec_nops, rest_file_nops, rest_image_nops, rest_operation_nops, rest_token_nops,
    rest_service_nops, rest_port_nops, rest_pass_nops, rest_network_nops, rest_policy_nops, rest_ready_nops, rest_secret_nops;

#endif
