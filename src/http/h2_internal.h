/*
 * h2_internal.h - shared by h2.c and h2_stream.c
 */
#ifndef QS_HTTP_H2_INTERNAL_H
#define QS_HTTP_H2_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "http/h2.h"
#include "http/h2_head.h"

struct h2 {
    struct http_conn_config conf;
    nghttp2_session *session;
    struct net_conn *net;           /* NULL: detached */
    struct h2_head head;
    struct http_stream *streams;
    uint32_t nstreams;
    uint32_t peer_streams;          /* how many the peer allows at once */
    int depth;                      /* callbacks running */
    int close_errno;
    int invalid;                    /* bucket of malformed frames */
    int64_t invalid_ms;
    struct loop_timer *grace;       /* server: streams whose response is complete and whose request is not */
    bool is_grace_running;
    bool is_tls;
    bool is_dead;                   /* to be destroyed when depth is 0 */
    bool is_failed;                 /* the peer broke the protocol: say so and close */
    bool is_closing;                /* the peer takes no more requests */
};

void h2_enter(struct h2 *h);
bool h2_leave(struct h2 *h);
struct http_stream *h2_stream_new(struct h2 *h);
void h2_unlink(struct h2 *h, struct http_stream *st);

#endif
