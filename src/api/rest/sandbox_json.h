/*
 * sandbox_json.h - the sandbox object of the API
 */
#ifndef QS_API_REST_SANDBOX_JSON_H
#define QS_API_REST_SANDBOX_JSON_H

#include "core/sandbox.h"
#include "json/json.h"

json_t *sandbox_json(const struct sandbox *sb);

#endif
