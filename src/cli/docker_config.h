/*
 * docker_config.h - credentials that docker login has left for its user
 */
#ifndef QS_CLI_DOCKER_CONFIG_H
#define QS_CLI_DOCKER_CONFIG_H

#include "base/err.h"
#include "json/json.h"

/*
 * Of $DOCKER_CONFIG/config.json or ~/.docker/config.json, where there is one: the credentials of the registry of `ref`, or
 * (NULL) of those that `text`, a Dockerfile, can mean, go into `auths` of a request. Nothing else of the file leaves the
 * machine.
 */
int docker_config_add(const char *ref, const char *text, json_t *body, struct err *e);

#endif
