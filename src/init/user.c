/*
 * user.c - who runs a command
 *
 * Called by exec.c before it starts a child. A missing file is an empty one: scratch images have none.
 */
#include "init/user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "init/lines.h"

/* Younger than this, a file may change again without its times telling. */
#define SETTLED_S 2

static struct lines lines;              /* one lookup at a time */

/* What tells that a file is the one that was read; all zero for one that is missing. */
struct file_key {
    dev_t dev;
    ino_t ino;
    off_t size;
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
};

/* The last answer: nearly every command of a sandbox runs as the same user. */
static struct {
    bool valid;
    char spec[2 * LIMIT_ID];
    struct file_key keys[2];
    struct user user;
} last;

static void keys_get(struct file_key *keys)
{
    static const char *const paths[2] = {"/etc/passwd", "/etc/group"};
    struct stat st;

    memset(keys, 0, 2 * sizeof *keys);
    for (int i = 0; i < 2; i++) {
        if (stat(paths[i], &st) < 0)
            continue;
        keys[i].dev = st.st_dev;
        keys[i].ino = st.st_ino;
        keys[i].size = st.st_size;
        keys[i].mtime_s = st.st_mtim.tv_sec;
        keys[i].mtime_ns = st.st_mtim.tv_nsec;
        keys[i].ctime_s = st.st_ctim.tv_sec;
        keys[i].ctime_ns = st.st_ctim.tv_nsec;
    }
}

static bool settled(const struct file_key *keys)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < 2; i++)
        if (now.tv_sec - keys[i].ctime_s < SETTLED_S)
            return false;
    return true;
}

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

static int lookup(const char *spec, struct user *ret)
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

int user_find(const char *spec, struct user *ret)
{
    struct file_key keys[2];

    keys_get(keys);
    if (last.valid && strcmp(spec, last.spec) == 0 && memcmp(keys, last.keys, sizeof keys) == 0) {
        *ret = last.user;
        return 0;
    }
    int r = lookup(spec, ret);
    last.valid = r == 0 && strlen(spec) < sizeof last.spec && settled(keys);
    if (last.valid) {
        snprintf(last.spec, sizeof last.spec, "%s", spec);
        memcpy(last.keys, keys, sizeof keys);
        last.user = *ret;
    }
    return r;
}
