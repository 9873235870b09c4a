/*
 * pull.c - an image of a registry becomes layers
 *
 * The job itself reads fixed messages alone. A child with the network and without privileges fetches (fetch.c); for each
 * layer that is not there yet a child without the network unpacks (layer.c), while the fetching goes on. What was complete when
 * a pull breaks off is used by the next one.
 */
#include "image/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "image/confine.h"
#include "image/fetch.h"
#include "image/layer.h"
#include "image/stale.h"
#include "ipc/wire.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"

#define UNPACKERS 2
#define CONFIG_MAX (1U << 20)

struct unpacker {
    pid_t pid;                          /* 0 = free */
    int result;                         /* read end; struct unpacked comes */
    uint32_t index;
    struct job job;                     /* with a staging name of its own */
};

/* Between processes of one program. */
struct unpacked {
    uint16_t code;
    char message[240];
    struct unpack_counts counts;
};

struct pull {
    const struct job *job;
    struct image_pull request;
    struct unpacker unpackers[UNPACKERS];
    int blobs;
    pid_t fetcher;                      /* 0 = none (any more) */
    int channel;
    struct fetch_plan plan;
    bool has_plan, is_fetched;
    size_t config_bytes;
    uint8_t wanted[MANIFEST_LAYERS_MAX];
    bool is_dropped[MANIFEST_LAYERS_MAX];   /* the same layer lies above it */
    bool is_ready[MANIFEST_LAYERS_MAX];     /* its blob is there and not yet unpacked */
    uint64_t bytes[MANIFEST_LAYERS_MAX], files[MANIFEST_LAYERS_MAX];
    uint64_t total_bytes, total_files;      /* of the layers that are here */
    uint64_t download_bytes;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

static const char *layer_of(const struct pull *p, uint32_t i)
{
    return p->plan.layers[i].diff_id + 7;
}

static void say(struct pull *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct pull *p, const char *fmt, ...)
{
    char line[256];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    job_send(p->job->conn, IMAGE_LOG, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* --- children ------------------------------------------------------------------------------------------------------------ */

static void become_fetcher(struct pull *p, int channel) __attribute__((noreturn));
static void become_fetcher(struct pull *p, int channel)
{
    struct err e = {0};
    int conn = p->job->conn, layers = p->job->layers, alive = p->job->alive;

    fd_close(&conn);
    fd_close(&layers);
    fd_close(&alive);
    if (confine_fetcher(p->blobs, &e) < 0) {
        log_error("image.confine", "error=\"%s\"", e.message);
        _exit(1);
    }
    _exit(fetch_run(&p->request, p->job->conf, p->blobs, channel));
}

static void drop_credentials(struct image_pull *m)
{
    explicit_bzero(m->password, sizeof m->password);
    explicit_bzero(m->session, sizeof m->session);
}

static int start_fetcher(struct pull *p, struct err *e)
{
    int pair[2];
    int r = chan_pair(pair);

    if (r < 0)
        return err_sys(e, -r, "make a channel");
    auto_close int theirs = pair[1];
    p->channel = pair[0];
    p->fetcher = fork();
    if (p->fetcher == 0) {
        fd_close(&p->channel);
        become_fetcher(p, theirs);
    }
    drop_credentials(&p->request);      /* the child has them */
    if (p->fetcher < 0) {
        p->fetcher = 0;
        return err_sys(e, errno, "start the fetching process");
    }
    return 0;
}

static void no_progress(const struct unpack_counts *counts, void *arg)
{
}

static void become_unpacker(struct pull *p, struct unpacker *u, int out) __attribute__((noreturn));
static void become_unpacker(struct pull *p, struct unpacker *u, int out)
{
    struct unpacked result = {0};
    struct unpack_limits limits = {p->request.max_bytes, p->request.max_files};
    const char *hex = p->plan.layers[u->index].blob.digest + 7;
    struct err e = {0};

    fd_close(&p->channel);
    if (limits.max_bytes > 0)
        limits.max_bytes -= p->total_bytes < limits.max_bytes ? p->total_bytes : limits.max_bytes - 1;
    auto_close int blob = openat(p->blobs, hex, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (blob < 0 && errno == ENOENT && layer_is_there(p->job, layer_of(p, u->index)))
        /* Another pull has unpacked it meanwhile, and removed the blob. */
        layer_size_read(p->job, layer_of(p, u->index), &result.counts.bytes, &result.counts.files);
    else if (blob < 0)
        (void)err_sys(&e, errno, "open the blob of a layer");
    else if (confine_unpacker(&e) == 0)
        (void)layer_unpack(&u->job, blob, UNPACK_LAYER, &limits, layer_of(p, u->index), no_progress, NULL, &result.counts,
                           NULL, &e);
    result.code = (uint16_t)e.code;
    (void)snprintf(result.message, sizeof result.message, "%.*s", (int)sizeof result.message - 1, e.message);
    _exit(fd_write_all(out, &result, sizeof result) < 0);
}

static int start_unpacker(struct pull *p, struct unpacker *u, uint32_t index, struct err *e)
{
    int ends[2];

    u->index = index;
    u->job = *p->job;
    (void)snprintf(u->job.name, sizeof u->job.name, "%.24s-%" PRIu32, p->job->name, index);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    auto_close int out = ends[1];
    u->result = ends[0];
    p->is_ready[index] = false;
    u->pid = fork();
    if (u->pid == 0)
        become_unpacker(p, u, out);
    if (u->pid < 0) {
        u->pid = 0;
        fd_close(&u->result);
        return err_sys(e, errno, "start an unpacking process");
    }
    return 0;
}

static void wait_for(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void discard_staging(const struct unpacker *u)
{
    auto_close int staging = openat(u->job.layers, STAGING, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (staging >= 0)
        layer_discard(&u->job, staging);
}

static int add_to_total(struct pull *p, uint32_t i, struct err *e)
{
    p->total_bytes += p->bytes[i];
    p->total_files += p->files[i];
    if (p->request.max_bytes > 0 && p->total_bytes > p->request.max_bytes)
        return err_set(e, ERR_TOO_LARGE, "the image unpacks to more than %" PRIu64 " bytes", p->request.max_bytes);
    if (p->request.max_files > 0 && p->total_files > p->request.max_files)
        return err_set(e, ERR_TOO_LARGE, "the image has more than %" PRIu64 " entries", p->request.max_files);
    return 0;
}

static int unpacker_ended(struct pull *p, struct unpacker *u, struct err *e)
{
    struct unpacked result = {0};
    uint32_t i = u->index;
    bool complete = fd_read_all(u->result, &result, sizeof result) == sizeof result;

    fd_close(&u->result);
    wait_for(u->pid);
    u->pid = 0;
    if (!complete) {
        discard_staging(u);
        return err_set(e, ERR_INTERNAL, "the process that unpacked layer %.12s died", layer_of(p, i));
    }
    (void)unlinkat(p->blobs, p->plan.layers[i].blob.digest + 7, 0);
    if (result.code != ERR_OK) {
        result.message[sizeof result.message - 1] = '\0';
        return err_set(e, result.code < ERR_MAX_ ? (enum err_code)result.code : ERR_INTERNAL, "layer %.12s: %s", layer_of(p, i),
                       result.message);
    }
    p->bytes[i] = result.counts.bytes;
    p->files[i] = result.counts.files;
    say(p, "layer %" PRIu32 "/%" PRIu32 " %.12s: %" PRIu64 " files, %" PRIu64 " bytes", i + 1, p->plan.nlayers, layer_of(p, i),
        p->files[i], p->bytes[i]);
    return add_to_total(p, i, e);
}

static void add_layer(struct image_layers *m, const char *layer, uint64_t bytes, uint64_t files)
{
    memcpy(m->layers[m->nlayers].layer, layer, 65);
    m->layers[m->nlayers].bytes = bytes;
    m->layers[m->nlayers++].files = files;
}

/* Top first, with the sizes that are known by now. */
static void tell_layers(struct pull *p)
{
    auto_free struct image_layers *m = mem_zalloc(sizeof *m);

    memcpy(m->digest, p->plan.digest, sizeof m->digest);
    memcpy(m->source, p->plan.source, sizeof m->source);
    for (uint32_t i = p->plan.nlayers; i-- > 0;)
        if (!p->is_dropped[i]) {
            add_layer(m, layer_of(p, i), p->bytes[i], p->files[i]);
            if (layer_hides_all(p->job, layer_of(p, i)))
                break;
        }
    if (m->nlayers == 0)
        add_layer(m, LAYER_EMPTY, 0, 0);
    job_send(p->job->conn, IMAGE_LAYERS, p->space, image_layers_encode(m, p->space, sizeof p->space));
}

/* --- what the fetcher says ------------------------------------------------------------------------------------------------- */

static int on_plan(struct pull *p, const struct chan_msg *m, struct err *e)
{
    if (p->has_plan || fetch_plan_decode(&p->plan, m->data, m->len) < 0)
        return err_set(e, ERR_INTERNAL, "the fetching process sent a plan that cannot be read");
    p->has_plan = true;
    say(p, "resolved to %s", p->plan.source);
    for (uint32_t i = 0; i < p->plan.nlayers; i++) {
        /* A layer that comes again above hides itself: overlay would refuse it twice. */
        for (uint32_t j = i + 1; j < p->plan.nlayers; j++)
            p->is_dropped[i] = p->is_dropped[i] || strcmp(layer_of(p, i), layer_of(p, j)) == 0;
        p->wanted[i] = !p->is_dropped[i] && !layer_is_there(p->job, layer_of(p, i));
        if (p->wanted[i]) {
            p->download_bytes += p->plan.layers[i].blob.size;
        } else if (!p->is_dropped[i]) {
            say(p, "layer %" PRIu32 "/%" PRIu32 " %.12s: is there already", i + 1, p->plan.nlayers, layer_of(p, i));
            /* It may come of a pull that broke off: then no row of the database knows its size, and its blob may lie there
             * yet. */
            (void)unlinkat(p->blobs, p->plan.layers[i].blob.digest + 7, 0);
            layer_size_read(p->job, layer_of(p, i), &p->bytes[i], &p->files[i]);
            if (add_to_total(p, i, e) < 0)
                return -1;
        }
    }
    /* Said before any of it comes, so that somebody knows of the layers of a pull that breaks off. */
    if (p->plan.nlayers > 0)
        tell_layers(p);
    int r = chan_send(p->channel, FETCH_WANT, 0, p->wanted, p->plan.nlayers, NULL, 0);
    return r < 0 ? err_sys(e, -r, "answer the fetching process") : 0;
}

static int on_config(struct pull *p, const struct chan_msg *m, struct err *e)
{
    p->config_bytes += m->len;
    if (p->config_bytes > CONFIG_MAX)
        return err_set(e, ERR_TOO_LARGE, "the image's configuration has more than %u bytes", CONFIG_MAX);
    if (m->len > 0)
        job_send(p->job->conn, IMAGE_PIECE, m->data, m->len);
    return 0;
}

static int on_got(struct pull *p, const struct chan_msg *m, struct err *e)
{
    struct wire_reader r;

    wire_read(&r, m->data, m->len);
    uint32_t i = wire_get_u32(&r);
    if (!wire_end(&r) || !p->has_plan || i >= p->plan.nlayers || p->wanted[i] != 1)
        return err_set(e, ERR_INTERNAL, "the fetching process named a layer that was not asked for");
    p->wanted[i] = 2;
    p->is_ready[i] = true;
    return 0;
}

static int on_progress(struct pull *p, const struct chan_msg *m)
{
    struct image_progress progress = {.files = p->download_bytes};
    struct wire_reader r;
    uint8_t out[32];

    wire_read(&r, m->data, m->len);
    progress.bytes = wire_get_u64(&r);
    (void)chan_send(p->job->conn, IMAGE_PROGRESS, 0, out, image_progress_encode(&progress, out, sizeof out), NULL, 0);
    return 0;
}

static int on_failed(const struct chan_msg *m, struct err *e)
{
    char message[sizeof e->message];
    struct wire_reader r;

    wire_read(&r, m->data, m->len);
    uint16_t code = wire_get_u16(&r);
    wire_get_str(&r, message, sizeof message);
    if (!wire_end(&r) || code == ERR_OK || code >= ERR_MAX_)
        return err_set(e, ERR_INTERNAL, "the fetching process failed and did not say why");
    /* It quotes strangers. */
    for (char *c = message; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127)
            *c = '?';
    return err_set(e, (enum err_code)code, "%s", message);
}

static int on_fetcher(struct pull *p, struct err *e)
{
    struct chan_msg m;
    int r = chan_recv(p->channel, p->space, sizeof p->space, CHAN_NO_FDS, &m);

    if (r == -EAGAIN)
        return 0;
    if (r <= 0)
        return err_set(e, ERR_INTERNAL, "the fetching process died");
    switch (m.type) {
    case FETCH_PLAN:
        return on_plan(p, &m, e);
    case FETCH_CONFIG:
        return on_config(p, &m, e);
    case FETCH_GOT:
        return on_got(p, &m, e);
    case FETCH_PROGRESS:
        return on_progress(p, &m);
    case FETCH_FAILED:
        return on_failed(&m, e);
    case FETCH_DONE:
        p->is_fetched = true;
        return p->has_plan ? 0 : err_set(e, ERR_INTERNAL, "the fetching process ended without a plan");
    default:
        return err_set(e, ERR_INTERNAL, "the fetching process sent something unknown");
    }
}

/* --- the job ---------------------------------------------------------------------------------- */

static int start_unpackers(struct pull *p, bool *ret_busy, struct err *e)
{
    uint32_t next = 0;

    *ret_busy = false;
    for (size_t i = 0; i < UNPACKERS; i++) {
        struct unpacker *u = &p->unpackers[i];
        while (u->pid == 0 && next < p->plan.nlayers && !p->is_ready[next])
            next++;
        if (u->pid == 0 && next < p->plan.nlayers && start_unpacker(p, u, next, e) < 0)
            return -1;
        *ret_busy = *ret_busy || u->pid != 0;
    }
    return 0;
}

static int wait_and_handle(struct pull *p, struct err *e)
{
    struct pollfd fds[3 + UNPACKERS] = {
        {.fd = p->job->conn, .events = POLLRDHUP},
        {.fd = p->job->alive},
        {.fd = p->is_fetched ? -1 : p->channel, .events = POLLIN},
    };

    for (size_t i = 0; i < UNPACKERS; i++)
        fds[3 + i] = (struct pollfd){.fd = p->unpackers[i].pid != 0 ? p->unpackers[i].result : -1, .events = POLLIN};
    if (poll(fds, 3 + UNPACKERS, -1) < 0 && errno != EINTR)
        return err_sys(e, errno, "poll");
    if ((fds[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0 || fds[1].revents != 0)
        return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    if (fds[2].revents != 0 && on_fetcher(p, e) < 0)
        return -1;
    for (size_t i = 0; i < UNPACKERS; i++)
        if (fds[3 + i].revents != 0 && unpacker_ended(p, &p->unpackers[i], e) < 0)
            return -1;
    return 0;
}

static int work(struct pull *p, struct err *e)
{
    bool is_busy = true;

    if (start_fetcher(p, e) < 0)
        return -1;
    /* From here on nobody but the fetcher has the network. */
    if (seccomp_role_install(SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_READ_FILES | SECCOMP_WRITE_FILES |
                                 SECCOMP_MEMFD | SECCOMP_TREE | SECCOMP_CHILDREN | SECCOMP_NARROW,
                             e) < 0)
        return -1;
    while (!p->is_fetched || is_busy) {
        if (wait_and_handle(p, e) < 0 || start_unpackers(p, &is_busy, e) < 0)
            return -1;
    }
    return 0;
}

/* A part that nobody works on. */
static void drop_part(struct pull *p, const char *hex)
{
    char name[80];

    (void)snprintf(name, sizeof name, "%s.part", hex);
    auto_close int part = openat(p->blobs, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (part >= 0 && flock(part, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(p->blobs, name, 0);
}

/* What came is kept for the next pull, but not on a disk that it fills. */
static void make_room(struct pull *p)
{
    for (uint32_t i = 0; i < p->plan.nlayers; i++) {
        const char *hex = p->plan.layers[i].blob.digest + 7;
        if (p->wanted[i] == 2)
            (void)unlinkat(p->blobs, hex, 0);
        else if (p->wanted[i] == 1)
            drop_part(p, hex);
    }
}

static void clean_up(struct pull *p, bool is_full)
{
    for (size_t i = 0; i < UNPACKERS; i++) {
        struct unpacker *u = &p->unpackers[i];
        if (u->pid == 0)
            continue;
        (void)kill(u->pid, SIGKILL);
        wait_for(u->pid);
        fd_close(&u->result);
        discard_staging(u);
    }
    if (p->fetcher != 0) {
        (void)kill(p->fetcher, SIGKILL);
        wait_for(p->fetcher);
    }
    if (is_full)
        make_room(p);
    fd_close(&p->channel);
    fd_close(&p->blobs);
}

static int open_blobs(struct pull *p, struct err *e)
{
    if (mkdirat(p->job->layers, BLOBS, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make the directory of blobs");
    p->blobs = openat(p->job->layers, BLOBS, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return p->blobs < 0 ? err_sys(e, errno, "open the directory of blobs") : 0;
}

int pull_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    struct pull *p = mem_zalloc(sizeof *p);
    int r = -1;

    p->job = job;
    p->blobs = p->channel = -1;
    for (size_t i = 0; i < UNPACKERS; i++)
        p->unpackers[i].result = -1;
    if (m->nfds != 0 || image_pull_decode(&p->request, m->data, m->len) < 0)
        r = err_set(e, ERR_MALFORMED, "not a request of this version");
    else if (open_blobs(p, e) == 0) {
        stale_blobs_drop(job->layers);
        r = work(p, e);
    }
    clean_up(p, r < 0 && e->code == ERR_CAPACITY);
    if (r == 0 && p->plan.nlayers == 0)
        r = layer_make_empty(job, e);
    if (r == 0)
        tell_layers(p);
    ret->bytes = p->total_bytes;
    ret->files = p->total_files;
    drop_credentials(&p->request);
    free(p);
    return r;
}
