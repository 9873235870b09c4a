/*
 * scaffold.h - the read-only layer of ours on top of every image, and the shared /dev tree
 */
#ifndef QS_KEEPER_SCAFFOLD_H
#define QS_KEEPER_SCAFFOLD_H

#include "base/err.h"

/* Sets keeper.scaffold_fd. Old versions go if `sandboxes` (any that may still mount them) is 0. */
int scaffold_prepare(unsigned sandboxes, struct err *e);


#endif
