/*
 * address.c - which addresses a registry may not send us to
 */
#include "image/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const struct {
    uint32_t net;
    unsigned bits;
} private_v4[] = {
    {0x00000000, 8},    /* this network */
    {0x0a000000, 8},    /* 10/8 */
    {0x64400000, 10},   /* 100.64/10, shared by carriers */
    {0x7f000000, 8},    /* loopback */
    {0xa9fe0000, 16},   /* link-local: metadata services of clouds */
    {0xac100000, 12},   /* 172.16/12 */
    {0xc0000000, 24},   /* protocol assignments */
    {0xc0a80000, 16},   /* 192.168/16 */
    {0xc6120000, 15},   /* benchmarks */
    {0xe0000000, 3},    /* multicast, reserved, broadcast */
};

static bool is_private_v4(uint32_t address)
{
    for (size_t i = 0; i < sizeof private_v4 / sizeof private_v4[0]; i++)
        if (((address ^ private_v4[i].net) >> (32 - private_v4[i].bits)) == 0)
            return true;
    return false;
}

bool address_is_private(const struct sockaddr *sa)
{
    struct sockaddr_in6 in6;
    struct sockaddr_in in;

    if (sa->sa_family == AF_INET) {
        memcpy(&in, sa, sizeof in);
        return is_private_v4(ntohl(in.sin_addr.s_addr));
    }
    if (sa->sa_family != AF_INET6)
        return true;
    memcpy(&in6, sa, sizeof in6);
    const uint8_t *a = in6.sin6_addr.s6_addr;
    static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) || memcmp(a, nat64, sizeof nat64) == 0)
        return is_private_v4((uint32_t)a[12] << 24 | (uint32_t)a[13] << 16 | (uint32_t)a[14] << 8 | a[15]);
    if (a[0] == 0x20 && a[1] == 0x02)   /* 6to4 */
        return is_private_v4((uint32_t)a[2] << 24 | (uint32_t)a[3] << 16 | (uint32_t)a[4] << 8 | a[5]);
    /* Everything but global unicast: loopback, link-local, unique local, multicast. */
    return (a[0] & 0xe0) != 0x20;
}
