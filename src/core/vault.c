/*
 * vault.c - sealing secrets, and telling the node
 *
 * One call of the node, Attend, stays open: when it ends the node was away, and keys and all secrets are sent again.
 */
#include "core/vault.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/internal.h"
#include "net/seal.h"
#include "net/signer.h"
#include "node.pb-c.h"

#define TELL_TIMEOUT_MS 10000
#define AGAIN_FIRST_MS 50
#define AGAIN_MOST_MS 5000
#define SECRETS_MAX 20000               /* the node keeps them in memory */

struct vault {
    struct core *core;
    struct net_signer *signer;
    unsigned char seal_key[NET_SEAL_KEY_SIZE];
    struct grpc_call *attend;           /* NULL while there is none */
    struct loop_timer *again;
    uint64_t pause_ms;
    bool is_stopping;
};

struct vault *vault_open(struct core *c, const char *data_dir, struct err *e)
{
    char path[512];
    struct vault *v = mem_zalloc(sizeof *v);

    v->core = c;
    (void)snprintf(path, sizeof path, "%s/control/router-key.pem", data_dir);
    v->signer = net_signer_open(path, e);
    (void)snprintf(path, sizeof path, "%s/control/secrets.key", data_dir);
    if (v->signer == NULL || net_seal_key(path, v->seal_key, e) < 0) {
        vault_free(v);
        return NULL;
    }
    c->vault = v;
    return v;
}

void vault_free(struct vault *v)
{
    if (v == NULL)
        return;
    loop_timer_free(v->again);
    net_signer_free(v->signer);
    explicit_bzero(v->seal_key, sizeof v->seal_key);
    free(v);
}

char *vault_sign(struct vault *v, const json_t *claims, struct err *e)
{
    auto_free char *text = js_text(claims, true);

    return net_signer_jwt(v->signer, text, e);
}

void secret_wipe(json_t *values)
{
    const char *key;
    json_t *value;

    json_object_foreach(values, key, value)
        if (json_is_string(value))
            explicit_bzero((char *)(uintptr_t)json_string_value(value), json_string_length(value));
}

/* --- telling the node ---------------------------------------------------------------------------------------------- */

static void on_told(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    if (e != NULL)
        log_warn("vault.tell", "what=%s cause=\"%s\"", (const char *)ctx, e->message);   /* again when it is back */
}

static void tell_keys(struct vault *v)
{
    Quicksand__Node__SetKeysRequest rq = QUICKSAND__NODE__SET_KEYS_REQUEST__INIT;
    Quicksand__Node__Key key = QUICKSAND__NODE__KEY__INIT, *keys[] = {&key};

    key.kid = (char *)(uintptr_t)net_signer_kid(v->signer);
    key.pem = (char *)(uintptr_t)net_signer_public_pem(v->signer);
    rq.keys = keys;
    rq.n_keys = 1;
    (void)node_unary(v->core, "SetKeys", &rq.base, &quicksand__node__empty__descriptor, TELL_TIMEOUT_MS, true, on_told,
                     (void *)(uintptr_t) "keys");
}

/* A secret in the node's form; everything it points to is owned. */
struct told {
    Quicksand__Node__Secret m;
    char id[ID_SIZE];
    ProtobufCBinaryData *env;
};

static void told_init(struct told *t, const char *id, int64_t version, const json_t *values)
{
    const char *key;
    json_t *value;

    t->m = (Quicksand__Node__Secret)QUICKSAND__NODE__SECRET__INIT;
    (void)snprintf(t->id, sizeof t->id, "%s", id);
    t->m.secret_id = t->id;
    t->m.has_version = true;
    t->m.version = (uint64_t)version;
    t->m.has_deleted = true;
    t->m.deleted = values == NULL;
    t->env = mem_array(json_object_size(values) + 1, sizeof *t->env);
    json_object_foreach((json_t *)(uintptr_t)values, key, value) {
        char *text = mem_printf("%s=%s", key, json_string_value(value));
        t->env[t->m.n_env++] = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    }
    t->m.env = t->env;
}

static void told_done(struct told *t)
{
    for (size_t i = 0; i < t->m.n_env; i++) {
        explicit_bzero(t->env[i].data, t->env[i].len);
        free(t->env[i].data);
    }
    free(t->env);
}

static json_t *unseal(struct vault *v, const struct secret_row *r, struct err *e)
{
    size_t n = 0;
    auto_free unsigned char *text = mem_alloc(r->sealed_len + 1);

    if (net_unseal(v->seal_key, r->id, r->sealed, r->sealed_len, text, &n, e) < 0)
        return NULL;
    json_t *values = js_parse(text, n, 8 * SECRET_BYTES_MAX, e);
    explicit_bzero(text, n);
    return values;
}

