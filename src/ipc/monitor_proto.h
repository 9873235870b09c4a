/*
 * monitor_proto.h - node <-> monitor, over monitor.sock of the sandbox or the connection made at create
 *
 * Requests carry a tag; each gets exactly one reply with the same tag, MON_ERROR or the reply named
 * below. Long polls (READ, WAIT, STATUS with wait_ms) hold their reply; other requests on the same
 * connection are answered meanwhile. A connection may be dropped at any time: nothing depends on it.
 * Every request that concerns a container names it; "" is the main one, and the only one today
 * (another name is answered ERR_NOT_FOUND).
 */
#ifndef QS_IPC_MONITOR_PROTO_H
#define QS_IPC_MONITOR_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/limits.h"
#include "ipc/keeper_proto.h"
#include "ipc/record.h"

enum mon_type {
    MON_EXEC = 1,       /* struct mon_exec -> MON_EXEC_R (struct exec_record) once started or failed */
    MON_EXEC_R,
    MON_READ,           /* struct mon_read -> MON_READ_R */
    MON_READ_R,
    MON_STDIN,          /* struct mon_stdin -> MON_STDIN_R once the bytes were taken (back-pressure) */
    MON_STDIN_R,
    MON_STDIN_STATUS,   /* struct mon_ref -> MON_STDIN_R */
    MON_WAIT,           /* struct mon_wait -> MON_EXEC_R */
    MON_LIST,           /* struct mon_list -> MON_LIST_R */
    MON_LIST_R,
    MON_SIGNAL,         /* struct mon_signal -> MON_OK */
    MON_RESIZE,         /* struct mon_resize -> MON_OK */
    MON_KILL,           /* struct mon_kill: SIGKILL to the whole tree of the exec -> MON_OK */
    MON_FORGET,         /* struct mon_ref: drop a finished exec and its output -> MON_OK */
    MON_TERMINATE,      /* struct mon_terminate -> MON_OK at once; repeated calls are no-ops */
    MON_STATUS,         /* struct mon_status -> MON_STATUS_R (struct sandbox_record) */
    MON_STATUS_R,
    MON_UPDATE,         /* struct mon_update -> MON_OK */
    MON_DIAL,           /* struct mon_dial -> MON_DIAL_R */
    MON_DIAL_R,         /* empty, with a descriptor: a socket that is connected, or about to be */
    MON_TOUCH,          /* empty: connections into the sandbox are open, so it is not idle -> MON_OK */
    MON_OK,             /* empty */
    MON_ERROR,          /* struct mon_error */
    MON_NETWORK,        /* empty -> MON_NETWORK_R, or ERR_UNSUPPORTED: the sandbox has loopback alone */
    /* empty, with four descriptors of the namespace: TCP listener, UDP socket, raw sockets of both families */
    MON_NETWORK_R,
};

/* The entry point is the exec with this id. */
#define ENTRY_EXEC_ID "entry"

enum {
    MON_EXEC_TTY = 1,
    MON_EXEC_STDIN = 2,         /* keep stdin open for MON_STDIN; else /dev/null */
    MON_EXEC_NO_STDOUT = 4,     /* discard */
    MON_EXEC_NO_STDERR = 8,
    MON_EXEC_MERGE = 16,        /* stderr into stdout */
    MON_EXEC_ENTRY = 32,        /* entry point: its end is the sandbox's end */
    MON_EXEC_HIDDEN = 64,       /* file helper: not in lists, no idle activity record but counts as exec */
    MON_EXEC_CREATED = 128,     /* of the answer to MON_EXEC alone: this request started it */
};

/*
 * A lazy request is of one who wants an exec's end and little of its output: its reply waits until the exec has ended or
 * a stream has this many bytes that were not taken. So a short command costs its asker one wake-up.
 */
#define MON_LAZY_BYTES 32768
#define MON_LAZY_MS 5000

/* Idempotent on exec_id: a second MON_EXEC of a known id starts nothing and answers its record;
 * another spec under the same id is ERR_CONFLICT (the monitor compares a hash of the block). */
struct mon_exec {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint32_t flags;
    uint64_t timeout_ms;        /* 0 = none */
    uint32_t grace_ms;          /* SIGTERM, then SIGKILL of the tree after this; 0 = kill at once */
    uint64_t output_limit;      /* unread bytes a stream; 0 = LIMIT_OUTPUT_BYTES */
    uint16_t rows, cols;        /* with TTY; 0 = 24 x 80 */
    bool lazy;                  /* the reply may wait as that of a lazy MON_READ does, MON_LAZY_MS at most */
    const uint8_t *spec;        /* exec_spec block, borrowed */
    size_t spec_len;
};

