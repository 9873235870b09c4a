/*
 * copy.c - COPY and ADD of a build
 *
 * No sandbox is needed for it: the layer has the copied files and the directories on the way to them, with the attributes that
 * they have in the image below.
 */
#include "image/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/glob.h"
#include "base/log.h"
#include "base/mem.h"
#include "image/confine.h"
#include "image/copy_internal.h"
#include "image/layer.h"
#include "image/path.h"
#include "image/scribe.h"
#include "image/source.h"
#include "sys/fd.h"

#define IGNORE_MAX (1U << 20)
#define DEPTH_MAX 512
#define TAR_MAGIC_AT 257

struct tree_attr copy_attr(const struct copy *c, const struct stat *st)
{
    struct tree_attr a = scribe_attr(st);

    if (c->is_plain)
        return a;
    if (!c->rq->keep_owner || c->rq->owner[0] != '\0') {
        a.uid = c->uid;
        a.gid = c->gid;
    }
    if (c->rq->mode >= 0 && !S_ISLNK(st->st_mode))
        a.mode = (mode_t)c->rq->mode;
    return a;
}

bool copy_is_ignored(const struct copy *c, const char *path)
{
    return c->ignore != NULL && glob_is_ignored(c->ignore, c->ignore_len, path);
}

bool copy_is_excluded(const struct copy *c, const char *path)
{
    return c->rq->exclude[0] != '\0' && glob_is_ignored(c->rq->exclude, strlen(c->rq->exclude), path + c->at);
}

bool copy_has_exceptions(const struct copy *c)
{
    return (c->ignore != NULL && glob_has_exceptions(c->ignore, c->ignore_len)) ||
           glob_has_exceptions(c->rq->exclude, strlen(c->rq->exclude));
}

/* --- directories on the way ------------------------------------------------------------------------------------------------ */

bool copy_was_made(struct copy *c, const char *path)
{
    return map_put(&c->made, path, c) != NULL;
}

static int make_dir(struct copy *c, const char *path, struct err *e)
{
    char resolved[LIMIT_PATH];
    struct stat st;

    if (copy_was_made(c, path))
        return 0;
    int r = chain_resolve(&c->base, path, false, resolved, &st, e);
    if (r < 0)
        return -1;
    if (r == 1 && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "'/%.200s' is not a directory in the image", path);
    struct tree_attr a = scribe_attr(&st);
    if (r == 0) {
        a = (struct tree_attr){.uid = c->uid, .gid = c->gid, .mode = 0755, .mtime.tv_sec = time(NULL)};
        c->changes++;
    }
    return scribe_dir(&c->scribe, path, &a, e);
}

/* The directory `path` and those it is in, as the image has them. */
int copy_make_dirs(struct copy *c, const char *path, struct err *e)
{
    auto_free char *part = mem_strdup(path);

    if (make_dir(c, "", e) < 0)
        return -1;
    for (char *at = part; *at != '\0';) {
        at += strcspn(at, "/");
        char end = *at;
        *at = '\0';
        if (make_dir(c, part, e) < 0)
            return -1;
        *at = end;
        at += end != '\0';
    }
    return 0;
}

static int make_parents(struct copy *c, const char *path, struct err *e)
{
    auto_free char *text = mem_strdup(path);
    const char *parent;

    (void)path_split(text, &parent);
    return copy_make_dirs(c, parent, e);
}

/* --- entries ---------------------------------------------------------------------------------- */

int copy_join(const char *dir, const char *name, char out[LIMIT_PATH], struct err *e)
{
    size_t n = strlen(dir), m = strlen(name);

    if (n + m + 2 > LIMIT_PATH)
        return err_set(e, ERR_INVALID, "a path is longer than %d bytes", LIMIT_PATH - 1);
    memcpy(out, dir, n);
    if (n > 0)
        out[n++] = '/';
    memcpy(out + n, name, m + 1);
    return 0;
}

static int copy_contents(struct copy *c, const struct chain_dir *dir, const char *from, const char *to, int depth, struct err *e);

