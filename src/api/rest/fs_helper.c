/*
 * fs_helper.c - running the file helper
 *
 * Frames and signs are described in ipc/fs_proto.h.
 */
#include "api/rest/fs_helper.h"

#include <stdio.h>
#include <string.h>

#include "api/shared/exec_reader.h"
#include "api/rest/exec_runner.h"
#include "api/rest/fs_errors.h"
#include "api/rest/fs_reap.h"
#include "api/shared/stdin_pump.h"
#include "api/rest/text.h"
#include "base/buf.h"
#include "base/ids.h"
#include "base/mem.h"
#include "ipc/fs_proto.h"
#include "json/json.h"

#define HELPER_PATH "/__modal/.bin/modal-sandbox-fs-tools"
#define STDERR_MAX (64 * 1024)
#define OUTPUT_WINDOW (16 * 1024 * 1024)    /* output the helper may be ahead of the client */
#define SIGN_EVERY_MS (FS_SILENCE_S * 1000 / 4)

struct fs_helper {
    struct core *core;              /* borrowed */
    char sandbox[LIMIT_ID];
    char exec_id[ID_SIZE];
    char *path;                     /* owned; NULL = none to name */
    enum fs_stdin in;
    const struct fs_helper_ops *ops;
    void *ctx;
    struct exec_runner *runner;
    struct stdin_pump *pump;
    struct loop_timer *signs;
    struct buf err;                 /* stderr */
    struct buf early;               /* stdin given before the helper runs */
    bool started, early_end;
    uint64_t framed, framed_taken;  /* bytes with their frames */
    uint64_t content, content_taken;
    uint64_t consumed, credited;    /* output handed on, and what the helper knows of it */
    bool ended, busy, dead;
};

static void destroy(struct fs_helper *h)
{
    fs_reap(h->core, h->sandbox, h->exec_id, h->ended);
    exec_runner_free(h->runner);
    stdin_pump_free(h->pump);
    loop_timer_free(h->signs);
    buf_done(&h->err);
    buf_done(&h->early);
    free(h->path);
    free(h);
}

static void send(struct fs_helper *h, const void *p, size_t n)
{
    if (!h->started)
        (void)buf_add(&h->early, p, n);
    else if (h->pump != NULL)
        (void)stdin_pump_write(h->pump, p, n);
}

