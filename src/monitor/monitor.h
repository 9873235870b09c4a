/*
 * monitor.h - what the files of the monitor share
 *
 * One process, one sandbox, one thread, one epoll loop. All tables are fixed and zero-initialised, so
 * that only the pages in use are memory; there is no heap. Everything hangs off the one `mon`.
 *
 * Who calls whom: main.c runs the loop and hands events to setup.c (keeper and init until READY),
 * peers.c (connections) -> requests.c (what they ask), exec_life.c (what init says) -> execs.c (the
 * table), oom.c (memory limit), figures.c (/proc inside), spool.c (output), input.c (stdin), groups.c (cgroups and prepared
 * pipes), ending.c (deadlines and the end), usage.c (counters), files.c (status, journal, exit record).
 */
#ifndef QS_MONITOR_MONITOR_H
#define QS_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "ipc/channel.h"
#include "ipc/init_proto.h"
#include "ipc/keeper_proto.h"
#include "ipc/monitor_proto.h"
#include "ipc/monitor_start.h"
#include "ipc/record.h"

#define EXECS_MAX (LIMIT_EXECS_LIVE + LIMIT_EXECS_KEPT + 256)  /* + forgotten ones still drained */
#define PEERS_MAX 32
#define WAITERS_MAX 8192
#define WAITERS_PEER 4608           /* of one connection: four polls an exec and some to spare */
#define NEVER INT64_MAX

/* After the exit of an exec whose pipes a child holds open: when its streams count as ended. Bytes that
 * come later are still appended. */
#define EOF_GRACE_MS 200
#define READY_TIMEOUT_MS 30000      /* SETUP to READY */
#define START_TIMEOUT_MS 60000      /* EXEC to STARTED */
#define KILL_AGAIN_MS 1000
#define UNREPORTED_MS 5000          /* a killed exec of which init says nothing is over by then */

enum { OUT = 0, ERR = 1 };

struct stream {
    int fd;                 /* end of the pipe, or the terminal; -1 = closed */
    int file;               /* spool file while the exec lives, or -1 */
    int16_t memory;         /* buffer that holds all bytes, or -1 */
    bool in_file;           /* the bytes are in the spool file */
    bool eof;
    bool discard;           /* over the limit or unwanted: later bytes are dropped */
    uint64_t total;         /* bytes kept track of */
    uint64_t first;         /* older bytes are dropped */
    uint64_t punched;       /* the file is a hole before this */
    uint64_t taken;         /* highest offset that any reader has been sent */
};

enum exec_timer { TIMER_NONE, TIMER_START, TIMER_TIMEOUT, TIMER_GRACE, TIMER_KILLED, TIMER_EOF };

struct exec {
    bool used;
    bool live;              /* not ended */
    bool hidden, entry, tty;
    bool forgotten;         /* out of all lists; only its pipes are drained */
    uint16_t next_id, next_seq;     /* hash chains; index + 1 */
    uint16_t older, newer;          /* all known, by seq; index + 1 */
    uint16_t waiters;               /* first waiter; index + 1 */
    uint64_t hash;          /* of the request, for idempotency */
    int inner[3];           /* the sandbox's ends until they are sent */
    int group_fd;           /* cgroup directory until it is sent */
    int16_t group;          /* cgroup, -1 = none */
    int stdin_fd;           /* pipe or the terminal (same number as out); -1 = closed */
    int16_t stdin_buffer;   /* bytes that did not fit into the pipe yet, -1 = none */
    uint32_t stdin_at, stdin_len;   /* the rest of the buffer */
    bool stdin_eof;         /* close after the buffer */
    uint8_t stdin_last;     /* last byte written, for the end of file of a terminal */
    struct stream s[2];
    uint64_t keep;          /* bytes of each stream that are kept */
    uint32_t grace_ms;
    uint8_t kill_reason;    /* why we killed it */
    enum exec_timer timer;
    int64_t timer_ms;
    uint64_t oom_start;     /* OOM kills of the sandbox when it started */
    struct exec_record r;
};

enum waiter_kind {
    FOR_FREE,               /* not in use */
    FOR_OK, FOR_ERROR, FOR_EXEC, FOR_WAIT, FOR_READ, FOR_STDIN, FOR_STDIN_NOW, FOR_LIST, FOR_STATUS,
    FOR_DIAL, FOR_NETWORK,
};

/* A request whose reply has not been sent yet. */
struct waiter {
    uint8_t kind;
    uint8_t peer;
    uint8_t stream;
    bool created;           /* EXEC: the request that made the exec, not a repetition */
    bool file_ok;           /* READ: may be pointed to the spool file */
    bool lazy;              /* EXEC, READ: see MON_LAZY_BYTES */
    uint16_t exec;          /* index + 1, 0 = none */
    uint16_t next;          /* of the same exec; index + 1 */
    uint32_t tag;
    uint32_t max;           /* READ: bytes; LIST: first seq */
    uint64_t offset;
    int64_t until_ms;       /* answered as things are then */
    int fd;                 /* DIAL: what goes with the reply */
    uint16_t code;          /* ERROR */
    int32_t sys_errno;
    const char *param, *message;    /* static texts */
};

