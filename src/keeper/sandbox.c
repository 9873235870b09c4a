/*
 * sandbox.c - the life of a sandbox as the keeper sees it
 */
#include "keeper/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/wire.h"
#include "keeper/budget.h"
#include "keeper/configure.h"
#include "keeper/cpus.h"
#include "keeper/keeper.h"
#include "keeper/roles.h"
#include "keeper/runtime/pool.h"
#include "keeper/runtime/rootfs.h"
#include "keeper/sweep.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/rmtree.h"

#define WAIT_SLOT_MS 60000   /* a create waits no longer for a slot */
#define CONFIGURE_MS 15000   /* nor for its monitor to report that init is set up */
#define MONITOR_EXIT_MS 3000 /* a killed sandbox's monitor has this long to write its record */
#define DESTROY_MS 30000     /* after this a destroy is answered with what remains */
#define TICK_MS 250
#define WAITERS_MAX 64       /* destroys of one sandbox at a time */

enum phase { WAITING, CONFIGURING, LIVE, ENDED, LEAVING };

struct waiter {
    struct reply_to to;
    struct waiter *next;
};

struct sandbox {
    struct ledger_entry entry; /* slot 0 until it has one */
    enum phase phase;
    int64_t since_ms;           /* boot clock, of the phase */
    struct keeper_create *want; /* owned; until it is live */
    struct reply_to creator;
    int pidfd;    /* of the monitor; -1 = it has ended, or there is none */
    int chan;     /* while configuring */
    int node_end; /* of the monitor's first connection, while configuring */
    struct watch exit_watch, chan_watch;
    bool monitor_killed;
    uint64_t request_bytes; /* of memory, set aside for it while it lives */
    struct cpu_part cpus;
    struct waiter *waiters; /* destroys to be answered */
    uint32_t nwaiters;
    struct sandbox *next;   /* in `waiting` or `leaving` */
};

static struct map sandboxes;
static struct sandbox *waiting, **waiting_end = &waiting; /* first come, first served */
static struct sandbox *leaving;
static uint32_t nwaiting, nalive;
static uint8_t space[LIMIT_CHANNEL_INLINE];

static void tick(struct timer *t);
static struct timer ticker = {.due = tick};

void sandbox_init(void)
{
    map_init(&sandboxes);
}

static void set_phase(struct sandbox *s, enum phase p)
{
    bool was = s->phase < ENDED, is = p < ENDED;

    nalive += (uint32_t)is - (uint32_t)was;
    if (was && !is) {
        budget_set(&s->request_bytes, 0);
        cpus_release(&s->cpus);
    }
    s->phase = p;
    s->since_ms = clock_boot_ms();
    if (p != LIVE && p != ENDED && !evloop_timer_is_set(&ticker))
        evloop_timer(&keeper.loop, &ticker, TICK_MS);
}

/* A new one, known by its id. Its phase counts as WAITING. */
static struct sandbox *add(const char *id)
{
    struct sandbox *s = mem_zalloc(sizeof *s);

    s->pidfd = s->chan = s->node_end = -1;
    s->exit_watch.fd = s->chan_watch.fd = -1;
    memcpy(s->entry.sandbox, id, strlen(id) + 1);
    (void)map_put(&sandboxes, id, s);
    nalive++;
    set_phase(s, WAITING);
    return s;
}

static void unlink_from(struct sandbox **at, const struct sandbox *s)
{
    for (; *at != NULL; at = &(*at)->next) {
        if (*at != s)
            continue;
        *at = s->next;
        if (waiting_end == &s->next)
            waiting_end = at;
        return;
    }
}

static void drop_channel(struct sandbox *s)
{
    evloop_unwatch(&keeper.loop, &s->chan_watch);
    fd_close(&s->chan);
    fd_close(&s->node_end);
}

static void drop_want(struct sandbox *s)
{
    free(s->want);
    s->want = NULL;
}

static void monitor_gone(struct sandbox *s)
{
    evloop_unwatch(&keeper.loop, &s->exit_watch);
    fd_close(&s->pidfd);
    sweep_add(s->entry.slot);
}

/* ---- leaving ---- */

