/*
 * audit.h - one line a call
 *
 * Lines are written in batches, at most a second late, and at the end of the process; a call never
 * waits for its line. A process that is killed loses the lines of its last second. Lines are kept
 * 30 days, the newest million of them. Calls without a token, which anyone can make, leave at most
 * ANONYMOUS_PER_S lines a second: they must not push out the others.
 */
#ifndef QS_CORE_AUDIT_H
#define QS_CORE_AUDIT_H

#include "core/core.h"
#include "store/store.h"

void audit_add(struct core *c, const struct audit_row *r);
void audit_flush(struct core *c);           /* so that a reader of the lines sees what came before its call */

#endif