struct peer {
    int fd;                 /* -1 = free */
    uint32_t events;        /* registered */
    uint16_t waiters;
    bool broken;            /* closed at the end of the turn */
    bool blocked;           /* its socket is full */
    bool paused;            /* not read: an EXEC before READY, or too many waiters */
};

enum phase {
    PHASE_SLOT,             /* before CONFIGURE */
    PHASE_SETUP,            /* SETUP sent */
    PHASE_RUN,
    PHASE_STOP,             /* the entry point has its signal and a grace */
    PHASE_KILL,             /* cgroup.kill written */
    PHASE_DEAD,             /* init is reaped */
};

struct monitor {
    enum phase phase;
    int epoll;
    int run_dir;
    int listener;
    int64_t now_ms;         /* CLOCK_BOOTTIME, of this turn */
    int64_t next_ms;        /* nothing is due before this */
    uint32_t node_uid;
    uint32_t grace_ms;
    uint64_t log_bytes;
    uint64_t spool_bytes;   /* most kept output of all execs together */
    uint64_t spooled;       /* kept now */
    uint8_t oom;            /* enum oom_policy */
    int64_t phase_ms;       /* when the phase must be left: ready timeout, grace, kill again */
    int64_t deadline_ms;    /* CLOCK_BOOTTIME or NEVER */
    int64_t activity_ms;
    uint16_t entry;         /* index + 1 */
    uint32_t busy;          /* live execs that keep the sandbox from being idle */
    bool status_dirty;
    bool init_full;         /* EXECs wait until init's socket has room */
    uint64_t oom_claimed;   /* OOM kills that an ended exec accounts for */
    struct sandbox_record r;
};

extern struct monitor mon;
extern struct exec execs[EXECS_MAX];

/* buffers.c: none keeps its bytes across calls */
extern uint8_t tx_buffer[LIMIT_CHANNEL_MESSAGE];    /* outgoing payload */
extern uint8_t rx_buffer[LIMIT_CHANNEL_INLINE];     /* incoming packet */
extern uint8_t io_buffer[64 * 1024];                /* bytes of a stream on their way */
void buffers_used(size_t n);                        /* after writing n bytes into one of them */
void buffers_run_timers(void);

/* main.c */
enum source { SRC_KEEPER, SRC_INIT, SRC_PIDFD, SRC_LISTENER, SRC_PEER, SRC_OUT, SRC_ERR, SRC_IN, SRC_OOM };
int watch_add(int fd, uint32_t events, enum source source, unsigned index);
void watch_change(int fd, uint32_t events, enum source source, unsigned index);
void watch_remove(int fd);
void due_at(int64_t when_ms);           /* have the timers looked at then */
_Noreturn void monitor_exit(int code);

/* setup.c */
void setup_on_keeper(void);
void setup_on_ready(const struct init_ready *m);

/* peers.c */
void peers_init(void);
int peer_add(int fd);                   /* takes the descriptor */
void peers_on_listener(void);
void peer_on_event(unsigned index, uint32_t events);
void peers_resume(void);                /* have the paused ones read again */
void peers_run_timers(void);
void peers_settle(void);                /* end of a turn: close the broken, read the resumed */
void peers_finish(void);                /* the sandbox has ended: answer all that is left */
/* Wakes the waiters of an exec whose state, output or input changed. */
void waiters_wake(struct exec *e);
struct waiter *waiter_new(unsigned peer, uint32_t tag, enum waiter_kind kind, struct exec *e);
void waiter_try(struct waiter *w);      /* answers if it can; w may be gone after */
void waiters_abandon(struct exec *e);   /* the exec is forgotten */
void waiter_error(unsigned peer, uint32_t tag, enum err_code code, const char *param, const char *message);

/* requests.c */
int request_handle(unsigned peer, const struct chan_msg *m);    /* -1: malformed, close the peer */

/* execs.c: the table */
struct exec *exec_by_id(const char *exec_id);
struct exec *exec_by_seq(uint32_t seq);
struct exec *exec_by_index(unsigned index);
unsigned exec_index(const struct exec *e);
struct exec *exec_oldest(void);
struct exec *exec_newer(const struct exec *e);
uint32_t execs_live(void);
uint32_t execs_shown(void);             /* live ones without the hidden */
struct exec *exec_add(const char *exec_id);     /* NULL: no room */
void exec_shown(struct exec *e);        /* counts it, once it is known whether it is hidden */
void exec_not_live(struct exec *e);
void exec_unlist(struct exec *e);
void exec_free(struct exec *e);
void execs_run_timers(void);

