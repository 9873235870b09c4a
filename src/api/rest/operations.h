/*
 * operations.h - an operation as JSON, for the operations that begin one
 */
#ifndef QS_API_REST_OPERATIONS_H
#define QS_API_REST_OPERATIONS_H

#include "api/rest/op.h"
#include "core/operation.h"

json_t *operation_json(const struct operation_view *view);
/* Answers 202 with the operation of that id. */
void operation_accepted(struct call *c, const char *id);

#endif
