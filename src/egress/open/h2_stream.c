/*
 * h2_stream.c - a stream of HTTP/2 through an opened connection: its body on its way, resets, answers of ours
 *
 * A sender's windows are opened again as its bytes go on, so who is slow holds the other back, and what waits here has a bound.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "egress/open/h2.h"

#define GRACE (64 * 1024)       /* of a body that is thrown away after its response, before the client is stopped */
#define KEPT (64 * 1024)        /* bytes that are gone, in front of those that wait */

struct h2_stream *h2_stream_new(struct h2 *h, int32_t id)
{
    struct h2_stream *st = mem_zalloc(sizeof *st);

    st->h = h;
    st->client = id;
    st->server = H2_NONE;
    asked_init(&st->asked);
    buf_init(&st->up.data, SIZE_MAX / 2);
    buf_init(&st->down.data, SIZE_MAX / 2);
    st->next = h->streams;
    if (st->next != NULL)
        st->next->prev = st;
    h->streams = st;
    h->nstreams++;
    (void)nghttp2_session_set_stream_user_data(h->client, id, st);
    return st;
}

static void free_trailers(struct h2_way *w)
{
    if (w->trailers != NULL)
        request_done(w->trailers);
    free(w->trailers);
    w->trailers = NULL;
}

void h2_stream_free(struct h2_stream *st)
{
    struct h2 *h = st->h;

    if (st->prev != NULL)
        st->prev->next = st->next;
    else
        h->streams = st->next;
    if (st->next != NULL)
        st->next->prev = st->prev;
    h->nstreams--;
    asked_done(&st->asked);
    free_trailers(&st->up);
    free_trailers(&st->down);
    buf_done(&st->up.data);
    buf_done(&st->down.data);
    free(st);
}

void h2_stream_check(struct h2_stream *st)
{
    if (st->client != H2_NONE || st->server != H2_NONE)
        return;
    h2_drop(st, &st->up);
    h2_drop(st, &st->down);
    h2_stream_free(st);
}

/* Gives n bytes back to whose they were. */
static void give_back(struct h2_stream *st, struct h2_way *w, size_t n)
{
    bool is_up = w == &st->up;
    nghttp2_session *from = is_up ? st->h->client : st->h->server;
    int32_t id = is_up ? st->client : st->server;

    n = n < w->owed ? n : w->owed;
    w->owed -= n;
    if (n == 0 || from == NULL)
        return;
    if (id == H2_NONE || w->ended)
        (void)nghttp2_session_consume_connection(from, n);
    else
        (void)nghttp2_session_consume(from, id, n);
}

void h2_drop(struct h2_stream *st, struct h2_way *w)
{
    give_back(st, w, w->owed);
    buf_done(&w->data);
    buf_init(&w->data, SIZE_MAX / 2);
    w->at = 0;
    free_trailers(w);
}

void h2_throw(struct h2_stream *st, size_t n)
{
    st->up.owed += n;
    give_back(st, &st->up, n);
    st->thrown += n;
    /* Not with the response: there are clients that forget it then. */
    if (st->is_answered && st->thrown > GRACE)
        h2_reset_client(st, NGHTTP2_NO_ERROR);
}

void h2_reset_server(struct h2_stream *st, uint32_t code)
{
    nghttp2_session *s = st->h->server;

    if (st->server == H2_NONE)
        return;
    /* It may never have been sent, or be answered meanwhile: nothing leads back to the stream. */
    (void)nghttp2_session_set_stream_user_data(s, st->server, NULL);
    (void)nghttp2_submit_rst_stream(s, NGHTTP2_FLAG_NONE, st->server, code);
    st->server = H2_NONE;
    h2_drop(st, &st->up);
}

void h2_reset_client(struct h2_stream *st, uint32_t code)
{
    if (st->client == H2_NONE || st->is_stopped)
        return;
    st->is_stopped = true;
    (void)nghttp2_submit_rst_stream(st->h->client, NGHTTP2_FLAG_NONE, st->client, code);
}

ssize_t h2_body(nghttp2_session *to, int32_t id, struct h2_stream *st, struct h2_way *w, uint8_t *p, size_t n, uint32_t *flags)
{
    size_t waits = w->data.len - w->at;

    n = n < waits ? n : waits;
    if (n > 0)
        memcpy(p, w->data.data + w->at, n);
    w->at += n;
    if (w->at == w->data.len) {
        buf_clear(&w->data);
        w->at = 0;
    } else if (w->at >= KEPT) {
        buf_drop(&w->data, w->at);
        w->at = 0;
    }
    give_back(st, w, n);
    if (n == waits && w->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (w->trailers != NULL) {
            nghttp2_nv nv[REQUEST_FIELDS_MAX];
            size_t nfields = h2_nv_fields(w->trailers, nv, NGHTTP2_NV_FLAG_NONE);
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (nghttp2_submit_trailer(to, id, nv, nfields) != 0)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;       /* the stream is reset: it would never end */
            h2_heads_wait(st->h, w == &st->up ? H2_SERVER : H2_CLIENT, nv, nfields);
        }
        return (ssize_t)n;
    }
    return n > 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

/* --- answers of ours ------------------------------------------------------------------------- */

void h2_answer(struct h2_stream *st, int status, const char *text)
{
    char digits[12], length[24];

    if (st->client == H2_NONE || st->has_answer)
        return;
    (void)snprintf(digits, sizeof digits, "%d", status);
    (void)snprintf(length, sizeof length, "%zu", strlen(text));
    const nghttp2_nv nv[] = {h2_nv(":status", digits, 0), h2_nv("content-type", "text/plain", 0),
                             h2_nv("content-length", length, 0), h2_nv("server", "quicksand", 0)};
    h2_drop(st, &st->down);
    st->has_answer = st->down.ended = true;
    if (!st->is_head)
        (void)buf_adds(&st->down.data, text);
    h2_submit_answer(st, nv, array_len(nv), !st->is_head);
}

void h2_refuse(struct h2_stream *st, const struct judged *j)
{
    char text[512];

    judge_refused(st->h->o->flow, j, &st->asked, text, sizeof text);
    h2_answer(st, j->status, text);
}
