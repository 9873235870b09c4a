/*
 * chain.h - the layers of an image as one tree, read without a mount
 *
 * What overlay would show: whiteouts hide, opaque directories cut off, directories are merged. Layers do not change, so nothing
 * here races.
 */
#ifndef QS_IMAGE_CHAIN_H
#define QS_IMAGE_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/limits.h"
#include "ipc/image_proto.h"

/* A directory: the same one in each layer that has it, top first. */
struct chain_dir {
    int n;
    int fds[IMAGE_LAYERS_MAX];
};

struct chain_entry {
    struct stat st;                     /* of the topmost */
    int at;                             /* borrowed: the directory in which that one lies */
    struct chain_dir dir;               /* if it is a directory; owned */
};

/* `layers` are names below `layers_fd`, top first. */
int chain_open(int layers_fd, char (*layers)[72], size_t n, struct chain_dir *ret, struct err *e);
void chain_close(struct chain_dir *d);
/* 1 = found, 0 = there is none, -errno. With 1 and a directory, chain_close(&ret->dir). */
int chain_lookup(const struct chain_dir *d, const char *name, struct chain_entry *ret);
/* Names in a directory, sorted, whiteouts and what they hide left out; the caller frees each and the list. */
int chain_list(const struct chain_dir *d, char ***ret, size_t *ret_n, struct err *e);
void chain_list_free(char **names, size_t n);

/*
 * Follows links as a program inside would: `resolved` is the path without a link ("" = the root, no slash in front) as far as it
 * exists, and with what is missing of it behind. 1 = all of it is there: *ret_st is its state; 0 = not; -1.
 */
int chain_resolve(const struct chain_dir *root, const char *path, bool follow_last,
                  char resolved[LIMIT_PATH], struct stat *ret_st, struct err *e);
/* The directory of a resolved path: 1, 0 or -errno as chain_lookup. */
int chain_open_dir(const struct chain_dir *root, const char *resolved, struct chain_dir *ret);
/* The contents of a file, at most `max`; NULL if it is not there, not a file or too long. */
char *chain_read(const struct chain_dir *root, const char *path, size_t max, size_t *ret_len);

#endif
