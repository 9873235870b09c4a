/*
 * escape.h - the attempts of the escape suite, and what each of them is given
 *
 * The program quicksand-escape is one static binary. `quicksand selftest --isolation` runs its attempts as root inside a
 * sandbox, and first in a control: as real root in throw-away namespaces without our filter, masks or user
 * namespace. An attempt that does not work in the control shows nothing, and is a failure. What came of it is judged outside.
 *
 * An attempt runs in a process of its own and may leave that in any state. In the control it may touch nothing but
 * the private namespaces, its scratch directory and the victim.
 */
#ifndef QS_ESCAPE_H
#define QS_ESCAPE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Of a run, in whatever an attempt makes, so that it can be told on the host: "qse-" and 8 hex digits. */
#define TOKEN_SIZE 16

struct ctx {
    bool is_control;
    char token[TOKEN_SIZE];
    char scratch[64];           /* a directory that may be written */
    pid_t victim;               /* a process outside: in the control beside us, else as the host numbers it */
    pid_t init;                 /* PID 1 of the sandbox; in the control the victim stands in for it */
    int ask;                    /* control: the victim's end for victim_ask(); else -1 */
};

/* What is no error and no success: */
enum {
    SEEN_NOTHING = -10001,      /* "nothing": looked, and found nothing of anybody else */
    SEEN_IGNORED = -10002,      /* "ignored": the call answered 0 and had no effect */
    SEEN_UNHEARD = -10003,      /* "unheard": sent, and nobody outside is there to have heard it */
    SEEN_MASKED = -10004,       /* "masked": there is an empty or zeroed file in its place */
};

struct attempt {
    const char *name;
    const char *tries;          /* one line for people */
    const char *inside;         /* what must come of it in a sandbox: an errno's name or one of the above, "A|B" for several */
    /* Accepted of the control beside "ok", where this cannot be done without harm: an errno that shows that the call got
     * past where the sandbox stops it. "absent:ERRNO" is what a kernel says that lacks the thing: then the
     * attempt shows nothing on this machine and is skipped. NULL: it must work. */
    const char *reach;
    int (*run)(const struct ctx *c);    /* 0 = it worked; -errno; one of the above */
    unsigned flags;
};

enum {
    ENDS_NAMESPACE = 1,         /* works if the control's PID namespace is ended by it */
    NEEDS_SYS_RESOURCE = 2,     /* the control needs CAP_SYS_RESOURCE */
    NEEDS_X86 = 4,
};

#define TABLE_END {NULL, NULL, NULL, NULL, NULL, 0}

extern const struct attempt mounts_table[], devices_table[], procfs_table[], cgroups_table[], ptrace_table[],
    kernel_table[], namespaces_table[], exe_table[], sockets_table[], tty_table[], fds_table[], process_table[],
    sysctl_table[];

/* An errno as text ("EPERM"), or one of SEEN_*. */
const char *outcome_name(int r);

/* One attempt in a process of its own; the outcome as text ("ok", "EPERM", "nothing", "SIGSEGV", "hung"). */
void attempt_run(const struct attempt *a, const struct ctx *c, char *out, size_t size);

/* control.c: the same in fresh namespaces as real root. */
void control_run(const struct attempt *a, char *out, size_t size);
/* What `quicksand-escape dump` writes, with all canaries planted beside it; to stdout. 0, or 1 with a line on stderr. */
int control_dump(const char *token);

/* victim.c: a process that plants canaries, and tells at the end of its stdin what was done to it. */
int victim_main(const char *token);
/* Starts one that plants with `token`; returns when it stands. Its pid, or -1; *ret_ask for victim_ask(). */
pid_t victim_start(const char *token, int *ret_ask);
/* True if anything was done to the victim since the last call. */
bool victim_ask(int ask);

/* fds.c: prints how many descriptors it was executed with. */
int descriptors_main(void);

/* dump.c: everything that can be read of others, to stdout. */
int dump_main(bool is_control);

/* --- for the attempts ---------------------------------------------------------------------------------------------- */

/* The value of a call, as an attempt returns it. */
static inline int outcome(long r)
{
    return r < 0 ? -errno : 0;
}

int open_outcome(const char *path, int flags);                  /* opens and closes */
int write_text(const char *path, const char *text);             /* 0 or -errno */
ssize_t read_text(const char *path, char *out, size_t size);    /* bytes, or -errno; ends in NUL */
/* "<scratch>/<name>" in one of a few static buffers. */
const char *scratch_path(const struct ctx *c, const char *name);
/* A child that goes with us. */
pid_t fork_bound(void);
uint32_t token_number(const char *token);                       /* the same for the same token */
/* A copy of this program, of mode 0755. */
int copy_self(const char *to);

#endif
