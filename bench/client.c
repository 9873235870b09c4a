/*
 * client.c - the load generator's HTTP client
 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "sys/fd.h"

void client_init(struct client *c, const char *host, int port, const char *token)
{
    *c = (struct client){.fd = -1, .port = port};
    (void)snprintf(c->host, sizeof c->host, "%s", host);
    (void)snprintf(c->token, sizeof c->token, "%s", token);
    c->in_size = 1 << 20;
    c->in = mem_alloc(c->in_size);
}

void client_done(struct client *c)
{
    fd_close(&c->fd);
    free(c->in);
    c->in = NULL;
}

static int client_connect(struct client *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)c->port)};
    int one = 1;

    if (c->fd >= 0)
        return 0;
    if (inet_pton(AF_INET, c->host, &to.sin_addr) != 1)
        return -1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -1;
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0) {
        fd_close(&c->fd);
        return -1;
    }
    c->in_len = 0;
    return 0;
}

/* At least one more byte into c->in. */
static int fill(struct client *c)
{
    if (c->in_len == c->in_size) {
        c->in_size *= 2;
        c->in = mem_realloc(c->in, c->in_size);
    }
    ssize_t n;
    do
        n = recv(c->fd, c->in + c->in_len, c->in_size - c->in_len, 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return -1;
    c->in_len += (size_t)n;
    return 0;
}

static void drop(struct client *c, size_t n)
{
    memmove(c->in, c->in + n, c->in_len - n);
    c->in_len -= n;
}

static const char *find(const char *hay, size_t n, const char *needle)
{
    return memmem(hay, n, needle, strlen(needle));
}

static int need(struct client *c, size_t n)
{
    while (c->in_len < n)
        if (fill(c) < 0)
            return -1;
    return 0;
}

static int read_chunked(struct client *c, struct reply *r)
{
    for (;;) {
        const char *nl;
        while ((nl = find(c->in, c->in_len, "\r\n")) == NULL)
            if (fill(c) < 0)
                return -1;
        size_t head = (size_t)(nl - c->in) + 2;
        size_t size = strtoul(c->in, NULL, 16);
        if (need(c, head + size + 2) < 0)
            return -1;
        r->body = mem_realloc(r->body, r->len + size + 1);
        memcpy(r->body + r->len, c->in + head, size);
        r->len += size;
        r->body[r->len] = '\0';
        drop(c, head + size + 2);
        if (size == 0)
            return 0;
    }
}

static int read_reply(struct client *c, struct reply *r)
{
    const char *end;

    while ((end = find(c->in, c->in_len, "\r\n\r\n")) == NULL)
        if (fill(c) < 0)
            return -1;
    size_t head = (size_t)(end - c->in) + 4;
    char *text = mem_strndup(c->in, head);
    drop(c, head);
    r->status = (int)strtol(text + 9, NULL, 10);
    r->body = mem_zalloc(1);
    r->len = 0;

    int rc = 0;
    const char *length = strcasestr(text, "\r\ncontent-length:");
    if (strcasestr(text, "\r\ntransfer-encoding: chunked") != NULL) {
        rc = read_chunked(c, r);
    } else if (length != NULL) {
        size_t n = strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
        rc = need(c, n);
        if (rc == 0) {
            r->body = mem_realloc(r->body, n + 1);
            memcpy(r->body, c->in, n);
            r->body[n] = '\0';
            r->len = n;
            drop(c, n);
        }
    }
    free(text);
    return rc;
}

int client_call(struct client *c, const char *method, const char *path, const char *json, struct reply *ret)
{
    struct reply r = {0};

    if (client_connect(c) < 0)
        return -1;
    size_t body = json != NULL ? strlen(json) : 0;
    char *text = mem_printf("%s %s HTTP/1.1\r\nhost: %s:%d\r\nauthorization: Bearer %s\r\n"
                            "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                            method, path, c->host, c->port, c->token, body, json != NULL ? json : "");
    int rc = fd_write_all(c->fd, text, strlen(text));
    free(text);
    if (rc < 0 || read_reply(c, &r) < 0) {
        fd_close(&c->fd);
        free(r.body);
        return -1;
    }
    *ret = r;
    return 0;
}

void reply_done(struct reply *r)
{
    free(r->body);
    *r = (struct reply){0};
}

bool reply_text(const struct reply *r, const char *name, char *out, size_t size)
{
    char key[80];

    (void)snprintf(key, sizeof key, "\"%s\":", name);
    const char *p = r->body != NULL ? strstr(r->body, key) : NULL;
    if (p == NULL)
        return false;
    p += strlen(key);
    while (*p == ' ')
        p++;
    if (*p++ != '"')
        return false;
    const char *q = strchr(p, '"');
    if (q == NULL || (size_t)(q - p) >= size)
        return false;
    memcpy(out, p, (size_t)(q - p));
    out[q - p] = '\0';
    return true;
}
