/*
 * registry.c - HTTP to a registry: addresses, tokens, redirects, retries
 */
#include "image/registry.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "base/mem.h"
#include "image/address.h"
#include "image/registry_auth.h"

#define CONNECT_TIMEOUT_S 20L
#define RETRY_FIRST_MS 500

void registry_init(struct registry *r, const struct conf *conf, const struct image_ref *ref)
{
    *r = (struct registry){.conf = conf, .ref = ref, .user = "", .password = ""};
}

void registry_done(struct registry *r)
{
    free(r->authorization);
    r->authorization = NULL;
    if (r->issued != NULL)
        explicit_bzero(r->issued, strlen(r->issued));
    free(r->issued);
    r->issued = NULL;
}

/* True if `host` is one of the words of a list. */
static bool is_listed(const char *list, const char *host)
{
    size_t n = strlen(host);

    for (const char *at = list; *at != '\0';) {
        at += strspn(at, " \t,");
        size_t len = strcspn(at, " \t,");
        if (len == n && strncasecmp(at, host, n) == 0)
            return true;
        at += len;
    }
    return false;
}

bool registry_is_insecure(const struct conf *conf, const char *host)
{
    return is_listed(conf->registry_insecure, host);
}

/* The i-th mirror of a registry out of "registry=mirror registry=mirror". */
static bool find_mirror(const char *list, const char *registry, unsigned i, char *out, size_t size)
{
    size_t n = strlen(registry);

    for (const char *at = list; *at != '\0';) {
        at += strspn(at, " \t,");
        size_t len = strcspn(at, " \t,");
        if (len > n + 1 && strncasecmp(at, registry, n) == 0 && at[n] == '=' && i-- == 0) {
            (void)snprintf(out, size, "%.*s", (int)(len - n - 1), at + n + 1);
            return true;
        }
        at += len;
    }
    return false;
}

bool registry_select(struct registry *r, unsigned i)
{
    const char *name = r->ref->registry;
    unsigned nmirrors = 0;

    while (find_mirror(r->conf->registry_mirrors, name, nmirrors, r->host, sizeof r->host))
        nmirrors++;
    if (i > nmirrors)
        return false;
    r->is_mirror = i < nmirrors;
    if (r->is_mirror)
        (void)find_mirror(r->conf->registry_mirrors, name, i, r->host, sizeof r->host);
    else
        (void)snprintf(r->host, sizeof r->host, "%s", strcmp(name, "docker.io") == 0 ? "registry-1.docker.io" : name);
    r->is_insecure = registry_is_insecure(r->conf, r->host);
    r->is_plain = r->is_insecure;
    r->is_private = false;
    free(r->authorization);
    r->authorization = NULL;
    return true;
}

char *registry_url(const struct registry *r, const char *what)
{
    return mem_printf("%s://%s/v2/%s/%s", r->is_plain ? "http" : "https", r->host, r->ref->repository, what);
}

/* --- addresses ---------------------------------------------------------------------------------------------------------- */

/* Every connection is made here, so an address is judged after names were resolved and not before. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *sa)
{
    struct registry_transfer *t = arg;
    bool local = address_is_private(&sa->addr);

    if (t->registry->conf->registry_proxy[0] == '\0' && !t->is_configured) {
        if (t->is_first_party)
            t->registry->is_private = t->registry->is_private || local;
        else if (local && !t->registry->is_private) {
            t->was_private = true;
            return CURL_SOCKET_BAD;
        }
    }
    return socket(sa->family, sa->socktype | SOCK_CLOEXEC, sa->protocol);
}

/* --- one transfer ------------------------------------------------------------------------------------------------------- */

static void take_header(const char *line, size_t n, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);

    if (n <= len || strncasecmp(line, name, len) != 0)
        return;
    line += len;
    n -= len;
    while (n > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    if (n < size) {
        memcpy(out, line, n);
        out[n] = '\0';
    }
}

/* Seconds, or a date. */
static long read_wait(const char *text, time_t now)
{
    if (text[0] >= '0' && text[0] <= '9')
        return strtol(text, NULL, 10);
    time_t at = curl_getdate(text, NULL);
    if (at < 0)
        return -1;
    return at > now ? (long)(at - now) : 0;
}

