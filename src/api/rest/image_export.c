/*
 * image_export.c - image.export: the archive goes out as it is made
 *
 * The head waits for the first bytes, so that an image which cannot be read gets its status. What fails later breaks the
 * response off: a body that ends is whole.
 */
#include <string.h>

#include "api/rest/handlers.h"
#include "base/mem.h"
#include "core/image.h"

struct outgoing {
    struct image_export *export;
    bool responded;
    size_t held;                        /* bytes for which no credit was given back */
};

static void finish(struct call *c, int status)
{
    free(c->user);
    c->user = NULL;
    call_done(c, status);
}

static void respond(struct call *c)
{
    struct outgoing *o = c->user;
    struct http_header h[12];
    size_t n = call_headers(c, h);

    h[n++] = (struct http_header){"content-type", "application/x-tar"};
    http_respond(c->stream, 200, h, n);
    o->responded = true;
}

static void give_credit(struct call *c)
{
    struct outgoing *o = c->user;
    size_t n = o->held;

    if (n > 0 && http_stream_queued(c->stream) < HTTP_HIGH) {
        o->held = 0;
        image_export_consumed(o->export, n);
    }
}

static void on_data(void *ctx, const void *p, size_t n)
{
    struct call *c = ctx;
    struct outgoing *o = c->user;

    if (!o->responded)
        respond(c);
    o->held += n;
    http_stream_write(c->stream, p, n);
    give_credit(c);
}

static void on_done(void *ctx, const struct err *e)
{
    struct call *c = ctx;
    struct outgoing *o = c->user;

    if (e != NULL && !o->responded) {
        free(o);
        c->user = NULL;
        call_fail(c, e);
    } else if (e != NULL) {
        http_stream_cancel(c->stream);
        finish(c, err_row(e->code)->http_status);
    } else {
        http_stream_end(c->stream, NULL, 0);
        finish(c, 200);
    }
}

static void on_gone(struct call *c)
{
    struct outgoing *o = c->user;

    image_export_cancel(o->export);
    finish(c, CALL_CLIENT_GONE);
}

static unsigned compression(const char *name)
{
    return name == NULL || strcmp(name, "gzip") == 0 ? 0 : strcmp(name, "zstd") == 0 ? 1 : 2;
}

void image_export_get(struct call *c)
{
    static const struct image_export_ops ops = {.data = on_data, .done = on_done};
    struct outgoing *o = mem_zalloc(sizeof *o);
    struct err e;

    c->user = o;
    c->on_gone = on_gone;
    c->on_writable = give_credit;
    o->export = image_export_begin(c->core, call_param(c, "id"), compression(call_query(c, "compression")), &ops, c, &e);
    if (o->export == NULL) {
        free(o);
        c->user = NULL;
        call_fail(c, &e);
    }
}
