/*
 * mcall.c - from a gRPC request to its handler and back
 */
#include "api/modal/mcall.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/modal/blobs.h"
#include "api/modal/utf8.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/audit.h"
#include "core/token.h"
#include "http/grpc_text.h"
#include "http/proto_nul.h"

#define PREFIX "/modal.client.ModalClient/"
#define WARNINGS_MAX 8              /* trailers of a call */
#define RETRY_CAPACITY_S 1.0F       /* when there is no room for a sandbox */

/* --- ends ---------------------------------------------------------------------------------------------------------- */

/* Audit lines have the statuses of HTTP, whoever called. */
static int http_status(enum grpc_status status)
{
    static const int known[] = {
        [GRPC_OK] = 200,
        [GRPC_CANCELLED] = 499,
        [GRPC_INVALID_ARGUMENT] = 400,
        [GRPC_NOT_FOUND] = 404,
        [GRPC_ALREADY_EXISTS] = 409,
        [GRPC_PERMISSION_DENIED] = 403,
        [GRPC_RESOURCE_EXHAUSTED] = 429,
        [GRPC_FAILED_PRECONDITION] = 409,
        [GRPC_OUT_OF_RANGE] = 416,
        [GRPC_UNIMPLEMENTED] = 501,
        [GRPC_UNAVAILABLE] = 503,
        [GRPC_UNAUTHENTICATED] = 401,
    };

    return (size_t)status < array_len(known) && known[status] != 0 ? known[status] : 500;
}

static void audit(const struct mcall *c, enum grpc_status status)
{
    struct audit_row r = {
        .at_ms = clock_wall_ms(),
        .status = http_status(c->grpc != NULL ? status : GRPC_CANCELLED),
        .ms = (int32_t)(clock_boot_ms() - c->begin_ms),
    };

    (void)snprintf(r.token, sizeof r.token, "%s", c->token.id);
    (void)snprintf(r.method, sizeof r.method, "gRPC");
    (void)snprintf(r.path, sizeof r.path, PREFIX "%s", c->rpc->name);
    (void)snprintf(r.op, sizeof r.op, "modal.%s", c->rpc->name);
    (void)snprintf(r.target, sizeof r.target, "%s", c->target);
    audit_add(c->m->core, &r);
}

static void call_free(struct mcall *c)
{
    if (c->request != NULL)
        protobuf_c_message_free_unpacked(c->request, NULL);
    free(c);
}

void m_send(struct mcall *c, const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    auto_free uint8_t *p = mem_alloc(n);

    if (c->grpc == NULL)
        return;
    (void)protobuf_c_message_pack(message, p);
    grpc_send(c->grpc, p, n);
}

void m_end(struct mcall *c)
{
    audit(c, GRPC_OK);
    if (c->grpc != NULL)
        grpc_finish(c->grpc, GRPC_OK, NULL);
    call_free(c);
}

void m_reply(struct mcall *c, const ProtobufCMessage *reply)
{
    m_send(c, reply);
    m_end(c);
}

void m_reply_empty(struct mcall *c)
{
    M(Empty) empty = MODAL__CLIENT__EMPTY__INIT;

    m_reply(c, &empty.base);
}

static void add_base64(struct buf *b, const uint8_t *p, size_t n)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            (void)buf_addc(b, i + k <= n ? alphabet[v >> (18 - 6 * k) & 63] : '=');
    }
}

/* Tells the client to wait and to try again, without end. */
static void add_retry_policy(struct mcall *c, enum grpc_status status, const char *message)
{
    M(RPCRetryPolicy) policy = MODAL__CLIENT__RPCRETRY_POLICY__INIT;
    M(Any) any = MODAL__CLIENT__ANY__INIT, *details[] = {&any};
    M(RPCStatus) st = MODAL__CLIENT__RPCSTATUS__INIT;
    uint8_t value[32];
    auto_buf text = {0};

    policy.has_retry_after_secs = true;
    policy.retry_after_secs = RETRY_CAPACITY_S;
    any.type_url = STR("type.googleapis.com/modal.client.RPCRetryPolicy");
    any.has_value = true;
    any.value.data = value;
    any.value.len = modal__client__rpcretry_policy__pack(&policy, value);
    st.has_code = true;
    st.code = (int32_t)status;
    st.message = STR(message);
    st.details = details;
    st.n_details = 1;
    size_t n = modal__client__rpcstatus__get_packed_size(&st);
    auto_free uint8_t *p = mem_alloc(n);
    (void)modal__client__rpcstatus__pack(&st, p);
    buf_init(&text, 2 * n + 8);
    add_base64(&text, p, n);
    grpc_call_trailer(c->grpc, "grpc-status-details-bin", buf_str(&text));
}

