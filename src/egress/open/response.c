/*
 * response.c - follows the responses of one HTTP/1 connection
 */
#include "egress/open/response.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define LINE_MAX_BYTES 4096

void response_init(struct response *r)
{
    *r = (struct response){.state = RESPONSE_DONE};
    buf_init(&r->line, RESPONSE_HEAD_MAX);
}

void response_done(struct response *r)
{
    buf_done(&r->line);
}

void response_begin(struct response *r, bool is_head_request, bool may_switch, struct redact *words)
{
    r->state = RESPONSE_HEAD;
    r->is_head_request = is_head_request;
    r->may_switch = may_switch;
    r->status = 0;
    r->words = words;
    r->left = 0;
    buf_clear(&r->line);
}

/* --- head ------------------------------------------------------------------------------------ */

struct framing {
    bool has_length, is_chunked;
    uint64_t length;
    bool is_packed;
};

static bool value_is(const char *v, size_t n, const char *text)
{
    return n == strlen(text) && strncasecmp(v, text, n) == 0;
}

static bool read_length(const char *v, size_t n, struct framing *f)
{
    uint64_t length = 0;

    if (n == 0 || n > 18)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (v[i] < '0' || v[i] > '9')
            return false;
        length = length * 10 + (uint64_t)(v[i] - '0');
    }
    if (f->has_length && f->length != length)
        return false;
    f->has_length = true;
    f->length = length;
    return true;
}

static bool read_field(const char *line, size_t n, struct framing *f)
{
    const char *colon = memchr(line, ':', n);

    if (colon == NULL || colon == line || line[0] == ' ' || line[0] == '\t')
        return false;
    const char *v = colon + 1, *end = line + n;
    while (v < end && (*v == ' ' || *v == '\t'))
        v++;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    size_t name = (size_t)(colon - line), len = (size_t)(end - v);
    if (value_is(line, name, "content-length"))
        return read_length(v, len, f);
    if (value_is(line, name, "transfer-encoding")) {
        if (f->is_chunked || !value_is(v, len, "chunked"))
            return false;
        f->is_chunked = true;
    }
    if (value_is(line, name, "content-encoding") && !value_is(v, len, "identity"))
        f->is_packed = true;
    return true;
}

static bool read_head(const struct buf *head, int *ret_status, struct framing *f)
{
    const char *p = head->data, *end = p + head->len;

    if (head->len < 15 || memcmp(p, "HTTP/1.", 7) != 0 || (p[7] != '0' && p[7] != '1') || p[8] != ' ')
        return false;
    *ret_status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        *ret_status = *ret_status * 10 + (p[i] - '0');
    }
    const char *lf = memchr(p, '\n', head->len);
    for (p = lf + 1; p < end; p = lf + 1) {
        lf = memchr(p, '\n', (size_t)(end - p));
        if (lf == NULL || lf == p || lf[-1] != '\r')
            return false;
        size_t len = (size_t)(lf - p) - 1;
        if (len == 0)
            break;
        if (memchr(p, '\r', len) != NULL || memchr(p, '\0', len) != NULL || !read_field(p, len, f))
            return false;
    }
    return !(f->has_length && f->is_chunked);
}

static bool after_head(struct response *r, struct buf *out)
{
    struct framing f = {0};

    if (!read_head(&r->line, &r->status, &f))
        return false;
    if (r->status < 100)
        return false;
    bool is_last = r->status >= 200 || r->status == 101;
    bool has_body = !r->is_head_request && r->status >= 200 && r->status != 204 && r->status != 304;
    if (r->words != NULL && has_body && f.is_packed) {
        r->is_packed = true;
        return false;
    }
    if (r->status == 101 && !r->may_switch)
        return false;
    if (r->words != NULL)
        redact_text(r->words, r->line.data, r->line.len);
    (void)buf_add(out, r->line.data, r->line.len);
    buf_clear(&r->line);
    if (!is_last)
        return true;            /* the real one is to come */
    r->left = f.length;
    r->state = r->status == 101                  ? RESPONSE_OPAQUE
               : !has_body                       ? RESPONSE_DONE
               : f.is_chunked                    ? RESPONSE_SIZE
               : !f.has_length                   ? RESPONSE_TO_EOF
               : f.length > 0                    ? RESPONSE_LENGTH
                                                 : RESPONSE_DONE;
    return true;
}

/* Bytes up to the end of a line, or of a head, are collected. *ret_used of them; true once it is complete. */
static bool collect(struct response *r, const uint8_t *p, size_t n, const char *end, size_t most, size_t *ret_used)
{
    size_t len = strlen(end), before = r->line.len, back = before < len - 1 ? before : len - 1;

    if (before + n > most)
        n = most > before ? most - before : 0;
    (void)buf_add(&r->line, p, n);
    const char *from = buf_str(&r->line) + before - back;
    const char *at = memmem(from, r->line.len - (before - back), end, len);
    if (at == NULL) {
        *ret_used = n;
        return false;
    }
    size_t total = (size_t)(at - r->line.data) + len;
    *ret_used = total - before;
    r->line.len = total;
    r->line.data[total] = '\0';
    return true;
}

/* --- body ------------------------------------------------------------------------------------ */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void put_chunk(struct buf *out, const struct buf *body)
{
    if (body->len == 0)
        return;
    (void)buf_addf(out, "%zx\r\n", body->len);
    (void)buf_add(out, body->data, body->len);
    (void)buf_adds(out, "\r\n");
}

