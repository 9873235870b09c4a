/*
 * sigv4.c - Signature Version 4
 */
#include "egress/open/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define TEXT_MAX (256 * 1024)
#define PARAMETERS_MAX 1024
#define SCOPE_WORD 128

static void to_hex(const uint8_t *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[p[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
    }
    out[2 * n] = '\0';
}

void sigv4_hash(const void *p, size_t n, char out[SIGV4_HASH_SIZE])
{
    uint8_t digest[EVP_MAX_MD_SIZE];

    (void)EVP_Digest(p, n, digest, NULL, EVP_sha256(), NULL);
    to_hex(digest, 32, out);
}

static void hmac(const uint8_t *key, size_t nkey, const char *text, uint8_t out[32])
{
    (void)HMAC(EVP_sha256(), key, (int)nkey, (const uint8_t *)text, strlen(text), out, NULL);
}

/* --- the canonical request ------------------------------------------------------------------- */

static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of an escaped text, at p[*at]. */
static unsigned char next_byte(const char *p, size_t n, size_t *at)
{
    if (p[*at] == '%' && *at + 2 < n && hex(p[*at + 1]) >= 0 && hex(p[*at + 2]) >= 0) {
        *at += 3;
        return (unsigned char)(hex(p[*at - 2]) * 16 + hex(p[*at - 1]));
    }
    return (unsigned char)p[(*at)++];
}

static void add_escaped(struct buf *out, unsigned char c)
{
    if (is_unreserved(c))
        (void)buf_addc(out, (char)c);
    else
        (void)buf_addf(out, "%%%02X", c);
}

/* Escaped as it should have been, once. */
static void add_text(struct buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n;)
        add_escaped(out, next_byte(p, n, &i));
}

/*
 * S3 takes the path as it is; all others take it without empty parts and dots, and escape what was sent, also the signs of
 * its escapes.
 */
static void add_path(struct buf *out, const char *path, size_t n, bool as_it_is)
{
    size_t base = out->len;

    for (size_t i = 0; i < n;) {
        size_t len = 0;
        i++;                    /* the slash */
        while (i + len < n && path[i + len] != '/')
            len++;
        const char *part = path + i;
        bool last = i + len >= n;
        i += len;
        if (!as_it_is && (len == 0 || (len == 1 && part[0] == '.'))) {
            if (last)
                (void)buf_addc(out, '/');
            continue;
        }
        if (!as_it_is && len == 2 && memcmp(part, "..", 2) == 0) {
            while (out->len > base && out->data[--out->len] != '/')
                continue;
            if (last)
                (void)buf_addc(out, '/');
            continue;
        }
        (void)buf_addc(out, '/');
        if (as_it_is) {
            add_text(out, part, len);
            continue;
        }
        for (size_t j = 0; j < len; j++)
            add_escaped(out, (unsigned char)part[j]);
    }
    if (out->len == base)
        (void)buf_addc(out, '/');
}

struct parameter {
    char *name, *value;         /* owned, escaped */
};

static int compare(const void *a, const void *b)
{
    const struct parameter *p = a, *q = b;
    int r = strcmp(p->name, q->name);

    return r != 0 ? r : strcmp(p->value, q->value);
}

static char *escaped(const char *p, size_t n)
{
    auto_buf b = {0};

    buf_init(&b, TEXT_MAX);
    add_text(&b, p, n);
    return mem_strdup(buf_str(&b));
}

static bool add_query(struct buf *out, const char *query)
{
    auto_free struct parameter *list = mem_array(PARAMETERS_MAX, sizeof *list);
    size_t n = 0;

    for (const char *at = query; *at != '\0' && n < PARAMETERS_MAX;) {
        size_t len = strcspn(at, "&"), name = 0;
        while (name < len && at[name] != '=')
            name++;
        if (len > 0) {
            list[n].name = escaped(at, name);
            list[n++].value = name < len ? escaped(at + name + 1, len - name - 1) : mem_strdup("");
        }
        at += len + (at[len] == '&' ? 1 : 0);
    }
    qsort(list, n, sizeof *list, compare);
    for (size_t i = 0; i < n; i++) {
        (void)buf_addf(out, "%s%s=%s", i > 0 ? "&" : "", list[i].name, list[i].value);
        free(list[i].name);
        free(list[i].value);
    }
    return n < PARAMETERS_MAX;
}

