/*
 * ecr.h - registries of Amazon ECR: an access key of AWS is exchanged for a password that is good for hours
 *
 * Called by registry_auth.c once the registry has asked for credentials, in the fetching child.
 */
#ifndef QS_IMAGE_ECR_H
#define QS_IMAGE_ECR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct registry;

struct ecr_place {
    char region[64];
    char url[256];                  /* of the service that gives out passwords */
};

/* ACCOUNT.dkr.ecr.REGION.amazonaws.com and its kind. false: the host is none of those. */
bool ecr_place_read(const char *host, struct ecr_place *ret);

/* What the service answered, read: the caller frees and overwrites *ret_password. `now_s` is the time of this machine. */
int ecr_answer_read(const char *text, size_t n, double now_s, char **ret_password, struct err *e);

/* Sets r->user and r->password, and overwrites the access key, whether it served or not. */
int ecr_login(struct registry *r, struct err *e);

#endif
