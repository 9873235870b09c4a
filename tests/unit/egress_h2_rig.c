/*
 * egress_h2_rig.c - a connection of HTTP/2 that is opened, between a client and a server in memory
 *
 * The decisions are the real ones (judge.c); where they are noted, and what the ends write to, is stood in for here.
 */
#include "egress_h2_rig.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define PIECE 4096

struct box box;
struct flow flow;
struct opened opened;
struct peer client, server;
unsigned ndenied, nnoted, nclosed;
enum egress_reason denied_reason;
bool client_reads = true, server_reads = true, is_broken;

/* --- peers */

nghttp2_nv peer_nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value), 0};
}

struct seen *peer_seen(struct peer *p, int32_t id)
{
    assert_true(id / 2 < PEER_STREAMS);
    return &p->streams[id / 2];
}

static ssize_t body(nghttp2_session *s, int32_t id, uint8_t *p, size_t n, uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct seen *e = peer_seen(arg, id);
    size_t len = e->left < n ? e->left : n;

    if (e->text != NULL) {
        len = strlen(e->text);
        memcpy(p, e->text, len);
        e->text = NULL;
    } else {
        memset(p, 'x', len);
        if (e->left != SIZE_MAX)
            e->left -= len;
    }
    if (e->left == 0) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (e->has_trailers) {
            const nghttp2_nv t[] = {peer_nv("grpc-status", "0"), peer_nv("x-word", "of-secret-1")};
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            (void)nghttp2_submit_trailer(s, id, t, 2);
        }
    }
    return (ssize_t)len;
}

const nghttp2_data_provider peer_body = {.read_callback = body};

