/*
 * client.c - requests
 */
#include "cli/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/ids.h"
#include "base/mem.h"
#include "cli/config.h"

#define ANSWER_MAX (512 * 1024 * 1024)
#define CONNECT_TIMEOUT_S 10L

int client_init(struct client *cl, struct err *e)
{
    struct cli_config conf;

    *cl = (struct client){0};
    if (cli_config_load(&conf, e) < 0)
        return -1;
    memcpy(cl->url, conf.url, sizeof cl->url);
    memcpy(cl->token, conf.token, sizeof cl->token);
    memcpy(cl->ca_file, conf.ca_file, sizeof cl->ca_file);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(e, ERR_INTERNAL, "the HTTP library cannot be started");
    cl->is_ready = true;
    return 0;
}

void client_done(struct client *cl)
{
    if (!cl->is_ready)
        return;
    if (cl->curl != NULL)
        curl_easy_cleanup(cl->curl);
    curl_global_cleanup();
    *cl = (struct client){0};
}

/* Everything of a handle but what is done with bodies. */
static void prepare(const struct client *cl, CURL *h, const char *method, const char *path, struct curl_slist **headers)
{
    auto_free char *url = mem_printf("%s%s", cl->url, path);
    auto_free char *bearer = mem_printf("authorization: Bearer %s", cl->token);

    curl_easy_reset(h);
    *headers = curl_slist_append(*headers, bearer);
    /* No "100 Continue" round trip before a body. */
    *headers = curl_slist_append(*headers, "expect:");
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, *headers);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "quicksand/" QS_VERSION);
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    if (cl->ca_file[0] != '\0')
        curl_easy_setopt(h, CURLOPT_CAINFO, cl->ca_file);
}

CURL *client_handle(const struct client *cl, const char *method, const char *path, struct curl_slist **headers)
{
    CURL *h = curl_easy_init();

    prepare(cl, h, method, path, headers);
    return h;
}

static size_t to_buf(char *p, size_t size, size_t n, void *ctx)
{
    return buf_add(ctx, p, size * n) < 0 ? 0 : size * n;
}

