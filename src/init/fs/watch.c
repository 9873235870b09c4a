/*
 * watch.c - Watch: changes of a file or a tree, one JSON object a line
 *
 * Ends when stdin ends, when the time is up, or when what is watched is removed. A new directory is
 * watched first and listed then, so that nothing that is made in it goes unseen; what both the list and an
 * event tell is told once. An overflow of the kernel's queue is reported, whatever the filter says.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "init/fs/path.h"
#include "init/fs/signs.h"
#include "init/fs/walk.h"
#include "init/fs/watch_tree.h"
#include "sys/fd.h"

#define TREE_MASK                                                                                        \
    (IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF | IN_MODIFY |   \
     IN_ATTRIB)
#define NAME_MASK (IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF)
#define FILE_MASK (IN_MODIFY | IN_ATTRIB)
#define RENAME_WAIT_MS 20
#define LISTED_SIZE 4096
#define DEPTH_MAX 4096

enum kind { ACCESS, CREATE, MODIFY, REMOVE, UNKNOWN, RENAME, RENAME_FROM, RENAME_TO, KIND_MAX };

static const char *const kinds[KIND_MAX] = {
    "Access", "Create", "Modify", "Remove", "Unknown", "Rename", "RenameFrom", "RenameTo",
};

struct watch {
    struct out *out;
    int fd;                             /* inotify */
    bool recursive;
    const char *only;                   /* the one file of interest, in the root directory; NULL = all */
    int file_wd;                        /* watch on that file itself */
    bool wanted[KIND_MAX];
    bool nothing;                       /* an empty filter */
    bool ended;
    struct watch_tree tree;
    /* The first half of a rename. */
    uint32_t cookie;                    /* 0 = none */
    bool from_is_dir;
    int32_t from_parent;
    char from_name[256];
    uint64_t listed[LISTED_SIZE];       /* hashes of names found by listing */
};

static char path_a[WATCH_PATH_SIZE], path_b[WATCH_PATH_SIZE];

static void path_print(struct out *o, const char *p, int n, bool *valid)
{
    *valid = out_string(o, p, (size_t)n) && *valid;
}

static void emit_paths(struct watch *w, enum kind kind, const char *a, int na, const char *b, int nb,
                       const char *more)
{
    bool valid = true;

    out_text(w->out, "{\"event_type\":\"");
    out_text(w->out, kinds[kind]);
    out_text(w->out, "\",\"paths\":[");
    path_print(w->out, a, na, &valid);
    if (b != NULL) {
        out_text(w->out, ",");
        path_print(w->out, b, nb, &valid);
    }
    out_text(w->out, "]");
    if (!valid) {
        out_text(w->out, ",\"paths_b64\":[");
        out_base64(w->out, a, (size_t)na);
        if (b != NULL) {
            out_text(w->out, ",");
            out_base64(w->out, b, (size_t)nb);
        }
        out_text(w->out, "]");
    }
    out_text(w->out, more);
    out_text(w->out, "}\n");
}

static void emit(struct watch *w, enum kind kind, int32_t dir, const char *name)
{
    if (!w->wanted[kind])
        return;
    int n = watch_tree_path(&w->tree, dir, name, path_a, sizeof path_a);
    if (n >= 0)
        emit_paths(w, kind, path_a, n, NULL, 0, "");
}

static uint64_t name_hash(int wd, const char *name)
{
    uint64_t h = 14695981039346656037u ^ (uint64_t)wd;

    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h | 1;                       /* 0 marks an empty place */
}

static void listed_add(struct watch *w, int32_t dir, const char *name)
{
    uint64_t h = name_hash(w->tree.dirs[dir].wd, name);

    w->listed[h % LISTED_SIZE] = h;
}

static bool listed_take(struct watch *w, int32_t dir, const char *name)
{
    uint64_t h = name_hash(w->tree.dirs[dir].wd, name);

    if (w->listed[h % LISTED_SIZE] != h)
        return false;
    w->listed[h % LISTED_SIZE] = 0;
    return true;
}

static uint32_t tree_mask(const struct watch *w)
{
    uint32_t mask = w->only != NULL ? NAME_MASK : TREE_MASK;

    /* Reads are many, so they are observed only for those who ask. */
    return w->only == NULL && w->wanted[ACCESS] ? mask | IN_ACCESS : mask;
}