static void leave(struct sandbox *s)
{
    if (s->phase == LEAVING)
        return;
    set_phase(s, LEAVING);
    drop_channel(s);
    drop_want(s);
    s->next = leaving;
    leaving = s;
    if (s->pidfd >= 0) {
        /* The monitor sees init end and writes its record. What still runs later is swept. */
        int r = cg_kill(&keeper.cg, s->entry.slot);
        if (r < 0)
            log_error("sandbox", "id=%s cannot be killed: errno=%d", s->entry.sandbox, -r);
    } else if (s->entry.slot != 0) {
        sweep_add(s->entry.slot);
    }
    evloop_want_idle(&keeper.loop);
}

static void answer_waiters(struct sandbox *s, const struct err *e)
{
    while (s->waiters != NULL) {
        struct waiter *w = s->waiters;
        s->waiters = w->next;
        s->nwaiters--;
        request_reply(w->to, e, NULL, 0, -1);
        free(w);
    }
}

static void forget(struct sandbox *s)
{
    (void)map_del(&sandboxes, s->entry.sandbox);
    answer_waiters(s, NULL);
    ledger_entry_done(&s->entry);
    free(s);
}

/* The ledger entry goes last: whatever is left of a sandbox, it can be found. */
static int remove_traces(const char *id, struct err *e)
{
    if (rootfs_tree_remove(id, e) < 0)
        return -1;
    int r = rmtree(keeper.runs_fd, id);
    if (r < 0)
        return err_sys(e, -r, "remove the run directory of %s", id);
    r = ledger_remove(keeper.ledger_fd, id);
    return r < 0 ? err_sys(e, -r, "remove the ledger entry of %s", id) : 0;
}

bool sandbox_step(void)
{
    for (struct sandbox **at = &leaving; *at != NULL; at = &(*at)->next) {
        struct sandbox *s = *at;
        struct err e = {0};
        if (s->pidfd >= 0 || sweep_has(s->entry.slot))
            continue;
        *at = s->next;
        if (remove_traces(s->entry.sandbox, &e) == 0) {
            forget(s);
            return true;
        }
        /* It stays known, so that it is listed and can be destroyed again. */
        log_error("sandbox", "id=%s: %s", s->entry.sandbox, e.message);
        answer_waiters(s, &e);
        set_phase(s, ENDED);
        return true;
    }
    return false;
}

void sandbox_swept(void)
{
    evloop_want_idle(&keeper.loop);
}

void sandbox_destroy(const char *id, struct reply_to to)
{
    struct sandbox *s = map_get(&sandboxes, id);

    if (s == NULL) {
        /* Nothing of ours: the answer is the same as after having destroyed it. */
        struct err e = {0};
        int r = remove_traces(id, &e);
        request_reply(to, r < 0 ? &e : NULL, NULL, 0, -1);
        return;
    }
    if (s->nwaiters == WAITERS_MAX) {
        struct err e = {0};
        err_set(&e, ERR_CAPACITY, "%d requests wait for the end of sandbox %s", WAITERS_MAX, id);
        request_reply(to, &e, NULL, 0, -1);
        return;
    }
    struct waiter *w = mem_zalloc(sizeof *w);
    w->to = to;
    w->next = s->waiters;
    s->waiters = w;
    s->nwaiters++;
    if (s->phase == WAITING || s->phase == CONFIGURING) {
        struct err e = {0};
        err_set(&e, ERR_CONFLICT, "sandbox %s was destroyed while it was being created", id);
        request_reply(s->creator, &e, NULL, 0, -1);
        if (s->phase == WAITING) {
            unlink_from(&waiting, s);
            nwaiting--;
        }
    }
    leave(s);
}

int sandbox_tree(const char *id, int *ret_fd, struct err *e)
{
    const struct sandbox *s = map_get(&sandboxes, id);

    if (s == NULL)
        return err_set(e, ERR_NOT_FOUND, "sandbox %s is not on this node", id);
    /* A process of it that still dies could still write. */
    if (s->phase != ENDED || s->pidfd >= 0 || sweep_has(s->entry.slot))
        return err_set(e, ERR_CONFLICT, "sandbox %s has not ended", id);
    int userns = roles_image_userns();
    if (userns < 0)
        return err_set(e, ERR_UNAVAILABLE, "the image role is not running");
    return rootfs_tree_view(id, userns, ret_fd, e);
}

