/*
 * ecr.c - registries of Amazon ECR: an access key of AWS is exchanged for a password that is good for hours
 */
#include "image/ecr.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/mem.h"
#include "image/registry.h"
#include "json/json.h"

#define ANSWER_BYTES_MAX (64 * 1024)
#define USER "AWS"
#define TARGET "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"

/* --- where ------------------------------------------------------------------------------------------------------------------ */

static bool is_region(const char *at, size_t n)
{
    return n > 0 && n < sizeof((struct ecr_place *)0)->region && strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-") >= n;
}

bool ecr_place_read(const char *host, struct ecr_place *ret)
{
    static const struct {
        const char *before, *after, *service, *domain;
    } forms[] = {
        {".dkr.ecr.", ".amazonaws.com", "api.ecr", ".amazonaws.com"},
        {".dkr.ecr.", ".amazonaws.com.cn", "api.ecr", ".amazonaws.com.cn"},
        {".dkr.ecr-fips.", ".amazonaws.com", "ecr-fips", ".amazonaws.com"},
        {".dkr-ecr.", ".on.aws", "ecr", ".api.aws"},
    };
    size_t account = strspn(host, "0123456789");

    for (size_t i = 0; account > 0 && i < array_len(forms); i++) {
        size_t before = strlen(forms[i].before);
        if (strncmp(host + account, forms[i].before, before) != 0)
            continue;
        const char *region = host + account + before;
        size_t n = strcspn(region, ".");
        if (!is_region(region, n) || strcmp(region + n, forms[i].after) != 0)
            continue;
        (void)snprintf(ret->region, sizeof ret->region, "%.*s", (int)n, region);
        (void)snprintf(ret->url, sizeof ret->url, "https://%s.%s%s/", forms[i].service, ret->region, forms[i].domain);
        return true;
    }
    return false;
}

/* The region of the registry's own name is the right one, whatever else was said. */
static int find_place(const struct registry *r, struct ecr_place *ret, struct err *e)
{
    const char *endpoint = r->conf->registry_ecr_endpoint, *region = r->aws->region;

    if (!ecr_place_read(r->host, ret)) {
        if (*endpoint == '\0')
            return err_set(
                e, ERR_INVALID,
                "%s is no registry of Amazon ECR (ACCOUNT.dkr.ecr.REGION.amazonaws.com), so an access key "
                "of AWS is of no use there",
                r->host);
        if (!is_region(region, strlen(region)))
            return err_set(
                e, ERR_INVALID,
                "AWS_REGION is missing or no region, and the name of the registry %s has none",
                r->host);
        (void)snprintf(ret->region, sizeof ret->region, "%s", region);
    }
    if (*endpoint != '\0')
        (void)snprintf(ret->url, sizeof ret->url, "%s", endpoint);
    return 0;
}

/* --- what is answered ------------------------------------------------------------------------- */

