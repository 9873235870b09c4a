/*
 * chain.c - the layers of an image as one tree, read without a mount
 */
#include "image/chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"
#include "image/path.h"
#include "sys/fd.h"

#define LINKS_MAX 40
#define NAMES_MAX 4000000

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static bool is_opaque(int dir)
{
    char value = '\0';

    return fgetxattr(dir, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

void chain_close(struct chain_dir *d)
{
    for (int i = 0; i < d->n; i++)
        fd_close(&d->fds[i]);
    d->n = 0;
}

int chain_open(int layers_fd, char (*layers)[72], size_t n, struct chain_dir *ret, struct err *e)
{
    ret->n = 0;
    for (size_t i = 0; i < n; i++) {
        int fd = openat(layers_fd, layers[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) {
            int error = errno;
            chain_close(ret);
            return error == ENOENT ? err_set(e, ERR_NOT_FOUND, "layer %.12s is not on this node", layers[i])
                                   : err_sys(e, error, "open layer %.12s", layers[i]);
        }
        ret->fds[ret->n++] = fd;
    }
    return 0;
}

int chain_lookup(const struct chain_dir *d, const char *name, struct chain_entry *ret)
{
    bool found = false;

    ret->dir.n = 0;
    for (int i = 0; i < d->n; i++) {
        struct stat st;
        if (fstatat(d->fds[i], name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT || errno == ENOTDIR)
                continue;
            int error = errno;
            chain_close(&ret->dir);
            return -error;
        }
        if (is_whiteout(&st) || (found && !S_ISDIR(st.st_mode)))
            break;
        if (!found) {
            ret->st = st;
            ret->at = d->fds[i];
            found = true;
        }
        if (!S_ISDIR(st.st_mode))
            break;
        int fd = openat(d->fds[i], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) {
            int error = errno;
            chain_close(&ret->dir);
            return -error;
        }
        ret->dir.fds[ret->dir.n++] = fd;
        if (is_opaque(fd))
            break;
    }
    return found ? 1 : 0;
}

/* --- names ------------------------------------------------------------------------------------------------------------------ */

struct names {
    char **list;                        /* owned; a leading '-' marks a whiteout, '+' a name */
    size_t n, size;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

static bool has_name(const struct names *sorted, size_t n, const char *name)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int c = strcmp(sorted->list[middle] + 1, name);
        if (c == 0)
            return true;
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static void add_name(struct names *names, char mark, const char *name)
{
    size_t n = strlen(name);

    if (names->n == names->size) {
        names->size = names->size > 0 ? names->size * 2 : 64;
        names->list = mem_realloc(names->list, names->size * sizeof *names->list);
    }
    char *text = mem_alloc(n + 2);
    text[0] = mark;
    memcpy(text + 1, name, n + 1);
    names->list[names->n++] = text;
}

/* Adds what one layer has and those above it do not say anything of. */
static int add_layer(struct names *names, int dir)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *d;
    size_t before = names->n;
    struct stat st;

    if (list == NULL) {
        fd_close(&copy);
        return -errno;
    }
    while ((d = readdir(list)) != NULL && names->n < NAMES_MAX) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || has_name(names, before, d->d_name))
            continue;
        bool hidden = d->d_type == DT_CHR && fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_whiteout(&st);
        add_name(names, hidden ? '-' : '+', d->d_name);
    }
    (void)closedir(list);
    if (names->n > 0)
        qsort(names->list, names->n, sizeof *names->list, compare_names);
    return 0;
}

int chain_list(const struct chain_dir *d, char ***ret, size_t *ret_n, struct err *e)
{
    struct names names = {0};
    size_t kept = 0;

    for (int i = 0; i < d->n; i++) {
        int r = add_layer(&names, d->fds[i]);
        if (r < 0) {
            chain_list_free(names.list, names.n);
            return err_sys(e, -r, "list a directory of a layer");
        }
    }
    for (size_t i = 0; i < names.n; i++) {
        char *text = names.list[i];
        if (text[0] == '-') {
            free(text);
            continue;
        }
        memmove(text, text + 1, strlen(text));
        names.list[kept++] = text;
    }
    *ret = names.list;
    *ret_n = kept;
    return 0;
}

void chain_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* --- paths ------------------------------------------------------------------------------------ */

static void copy_dir(const struct chain_dir *from, struct chain_dir *to)
{
    to->n = 0;
    for (int i = 0; i < from->n; i++) {
        int fd = fcntl(from->fds[i], F_DUPFD_CLOEXEC, 3);
        if (fd >= 0)
            to->fds[to->n++] = fd;
    }
}

int chain_open_dir(const struct chain_dir *root, const char *resolved, struct chain_dir *ret)
{
    char part[LIMIT_PATH];
    const char *at = resolved;

    copy_dir(root, ret);
    while (*at != '\0') {
        size_t n = strcspn(at, "/");
        struct chain_entry entry;
        memcpy(part, at, n);
        part[n] = '\0';
        int r = chain_lookup(ret, part, &entry);
        bool is_dir = r == 1 && S_ISDIR(entry.st.st_mode);
        chain_close(ret);
        if (r < 0 || !is_dir)
            return r < 0 ? r : 0;
        *ret = entry.dir;
        at += n + (at[n] == '/');
    }
    return 1;
}

static bool push(char *path, const char *part, size_t n)
{
    size_t len = strlen(path);

    if (len + n + 2 > LIMIT_PATH)
        return false;
    if (len > 0)
        path[len++] = '/';
    memcpy(path + len, part, n);
    path[len + n] = '\0';
    return true;
}

static void pop(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash != NULL)
        *slash = '\0';
    else
        path[0] = '\0';
}

