/*
 * files_upload.c - uploads: the content of a file, and a tar into a tree
 *
 * The body goes to the helper in frames, and only a whole body is followed by the commit. Whatever breaks before - the
 * client, this process, the node - the helper sees an end without a commit and undoes what it has begun.
 */
#include <string.h>

#include "api/rest/fs_ask.h"
#include "api/rest/fs_helper.h"
#include "api/rest/handlers.h"
#include "base/buf.h"
#include "base/mem.h"

#define ANSWER_MAX (64 * 1024)

struct upload {
    struct call *call;
    struct fs_helper *helper;
    struct buf out;             /* the helper's answer */
};

static struct call *close_upload(struct upload *u)
{
    struct call *c = u->call;

    fs_helper_free(u->helper);
    buf_done(&u->out);
    free(u);
    c->user = NULL;
    c->on_gone = NULL;
    c->on_body = NULL;
    c->on_body_end = NULL;
    return c;
}

static void on_data(void *ctx, const void *p, size_t n)
{
    struct upload *u = ctx;

    (void)buf_add(&u->out, p, n);
    fs_helper_consumed(u->helper, n);
}

static void on_taken(void *ctx, size_t n)
{
    struct upload *u = ctx;

    if (u->call->stream != NULL)
        http_stream_consume(u->call->stream, n);
}

static void on_end(void *ctx, const struct err *e)
{
    struct upload *u = ctx;

    if (e != NULL) {
        call_fail(close_upload(u), e);
        return;
    }
    json_t *out = u->out.len > 0 ? json_loadb(u->out.data, u->out.len, 0, NULL) : NULL;
    struct call *c = close_upload(u);
    bool created = json_is_true(json_object_get(out, "created"));
    json_t *o = fs_query_path(c);
    if (json_is_object(out)) {
        json_object_del(out, "created");
        json_object_update(o, out);
    }
    json_decref(out);
    call_reply(c, created ? 201 : 200, o);
}

static void on_body(struct call *c, const void *p, size_t n)
{
    struct upload *u = c->user;

    fs_helper_content(u->helper, p, n);
}

static void on_body_end(struct call *c)
{
    struct upload *u = c->user;

    fs_helper_commit(u->helper);
}

static void on_gone(struct call *c)
{
    call_done(close_upload(c->user), CALL_CLIENT_GONE);
}

static void start(struct call *c, const char *op, json_t *args)
{
    static const struct fs_helper_ops ops = {.on_data = on_data, .on_taken = on_taken, .on_end = on_end};
    struct upload *u = mem_zalloc(sizeof *u);

    u->call = c;
    buf_init(&u->out, ANSWER_MAX);
    c->user = u;
    c->on_gone = on_gone;
    c->on_body = on_body;
    c->on_body_end = on_body_end;
    u->helper = fs_helper_new(c->core, call_param(c, "id"), op, args, call_query(c, "path"), FS_STDIN_FRAMES, &ops, u);
}

void file_put(struct call *c)
{
    json_t *args = fs_query_path(c);
    struct err e;

    if (fs_put_mode(call_query(c, "mode"), args, &e) < 0) {
        json_decref(args);
        call_fail(c, &e);
        return;
    }
    json_object_set_new(args, "parents", json_boolean(call_query_bool(c, "parents", true)));
    json_object_set_new(args, "exclusive", json_boolean(call_query_bool(c, "exclusive", false)));
    if (c->rq->content_length >= 0)
        json_object_set_new(args, "expected_size", json_integer((json_int_t)c->rq->content_length));
    start(c, "WriteFile", args);
}

void file_archive_put(struct call *c)
{
    start(c, "TarIn", fs_query_path(c));
}
