/*
 * client.h - the API as the commands use it: where it is, who we are, one request at a time
 *
 * Used by every command. Streams that must survive are in attach.c; this is for requests with one answer.
 */
#ifndef QS_CLI_CLIENT_H
#define QS_CLI_CLIENT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

struct client {
    char url[512];              /* without a slash at the end */
    char token[256];
    char ca_file[512];          /* "" = the system's */
    CURL *curl;                 /* owned; for one request after the other */
    bool is_ready;
};

/* Finds address and token: environment, configuration file, the machine's own admin token. */
int client_init(struct client *cl, struct err *e);
void client_done(struct client *cl);         /* safe on a zeroed object */

#define auto_client __attribute__((cleanup(client_done)))

/* A handle with address, token and TLS set; the caller owns it. `headers` takes what must be freed afterwards. */
CURL *client_handle(const struct client *cl, const char *method, const char *path, struct curl_slist **headers);
/* The error of a finished request: transport, or the error object of the answer. -1, or 0 when it succeeded. */
int client_check(const struct client *cl, CURL *h, CURLcode r, struct buf *body, struct err *e);

/* JSON in (borrowed, may be NULL), JSON out (*ret may be NULL for 204; ret itself may be NULL). */
int client_json(struct client *cl, const char *method, const char *path, const json_t *body, json_t **ret,
                struct err *e);

/* Bodies as streams: `read` fills at most n bytes and returns how many (0 = end, -1 = failed), `write` takes n bytes. */
struct client_body {
    ssize_t (*read)(void *ctx, void *p, size_t n);
    int (*write)(void *ctx, const void *p, size_t n);
    void *ctx;
    long long length;           /* of what is read; -1 = unknown */
};
int client_stream(struct client *cl, const char *method, const char *path, const struct client_body *b, json_t **ret,
                  struct err *e);

/* A formatted path whose %s are all percent-encoded; the caller frees. */
char *client_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The id of a sandbox given by id or by name (in the app `default`). */
int client_sandbox(struct client *cl, const char *id_or_name, char *out, size_t size, struct err *e);

#endif
