/*
 * h2_up.c - the session with the client: requests
 *
 * nghttp2 has checked frames, names and values of fields, that pseudo fields are there and in order, and lengths of bodies.
 */
#include <string.h>

#include "base/mem.h"
#include "egress/open/h2.h"
#include "egress/open/sigv4.h"

#define ABUSE (4 * HEAD_MAX)        /* a block of fields that is not even refused in words */
#define RESET_BURST 1000            /* streams that the client resets, */
#define RESET_RATE 33               /* and a second: who goes on is cut */

/* --- requests -------------------------------------------------------------------------------- */

static bool is_ours(const struct flow *f, const char *authority)
{
    char name[POLICY_DOMAIN_MAX + 1], text[POLICY_DOMAIN_MAX + 16];
    size_t n = strcspn(authority, ":"), port = authority[n] == ':' ? strlen(authority + n + 1) : 1;

    if (n >= sizeof text || port < 1 || port > 5 ||
        (authority[n] == ':' && strspn(authority + n + 1, "0123456789") != port))
        return false;
    memcpy(text, authority, n);
    text[n] = '\0';
    return policy_domain(text, false, name) == NULL && strcmp(name, f->name) == 0;
}

/* Every host that is named. */
static bool is_for_us(const struct flow *f, const struct h2_head *d)
{
    bool is_named = d->authority != NULL;

    if (is_named && !is_ours(f, d->authority))
        return false;
    for (size_t i = 0; i < d->r.nfields; i++) {
        if (strcmp(d->r.fields[i].name, "host") != 0)
            continue;
        is_named = true;
        if (!is_ours(f, d->r.fields[i].value))
            return false;
    }
    return is_named;
}

static bool has_bad_target(const struct h2_head *d)
{
    if (d->r.target == NULL || d->scheme == NULL || strcmp(d->scheme, "https") != 0)
        return true;
    for (const char *c = d->r.target; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 127)
            return true;
    return false;
}

/* What is wrong with it, whatever the policy says; status 0: nothing. */
static struct judged look(const struct flow *f, const struct h2_head *d)
{
    static const char no[] = "the request cannot be followed";

    if (d->is_over)
        return (struct judged){431, EGRESS_MALFORMED, "the request has too many fields", -1};
    if (d->r.method == NULL || strcmp(d->r.method, "CONNECT") == 0)
        return (struct judged){403, EGRESS_METHOD, no, -1};
    if (has_bad_target(d))
        return (struct judged){400, EGRESS_MALFORMED, no, -1};
    if (!is_for_us(f, d))
        return (struct judged){421, EGRESS_MISMATCH, "the request is for another name than the connection", -1};
    return (struct judged){.rule = -1};
}

static ssize_t read_up(nghttp2_session *s, int32_t id, uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source,
                       void *arg)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, id);

    return st == NULL ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : h2_body(s, id, st, &st->up, p, n, flags);
}

static void send_request(struct h2_stream *st, struct h2_head *d, bool ends)
{
    static const nghttp2_data_provider provider = {.read_callback = read_up};
    struct h2 *h = st->h;
    struct request *r = &d->r;
    nghttp2_nv nv[4 + REQUEST_FIELDS_MAX];
    const char *host = d->authority != NULL ? d->authority : request_get(r, "host");
    auto_free char *authority = mem_strdup(host != NULL ? host : h->o->flow->name);
    /* Values of secrets stay out of the tables of the compression. */
    bool is_secret = h->o->flow->box->policy.rules[st->asked.rule].action == POLICY_INJECT;
    uint8_t flags = is_secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;

    request_remove(r, "host");
    nv[0] = h2_nv(":method", r->method, 0);
    nv[1] = h2_nv(":scheme", "https", 0);
    nv[2] = h2_nv(":authority", authority, 0);
    nv[3] = h2_nv(":path", r->target, flags);
    size_t n = 4 + h2_nv_fields(r, nv + 4, flags);
    /* Not more than the server takes; who asked may ask again. */
    bool may = !h->is_lost && h->heads[H2_SERVER] <= H2_HEADS_MAX;
    int32_t id = may ? nghttp2_submit_request(h->server, NULL, nv, n, ends ? NULL : &provider, st) : H2_NONE;
    if (id < 0) {
        h2_reset_client(st, NGHTTP2_REFUSED_STREAM);        /* or numbers are used up, or the server leaves */
        return;
    }
    h2_heads_wait(h, H2_SERVER, nv, n);
    st->server = id;
}

/* Bodies are not collected here: who signs them uses HTTP/1.1, which is all that is offered where the policy signs. */
static void ask_for_h1(struct h2_stream *st)
{
    struct h2 *h = st->h;
    const struct judged j = {403, EGRESS_PROTOCOL, "a request that is signed with its body goes by HTTP/1.1", st->asked.rule};
    char text[512];

    judge_refused(h->o->flow, &j, &st->asked, text, sizeof text);
    h2_reset_client(st, NGHTTP2_HTTP_1_1_REQUIRED);
    h2_leave(h, NGHTTP2_HTTP_1_1_REQUIRED);
}

static void on_request(struct h2_stream *st, struct h2_head *d, bool ends)
{
    struct opened *o = st->h->o;
    struct judged j = look(o->flow, d);
    char text[SIGV4_HASH_SIZE > 512 ? SIGV4_HASH_SIZE : 512];
    const char *hash = NULL;

    st->is_head = d->r.method != NULL && strcmp(d->r.method, "HEAD") == 0;
    if (j.status == 0)
        judge_request(o->flow, &d->r, &st->asked, &j);
    if (j.status == 0 && st->h->server == NULL) {
        opened_failure(o, text, sizeof text);
        h2_answer(st, 502, text);
        return;
    }
    if (j.status == 0 && judge_needs_body(o->flow, &d->r, &st->asked)) {
        if (!ends) {
            ask_for_h1(st);
            return;
        }
        sigv4_hash("", 0, text);
        hash = text;
    }
    if (j.status == 0)
        judge_inject(o->flow, &d->r, hash, true, &st->asked, &j);
    if (j.status != 0) {
        h2_refuse(st, &j);
        return;
    }
    st->is_judged = true;
    send_request(st, d, ends);
}

