/*
 * registry_auth.h - credentials of registries, from a request or a file as docker login writes it
 */
#ifndef QS_CORE_REGISTRY_AUTH_H
#define QS_CORE_REGISTRY_AUTH_H

#include "base/err.h"

struct registry_auth {
    char *user, *password;              /* owned; "" = none */
};

/* Those of the request (either may be NULL) go before those of the file at `path` ("" = none). A file that is not there has none. */
int registry_auth_find(const char *path, const char *registry, const char *user, const char *password, struct registry_auth *ret,
                       struct err *e);
void registry_auth_done(struct registry_auth *a);

#endif
