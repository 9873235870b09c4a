/*
 * files_stream.c - downloads: the content of a file, and a tree as a tar
 *
 * The head goes out when the first HEAD_WAIT bytes are there or the helper has ended, so that small files have their
 * exact length and errors their status. What breaks later breaks the response off: a body that ends is whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/rest/fs_ask.h"
#include "api/rest/fs_helper.h"
#include "api/rest/handlers.h"
#include "api/rest/range.h"
#include "base/buf.h"
#include "base/mem.h"

#define HEAD_WAIT (64 * 1024)
#define HEADER_LINE_MAX 4096

struct download {
    struct call *call;
    struct fs_helper *helper;
    const char *type;           /* content-type */
    bool has_header;            /* the helper's output begins with a line about the file */
    bool ranged;
    bool responded;
    struct buf line;            /* that line, until it is complete */
    bool line_done;
    struct buf early;           /* content before the head */
    size_t held;                /* bytes the helper has no credit back for */
    uint64_t size, offset;      /* of the file, of the first byte sent */
    uint64_t length;            /* promised; UINT64_MAX = unknown */
    uint64_t sent;
    unsigned mode;
};

static void finish(struct download *d, int status)
{
    struct call *c = d->call;

    fs_helper_free(d->helper);
    buf_done(&d->line);
    buf_done(&d->early);
    free(d);
    c->user = NULL;
    call_done(c, status);
}

static void fail(struct download *d, const struct err *e)
{
    struct call *c = d->call;

    if (d->responded) {
        http_stream_cancel(c->stream);
        finish(d, err_row(e->code)->http_status);
        return;
    }
    fs_helper_free(d->helper);
    buf_done(&d->line);
    buf_done(&d->early);
    free(d);
    c->user = NULL;
    call_fail(c, e);
}

/* `length`: UINT64_MAX = unknown. */
static void respond(struct download *d, uint64_t length)
{
    struct http_header h[12];
    char size[24], mode[8], range[80], len[24];
    size_t n = call_headers(d->call, h);

    h[n++] = (struct http_header){"content-type", d->type};
    if (d->has_header) {
        (void)snprintf(size, sizeof size, "%" PRIu64, d->size);
        (void)snprintf(mode, sizeof mode, "%04o", d->mode & 07777);
        h[n++] = (struct http_header){"x-file-size", size};
        h[n++] = (struct http_header){"x-file-mode", mode};
        h[n++] = (struct http_header){"accept-ranges", "bytes"};
    }
    if (d->ranged) {
        (void)snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, d->offset, d->offset + length - 1,
                       d->size);
        h[n++] = (struct http_header){"content-range", range};
    }
    if (length != UINT64_MAX) {
        (void)snprintf(len, sizeof len, "%" PRIu64, length);
        h[n++] = (struct http_header){"content-length", len};
    }
    http_respond(d->call->stream, d->ranged ? 206 : 200, h, n);
    d->responded = true;
    http_stream_write(d->call->stream, buf_str(&d->early), d->early.len);
    buf_done(&d->early);
}

static void give_credit(struct download *d)
{
    if (d->held > 0 && (!d->responded || http_stream_queued(d->call->stream) < HTTP_HIGH)) {
        size_t n = d->held;
        d->held = 0;
        fs_helper_consumed(d->helper, n);
    }
}

static bool read_header(struct download *d)
{
    json_t *o = json_loadb(buf_str(&d->line), d->line.len, 0, NULL), *length = json_object_get(o, "length");
    bool ok = json_is_integer(json_object_get(o, "size"));

    d->size = (uint64_t)json_integer_value(json_object_get(o, "size"));
    d->mode = (unsigned)json_integer_value(json_object_get(o, "mode"));
    d->offset = (uint64_t)json_integer_value(json_object_get(o, "offset"));
    d->length = json_is_integer(length) ? (uint64_t)json_integer_value(length) : UINT64_MAX;
    json_decref(o);
    buf_done(&d->line);
    d->line_done = true;
    return ok;
}

static void on_data(void *ctx, const void *data, size_t n)
{
    struct download *d = ctx;
    const char *p = data;
    struct err e;

    d->held += n;
    if (d->has_header && !d->line_done) {
        const char *end = memchr(p, '\n', n);
        size_t take = end != NULL ? (size_t)(end - p) : n;
        bool fits = buf_add(&d->line, p, take) == 0;
        if (!fits || (end != NULL && !read_header(d))) {
            (void)err_set(&e, ERR_FS_IO, "the file helper's answer could not be read");
            fail(d, &e);
            return;
        }
        take += end != NULL;
        p += take;
        n -= take;
    }
    d->sent += n;
    if (d->responded) {
        http_stream_write(d->call->stream, p, n);
    } else {
        (void)buf_add(&d->early, p, n);
        if (d->early.len >= HEAD_WAIT)
            respond(d, d->length);
    }
    give_credit(d);
}

static void on_end(void *ctx, const struct err *e)
{
    struct download *d = ctx;
    struct err local;

    if (e != NULL) {
        fail(d, e);
        return;
    }
    if (!d->responded && d->ranged && d->sent == 0) {
        (void)err_param(&local, ERR_RANGE, "range", "the file has %" PRIu64 " bytes", d->size);
        fail(d, &local);
        return;
    }
    if (!d->responded)
        respond(d, d->sent);
    else if (d->length != UINT64_MAX && d->sent != d->length) {
        (void)err_set(&local, ERR_FS_IO, "the file became shorter while it was read");
        fail(d, &local);
        return;
    }
    http_stream_end(d->call->stream, NULL, 0);
    finish(d, d->ranged ? 206 : 200);
}

static void on_writable(struct call *c)
{
    give_credit(c->user);
}

static void on_gone(struct call *c)
{
    finish(c->user, CALL_CLIENT_GONE);
}

static void start(struct call *c, struct download *d, const char *op, json_t *args)
{
    static const struct fs_helper_ops ops = {.on_data = on_data, .on_end = on_end};

    d->call = c;
    d->length = UINT64_MAX;
    buf_init(&d->line, HEADER_LINE_MAX);
    buf_init(&d->early, 16 * 1024 * 1024);
    c->user = d;
    c->on_gone = on_gone;
    c->on_writable = on_writable;
    d->helper = fs_helper_new(c->core, call_param(c, "id"), op, args, call_query(c, "path"), FS_STDIN_SIGNS, &ops, d);
}

void file_get(struct call *c)
{
    const char *header = call_header(c, "range");
    json_t *args = fs_query_path(c);
    struct download *d = mem_zalloc(sizeof *d);
    struct range range;

    d->type = "application/octet-stream";
    d->has_header = true;
    d->ranged = header != NULL && range_parse(header, &range);
    json_object_set_new(args, "header", json_true());
    json_object_set_new(args, "max", json_integer(INT64_MAX));
    if (d->ranged && range.suffix) {
        json_object_set_new(args, "suffix", json_integer((json_int_t)range.length));
    } else if (d->ranged) {
        json_object_set_new(args, "offset", json_integer((json_int_t)range.offset));
        if (range.length != UINT64_MAX)
            json_object_set_new(args, "length", json_integer((json_int_t)range.length));
    }
    start(c, d, "ReadFile", args);
}

void file_archive_get(struct call *c)
{
    struct download *d = mem_zalloc(sizeof *d);

    d->type = "application/x-tar";
    start(c, d, "TarOut", fs_query_path(c));
}
