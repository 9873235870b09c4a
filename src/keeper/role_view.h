/*
 * role_view.h - which files of the host the spawner and each role can see
 */
#ifndef QS_KEEPER_ROLE_VIEW_H
#define QS_KEEPER_ROLE_VIEW_H

#include "keeper/keeper.h"

/* In the spawner, which makes its mount namespace here. 0 or -errno. */
int spawner_view_enter(void);
/* In a child that becomes role `r` and has a mount namespace of its own. `layers` is the detached mount of the layers for
 * the image role, else -1. 0 or -errno. */
int role_view_enter(enum role r, int layers);

#endif
