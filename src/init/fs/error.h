/*
 * error.h - how an operation on files fails: a kind for programs, a message for people
 */
#ifndef QS_INIT_FS_ERROR_H
#define QS_INIT_FS_ERROR_H

#include <stddef.h>

struct out;

struct fs_error {
    const char *kind;                   /* "NotFound" and the like; a constant */
    char message[160];                  /* short, without the path */
    char detail[600];                   /* "" or which entry it was */
};

/* Fill *e and return -1. */
int fs_fail(struct fs_error *e, int sys_errno);
int fs_fail_kind(struct fs_error *e, const char *kind, const char *message);
/* From errno, naming the entry at fault. */
int fs_fail_at(struct fs_error *e, int sys_errno, const char *entry);
int fs_fail_kind_at(struct fs_error *e, const char *kind, const char *message, const char *entry);

/* {"version":1,"error_kind":...,"message":...,"detail":...} */
void fs_error_print(struct out *o, const struct fs_error *e);

#endif
