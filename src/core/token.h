/*
 * token.h - API tokens: `tk-<22>.<43 characters>`; only the SHA-256 of the secret is kept
 *
 * Called by the dialects for every call, and by the token operations. A revoked token is refused
 * from the moment that token_revoke has returned: the cache of rows is changed with the store.
 */
#ifndef QS_CORE_TOKEN_H
#define QS_CORE_TOKEN_H

#include "core/core.h"
#include "store/store.h"

#define TOKEN_SECRET_LEN 43                 /* 32 random bytes in base64url */

/* What scopes there are, for checks and documents. */
extern const char *const token_scopes[];
extern const size_t token_nscopes;

/* From the value of an Authorization header (NULL if there was none). ERR_UNAUTHENTICATED says
 * no more than that the token is not valid. */
int token_check(struct core *c, const char *authorization, struct token *ret, struct err *e);
/* `scopes` is space separated and already checked. */
int token_create(struct core *c, const char *name, const char *scopes, int64_t expires_ms, struct token *ret,
                 char ret_secret[TOKEN_SECRET_LEN + 1], struct err *e);
int token_revoke(struct core *c, const char *id, struct err *e);
int token_list(struct core *c, int64_t cursor_ms, const char *cursor_id, size_t limit, store_token_fn fn, void *ctx,
               struct err *e);
/* At first start: makes a token with all scopes and writes `id.secret` to `path` (mode 0600).
 * Later only when the file is missing, which is how an administrator who lost every token gets
 * in again; one that was revoked stays revoked. */
int token_admin_file(struct core *c, const char *path, struct err *e);

#endif
