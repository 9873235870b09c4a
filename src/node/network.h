/*
 * network.h - the policies of the sandboxes here, on disk and in egress
 *
 * data_dir/node/.network/<id> holds what egress is to know of a sandbox with a network; none is there for a blocked one.
 * The sockets come from the sandbox's monitor. When egress or the node comes back, everything is handed over again.
 */
#ifndef QS_NODE_NETWORK_H
#define QS_NODE_NETWORK_H

#include "node/network_note.h"
#include "node/node.h"

struct network *network_new(struct node *n, struct err *e);
void network_free(struct network *w);
/* On disk, before the sandbox is made. */
int network_save(struct network *w, const char *sandbox, const Quicksand__Node__Network *m, struct err *e);
/* Of the policy on disk, borrowed until something else of this header is called; NULL if there is none. */
const struct network_note *network_note(struct network *w, const char *sandbox);
/* Of a policy that is not on disk yet; the caller frees it. NULL for one that cannot be read. */
struct network_note *network_note_of(const Quicksand__Node__Network *m);
/* Makes programs in the sandbox accept its authority, if the policy needs one; `done` comes once, maybe at once. */
void network_trust(struct network *w, const char *sandbox, void (*done)(void *arg, const struct err *e), void *arg);
/* Hands sockets and policy to egress; failures are logged and made good when egress comes back. */
void network_attach(struct network *w, const char *sandbox);
/* Replaces the policy, with if_follows (NULL = always) only if it follows that name; `done` is called once it is in force,
 * or with why it is not. */
typedef void (*network_done)(struct op *op, const struct err *e);
void network_replace(struct op *op, const char *sandbox, const Quicksand__Node__Network *m, const char *if_follows,
                     network_done done);
/*
 * Replaces it by what `merge` makes of the one that is there, which is asked again if others may have changed that meanwhile.
 * Both policies are made and done with by the caller of `merge`.
 */
typedef int (*network_merge)(struct op *op, const struct policy *now, struct policy *ret, struct err *e);
void network_change(struct op *op, const char *sandbox, network_merge merge, network_done done);
void network_remove(struct network *w, const char *sandbox);

#endif