struct all {
    struct vault *vault;
    struct told **items;
    size_t n;
};

static void add_secret(void *ctx, const struct secret_row *r)
{
    struct all *a = ctx;
    struct err e;
    auto_secret_values *values = unseal(a->vault, r, &e);

    if (values == NULL) {
        log_warn("vault.secret", "id=%s cause=\"%s\"", r->id, e.message);
        return;
    }
    if (a->n == SECRETS_MAX)
        return;
    a->items[a->n] = mem_zalloc(sizeof **a->items);
    told_init(a->items[a->n++], r->id, r->version, values);
}

static void tell_secrets(struct vault *v)
{
    Quicksand__Node__PutSecretsRequest rq = QUICKSAND__NODE__PUT_SECRETS_REQUEST__INIT;
    struct all a = {v, mem_array(SECRETS_MAX, sizeof(struct told *)), 0};
    struct err e;

    secrets_expire(v);
    if (store_secret_each(core_store(v->core), add_secret, &a, &e) < 0)
        log_warn("vault.secrets", "cause=\"%s\"", e.message);
    Quicksand__Node__Secret **list = mem_array(a.n + 1, sizeof *list);
    for (size_t i = 0; i < a.n; i++)
        list[i] = &a.items[i]->m;
    rq.has_replace_all = rq.replace_all = true;
    rq.secrets = list;
    rq.n_secrets = a.n;
    (void)node_unary(v->core, "PutSecrets", &rq.base, &quicksand__node__empty__descriptor, TELL_TIMEOUT_MS, true, on_told,
                     (void *)(uintptr_t) "secrets");
    for (size_t i = 0; i < a.n; i++) {
        told_done(a.items[i]);
        free(a.items[i]);
    }
    free(list);
    free(a.items);
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    grpc_call_consumed(c, n);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    struct vault *v = ctx;

    v->attend = NULL;
    if (v->is_stopping)
        return;
    loop_timer_set(v->again, v->pause_ms);
    v->pause_ms = v->pause_ms * 2 < AGAIN_MOST_MS ? v->pause_ms * 2 : AGAIN_MOST_MS;
}

static void attend(void *ctx)
{
    static const struct grpc_ops ops = {.on_message = on_message, .on_end = on_end};
    struct vault *v = ctx;

    v->attend = grpc_client_call(core_node(v->core), "/quicksand.node.Node/Attend", NULL, 0, 0, &ops, v);
    grpc_send(v->attend, "", 0);
    grpc_send_end(v->attend);
    tell_keys(v);
    tell_secrets(v);
}

void vault_start(struct vault *v)
{
    v->pause_ms = AGAIN_FIRST_MS;
    v->again = loop_timer_new(core_loop(v->core), attend, v);
    attend(v);
}

void vault_stop(struct vault *v)
{
    v->is_stopping = true;
    if (v->again != NULL)
        loop_timer_clear(v->again);
    if (v->attend != NULL)
        grpc_cancel(v->attend);
}

/* --- secrets ------------------------------------------------------------------------------------------------------- */

struct telling {
    char id[ID_SIZE];
    secret_fn fn;
    void *ctx;
};

static void on_secret_told(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct telling *t = ctx;

    if (e != NULL)                      /* it is told when it is back, before it can be asked for the secret */
        log_warn("vault.tell", "what=%s cause=\"%s\"", t->id, e->message);
    t->fn(t->ctx, t->id, NULL);
    free(t);
}

static void tell_one(struct vault *v, const char *id, int64_t version, const json_t *values, secret_fn fn, void *ctx)
{
    Quicksand__Node__PutSecretsRequest rq = QUICKSAND__NODE__PUT_SECRETS_REQUEST__INIT;
    struct telling *t = mem_zalloc(sizeof *t);
    struct told told;
    Quicksand__Node__Secret *list[] = {&told.m};

    (void)snprintf(t->id, sizeof t->id, "%s", id);
    t->fn = fn;
    t->ctx = ctx;
    told_init(&told, id, version, values);
    rq.secrets = list;
    rq.n_secrets = 1;
    (void)node_unary(v->core, "PutSecrets", &rq.base, &quicksand__node__empty__descriptor, TELL_TIMEOUT_MS, true,
                     on_secret_told, t);
    told_done(&told);
}

static int check_values(const json_t *values, struct err *e)
{
    const char *key;
    json_t *value;
    size_t bytes = 0;

    json_object_foreach((json_t *)(uintptr_t)values, key, value) {
        if (*key == '\0' || strchr(key, '=') != NULL)
            return err_param(e, ERR_INVALID, "env_dict", "a key of the secret is empty or has a '='");
        if (!json_is_string(value))
            return err_param(e, ERR_INVALID, "env_dict", "the value of '%.60s' is not a string", key);
        bytes += strlen(key) + json_string_length(value) + 2;
    }
    if (json_object_size(values) > LIMIT_ENVC || bytes > SECRET_BYTES_MAX)
        return err_param(e, ERR_TOO_LARGE, "env_dict", "the secret has %zu keys and %zu bytes; at most %d and %d are kept",
                         json_object_size(values), bytes, LIMIT_ENVC, SECRET_BYTES_MAX);
    return 0;
}