int client_check(const struct client *cl, CURL *h, CURLcode r, struct buf *body, struct err *e)
{
    long status = 0;

    if (r != CURLE_OK)
        return err_set(e, ERR_UNAVAILABLE, "%s: %s", cl->url, curl_easy_strerror(r));
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    if (status < 400)
        return 0;
    json_t *o = json_loadb(buf_str(body), body->len, 0, NULL);
    const json_t *error = json_object_get(o, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *hint = json_string_value(json_object_get(error, "hint"));
    if (code != NULL && message != NULL)
        (void)err_set(e, err_code_from_name(code), "%s", message);
    else
        (void)err_set(e, ERR_INTERNAL, "%s answered with status %ld", cl->url, status);
    if (e != NULL && code != NULL && hint != NULL && strcmp(hint, err_row(e->code)->hint) != 0)
        err_hint(e, "%s", hint);
    json_decref(o);
    return -1;
}

static int finish(struct client *cl, CURLcode r, struct buf *body, json_t **ret, struct err *e)
{
    json_error_t where;

    if (client_check(cl, cl->curl, r, body, e) < 0)
        return -1;
    if (ret == NULL)
        return 0;
    *ret = NULL;
    if (body->len == 0)
        return 0;
    *ret = json_loadb(body->data, body->len, JSON_ALLOW_NUL, &where);
    if (*ret == NULL)
        return err_set(e, ERR_INTERNAL, "the answer is not JSON: %s", where.text);
    return 0;
}

int client_json(struct client *cl, const char *method, const char *path, const json_t *body, json_t **ret,
                struct err *e)
{
    struct curl_slist *headers = NULL;
    auto_buf answer = {0};
    auto_free char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

    buf_init(&answer, ANSWER_MAX);
    if (cl->curl == NULL)
        cl->curl = curl_easy_init();
    if (text != NULL)
        headers = curl_slist_append(headers, "content-type: application/json");
    prepare(cl, cl->curl, method, path, &headers);
    if (text != NULL)
        curl_easy_setopt(cl->curl, CURLOPT_POSTFIELDS, text);
    curl_easy_setopt(cl->curl, CURLOPT_WRITEFUNCTION, to_buf);
    curl_easy_setopt(cl->curl, CURLOPT_WRITEDATA, &answer);
    CURLcode r = curl_easy_perform(cl->curl);
    int result = finish(cl, r, &answer, ret, e);
    curl_slist_free_all(headers);
    return result;
}

struct stream {
    CURL *h;
    const struct client_body *body;
    struct buf answer;          /* of an error, or of a request without a write function */
    bool failed;
};

static size_t stream_read(char *p, size_t size, size_t n, void *ctx)
{
    struct stream *s = ctx;
    ssize_t got = s->body->read(s->body->ctx, p, size * n);

    s->failed |= got < 0;
    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static size_t stream_write(char *p, size_t size, size_t n, void *ctx)
{
    struct stream *s = ctx;
    long status = 0;

    curl_easy_getinfo(s->h, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400 || s->body->write == NULL)
        return to_buf(p, size, n, &s->answer);
    if (s->body->write(s->body->ctx, p, size * n) < 0) {
        s->failed = true;
        return 0;
    }
    return size * n;
}

int client_stream(struct client *cl, const char *method, const char *path, const struct client_body *b, json_t **ret,
                  struct err *e)
{
    struct curl_slist *headers = NULL;
    struct stream s = {.body = b};

    buf_init(&s.answer, ANSWER_MAX);
    if (cl->curl == NULL)
        cl->curl = curl_easy_init();
    s.h = cl->curl;
    if (b->read != NULL)
        headers = curl_slist_append(headers, "content-type: application/octet-stream");
    prepare(cl, s.h, method, path, &headers);
    if (b->read != NULL) {
        curl_easy_setopt(s.h, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(s.h, CURLOPT_READFUNCTION, stream_read);
        curl_easy_setopt(s.h, CURLOPT_READDATA, &s);
        curl_easy_setopt(s.h, CURLOPT_INFILESIZE_LARGE, (curl_off_t)b->length);
        curl_easy_setopt(s.h, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
    }
    curl_easy_setopt(s.h, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(s.h, CURLOPT_WRITEFUNCTION, stream_write);
    curl_easy_setopt(s.h, CURLOPT_WRITEDATA, &s);
    CURLcode r = curl_easy_perform(s.h);
    int result = s.failed ? err_set(e, ERR_FS_IO, "reading or writing on this side failed: %s", strerror(errno))
                          : finish(cl, r, &s.answer, ret, e);
    buf_done(&s.answer);
    curl_slist_free_all(headers);
    return result;
}

static void add_encoded(struct buf *b, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
            strchr("-._~", *p) != NULL)
            (void)buf_addc(b, (char)*p);
        else
            (void)buf_addf(b, "%%%02X", *p);
    }
}

char *client_path(const char *fmt, ...)
{
    struct buf b;
    va_list ap;

    buf_init(&b, 64 * 1024);
    va_start(ap, fmt);
    for (; *fmt != '\0'; fmt++) {
        if (fmt[0] == '%' && fmt[1] == 's') {
            add_encoded(&b, va_arg(ap, const char *));
            fmt++;
        } else if (strncmp(fmt, "%lld", 4) == 0) {
            (void)buf_addf(&b, "%lld", va_arg(ap, long long));
            fmt += 3;
        } else {
            (void)buf_addc(&b, *fmt);
        }
    }
    va_end(ap);
    return buf_take(&b, NULL);
}

int client_sandbox(struct client *cl, const char *id_or_name, char *out, size_t size, struct err *e)
{
    json_t *o = NULL;

    if (id_is(id_or_name, "sb-")) {
        (void)snprintf(out, size, "%s", id_or_name);
        return 0;
    }
    auto_free char *path = client_path("/v1/apps/default/sandboxes/%s?state=any", id_or_name);
    if (client_json(cl, "GET", path, NULL, &o, e) < 0) {
        if (e != NULL && e->code == ERR_NOT_FOUND)
            (void)err_set(e, ERR_NOT_FOUND, "no sandbox has the id or name '%.80s'", id_or_name);
        return -1;
    }
    const char *id = json_string_value(json_object_get(o, "id"));
    (void)snprintf(out, size, "%s", id != NULL ? id : "");
    json_decref(o);
    return 0;
}