int copy_entry(struct copy *c, const struct chain_dir *dir, const char *name, const char *from,
               const char *to, int depth, struct err *e)
{
    struct chain_entry entry;
    int r = chain_lookup(dir, name, &entry);

    if (r <= 0)
        return r < 0 ? err_sys(e, -r, "look up '%.100s'", from) : 0;
    bool is_dir = S_ISDIR(entry.st.st_mode), ignored = copy_is_ignored(c, from) || copy_is_excluded(c, from);
    struct tree_attr a = copy_attr(c, &entry.st);
    r = 0;
    if (!ignored) {
        c->changes++;
        r = scribe_entry(&c->scribe, to, entry.at, name, &entry.st, &a, e);
    }
    if (r == 0 && is_dir && (!ignored || copy_has_exceptions(c)))
        r = copy_contents(c, &entry.dir, from, to, depth + 1, e);
    chain_close(&entry.dir);
    return r;
}

static int copy_contents(struct copy *c, const struct chain_dir *dir, const char *from, const char *to, int depth, struct err *e)
{
    auto_free char *below = mem_alloc(LIMIT_PATH), *target = mem_alloc(LIMIT_PATH);
    char **names;
    size_t n;
    int r = chain_list(dir, &names, &n, e);

    if (r < 0)
        return -1;
    if (depth > DEPTH_MAX)
        r = err_set(e, ERR_INVALID, "directories are nested deeper than %d", DEPTH_MAX);
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = copy_join(from, names[i], below, e);
        if (r == 0)
            r = copy_join(to, names[i], target, e);
        if (r == 0)
            r = copy_entry(c, dir, names[i], below, target, depth, e);
    }
    chain_list_free(names, n);
    return r;
}

/* --- archives --------------------------------------------------------------------------------- */

static bool is_tar(const struct copy *c, int fd)
{
    struct err ignored = {0};
    const void *data;
    bool yes = false;
    struct source *s = source_new(fd, c->job->conn, c->job->alive, &ignored);

    if (s != NULL) {
        ssize_t n = source_read(s, &data, &ignored);
        yes = n >= TAR_MAGIC_AT + 5 && memcmp((const char *)data + TAR_MAGIC_AT, "ustar", 5) == 0;
        source_free(s);
    }
    return lseek(fd, 0, SEEK_SET) == 0 && yes;
}

static void no_progress(const struct unpack_counts *counts, void *arg)
{
}

static int extract(struct copy *c, int fd, const char *to, struct err *e)
{
    struct unpack_counts counts;
    char hex[65];
    int r = -1;

    if (copy_make_dirs(c, to, e) < 0)
        return -1;
    auto_close int dir = openat(c->root, *to != '\0' ? to : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, errno, "open the place of an archive");
    struct source *s = source_new(fd, c->job->conn, c->job->alive, e);
    if (s == NULL)
        return -1;
    if (unpack_tar(s, dir, UNPACK_ROOT, &c->scribe.limits, no_progress, NULL, &counts, e) == 0 && source_digest(s, hex, e) == 0)
        r = 0;
    source_free(s);
    if (r < 0)
        return -1;
    c->changes++;
    c->scribe.counts.bytes += counts.bytes;
    c->scribe.counts.files += counts.files;
    scribe_note(&c->scribe, 'a', to, &(struct tree_attr){0}, hex, strlen(hex));
    return 0;
}

