/*
 * pool.c - slots that are ready before they are asked for
 */
#include "keeper/runtime/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "keeper/keeper.h"
#include "keeper/ledger.h"
#include "keeper/sandbox.h"
#include "keeper/spawner.h"
#include "keeper/sweep.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"

#define BUILDS_MAX 4     /* at once; more are slower in sum */
#define BLOCK 64         /* slot numbers a write of the counter */
#define LAST_RANGE 65534 /* the range above ends at the invalid id -1 */
#define LAST_SIGNED 32767 /* what a kernel can give terminals to that reads ids as signed numbers */
#define RETRY_MS 200
#define HOLD_MS 4 /* a new sandbox has the machine to itself this long */

static struct {
    struct slot *all; /* being built and ready */
    uint32_t count, ready;
    uint32_t next, block_end;
    uint32_t last; /* range; LAST_RANGE or LAST_SIGNED */
    bool failing; /* the last build failed: wait before the next */
    struct timer retry;
    struct timer hold; /* set while builds wait for the sandbox just begun */
} pool;

static uint8_t space[LIMIT_CHANNEL_INLINE];

static void retry_due(struct timer *t)
{
    (void)t;
    pool.failing = false;
    evloop_want_idle(&keeper.loop);
}

static void hold_due(struct timer *t)
{
    (void)t;
    evloop_want_idle(&keeper.loop);
}

/* devpts of older kernels (6.1 is one) refuses owners from 2^31 on. */
static uint32_t find_last(void)
{
    const struct mount_option option = {"uid", "2147483648"};
    auto_close int fd = mount_new("devpts", &option, 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);

    return fd == -EINVAL ? LAST_SIGNED : LAST_RANGE;
}

int pool_init(struct err *e)
{
    int r = ledger_read_next(keeper.ledger_fd, &pool.next);

    if (r < 0 && r != -ENOENT)
        return err_sys(e, -r, "read keeper/next");
    pool.last = find_last();
    if (image_range() >= pool.last)
        return err_param(e, ERR_INVALID, "id_base_range",
                         "id_base_range is %" PRIu32 ", but this kernel takes ids below 2^31 alone for "
                         "terminals; set it to %d or less", image_range(), LAST_SIGNED - 1);
    if (r < 0 || pool.next <= image_range() || pool.next > pool.last)
        pool.next = image_range() + 1;
    pool.block_end = pool.next;
    pool.retry.due = retry_due;
    pool.hold.due = hold_due;
    evloop_want_idle(&keeper.loop);
    return 0;
}

/* The counter comes round after tens of thousands of slots; numbers still in use are passed over. */
static int take_number(uint32_t *ret)
{
    for (uint32_t tries = 0; tries <= pool.last; tries++) {
        if (pool.next == pool.block_end) {
            if (pool.next > pool.last)
                pool.next = image_range() + 1;
            uint32_t end = pool.next + BLOCK <= pool.last + 1 ? pool.next + BLOCK : pool.last + 1;
            int r = ledger_write_next(keeper.ledger_fd, end);
            if (r < 0)
                return r;
            pool.block_end = end;
        }
        uint32_t n = pool.next++;
        if (!pool_has(n) && !sandbox_uses_slot(n) && !sweep_has(n)) {
            *ret = n;
            return 0;
        }
    }
    return -ENOSPC;
}

static void unlink_slot(struct slot *s)
{
    for (struct slot **at = &pool.all; *at != NULL; at = &(*at)->next) {
        if (*at != s)
            continue;
        *at = s->next;
        s->next = NULL;
        pool.count--;
        if (s->ready && s->pidfd >= 0)
            pool.ready--;
        return;
    }
}

static void unwatch(struct slot *s)
{
    evloop_unwatch(&keeper.loop, &s->chan_watch);
    evloop_unwatch(&keeper.loop, &s->exit_watch);
}

void slot_free(struct slot *s)
{
    if (s == NULL)
        return;
    unwatch(s);
    fd_close(&s->pidfd);
    fd_close(&s->chan);
    fd_close(&s->userns);
    free(s);
}

static void fail(struct slot *s, const char *why)
{
    char text[200];
    uint32_t number = s->number;

    log_error("slot", "number=%" PRIu32 " failed: %s", number, log_escape(why, text, sizeof text));
    unlink_slot(s);
    slot_free(s);
    sweep_add(number);
    pool.failing = true;
    evloop_timer(&keeper.loop, &pool.retry, RETRY_MS);
    sandbox_slot_failed(why);
}

static void check_ready(struct slot *s)
{
    if (!s->ready || s->pidfd < 0)
        return;
    pool.ready++;
    sandbox_slot_ready();
    evloop_want_idle(&keeper.loop);
}