/* ---- creating ---- */

static void create_failed(struct sandbox *s, const struct err *e)
{
    log_warn("sandbox", "id=%s not created: %s", s->entry.sandbox, e->message);
    request_reply(s->creator, e, NULL, 0, -1);
    leave(s);
}

static void monitor_ended(struct watch *w, uint32_t events)
{
    struct sandbox *s = container_of(w, struct sandbox, exit_watch);

    monitor_gone(s);
    if (s->phase == CONFIGURING) {
        struct err e = {0};
        err_set(&e, ERR_INTERNAL, "the monitor of %s ended before the sandbox was set up",
                s->entry.sandbox);
        create_failed(s, &e);
    } else if (s->phase == LIVE) {
        log_debug("sandbox", "id=%s ended", s->entry.sandbox);
        set_phase(s, ENDED);
    }
}

static void configured(struct sandbox *s, int32_t error)
{
    struct err e = {0};

    if (error != 0) {
        err_sys(&e, error > 0 ? error : -error, "set up sandbox %s", s->entry.sandbox);
        create_failed(s, &e);
        return;
    }
    int r = ledger_mark_live(keeper.ledger_fd, s->entry.sandbox);
    if (r < 0) {
        err_sys(&e, -r, "note sandbox %s as live", s->entry.sandbox);
        create_failed(s, &e);
        return;
    }
    s->entry.state = LEDGER_LIVE;
    request_reply(s->creator, NULL, NULL, 0, s->node_end);
    drop_channel(s);
    drop_want(s);
    set_phase(s, LIVE);
}

static void channel_ready(struct watch *w, uint32_t events)
{
    struct sandbox *s = container_of(w, struct sandbox, chan_watch);
    struct wire_reader rd;
    struct chan_msg m;
    int r = chan_recv(w->fd, space, sizeof space, CHAN_NO_FDS, &m);

    if (r == -EAGAIN)
        return;
    if (r <= 0) {
        evloop_unwatch(&keeper.loop, w); /* its end is told by exit_watch */
        return;
    }
    wire_read(&rd, m.data, m.len);
    int32_t error = wire_get_i32(&rd);
    if (m.type != KEEPER_CONFIGURED || !wire_end(&rd))
        error = EBADMSG;
    chan_msg_done(&m);
    configured(s, error);
}

static int write_entry(struct sandbox *s, const struct slot *slot, struct err *e)
{
    struct ledger_entry *l = &s->entry;

    l->state = LEDGER_CREATING;
    memcpy(l->boot_id, keeper.boot_id, sizeof l->boot_id);
    l->slot = slot->number;
    l->monitor_pid = slot->pid;
    l->monitor_start = slot->start_time;
    int r = ledger_write(keeper.ledger_fd, l);
    return r < 0 ? err_sys(e, -r, "write the ledger entry of %s", l->sandbox) : 0;
}

/* Takes the slot's descriptors, whatever happens. */
static int take_slot(struct sandbox *s, struct slot *slot, struct err *e)
{
    int r = write_entry(s, slot, e);

    s->pidfd = take_fd(&slot->pidfd);
    s->chan = take_fd(&slot->chan);
    s->exit_watch.ready = monitor_ended;
    s->chan_watch.ready = channel_ready;
    if (r < 0)
        return -1;
    r = evloop_watch(&keeper.loop, &s->exit_watch, s->pidfd, EPOLLIN);
    if (r == 0)
        r = evloop_watch(&keeper.loop, &s->chan_watch, s->chan, EPOLLIN);
    return r < 0 ? err_sys(e, -r, "watch the monitor of %s", s->entry.sandbox) : 0;
}

static int begin(struct sandbox *s, struct slot *slot, struct err *e)
{
    const struct keeper_create *m = s->want;
    struct configure_kit k = {.n = 0};

    set_phase(s, CONFIGURING);
    int r = take_slot(s, slot, e);
    if (r == 0 && (m->options & KEEPER_NETWORK) != 0 && !slot->network)
        r = err_param(e, ERR_UNSUPPORTED, "network",
                      "this host's kernel cannot give sandboxes a network: it lacks nftables with tproxy");
    if (r == 0)
        r = cg_limit(&keeper.cg, s->entry.slot, &m->r, e);
    if (r == 0)
        r = configure_assemble(&k, m, s->entry.slot, slot->userns, &s->node_end, e);
    if (r == 0)
        r = configure_send(&k, m, &s->cpus, s->chan, e);
    configure_kit_done(&k);
    return r;
}

