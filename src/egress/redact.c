/*
 * redact.c - blackens words in a stream of bytes
 */
#include "egress/redact.h"

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

/* How many of the last bytes may be the begin of a word. */
static size_t open_end(const struct redact *r, const char *p, size_t n)
{
    size_t most = 0;

    for (size_t i = 0; i < r->n; i++) {
        size_t len = strlen(r->words[i]) - 1;
        for (len = len < n ? len : n; len > most; len--)
            if (memcmp(p + n - len, r->words[i], len) == 0)
                most = len;
    }
    return most;
}

static void put(struct redact *r, size_t n, struct buf *out)
{
    blacken(r->held.data, n, r->black.data);
    (void)buf_add(out, r->held.data, n);
    buf_drop(&r->held, n);
    buf_drop(&r->black, n);
}

void redact_feed(struct redact *r, const void *p, size_t n, struct buf *out)
{
    if (n == 0)
        return;
    auto_free char *none = mem_array(n, 1);
    (void)buf_add(&r->held, p, n);
    (void)buf_add(&r->black, none, n);
    mark(r, r->held.data, r->held.len, r->black.data);
    put(r, r->held.len - open_end(r, r->held.data, r->held.len), out);
}

void redact_end(struct redact *r, struct buf *out)
{
    if (r->held.len > 0)
        put(r, r->held.len, out);
}
