/*
 * registry_auth.c - what a registry asks for before it answers: credentials, or a token from somewhere else
 */
#include "image/registry_auth.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/mem.h"
#include "image/ecr.h"
#include "image/registry.h"
#include "json/json.h"

#define TOKEN_BYTES_MAX (256 * 1024)

static const char *skip_blank(const char *at)
{
    return at + strspn(at, " \t,");
}

/* The value of a parameter, quoted or not; returns what follows it, NULL if it does not end or does not fit. */
static const char *read_value(const char *at, char *out, size_t size)
{
    size_t n = 0;

    if (*at != '"') {
        n = strcspn(at, ", \t");
        if (n >= size)
            return NULL;
        memcpy(out, at, n);
        out[n] = '\0';
        return at + n;
    }
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        if (*at == '\0' || n + 1 >= size)
            return NULL;
        out[n++] = *at;
    }
    out[n] = '\0';
    return at + 1;
}

bool registry_challenge_read(const char *text, struct registry_challenge *ret)
{
    char ignored[1024];

    memset(ret, 0, sizeof *ret);
    const char *at = skip_blank(text);
    size_t n = strcspn(at, " \t");
    ret->is_basic = n == 5 && strncasecmp(at, "basic", 5) == 0;
    ret->is_bearer = n == 6 && strncasecmp(at, "bearer", 6) == 0;
    if (!ret->is_basic && !ret->is_bearer)
        return false;
    for (at = skip_blank(at + n); *at != '\0'; at = skip_blank(at)) {
        size_t len = strcspn(at, "= \t,");
        char *to = ignored;
        size_t size = sizeof ignored;
        if (at[len] != '=')
            return ret->is_basic;
        if (len == 5 && strncasecmp(at, "realm", 5) == 0) {
            to = ret->realm;
            size = sizeof ret->realm;
        } else if (len == 7 && strncasecmp(at, "service", 7) == 0) {
            to = ret->service;
            size = sizeof ret->service;
        } else if (len == 5 && strncasecmp(at, "scope", 5) == 0) {
            to = ret->scope;
            size = sizeof ret->scope;
        }
        at = read_value(at + len + 1, to, size);
        if (at == NULL)
            return false;
    }
    return ret->is_basic || ret->realm[0] != '\0';
}

static void set_authorization(struct registry *r, const char *kind, const char *value)
{
    free(r->authorization);
    r->authorization = mem_printf("Authorization: %s %s", kind, value);
}

static char *basic_value(const struct registry *r)
{
    auto_free char *plain = mem_printf("%s:%s", r->user, r->password);
    size_t n = strlen(plain), len = 4 * ((n + 2) / 3);
    char *out = mem_alloc(len + 1);

    base64_encode(plain, n, out);
    out[len] = '\0';
    return out;
}

static bool has_credentials(const struct registry *r)
{
    return !r->is_mirror && (r->user[0] != '\0' || r->password[0] != '\0');
}

static char *token_url(const struct registry *r, const struct registry_challenge *c)
{
    auto_free char *scope = c->scope[0] != '\0' ? mem_strdup(c->scope)
                                                : mem_printf("repository:%s:pull", r->ref->repository);
    char *scope_text = curl_easy_escape(NULL, scope, 0);
    char *service = curl_easy_escape(NULL, c->service, 0);
    char *url = mem_printf("%s%cservice=%s&scope=%s", c->realm, strchr(c->realm, '?') != NULL ? '&' : '?',
                           service != NULL ? service : "", scope_text != NULL ? scope_text : "");

    curl_free(scope_text);
    curl_free(service);
    return url;
}

static int read_token(struct registry *r, struct buf *body, struct err *e)
{
    auto_json *o = js_parse(body->data, body->len, TOKEN_BYTES_MAX, e);

    if (o == NULL)
        return err_wrap(e, "answer of the token service of %s", r->host);
    const char *token = json_string_value(json_object_get(o, "token"));
    if (token == NULL || *token == '\0')
        token = json_string_value(json_object_get(o, "access_token"));
    if (token == NULL || *token == '\0' || strpbrk(token, "\r\n") != NULL)
        return err_set(e, ERR_DENIED, "the token service of %s gave no token", r->host);
    set_authorization(r, "Bearer", token);
    return 0;
}

static size_t on_token(char *p, size_t one, size_t n, void *arg)
{
    return buf_add(arg, p, n * one) < 0 ? 0 : n * one;
}

