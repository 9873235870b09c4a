/*
 * walk.c - a directory tree in order of names
 *
 * Used by lists, archives, copies and removals. The first levels keep their descriptors open; below, a
 * directory is closed when its child is entered and found again through "..", which must then be the
 * same directory as before: otherwise somebody moved the tree away under us.
 */
#include "init/fs/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/fd.h"

#define OPEN_LEVELS 32
#define OPEN_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

struct walk_frame {
    struct walk_frame *up;
    struct arena_mark mark;             /* before this frame */
    int fd;                             /* -1 while closed */
    dev_t dev;
    ino_t ino;
    int depth;
    size_t path_len;                    /* of the directory */
    char **names;
    size_t n, at;                       /* names[at - 1] is the current one */
};

struct name {
    struct name *next;
    char text[];
};

struct raw_dirent {
    uint64_t ino, off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(struct walk *w, struct walk_frame *f)
{
    static _Alignas(8) char buffer[32 * 1024];
    struct name *list = NULL;
    size_t n = 0;

    for (;;) {
        long got = syscall(SYS_getdents64, f->fd, buffer, sizeof buffer);
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        for (long at = 0; at < got;) {
            struct raw_dirent *d = (struct raw_dirent *)(void *)(buffer + at);
            at += d->reclen;
            if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
                continue;
            size_t size = strlen(d->name) + 1;
            struct name *node = arena_alloc(&w->arena, sizeof *node + size);
            memcpy(node->text, d->name, size);
            node->next = list;
            list = node;
            n++;
        }
    }
    f->names = arena_alloc(&w->arena, (n + 1) * sizeof *f->names);
    for (f->n = 0; list != NULL; list = list->next)
        f->names[f->n++] = list->text;
    qsort(f->names, n, sizeof *f->names, compare);
    return 0;
}

/* Takes `fd`. */
static int push(struct walk *w, int fd)
{
    struct arena_mark mark = arena_mark(&w->arena);
    struct walk_frame *f = arena_alloc(&w->arena, sizeof *f);
    struct stat st;

    *f = (struct walk_frame){.up = w->top, .mark = mark, .fd = fd, .path_len = w->path_len};
    f->depth = w->top != NULL ? w->top->depth + 1 : 0;
    int r = fstat(fd, &st) < 0 ? -errno : read_names(w, f);
    if (r < 0) {
        fd_close(&f->fd);
        arena_reset(&w->arena, mark);
        return r;
    }
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    w->top = f;
    return 0;
}

int walk_begin(struct walk *w, int dirfd)
{
    w->top = NULL;
    w->arena = (struct arena){0};
    w->path_len = 0;
    w->path[0] = '\0';
    return push(w, dirfd);
}

static int path_set(struct walk *w, const struct walk_frame *f, const char *name)
{
    size_t n = strlen(name), at = f->path_len;

    if (at + n + 2 > sizeof w->path)
        return -ENAMETOOLONG;
    if (at > 0)
        w->path[at++] = '/';
    memcpy(w->path + at, name, n + 1);
    w->path_len = at + n;
    return 0;
}

/* Back from `child` to its parent, which is the top afterwards. */
static int pop(struct walk *w)
{
    struct walk_frame *child = w->top, *f = child->up;
    struct stat st;

    if (f != NULL && f->fd < 0) {
        f->fd = openat(child->fd, "..", OPEN_FLAGS);
        if (f->fd < 0)
            return -errno;
        if (fstat(f->fd, &st) < 0)
            return -errno;
        if (st.st_dev != f->dev || st.st_ino != f->ino)
            return -ESTALE;
    }
    fd_close(&child->fd);
    w->top = f;
    arena_reset(&w->arena, child->mark);
    return 0;
}

int walk_next(struct walk *w, struct walk_entry *ret)
{
    while (w->top != NULL) {
        struct walk_frame *f = w->top;

        if (f->at == f->n) {
            int r = pop(w);
            if (r < 0)
                return r;
            f = w->top;
            if (f == NULL)
                return WALK_END;
            ret->dirfd = f->fd;
            ret->name = f->names[f->at - 1];
            ret->depth = f->depth;
            ret->path = w->path;
            r = path_set(w, f, ret->name);
            return r < 0 ? r : WALK_LEAVE;
        }
        ret->name = f->names[f->at++];
        ret->dirfd = f->fd;
        ret->depth = f->depth;
        ret->path = w->path;
        int r = path_set(w, f, ret->name);
        if (r < 0)
            return r;
        if (fstatat(f->fd, ret->name, &ret->st, AT_SYMLINK_NOFOLLOW) == 0)
            return WALK_ENTRY;
        if (errno != ENOENT)
            return -errno;
    }
    return WALK_END;
}

int walk_enter(struct walk *w)
{
    struct walk_frame *f = w->top;
    int fd = openat(f->fd, f->names[f->at - 1], OPEN_FLAGS);

    if (fd < 0)
        return -errno;
    int r = push(w, fd);
    if (r == 0 && f->depth >= OPEN_LEVELS)
        fd_close(&f->fd);
    return r;
}

void walk_done(struct walk *w)
{
    for (struct walk_frame *f = w->top; f != NULL; f = f->up)
        fd_close(&f->fd);
    w->top = NULL;
    arena_reset(&w->arena, (struct arena_mark){0});
}