/* 1 = it was an archive and is unpacked. */
static int try_extract(struct copy *c, const struct chain_entry *entry, const char *name, const char *to, struct err *e)
{
    if (!c->rq->extract || !S_ISREG(entry->st.st_mode))
        return 0;
    auto_close int fd = openat(entry->at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(e, errno, "open");
    if (!is_tar(c, fd))
        return 0;
    return extract(c, fd, to, e) < 0 ? -1 : 1;
}

/* --- items ------------------------------------------------------------------------------------ */

/* One source that was found; `name` is what it was called, which a link on the way may have changed. */
static int copy_found(struct copy *c, const char *resolved, const struct stat *st, const char *name, const char *dest, bool into,
                      struct err *e)
{
    char text[LIMIT_PATH], to[LIMIT_PATH];
    struct chain_entry entry;
    struct chain_dir dir;
    const char *parent;
    int r;

    if (S_ISDIR(st->st_mode)) {
        c->at = strlen(resolved) + (resolved[0] != '\0');
        r = chain_open_dir(&c->source, resolved, &dir);
        if (r != 1)
            return err_sys(e, r < 0 ? -r : ENOENT, "open '%.100s'", resolved);
        r = copy_make_dirs(c, dest, e);
        if (r == 0)
            r = copy_contents(c, &dir, resolved, dest, 0, e);
        chain_close(&dir);
        return r;
    }
    memcpy(text, resolved, strlen(resolved) + 1);
    const char *last = path_split(text, &parent);
    c->at = (size_t)(last - text);
    if (copy_is_excluded(c, resolved))
        return 0;
    if ((into ? copy_join(dest, name, to, e) : copy_join("", dest, to, e)) < 0)
        return -1;
    if (chain_open_dir(&c->source, parent, &dir) != 1)
        return err_set(e, ERR_INTERNAL, "a directory of the source is gone");
    r = chain_lookup(&dir, last, &entry);
    if (r == 1) {
        r = try_extract(c, &entry, last, dest, e);
        if (r == 0)
            r = make_parents(c, to, e);
        if (r == 0) {
            struct tree_attr a = copy_attr(c, &entry.st);
            c->changes++;
            r = scribe_entry(&c->scribe, to, entry.at, last, &entry.st, &a, e);
        }
        chain_close(&entry.dir);
    }
    chain_close(&dir);
    return r < 0 ? -1 : 0;
}

static int copy_plain(struct copy *c, const char *item, const char *dest, bool into, struct err *e)
{
    char resolved[LIMIT_PATH];
    struct stat st;
    int r = chain_resolve(&c->source, item, true, resolved, &st, e);

    if (r < 0)
        return -1;
    if (r == 0 || (resolved[0] != '\0' && copy_is_ignored(c, resolved) &&
                   !(S_ISDIR(st.st_mode) && glob_has_exceptions(c->ignore, c->ignore_len))))
        return err_set(e, ERR_NOT_FOUND, "there is no '%.200s' in the %s%s", item, c->rq->is_context ? "build context" : "source",
                       r == 1 ? ": .dockerignore leaves it out" : "");
    const char *slash = strrchr(item, '/');
    scribe_forget_links(&c->scribe);    /* each source is copied for itself */
    return copy_found(c, resolved, &st, slash != NULL ? slash + 1 : item, dest, into, e);
}

/* Everything that the parts of a pattern from `part` on match below `dir`. */
static int copy_matching(struct copy *c, const struct chain_dir *dir, const char *path, const char *part, const char *dest,
                         uint64_t *found, struct err *e)
{
    auto_free char *pattern = mem_strndup(part, strcspn(part, "/")), *below = mem_alloc(LIMIT_PATH);
    const char *rest = part + strlen(pattern);
    char **names;
    size_t n;

    rest += *rest == '/';
    if (chain_list(dir, &names, &n, e) < 0)
        return -1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct chain_entry entry;
        if (!glob_match(pattern, names[i]))
            continue;
        r = copy_join(path, names[i], below, e);
        if (r < 0 || copy_is_ignored(c, below) || chain_lookup(dir, names[i], &entry) != 1)
            continue;
        if (*rest != '\0' && S_ISDIR(entry.st.st_mode)) {
            r = copy_matching(c, &entry.dir, below, rest, dest, found, e);
        } else if (*rest == '\0') {
            ++*found;
            r = copy_plain(c, below, dest, true, e);
        }
        chain_close(&entry.dir);
    }
    chain_list_free(names, n);
    return r;
}

