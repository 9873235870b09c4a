/*
 * open.h - what the files about opened connections share
 *
 * A connection whose requests a rule is about is opened: TLS ends here on both sides, and each request is decided on its own.
 * open.c has the life of such a connection, tls.c its settings of TLS, judge.c the decision about a request, h1.c
 * and h2.c the two protocols.
 */
#ifndef QS_EGRESS_OPEN_OPEN_H
#define QS_EGRESS_OPEN_OPEN_H

#include "egress/egress.h"
#include "egress/open/end.h"
#include "egress/open/inject.h"
#include "egress/open/response.h"

enum opened_state {
    OPENED_HELLO,               /* what does the client offer? */
    OPENED_SERVER,              /* TLS with the server */
    OPENED_CLIENT,              /* TLS with the client, as the server takes it */
    OPENED_PASS,                /* requests and responses; without a server if TLS with it failed */
    OPENED_CLOSING,             /* the last words are on their way to the client */
};

/* A request that went on and is not answered yet, for when the policy changes. */
struct asked {
    char method[32];
    char *path;                 /* owned */
    int rule;
    bool redacts;
    struct redact words;
};

/* Whether a request may go on, and how. */
struct judged {
    int status;                 /* 0: it may; else the answer's */
    enum egress_reason reason;
    const char *text;           /* for the client; static */
    int rule;
};

struct h1 {
    struct buf in;              /* of the client, not gone on yet */
    struct response response;
    bool is_waiting;            /* for a response */
    bool is_cut;                /* more heads are here than had their turn */
    struct asked asked;
    /* A request whose body must be known before its head goes on. */
    bool collects;
    struct request held;
    struct buf body;
    uint64_t body_left;
    uint64_t body_size;         /* counted in the box */
};

struct h2;

struct opened {
    struct flow *flow;
    enum opened_state state;
    struct end client, server;
    bool is_server_ready;
    bool has_hello, offers_alpn, offers_h1, offers_h2;
    bool may_h2;
    bool is_refused;            /* what the client offers: that is noted already */
    const char *failure;        /* of TLS with the server: the answer to the first request; static, NULL = none */
    bool is_untrusted;          /* it is the server's certificate */
    bool has_asked;             /* the client has sent something after its greeting */
    int64_t greeted_ms;         /* boot clock: TLS with the client stood */
    struct h1 h1;
    struct h2 *h2;              /* NULL: HTTP/1 */
    bool passed_eof;
    bool is_drained;            /* closing: the client has taken all */
    uint64_t moved, moved_before;       /* bytes both ways, and when it was last looked whether there are more */
    struct loop_job again;      /* there is more to do, but others have their turn */
};

/* open.c */
void opened_start(struct flow *f);
void opened_go_on(struct flow *f);          /* bytes may be read again; the flow may be gone afterwards */
void opened_free(struct flow *f);           /* accepts a flow that is none */
/* Whether a request that is under way is not allowed any more. */
bool opened_is_denied(struct flow *f);
/* Ends the connection once what is queued for the client is out. */
void opened_close(struct opened *o);
/* Why there is no server, as text for the client. */
void opened_failure(const struct opened *o, char *out, size_t size);

/* tls.c */
struct open_tls;
struct open_tls *open_tls_new(const char *ca_file, struct err *e);     /* before the role gives up opening files */
void open_tls_free(struct open_tls *t);
SSL *open_tls_client(struct open_tls *t, struct opened *o);     /* the side towards the sandbox */
SSL *open_tls_server(struct open_tls *t, const struct opened *o);
/* Whether the client took our certificate for a wrong one; looks at OpenSSL's errors. */
bool open_tls_is_pinned(void);
bool open_tls_is_h2(const struct end *e);

/* judge.c */
void asked_init(struct asked *a);
void asked_done(struct asked *a);
/* The rule that decides: *a is filled in. The target gets the form that servers are asked in. */
void judge_request(struct flow *f, struct request *r, struct asked *a, struct judged *ret);
/* Puts in what the rule says. */
void judge_inject(struct flow *f, struct request *r, const char *body, bool is_http2, struct asked *a, struct judged *ret);
bool judge_needs_body(const struct flow *f, const struct request *r, const struct asked *a);
bool judge_still(struct flow *f, struct asked *a);
/* Notes a refusal; text for the client. */
void judge_refused(struct flow *f, const struct judged *j, const struct asked *a, char *out, size_t size);
const char *judge_status(int status);

/* h1.c */
void h1_init(struct opened *o);
void h1_done(struct opened *o);
/* Both move what can be moved; false: the connection is broken, or over. */
bool h1_up(struct opened *o, const uint8_t *p, size_t n);      /* n 0: look again at what waits */
bool h1_down(struct opened *o, const uint8_t *p, size_t n);
bool h1_server_eof(struct opened *o);
bool h1_wants_client(const struct opened *o);

/* h2.c */
bool h2_start(struct opened *o);
void h2_free(struct opened *o);             /* accepts one without it */
bool h2_up(struct opened *o, const uint8_t *p, size_t n);
bool h2_down(struct opened *o, const uint8_t *p, size_t n);
bool h2_client_eof(struct opened *o);
bool h2_server_eof(struct opened *o);
bool h2_wants_server(const struct opened *o);
bool h2_has_more(const struct opened *o);   /* to be written, and there is room */
/* The policy is another: requests that it does not allow end, and the connection goes on. */
void h2_check(struct opened *o);

#endif
