/*
 * ready.h - the readiness probe in the body of a create
 */
#ifndef QS_API_REST_READY_H
#define QS_API_REST_READY_H

#include <stdbool.h>

#include "base/err.h"
#include "json/json.h"

/* `ready` as clients write it, into what sandbox_spec.probe is: *ret, owned by the caller; NULL without one. */
int ready_of_body(const json_t *ready, bool has_command, json_t **ret, struct err *e);

#endif
