/*
 * h2_down.c - the session with the server: responses
 */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "egress/open/h2.h"

#define ABUSE (2 * RESPONSE_HEAD_MAX)
#define HINTS_MAX 32            /* responses before the real one that are passed on */

static ssize_t read_down(nghttp2_session *s, int32_t id, uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source,
                         void *arg)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, id);

    return st == NULL ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : h2_body(s, id, st, &st->down, p, n, flags);
}

void h2_submit_answer(struct h2_stream *st, const nghttp2_nv *nv, size_t n, bool has_body)
{
    static const nghttp2_data_provider provider = {.read_callback = read_down};

    if (nghttp2_submit_response(st->h->client, st->client, nv, n, has_body ? &provider : NULL) == 0)
        h2_heads_wait(st->h, H2_CLIENT, nv, n);
    else
        h2_reset_client(st, NGHTTP2_INTERNAL_ERROR);
}

static struct redact *words_of(struct h2_stream *st)
{
    return st->asked.redacts ? &st->asked.words : NULL;
}

static void blacken(struct h2_stream *st, struct request *r)
{
    struct redact *words = words_of(st);

    if (words == NULL)
        return;
    for (size_t i = 0; i < r->nfields; i++) {
        redact_text(words, r->fields[i].name, strlen(r->fields[i].name));
        redact_text(words, r->fields[i].value, strlen(r->fields[i].value));
    }
}

static bool is_packed(const struct request *r)
{
    for (size_t i = 0; i < r->nfields; i++) {
        const char *name = r->fields[i].name;
        bool says = strcmp(name, "content-encoding") == 0 || strcmp(name, "grpc-encoding") == 0;
        if (says && strcasecmp(r->fields[i].value, "identity") != 0)
            return true;
    }
    return false;
}

/* In place of a response that has not begun. */
static void refuse(struct h2_stream *st, const char *text)
{
    const struct judged j = {502, EGRESS_SECRET, text, st->asked.rule};

    h2_reset_server(st, NGHTTP2_CANCEL);
    h2_refuse(st, &j);
    h2_stream_check(st);
}

/* False: the stream is gone. */
static bool on_response(struct h2_stream *st, struct h2_head *d, bool ends)
{
    char digits[4] = {(char)('0' + d->status / 100 % 10), (char)('0' + d->status / 10 % 10), (char)('0' + d->status % 10), '\0'};
    nghttp2_nv nv[1 + REQUEST_FIELDS_MAX];
    bool is_hint = d->status < 200;
    bool has_body = !ends && !is_hint && !st->is_head && d->status != 204 && d->status != 304;

    if (d->is_over) {
        h2_reset_server(st, NGHTTP2_CANCEL);
        h2_answer(st, 502, "quicksand: the response has too many fields\n");
        h2_stream_check(st);
        return false;
    }
    if (words_of(st) != NULL && has_body && is_packed(&d->r)) {
        refuse(st, "the response is packed, so that secrets in it cannot be blackened");
        return false;
    }
    if (st->client == H2_NONE || (is_hint && ++st->nhints > HINTS_MAX))
        return true;
    blacken(st, &d->r);
    nv[0] = h2_nv(":status", digits, 0);
    size_t n = 1 + h2_nv_fields(&d->r, nv + 1, 0);
    if (is_hint) {
        if (nghttp2_submit_headers(st->h->client, NGHTTP2_FLAG_NONE, st->client, NULL, nv, n, NULL) == 0)
            h2_heads_wait(st->h, H2_CLIENT, nv, n);
        return true;
    }
    st->has_answer = true;
    h2_submit_answer(st, nv, n, !ends);
    return true;
}

static void end_down(struct h2_stream *st)
{
    struct redact *words = words_of(st);

    if (st->down.ended)
        return;
    if (words != NULL)
        redact_end(words, &st->down.data);
    st->down.ended = true;
    if (st->client != H2_NONE)
        (void)nghttp2_session_resume_data(st->h->client, st->client);
}

/* --- callbacks ------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    h2_head_clear(&((struct h2 *)arg)->answering);
    return 0;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t nname, const uint8_t *value,
                     size_t nvalue, uint8_t flags, void *arg)
{
    struct h2 *h = arg;

    h2_head_add(&h->answering, name, nname, value, nvalue, RESPONSE_HEAD_MAX);
    return h->answering.total > ABUSE ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void on_headers(struct h2_stream *st, struct h2_head *d, bool ends)
{
    if (!st->has_answer) {
        if (!on_response(st, d, ends))
            return;
    } else if (d->is_over || d->total > H2_TRAILERS_MAX) {
        h2_reset_server(st, NGHTTP2_CANCEL);
        h2_reset_client(st, NGHTTP2_INTERNAL_ERROR);
        h2_stream_check(st);
        return;
    } else if (st->down.trailers == NULL) {
        blacken(st, &d->r);
        st->down.trailers = h2_head_take(d);
    }
    if (ends)
        end_down(st);
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *st = frame->hd.stream_id > 0 ? nghttp2_session_get_stream_user_data(s, frame->hd.stream_id) : NULL;
    bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (frame->hd.type == NGHTTP2_GOAWAY)
        h2_leave(h, frame->goaway.error_code);      /* no new requests; those under way go on */
    if (frame->hd.type == NGHTTP2_HEADERS && st != NULL)
        on_headers(st, &h->answering, ends);
    if (frame->hd.type == NGHTTP2_HEADERS)
        h2_head_clear(&h->answering);
    if (frame->hd.type == NGHTTP2_DATA && st != NULL && ends)
        end_down(st);
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, id);

    if (st == NULL || st->client == H2_NONE || st->is_stopped) {
        (void)nghttp2_session_consume(s, id, n);
        return 0;
    }
    struct redact *words = words_of(st);
    if (words != NULL) {
        redact_feed(words, p, n, &st->down.data);
        redact_pause(words, &st->down.data);
    } else {
        (void)buf_add(&st->down.data, p, n);
    }
    st->down.owed += n;
    (void)nghttp2_session_resume_data(h->client, st->client);
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, id);

    if (st == NULL)
        return 0;
    (void)nghttp2_session_set_stream_user_data(s, id, NULL);
    st->server = H2_NONE;
    h2_drop(st, &st->up);
    if (!st->down.ended)
        h2_reset_client(st, code);
    h2_stream_check(st);
    return 0;
}

static int on_sent(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    h2_heads_gone(arg, H2_SERVER, frame);
    return 0;
}

static int on_not_sent(nghttp2_session *s, const nghttp2_frame *frame, int code, void *arg)
{
    h2_heads_gone(arg, H2_SERVER, frame);
    return 0;
}

static int on_invalid(nghttp2_session *s, const nghttp2_frame *frame, int code, void *arg)
{
    return h2_invalid(s, arg, H2_SERVER);
}

static nghttp2_session_callbacks *make_callbacks(void)
{
    nghttp2_session_callbacks *cb;

    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort();                /* memory is gone, as in mem.h */
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_not_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid);
    return cb;
}

void h2_server_new(struct h2 *h)
{
    static nghttp2_session_callbacks *callbacks;
    static nghttp2_option *option;
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, RESPONSE_HEAD_MAX},
    };

    if (callbacks == NULL) {
        callbacks = make_callbacks();
        if (nghttp2_option_new(&option) != 0)
            abort();
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_send_header_block_length(option, H2_FIELDS_MAX);
        nghttp2_option_set_peer_max_concurrent_streams(option, H2_STREAMS);
    }
    if (nghttp2_session_client_new2(&h->server, callbacks, h, option) != 0)
        abort();
    h2_set_windows(h->server, h, settings, array_len(settings));
}