/* docker login keeps such a token in place of a password where a registry gave it one. */
static bool has_refresh_token(const struct registry *r)
{
    return has_credentials(r) && strcmp(r->user, "<token>") == 0;
}

static void add_form_value(struct buf *form, const char *name, const char *value)
{
    char *text = curl_easy_escape(NULL, value, 0);

    (void)buf_addf(form, "&%s=", name);
    if (text != NULL)
        (void)buf_adds(form, text);
    curl_free(text);
}

static void drop_form(struct buf *form)
{
    if (form->data != NULL)
        explicit_bzero(form->data, form->len);
    buf_done(form);
}

/* The form by which a token service is asked with a refresh token. */
static void refresh_form(const struct registry *r, const struct registry_challenge *c, struct buf *form)
{
    auto_free char *scope = c->scope[0] != '\0' ? mem_strdup(c->scope) : mem_printf("repository:%s:pull", r->ref->repository);

    buf_init(form, 64 * 1024);
    (void)buf_adds(form, "grant_type=refresh_token&client_id=quicksand");
    add_form_value(form, "service", c->service);
    add_form_value(form, "scope", scope);
    add_form_value(form, "refresh_token", r->password);
}

/* 1 = a failure that may pass: to be asked again after that time. `form` NULL: with the authorization that is set. */
static int ask_for_token(struct registry *r, const char *url, const char *form, unsigned tries,
                         int64_t *ret_wait_ms, struct err *e)
{
    struct registry_transfer t;
    auto_buf body = {0};
    int r1;

    buf_init(&body, TOKEN_BYTES_MAX);
    /* First party as to addresses: the registry names its token service by design, on its own network if it has one. But
     * credentials go there as well, so TLS is not given up for it (registry_transfer_begin). */
    if (registry_transfer_begin(r, &t, url, NULL, true, e) < 0)
        return -1;
    if (form != NULL)
        (void)curl_easy_setopt(t.curl, CURLOPT_POSTFIELDS, form);
    t.is_first_party = r->is_private;
    (void)curl_easy_setopt(t.curl, CURLOPT_WRITEFUNCTION, on_token);
    (void)curl_easy_setopt(t.curl, CURLOPT_WRITEDATA, &body);
    CURLcode code = curl_easy_perform(t.curl);
    (void)curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &t.reply.status);
    if (code == CURLE_OK && t.reply.status == 200)
        r1 = read_token(r, &body, e);
    else if (registry_may_retry(&t, code, tries, ret_wait_ms))
        r1 = 1;
    else
        r1 = registry_failed(&t, code, "a token", e);
    registry_transfer_end(&t);
    return r1;
}

static int get_token(struct registry *r, const struct registry_challenge *c, struct err *e)
{
    bool by_form = has_refresh_token(r);
    auto_free char *url = by_form ? mem_strdup(c->realm) : token_url(r, c);
    auto_free char *basic = has_credentials(r) && !by_form ? basic_value(r) : NULL;
    struct buf form = {0};
    int64_t wait_ms = 0;
    int r1 = 1;

    if (by_form)
        refresh_form(r, c, &form);
    for (unsigned tries = 0; r1 == 1; tries++) {
        registry_pause(r, wait_ms);
        free(r->authorization);
        r->authorization = NULL;
        if (basic != NULL)
            set_authorization(r, "Basic", basic);
        r1 = ask_for_token(r, url, by_form ? buf_str(&form) : NULL, tries, &wait_ms, e);
    }
    if (r1 < 0) {
        free(r->authorization);
        r->authorization = NULL;
    }
    drop_form(&form);
    return r1;
}

int registry_authorize(struct registry *r, const struct registry_reply *reply, struct err *e)
{
    struct registry_challenge c;

    if (!registry_challenge_read(reply->challenge, &c))
        return err_set(e, ERR_DENIED, "the registry %s wants a kind of authentication that is not known here: '%.80s'", r->host,
                       reply->challenge);
    if (!r->is_mirror && r->aws != NULL && ecr_login(r, e) < 0)
        return -1;
    if (c.is_bearer)
        return get_token(r, &c, e);
    if (!has_credentials(r))
        return err_set(e, ERR_DENIED, "the registry %s does not give it out without credentials", r->host);
    auto_free char *value = basic_value(r);
    set_authorization(r, "Basic", value);
    return 0;
}
