/*
 * filter.h - syscall filters: the keeper's own, and the one that every sandbox installs
 */
#ifndef QS_KEEPER_FILTER_H
#define QS_KEEPER_FILTER_H

#include "base/err.h"

int filter_keeper_load(struct err *e); /* on this process, for good */
int filter_tenant_compile(int *ret_memfd, struct err *e);

#endif
