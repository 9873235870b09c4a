/*
 * client.h - a blocking HTTP/1.1 keep-alive client, small enough not to show in the figures
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

struct client {
    int fd;                     /* -1 = not connected */
    char host[64];              /* numeric */
    int port;
    char token[256];
    char *in;                   /* bytes read and not used yet */
    size_t in_len, in_size;
};

struct reply {
    int status;
    char *body;                 /* owned, NUL-terminated */
    size_t len;
};

void client_init(struct client *c, const char *host, int port, const char *token);
void client_done(struct client *c);
/* One request, one complete reply. 0 or -1 (connection lost, malformed reply). */
int client_call(struct client *c, const char *method, const char *path, const char *json, struct reply *ret);
void reply_done(struct reply *r);
/* The text of a top-level string member: finds "name": "..."; ids and plain output have no escapes. */
bool reply_text(const struct reply *r, const char *name, char *out, size_t size);

#endif
