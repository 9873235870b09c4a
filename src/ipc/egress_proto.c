/*
 * egress_proto.c - codec of the messages between node and egress
 */
#include "ipc/egress_proto.h"

#include <errno.h>
#include <string.h>

#include "ipc/wire.h"

static size_t done(const struct wire_writer *w)
{
    return w->failed ? 0 : w->len;
}

const char *egress_reason_name(enum egress_reason r)
{
    static const char *const names[EGRESS_REASONS_] = {
        [EGRESS_BY_RULE] = "rule", [EGRESS_ADDRESS] = "address", [EGRESS_NAME] = "name",
        [EGRESS_MISMATCH] = "mismatch", [EGRESS_METHOD] = "method", [EGRESS_ENCRYPTED] = "encrypted-hello",
        [EGRESS_LIMIT] = "limit", [EGRESS_MALFORMED] = "malformed",
        [EGRESS_NOTED] = "noted",
        [EGRESS_SECRET] = "secret", [EGRESS_PINNED] = "pinned", [EGRESS_CERTIFICATE] = "certificate",
        [EGRESS_INJECTED] = "injected", [EGRESS_PROTOCOL] = "protocol",
    };

    return r > 0 && r < EGRESS_REASONS_ ? names[r] : "?";
}

const char *egress_protocol_name(unsigned protocol)
{
    return protocol == EGRESS_QUERY ? "dns" : policy_protocol_name((enum policy_protocol)protocol);
}

static void put_totals(struct wire_writer *w, const struct egress_totals *t)
{
    wire_put_u64(w, t->sent);
    wire_put_u64(w, t->received);
    wire_put_u64(w, t->flows);
    wire_put_u64(w, t->failed);
    wire_put_u64(w, t->queries);
    wire_put_u64(w, t->denied);
    wire_put_u64(w, t->noted);
}

static void get_totals(struct wire_reader *r, struct egress_totals *t)
{
    t->sent = wire_get_u64(r);
    t->received = wire_get_u64(r);
    t->flows = wire_get_u64(r);
    t->failed = wire_get_u64(r);
    t->queries = wire_get_u64(r);
    t->denied = wire_get_u64(r);
    t->noted = wire_get_u64(r);
}

size_t egress_policy_encode(const struct egress_policy *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    wire_put_u64(&w, m->revision);
    wire_put_bool(&w, m->keep);
    wire_put_bytes(&w, m->policy, m->policy_len);
    wire_put_str(&w, m->name);
    wire_put_u32(&w, m->version);
    wire_put_bool(&w, m->follows);
    put_totals(&w, &m->totals);
    wire_put_u64(&w, m->totals.injected);
    wire_put_bytes(&w, m->authority, m->authority_len);
    wire_put_bytes(&w, m->secrets, m->secrets_len);
    return done(&w);
}

int egress_policy_decode(struct egress_policy *ret, const void *p, size_t n)
{
    struct egress_policy m = {{0}};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    m.revision = wire_get_u64(&r);
    m.keep = wire_get_bool(&r);
    m.policy = wire_get_bytes(&r, LIMIT_POLICY_BYTES, &m.policy_len);
    if (r.at < r.len) {         /* older ones on the node's disk end here, */
        wire_get_str(&r, m.name, sizeof m.name);
        m.version = wire_get_u32(&r);
        m.follows = wire_get_bool(&r);
        get_totals(&r, &m.totals);
    }
    if (!r.failed && r.at < r.len) {    /* or here */
        m.totals.injected = wire_get_u64(&r);
        m.authority = wire_get_bytes(&r, EGRESS_AUTHORITY_BYTES, &m.authority_len);
        m.secrets = wire_get_bytes(&r, EGRESS_SECRETS_BYTES, &m.secrets_len);
    }
    if (!wire_end(&r) || !id_is(m.sandbox, "sb-"))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t egress_secret_encode(const struct egress_secret *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->id);
    wire_put_str(&w, m->key);
    wire_put_bytes(&w, m->value, m->value_len);
    return done(&w);
}

int egress_secret_next(const uint8_t **p, size_t *n, struct egress_secret *ret)
{
    struct wire_reader r;

    if (*n == 0)
        return 0;
    *ret = (struct egress_secret){{0}};
    wire_read(&r, *p, *n);
    wire_get_str(&r, ret->id, sizeof ret->id);
    wire_get_str(&r, ret->key, sizeof ret->key);
    ret->value = wire_get_bytes(&r, EGRESS_SECRETS_BYTES, &ret->value_len);
    if (r.failed || !id_is(ret->id, "st-") || memchr(ret->value, '\0', ret->value_len) != NULL)
        return -EBADMSG;
    *p += r.at;
    *n -= r.at;
    return 1;
}

size_t egress_error_encode(const struct egress_error *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u16(&w, m->code);
    wire_put_str(&w, m->message);
    return done(&w);
}

