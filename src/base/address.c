/*
 * address.c - IP addresses of both families in one form, and what kind of address one is
 */
#include "base/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define MAPPED_BITS 96
#define TEXT_MAX 64

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool address_is4(const struct address *a)
{
    return memcmp(a->b, mapped, sizeof mapped) == 0;
}

bool address_parse(const char *text, struct address *ret)
{
    struct address a = {{0}};

    if (strchr(text, ':') != NULL) {
        if (inet_pton(AF_INET6, text, a.b) != 1)
            return false;
    } else {
        memcpy(a.b, mapped, sizeof mapped);
        if (inet_pton(AF_INET, text, a.b + 12) != 1)
            return false;
    }
    *ret = a;
    return true;
}

const char *address_text(const struct address *a, char out[ADDRESS_TEXT])
{
    const char *r = address_is4(a) ? inet_ntop(AF_INET, a->b + 12, out, ADDRESS_TEXT)
                                   : inet_ntop(AF_INET6, a->b, out, ADDRESS_TEXT);

    return r != NULL ? r : "?";
}

struct address address_mask(const struct address *a, unsigned bits)
{
    struct address r = *a;

    for (unsigned i = 0; i < 16; i++) {
        unsigned left = bits > i * 8 ? bits - i * 8 : 0;
        if (left < 8)
            r.b[i] &= (uint8_t)(0xff00 >> left);
    }
    return r;
}

bool cidr_has(const struct cidr *c, const struct address *a)
{
    /* ::/0 is every IPv6 address, not the mapped form of every IPv4 address. */
    if (address_is4(a) != (c->bits >= MAPPED_BITS && address_is4(&c->net)))
        return false;
    struct address m = address_mask(a, c->bits);
    return memcmp(m.b, c->net.b, sizeof m.b) == 0;
}

static const char *parse_bits(const char *text, unsigned max, unsigned *ret)
{
    size_t n = strlen(text);
    unsigned v = 0;

    if (n == 0 || n > 3 || strspn(text, "0123456789") != n || (n > 1 && text[0] == '0'))
        return "its length is not a number";
    for (size_t i = 0; i < n; i++)
        v = v * 10 + (unsigned)(text[i] - '0');
    if (v > max)
        return max == 32 ? "its length is more than 32 bits" : "its length is more than 128 bits";
    *ret = v;
    return NULL;
}

static const char *parse(const char *text, bool mask, struct cidr *ret)
{
    char address[TEXT_MAX];
    struct cidr c;
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);

    if (n >= sizeof address)
        return "it is not an address";
    memcpy(address, text, n);
    address[n] = '\0';
    if (!address_parse(address, &c.net))
        return "it is not an address";
    bool four = strchr(address, ':') == NULL;
    unsigned bits = four ? 32 : 128;
    const char *wrong = slash != NULL ? parse_bits(slash + 1, bits, &bits) : NULL;
    if (wrong != NULL)
        return wrong;
    c.bits = (uint8_t)(four ? bits + MAPPED_BITS : bits);
    if (!four && address_is4(&c.net) && c.bits < MAPPED_BITS)
        return "it mixes both families";
    struct address m = address_mask(&c.net, c.bits);
    if (!mask && memcmp(m.b, c.net.b, sizeof m.b) != 0)
        return "it has bits set beyond its length";
    c.net = m;
    *ret = c;
    return NULL;
}

const char *cidr_parse(const char *text, struct cidr *ret)
{
    return parse(text, false, ret);
}

const char *cidr_parse_masked(const char *text, struct cidr *ret)
{
    return parse(text, true, ret);
}

size_t cidr_text(const struct cidr *c, char *out, size_t size)
{
    char text[ADDRESS_TEXT];
    bool four = c->bits >= MAPPED_BITS && address_is4(&c->net);
    int n = snprintf(out, size, "%s/%u", address_text(&c->net, text), four ? c->bits - MAPPED_BITS : c->bits);

    return n < 0 || (size_t)n >= size ? 0 : (size_t)n;
}

