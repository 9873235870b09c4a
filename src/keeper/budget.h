/*
 * budget.h - the memory that sandboxes have set aside for them
 */
#ifndef QS_KEEPER_BUDGET_H
#define QS_KEEPER_BUDGET_H

#include <stdint.h>

#include "base/err.h"

/* Whether `more` bytes can be set aside beside what is: ERR_CAPACITY if not. */
int budget_check(uint64_t more, struct err *e);
/* One sandbox has `bytes` from now on, in place of *held. */
void budget_set(uint64_t *held, uint64_t bytes);

#endif