/* Messages of AWS quote what was signed, session token and all: the name of the error alone is told. */
static int refused(struct buf *body, long status, const char *host, struct err *e)
{
    static const struct {
        const char *type, *why;
    } known[] = {
        {"UnrecognizedClientException",
         "AWS_ACCESS_KEY_ID is not one that is in force, or AWS_SESSION_TOKEN does not belong to it"},
        {"InvalidClientTokenId",
         "AWS_ACCESS_KEY_ID is not one that is in force, or AWS_SESSION_TOKEN does not belong to it"},
        {"InvalidSignatureException", "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID"},
        {"SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID"},
        {"ExpiredTokenException", "AWS_SESSION_TOKEN has expired"},
        {"ExpiredToken", "AWS_SESSION_TOKEN has expired"},
        {"RequestExpired", "the clock of this machine is wrong"},
        {"AccessDeniedException", "its owner may not do ecr:GetAuthorizationToken"},
        {"OptInRequired", "the account does not use the region"},
    };
    struct err ignored;
    auto_json *o = js_parse(buf_str(body), body->len, ANSWER_BYTES_MAX, &ignored);
    const char *type = json_string_value(json_object_get(o, "__type"));
    const char *text = json_string_value(json_object_get(o, "message"));
    char name[64] = "";

    if (type != NULL && strrchr(type, '#') != NULL)
        type = strrchr(type, '#') + 1;
    size_t n = type != NULL ? strspn(type, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;
    if (n > 0 && n < sizeof name && type[n] == '\0')
        (void)snprintf(name, sizeof name, "%s", type);
    if (name[0] == '\0')
        return err_set(e, status >= 500 ? ERR_UNAVAILABLE : ERR_DENIED,
                       "AWS (%s) does not exchange the access key for a password: it answered %ld and no reason", host, status);
    if (strstr(name, "Throttl") != NULL)
        return err_set(e, ERR_RATE, "AWS (%s) wants fewer requests (%s)", host, name);
    if (text != NULL && (strncmp(text, "Signature expired", 17) == 0 || strncmp(text, "Signature not yet current", 25) == 0))
        return err_set(
            e, ERR_DENIED,
            "AWS (%s) does not exchange the access key for a password: %s, the clock of this machine is wrong",
            host, name);
    for (size_t i = 0; i < array_len(known); i++)
        if (strcmp(known[i].type, name) == 0)
            return err_set(e, ERR_DENIED,
                           "AWS (%s) does not exchange the access key for a password: %s, %s", host,
                           name, known[i].why);
    return err_set(e, status >= 500 ? ERR_UNAVAILABLE : ERR_DENIED,
                   "AWS (%s) does not exchange the access key for a password: %s", host, name);
}

/* Base64 of "AWS:password". */
static char *read_token(const char *token)
{
    size_t n = strlen(token), len = 0;
    char *plain = mem_zalloc(n + 1), *password = NULL;

    if (base64_decode(token, n, plain, &len) && len > sizeof USER && strncmp(plain, USER ":", sizeof USER) == 0) {
        password = plain + sizeof USER;
        for (const char *at = password; at < plain + len; at++)
            if ((unsigned char)*at <= ' ' || (unsigned char)*at > 126)
                password = NULL;
    }
    char *found = password != NULL ? mem_strdup(password) : NULL;
    explicit_bzero(plain, n);
    free(plain);
    return found;
}

int ecr_answer_read(const char *text, size_t n, double now_s, char **ret_password, struct err *e)
{
    struct err ignored;
    auto_json *o = js_parse(text, n, ANSWER_BYTES_MAX, &ignored);
    const json_t *first = json_array_get(json_object_get(o, "authorizationData"), 0);
    const char *token = json_string_value(json_object_get(first, "authorizationToken"));
    const json_t *until = json_object_get(first, "expiresAt");

    if (o == NULL)
        return err_set(e, ERR_UNAVAILABLE, "what AWS answered is no JSON");
    if (token == NULL)
        return err_set(e, ERR_UNAVAILABLE, "what AWS answered has no authorizationData[0].authorizationToken");
    if (json_is_number(until) && json_number_value(until) <= now_s)
        return err_set(
            e, ERR_UNAVAILABLE,
            "the password that AWS gave out has expired already: the clock of this machine is wrong");
    *ret_password = read_token(token);
    if (*ret_password == NULL)
        return err_set(e, ERR_UNAVAILABLE, "authorizationToken of what AWS answered is not base64 of " USER ":password");
    return 0;
}

/* --- the exchange ----------------------------------------------------------------------------- */

static void set_request(struct registry_transfer *t, const struct registry *r, const struct ecr_place *place, const char *host)
{
    auto_free char *scope = mem_printf("aws:amz:%s:ecr", place->region);
    bool is_insecure = registry_is_insecure(r->conf, host);

    t->is_configured = true;
    t->headers = curl_slist_append(t->headers, "Content-Type: application/x-amz-json-1.1");
    t->headers = curl_slist_append(t->headers, "X-Amz-Target: " TARGET);
    if (r->aws->session[0] != '\0') {
        auto_free char *line = mem_printf("X-Amz-Security-Token: %s", r->aws->session);
        t->headers = curl_slist_append(t->headers, line);
        explicit_bzero(line, strlen(line));
    }
    (void)curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
    (void)curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, "{}");
    (void)curl_easy_setopt(t->curl, CURLOPT_AWS_SIGV4, scope);
    (void)curl_easy_setopt(t->curl, CURLOPT_USERNAME, r->aws->user);
    (void)curl_easy_setopt(t->curl, CURLOPT_PASSWORD, r->aws->password);
    (void)curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, is_insecure ? "http,https" : "https");
    (void)curl_easy_setopt(t->curl, CURLOPT_SSL_VERIFYPEER, is_insecure ? 0L : 1L);
    (void)curl_easy_setopt(t->curl, CURLOPT_SSL_VERIFYHOST, is_insecure ? 0L : 2L);
}

