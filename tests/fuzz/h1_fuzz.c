/*
 * h1_fuzz.c - HTTP/1.1 request heads and chunked bodies
 *
 * What must hold: a head is found at the same place whether it comes at once or byte by byte; a chunked body decodes to
 * the same bytes in any pieces; accepted heads have one meaning (no two framings, printable names, one line a value).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/h1_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_head(struct h1_head *hd)
{
    check(hd->method[0] != '\0' && hd->target[0] != '\0');
    check(hd->version == 10 || hd->version == 11);
    check(!hd->is_chunked || hd->content_length < 0);
    for (size_t i = 0; i < hd->nfields; i++) {
        check(hd->fields[i].name[0] != '\0');
        check(strpbrk(hd->fields[i].name, " \t\r\n:") == NULL);
        check(strpbrk(hd->fields[i].value, "\r\n") == NULL);
    }
}

/* Decodes in pieces; returns a hash of the result. */
static uint64_t decode(const char *p, size_t n, size_t piece)
{
    static struct h1_chunked d;
    struct http_header trailers[8];
    uint64_t sum = 1469598103934665603ULL;
    size_t at = 0;
    int r = 0;

    h1_chunked_init(&d);
    while (at < n && r == 0 && d.state != H1_CHUNK_DONE) {
        size_t step = n - at < piece ? n - at : piece, used, len;
        const char *body;
        r = h1_chunked_next(&d, p + at, step, &used, &body, &len);
        if (r < 0)
            break;
        check(used > 0 && used <= step && body >= p + at && body + len <= p + at + step);
        for (size_t i = 0; i < len; i++)
            sum = (sum ^ (uint8_t)body[i]) * 1099511628211ULL;
        at += used;
    }
    if (d.state == H1_CHUNK_DONE)
        r = (int)h1_chunked_trailers(&d, trailers, array_len(trailers));
    return sum * 31 + (uint64_t)(r < 0 ? r : d.state == H1_CHUNK_DONE ? (int)at + 1 : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *why = NULL;
    size_t scanned = 0, piecewise = 0;
    ssize_t whole = h1_head_find(p, size, &scanned), found = 0;

    for (size_t n = 1; n <= size && found == 0 && size < 4096; n++)
        found = h1_head_find(p, n, &piecewise);
    check(size >= 4096 || found == whole);
    size_t rest = 0;
    if (whole > 0) {
        struct h1_head hd;
        rest = (size_t)whole;
        auto_free char *mem = mem_dup(p, rest);
        if (h1_head_parse(mem, rest, &hd, &why) == 0)
            check_head(&hd);
        check(why != NULL);
    }
    uint64_t sum = decode(p + rest, size - rest, size + 1);
    check(decode(p + rest, size - rest, 1) == sum);
    check(decode(p + rest, size - rest, 7) == sum);
    return 0;
}
