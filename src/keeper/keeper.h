/*
 * keeper.h - the one object of quicksandd, and who does what to it
 *
 * main.c      start, stop, the order of things
 * start.c     directories, users, sockets, programs
 * trees.c     the btrfs of writable trees          scaffold.c  the layer of ours
 * objects.c   device nodes, figures, the /sys tree   view.c      a file tree for each role (role_view.c says which)
 * filter.c    syscall filters: the keeper's and the spawner's; tenant_filter.c: the one of sandboxes
 * spawner.c   a second process that makes every other process, so that this one may do neither
 * roles.c     control, node, egress, image: start, restart, stop
 * request.c   keeper.sock: messages in, replies out
 * sandbox.c   create, end, destroy                 configure.c what a monitor is given
 * ledger.c    what must be known after a restart
 * budget.c    memory that is set aside            cpus.c      which processors a sandbox runs on
 * recover.c   the state found at start             sweep.c     control groups to be removed
 * runtime/    cgroup.c the control groups; slot.c builds a slot; pool.c keeps slots ready;
 *             rootfs.c the mounts of a sandbox
 *
 * One thread; nothing here waits for another process but by the event loop.
 */
#ifndef QS_KEEPER_KEEPER_H
#define QS_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/conf.h"
#include "base/err.h"
#include "keeper/evloop.h"
#include "keeper/runtime/cgroup.h"
#include "sys/userlookup.h"

enum role { ROLE_CONTROL, ROLE_NODE, ROLE_EGRESS, ROLE_IMAGE, ROLES };

struct keeper {
    struct conf conf;
    char conf_path[300]; /* "" = none was named: roles look at the default too */
    struct user users[ROLES];
    char boot_id[40];

    int data_fd; /* data_dir, and directories in it */
    int lock_fd; /* held by this process, the spawner and builders at work */
    int layers_fd;
    int runs_fd;   /* run/ */
    int ledger_fd; /* keeper/ */
    int trees_fd, sandboxes_fd, deltas_fd;
    int scaffold_fd;           /* the current version of the scaffold layer */
    int objects_fd;            /* root of the tmpfs of objects.c */
    int init_exe, monitor_exe; /* opened once, so that an upgrade changes nothing half-way */
    int tenant_filter;         /* memfd */
    int nested_filter;         /* the same where user namespaces may be nested */
    int null_fd;
    int meminfo_fd;
    uint64_t memory_bytes; /* of the host */

    int keeper_sock;
    int role_sock[ROLES]; /* what the role listens on, -1 = nothing of ours */
    int role_tcp[ROLES];  /* the same for its clients, -1 = it opens its own */

    struct cg cg;
    struct evloop loop;
    bool stopping;
};

extern struct keeper keeper;

/* The ids of a slot: its range inside, and the uid of its monitor, which is in no sandbox's range. */
static inline uint32_t slot_base(uint32_t slot)
{
    return slot << 16;
}

static inline uint32_t slot_monitor_uid(uint32_t slot)
{
    return ((keeper.conf.id_base_range - 1) << 16) + (slot & 0xffff);
}

/* The first range belongs to the image role, the following ones to slots. */
static inline uint32_t image_range(void)
{
    return keeper.conf.id_base_range;
}

const char *role_name(enum role r); /* "control"; the program is quicksand-<name> */

/* start.c */
int start_users(struct err *e);
int start_directories(struct err *e);
int start_programs(struct err *e);
int start_sockets(struct err *e);

#endif
