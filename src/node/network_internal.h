/*
 * network_internal.h - what the files about the networks of sandboxes share: network.c (what there is, and what egress tells
 * of it), network_file.c (on disk), network_tell.c (to egress), network_change.c (another policy, other secrets), network_ops.c
 * (operations)
 */
#ifndef QS_NODE_NETWORK_INTERNAL_H
#define QS_NODE_NETWORK_INTERNAL_H

#include "ipc/egress_proto.h"
#include "node/egress_link.h"
#include "node/network.h"
#include "node/network_log.h"

#define NETWORK_FILE_MAX (LIMIT_POLICY_BYTES + 512)

struct network {
    struct node *node;
    struct egress_link *link;
    struct network_log *log;
    int fd;                     /* data_dir/node/.network */
    struct map problems;        /* sandbox -> text, owned: why egress does not serve it */
    struct map notes;           /* sandbox -> struct network_note, owned: of those that egress was told of since we began */
};

/* One sandbox on its way to egress. */
struct attach {
    struct network *network;
    char sandbox[ID_SIZE];
    bool is_handing_over;       /* sockets and policy, not another policy alone */
    struct op *op;              /* who waits for it, or NULL */
    network_done done;          /* with an op */
    uint8_t *policy;            /* that is to be put in force, without its revision; owned, NULL: the one on disk */
    size_t policy_len;
    char *if_follows;           /* only if it follows this name; owned, NULL: in any case */
    network_merge merge;        /* makes `policy` of what is in force; NULL: it stays as it is */
};

/* network.c */
void network_keep_note(struct network *w, const char *sandbox, struct network_note *note);     /* takes it */

void network_note_problem(struct network *w, const char *sandbox, const char *text);            /* NULL: there is none */

/* network_file.c */
bool network_is_known(const struct network *w, const char *sandbox);
/* What egress gets of a sandbox, as it is on disk; out has NETWORK_FILE_MAX bytes and is what *ret points into. */
int network_load(struct network *w, const char *sandbox, uint8_t *out, struct egress_policy *ret, struct err *e);
/* What is put on disk; the caller frees. */
uint8_t *network_message(const char *sandbox, const Quicksand__Node__Network *m, uint64_t revision,
                         size_t *ret_len, struct err *e);
int network_store(struct network *w, const char *sandbox, const uint8_t *bytes, size_t n, struct err *e);

/* network_tell.c */
struct attach *attach_new(struct network *w, const char *sandbox);
/* It is over: tells who waits, notes what that means for the sandbox, and frees it. */
void attach_done(void *arg, const struct chan_msg *m, const struct err *e);
/* Fetches the sockets from the monitor and hands them to egress with the policy on disk. */
void attach_sockets(struct attach *a);
/*
 * Tells egress a policy together with what is on no disk. The reply goes to `cb`; what cannot be put together comes back as
 * an error instead.
 */
int network_tell(struct network *w, enum egress_type type, struct egress_policy *m, const int *fds, int nfds, uint64_t timeout_ms,
                 egress_cb cb, void *arg, struct err *e);

/* network_ops.c */
int network_check(const struct network *w, const char *sandbox, struct err *e);

#endif
