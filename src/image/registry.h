/*
 * registry.h - HTTP to a registry: addresses, tokens, redirects, retries
 *
 * Used by the fetching child alone (fetch.c), which has no privileges and ends with its job. One registry a child.
 */
#ifndef QS_IMAGE_REGISTRY_H
#define QS_IMAGE_REGISTRY_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"
#include "base/image_ref.h"
#include "ipc/image_proto.h"

#define REGISTRY_REDIRECTS 5
#define REGISTRY_TRIES 5            /* of a request that met a failure that may pass */
#define REGISTRY_WAIT_MAX_S 60      /* of one Retry-After; a registry that wants more is given up on */

struct registry {
    const struct conf *conf;
    const struct image_ref *ref;
    const char *user, *password;    /* "" = anonymous */
    struct image_pull *aws;         /* the access key that they are to be got for (ecr.c); NULL = none, or it has served */
    bool (*is_cancelled)(void *arg);
    void *arg;

    char host[160];                 /* of the registry or the mirror that is asked now */
    bool is_mirror;                 /* credentials are the registry's own: a mirror gets none */
    bool is_insecure;               /* plain HTTP, or a certificate of anybody */
    bool is_plain;
    bool is_private;                /* it lies on a private address itself: so may what it redirects to */
    char *authorization;            /* owned: header of the requests, NULL = none */
    char *issued;                   /* owned: the password that AWS gave out */
};

/* What an answer says besides its body. */
struct registry_reply {
    long status;
    char type[128], digest[IMAGE_DIGEST_SIZE], challenge[1024];
    long retry_after_s;             /* -1 = not said */
};

/* One transfer: a curl handle with everything that is the same for all of them. */
struct registry_transfer {
    struct registry *registry;
    CURL *curl;                     /* owned */
    struct curl_slist *headers;     /* owned */
    struct registry_reply reply;
    bool is_first_party;            /* to the registry itself, not to where it sent us */
    bool is_configured;             /* to what the configuration or AWS's own name says: any address will do */
    bool was_private;               /* refused: a redirect to a private address */
    char error[CURL_ERROR_SIZE];
};

void registry_init(struct registry *r, const struct conf *conf, const struct image_ref *ref);
void registry_done(struct registry *r);
/* Whom to ask: the mirrors of the configuration (i = 0, 1, ...), last the registry itself. false: there are no more. */
bool registry_select(struct registry *r, unsigned i);
/* "https://host/v2/repository/<what>"; the caller frees. */
char *registry_url(const struct registry *r, const char *what);

/* GET with up to `max` bytes of body; follows tokens, redirects and retries. 0 with reply->status below 300. */
int registry_get(struct registry *r, const char *url, const char *accept, size_t max, struct buf *body,
                 struct registry_reply *reply, struct err *e);

bool registry_is_insecure(const struct conf *conf, const char *host);
void registry_pause(struct registry *r, int64_t ms);    /* ends early when the pull is cancelled */

/* --- for transfers that run beside each other (download.c) ------------------------------------------------------------ */

int registry_transfer_begin(struct registry *r, struct registry_transfer *t, const char *url,
                            const char *accept, bool first_party, struct err *e);
void registry_transfer_end(struct registry_transfer *t);
/* After a 401: gets a token, or uses the credentials. -1 when there is nothing more to try. */
int registry_authorize(struct registry *r, const struct registry_reply *reply, struct err *e);
/* The place that a redirect names, to be freed, if it may be followed. */
char *registry_redirect(struct registry_transfer *t, struct err *e);
/* True for what may be better in a moment; *ret_wait_ms says when. */
bool registry_may_retry(const struct registry_transfer *t, CURLcode code, unsigned tries, int64_t *ret_wait_ms);
/* The error of a transfer that is given up. */
int registry_failed(const struct registry_transfer *t, CURLcode code, const char *what, struct err *e);

#endif
