/*
 * seccomp_filter.h - compiling a syscall filter
 *
 * Called by the keeper at start: for itself, and for the program that every sandbox installs. Calls
 * that no rule names get the filter's default errno. Names unknown to this libseccomp or to this
 * architecture are passed over, so one list serves all.
 */
#ifndef QS_SYS_SECCOMP_FILTER_H
#define QS_SYS_SECCOMP_FILTER_H

#include <stddef.h>
#include <stdint.h>

struct seccomp_filter; /* opaque; from libseccomp */

enum seccomp_test { SECCOMP_EQ, SECCOMP_NE, SECCOMP_GT, SECCOMP_MASK };

struct seccomp_filter *seccomp_filter_new(int default_errno); /* NULL = no memory */
void seccomp_filter_free(struct seccomp_filter *f);
/* `error` 0 allows the call, else it fails with that errno. */
int seccomp_filter_add(struct seccomp_filter *f, int error, const char *name);
/* The same if argument `arg` compares to `value`; with SECCOMP_MASK if (arg & mask) == value. */
int seccomp_filter_add_if(struct seccomp_filter *f, int error, const char *name, unsigned arg,
                          enum seccomp_test test, uint64_t value, uint64_t mask);
int seccomp_filter_load(struct seccomp_filter *f); /* on the calling process, for good */
/* The program as raw struct sock_filter[] in a sealed memfd: descriptor or -errno. */
int seccomp_filter_export(struct seccomp_filter *f);

#endif