static int seal(struct vault *v, struct secret_row *r, const json_t *values, struct err *e)
{
    auto_json *keys = json_array();
    const char *key;
    json_t *value;

    if (check_values(values, e) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)values, key, value)
        (void)json_array_append_new(keys, json_string(key));
    free(r->keys);
    free(r->sealed);
    r->keys = js_text(keys, false);
    auto_free char *text = js_text(values, true);
    r->sealed_len = strlen(text) + NET_SEAL_EXTRA;
    r->sealed = mem_alloc(r->sealed_len);
    int result = net_seal(v->seal_key, r->id, text, strlen(text), r->sealed, e);
    explicit_bzero(text, strlen(text));
    return result;
}

/* 1: it was there and stays as it is. */
static int write_secret(struct vault *v, const struct secret_spec *s, struct secret_row *r, struct err *e)
{
    struct store *store = core_store(v->core);
    struct err local = {0};

    if (s->name[0] != '\0') {
        if (store_secret_by_name(store, s->environment, s->name, r, &local) == 0) {
            if (s->mode == SECRET_IF_MISSING)
                return 1;
            if (s->mode == SECRET_NEW)
                return err_set(e, ERR_EXISTS, "Secret '%s' already exists", s->name);
            r->version++;
            return seal(v, r, s->values, e) < 0 || store_secret_update(store, r, e) < 0 ? -1 : 0;
        }
        if (local.code != ERR_NOT_FOUND) {
            *e = local;
            return -1;
        }
    }
    id_make(r->id, "st-");
    (void)snprintf(r->environment, sizeof r->environment, "%s", s->environment);
    (void)snprintf(r->name, sizeof r->name, "%s", s->name);
    r->created_us = clock_wall_us();
    r->expires_ms = s->ttl_ms != 0 ? clock_wall_ms() + s->ttl_ms : 0;
    r->version = 1;
    return seal(v, r, s->values, e) < 0 || store_secret_insert(store, r, e) < 0 ? -1 : 0;
}

void secret_create(struct vault *v, const struct secret_spec *s, secret_fn fn, void *ctx)
{
    auto_secret_row row = {0};
    struct err e = {0};
    int r = write_secret(v, s, &row, &e);

    if (r < 0)
        fn(ctx, NULL, &e);
    else if (r == 1)
        fn(ctx, row.id, NULL);
    else
        tell_one(v, row.id, row.version, s->values, fn, ctx);
}

void secret_update(struct vault *v, const char *id, const json_t *changes, secret_fn fn, void *ctx)
{
    auto_secret_row row = {0};
    struct err e = {0};
    const char *key;
    json_t *value;

    auto_secret_values *values = store_secret_get(core_store(v->core), id, &row, &e) == 0 ? unseal(v, &row, &e) : NULL;
    if (values == NULL) {
        fn(ctx, NULL, &e);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)changes, key, value) {
        if (json_is_null(value))
            (void)json_object_del(values, key);
        else
            (void)json_object_set(values, key, value);
    }
    if (seal(v, &row, values, &e) < 0 || store_secret_update(core_store(v->core), &row, &e) < 0)
        fn(ctx, NULL, &e);
    else
        tell_one(v, id, row.version + 1, values, fn, ctx);
}

void secret_delete(struct vault *v, const char *id, secret_fn fn, void *ctx)
{
    auto_secret_row row = {0};
    struct err e = {0};

    if (store_secret_get(core_store(v->core), id, &row, &e) < 0 || store_secret_remove(core_store(v->core), id, &e) < 0)
        fn(ctx, NULL, &e);
    else
        tell_one(v, id, row.version + 1, NULL, fn, ctx);
}

json_t *secret_values(struct vault *v, const char *id, struct err *e)
{
    auto_secret_row row = {0};

    if (store_secret_get(core_store(v->core), id, &row, e) < 0)
        return NULL;
    json_t *values = unseal(v, &row, e);
    if (values != NULL)
        (void)store_secret_used(core_store(v->core), id, clock_wall_us(), NULL);    /* of interest to lists only */
    return values;
}

void secrets_expire(struct vault *v)
{
    struct err e;

    if (store_secret_expire(core_store(v->core), clock_wall_ms(), &e) < 0)
        log_warn("vault.expire", "cause=\"%s\"", e.message);
}