void m_fail(struct mcall *c, const struct err *e)
{
    enum grpc_status status = (enum grpc_status)err_row(e->code)->grpc_status;

    audit(c, status);
    if (c->grpc != NULL) {
        if (e->code == ERR_CAPACITY)
            add_retry_policy(c, status, e->message);
        grpc_finish_err(c->grpc, e);
    }
    call_free(c);
}

void m_refuse(struct mcall *c, enum grpc_status status, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    audit(c, status);
    if (c->grpc != NULL)
        grpc_finish(c->grpc, status, text);
    call_free(c);
}

/* One trailer a message, as some clients take them one by one and some split what was joined at the commas. */
void m_warn(struct mcall *c, const char *fmt, ...)
{
    char text[400], encoded[1200];
    auto_buf value = {0};
    va_list ap;

    if (c->grpc == NULL || c->nwarnings == WARNINGS_MAX)
        return;
    c->nwarnings++;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)grpc_encode(text, encoded, sizeof encoded);
    buf_init(&value, 3 * sizeof encoded);
    for (const char *p = encoded; *p != '\0'; p++) {
        if (*p == ',')
            (void)buf_adds(&value, "%2C");
        else
            (void)buf_addc(&value, *p);
    }
    grpc_call_trailer(c->grpc, "x-modal-warning", buf_str(&value));
}

/* --- the request --------------------------------------------------------------------------------------------------- */

/* Where the value of a field lies, or its repeated values; 0 = the field is absent. */
static size_t values_of(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, void *const **ret_list)
{
    const char *at = (const char *)m + f->offset;

    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        *ret_list = *(void *const *const *)(const void *)at;
        return *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
    }
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0
        && *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) != f->id)
        return 0;
    *ret_list = (void *const *)(const void *)at;
    return **ret_list != NULL && **ret_list != f->default_value ? 1 : 0;
}

/* Texts go to JSON, logs and the database: every one must be UTF-8, as the protocol says they are. */
int m_check_texts(const ProtobufCMessage *m, struct err *e)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        void *const *list;
        if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        size_t n = values_of(m, f, &list);
        for (size_t k = 0; k < n; k++) {
            if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
                if (m_check_texts(list[k], e) < 0)
                    return -1;
            } else if (!utf8_is_valid(list[k])) {
                return err_param(e, ERR_INVALID, f->name, "the field %s is not UTF-8", f->name);
            }
        }
    }
    return 0;
}

static void on_message(struct grpc_call *g, const void *p, size_t n, void *ctx)
{
    struct mcall *c = ctx;
    struct sha256 h;

    if (c->request == NULL) {
        c->request = protobuf_c_message_unpack(c->rpc->request, NULL, n, p);
        c->nul_field = proto_nul_field(c->rpc->request, p, n);
        sha256_init(&h);
        sha256_add(&h, c->rpc->name, strlen(c->rpc->name) + 1);
        sha256_add(&h, p, n);
        sha256_end(&h, c->hash);
    }
    grpc_call_consumed(g, n);
}

static void on_half_close(struct grpc_call *g, void *ctx)
{
    struct mcall *c = ctx;
    struct err e;

    if (c->request == NULL) {
        (void)err_set(&e, ERR_MALFORMED, "the request of %s could not be read", c->rpc->name);
        m_fail(c, &e);
    } else if (c->nul_field != NULL) {
        (void)err_param(&e, ERR_INVALID, c->nul_field, "there is a NUL in the field %s", c->nul_field);
        m_fail(c, &e);
    } else if (m_check_texts(c->request, &e) < 0) {
        m_fail(c, &e);
    } else {
        c->rpc->fn(c);
    }
}

static void on_writable(struct grpc_call *g, void *ctx)
{
    struct mcall *c = ctx;

    if (c->on_writable != NULL)
        c->on_writable(c);
}

static void on_end(struct grpc_call *g, enum grpc_status status, const struct err *e, void *ctx)
{
    struct mcall *c = ctx;

    c->grpc = NULL;
    if (c->request == NULL)             /* the handler has not begun */
        m_end(c);
    else if (c->on_gone != NULL)
        c->on_gone(c);
}

