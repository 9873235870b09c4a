/*
 * watch_tree.c - the directories that a Watch has under observation
 *
 * The tables are reserved once and take memory only where they are used.
 */
#include "init/fs/watch_tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HEADS 65536

int watch_tree_init(struct watch_tree *t, const char *root)
{
    size_t size = WATCH_DIRS_MAX * sizeof *t->dirs + HEADS * sizeof *t->heads;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return -errno;
    *t = (struct watch_tree){.root = root, .dirs = p, .free = -1};
    t->heads = (int32_t *)(void *)(t->dirs + WATCH_DIRS_MAX);
    memset(t->heads, 0xff, HEADS * sizeof *t->heads);
    return 0;
}

static int32_t *head_of(const struct watch_tree *t, int wd)
{
    return &t->heads[(uint32_t)wd % HEADS];
}

int32_t watch_tree_find(const struct watch_tree *t, int wd)
{
    for (int32_t i = *head_of(t, wd); i >= 0; i = t->dirs[i].next)
        if (t->dirs[i].wd == wd)
            return i;
    return -1;
}

int32_t watch_tree_add(struct watch_tree *t, int wd, int32_t parent, const char *name)
{
    int32_t i = watch_tree_find(t, wd);

    if (i < 0) {
        if (t->free >= 0) {
            i = t->free;
            t->free = t->dirs[i].next;
        } else if (t->used < WATCH_DIRS_MAX) {
            i = t->used++;
        } else {
            return -ENOSPC;
        }
        int32_t *head = head_of(t, wd);
        t->dirs[i].wd = wd;
        t->dirs[i].doomed = false;
        t->dirs[i].next = *head;
        *head = i;
        t->count++;
    }
    t->dirs[i].parent = parent;
    snprintf(t->dirs[i].name, sizeof t->dirs[i].name, "%s", name);
    return i;
}

int32_t watch_tree_child(const struct watch_tree *t, int32_t parent, const char *name)
{
    for (int32_t i = 0; i < t->used; i++)
        if (t->dirs[i].wd >= 0 && t->dirs[i].parent == parent && strcmp(t->dirs[i].name, name) == 0)
            return i;
    return -1;
}

void watch_tree_remove(struct watch_tree *t, int32_t i)
{
    int32_t *at = head_of(t, t->dirs[i].wd);

    while (*at != i)
        at = &t->dirs[*at].next;
    *at = t->dirs[i].next;
    t->dirs[i].wd = -1;
    t->dirs[i].next = t->free;
    t->free = i;
    t->count--;
}

bool watch_tree_below(const struct watch_tree *t, int32_t i, int32_t top)
{
    /* Bounded, should a chain ever have been bent into a ring. */
    for (int32_t steps = 0; i >= 0 && steps < WATCH_DIRS_MAX; steps++) {
        if (i == top)
            return true;
        i = t->dirs[i].parent;
    }
    return false;
}

int watch_tree_path(const struct watch_tree *t, int32_t i, const char *name, char *out, size_t size)
{
    size_t at = size - 1, n = strlen(name);

    /* From the end, because only the last part is known first. */
    out[at] = '\0';
    if (n > 0) {
        if (at < n + 1)
            return -ENAMETOOLONG;
        at -= n;
        memcpy(out + at, name, n);
        out[--at] = '/';
    }
    for (; i >= 0 && t->dirs[i].name[0] != '\0'; i = t->dirs[i].parent) {
        n = strlen(t->dirs[i].name);
        if (at < n + 1)
            return -ENAMETOOLONG;
        at -= n;
        memcpy(out + at, t->dirs[i].name, n);
        out[--at] = '/';
    }
    n = strlen(t->root);
    if (n == 1 && out[at] == '/')
        n = 0;                          /* the root directory brings no slash of its own */
    if (at < n)
        return -ENAMETOOLONG;
    at -= n;
    memcpy(out + at, t->root, n);
    memmove(out, out + at, size - at);
    return (int)(size - 1 - at);
}
