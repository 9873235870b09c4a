/*
 * init.h - the state of PID 1 and the steps of its life
 *
 * A slot is prepared before anybody knows which sandbox it will be (slot.c), becomes a sandbox at
 * SETUP (setup.c), and then serves commands until its monitor goes away (serve.c). There is one
 * process, one thread and no heap: everything lives in one static object.
 */
#ifndef QS_INIT_INIT_H
#define QS_INIT_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "ipc/channel.h"
#include "ipc/init_proto.h"

/* Descriptors at start, placed by whoever executes init. */
enum {
    INIT_FD_CHANNEL = 3,
    INIT_FD_DEVPTS = 4,
    INIT_FD_DEV = 5,                /* six device nodes of this sandbox */
    INIT_FD_SYS = 6,                /* the /sys tree that sandboxes share */
    INIT_FD_LAST = INIT_FD_SYS
};

/* Execs whose end is not known yet; some beyond the limit, because the monitor counts differently. */
#define EXEC_SLOTS (LIMIT_EXECS_LIVE + 64)

enum etc_file { ETC_HOSTS, ETC_HOSTNAME, ETC_RESOLV, ETC_MACHINE_ID, ETC_MAX };

/* The first thing that went wrong. */
struct fault {
    int error;
    char step[64];
};

enum { FIGURES_CPU = 2 };             /* files that list processors */

struct exec_slot {
    uint32_t seq;
    pid_t pid;                      /* 0 = free */
};

struct init {
    int channel;
    int self;                       /* our own program, for the file helper */
    int proc;                       /* root of this sandbox's procfs */
    int null;
    int signals;                    /* signalfd of SIGCHLD */
    int nesting;                    /* max_user_namespaces of the sandbox's namespace, until SETUP */
    int staging;                    /* the one tmpfs; root of the slot until SETUP */
    int cpu_files[FIGURES_CPU];     /* detached binds of them, until SETUP */
    int etc[ETC_MAX];               /* detached binds of the generated files */
    struct exec_slot execs[EXEC_SLOTS];
    uint32_t nexecs;                /* high-water mark of `execs` */
    _Alignas(16) uint8_t space[LIMIT_CHANNEL_INLINE];
};

/* Fills *f from errno and returns -1. */
int fault_set(struct fault *f, const char *step);

/* Everything that does not depend on the sandbox. Leaves the working directory at the staging tmpfs. */
int slot_prepare(struct init *in, struct fault *f);

/* dev.c: the /dev tree below staging, as a mount of its own. */
int dev_build(struct init *in, struct fault *f);

/* proc.c: mounts procfs at staging/proc, masks it, closes nested user namespaces. */
int proc_build(struct init *in, struct fault *f);

/* sys.c: the /sys tree at staging/sys. */
int sys_build(struct fault *f);

/* identity.c: writes a random id into a new file: 32 hex digits, or in the form of a UUID. */
int identity_file(const char *name, bool uuid, struct fault *f);

/* proc.c: binds `from` read-only on `to`. A kernel without `to` needs no mask. */
int cover(const char *from, const char *to, struct fault *f);

/* setup.c: from SETUP to the sandbox's own root, its filter and its capabilities. */
int setup_run(struct init *in, const struct init_setup *s, const int *fds, int nfds, struct fault *f);

/* landlock.c: for good, and for all that is started; with mounts_allowed the tree of mounts may still be changed. */
int landlock_domain(bool mounts_allowed, struct fault *f);

/* caps.c */
int caps_bound(struct fault *f);                        /* drop from the bounding set, for good */
int caps_filter(int memfd, struct fault *f);            /* install the seccomp program, if any */
int caps_drop(struct fault *f);                         /* lower our own sets to the bounding set */

/* serve.c: until the channel ends. */
void serve(struct init *in) __attribute__((noreturn));

/* exec.c: one EXEC message; takes what it needs of m->fds. Replies STARTED. */
void exec_run(struct init *in, const struct init_exec *x, const struct chan_msg *m);

/* reap.c */
bool reap(struct init *in);             /* a bounded number of dead children; true = there may be more */
struct exec_slot *execs_add(struct init *in, uint32_t seq, pid_t pid);  /* NULL = table full */
struct exec_slot *execs_by_seq(struct init *in, uint32_t seq);
bool execs_full(const struct init *in);

/* figures.c: binds the monitor's files over those of /proc; then, at SETUP, where all commands run. */
int figures_bind(struct init *in, struct fault *f);
int figures_of_cpus(struct init *in, const uint8_t *cpus, struct fault *f);
void cpus_use(const uint8_t *cpus);

/* oom.c: one OOM message; replies OOM_R. */
void oom_answer(struct init *in, const struct init_oom *m);

/* serve.c: sends, waiting for room; the monitor always reads. Exits if the monitor is gone. */
void reply(struct init *in, uint16_t type, const void *p, size_t n);

#endif