static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
    struct registry_transfer *t = arg;
    struct registry_reply *reply = &t->reply;
    char digest[128] = "", wait[32] = "";

    n *= one;
    if (n > 5 && memcmp(p, "HTTP/", 5) == 0)    /* of the last answer, if there were several */
        *reply = (struct registry_reply){.retry_after_s = -1};
    take_header(p, n, "content-type:", reply->type, sizeof reply->type);
    take_header(p, n, "docker-content-digest:", digest, sizeof digest);
    take_header(p, n, "www-authenticate:", reply->challenge, sizeof reply->challenge);
    take_header(p, n, "retry-after:", wait, sizeof wait);
    if (image_digest_is_valid(digest))
        memcpy(reply->digest, digest, sizeof reply->digest);
    if (wait[0] != '\0')
        reply->retry_after_s = read_wait(wait, time(NULL));
    return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct registry_transfer *t = arg;

    return t->registry->is_cancelled(t->registry->arg) ? 1 : 0;
}

static void add_header(struct registry_transfer *t, const char *name, const char *value)
{
    auto_free char *line = mem_printf("%s: %s", name, value);

    t->headers = curl_slist_append(t->headers, line);
}

static void set_security(struct registry_transfer *t)
{
    const struct conf *conf = t->registry->conf;

    if (t->registry->is_insecure && t->is_first_party) {
        (void)curl_easy_setopt(t->curl, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)curl_easy_setopt(t->curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (conf->registry_ca[0] != '\0')
        (void)curl_easy_setopt(t->curl, CURLOPT_CAINFO, conf->registry_ca);
    (void)curl_easy_setopt(t->curl, CURLOPT_PROXY, conf->registry_proxy);   /* "" = none, whatever the environment says */
    if (conf->registry_no_proxy[0] != '\0')
        (void)curl_easy_setopt(t->curl, CURLOPT_NOPROXY, conf->registry_no_proxy);
    /* A redirect from TLS to plain text would show the bytes, and what they are of, to everybody on the way. */
    (void)curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, t->registry->is_insecure ? "http,https" : "https");
}

int registry_transfer_begin(struct registry *r, struct registry_transfer *t, const char *url,
                            const char *accept, bool first_party, struct err *e)
{
    *t = (struct registry_transfer){.registry = r, .is_first_party = first_party, .reply.retry_after_s = -1};
    t->curl = curl_easy_init();
    if (t->curl == NULL)
        return err_set(e, ERR_INTERNAL, "libcurl cannot be set up");
    set_security(t);
    (void)curl_easy_setopt(t->curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "quicksand/" QS_VERSION);
    (void)curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    (void)curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_LIMIT, 16L);
    (void)curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_TIME, (long)r->conf->registry_stall_s);
    (void)curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, t->error);
    (void)curl_easy_setopt(t->curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    (void)curl_easy_setopt(t->curl, CURLOPT_OPENSOCKETDATA, t);
    (void)curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t);
    (void)curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
    add_header(t, "Accept", accept != NULL ? accept : "*/*");
    if (first_party && r->authorization != NULL)
        t->headers = curl_slist_append(t->headers, r->authorization);
    (void)curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
    return 0;
}

void registry_transfer_end(struct registry_transfer *t)
{
    if (t->curl != NULL)
        curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
    t->curl = NULL;
    t->headers = NULL;
}

char *registry_redirect(struct registry_transfer *t, struct err *e)
{
    const char *url = NULL;

    (void)curl_easy_getinfo(t->curl, CURLINFO_REDIRECT_URL, &url);
    if (url == NULL) {
        (void)err_set(e, ERR_UNAVAILABLE, "the registry %s answered with a redirect to nowhere", t->registry->host);
        return NULL;
    }
    return mem_strdup(url);
}

bool registry_may_retry(const struct registry_transfer *t, CURLcode code, unsigned tries, int64_t *ret_wait_ms)
{
    long status = t->reply.status;
    bool may = code == CURLE_OK ? status == 429 || status == 408 || status >= 500
                                : code != CURLE_ABORTED_BY_CALLBACK && code != CURLE_WRITE_ERROR && !t->was_private &&
                                      code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_UNSUPPORTED_PROTOCOL &&
                                      code != CURLE_SSL_CACERT_BADFILE && code != CURLE_URL_MALFORMAT &&
                                      code != CURLE_COULDNT_RESOLVE_HOST;

    if (!may || tries + 1 >= REGISTRY_TRIES)
        return false;
    *ret_wait_ms = (int64_t)RETRY_FIRST_MS << tries;
    if (code == CURLE_OK && t->reply.retry_after_s >= 0) {
        if (t->reply.retry_after_s > REGISTRY_WAIT_MAX_S)
            return false;
        *ret_wait_ms = t->reply.retry_after_s * 1000;
    }
    return true;
}

