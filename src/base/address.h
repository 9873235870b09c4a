/*
 * address.h - IP addresses of both families in one form, and what kind of address one is
 *
 * An IPv4 address is kept as IPv4-mapped IPv6 address, so that it is the same address however it was written.
 */
#ifndef QS_BASE_ADDRESS_H
#define QS_BASE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADDRESS_TEXT 46     /* INET6_ADDRSTRLEN */

struct address {
    uint8_t b[16];
};

enum address_class {
    ADDRESS_PUBLIC,
    ADDRESS_THIS_HOST,      /* 0.0.0.0/8, :: */
    ADDRESS_LOOPBACK,
    ADDRESS_PRIVATE,        /* RFC 1918 and fc00::/7 */
    ADDRESS_LINK_LOCAL,
    ADDRESS_SHARED,         /* 100.64.0.0/10, behind carriers' translation */
    ADDRESS_METADATA,       /* where clouds tell a machine its secrets */
    ADDRESS_MULTICAST,
    ADDRESS_TRANSLATED,     /* IPv6 addresses that carry an IPv4 address to wherever a translator takes it */
    ADDRESS_RESERVED,       /* documentation, benchmarks, future use, broadcast */
};

bool address_parse(const char *text, struct address *ret);     /* either family, no zone, no brackets */
const char *address_text(const struct address *a, char out[ADDRESS_TEXT]);
bool address_is4(const struct address *a);
enum address_class address_class(const struct address *a);
const char *address_class_name(enum address_class c);

/* A prefix. `bits` counts those of the 128-bit form: an IPv4 /8 has 104. */
struct cidr {
    struct address net;     /* host bits are 0 */
    uint8_t bits;
};

/* "10.0.0.0/8", "::/0", or an address, which is a prefix of full length. NULL, or what is wrong with it. */
const char *cidr_parse(const char *text, struct cidr *ret);
/* The same of "10.1.2.3/8", which is 10.0.0.0/8: for dialects that take it. */
const char *cidr_parse_masked(const char *text, struct cidr *ret);
size_t cidr_text(const struct cidr *c, char *out, size_t size);
bool cidr_has(const struct cidr *c, const struct address *a);
struct address address_mask(const struct address *a, unsigned bits);
/* Whether the prefix was written for such addresses: all of it is of the class of `a`, which is in it. Of a public
 * address, whether the prefix is that one address. */
bool cidr_names(const struct cidr *c, const struct address *a);

#endif
