/*
 * seccomp_filter.h - compiling a syscall filter
 *
 * Called by the keeper at start: for itself, for the spawner, and for the programs that sandboxes install. Names unknown to this
 * libseccomp (which is asked for numbers alone) or to the architecture are passed over, so one list serves all.
 *
 * The program is a binary search over ranges of numbers with the same answer, because each sandbox pays for its
 * installation: the kernel runs it once for every number there is. Calls of a foreign architecture, i386 and x32 among them,
 * do not exist (ENOSYS).
 */
#ifndef QS_SYS_SECCOMP_FILTER_H
#define QS_SYS_SECCOMP_FILTER_H

#include <stddef.h>
#include <stdint.h>

struct sock_filter;
struct seccomp_filter;

enum seccomp_arch { SECCOMP_ARCH_HERE, SECCOMP_ARCH_X86_64, SECCOMP_ARCH_AARCH64 };

/* Of an argument, 64 bits wide. ANY: (argument & value) != 0. INT: the lower half is equal; for arguments of which the
 * kernel takes no more, where bits above would lead past a rule that refuses. */
enum seccomp_test { SECCOMP_EQ, SECCOMP_ANY, SECCOMP_INT };

/* Calls that nothing is said about fail with `default_errno`; 0 lets them through. NULL = no memory. */
struct seccomp_filter *seccomp_filter_new(enum seccomp_arch arch, int default_errno);
void seccomp_filter_free(struct seccomp_filter *f);
/* Instead of an errno: the call is left out and answers 0. */
#define SECCOMP_LEFT_OUT 0x1000

/* `error` 0 allows the call, else it fails with that errno. */
int seccomp_filter_add(struct seccomp_filter *f, int error, const char *name);
/* The same if argument `arg` passes the test. Tests of a call are made in the order in which they are added; if none passes, what
 * seccomp_filter_add() said holds, or the default. */
int seccomp_filter_add_if(struct seccomp_filter *f, int error, const char *name, unsigned arg,
                          enum seccomp_test test, uint64_t value);
/* If two arguments pass SECCOMP_INT. */
int seccomp_filter_add_if_both(struct seccomp_filter *f, int error, const char *name, unsigned arg, uint32_t value,
                               unsigned arg2, uint32_t value2);
/* Writes the program and returns its length, or -E2BIG. */
int seccomp_filter_compile(const struct seccomp_filter *f, struct sock_filter *out, size_t size);
/* On the calling process, for good: with no_new_privs set before, or with CAP_SYS_ADMIN. */
int seccomp_filter_load(const struct seccomp_filter *f);
/* The program as raw struct sock_filter[] in a sealed memfd: descriptor or -errno. */
int seccomp_filter_export(const struct seccomp_filter *f);

#endif
