/*
 * pass.h - connect tokens: who shows one reaches one port of one sandbox by HTTP
 *
 * A token is 32 random bytes that its maker alone sees; kept is its hash, in data_dir/node/.connect-tokens, with what it is
 * for. It ends by its time, its count of uses, by being revoked, or with its sandbox.
 */
#ifndef QS_NODE_TUNNEL_PASS_H
#define QS_NODE_TUNNEL_PASS_H

#include "base/ids.h"
#include "base/sha256.h"
#include "node/node.h"
#include "node/tunnel/allow.h"

struct pass {
    struct pass *next;
    char id[ID_SIZE];           /* ct-... */
    char hash[SHA256_HEX_SIZE];
    char sandbox[ID_SIZE];
    uint16_t port;
    int64_t until_ms;           /* 0 = no end */
    int64_t uses_left;          /* -1 = no count */
    char *metadata;             /* owned */
    struct allow allow;         /* owned */
};

void passes_new(struct node *n);        /* n->state_fd is open */
void passes_free(struct node *n);

/* The token's text goes into `ret_token` (PASS_TOKEN bytes) and is seen nowhere else. */
#define PASS_TOKEN 64
#define PASS_PREFIX "qsc_"      /* of every token */
int pass_make(struct node *n, const Quicksand__Node__PassRequest *rq, char *ret_token, const struct pass **ret, struct err *e);
/* id "": all of the sandbox. How many there were. */
size_t pass_revoke(struct node *n, const char *sandbox, const char *id);
const struct pass *pass_next(const struct node *n, const char *sandbox, const struct pass *after);
/* The pass that lets in with this token. ERR_UNAUTHENTICATED. */
struct pass *pass_find(struct node *n, const char *token, struct err *e);
/* One use less of it. */
int pass_count(struct node *n, struct pass *p, struct err *e);

#endif