static int copy_item(struct copy *c, const char *item, const char *dest, bool into, struct err *e)
{
    char normal[LIMIT_PATH];
    uint64_t found = 0;

    if (c->rq->parents)
        return copy_with_parents(c, item, dest, e);
    if (!glob_is_pattern(item))
        return copy_plain(c, item, dest, into, e);
    if (path_normalize(item, normal, sizeof normal) < 0)
        return err_set(e, ERR_INVALID, "'%.200s' has a '..' or is too long", item);
    if (copy_matching(c, &c->source, "", normal, dest, &found, e) < 0)
        return -1;
    if (found == 0)
        return err_set(e, ERR_NOT_FOUND, "nothing in the %s matches '%.200s'",
                       c->rq->is_context ? "build context" : "source", item);
    return 0;
}

static int copy_text(struct copy *c, uint32_t i, const char *dest, bool into, struct err *e)
{
    struct stat st = {.st_mode = S_IFREG | 0644, .st_nlink = 1, .st_size = (off_t)c->rq->texts[i].len, .st_mtime = time(NULL)};
    struct tree_attr a = copy_attr(c, &st);
    char to[LIMIT_PATH];
    auto_close int fd = -1;

    if ((into ? copy_join(dest, c->rq->texts[i].name, to, e) : copy_join("", dest, to, e)) < 0 || make_parents(c, to, e) < 0)
        return -1;
    c->changes++;
    scribe_note(&c->scribe, 't', to, &a, c->rq->texts[i].text, c->rq->texts[i].len);
    if (tree_file(&c->scribe.tree, to, &fd, e) < 0)
        return -1;
    int r = fd_write_all(fd, c->rq->texts[i].text, c->rq->texts[i].len);
    if (r < 0)
        return err_sys(e, -r, "write '%.100s'", to);
    c->scribe.counts.files++;
    c->scribe.counts.bytes += c->rq->texts[i].len;
    if (tree_file_end(fd, &a, e) < 0)
        return -1;
    return tree_times(fd, &a, e);
}

/* --- mounts ----------------------------------------------------------------------------------- */

/* How many bytes of the path are there. */
static size_t existing(struct copy *c, const char *dest)
{
    auto_free char *part = mem_strdup(dest);
    char resolved[LIMIT_PATH];
    struct err ignored;
    struct stat st;
    size_t n = 0;

    for (char *at = part; *at != '\0';) {
        at += strcspn(at, "/");
        char end = *at;
        *at = '\0';
        if (chain_resolve(&c->base, part, false, resolved, &st, &ignored) != 1)
            break;
        n = (size_t)(at - part);
        *at = end;
        at += end != '\0';
    }
    return n;
}

static int make_mount_dir(struct copy *c, const char *dest, const struct stat *st, struct err *e)
{
    struct tree_attr a = copy_attr(c, st);

    if (make_parents(c, dest, e) < 0 || scribe_dir(&c->scribe, dest, &a, e) < 0 || scribe_opaque(&c->scribe, dest, e) < 0)
        return -1;
    (void)copy_was_made(c, dest);
    return 0;
}

/* Hides what is at dest: an opaque directory with the content of the item, if there is one, or the item itself if it is a
 * file. */
static int copy_mount(struct copy *c, const char *dest, bool is_there, const struct stat *below, struct err *e)
{
    struct stat st = {.st_mode = S_IFDIR | 0755, .st_mtime = time(NULL)};
    char resolved[LIMIT_PATH];
    int r;

    if (*dest == '\0' || c->rq->nitems > 1 || c->rq->ntexts > 0)
        return err_set(e, ERR_INVALID, "nothing can be mounted over the root");
    if (c->rq->nitems == 1) {
        r = chain_resolve(&c->source, c->rq->items[0], true, resolved, &st, e);
        if (r < 0)
            return -1;
        if (r == 0)
            return err_set(e, ERR_NOT_FOUND, "there is no '%.200s' in the %s", c->rq->items[0],
                           c->rq->is_context ? "build context" : "source");
    }
    if (is_there && S_ISDIR(below->st_mode) != S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "'/%.200s' is %s directory in the image, and the source is %s", dest,
                       S_ISDIR(below->st_mode) ? "a" : "no", S_ISDIR(st.st_mode) ? "one" : "none");
    c->changes++;
    if (S_ISDIR(st.st_mode) && make_mount_dir(c, dest, &st, e) < 0)
        return -1;
    c->is_plain = c->rq->keep_owner;
    return c->rq->nitems == 1 ? copy_found(c, resolved, &st, "", dest, false, e) : 0;
}

