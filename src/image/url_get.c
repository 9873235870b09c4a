/*
 * url_get.c - the process that fetches one file over HTTP for a job, under a policy
 *
 * Each address is judged when a connection is made to it, after names were resolved, and each redirect like the first URL.
 * There is no proxy: whoever connects for us would judge for us.
 */
#include "image/url_get.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ipc/policy_wire.h"
#include "sys/fd.h"

#define CONNECT_TIMEOUT_S 20L
#define REDIRECTS_MAX 10
#define TRIES 3
#define RETRY_FIRST_MS 500

struct get {
    const struct image_fetch *rq;
    const struct conf *conf;
    const struct url_validator *known;
    struct policy policy;
    int file;
    int64_t end_ms;

    char *url;                      /* owned: where we are */
    char *place;                    /* owned: the same for messages, without its query, which may be a secret */
    char host[POLICY_DOMAIN_MAX + 1];
    char path[POLICY_PATH_MAX + 1];
    bool is_literal;                /* the host is an address */
    uint16_t port;
    enum policy_protocol protocol;

    CURL *curl;
    long status;
    uint64_t bytes;
    bool is_denied, is_over, is_disk_error;
    char denied[ADDRESS_TEXT];      /* the last address that was refused */
    char error[CURL_ERROR_SIZE];
    struct url_got got;
};

/* --- may we? ---------------------------------------------------------------------------------- */

static char *part(CURLU *u, CURLUPart what, unsigned flags)
{
    char *text = NULL;

    return curl_url_get(u, what, &text, flags) == CURLUE_OK ? text : NULL;
}

static int read_host(struct get *g, const char *host, struct err *e)
{
    char bare[POLICY_DOMAIN_MAX + 3];
    struct address a;
    size_t n = strlen(host);

    if (n > 1 && host[0] == '[' && host[n - 1] == ']' && n < sizeof bare)
        (void)snprintf(bare, sizeof bare, "%.*s", (int)n - 2, host + 1);
    else
        (void)snprintf(bare, sizeof bare, "%s", host);
    g->is_literal = address_parse(bare, &a);
    const char *wrong = g->is_literal ? NULL : policy_domain(bare, false, g->host);
    return wrong != NULL ? err_set(e, ERR_INVALID, "the host of %.100s is none: %s", g->place, wrong) : 0;
}

static bool has_rules_of_requests(const struct policy *p)
{
    for (uint32_t i = 0; i < p->nrules; i++)
        if (policy_is_of_requests(&p->rules[i]))
            return true;
    return false;
}

static int read_parts(struct get *g, CURLU *u, struct err *e)
{
    char *scheme = part(u, CURLUPART_SCHEME, 0), *host = part(u, CURLUPART_HOST, 0),
         *port = part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT);
    char *path = part(u, CURLUPART_PATH, 0), *user = part(u, CURLUPART_USER, 0);
    bool was_tls = g->protocol == POLICY_TLS, is_tls = scheme != NULL && strcmp(scheme, "https") == 0;
    int r = -1;

    free(g->place);
    g->place = mem_printf("%s://%s%s", scheme != NULL ? scheme : "", host != NULL ? host : "", path != NULL ? path : "");
    if (host == NULL || path == NULL || port == NULL || (!is_tls && strcmp(scheme, "http") != 0))
        (void)err_set(e, ERR_INVALID, "%.150s is no URL of http or https", g->place);
    else if (user != NULL)
        (void)err_set(
            e, ERR_INVALID,
            "the URL has a user, which would be in the image's history: fetch it in a RUN with a secret");
    else if (was_tls && !is_tls)
        (void)err_set(e, ERR_DENIED, "a redirect leads from TLS to plain HTTP, to %.150s, and is not followed", g->place);
    else if (has_rules_of_requests(&g->policy) && !policy_path(path, strlen(path), g->path))
        (void)err_set(e, ERR_DENIED, "the path of %.150s can be read in more than one way", g->place);
    else
        r = read_host(g, host, e);
    g->port = port != NULL ? (uint16_t)strtoul(port, NULL, 10) : 0;
    g->protocol = is_tls ? POLICY_TLS : POLICY_HTTP;
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_free(user);
    return r;
}

