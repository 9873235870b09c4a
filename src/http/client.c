/*
 * client.c - HTTP/2 clients: connections made when needed
 *
 * More streams than the server allows on one connection open another one, so that a thousand waiting calls do not hold
 * up the next.
 */
#include "http/client.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "http/h2.h"
#include "net/addr.h"

#define CONNECTIONS_MAX 32

struct client_conn {
    struct http_client *client;     /* NULL once it is gone */
    struct client_conn *next;
    struct h2 *h2;
};

struct http_client {
    struct loop *loop;
    struct client_conn *conns;
    size_t nconns;
    struct net_addr address;
    struct err address_err;         /* code ERR_OK: the address is good */
    char authority[128];
};

static void on_gone(void *owner)
{
    struct client_conn *cc = owner;

    if (cc->client != NULL) {
        struct client_conn **at = &cc->client->conns;
        while (*at != cc)
            at = &(*at)->next;
        *at = cc->next;
        cc->client->nconns--;
    }
    free(cc);
}

struct http_client *http_client_new(struct loop *l, const char *address)
{
    struct http_client *c = mem_zalloc(sizeof *c);
    bool is_unix = strncmp(address, "unix:", 5) == 0;

    c->loop = l;
    (void)net_addr_parse(address, &c->address, &c->address_err);
    (void)snprintf(c->authority, sizeof c->authority, "%s", is_unix ? "localhost" : address);
    return c;
}

static void on_nothing(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
}

static struct client_conn *connect_one(struct http_client *c)
{
    static const struct net_conn_ops no_ops = {.on_read = on_nothing};
    struct client_conn *cc = mem_zalloc(sizeof *cc);
    struct http_conn_config conf = {.loop = c->loop, .on_gone = on_gone, .owner = cc};

    cc->client = c;
    cc->next = c->conns;
    c->conns = cc;
    c->nconns++;
    cc->h2 = h2_new(&conf, net_conn_connect(c->loop, &c->address, &no_ops, NULL));
    return cc;
}

static struct client_conn *pick(struct http_client *c)
{
    struct client_conn *usable = NULL;

    for (struct client_conn *cc = c->conns; cc != NULL; cc = cc->next) {
        if (h2_has_room(cc->h2))
            return cc;
        if (!h2_is_closing(cc->h2))
            usable = cc;
    }
    /* At the most connections, nghttp2 queues what the server does not allow yet. */
    if (usable != NULL && c->nconns >= CONNECTIONS_MAX)
        return usable;
    return connect_one(c);
}

struct http_stream *http_client_request(struct http_client *c, const char *method, const char *path,
                                        const struct http_header *h, size_t n, bool has_body,
                                        const struct http_ops *ops, void *ctx)
{
    struct http_stream *st = h2_request(pick(c)->h2, method, path, c->authority, h, n, has_body);

    http_stream_set(st, ops, ctx);
    return st;
}

struct loop *http_client_loop(const struct http_client *c)
{
    return c->loop;
}

void http_client_free(struct http_client *c)
{
    if (c == NULL)
        return;
    while (c->conns != NULL) {
        struct client_conn *cc = c->conns;
        c->conns = cc->next;
        cc->client = NULL;
        h2_free(cc->h2);
    }
    free(c);
}