static int copy_all(struct copy *c, struct image_done *ret, struct err *e)
{
    const struct image_copy *rq = c->rq;
    char dest[LIMIT_PATH];
    struct stat st;
    int r = chain_resolve(&c->base, rq->dest, true, dest, &st, e);

    if (r < 0)
        return -1;
    if (strlen(dest) < sizeof ret->path) {
        memcpy(ret->path, dest, strlen(dest) + 1);
        ret->existing = (uint32_t)existing(c, dest);
    } else if (rq->replace) {
        return err_set(e, ERR_INVALID, "the path of a mount is longer than %zu bytes", sizeof ret->path - 1);
    }
    if (rq->replace)
        return copy_mount(c, dest, r == 1, &st, e);
    c->changes += rq->nbase == 0;       /* an image needs a layer, if only one with its root */
    bool into = rq->dest_is_dir || (r == 1 && S_ISDIR(st.st_mode));
    if (rq->nitems == 0 && rq->ntexts == 0)
        return copy_make_dirs(c, dest, e);
    for (uint32_t i = 0; i < rq->nitems; i++)
        if (copy_item(c, rq->items[i], dest, into, e) < 0)
            return -1;
    for (uint32_t i = 0; i < rq->ntexts; i++)
        if (copy_text(c, i, dest, into, e) < 0)
            return -1;
    return 0;
}

/* --- the job ---------------------------------------------------------------------------------- */

static int prepare(struct copy *c, struct err *e)
{
    struct image_copy *rq = (struct image_copy *)(uintptr_t)c->rq;

    if (rq->dest[0] != '/')
        return err_set(e, ERR_INVALID, "the destination is not absolute");
    if (chain_open(c->job->layers, rq->source, rq->nsource, &c->source, e) < 0 ||
        chain_open(c->job->layers, rq->base, rq->nbase, &c->base, e) < 0)
        return -1;
    if (rq->owner[0] != '\0' && copy_owner(&c->base, rq->owner, &c->uid, &c->gid, e) < 0)
        return -1;
    if (rq->is_context && !rq->keep_ignored)
        c->ignore = chain_read(&c->source, ".dockerignore", IGNORE_MAX, &c->ignore_len);
    return 0;
}

static int copy_staged(struct copy *c, struct image_done *ret, struct err *e)
{
    auto_close int staging = -1;

    if (layer_stage(c->job, &staging, &c->root, e) < 0)
        return -1;
    scribe_begin(&c->scribe, c->job, c->root, &(struct unpack_limits){c->rq->max_bytes, c->rq->max_files});
    int r = copy_all(c, ret, e);
    if (r == 0)
        r = scribe_end(&c->scribe, ret->layer, e);
    const struct unpack_counts counts = c->scribe.counts;
    ret->bytes = counts.bytes;
    ret->files = counts.files;
    scribe_done(&c->scribe);
    if (r == 0 && c->changes > 0)
        r = layer_publish(c->job, staging, c->root, ret->layer, &counts, e);
    else
        ret->layer[0] = '\0';
    if (r < 0 || c->changes == 0)
        layer_discard(c->job, staging);
    return r;
}

int copy_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    auto_free struct image_copy *rq = mem_zalloc(sizeof *rq);
    struct copy *c = mem_zalloc(sizeof *c);
    int r = -1;

    c->job = job;
    c->rq = rq;
    c->root = -1;
    map_init(&c->made);
    if (m->nfds != 0 || image_copy_decode(rq, m->data, m->len) < 0)
        (void)err_set(e, ERR_MALFORMED, "not a request of this version");
    else if (confine_unpacker(e) == 0 && prepare(c, e) == 0)
        r = copy_staged(c, ret, e);
    chain_close(&c->source);
    chain_close(&c->base);
    map_done(&c->made);
    free(c->ignore);
    fd_close(&c->root);
    free(c);
    return r;
}
