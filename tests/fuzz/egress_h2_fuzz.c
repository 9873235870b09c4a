/*
 * egress_h2_fuzz.c - a client of HTTP/2 through an opened connection
 *
 * The first byte is the size of the pieces in which its bytes come; the second has what the server does. Whatever the client
 * sends, the server gets requests for the connection's name and paths that the policy allows, with the secret in them, and
 * nothing that its own reader finds broken; and the secret never comes back.
 */
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/open/open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "of-secret-1"

enum { ANSWERS = 1, ECHOES = 2, RESETS = 4, LEAVES = 8 };

static struct box box;
static struct flow flow;
static uint8_t what;

/* --- in the place of the rest of egress */

void box_deny_request(struct flow *f, enum egress_reason reason, int rule, const struct request_about *r)
{
    f->box->status.ndenials = 1;
}

void box_note_request(struct flow *f, int rule, const struct request_about *r)
{
}

void box_injected(struct flow *f, int rule, const struct request_about *r)
{
}

bool dial_is_local(const struct address *a)
{
    return false;
}

void opened_close(struct opened *o)
{
    o->state = OPENED_CLOSING;
}

void opened_failure(const struct opened *o, char *out, size_t size)
{
    out[0] = '\0';
}

/* --- the server */

struct request_seen {
    bool is_named, is_allowed, has_secret;
};

static bool is(const uint8_t *p, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(p, text, n) == 0;
}

static int on_begin_headers(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
    if (f->headers.cat == NGHTTP2_HCAT_REQUEST)
        *(struct request_seen *)arg = (struct request_seen){0};
    return 0;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name, size_t nname, const uint8_t *value,
                     size_t nvalue, uint8_t flags, void *arg)
{
    struct request_seen *r = arg;

    if (is(name, nname, ":authority"))
        r->is_named = nvalue >= 6 && strncasecmp((const char *)value, "a.test", 6) == 0;
    if (is(name, nname, ":path"))
        r->is_allowed = nvalue >= 3 && memcmp(value, "/ok", 3) == 0;
    if (is(name, nname, "authorization") && is(value, nvalue, SECRET))
        r->has_secret = true;
    if (f->headers.cat == NGHTTP2_HCAT_REQUEST && is(name, nname, "host"))
        abort();
    return 0;
}

static ssize_t read_body(nghttp2_session *s, int32_t id, uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source,
                         void *arg)
{
    const nghttp2_nv trailer = {(uint8_t *)(uintptr_t)"x-echo", (uint8_t *)(uintptr_t)SECRET, 6, strlen(SECRET), 0};

    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if ((what & ECHOES) == 0)
        return 0;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    (void)nghttp2_submit_trailer(s, id, &trailer, 1);
    memcpy(p, "it is " SECRET, 6 + strlen(SECRET));
    return (ssize_t)(6 + strlen(SECRET));
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
    const struct request_seen *r = arg;
    const nghttp2_nv ok = {(uint8_t *)(uintptr_t)":status", (uint8_t *)(uintptr_t)"200", 7, 3, 0};
    const nghttp2_data_provider provider = {.read_callback = read_body};

    if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (!r->is_named || !r->is_allowed || !r->has_secret)
        abort();
    if ((what & RESETS) != 0)
        (void)nghttp2_submit_rst_stream(s, 0, f->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    else if ((what & ANSWERS) != 0)
        (void)nghttp2_submit_response(s, f->hd.stream_id, &ok, 1, &provider);
    if ((what & LEAVES) != 0)
        (void)nghttp2_submit_goaway(s, 0, f->hd.stream_id, NGHTTP2_NO_ERROR, NULL, 0);
    return 0;
}

/* What we write must be whole: it was checked before. */
static int on_invalid(nghttp2_session *s, const nghttp2_frame *f, int code, void *arg)
{
    abort();
}

static nghttp2_session *new_server(struct request_seen *r)
{
    nghttp2_session_callbacks *cb;
    nghttp2_session *s;

    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort();
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid);
    if (nghttp2_session_server_new(&s, cb, r) != 0 || nghttp2_submit_settings(s, 0, NULL, 0) != 0)
        abort();
    nghttp2_session_callbacks_del(cb);
    return s;
}

static void set_up(void)
{
    if (box.id[0] != '\0')
        return;
    log_init("fuzz", LOG_L_ERROR);
    box = (struct box){.id = "sb-1"};
    flow = (struct flow){.box = &box, .name = "a.test", .port = 443, .protocol = POLICY_TLS, .in = -1, .out = -1};
    (void)address_parse("93.184.216.34", &flow.dialled);
    policy_init(&box.policy);
    struct policy_rule *r = policy_add(&box.policy, POLICY_INJECT, POLICY_TLS);
    policy_rule_domain(r, "a.test");
    policy_rule_path(r, "/ok*");
    r->redact = true;
    memcpy(policy_rule_inject(r, POLICY_HEADER, "Authorization", "$TOKEN", "")->secret_id, "se-1", sizeof "se-1");
    secrets_add(&box.secrets, "se-1", "TOKEN", SECRET, strlen(SECRET));
    policy_compile(&box.policy);
}

/* Both ways until nothing moves. */
static bool move(struct opened *o, nghttp2_session *server)
{
    const uint8_t *p;
    ssize_t n;

    for (bool any = true; any;) {
        any = end_queued(&o->server) > 0;
        if (any && nghttp2_session_mem_recv(server, (const uint8_t *)o->server.out.data, o->server.out.len) < 0)
            abort();
        buf_clear(&o->server.out);
        while ((n = nghttp2_session_mem_send(server, &p)) > 0) {
            any = true;
            if (!h2_down(o, p, (size_t)n))
                return false;
        }
        if (memmem(o->client.out.data, o->client.out.len, SECRET, strlen(SECRET)) != NULL)
            abort();
        buf_clear(&o->client.out);
        any = h2_has_more(o) || any;
        if (!h2_up(o, NULL, 0))
            return false;
    }
    return o->state == OPENED_PASS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct opened o = {.flow = &flow, .state = OPENED_PASS};
    struct request_seen seen = {0};

    if (size < 3)
        return 0;
    set_up();
    size_t piece = data[0] == 0 ? size : data[0];
    what = data[1];
    nghttp2_session *server = new_server(&seen);
    end_init(&o.client, -1, NULL, 0);
    end_init(&o.server, -1, NULL, 0);
    bool goes_on = h2_start(&o) && move(&o, server);
    for (size_t at = 2; at < size && goes_on; at += piece)
        goes_on = h2_up(&o, data + at, size - at < piece ? size - at : piece) && move(&o, server);
    if (o.state == OPENED_PASS && goes_on)
        (void)h2_client_eof(&o);
    h2_free(&o);
    end_done(&o.client);
    end_done(&o.server);
    nghttp2_session_del(server);
    return 0;
}