/* Runs of spaces are one. */
static void add_value(struct buf *out, const char *v)
{
    for (; *v != '\0'; v++)
        if (*v != ' ' || (v[1] != ' ' && v[1] != '\0'))
            (void)buf_addc(out, *v);
}

static void lower(const char *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] + 32) : p[i];
    out[n] = '\0';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether `list`, words with semicolons between them, has the word. */
static bool lists(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, ";");
        if (len == n && strncasecmp(at, word, n) == 0)
            return true;
        at += len + (at[len] == ';' ? 1 : 0);
    }
    return false;
}

static bool covers(const char *before, const char *name)
{
    return strncmp(name, "x-amz-", 6) == 0 || strcmp(name, "content-type") == 0 || strcmp(name, "content-md5") == 0 ||
           (strcmp(name, "host") != 0 && strcmp(name, "authorization") != 0 && lists(before, name));
}

/* The fields that the signature covers, and their names into `names`. */
static void add_fields(struct buf *out, struct buf *names, const struct request *r, const char *before, const char *host)
{
    char *list[REQUEST_FIELDS_MAX + 1];
    size_t n = 0;

    list[n++] = mem_strdup("host");
    for (size_t i = 0; i < r->nfields; i++) {
        char *name = mem_strdup(r->fields[i].name);
        lower(name, strlen(name), name);
        bool is_new = covers(before, name);
        for (size_t j = 0; is_new && j < n; j++)
            is_new = strcmp(list[j], name) != 0;
        if (is_new)
            list[n++] = name;
        else
            free(name);
    }
    qsort(list, n, sizeof *list, by_name);
    for (size_t i = 0; i < n; i++) {
        bool first = true, is_host = strcmp(list[i], "host") == 0;
        (void)buf_addf(out, "%s:", list[i]);
        if (is_host)
            (void)buf_adds(out, host);
        for (size_t j = 0; !is_host && j < r->nfields; j++) {
            if (strcasecmp(r->fields[j].name, list[i]) != 0)
                continue;
            if (!first)
                (void)buf_addc(out, ',');
            add_value(out, r->fields[j].value);
            first = false;
        }
        (void)buf_addc(out, '\n');
        (void)buf_addf(names, "%s%s", i > 0 ? ";" : "", list[i]);
        free(list[i]);
    }
}

/* --- signing --------------------------------------------------------------------------------- */

/* Part number `part` of "key/date/region/service/aws4_request" in the signature that is there. */
static bool scope_word(const char *authorization, unsigned part, char out[SCOPE_WORD])
{
    const char *at = authorization != NULL ? strstr(authorization, "Credential=") : NULL;

    if (at == NULL)
        return false;
    at += strlen("Credential=");
    for (; part > 0; part--) {
        at += strcspn(at, "/, ");
        if (*at++ != '/')
            return false;
    }
    size_t n = strcspn(at, "/, ");
    if (n == 0 || n >= SCOPE_WORD)
        return false;
    memcpy(out, at, n);
    out[n] = '\0';
    return true;
}

static char *signed_before(const char *authorization)
{
    const char *at = authorization != NULL ? strstr(authorization, "SignedHeaders=") : NULL;

    if (at == NULL)
        return mem_strdup("");
    at += strlen("SignedHeaders=");
    return mem_strndup(at, strcspn(at, ", "));
}

bool sigv4_needs_body(const struct request *r, const char *service)
{
    char word[SCOPE_WORD] = "";

    if (service[0] == '\0' && scope_word(request_get(r, "Authorization"), 3, word))
        service = word;
    return request_get(r, "X-Amz-Content-Sha256") == NULL && strcmp(service, "s3") != 0;
}

