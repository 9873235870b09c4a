/*
 * h2.h - what the files about HTTP/2 through an opened connection share
 *
 * There are two sessions of nghttp2, one with the client and one with the server, and a stream here for each of the client's.
 * It lives until it is closed on both sides. h2.c has the life of the connection, h2_stream.c that of a stream and
 * moves bodies, h2_up.c is the session with the client (requests), h2_down.c the one with the server (responses),
 * h2_fields.c has their heads.
 */
#ifndef QS_EGRESS_OPEN_H2_H
#define QS_EGRESS_OPEN_H2_H

#include <nghttp2/nghttp2.h>

#include "egress/open/open.h"

#define H2_STREAMS 100                          /* at once, as the client is told */
#define H2_WINDOW (256 * 1024)                  /* of a stream: what of it may wait here, each way */
#define H2_CONNECTION_WINDOW (2 * 1024 * 1024)  /* of all of them */
#define H2_MANY 32                              /* connections of a sandbox; with more of them windows are those: */
#define H2_WINDOW_MANY (64 * 1024)
#define H2_CONNECTION_WINDOW_MANY (256 * 1024)
#define H2_HEADS_MAX (128 * 1024)               /* of blocks of fields that wait, each way; windows do not count them */
#define H2_TRAILERS_MAX (16 * 1024)
#define H2_FIELDS_MAX (512 * 1024)              /* of a block that we write, as nghttp2 counts it */
#define H2_INVALID_MAX 1000                     /* frames that break rules, of one side */
#define H2_NONE (-1)

/* A block of fields as it comes in. */
struct h2_head {
    struct request r;           /* pseudo fields in method and target, or nowhere */
    char *scheme, *authority;   /* owned */
    int status;
    size_t total;               /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
    bool is_over;               /* more than is followed */
};

/* A body on its way. */
struct h2_way {
    struct buf data;
    size_t at;                  /* gone on */
    size_t owed;                /* received, and not given back to the sender's windows */
    bool ended;                 /* no more comes */
    struct request *trailers;   /* owned; NULL: none */
};

struct h2_stream {
    struct h2 *h;
    struct h2_stream *prev, *next;
    int32_t client, server;     /* its numbers there; H2_NONE: not open */
    bool is_head, is_judged;
    bool has_answer;            /* the response has begun, towards the client */
    bool is_answered;           /* and has ended */
    bool is_stopped;            /* a reset is on its way to the client */
    unsigned nhints;            /* responses before the real one */
    size_t thrown;              /* bytes of a body that nobody wants */
    struct asked asked;
    struct h2_way up, down;
};

struct h2 {
    struct opened *o;
    nghttp2_session *client, *server;   /* owned; server NULL: there is none, and o->failure says why */
    struct h2_stream *streams;
    unsigned nstreams;
    struct h2_head asking, answering;   /* under way, of either session */
    unsigned ninvalid[2];               /* of client, server */
    size_t heads[2];                    /* bytes of fields that wait for client, server */
    bool is_client_full, is_server_full;    /* the end takes no more; it goes on when there is room */
    bool is_lost;                       /* the server is gone */
    bool leaves, has_left;              /* the client is to open no more streams; and is told so */
    uint32_t leave_code;
    bool is_over;
};

/* h2_stream.c */
struct h2_stream *h2_stream_new(struct h2 *h, int32_t id);
void h2_stream_free(struct h2_stream *st);
void h2_stream_check(struct h2_stream *st);         /* frees it if it is closed on both sides */
/* Ends one side of it; the stream stays. */
void h2_reset_server(struct h2_stream *st, uint32_t code);
void h2_reset_client(struct h2_stream *st, uint32_t code);
/* What waits is given up, and the sender's windows get it back. */
void h2_drop(struct h2_stream *st, struct h2_way *w);
/* Bytes of the client's that nobody wants. */
void h2_throw(struct h2_stream *st, size_t n);
/* Copies what may go on, for a session that sends a body; as nghttp2 wants it. */
ssize_t h2_body(nghttp2_session *to, int32_t id, struct h2_stream *st, struct h2_way *w, uint8_t *p, size_t n, uint32_t *flags);
/* An answer of ours, in place of the server's; not after has_answer. */
void h2_answer(struct h2_stream *st, int status, const char *text);
void h2_refuse(struct h2_stream *st, const struct judged *j);

/* h2.c */
/* The client is to use another connection for what comes. */
void h2_leave(struct h2 *h, uint32_t code);
enum h2_side { H2_CLIENT, H2_SERVER };
int h2_invalid(nghttp2_session *s, struct h2 *h, enum h2_side side);
/* Counts fields that are given to a session, until they are out, or given up. */
void h2_heads_wait(struct h2 *h, enum h2_side side, const nghttp2_nv *nv, size_t n);
void h2_heads_gone(struct h2 *h, enum h2_side side, const nghttp2_frame *frame);
/* What a new session tells and opens. */
void h2_set_windows(nghttp2_session *s, const struct h2 *h, const nghttp2_settings_entry *settings, size_t n);

/* h2_fields.c */
nghttp2_nv h2_nv(const char *name, const char *value, uint8_t flags);
size_t h2_nv_fields(const struct request *r, nghttp2_nv *nv, uint8_t flags);
void h2_head_clear(struct h2_head *d);
void h2_head_add(struct h2_head *d, const uint8_t *name, size_t nname, const uint8_t *value, size_t nvalue, size_t most);
struct request *h2_head_take(struct h2_head *d);    /* the fields, as trailers; NULL: none */

/* h2_up.c, h2_down.c */
void h2_client_new(struct h2 *h);
void h2_server_new(struct h2 *h);
void h2_submit_answer(struct h2_stream *st, const nghttp2_nv *nv, size_t n, bool has_body);

#endif
