/*
 * secrets.h - values of named secrets, in memory alone
 *
 * Control sends all of them when it connects and each again when it changes (PutSecrets): an exec that names a secret needs no
 * look-up elsewhere. Nothing of this is written to disk.
 */
#ifndef QS_NODE_MODAL_SECRETS_H
#define QS_NODE_MODAL_SECRETS_H

#include <stdbool.h>

#include "node.pb-c.h"

struct router_secrets;

struct router_secrets *router_secrets_new(void);
void router_secrets_free(struct router_secrets *s);
/* Takes the secrets out of the request. */
void router_secrets_put(struct router_secrets *s, Quicksand__Node__PutSecretsRequest *rq);
/* Borrowed until the next put; NULL for one that is not known. */
const Quicksand__Node__Secret *router_secrets_get(const struct router_secrets *s, const char *id);

/* Whether control has sent all of them since this node began: until then one that is not known may be there all the same. */
bool router_secrets_are_told(const struct router_secrets *s);

#endif
