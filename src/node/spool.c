/*
 * spool.c - what a sandbox left on disk, read when its monitor is gone
 *
 * The journal may end in a record that was being written when the monitor died; it is passed over.
 * Of several records of one exec the last one counts.
 */
#include "node/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "sys/fd.h"

#define RECORD_FILE_MAX 8192
#define JOURNAL_MAX (LIMIT_EXECS_KEPT * 4096LL * 2)

static int open_run(int run_fd, const char *sandbox)
{
    int fd = openat(run_fd, sandbox, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int open_file(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

bool spool_exists(int run_fd, const char *sandbox)
{
    struct stat st;

    return fstatat(run_fd, sandbox, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int read_record(int dir, const char *name, struct sandbox_record *ret)
{
    uint8_t bytes[RECORD_FILE_MAX];
    auto_close int fd = open_file(dir, name);

    if (fd < 0)
        return fd;
    ssize_t n = fd_read_all(fd, bytes, sizeof bytes);
    return n < 0 ? (int)n : sandbox_record_decode(ret, bytes, (size_t)n);
}

int spool_exit(int run_fd, const char *sandbox, struct sandbox_record *ret)
{
    auto_close int dir = open_run(run_fd, sandbox);

    return dir >= 0 && read_record(dir, "exit", ret) == 0 ? 0 : -1;
}

int spool_status(int run_fd, const char *sandbox, struct sandbox_record *ret)
{
    auto_close int dir = open_run(run_fd, sandbox);

    return dir >= 0 && read_record(dir, "status", ret) == 0 ? 0 : -1;
}

int spool_sandbox(int run_fd, const char *sandbox, struct sandbox_record *ret, struct err *e)
{
    auto_close int dir = open_run(run_fd, sandbox);

    if (dir == -ENOENT)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s on this node", sandbox);
    if (dir < 0 && dir != -EACCES) {
        err_sys(e, -dir, "open the run directory of %s", sandbox);
        e->code = ERR_INTERNAL;
        return -1;
    }
    /* Not handed to us yet: the keeper has only just made it. */
    if (dir == -EACCES) {
        *ret = (struct sandbox_record){.state = SB_STARTING};
        (void)snprintf(ret->sandbox, sizeof ret->sandbox, "%s", sandbox);
        return 0;
    }
    if (read_record(dir, "exit", ret) == 0)
        return 0;
    if (read_record(dir, "status", ret) == 0) {
        if (ret->state == SB_ENDED)
            return 0;
        ret->state = SB_ENDED;
        ret->reason = END_NODE_LOST;
        ret->code = -1;
        (void)snprintf(ret->message, sizeof ret->message,
                       "the monitor of the sandbox is gone and left no exit record");
        return 0;
    }
    *ret = (struct sandbox_record){.state = SB_STARTING};
    (void)snprintf(ret->sandbox, sizeof ret->sandbox, "%s", sandbox);
    return 0;
}

/* The whole journal; caller frees. */
static uint8_t *read_journal(int run_fd, const char *sandbox, size_t *ret_len, struct err *e)
{
    auto_close int dir = open_run(run_fd, sandbox);
    auto_close int fd = dir < 0 ? dir : open_file(dir, "execs");
    struct stat st;

    *ret_len = 0;
    if (dir == -ENOENT) {
        err_set(e, ERR_NOT_FOUND, "no sandbox %s on this node", sandbox);
        return NULL;
    }
    if (fd == -ENOENT)
        return mem_alloc(1);    /* it ran nothing */
    if (fd < 0 || fstat(fd, &st) < 0) {
        err_sys(e, fd < 0 ? -fd : errno, "open the exec journal of %s", sandbox);
        e->code = ERR_INTERNAL;
        return NULL;
    }
    if (st.st_size > JOURNAL_MAX) {
        err_set(e, ERR_INTERNAL, "the exec journal of %s is too long", sandbox);
        return NULL;
    }
    uint8_t *p = mem_alloc((size_t)st.st_size + 1);
    ssize_t n = pread(fd, p, (size_t)st.st_size, 0);
    if (n < 0) {
        err_sys(e, errno, "read the exec journal of %s", sandbox);
        free(p);
        return NULL;
    }
    *ret_len = (size_t)n;
    return p;
}

/* The next whole record; false at the end. */
static bool next_record(struct wire_reader *r, struct exec_record *ret)
{
    while (!r->failed && r->at < r->len) {
        size_t n;
        const void *p = wire_get_bytes(r, RECORD_FILE_MAX, &n);
        if (p != NULL && exec_record_decode(ret, p, n) == 0)
            return true;
    }
    return false;
}

int spool_exec(int run_fd, const char *sandbox, const char *exec_id, struct exec_record *ret,
               struct err *e)
{
    struct exec_record rec;
    struct wire_reader r;
    size_t len;
    bool found = false;
    auto_free uint8_t *journal = read_journal(run_fd, sandbox, &len, e);

    if (journal == NULL)
        return -1;
    wire_read(&r, journal, len);
    while (next_record(&r, &rec))
        if (strcmp(rec.exec_id, exec_id) == 0) {
            *ret = rec;
            found = true;
        }
    if (!found)
        return err_param(e, ERR_NOT_FOUND, "exec_id", "no exec %s in sandbox %s", exec_id, sandbox);
    return 0;
}

int spool_execs(int run_fd, const char *sandbox, spool_exec_fn fn, void *arg, struct err *e)
{
    struct exec_record rec;
    struct wire_reader r;
    struct map last;            /* exec id -> number of its last record, from 1 */
    size_t len;
    uintptr_t at = 0;
    auto_free uint8_t *journal = read_journal(run_fd, sandbox, &len, e);

    if (journal == NULL)
        return -1;
    map_init(&last);
    wire_read(&r, journal, len);
    while (next_record(&r, &rec))
        (void)map_put(&last, rec.exec_id, (void *)++at);
    wire_read(&r, journal, len);
    for (at = 1; next_record(&r, &rec); at++)
        if ((uintptr_t)map_get(&last, rec.exec_id) == at)
            fn(arg, &rec);
    map_done(&last);
    return 0;
}

int spool_open(int run_fd, const char *sandbox, uint32_t seq, int stream)
{
    char name[32];
    auto_close int dir = open_run(run_fd, sandbox);

    (void)snprintf(name, sizeof name, "%" PRIu32 ".%s", seq, stream == 1 ? "out" : "err");
    return dir < 0 ? dir : open_file(dir, name);
}

long spool_read(int run_fd, const char *sandbox, const struct exec_record *r, int stream,
                uint64_t *offset, void *out, size_t size, struct err *e)
{
    uint64_t first = stream == 1 ? r->out_first : r->err_first;
    uint64_t total = stream == 1 ? r->out_total : r->err_total;

    if (*offset < first)
        *offset = first;
    if (*offset >= total)
        return 0;
    if (size > total - *offset)
        size = (size_t)(total - *offset);
    auto_close int fd = spool_open(run_fd, sandbox, r->seq, stream);
    if (fd < 0)
        return err_set(e, fd == -ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL,
                       "the output of exec %s is not there: %s", r->exec_id, strerror(-fd));
    ssize_t n = pread(fd, out, size, (off_t)*offset);
    if (n < 0)
        return err_sys(e, errno, "read the output of exec %s", r->exec_id);
    if (n == 0)
        return err_set(e, ERR_INTERNAL,
                       "the output of exec %s ends at byte %" PRIu64 " of %" PRIu64, r->exec_id,
                       *offset, total);
    return n;
}
