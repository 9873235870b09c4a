/*
 * user.c - who runs a command
 *
 * Called by exec.c before it starts a child. A missing file is an empty one: scratch images have none.
 */
#include "init/user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "init/lines.h"

static struct lines lines;              /* one lookup at a time */

/* Looks the user up by name if `name`, else by uid. True if found. */
static bool find_passwd(const char *name, uid_t uid, struct user *ret)
{
    struct passwd_entry e;
    bool found = false;

    if (lines_open(&lines, "/etc/passwd") < 0)
        return false;
    for (char *line = lines_next(&lines); line != NULL && !found; line = lines_next(&lines)) {
        if (!passwd_parse(line, &e) || (name != NULL ? strcmp(e.name, name) != 0 : e.uid != uid))
            continue;
        found = true;
        ret->uid = e.uid;
        ret->gid = e.gid;
        snprintf(ret->name, sizeof ret->name, "%.63s", e.name);
        snprintf(ret->home, sizeof ret->home, "%s", e.home);
    }
    lines_close(&lines);
    return found;
}

static bool find_group(const char *name, gid_t *ret)
{
    struct group_entry g;
    bool found = false;

    if (lines_open(&lines, "/etc/group") < 0)
        return false;
    for (char *line = lines_next(&lines); line != NULL && !found; line = lines_next(&lines)) {
        if (group_parse(line, &g) && strcmp(g.name, name) == 0) {
            found = true;
            *ret = g.gid;
        }
    }
    lines_close(&lines);
    return found;
}

static void find_supplementary(struct user *u)
{
    struct group_entry g;

    if (lines_open(&lines, "/etc/group") < 0)
        return;
    for (char *line = lines_next(&lines); line != NULL && u->ngroups < USER_GROUPS_MAX;
         line = lines_next(&lines))
        if (group_parse(line, &g) && g.gid != u->gid && group_has_member(&g, u->name))
            u->groups[u->ngroups++] = g.gid;
    lines_close(&lines);
}

int user_find(const char *spec, struct user *ret)
{
    char name[USER_NAME_SIZE];
    size_t n = strcspn(spec, ":");
    const char *group = spec[n] == ':' ? spec + n + 1 : NULL;
    uint32_t uid = 0;

    if (n >= sizeof name || (group != NULL && group[0] == '\0'))
        return -EINVAL;
    memcpy(name, spec, n);
    name[n] = '\0';

    ret->uid = ret->gid = 0;
    ret->ngroups = 0;
    snprintf(ret->home, sizeof ret->home, "/");
    bool named = n > 0 && find_passwd(name, 0, ret);
    if (!named) {
        /* Root is there in an image that lists no users, too. */
        if (n > 0 && strcmp(name, "root") != 0 && !user_id_parse(name, &uid))
            return -ENOENT;
        named = find_passwd(NULL, uid, ret);
        if (!named) {
            ret->uid = uid;
            snprintf(ret->name, sizeof ret->name, uid == 0 ? "root" : "%u", uid);
        }
    }
    if (group != NULL) {
        uint32_t gid = 0;
        if (find_group(group, &ret->gid))
            return 0;
        if (strcmp(group, "root") == 0)
            gid = 0;
        else if (!user_id_parse(group, &gid))
            return -ENOENT;
        ret->gid = gid;
        return 0;
    }
    if (named)
        find_supplementary(ret);
    return 0;
}
