/*
 * cgroup.h - the control groups of slots and sandboxes
 *
 * Every slot has one v2 group, which holds its processes whatever else: it kills them all at once,
 * and init and the commands are born in it. Each limit is written where this host has the controller,
 * on v2 or on a v1 hierarchy, found once at start. All groups are below one directory of ours in each
 * hierarchy: <name>/<slot> for sandboxes, <name>/monitors for their monitors.
 */
#ifndef QS_KEEPER_RUNTIME_CGROUP_H
#define QS_KEEPER_RUNTIME_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "ipc/keeper_proto.h"

enum cg_controller { CG_CPU, CG_MEMORY, CG_PIDS, CG_IO, CG_CONTROLLERS };

struct cg {
    int v2;                          /* our directory on v2 */
    int monitors;                    /* <name>/monitors on v2 */
    int v1[CG_CONTROLLERS];          /* our directory on v1, -1 = the controller is on v2 */
    bool absent[CG_CONTROLLERS];     /* this host has it nowhere */
    int parents[1 + CG_CONTROLLERS]; /* the roots, v2 first; -1 = none */
    char name[64];
};

/* `owner` is the path of the data directory: groups of another one are an error as long as anything lives in them. */
int cg_init(struct cg *g, const char *name, const char *owner, struct err *e);
const char *cg_mode(const struct cg *g); /* "v2" or "hybrid", for the log */

/* In the builder of a slot: the groups, with what the monitor and init may write in them. */
int cg_make(const struct cg *g, uint32_t slot, uint32_t monitor_uid, uint32_t sandbox_gid,
            struct err *e);
/*
 * The v1 groups of a slot, opened by the builder for init, which is born in the v2 group and enters these
 * itself: a single thread that moves itself is the one case in which the kernel takes no lock over all
 * processes. Moving another process waits for that lock, up to 20 ms, and everybody's next fork with it.
 */
struct cg_tasks {
    int fds[CG_CONTROLLERS];
    int n;
};
int cg_tasks_open(const struct cg *g, uint32_t slot, struct cg_tasks *ret, struct err *e);
int cg_tasks_enter(const struct cg_tasks *t); /* in init; 0 or -errno */
void cg_tasks_close(struct cg_tasks *t);
/* The spawner moves to the monitors' v1 groups, so that every monitor is born there. */
int cg_enter_monitors(const struct cg *g, struct err *e);

int cg_open(const struct cg *g, uint32_t slot);      /* the v2 group */
int cg_open_kill(const struct cg *g, uint32_t slot); /* its cgroup.kill */
/* Becomes ready when the memory limit is reached: an eventfd on v1, memory.events on v2, else /dev/null. */
int cg_open_oom(const struct cg *g, uint32_t slot);
int cg_open_controller(const struct cg *g, uint32_t slot, enum cg_controller c);

/* Nothing has changed after an error. ERR_CONFLICT: more memory is in use than the new limit. */
int cg_limit(const struct cg *g, uint32_t slot, const struct keeper_resources *l, struct err *e);
/* What cg_limit set aside for a slot, and for all of them: a group protects no more than those above it. */
uint64_t cg_request(const struct cg *g, uint32_t slot);
void cg_request_total(const struct cg *g, uint64_t bytes);
int cg_kill(const struct cg *g, uint32_t slot); /* every process; 0 if there is no such group */
/* 0 = nothing is left, -EBUSY = processes are still going, or another -errno. */
int cg_remove(const struct cg *g, uint32_t slot);
/* Calls `found` for every slot that has a group in any hierarchy. */
int cg_scan(const struct cg *g, void (*found)(uint32_t slot));
/* At a clean stop: our directories. 0 once they are gone, -EBUSY while there are processes in them. */
int cg_remove_base(const struct cg *g);

#endif
