/*
 * registry_auth.h - the challenge of a 401
 *
 * Pure text: called by registry.c, tested and fuzzed alone.
 */
#ifndef QS_IMAGE_REGISTRY_AUTH_H
#define QS_IMAGE_REGISTRY_AUTH_H

#include <stdbool.h>

struct registry_challenge {
    bool is_basic, is_bearer;
    char realm[512], service[256], scope[512];
};

/* false if it is of no kind that is known. */
bool registry_challenge_read(const char *text, struct registry_challenge *ret);

#endif
