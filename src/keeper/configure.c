/*
 * configure.c - what a slot's monitor is given to become the monitor of a sandbox
 */
#include "keeper/configure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/channel.h"
#include "keeper/keeper.h"
#include "keeper/runtime/rootfs.h"
#include "sys/fd.h"

void configure_kit_done(struct configure_kit *k)
{
    for (int i = 0; i < k->n; i++)
        fd_close(&k->fds[i]);
    k->n = 0;
}

static int make_run_dir(const char *id, uint32_t slot, int *ret_fd, struct err *e)
{
    if (mkdirat(keeper.runs_fd, id, 0700) < 0)
        return err_sys(e, errno, "make the run directory of %s", id);
    auto_close int fd = openat(keeper.runs_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    /* The monitor writes, the node reads; what the monitor makes is the node's group's. */
    if (fd < 0 || fchown(fd, slot_monitor_uid(slot), keeper.users[ROLE_NODE].gid) < 0 ||
        fchmod(fd, 02770) < 0)
        return err_sys(e, errno, "set up the run directory of %s", id);
    *ret_fd = take_fd(&fd);
    return 0;
}

static int put_layers(struct configure_kit *k, const struct keeper_create *m, int userns, struct err *e)
{
    if (rootfs_scaffold(userns, &k->fds[k->n], e) < 0)
        return -1;
    k->n++;
    for (uint32_t i = 0; i < m->nlayers; i++, k->n++)
        if (rootfs_layer(m->layers[i], userns, &k->fds[k->n], e) < 0)
            return -1;
    return 0;
}

int configure_assemble(struct configure_kit *k, const struct keeper_create *m, uint32_t slot, int userns, int *ret_node_end,
                       struct err *e)
{
    int pair[2];

    if (make_run_dir(m->sandbox, slot, &k->fds[k->n], e) < 0)
        return -1;
    k->n++;
    int r = chan_pair(pair);
    if (r < 0)
        return err_sys(e, -r, "make the first connection of %s", m->sandbox);
    k->fds[k->n++] = pair[0];
    *ret_node_end = pair[1];
    if (rootfs_tree_make(m->sandbox, m->delta, m->disk_bytes, userns, &k->fds[k->n], e) < 0)
        return -1;
    k->n++;
    if (put_layers(k, m, userns, e) < 0)
        return -1;
    bool nest = (m->options & KEEPER_USER_NAMESPACES) != 0;
    k->fds[k->n] = fcntl(nest ? keeper.nested_filter : keeper.tenant_filter, F_DUPFD_CLOEXEC, 3);
    if (k->fds[k->n] < 0)
        return err_sys(e, errno, "hand over the filter");
    k->n++;
    return 0;
}

/* Its pages count for the memory limit: half of that, as it is of a machine's memory by the kernel's own rule. */
static uint64_t shm_bytes(uint64_t memory_bytes)
{
    return (memory_bytes != 0 ? memory_bytes : keeper.memory_bytes) / 2;
}

int configure_send(const struct configure_kit *k, const struct keeper_create *m, struct cpu_part *cpus, int chan, struct err *e)
{
    struct keeper_configure c = {
        .node_uid = keeper.users[ROLE_NODE].uid,
        .nlayers = m->nlayers + 1,
        .memory_bytes = m->r.memory_bytes,
        .shm_bytes = shm_bytes(m->r.memory_bytes),
        .deadline_ms = m->deadline_ms,
        .idle_ms = m->idle_ms,
        .grace_ms = m->grace_ms,
        .log_bytes = m->log_bytes,
        .spool_bytes = m->spool_bytes,
        .oom = m->oom,
        .options = m->options,
    };
    uint8_t bytes[1024];

    cpus_take(cpus, m->r.cpu_milli);
    cpus_set(cpus, c.cpus);
    memcpy(c.sandbox, m->sandbox, sizeof c.sandbox);
    memcpy(c.hostname, m->hostname, sizeof c.hostname);
    size_t n = keeper_configure_encode(&c, bytes, sizeof bytes);
    if (n == 0)
        return err_set(e, ERR_INTERNAL, "configuration of %s does not fit", m->sandbox);
    int r = chan_send(chan, KEEPER_CONFIGURE, 1, bytes, n, k->fds, k->n);
    return r < 0 ? err_sys(e, -r, "configure the monitor of %s", m->sandbox) : 0;
}