/* Watches the directory `name` in `parent`. Its index, or -errno. */
static int32_t dir_add(struct watch *w, int32_t parent, const char *name)
{
    int n = watch_tree_path(&w->tree, parent, name, path_b, sizeof path_b);

    if (n < 0)
        return n;
    int wd = inotify_add_watch(w->fd, n == 0 ? "/" : path_b, tree_mask(w) | IN_ONLYDIR | IN_DONT_FOLLOW);
    if (wd < 0)
        return -errno;
    return watch_tree_add(&w->tree, wd, parent, name);
}

/*
 * Watches all directories below directory `top`. With `tell`, what is found is reported as made: the
 * directory appeared after the watch began.
 */
static int tree_add(struct watch *w, int32_t top, bool tell)
{
    static struct walk walk;
    static int32_t at[DEPTH_MAX + 2];
    struct walk_entry entry;

    if (!w->recursive)
        return 0;
    int n = watch_tree_path(&w->tree, top, "", path_b, sizeof path_b);
    if (n < 0)
        return n;
    int fd = open(n == 0 ? "/" : path_b, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;    /* gone again; events will tell */
    int r = walk_begin(&walk, fd);
    at[0] = top;
    while (r == 0) {
        r = walk_next(&walk, &entry);
        if (r <= 0)
            break;
        if (r == WALK_LEAVE) {
            r = 0;
            continue;
        }
        r = 0;
        if (tell) {
            emit(w, CREATE, at[entry.depth], entry.name);
            listed_add(w, at[entry.depth], entry.name);
        }
        if (!S_ISDIR(entry.st.st_mode) || entry.depth >= DEPTH_MAX)
            continue;
        int32_t dir = dir_add(w, at[entry.depth], entry.name);
        if (dir == -ENOENT || dir == -ENOTDIR || dir == -EACCES)
            continue;
        if (dir < 0) {
            r = dir;
            break;
        }
        at[entry.depth + 1] = dir;
        r = walk_enter(&walk);
        if (r == -ENOENT || r == -EACCES)
            r = 0;
    }
    walk_done(&walk);
    return r == -ESTALE || r == -ENOENT ? 0 : r;
}

/* A directory has left the tree: it and all below are no longer of interest. */
static void tree_drop(struct watch *w, int32_t top)
{
    /* Marked first: each is found to be below `top` through those between. */
    for (int32_t i = 0; i < w->tree.used; i++)
        w->tree.dirs[i].doomed = w->tree.dirs[i].wd >= 0 && watch_tree_below(&w->tree, i, top);
    for (int32_t i = 0; i < w->tree.used; i++) {
        if (!w->tree.dirs[i].doomed)
            continue;
        (void)inotify_rm_watch(w->fd, w->tree.dirs[i].wd);
        watch_tree_remove(&w->tree, i);
    }
}

static void rename_flush(struct watch *w)
{
    if (w->cookie == 0)
        return;
    w->cookie = 0;
    emit(w, RENAME_FROM, w->from_parent, w->from_name);
    int32_t dir = w->from_is_dir ? watch_tree_child(&w->tree, w->from_parent, w->from_name) : -1;
    if (dir >= 0)
        tree_drop(w, dir);
}

static void rename_begin(struct watch *w, int32_t dir, const struct inotify_event *ev)
{
    rename_flush(w);
    w->cookie = ev->cookie;
    w->from_is_dir = (ev->mask & IN_ISDIR) != 0;
    w->from_parent = dir;
    snprintf(w->from_name, sizeof w->from_name, "%s", ev->name);
}

/* The second half: with its first one it is a rename within the tree. */
static int rename_end(struct watch *w, int32_t dir, const struct inotify_event *ev)
{
    bool paired = w->cookie != 0 && w->cookie == ev->cookie;

    if (!paired) {
        rename_flush(w);
        emit(w, RENAME_TO, dir, ev->name);
        if ((ev->mask & IN_ISDIR) == 0 || !w->recursive)
            return 0;
        int32_t new = dir_add(w, dir, ev->name);
        return new < 0 ? 0 : tree_add(w, new, false);
    }
    w->cookie = 0;
    if (w->wanted[RENAME]) {
        int na = watch_tree_path(&w->tree, w->from_parent, w->from_name, path_a, sizeof path_a);
        int nb = watch_tree_path(&w->tree, dir, ev->name, path_b, sizeof path_b);
        if (na >= 0 && nb >= 0)
            emit_paths(w, RENAME, path_a, na, path_b, nb, "");
    }
    int32_t moved = w->from_is_dir ? watch_tree_child(&w->tree, w->from_parent, w->from_name) : -1;
    if (moved >= 0)
        (void)watch_tree_add(&w->tree, w->tree.dirs[moved].wd, dir, ev->name);
    return 0;
}

static int created(struct watch *w, int32_t dir, const struct inotify_event *ev)
{
    if (!listed_take(w, dir, ev->name))
        emit(w, CREATE, dir, ev->name);
    if ((ev->mask & IN_ISDIR) == 0 || !w->recursive || watch_tree_child(&w->tree, dir, ev->name) >= 0)
        return 0;
    int32_t new = dir_add(w, dir, ev->name);
    if (new == -ENOENT || new == -ENOTDIR || new == -EACCES)
        return 0;                       /* gone already, or not for us to see */
    return new < 0 ? new : tree_add(w, new, true);
}

static void file_watch(struct watch *w)
{
    int n = watch_tree_path(&w->tree, 0, w->only, path_b, sizeof path_b);

    if (n >= 0)
        w->file_wd = inotify_add_watch(w->fd, path_b,
                                       FILE_MASK | (w->wanted[ACCESS] ? IN_ACCESS : 0) | IN_DONT_FOLLOW);
}

/* Something happened to the watched directory itself. */
static void self_event(struct watch *w, int32_t dir, uint32_t mask)
{
    if (dir == 0 && (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) != 0) {
        emit(w, (mask & IN_MOVE_SELF) != 0 ? RENAME_FROM : REMOVE, 0, w->only != NULL ? w->only : "");
        w->ended = true;
    } else if (dir > 0 && (mask & IN_IGNORED) != 0) {
        watch_tree_remove(&w->tree, dir);
    }
}

/* The kernel has dropped events: said to the client, and made good for directories that we have missed. */
static int overflow(struct watch *w)
{
    w->cookie = 0;
    if (!w->nothing)
        emit_paths(w, UNKNOWN, w->tree.root, (int)strlen(w->tree.root), NULL, 0, ",\"overflow\":true");
    return tree_add(w, 0, false);
}

static int named_event(struct watch *w, int32_t dir, const struct inotify_event *ev)
{
    if (w->only != NULL && strcmp(ev->name, w->only) != 0)
        return 0;
    if ((ev->mask & IN_CREATE) != 0) {
        if (w->only != NULL)
            file_watch(w);
        return created(w, dir, ev);
    }
    if ((ev->mask & IN_MOVED_FROM) != 0) {
        rename_begin(w, dir, ev);
        if (w->only != NULL) {
            rename_flush(w);
            w->ended = true;
        }
        return 0;
    }
    if ((ev->mask & IN_MOVED_TO) != 0) {
        if (w->only != NULL)
            file_watch(w);              /* replaced by another file of this name */
        return rename_end(w, dir, ev);
    }
    if ((ev->mask & IN_DELETE) != 0) {
        emit(w, REMOVE, dir, ev->name);
        w->ended = w->ended || w->only != NULL;
    } else if ((ev->mask & (IN_MODIFY | IN_ATTRIB)) != 0) {
        emit(w, MODIFY, dir, ev->name);
    } else if ((ev->mask & IN_ACCESS) != 0 && (ev->mask & IN_ISDIR) == 0) {
        emit(w, ACCESS, dir, ev->name); /* directories are read by our own listing, too */
    }
    return 0;
}

static int event(struct watch *w, const struct inotify_event *ev)
{
    if ((ev->mask & IN_Q_OVERFLOW) != 0)
        return overflow(w);
    if ((ev->mask & IN_MOVED_TO) == 0)
        rename_flush(w);
    if (w->only != NULL && ev->wd == w->file_wd) {
        if ((ev->mask & (IN_MODIFY | IN_ATTRIB)) != 0)
            emit(w, MODIFY, 0, w->only);
        else if ((ev->mask & IN_ACCESS) != 0)
            emit(w, ACCESS, 0, w->only);
        return 0;
    }
    int32_t dir = watch_tree_find(&w->tree, ev->wd);
    if (dir < 0)
        return 0;                       /* of a directory that has left the tree */
    if (ev->len == 0) {
        self_event(w, dir, ev->mask);
        return 0;
    }
    return named_event(w, dir, ev);
}

/* 0, or -errno. Everything that is in the queue. */
static int events(struct watch *w)
{
    static _Alignas(struct inotify_event) char buffer[64 * 1024];

    for (;;) {
        ssize_t n = read(w->fd, buffer, sizeof buffer);
        if (n < 0 && errno == EAGAIN) {
            memset(w->listed, 0, sizeof w->listed);
            return out_flush(w->out);
        }
        if (n < 0)
            return errno == EINTR ? 0 : -errno;
        for (char *p = buffer; p < buffer + n && !w->ended;) {
            const struct inotify_event *ev = (const struct inotify_event *)(void *)p;
            int r = event(w, ev);
            if (r < 0)
                return r;
            p += sizeof *ev + ev->len;
        }
        if (w->ended)
            return out_flush(w->out);
    }
}

static int loop(struct watch *w, int64_t deadline_ms)
{
    while (!w->ended) {
        struct pollfd pf[2] = {{.fd = w->fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        int64_t left = deadline_ms < 0 ? -1 : deadline_ms - signs_now_ms();
        int wait_ms = signs_left_ms(w->out->signs);
        if ((deadline_ms >= 0 && left <= 0) || wait_ms == 0)
            return 0;
        if (left >= 0 && (wait_ms < 0 || left < wait_ms))
            wait_ms = left > INT_MAX ? INT_MAX : (int)left;
        bool half = w->cookie != 0;
        if (half && (wait_ms < 0 || wait_ms > RENAME_WAIT_MS))
            wait_ms = RENAME_WAIT_MS;
        int n = poll(pf, 2, wait_ms);
        if (n < 0 && errno != EINTR)
            return -errno;
        int r = 0;
        if (n > 0 && (pf[0].revents & POLLIN) != 0)
            r = events(w);
        else if (half) {
            rename_flush(w);
            r = out_flush(w->out);
        }
        if (r == 0 && n > 0 && pf[1].revents != 0)
            r = signs_take(w->out->signs);
        if (r == -EPIPE || r == -ETIMEDOUT)     /* nobody looks any more */
            return 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int filter_args(struct op *o, struct watch *w, struct fs_error *e)
{
    const struct json *filter = json_get(o->args, "filter");

    for (int k = 0; k < KIND_MAX; k++)
        w->wanted[k] = filter == NULL || filter->type == JSON_NULL;
    if (w->wanted[0])
        return 0;
    if (filter->type != JSON_ARRAY)
        return fs_fail_kind(e, "Invalid", "filter must be an array");
    w->nothing = filter->count == 0;
    const struct json *v = json_first(filter);
    for (uint32_t i = 0; i < filter->count; i++, v = json_after(v))
        for (int k = 0; k < KIND_MAX; k++)
            w->wanted[k] = w->wanted[k] || json_is(v, kinds[k]);
    return 0;
}

/* Finds what to watch behind links, and watches it. */
static int begin(struct op *o, struct watch *w, const char *path, struct fs_error *e)
{
    static char root[PATH_MAX];
    struct stat st;
    char *dir;

    if (realpath(path, root) == NULL || lstat(root, &st) < 0)
        return fs_fail(e, errno);
    const char *top = root;
    if (!S_ISDIR(st.st_mode)) {
        path_split(o->arena, root, &dir, &w->only);
        top = dir;
        w->recursive = false;
    }
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0)
        return errno == EMFILE ? fs_fail_kind(e, "Io", "too many watches of this user") : fs_fail(e, errno);
    int r = watch_tree_init(&w->tree, top);
    if (r == 0)
        r = dir_add(w, -1, "");
    if (r >= 0 && w->only != NULL)
        file_watch(w);
    if (r >= 0)
        r = tree_add(w, 0, false);
    if (r == -ENOSPC)
        return fs_fail_kind(e, "Io", "too many directories to watch");
    return r < 0 ? fs_fail(e, -r) : 0;
}

int op_watch(struct op *o, struct fs_error *e)
{
    static struct watch w;
    static struct signs signs;
    const char *path;
    int64_t timeout_ms;
    bool ready;

    w = (struct watch){.out = o->out, .fd = -1, .file_wd = -1};
    if (arg_path(o, "path", &path, e) < 0 || arg_bool(o, "recursive", false, &w.recursive, e) < 0 ||
        arg_bool(o, "ready", false, &ready, e) < 0 || arg_seconds(o, "timeout_secs", &timeout_ms, e) < 0 ||
        filter_args(o, &w, e) < 0 || op_signs(o, &signs, e) < 0 || begin(o, &w, path, e) < 0)
        return -1;
    if (ready)
        out_text(o->out, "{\"event_type\":\"Ready\",\"paths\":[]}\n");
    int r = out_flush(o->out);
    if (r == 0)
        r = loop(&w, timeout_ms < 0 ? -1 : signs_now_ms() + timeout_ms);
    fd_close(&w.fd);
    if (r == -ENOSPC)
        return fs_fail_kind(e, "Io", "too many directories to watch");
    return r < 0 ? fs_fail(e, -r) : 0;
}
