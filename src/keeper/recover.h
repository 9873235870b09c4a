/*
 * recover.h - what an earlier keeper left
 *
 * Called once at start, before anything is accepted and while the lock guarantees that no builder of the
 * earlier keeper is still at work. Afterwards every trace on this node is known or on its way out.
 */
#ifndef QS_KEEPER_RECOVER_H
#define QS_KEEPER_RECOVER_H

#include "base/err.h"

int recover(struct err *e);

/* Gives every control group of no live sandbox to the sweep. Also at the stop, when no builder is left. 0 or -errno. */
int recover_groups(void);

#endif
