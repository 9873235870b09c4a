/*
 * walk.h - a directory tree in order of names, never following links, of any depth and width
 */
#ifndef QS_INIT_FS_WALK_H
#define QS_INIT_FS_WALK_H

#include <stddef.h>
#include <sys/stat.h>

#include "init/fs/arena.h"

#define WALK_PATH_SIZE (64 * 1024)

struct walk_frame;

struct walk {
    struct arena arena;
    struct walk_frame *top;
    size_t path_len;
    char path[WALK_PATH_SIZE];          /* of the current entry, relative to where the walk began */
};

struct walk_entry {
    int dirfd;                          /* the directory that holds it; borrowed */
    const char *name;                   /* valid until the next call */
    const char *path;
    int depth;                          /* 0 = directly below the start */
    struct stat st;                     /* not filled in by WALK_LEAVE */
};

enum { WALK_END = 0, WALK_ENTRY, WALK_LEAVE };

/* Takes `dirfd`, also on failure. 0 or -errno. Walks are few and large: keep them static. */
int walk_begin(struct walk *w, int dirfd);
/* WALK_ENTRY, WALK_LEAVE (a directory that was entered is done; its entry once more), WALK_END, or -errno
 * (w->path says where). Entries that vanish meanwhile are left out. */
int walk_next(struct walk *w, struct walk_entry *ret);
/* Directly after WALK_ENTRY of a directory: goes into it. 0 or -errno. */
int walk_enter(struct walk *w);
void walk_done(struct walk *w);

#endif
