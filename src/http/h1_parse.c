/*
 * h1_parse.c - strict HTTP/1.1 parsing, see h1_parse.h
 */
#include "http/h1_parse.h"

#include <string.h>
#include <strings.h>

/* A size line has at most this many bytes, extensions included. */
#define CHUNK_LINE_MAX 256
#define BODY_MAX (1ULL << 60)

enum { TOKEN = 1, TEXT = 2 };

/* RFC 9110: token characters of names, and what a value may hold (visible, space, tab, obs-text). */
static uint8_t char_class(unsigned char ch)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";

    if ((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
        (ch != '\0' && strchr(marks, ch) != NULL))
        return TOKEN | TEXT;
    return ch == '\t' || (ch >= 0x20 && ch != 0x7f) ? TEXT : 0;
}

static const uint8_t *classes(void)
{
    static uint8_t table[256];

    if (table['a'] == 0) {
        for (unsigned i = 0; i < sizeof table; i++)
            table[i] = char_class((unsigned char)i);
    }
    return table;
}

ssize_t h1_head_find(const char *p, size_t n, size_t *scanned)
{
    size_t start = 0;

    /* Some clients send an empty line behind a body (RFC 9112, 2.2). */
    while (start + 1 < n && start < 4 && p[start] == '\r' && p[start + 1] == '\n')
        start += 2;
    size_t at = *scanned > start ? *scanned : start;
    while (at < n) {
        const char *lf = memchr(p + at, '\n', n - at);
        if (lf == NULL)
            break;
        size_t i = (size_t)(lf - p);
        if (i == start || p[i - 1] != '\r')
            return -400;
        if (i + 1 >= LIMIT_HTTP_HEAD)
            return -431;
        /* An empty line: this CR LF follows another. */
        if (i >= start + 3 && p[i - 2] == '\n')
            return (ssize_t)i + 1;
        at = i + 1;
    }
    if (n > LIMIT_HTTP_HEAD)
        return -431;
    *scanned = n > start ? n : start;
    return 0;
}

static int fail(const char **ret_why, int status, const char *why)
{
    *ret_why = why;
    return -status;
}

/* Cuts one field line (without CR LF) into name and value, in place. */
static int parse_field(char *line, size_t n, struct http_header *ret, const char **ret_why)
{
    const uint8_t *class = classes();
    size_t i = 0;

    while (i < n && (class[(unsigned char)line[i]] & TOKEN)) {
        if (line[i] >= 'A' && line[i] <= 'Z')
            line[i] = (char)(line[i] - 'A' + 'a');
        i++;
    }
    if (i == 0)
        return fail(ret_why, 400, "a header line begins with white space or has no name");
    if (i == n || line[i] != ':')
        return fail(ret_why, 400, "a header name is not followed by a colon");
    line[i++] = '\0';
    while (i < n && (line[i] == ' ' || line[i] == '\t'))
        i++;
    while (n > i && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    for (size_t k = i; k < n; k++) {
        if (!(class[(unsigned char)line[k]] & TEXT))
            return fail(ret_why, 400, "a header value has a control character");
    }
    line[n] = '\0';
    ret->name = line;
    ret->value = line + i;
    return 0;
}

static int parse_length(const char *text, int64_t *ret)
{
    uint64_t v = 0;

    if (*text == '\0')
        return -1;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || v > BODY_MAX / 10)
            return -1;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *ret = (int64_t)v;
    return 0;
}

/* Is `word` an element of a comma separated list? Case does not count. */
static bool list_has(const char *list, const char *word)
{
    size_t len = strlen(word);

    while (*list != '\0') {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, ",");
        size_t trimmed = n;
        while (trimmed > 0 && (list[trimmed - 1] == ' ' || list[trimmed - 1] == '\t'))
            trimmed--;
        if (trimmed == len && strncasecmp(list, word, len) == 0)
            return true;
        list += n;
    }
    return false;
}

static bool host_is_valid(const char *host)
{
    static const char more[] = "!$&'()*+,;=-._~%[]:";

    for (const char *p = host; *p != '\0'; p++) {
        if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) &&
            strchr(more, *p) == NULL)
            return false;
    }
    return true;
}