/* Before anything is asked of anybody: a name that no rule speaks of is not looked up. */
static int check_url(struct get *g, struct err *e)
{
    CURLU *u = curl_url();
    int r = -1;

    if (u == NULL || curl_url_set(u, CURLUPART_URL, g->url, 0) != CURLUE_OK)
        (void)err_set(e, ERR_INVALID, "'%.150s' is no URL", g->url);
    else
        r = read_parts(g, u, e);
    curl_url_cleanup(u);
    if (r == 0 && !g->is_literal && !policy_resolves(&g->policy, g->host))
        return err_set(e, ERR_DENIED, "the build's network policy has no rule for the name %.100s", g->host);
    return r;
}

static bool is_of_this_host(const struct sockaddr *sa, socklen_t len)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } own = {0};
    socklen_t n = sizeof own;
    auto_close int fd = socket(sa->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, sa, len) < 0 || getsockname(fd, &own.sa, &n) < 0)
        return false;               /* then it cannot be connected to either */
    return sa->sa_family == AF_INET
               ? memcmp(&own.four.sin_addr,
                        &((const struct sockaddr_in *)(const void *)sa)->sin_addr,
                        sizeof own.four.sin_addr) == 0
               : memcmp(&own.six.sin6_addr,
                        &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr,
                        sizeof own.six.sin6_addr) == 0;
}

static bool may_connect(struct get *g, const struct sockaddr *sa, socklen_t len)
{
    struct address to = {{0}};
    struct policy_verdict v;

    if (sa->sa_family == AF_INET) {
        to.b[10] = to.b[11] = 0xff;
        memcpy(to.b + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    } else if (sa->sa_family == AF_INET6) {
        memcpy(to.b, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    } else {
        return false;
    }
    const struct policy_flow flow = {.to = &to, .name = g->is_literal ? NULL : g->host, .port = g->port, .protocol = g->protocol,
                                     .method = "GET", .path = g->path};
    policy_ask(&g->policy, &flow, &v);
    (void)address_text(&to, g->denied);
    return v.action == POLICY_ALLOW && policy_permits_address(&g->policy, v.rule, &to, is_of_this_host(sa, len));
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *sa)
{
    struct get *g = arg;

    if (!may_connect(g, &sa->addr, (socklen_t)sa->addrlen)) {
        g->is_denied = true;
        return CURL_SOCKET_BAD;
    }
    return socket(sa->family, sa->socktype | SOCK_CLOEXEC, sa->protocol);
}

/* --- one request ------------------------------------------------------------------------------ */

static void take(const char *line, size_t n, const char *name, char *out, size_t size)
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
    if (n < size && memchr(line, '\0', n) == NULL) {
        memcpy(out, line, n);
        out[n] = '\0';
    }
}

static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
    struct get *g = arg;

    n *= one;
    if (n > 5 && memcmp(p, "HTTP/", 5) == 0)
        g->got.validator = (struct url_validator){{0}, {0}};
    take(p, n, "etag:", g->got.validator.etag, sizeof g->got.validator.etag);
    take(p, n, "last-modified:", g->got.validator.modified, sizeof g->got.validator.modified);
    return n;
}

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct get *g = arg;
    long status = 0;

    n *= one;
    (void)curl_easy_getinfo(g->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return n;                   /* a page about the error */
    if (n > g->rq->max_bytes - g->bytes) {
        g->is_over = true;
        return 0;
    }
    if (fd_write_all(g->file, p, n) < 0) {
        g->is_disk_error = true;
        return 0;
    }
    g->bytes += n;
    return n;
}

