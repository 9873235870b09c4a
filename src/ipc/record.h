/*
 * record.h - what is known of an exec and of a sandbox; the form on the wire and on disk
 *
 * The monitor is the only writer. In the sandbox's run directory it keeps
 *   monitor.sock             while it lives
 *   status                   sandbox_record, replaced on each change of state (not of usage)
 *   exit                     sandbox_record with the exit filled in: the exit record; the last thing
 *                            written, by rename, after all output and exec records are complete
 *   execs                    exec_records of the execs it remembers, each as u32 length + bytes; written
 *                            just before `exit`
 *   <seq>.out  <seq>.err     spooled output, absent if there was none; bytes before `out_first` /
 *                            `err_first` are holes. Complete once `exit` is there; before, small outputs
 *                            may be in the monitor's memory only
 * so that a node can read everything after the monitor is gone.
 */
#ifndef QS_IPC_RECORD_H
#define QS_IPC_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/limits.h"
#include "ipc/wire.h"

#define RECORD_VERSION 2

/* Why an exec or a sandbox ended. The names are the API's. */
#define END_REASONS(X)                                                                      \
    X(NONE, "") X(EXITED, "exited") X(SIGNALED, "signaled") X(OOM_LIMIT, "oom_limit")       \
    X(OOM_HOST, "oom_host") X(TIMEOUT, "timeout") X(IDLE_TIMEOUT, "idle_timeout")           \
    X(TERMINATED, "terminated") X(EVICTED, "evicted") X(NODE_LOST, "node_lost")             \
    X(CREATE_FAILED, "create_failed") X(POLICY, "policy") X(OUTPUT_LIMIT, "output_limit")   \
    X(START_FAILED, "start_failed") X(KILLED, "killed")

enum end_reason {
#define X(sym, text) END_##sym,
    END_REASONS(X)
#undef X
    END_MAX_
};

const char *end_reason_name(uint8_t reason);

enum exec_state { EXEC_STARTING = 1, EXEC_RUNNING, EXEC_EXITED, EXEC_FAILED };

struct exec_record {
    uint32_t seq;
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint32_t flags;             /* MON_EXEC_* */
    uint8_t state;              /* enum exec_state */
    int32_t pid;                /* inside the sandbox */
    int64_t started_ms, ended_ms;   /* wall clock; 0 = not yet */
    uint64_t timeout_ms;
    /* how it ended: code -1 with a signal; FAILED: error and step of init_started */
    uint8_t reason;             /* enum end_reason */
    int32_t code, signal;
    int32_t error;
    char step[32];
    char oom_comm[16];          /* process that the memory limit killed, "" if none was seen */
    int32_t oom_pid;            /* inside the sandbox; 0 if none was seen */
    uint64_t user_us, system_us, max_rss_kb;
    uint64_t out_total, out_first, err_total, err_first;
    bool out_eof, err_eof;
    uint64_t stdin_taken;
    bool stdin_closed;
    char command[128];          /* argv[0] and on, cut, for lists */
};

enum sandbox_state { SB_STARTING = 1, SB_RUNNING, SB_STOPPING, SB_ENDED };

struct sandbox_record {
    char sandbox[ID_SIZE];
    uint8_t state;              /* enum sandbox_state */
    int32_t monitor_pid;
    int64_t created_ms, started_ms, ended_ms;
    int64_t deadline_ms;        /* 0 = none */
    uint64_t idle_ms;
    int64_t last_activity_ms;
    char last_activity[16];     /* "exec", "stdin", "tunnel", "create" */
    uint32_t execs_live;
    /* the exit */
    uint8_t reason;
    int32_t code, signal;
    char actor[LIMIT_ID];
    char message[160];          /* e.g. the failed step of a start, the process that ran out of memory */
    /* usage: live at each answer, final in the exit record */
    uint64_t cpu_us, memory_peak, memory_now, pids_now, oom_kills;
};

size_t exec_record_encode(const struct exec_record *r, void *out, size_t size);
int exec_record_decode(struct exec_record *ret, const void *p, size_t n);
/* For sequences: decodes one record from the reader. */
void exec_record_put(struct wire_writer *w, const struct exec_record *r);
void exec_record_get(struct wire_reader *r, struct exec_record *ret);
size_t sandbox_record_encode(const struct sandbox_record *r, void *out, size_t size);
int sandbox_record_decode(struct sandbox_record *ret, const void *p, size_t n);

#endif
