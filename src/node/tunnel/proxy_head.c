/*
 * proxy_head.c - see proxy_head.h
 */
#include "node/tunnel/proxy_head.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "node/tunnel/pass.h"

#define COOKIE "quicksand_token="

static bool is_ours(const char *name)
{
    static const char *const names[] = {
        "connection",        "keep-alive",           "proxy-connection",   "x-forwarded-for",
        "x-forwarded-proto", "x-forwarded-host",     "x-forwarded-prefix", "x-real-ip",
        "forwarded",         "x-verified-user-data", "x-quicksand-token",  "te"};

    for (size_t i = 0; i < array_len(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The value of our cookie within a Cookie header, or NULL. */
static const char *find_cookie(const char *value, size_t *ret_len)
{
    for (const char *p = value; *p != '\0'; p += strcspn(p, ";"), p += *p == ';') {
        p += strspn(p, " \t");
        if (strncmp(p, COOKIE, strlen(COOKIE)) == 0) {
            *ret_len = strcspn(p + strlen(COOKIE), "; \t");
            return p + strlen(COOKIE);
        }
    }
    return NULL;
}

/* Of an Authorization field that has a token of ours; NULL if it is the server's. */
static const char *bearer_of_ours(const struct http_header *f)
{
    bool is_bearer =
        strcmp(f->name, "authorization") == 0 && strncasecmp(f->value, "Bearer ", 7) == 0;

    return is_bearer && strncmp(f->value + 7, PASS_PREFIX, strlen(PASS_PREFIX)) == 0 ? f->value + 7
                                                                                     : NULL;
}

bool proxy_head_token(const struct h1_head *h, char *out, size_t size)
{
    for (size_t i = 0; i < h->nfields; i++) {
        const struct http_header *f = &h->fields[i];
        const char *value = NULL;
        size_t n = 0;
        if (bearer_of_ours(f) != NULL) {
            value = bearer_of_ours(f);
            n = strlen(value);
        } else if (strcmp(f->name, "x-quicksand-token") == 0) {
            value = f->value;
            n = strlen(value);
        } else if (strcmp(f->name, "cookie") == 0) {
            value = find_cookie(f->value, &n);
        }
        if (value != NULL && n < size) {
            (void)snprintf(out, size, "%.*s", (int)n, value);
            return true;
        }
    }
    return false;
}

/* The Cookie header without our cookie; nothing if that was all. */
static void put_cookies(struct buf *out, const char *value)
{
    bool first = true;

    for (const char *p = value; *p != '\0'; p += *p == ';') {
        p += strspn(p, " \t");
        size_t n = strcspn(p, ";");
        if (n > 0 && strncmp(p, COOKIE, strlen(COOKIE)) != 0) {
            buf_addf(out, "%s%.*s", first ? "cookie: " : "; ", (int)n, p);
            first = false;
        }
        p += n;
    }
    if (!first)
        buf_adds(out, "\r\n");
}

void proxy_head_write(struct buf *out, const struct h1_head *h, const struct proxy_head *x)
{
    buf_addf(out, "%s %s HTTP/1.1\r\n", h->method, x->target);
    for (size_t i = 0; i < h->nfields; i++) {
        const struct http_header *f = &h->fields[i];
        if (strcmp(f->name, "cookie") == 0)
            put_cookies(out, f->value);
        else if (!is_ours(f->name) && bearer_of_ours(f) == NULL)
            buf_addf(out, "%s: %s\r\n", f->name, f->value);
    }
    buf_addf(out, "x-forwarded-for: %s\r\nx-forwarded-proto: %s\r\nx-forwarded-host: %s\r\n",
             x->peer, x->is_tls ? "https" : "http", h->authority);
    if (x->prefix[0] != '\0')
        buf_addf(out, "x-forwarded-prefix: %s\r\n", x->prefix);
    if (x->metadata[0] != '\0')
        buf_addf(out, "x-verified-user-data: %s\r\n", x->metadata);
    buf_addf(out, "connection: %s\r\n\r\n", h->has_upgrade ? "upgrade" : "close");
}