int egress_error_decode(struct egress_error *ret, const void *p, size_t n)
{
    struct egress_error m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.code = wire_get_u16(&r);
    wire_get_str(&r, m.message, sizeof m.message);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

static void put_denial(struct wire_writer *w, const struct egress_denial *d)
{
    wire_put_u64(w, d->seq);
    wire_put_i64(w, d->when_ms);
    wire_put_u8(w, d->reason);
    wire_put_u8(w, d->protocol);
    wire_put_u16(w, d->port);
    wire_put_bytes(w, d->to.b, sizeof d->to.b);
    wire_put_str(w, d->rule);
    wire_put_str(w, d->name);
}

static void get_denial(struct wire_reader *r, struct egress_denial *d)
{
    size_t len;

    d->seq = wire_get_u64(r);
    d->when_ms = wire_get_i64(r);
    d->reason = wire_get_u8(r);
    d->protocol = wire_get_u8(r);
    d->port = wire_get_u16(r);
    const void *to = wire_get_bytes(r, sizeof d->to.b, &len);
    if (r->failed || len != sizeof d->to.b || d->reason == 0 || d->reason >= EGRESS_REASONS_ ||
        d->protocol > EGRESS_QUERY)
        wire_fail(r);
    else
        memcpy(d->to.b, to, sizeof d->to.b);
    wire_get_str(r, d->rule, sizeof d->rule);
    wire_get_str(r, d->name, sizeof d->name);
}

size_t egress_status_encode(const struct egress_status *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u64(&w, m->revision);
    put_totals(&w, &m->totals);
    wire_put_u64(&w, m->totals.injected);
    wire_put_u64(&w, m->flows_now);
    wire_put_u32(&w, m->ndenials);
    for (uint32_t i = 0; i < m->ndenials; i++)
        put_denial(&w, &m->denials[i]);
    return done(&w);
}

int egress_status_decode(struct egress_status *ret, const void *p, size_t n)
{
    struct wire_reader r;

    *ret = (struct egress_status){0};
    wire_read(&r, p, n);
    ret->revision = wire_get_u64(&r);
    get_totals(&r, &ret->totals);
    ret->totals.injected = wire_get_u64(&r);
    ret->flows_now = wire_get_u64(&r);
    ret->ndenials = wire_get_u32(&r);
    if (r.failed || ret->ndenials > EGRESS_DENIALS)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->ndenials; i++)
        get_denial(&r, &ret->denials[i]);
    return wire_end(&r) ? 0 : -EBADMSG;
}

size_t egress_decision_encode(const char *sandbox, const struct egress_decision *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, sandbox);
    put_denial(&w, &m->about);
    wire_put_u8(&w, m->verdict);
    wire_put_u64(&w, m->revision);
    wire_put_u32(&w, m->count);
    wire_put_u64(&w, m->missed);
    wire_put_str(&w, m->method);
    wire_put_str(&w, m->path);
    wire_put_str(&w, m->secrets);
    return done(&w);
}

static void get_printable(struct wire_reader *r, char *out, size_t size)
{
    wire_get_str(r, out, size);
    for (const char *c = out; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 127)
            wire_fail(r);
}

int egress_decision_decode(char ret_sandbox[ID_SIZE], struct egress_decision *ret, const void *p, size_t n)
{
    struct wire_reader r;

    *ret = (struct egress_decision){0};
    wire_read(&r, p, n);
    wire_get_str(&r, ret_sandbox, ID_SIZE);
    get_denial(&r, &ret->about);
    ret->verdict = wire_get_u8(&r);
    ret->revision = wire_get_u64(&r);
    ret->count = wire_get_u32(&r);
    ret->missed = wire_get_u64(&r);
    get_printable(&r, ret->method, sizeof ret->method);
    get_printable(&r, ret->path, sizeof ret->path);
    get_printable(&r, ret->secrets, sizeof ret->secrets);
    if (ret->verdict != POLICY_ALLOW && ret->verdict != POLICY_DENY)
        wire_fail(&r);
    return wire_end(&r) && id_is(ret_sandbox, "sb-") ? 0 : -EBADMSG;
}

size_t egress_totals_encode(const char *sandbox, const struct egress_totals *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, sandbox);
    put_totals(&w, m);
    wire_put_u64(&w, m->injected);
    return done(&w);
}

int egress_totals_decode(char ret_sandbox[ID_SIZE], struct egress_totals *ret, const void *p, size_t n)
{
    struct wire_reader r;

    *ret = (struct egress_totals){0};
    wire_read(&r, p, n);
    wire_get_str(&r, ret_sandbox, ID_SIZE);
    get_totals(&r, ret);
    if (!r.failed && r.at < r.len)      /* older ones on the node's disk end here */
        ret->injected = wire_get_u64(&r);
    return wire_end(&r) && id_is(ret_sandbox, "sb-") ? 0 : -EBADMSG;
}

size_t egress_ref_encode(const char *sandbox, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, sandbox);
    return done(&w);
}

int egress_ref_decode(char ret[ID_SIZE], const void *p, size_t n)
{
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, ret, ID_SIZE);
    return wire_end(&r) && id_is(ret, "sb-") ? 0 : -EBADMSG;
}
