/*
 * sse.c - server-sent events
 */
#include <string.h>

#include "base/mem.h"
#include "http/stream.h"

#define MORE_HEADERS 8
#define SILENCE_MS 15000

struct sse {
    struct http_stream *st;
    struct loop_timer *timer;
};

/* A proxy that sees nothing for a minute closes the connection. */
static void on_silence(void *arg)
{
    struct sse *s = arg;

    if (s->st->has_ended)
        return;
    if (http_stream_queued(s->st) == 0)
        http_stream_write(s->st, ":\n\n", 3);
    loop_timer_set(s->timer, SILENCE_MS);
}

void sse_start(struct http_stream *st, const struct http_header *more, size_t n)
{
    struct http_header h[3 + MORE_HEADERS] = {{"content-type", "text/event-stream"},
                                              {"cache-control", "no-cache"},
                                              {"x-accel-buffering", "no"}};

    for (size_t i = 0; i < n && i < MORE_HEADERS; i++)
        h[3 + i] = more[i];
    http_respond(st, 200, h, 3 + (n < MORE_HEADERS ? n : MORE_HEADERS));
    if (st->is_mute || st->sse != NULL)
        return;
    st->sse = mem_zalloc(sizeof *st->sse);
    st->sse->st = st;
    st->sse->timer = loop_timer_new(st->loop, on_silence, st->sse);
    loop_timer_set(st->sse->timer, SILENCE_MS);
}

void sse_done(struct http_stream *st)
{
    loop_timer_free(st->sse->timer);
    free(st->sse);
    st->sse = NULL;
}

static void add(struct http_stream *st, const char *text)
{
    http_stream_write(st, text, strlen(text));
}

/* A name or id ends at a line break, which would begin a field of its own. */
static void add_field(struct http_stream *st, const char *field, const char *value)
{
    if (value == NULL)
        return;
    add(st, field);
    http_stream_write(st, value, header_value_len(value));
    add(st, "\n");
}

void sse_send(struct http_stream *st, const char *event, const char *id, const char *data, size_t n)
{
    const char *end = data + n;

    if (st->sse == NULL || st->has_ended)
        return;
    add_field(st, "event: ", event);
    add_field(st, "id: ", id);
    for (;;) {
        const char *p = data;
        while (p < end && *p != '\n' && *p != '\r')
            p++;
        add(st, "data: ");
        http_stream_write(st, data, (size_t)(p - data));
        add(st, "\n");
        if (p == end)
            break;
        data = p + (*p == '\r' && p + 1 < end && p[1] == '\n' ? 2 : 1);
    }
    add(st, "\n");
    loop_timer_set(st->sse->timer, SILENCE_MS);
}