/* One step of a resolution: `part` in the directory `resolved`. */
static int look(const struct chain_dir *root, const char *resolved, const char *part, struct stat *st, char *target)
{
    struct chain_entry entry;
    struct chain_dir dir;
    int r = chain_open_dir(root, resolved, &dir);

    if (r <= 0)
        return r;
    r = chain_lookup(&dir, part, &entry);
    if (r == 1) {
        *st = entry.st;
        if (S_ISLNK(st->st_mode)) {
            ssize_t n = readlinkat(entry.at, part, target, LIMIT_PATH - 1);
            target[n > 0 ? n : 0] = '\0';
        }
        chain_close(&entry.dir);
    }
    chain_close(&dir);
    return r;
}

int chain_resolve(const struct chain_dir *root, const char *path, bool follow_last,
                  char resolved[LIMIT_PATH], struct stat *ret_st, struct err *e)
{
    auto_free char *rest = mem_alloc(2 * LIMIT_PATH), *target = mem_alloc(LIMIT_PATH);
    char part[NAME_MAX + 1];
    int links = 0;
    bool missing = false;

    memset(ret_st, 0, sizeof *ret_st);
    ret_st->st_mode = S_IFDIR | 0755;
    resolved[0] = '\0';
    if (strlen(path) >= LIMIT_PATH)
        return err_set(e, ERR_INVALID, "a path is longer than %d bytes", LIMIT_PATH - 1);
    memcpy(rest, path, strlen(path) + 1);
    while (*rest != '\0') {
        char *at = rest + strspn(rest, "/");
        size_t n = strcspn(at, "/");
        bool is_last = at[n + strspn(at + n, "/")] == '\0';
        if (n > NAME_MAX)
            return err_set(e, ERR_INVALID, "a part of a path is longer than %d bytes", NAME_MAX);
        memcpy(part, at, n);
        part[n] = '\0';
        memmove(rest, at + n, strlen(at + n) + 1);
        if (n == 0 || strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            pop(resolved);
            continue;
        }
        int r = missing ? 0 : look(root, resolved, part, ret_st, target);
        if (r < 0)
            return err_sys(e, -r, "look up '%.100s'", part);
        if (r == 1 && S_ISLNK(ret_st->st_mode) && (follow_last || !is_last)) {
            if (++links > LINKS_MAX)
                return err_set(e, ERR_INVALID, "too many symbolic links on the way to '%.100s'", path);
            size_t len = strlen(target);
            if (len + strlen(rest) + 2 >= 2 * LIMIT_PATH)
                return err_set(e, ERR_INVALID, "a path is longer than %d bytes", LIMIT_PATH - 1);
            memmove(rest + len + 1, rest, strlen(rest) + 1);
            memcpy(rest, target, len);
            rest[len] = '/';
            if (target[0] == '/')
                resolved[0] = '\0';
            continue;
        }
        missing = missing || r == 0;
        if (!push(resolved, part, n))
            return err_set(e, ERR_INVALID, "a path is longer than %d bytes", LIMIT_PATH - 1);
    }
    if (missing)
        return 0;
    if (resolved[0] != '\0') {          /* after ".." the state is of something else */
        auto_free char *parent = mem_strdup(resolved);
        const char *dir;
        const char *name = path_split(parent, &dir);
        return look(root, dir, name, ret_st, target) == 1 ? 1 : 0;
    }
    return 1;
}

char *chain_read(const struct chain_dir *root, const char *path, size_t max, size_t *ret_len)
{
    char resolved[LIMIT_PATH];
    struct chain_entry entry;
    struct chain_dir dir;
    const char *parent;
    struct err ignored;
    struct stat st;
    char *text = NULL;

    if (chain_resolve(root, path, true, resolved, &st, &ignored) != 1 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max)
        return NULL;
    char *name = path_split(resolved, &parent);
    if (chain_open_dir(root, parent, &dir) != 1)
        return NULL;
    if (chain_lookup(&dir, name, &entry) == 1) {
        auto_close int fd = openat(entry.at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        text = mem_zalloc(max + 1);
        ssize_t n = fd >= 0 ? fd_read_all(fd, text, max) : -1;
        if (n < 0) {
            free(text);
            text = NULL;
        }
        *ret_len = n > 0 ? (size_t)n : 0;
        chain_close(&entry.dir);
    }
    chain_close(&dir);
    return text;
}