static void send_frame_head(struct fs_helper *h, uint32_t v)
{
    uint8_t head[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

    h->framed += sizeof head;
    send(h, head, sizeof head);
}

static void end_input(struct fs_helper *h)
{
    if (!h->started)
        h->early_end = true;
    else if (h->pump != NULL)
        stdin_pump_end(h->pump, true);
}

static void on_sign(void *ctx)
{
    static const char alive = FS_SIGN_ALIVE;
    struct fs_helper *h = ctx;

    if (h->in == FS_STDIN_FRAMES)
        send_frame_head(h, FS_FRAME_ALIVE);
    else
        send(h, &alive, 1);
    loop_timer_set(h->signs, SIGN_EVERY_MS);
}

/* --- from the helper ----------------------------------------------------------------------------------------------- */

static void on_taken(void *ctx, size_t n)
{
    struct fs_helper *h = ctx;

    if (h->in != FS_STDIN_FRAMES || h->ops->on_taken == NULL)
        return;
    h->framed_taken += n;
    uint64_t left = h->content - h->content_taken;
    size_t give = h->framed_taken == h->framed || n > left ? (size_t)left : n;
    h->content_taken += give;
    h->ops->on_taken(h->ctx, give);
}

/* A helper that does not want more has an error to tell; it comes on stderr. */
static void on_pump_done(void *ctx, const struct err *e, uint64_t taken, bool closed)
{
    struct fs_helper *h = ctx;

    stdin_pump_free(h->pump);
    h->pump = NULL;
}

static void on_started(void *ctx, const Quicksand__Node__Exec *x)
{
    static const struct stdin_pump_ops pump_ops = {.on_taken = on_taken, .on_done = on_pump_done};
    struct fs_helper *h = ctx;

    h->started = true;
    if (h->in == FS_STDIN_NONE)
        return;
    h->pump = stdin_pump_new(h->core, h->sandbox, h->exec_id, 0, &pump_ops, h);
    if (h->early.len > 0)
        (void)stdin_pump_write(h->pump, h->early.data, h->early.len);
    buf_done(&h->early);
    if (h->early_end)
        stdin_pump_end(h->pump, true);
}

static void on_data(void *ctx, int stream, const void *p, size_t n)
{
    struct fs_helper *h = ctx;

    if (stream == STREAM_STDOUT) {
        h->ops->on_data(h->ctx, p, n);
        return;
    }
    size_t room = h->err.max - h->err.len;
    (void)buf_add(&h->err, p, n < room ? n : room);
    exec_runner_consumed(h->runner, n);
}

static void on_end(void *ctx, const Quicksand__Node__Exec *x, const struct err *e)
{
    struct fs_helper *h = ctx;
    struct err failed;

    h->ended = x != NULL;
    if (x != NULL && x->signal != 0) {
        (void)err_set(&failed, ERR_FS_IO, "the file helper was ended by signal %d", x->signal);
        e = &failed;
    } else if (x != NULL && x->code != 0) {
        (void)fs_error_from_text(buf_str(&h->err), h->err.len, x->code, h->path, &failed);
        e = &failed;
    }
    h->busy = true;
    h->ops->on_end(h->ctx, e);
    h->busy = false;
    if (h->dead)
        destroy(h);
}

/* --- to the helper ------------------------------------------------------------------------------------------------- */

static void start(struct fs_helper *h, const char *text)
{
    static const struct exec_runner_ops ops = {.on_started = on_started, .on_data = on_data, .on_end = on_end};
    Quicksand__Node__ExecStartRequest rq = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    static char program[] = HELPER_PATH;
    ProtobufCBinaryData argv[2] = {
        {.data = (uint8_t *)program, .len = sizeof program - 1},
        {.data = (uint8_t *)(uintptr_t)text, .len = strlen(text)},
    };

    ref.sandbox_id = h->sandbox;
    ref.exec_id = h->exec_id;
    command.argv = argv;
    command.n_argv = 2;
    rq.ref = &ref;
    rq.command = &command;
    rq.has_stdin = rq.has_hidden = rq.has_helper = rq.has_output_limit = true;
    rq.stdin = h->in != FS_STDIN_NONE;
    rq.hidden = rq.helper = true;
    rq.output_limit = 4 * (uint64_t)OUTPUT_WINDOW;
    h->runner = exec_runner_new(h->core, &rq, !rq.stdin, &ops, h);
}

struct fs_helper *fs_helper_new(struct core *c, const char *sandbox, const char *op, json_t *args, const char *path,
                                enum fs_stdin in, const struct fs_helper_ops *ops, void *ctx)
{
    struct fs_helper *h = mem_zalloc(sizeof *h);

    h->core = c;
    (void)snprintf(h->sandbox, sizeof h->sandbox, "%s", sandbox);
    id_make(h->exec_id, "fs-");
    h->path = path != NULL ? mem_strdup(path) : NULL;
    h->in = in;
    h->ops = ops;
    h->ctx = ctx;
    buf_init(&h->err, STDERR_MAX);
    buf_init(&h->early, 64 * 1024 * 1024);
    if (in == FS_STDIN_FRAMES || in == FS_STDIN_SIGNS) {
        json_object_set_new(args, "silence_s", json_integer(FS_SILENCE_S));
        h->signs = loop_timer_new(core_loop(c), on_sign, h);
        loop_timer_set(h->signs, SIGN_EVERY_MS);
    }
    if (in == FS_STDIN_FRAMES)
        json_object_set_new(args, "require_commit", json_true());
    if (in == FS_STDIN_SIGNS)
        json_object_set_new(args, "window", json_integer(OUTPUT_WINDOW));
    json_t *whole = json_object();
    json_object_set_new(whole, op, args);
    auto_free char *text = js_text(whole, false);
    json_decref(whole);
    start(h, text);
    return h;
}

void fs_helper_consumed(struct fs_helper *h, size_t n)
{
    static const char credit = FS_SIGN_CREDIT;

    exec_runner_consumed(h->runner, n);
    h->consumed += n;
    while (h->in == FS_STDIN_SIGNS && h->consumed - h->credited >= OUTPUT_WINDOW / 2) {
        h->credited += OUTPUT_WINDOW / 2;
        send(h, &credit, 1);
    }
}

void fs_helper_input(struct fs_helper *h, const void *p, size_t n)
{
    send(h, p, n);
    end_input(h);
}

void fs_helper_content(struct fs_helper *h, const void *content, size_t n)
{
    const uint8_t *p = content;

    while (n > 0) {
        size_t piece = n < FS_FRAME_MAX ? n : FS_FRAME_MAX;
        send_frame_head(h, (uint32_t)piece);
        h->framed += piece;
        h->content += piece;
        send(h, p, piece);
        p += piece;
        n -= piece;
    }
}

void fs_helper_commit(struct fs_helper *h)
{
    send_frame_head(h, FS_FRAME_COMMIT);
    end_input(h);
}

void fs_helper_free(struct fs_helper *h)
{
    if (h == NULL || h->dead)
        return;
    h->dead = true;
    if (!h->busy)
        destroy(h);
}

void fs_put_path(json_t *object, const char *key, const char *path, size_t n)
{
    char b64_key[32];

    if (text_is_utf8(path, n)) {
        json_object_set_new(object, key, json_stringn_nocheck(path, n));
        return;
    }
    auto_free char *b64 = text_base64(path, n);
    (void)snprintf(b64_key, sizeof b64_key, "%s_b64", key);
    json_object_set_new(object, b64_key, json_string_nocheck(b64));
}