int registry_failed(const struct registry_transfer *t, CURLcode code, const char *what, struct err *e)
{
    const char *host = t->registry->host;
    long status = t->reply.status;

    if (code == CURLE_ABORTED_BY_CALLBACK)
        return err_set(e, ERR_UNAVAILABLE, "the pull was cancelled");
    if (t->was_private)
        return err_set(e, ERR_DENIED, "the registry %s sent us to a private address for %s, which is not followed", host, what);
    if (code == CURLE_UNSUPPORTED_PROTOCOL)
        return err_set(e, ERR_DENIED, "the registry %s sent us from TLS to plain HTTP for %s, which is not followed", host, what);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ERR_TIMEOUT, "the registry %s stalled while sending %s: %s", host, what, t->error);
    if (code != CURLE_OK)
        return err_set(e, ERR_UNAVAILABLE, "%s cannot be had from %s: %s", what, host,
                       t->error[0] != '\0' ? t->error : curl_easy_strerror(code));
    if (status == 404)
        return err_set(e, ERR_NOT_FOUND, "%s is not in the registry %s", what, host);
    if (status == 429)
        return err_set(e, ERR_RATE, "the registry %s wants fewer requests (it said to wait %ld s)", host,
                       t->reply.retry_after_s >= 0 ? t->reply.retry_after_s : 0);
    if (status == 401 || status == 403)
        return err_set(e, ERR_DENIED, "the registry %s does not give out %s %s", host, what,
                       t->registry->user[0] != '\0' || t->registry->password[0] != '\0' ? "for these credentials"
                                                                                       : "without credentials");
    return err_set(e, ERR_UNAVAILABLE, "the registry %s answered %ld for %s", host, status, what);
}

/* --- one after the other ------------------------------------------------------------------------------------------------ */

struct into {
    struct buf *body;
    size_t max;
    bool is_over;
};

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct into *in = arg;

    n *= one;
    if (in->body->len + n > in->max || buf_add(in->body, p, n) < 0) {
        in->is_over = true;
        return 0;
    }
    return n;
}

static CURLcode perform(struct registry_transfer *t, struct into *in)
{
    buf_clear(in->body);
    (void)curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, in);
    CURLcode code = curl_easy_perform(t->curl);
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->reply.status);
    return code;
}

void registry_pause(struct registry *r, int64_t ms)
{
    for (; ms > 0 && !r->is_cancelled(r->arg); ms -= 100)
        (void)poll(NULL, 0, ms < 100 ? (int)ms : 100);
}

/* Plain HTTP where TLS was meant: an insecure registry may speak either. */
static bool try_tls(struct registry *r, CURLcode code)
{
    if (!r->is_insecure || !r->is_plain ||
        (code != CURLE_GOT_NOTHING && code != CURLE_RECV_ERROR && code != CURLE_WEIRD_SERVER_REPLY))
        return false;
    r->is_plain = false;
    return true;
}

int registry_get(struct registry *r, const char *url, const char *accept, size_t max, struct buf *body,
                 struct registry_reply *reply, struct err *e)
{
    auto_free char *at = mem_strdup(url);
    unsigned tries = 0, redirects = 0;
    bool was_authorized = false, first_party = true;

    for (;;) {
        struct registry_transfer t;
        struct into in = {body, max, false};
        int64_t wait_ms = 0;
        int r1 = -1;
        if (registry_transfer_begin(r, &t, at, accept, first_party, e) < 0)
            return -1;
        CURLcode code = perform(&t, &in);
        long status = t.reply.status;
        *reply = t.reply;
        if (in.is_over) {
            (void)err_set(e, ERR_TOO_LARGE, "the registry %s sent more than %zu bytes for %s", r->host, max, url);
        } else if (code == CURLE_OK && status >= 200 && status < 300) {
            registry_transfer_end(&t);
            return 0;
        } else if (code == CURLE_OK && status == 401 && first_party && !was_authorized) {
            was_authorized = true;
            r1 = registry_authorize(r, reply, e);
        } else if (code == CURLE_OK && status >= 301 && status <= 308 && status != 304) {
            free(at);
            at = ++redirects > REGISTRY_REDIRECTS ? NULL : registry_redirect(&t, e);
            if (redirects > REGISTRY_REDIRECTS)
                (void)err_set(e, ERR_UNAVAILABLE, "the registry %s redirects more than %d times", r->host, REGISTRY_REDIRECTS);
            first_party = false;
            r1 = at != NULL ? 0 : -1;
        } else if (try_tls(r, code)) {
            auto_free char *rest = mem_strdup(strstr(at, "://") + 3);
            free(at);
            at = mem_printf("https://%s", rest);
            r1 = 0;
        } else if (registry_may_retry(&t, code, tries, &wait_ms)) {
            tries++;
            r1 = 0;
        } else {
            (void)registry_failed(&t, code, "it", e);
        }
        registry_transfer_end(&t);
        if (r1 < 0)
            return -1;
        registry_pause(r, wait_ms);
    }
}
