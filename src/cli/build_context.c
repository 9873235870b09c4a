/*
 * build_context.c - which files of a directory a build is given
 *
 * What the ignore file names is never sent: it is often what nobody else is to see.
 */
#include "cli/build_context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/glob.h"
#include "base/limits.h"
#include "base/mem.h"
#include "sys/fd.h"

#define IGNORE_MAX (1U << 20)
#define LIST_MAX (1U << 30)
#define DEPTH_MAX 512

struct walk {
    struct buf list;                    /* names, each with a NUL behind it */
    char *ignore;                       /* owned, NULL = nothing is ignored */
    size_t ignore_len;
    bool has_exceptions;
};

/* 0 also if there is none. */
static int read_ignore(struct walk *w, const char *path, struct err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(e, errno, "open %s", path);
    w->ignore = mem_alloc(IGNORE_MAX + 1);
    ssize_t n = fd_read_all(fd, w->ignore, IGNORE_MAX);
    if (n < 0)
        return err_sys(e, (int)-n, "read %s", path);
    w->ignore_len = (size_t)n;
    w->has_exceptions = glob_has_exceptions(w->ignore, w->ignore_len);
    return 0;
}

static int is_entry(const struct dirent *d)
{
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static int walk_dir(struct walk *w, int dir, const char *path, int depth, struct err *e);

static int walk_entry(struct walk *w, int dir, const char *path, int depth, struct err *e)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    bool ignored = w->ignore != NULL && glob_is_ignored(w->ignore, w->ignore_len, path);
    struct stat st;

    if (!ignored && (buf_addf(&w->list, "./%s", path) < 0 || buf_addc(&w->list, '\0') < 0))
        return err_set(e, ERR_TOO_LARGE, "the directory has too many files for a build");
    if (ignored && !w->has_exceptions)
        return 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at %s", path);
    if (!S_ISDIR(st.st_mode))
        return 0;
    auto_close int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return err_sys(e, errno, "open %s", path);
    return walk_dir(w, below, path, depth + 1, e);
}

static int walk_dir(struct walk *w, int dir, const char *path, int depth, struct err *e)
{
    struct dirent **names = NULL;
    int n = scandirat(dir, ".", &names, is_entry, alphasort), r = 0;

    if (n < 0)
        return err_sys(e, errno, "list %s", *path != '\0' ? path : "the directory");
    if (depth > DEPTH_MAX)
        r = err_set(e, ERR_INVALID, "directories are nested deeper than %d", DEPTH_MAX);
    for (int i = 0; i < n; i++) {
        auto_free char *below = mem_printf("%s%s%s", path, *path != '\0' ? "/" : "", names[i]->d_name);
        if (r == 0 && strlen(below) >= LIMIT_PATH)
            r = err_set(e, ERR_INVALID, "a path is longer than %d bytes: %.60s…", LIMIT_PATH - 1, below);
        if (r == 0)
            r = walk_entry(w, dir, below, depth, e);
        free(names[i]);
    }
    free(names);
    return r;
}

static int list(struct walk *w, const char *dir, const char *dockerfile, struct err *e)
{
    auto_free char *own = mem_printf("%s.dockerignore", dockerfile), *common = mem_printf("%s/.dockerignore", dir);
    auto_close int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (root < 0)
        return err_sys(e, errno, "open %s", dir);
    if (read_ignore(w, own, e) < 0 || (w->ignore == NULL && read_ignore(w, common, e) < 0) || walk_dir(w, root, "", 0, e) < 0)
        return -1;
    /* Tar takes an inherited descriptor, so this one stays open when it is started. */
    int fd = memfd_create("files", 0);
    if (fd < 0)
        return err_sys(e, errno, "make a list of files");
    int r = fd_write_all(fd, w->list.data, w->list.len);
    if (r < 0) {
        (void)close(fd);
        return err_sys(e, -r, "write the list of files");
    }
    return fd;
}

int build_context_list(const char *dir, const char *dockerfile, struct err *e)
{
    struct walk w = {0};

    buf_init(&w.list, LIST_MAX);
    int fd = list(&w, dir, dockerfile, e);
    buf_done(&w.list);
    free(w.ignore);
    return fd;
}
