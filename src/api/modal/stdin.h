/*
 * stdin.h - what is kept of the stdin of entry points
 */
#ifndef QS_API_MODAL_STDIN_H
#define QS_API_MODAL_STDIN_H

#include "api/modal/mcall.h"

void stdins_sweep(struct modal *m);     /* forgets what belongs to ended sandboxes */
void stdins_free(struct modal *m);

#endif
