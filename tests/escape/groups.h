/*
 * groups.h - the control groups that controls make: one each, removed afterwards
 */
#ifndef QS_ESCAPE_GROUPS_H
#define QS_ESCAPE_GROUPS_H

#include <stddef.h>

/* Where cgroup v2 is mounted, from /proc/self/mountinfo. 0, or -ENOENT. */
int groups_v2(char *out, size_t size);
/* Where the v1 hierarchy with this controller is mounted. 0, or -ENOENT. */
int groups_v1(const char *controller, char *out, size_t size);
/* Makes "<v2>/<name>" and moves us there; 0 or -errno. */
int groups_enter(const char *name);
/* Makes "<v2>/<name>"; 0 or -errno. */
int groups_make(const char *name);
/* Removes the groups that controls of this program have left below the v2 root. */
void groups_sweep(void);

#endif