static struct curl_slist *make_headers(const struct get *g)
{
    struct curl_slist *list = curl_slist_append(NULL, "Accept: */*");

    if (g->known != NULL && g->known->etag[0] != '\0') {
        auto_free char *line = mem_printf("If-None-Match: %s", g->known->etag);
        list = curl_slist_append(list, line);
    } else if (g->known != NULL && g->known->modified[0] != '\0') {
        auto_free char *line = mem_printf("If-Modified-Since: %s", g->known->modified);
        list = curl_slist_append(list, line);
    }
    return list;
}

static void set_options(struct get *g, struct curl_slist *headers)
{
    int64_t left_ms = g->end_ms - clock_boot_ms();

    (void)curl_easy_setopt(g->curl, CURLOPT_URL, g->url);
    (void)curl_easy_setopt(g->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(g->curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(g->curl, CURLOPT_USERAGENT, "quicksand/" QS_VERSION);
    (void)curl_easy_setopt(g->curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(g->curl, CURLOPT_NOSIGNAL, 1L);
    /* Connections are where requests are judged: another path of the same host is another request. */
    (void)curl_easy_setopt(g->curl, CURLOPT_FRESH_CONNECT, 1L);
    (void)curl_easy_setopt(g->curl, CURLOPT_FORBID_REUSE, 1L);
    (void)curl_easy_setopt(g->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    (void)curl_easy_setopt(g->curl, CURLOPT_LOW_SPEED_LIMIT, 16L);
    (void)curl_easy_setopt(g->curl, CURLOPT_LOW_SPEED_TIME, (long)g->conf->registry_stall_s);
    (void)curl_easy_setopt(g->curl, CURLOPT_TIMEOUT_MS, (long)(left_ms > 1 ? left_ms : 1));
    (void)curl_easy_setopt(g->curl, CURLOPT_FILETIME, 1L);
    (void)curl_easy_setopt(g->curl, CURLOPT_ERRORBUFFER, g->error);
    (void)curl_easy_setopt(g->curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    (void)curl_easy_setopt(g->curl, CURLOPT_OPENSOCKETDATA, g);
    (void)curl_easy_setopt(g->curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(g->curl, CURLOPT_HEADERDATA, g);
    (void)curl_easy_setopt(g->curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(g->curl, CURLOPT_WRITEDATA, g);
    if (g->conf->registry_ca[0] != '\0')
        (void)curl_easy_setopt(g->curl, CURLOPT_CAINFO, g->conf->registry_ca);
}

static CURLcode perform(struct get *g)
{
    struct curl_slist *headers = make_headers(g);
    curl_off_t modified = -1;

    g->is_denied = g->is_over = g->is_disk_error = false;
    g->status = 0;
    g->bytes = 0;
    g->error[0] = '\0';
    curl_easy_reset(g->curl);
    set_options(g, headers);
    if (ftruncate(g->file, 0) < 0 || lseek(g->file, 0, SEEK_SET) < 0)
        g->is_disk_error = true;
    CURLcode code = g->is_disk_error ? CURLE_WRITE_ERROR : curl_easy_perform(g->curl);
    (void)curl_easy_getinfo(g->curl, CURLINFO_RESPONSE_CODE, &g->status);
    (void)curl_easy_getinfo(g->curl, CURLINFO_FILETIME_T, &modified);
    g->got.modified_s = modified > 0 ? modified : 0;
    curl_slist_free_all(headers);
    return code;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int failed(const struct get *g, CURLcode code, struct err *e)
{
    const char *why = g->error[0] != '\0' ? g->error : curl_easy_strerror(code);

    if (g->is_disk_error)
        return err_set(e, ERR_CAPACITY, "there is no room on the disk for %.150s", g->place);
    if (g->is_over)
        return err_set(e, ERR_TOO_LARGE, "%.150s has more than %llu bytes", g->place, (unsigned long long)g->rq->max_bytes);
    if (g->is_denied && code != CURLE_OK)
        return err_set(e, ERR_DENIED,
                       "the build's network policy does not allow %.150s: port %u of %s", g->place,
                       g->port, g->denied);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ERR_TIMEOUT, "%.150s: %.100s", g->place, why);
    if (code != CURLE_OK)
        return err_set(e, ERR_UNAVAILABLE, "%.150s cannot be fetched: %.100s", g->place, why);
    if (g->status == 404 || g->status == 410)
        return err_set(e, ERR_NOT_FOUND, "there is no %.150s: the server answered %ld", g->place, g->status);
    if (g->status == 401 || g->status == 403)
        return err_set(e, ERR_DENIED, "%.150s is not given to us: the server answered %ld", g->place, g->status);
    return err_set(e, g->status == 429 ? ERR_RATE : ERR_UNAVAILABLE,
                   "%.150s cannot be fetched: the server answered %ld", g->place, g->status);
}

static bool may_retry(const struct get *g, CURLcode code)
{
    if (g->is_disk_error || g->is_over || g->is_denied || clock_boot_ms() >= g->end_ms)
        return false;
    return code == CURLE_OK ? g->status == 429 || g->status == 408 || g->status >= 500
                            : code == CURLE_COULDNT_CONNECT || code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR ||
                                  code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING;
}

static int follow(struct get *g, struct err *e)
{
    const char *next = NULL;

    (void)curl_easy_getinfo(g->curl, CURLINFO_REDIRECT_URL, &next);
    if (next == NULL)
        return err_set(e, ERR_UNAVAILABLE, "%.150s redirects to nowhere", g->place);
    char *url = mem_strdup(next);
    free(g->url);
    g->url = url;
    return check_url(g, e);
}

static int get(struct get *g, struct err *e)
{
    unsigned tries = 0, redirects = 0;

    if (check_url(g, e) < 0)
        return -1;
    for (;;) {
        CURLcode code = perform(g);
        if (code == CURLE_OK && g->status == 200)
            return 0;
        if (code == CURLE_OK && g->status == 304 && g->known != NULL) {
            g->got.is_same = true;
            return 0;
        }
        if (code == CURLE_OK && g->status >= 301 && g->status <= 308 && g->status != 304) {
            if (++redirects > REDIRECTS_MAX)
                return err_set(e, ERR_UNAVAILABLE, "%.150s redirects more than %d times", g->rq->url, REDIRECTS_MAX);
            if (follow(g, e) < 0)
                return -1;
        } else if (++tries < TRIES && may_retry(g, code)) {
            (void)poll(NULL, 0, RETRY_FIRST_MS << (tries - 1));
        } else {
            return failed(g, code, e);
        }
    }
}

int url_get_run(const struct image_fetch *rq, const struct conf *conf, const struct url_validator *known, int file, int answer)
{
    struct get *g = mem_zalloc(sizeof *g);
    struct err e = {0};

    g->rq = rq;
    g->conf = conf;
    g->known = known;
    g->file = file;
    g->url = mem_strdup(rq->url);
    g->end_ms = clock_boot_ms() + (int64_t)rq->timeout_s * 1000;
    if (policy_decode(&g->policy, rq->policy, rq->policy_len) < 0)
        (void)err_set(&e, ERR_MALFORMED, "the policy is none of this version");
    else if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || (g->curl = curl_easy_init()) == NULL)
        (void)err_set(&e, ERR_INTERNAL, "libcurl cannot be set up");
    else
        (void)get(g, &e);
    g->got.code = (uint16_t)e.code;
    (void)snprintf(g->got.message, sizeof g->got.message, "%.*s", (int)sizeof g->got.message - 1, e.message);
    int r = fd_write_all(answer, &g->got, sizeof g->got);
    if (g->curl != NULL)
        curl_easy_cleanup(g->curl);
    policy_done(&g->policy);
    free(g->place);
    free(g->url);
    free(g);
    return r < 0;
}
