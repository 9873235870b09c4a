/*
 * job.c - one request to the image role, in a child process of its own
 *
 * Called by main.c after the fork. Unpacks into STAGING and renames to the digest, so that a layer that can be seen
 * is complete and on disk.
 */
#include "image/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "image/source.h"
#include "image/unpack.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

#define REQUEST_WAIT_MS 30000
#define SEND_WAIT_MS 10000
#define PROGRESS_EVERY_MS 100

struct running {
    const struct job *job;
    int64_t told_ms;                /* when progress was sent last */
};

static void send_done(int conn, const struct image_done *done)
{
    uint8_t out[512];
    size_t n = image_done_encode(done, out, sizeof out);
    struct pollfd p = {.fd = conn, .events = POLLOUT};

    while (chan_send(conn, IMAGE_DONE, 0, out, n, NULL, 0) == -EAGAIN)
        if (poll(&p, 1, SEND_WAIT_MS) <= 0)
            return;
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

/* Waits for the one request. *ret_pipe is the read end it came with. 1 = the peer only wanted to see that we are here. */
static int receive(const struct job *job, struct image_unpack *ret, int *ret_pipe, struct err *e)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    struct pollfd p[2] = {{.fd = job->conn, .events = POLLIN}, {.fd = job->alive}};
    struct chan_msg m;

    if (poll(p, 2, REQUEST_WAIT_MS) <= 0 || p[1].revents != 0)
        return err_set(e, ERR_TIMEOUT, "no request came");
    int r = chan_recv(job->conn, space, sizeof space, 0, &m);
    if (r == 0)
        return 1;
    if (r < 0)
        return err_set(e, ERR_MALFORMED, "not a request");
    if (m.type == IMAGE_UNPACK && m.nfds == 1 && image_unpack_decode(ret, m.data, m.len) == 0)
        *ret_pipe = take_fd(&m.fds[0]);
    chan_msg_done(&m);
    if (*ret_pipe < 0)
        return err_set(e, ERR_MALFORMED, "not a request of this version, or without its pipe");
    return 0;
}

static int make_staging(const struct job *job, int *ret_staging, int *ret_root, struct err *e)
{
    auto_close int staging = openat(job->layers, STAGING, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (staging < 0)
        return err_sys(e, errno, "open the staging directory");
    if (mkdirat(staging, job->name, 0755) < 0)
        return err_sys(e, errno, "make a staging directory");
    int root = openat(staging, job->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "open a staging directory");
    /* What an archive without an entry for its root gets, whatever the mask. */
    if (fchmod(root, 0755) < 0) {
        fd_close(&root);
        return err_sys(e, errno, "mode of a staging directory");
    }
    *ret_staging = take_fd(&staging);
    *ret_root = root;
    return 0;
}

/* Moves the complete tree to its name; one that is there already holds the same bytes. */
static int publish(const struct job *job, int staging, int root, const char *layer, struct err *e)
{
    /* Rows of the database will say that the layer exists: after a power cut too. */
    if (syncfs(root) < 0)
        return err_sys(e, errno, "write layer %s to disk", layer);
    if (renameat2(staging, job->name, job->layers, layer, RENAME_NOREPLACE) < 0) {
        if (errno != EEXIST)
            return err_sys(e, errno, "name layer %s", layer);
        int r = rmtree(staging, job->name);
        if (r < 0)
            log_warn("image.staging_left", "name=%s error=%d", job->name, -r);
    }
    if (fsync(job->layers) < 0)
        return err_sys(e, errno, "write the name of layer %s to disk", layer);
    return 0;
}

static void describe_left_out(const struct unpack_counts *c, char *out, size_t size)
{
    if (c->devices + c->sockets > 0)
        (void)snprintf(out, size, "left out: %" PRIu64 " device nodes and %" PRIu64 " sockets", c->devices,
                       c->sockets);
}

/* As receive: 1 = there was nothing to do. */
static int unpack(const struct job *job, struct image_done *ret, struct err *e)
{
    struct running running = {.job = job};
    struct image_unpack request;
    struct unpack_counts counts = {0};
    auto_close int pipe_fd = -1;
    auto_close int staging = -1;
    auto_close int root = -1;

    int r = receive(job, &request, &pipe_fd, e);
    if (r != 0)
        return r;
    struct source *source = source_new(pipe_fd, job->conn, job->alive, e);
    if (source == NULL)
        return -1;
    r = make_staging(job, &staging, &root, e);
    if (r == 0)
        r = unpack_tar(source, root, &(struct unpack_limits){request.max_bytes, request.max_files},
                       tell_progress, &running, &counts, e);
    if (r == 0)
        r = source_digest(source, ret->layer, e);
    if (r == 0 && source_cancelled(source))
        r = err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    if (r == 0)
        r = publish(job, staging, root, ret->layer, e);
    source_free(source);
    if (r < 0) {
        if (staging >= 0 && rmtree(staging, job->name) < 0)
            log_warn("image.staging_left", "name=%s", job->name);
        return -1;
    }
    ret->bytes = counts.bytes;
    ret->files = counts.files;
    describe_left_out(&counts, ret->message, sizeof ret->message);
    return 0;
}

int job_run(const struct job *job)
{
    struct image_done done = {0};
    struct err e = {0};
    int64_t start = clock_boot_ms();

    int r = unpack(job, &done, &e);
    if (r > 0)
        return 0;
    if (r < 0) {
        log_info("image.failed", "job=%s code=%s ms=%" PRId64, job->name, err_row(e.code)->name,
                 clock_boot_ms() - start);
        job_send_error(job->conn, &e);
        return 0;
    }
    log_info("image.unpacked", "job=%s layer=%.12s files=%" PRIu64 " bytes=%" PRIu64 " ms=%" PRId64, job->name,
             done.layer, done.files, done.bytes, clock_boot_ms() - start);
    send_done(job->conn, &done);
    return 0;
}