/* dial.c */
int dial(uint16_t port);                /* a socket, or -errno */

/* network.c */
void network_keep(bool wanted);         /* at CONFIGURE: the sockets, or none */
bool network_is_there(void);
void network_end(void);                 /* whoever accepts on them learns that the sandbox is gone */

/* exec_life.c */
struct exec *exec_new(const struct mon_exec *m, uint64_t hash, enum err_code *ret_code);
bool exec_on_init(void);                /* messages of init; true = there may be more */
void exec_flush_held(void);             /* init's socket has room again */
/* SIGKILL to the whole tree; the reason counts if that is what ends it. */
void exec_kill(struct exec *e, enum end_reason reason);
int exec_signal(struct exec *e, int signal, enum init_signal_scope scope);  /* e NULL: all */
void exec_forget(struct exec *e);       /* an ended one */
void exec_on_output(struct exec *e, int which, bool closed);   /* closed: no writer is left */
void exec_on_timer(struct exec *e);
void exec_over_limit(struct exec *e, int error);    /* unread output at its limit, or the spool failed */
void execs_end_all(void);               /* init is gone: what lives is dead */
void exec_fill(const struct exec *e, struct exec_record *ret);

/* spool.c */
void stream_init(struct stream *s);
/* Reads what is there; with `all` until the pipe is empty. The end of file closes the stream. */
void spool_drain(struct exec *e, int which, bool all);
size_t spool_read(struct exec *e, int which, uint64_t offset, void *out, size_t max);
void spool_close(struct exec *e, int which);        /* our end of the pipe */
void spool_settle(struct exec *e);                  /* the exec ended: no descriptors are kept */
int spool_flush(struct exec *e);                    /* memory to files */
bool spool_wants_work(void);
void spool_work(void);                              /* in idle time: keeps some buffers free */
void spool_forget(struct exec *e);                  /* what it wrote goes */

/* input.c */
bool input_has_room(const struct exec *e);          /* to keep a chunk, should the pipe be full */
void input_write(struct exec *e, const struct mon_stdin *m);    /* no gap before m->offset */
void input_continue(struct exec *e);
void input_close(struct exec *e);                   /* and answer who waits */
void input_cancel(struct exec *e);                  /* the writer is gone: drop what was not taken */

/* groups.c: exec sub-groups and pipes made ahead */
bool groups_want_work(void);
void groups_work(void);                             /* in idle time */
int group_take(uint32_t seq, int *ret_fd);          /* index or -1; *ret_fd is the caller's */
bool group_kill(int group, uint32_t seq);           /* false: not its group (any more) */
bool group_is_empty(int group, uint32_t seq);       /* true without a group */
void group_release(int group, uint32_t seq);
uint32_t group_owner(int group);                    /* seq of the exec that is or was in it; 0 = none */
/* Of stdin, stdout or stderr: [0] ours (non-blocking), [1] the sandbox's. 0 or -errno. */
int pipe_take(int which, int ret[2]);
int terminal_open(uint16_t rows, uint16_t cols, int *ret_ours, int *ret_inner);

/* ending.c */
void ending_set_deadline(int64_t deadline_ms);      /* wall clock, 0 = none */
void ending_set_idle(uint64_t idle_ms);
void ending_activity(const char *what);
void ending_start(enum end_reason reason, const char *actor, int signal, uint32_t grace_ms);
void ending_kill(enum end_reason reason, const char *message);
void ending_of_entry(const struct exec *e);
void ending_on_pidfd(void);
void ending_run_timers(void);

/* usage.c */
void usage_open(void);
void usage_fill(struct sandbox_record *r);
uint64_t usage_oom_kills(void);
uint64_t usage_key(const char *text, const char *v2, const char *v1);    /* of memory.stat, by the names of both versions */
uint64_t usage_memory_limit(void);                  /* 0 = none */
void usage_times(uint64_t *ret_user_us, uint64_t *ret_system_us);

/* oom.c: what follows when the memory limit kills a process */
void oom_watch(void);
void oom_on_event(void);
void oom_on_answer(const struct init_oom_r *m);
void oom_of_leader(struct exec *e, const char *comm);   /* the exec's own program was killed by it */
void oom_run_timers(void);
#define OOM_TEXT 96
void oom_text(const char *comm, int32_t pid, char out[OOM_TEXT]);

/* figures.c: what the sandbox sees of the machine */
void figures_start(void);                           /* the slot begins */
void figures_setup(const struct keeper_configure *c);
void figures_command_starts(void);
void figures_set_cpus(const uint8_t *cpus);
void figures_run_timers(void);

/* files.c */
void files_status(void);
void files_finish(void);

/* filter.c: system calls; landlock.c: files */
int filter_install(void);
void landlock_install(void);                        /* where the kernel has it */

#endif
