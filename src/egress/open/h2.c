/*
 * h2.c - HTTP/2 through an opened connection: its life
 */
#include "egress/open/h2.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define OUTBOUND_MAX 2000       /* frames that wait in a session: who causes more does not read */

/* --- both sessions --------------------------------------------------------------------------- */

int h2_invalid(nghttp2_session *s, struct h2 *h, enum h2_side side)
{
    if (++h->ninvalid[side] == H2_INVALID_MAX)
        (void)nghttp2_session_terminate_session(s, NGHTTP2_ENHANCE_YOUR_CALM);
    return 0;
}

static size_t size_of(const nghttp2_nv *nv, size_t n)
{
    size_t size = 0;

    for (size_t i = 0; i < n; i++)
        size += nv[i].namelen + nv[i].valuelen + 32;
    return size;
}

void h2_heads_wait(struct h2 *h, enum h2_side side, const nghttp2_nv *nv, size_t n)
{
    h->heads[side] += size_of(nv, n);
}

void h2_heads_gone(struct h2 *h, enum h2_side side, const nghttp2_frame *frame)
{
    if (frame->hd.type != NGHTTP2_HEADERS)
        return;
    size_t size = size_of(frame->headers.nva, frame->headers.nvlen);
    h->heads[side] -= size < h->heads[side] ? size : h->heads[side];
}

void h2_set_windows(nghttp2_session *s, const struct h2 *h, const nghttp2_settings_entry *settings, size_t n)
{
    bool many = h->o->flow->box->nflows > H2_MANY;
    nghttp2_settings_entry all[8] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, many ? H2_WINDOW_MANY : H2_WINDOW}};

    memcpy(all + 1, settings, n * sizeof *settings);
    (void)nghttp2_submit_settings(s, NGHTTP2_FLAG_NONE, all, n + 1);
    (void)nghttp2_session_set_local_window_size(s, NGHTTP2_FLAG_NONE, 0,
                                                many ? H2_CONNECTION_WINDOW_MANY : H2_CONNECTION_WINDOW);
}

static bool is_over(nghttp2_session *s)
{
    return !nghttp2_session_want_read(s) && !nghttp2_session_want_write(s);
}

static bool put(struct end *e, uint8_t *p, size_t n)
{
    bool ok = n == 0 || end_write(e, p, n) == 0;

    explicit_bzero(p, n);       /* there may be values of secrets in it */
    return ok;
}

/* Frames go out together: each piece is a record of TLS. False: it failed. */
static bool drain(nghttp2_session *s, struct end *e, bool *ret_any, bool *ret_full)
{
    static uint8_t out[32 * 1024];
    const uint8_t *p;
    size_t n = 0;
    ssize_t r = 0;

    for (;;) {
        *ret_full = end_queued(e) + n > END_HIGH;
        if (*ret_full || (r = nghttp2_session_mem_send(s, &p)) <= 0)
            break;
        if (n + (size_t)r > sizeof out) {
            if (!put(e, out, n))
                return false;
            n = 0;
        }
        if ((size_t)r > sizeof out) {
            if (end_write(e, p, (size_t)r) < 0)
                return false;
        } else {
            memcpy(out + n, p, (size_t)r);
            n += (size_t)r;
        }
        *ret_any = true;
    }
    return put(e, out, n) && r >= 0;
}

void h2_leave(struct h2 *h, uint32_t code)
{
    if (h->has_left)
        return;
    h->leaves = true;
    h->leave_code = code;
}

/*
 * What the server said before its goodbye reaches the client before it: there are clients that listen no more then. Whether it
 * is said now.
 */
static bool say_goodbye(struct h2 *h)
{
    if (!h->leaves || h->has_left)
        return false;
    for (const struct h2_stream *st = h->streams; st != NULL; st = st->next)
        if (st->client != H2_NONE && !st->is_stopped && (st->down.at < st->down.data.len || (st->down.ended && !st->is_answered)))
            return false;
    h->has_left = true;
    (void)nghttp2_submit_goaway(h->client, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->client),
                                h->leave_code, NULL, 0);
    return true;
}

