/*
 * init_proto.h - monitor <-> init, over one SOCK_SEQPACKET pair made before either started
 *
 * Monitor to init: SETUP once, then EXEC, SIGNAL, FORGET. Init to monitor: READY, STARTED, EXITED.
 * What init says is believed only about its own sandbox; the monitor receives with CHAN_NO_FDS.
 */
#ifndef QS_IPC_INIT_PROTO_H
#define QS_IPC_INIT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "ipc/keeper_proto.h"
#include "ipc/wire.h"

enum init_type {
    INIT_SETUP = 1,     /* monitor -> init: struct init_setup; descriptors below */
    INIT_READY,         /* init -> monitor: struct init_ready */
    INIT_EXEC,          /* monitor -> init: struct init_exec + exec_spec block; descriptors below */
    INIT_STARTED,       /* init -> monitor: struct init_started */
    INIT_EXITED,        /* init -> monitor: struct init_exited */
    INIT_SIGNAL,        /* monitor -> init: struct init_signal; no reply */
    INIT_OOM,           /* monitor -> init: struct init_oom: who is being killed? */
    INIT_OOM_R,         /* init -> monitor: struct init_oom_r */
    INIT_CPUS,          /* monitor -> init: struct init_cpus: where later commands run; no reply */
};

/*
 * SETUP descriptors, in order: upper tree (detached id-mapped mount holding upper/ and work/), then
 * nlayers base layers, top first (the scaffold is the first of them), then the seccomp program (memfd
 * with raw struct sock_filter[]; length 0 = none).
 *
 * The program binds init as well. It should let clone3 through: init starts commands with CLONE_INTO_CGROUP,
 * and user namespaces below the sandbox's are refused by its own max_user_namespaces, which init has set to 0.
 * With clone3 answered by ENOSYS all works, but each command moves itself to its cgroup, which is slow.
 *
 * Should preparing the slot fail, READY with the failure is sent before any SETUP, and init exits.
 */
struct init_setup {
    char sandbox[LIMIT_ID];
    char hostname[LIMIT_ID];    /* valid host name, at most 63 bytes */
    uint32_t nlayers;
    uint64_t shm_bytes;         /* size of the tmpfs behind /dev/shm, /run/quicksand files */
    bool volatile_upper;        /* overlay mounted `volatile` */
    bool no_new_privs;          /* setuid programs gain nothing */
    bool user_namespaces;       /* may be nested; then the filter must let mounts through */
    uint8_t cpus[KEEPER_CPUS];  /* as in keeper_configure */
};

struct init_ready {
    int32_t error;              /* 0 or errno of the failed step */
    char step[64];              /* name of the failed step */
};

/*
 * EXEC descriptors, in order and only if the flag is set: stdin, stdout, stderr (or one terminal
 * for all three with INIT_EXEC_TTY), then the cgroup directory of this exec.
 */
enum {
    INIT_EXEC_TTY = 1,          /* one descriptor: the inner end of the terminal */
    INIT_EXEC_STDIN = 2,        /* else /dev/null */
    INIT_EXEC_STDOUT = 4,       /* else /dev/null */
    INIT_EXEC_STDERR = 8,       /* else /dev/null */
    INIT_EXEC_MERGE = 16,       /* stderr is stdout */
    INIT_EXEC_CGROUP = 32,      /* last descriptor: cgroup v2 directory for CLONE_INTO_CGROUP */
    INIT_EXEC_ENTRY = 64,       /* the entry point */
};

struct init_exec {
    uint32_t seq;               /* names this exec between monitor and init */
    uint32_t flags;
    const uint8_t *spec;        /* exec_spec block */
    size_t spec_len;
};

struct init_started {
    uint32_t seq;
    int32_t pid;                /* inside the sandbox's pid namespace; 0 if it did not start */
    int32_t error;              /* 0 or errno */
    char step[32];              /* "exec", "cwd", "user", "fork", ... what failed */
};

struct init_exited {
    uint32_t seq;
    int32_t code;               /* exit code, or -1 if signalled */
    int32_t signal;             /* 0 or the signal */
    uint64_t user_us, system_us;
    uint64_t max_rss_kb;
    char comm[16];              /* of the reaped process, read before reaping */
};

enum init_signal_scope { INIT_SIG_PROCESS = 0, INIT_SIG_GROUP, INIT_SIG_ALL };

struct init_signal {
    uint32_t seq;               /* 0 with scope ALL: every process of the sandbox but init */
    int32_t signal;
    uint8_t scope;
};

struct init_cpus {
    uint8_t cpus[KEEPER_CPUS];
};

struct init_oom {
    uint32_t tag;
};

struct init_oom_r {
    uint32_t tag;
    bool certain;               /* it is being killed; else it is the largest, which the kernel takes by rule */
    int32_t pid;                /* inside; 0 = nobody was seen */
    int32_t group;              /* the number in the name of its cgroup, -1 = unknown */
    char comm[16];
};

size_t init_setup_encode(const struct init_setup *m, void *out, size_t size);    /* 0 = too small */
size_t init_ready_encode(const struct init_ready *m, void *out, size_t size);
size_t init_exec_encode(const struct init_exec *m, void *out, size_t size);
size_t init_started_encode(const struct init_started *m, void *out, size_t size);
size_t init_exited_encode(const struct init_exited *m, void *out, size_t size);
size_t init_signal_encode(const struct init_signal *m, void *out, size_t size);
size_t init_cpus_encode(const struct init_cpus *m, void *out, size_t size);
size_t init_oom_encode(const struct init_oom *m, void *out, size_t size);
size_t init_oom_r_encode(const struct init_oom_r *m, void *out, size_t size);
/* 0 or -EBADMSG; strings are copied, byte slices borrow from `p`. */
int init_setup_decode(struct init_setup *ret, const void *p, size_t n);
int init_ready_decode(struct init_ready *ret, const void *p, size_t n);
int init_exec_decode(struct init_exec *ret, const void *p, size_t n);
int init_started_decode(struct init_started *ret, const void *p, size_t n);
int init_exited_decode(struct init_exited *ret, const void *p, size_t n);
int init_signal_decode(struct init_signal *ret, const void *p, size_t n);
int init_cpus_decode(struct init_cpus *ret, const void *p, size_t n);
int init_oom_decode(struct init_oom *ret, const void *p, size_t n);
int init_oom_r_decode(struct init_oom_r *ret, const void *p, size_t n);

#endif
