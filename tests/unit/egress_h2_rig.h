/*
 * egress_h2_rig.h - a connection of HTTP/2 that is opened, between a client and a server in memory: for unit tests
 */
#ifndef QS_TESTS_EGRESS_H2_RIG_H
#define QS_TESTS_EGRESS_H2_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <nghttp2/nghttp2.h>
#include <stdbool.h>

#include "base/buf.h"
#include "egress/open/open.h"

#define PEER_STREAMS 400

/* A stream as a peer sees it. */
struct seen {
    char head[2048];            /* "name: value\n" of all blocks; "--\n" ends each */
    struct buf body;
    bool ended, closed;
    uint32_t code;              /* once closed */
    /* What this peer sends. */
    size_t left;                /* of a body of 'x'; SIZE_MAX: never ends by itself */
    const char *text;           /* a body in one piece */
    bool has_trailers;
};

struct peer {
    nghttp2_session *s;
    struct seen streams[PEER_STREAMS];
    bool got_goaway;
    uint32_t goaway_code;
    bool holds;                 /* does not open windows */
    bool answers;               /* server: "200 ok" to each request */
    bool says_hint;
    const nghttp2_nv *answer;   /* server: in place of 200 */
    size_t nanswer;
    size_t answer_left;
    const char *answer_text;
    bool answer_has_trailers, answer_is_head_only;
};

extern const nghttp2_data_provider peer_body;      /* what a stream's `left`, `text` and `has_trailers` say */

nghttp2_nv peer_nv(const char *name, const char *value);
struct seen *peer_seen(struct peer *p, int32_t id);
void peer_respond(struct peer *p, int32_t id);
void peer_new(struct peer *p, bool is_server);
void peer_done(struct peer *p);

extern struct box box;
extern struct flow flow;
extern struct opened opened;
extern struct peer client, server;
extern unsigned ndenied, nnoted, nclosed;
extern enum egress_reason denied_reason;
extern bool client_reads, server_reads, is_broken;

/* A policy for a.test: what is below /in/ gets a secret and has it blackened, /ok* is allowed. */
int rig_setup(void **state);
int rig_teardown(void **state);
/* Moves all that moves; then what an end has for its peer alone. */
void run(void);
bool rig_into(struct peer *p, struct end *e);
/* `left`: of the body; 0: none; SIZE_MAX: without end. */
int32_t ask_of(const char *method, const char *path, const char *authority, const char *name, const char *value, size_t left);
int32_t ask(const char *path);
void expect_body(struct peer *p, int32_t id, const char *text);
void expect_answer(int32_t id, const char *status, const char *text);

#endif
