/*
 * role_child.h - a child of the spawner becomes a role
 */
#ifndef QS_KEEPER_ROLE_CHILD_H
#define QS_KEEPER_ROLE_CHILD_H

#include <sys/types.h>

#include "keeper/keeper.h"

/* Drops everything and executes the program; ends the process on failure, with a line in the log, and when `spawner`, the
 * parent it must not outlive, has died already. */
void role_child_become(enum role r, pid_t spawner) __attribute__((noreturn));

/* Forks the image role into its own user and mount namespaces: 0 in the child, where
 * role_child_become follows, else its pid or -errno. *ret_userns is its user namespace, -1 if there is none. */
pid_t role_child_image(int *ret_userns);

#endif
