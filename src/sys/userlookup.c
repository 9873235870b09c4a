/*
 * userlookup.c - users by name or number, from /etc/passwd alone
 */
#include "sys/userlookup.h"

#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int user_lookup(const char *name, struct user *ret)
{
    char *end;
    const struct passwd *pw;
    bool numeric = *name >= '0' && *name <= '9';
    unsigned long number = 0;

    if (*name == '\0')
        return -EINVAL;
    if (numeric) {
        errno = 0;
        number = strtoul(name, &end, 10);
        if (errno != 0 || *end != '\0' || number >= UINT32_MAX)
            return -EINVAL;
    }
    FILE *f = fopen("/etc/passwd", "re");
    if (f == NULL)
        return -errno;
    while ((pw = fgetpwent(f)) != NULL)
        if (numeric ? pw->pw_uid == number : strcmp(pw->pw_name, name) == 0)
            break;
    int r = 0;
    if (pw != NULL)
        *ret = (struct user){pw->pw_uid, pw->pw_gid};
    else if (numeric)
        *ret = (struct user){(uint32_t)number, (uint32_t)number};
    else
        r = -ENOENT;
    (void)fclose(f);
    return r;
}
