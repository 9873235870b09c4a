/*
 * ports.h - what sandboxes.c needs of ports
 */
#ifndef QS_API_REST_PORTS_H
#define QS_API_REST_PORTS_H

#include "base/err.h"
#include "json/json.h"

/* `ports` of a create: numbers or {port, kind}, as core takes them; [] if there are none. The caller owns the result. */
json_t *ports_of_body(const json_t *body, struct err *e);

#endif
