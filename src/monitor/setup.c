/*
 * setup.c - from a slot's monitor to the monitor of a sandbox
 *
 * Waits for CONFIGURE of the keeper, hands the mounts to init, opens the socket for the node, and
 * installs the filter before the first message of init is read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "monitor/monitor.h"
#include "sys/fd.h"

#define FDS_BEFORE_MOUNTS 2     /* run directory, connection for the node */
#define FDS_BESIDE_LAYERS 4     /* those, the upper tree, the seccomp program */

static _Noreturn void give_up(void)
{
    (void)!write(MON_FD_KILL, "1", 1);
    monitor_exit(1);            /* init is reaped by whoever adopts it */
}

static void reply(uint32_t tag, int error)
{
    uint8_t out[4];
    struct wire_writer w;

    wire_init(&w, out, sizeof out);
    wire_put_i32(&w, error);
    (void)chan_send(MON_FD_KEEPER, KEEPER_CONFIGURED, tag, out, w.len, NULL, 0);
}

static int send_setup(const struct keeper_configure *c, const struct chan_msg *m)
{
    struct init_setup s = {
        .nlayers = c->nlayers, .shm_bytes = c->shm_bytes,
        .volatile_upper = true,     /* a sandbox's tree need not survive a power cut */
        .no_new_privs = (c->options & KEEPER_NO_NEW_PRIVILEGES) != 0,
        .user_namespaces = (c->options & KEEPER_USER_NAMESPACES) != 0,
    };

    memcpy(s.cpus, c->cpus, sizeof s.cpus);
    memcpy(s.sandbox, c->sandbox, sizeof c->sandbox);
    memcpy(s.hostname, c->hostname, sizeof c->hostname);
    size_t n = init_setup_encode(&s, tx_buffer, LIMIT_CHANNEL_INLINE);
    return chan_send(MON_FD_INIT, INIT_SETUP, 0, tx_buffer, n, m->fds + FDS_BEFORE_MOUNTS,
                     m->nfds - FDS_BEFORE_MOUNTS);
}

static int open_socket(void)
{
    /* Paths of run directories are longer than a socket's address can be. */
    if (fchdir(mon.run_dir) < 0)
        return -errno;
    int r = chan_listen("monitor.sock", 0660, &mon.listener);
    return r < 0 ? r : watch_add(mon.listener, EPOLLIN, SRC_LISTENER, 0);
}

static void adopt(const struct keeper_configure *c)
{
    memcpy(mon.r.sandbox, c->sandbox, sizeof mon.r.sandbox);
    mon.r.state = SB_STARTING;
    mon.r.monitor_pid = getpid();
    mon.r.created_ms = clock_wall_ms();
    mon.r.code = -1;
    mon.node_uid = c->node_uid;
    mon.grace_ms = c->grace_ms;
    mon.log_bytes = c->log_bytes != 0 ? c->log_bytes : (uint64_t)LIMIT_LOG_BYTES;
    mon.spool_bytes = c->spool_bytes != 0 ? c->spool_bytes : (uint64_t)LIMIT_SPOOL_BYTES;
    mon.oom = c->oom;
    mon.phase = PHASE_SETUP;
    mon.phase_ms = mon.now_ms + READY_TIMEOUT_MS;
    due_at(mon.phase_ms);
    mon.r.idle_ms = c->idle_ms;
    ending_activity("create");
    ending_set_deadline(c->deadline_ms);
}

static int configure(const struct keeper_configure *c, struct chan_msg *m)
{
    mon.run_dir = take_fd(&m->fds[0]);
    int node = take_fd(&m->fds[1]);
    int r = fd_set_nonblock(node, true);
    if (r < 0) {
        fd_close(&node);
        return r;
    }
    network_keep((c->options & KEEPER_NETWORK) != 0);
    adopt(c);
    r = peer_add(node);
    if (r < 0)
        return r;
    figures_setup(c);
    return send_setup(c, m);
}

void setup_on_keeper(void)
{
    struct keeper_configure c;
    struct chan_msg m;
    int r = chan_recv(MON_FD_KEEPER, rx_buffer, sizeof rx_buffer, 0, &m);

    if (r == -EAGAIN)
        return;
    if (r <= 0 || m.type != KEEPER_CONFIGURE)
        give_up();
    if (keeper_configure_decode(&c, m.data, m.len) < 0 || c.nlayers == 0 ||
        (uint32_t)m.nfds != c.nlayers + FDS_BESIDE_LAYERS) {
        reply(m.tag, EBADMSG);
        give_up();
    }
    uint32_t tag = m.tag;
    r = configure(&c, &m);
    chan_msg_done(&m);
    reply(tag, -r);
    if (r < 0)
        give_up();
    /* The keeper may go from here on. */
    watch_remove(MON_FD_KEEPER);

    /* Init is mounting meanwhile. */
    r = open_socket();
    if (r < 0)
        ending_kill(END_CREATE_FAILED, "monitor.sock could not be made");
    usage_open();
    oom_watch();
    files_status();
    landlock_install();
    if (filter_install() < 0)
        ending_kill(END_CREATE_FAILED, "the monitor's system call filter could not be installed");
    if (watch_add(MON_FD_INIT, EPOLLIN, SRC_INIT, 0) < 0)
        ending_kill(END_CREATE_FAILED, "init's channel cannot be watched");
}

void setup_on_ready(const struct init_ready *m)
{
    if (m->error != 0) {
        const char *why = strerror(m->error);
        char text[sizeof mon.r.message] = {0};
        size_t n = strnlen(m->step, sizeof m->step);
        memcpy(text, m->step, n);
        memcpy(text + n, ": ", 2);
        memcpy(text + n + 2, why, strnlen(why, sizeof text - n - 3));
        ending_kill(END_CREATE_FAILED, text);
        return;
    }
    mon.phase = PHASE_RUN;
    mon.phase_ms = NEVER;
    mon.r.state = SB_RUNNING;
    mon.r.started_ms = clock_wall_ms();
    mon.status_dirty = true;
    ending_activity("create");
    peers_resume();
}
