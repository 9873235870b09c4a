/*
 * h1.c - HTTP/1.1 through an opened connection
 *
 * One request at a time: the next one waits until the response to the one before is through, so that an answer of ours is
 * never out of turn and each response is known to belong to its request.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "egress/open/open.h"
#include "egress/open/sigv4.h"

#define IN_MAX (128 * 1024)
#define HEADS_A_TURN 32                 /* then other flows have their turn */
#define IN_KEPT (4 * 1024)
#define BODY_MAX (8 * 1024 * 1024)      /* of a request that is signed with its body */
#define BODIES_MAX (64 * 1024 * 1024)   /* of all such of a sandbox that are kept */

void h1_init(struct opened *o)
{
    struct h1 *h = &o->h1;

    buf_init(&h->in, SIZE_MAX / 2);
    buf_init(&h->body, BODY_MAX);
    response_init(&h->response);
    asked_init(&h->asked);
    scan_init(&o->flow->scan, o->flow->name);
    o->flow->scan.is_serial = true;
    o->flow->watched = true;
}

static void stop_collecting(struct opened *o)
{
    struct h1 *h = &o->h1;

    o->flow->box->collected -= h->body_size;
    h->body_size = 0;
    h->collects = false;
    buf_done(&h->body);
    buf_init(&h->body, BODY_MAX);
}

void h1_done(struct opened *o)
{
    struct h1 *h = &o->h1;

    stop_collecting(o);
    buf_done(&h->in);
    response_done(&h->response);
    asked_done(&h->asked);
    request_done(&h->held);
}

bool h1_wants_client(const struct opened *o)
{
    return o->h1.in.len < IN_MAX;
}

/* --- answers of ours ------------------------------------------------------------------------- */

/* last: the connection ends with it. */
static bool answer(struct opened *o, int status, const char *text, bool last)
{
    char out[1024];
    bool is_head = strcmp(o->h1.asked.method, "HEAD") == 0;
    int n = snprintf(out, sizeof out,
                     "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n%sServer: quicksand\r\n\r\n%s",
                     judge_status(status), strlen(text), last ? "Connection: close\r\n" : "", is_head ? "" : text);

    if (n < 0 || (size_t)n >= sizeof out || end_write(&o->client, out, (size_t)n) < 0)
        return false;
    if (last)
        opened_close(o);
    return true;
}

static bool refuse(struct opened *o, const struct judged *j, bool last)
{
    char text[768];

    judge_refused(o->flow, j, &o->h1.asked, text, sizeof text);
    return answer(o, j->status, text, last);
}

static bool refuse_scan(struct opened *o, enum scan_why why)
{
    struct h1 *h = &o->h1;
    const struct judged j = {
        .status = why == SCAN_MISMATCH ? 421 : why == SCAN_METHOD ? 403 : 400,
        .reason = why == SCAN_MISMATCH ? EGRESS_MISMATCH : why == SCAN_METHOD ? EGRESS_METHOD : EGRESS_MALFORMED,
        .text = why == SCAN_MISMATCH ? "the request is for another name than the connection"
                : why == SCAN_METHOD ? "requests of this kind are not passed on"
                                     : "the request cannot be followed",
        .rule = -1,
    };

    if (h->is_waiting || o->flow->scan.state != SCAN_HEAD) {
        char text[768];
        judge_refused(o->flow, &j, &h->asked, text, sizeof text);
        return false;           /* an answer would be taken for the server's */
    }
    asked_done(&h->asked);
    asked_init(&h->asked);
    return refuse(o, &j, true);
}

/* --- requests -------------------------------------------------------------------------------- */

/* Whether the connection cannot go on behind an answer of ours. */
static bool is_last(const struct opened *o, const struct request *r)
{
    const char *connection = request_get(r, "Connection");

    return o->flow->scan.state != SCAN_HEAD || r->is_http10 || (connection != NULL && strcasestr(connection, "close") != NULL);
}

static bool send_head(struct opened *o, struct request *r, const char *body_hash)
{
    struct h1 *h = &o->h1;
    struct judged j = {.rule = h->asked.rule};
    auto_buf head = {0};

    judge_inject(o->flow, r, body_hash, false, &h->asked, &j);
    if (j.status != 0)
        return refuse(o, &j, is_last(o, r));
    buf_init(&head, SIZE_MAX / 2);
    request_write(r, &head);
    bool ok = end_write(&o->server, head.data, head.len) == 0;
    explicit_bzero(head.data, head.size);
    h->is_waiting = true;
    response_begin(&h->response, strcmp(r->method, "HEAD") == 0, o->flow->scan.state == SCAN_WAIT,
                   h->asked.redacts ? &h->asked.words : NULL);
    return ok;
}

/* The body is kept until its end, because its hash is part of the head. */
static bool collect(struct opened *o, struct request *r)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct scan *s = &o->flow->scan;
    struct box *b = o->flow->box;
    struct h1 *h = &o->h1;

    if (s->state != SCAN_BODY || s->left > BODY_MAX) {
        const struct judged j = {413, EGRESS_SECRET, "a body that is signed has a length, of 8 MiB at most", h->asked.rule};
        return refuse(o, &j, true);
    }
    if (b->collected + s->left > BODIES_MAX) {
        const struct judged j = {503, EGRESS_LIMIT, "too many bodies wait to be signed", h->asked.rule};
        return refuse(o, &j, true);
    }
    h->collects = true;
    h->body_left = h->body_size = s->left;
    b->collected += s->left;
    /* Who waits for leave to send the body gets it from us. */
    if (request_get(r, "Expect") == NULL)
        return true;
    request_remove(r, "Expect");
    return end_write(&o->client, go_on, sizeof go_on - 1) == 0;
}