static size_t on_answer(char *p, size_t one, size_t n, void *arg)
{
    return buf_add(arg, p, n * one) < 0 ? 0 : n * one;
}

/* One try. */
static CURLcode perform(struct registry *r, struct registry_transfer *t, const struct ecr_place *place, const char *host,
                        struct buf *body)
{
    buf_clear(body);
    set_request(t, r, place, host);
    (void)curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_answer);
    (void)curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, body);
    CURLcode code = curl_easy_perform(t->curl);
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->reply.status);
    return code;
}

static int failed(const struct registry_transfer *t, CURLcode code, const char *host, struct err *e)
{
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return err_set(e, ERR_UNAVAILABLE, "the pull was cancelled");
    if (code == CURLE_WRITE_ERROR)
        return err_set(e, ERR_TOO_LARGE, "AWS (%s) answered with more than %d bytes", host, ANSWER_BYTES_MAX);
    if (code == CURLE_UNSUPPORTED_PROTOCOL)
        return err_set(e, ERR_DENIED, "registry_ecr_endpoint is no https URL, and %s is not in registry_insecure", host);
    return err_set(e, code == CURLE_OPERATION_TIMEDOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE,
                   "AWS (%s) cannot be asked for a password: %s", host,
                   t->error[0] != '\0' ? t->error : curl_easy_strerror(code));
}

static int exchange(struct registry *r, const struct ecr_place *place, const char *host, struct buf *body, struct err *e)
{
    for (unsigned tries = 0;; tries++) {
        struct registry_transfer t;
        int64_t wait_ms = 0;
        int r1 = 0;
        if (registry_transfer_begin(r, &t, place->url, "application/json", false, e) < 0)
            return -1;
        CURLcode code = perform(r, &t, place, host, body);
        bool is_over = code == CURLE_OK && t.reply.status == 200;
        if (!is_over && !registry_may_retry(&t, code, tries, &wait_ms))
            r1 = code == CURLE_OK ? refused(body, t.reply.status, host, e) : failed(&t, code, host, e);
        registry_transfer_end(&t);
        if (is_over || r1 < 0)
            return r1;
        registry_pause(r, wait_ms);
    }
}

/* "https://host:port/path" -> "host:port". */
static void host_of(const char *url, char *out, size_t size)
{
    const char *at = strstr(url, "://");

    at = at != NULL ? at + 3 : url;
    (void)snprintf(out, size, "%.*s", (int)strcspn(at, "/?"), at);
}

int ecr_login(struct registry *r, struct err *e)
{
    struct ecr_place place = {0};
    char host[160], *password = NULL;
    struct buf body;
    int r1;

    buf_init(&body, ANSWER_BYTES_MAX);
    r1 = find_place(r, &place, e);
    if (r1 == 0) {
        host_of(place.url, host, sizeof host);
        r1 = exchange(r, &place, host, &body, e);
    }
    if (r1 == 0 && ecr_answer_read(buf_str(&body), body.len, (double)clock_wall_us() / 1e6, &password, e) < 0)
        r1 = err_wrap(e, "AWS (%s)", host);
    if (body.data != NULL)
        explicit_bzero(body.data, body.len);
    buf_done(&body);
    explicit_bzero(r->aws->password, sizeof r->aws->password);
    explicit_bzero(r->aws->session, sizeof r->aws->session);
    r->aws = NULL;
    r->issued = password;
    r->user = r1 == 0 ? USER : "";
    r->password = r1 == 0 ? password : "";
    return r1;
}
