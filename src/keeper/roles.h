/*
 * roles.h - control, node, egress and image: started, started again, stopped
 *
 * The sockets they listen on are the keeper's, so while a role restarts its callers queue.
 */
#ifndef QS_KEEPER_ROLES_H
#define QS_KEEPER_ROLES_H

#include <stdbool.h>

#include "keeper/keeper.h"

void roles_start(void);
void roles_stop(void); /* SIGTERM, after a grace SIGKILL */
bool roles_all_gone(void);

/* From the spawner. */
void roles_started(enum role r, pid_t pid, int error, int userns);   /* takes `userns`, -1 = none */
void roles_exited(pid_t pid, int status); /* any child's; others are passed over */

/* The user namespace of the running image role, -1 = it is not running; borrowed. */
int roles_image_userns(void);

#endif
