/*
 * network_note.h - what a sandbox's policy means for others than egress: secrets that it names, variables of commands
 *
 * For network.c, which keeps one a sandbox.
 */
#ifndef QS_NODE_NETWORK_NOTE_H
#define QS_NODE_NETWORK_NOTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "base/policy.h"
#include "node/modal/secrets.h"

struct network_note {
    bool opens_tls;             /* it needs an authority */
    struct map secrets;         /* ids; values are the note itself */
    char **env;                 /* placeholders, "NAME=text"; owned */
    size_t nenv;
};

struct network_note *network_note_new(const struct policy *p);
void network_note_free(struct network_note *n);         /* accepts NULL */

/*
 * The values that the policy wants, as egress gets them, those that are known. *out (made with a cap a little above
 * EGRESS_SECRETS_BYTES) is to be wiped by the caller.
 */
int network_secrets(const struct policy *p, const struct router_secrets *known, struct buf *out, struct err *e);

#endif
