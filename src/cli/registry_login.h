/*
 * registry_login.h - the options by which `image pull` and `build` get credentials for a registry
 */
#ifndef QS_CLI_REGISTRY_LOGIN_H
#define QS_CLI_REGISTRY_LOGIN_H

#include <stdbool.h>

#include "base/err.h"
#include "json/json.h"

struct registry_login {
    const char *user, *gcp_key;
    bool password_stdin, aws;
};

/* For a table of struct arg. */
#define REGISTRY_LOGIN_ARGS(l)                                                                                    \
    {'u', "username", ARG_TEXT, &(l)->user, "USER", "user at the registry"},                                      \
    {0, "password-stdin", ARG_FLAG, &(l)->password_stdin, NULL, "read the password for the registry from stdin"}, \
    {0, "aws", ARG_FLAG, &(l)->aws, NULL,                                                                         \
     "Amazon ECR: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION of our environment"}, \
    {0, "gcp-key", ARG_TEXT, &(l)->gcp_key, "FILE", "Google's registries: the key of a service account"}

/* Puts what they say into the body of a request; without any of them what docker login has left for the registries of `ref`, or
 * those that `text` can mean (docker_config.h). */
int registry_login_add(const struct registry_login *l, const char *ref, const char *text, json_t *body, struct err *e);

#endif