static void begin_or_fail(struct sandbox *s, struct slot *slot)
{
    struct err e = {0};

    if (begin(s, slot, &e) < 0)
        create_failed(s, &e);
    slot_free(slot);
}

static int admit(const struct keeper_create *m, struct err *e)
{
    if (map_get(&sandboxes, m->sandbox) != NULL)
        return err_set(e, ERR_EXISTS, "sandbox %s exists", m->sandbox);
    if (nalive >= keeper.conf.max_sandboxes)
        return err_set(e, ERR_CAPACITY, "this node has its maximum of %" PRIu32 " sandboxes",
                       keeper.conf.max_sandboxes);
    if (m->r.memory_request_bytes != 0 && budget_check(m->r.memory_request_bytes, e) < 0)
        return -1;
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (rootfs_check_layer(m->layers[i], e) < 0)
            return -1;
    return m->delta[0] != '\0' ? rootfs_check_delta(m->delta, e) : 0;
}

void sandbox_create(const struct keeper_create *m, struct reply_to to)
{
    struct err e = {0};

    if (admit(m, &e) < 0) {
        request_reply(to, &e, NULL, 0, -1);
        return;
    }
    struct sandbox *s = add(m->sandbox);
    s->creator = to;
    s->want = mem_dup(m, sizeof *m);
    budget_set(&s->request_bytes, m->r.memory_request_bytes);
    memcpy(s->entry.delta, m->delta, sizeof s->entry.delta);
    s->entry.nlayers = m->nlayers;
    s->entry.layers = mem_dup(m->layers, m->nlayers * sizeof m->layers[0]);

    struct slot *slot = waiting == NULL ? pool_take() : NULL;
    if (slot != NULL) {
        begin_or_fail(s, slot);
        return;
    }
    *waiting_end = s;
    waiting_end = &s->next;
    nwaiting++;
    evloop_want_idle(&keeper.loop);
}

static struct sandbox *first_waiting(void)
{
    struct sandbox *s = waiting;

    unlink_from(&waiting, s);
    s->next = NULL;
    nwaiting--;
    return s;
}

void sandbox_slot_ready(void)
{
    struct slot *slot;

    while (waiting != NULL && (slot = pool_take()) != NULL)
        begin_or_fail(first_waiting(), slot);
}

void sandbox_slot_failed(const char *why)
{
    struct err e = {0};

    if (waiting == NULL)
        return;
    err_set(&e, ERR_UNAVAILABLE, "a slot for the sandbox could not be built: %s", why);
    create_failed(first_waiting(), &e);
}

/* ---- time ---- */

static void tick_configuring(struct sandbox *s, int64_t age_ms)
{
    struct err e = {0};

    if (age_ms < CONFIGURE_MS)
        return;
    err_set(&e, ERR_TIMEOUT, "sandbox %s was not set up within %d s", s->entry.sandbox,
            CONFIGURE_MS / 1000);
    create_failed(s, &e);
}

static void tick_leaving(struct sandbox *s, int64_t age_ms)
{
    struct err e = {0};
    struct pollfd pf = {.fd = s->pidfd, .events = POLLIN};

    /* Where its end could not be watched, it is looked at. */
    if (s->pidfd >= 0 && s->exit_watch.fd < 0 && poll(&pf, 1, 0) == 1) {
        monitor_gone(s);
        evloop_want_idle(&keeper.loop);
    }
    if (s->pidfd >= 0 && age_ms > MONITOR_EXIT_MS && !s->monitor_killed) {
        log_warn("sandbox", "id=%s its monitor does not end and is killed", s->entry.sandbox);
        (void)process_pidfd_signal(s->pidfd, SIGKILL);
        s->monitor_killed = true;
    }
    if (age_ms < DESTROY_MS || s->waiters == NULL)
        return;
    err_set(&e, ERR_TIMEOUT, "sandbox %s still has %s; it is being removed", s->entry.sandbox,
            s->pidfd >= 0 ? "its monitor" : "processes");
    answer_waiters(s, &e);
}

