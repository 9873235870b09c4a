/*
 * copy_parents.c - COPY --parents: files keep the directories that they are in
 *
 * "a/./b/c" begins at a: what is copied is b/c. A part "**" of a pattern stands for any number of directories.
 */
#include <errno.h>
#include <string.h>

#include "base/glob.h"
#include "base/mem.h"
#include "image/copy_internal.h"
#include "image/path.h"

#define DEPTH_MAX 512

struct walk {
    struct copy *c;
    const char *pattern;                /* normalized */
    const char *dest;
    bool is_deep;                       /* the pattern has a part "**" */
    uint64_t found;
};

/* Something below the directory `path` could match. */
static bool may_lead(const struct walk *w, const char *path)
{
    const char *end = w->pattern;

    if (w->is_deep)
        return true;
    for (const char *at = path; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        end += strcspn(end, "/");
        if (*end == '\0')
            return false;
        end++;
    }
    auto_free char *first = mem_strndup(w->pattern, (size_t)(end - 1 - w->pattern));
    return glob_match(first, path);
}

/* The directory as the image has it, or else as the source has it. */
static int make_dir(struct copy *c, const char *to, const struct stat *st, struct err *e)
{
    char resolved[LIMIT_PATH];
    struct stat there;
    int r = chain_resolve(&c->base, to, false, resolved, &there, e);

    if (r != 0)
        return r < 0 ? -1 : copy_make_dirs(c, to, e);
    if (copy_was_made(c, to))
        return 0;
    struct tree_attr a = copy_attr(c, st);
    c->changes++;
    return scribe_dir(&c->scribe, to, &a, e);
}

/* The directories on the way to the last part of `path`, which is below the beginning of the copy, under dest. */
static int make_way(struct walk *w, const char *path, struct err *e)
{
    auto_free char *part = mem_strdup(path), *source = mem_alloc(LIMIT_PATH),
                   *to = mem_alloc(LIMIT_PATH), *resolved = mem_alloc(LIMIT_PATH);
    struct stat st;

    if (copy_make_dirs(w->c, w->dest, e) < 0)
        return -1;
    for (char *at = strchr(part, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (copy_join(w->c->start, part, source, e) < 0 || copy_join(w->dest, part, to, e) < 0)
            return -1;
        if (chain_resolve(&w->c->source, source, false, resolved, &st, e) != 1)
            return err_set(e, ERR_INTERNAL, "a directory of the source is gone");
        if (make_dir(w->c, to, &st, e) < 0)
            return -1;
        *at = '/';
    }
    return 0;
}

static int take(struct walk *w, const struct chain_dir *dir, const char *name, const char *path, const char *from, struct err *e)
{
    auto_free char *to = mem_alloc(LIMIT_PATH);

    w->found++;
    scribe_forget_links(&w->c->scribe);
    if (copy_is_excluded(w->c, from) && !copy_has_exceptions(w->c))
        return 0;
    return make_way(w, path, e) < 0 || copy_join(w->dest, path, to, e) < 0 ? -1 : copy_entry(w->c, dir, name, from, to, 0, e);
}

/* Entries of `dir`, which is `path` below the beginning. */
static int walk(struct walk *w, const struct chain_dir *dir, const char *path, int depth, struct err *e)
{
    auto_free char *below = mem_alloc(LIMIT_PATH), *from = mem_alloc(LIMIT_PATH);
    char **names;
    size_t n;
    int r = 0;

    if (depth > DEPTH_MAX)
        return err_set(e, ERR_INVALID, "directories are nested deeper than %d", DEPTH_MAX);
    if (chain_list(dir, &names, &n, e) < 0)
        return -1;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct chain_entry entry;
        r = copy_join(path, names[i], below, e) < 0 || copy_join(w->c->start, below, from, e) < 0 ? -1 : 0;
        if (r < 0 || (copy_is_ignored(w->c, from) && !copy_has_exceptions(w->c)) || chain_lookup(dir, names[i], &entry) != 1)
            continue;
        if (glob_match(w->pattern, below))
            r = take(w, dir, names[i], below, from, e);
        else if (S_ISDIR(entry.st.st_mode) && may_lead(w, below))
            r = walk(w, &entry.dir, below, depth + 1, e);
        chain_close(&entry.dir);
    }
    chain_list_free(names, n);
    return r;
}

/* "a/./b" -> the directory a, and "b". */
static int split(struct copy *c, const char *item, char pattern[LIMIT_PATH], struct err *e)
{
    const char *pivot = strstr(item, "/./");
    auto_free char *before = mem_strndup(item, pivot != NULL ? (size_t)(pivot - item) : 0);

    if (glob_is_pattern(before))
        return err_set(e, ERR_UNSUPPORTED, "'%.200s': a pattern before '/./' is not followed", item);
    if (path_normalize(before, c->start, sizeof c->start) < 0 ||
        path_normalize(pivot != NULL ? pivot + 3 : item, pattern, LIMIT_PATH) < 0)
        return err_set(e, ERR_INVALID, "'%.200s' has a '..' or is too long", item);
    return 0;
}

int copy_with_parents(struct copy *c, const char *item, const char *dest, struct err *e)
{
    auto_free char *pattern = mem_alloc(LIMIT_PATH), *resolved = mem_alloc(LIMIT_PATH);
    struct walk w = {.c = c, .pattern = pattern, .dest = dest};
    struct chain_dir dir;
    struct stat st;

    if (split(c, item, pattern, e) < 0)
        return -1;
    int r = chain_resolve(&c->source, c->start, true, resolved, &st, e);
    if (r < 0)
        return -1;
    if (r == 1 && S_ISDIR(st.st_mode) && chain_open_dir(&c->source, resolved, &dir) == 1) {
        memcpy(c->start, resolved, strlen(resolved) + 1);
        c->at = strlen(resolved) + (resolved[0] != '\0');
        if (*pattern == '\0')
            memcpy(pattern, "*", 2);    /* all that is in it */
        w.is_deep = strstr(pattern, "**") != NULL;
        r = walk(&w, &dir, "", 0, e);
        chain_close(&dir);
        if (r < 0 || w.found > 0)
            return r;
    }
    return err_set(e, ERR_NOT_FOUND, "nothing in the %s matches '%.200s'", c->rq->is_context ? "build context" : "source", item);
}
