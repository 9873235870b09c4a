/*
 * monitor_rig.h - the real monitor program between a made-up keeper, init and node
 *
 * rig_start() does what the keeper does: it starts the monitor with its descriptors and configures it.
 * The monitor's child is a small init of the rig that runs the commands it is told to. Where cgroups of
 * the v2 hierarchy can be made, execs run in them; else the rig's kill descriptor is a pipe to its init.
 */
#ifndef QS_TESTS_MONITOR_RIG_H
#define QS_TESTS_MONITOR_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/keeper_proto.h"
#include "ipc/monitor_proto.h"

struct rig_options {
    int64_t deadline_ms;        /* from now; 0 = none */
    uint64_t idle_ms;
    uint32_t grace_ms;
    uint64_t log_bytes;
    int ready_error;            /* what init answers to SETUP */
    unsigned ready_delay_ms;
    bool no_configure;
    int tcp, udp;               /* the sockets of its network; 0 = it has none */
    const char *behaviour;      /* "", "garbage": init breaks the protocol after READY; "leave": it exits;
                                   "silent": it reports no exit */
};

struct rig {
    pid_t monitor;
    int keeper;
    int node;                   /* the connection of CONFIGURE; blocking */
    int run_dir;
    char dir[64];
    char group[96];             /* "" without cgroups */
    uint64_t oom_kills;
};

bool rig_has_groups(void);
void rig_start(struct rig *r, const struct rig_options *o);
void rig_stop(struct rig *r);                   /* ends the monitor if it lives, removes everything */
int rig_wait_exit(struct rig *r, int timeout_ms);   /* status of the monitor, -1 = still there */
void rig_set_oom(struct rig *r, uint64_t kills);    /* what the memory group will say */
size_t rig_file(struct rig *r, const char *name, void *out, size_t size);   /* SIZE_MAX: absent */

/* One request without waiting for its reply. Returns the tag. */
uint32_t rig_send(int node, enum mon_type type, const void *payload, size_t len);
/* The reply with this tag; others are kept for later calls. Returns its type, 0 after 10 s. */
uint16_t rig_reply(int node, uint32_t tag, void *out, size_t size, size_t *ret_len);
bool rig_has_reply(int node, uint32_t tag, int wait_ms);

uint32_t rig_send_exec(int node, const char *id, uint32_t flags, const char *script, const struct mon_exec *more);
/* Sends and waits: 0, or the error code. */
int rig_exec(int node, const char *id, uint32_t flags, const char *script, const struct mon_exec *more,
             struct exec_record *ret);
int rig_wait(int node, const char *id, uint32_t wait_ms, struct exec_record *ret);
int rig_read(int node, const char *id, int stream, uint64_t offset, uint32_t wait_ms, struct mon_read_r *ret,
             uint8_t space[LIMIT_CHANNEL_INLINE]);
/* Reads to the end of the stream. Returns the bytes, -1 on an error. */
ssize_t rig_read_all(int node, const char *id, int stream, uint8_t *out, size_t size);
int rig_stdin(int node, const char *id, uint64_t offset, const void *p, size_t n, bool eof,
              struct mon_stdin_r *ret);
int rig_simple(int node, enum mon_type type, const void *payload, size_t len);  /* MON_OK: 0, or the code */
int rig_status(int node, uint32_t wait_ms, struct sandbox_record *ret);
int rig_connect(struct rig *r);                 /* through monitor.sock */

#endif
