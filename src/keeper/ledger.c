/*
 * ledger.c - what the keeper must know of a sandbox after it was killed itself
 */
#include "keeper/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "ipc/wire.h"
#include "sys/fd.h"

#define MAGIC 0x314b5351 /* "QSK1" */
#define STATE_OFFSET 4
#define ENTRY_MAX (LIMIT_LAYERS * 80 + 512)
#define NEXT "next"

void ledger_entry_done(struct ledger_entry *l)
{
    free(l->layers);
    l->layers = NULL;
}

int ledger_write(int dirfd, const struct ledger_entry *l)
{
    uint8_t bytes[ENTRY_MAX];
    struct wire_writer w;

    wire_init(&w, bytes, sizeof bytes);
    wire_put_u32(&w, MAGIC);
    wire_put_u8(&w, l->state);
    wire_put_str(&w, l->sandbox);
    wire_put_str(&w, l->boot_id);
    wire_put_u32(&w, l->slot);
    wire_put_i32(&w, l->monitor_pid);
    wire_put_u64(&w, l->monitor_start);
    wire_put_str(&w, l->delta);
    wire_put_u32(&w, l->nlayers);
    for (uint32_t i = 0; i < l->nlayers; i++)
        wire_put_str(&w, l->layers[i]);
    if (w.failed)
        return -ENOBUFS;
    auto_close int fd =
        openat(dirfd, l->sandbox, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    return fd_write_all(fd, bytes, w.len);
}

int ledger_mark_live(int dirfd, const char *sandbox)
{
    const uint8_t state = LEDGER_LIVE;
    auto_close int fd = openat(dirfd, sandbox, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    return pwrite(fd, &state, 1, STATE_OFFSET) == 1 ? 0 : -errno;
}

int ledger_remove(int dirfd, const char *sandbox)
{
    return unlinkat(dirfd, sandbox, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int decode(struct ledger_entry *l, const void *p, size_t n)
{
    struct wire_reader r;

    wire_read(&r, p, n);
    if (wire_get_u32(&r) != MAGIC)
        wire_fail(&r);
    l->state = wire_get_u8(&r);
    wire_get_str(&r, l->sandbox, sizeof l->sandbox);
    wire_get_str(&r, l->boot_id, sizeof l->boot_id);
    l->slot = wire_get_u32(&r);
    l->monitor_pid = wire_get_i32(&r);
    l->monitor_start = wire_get_u64(&r);
    wire_get_str(&r, l->delta, sizeof l->delta);
    l->nlayers = wire_get_u32(&r);
    if (r.failed || l->nlayers > LIMIT_LAYERS)
        return -EBADMSG;
    l->layers = mem_zalloc((l->nlayers + 1) * sizeof *l->layers);
    for (uint32_t i = 0; i < l->nlayers; i++)
        wire_get_str(&r, l->layers[i], sizeof l->layers[i]);
    return wire_end(&r) && (l->state == LEDGER_CREATING || l->state == LEDGER_LIVE) ? 0 : -EBADMSG;
}

int ledger_read(int dirfd, const char *sandbox, struct ledger_entry *ret)
{
    uint8_t bytes[ENTRY_MAX];
    struct ledger_entry l = {0};
    auto_close int fd = openat(dirfd, sandbox, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    ssize_t n = fd_read_all(fd, bytes, sizeof bytes);
    if (n < 0)
        return (int)n;
    int r = decode(&l, bytes, (size_t)n);
    if (r == 0 && strcmp(l.sandbox, sandbox) != 0)
        r = -EBADMSG;
    if (r < 0) {
        ledger_entry_done(&l);
        return r;
    }
    *ret = l;
    return 0;
}

int ledger_read_next(int dirfd, uint32_t *ret)
{
    char text[32], *end;
    ssize_t n = fd_read_at(dirfd, NEXT, text, sizeof text);

    if (n < 0)
        return (int)n;
    unsigned long v = strtoul(text, &end, 10);
    if (n == 0 || *end != '\0' || v > UINT32_MAX)
        return -EBADMSG;
    *ret = (uint32_t)v;
    return 0;
}

int ledger_write_next(int dirfd, uint32_t next)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%" PRIu32 "\n", next);

    return fd_replace_file(dirfd, NEXT, text, (size_t)n, 0600, false);
}
