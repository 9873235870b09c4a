/*
 * job.c - one request to the image role, in a child process of its own
 *
 * Called by main.c after the fork. Finds out what is asked for and hands on.
 */
#include "image/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "image/confine.h"
#include "image/copy.h"
#include "image/export.h"
#include "image/fold.h"
#include "image/layer.h"
#include "image/list.h"
#include "image/load.h"
#include "image/pull.h"
#include "image/unpack.h"
#include "image/url_fetch.h"
#include "image/verify.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"
#include "sys/fd.h"

#define REQUEST_WAIT_MS 30000
#define SEND_WAIT_MS 10000
#define PROGRESS_EVERY_MS 100

struct running {
    const struct job *job;
    int64_t told_ms;                /* when progress was sent last */
};

void job_send(int conn, uint16_t type, const void *p, size_t n)
{
    struct pollfd out = {.fd = conn, .events = POLLOUT};

    while (chan_send(conn, type, 0, p, n, NULL, 0) == -EAGAIN)
        if (poll(&out, 1, SEND_WAIT_MS) <= 0)
            return;
}

static void send_done(int conn, const struct image_done *done)
{
    uint8_t out[sizeof *done + 64];

    job_send(conn, IMAGE_DONE, out, image_done_encode(done, out, sizeof out));
}

void job_send_error(int conn, const struct err *e)
{
    struct image_done done = {.code = (uint16_t)e->code};

    (void)snprintf(done.message, sizeof done.message, "%.*s", (int)sizeof done.message - 1, e->message);
    send_done(conn, &done);
}

static void tell_progress(const struct unpack_counts *counts, void *arg)
{
    struct running *r = arg;
    struct image_progress m = {.bytes = counts->bytes, .files = counts->files};
    uint8_t out[32];
    int64_t now = clock_boot_ms();

    if (now - r->told_ms < PROGRESS_EVERY_MS)
        return;
    r->told_ms = now;
    /* A listener that does not keep up misses a number; the next one makes up for it. */
    (void)chan_send(r->job->conn, IMAGE_PROGRESS, 0, out, image_progress_encode(&m, out, sizeof out), NULL, 0);
}

/* Waits for the one request. 1 = the peer only wanted to see that we are here. */
static int receive(const struct job *job, struct chan_msg *m, struct err *e)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    struct pollfd p[2] = {{.fd = job->conn, .events = POLLIN}, {.fd = job->alive}};

    if (poll(p, 2, REQUEST_WAIT_MS) <= 0 || p[1].revents != 0)
        return err_set(e, ERR_TIMEOUT, "no request came");
    int r = chan_recv(job->conn, space, sizeof space, 0, m);
    if (r == 0)
        return 1;
    return r < 0 ? err_set(e, ERR_MALFORMED, "not a request") : 0;
}

static void describe_left_out(const struct unpack_counts *c, char *out, size_t size)
{
    if (c->devices + c->sockets > 0)
        (void)snprintf(out, size, "left out: %" PRIu64 " device nodes and %" PRIu64 " sockets", c->devices,
                       c->sockets);
}

static int unpack(const struct job *job, struct chan_msg *m, struct image_done *ret, struct err *e)
{
    struct running running = {.job = job};
    struct image_unpack request;
    struct unpack_counts counts = {0};

    if (m->nfds != 1 || image_unpack_decode(&request, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "not a request of this version, or without its pipe");
    const struct unpack_limits limits = {request.max_bytes, request.max_files};
    auto_close int staging = -1;
    auto_close int root = -1;
    if (confine_unpacker(e) < 0 ||
        layer_unpack_staged(job, m->fds[0], UNPACK_ROOT, &limits, NULL, tell_progress, &running,
                            &counts, ret->layer, &staging, &root, e) < 0)
        return -1;
    if (load_is_image(root)) {
        int r = load_image(job, root, &limits, ret, e);
        layer_discard(job, staging);
        return r;
    }
    if (layer_publish(job, staging, root, ret->layer, &counts, e) < 0) {
        layer_discard(job, staging);
        return -1;
    }
    ret->bytes = counts.bytes;
    ret->files = counts.files;
    describe_left_out(&counts, ret->message, sizeof ret->message);
    return 0;
}

static int serve(const struct job *job, struct chan_msg *m, struct image_done *done, struct err *e)
{
    switch (m->type) {
    case IMAGE_UNPACK:
        return unpack(job, m, done, e);
    case IMAGE_PULL:
        return pull_run(job, m, done, e);
    case IMAGE_FOLD:
        return fold_run(job, m, done, e);
    case IMAGE_COPY:
        return copy_run(job, m, done, e);
    case IMAGE_FETCH:
        return url_fetch_run(job, m, done, e);
    case IMAGE_EXPORT:
        return export_run(job, m, done, e);
    case IMAGE_LIST:
        return list_run(job, m, done, e);
    case IMAGE_VERIFY:
        return verify_run(job, m, done, e);
    default:
        return err_set(e, ERR_MALFORMED, "not a request of this version");
    }
}

bool job_is_cancelled(const struct job *job)
{
    struct pollfd p[2] = {{.fd = job->conn, .events = POLLRDHUP}, {.fd = job->alive}};

    return poll(p, 2, 0) > 0 && ((p[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0 || p[1].revents != 0);
}

int job_run(const struct job *job)
{
    struct image_done done = {0};
    struct chan_msg m = {0};
    struct err e = {0};
    int64_t start = clock_boot_ms();

    int r = receive(job, &m, &e);
    if (r > 0)
        return 0;
    if (r == 0)
        r = serve(job, &m, &done, &e);
    chan_msg_done(&m);
    if (r < 0) {
        log_info("image.failed", "job=%s code=%s ms=%" PRId64, job->name, err_row(e.code)->name,
                 clock_boot_ms() - start);
        job_send_error(job->conn, &e);
        return 0;
    }
    log_info("image.done", "job=%s layer=%.12s files=%" PRIu64 " bytes=%" PRIu64 " ms=%" PRId64, job->name,
             done.layer, done.files, done.bytes, clock_boot_ms() - start);
    send_done(job->conn, &done);
    return 0;
}