static int on_header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name, size_t nn, const uint8_t *value, size_t nv_,
                     uint8_t flags, void *arg)
{
    struct seen *e = peer_seen(arg, f->hd.stream_id);
    size_t at = strlen(e->head);

    (void)snprintf(e->head + at, sizeof e->head - at, "%.*s: %.*s%s\n", (int)nn, name, (int)nv_, value,
                   (flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0 ? " (secret)" : "");
    return 0;
}

void peer_respond(struct peer *p, int32_t id)
{
    const nghttp2_nv ok[] = {peer_nv(":status", "200")}, hint[] = {peer_nv(":status", "103"), peer_nv("link", "</a>")};
    struct seen *e = peer_seen(p, id);

    if (p->says_hint)
        assert_int_equal(nghttp2_submit_headers(p->s, 0, id, NULL, hint, 2, NULL), 0);
    e->left = p->answer_left;
    e->text = p->answer_text;
    e->has_trailers = p->answer_has_trailers;
    (void)nghttp2_submit_response(p->s, id, p->answer != NULL ? p->answer : ok, p->answer != NULL ? p->nanswer : 1,
                                  p->answer_is_head_only ? NULL : &peer_body);
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
    struct peer *p = arg;
    struct seen *e = peer_seen(p, f->hd.stream_id);

    if (f->hd.type == NGHTTP2_GOAWAY) {
        p->got_goaway = true;
        p->goaway_code = f->goaway.error_code;
    }
    if (f->hd.type == NGHTTP2_HEADERS) {
        size_t at = strlen(e->head);
        (void)snprintf(e->head + at, sizeof e->head - at, "--\n");
        if (p->answers && f->headers.cat == NGHTTP2_HCAT_REQUEST)
            peer_respond(p, f->hd.stream_id);
    }
    if (f->hd.stream_id > 0 && (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        (f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA))
        e->ended = true;
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *arg)
{
    struct peer *p = arg;

    (void)buf_add(&peer_seen(p, id)->body, data, n);
    if (!p->holds)
        (void)nghttp2_session_consume(s, id, n);
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
    struct seen *e = peer_seen(arg, id);

    e->closed = true;
    e->code = code;
    return 0;
}

void peer_new(struct peer *p, bool is_server)
{
    nghttp2_session_callbacks *cb;
    nghttp2_option *option;

    *p = (struct peer){0};
    for (size_t i = 0; i < PEER_STREAMS; i++)
        buf_init(&p->streams[i].body, SIZE_MAX / 2);
    assert_int_equal(nghttp2_session_callbacks_new(&cb), 0);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_http_messaging(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, 1024 * 1024);
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    if (is_server)
        assert_int_equal(nghttp2_session_server_new2(&p->s, cb, p, option), 0);
    else
        assert_int_equal(nghttp2_session_client_new2(&p->s, cb, p, option), 0);
    assert_int_equal(nghttp2_submit_settings(p->s, 0, NULL, 0), 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
}

void peer_done(struct peer *p)
{
    nghttp2_session_del(p->s);
    for (size_t i = 0; i < PEER_STREAMS; i++)
        buf_done(&p->streams[i].body);
}

/* --- in the place of the rest of egress */

void box_deny_request(struct flow *f, enum egress_reason reason, int rule, const struct request_about *r)
{
    ndenied++;
    denied_reason = reason;
    f->box->status.ndenials = 1;
}

void box_note_request(struct flow *f, int rule, const struct request_about *r)
{
    nnoted++;
}

void box_injected(struct flow *f, int rule, const struct request_about *r)
{
    f->box->status.totals.injected++;
}

bool dial_is_local(const struct address *a)
{
    return false;
}

void opened_close(struct opened *o)
{
    o->state = OPENED_CLOSING;
    nclosed++;
}

void opened_failure(const struct opened *o, char *out, size_t size)
{
    (void)snprintf(out, size, "quicksand: %s\n", o->failure);
}

/* --- what is between them */

static bool from(struct peer *p, bool (*to)(struct opened *o, const uint8_t *p, size_t n))
{
    const uint8_t *data;
    bool any = false;

    for (ssize_t n; !is_broken && (n = nghttp2_session_mem_send(p->s, &data)) > 0; any = true)
        for (ssize_t at = 0; at < n && !is_broken; at += PIECE)
            is_broken = !to(&opened, data + at, (size_t)(n - at < PIECE ? n - at : PIECE));
    return any;
}

bool rig_into(struct peer *p, struct end *e)
{
    size_t n = end_queued(e);

    if (n == 0)
        return false;
    (void)nghttp2_session_mem_recv(p->s, (const uint8_t *)e->out.data + e->out_at, n);
    buf_clear(&e->out);
    e->out_at = 0;
    return true;
}

void run(void)
{
    assert_true(is_broken || h2_up(&opened, NULL, 0));
    for (bool any = true; any && !is_broken;) {
        any = from(&client, h2_up);
        any = (server_reads && rig_into(&server, &opened.server)) || any;
        any = from(&server, h2_down) || any;
        any = (client_reads && rig_into(&client, &opened.client)) || any;
        if (h2_has_more(&opened)) {
            assert_true(h2_up(&opened, NULL, 0));
            any = any || end_queued(&opened.client) > 0;
        }
    }
}

int rig_setup(void **state)
{
    struct policy_rule *r;

    box = (struct box){.id = "sb-1"};
    flow = (struct flow){.box = &box, .name = "a.test", .port = 443, .protocol = POLICY_TLS, .in = -1, .out = -1};
    assert_true(address_parse("93.184.216.34", &flow.dialled));
    policy_init(&box.policy);
    r = policy_add(&box.policy, POLICY_INJECT, POLICY_TLS);
    policy_rule_domain(r, "a.test");
    policy_rule_path(r, "/in/*");
    r->redact = true;
    memcpy(policy_rule_inject(r, POLICY_HEADER, "Authorization", "Bearer $TOKEN", "")->secret_id, "se-1", sizeof "se-1");
    secrets_add(&box.secrets, "se-1", "TOKEN", "of-secret-1", strlen("of-secret-1"));
    r = policy_add(&box.policy, POLICY_ALLOW, POLICY_TLS);
    policy_rule_domain(r, "a.test");
    policy_rule_path(r, "/ok*");
    policy_compile(&box.policy);
    opened = (struct opened){.flow = &flow, .state = OPENED_PASS};
    end_init(&opened.client, -1, NULL, 0);
    end_init(&opened.server, -1, NULL, 0);
    ndenied = nnoted = nclosed = 0;
    client_reads = server_reads = true;
    is_broken = false;
    peer_new(&client, false);
    peer_new(&server, true);
    server.answers = true;
    server.answer_text = "ok";
    assert_true(h2_start(&opened));
    run();
    return 0;
}

int rig_teardown(void **state)
{
    h2_free(&opened);
    h2_free(&opened);
    end_done(&opened.client);
    end_done(&opened.server);
    policy_done(&box.policy);
    secrets_done(&box.secrets);
    peer_done(&client);
    peer_done(&server);
    return 0;
}

/* `left`: of the body; 0: none; SIZE_MAX: without end. */
int32_t ask_of(const char *method, const char *path, const char *authority, const char *name, const char *value, size_t left)
{
    nghttp2_nv f[] = {peer_nv(":method", method), peer_nv(":scheme", "https"), peer_nv(":authority", authority),
                      peer_nv(":path", path),
                      peer_nv(name != NULL ? name : "x-none", value != NULL ? value : "1")};
    int32_t id = nghttp2_session_get_next_stream_id(client.s);

    peer_seen(&client, id)->left = left;
    assert_int_equal(nghttp2_submit_request(client.s, NULL, f, 5, left > 0 ? &peer_body : NULL, NULL), id);
    return id;
}

int32_t ask(const char *path)
{
    return ask_of("GET", path, "a.test", NULL, NULL, 0);
}

void expect_body(struct peer *p, int32_t id, const char *text)
{
    assert_string_equal(buf_str(&peer_seen(p, id)->body), text);
}

void expect_answer(int32_t id, const char *status, const char *text)
{
    char head[64];

    (void)snprintf(head, sizeof head, ":status: %s\n", status);
    assert_memory_equal(peer_seen(&client, id)->head, head, strlen(head));
    assert_non_null(strstr(buf_str(&peer_seen(&client, id)->body), text));
    assert_true(peer_seen(&client, id)->ended);
}
