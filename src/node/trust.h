/*
 * trust.h - the certificate authority of a sandbox whose connections are opened
 *
 * Its key lies beside the sandbox's policy and goes to egress alone; its certificate is put among those that programs in the
 * sandbox accept, by a hidden command, before anything depends on it. Called by create, and by network.c for new policies.
 */
#ifndef QS_NODE_TRUST_H
#define QS_NODE_TRUST_H

#include "node/node.h"

/* Key and certificate as PEM, made if there is none; the caller wipes (trust_wipe). */
char *trust_authority(int dir_fd, const char *sandbox, struct err *e);
void trust_wipe(char **pem);
#define auto_trust __attribute__((cleanup(trust_wipe))) char
void trust_remove(int dir_fd, const char *sandbox);

typedef void (*trust_done)(void *arg, const struct err *e);
/* Puts the certificate into the running sandbox. `done` comes once, maybe at once. */
void trust_place(struct node *n, int dir_fd, const char *sandbox, trust_done done, void *arg);

#endif
