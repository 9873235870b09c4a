/*
 * fold.c - what a sandbox has written becomes a layer
 *
 * Reads the upper directory of an ended sandbox by the mount that the keeper gave: names, links and contents of a
 * stranger, taken one by one and never followed. Whiteouts and opaque directories keep their meaning.
 */
#include "image/fold.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "image/confine.h"
#include "image/layer.h"
#include "image/names.h"
#include "image/scribe.h"
#include "sys/fd.h"

#define DEPTH_MAX 512

struct fold {
    const struct image_fold *request;
    struct scribe scribe;
    uint64_t written;                   /* entries that are more than directories on the way */
};

static bool is_excluded(const struct fold *f, const char *path)
{
    for (uint32_t i = 0; i < f->request->nexclude; i++)
        if (strcmp(f->request->exclude[i], path) == 0)
            return true;
    return false;
}

/* `path` lies on the way to what is wanted, or is it, or is below it. */
static bool is_wanted(const struct fold *f, const char *path, bool *ret_inside)
{
    const char *only = f->request->only;
    size_t n = strlen(path), m = strlen(only);

    *ret_inside = m == 0 || (strncmp(path, only, m) == 0 && (path[m] == '\0' || path[m] == '/'));
    return *ret_inside || (n < m && strncmp(path, only, n) == 0 && only[n] == '/');
}

/* Init makes these so that it can mount its own over them (init/setup.c); what a program writes there goes to the mount. */
static bool is_mount_point(const char *path, const struct stat *st)
{
    static const char *const names[] = {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/machine-id"};

    for (size_t i = 0; i < array_len(names); i++)
        if (strcmp(path, names[i]) == 0)
            return S_ISREG(st->st_mode) && st->st_size == 0;
    return false;
}

static bool is_stub(const struct fold *f, const char *path)
{
    for (uint32_t i = 0; i < f->request->nstubs; i++)
        if (strcmp(f->request->stubs[i], path) == 0)
            return true;
    return false;
}

/* A directory that was made for a mount alone: there is nothing else in it. */
static bool is_empty_stub(const struct fold *f, int parent, const char *name, const char *path)
{
    auto_close int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    bool is_empty = true;
    char **names;
    size_t n;

    if (dir < 0 || names_read(dir, &names, &n) < 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        auto_free char *below = mem_printf("%s/%s", path, names[i]);
        is_empty = is_empty && (is_excluded(f, below) || (is_stub(f, below) && is_empty_stub(f, dir, names[i], below)));
        free(names[i]);
    }
    free(names);
    return is_empty;
}

static int fold_dir(struct fold *f, int dir, const char *path, int depth, struct err *e);

static int fold_below(struct fold *f, int parent, const char *name, const char *path, int depth, struct err *e)
{
    char value = '\0';
    auto_close int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (dir < 0)
        return err_sys(e, errno, "open");
    if (fgetxattr(dir, "user.overlay.opaque", &value, 1) == 1 && value == 'y') {
        f->written++;
        if (scribe_opaque(&f->scribe, path, e) < 0)
            return -1;
    }
    return fold_dir(f, dir, path, depth + 1, e);
}

static int fold_entry(struct fold *f, int dir, const char *name, const char *path, int depth, struct err *e)
{
    char shown[160];
    bool inside;
    struct stat st;

    if (is_excluded(f, path) || !is_wanted(f, path, &inside))
        return 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at '%s'", log_escape(path, shown, sizeof shown));
    if (is_mount_point(path, &st) || (S_ISDIR(st.st_mode) && is_stub(f, path) && is_empty_stub(f, dir, name, path)))
        return 0;
    struct tree_attr a = scribe_attr(&st);
    f->written += inside || !S_ISDIR(st.st_mode);
    if (scribe_entry(&f->scribe, path, dir, name, &st, &a, e) < 0 ||
        (S_ISDIR(st.st_mode) && fold_below(f, dir, name, path, depth, e) < 0))
        return depth == 0 ? err_wrap(e, "'%s'", log_escape(path, shown, sizeof shown)) : -1;
    return 0;
}

static int fold_dir(struct fold *f, int dir, const char *path, int depth, struct err *e)
{
    char **names;
    size_t n;
    int r = names_read(dir, &names, &n);

    if (r < 0)
        return err_sys(e, -r, "list a directory");
    if (depth > DEPTH_MAX)
        r = err_set(e, ERR_INVALID, "directories are nested deeper than %d", DEPTH_MAX);
    for (size_t i = 0; i < n; i++) {
        auto_free char *below = mem_printf("%s%s%s", path, *path != '\0' ? "/" : "", names[i]);
        if (r == 0 && strlen(below) >= LIMIT_PATH)
            r = err_set(e, ERR_INVALID, "a path is longer than %d bytes", LIMIT_PATH - 1);
        if (r == 0)
            r = fold_entry(f, dir, names[i], below, depth, e);
        free(names[i]);
    }
    free(names);
    return r;
}

static int fold_root(struct fold *f, int root, struct err *e)
{
    struct stat st;

    if (fstat(root, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_MALFORMED, "what came with the request is no directory");
    struct tree_attr a = scribe_attr(&st);
    if (scribe_dir(&f->scribe, "", &a, e) < 0)
        return -1;
    return fold_dir(f, root, "", 0, e);
}

static int fold(const struct job *job, struct fold *f, int from, struct image_done *ret, struct err *e)
{
    auto_close int staging = -1;
    auto_close int root = -1;

    if (layer_stage(job, &staging, &root, e) < 0)
        return -1;
    scribe_begin(&f->scribe, job, root, &(struct unpack_limits){f->request->max_bytes, f->request->max_files});
    f->scribe.drops_secrets = true;
    int r = fold_root(f, from, e);
    if (r == 0)
        r = scribe_end(&f->scribe, ret->layer, e);
    const struct unpack_counts counts = f->scribe.counts;
    ret->bytes = counts.bytes;
    ret->files = counts.files;
    scribe_done(&f->scribe);
    if (r == 0 && f->written > 0)
        r = layer_publish(job, staging, root, ret->layer, &counts, e);
    else
        ret->layer[0] = '\0';
    if (r < 0 || f->written == 0)
        layer_discard(job, staging);
    return r;
}

int fold_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    auto_free struct image_fold *request = mem_zalloc(sizeof *request);
    struct fold f = {.request = request};

    if (m->nfds != 1 || image_fold_decode(request, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "not a request of this version, or without its tree");
    if (confine_unpacker(e) < 0)
        return -1;
    return fold(job, &f, m->fds[0], ret, e);
}
