/*
 * redact.c - blackens words in a stream of bytes
 */
#include "egress/open/redact.h"

#include <string.h>

#include "base/mem.h"

void redact_init(struct redact *r)
{
    *r = (struct redact){0};
    buf_init(&r->held, SIZE_MAX / 2);
    buf_init(&r->black, SIZE_MAX / 2);
}

void redact_done(struct redact *r)
{
    for (size_t i = 0; i < r->n; i++) {
        explicit_bzero(r->words[i], strlen(r->words[i]));
        free(r->words[i]);
    }
    r->n = 0;
    if (r->held.len > 0)
        explicit_bzero(r->held.data, r->held.len);
    buf_done(&r->held);
    buf_done(&r->black);
}

void redact_word(struct redact *r, const char *word)
{
    if (strlen(word) < REDACT_SHORTEST)
        return;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->words[i], word) == 0)
            return;
    r->is_full = r->is_full || r->n == REDACT_WORDS;
    if (r->n == REDACT_WORDS)
        return;
    r->words[r->n++] = mem_strdup(word);
}

/* All words are looked for in what came, so that one within another, or across its end, hides nothing of it. */
static void mark(const struct redact *r, const char *p, size_t n, char *black)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t len = strlen(r->words[i]);
        const char *at = p;
        while ((at = memmem(at, n - (size_t)(at - p), r->words[i], len)) != NULL) {
            memset(black + (at - p), 1, len);
            at++;
        }
    }
}

static void blacken(char *p, size_t n, const char *black)
{
    for (size_t i = 0; i < n; i++)
        if (black[i] != 0)
            p[i] = '*';
}

void redact_text(const struct redact *r, char *p, size_t n)
{
    if (n == 0)
        return;
    auto_free char *black = mem_array(n, 1);
    mark(r, p, n, black);
    blacken(p, n, black);
}

/* How many of the last bytes may be the begin of a word, and how many of them have to wait. */
static size_t open_end(const struct redact *r, const char *p, size_t n, size_t *ret_waits)
{
    size_t most = 0;

    *ret_waits = 0;
    for (size_t i = 0; i < r->n; i++) {
        size_t len = strlen(r->words[i]) - 1, half = len / 2 + 1, least = half > REDACT_HINT ? half : REDACT_HINT;
        for (len = len < n ? len : n; len > *ret_waits; len--) {
            if (memcmp(p + n - len, r->words[i], len) != 0)
                continue;
            most = len > most ? len : most;
            *ret_waits = len >= least ? len : *ret_waits;
        }
    }
    return most;
}

/* What did not go on of the first n bytes; all but the last `kept` are forgotten. */
static void put(struct redact *r, size_t n, size_t kept, struct buf *out)
{
    size_t gone = r->held.len - kept;

    if (n > r->shown) {
        blacken(r->held.data + r->shown, n - r->shown, r->black.data + r->shown);
        (void)buf_add(out, r->held.data + r->shown, n - r->shown);
        r->shown = n;
    }
    r->shown -= gone;
    buf_drop(&r->held, gone);
    buf_drop(&r->black, gone);
}

void redact_feed(struct redact *r, const void *p, size_t n, struct buf *out)
{
    if (n == 0)
        return;
    auto_free char *none = mem_array(n, 1);
    (void)buf_add(&r->held, p, n);
    (void)buf_add(&r->black, none, n);
    mark(r, r->held.data, r->held.len, r->black.data);
    size_t waits, kept = open_end(r, r->held.data, r->held.len, &waits);
    put(r, r->held.len - kept, kept, out);
}

void redact_pause(struct redact *r, struct buf *out)
{
    size_t waits;

    (void)open_end(r, r->held.data, r->held.len, &waits);
    put(r, r->held.len - waits, r->held.len, out);
}

void redact_end(struct redact *r, struct buf *out)
{
    if (r->held.len > 0)
        put(r, r->held.len, 0, out);
}
