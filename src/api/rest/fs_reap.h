/*
 * fs_reap.h - cleaning up after a file helper, in the background
 */
#ifndef QS_API_REST_FS_REAP_H
#define QS_API_REST_FS_REAP_H

#include <stdbool.h>

#include "core/core.h"

/* `ended`: it has; only its record and output are to be forgotten. Otherwise it is brought to its end first. */
void fs_reap(struct core *c, const char *sandbox, const char *exec_id, bool ended);

#endif
