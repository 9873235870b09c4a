/*
 * user_parse.c - lines of passwd and group
 *
 * Pure, so that it is tested and fuzzed outside the sandbox.
 */
#include <string.h>

#include "init/user.h"

bool user_id_parse(const char *s, uint32_t *ret)
{
    uint64_t v = 0;
    size_t n = 0;

    for (; s[n] >= '0' && s[n] <= '9' && n < 11; n++)
        v = v * 10 + (uint64_t)(s[n] - '0');
    /* The last value means "no change" to the kernel. */
    if (n == 0 || s[n] != '\0' || v >= UINT32_MAX)
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* Splits at ':' into exactly `want` fields; more stay in the last one. */
static bool split(char *line, char **fields, int want)
{
    for (int i = 0; i < want; i++) {
        fields[i] = line;
        char *colon = strchr(line, ':');
        if (i == want - 1)
            return true;
        if (colon == NULL)
            return false;
        *colon = '\0';
        line = colon + 1;
    }
    return true;
}

bool passwd_parse(char *line, struct passwd_entry *ret)
{
    char *f[7];
    uint32_t uid, gid;

    if (!split(line, f, 7) || f[0][0] == '\0' || !user_id_parse(f[2], &uid) ||
        !user_id_parse(f[3], &gid))
        return false;
    *ret = (struct passwd_entry){.name = f[0], .home = f[5], .uid = uid, .gid = gid};
    return true;
}

bool group_parse(char *line, struct group_entry *ret)
{
    char *f[4];
    uint32_t gid;

    if (!split(line, f, 4) || f[0][0] == '\0' || !user_id_parse(f[2], &gid))
        return false;
    *ret = (struct group_entry){.name = f[0], .members = f[3], .gid = gid};
    return true;
}

bool group_has_member(const struct group_entry *g, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = g->members; *p != '\0';) {
        size_t len = strcspn(p, ",");
        if (len == n && memcmp(p, name, n) == 0)
            return true;
        p += len;
        if (*p == ',')
            p++;
    }
    return false;
}
