/*
 * grpc_call.c - what both sides of a gRPC call share
 */
#include "http/grpc_call.h"

#include "base/mem.h"

void grpc_call_free(struct grpc_call *c)
{
    loop_timer_free(c->timer);
    grpc_frames_done(&c->frames);
    for (size_t i = 0; i < c->ntrailers; i++)
        free((char *)(uintptr_t)c->trailers[i].name);
    free(c->metadata);
    free(c->authority);
    free(c->err);
    free(c);
}

static bool on_frame(void *arg, const void *p, size_t n)
{
    struct grpc_call *c = arg;

    c->held += n < GRPC_HOLD ? n : GRPC_HOLD;
    if (c->ops != NULL && c->ops->on_message != NULL)
        c->ops->on_message(c, p, n, c->ctx);
    else
        grpc_call_consumed(c, n);
    return !c->is_over;
}

enum grpc_status grpc_call_feed(struct grpc_call *c, const void *p, size_t n, const char **ret_why)
{
    size_t free_len = 0;
    enum grpc_frame_result r = grpc_frames_feed(&c->frames, p, n, &free_len, on_frame, c);

    http_stream_consume(c->st, free_len);
    switch (r) {
    case GRPC_FRAME_OK:
    case GRPC_FRAME_STOPPED:
        break;
    case GRPC_FRAME_COMPRESSED:
        *ret_why = "compressed messages are not supported";
        return GRPC_UNIMPLEMENTED;
    case GRPC_FRAME_TOO_LARGE:
        *ret_why = "message is over the limit of 100 MiB";
        return GRPC_RESOURCE_EXHAUSTED;
    case GRPC_FRAME_MALFORMED:
        *ret_why = "message prefix is malformed";
        return GRPC_INTERNAL;
    }
    return GRPC_OK;
}

void grpc_call_set(struct grpc_call *c, const struct grpc_ops *ops, void *ctx)
{
    if (c->is_over)
        return;
    c->ops = ops;
    c->ctx = ctx;
}

size_t grpc_queued(const struct grpc_call *c)
{
    return http_stream_queued(c->st);
}

void grpc_call_consumed(struct grpc_call *c, size_t n)
{
    if (n > c->held)
        n = c->held;
    c->held -= n;
    http_stream_consume(c->st, n);
}

void grpc_send(struct grpc_call *c, const void *p, size_t n)
{
    const uint8_t prefix[5] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    static const struct http_header head[] = {{"content-type", "application/grpc"}};

    if (c->is_over)
        return;
    if (!c->st->is_client && !c->has_head) {
        c->has_head = true;
        http_respond(c->st, 200, head, 1);
    }
    http_stream_write(c->st, prefix, sizeof prefix);
    http_stream_write(c->st, p, n);
}
