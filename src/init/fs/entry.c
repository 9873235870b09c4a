/*
 * entry.c - how files are described to clients
 */
#include "init/fs/entry.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "init/lines.h"
#include "init/user.h"

#define CACHE_SIZE 32

/* Names of ids already looked up; the oldest is overwritten. */
struct id_cache {
    unsigned n;
    struct {
        uint32_t id;
        char name[USER_NAME_SIZE];
    } rows[CACHE_SIZE];
};

static struct id_cache users, groups;
static struct lines lines;

static const char *id_name(struct id_cache *c, uint32_t id, bool is_user)
{
    unsigned known = c->n < CACHE_SIZE ? c->n : CACHE_SIZE;
    struct passwd_entry p;
    struct group_entry g;
    bool found = false;

    for (unsigned i = 0; i < known; i++)
        if (c->rows[i].id == id)
            return c->rows[i].name;
    unsigned at = c->n++ % CACHE_SIZE;
    char *name = c->rows[at].name;
    c->rows[at].id = id;
    snprintf(name, USER_NAME_SIZE, "%u", id);
    if (lines_open(&lines, is_user ? "/etc/passwd" : "/etc/group") < 0)
        return name;
    for (char *line = lines_next(&lines); line != NULL && !found; line = lines_next(&lines)) {
        if (is_user && passwd_parse(line, &p) && p.uid == id) {
            snprintf(name, USER_NAME_SIZE, "%.63s", p.name);
            found = true;
        } else if (!is_user && group_parse(line, &g) && g.gid == id) {
            snprintf(name, USER_NAME_SIZE, "%.63s", g.name);
            found = true;
        }
    }
    lines_close(&lines);
    return name;
}

static const char *special_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
    case S_IFBLK:
        return "device";
    default:
        return NULL;
    }
}

static void time_print(struct out *o, const struct timespec *t)
{
    long long sec = t->tv_sec;
    long nsec = t->tv_nsec;
    char text[48];
    const char *sign = "";

    if (sec < 0) {                      /* -1 s and 0.25 s are -0.75 */
        sign = "-";
        sec = -sec;
        if (nsec > 0) {
            sec--;
            nsec = 1000000000 - nsec;
        }
    }
    snprintf(text, sizeof text, "%s%lld.%09ld", sign, sec, nsec);
    out_text(o, text);
}

static void path_print(struct out *o, const char *base, const char *rel)
{
    char path[LIMIT_PATH * 2];
    size_t n = strlen(base);

    if (rel == NULL) {
        out_named(o, "path", base, n);
        return;
    }
    while (n > 0 && base[n - 1] == '/')
        n--;
    int len = snprintf(path, sizeof path, "%.*s/%s", (int)n, base, rel);
    if (len >= (int)sizeof path)
        len = sizeof path - 1;
    out_named(o, "path", path, (size_t)len);
}

static void field(struct out *o, const char *name, uint64_t v)
{
    out_text(o, ",\"");
    out_text(o, name);
    out_text(o, "\":");
    out_u64(o, v);
}

void entry_print(struct out *o, int dirfd, const char *name, const struct stat *st, const char *base,
                 const char *rel)
{
    const char *type = S_ISDIR(st->st_mode) ? "directory" : S_ISLNK(st->st_mode) ? "symlink" : "file";
    const char *special = special_name(st->st_mode);
    const char *owner = id_name(&users, st->st_uid, true);
    const char *group = id_name(&groups, st->st_gid, false);
    const char *last = strrchr(name, '/');
    char text[PATH_MAX];

    last = last != NULL && last[1] != '\0' ? last + 1 : name;
    out_text(o, "{");
    out_named(o, "name", last, strlen(last));
    out_text(o, ",");
    path_print(o, base, rel);
    out_text(o, ",\"type\":\"");
    out_text(o, type);
    out_text(o, "\"");
    if (special != NULL) {
        out_text(o, ",\"special\":\"");
        out_text(o, special);
        out_text(o, "\"");
    }
    field(o, "size", (uint64_t)st->st_size);
    field(o, "mode", st->st_mode);
    snprintf(text, sizeof text, ",\"permissions\":\"%04o\"", st->st_mode & 07777);
    out_text(o, text);
    out_text(o, ",");
    out_named(o, "owner", owner, strlen(owner));
    out_text(o, ",");
    out_named(o, "group", group, strlen(group));
    field(o, "uid", st->st_uid);
    field(o, "gid", st->st_gid);
    field(o, "nlink", st->st_nlink);
    /* As text: overlay's numbers (xino) use the top bit, which JSON's readers do not all take. */
    out_text(o, ",\"ino\":\"");
    out_u64(o, st->st_ino);
    out_text(o, "\"");
    out_text(o, ",\"modified_time\":");
    time_print(o, &st->st_mtim);
    if (S_ISLNK(st->st_mode)) {
        ssize_t n = readlinkat(dirfd, name, text, sizeof text);
        out_text(o, ",");
        out_named(o, "symlink_target", text, n < 0 ? 0 : (size_t)n);
    } else {
        out_text(o, ",\"symlink_target\":null");
    }
    out_text(o, "}");
}