struct mon_ref {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
};

/* Answered when there is a byte at `offset`, at end of stream, or after wait_ms. */
struct mon_read {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint8_t stream;             /* 1 stdout, 2 stderr */
    uint64_t offset;
    uint32_t max;               /* at most LIMIT_READ_CHUNK */
    uint32_t wait_ms;
    bool file_ok;               /* the reply may name the spool file in place of data */
    bool lazy;
};

struct mon_read_r {
    uint64_t offset;            /* of data[0]; larger than asked if older bytes were dropped */
    uint64_t total;             /* bytes the stream has had so far */
    bool eof;                   /* end of the stream: of its pipe, or 200 ms after the exit of an exec whose
                                   pipe a child keeps open; what that child still writes is appended */
    bool exited;                /* the exec has ended (its record is final) */
    const uint8_t *data;        /* borrowed */
    size_t len;
    /*
     * Not 0: more than a message holds is in <file_seq>.out or .err of the run directory, from `offset` (len is 0) to `total`.
     * What is read from there is good if there is no hole at its first byte afterwards: holes only grow, from the front.
     */
    uint32_t file_seq;
};

/* One write an exec is under way at a time: a newer one takes the place of one that waits for the
 * program to read, which is then answered with what was taken of it. */
struct mon_stdin {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint64_t offset;            /* bytes before data; bytes already taken are skipped, a gap is ERR_RANGE */
    bool eof;                   /* close after data; honoured at any offset when len is 0 */
    const uint8_t *data;
    size_t len;                 /* at most LIMIT_STDIN_CHUNK */
};

struct mon_stdin_r {
    uint64_t taken;             /* bytes accepted so far */
    bool closed;                /* stdin is closed, or the program is gone */
};

struct mon_wait {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint32_t wait_ms;           /* 0 = answer at once */
};

struct mon_list {
    uint32_t first;             /* sequence number to start at; 0 = the beginning */
};

/* Payload: u32 count, count encoded exec_records, u32 next (0 = no more). */

struct mon_signal {
    char exec_id[LIMIT_ID];     /* "" = every process of the sandbox */
    char container[LIMIT_ID];
    int32_t signal;
    uint8_t scope;              /* enum init_signal_scope */
};

struct mon_resize {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint16_t rows, cols;
};

struct mon_kill {
    char exec_id[LIMIT_ID];
    char container[LIMIT_ID];
    uint8_t reason;             /* enum end_reason */
};

struct mon_terminate {
    uint8_t reason;             /* enum end_reason */
    char actor[LIMIT_ID];       /* token id or "deadline", for the exit record */
    int32_t signal;             /* 0 = SIGTERM */
    uint32_t grace_ms;          /* UINT32_MAX = the sandbox's own */
};

struct mon_status {
    uint32_t wait_ms;           /* > 0: hold until the sandbox has ended */
};

struct mon_update {
    bool set_deadline;
    int64_t deadline_ms;        /* wall clock; 0 = none */
    bool set_idle;
    uint64_t idle_ms;           /* 0 = none */
    bool set_cpus;
    uint8_t cpus[KEEPER_CPUS];  /* as in keeper_configure; only with set_cpus */
};

struct mon_dial {
    char container[LIMIT_ID];
    uint16_t port;              /* of a server that listens on loopback inside, on either address family */
};

struct mon_error {
    uint16_t code;              /* enum err_code */
    int32_t sys_errno;
    char param[64];
    char message[240];
};

/* Encoders: length or 0 if it does not fit. Decoders: 0 or -EBADMSG. */
#define MON_CODEC(name)                                                           \
    size_t mon_##name##_encode(const struct mon_##name *m, void *out, size_t size); \
    int mon_##name##_decode(struct mon_##name *ret, const void *p, size_t n)
MON_CODEC(exec);
MON_CODEC(ref);
MON_CODEC(read);
MON_CODEC(read_r);
MON_CODEC(stdin);
MON_CODEC(stdin_r);
MON_CODEC(wait);
MON_CODEC(list);
MON_CODEC(signal);
MON_CODEC(resize);
MON_CODEC(kill);
MON_CODEC(terminate);
MON_CODEC(status);
MON_CODEC(update);
MON_CODEC(dial);
MON_CODEC(error);

#endif
