/*
 * network_def.h - what may leave a sandbox, by its client's definition
 */
#ifndef QS_API_MODAL_NETWORK_DEF_H
#define QS_API_MODAL_NETWORK_DEF_H

#include "api/modal/mcall.h"

/* *ret is as in core's specification, owned by the caller: NULL is blocked for good. */
int network_def_read(struct mcall *c, const M(Sandbox) *d, json_t **ret, struct err *e);
bool cidr_is_valid(const char *text);

#endif
