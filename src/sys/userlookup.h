/*
 * userlookup.h - users by name or number, from /etc/passwd alone
 *
 * The name service switch would load and run other people's code in a root process.
 */
#ifndef QS_SYS_USERLOOKUP_H
#define QS_SYS_USERLOOKUP_H

#include <stdint.h>

struct user {
    uint32_t uid, gid;
};

/* A number without an entry has the group of the same number. 0, -ENOENT, -EINVAL or another -errno. */
int user_lookup(const char *name, struct user *ret);

#endif