static bool on_request(struct opened *o, struct request *r)
{
    const struct scan *s = &o->flow->scan;
    struct h1 *h = &o->h1;
    struct judged j;

    judge_request(o->flow, r, &h->asked, &j);
    if (j.status != 0)
        return refuse(o, &j, is_last(o, r));
    if (o->failure != NULL) {
        char text[512];
        opened_failure(o, text, sizeof text);
        return answer(o, 502, text, true);
    }
    if (!judge_needs_body(o->flow, r, &h->asked))
        return send_head(o, r, NULL);
    if (s->state != SCAN_HEAD)
        return collect(o, r);
    char hash[SIGV4_HASH_SIZE];
    sigv4_hash("", 0, hash);
    return send_head(o, r, hash);
}

static bool on_head(struct opened *o, const uint8_t *p, size_t n)
{
    static const struct judged too_many = {400, EGRESS_MALFORMED, "the request has too many fields", -1};
    struct h1 *h = &o->h1;

    asked_done(&h->asked);
    asked_init(&h->asked);
    request_done(&h->held);
    bool ok = request_from_head(&h->held, p, n) ? on_request(o, &h->held) : refuse(o, &too_many, true);
    if (!h->collects)
        request_done(&h->held);
    return ok;
}

static bool on_body(struct opened *o, const uint8_t *p, size_t n)
{
    struct h1 *h = &o->h1;
    char hash[SIGV4_HASH_SIZE];
    bool ok;

    if (!h->collects)
        return end_write(&o->server, p, n) == 0;
    (void)buf_add(&h->body, p, n);
    h->body_left -= n;
    if (h->body_left > 0)
        return true;
    /* The policy may be another by now. */
    if (judge_still(o->flow, &h->asked)) {
        sigv4_hash(h->body.data, h->body.len, hash);
        ok = send_head(o, &h->held, hash);
        if (ok && h->is_waiting)
            ok = end_write(&o->server, h->body.data, h->body.len) == 0;
    } else {
        const struct judged j = {403, EGRESS_BY_RULE, "the network policy of this sandbox does not allow the request",
                                 h->asked.rule};
        ok = refuse(o, &j, is_last(o, &h->held));
    }
    request_done(&h->held);
    stop_collecting(o);
    return ok;
}

bool h1_up(struct opened *o, const uint8_t *p, size_t n)
{
    struct h1 *h = &o->h1;
    struct scan *s = &o->flow->scan;
    enum scan_why why = SCAN_MALFORMED;
    const uint8_t *out;
    size_t used, out_len;

    if (n > 0)
        (void)buf_add(&h->in, p, n);
    size_t at = 0;
    unsigned heads = 0;
    bool ok = true;
    h->is_cut = false;
    while (ok && at < h->in.len && o->state == OPENED_PASS) {
        /* Who does not read the answers gets no more of them. */
        if ((s->state == SCAN_HEAD && (h->is_waiting || end_queued(&o->client) > END_HIGH)) || end_queued(&o->server) > END_HIGH)
            break;
        h->is_cut = heads == HEADS_A_TURN;
        if (h->is_cut)
            break;
        if (!scan_feed(s, (const uint8_t *)h->in.data + at, h->in.len - at, &used, &out, &out_len, &why)) {
            ok = refuse_scan(o, why);
            break;
        }
        if (used == 0 && out_len == 0)
            break;              /* the answer to an upgrade has to come first */
        at += used;
        if (out_len > 0)
            ok = s->is_head_out ? on_head(o, out, out_len) : on_body(o, out, out_len);
        heads += s->is_head_out;
    }
    if (at > 0)
        buf_drop(&h->in, at);
    if (h->in.len == 0 && h->in.size > IN_KEPT) {
        buf_done(&h->in);
        buf_init(&h->in, SIZE_MAX / 2);
    }
    return ok;
}

/* --- responses ------------------------------------------------------------------------------- */

static bool unreadable(struct opened *o)
{
    const struct judged j = {502, EGRESS_SECRET, "the response is packed, so that secrets in it cannot be blackened",
                             o->h1.asked.rule};

    return o->h1.response.is_packed ? refuse(o, &j, true) : false;
}

bool h1_down(struct opened *o, const uint8_t *p, size_t n)
{
    struct h1 *h = &o->h1;
    struct scan *s = &o->flow->scan;
    auto_buf out = {0};

    if (!h->is_waiting) {
        opened_close(o);        /* nobody has asked: servers say goodbye like that */
        return true;
    }
    buf_init(&out, SIZE_MAX / 2);
    ssize_t used = response_feed(&h->response, p, n, &out);
    if (out.len > 0 && end_write(&o->client, out.data, out.len) < 0)
        return false;
    if (used < 0)
        return unreadable(o);
    if (s->state == SCAN_WAIT && (h->response.state == RESPONSE_OPAQUE || h->response.status >= 200))
        s->state = h->response.state == RESPONSE_OPAQUE ? SCAN_OPAQUE : SCAN_HEAD;
    if (h->response.state != RESPONSE_DONE)
        return true;
    h->is_waiting = false;
    if ((size_t)used != n) {
        opened_close(o);        /* the response is whole; what is behind it nobody has asked for */
        return true;
    }
    /* The server did not want the body, and what comes of it now might be a request to it. */
    if (s->state != SCAN_HEAD) {
        opened_close(o);
        return true;
    }
    return h1_up(o, NULL, 0);
}

bool h1_server_eof(struct opened *o)
{
    struct h1 *h = &o->h1;
    auto_buf out = {0};

    buf_init(&out, SIZE_MAX / 2);
    bool whole = !h->is_waiting || response_eof(&h->response, &out);
    if (!whole || (out.len > 0 && end_write(&o->client, out.data, out.len) < 0))
        return false;
    opened_close(o);
    return true;
}