static void tick(struct timer *t)
{
    struct map_iter it = MAP_ITER;
    int64_t now = clock_boot_ms();
    const char *id;
    bool again = false;
    void *value;

    while (map_next(&sandboxes, &it, &id, &value)) {
        struct sandbox *s = value;
        int64_t age_ms = now - s->since_ms;
        if (s->phase == CONFIGURING)
            tick_configuring(s, age_ms);
        else if (s->phase == LEAVING)
            tick_leaving(s, age_ms);
        again = again || (s->phase != LIVE && s->phase != ENDED);
    }
    while (waiting != NULL && now - waiting->since_ms > WAIT_SLOT_MS) {
        struct err e = {0};
        err_set(&e, ERR_TIMEOUT, "no slot became free within %d s", WAIT_SLOT_MS / 1000);
        create_failed(first_waiting(), &e);
    }
    if (again)
        evloop_timer(&keeper.loop, t, TICK_MS);
}

/* ---- questions ---- */

int sandbox_set_limits(const struct keeper_limits *m, uint8_t ret_cpus[KEEPER_CPUS], struct err *e)
{
    struct sandbox *s = map_get(&sandboxes, m->sandbox);
    uint64_t request = m->r.memory_request_bytes;

    if (s == NULL)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s", m->sandbox);
    if (s->phase != LIVE)
        return err_set(e, ERR_CONFLICT, "sandbox %s is not running", m->sandbox);
    if (request > s->request_bytes && budget_check(request - s->request_bytes, e) < 0)
        return -1;
    if (cg_limit(&keeper.cg, s->entry.slot, &m->r, e) < 0)
        return -1;
    budget_set(&s->request_bytes, request);
    cpus_take(&s->cpus, m->r.cpu_milli);
    cpus_set(&s->cpus, ret_cpus);
    return 0;
}

bool sandbox_uses_layer(const char *layer)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    while (map_next(&sandboxes, &it, &id, &value)) {
        const struct sandbox *s = value;
        for (uint32_t i = 0; s->phase < ENDED && i < s->entry.nlayers; i++)
            if (strcmp(s->entry.layers[i], layer) == 0)
                return true;
    }
    return false;
}

bool sandbox_is_known(const char *id)
{
    return map_get(&sandboxes, id) != NULL;
}

static const struct sandbox *by_slot(uint32_t slot)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    while (map_next(&sandboxes, &it, &id, &value))
        if (((const struct sandbox *)value)->entry.slot == slot)
            return value;
    return NULL;
}

bool sandbox_uses_slot(uint32_t slot)
{
    return by_slot(slot) != NULL;
}

bool sandbox_holds_slot(uint32_t slot)
{
    const struct sandbox *s = by_slot(slot);

    return s != NULL && s->pidfd >= 0;
}

uint32_t sandbox_waiting(void)
{
    return nwaiting;
}

uint32_t sandbox_count(void)
{
    return (uint32_t)sandboxes.count;
}

uint32_t sandbox_alive(void)
{
    return nalive;
}

size_t sandbox_list(void *out, size_t size)
{
    struct map_iter it = MAP_ITER;
    struct wire_writer w;
    const char *id;
    void *value;

    wire_init(&w, out, size);
    wire_put_u32(&w, (uint32_t)sandboxes.count);
    while (map_next(&sandboxes, &it, &id, &value))
        wire_put_str(&w, id);
    return w.failed ? 0 : w.len;
}

/* ---- after a restart ---- */

void sandbox_adopt(struct ledger_entry *l, int pidfd, bool destroy)
{
    struct sandbox *s = add(l->sandbox);

    s->entry = *l;
    *l = (struct ledger_entry){0};
    s->pidfd = pidfd;
    s->exit_watch.ready = monitor_ended;
    if (pidfd >= 0 && evloop_watch(&keeper.loop, &s->exit_watch, pidfd, EPOLLIN) < 0)
        destroy = true; /* out of descriptors: what cannot be watched cannot be kept */
    set_phase(s, pidfd >= 0 ? LIVE : ENDED);
    if (pidfd >= 0)
        budget_set(&s->request_bytes, cg_request(&keeper.cg, s->entry.slot));
    if (destroy)
        leave(s);
}