/* --- callbacks ------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h = arg;

    h2_head_clear(&h->asking);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    /* Bodies of streams that are closed on the client's side may still be on their way to the server. */
    if (h->nstreams >= 2 * H2_STREAMS)
        (void)nghttp2_submit_rst_stream(s, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    else
        (void)h2_stream_new(h, frame->hd.stream_id);
    return 0;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t nname, const uint8_t *value,
                     size_t nvalue, uint8_t flags, void *arg)
{
    struct h2 *h = arg;

    h2_head_add(&h->asking, name, nname, value, nvalue, HEAD_MAX);
    if (h->asking.total > ABUSE) {
        h2_head_clear(&h->asking);
        (void)nghttp2_session_terminate_session(s, NGHTTP2_ENHANCE_YOUR_CALM);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
}

/* A stream that nghttp2 resets, because what is asked for breaks rules of HTTP. */
static void note_malformed(const struct h2 *h)
{
    const struct judged j = {400, EGRESS_MALFORMED, "the request cannot be followed", -1};
    struct asked nothing;
    char text[512];

    asked_init(&nothing);
    judge_refused(h->o->flow, &j, &nothing, text, sizeof text);
    asked_done(&nothing);
}

/* By itself nghttp2 would leave it out. */
static int on_invalid_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t nname,
                             const uint8_t *value, size_t nvalue, uint8_t flags, void *arg)
{
    note_malformed(arg);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void end_up(struct h2_stream *st)
{
    st->up.ended = true;
    if (st->server != H2_NONE)
        (void)nghttp2_session_resume_data(st->h->server, st->server);
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *st = frame->hd.stream_id > 0 ? nghttp2_session_get_stream_user_data(s, frame->hd.stream_id) : NULL;
    bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (frame->hd.type == NGHTTP2_GOAWAY && h->server != NULL && !h->is_lost)
        (void)nghttp2_submit_goaway(h->server, NGHTTP2_FLAG_NONE, 0, frame->goaway.error_code, NULL, 0);
    if (st == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        if (ends)
            st->up.ended = true;
        on_request(st, &h->asking, ends);
        h2_head_clear(&h->asking);
    } else if (frame->hd.type == NGHTTP2_HEADERS) {
        if (h->asking.is_over || h->asking.total > H2_TRAILERS_MAX) {
            h2_reset_server(st, NGHTTP2_CANCEL);
            h2_reset_client(st, NGHTTP2_ENHANCE_YOUR_CALM);
        } else if (st->server != H2_NONE) {
            st->up.trailers = h2_head_take(&h->asking);
        }
        if (ends)
            end_up(st);
    } else if (frame->hd.type == NGHTTP2_DATA && ends) {
        end_up(st);
    }
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, id);

    if (st == NULL) {
        (void)nghttp2_session_consume(s, id, n);
    } else if (st->server == H2_NONE) {
        h2_throw(st, n);
    } else {
        (void)buf_add(&st->up.data, p, n);
        st->up.owed += n;
        (void)nghttp2_session_resume_data(h->server, st->server);
    }
    return 0;
}

static int on_sent(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    h2_heads_gone(arg, H2_CLIENT, frame);
    if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);
    if (st != NULL)
        st->is_answered = true;
    return 0;
}

/* A response that cannot be written leaves nobody waiting. */
static int on_not_sent(nghttp2_session *s, const nghttp2_frame *frame, int code, void *arg)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);

    h2_heads_gone(arg, H2_CLIENT, frame);
    if (frame->hd.type == NGHTTP2_HEADERS && st != NULL)
        h2_reset_client(st, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(s, id);

    if (st == NULL)
        return 0;
    (void)nghttp2_session_set_stream_user_data(s, id, NULL);
    st->client = H2_NONE;
    h2_drop(st, &st->down);
    /* All was said, but perhaps not all has reached the server. */
    if (!(code == NGHTTP2_NO_ERROR && st->up.ended && st->is_answered))
        h2_reset_server(st, code);
    h2_stream_check(st);
    return 0;
}

static int on_invalid(nghttp2_session *s, const nghttp2_frame *frame, int code, void *arg)
{
    if (code == NGHTTP2_ERR_HTTP_HEADER || code == NGHTTP2_ERR_HTTP_MESSAGING)
        note_malformed(arg);
    return h2_invalid(s, arg, H2_CLIENT);
}

static nghttp2_session_callbacks *make_callbacks(void)
{
    nghttp2_session_callbacks *cb;

    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort();                /* memory is gone, as in mem.h */
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_not_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid);
    return cb;
}

void h2_client_new(struct h2 *h)
{
    static nghttp2_session_callbacks *callbacks;
    static nghttp2_option *option;
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEAD_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };

    if (callbacks == NULL) {
        callbacks = make_callbacks();
        if (nghttp2_option_new(&option) != 0)
            abort();
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_send_header_block_length(option, H2_FIELDS_MAX);
        nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESET_RATE);
    }
    if (nghttp2_session_server_new2(&h->client, callbacks, h, option) != 0)
        abort();
    h2_set_windows(h->client, h, settings, array_len(settings));
}
