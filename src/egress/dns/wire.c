/*
 * wire.c - DNS messages: a query of a sandbox, and the answer to it
 */
#include "egress/dns/wire.h"

#include <string.h>

#define HEADER 12
#define FLAG_QR 0x8000u
#define FLAG_TC 0x0200u
#define FLAG_RD 0x0100u
#define FLAG_RA 0x0080u
#define OPCODE 0x7800u
#define CLASS_IN 1
#define LABEL_MAX 63
#define RECORD 10               /* behind its name, before its data */
#define OPT_MIN 11
#define OPT_MAX 17

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

/* Skips a name, which may be a pointer; returns where it ends, 0: it does not. */
static size_t skip_name(const uint8_t *p, size_t n, size_t at)
{
    while (at < n && p[at] != 0) {
        if (p[at] >= 0xc0)
            return at + 2 <= n ? at + 2 : 0;
        at += 1u + p[at];
    }
    return at < n ? at + 1 : 0;
}

/* The records behind the question: of all of them one says what the asker understands. */
static int read_additional(const uint8_t *p, size_t n, size_t at, unsigned count, struct dns_query *ret)
{
    int code = DNS_NOERROR;

    for (unsigned i = 0; i < count; i++) {
        size_t name = at;
        at = skip_name(p, n, at);
        if (at == 0 || n - at < RECORD)
            return DNS_FORMERR;
        size_t len = get16(p + at + 8);
        if (n - at - RECORD < len)
            return DNS_FORMERR;
        if (get16(p + at) == DNS_OPT) {
            if (ret->is_extended || p[name] != 0)
                return DNS_FORMERR;
            ret->is_extended = true;
            uint16_t room = get16(p + at + 2);
            ret->room = room < DNS_DATAGRAM_MAX ? DNS_DATAGRAM_MAX : room > DNS_ANSWER_MAX ? DNS_ANSWER_MAX : room;
            if (p[at + 5] != 0)
                code = DNS_BADVERS;
        }
        at += RECORD + len;
    }
    return code;
}

int dns_parse(const uint8_t *p, size_t n, struct dns_query *ret)
{
    char text[POLICY_DOMAIN_MAX + 2];

    *ret = (struct dns_query){.room = DNS_DATAGRAM_MAX};
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
    int code = read_additional(p, n, end + 4, get16(p + 10), ret);
    if (code != DNS_NOERROR)
        return code;
    if (get16(p + end + 2) != CLASS_IN)
        return DNS_REFUSED;
    return policy_domain(text, false, ret->name) == NULL ? DNS_NOERROR : DNS_NXDOMAIN;
}

/* The record that says what we understand, and why there is no better answer. */
static size_t put_opt(const struct dns_reply *r, uint8_t *out)
{
    static const uint8_t blocked[] = {0, 15, 0, 2, 0, 15};     /* option 15, extended error; 15, blocked */
    size_t len = r->is_blocked ? sizeof blocked : 0;

    memset(out, 0, OPT_MIN);
    put16(out + 1, DNS_OPT);
    put16(out + 3, DNS_ANSWER_MAX);
    out[5] = (uint8_t)(r->code >> 4);
    put16(out + 9, (uint16_t)len);
    memcpy(out + OPT_MIN, blocked, len);
    return OPT_MIN + len;
}

size_t dns_answer(const struct dns_query *q, const struct dns_reply *r, size_t room, uint8_t out[DNS_ANSWER_MAX])
{
    size_t len = HEADER, count = 0, end = room - (q->is_extended ? OPT_MAX : 0);
    unsigned flags = FLAG_QR | FLAG_RA | (q->recursion ? FLAG_RD : 0) | ((unsigned)r->code & 15);

    memset(out, 0, HEADER);
    put16(out, q->id);
    put16(out + 4, q->question_len > 0);
    memcpy(out + len, q->question, q->question_len);
    len += q->question_len;
    for (size_t i = 0; i < r->n; i++) {
        bool four = address_is4(&r->addresses[i]);
        uint16_t size = four ? 4 : 16;
        if (q->type != (four ? DNS_A : DNS_AAAA))
            continue;
        if (len + 12 + size > end) {
            flags |= FLAG_TC;
            break;
        }
        put16(out + len, 0xc000 | HEADER);      /* the name of the question */
        put16(out + len + 2, q->type);
        put16(out + len + 4, CLASS_IN);
        put16(out + len + 6, (uint16_t)(r->ttl >> 16));
        put16(out + len + 8, (uint16_t)r->ttl);
        put16(out + len + 10, size);
        memcpy(out + len + 12, r->addresses[i].b + 16 - size, size);
        len += 12u + size;
        count++;
    }
    put16(out + 2, (uint16_t)flags);
    put16(out + 6, (uint16_t)count);
    put16(out + 10, q->is_extended);
    return len + (q->is_extended ? put_opt(r, out + len) : 0);
}
