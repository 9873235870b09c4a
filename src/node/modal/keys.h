/*
 * keys.h - the keys that router tokens are checked with
 *
 * Control sends the public halves (SetKeys); they are kept in data_dir/node/.router-keys, so that tokens are checked while
 * control is away. Tokens that passed are remembered: each call of a client brings the same one.
 */
#ifndef QS_NODE_MODAL_KEYS_H
#define QS_NODE_MODAL_KEYS_H

#include "base/err.h"
#include "base/ids.h"
#include "node.pb-c.h"

struct router_keys;

/* Loads what is on disk; keys that cannot be read are logged and left out. state_fd stays the caller's. */
struct router_keys *router_keys_new(int state_fd);
void router_keys_free(struct router_keys *k);
/* All or nothing. */
int router_keys_set(struct router_keys *k, const Quicksand__Node__SetKeysRequest *rq, struct err *e);
/* From the value of an authorization header (or NULL) to the sandbox that may be touched; ERR_UNAUTHENTICATED. */
int router_keys_check(struct router_keys *k, const char *authorization, char ret_sandbox[ID_SIZE],
                      struct err *e);

#endif
