/*
 * user.h - who runs a command: the sandbox's own passwd and group files
 *
 * The files belong to the tenant. They are read with fixed buffers, never blocked on, and what does not
 * parse is skipped.
 */
#ifndef QS_INIT_USER_H
#define QS_INIT_USER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"

#define USER_NAME_SIZE 64
#define USER_GROUPS_MAX 64

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX];      /* supplementary */
    int ngroups;
    char name[USER_NAME_SIZE];          /* decimal id if it has no name */
    char home[LIMIT_PATH];
};

/* One line of passwd or group, without its newline; slices point into the line. */
struct passwd_entry {
    const char *name, *home;
    uid_t uid;
    gid_t gid;
};
struct group_entry {
    const char *name, *members;         /* members: comma-separated */
    gid_t gid;
};

/* user_parse.c: pure. `line` is modified. */
bool passwd_parse(char *line, struct passwd_entry *ret);
bool group_parse(char *line, struct group_entry *ret);
bool group_has_member(const struct group_entry *g, const char *name);
bool user_id_parse(const char *s, uint32_t *ret);       /* decimal, below 2^32 - 1 */

/*
 * "" (root), "name", "uid", "name:group" and "uid:gid". A name must exist; a number need not. With an explicit
 * group there are no supplementary groups. 0, -ENOENT (unknown), -EINVAL.
 */
int user_find(const char *spec, struct user *ret);

#endif