static void end_words(struct response *r, struct buf *out, bool as_chunk)
{
    auto_buf body = {0};

    if (r->words == NULL)
        return;
    buf_init(&body, SIZE_MAX / 2);
    redact_end(r->words, &body);
    if (as_chunk)
        put_chunk(out, &body);
    else
        (void)buf_add(out, body.data, body.len);
}

/* Nothing more is here for now. */
static void pause_words(struct response *r, struct buf *out)
{
    bool as_chunk = r->state == RESPONSE_SIZE || r->state == RESPONSE_CHUNK || r->state == RESPONSE_CHUNK_END;
    auto_buf body = {0};

    if (r->words == NULL || (!as_chunk && r->state != RESPONSE_LENGTH &&
                             r->state != RESPONSE_TO_EOF && r->state != RESPONSE_OPAQUE))
        return;
    buf_init(&body, SIZE_MAX / 2);
    redact_pause(r->words, &body);
    if (as_chunk)
        put_chunk(out, &body);
    else
        (void)buf_add(out, body.data, body.len);
}

static void put_body(struct response *r, const uint8_t *p, size_t n, struct buf *out, bool as_chunk)
{
    auto_buf body = {0};

    if (r->words == NULL) {
        (void)buf_add(out, p, n);
        return;
    }
    buf_init(&body, SIZE_MAX / 2);
    redact_feed(r->words, p, n, &body);
    if (as_chunk)
        put_chunk(out, &body);
    else
        (void)buf_add(out, body.data, body.len);
}

static bool after_size(struct response *r, struct buf *out)
{
    size_t i = 0;

    r->left = 0;
    for (; i < r->line.len && hex(r->line.data[i]) >= 0; i++) {
        if (i == 15)
            return false;
        r->left = r->left * 16 + (uint64_t)hex(r->line.data[i]);
    }
    if (i == 0 || (r->line.data[i] != '\r' && r->line.data[i] != ';' && r->line.data[i] != ' '))
        return false;
    if (r->words == NULL)
        (void)buf_add(out, r->line.data, r->line.len);
    r->state = r->left > 0 ? RESPONSE_CHUNK : RESPONSE_TRAILER;
    return true;
}

static void after_trailer(struct response *r, struct buf *out)
{
    bool last = r->line.len == 2;

    /* Trailers are dropped with their words. */
    if (r->words == NULL)
        (void)buf_add(out, r->line.data, r->line.len);
    if (!last)
        return;
    if (r->words != NULL) {
        end_words(r, out, true);
        (void)buf_adds(out, "0\r\n\r\n");
    }
    r->state = RESPONSE_DONE;
}

static bool feed_line(struct response *r, const uint8_t *p, size_t n, size_t *used, struct buf *out)
{
    if (!collect(r, p, n, "\r\n", LINE_MAX_BYTES, used))
        return r->line.len < LINE_MAX_BYTES;
    bool ok = true;
    if (r->state == RESPONSE_SIZE) {
        ok = after_size(r, out);
    } else if (r->state == RESPONSE_CHUNK_END) {
        ok = r->line.len == 2;
        if (r->words == NULL)
            (void)buf_adds(out, "\r\n");
        r->state = RESPONSE_SIZE;
    } else {
        after_trailer(r, out);
    }
    buf_clear(&r->line);
    return ok;
}

ssize_t response_feed(struct response *r, const uint8_t *p, size_t n, struct buf *out)
{
    size_t at = 0, used = 0;

    while (at < n && r->state != RESPONSE_DONE) {
        switch (r->state) {
        case RESPONSE_HEAD:
            if (collect(r, p + at, n - at, "\r\n\r\n", RESPONSE_HEAD_MAX, &used)) {
                if (!after_head(r, out))
                    return -1;
            } else if (r->line.len >= RESPONSE_HEAD_MAX) {
                return -1;
            }
            break;
        case RESPONSE_LENGTH:
        case RESPONSE_CHUNK:
            used = n - at < r->left ? n - at : (size_t)r->left;
            put_body(r, p + at, used, out, r->state == RESPONSE_CHUNK);
            r->left -= used;
            if (r->left == 0 && r->state == RESPONSE_LENGTH) {
                end_words(r, out, false);
                r->state = RESPONSE_DONE;
            } else if (r->left == 0) {
                r->state = RESPONSE_CHUNK_END;
            }
            break;
        case RESPONSE_SIZE:
        case RESPONSE_CHUNK_END:
        case RESPONSE_TRAILER:
            if (!feed_line(r, p + at, n - at, &used, out))
                return -1;
            break;
        case RESPONSE_TO_EOF:
        case RESPONSE_OPAQUE:
            used = n - at;
            put_body(r, p + at, used, out, false);
            break;
        case RESPONSE_DONE:
            break;
        }
        at += used;
    }
    pause_words(r, out);
    return (ssize_t)at;
}

bool response_eof(struct response *r, struct buf *out)
{
    if (r->state != RESPONSE_TO_EOF && r->state != RESPONSE_OPAQUE)
        return r->state == RESPONSE_DONE;
    end_words(r, out, false);
    r->state = RESPONSE_DONE;
    return true;
}