/* The client's side is over: so is the server's. */
static bool end_both(struct h2 *h)
{
    bool any, full;

    if (h->is_over)
        return true;
    h->is_over = true;
    for (struct h2_stream *st = h->streams; st != NULL; st = st->next)
        h2_reset_server(st, NGHTTP2_CANCEL);
    if (h->server != NULL && !h->is_lost) {
        (void)nghttp2_submit_goaway(h->server, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
        (void)drain(h->server, &h->o->server, &any, &full);
        (void)end_finish(&h->o->server);
    }
    opened_close(h->o);
    return true;
}

/* No more comes from the server: what is not answered never will be. */
static void lose_server(struct h2 *h)
{
    const struct flow *f = h->o->flow;
    char text[POLICY_DOMAIN_MAX + 128];

    if (h->is_lost)
        return;
    h->is_lost = true;
    (void)snprintf(text, sizeof text, "quicksand: %s port %u: it ended the connection before it answered\n", f->name, f->port);
    h2_leave(h, NGHTTP2_NO_ERROR);
    for (struct h2_stream *st = h->streams, *next; st != NULL; st = next) {
        next = st->next;
        if (st->server == H2_NONE)
            continue;
        (void)nghttp2_session_set_stream_user_data(h->server, st->server, NULL);
        st->server = H2_NONE;
        h2_drop(st, &st->up);
        if (!st->has_answer)
            h2_answer(st, 502, text);
        else if (!st->down.ended)
            h2_reset_client(st, NGHTTP2_INTERNAL_ERROR);
        h2_stream_check(st);
    }
}

static bool is_flooded(const struct h2 *h)
{
    return nghttp2_session_get_outbound_queue_size(h->client) > OUTBOUND_MAX ||
           (h->server != NULL && nghttp2_session_get_outbound_queue_size(h->server) > OUTBOUND_MAX);
}

/* Moves what can be moved. */
static bool pump(struct h2 *h)
{
    struct opened *o = h->o;
    bool any = true;

    if (h->is_over)
        return true;
    if (is_flooded(h))
        (void)nghttp2_session_terminate_session(h->client, NGHTTP2_ENHANCE_YOUR_CALM);
    while (any) {
        any = false;
        if (!drain(h->client, &o->client, &any, &h->is_client_full))
            return false;
        if (h->server != NULL && !h->is_lost &&
            (!drain(h->server, &o->server, &any, &h->is_server_full) || is_over(h->server))) {
            lose_server(h);
            any = true;
        }
        any = any || say_goodbye(h);
    }
    return is_over(h->client) ? end_both(h) : true;
}

bool h2_start(struct opened *o)
{
    struct h2 *h = mem_zalloc(sizeof *h);

    h->o = o;
    o->h2 = h;
    h2_client_new(h);
    if (o->failure == NULL)
        h2_server_new(h);
    return pump(h);
}

void h2_free(struct opened *o)
{
    struct h2 *h = take_ptr(&o->h2);

    if (h == NULL)
        return;
    while (h->streams != NULL)
        h2_stream_free(h->streams);
    nghttp2_session_del(h->client);
    nghttp2_session_del(h->server);
    h2_head_clear(&h->asking);
    h2_head_clear(&h->answering);
    free(h);
}

bool h2_up(struct opened *o, const uint8_t *p, size_t n)
{
    struct h2 *h = o->h2;

    /* A flood of what has to be answered: there is nothing to be said to who does not listen. */
    if (n > 0 && !h->is_over && nghttp2_session_mem_recv(h->client, p, n) < 0)
        return false;
    return pump(h);
}

bool h2_down(struct opened *o, const uint8_t *p, size_t n)
{
    struct h2 *h = o->h2;

    if (n > 0 && !h->is_over && !h->is_lost && nghttp2_session_mem_recv(h->server, p, n) < 0)
        lose_server(h);
    return pump(h);
}

bool h2_wants_server(const struct opened *o)
{
    const struct h2 *h = o->h2;

    return !h->is_client_full || h->heads[H2_CLIENT] <= H2_HEADS_MAX;
}

bool h2_client_eof(struct opened *o)
{
    return end_both(o->h2);
}

bool h2_server_eof(struct opened *o)
{
    struct h2 *h = o->h2;

    if (h->is_over)
        return true;
    lose_server(h);
    return pump(h);
}

bool h2_has_more(const struct opened *o)
{
    const struct h2 *h = o->h2;

    return !h->is_over && ((h->is_client_full && end_queued(&o->client) <= END_HIGH) ||
                           (h->is_server_full && !h->is_lost && end_queued(&o->server) <= END_HIGH));
}

void h2_check(struct opened *o)
{
    static const struct judged j = {403, EGRESS_BY_RULE, "the network policy of this sandbox does not allow the request", -1};
    struct h2 *h = o->h2;

    for (struct h2_stream *st = h->is_over ? NULL : h->streams, *next; st != NULL; st = next) {
        next = st->next;
        if (!st->is_judged || st->is_stopped || judge_still(o->flow, &st->asked))
            continue;
        struct judged now = j;
        char text[512];
        now.rule = st->asked.rule;
        judge_refused(o->flow, &now, &st->asked, text, sizeof text);
        st->is_judged = false;
        h2_reset_server(st, NGHTTP2_CANCEL);
        if (st->has_answer)
            h2_reset_client(st, NGHTTP2_CANCEL);
        else
            h2_answer(st, now.status, text);
        h2_stream_check(st);
    }
}