static int authorize(struct mcall *c, struct err *e)
{
    const char *id = grpc_call_metadata(c->grpc, "x-modal-token-id");
    const char *secret = grpc_call_metadata(c->grpc, "x-modal-token-secret");
    char line[256];

    if (id == NULL || secret == NULL)
        return err_set(e, ERR_UNAUTHENTICATED, "Token missing: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET");
    (void)snprintf(line, sizeof line, "Bearer %.80s.%.120s", id, secret);
    if (token_check(c->m->core, line, &c->token, e) < 0) {
        if (e->code == ERR_UNAUTHENTICATED)
            (void)err_set(e, ERR_UNAUTHENTICATED, "Token ID or secret is invalid, revoked or expired");
        return -1;
    }
    if (c->rpc->scope[0] != '\0' && !token_has_scope(&c->token, c->rpc->scope))
        return err_set(e, ERR_DENIED, "the token %s lacks the scope %s", c->token.id, c->rpc->scope);
    return 0;
}

struct begin {
    struct modal *m;
    const struct rpc *rpc;
    bool is_tls;
};

static void begin(struct grpc_call *g, void *arg)
{
    static const struct grpc_ops ops = {
        .on_message = on_message, .on_half_close = on_half_close, .on_writable = on_writable, .on_end = on_end};
    const struct begin *b = arg;
    struct mcall *c = mem_zalloc(sizeof *c);
    struct err e;

    c->m = b->m;
    c->rpc = b->rpc;
    c->is_tls = b->is_tls;
    c->grpc = g;
    c->begin_ms = clock_boot_ms();
    /* What nobody can have is refused without a token too: a login in the browser, for one, starts without. */
    if (c->rpc->fn == NULL)
        m_refuse(c, GRPC_UNIMPLEMENTED, "%s: %s", c->rpc->name, c->rpc->note);
    else if (authorize(c, &e) < 0)
        m_fail(c, &e);
    else
        grpc_call_set(g, &ops, c);
}

bool modal_is_request(const struct http_request *rq)
{
    return grpc_is_request(rq) || strncmp(rq->path, BLOB_PATH, strlen(BLOB_PATH)) == 0;
}

void modal_handle(struct modal *m, struct http_stream *st, const struct http_request *rq)
{
    struct begin b = {.m = m, .is_tls = rq->tls};
    const struct grpc_method method = {rq->path, begin};
    if (!grpc_is_request(rq)) {
        blob_http(m, st, rq);
        return;
    }
    const char *name = strncmp(rq->path, PREFIX, strlen(PREFIX)) == 0 ? rq->path + strlen(PREFIX) : "";

    for (size_t i = 0; i < nrpcs && b.rpc == NULL; i++)
        if (strcmp(rpcs[i].name, name) == 0)
            b.rpc = &rpcs[i];
    grpc_serve(st, rq, &method, b.rpc != NULL ? 1 : 0, &b);
}

/* --- what handlers share ------------------------------------------------------------------------------------------- */

struct store *m_store(const struct mcall *c)
{
    return core_store(c->m->core);
}

const char *m_idem_key(const struct mcall *c)
{
    const char *key = c->grpc != NULL ? grpc_call_metadata(c->grpc, "x-idempotency-key") : NULL;

    return key != NULL && key[0] != '\0' && strlen(key) <= IDEM_KEY_MAX ? key : NULL;
}

int m_idem(struct mcall *c, const char *object, enum idem_result *ret, char ret_object[IDEM_OBJECT_SIZE], struct err *e)
{
    const char *key = m_idem_key(c);

    *ret = IDEM_NEW;
    (void)snprintf(ret_object, IDEM_OBJECT_SIZE, "%s", object);
    return key != NULL ? idem_begin(c->m->core, c->token.id, key, c->hash, object, ret, ret_object, e) : 0;
}

uint64_t m_poll_ms(double seconds, double most)
{
    if (!(seconds > 0))
        return 0;
    return (uint64_t)((seconds < most ? seconds : most) * 1000);
}

int m_check_name(const char *what, const char *name, struct err *e)
{
    if (name_is_valid(name, strlen(name)))
        return 0;
    return err_set(e, ERR_INVALID, "Invalid %s name '%.80s': 1 to %d characters of A-Z a-z 0-9 . _ -, not shaped like an app id",
                   what, name, LIMIT_NAME);
}
