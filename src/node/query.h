/*
 * query.h - questions about a sandbox that have one answer whether its monitor lives or not
 *
 * Each asks the monitor and falls back to the files when it is gone, so that operations need not
 * care. The query stands in *slot until its callback runs (the slot is cleared before) or until
 * query_cancel. The callback comes once, never from inside the call; exactly one of the result and
 * e is not NULL.
 */
#ifndef QS_NODE_QUERY_H
#define QS_NODE_QUERY_H

#include <stdint.h>

#include "base/err.h"
#include "ipc/monitor_proto.h"
#include "node/node.h"

#define QUERY_POLL_MS 20000     /* the longest poll asked of a monitor; operations poll again */

typedef void (*query_sandbox_cb)(void *arg, const struct sandbox_record *r, const struct err *e);
typedef void (*query_exec_cb)(void *arg, const struct exec_record *r, const struct err *e);
typedef void (*query_read_cb)(void *arg, const struct mon_read_r *r, const struct err *e);
typedef void (*query_stdin_cb)(void *arg, const struct mon_stdin_r *r, const struct err *e);
typedef void (*query_done_cb)(void *arg, const struct err *e);      /* e NULL = done */
/* One page; next 0 = the last. */
typedef void (*query_list_cb)(void *arg, const struct exec_record *r, size_t n, uint32_t next,
                              const struct err *e);

/* wait_ms > 0: until the sandbox has ended, at most QUERY_POLL_MS. */
void query_sandbox(struct node *n, struct query **slot, const char *sandbox, uint64_t wait_ms,
                   query_sandbox_cb cb, void *arg);
/* The same without a wait, for a list: a monitor that does not answer soon is ERR_TIMEOUT. */
void query_sandbox_soon(struct node *n, struct query **slot, const char *sandbox,
                        query_sandbox_cb cb, void *arg);
/* Starts an exec, or answers the record of one that was started before. */
void query_start(struct node *n, struct query **slot, const char *sandbox, const struct mon_exec *m,
                 query_exec_cb cb, void *arg);
/* wait_ms > 0: until the exec has ended, at most QUERY_POLL_MS. */
void query_exec(struct node *n, struct query **slot, const char *sandbox, const struct mon_ref *ref,
                uint64_t wait_ms, query_exec_cb cb, void *arg);
void query_read(struct node *n, struct query **slot, const char *sandbox, const struct mon_read *m,
                query_read_cb cb, void *arg);
void query_stdin(struct node *n, struct query **slot, const char *sandbox,
                 const struct mon_stdin *m, query_stdin_cb cb, void *arg);
void query_stdin_status(struct node *n, struct query **slot, const char *sandbox,
                        const struct mon_ref *ref, query_stdin_cb cb, void *arg);
void query_list(struct node *n, struct query **slot, const char *sandbox, uint32_t first,
                query_list_cb cb, void *arg);
/* A request answered by MON_OK. Of a sandbox that has ended: ERR_GONE. */
void query_do(struct node *n, struct query **slot, const char *sandbox, enum mon_type type,
              const void *payload, size_t len, query_done_cb cb, void *arg);
void query_cancel(struct query **slot);

#endif
