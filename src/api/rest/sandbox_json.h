/*
 * sandbox_json.h - the sandbox object of the API
 */
#ifndef QS_API_REST_SANDBOX_JSON_H
#define QS_API_REST_SANDBOX_JSON_H

#include <jansson.h>

#include "core/sandbox.h"

json_t *sandbox_json(const struct sandbox *sb);

#endif
