/*
 * spool.h - what a sandbox left on disk, read when its monitor is gone
 *
 * The form is that of ipc/record.h. Everything is read anew at each call: nothing here is a cache.
 */
#ifndef QS_NODE_SPOOL_H
#define QS_NODE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ipc/record.h"

/* Is there a run directory? */
bool spool_exists(int run_fd, const char *sandbox);

/*
 * The exit record. If the monitor died without writing one: the last status, ended with reason
 * node_lost; if there is no status either: a record in state SB_STARTING. ERR_NOT_FOUND without a
 * run directory.
 */
int spool_sandbox(int run_fd, const char *sandbox, struct sandbox_record *ret, struct err *e);
/* The last status that was written, whether the monitor lives or not; 0, or -1 if none. */
int spool_status(int run_fd, const char *sandbox, struct sandbox_record *ret);
/* Only a complete exit record counts; 0, or -1 when there is none. */
int spool_exit(int run_fd, const char *sandbox, struct sandbox_record *ret);

/* A finished exec. ERR_NOT_FOUND if the journal does not have it. */
int spool_exec(int run_fd, const char *sandbox, const char *exec_id, struct exec_record *ret,
               struct err *e);

typedef void (*spool_exec_fn)(void *arg, const struct exec_record *r);
int spool_execs(int run_fd, const char *sandbox, spool_exec_fn fn, void *arg, struct err *e);

/*
 * Up to `size` bytes of stream 1 or 2 at *offset, which is moved up to the first byte that is kept.
 * Returns the count, 0 at the end of the stream, or -1.
 */
long spool_read(int run_fd, const char *sandbox, const struct exec_record *r, int stream,
                uint64_t *offset, void *out, size_t size, struct err *e);
/* The output file of a stream of the exec with this number, to be read and closed; or -errno. */
int spool_open(int run_fd, const char *sandbox, uint32_t seq, int stream);

#endif