static void signature(const struct sigv4 *s, const char *date, const char *region, const char *service, const char *text,
                      char out[SIGV4_HASH_SIZE])
{
    auto_free char *first = mem_printf("AWS4%s", s->secret_key);
    uint8_t key[32];

    hmac((const uint8_t *)first, strlen(first), date, key);
    hmac(key, sizeof key, region, key);
    hmac(key, sizeof key, service, key);
    hmac(key, sizeof key, "aws4_request", key);
    hmac(key, sizeof key, text, key);
    to_hex(key, sizeof key, out);
    explicit_bzero(key, sizeof key);
    explicit_bzero(first, strlen(first));
}

const char *sigv4_sign(struct request *r, const struct sigv4 *s)
{
    char region[SCOPE_WORD] = "", service[SCOPE_WORD] = "", stamp[32], date[16], hash[SIGV4_HASH_SIZE];
    time_t now = (time_t)s->now_s;
    struct tm tm;
    auto_buf canonical = {0}, names = {0};

    const char *old = request_get(r, "Authorization");
    auto_free char *before = signed_before(old);
    if (s->region[0] != '\0')
        (void)snprintf(region, sizeof region, "%s", s->region);
    else if (!scope_word(old, 2, region))
        return "the request has no signature that names a region, and the rule none either";
    if (s->service[0] != '\0')
        (void)snprintf(service, sizeof service, "%s", s->service);
    else if (!scope_word(old, 3, service))
        return "the request has no signature that names a service, and the rule none either";
    const char *said = request_get(r, "X-Amz-Content-Sha256");
    if (said != NULL && strncmp(said, "STREAMING-AWS4-", 15) == 0)
        return "the body is signed in pieces, which needs the key inside";
    bool is_s3 = strcmp(service, "s3") == 0;
    auto_free char *payload = mem_strdup(said != NULL ? said : s->payload != NULL ? s->payload : "UNSIGNED-PAYLOAD");
    if (gmtime_r(&now, &tm) == NULL || strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm) == 0)
        return "the clock cannot be read";
    memcpy(date, stamp, 8);
    date[8] = '\0';
    request_remove(r, "Authorization");
    request_remove(r, "X-Amz-Security-Token");
    if (!request_set(r, "X-Amz-Date", stamp) || (s->token != NULL && !request_set(r, "X-Amz-Security-Token", s->token)) ||
        (is_s3 && !request_set(r, "X-Amz-Content-Sha256", payload)))
        return "the request has too many fields";

    const char *path = request_path(r);
    size_t npath = strcspn(path, "?");
    buf_init(&canonical, TEXT_MAX);
    buf_init(&names, TEXT_MAX);
    (void)buf_addf(&canonical, "%s\n", r->method);
    add_path(&canonical, path, npath, is_s3);
    (void)buf_addc(&canonical, '\n');
    if (!add_query(&canonical, path[npath] == '?' ? path + npath + 1 : ""))
        return "the request has too many parameters";
    (void)buf_addc(&canonical, '\n');
    add_fields(&canonical, &names, r, before, s->host);
    (void)buf_addf(&canonical, "\n%s\n%s", buf_str(&names), payload);
    if (canonical.failed || names.failed)
        return "the request is too large to be signed";
    sigv4_hash(canonical.data, canonical.len, hash);
    auto_free char *text = mem_printf(ALGORITHM "\n%s\n%s/%s/%s/aws4_request\n%s", stamp, date, region, service, hash);
    signature(s, date, region, service, text, hash);
    auto_free char *value = mem_printf(ALGORITHM " Credential=%s/%s/%s/%s/aws4_request, SignedHeaders=%s, Signature=%s",
                                       s->key_id, date, region, service, buf_str(&names), hash);
    return request_add(r, "Authorization", value) ? NULL : "the request has too many fields";
}
