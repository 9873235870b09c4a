/*
 * filter.h - syscall filters: the keeper's own, the spawner's, and those that sandboxes install
 */
#ifndef QS_KEEPER_FILTER_H
#define QS_KEEPER_FILTER_H

#include <stdbool.h>

#include "base/err.h"

struct seccomp_filter;

int filter_keeper_load(struct err *e); /* on this process, for good */
int filter_spawner_load(struct err *e); /* on this process and all that it starts, for good */
/* For sandboxes: the program in a memfd. With `nest` user namespaces may be made inside, and mounts in them. */
int filter_tenant_compile(bool nest, int *ret_memfd, struct err *e);
/* Its rules alone, for tests: 0 or -errno. */
int filter_tenant_rules(struct seccomp_filter *f, bool nest);

#endif