static void channel_ready(struct watch *w, uint32_t events)
{
    struct slot *s = container_of(w, struct slot, chan_watch);
    struct slot_ready ready;
    struct chan_msg m;
    int r = chan_recv(w->fd, space, sizeof space, 0, &m);

    if (r == -EAGAIN)
        return;
    if (r <= 0) {
        fail(s, "its monitor ended");
        return;
    }
    if (m.type == SLOT_READY && m.len == sizeof ready && m.nfds == 1 && !s->ready) {
        memcpy(&ready, m.data, sizeof ready);
        s->pid = ready.pid;
        s->start_time = ready.start_time;
        s->network = ready.network;
        s->userns = take_fd(&m.fds[0]);
        s->ready = true;
        check_ready(s);
    } else {
        char why[200];
        size_t n = m.len < sizeof why - 1 ? m.len : sizeof why - 1;
        memcpy(why, m.data, n);
        why[n] = '\0';
        fail(s, m.type == SLOT_FAILED ? why : "unexpected message");
    }
    chan_msg_done(&m);
}

static void monitor_ended(struct watch *w, uint32_t events)
{
    struct slot *s = container_of(w, struct slot, exit_watch);

    /* What it said last is still in the channel and more telling. */
    evloop_unwatch(&keeper.loop, w);
    if (s->ready)
        fail(s, "its monitor ended");
}

void pool_started(uint32_t number, int error, int pidfd)
{
    struct slot *s = pool.all;

    while (s != NULL && s->number != number)
        s = s->next;
    if (s == NULL) {
        fd_close(&pidfd); /* failed before the spawner's answer was read */
        return;
    }
    if (error != 0 || pidfd < 0) {
        fail(s, "the spawner cannot fork");
        return;
    }
    s->pidfd = pidfd;
    if (evloop_watch(&keeper.loop, &s->exit_watch, pidfd, EPOLLIN) < 0) {
        fail(s, "its monitor cannot be watched");
        return;
    }
    check_ready(s);
}

static int start_build(void)
{
    uint32_t number;
    int pair[2];
    int r = take_number(&number);

    if (r < 0)
        return r;
    r = chan_pair(pair);
    if (r < 0)
        return r;
    auto_close int theirs = pair[1];
    struct slot *s = mem_zalloc(sizeof *s);
    *s = (struct slot){.number = number, .pidfd = -1, .chan = pair[0], .userns = -1};
    s->chan_watch = (struct watch){.ready = channel_ready, .fd = -1};
    s->exit_watch = (struct watch){.ready = monitor_ended, .fd = -1};
    r = evloop_watch(&keeper.loop, &s->chan_watch, s->chan, EPOLLIN);
    if (r == 0)
        r = spawner_build_slot(number, theirs);
    if (r < 0) {
        slot_free(s);
        return r;
    }
    s->next = pool.all;
    pool.all = s;
    pool.count++;
    return 0;
}

bool pool_step(void)
{
    uint32_t wanted = keeper.conf.pool_size + sandbox_waiting();

    if (keeper.stopping || pool.failing || pool.count >= wanted ||
        pool.count - pool.ready >= BUILDS_MAX)
        return false;
    if (evloop_timer_is_set(&pool.hold) && sandbox_waiting() == 0 && pool.ready > 0)
        return false; /* hold_due comes back to this */
    int r = start_build();
    if (r < 0 && r != -EAGAIN) {
        log_error("slot", "cannot be built: errno=%d", -r);
        sandbox_slot_failed("a slot cannot be built");
    }
    if (r < 0) {
        pool.failing = true;
        evloop_timer(&keeper.loop, &pool.retry, RETRY_MS);
        return false;
    }
    return true;
}

struct slot *pool_take(void)
{
    struct slot *s = pool.all;

    while (s != NULL && !(s->ready && s->pidfd >= 0))
        s = s->next;
    evloop_want_idle(&keeper.loop);
    if (s == NULL)
        return NULL;
    unlink_slot(s);
    unwatch(s);
    evloop_timer(&keeper.loop, &pool.hold, HOLD_MS);
    return s;
}

bool pool_has(uint32_t slot)
{
    for (const struct slot *s = pool.all; s != NULL; s = s->next)
        if (s->number == slot)
            return true;
    return false;
}

uint32_t pool_ready(void)
{
    return pool.ready;
}

void pool_drop_all(void)
{
    while (pool.all != NULL) {
        struct slot *s = pool.all;
        uint32_t number = s->number;
        unlink_slot(s);
        slot_free(s);
        sweep_add(number);
    }
}
