/*
 * dns_wire.c - DNS messages: a query of a sandbox, and the answer to it
 */
#include "egress/dns_wire.h"

#include <string.h>

#define HEADER 12
#define FLAG_QR 0x8000u
#define FLAG_RD 0x0100u
#define FLAG_RA 0x0080u
#define OPCODE 0x7800u
#define CLASS_IN 1
#define LABEL_MAX 63

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* The name at p + HEADER as text; returns where it ends, 0 if it is none that a host has. */
static size_t get_name(const uint8_t *p, size_t n, char *out, size_t size)
{
    size_t at = HEADER, len = 0;

    while (at < n && p[at] != 0) {
        size_t label = p[at++];
        if (label > LABEL_MAX || label > n - at || len + label + 2 > size)
            return 0;       /* also a pointer, which a question has no need of */
        if (memchr(p + at, '.', label) != NULL || memchr(p + at, '\0', label) != NULL)
            return 0;
        memcpy(out + len, p + at, label);
        len += label;
        out[len++] = '.';
        at += label;
    }
    if (at >= n)
        return 0;
    out[len > 0 ? len - 1 : 0] = '\0';
    return at + 1;
}

int dns_parse(const uint8_t *p, size_t n, struct dns_query *ret)
{
    char text[POLICY_DOMAIN_MAX + 2];

    *ret = (struct dns_query){0};
    if (n < HEADER)
        return -1;
    ret->id = get16(p);
    uint16_t flags = get16(p + 2);
    ret->recursion = (flags & FLAG_RD) != 0;
    if ((flags & FLAG_QR) != 0)
        return -1;
    if ((flags & OPCODE) != 0)
        return DNS_NOTIMP;
    if (n > DNS_QUERY_MAX || get16(p + 4) != 1 || get16(p + 6) != 0 || get16(p + 8) != 0)
        return DNS_FORMERR;
    size_t end = get_name(p, n, text, sizeof text);
    if (end == 0 || n - end < 4)
        return DNS_FORMERR;
    ret->type = get16(p + end);
    ret->question_len = end + 4 - HEADER;
    memcpy(ret->question, p + HEADER, ret->question_len);
    if (get16(p + end + 2) != CLASS_IN)
        return DNS_REFUSED;
    return policy_domain(text, false, ret->name) == NULL ? DNS_NOERROR : DNS_NXDOMAIN;
}

size_t dns_answer(const struct dns_query *q, int code, const struct address *addresses, size_t n, uint32_t ttl,
                  uint8_t out[DNS_ANSWER_MAX])
{
    size_t len = HEADER, count = 0;

    memset(out, 0, HEADER);
    put16(out, q->id);
    put16(out + 2, (uint16_t)(FLAG_QR | FLAG_RA | (q->recursion ? FLAG_RD : 0) | (unsigned)code));
    put16(out + 4, q->question_len > 0);
    memcpy(out + len, q->question, q->question_len);
    len += q->question_len;
    for (size_t i = 0; i < n && count < DNS_ADDRESSES; i++) {
        bool four = address_is4(&addresses[i]);
        uint16_t size = four ? 4 : 16;
        if (q->type != (four ? DNS_A : DNS_AAAA) || len + 12 + size > DNS_ANSWER_MAX)
            continue;
        put16(out + len, 0xc000 | HEADER);      /* the name of the question */
        put16(out + len + 2, q->type);
        put16(out + len + 4, CLASS_IN);
        put16(out + len + 6, (uint16_t)(ttl >> 16));
        put16(out + len + 8, (uint16_t)ttl);
        put16(out + len + 10, size);
        memcpy(out + len + 12, addresses[i].b + 16 - size, size);
        len += 12u + size;
        count++;
    }
    put16(out + 6, (uint16_t)count);
    return len;
}
