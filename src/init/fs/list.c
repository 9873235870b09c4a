/*
 * list.c - ListFiles and Stat
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/fs/entry.h"
#include "init/fs/op.h"
#include "init/fs/walk.h"
#include "sys/fd.h"

#define DEPTH_MAX 1000

struct listing {
    const char *path;
    int64_t depth, limit;
    const char *after;                  /* relative path of the last entry already seen, or NULL */
    const char *glob;
    bool hidden;
};

/* As the walk goes: a directory's content directly behind it, so a slash sorts before any byte. */
static int compare_paths(const char *a, const char *b)
{
    for (;; a++, b++) {
        unsigned char x = (unsigned char)*a, y = (unsigned char)*b;
        if (x == '\0' && y == '\0')
            return 0;
        if (x != y) {
            int kx = x == '\0' ? -1 : x == '/' ? 0 : x;
            int ky = y == '\0' ? -1 : y == '/' ? 0 : y;
            return kx < ky ? -1 : 1;
        }
    }
}

static bool wanted(const struct listing *l, const struct walk_entry *w)
{
    if (l->after != NULL && compare_paths(w->path, l->after) <= 0)
        return false;
    if (l->glob == NULL)
        return true;
    bool whole = strchr(l->glob, '/') != NULL;
    return fnmatch(l->glob, whole ? w->path : w->name, whole ? FNM_PATHNAME : 0) == 0;
}

static int list(struct op *o, const struct listing *l, int fd, struct fs_error *e)
{
    static struct walk walk;
    struct walk_entry w;
    int64_t count = 0;
    int r = walk_begin(&walk, fd);

    out_text(o->out, "[");
    while (r == 0 && (l->limit == 0 || count < l->limit) && o->out->error == 0) {
        r = walk_next(&walk, &w);
        if (r <= 0)
            break;
        if (r == WALK_LEAVE || (!l->hidden && w.name[0] == '.')) {
            r = 0;
            continue;
        }
        if (wanted(l, &w)) {
            if (count++ > 0)
                out_text(o->out, ",");
            entry_print(o->out, w.dirfd, w.name, &w.st, l->path, w.path);
        }
        r = 0;
        if (S_ISDIR(w.st.st_mode) && w.depth + 1 < l->depth) {
            r = walk_enter(&walk);
            if (r == -ENOENT)           /* gone meanwhile */
                r = 0;
        }
    }
    if (r < 0)
        fs_fail_at(e, -r, walk.path);
    walk_done(&walk);
    out_text(o->out, "]");
    return r < 0 ? -1 : 0;
}

int op_list(struct op *o, struct fs_error *e)
{
    struct listing l;
    size_t n;

    if (arg_path(o, "path", &l.path, e) < 0 || arg_int(o, "depth", 1, 1, DEPTH_MAX, &l.depth, e) < 0 ||
        arg_int(o, "limit", 0, 0, INT64_MAX, &l.limit, e) < 0 || arg_text(o, "after", &l.after, &n, e) < 0 ||
        arg_text(o, "glob", &l.glob, &n, e) < 0 || arg_bool(o, "hidden", true, &l.hidden, e) < 0)
        return -1;
    int fd = open(l.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fs_fail(e, errno);
    return list(o, &l, fd, e);
}

int op_stat(struct op *o, struct fs_error *e)
{
    const char *path;
    bool follow;
    struct stat st;

    if (arg_path(o, "path", &path, e) < 0 || arg_bool(o, "follow", false, &follow, e) < 0)
        return -1;
    if (fstatat(AT_FDCWD, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return fs_fail(e, errno);
    /* "/a/b/" is named b. */
    char *name = arena_copy(o->arena, path, strlen(path));
    for (size_t n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = '\0';
    entry_print(o->out, AT_FDCWD, name, &st, path, NULL);
    return 0;
}
