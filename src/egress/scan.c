/*
 * scan.c - follows the requests of one HTTP/1 connection
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "egress/head.h"

#define HEAD_PIECE 4096
#define LINE_MAX_BYTES 4096         /* of a chunk's size, and of a line of trailers */

void scan_init(struct scan *s, const char *name)
{
    *s = (struct scan){.state = SCAN_HEAD};
    memcpy(s->name, name, strlen(name) + 1);
}

void scan_done(struct scan *s)
{
    free(s->held);
    s->held = NULL;
}

static bool fail(enum scan_why *why, enum scan_why what)
{
    *why = what;
    return false;
}

static bool after_head(struct scan *s, const struct head *h, enum scan_why *why)
{
    s->requests++;
    if (h->is_mismatch || !h->has_name || strcmp(h->name, s->name) != 0)
        return fail(why, SCAN_MISMATCH);
    if (h->is_connect)
        return fail(why, SCAN_METHOD);
    /* Whether it is taken can be told from the first answer alone. */
    if (h->is_websocket && ((s->requests > 1 && !s->is_serial) || h->body != HEAD_NO_BODY))
        return fail(why, SCAN_METHOD);
    if (h->upgrade_at > 0)
        s->held[h->upgrade_at] = 'X';       /* an offer of HTTP/2 is made unreadable */
    s->left = h->length;
    s->line = 0;
    s->state = h->is_websocket                               ? SCAN_WAIT
               : h->body == HEAD_CHUNKED                     ? SCAN_CHUNK
               : h->body == HEAD_LENGTH && h->length > 0     ? SCAN_BODY
                                                             : SCAN_HEAD;
    s->ext = s->in_chunk = s->line_cr = false;
    return true;
}

/* Who ends lines so would wait for an answer that never comes. */
static bool has_bare_lf(const uint8_t *p, size_t from, size_t n)
{
    for (size_t i = from; i < n; i++)
        if (p[i] == '\n' && (i == 0 || p[i - 1] != '\r'))
            return true;
    return false;
}

/* Bytes of a head are collected; once it is complete it is let out and what came after it stays with the caller. */
static bool feed_head(struct scan *s, const uint8_t *p, size_t n, size_t *used, const uint8_t **out, size_t *out_len,
                      enum scan_why *why)
{
    struct head h;
    size_t before = s->nheld;

    /* Many small ones may be here at once: not all of them are copied for each. */
    if (n > HEAD_PIECE)
        n = HEAD_PIECE;
    s->held = mem_realloc(s->held, before + n + 1);
    memcpy(s->held + before, p, n);
    /* Byte by byte a head is not read anew for each. */
    size_t from = before > 3 ? before - 3 : 0;
    bool ends = memmem(s->held + from, before + n - from, "\r\n\r\n", 4) != NULL;
    enum head_result r = ends || before + n > HEAD_MAX ? head_parse(s->held, before + n, &h) : HEAD_MORE;
    if (r == HEAD_BAD || (r == HEAD_MORE && has_bare_lf(s->held, before, before + n)))
        return fail(why, SCAN_MALFORMED);
    if (r == HEAD_MORE) {
        s->nheld = before + n;
        *used = n;
        return s->nheld <= HEAD_MAX ? true : fail(why, SCAN_MALFORMED);
    }
    if (!after_head(s, &h, why))
        return false;
    *used = h.len - before;
    *out = s->held;
    *out_len = h.len;
    s->nheld = 0;
    s->is_head_out = true;
    return true;
}

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a line "1a2b;extension CR LF". */
static bool chunk_byte(struct scan *s, uint8_t c, enum scan_why *why)
{
    if (s->line_cr) {
        if (c != '\n' || s->line == 0)
            return fail(why, SCAN_MALFORMED);
        s->state = s->left > 0 ? SCAN_BODY : SCAN_TRAILER;
        s->in_chunk = s->left > 0;
        s->line = 0;
        s->line_cr = s->ext = false;
        return true;
    }
    if (c == '\r') {
        s->line_cr = true;
        return true;
    }
    if (c == '\n' || ++s->line > LINE_MAX_BYTES)
        return fail(why, SCAN_MALFORMED);
    if (s->line == 1)
        s->left = 0;
    if (c == ';')
        s->ext = true;
    if (s->ext)
        return s->line > 1 ? true : fail(why, SCAN_MALFORMED);
    if (hex(c) < 0 || s->line > 15)
        return fail(why, SCAN_MALFORMED);
    s->left = s->left * 16 + (uint64_t)hex(c);
    return true;
}

static bool trailer_byte(struct scan *s, uint8_t c, enum scan_why *why)
{
    if (s->line_cr) {
        if (c != '\n')
            return fail(why, SCAN_MALFORMED);
        if (s->line == 0)
            s->state = SCAN_HEAD;
        s->line = 0;
        s->line_cr = false;
        return true;
    }
    if (c == '\r') {
        s->line_cr = true;
        return true;
    }
    return c != '\n' && ++s->line <= LINE_MAX_BYTES ? true : fail(why, SCAN_MALFORMED);
}

/* The CR LF behind a chunk. */
static bool chunk_end_byte(struct scan *s, uint8_t c, enum scan_why *why)
{
    if (c != (s->line == 0 ? '\r' : '\n'))
        return fail(why, SCAN_MALFORMED);
    if (s->line++ == 0)
        return true;
    s->state = SCAN_CHUNK;
    s->line = 0;
    return true;
}

static bool feed_lines(struct scan *s, const uint8_t *p, size_t n, size_t *used, enum scan_why *why)
{
    size_t i = 0;

    while (i < n && (s->state == SCAN_CHUNK || s->state == SCAN_CHUNK_END || s->state == SCAN_TRAILER)) {
        bool ok = s->state == SCAN_CHUNK       ? chunk_byte(s, p[i], why)
                  : s->state == SCAN_CHUNK_END ? chunk_end_byte(s, p[i], why)
                                               : trailer_byte(s, p[i], why);
        if (!ok)
            return false;
        i++;
    }
    *used = i;
    return true;
}

bool scan_feed(struct scan *s, const uint8_t *p, size_t n, size_t *used, const uint8_t **out, size_t *out_len,
               enum scan_why *why)
{
    *used = *out_len = 0;
    *out = p;
    s->is_head_out = false;
    switch (s->state) {
    case SCAN_HEAD:
        return feed_head(s, p, n, used, out, out_len, why);
    case SCAN_WAIT:
        return true;
    case SCAN_OPAQUE:
        *used = *out_len = n;
        return true;
    case SCAN_BODY:
        *used = *out_len = n < s->left ? n : (size_t)s->left;
        s->left -= *used;
        if (s->left == 0) {
            s->state = s->in_chunk ? SCAN_CHUNK_END : SCAN_HEAD;
            s->in_chunk = false;
            s->line = 0;
        }
        return true;
    case SCAN_CHUNK:
    case SCAN_CHUNK_END:
    case SCAN_TRAILER:
        if (!feed_lines(s, p, n, used, why))
            return false;
        *out_len = *used;
        return true;
    }
    return fail(why, SCAN_MALFORMED);
}

bool scan_answer(struct scan *s, const uint8_t *p, size_t n)
{
    static const char switching[] = "HTTP/1.1 101";

    if (n < sizeof switching - 1)
        return false;
    s->state = memcmp(p, switching, sizeof switching - 1) == 0 ? SCAN_OPAQUE : SCAN_HEAD;
    return true;
}
