/*
 * jks.c - certificates as a store that Java reads
 *
 * A Java KeyStore, version 2: what each JDK reads under javax.net.ssl.trustStore without further words. The form is that of
 * OpenJDK's sun.security.provider.JavaKeyStore: big-endian numbers, texts with a length of two bytes, and a SHA-1 at the end
 * that is keyed with the password, here "changeit" as in Java's own store. Java checks it only where a password is given.
 */
#include "init/fs/jks.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"

#define MAGIC 0xfeedfeedu
#define VERSION 2
#define CERTIFICATE 2
#define BEGIN "-----BEGIN CERTIFICATE-----"
#define END "-----END CERTIFICATE-----"
#define ENTRY_MAX 64        /* of an entry, without the certificate */
#define SHA1_SIZE 20

struct out {
    uint8_t *p;
    size_t n;
};

static void put(struct out *o, const void *p, size_t n)
{
    memcpy(o->p + o->n, p, n);
    o->n += n;
}

static void put_number(struct out *o, uint64_t v, unsigned bytes)
{
    while (bytes-- > 0)
        o->p[o->n++] = (uint8_t)(v >> (8 * bytes));
}

static void put_text(struct out *o, const char *text)
{
    put_number(o, strlen(text), 2);
    put(o, text, strlen(text));
}

/* --- SHA-1, FIPS 180-4 ----------------------------------------------------------------------- */

static uint32_t turn(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static void sha1_block(uint32_t h[5], const uint8_t p[64])
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t next = turn(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = turn(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

static void sha1(const uint8_t *p, size_t n, uint8_t out[SHA1_SIZE])
{
    uint32_t h[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    uint8_t last[128] = {0};
    size_t at = 0;

    for (; n - at >= 64; at += 64)
        sha1_block(h, p + at);
    size_t rest = n - at, size = rest < 56 ? 64 : 128;
    memcpy(last, p + at, rest);
    last[rest] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        last[size - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    for (size_t i = 0; i < size; i += 64)
        sha1_block(h, last + i);
    for (int i = 0; i < SHA1_SIZE; i++)
        out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* --- entries --------------------------------------------------------------------------------- */

/* Whether it is one DER sequence and nothing behind it: Java refuses a whole store for a part that is not. */
static bool is_sequence(const uint8_t *p, size_t n)
{
    size_t head = 2, len;

    if (n < 2 || p[0] != 0x30)
        return false;
    len = p[1];
    if (len >= 0x80) {
        head += len & 0x7f;
        if (head > 6 || head == 2 || n < head)
            return false;
        len = 0;
        for (size_t i = 2; i < head; i++)
            len = len << 8 | p[i];
    }
    return len == n - head;
}

/* The bytes between the lines, decoded in place. */
static bool decode(char *text, size_t n, size_t *ret_len)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (strchr(" \t\r\n", text[i]) == NULL)
            text[kept++] = text[i];
    return base64_decode(text, kept, text, ret_len) && is_sequence((const uint8_t *)text, *ret_len);
}

static uint32_t put_all(struct out *o, char *pem)
{
    uint32_t count = 0;
    char *at, *end, *next;

    for (; (at = strstr(pem, BEGIN)) != NULL && (end = strstr(at, END)) != NULL; pem = end + strlen(END)) {
        char *body = at + strlen(BEGIN), name[24];
        size_t len;
        /* One that has no end takes the next one with it otherwise. */
        while ((next = strstr(body, BEGIN)) != NULL && next < end)
            body = next + strlen(BEGIN);
        if (!decode(body, (size_t)(end - body), &len))
            continue;
        (void)snprintf(name, sizeof name, "authority-%u", ++count);
        put_number(o, CERTIFICATE, 4);
        put_text(o, name);
        put_number(o, 0, 8);            /* when it was put in */
        put_text(o, "X.509");
        put_number(o, len, 4);
        put(o, body, len);
    }
    return count;
}

uint8_t *jks_from_pem(struct arena *a, const char *pem, size_t *ret_len)
{
    static const char password[] = "changeit", salt[] = "Mighty Aphrodite";
    const size_t before = 2 * (sizeof password - 1) + sizeof salt - 1;
    size_t n = strlen(pem), entries = 0;

    for (const char *c = pem; (c = strstr(c, BEGIN)) != NULL; c++)
        entries++;
    char *copy = arena_copy(a, pem, n);
    /* What the hash is of: the password in UTF-16, the salt, the store. */
    struct out o = {arena_alloc(a, before + 12 + entries * ENTRY_MAX + n + SHA1_SIZE), 0};
    for (size_t i = 0; i < sizeof password - 1; i++)
        put_number(&o, (uint8_t)password[i], 2);
    put(&o, salt, sizeof salt - 1);
    put_number(&o, MAGIC, 4);
    put_number(&o, VERSION, 4);
    struct out count = o;
    put_number(&o, 0, 4);
    put_number(&count, put_all(&o, copy), 4);
    sha1(o.p, o.n, o.p + o.n);
    o.n += SHA1_SIZE;
    *ret_len = o.n - before;
    return o.p + before;
}