/* What the fields say about framing and the connection. */
static int interpret(struct h1_head *hd, const char **ret_why)
{
    const char *host = NULL;
    bool has_coding = false, says_close = false, says_keep_alive = false;

    for (size_t i = 0; i < hd->nfields; i++) {
        const char *name = hd->fields[i].name, *value = hd->fields[i].value;
        if (strcmp(name, "content-length") == 0) {
            int64_t v;
            if (parse_length(value, &v) < 0 || (hd->content_length >= 0 && hd->content_length != v))
                return fail(ret_why, 400, "content-length is not one number");
            hd->content_length = v;
        } else if (strcmp(name, "transfer-encoding") == 0) {
            if (has_coding || strcasecmp(value, "chunked") != 0)
                return fail(ret_why, 501, "the transfer coding is not chunked");
            has_coding = true;
        } else if (strcmp(name, "host") == 0) {
            if (host != NULL || !host_is_valid(value))
                return fail(ret_why, 400, "host is given twice or malformed");
            host = value;
        } else if (strcmp(name, "connection") == 0) {
            says_close |= list_has(value, "close");
            says_keep_alive |= list_has(value, "keep-alive");
            hd->has_upgrade |= list_has(value, "upgrade");
        } else if (strcmp(name, "expect") == 0) {
            if (strcasecmp(value, "100-continue") != 0)
                return fail(ret_why, 417, "the expectation is not 100-continue");
            hd->expects_continue = hd->version == 11;
        }
    }
    if (has_coding && hd->content_length >= 0)
        return fail(ret_why, 400, "content-length and transfer-encoding exclude each other");
    if (has_coding && hd->version == 10)
        return fail(ret_why, 400, "transfer-encoding needs HTTP/1.1");
    if (host == NULL && hd->version == 11)
        return fail(ret_why, 400, "host is missing");
    hd->is_chunked = has_coding;
    if (hd->authority[0] == '\0' && host != NULL)
        hd->authority = host;
    hd->is_keep_alive = !says_close && (hd->version == 11 || says_keep_alive);
    return 0;
}

/* "http://authority/path": leaves the path in place and points authority at its text. */
static int parse_target(char *target, struct h1_head *hd, const char **ret_why)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;

    hd->target = target;
    if (target[0] == '/' || (strcmp(target, "*") == 0 && strcmp(hd->method, "OPTIONS") == 0))
        return 0;
    if (scheme == 0)
        return fail(ret_why, 400, "the request target is not a path");
    char *authority = target + scheme;
    size_t len = strcspn(authority, "/?");
    if (len == 0 || authority[len] == '?')
        return fail(ret_why, 400, "the request target has no host or no path");
    /* Moved to the front so that a NUL fits between it and the path. */
    bool has_path = authority[len] == '/';
    hd->target = has_path ? authority + len : NULL;
    memmove(target, authority, len);
    target[len] = '\0';
    hd->authority = target;
    if (!host_is_valid(target))
        return fail(ret_why, 400, "the host of the request target is malformed");
    if (!has_path) {
        hd->target = target + len + 1;      /* within the scheme's former place */
        memcpy(hd->target, "/", 2);
    }
    return 0;
}

static int parse_request_line(char *line, size_t n, struct h1_head *hd, const char **ret_why)
{
    const uint8_t *class = classes();
    size_t i = 0;

    while (i < n && (class[(unsigned char)line[i]] & TOKEN))
        i++;
    if (i == 0 || i > 32 || i >= n || line[i] != ' ')
        return fail(ret_why, 400, "the request line has no method");
    line[i++] = '\0';
    hd->method = line;
    char *target = line + i;
    char *end = memchr(target, ' ', n - i);
    if (end == NULL || end == target)
        return fail(ret_why, 400, "the request line has no target or no version");
    for (const char *p = target; p < end; p++) {
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return fail(ret_why, 400, "the request target has characters that must be escaped");
    }
    const char *version = end + 1;
    size_t version_len = (size_t)(line + n - version);
    if (version_len == 8 && memcmp(version, "HTTP/1.1", 8) == 0)
        hd->version = 11;
    else if (version_len == 8 && memcmp(version, "HTTP/1.0", 8) == 0)
        hd->version = 10;
    else if (version_len == 8 && memcmp(version, "HTTP/", 5) == 0)
        return fail(ret_why, 505, "the HTTP version is not 1.0 or 1.1");
    else
        return fail(ret_why, 400, "the request line does not end with a version");
    *end = '\0';
    if (strcmp(hd->method, "CONNECT") == 0)
        return fail(ret_why, 405, "CONNECT is not served");
    return parse_target(target, hd, ret_why);
}

