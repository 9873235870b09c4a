/*
 * vault.h - what control alone knows and the node needs: the key that router tokens are signed with, and secrets
 *
 * Values of secrets lie sealed in the store and open in the memory of the node, which needs them when an exec names them. Control
 * sends keys and secrets whenever the node was away, and each secret again when it changes, before the change is answered.
 */
#ifndef QS_CORE_VAULT_H
#define QS_CORE_VAULT_H

#include "core/core.h"
#include "json/json.h"
#include "store/objects.h"

#define SECRET_BYTES_MAX (256 * 1024)       /* of one secret's names and values */
#define SECRET_EPHEMERAL_MS (24 * 3600 * 1000LL)

struct vault;

/* Opens or makes the two keys in data_dir/control. */
struct vault *vault_open(struct core *c, const char *data_dir, struct err *e);
void vault_start(struct vault *v);
void vault_stop(struct vault *v);           /* before the core ends */
void vault_free(struct vault *v);           /* accepts NULL */

/* A signed token over claims; the caller frees. */
char *vault_sign(struct vault *v, const json_t *claims, struct err *e);

enum secret_mode { SECRET_IF_MISSING, SECRET_NEW, SECRET_OVERWRITE };

struct secret_spec {
    const char *environment, *name;         /* name "" = none */
    const json_t *values;                   /* object of strings */
    enum secret_mode mode;
    int64_t ttl_ms;                         /* 0 = for ever */
};

/* The id is known at once; fn is called when the node knows the values too, or cannot be reached (it will be told). */
typedef void (*secret_fn)(void *ctx, const char *id, const struct err *e);
void secret_create(struct vault *v, const struct secret_spec *s, secret_fn fn, void *ctx);
/* A null value removes the key. */
void secret_update(struct vault *v, const char *id, const json_t *changes, secret_fn fn, void *ctx);
void secret_delete(struct vault *v, const char *id, secret_fn fn, void *ctx);
/* The caller owns the result. Notes that it was used. */
json_t *secret_values(struct vault *v, const char *id, struct err *e);
/* Overwrites the values of an object of strings that is needed no more. */
void secret_wipe(json_t *values);
static inline void secret_values_done(json_t **p)
{
    secret_wipe(*p);
    json_decref(*p);
}
#define auto_secret_values __attribute__((cleanup(secret_values_done))) json_t
/* Removes those whose time is over. */
void secrets_expire(struct vault *v);

#endif
