/*
 * doctor.h - what this host can and cannot do: the findings of `quicksand doctor`
 *
 * Used by cmd_doctor.c, which runs the checks in order and prints them. Each check looks at one thing, tries it where
 * trying leaves nothing behind, and adds findings; none of them changes the host.
 */
#ifndef QS_CLI_DOCTOR_DOCTOR_H
#define QS_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/conf.h"
#include "base/err.h"
#include "json/json.h"

enum finding {
    FINDING_OK,
    FINDING_DEGRADED,           /* works with less */
    FINDING_MISSING,            /* sandboxes do not start, or not safely */
};

struct doctor {
    struct conf conf;
    json_t *checks;             /* array of {name, state, found, cost, fix} */
    json_t *daemon;             /* its answer to a question for its health, or NULL */
    int missing, degraded;
};

/* What was found; `cost` says what does not work, `fix` is the command that mends it ("" = there is none). */
void doctor_ok(struct doctor *d, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void doctor_bad(struct doctor *d, const char *name, enum finding state, const char *cost, const char *fix,
                const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* --- helpers of the checks (report.c) ---------------------------------------------------------------------------------- */

/*
 * A child in new namespaces, which waits until it is told to go on; with ids mapped if CLONE_NEWUSER is among the flags. It ends
 * with us. `act` is run in it by doctor_child_act(), whose answer is what `act` returned (0 or -errno; -ETIME if it hung).
 */
struct doctor_child {
    pid_t pid;
    int channel;
};
int doctor_child_start(struct doctor_child *c, uint64_t flags, uint32_t id_base, int (*act)(void));    /* 0 or -errno */
int doctor_child_act(struct doctor_child *c);
void doctor_child_end(struct doctor_child *c);

/* A number out of a file of /proc or /sys; -1 = there is no such file. */
long long doctor_number(const char *path);
/* Whether the running kernel has the module, built in, loaded or on disk. */
bool doctor_has_module(const char *name);
bool doctor_has_program(const char *name, char *ret_path, size_t size);
/* The path itself or the nearest directory above it that exists. */
void doctor_existing_parent(const char *path, char *out, size_t size);

/* --- the checks ----------------------------------------------------------------------------------------------------- */

void doctor_check_kernel(struct doctor *d);         /* kernel.c: version, seccomp, landlock, clocks, programs */
void doctor_check_namespaces(struct doctor *d);     /* namespaces.c: namespaces, overlay, id-mapped mounts */
void doctor_check_cgroups(struct doctor *d);        /* cgroups.c */
void doctor_check_storage(struct doctor *d);        /* storage.c: btrfs, loop devices, space, inodes */
void doctor_check_rules(struct doctor *d);          /* network.c: packet rules */
void doctor_check_ports(struct doctor *d);          /* network.c; after the daemon was asked, whose ports they may be */
void doctor_check_machine(struct doctor *d);        /* machine.c: memory, descriptors, users, ids, clock */
void doctor_check_classes(struct doctor *d);        /* classes.c: KVM, gVisor, FUSE */
void doctor_check_daemon(struct doctor *d);         /* daemon.c */

#endif
