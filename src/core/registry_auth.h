/*
 * registry_auth.h - credentials of registries, from a request or a file as docker login writes it
 */
#ifndef QS_CORE_REGISTRY_AUTH_H
#define QS_CORE_REGISTRY_AUTH_H

#include "base/err.h"
#include "json/json.h"

enum registry_auth_kind {               /* as in node.proto */
    REGISTRY_AUTH_BASIC,
    REGISTRY_AUTH_AWS,                  /* an access key, for which AWS gives out user and password */
};

/* NULL and "" = none; `user` NULL = nobody said anything. */
struct registry_auth {
    enum registry_auth_kind kind;
    char *user, *password;              /* owned; of AWS: access key id and secret access key */
    char *session, *region;             /* owned; of AWS */
    char *auths;                        /* owned; JSON: those of several registries, where no user is given; NULL = none */
};

/* What a secret for a registry says, by its keys: REGISTRY_USERNAME and REGISTRY_PASSWORD, SERVICE_ACCOUNT_JSON, or
 * AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION. No error tells a value. */
enum registry_auth_wanted { REGISTRY_WANTED_ANY, REGISTRY_WANTED_BASIC, REGISTRY_WANTED_AWS, REGISTRY_WANTED_GCP };
int registry_auth_read(const json_t *values, enum registry_auth_wanted wanted, struct registry_auth *ret, struct err *e);
void registry_auth_copy(struct registry_auth *ret, const struct registry_auth *from);   /* NULL = nothing */
/* The object `auths` of a request, in the form of the file that docker login writes; with an error that names the entry. */
int registry_auths_read(const json_t *auths, struct registry_auth *ret, struct err *e);
/* Those that are `given` (NULL or empty = none) go before those of the file at `path` ("" = none). A file that is not there
 * has none. */
int registry_auth_find(const char *path, const char *registry, const struct registry_auth *given, struct registry_auth *ret,
                       struct err *e);
/* Overwrites it all. */
void registry_auth_done(struct registry_auth *a);
#define auto_registry_auth __attribute__((cleanup(registry_auth_done))) struct registry_auth

#endif
