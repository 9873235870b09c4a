/*
 * monitor_link.h - connections to the monitors, one a sandbox, made when needed
 *
 * A request gets its callback exactly once, never from inside monitor_call, unless it is cancelled.
 * A broken connection is made anew and requests that may be repeated are sent again; only when
 * nobody listens on the sandbox's socket any more is the monitor held to be gone (MONITOR_GONE),
 * and the caller turns to the files.
 */
#ifndef QS_NODE_MONITOR_LINK_H
#define QS_NODE_MONITOR_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ipc/channel.h"
#include "ipc/monitor_proto.h"
#include "loop/loop.h"

struct monitor_pool;
struct monitor_req;

enum monitor_result {
    MONITOR_REPLY,              /* m is the reply */
    MONITOR_ERROR,              /* e says what the monitor or the link has to say */
    MONITOR_GONE,               /* no monitor (any more) */
};

typedef void (*monitor_cb)(void *arg, enum monitor_result res, const struct chan_msg *m,
                           const struct err *e);

/* run_fd stays the caller's and outlives the pool. */
struct monitor_pool *monitor_pool_new(struct loop *l, int run_fd);
void monitor_pool_free(struct monitor_pool *p);         /* drops requests without their callbacks */

/* The reply to KEEPER_CREATE brought a connection; takes it. */
void monitor_attach(struct monitor_pool *p, const char *sandbox, int *fd);
/* Closes the connection; requests under way end as MONITOR_GONE. */
void monitor_forget(struct monitor_pool *p, const char *sandbox);

/* `sandbox` is a valid id. The timeout covers everything; the result is then ERR_TIMEOUT. */
struct monitor_req *monitor_call(struct monitor_pool *p, const char *sandbox, enum mon_type type,
                                 const void *payload, size_t n, uint64_t timeout_ms, monitor_cb cb,
                                 void *arg);
/* No callback will come. */
void monitor_cancel(struct monitor_req *r);

#endif