int h1_head_parse(char *p, size_t n, struct h1_head *ret, const char **ret_why)
{
    char *end = p + n;
    bool is_first = true;

    ret->nfields = 0;
    ret->content_length = -1;
    ret->authority = "";
    ret->is_chunked = ret->is_keep_alive = ret->expects_continue = ret->has_upgrade = false;
    *ret_why = "the request head is malformed";
    while (p + 1 < end && p[0] == '\r' && p[1] == '\n')
        p += 2;
    while (p < end) {
        char *lf = memchr(p, '\n', (size_t)(end - p));
        if (lf == NULL || lf == p || lf[-1] != '\r')
            return -400;
        size_t len = (size_t)(lf - p) - 1;
        if (len == 0)
            break;
        if (memchr(p, '\r', len) != NULL || memchr(p, '\0', len) != NULL)
            return fail(ret_why, 400, "the request head has a stray carriage return or NUL");
        int r;
        if (is_first)
            r = parse_request_line(p, len, ret, ret_why);
        else if (ret->nfields == LIMIT_HTTP_HEADERS)
            r = fail(ret_why, 431, "there are too many header lines");
        else
            r = parse_field(p, len, &ret->fields[ret->nfields++], ret_why);
        if (r < 0)
            return r;
        is_first = false;
        p = lf + 1;
    }
    if (is_first)
        return -400;
    return interpret(ret, ret_why);
}

/* --- chunked bodies -------------------------------------------------------------------------- */

void h1_chunked_init(struct h1_chunked *d)
{
    d->state = H1_CHUNK_SIZE;
    d->left = 0;
    d->digits = d->line = 0;
    d->ntrailer = 0;
}

static int hex_value(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if (ch >= 'a' && ch <= 'f')
        return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F')
        return ch - 'A' + 10;
    return -1;
}

/* One byte that is not data. */
static int chunk_byte(struct h1_chunked *d, char ch)
{
    switch (d->state) {
    case H1_CHUNK_SIZE: {
        int v = hex_value(ch);
        if (v >= 0) {
            if (++d->digits > 15)       /* fifteen digits fit BODY_MAX */
                return -400;
            d->left = d->left * 16 + (uint64_t)v;
            return 0;
        }
        if (d->digits == 0)
            return -400;
        if (ch == ';')
            d->state = H1_CHUNK_EXT;
        else if (ch == '\r')
            d->state = H1_CHUNK_SIZE_LF;
        else
            return -400;
        return 0;
    }
    case H1_CHUNK_EXT:
        if (ch == '\r')
            d->state = H1_CHUNK_SIZE_LF;
        else if (!(classes()[(unsigned char)ch] & TEXT))
            return -400;
        return 0;
    case H1_CHUNK_SIZE_LF:
        if (ch != '\n')
            return -400;
        d->state = d->left > 0 ? H1_CHUNK_DATA : H1_CHUNK_TRAILER;
        return 0;
    case H1_CHUNK_DATA_CR:
        if (ch != '\r')
            return -400;
        d->state = H1_CHUNK_DATA_LF;
        return 0;
    case H1_CHUNK_DATA_LF:
        if (ch != '\n')
            return -400;
        d->state = H1_CHUNK_SIZE;
        d->digits = d->line = 0;
        return 0;
    case H1_CHUNK_TRAILER:
        if (d->ntrailer == sizeof d->trailer)
            return -431;
        d->trailer[d->ntrailer++] = ch;
        if (ch != '\n')
            return 0;
        if (d->ntrailer < 2 || d->trailer[d->ntrailer - 2] != '\r')
            return -400;
        if (d->ntrailer == 2 || d->trailer[d->ntrailer - 3] == '\n')
            d->state = H1_CHUNK_DONE;
        return 0;
    case H1_CHUNK_DATA:
    case H1_CHUNK_DONE:
        break;
    }
    return -400;
}

int h1_chunked_next(struct h1_chunked *d, const char *p, size_t n, size_t *ret_used, const char **ret_body,
                    size_t *ret_len)
{
    size_t i = 0;

    *ret_len = 0;
    *ret_body = p;
    while (i < n && d->state != H1_CHUNK_DONE) {
        if (d->state == H1_CHUNK_DATA) {
            size_t len = n - i < d->left ? n - i : (size_t)d->left;
            *ret_body = p + i;
            *ret_len = len;
            d->left -= len;
            if (d->left == 0)
                d->state = H1_CHUNK_DATA_CR;
            i += len;
            break;
        }
        if (d->state != H1_CHUNK_TRAILER && ++d->line > CHUNK_LINE_MAX)
            return -400;
        int r = chunk_byte(d, p[i++]);
        if (r < 0)
            return r;
    }
    *ret_used = i;
    return 0;
}

ssize_t h1_chunked_trailers(struct h1_chunked *d, struct http_header *out, size_t max)
{
    const char *why;
    char *p = d->trailer, *end = d->trailer + d->ntrailer;
    size_t n = 0;

    while (p < end && p[0] != '\r') {
        char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)(lf - p) - 1;
        if (n == max)
            return -431;
        if (memchr(p, '\r', len) != NULL || parse_field(p, len, &out[n], &why) < 0)
            return -400;
        n++;
        p = lf + 1;
    }
    return (ssize_t)n;
}