static const struct {
    const char *cidr;
    enum address_class class;
} table[] = {
    /* The first that fits. Metadata services that lie in a wider range come before it. */
    {"169.254.169.254", ADDRESS_METADATA}, {"169.254.170.2", ADDRESS_METADATA}, {"169.254.170.23", ADDRESS_METADATA},
    {"168.63.129.16", ADDRESS_METADATA}, {"100.100.100.200", ADDRESS_METADATA}, {"192.0.0.192", ADDRESS_METADATA},
    {"fd00:ec2::/32", ADDRESS_METADATA}, {"fd20:ce::254", ADDRESS_METADATA},
    {"0.0.0.0/8", ADDRESS_THIS_HOST}, {"127.0.0.0/8", ADDRESS_LOOPBACK},
    {"10.0.0.0/8", ADDRESS_PRIVATE}, {"172.16.0.0/12", ADDRESS_PRIVATE}, {"192.168.0.0/16", ADDRESS_PRIVATE},
    {"169.254.0.0/16", ADDRESS_LINK_LOCAL}, {"100.64.0.0/10", ADDRESS_SHARED}, {"224.0.0.0/4", ADDRESS_MULTICAST},
    {"192.0.0.0/24", ADDRESS_RESERVED}, {"192.0.2.0/24", ADDRESS_RESERVED}, {"198.51.100.0/24", ADDRESS_RESERVED},
    {"203.0.113.0/24", ADDRESS_RESERVED}, {"198.18.0.0/15", ADDRESS_RESERVED}, {"192.88.99.0/24", ADDRESS_RESERVED},
    {"240.0.0.0/4", ADDRESS_RESERVED},
    {"::", ADDRESS_THIS_HOST}, {"::1", ADDRESS_LOOPBACK}, {"fe80::/10", ADDRESS_LINK_LOCAL},
    {"fec0::/10", ADDRESS_PRIVATE}, {"fc00::/7", ADDRESS_PRIVATE}, {"ff00::/8", ADDRESS_MULTICAST},
    {"::/96", ADDRESS_TRANSLATED}, {"::ffff:0:0:0/96", ADDRESS_TRANSLATED}, {"64:ff9b::/96", ADDRESS_TRANSLATED},
    {"64:ff9b:1::/48", ADDRESS_TRANSLATED}, {"2002::/16", ADDRESS_TRANSLATED}, {"2001::/32", ADDRESS_TRANSLATED},
    {"2001:db8::/32", ADDRESS_RESERVED}, {"100::/64", ADDRESS_RESERVED}, {"3fff::/20", ADDRESS_RESERVED},
    {"5f00::/16", ADDRESS_RESERVED},
};

enum address_class address_class(const struct address *a)
{
    static struct cidr parsed[array_len(table)];
    static bool ready;

    if (!ready) {
        for (size_t i = 0; i < array_len(table); i++)
            (void)cidr_parse(table[i].cidr, &parsed[i]);
        ready = true;
    }
    for (size_t i = 0; i < array_len(table); i++)
        if (cidr_has(&parsed[i], a))
            return table[i].class;
    return ADDRESS_PUBLIC;
}

const char *address_class_name(enum address_class c)
{
    static const char *const names[] = {
        [ADDRESS_PUBLIC] = "public", [ADDRESS_THIS_HOST] = "this-host", [ADDRESS_LOOPBACK] = "loopback",
        [ADDRESS_PRIVATE] = "private", [ADDRESS_LINK_LOCAL] = "link-local", [ADDRESS_SHARED] = "shared",
        [ADDRESS_METADATA] = "metadata", [ADDRESS_MULTICAST] = "multicast", [ADDRESS_TRANSLATED] = "translated",
        [ADDRESS_RESERVED] = "reserved",
    };

    return names[c];
}

bool cidr_names(const struct cidr *c, const struct address *a)
{
    enum address_class class = address_class(a);
    struct address last = c->net;

    if (!cidr_has(c, a))
        return false;
    if (class == ADDRESS_PUBLIC)
        return c->bits == 128;
    /* Both ends alike is not enough for the widest: 0.0.0.0/8 and 240.0.0.0/4 have neighbours of many kinds between them. */
    if (c->bits < (address_is4(a) ? MAPPED_BITS + 4 : 7))
        return false;
    for (unsigned i = 0; i < 16; i++) {
        unsigned kept = c->bits > i * 8 ? c->bits - i * 8 : 0;
        if (kept < 8)
            last.b[i] |= (uint8_t)(0xff >> kept);
    }
    return address_class(&c->net) == class && address_class(&last) == class;
}
